//! The JavaScript around author code, as one function of the host object.

/// Part of every code hash: a journal is not replayed by another prelude.
pub(crate) const PRELUDE_VERSION: &[u8] = SOURCE.as_bytes();

/// The parts share one scope. `harden.js` comes last and returns what the host calls.
pub(super) const SOURCE: &str = concat!(
    "(function (host) {\n\"use strict\";\n",
    include_str!("prelude/primordials.js"),
    include_str!("prelude/bounded.js"),
    include_str!("prelude/effects.js"),
    include_str!("prelude/clock.js"),
    include_str!("prelude/locale.js"),
    include_str!("prelude/web.js"),
    include_str!("prelude/ctx.js"),
    include_str!("prelude/call.js"),
    include_str!("prelude/harden.js"),
    "\n})"
);

pub(super) const COMMON_JS_ID: &str = "spile:common-js";
pub(super) const COMMON_JS: &str = include_str!("prelude/common-js.js");

//! Writes TOML keys and strings.

use std::fmt::Write;

/// A TOML key. Variables are not replaced in keys.
pub fn toml_key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { toml_quote(name) }
}

/// A TOML string of a manifest that evaluates to exactly this value: variables are not replaced in it.
pub fn toml_string(value: &str) -> String {
    toml_quote(&value.replace("${", "$${"))
}

/// A basic string, in which TOML replaces nothing but escapes.
pub(crate) fn toml_quote(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out += "\\n",
            '\t' => out += "\\t",
            // TOML requires escapes for these in strings and forbids them in comments.
            c if c.is_control() => write!(out, "\\u{:04x}", u32::from(c)).expect("a string takes everything"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

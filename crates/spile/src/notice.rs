//! Messages to the operator on stderr, besides the log: as text for people, or with `--log-format json` as log lines, so
//! that stderr contains nothing but JSON.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use contract::diagnostic::{Diagnostic, Severity};

use crate::client::output_style::OutputStyle;
use crate::{layout, sanitize};

/// The log target of notices. The log prints it at every level of verbosity, as text would be.
pub(crate) const TARGET: &str = "spile::notice";

static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Prints notices as log lines from now on.
pub(crate) fn use_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

pub(crate) fn is_json() -> bool {
    AS_JSON.load(Ordering::Relaxed)
}

pub(crate) fn info(text: &str) {
    if is_json() {
        tracing::info!(target: TARGET, "{text}");
        return;
    }
    let text = layout::wrap_lines(text, OutputStyle::stderr().columns, is_prose);
    // A closed stderr does not keep a server from serving.
    let _ = writeln!(std::io::stderr(), "{}", sanitize::styled(&text));
}

/// Commands and JSON that people copy are indented deeper than any sentence, and stay on one line.
fn is_prose(line: &str) -> bool {
    !line.starts_with("    ")
}

/// Logs diagnostics one by one. Only for JSON: as text, they are printed together.
pub(crate) fn log_diagnostics<'a>(diagnostics: impl IntoIterator<Item = &'a Diagnostic>) {
    for Diagnostic { severity, message, location, help, code } in diagnostics {
        let file = location.as_ref().map(|location| location.file_name());
        let (line, column) = (location.as_ref().map(|l| l.line()), location.as_ref().map(|l| l.column()));
        match severity {
            Severity::Error => {
                tracing::error!(target: TARGET, code, file, line, column, help, "{message}");
            }
            Severity::Warning => {
                tracing::warn!(target: TARGET, code, file, line, column, help, "{message}");
            }
            Severity::Note => tracing::info!(target: TARGET, code, file, line, column, help, "{message}"),
        }
    }
}

//! Turns the TOML parser's errors into diagnostics, and decides whether the manifest can still be read.

use std::ops::Range;
use std::sync::Arc;

use super::reader::quoted;
use super::toml_errors::{self, ErrorContext};
use crate::diagnostic::{Diagnostic, FileLocation, FileText};

/// The parser's message for a duplicate key. The rest of such a text can still be read.
const DUPLICATE_KEY: &str = "duplicate key";

/// Whether a text can be read.
pub(super) enum SyntaxCheck {
    /// With errors for duplicate keys.
    Readable(Vec<Diagnostic>),
    Broken(Vec<Diagnostic>),
}

pub(super) fn check_syntax(origin: &Arc<FileText>, errors: &[toml::de::Error]) -> SyntaxCheck {
    let end = origin.text.len();
    let mut errors: Vec<(Range<usize>, &str)> =
        errors.iter().map(|error| (error.span().unwrap_or(end..end), error.message())).collect();
    errors.sort_by_key(|(span, _)| span.start);
    let broken: Vec<_> = errors.iter().filter(|(_, message)| *message != DUPLICATE_KEY).collect();
    if broken.is_empty() {
        let spans = errors.into_iter().map(|(span, _)| span);
        return SyntaxCheck::Readable(duplicate_key_errors(origin, spans));
    }
    if let Some((message, help)) = toml_errors::explain_other_format(&origin.text) {
        let at = FileLocation::new(origin, broken[0].0.clone());
        return SyntaxCheck::Broken(vec![Diagnostic::error(message).at(&at).help(help)]);
    }
    let mut diagnostics: Vec<Diagnostic> = Vec::new();
    let mut reported_until = 0;
    for (span, message) in broken {
        // Further errors on the same line usually have the same cause.
        if diagnostics.is_empty() || origin.text[reported_until..span.start.min(end)].contains('\n') {
            let (what, help) = toml_errors::explain(message, &ErrorContext::new(&origin.text, span));
            diagnostics.push(Diagnostic::error(what).at(&FileLocation::new(origin, span.clone())).help(help));
            reported_until = span.start.min(end);
        }
    }
    SyntaxCheck::Broken(diagnostics)
}

/// Reports duplicate keys and tables. The keys of a duplicate table are duplicates too; they are not reported.
fn duplicate_key_errors(
    origin: &Arc<FileText>,
    spans: impl Iterator<Item = Range<usize>>,
) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    let mut header_at = None;
    for span in spans {
        let before = &origin.text[..span.start];
        let line = before.rfind('\n').map_or(0, |newline| newline + 1);
        let is_header = before[line..].trim_start().starts_with('[');
        let is_below = header_at.is_some_and(|at: usize| !origin.text[at..span.start].contains("\n["));
        if is_header {
            header_at = Some(span.start);
        }
        if is_header || !is_below {
            let message = format!("{} is defined twice", quoted(&origin.text[span.clone()]));
            diagnostics.push(
                Diagnostic::error(message).at(&FileLocation::new(origin, span)).help("keep one of them"),
            );
        }
    }
    diagnostics
}

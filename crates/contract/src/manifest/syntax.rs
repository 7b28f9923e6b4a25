//! What the parser of TOML says: what of it is told, and whether the rest can be read.

use std::ops::Range;
use std::sync::Arc;

use super::reader::quoted;
use super::toml_errors::{self, ErrorContext};
use crate::diagnostic::{Diagnostic, FileLocation, FileText};

/// How the parser says that a key is there twice. The rest of such a text can be read all the same.
const DUPLICATE_KEY: &str = "duplicate key";

/// What keeps a text from being read, or that it can be read all the same.
pub(super) enum SyntaxCheck {
    /// With what is there twice.
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
    let mut told: Vec<Diagnostic> = Vec::new();
    let mut seen_until = 0;
    for (span, message) in broken {
        // What follows on the same line is most often the same slip.
        if told.is_empty() || origin.text[seen_until..span.start.min(end)].contains('\n') {
            let (what, help) = toml_errors::explain(message, &ErrorContext::new(&origin.text, span));
            told.push(Diagnostic::error(what).at(&FileLocation::new(origin, span.clone())).help(help));
            seen_until = span.start.min(end);
        }
    }
    SyntaxCheck::Broken(told)
}

/// A table that is there twice has its keys twice, too; that is not told.
fn duplicate_key_errors(
    origin: &Arc<FileText>,
    spans: impl Iterator<Item = Range<usize>>,
) -> Vec<Diagnostic> {
    let mut told = Vec::new();
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
            let message = format!("{} is there twice", quoted(&origin.text[span.clone()]));
            told.push(
                Diagnostic::error(message).at(&FileLocation::new(origin, span)).help("keep one of the two"),
            );
        }
    }
    told
}

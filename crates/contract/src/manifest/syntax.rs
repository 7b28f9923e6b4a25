//! What the parser of TOML says: what of it is told, and whether the rest can be read.

use std::ops::Range;
use std::sync::Arc;

use super::reader::quoted;
use super::slips::{self, Spot};
use crate::diagnostic::{At, Diagnostic, Origin};

/// How the parser says that a key is there twice. The rest of such a text can be read all the same.
const TWICE: &str = "duplicate key";

/// What keeps a text from being read, or that it can be read all the same.
pub(super) enum Syntax {
    /// With what is there twice.
    Readable(Vec<Diagnostic>),
    Broken(Vec<Diagnostic>),
}

pub(super) fn judge(origin: &Arc<Origin>, errors: &[toml::de::Error]) -> Syntax {
    let end = origin.text.len();
    let mut errors: Vec<(Range<usize>, &str)> =
        errors.iter().map(|error| (error.span().unwrap_or(end..end), error.message())).collect();
    errors.sort_by_key(|(span, _)| span.start);
    let broken: Vec<_> = errors.iter().filter(|(_, message)| *message != TWICE).collect();
    if broken.is_empty() {
        let spans = errors.into_iter().map(|(span, _)| span);
        return Syntax::Readable(twice(origin, spans));
    }
    if let Some((message, help)) = slips::of_format(&origin.text) {
        let at = At::new(origin, broken[0].0.clone());
        return Syntax::Broken(vec![Diagnostic::error(message).at(&at).help(help)]);
    }
    let mut told: Vec<Diagnostic> = Vec::new();
    let mut seen_until = 0;
    for (span, message) in broken {
        // What follows on the same line is most often the same slip.
        if told.is_empty() || origin.text[seen_until..span.start.min(end)].contains('\n') {
            let (what, help) = slips::words(message, &Spot::new(&origin.text, span));
            told.push(Diagnostic::error(what).at(&At::new(origin, span.clone())).help(help));
            seen_until = span.start.min(end);
        }
    }
    Syntax::Broken(told)
}

/// A table that is there twice has its keys twice, too; that is not told.
fn twice(origin: &Arc<Origin>, spans: impl Iterator<Item = Range<usize>>) -> Vec<Diagnostic> {
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
            told.push(Diagnostic::error(message).at(&At::new(origin, span)).help("keep one of the two"));
        }
    }
    told
}

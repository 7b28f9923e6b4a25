//! What the parser of TOML says, in words for people who do not know TOML.

use std::ops::Range;
use std::sync::Arc;

use super::reader::quoted;
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
    let mut told: Vec<Diagnostic> = Vec::new();
    let mut seen_until = 0;
    for (span, message) in broken {
        // What follows on the same line is most often the same slip.
        if told.is_empty() || origin.text[seen_until..span.start.min(end)].contains('\n') {
            let (message, help) = words(message, origin.text.get(span.clone()).unwrap_or_default());
            let one = Diagnostic::error(message).at(&At::new(origin, span.clone()));
            told.push(Diagnostic { help: help.map(str::to_owned), ..one });
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

/// Whatever has no better words keeps those of the parser.
fn words(message: &str, there: &str) -> (String, Option<&'static str>) {
    let (what, _) = message.split_once(", expected").unwrap_or((message, ""));
    let (better, help) = match what {
        "string values must be quoted" => ("a text needs quotes", "write it in quotes: `\"…\"`"),
        "invalid basic string" => (
            "this text does not end on its line",
            "end it with `\"`; a text of several lines stands in `\"\"\"`",
        ),
        "invalid literal string" => {
            ("this text does not end on its line", "end it with `'`; a text of several lines stands in `'''`")
        }
        "missing escaped value" => (
            "a `\\` in double quotes must be followed by one of its letters",
            "write the text in single quotes, as in `'C:\\data'`, or each `\\` twice",
        ),
        "missing comma between array elements" => {
            ("a `,` is missing in an array", "or is it the `]` of the line before?")
        }
        "unclosed array" => ("an array has no `]`", "write `]` behind its last value"),
        "unclosed table" | "unclosed array table" => ("a header has no `]`", "write `]` behind its name"),
        "unclosed inline table" => ("a `{` has no `}`", "write `}` behind the last value"),
        "invalid unquoted key" | "unquoted keys cannot be empty" => (
            "this cannot stand in a key",
            "write `key = value`; a key with other characters than letters, digits, `-` and `_` needs quotes",
        ),
        "key with no value" => ("a key without a value", "write `key = value`"),
        "missing value" | "missing value for key" => ("there is no value", "write one behind the `=`"),
        _ if there.is_empty() => return (message.to_owned(), None),
        _ => return (format!("{}: {message}", quoted(there)), None),
    };
    (better.to_owned(), Some(help))
}

//! A position in a text file: line, column, and an excerpt of the line to quote.

use std::ops::Range;
use std::sync::Arc;

use contract::diagnostic::{FileLocation, FileText};
use memchr::memchr2;

/// Outlives the text of the file, so it keeps only the excerpt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextLocation {
    /// Line and column count from 1. A column is a character.
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// The excerpt of the line.
    text: String,
    /// The column at which the excerpt begins.
    text_column: usize,
    highlight: Range<usize>,
}

const CONTEXT_CHARS_MAX: usize = 200;

impl TextLocation {
    /// Locates the bytes `span` of a text. Highlights only what is on the first line of the span.
    pub(crate) fn new(text: &str, span: Range<usize>) -> Self {
        let is_end = |c: char| matches!(c, '\n' | '\r');
        let start = text[..span.start].rfind(is_end).map_or(0, |end| end + 1);
        let end = text[span.start..].find(is_end).map_or(text.len(), |ahead| span.start + ahead);
        let before = text[start..span.start].trim_start_matches('\u{feff}');
        let marked = &text[span.start..span.end.min(end)];
        let context = tail(before);
        let shown = [context, head(marked), head(&text[span.start + marked.len()..end])];
        let columns = before.chars().count();
        Self {
            line: line_at(text.as_bytes(), span.start),
            column: 1 + columns,
            text_column: 1 + columns - context.chars().count(),
            highlight: context.len()..context.len() + shown[1].len(),
            text: shown.concat(),
        }
    }

    /// Locates a byte of a file that may not be valid text.
    pub(crate) fn at_byte(bytes: &[u8], at: usize) -> Self {
        let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let start = bytes[..at].iter().rposition(is_end).map_or(0, |end| end + 1);
        let end = bytes[at..].iter().position(is_end).map_or(bytes.len(), |ahead| at + ahead);
        // A byte that is not valid UTF-8 becomes a replacement character of three bytes.
        let before = String::from_utf8_lossy(&bytes[start..at]);
        let after = String::from_utf8_lossy(&bytes[at..end.min(at + CONTEXT_CHARS_MAX)]);
        let marked = after.chars().next().map_or(0, char::len_utf8);
        let location = Self::new(&format!("{before}{after}"), before.len()..before.len() + marked);
        Self { line: line_at(bytes, at), ..location }
    }

    pub(crate) fn in_file(&self, file: &str) -> FileLocation {
        let origin = FileText {
            file_name: file.to_owned(),
            text: self.text.clone(),
            start_line: self.line,
            start_column: self.text_column,
        };
        FileLocation::new(&Arc::new(origin), self.highlight.clone())
    }
}

/// The number of the line, from 1, that contains a byte.
pub(crate) fn line_at(text: &[u8], at: usize) -> usize {
    let before = &text[..at];
    let mut line = 1;
    let mut from = 0;
    while let Some(ahead) = memchr2(b'\n', b'\r', &before[from..]) {
        let end = from + ahead;
        let is_crlf = before[end] == b'\r' && text.get(end + 1) == Some(&b'\n');
        from = if is_crlf { (end + 2).min(at) } else { end + 1 };
        line += 1;
    }
    line
}

fn tail(text: &str) -> &str {
    let cut = text.char_indices().rev().nth(CONTEXT_CHARS_MAX - 1);
    cut.map_or(text, |(at, _)| &text[at..])
}

fn head(text: &str) -> &str {
    text.char_indices().nth(CONTEXT_CHARS_MAX).map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use contract::diagnostic::{Diagnostic, render};

    use super::TextLocation;

    /// Compares the position, the quoted line, and the highlight.
    fn check(location: &TextLocation, expected: [&str; 3]) {
        let rendered = render(&Diagnostic::error("wrong").at(&location.in_file("people.csv")), false);
        let lines: Vec<&str> = rendered.lines().collect();
        assert_eq!([lines[1], lines[3], lines[4]], expected, "{rendered}");
    }

    fn location_of(text: &str, marked: &str) -> TextLocation {
        let start = text.find(marked).expect("the text has it");
        TextLocation::new(text, start..start + marked.len())
    }

    #[test]
    fn a_location_has_line_and_column_for_every_line_ending() {
        check(&location_of("a,b\n1,x\n", "x"), [" --> people.csv:2:3", "2 | 1,x", "  |   ^"]);
        check(&location_of("a,b\r\nö,xyz\r\n", "xyz"), [" --> people.csv:2:3", "2 | ö,xyz", "  |   ^^^"]);
        check(&location_of("a,b\r1,x\r", "x"), [" --> people.csv:2:3", "2 | 1,x", "  |   ^"]);
        check(&location_of("\u{feff}a,b", "a"), [" --> people.csv:1:1", "1 | a,b", "  | ^"]);
        check(&location_of("a\n\"x\ny\"\n", "\"x\ny\""), [" --> people.csv:2:1", "2 | \"x", "  | ^^"]);
        check(&TextLocation::new("a,b\n1", 5..5), [" --> people.csv:2:2", "2 | 1", "  |  ^"]);
    }

    #[test]
    fn a_long_line_is_cut_but_its_column_number_is_exact() {
        let text = format!("{},here,{}", "x".repeat(100_000), "y".repeat(100_000));
        let location = location_of(&text, "here");
        assert_eq!((location.line, location.column), (1, 100_002));
        assert!(location.text.len() < 1000);
        let rendered = render(&Diagnostic::error("wrong").at(&location.in_file("people.csv")), false);
        assert!(rendered.contains("people.csv:1:100002\n"), "{rendered}");
    }

    #[test]
    fn an_invalid_byte_has_a_location() {
        check(
            &TextLocation::at_byte(b"a,b\n1,\0x\n", 6),
            [" --> people.csv:2:3", r"2 | 1,\u{0}x", "  |   ^^^^^"],
        );
        check(&TextLocation::at_byte(b"a\nb\xff", 3), [" --> people.csv:2:2", "2 | b\u{fffd}", "  |  ^"]);
    }
}

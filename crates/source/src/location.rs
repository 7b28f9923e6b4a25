//! A place in a file: its line, its column, and as much of the line as is shown.

use std::ops::Range;
use std::sync::Arc;

use contract::diagnostic::{FileLocation, FileText};
use memchr::memchr2;

/// Kept after the file is gone from memory, so it holds no more of a line than anybody sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextLocation {
    /// Both counted from 1; a column is a character.
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// What stands around the place, on its line.
    text: String,
    /// The column at which `text` begins.
    text_column: usize,
    highlight: Range<usize>,
}

const CONTEXT_CHARS_MAX: usize = 200;

impl TextLocation {
    /// The bytes `span` of a text. What of it lies on other lines is not marked.
    pub(crate) fn new(text: &str, span: Range<usize>) -> Self {
        let is_end = |c: char| matches!(c, '\n' | '\r');
        let start = text[..span.start].rfind(is_end).map_or(0, |end| end + 1);
        let end = text[span.start..].find(is_end).map_or(text.len(), |ahead| span.start + ahead);
        let before = text[start..span.start].trim_start_matches('\u{feff}');
        let marked = &text[span.start..span.end.min(end)];
        let kept = tail(before);
        let shown = [kept, head(marked), head(&text[span.start + marked.len()..end])];
        let columns = before.chars().count();
        Self {
            line: line_at(text.as_bytes(), span.start),
            column: 1 + columns,
            text_column: 1 + columns - kept.chars().count(),
            highlight: kept.len()..kept.len() + shown[1].len(),
            text: shown.concat(),
        }
    }

    /// A byte of something that is no text.
    pub(crate) fn at_byte(bytes: &[u8], at: usize) -> Self {
        let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let start = bytes[..at].iter().rposition(is_end).map_or(0, |end| end + 1);
        let end = bytes[at..].iter().position(is_end).map_or(bytes.len(), |ahead| at + ahead);
        // One byte is at most three of what stands for it.
        let before = String::from_utf8_lossy(&bytes[start..at]);
        let behind = String::from_utf8_lossy(&bytes[at..end.min(at + CONTEXT_CHARS_MAX)]);
        let marked = behind.chars().next().map_or(0, char::len_utf8);
        let spot = Self::new(&format!("{before}{behind}"), before.len()..before.len() + marked);
        Self { line: line_at(bytes, at), ..spot }
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

/// The line, from 1, on which a byte lies.
pub(crate) fn line_at(text: &[u8], at: usize) -> usize {
    let before = &text[..at];
    let mut line = 1;
    let mut from = 0;
    while let Some(ahead) = memchr2(b'\n', b'\r', &before[from..]) {
        let end = from + ahead;
        let is_pair = before[end] == b'\r' && text.get(end + 1) == Some(&b'\n');
        from = if is_pair { (end + 2).min(at) } else { end + 1 };
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

    /// The place, the quoted line, the mark.
    fn check(spot: &TextLocation, expected: [&str; 3]) {
        let rendered = render(&Diagnostic::error("wrong").at(&spot.in_file("people.csv")), false);
        let lines: Vec<&str> = rendered.lines().collect();
        assert_eq!([lines[1], lines[3], lines[4]], expected, "{rendered}");
    }

    fn location_of(text: &str, marked: &str) -> TextLocation {
        let start = text.find(marked).expect("the text has it");
        TextLocation::new(text, start..start + marked.len())
    }

    #[test]
    fn a_place_is_a_line_and_a_column_whatever_ends_lines() {
        check(&location_of("a,b\n1,x\n", "x"), [" --> people.csv:2:3", "2 | 1,x", "  |   ^"]);
        check(&location_of("a,b\r\nö,xyz\r\n", "xyz"), [" --> people.csv:2:3", "2 | ö,xyz", "  |   ^^^"]);
        check(&location_of("a,b\r1,x\r", "x"), [" --> people.csv:2:3", "2 | 1,x", "  |   ^"]);
        check(&location_of("\u{feff}a,b", "a"), [" --> people.csv:1:1", "1 | a,b", "  | ^"]);
        check(&location_of("a\n\"x\ny\"\n", "\"x\ny\""), [" --> people.csv:2:1", "2 | \"x", "  | ^^"]);
        check(&TextLocation::new("a,b\n1", 5..5), [" --> people.csv:2:2", "2 | 1", "  |  ^"]);
    }

    #[test]
    fn a_long_line_is_cut_and_its_column_is_not() {
        let text = format!("{},here,{}", "x".repeat(100_000), "y".repeat(100_000));
        let spot = location_of(&text, "here");
        assert_eq!((spot.line, spot.column), (1, 100_002));
        assert!(spot.text.len() < 1000);
        let rendered = render(&Diagnostic::error("wrong").at(&spot.in_file("people.csv")), false);
        assert!(rendered.contains("people.csv:1:100002\n"), "{rendered}");
    }

    #[test]
    fn a_byte_has_a_place_too() {
        check(
            &TextLocation::at_byte(b"a,b\n1,\0x\n", 6),
            [" --> people.csv:2:3", r"2 | 1,\u{0}x", "  |   ^^^^^"],
        );
        check(&TextLocation::at_byte(b"a\nb\xff", 3), [" --> people.csv:2:2", "2 | b\u{fffd}", "  |  ^"]);
    }
}

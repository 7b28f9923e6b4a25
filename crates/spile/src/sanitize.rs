//! Text from elsewhere, made harmless for a terminal, and measured in its columns.
//!
//! Nothing that a server says may move the cursor, ring, colour, hide or turn around what a person reads: such
//! characters are shown by their number instead.

use std::borrow::Cow;

use spile_core::text::is_unsafe_to_display;
use unicode_width::UnicodeWidthChar;

/// For one line: line breaks and tabs are shown by their names too.
pub(crate) use spile_core::text::escape_line;

/// For a text of several lines: breaks and tabs stay what they are.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_unsafe_to_display(c) && c != '\n' && c != '\t') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            c if is_unsafe_to_display(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The same for JSON: what is harmful can only stand inside a string, and has an escape there.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe_to_display) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe_to_display(c) && c != '\n' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// How many columns it takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// At most so many columns; what is missing is an ellipsis.
pub(crate) fn truncate(text: &str, columns: usize) -> Cow<'_, str> {
    // Width is never more than bytes; most cells end here.
    if text.len() <= columns || width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut used = 1;
    let end = text.char_indices().find(|(_, c)| {
        used += c.width().unwrap_or(0);
        used > columns
    });
    let end = end.map_or(text.len(), |(at, _)| at);
    Cow::Owned(format!("{}…", &text[..end]))
}

/// Breaks a text at blanks so that each line takes at most so many columns; longer words stay whole.
pub(crate) fn wrap(text: &str, columns: Option<usize>) -> Vec<String> {
    let mut out = Vec::new();
    for paragraph in text.lines() {
        let Some(columns) = columns else {
            out.push(paragraph.to_owned());
            continue;
        };
        let mut row = String::new();
        for word in paragraph.split(' ') {
            if !row.is_empty() && width(&row) + 1 + width(word) > columns {
                out.push(std::mem::take(&mut row));
            }
            if !row.is_empty() {
                row.push(' ');
            }
            row.push_str(word);
        }
        out.push(row);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{json, lines, truncate, wrap};

    #[test]
    fn lines_stay_lines() {
        assert_eq!(lines("a\r\nb\tc\n"), "a\nb\tc\n");
        assert_eq!(lines("a\rb\u{1b}]0;title\u{7}\n"), "a\\rb\\u{1b}]0;title\\u{7}\n");
    }

    #[test]
    fn json_stays_json() {
        assert_eq!(json("{\"a\":\"\u{202e}\u{9b}\u{e0041}\"}"), r#"{"a":"\u202e\u009b\udb40\udc41"}"#);
    }

    #[test]
    fn what_is_too_wide_is_cut_by_columns() {
        for (text, columns, expected) in [
            ("abcdef", 6, "abcdef"),
            ("abcdefg", 6, "abcde…"),
            ("漢字漢字", 5, "漢字…"),
            ("漢字漢字", 4, "漢…"),
            ("", 0, ""),
            ("abc", 1, "…"),
        ] {
            assert_eq!(truncate(text, columns), expected, "{text} {columns}");
        }
    }

    #[test]
    fn words_stay_whole() {
        assert_eq!(wrap("one two three\nfour", Some(8)), ["one two", "three", "four"]);
        assert_eq!(wrap("unbreakable", Some(3)), ["unbreakable"]);
        assert_eq!(wrap("one two three", None), ["one two three"]);
    }
}

//! Makes text from a server safe to print on a terminal, and measures it in columns.
//!
//! Text from a server must not move the cursor, ring the bell, set colours, hide or reorder what a person reads:
//! such characters are printed as escapes.

use std::borrow::Cow;

use spile_core::text::is_unsafe_to_display;
use unicode_width::UnicodeWidthChar;

/// For one line: escapes line breaks and tabs too.
pub(crate) use spile_core::text::escape_line;

/// For several lines: keeps line breaks and tabs.
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

/// For JSON text: an unsafe character can only occur within a string, where JSON has an escape for it.
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

/// The width on a terminal, in columns.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Cuts text to this many columns, with an ellipsis.
pub(crate) fn truncate(text: &str, columns: usize) -> Cow<'_, str> {
    // A character is never wider than its bytes are many, so most cells return here.
    if text.len() <= columns || width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut used = 1;
    let end = text.char_indices().find(|(_, c)| {
        used += c.width().unwrap_or(0);
        used > columns
    });
    let end = end.map_or(text.len(), |(index, _)| index);
    Cow::Owned(format!("{}…", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::{json, lines, truncate};

    #[test]
    fn lines_keep_breaks_and_tabs() {
        assert_eq!(lines("a\r\nb\tc\n"), "a\nb\tc\n");
        assert_eq!(lines("a\rb\u{1b}]0;title\u{7}\n"), "a\\rb\\u{1b}]0;title\\u{7}\n");
    }

    #[test]
    fn json_escapes_are_valid_json() {
        assert_eq!(json("{\"a\":\"\u{202e}\u{9b}\u{e0041}\"}"), r#"{"a":"\u202e\u009b\udb40\udc41"}"#);
    }

    #[test]
    fn truncate_counts_columns() {
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
}

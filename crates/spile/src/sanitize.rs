//! Makes text from a server safe to print on a terminal, and measures it in columns.
//!
//! Text from a server must not move the cursor, ring the bell, set colours, hide or reorder what a person reads:
//! such characters are printed as escapes.

use std::borrow::Cow;
use std::fmt::Write;

use spile_core::text::escape_unsafe;
use unicode_width::UnicodeWidthChar;

/// For one line: escapes line breaks and tabs too.
pub(crate) use spile_core::text::escape_line;

/// For several lines: keeps line breaks and tabs.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    let escaped =
        escape_unsafe(text, |c| matches!(c, '\n' | '\t' | '\r'), |out, c| out.extend(c.escape_default()));
    if !escaped.contains('\r') {
        return escaped;
    }
    // A carriage return alone overwrites the line.
    Cow::Owned(escaped.replace("\r\n", "\n").replace('\r', "\\r"))
}

/// For several lines that we have coloured, the last step before they are printed: keeps nothing but our colours. Names
/// in it should be escaped before, so that lines wrap where they should.
pub(crate) fn styled(text: &str) -> Cow<'_, str> {
    if !text.contains('\x1b') {
        return lines(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('\x1b') {
        let (before, escape) = rest.split_at(start);
        out += &lines(before);
        match color_len(escape) {
            Some(bytes) => out += &escape[..bytes],
            None => out += "\\u{1b}",
        }
        rest = &escape[color_len(escape).unwrap_or(1)..];
    }
    Cow::Owned(out + &lines(rest))
}

/// The length in bytes of a colour such as `\x1b[1;31m` at the start of the text.
fn color_len(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\x1b[")?;
    let end = codes.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    (end <= 5 && codes[end..].starts_with('m')).then_some("\x1b[".len() + end + 1)
}

/// For JSON text: an unsafe character can only occur within a string, where JSON has an escape for it.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    escape_unsafe(
        text,
        |c| c == '\n',
        |out, c| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        },
    )
}

/// `Connection refused (os error 111)`: the number does not help the user.
pub(crate) fn strip_os_errors(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(" (os error ") {
        out.push_str(before);
        rest = match after.split_once(')') {
            Some((number, after)) if number.bytes().all(|c| c.is_ascii_digit()) => after,
            _ => {
                out.push_str(" (os error ");
                after
            }
        };
    }
    out + rest
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
    use super::{json, lines, strip_os_errors, styled, truncate};

    #[test]
    fn os_error_numbers_are_removed() {
        for (message, expected) in [
            ("Connection refused (os error 111)", "Connection refused"),
            ("a (os error 2): b (os error 13); c", "a: b; c"),
            ("no (os error", "no (os error"),
            ("no (os error x)", "no (os error x)"),
        ] {
            assert_eq!(strip_os_errors(message), expected);
        }
    }

    #[test]
    fn lines_keep_breaks_and_tabs() {
        assert_eq!(lines("a\r\nb\tc\n"), "a\nb\tc\n");
        assert_eq!(lines("a\rb\u{1b}]0;title\u{7}\n"), "a\\rb\\u{1b}]0;title\\u{7}\n");
        assert_eq!(lines("p\u{200b}ay \u{2764}\u{fe0f}"), "p\\u{200b}ay \u{2764}\u{fe0f}");
    }

    #[test]
    fn styled_text_keeps_colours_and_nothing_else() {
        assert_eq!(styled("\x1b[1mname\x1b[0m \u{9b}2J\n"), "\x1b[1mname\x1b[0m \\u{9b}2J\n");
        assert_eq!(styled("\x1b[1;31merror\x1b[0m"), "\x1b[1;31merror\x1b[0m");
        assert_eq!(styled("a\x1b[2Jb\x1b]0;t\x07"), "a\\u{1b}[2Jb\\u{1b}]0;t\\u{7}");
        assert_eq!(styled("p\u{200b}ay"), "p\\u{200b}ay");
    }

    #[test]
    fn json_escapes_are_valid_json() {
        assert_eq!(json("{\"a\":\"\u{202e}\u{9b}\u{e0041}\"}"), r#"{"a":"\u202e\u009b\udb40\udc41"}"#);
        assert_eq!(json("{\"a\":\"\u{2028}\u{7f}\u{ad}\"}"), r#"{"a":"\u2028\u007f\u00ad"}"#);
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

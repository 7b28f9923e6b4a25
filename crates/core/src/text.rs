//! Text for people: untrusted text made safe to display, and bytes as hex digits.

use std::borrow::Cow;
use std::fmt::Write;

/// Bytes as hex digits, two for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(out, "{byte:02x}").expect("writing to a String never fails");
    }
    out
}

/// Whether a character can move the cursor, ring the bell, change colours, hide text or reverse its direction.
pub fn is_unsafe_to_display(c: char) -> bool {
    let changes_direction = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    // Invisible to the person, but not to a model that reads the same text.
    let is_invisible = matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    c.is_control() || changes_direction || is_invisible
}

/// The text on one line: unsafe characters become `\u{…}`, line breaks and tabs `\n` and `\t`.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe_to_display) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe_to_display(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::{escape_line, hex};

    #[test]
    fn hex_writes_two_digits_for_each_byte() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn escape_line_escapes_unsafe_characters() {
        for (text, expected) in [
            ("plain ünïcode 漢字 👩‍👧", "plain ünïcode 漢字 👩‍👧"),
            ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
            ("a\u{9b}31mb", "a\\u{9b}31mb"),
            ("one\ntwo\tthree\r", "one\\ntwo\\tthree\\r"),
            ("abc\u{202e}cba", "abc\\u{202e}cba"),
            ("\u{feff}x\u{e0041}", "\\u{feff}x\\u{e0041}"),
            ("\u{7f}\u{0}", "\\u{7f}\\u{0}"),
        ] {
            assert_eq!(escape_line(text), expected);
        }
    }
}

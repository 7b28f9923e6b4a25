//! Text for people: what strangers wrote, made harmless, and bytes that are only there to be told apart.

use std::borrow::Cow;
use std::fmt::Write;

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(out, "{byte:02x}").expect("a string takes everything");
    }
    out
}

/// What moves a cursor, rings, colours, hides or turns around what a person reads.
pub fn is_unsafe_to_display(c: char) -> bool {
    let turns = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    // Nobody sees them, and whoever reads along with the person does.
    let hides = matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    c.is_control() || turns || hides
}

/// In one line: what is harmful is shown by its number, line breaks and tabs by their names.
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
    fn every_byte_has_two_digits() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn what_could_move_a_cursor_is_shown_by_its_number() {
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

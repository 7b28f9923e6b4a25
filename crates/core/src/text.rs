//! Text functions that several crates need: makes text from strangers safe to print, reads and writes hex, knows the
//! characters of a header name.

use std::borrow::Cow;
use std::fmt::Write;

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(out, "{byte:02x}").expect("writing to a string never fails");
    }
    out
}

/// The bytes that [`hex`] writes as this text: exactly `N` of them, in lower case.
pub fn parse_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    let mut out = [0; N];
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in out.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(out)
}

/// RFC 9110, 5.6.2: a byte of a token, such as a header name.
#[inline]
pub fn is_token_byte(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c)
}

/// Whether a terminal must not print this character as it is, because it moves the cursor, rings, colours, reorders
/// the text around it, or is invisible.
///
/// The set: controls (C0, C1), line and paragraph separators, bidirectional controls, interlinear annotation, and
/// Unicode's `Default_Ignorable_Code_Point`, which includes zero-width characters, variation selectors, tags and
/// Hangul fillers; and two blanks that look like nothing. Joiners and emoji variation selectors are in the set too, but
/// [`escape_unsafe`] keeps them where they have a visible effect.
pub fn is_unsafe_to_display(c: char) -> bool {
    // Almost all text ends here.
    if c < '\u{ad}' {
        return c.is_control();
    }
    matches!(
        c,
        // Default_Ignorable_Code_Point of Unicode 17, with the bidirectional controls (061C, 200E, 200F, 202A..202E,
        // 2066..2069).
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
            // Line and paragraph separator.
            | '\u{2028}'..='\u{2029}'
            // Interlinear annotation.
            | '\u{fff9}'..='\u{fffb}'
            // Blank Braille pattern, musical null notehead.
            | '\u{2800}'
            | '\u{1d159}'
    )
}

/// Escapes the unsafe characters of a text, except those that `keep` accepts.
///
/// Keeps the invisible characters that ordinary writing needs, where they have a visible effect: a variation selector
/// after a symbol, a joiner between emoji, and joiners between letters of Arabic and Indic scripts.
pub fn escape_unsafe(
    text: &str,
    keep: impl Fn(char) -> bool,
    escape: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    if !text.contains(is_unsafe_to_display) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut previous = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        if !is_unsafe_to_display(c) || keep(c) || has_visible_effect(previous, c, next) {
            out.push(c);
        } else {
            escape(&mut out, c);
        }
        previous = Some(c);
    }
    Cow::Owned(out)
}

/// For one line: escapes unsafe characters by their number, line breaks and tabs by their names.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escape_unsafe(text, |_| false, |out, c| out.extend(c.escape_default()))
}

const ZERO_WIDTH_NON_JOINER: char = '\u{200c}';
const ZERO_WIDTH_JOINER: char = '\u{200d}';
const KEYCAP: char = '\u{20e3}';

/// Whether this invisible character changes what a person sees between these neighbours. One such character never
/// follows another, so nothing can be hidden in a run of them.
fn has_visible_effect(previous: Option<char>, c: char, next: Option<char>) -> bool {
    let Some(previous) = previous else { return false };
    match c {
        // Text or emoji style; `1️⃣` has one between the digit and the keycap.
        '\u{fe0e}' | '\u{fe0f}' => {
            is_symbol(previous) || next == Some(KEYCAP) && matches!(previous, '0'..='9' | '#' | '*')
        }
        ZERO_WIDTH_JOINER | ZERO_WIDTH_NON_JOINER => {
            let is_emoji = |c: char| is_symbol(c) || matches!(c, '\u{fe0f}');
            next.is_some_and(|next| {
                c == ZERO_WIDTH_JOINER && is_emoji(previous) && is_symbol(next)
                    || is_joining_script(previous) && is_joining_script(next)
            })
        }
        _ => false,
    }
}

/// Symbols and emoji, including the skin tones.
fn is_symbol(c: char) -> bool {
    matches!(c, '\u{a9}' | '\u{ae}' | '\u{203c}'..='\u{2049}' | '\u{2100}'..='\u{27ff}' | '\u{2900}'..='\u{2bff}'
        | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
        && !is_unsafe_to_display(c)
}

/// Letters and marks of scripts in which a joiner changes the shape of its neighbours: Arabic to Sinhala, Myanmar,
/// Khmer and Mongolian.
fn is_joining_script(c: char) -> bool {
    matches!(c, '\u{600}'..='\u{8ff}' | '\u{900}'..='\u{dff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{18af}'
        | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
        && !is_unsafe_to_display(c)
}

#[cfg(test)]
mod tests {
    use super::{escape_line, hex, is_unsafe_to_display, parse_hex};

    #[test]
    fn hex_writes_two_digits_per_byte() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn hex_is_read_back_only_as_it_was_written() {
        assert_eq!(parse_hex(b"000aff"), Some([0, 10, 255]));
        assert_eq!(parse_hex(b""), Some([]));
        for text in ["", "00", "000af", "000aff0", "000aff00", "000aFF", "000agg", "+00aff", " 00aff"] {
            assert_eq!(parse_hex::<3>(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn unsafe_characters_are_escaped_by_their_number() {
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

    #[test]
    fn invisible_characters_are_escaped() {
        for c in [
            '\u{ad}',
            '\u{34f}',
            '\u{115f}',
            '\u{1160}',
            '\u{17b4}',
            '\u{180b}',
            '\u{180e}',
            '\u{200b}',
            '\u{200c}',
            '\u{200d}',
            '\u{200e}',
            '\u{2028}',
            '\u{2060}',
            '\u{2064}',
            '\u{206f}',
            '\u{2800}',
            '\u{3164}',
            '\u{fe00}',
            '\u{fe0f}',
            '\u{ffa0}',
            '\u{1bca0}',
            '\u{1d159}',
            '\u{1d173}',
            '\u{e0001}',
            '\u{e0100}',
            '\u{e01ef}',
            '\u{e0fff}',
        ] {
            assert!(is_unsafe_to_display(c), "{c:?}");
            let shown = escape_line(&format!("p{c}ay")).into_owned();
            assert_eq!(shown, format!("p\\u{{{:x}}}ay", c as u32));
        }
    }

    #[test]
    fn joiners_and_selectors_are_kept_only_where_they_are_visible() {
        for text in [
            "\u{2764}\u{fe0f}",                            // red heart
            "1\u{fe0f}\u{20e3}",                           // keycap one
            "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}", // a family
            "\u{2764}\u{fe0f}\u{200d}\u{1f525}",           // heart on fire
            "\u{1f44d}\u{1f3fd}",                          // a skin tone
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
        ] {
            assert_eq!(escape_line(text), text);
        }
        for (text, expected) in [
            ("1\u{fe0f}", "1\\u{fe0f}"),
            ("\u{2764}\u{fe0f}\u{fe0f}", "\u{2764}\u{fe0f}\\u{fe0f}"),
            ("\u{1f468}\u{200d}", "\u{1f468}\\u{200d}"),
            ("\u{200d}\u{1f468}", "\\u{200d}\u{1f468}"),
            ("می\u{200c}\u{200c}خ", "می\\u{200c}\\u{200c}خ"),
            ("a\u{200c}b", "a\\u{200c}b"),
        ] {
            assert_eq!(escape_line(text), expected);
        }
    }
}

//! URIs of files, and percent encoding.

/// `scheme://` and the path, with every character that a URI cannot have encoded.
pub(crate) fn uri_of_path(scheme: &str, path: &str) -> String {
    let mut uri = format!("{scheme}://");
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' => uri.push(byte.into()),
            b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b','
            | b';' | b'=' | b':' | b'@' => uri.push(byte.into()),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// Decodes `%41`. `None` if an escape is invalid, or the result is not UTF-8 or has NUL.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        let high = after.first().and_then(digit)?;
        let low = after.get(1).and_then(digit)?;
        bytes.push(u8::try_from(high * 16 + low).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// Whether a text can be the URI of a resource: a scheme, and no blanks or control characters.
pub(crate) fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut characters = scheme.chars();
    characters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && characters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        && !rest.is_empty()
        && !text
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || matches!(c, '<' | '>' | '"' | '\\' | '`'))
}

#[cfg(test)]
mod tests {
    use super::{is_uri, percent_decode, uri_of_path};

    #[test]
    fn paths_become_uris() {
        for (path, expected) in [
            ("guide", "resource://guide"),
            ("a/b c", "resource://a/b%20c"),
            ("größe", "resource://gr%C3%B6%C3%9Fe"),
            ("50%", "resource://50%25"),
            ("a?b#c", "resource://a%3Fb%23c"),
            ("v1.2_(x)~y", "resource://v1.2_(x)~y"),
        ] {
            assert_eq!(uri_of_path("resource", path), expected);
        }
    }

    #[test]
    fn percent_escapes_are_decoded_once() {
        for (text, expected) in [
            ("a%20b", Some("a b")),
            ("%c3%B6", Some("ö")),
            ("%2525", Some("%25")),
            ("plain", Some("plain")),
            ("%", None),
            ("%2", None),
            ("%zz", None),
            ("%ff", None),
            ("a%00b", None),
        ] {
            assert_eq!(percent_decode(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn uris_have_a_scheme_and_no_blanks() {
        for text in ["resource://x", "test://a/b", "urn:isbn:1", "a+b.c-d:x"] {
            assert!(is_uri(text), "{text}");
        }
        for text in ["x", "://x", "1a:x", "a b:x", "a:b c", "a:", "a:\u{7}", "a:<b>", ""] {
            assert!(!is_uri(text), "{text}");
        }
    }
}

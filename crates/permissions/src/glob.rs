//! Patterns with `*`, which stands for any text, also an empty one. There is no other special character.

/// A pattern of literal parts with `*` between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    first: Box<str>,
    /// The parts behind each `*`; empty for a pattern without one.
    rest: Box<[Box<str>]>,
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Self {
        let mut parts = pattern.split('*').map(Box::from);
        Self { first: parts.next().unwrap_or_default(), rest: parts.collect() }
    }

    /// Takes each part at its first place behind the one before, and the last one at the end: if that does not fit, no
    /// other choice does.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let Some((last, middle)) = self.rest.split_last() else { return *text == *self.first };
        let Some(mut text) = text.strip_prefix(&*self.first) else { return false };
        for part in middle {
            let Some(at) = text.find(&**part) else { return false };
            text = &text[at + part.len()..];
        }
        text.ends_with(&**last)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::Glob;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("*", "abc", true),
            ("a*", "abc", true),
            ("a*", "ba", false),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("a*a", "a", false),
            ("a*b*c", "a.b.b.c", true),
            ("a*b*c", "acb", false),
            ("**", "x", true),
            ("*é*", "café au lait", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(text), expected, "{pattern} {text}");
        }
    }

    /// The obvious definition.
    fn matches_slowly(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|skipped| matches_slowly(rest, &text[skipped..])),
            Some((first, rest)) => text.first() == Some(first) && matches_slowly(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn it_matches_what_the_definition_matches(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = matches_slowly(&chars(&pattern), &chars(&text));
            prop_assert_eq!(Glob::new(&pattern).matches(&text), expected);
        }
    }
}

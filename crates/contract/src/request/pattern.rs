//! Texts with places for values: `orders-{order_id}.json`.

use std::fmt;
use std::ops::Range;

/// A text with places for values. `{{` and `}}` are literal braces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextPattern {
    parts: Vec<PatternPart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatternPart {
    Literal(String),
    Value { name: String, style: ArrayStyle },
}

/// How an array becomes text in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArrayStyle {
    /// `{tags}`: one parameter for each item.
    #[default]
    Repeated,
    /// `{tags|csv}`: `a,b`
    Commas,
    /// `{tags|pipes}`: `a|b`
    Pipes,
    /// `{tags|spaces}`: `a b`
    Spaces,
}

impl ArrayStyle {
    const NAMES: [(&'static str, Self); 3] =
        [("csv", Self::Commas), ("pipes", Self::Pipes), ("spaces", Self::Spaces)];

    /// What stands between the items; `None` if each has a parameter of its own.
    pub fn separator(self) -> Option<char> {
        match self {
            Self::Repeated => None,
            Self::Commas => Some(','),
            Self::Pipes => Some('|'),
            Self::Spaces => Some(' '),
        }
    }

    /// The suffix of a name in a pattern.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Repeated => "",
            Self::Commas => "|csv",
            Self::Pipes => "|pipes",
            Self::Spaces => "|spaces",
        }
    }
}

/// Why a text is not a pattern, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatternError {
    /// A `{` without its `}`.
    Unclosed(Range<usize>),
    /// A `}` without its `{`.
    Unopened(Range<usize>),
    /// The name in braces is not a name of an argument.
    Name(Range<usize>),
}

impl PatternError {
    pub fn span(&self) -> Range<usize> {
        let (Self::Unclosed(span) | Self::Unopened(span) | Self::Name(span)) = self;
        span.clone()
    }

    /// What is wrong, and what to do.
    pub fn explain(&self) -> (&'static str, &'static str) {
        match self {
            Self::Unclosed(_) => ("a `{` has no `}`", "write `{{` for a literal brace"),
            Self::Unopened(_) => ("a `}` has no `{`", "write `}}` for a literal brace"),
            Self::Name(_) => (
                "this is not the name of an argument",
                "write `{name}` with letters, digits and `_`; arrays in a query may end with `|csv`, `|pipes` or `|spaces`",
            ),
        }
    }
}

impl PatternPart {
    pub fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(text) => Some(text),
            Self::Value { .. } => None,
        }
    }
}

impl TextPattern {
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let (mut parts, mut literal, mut at) = (Vec::new(), String::new(), 0);
        while let Some(found) = text[at..].find(['{', '}']).map(|offset| at + offset) {
            literal.push_str(&text[at..found]);
            let brace = &text[found..=found];
            if text[found + 1..].starts_with(brace) {
                literal.push_str(brace);
                at = found + 2;
                continue;
            }
            if brace == "}" {
                return Err(PatternError::Unopened(found..found + 1));
            }
            let Some(end) = text[found..].find('}').map(|offset| found + offset) else {
                return Err(PatternError::Unclosed(found..text.len()));
            };
            let (name, style) = match text[found + 1..end].split_once('|') {
                None => (&text[found + 1..end], Some(ArrayStyle::Repeated)),
                Some((name, style)) => (
                    name,
                    ArrayStyle::NAMES.iter().find(|(known, _)| *known == style).map(|(_, style)| *style),
                ),
            };
            let (Some(style), true) = (style, is_name(name)) else {
                return Err(PatternError::Name(found..end + 1));
            };
            if !literal.is_empty() {
                parts.push(PatternPart::Literal(std::mem::take(&mut literal)));
            }
            parts.push(PatternPart::Value { name: name.to_owned(), style });
            at = end + 1;
        }
        literal.push_str(&text[at..]);
        if !literal.is_empty() {
            parts.push(PatternPart::Literal(literal));
        }
        Ok(Self { parts })
    }

    /// A pattern that is one value.
    pub fn value(name: &str, style: ArrayStyle) -> Self {
        Self { parts: vec![PatternPart::Value { name: name.to_owned(), style }] }
    }

    pub fn parts(&self) -> &[PatternPart] {
        &self.parts
    }

    /// The names of its values, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            PatternPart::Value { name, .. } => Some(name.as_str()),
            PatternPart::Literal(_) => None,
        })
    }

    /// The text, if it has no values.
    pub fn literal(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [PatternPart::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// The name and the style, if it is one value and nothing else.
    pub fn single_value(&self) -> Option<(&str, ArrayStyle)> {
        match &*self.parts {
            [PatternPart::Value { name, style }] => Some((name, *style)),
            _ => None,
        }
    }
}

/// As it is written in a manifest.
impl fmt::Display for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                PatternPart::Literal(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}"))?,
                PatternPart::Value { name, style } => write!(f, "{{{name}{}}}", style.suffix())?,
            }
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{PathError, PathTemplate};

    #[test]
    fn a_pattern_is_literals_and_values() {
        let literal = |text: &str| PatternPart::Literal(text.into());
        let value = |name: &str, style| PatternPart::Value { name: name.into(), style };
        for (text, expected) in [
            ("", vec![]),
            ("orders", vec![literal("orders")]),
            ("{id}", vec![value("id", ArrayStyle::Repeated)]),
            ("a{id}.json", vec![literal("a"), value("id", ArrayStyle::Repeated), literal(".json")]),
            ("{{id}}", vec![literal("{id}")]),
            ("{tags|csv}", vec![value("tags", ArrayStyle::Commas)]),
            ("{_a}{b1}", vec![value("_a", ArrayStyle::Repeated), value("b1", ArrayStyle::Repeated)]),
        ] {
            let parsed = TextPattern::parse(text).expect("a pattern");
            assert_eq!((parsed.to_string().as_str(), parsed.parts), (text, expected), "{text}");
        }
        for (text, expected) in [
            ("{id", PatternError::Unclosed(0..3)),
            ("a}", PatternError::Unopened(1..2)),
            ("{}", PatternError::Name(0..2)),
            ("{1a}", PatternError::Name(0..4)),
            ("{a-b}", PatternError::Name(0..5)),
            ("{a|what}", PatternError::Name(0..8)),
        ] {
            assert_eq!(TextPattern::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_path_has_no_dot_segments_and_no_query() {
        for (text, segments) in [("", 0), ("/", 0), ("/orders", 1), ("/orders/{id}/lines/", 3), ("/a:b,c", 1)]
        {
            let parsed = PathTemplate::parse(text).expect("a path");
            assert_eq!((parsed.to_string().as_str(), parsed.segments.len()), (text, segments), "{text}");
        }
        for (text, expected) in [
            ("orders", PathError::NoSlash),
            ("/a//b", PathError::EmptySegment),
            ("/a/../b", PathError::DotSegment),
            ("/./b", PathError::DotSegment),
            ("/a?b=c", PathError::Character('?')),
            ("/a#b", PathError::Character('#')),
            ("/a%2fb", PathError::Character('%')),
            ("/a\\b", PathError::Character('\\')),
        ] {
            assert_eq!(PathTemplate::parse(text), Err(expected), "{text}");
        }
    }
}

//! A line of text with places for fields: `Found customer {email} on the {plan} plan.`

use std::ops::Range;

use crate::cell::Cell;
use crate::field::Field;

/// A line whose places are known to exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The place in the collection's fields.
    Field(usize),
}

/// Why a line cannot be used, and which of its bytes are to blame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadLine {
    /// A `{` without its `}`.
    Open(Range<usize>),
    Unknown(String, Range<usize>),
}

impl Line {
    /// A field may be named as callers name it or as the source does. `{{` and `}}` are braces.
    pub fn parse(text: &str, fields: &[Field]) -> Result<Self, BadLine> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(found) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(found);
            plain.push_str(before);
            if let Some(after) = brace.strip_prefix("{{").or_else(|| brace.strip_prefix("}}")) {
                plain.push_str(&brace[..1]);
                rest = after;
            } else if let Some(inside) = brace.strip_prefix('{') {
                let start = text.len() - brace.len();
                let (name, after) = inside.split_once('}').ok_or(BadLine::Open(start..text.len()))?;
                let name = name.trim();
                let known = |field: &Field| field.name == name || field.column == name;
                let at = fields
                    .iter()
                    .position(known)
                    .ok_or_else(|| BadLine::Unknown(name.into(), start..text.len() - after.len()))?;
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
                pieces.push(Piece::Field(at));
                rest = after;
            } else {
                plain.push('}');
                rest = &brace[1..];
            }
        }
        plain.push_str(rest);
        pieces.push(Piece::Text(plain));
        pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
        Ok(Self(pieces))
    }

    pub fn fill(&self, fields: &[Field], cells: &[Cell<'_>]) -> String {
        let mut out = String::with_capacity(128);
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Field(at) => fields[*at].readable(&mut out, cells[*at]),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::{BadLine, Line};
    use crate::cell::Cell;
    use crate::field::Field;
    use crate::kind::Kind;

    #[test]
    fn places_are_filled() {
        let fields = [Field::new("email", "E-Mail", Kind::Text), Field::new("plan", "plan", Kind::Text)];
        let cells = [Cell::Text("dana@acme.test"), Cell::Null];
        for (text, expected) in [
            ("Found {email} on {plan}.", Ok("Found dana@acme.test on .")),
            ("{E-Mail}", Ok("dana@acme.test")),
            ("{ email }", Ok("dana@acme.test")),
            ("", Ok("")),
            ("{{email}} }}", Ok("{email} }")),
            ("a } b", Ok("a } b")),
            ("Größe {email}", Ok("Größe dana@acme.test")),
            ("x {emial}", Err(BadLine::Unknown("emial".into(), 2..9))),
            ("{}", Err(BadLine::Unknown(String::new(), 0..2))),
            ("ü {email", Err(BadLine::Open(3..9))),
        ] {
            let got = Line::parse(text, &fields).map(|line| line.fill(&fields, &cells));
            assert_eq!(got.as_deref().map_err(Clone::clone), expected, "{text}");
        }
    }
}

//! Templates for the text of a result: `Found customer {email} on the {plan} plan.`

use std::ops::Range;

use crate::field::Field;
use crate::value::ValueRef;

/// A parsed template whose fields all exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextTemplate(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Text(String),
    /// The index in the collection's fields.
    Field(usize),
}

/// An invalid template, and which of its bytes are at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateError {
    /// A `{` without a `}`.
    Unclosed(Range<usize>),
    UnknownField(String, Range<usize>),
}

impl TextTemplate {
    /// A field can be referred to by its name or by its column's name. `{{` and `}}` are literal braces.
    pub fn parse(text: &str, fields: &[Field]) -> Result<Self, TemplateError> {
        let mut segments = Vec::new();
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
                let (name, after) =
                    inside.split_once('}').ok_or(TemplateError::Unclosed(start..text.len()))?;
                let name = name.trim();
                let known = |field: &Field| field.name == name || field.column == name;
                let at = fields.iter().position(known).ok_or_else(|| {
                    TemplateError::UnknownField(name.into(), start..text.len() - after.len())
                })?;
                segments.push(Segment::Text(std::mem::take(&mut plain)));
                segments.push(Segment::Field(at));
                rest = after;
            } else {
                plain.push('}');
                rest = &brace[1..];
            }
        }
        plain.push_str(rest);
        segments.push(Segment::Text(plain));
        segments.retain(|segment| !matches!(segment, Segment::Text(text) if text.is_empty()));
        Ok(Self(segments))
    }

    pub fn render(&self, fields: &[Field], cells: &[ValueRef<'_>]) -> String {
        let mut out = String::with_capacity(128);
        for segment in &self.0 {
            match segment {
                Segment::Text(text) => out.push_str(text),
                Segment::Field(at) => fields[*at].write_readable(&mut out, cells[*at]),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::{TemplateError, TextTemplate};
    use crate::data_type::DataType;
    use crate::field::Field;
    use crate::value::ValueRef;

    #[test]
    fn render_fills_in_fields() {
        let fields =
            [Field::new("email", "E-Mail", DataType::Text), Field::new("plan", "plan", DataType::Text)];
        let cells = [ValueRef::Text("dana@acme.test"), ValueRef::Null];
        for (text, expected) in [
            ("Found {email} on {plan}.", Ok("Found dana@acme.test on .")),
            ("{E-Mail}", Ok("dana@acme.test")),
            ("{ email }", Ok("dana@acme.test")),
            ("", Ok("")),
            ("{{email}} }}", Ok("{email} }")),
            ("a } b", Ok("a } b")),
            ("Größe {email}", Ok("Größe dana@acme.test")),
            ("x {emial}", Err(TemplateError::UnknownField("emial".into(), 2..9))),
            ("{}", Err(TemplateError::UnknownField(String::new(), 0..2))),
            ("ü {email", Err(TemplateError::Unclosed(3..9))),
        ] {
            let got = TextTemplate::parse(text, &fields).map(|template| template.render(&fields, &cells));
            assert_eq!(got.as_deref().map_err(Clone::clone), expected, "{text}");
        }
    }
}

//! Columns with what the author says of each: names, kinds, the only values there may be.

use json::Json;

use super::Compiler;
use super::collection::null_text;
use crate::diagnostic::Placed;
use crate::field::Field;
use crate::kind::Kind;
use crate::manifest::{self, Literal};
use crate::source::ColumnFacts;

/// Columns of a table or of a statement's result.
pub(super) struct Columns<'a> {
    pub(super) said: &'a [manifest::Field],
    pub(super) facts: &'a [ColumnFacts],
    /// As callers know them where the author says nothing, one for each.
    pub(super) names: &'a [String],
    pub(super) rows: Option<u64>,
    /// Text that means "no value".
    pub(super) null: Option<&'a str>,
    /// Whether numbers come as numbers, whatever they are told as.
    pub(super) has_numbers: bool,
}

impl Compiler<'_> {
    /// The fields that are shown, each with its column's place.
    pub(super) fn fields(&mut self, columns: &Columns<'_>) -> Vec<(usize, Field)> {
        let mut fields: Vec<(usize, Field)> = Vec::with_capacity(columns.facts.len());
        for (at, (column, name)) in columns.facts.iter().zip(columns.names).enumerate() {
            let said = columns.said.iter().find(|field| field.column.value == column.name);
            if said.is_some_and(|said| said.hidden) {
                continue;
            }
            let own = said.and_then(|said| said.name.as_ref());
            if let Some(own) = own
                && (columns.names.contains(&own.value) && own.value != *name
                    || fields.iter().any(|(_, field)| field.name == own.value))
            {
                let message = format!("two fields would be called `{}`", own.value);
                self.error(&own.at, message, "give one of them another name".into());
            }
            let name = own.map_or(name, |own| &own.value);
            let kind = said.and_then(|said| said.kind.as_ref()).map_or(column.kind, |kind| kind.value);
            let mut field = Field::new(name, &column.name, kind);
            field.nullable = column.nullable || null_text(columns.said, columns.null, &column.name).is_some();
            // A kind that the author insists on has no strays: a value that is none is an error. Numbers that are
            // told as text are strays among texts.
            field.mixed = match kind {
                Kind::Text if columns.has_numbers => column.mixed || is_kept_as_number(column.kind),
                _ => column.mixed && kind == column.kind,
            };
            field.seen.clone_from(&column.values);
            if let Some(said) = said {
                self.say(&mut field, said, column, columns);
            }
            if field.kind == Kind::Blob {
                field.seen.clear();
            }
            // Values that hardly ever come twice are what rows are about, and no choice to be offered.
            if columns.rows.is_none_or(|rows| rows < 3 * field.seen.len() as u64) {
                field.seen.clear();
            }
            fields.push((at, field));
        }
        fields
    }

    /// Takes over what the author says about a field.
    fn say(
        &mut self,
        field: &mut Field,
        said: &manifest::Field,
        column: &ColumnFacts,
        columns: &Columns<'_>,
    ) {
        field.description.clone_from(&said.description);
        field.sensitive = said.sensitive;
        field.format = said.format.as_ref().map(|format| format.value.to_owned());
        if let Some(format) = &said.format
            && field.kind != Kind::Text
        {
            let message = format!("`{}` is {} here, and has no format", field.column, field.kind.as_str());
            let help = "formats are for text; leave it out, or say `as = \"text\"`";
            self.error(&format.at, message, help.into());
        }
        if let Some(kind) = &said.kind {
            let null = null_text(columns.said, columns.null, &column.name);
            self.judge_kind(field, kind, column, null.as_deref(), columns.rows);
        }
        let unlisted = field.seen.iter().find(|seen| {
            let is_seen = |literal: &Placed<Literal>| match &literal.value {
                Literal::Text(text) => text == *seen,
                Literal::Integer(n) => n.to_string() == **seen,
                Literal::Number(_) | Literal::Boolean(_) => false,
            };
            !said.allowed.is_empty() && !seen.is_empty() && !said.allowed.iter().any(is_seen)
        });
        if let (Some(unlisted), Some(first)) = (unlisted, said.allowed.first()) {
            let message = format!("the data has `{unlisted}`, which this list of values leaves out");
            self.error(&first.at, message, "add it, or leave the list out".into());
        }
        self.allow(field, &said.allowed);
    }

    /// Whether a column can be what the author says it is.
    fn judge_kind(
        &mut self,
        field: &Field,
        kind: &Placed<Kind>,
        column: &ColumnFacts,
        null: Option<&str>,
        rows: Option<u64>,
    ) {
        let is_possible = match &column.fits {
            // Strays among values of the kind that was found are told as text.
            Some(fits) => fits.has(kind.value, null) || (column.mixed && kind.value == column.kind),
            None if kind.value == Kind::Blob && column.base64 => true,
            // Of an empty column nothing is known.
            None => column.mixed || rows == Some(0) || can_be(column.kind, kind.value),
        };
        if is_possible {
            return;
        }
        if column.kind == Kind::Text && kind.value != Kind::Blob && column.fits.is_some() {
            let message =
                format!("not every value of `{}` is {} as it is kept", field.column, kind.value.as_str());
            let such_as = match field.seen.iter().find(|seen| Some(seen.as_str()) != null) {
                Some(seen) => format!("it has texts such as `{seen}`; "),
                None => String::new(),
            };
            let help = format!("{such_as}correct them in the database, or leave the type out");
            self.error(&kind.at, message, help);
            return;
        }
        let message =
            format!("`{}` is {}, and cannot be {}", field.column, column.kind.as_str(), kind.value.as_str());
        let mut help = format!("leave the type out, or say `as = \"{}\"`", nearest_to(column.kind));
        if kind.value == Kind::Blob {
            help += "; only columns of bytes are blobs, and columns of a JSON file that are all base64";
        }
        self.error(&kind.at, message, help);
    }

    /// The only values that there may be, each of the field's kind.
    pub(super) fn allow(&mut self, field: &mut Field, allowed: &[Placed<Literal>]) {
        for literal in allowed {
            match (&literal.value, field.kind) {
                (Literal::Text(text), Kind::Text | Kind::Date | Kind::Decimal | Kind::Int64) => {
                    let mut out = Vec::with_capacity(text.len() + 2);
                    json::write::string(&mut out, text);
                    field.allowed.push(Json::written(out));
                }
                (Literal::Integer(n), Kind::Integer) => {
                    field.allowed.push(Json::written(n.to_string().into_bytes()));
                }
                (_, kind) => {
                    let message =
                        format!("`{}` is {} here, and this value is not", field.column, kind.as_str());
                    let help = match kind {
                        Kind::Integer => "write a whole number without quotes, or leave the list out",
                        Kind::Text | Kind::Date | Kind::Decimal | Kind::Int64 => {
                            "write it in quotes, or leave the list out"
                        }
                        Kind::Number
                        | Kind::Boolean
                        | Kind::Timestamp
                        | Kind::LocalTimestamp
                        | Kind::Json
                        | Kind::Blob => "leave the list out: it is for texts, dates and whole numbers",
                    };
                    self.error(&literal.at, message, help.into());
                }
            }
        }
    }
}

/// Whether values of one kind may be told as another. Doubt is in the author's favour: whoever makes a reader is
/// told of the first value that is none.
fn can_be(found: Kind, said: Kind) -> bool {
    use Kind::{Blob, Boolean, Decimal, Int64, Integer, Json, Number, Text};
    match (found, said) {
        (found, said) if found == said => true,
        (Blob, _) | (_, Blob) => false,
        // What is text may be anything, as far as anybody knows, and in a JSON file any value is JSON.
        (Text, _) | (_, Text | Json) => true,
        // Yes and no are 0 and 1 in many databases. A column of larger numbers was found to have some.
        (found, said) => matches!(
            (found, said),
            (Integer, Int64 | Decimal | Number | Boolean)
                | (Int64, Decimal | Number)
                | (Decimal, Number)
                | (Number, Decimal)
                | (Boolean, Integer | Int64)
        ),
    }
}

/// Whether a source that has numbers keeps values of this kind as such.
fn is_kept_as_number(found: Kind) -> bool {
    match found {
        Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number | Kind::Boolean => true,
        Kind::Text | Kind::Date | Kind::Timestamp | Kind::LocalTimestamp | Kind::Json | Kind::Blob => false,
    }
}

/// What an author who wants another kind can always have.
fn nearest_to(found: Kind) -> &'static str {
    if found == Kind::Blob { "blob" } else { "text" }
}

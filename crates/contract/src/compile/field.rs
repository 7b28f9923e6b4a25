//! Columns with what the author says of each: names, kinds, the only values there may be.

use json::Json;

use super::Compiler;
use super::collection::null_text;
use crate::data_type::DataType;
use crate::diagnostic::Located;
use crate::field::Field;
use crate::manifest::{self, Literal};
use crate::source::ColumnFacts;

/// Columns of a table or of a statement's result.
pub(super) struct ColumnInputs<'a> {
    pub(super) declared: &'a [manifest::Field],
    pub(super) facts: &'a [ColumnFacts],
    /// As callers know them where the author says nothing, one for each.
    pub(super) names: &'a [String],
    pub(super) row_count: Option<u64>,
    /// Text that means "no value".
    pub(super) null_text: Option<&'a str>,
    /// Whether numbers come as numbers, whatever they are told as.
    pub(super) has_native_numbers: bool,
}

impl Compiler<'_> {
    /// The fields that are shown, each with its column's place.
    pub(super) fn compile_fields(&mut self, columns: &ColumnInputs<'_>) -> Vec<(usize, Field)> {
        let mut fields: Vec<(usize, Field)> = Vec::with_capacity(columns.facts.len());
        for (at, (column, name)) in columns.facts.iter().zip(columns.names).enumerate() {
            let said = columns.declared.iter().find(|field| field.column.value == column.name);
            if said.is_some_and(|said| said.hidden) {
                continue;
            }
            let own = said.and_then(|said| said.name.as_ref());
            if let Some(own) = own
                && (columns.names.contains(&own.value) && own.value != *name
                    || fields.iter().any(|(_, field)| field.name == own.value))
            {
                let message = format!("two fields would be called `{}`", own.value);
                self.error(&own.location, message, "give one of them another name".into());
            }
            let name = own.map_or(name, |own| &own.value);
            let kind =
                said.and_then(|said| said.data_type.as_ref()).map_or(column.data_type, |kind| kind.value);
            let mut field = Field::new(name, &column.name, kind);
            field.nullable =
                column.nullable || null_text(columns.declared, columns.null_text, &column.name).is_some();
            // A kind that the author insists on has no strays: a value that is none is an error. Numbers that are
            // told as text are strays among texts.
            field.mixed = match kind {
                DataType::Text if columns.has_native_numbers => {
                    column.mixed || is_stored_as_number(column.data_type)
                }
                _ => column.mixed && kind == column.data_type,
            };
            field.observed_values.clone_from(&column.distinct_values);
            if let Some(said) = said {
                self.apply_field_settings(&mut field, said, column, columns);
            }
            if field.data_type == DataType::Blob {
                field.observed_values.clear();
            }
            // Values that hardly ever come twice are what rows are about, and no choice to be offered.
            if columns.row_count.is_none_or(|rows| rows < 3 * field.observed_values.len() as u64) {
                field.observed_values.clear();
            }
            fields.push((at, field));
        }
        fields
    }

    /// Takes over what the author says about a field.
    fn apply_field_settings(
        &mut self,
        field: &mut Field,
        said: &manifest::Field,
        column: &ColumnFacts,
        columns: &ColumnInputs<'_>,
    ) {
        field.description.clone_from(&said.description);
        field.sensitive = said.sensitive;
        field.format = said.format.as_ref().map(|format| format.value.to_owned());
        if let Some(format) = &said.format
            && field.data_type != DataType::Text
        {
            let message =
                format!("`{}` is {} here, and has no format", field.column, field.data_type.as_str());
            let help = "formats are for text; leave it out, or say `as = \"text\"`";
            self.error(&format.location, message, help.into());
        }
        if let Some(kind) = &said.data_type {
            let null = null_text(columns.declared, columns.null_text, &column.name);
            self.check_type(field, kind, column, null.as_deref(), columns.row_count);
        }
        let unlisted = field.observed_values.iter().find(|seen| {
            let is_seen = |literal: &Located<Literal>| match &literal.value {
                Literal::Text(text) => text == *seen,
                Literal::Integer(n) => n.to_string() == **seen,
                Literal::Number(_) | Literal::Boolean(_) => false,
            };
            !said.allowed.is_empty() && !seen.is_empty() && !said.allowed.iter().any(is_seen)
        });
        if let (Some(unlisted), Some(first)) = (unlisted, said.allowed.first()) {
            let message = format!("the data has `{unlisted}`, which this list of values leaves out");
            self.error(&first.location, message, "add it, or leave the list out".into());
        }
        self.set_allowed_values(field, &said.allowed);
    }

    /// Whether a column can be what the author says it is.
    fn check_type(
        &mut self,
        field: &Field,
        kind: &Located<DataType>,
        column: &ColumnFacts,
        null: Option<&str>,
        rows: Option<u64>,
    ) {
        let is_possible = match &column.possible_types {
            // Strays among values of the kind that was found are told as text.
            Some(fits) => fits.includes(kind.value, null) || (column.mixed && kind.value == column.data_type),
            None if kind.value == DataType::Blob && column.is_base64 => true,
            // Of an empty column nothing is known.
            None => column.mixed || rows == Some(0) || is_convertible(column.data_type, kind.value),
        };
        if is_possible {
            return;
        }
        if column.data_type == DataType::Text
            && kind.value != DataType::Blob
            && column.possible_types.is_some()
        {
            let message =
                format!("not every value of `{}` is {} as it is kept", field.column, kind.value.as_str());
            let such_as = match field.observed_values.iter().find(|seen| Some(seen.as_str()) != null) {
                Some(seen) => format!("it has texts such as `{seen}`; "),
                None => String::new(),
            };
            let help = format!("{such_as}correct them in the database, or leave the type out");
            self.error(&kind.location, message, help);
            return;
        }
        let message = format!(
            "`{}` is {}, and cannot be {}",
            field.column,
            column.data_type.as_str(),
            kind.value.as_str()
        );
        let mut help = format!("leave the type out, or say `as = \"{}\"`", fallback_type(column.data_type));
        if kind.value == DataType::Blob {
            help += "; only columns of bytes are blobs, and columns of a JSON file that are all base64";
        }
        self.error(&kind.location, message, help);
    }

    /// The only values that there may be, each of the field's kind.
    pub(super) fn set_allowed_values(&mut self, field: &mut Field, allowed: &[Located<Literal>]) {
        for literal in allowed {
            match (&literal.value, field.data_type) {
                (
                    Literal::Text(text),
                    DataType::Text | DataType::Date | DataType::Decimal | DataType::Int64,
                ) => {
                    let mut out = Vec::with_capacity(text.len() + 2);
                    json::write::string(&mut out, text);
                    field.allowed.push(Json::from_written_bytes(out));
                }
                (Literal::Integer(n), DataType::Integer) => {
                    field.allowed.push(Json::from_written_bytes(n.to_string().into_bytes()));
                }
                (_, kind) => {
                    let message =
                        format!("`{}` is {} here, and this value is not", field.column, kind.as_str());
                    let help = match kind {
                        DataType::Integer => "write a whole number without quotes, or leave the list out",
                        DataType::Text | DataType::Date | DataType::Decimal | DataType::Int64 => {
                            "write it in quotes, or leave the list out"
                        }
                        DataType::Number
                        | DataType::Boolean
                        | DataType::Timestamp
                        | DataType::LocalTimestamp
                        | DataType::Json
                        | DataType::Blob => "leave the list out: it is for texts, dates and whole numbers",
                    };
                    self.error(&literal.location, message, help.into());
                }
            }
        }
    }
}

/// Whether values of one kind may be told as another. Doubt is in the author's favour: whoever makes a reader is
/// told of the first value that is none.
fn is_convertible(found: DataType, said: DataType) -> bool {
    use DataType::{Blob, Boolean, Decimal, Int64, Integer, Json, Number, Text};
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
fn is_stored_as_number(found: DataType) -> bool {
    match found {
        DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number | DataType::Boolean => {
            true
        }
        DataType::Text
        | DataType::Date
        | DataType::Timestamp
        | DataType::LocalTimestamp
        | DataType::Json
        | DataType::Blob => false,
    }
}

/// What an author who wants another kind can always have.
fn fallback_type(found: DataType) -> &'static str {
    if found == DataType::Blob { "blob" } else { "text" }
}

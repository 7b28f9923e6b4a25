//! The fields of a table or of a statement's result: names, types and allowed values.

use json::Json;

use super::Compiler;
use super::collection::null_texts_of;
use crate::data_type::DataType;
use crate::diagnostic::{Diagnostic, Located};
use crate::field::Field;
use crate::manifest::{self, Literal, enum_help, is_enum_value};
use crate::source::ColumnFacts;

/// The columns of a table or of a statement's result.
pub(super) struct ColumnInputs<'a> {
    pub(super) declared: &'a [manifest::Field],
    pub(super) facts: &'a [ColumnFacts],
    /// The generated name of each column.
    pub(super) names: &'a [String],
    pub(super) row_count: Option<u64>,
    /// The texts that mean NULL.
    pub(super) null_texts: &'a [String],
    /// Whether the source reads texts in formats.
    pub(super) reads_texts: bool,
    /// Whether the source stores numbers as numbers, whatever the field's type is.
    pub(super) has_native_numbers: bool,
}

impl Compiler<'_> {
    /// The visible fields, each with its column's index.
    pub(super) fn compile_fields(&mut self, columns: &ColumnInputs<'_>) -> Vec<(usize, Field)> {
        let mut fields: Vec<(usize, Field)> = Vec::with_capacity(columns.facts.len());
        for (at, (column, name)) in columns.facts.iter().zip(columns.names).enumerate() {
            let declared = columns.declared.iter().find(|field| field.column.value == column.name);
            if declared.is_some_and(|declared| declared.hidden) {
                continue;
            }
            let own = declared.and_then(|declared| declared.name.as_ref());
            if let Some(own) = own
                && (columns.names.contains(&own.value) && own.value != *name
                    || fields.iter().any(|(_, field)| field.name == own.value))
            {
                let message = format!("two fields would have the name `{}`", own.value);
                self.error(&own.location, message, "rename one of them".into());
            }
            let name = own.map_or(name, |own| &own.value);
            let declared_type = declared.and_then(|declared| declared.data_type.as_ref());
            let format = declared.and_then(|declared| declared.formats.as_ref());
            let format = format.and_then(|formats| formats.value.iter().next());
            // A format that not every value has is an error when the reader is created, which names the value.
            let formatted_type = match &format {
                Some(format) if column.format.as_ref() != Some(format) => format.default_type(),
                Some(_) | None => column.data_type,
            };
            let data_type = declared_type.map_or(formatted_type, |data_type| data_type.value);
            let mut field = Field::new(name, &column.name, data_type);
            // Callers see the number alone, and should know what it counts.
            let unit_format =
                format.as_ref().or(column.format.as_ref()).filter(|format| format.is_for(data_type));
            field.description = unit_format.and_then(|format| format.unit()).map(unit_description);
            if column.description.is_some() {
                field.description.clone_from(&column.description);
            }
            field.nullable = column.nullable
                || !null_texts_of(columns.declared, columns.null_texts, &column.name).is_empty();
            // A column of a declared type is never mixed: a value that does not fit is an error. Only numbers in a
            // column that is declared text are written as text.
            field.mixed = match data_type {
                DataType::Text if columns.has_native_numbers => {
                    column.mixed || column.data_type.is_stored_as_number()
                }
                _ => column.mixed && data_type == column.data_type,
            };
            if let Some(declared) = declared {
                self.apply_field_settings(&mut field, declared, column, columns);
            }
            fields.push((at, field));
        }
        fields
    }

    /// Applies what the author declares for a field.
    fn apply_field_settings(
        &mut self,
        field: &mut Field,
        declared: &manifest::Field,
        column: &ColumnFacts,
        columns: &ColumnInputs<'_>,
    ) {
        if declared.description.is_some() {
            field.description.clone_from(&declared.description);
        }
        field.sensitive = declared.sensitive;
        field.format = declared.format.as_ref().map(|format| format.value.to_owned());
        if let Some(format) = &declared.format
            && field.data_type != DataType::Text
        {
            let message = format!("`{}` is {}, which has no format", field.column, field.data_type.as_str());
            let help = "only text has a format; remove it, or add `as = \"text\"`";
            self.error(&format.location, message, help.into());
        }
        self.check_formats(field, declared, columns);
        if let Some(data_type) = &declared.data_type {
            let null = null_texts_of(columns.declared, columns.null_texts, &column.name);
            self.check_type(field, data_type, column, null.first().map(String::as_str), columns.row_count);
        }
        let unlisted = column.distinct_values.iter().find(|value| {
            let is_listed = |literal: &Located<Literal>| match &literal.value {
                Literal::Text(text) => text == *value,
                Literal::Integer(n) => n.to_string() == **value,
                Literal::Number(_) | Literal::Boolean(_) => false,
            };
            !declared.allowed.is_empty() && !value.is_empty() && !declared.allowed.iter().any(is_listed)
        });
        if let (Some(unlisted), Some(first)) = (unlisted, declared.allowed.first()) {
            let message = match declared.sensitive {
                true => format!("column `{}` has a value that `enum` does not list", column.name),
                false => {
                    format!("column `{}` has the value `{unlisted}`, which `enum` does not list", column.name)
                }
            };
            self.error(&first.location, message, "add it, or remove `enum`".into());
        }
        self.set_allowed_values(field, &declared.allowed);
        if let Some(location) = declared.show_values.as_ref().filter(|_| declared.allowed.is_empty()) {
            field.observed_values.clone_from(&column.distinct_values);
            if field.observed_values.is_empty() {
                let message = format!("`show_values` has no effect on `{}`", field.column);
                let help = "it is for text columns with at most 12 different values, none of them long";
                self.diagnostics.push(Diagnostic::note(message).at(location).help(help));
            }
        }
    }

    /// Reports formats that the source or the field's type has no use for.
    fn check_formats(&mut self, field: &Field, declared: &manifest::Field, columns: &ColumnInputs<'_>) {
        let null_texts = declared.null_texts.as_deref().unwrap_or(columns.null_texts);
        if !columns.reads_texts && null_texts.len() > 1 {
            let message = format!("`{}` has several texts that mean NULL", field.column);
            let help = "a database has one at most; correct the values, or write one text";
            self.error(&declared.column.location, message, help.into());
        }
        let Some(formats) = &declared.formats else { return };
        let mut all = formats.value.iter();
        let Some(format) = all.next() else { return };
        if !columns.reads_texts {
            let message =
                format!("`{}` has a `{}`, and its source is not a file of texts", field.column, format.key());
            self.error(
                &formats.location,
                message,
                "remove it; a database and a statement have typed values".into(),
            );
        } else if let Some(other) = all.next() {
            let message = format!("`{}` has both `{}` and `{}`", field.column, format.key(), other.key());
            self.error(&formats.location, message, "a column has one format; remove the others".into());
        } else if !format.is_for(field.data_type) {
            let message = format!(
                "`{}` is {}, which has no `{}`",
                field.column,
                field.data_type.as_str(),
                format.key()
            );
            let help = format!("remove one of them, or write `as = \"{}\"`", format.default_type().as_str());
            self.error(&formats.location, message, help);
        }
    }

    /// Reports a declared type that the column's values rule out.
    fn check_type(
        &mut self,
        field: &Field,
        declared: &Located<DataType>,
        column: &ColumnFacts,
        null: Option<&str>,
        rows: Option<u64>,
    ) {
        let is_possible = match &column.possible_types {
            // A mixed column writes values of other types as text.
            Some(types) => {
                types.includes(declared.value, null) || (column.mixed && declared.value == column.data_type)
            }
            None if declared.value == DataType::Blob && column.is_base64 => true,
            // An empty column may become anything.
            None => column.mixed || rows == Some(0) || is_convertible(column.data_type, declared.value),
        };
        if is_possible {
            return;
        }
        if column.data_type == DataType::Text
            && declared.value != DataType::Blob
            && column.possible_types.is_some()
        {
            let message = format!(
                "not every stored value of `{}` is of type {}",
                field.column,
                declared.value.as_str()
            );
            let sample = match column.distinct_values.iter().find(|value| Some(value.as_str()) != null) {
                Some(value) if !field.sensitive => format!("it has texts such as `{value}`; "),
                Some(_) | None => String::new(),
            };
            let help = format!("{sample}correct them in the database, or remove `as`");
            self.error(&declared.location, message, help);
            return;
        }
        let message = format!(
            "`{}` is {} and cannot be {}",
            field.column,
            column.data_type.as_str(),
            declared.value.as_str()
        );
        let mut help = format!("remove `as`, or write `as = \"{}\"`", fallback_type(column.data_type));
        if declared.value == DataType::Blob {
            help += "; only binary columns, and JSON columns in which every text is base64, can be blobs";
        }
        self.error(&declared.location, message, help);
    }

    /// Sets the allowed values, each of which must be of the field's type.
    pub(super) fn set_allowed_values(&mut self, field: &mut Field, allowed: &[Located<Literal>]) {
        for literal in allowed {
            match (&literal.value, field.data_type) {
                (value, data_type) if !is_enum_value(value, data_type) => {
                    let message =
                        format!("`{}` is {}, and this value is not", field.column, data_type.as_str());
                    self.error(&literal.location, message, enum_help(data_type).into());
                }
                (Literal::Text(text), _) => field.allowed.push(Json::string(text)),
                (Literal::Integer(n), _) => {
                    field.allowed.push(Json::from_written_bytes(n.to_string().into_bytes()));
                }
                (Literal::Number(_) | Literal::Boolean(_), _) => {}
            }
        }
    }
}

/// Whether values of one type may be read as another. When in doubt it is allowed: creating the reader fails at the
/// first value that does not fit.
fn is_convertible(found: DataType, declared: DataType) -> bool {
    use DataType::{Blob, Boolean, Decimal, Int64, Integer, Json, Number, Text};
    match (found, declared) {
        (found, declared) if found == declared => true,
        (Blob, _) | (_, Blob) => false,
        // A text may hold anything, and in a JSON file any value is JSON.
        (Text, _) | (_, Text | Json) => true,
        // Many databases store booleans as 0 and 1. A column with other integers fails when it is read.
        (found, declared) => matches!(
            (found, declared),
            (Integer, Int64 | Decimal | Number | Boolean)
                | (Int64, Decimal | Number)
                | (Decimal, Number)
                | (Number, Decimal)
                | (Boolean, Integer | Int64)
        ),
    }
}

/// `In €.`
fn unit_description(unit: &str) -> String {
    match unit {
        "%" => "In percent.".into(),
        unit => format!("In {unit}."),
    }
}

/// The type that every column can be declared as.
fn fallback_type(found: DataType) -> &'static str {
    if found == DataType::Blob { "blob" } else { "text" }
}

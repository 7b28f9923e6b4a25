//! Renders a value as a field's text, or says why that is impossible.
//!
//! The text must read back as the same value of the same type. A text that a spreadsheet would run as a formula does
//! read back; it is refused unless the manifest allows it.

use std::borrow::Cow;

use contract::infer::matches_type;
use contract::manifest::FormulaPolicy;
use contract::{ColumnFormat, DataType, ValueRef};

use super::formula_guard;
use super::table::CsvTable;
use super::view::{CsvColumnMapping, is_null};
use crate::error_text::expected_type;

impl CsvColumnMapping {
    /// Whether a text means "no value".
    fn is_null(&self, text: &str) -> bool {
        is_null(text, self.data_type, &self.null_texts, self.format.is_some())
    }

    /// The text for a value in the column `field` of the file, or the reason why there is none.
    pub(super) fn render<'a>(
        &'a self,
        cell: ValueRef<'a>,
        formulas: FormulaPolicy,
        table: &CsvTable,
        field: usize,
    ) -> Result<Cow<'a, str>, String> {
        let text = match cell {
            ValueRef::Null => return self.render_null().map(Cow::Borrowed),
            ValueRef::Text(text) => Cow::Borrowed(text),
            ValueRef::Integer(n @ (0 | 1)) if self.data_type == DataType::Boolean => {
                Cow::Borrowed(if n == 1 { "true" } else { "false" })
            }
            ValueRef::Integer(n) => Cow::Owned(n.to_string()),
            // Without the decimal point, many readers would parse it as an integer, and integers have no negative
            // zero.
            ValueRef::Real(n) if n == 0.0 && n.is_sign_negative() => Cow::Borrowed("-0.0"),
            ValueRef::Real(n) if n.is_finite() => Cow::Owned(n.to_string()),
            ValueRef::Real(_) => return Err("a CSV file cannot hold a number that is not finite".into()),
            ValueRef::Blob(_) => return Err("a CSV file cannot hold bytes".into()),
        };
        self.check_text(&text, formulas, table, field)?;
        let text = match &self.format {
            None => text,
            Some(format) => Cow::Owned(self.format_text(format, &text)?),
        };
        match table.encoding.encode(&text) {
            Ok(_) => Ok(text),
            Err(c) => Err(format!(
                "`{}` does not exist in {}, the encoding of the file; save the file as UTF-8",
                c.escape_debug(),
                table.encoding.name()
            )),
        }
    }

    /// A value in the format of the column.
    fn format_text(&self, format: &ColumnFormat, text: &str) -> Result<String, String> {
        let rendered = format.render(text);
        let rendered = rendered.ok_or_else(|| format!("the column's format `{format}` cannot express it"))?;
        if self.is_null(&rendered) {
            return Err(format!("`{rendered}` would read back as null"));
        }
        Ok(rendered)
    }

    fn check_text(
        &self,
        text: &str,
        formulas: FormulaPolicy,
        table: &CsvTable,
        field: usize,
    ) -> Result<(), String> {
        if text.contains('\0') {
            return Err("a CSV file cannot hold a NUL character".into());
        }
        if self.is_null(text) {
            let what = if text.is_empty() { "an empty text".to_owned() } else { format!("`{text}`") };
            return Err(format!("{what} would read back as null"));
        }
        let is_of_kind = matches_type(self.data_type, text);
        if !is_of_kind && !self.mixed {
            return Err(format!("expected {}", expected_type(self.data_type)));
        }
        let is_number = match self.data_type {
            DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number => is_of_kind,
            DataType::Json => matches_type(DataType::Number, text),
            DataType::Text
            | DataType::Boolean
            | DataType::Date
            | DataType::Timestamp
            | DataType::LocalTimestamp
            | DataType::Blob => false,
        };
        match formulas {
            FormulaPolicy::Refuse if !is_number => {
                formula_guard::check(text, table.profiles[field].leading_signs, table.splitter.delimiter)
            }
            FormulaPolicy::Refuse | FormulaPolicy::Keep => Ok(()),
        }
    }

    /// The text for "no value".
    fn render_null(&self) -> Result<&str, String> {
        match (self.null_texts.first(), self.data_type) {
            _ if !self.nullable => Err("expected a value".into()),
            (Some(null), _) => Ok(null),
            (None, DataType::Text) => {
                Err("a CSV file cannot distinguish null from an empty text; set `null` for the source or the field in the \
                 manifest to a text that means null"
                    .into())
            }
            (None, _) => Ok(""),
        }
    }

    /// The text of a new row's field that the caller did not set.
    pub(super) fn default_text(&self) -> Result<&str, String> {
        match (self.nullable, self.data_type) {
            (false, DataType::Text) if !self.is_null("") => Ok(""),
            (true, DataType::Text) if self.null_texts.is_empty() => Ok(""),
            _ => self.render_null(),
        }
    }
}

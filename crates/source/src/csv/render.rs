//! A value as a field's text, or why it cannot be one.
//!
//! What is written must read back as the same value of the same kind. A text that a spreadsheet would run when the
//! file is opened is another matter: it reads back, and is refused unless the manifest says otherwise.

use std::borrow::Cow;

use contract::infer::matches_type;
use contract::manifest::FormulaPolicy;
use contract::{DataType, ValueRef};

use super::encode::TextEncoding;
use super::view::CsvColumnMapping;
use crate::error_text::expected_type;

impl CsvColumnMapping {
    /// Whether a text means that there is no value.
    fn is_null(&self, text: &str) -> bool {
        (text.is_empty() && self.data_type != DataType::Text) || self.null_text.as_deref() == Some(text)
    }

    /// The text that stands for a value, or half a sentence: why there is none.
    pub(super) fn render<'a>(
        &'a self,
        cell: ValueRef<'a>,
        formulas: FormulaPolicy,
        encoding: TextEncoding,
    ) -> Result<Cow<'a, str>, String> {
        let text = match cell {
            ValueRef::Null => return self.render_null().map(Cow::Borrowed),
            ValueRef::Text(text) => Cow::Borrowed(text),
            ValueRef::Integer(n @ (0 | 1)) if self.data_type == DataType::Boolean => {
                Cow::Borrowed(if n == 1 { "true" } else { "false" })
            }
            ValueRef::Integer(n) => Cow::Owned(n.to_string()),
            // Without a point, many a reader makes a whole number of it, and those have one zero.
            ValueRef::Real(n) if n == 0.0 && n.is_sign_negative() => Cow::Borrowed("-0.0"),
            ValueRef::Real(n) if n.is_finite() => Cow::Owned(n.to_string()),
            ValueRef::Real(_) => return Err("a CSV file holds no number that is not finite".into()),
            ValueRef::Blob(_) => return Err("a CSV file holds text, and no bytes".into()),
        };
        self.check_text(&text, formulas)?;
        match encoding.encode(&text) {
            Ok(_) => Ok(text),
            Err(c) => Err(format!(
                "`{}` is not in Windows-1252, in which the file is written; save the file as UTF-8",
                c.escape_debug()
            )),
        }
    }

    fn check_text(&self, text: &str, formulas: FormulaPolicy) -> Result<(), String> {
        if text.contains('\0') {
            return Err("a CSV file holds no NUL".into());
        }
        if self.is_null(text) {
            let what = if text.is_empty() { "an empty text".to_owned() } else { format!("`{text}`") };
            return Err(format!("{what} would read back as no value"));
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
        match text.chars().next() {
            Some(first @ ('=' | '+' | '-' | '@' | '\t' | '\r'))
                if !is_number && formulas == FormulaPolicy::Refuse =>
            {
                Err(format!(
                    "a text that begins with `{}` is a formula for spreadsheets; `formulas = \"keep\"` for the \
                     source in the manifest lets it be written",
                    first.escape_debug()
                ))
            }
            _ => Ok(()),
        }
    }

    /// The text that stands for no value.
    fn render_null(&self) -> Result<&str, String> {
        match (&self.null_text, self.data_type) {
            _ if !self.nullable => Err("expected a value".into()),
            (Some(null), _) => Ok(null),
            (None, DataType::Text) => {
                Err("a CSV file cannot tell no value from an empty text; `null` for the source or \
                                       the field in the manifest says which text means no value"
                    .into())
            }
            (None, _) => Ok(""),
        }
    }

    /// What a new row has where nothing is said.
    pub(super) fn default_text(&self) -> Result<&str, String> {
        match (self.nullable, self.data_type) {
            (false, DataType::Text) if !self.is_null("") => Ok(""),
            (true, DataType::Text) if self.null_text.is_none() => Ok(""),
            _ => self.render_null(),
        }
    }
}

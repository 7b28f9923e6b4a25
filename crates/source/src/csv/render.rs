//! A value as a field's text, or why it cannot be one.
//!
//! What is written must read back as the same value of the same kind. A text that a spreadsheet would run when the
//! file is opened is another matter: it reads back, and is refused unless the manifest says otherwise.

use std::borrow::Cow;

use contract::infer::is;
use contract::manifest::Formulas;
use contract::{Cell, Kind};

use super::encode::Encoding;
use super::fit::Wanted;
use crate::words::kind_of;

impl Wanted {
    /// Whether a text means that there is no value.
    fn is_null(&self, text: &str) -> bool {
        (text.is_empty() && self.kind != Kind::Text) || self.null.as_deref() == Some(text)
    }

    /// The text that stands for a value, or half a sentence: why there is none.
    pub(super) fn render<'a>(
        &'a self,
        cell: Cell<'a>,
        formulas: Formulas,
        encoding: Encoding,
    ) -> Result<Cow<'a, str>, String> {
        let text = match cell {
            Cell::Null => return self.nothing().map(Cow::Borrowed),
            Cell::Text(text) => Cow::Borrowed(text),
            Cell::Integer(n @ (0 | 1)) if self.kind == Kind::Boolean => {
                Cow::Borrowed(if n == 1 { "true" } else { "false" })
            }
            Cell::Integer(n) => Cow::Owned(n.to_string()),
            // Without a point, many a reader makes a whole number of it, and those have one zero.
            Cell::Real(n) if n == 0.0 && n.is_sign_negative() => Cow::Borrowed("-0.0"),
            Cell::Real(n) if n.is_finite() => Cow::Owned(n.to_string()),
            Cell::Real(_) => return Err("a CSV file holds no number that is not finite".into()),
            Cell::Blob(_) => return Err("a CSV file holds text, and no bytes".into()),
        };
        self.check(&text, formulas)?;
        match encoding.encode(&text) {
            Ok(_) => Ok(text),
            Err(c) => Err(format!(
                "`{}` is not in Windows-1252, in which the file is written; save the file as UTF-8",
                c.escape_debug()
            )),
        }
    }

    fn check(&self, text: &str, formulas: Formulas) -> Result<(), String> {
        if text.contains('\0') {
            return Err("a CSV file holds no NUL".into());
        }
        if self.is_null(text) {
            let what = if text.is_empty() { "an empty text".to_owned() } else { format!("`{text}`") };
            return Err(format!("{what} would read back as no value"));
        }
        let is_of_kind = is(self.kind, text);
        if !is_of_kind && !self.mixed {
            return Err(format!("expected {}", kind_of(self.kind)));
        }
        let is_number = match self.kind {
            Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number => is_of_kind,
            Kind::Json => is(Kind::Number, text),
            Kind::Text | Kind::Boolean | Kind::Date | Kind::Timestamp | Kind::LocalTimestamp | Kind::Blob => {
                false
            }
        };
        match text.chars().next() {
            Some(first @ ('=' | '+' | '-' | '@' | '\t' | '\r'))
                if !is_number && formulas == Formulas::Refuse =>
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
    fn nothing(&self) -> Result<&str, String> {
        match (&self.null, self.kind) {
            _ if !self.nullable => Err("expected a value".into()),
            (Some(null), _) => Ok(null),
            (None, Kind::Text) => {
                Err("a CSV file cannot tell no value from an empty text; `null` for the source or \
                                       the field in the manifest says which text means no value"
                    .into())
            }
            (None, _) => Ok(""),
        }
    }

    /// What a new row has where nothing is said.
    pub(super) fn default(&self) -> Result<&str, String> {
        match (self.nullable, self.kind) {
            (false, Kind::Text) if !self.is_null("") => Ok(""),
            (true, Kind::Text) if self.null.is_none() => Ok(""),
            _ => self.nothing(),
        }
    }
}

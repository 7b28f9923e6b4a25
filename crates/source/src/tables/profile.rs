//! The profile of a column: what all its values are.

use contract::DataType;
use contract::cursor::KEY_BYTES_MAX;
use contract::infer::{self, DeclaredFormats, SAFE_INTEGER_MAX, TypeInference};
use contract::source::{ColumnFacts, NearMiss};

use super::column::decode_base64;
use super::table::StoredValue;
use crate::key_index::KeyCandidate;

/// The values of one column, counted by how the file stores them.
#[derive(Clone, Default)]
pub(super) struct TableColumnProfile {
    non_null: u64,
    texts: u64,
    /// Texts of length zero.
    empty_texts: u64,
    /// Whether some text has nothing but blanks.
    has_blanks: bool,
    /// Whether some text is not base64.
    has_non_base64: bool,
    /// Texts too long for a key.
    long_texts: u64,
    /// How many of the texts the file stores as dates or times.
    date_times: u64,
    integers: u64,
    /// Integers that a JSON reader with 64-bit floats would round.
    large_integers: u64,
    reals: u64,
    non_finite: u64,
    /// Numbers that only their digits represent exactly.
    number_texts: u64,
    /// How many of those are not decimals, because they are too large.
    out_of_range: u64,
    booleans: u64,
    pub(super) nested: u64,
    blobs: u64,
    inference: TypeInference,
}

/// What a column stores, if all its values are of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum StorageClass {
    Texts,
    Numbers,
    Booleans,
    #[default]
    Other,
}

/// How many of a column's values the file stores as dates or times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum DateTimeShare {
    #[default]
    None,
    Some,
    All,
}

impl TableColumnProfile {
    #[inline]
    pub(super) fn observe(&mut self, row: u64, stored: StoredValue<'_>) {
        self.non_null += u64::from(stored != StoredValue::Null);
        match stored {
            StoredValue::Null => {}
            StoredValue::Text(text) => self.observe_text(row, text),
            StoredValue::DateTime(text) => {
                self.date_times += 1;
                self.observe_text(row, text);
            }
            StoredValue::Integer(n) => {
                self.integers += 1;
                self.large_integers += u64::from(!(-SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX).contains(&n));
            }
            StoredValue::Real(n) => {
                self.reals += 1;
                self.non_finite += u64::from(!n.is_finite());
            }
            // Many writers write a float that happens to be whole this way.
            StoredValue::NumberText(digits) if is_whole_fraction(digits) => self.reals += 1,
            StoredValue::NumberText(digits) => {
                self.number_texts += 1;
                self.out_of_range += u64::from(!infer::matches_type(DataType::Decimal, digits));
            }
            StoredValue::Boolean(_) => self.booleans += 1,
            StoredValue::Json(_) => self.nested += 1,
            StoredValue::Blob(_) => self.blobs += 1,
        }
    }

    fn observe_text(&mut self, row: u64, text: &str) {
        self.texts += 1;
        self.empty_texts += u64::from(text.is_empty());
        self.has_blanks |= text.trim().is_empty();
        self.has_non_base64 = self.has_non_base64 || decode_base64(text).is_none();
        self.long_texts += u64::from(text.len() > KEY_BYTES_MAX);
        self.inference.observe(row, text);
    }

    /// `locate` names the place of a row for the owner of the data.
    pub(super) fn facts(&self, name: &str, rows: u64, locate: impl FnOnce(u64) -> String) -> ColumnFacts {
        let (kind, mixed) = self.data_type();
        let is_text = kind == DataType::Text && !mixed;
        let values = if is_text { self.inference.clone().distinct_values() } else { Vec::new() };
        ColumnFacts {
            nullable: self.non_null < rows,
            mixed,
            distinct_values: values,
            near_miss: self.near_miss(kind, mixed, locate),
            ..ColumnFacts::new(name, kind)
        }
    }

    /// Only a text column, or one of numbers with exceptions, can be a near miss.
    fn near_miss(&self, kind: DataType, mixed: bool, locate: impl FnOnce(u64) -> String) -> Option<NearMiss> {
        let is_number =
            matches!(kind, DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number);
        if kind != DataType::Text && !(is_number && mixed) {
            return None;
        }
        let numbers = self.integers + self.reals + self.number_texts;
        self.inference.near_miss(numbers, self.non_null - numbers - self.texts, locate)
    }

    pub(super) fn storage_class(&self) -> StorageClass {
        let numbers = self.integers + self.reals + self.number_texts;
        match self.non_null {
            0 => StorageClass::Other,
            all if all == self.texts => StorageClass::Texts,
            all if all == numbers => StorageClass::Numbers,
            all if all == self.booleans => StorageClass::Booleans,
            _ => StorageClass::Other,
        }
    }

    /// Whether every value is a text, and they may be in a format. Texts of digits alone are codes.
    pub(super) fn may_have_format(&self, declared: &DeclaredFormats) -> bool {
        let texts = self.texts - self.date_times;
        texts > 0 && texts == self.non_null && (!declared.is_empty() || self.inference.may_have_own_format())
    }

    /// Whether some text is blank. Whether it has blanks only is decided where values are read.
    pub(super) fn has_blank_texts(&self) -> bool {
        self.has_blanks
    }

    pub(super) fn is_base64(&self) -> bool {
        self.texts == self.non_null && !self.has_non_base64
    }

    pub(super) fn date_time_share(&self) -> DateTimeShare {
        match self.date_times {
            0 => DateTimeShare::None,
            all if all == self.non_null => DateTimeShare::All,
            _ => DateTimeShare::Some,
        }
    }

    pub(super) fn has_nulls(&self, rows: u64) -> bool {
        self.non_null < rows
    }

    /// Whether no row has a value.
    pub(super) fn is_empty(&self) -> bool {
        self.non_null == 0
    }

    /// Whether some value cannot be part of a key.
    pub(super) fn has_invalid_keys(&self) -> bool {
        self.empty_texts + self.nested + self.blobs > 0
    }

    /// Whether the column may be a key, as far as its profile tells.
    pub(super) fn is_key_candidate(&self, rows: u64) -> bool {
        let (kind, mixed) = self.data_type();
        let is_plain = KeyCandidate::is_key_type(kind) && !mixed;
        is_plain && !self.has_nulls(rows) && self.empty_texts == 0 && self.long_texts == 0
    }

    /// The type of most values, and whether there are others. If any value is nested, all are read as JSON.
    pub(super) fn data_type(&self) -> (DataType, bool) {
        if self.nested > 0 {
            return (DataType::Json, self.blobs > 0);
        }
        let numbers = self.integers + self.reals + self.number_texts;
        let largest = numbers.max(self.texts).max(self.booleans).max(self.blobs);
        let kind = match largest {
            0 => DataType::Text,
            _ if numbers == largest => self.number_type(),
            _ if self.texts == largest => self.text_type(),
            _ if self.booleans == largest => DataType::Boolean,
            _ => DataType::Blob,
        };
        (kind, largest < self.non_null || (numbers == largest && self.non_finite + self.out_of_range > 0))
    }

    fn number_type(&self) -> DataType {
        let has_fractions = self.reals > 0;
        if self.number_texts > self.out_of_range || (has_fractions && self.large_integers > 0) {
            DataType::Decimal
        } else if has_fractions || self.out_of_range > 0 {
            DataType::Number
        } else if self.large_integers > 0 {
            DataType::Int64
        } else {
            DataType::Integer
        }
    }

    fn text_type(&self) -> DataType {
        match self.inference.data_type() {
            kind @ (DataType::Date | DataType::Timestamp | DataType::LocalTimestamp) => kind,
            // Digits stored as text are a code, not a number.
            _ => DataType::Text,
        }
    }
}

/// `12.0`, but not `12.00`: two digits after the point are significant.
fn is_whole_fraction(digits: &str) -> bool {
    let whole = digits.strip_suffix(".0").and_then(|whole| whole.parse::<i64>().ok());
    whole.is_some_and(|n| (-SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX).contains(&n))
}

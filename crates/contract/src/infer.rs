//! Infers the type of a column from its texts.
//!
//! Every type is a candidate until a text does not fit it. The column has the preferred remaining type, or is text if
//! none remains. A text fits a type only if the value prints back as exactly this text: `007` and `+1` are not
//! integers, `1.` is not a decimal, `1/2/2026` is not a date.

use json::{ParseLimits, parse};
use spile_core::calendar::Temporal;

mod format;
mod near_miss;

use crate::data_type::DataType;
use crate::source::NearMiss;
use near_miss::NearMissCounts;

pub use format::{DeclaredFormats, FormatInference, FormatOutcome};
pub use near_miss::is_null_name;

/// The types that every text of a column fits so far.
#[derive(Debug, Clone)]
pub struct TypeInference {
    candidates: u8,
    has_values: bool,
    /// The distinct texts, as long as there are few.
    distinct_values: Option<Vec<String>>,
    near_misses: NearMissCounts,
}

const INTEGER: u8 = 1;
const INT64: u8 = 1 << 1;
const DECIMAL: u8 = 1 << 2;
const BOOLEAN: u8 = 1 << 3;
const DATE: u8 = 1 << 4;
const TIMESTAMP: u8 = 1 << 5;
const LOCAL_TIMESTAMP: u8 = 1 << 6;
const ALL: u8 = (1 << 7) - 1;

/// In order of preference.
const TYPES_BY_PREFERENCE: [(u8, DataType); 7] = [
    (BOOLEAN, DataType::Boolean),
    (INTEGER, DataType::Integer),
    (INT64, DataType::Int64),
    (DECIMAL, DataType::Decimal),
    (DATE, DataType::Date),
    (TIMESTAMP, DataType::Timestamp),
    (LOCAL_TIMESTAMP, DataType::LocalTimestamp),
];

const DISTINCT_VALUES_MAX: usize = 12;
const VALUE_BYTES_MAX: usize = 40;

/// The largest integer that every JSON reader keeps exactly: 2^53 - 1.
pub const SAFE_INTEGER_MAX: i64 = (1 << 53) - 1;

impl Default for TypeInference {
    fn default() -> Self {
        Self {
            candidates: ALL,
            has_values: false,
            distinct_values: Some(Vec::new()),
            near_misses: NearMissCounts::default(),
        }
    }
}

impl TypeInference {
    /// Observes the text in a row, counted from 0. Texts that mean NULL must not be passed.
    #[inline]
    pub fn observe(&mut self, row: u64, text: &str) {
        self.has_values = true;
        let types = candidate_types(text.as_bytes());
        self.candidates &= types;
        self.near_misses.observe(row, text, types);
        if let Some(values) = &mut self.distinct_values {
            if values.iter().any(|value| value == text) {
                return;
            }
            if values.len() == DISTINCT_VALUES_MAX || text.len() > VALUE_BYTES_MAX {
                self.distinct_values = None;
            } else {
                values.push(text.to_owned());
            }
        }
    }

    pub fn data_type(&self) -> DataType {
        let best = TYPES_BY_PREFERENCE.iter().find(|(bit, _)| self.has_values && self.candidates & bit != 0);
        best.map_or(DataType::Text, |(_, data_type)| *data_type)
    }

    /// Whether the texts may be in a [format](crate::ColumnFormat) that is not the notation of their type: then a
    /// [`FormatInference`] that observes them all decides.
    pub fn may_have_format(&self) -> bool {
        let are_words =
            self.distinct_values.as_ref().is_some_and(|values| (2..=WORDS_MAX).contains(&values.len()));
        self.data_type() == DataType::Text && (are_words || self.near_misses.may_have_format())
    }

    /// Like [`Self::may_have_format`], for a source that has numbers of its own: texts of plain digits are codes there,
    /// and not numbers.
    pub fn may_have_own_format(&self) -> bool {
        let are_words =
            self.distinct_values.as_ref().is_some_and(|values| (2..=WORDS_MAX).contains(&values.len()));
        are_words || self.near_misses.may_have_own_format()
    }

    /// What the column almost is, if most values are numbers or dates, or look like it, and others are not.
    /// `native_numbers` and `native_others` count the values that the source does not store as text. `locate` names the
    /// place of a row for the owner of the data.
    pub fn near_miss(
        &self,
        native_numbers: u64,
        native_others: u64,
        locate: impl FnOnce(u64) -> String,
    ) -> Option<NearMiss> {
        self.near_misses.near_miss(native_numbers, native_others, locate)
    }

    /// The distinct texts of a text column, if there are few.
    pub fn distinct_values(self) -> Vec<String> {
        if self.data_type() == DataType::Text { self.distinct_values.unwrap_or_default() } else { Vec::new() }
    }
}

/// Texts that may be two words, each in several spellings, and blanks.
const WORDS_MAX: usize = 7;

/// Whether a text is a value of a type. Every text is a text, and a blob.
pub fn matches_type(data_type: DataType, text: &str) -> bool {
    match data_type {
        DataType::Number => return is_number(text),
        DataType::Json => return parse(text.as_bytes().to_vec(), &ParseLimits::default()).is_ok(),
        _ => {}
    }
    let bit = TYPES_BY_PREFERENCE.iter().find(|(_, one)| *one == data_type);
    bit.is_none_or(|(bit, _)| candidate_types(text.as_bytes()) & bit != 0)
}

/// A number as JSON writes it. Never inferred: the author declares it, because digits may be lost.
fn is_number(text: &str) -> bool {
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let whole = !exponent.is_empty() && exponent.bytes().all(|c| c.is_ascii_digit());
    whole && number_types(digits.as_bytes()) != 0 && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// What a text looks like, in any notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextClass {
    Blank,
    Number,
    Date,
    Other,
}

impl TextClass {
    pub fn of(text: &str) -> Self {
        if text.trim().is_empty() {
            Self::Blank
        } else if matches_type(DataType::Decimal, text) || near_miss::looks_like_number(text) {
            Self::Number
        } else if temporal_types(text.as_bytes()) != 0 || near_miss::looks_like_date(text) {
            Self::Date
        } else {
            Self::Other
        }
    }
}

/// The types that a text fits.
fn candidate_types(text: &[u8]) -> u8 {
    match text.first() {
        Some(b'0'..=b'9') => number_types(text) | temporal_types(text),
        Some(b'-') => number_types(text),
        Some(b't') if text == b"true" => BOOLEAN,
        Some(b'f') if text == b"false" => BOOLEAN,
        _ => 0,
    }
}

fn number_types(text: &[u8]) -> u8 {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits.iter().take_while(|c| c.is_ascii_digit()).count();
    if whole == 0 || (whole > 1 && digits[0] == b'0') {
        return 0;
    }
    match digits.get(whole) {
        None => integer_types(text, digits),
        Some(b'.') => {
            let fraction = &digits[whole + 1..];
            if !fraction.is_empty() && fraction.iter().all(u8::is_ascii_digit) { DECIMAL } else { 0 }
        }
        Some(_) => 0,
    }
}

fn integer_types(text: &[u8], digits: &[u8]) -> u8 {
    if text == b"-0" {
        return DECIMAL;
    }
    // Up to 15 digits are below 2^53 whatever they are; up to 18 fit 64 bits.
    if digits.len() <= 15 {
        return INTEGER | INT64 | DECIMAL;
    }
    match std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok()) {
        Some(n) if (-SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX).contains(&n) => INTEGER | INT64 | DECIMAL,
        Some(_) => INT64 | DECIMAL,
        None => DECIMAL,
    }
}

fn temporal_types(text: &[u8]) -> u8 {
    if text.len() < 10 || text[4] != b'-' {
        return 0;
    }
    match Temporal::parse(text) {
        Some(Temporal::Date(_)) => DATE,
        Some(Temporal::DateTime(at)) if at.offset.is_some() => TIMESTAMP,
        Some(Temporal::DateTime(_)) => LOCAL_TIMESTAMP,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::TypeInference;
    use crate::data_type::DataType;

    fn check(texts: &[&str], expected: DataType) {
        let mut inference = TypeInference::default();
        texts.iter().for_each(|text| inference.observe(0, text));
        assert_eq!(inference.data_type(), expected, "{texts:?}");
    }

    #[test]
    fn a_column_has_a_type_only_if_every_text_fits_it() {
        for (texts, expected) in [
            (&[][..], DataType::Text),
            (&["0", "1", "-17"], DataType::Integer),
            (&["9007199254740991", "-9007199254740991"], DataType::Integer),
            (&["1", "9007199254740992"], DataType::Int64),
            (&["9223372036854775807", "-9223372036854775808"], DataType::Int64),
            (&["9223372036854775808"], DataType::Decimal),
            (&["1", "2.50"], DataType::Decimal),
            (&["-0.00", "12345678901234.5678"], DataType::Decimal),
            (&["-0"], DataType::Decimal),
            (&["true", "false"], DataType::Boolean),
            (&["2026-02-28", "2024-02-29"], DataType::Date),
            (&["2026-02-11T10:00:00Z", "2026-02-11T10:00:00.5+01:00"], DataType::Timestamp),
            (&["2026-02-11T10:00:00", "2026-02-11 10:00:00.123"], DataType::LocalTimestamp),
        ] {
            check(texts, expected);
        }
    }

    #[test]
    fn a_column_is_text_if_a_value_does_not_print_back_identically() {
        for texts in [
            &["007"][..],
            &["+1"],
            &["1", "01"],
            &["1."],
            &[".5"],
            &["1e5"],
            &["1,000"],
            &[" 1"],
            &["--1"],
            &["-"],
            &["TRUE"],
            &["True", "False"],
            &["true", "yes"],
            &["true", "1"],
            &["2026-02-30"],
            &["2025-02-29"],
            &["2026-2-1"],
            &["1/2/2026"],
            &["11.02.2026"],
            &["2026-02-11", "2026-02-11T10:00:00Z"],
            &["2026-02-11T10:00:00Z", "2026-02-11T10:00:00"],
            &["2026-02-11T24:00:00"],
            &["2026-02-11T10:61:00"],
            &["2026-02-11T10:00:00+25:00"],
            &["2026-02-11T10:00:00."],
            &["NaN"],
            &["Infinity"],
            &["1", "one"],
            &["2026-02-11", "1"],
            &["١٢٣"],
        ] {
            check(texts, DataType::Text);
        }
    }

    #[test]
    fn matches_type_accepts_json_numbers_only() {
        for (text, expected) in [
            ("1", true),
            ("-1.50", true),
            ("1e5", true),
            ("1.5E-3", true),
            ("-0", true),
            ("1e999", false),
            ("1e", false),
            ("e5", false),
            ("+1", false),
            (".5", false),
            ("01", false),
            ("NaN", false),
            ("inf", false),
            ("1 ", false),
        ] {
            assert_eq!(super::matches_type(DataType::Number, text), expected, "{text}");
        }
    }

    #[test]
    fn distinct_values_are_kept_only_while_there_are_few() {
        let mut inference = TypeInference::default();
        ["free", "ruby", "free"].iter().for_each(|text| inference.observe(0, text));
        assert_eq!(inference.distinct_values(), ["free", "ruby"]);
        let mut inference = TypeInference::default();
        (0..20).for_each(|i| inference.observe(i, &format!("plan {i}")));
        assert!(inference.distinct_values().is_empty());
    }
}

//! Counts values that are almost numbers or dates, to tell the owner of the data why a column is text.

use std::net::Ipv4Addr;

use super::{DATE, DECIMAL, LOCAL_TIMESTAMP, TIMESTAMP, is_number, number_types};
use crate::column_format::DateFormat;
use crate::source::{NearMiss, NearMissType};

/// A longer value is truncated in a message.
const VALUE_CHARS_MAX: usize = 40;
const EXCEPTIONS_MAX: usize = 4;
/// The longest name of a month, and a blank.
const DIGIT_BYTES_MAX: usize = 12;

/// Counts of the texts of one column.
#[derive(Debug, Clone)]
pub(super) struct NearMissCounts {
    total: u64,
    numbers: SpellingCounts,
    dates: SpellingCounts,
    times: SpellingCounts,
    /// Texts of blanks only.
    blanks: u64,
    /// Texts that are written where there is no value: `NA`, `-`.
    null_names: u64,
    /// Numbers with a fraction.
    fractions: u64,
    /// Digits with leading zeros: postal codes, not numbers.
    codes: u64,
    /// The shortest and the longest of the numbers, in bytes.
    lengths: Option<(usize, usize)>,
    first: Option<RowText>,
    /// The distinct texts that neither are numbers or dates nor look like it; `None` if there are too many.
    exceptions: Option<Vec<String>>,
}

impl Default for NearMissCounts {
    fn default() -> Self {
        Self {
            total: 0,
            numbers: SpellingCounts::default(),
            dates: SpellingCounts::default(),
            times: SpellingCounts::default(),
            blanks: 0,
            null_names: 0,
            fractions: 0,
            codes: 0,
            lengths: None,
            first: None,
            exceptions: Some(Vec::new()),
        }
    }
}

/// How many texts are of a type, and how many only look like it.
#[derive(Debug, Clone, Default)]
struct SpellingCounts {
    exact: u64,
    similar: u64,
    /// The first text that is not of the type.
    first_other: Option<RowText>,
    /// The first text that does not even look like it.
    first_exception: Option<RowText>,
    /// Whether there is another such text.
    has_various_others: bool,
}

impl SpellingCounts {
    #[inline]
    fn observe_other(&mut self, row: u64, text: &str) {
        match &self.first_other {
            None => self.first_other = Some(RowText::new(row, text)),
            Some(_) if self.has_various_others => {}
            // A truncated text differs from itself.
            Some(first) => self.has_various_others = first.text != text,
        }
    }

    #[inline]
    fn observe_exception(&mut self, row: u64, text: &str) {
        if self.first_exception.is_none() {
            self.first_exception = Some(RowText::new(row, text));
        }
    }

    /// The first text because of which the column does not have the type.
    fn first_offender(&self) -> Option<&RowText> {
        self.first_exception.as_ref().or(self.first_other.as_ref())
    }

    /// Whether every text that is not of the type is the same short one.
    fn has_only_exception(&self) -> bool {
        let is_short = |first: &RowText| first.text.chars().count() <= VALUE_CHARS_MAX;
        self.similar == 0 && !self.has_various_others && self.first_other.as_ref().is_some_and(is_short)
    }
}

#[derive(Debug, Clone)]
struct RowText {
    row: u64,
    text: String,
}

impl RowText {
    fn new(row: u64, text: &str) -> Self {
        let mut kept: String = text.chars().take(VALUE_CHARS_MAX).collect();
        if kept.len() < text.len() {
            kept.push('…');
        }
        Self { row, text: kept }
    }
}

impl NearMissCounts {
    /// `types` are the types that the text fits.
    #[inline]
    pub(super) fn observe(&mut self, row: u64, text: &str, types: u8) {
        self.total += 1;
        if self.first.is_none() {
            self.first = Some(RowText::new(row, text));
        }
        let is_number = types & DECIMAL != 0;
        let is_date = types & (DATE | TIMESTAMP | LOCAL_TIMESTAMP) != 0;
        if is_number {
            self.numbers.exact += 1;
            self.fractions += u64::from(text.contains('.'));
            let (shortest, longest) = self.lengths.unwrap_or((text.len(), text.len()));
            self.lengths = Some((shortest.min(text.len()), longest.max(text.len())));
        } else {
            self.numbers.observe_other(row, text);
        }
        if is_date {
            self.dates.exact += 1;
        } else {
            self.dates.observe_other(row, text);
        }
        if is_number || is_date {
            return;
        }
        // Most texts have no digit near their start, and cost no more than this.
        let has_digit = text.bytes().take(DIGIT_BYTES_MAX).any(|byte| byte.is_ascii_digit());
        if !has_digit {
            self.blanks += u64::from(text.trim().is_empty());
            let is_dash = || !text.contains(char::is_alphanumeric);
            self.null_names += u64::from(is_null_name(text) || is_dash());
            self.observe_exception(row, text);
        } else if is_code(text) {
            self.codes += 1;
            self.numbers.observe_exception(row, text);
        } else if looks_like_number(text) {
            self.numbers.similar += 1;
        } else if looks_like_date(text) || DateFormat::is_month_and_year(text) {
            self.dates.similar += 1;
        } else {
            self.observe_exception(row, text);
            match TimeSpelling::of(text) {
                Some(TimeSpelling::Padded) => self.times.exact += 1,
                Some(TimeSpelling::Other) => {
                    self.times.similar += 1;
                    self.times.observe_exception(row, text);
                }
                None => {}
            }
        }
    }

    #[inline]
    fn observe_exception(&mut self, row: u64, text: &str) {
        self.numbers.observe_exception(row, text);
        self.dates.observe_exception(row, text);
        let Some(exceptions) = &mut self.exceptions else { return };
        if exceptions.iter().any(|one| one == text) {
            return;
        }
        if exceptions.len() == EXCEPTIONS_MAX || text.len() > VALUE_CHARS_MAX {
            self.exceptions = None;
        } else {
            exceptions.push(text.to_owned());
        }
    }

    /// Whether every text that is not blank is a number or a date or looks like one, and some are in another notation.
    pub(super) fn may_have_own_format(&self) -> bool {
        let has_similar = self.numbers.similar + self.dates.similar > 0;
        let blanks =
            self.exceptions.as_ref().is_some_and(|all| all.iter().all(|text| text.trim().is_empty()));
        has_similar && blanks && self.codes == 0
    }

    /// Whether every text is a number or a date, or looks like one: then the column may have a format.
    pub(super) fn may_have_format(&self) -> bool {
        let numbers = self.numbers.exact + self.numbers.similar;
        let dates = self.dates.exact + self.dates.similar;
        let total = self.total - self.blanks;
        total > 0 && (numbers == total || dates == total)
    }

    pub(super) fn near_miss(
        &self,
        native_numbers: u64,
        native_others: u64,
        locate: impl FnOnce(u64) -> String,
    ) -> Option<NearMiss> {
        let total = self.total + native_numbers + native_others;
        let numbers = native_numbers + self.numbers.exact + self.numbers.similar;
        let dates = self.dates.exact + self.dates.similar;
        let values = total - self.null_names;
        let is_most = |count: u64| count >= 2 && count.saturating_mul(2) >= values;
        let (looks_like, counts, first) = if is_most(numbers) && !self.are_codes(native_numbers) {
            // Among native numbers every text is an exception; among texts, those that are not numbers.
            let among_texts = self.numbers.first_offender().or(self.first.as_ref());
            let first = if native_numbers > 0 { self.first.as_ref() } else { among_texts };
            let is_whole = self.fractions == 0 && self.numbers.exact == total;
            let looks_like = if is_whole { NearMissType::Integer } else { NearMissType::Number };
            (looks_like, &self.numbers, first)
        } else if is_most(dates) && (self.dates.similar > 0 || self.dates.exact < total) {
            (NearMissType::Date, &self.dates, self.dates.first_offender())
        } else if is_most(self.times.exact + self.times.similar) && self.times.similar > 0 {
            (NearMissType::Time, &self.times, self.times.first_offender())
        } else {
            return None;
        };
        let first = first?;
        let native = match looks_like {
            NearMissType::Number | NearMissType::Integer => native_numbers,
            NearMissType::Date | NearMissType::Time => 0,
        };
        let exact_texts = if native > 0 { counts.exact } else { 0 };
        Some(NearMiss {
            looks_like,
            exact: native + counts.exact,
            similar: counts.similar,
            total,
            exact_texts,
            is_only_exception: counts.has_only_exception() && exact_texts == 0 && native_others == 0,
            first_value: first.text.clone(),
            exceptions: self.exceptions.clone().unwrap_or_default(),
            first_location: locate(first.row),
        })
    }

    /// Whether the texts are digits on purpose: integers in a source that has native numbers, with leading zeros or
    /// all of one length. Quantities differ in length and have no leading zeros.
    fn are_codes(&self, native_numbers: u64) -> bool {
        let texts_are_digits = self.numbers.exact + self.codes == self.total && self.fractions == 0;
        let are_quantities =
            self.codes == 0 && self.lengths.is_some_and(|(shortest, longest)| shortest < longest);
        native_numbers == 0 && texts_are_digits && !are_quantities
    }
}

/// Whether programs write this text where there is no value: R, pandas, Excel, MySQL.
pub fn is_null_name(text: &str) -> bool {
    const NULL_NAMES: [&str; 8] = ["na", "n/a", "#n/a", "nan", "null", "none", "<na>", "\\n"];
    text.len() <= 4 && NULL_NAMES.iter().any(|name| text.eq_ignore_ascii_case(name))
}

/// `007`
fn is_code(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A longer text is neither a number nor a date.
const SPELLING_BYTES_MAX: usize = 512;

/// A number in another notation than `-1234.5`: with blanks around it, a currency, a percent sign, parentheses,
/// thousands separators or a decimal comma.
pub(super) fn looks_like_number(text: &str) -> bool {
    const CURRENCY_CODES: [&str; 8] = ["USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "kr"];
    let is_affix =
        |c: char| c.is_whitespace() || matches!(c, '$' | '€' | '£' | '¥' | '₹' | '₽' | '%' | '+' | '-' | '−');
    let text = text.trim();
    if text.len() > SPELLING_BYTES_MAX || text.parse::<Ipv4Addr>().is_ok() {
        return false;
    }
    let text = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    let mut text = text.trim_matches(is_affix);
    for code in CURRENCY_CODES {
        let stripped = text.strip_prefix(code).or_else(|| text.strip_suffix(code));
        text = stripped.map_or(text, |text| text.trim_matches(is_affix));
    }
    // `$(5)`, `(5) €`
    let text = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    is_number(text) || number_types(text.as_bytes()) != 0 || has_separators(text) || has_exponent(text)
}

/// `1,23E-07`, `.5e3`
fn has_exponent(text: &str) -> bool {
    text.split_once(['e', 'E']).is_some_and(|(mantissa, exponent)| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        has_separators(mantissa) && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// `1,234.50`, `1.234,50`, `1 234,50`, `1'234.50`, `989,79`, `.5`
fn has_separators(text: &str) -> bool {
    let mut groups: Vec<(Option<char>, usize)> = vec![(None, 0)];
    for c in text.chars() {
        match c {
            '0'..='9' => groups.last_mut().expect("there is a first group").1 += 1,
            '.' | ',' | ' ' | '\'' | '’' | '\u{a0}' | '\u{202f}' => groups.push((Some(c), 0)),
            _ => return false,
        }
    }
    let [(_, whole), rest @ ..] = groups.as_slice() else { return false };
    let Some(((last, fraction), thousands)) = rest.split_last() else { return false };
    let is_decimal_point = matches!(last, Some('.' | ','));
    let has_leading_zero = text.starts_with('0') && *whole > 1;
    if has_leading_zero || *fraction == 0 || (*whole == 0 && !(is_decimal_point && thousands.is_empty())) {
        return false;
    }
    let is_group = |digits: usize| digits == 3 || digits == 2;
    // The last separator may be one more thousands separator.
    let separator = thousands.first().map_or(*last, |(separator, _)| *separator);
    let are_groups = thousands.iter().all(|(one, digits)| *one == separator && is_group(*digits));
    let is_last_group = *last == separator && *fraction == 3;
    let is_fraction = is_decimal_point && (thousands.is_empty() || *last != separator);
    *whole <= 3 && are_groups && (is_last_group || is_fraction) || thousands.is_empty() && is_decimal_point
}

/// A time of the day or a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeSpelling {
    /// `09:05`: sorts as text in the order of time.
    Padded,
    /// `9:05`, `1:00 PM`, `120:45:00`
    Other,
}

impl TimeSpelling {
    fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_half_day = |half: &&str| matches!(half.to_ascii_lowercase().as_str(), "am" | "pm");
        let half = text.get(text.len().saturating_sub(2)..).filter(is_half_day);
        let time = half.map_or(text, |half| text[..text.len() - half.len()].trim_end());
        let mut parts = time.split(':');
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let hours = parts.next().filter(|hours| (1..=4).contains(&hours.len()) && is_number(hours))?;
        let mut count = 0;
        for part in parts {
            count += 1;
            let whole = part.split_once('.').map_or(part, |(whole, _)| whole);
            let is_part =
                whole.len() == 2 && is_number(whole) && whole < "60" && is_number(&part.replace('.', ""));
            if !is_part || count > 2 {
                return None;
            }
        }
        let is_padded = half.is_none() && hours.len() == 2;
        (count > 0).then_some(if is_padded { Self::Padded } else { Self::Other })
    }
}

/// `1/2/2026`, `11.02.26`, `2026/2/11`, `13 Feb 2026`, with or without a time.
pub(super) fn looks_like_date(text: &str) -> bool {
    let text = text.trim();
    text.len() <= SPELLING_BYTES_MAX
        && (looks_like_numeric_date(text) || !DateFormat::candidates(without_zone_name(text)).is_empty())
}

/// `Jan 1, 2026 12:03:04 AM PST` without the name of its time zone, which means several zones and is never read.
fn without_zone_name(text: &str) -> &str {
    let is_zone =
        |name: &str| (2..=5).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_uppercase());
    match text.rsplit_once(' ') {
        Some((time, name)) if is_zone(name) && time.contains(':') && !matches!(name, "AM" | "PM") => time,
        _ => text,
    }
}

fn looks_like_numeric_date(text: &str) -> bool {
    let date = text.split([' ', 'T']).next().unwrap_or_default();
    let parts: Vec<&str> = date.split(['/', '.', '-']).collect();
    let number = |part: &str, digits: std::ops::RangeInclusive<usize>, max: u32| {
        digits.contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && part.parse::<u32>().is_ok_and(|number| (1..=max).contains(&number))
    };
    match parts.as_slice() {
        [year, month, day] if year.len() == 4 => {
            number(year, 4..=4, 9999) && number(month, 1..=2, 12) && number(day, 1..=2, 31)
        }
        [a, b, year] => {
            let days = number(a, 1..=2, 31) && number(b, 1..=2, 31);
            days && (number(a, 1..=2, 12) || number(b, 1..=2, 12))
                && matches!(year.len(), 2 | 4)
                && year.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{looks_like_date, looks_like_number};
    use crate::infer::TypeInference;

    #[test]
    fn numbers_in_other_notations_are_recognized() {
        for text in [
            "989,79",
            "20.926,34",
            "$99,133",
            "$139,786",
            "10.5 ",
            " 7",
            "1,234.50",
            "1.234.567",
            "1 234,5",
            "1'234.50",
            "12 %",
            "€ 5",
            "5 EUR",
            "(1,200.00)",
            "+3",
            "-1.234,5",
            "1e5",
            "1,23E-07",
            ".5e3",
            ".5",
            "1\u{a0}234",
            "1,00,000",
            "−5",
        ] {
            assert!(looks_like_number(text), "{text}");
        }
        for text in [
            "tbd",
            "007",
            "1.2.3",
            "192.168.1.1",
            "190.37.72.226",
            "11.02.2026",
            "2026-02-11",
            "12a",
            "10:30",
            "+49 151 2345678",
            "1,,2",
            "",
            "-",
            "1,",
            "12 34 5",
        ] {
            assert!(!looks_like_number(text), "{text}");
        }
    }

    #[test]
    fn dates_in_other_notations_are_recognized() {
        for text in [
            "1/2/2026",
            "31.12.2025",
            "11.02.26",
            "2026/2/11",
            "12-31-2025 10:00",
            "13 Feb 2026",
            "September 3, 2026",
        ] {
            assert!(looks_like_date(text), "{text}");
        }
        for text in ["1.2.3", "32.13.2025", "192.168.1.1", "tbd", "1/2", "555-123-4567"] {
            assert!(!looks_like_date(text), "{text}");
        }
    }

    /// The near miss of a column of texts, as `exact+similar/total row value`.
    fn near_miss(texts: &[&str], native_numbers: u64) -> Option<String> {
        let mut inference = TypeInference::default();
        (0..).zip(texts).for_each(|(row, text)| inference.observe(row, text));
        let found = inference.near_miss(native_numbers, 0, |row| row.to_string())?;
        let only = if found.is_only_exception { " only" } else { "" };
        Some(format!(
            "{:?} {}+{}/{} {} {}{only}",
            found.looks_like,
            found.exact,
            found.similar,
            found.total,
            found.first_location,
            found.first_value
        ))
    }

    #[test]
    fn a_near_miss_has_counts_and_the_first_exception() {
        for (texts, native_numbers, expected) in [
            (&["1", "2", "tbd", "4", "x"][..], 0, Some("Number 3+0/5 2 tbd")),
            (&["1", "#N/A", "2", "#N/A"], 0, Some("Number 2+0/4 1 #N/A only")),
            (&["-", "-"], 5, Some("Number 5+0/7 0 - only")),
            (&["-", "1"], 5, Some("Number 6+0/7 0 -")),
            (&["989,79", "20.926,34"], 0, Some("Number 0+2/2 0 989,79")),
            (&["1.5", "10.5 ", "2"], 0, Some("Number 2+1/3 1 10.5 ")),
            (&["1.5", " 2", "tbd", "x"], 0, Some("Number 1+1/4 2 tbd")),
            (&["9:05", "10:30", "8:45"], 0, Some("Time 1+2/3 0 9:05")),
            (&["38:30:00", "120:45:00"], 0, Some("Time 1+1/2 1 120:45:00")),
            (&["11:00 AM", "1:00 PM"], 0, Some("Time 0+2/2 0 11:00 AM")),
            (&["09:05", "10:30", "08:45:10.5"], 0, None),
            (&["16:9", "4:3"], 0, None),
            (&["10.5 "], 500, Some("Number 500+1/501 0 10.5 ")),
            (&["tbd"], 499, Some("Number 499+0/500 0 tbd only")),
            (&["1.50", "2.75"], 0, Some("Number 2+0/2 0 1.50")),
            (&["2026-02-11", "2026-02-12", "soon"], 0, Some("Date 2+0/3 2 soon only")),
            (&["1/2/2026", "3/4/2026"], 0, Some("Date 0+2/2 0 1/2/2026")),
            // Quantities, which would sort as '9', '80', '7'.
            (&["9", "80", "700"], 0, Some("Integer 3+0/3 0 9")),
            (&["0", "-5", "12"], 0, Some("Integer 3+0/3 0 0")),
            // Codes and words.
            (&["10115", "01067", "20095"], 0, None),
            (&["1001", "1002"], 0, None),
            (&["7", "10", "007"], 0, None),
            (&["a", "b", "1"], 0, None),
            (&["1"], 0, None),
            (&[], 10, None),
        ] {
            assert_eq!(near_miss(texts, native_numbers).as_deref(), expected, "{texts:?}");
        }
    }
}

//! Values of columns that are read, and perhaps mean something else.

use contract::infer::TextClass;
use contract::source::{LayoutNote, LayoutNoteKind};
use contract::{ColumnFormat, DataType};
use spile_core::calendar::CivilDate;

use super::{ColumnProfiler, CsvColumnProfile, InferredFormat, RowScanner};

/// The stand-ins for a missing value of one column, so far.
#[derive(Default)]
struct StandIns {
    first: Option<(u32, String)>,
    count: usize,
    others: usize,
    min: f64,
}

impl RowScanner<'_> {
    /// Columns whose two-digit years are read as years that are far ahead, whatever the year is now.
    pub(super) fn doubt_years(&self, starts: &[u32], formats: &[InferredFormat]) -> Vec<LayoutNote> {
        const DOUBTFUL_FROM: &str = "2040";
        const PROPOSED_FROM: u16 = 1940;
        const ROWS_MAX: usize = 100_000;
        let mut notes = Vec::new();
        for (column, format) in formats.iter().enumerate() {
            let InferredFormat::Format(format @ ColumnFormat::Date(date), _) = format else { continue };
            let is_declared = self.options.formats(&self.header[column], DataType::Text).date.is_some();
            let Some(proposed) = date.clone().with_years_from(PROPOSED_FROM).filter(|_| !is_declared) else {
                continue;
            };
            let late = starts.iter().take(ROWS_MAX).find_map(|start| {
                let cell = self.cells(*start).into_iter().find(|cell| cell.column == column)?;
                let date = format.parse(&cell.text).filter(|date| &date[..4] >= DOUBTFUL_FROM)?;
                Some((self.line(*start), cell.text, date))
            });
            if let Some((line, text, date)) = late {
                let name = &self.header[column];
                notes.push(LayoutNote {
                    kind: LayoutNoteKind::DoubtfulYears,
                    message: format!(
                        "has dates with two-digit years in the future: `{name}` in line {line} is `{}`, read as {date}",
                        text.trim()
                    ),
                    setting: format!("{} = {{ date_format = \"{proposed}\" }}", contract::toml_key(name)),
                });
            }
        }
        notes
    }

    /// Columns of numbers in which `-999` or the like is far below all other values: measuring programs write it where there
    /// is no value.
    pub(super) fn doubt_numbers(&self, starts: &[u32], columns: &[CsvColumnProfile]) -> Vec<LayoutNote> {
        const ROWS_MAX: usize = 20_000;
        const BELOW_OTHERS: f64 = 5.0;
        // Most files have none.
        if memchr::memmem::find(self.text.as_bytes(), b"-999").is_none() {
            return Vec::new();
        }
        let mut found: Vec<StandIns> = columns.iter().map(|_| StandIns::default()).collect();
        for start in starts.iter().take(ROWS_MAX) {
            for cell in self.cells(*start).into_iter().filter(|cell| cell.class == TextClass::Number) {
                let Some(column) = found.get_mut(cell.column) else { continue };
                let text = cell.text.trim();
                if is_stand_in(text) && column.first.as_ref().is_none_or(|(_, first)| first.trim() == text) {
                    column.count += 1;
                    column.first.get_or_insert((*start, cell.text));
                } else if let Ok(value) = text.parse::<f64>() {
                    column.others += 1;
                    column.min = column.min.min(value);
                }
            }
        }
        let is_number = |data_type: DataType| {
            matches!(data_type, DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number)
        };
        let mut notes = Vec::new();
        for (at, StandIns { first, count, others, min }) in found.into_iter().enumerate() {
            let Some((start, text)) = first else { continue };
            let value: f64 = text.trim().parse().unwrap_or(0.0);
            // One amount of money may be this by accident.
            let is_plausible = count > 1 || !text.trim().contains('.');
            if others < 2 || !is_plausible || min <= value / BELOW_OTHERS || !is_number(columns[at].data_type)
            {
                continue;
            }
            let name = &self.header[at];
            notes.push(LayoutNote {
                kind: LayoutNoteKind::DoubtfulNumbers,
                message: format!(
                    "has `{}` in `{}` (first in line {}), far below all other values, which may stand for a missing value",
                    text.trim(),
                    name.trim(),
                    self.line(start)
                ),
                setting: format!("{} = {{ null = {} }}", contract::toml_key(name), contract::toml_string(&text)),
            });
        }
        notes
    }
}

impl RowScanner<'_> {
    /// Columns of integers that may all be dates without separators: `260213`, `20260213`.
    pub(super) fn doubt_integers(
        &self,
        starts: &[u32],
        columns: &[ColumnProfiler],
        formats: &[InferredFormat],
    ) -> Vec<LayoutNote> {
        const ROWS_MAX: usize = 20_000;
        const VALUES_MIN: usize = 2;
        let is_open = |at: usize| {
            columns[at].inference.data_type() == DataType::Integer
                && matches!(formats[at], InferredFormat::None)
        };
        let mut found: Vec<Option<PlainDates>> =
            (0..columns.len()).map(|at| is_open(at).then(PlainDates::default)).collect();
        for start in starts.iter().take(ROWS_MAX) {
            if found.iter().all(Option::is_none) {
                return Vec::new();
            }
            for cell in self.cells(*start) {
                let Some(column) = found.get_mut(cell.column) else { continue };
                if column.as_mut().is_some_and(|dates| !dates.add(*start, cell.text.trim())) {
                    *column = None;
                }
            }
        }
        let note = |(at, dates): (usize, PlainDates)| {
            let (start, text) = dates.first?;
            let format = if text.len() == 6 { "yymmdd" } else { "yyyymmdd" };
            let name = &self.header[at];
            (dates.count >= VALUES_MIN).then(|| LayoutNote {
                kind: LayoutNoteKind::DoubtfulDates,
                message: format!(
                    "has integers in `{}` that may all be dates (first `{text}` in line {})",
                    name.trim(),
                    self.line(start)
                ),
                setting: format!("{} = {{ date_format = \"{format}\" }}", contract::toml_key(name)),
            })
        };
        let found = found.into_iter().enumerate();
        found.filter_map(|(at, dates)| Some((at, dates?))).filter_map(note).collect()
    }

    /// Numbers with three digits behind each point, in a file whose fields no comma separates: the points may separate
    /// thousands.
    pub(super) fn doubt_points(
        &self,
        starts: &[u32],
        columns: &[ColumnProfiler],
        formats: &[InferredFormat],
    ) -> Option<LayoutNote> {
        const ROWS_MAX: usize = 20_000;
        const VALUES_MIN: usize = 2;
        let is_number = |data_type| matches!(data_type, DataType::Decimal | DataType::Number);
        let open: Vec<bool> = (columns.iter().zip(formats))
            .map(|(column, format)| {
                is_number(column.inference.data_type()) && matches!(format, InferredFormat::None)
            })
            .collect();
        if self.splitter.delimiter == b',' || !open.contains(&true) {
            return None;
        }
        let (mut first, mut count) = (None, 0);
        for start in starts.iter().take(ROWS_MAX) {
            for cell in self.cells(*start).into_iter().filter(|cell| open.get(cell.column) == Some(&true)) {
                if !may_have_thousands(cell.text.trim()) {
                    return None;
                }
                if cell.text.contains('.') {
                    count += 1;
                    first.get_or_insert((*start, cell));
                }
            }
        }
        let (start, cell) = first.filter(|_| count >= VALUES_MIN)?;
        Some(LayoutNote {
            kind: LayoutNoteKind::DoubtfulPoints,
            message: format!(
                "has three digits behind every decimal point, which may separate thousands (first `{}` in `{}`, line {})",
                cell.text.trim(),
                self.header[cell.column].trim(),
                self.line(start)
            ),
            setting: "number_format = \"1.234\"".to_owned(),
        })
    }
}

/// The values of a column that are dates without separators, so far.
#[derive(Default)]
struct PlainDates {
    first: Option<(u32, String)>,
    count: usize,
}

impl PlainDates {
    /// Whether a value is such a date, as long as the first one.
    fn add(&mut self, start: u32, text: &str) -> bool {
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return false;
        }
        let iso = match text.len() {
            6 => format!("20{}-{}-{}", &text[..2], &text[2..4], &text[4..]),
            8 if text.starts_with("19") || text.starts_with("20") => {
                format!("{}-{}-{}", &text[..4], &text[4..6], &text[6..])
            }
            _ => return false,
        };
        let is_same_length = self.first.as_ref().is_none_or(|(_, first)| first.len() == text.len());
        if !is_same_length || CivilDate::parse(iso.as_bytes()).is_none() {
            return false;
        }
        self.count += 1;
        self.first.get_or_insert_with(|| (start, text.to_owned()));
        true
    }
}

/// `128.928`, `-1.234` and `950`, but not `0.125` and `1950`.
fn may_have_thousands(text: &str) -> bool {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let whole = whole.strip_prefix('-').unwrap_or(whole);
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (1..=3).contains(&whole.len())
        && is_digits(whole)
        && (!whole.starts_with('0') || whole == "0" && fraction.is_none())
        && fraction.is_none_or(|fraction| fraction.len() == 3 && is_digits(fraction))
}

/// `-999`, `-9999`, `-999.0`, `-999.9`
fn is_stand_in(text: &str) -> bool {
    let Some(digits) = text.strip_prefix('-') else { return false };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = |digits: &str, digit: u8| digits.bytes().all(|byte| byte == digit);
    whole.len() >= 3 && all(whole, b'9') && (all(fraction, b'0') || all(fraction, b'9'))
}

#[cfg(test)]
mod tests {
    use super::{PlainDates, may_have_thousands};

    #[test]
    fn points_may_separate_thousands_where_three_digits_are_behind_each() {
        for text in ["128.928", "-1.234", "950", "0", "12.000"] {
            assert!(may_have_thousands(text), "{text}");
        }
        for text in ["0.125", "1950", "1.23", "1.2345", "1234.567", "", ".500", "1e3", "007"] {
            assert!(!may_have_thousands(text), "{text}");
        }
    }

    #[test]
    fn integers_may_be_dates_where_each_is_a_day_of_the_calendar() {
        let are_dates = |values: &[&str]| {
            let mut dates = PlainDates::default();
            values.iter().all(|value| dates.add(0, value))
        };
        for values in [&["260213", "991231"][..], &["20260213", "19991231"], &["000101"]] {
            assert!(are_dates(values), "{values:?}");
        }
        for values in [
            &["260213", "260230"][..],
            &["260213", "20260213"],
            &["202051"],
            &["30000101"],
            &["2602133"],
            &["26é13"],
        ] {
            assert!(!are_dates(values), "{values:?}");
        }
    }
}

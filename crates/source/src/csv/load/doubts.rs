//! Values of columns that are read, and perhaps mean something else.

use contract::infer::TextClass;
use contract::source::{LayoutNote, LayoutNoteKind};
use contract::{ColumnFormat, DataType};

use super::{CsvColumnProfile, InferredFormat, RowScanner};

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

/// `-999`, `-9999`, `-999.0`, `-999.9`
fn is_stand_in(text: &str) -> bool {
    let Some(digits) = text.strip_prefix('-') else { return false };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = |digits: &str, digit: u8| digits.bytes().all(|byte| byte == digit);
    whole.len() >= 3 && all(whole, b'9') && (all(fraction, b'0') || all(fraction, b'9'))
}

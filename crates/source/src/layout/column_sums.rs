//! Whether numbers of a row are the sums of the columns above them.

use contract::infer::TextClass;

use super::{SketchedCell, SketchedRow};

/// How many numbers of a row are the sums of their columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SumCount {
    /// In every column that has numbers.
    All(usize),
    /// In these columns, and not in others.
    Some(usize),
}

/// The sums of each column: of all rows, and of those since each total; with a point and with a comma as the decimal
/// separator. Only evidence, so floats will do.
#[derive(Default, Clone)]
pub(super) struct ColumnSums {
    columns: Vec<[ColumnSum; 2]>,
    /// How many totals there were.
    groups: usize,
}

#[derive(Default, Clone)]
struct ColumnSum {
    all: f64,
    rows: usize,
    has_negative: bool,
    /// The most digits behind the decimal separator.
    decimals: usize,
    /// The sum and the number of rows before each of the last totals.
    before: Vec<(f64, usize)>,
}

/// How many rows a group must have for its sum to be evidence: the total of one row is its only value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SumGroup {
    OneRow,
    TwoRows,
}

/// Which numbers of a row are sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FoundSums {
    pub(super) any: bool,
    /// As many as are not: a rate or an average is not the sum of its column.
    pub(super) most: bool,
}

/// A number is read with each of them.
const DECIMAL_SEPARATORS: [char; 2] = ['.', ','];

/// A total may be the sum of a group that ended at most so many totals ago.
const GROUPS_MAX: usize = 50;

impl ColumnSum {
    fn add(&mut self, value: Option<f64>, decimals: usize) {
        self.decimals = self.decimals.max(decimals);
        self.all += value.unwrap_or(0.0);
        self.rows += 1;
        self.has_negative |= value.is_some_and(|value| value < 0.0);
    }

    /// Whether a value is the sum of all rows, or of those since one of the last totals.
    fn is_sum(&self, value: f64, decimals: usize, group: SumGroup) -> bool {
        let least = if group == SumGroup::OneRow { 1 } else { 2 };
        let all = (self.rows >= least).then_some((self.all, self.rows));
        let groups = self.before.iter().map(|(sum, rows)| (self.all - sum, self.rows - rows));
        let mut sums = all.into_iter().chain(groups.filter(|(_, rows)| *rows >= least));
        sums.any(|(sum, rows)| {
            // The total of rounded values is not always the rounded total. Values with more digits than the total are not rounded.
            let rounded = if self.decimals > decimals { 1 } else { rows };
            let rounding = 0.5 * 10_f64.powi(-(decimals as i32)) * rounded as f64;
            let noise = self.all.abs() * 1e-12;
            (value - sum).abs() < rounding.min(sum.abs() * 1e-3).max(0.006) + noise
        })
    }
}

impl ColumnSums {
    pub(super) fn add(&mut self, cells: &[SketchedCell]) {
        for cell in cells.iter().filter(|cell| cell.class == TextClass::Number) {
            if self.columns.len() <= cell.column {
                let before = vec![(0.0, 0); self.groups.min(GROUPS_MAX)];
                let new = ColumnSum { before, ..ColumnSum::default() };
                self.columns.resize(cell.column + 1, [new.clone(), new]);
            }
            let readings = readings(&cell.text).into_iter().zip(DECIMAL_SEPARATORS);
            for (sum, (value, separator)) in self.columns[cell.column].iter_mut().zip(readings) {
                sum.add(value, decimals(&cell.text, separator));
            }
        }
    }

    pub(super) fn end_group(&mut self) {
        self.groups += 1;
        for sum in self.columns.iter_mut().flatten() {
            if sum.before.len() == GROUPS_MAX {
                sum.before.remove(0);
            }
            sum.before.push((sum.all, sum.rows));
        }
    }

    /// Whether some number of a row is below the sum of numbers that are not negative.
    pub(super) fn exceed(&self, row: &SketchedRow) -> bool {
        row.cells.iter().filter(|cell| cell.class == TextClass::Number).any(|cell| {
            let sums = self.columns.get(cell.column).cloned().unwrap_or_default();
            sums.iter()
                .zip(readings(&cell.text))
                .all(|(sum, value)| !sum.has_negative && value.is_none_or(|value| value < sum.all - 1.0))
        })
    }

    /// How many numbers of a row are sums, in the columns after the first ones, which have its label.
    pub(super) fn count_sums_in(&self, row: &SketchedRow, label_columns: usize) -> SumCount {
        let is_sum = |sum: &ColumnSum, value: f64| {
            let tolerance = 0.006_f64.max(sum.all.abs() * 1e-12);
            sum.rows > 1 && value != 0.0 && (value - sum.all).abs() < tolerance
        };
        // With one decimal separator for all of them.
        let counts = [0, 1].map(|at| {
            let columns =
                self.columns.iter().enumerate().skip(label_columns).filter(|(_, sums)| sums[at].rows > 0);
            let (mut count, mut others) = (0, 0);
            for (column, sums) in columns {
                let cell = row.get(column).filter(|cell| cell.class == TextClass::Number);
                let value = cell.and_then(|cell| readings(&cell.text)[at]);
                match value.is_some_and(|value| is_sum(&sums[at], value)) {
                    true => count += 1,
                    false => others += 1,
                }
            }
            (others == 0, count)
        });
        match counts.into_iter().max() {
            Some((true, count)) => SumCount::All(count),
            Some((false, count)) => SumCount::Some(count),
            None => SumCount::Some(0),
        }
    }

    /// Which numbers of a row are the sums of their columns, with one decimal separator for all of them.
    pub(super) fn has_sums_in(&self, row: &SketchedRow, group: SumGroup) -> FoundSums {
        let cells = || row.cells.iter().filter(|cell| cell.class == TextClass::Number);
        let count = |at: usize| {
            let is_sum = |cell: &&SketchedCell| {
                let sum = self.columns.get(cell.column).map(|sums| &sums[at]);
                let (value, decimals) =
                    (readings(&cell.text)[at], decimals(&cell.text, DECIMAL_SEPARATORS[at]));
                sum.zip(value).is_some_and(|(sum, value)| sum.is_sum(value, decimals, group))
            };
            cells().filter(is_sum).count()
        };
        let sums = count(0).max(count(1));
        FoundSums { any: sums > 0, most: sums > 0 && sums * 2 >= cells().count() }
    }
}

/// How many digits a number has behind its decimal separator.
fn decimals(text: &str, separator: char) -> usize {
    let behind = text.rsplit_once(separator).map_or("", |(_, behind)| behind);
    behind.chars().filter(char::is_ascii_digit).count()
}

/// A number with a point and with a comma as its decimal separator.
pub(super) fn readings(text: &str) -> [Option<f64>; 2] {
    DECIMAL_SEPARATORS.map(|decimal| {
        let text = text.trim();
        let is_negative = text.starts_with(['-', '−']) || text.ends_with('-') || text.contains('(');
        let digits: String = text
            .chars()
            .filter_map(|c| match c {
                c if c == decimal => Some('.'),
                '0'..='9' => Some(c),
                _ => None,
            })
            .collect();
        let value: f64 = digits.parse().ok()?;
        Some(if is_negative { -value } else { value })
    })
}

//! Finds the table among the rows of a sheet or a CSV file: titles and notes above it, names of columns in one row or
//! two, totals and notes below it.
//!
//! A row is left out only where the evidence is clear, and each is named in a [`LayoutNote`] with the setting that
//! reads it after all. Where the evidence is not clear, the row is read, and a note says what is doubtful.

use std::fmt::Write;

use contract::infer::TextClass;
use contract::manifest::DeclaredLayout;
use contract::source::{LayoutNote, LayoutNoteKind};

/// One row, as people see it.
#[derive(Debug, Clone)]
pub(crate) struct SketchedRow {
    /// The row, or the line on which it starts.
    pub(crate) number: u32,
    /// Whether a blank row comes before it.
    pub(crate) follows_gap: bool,
    /// How many fields the record of a CSV file has; 0 on a sheet.
    pub(crate) width: usize,
    /// Cells that are not blank, by column, ascending.
    pub(crate) cells: Vec<SketchedCell>,
}

#[derive(Debug, Clone)]
pub(crate) struct SketchedCell {
    pub(crate) column: usize,
    pub(crate) text: String,
    pub(crate) class: TextClass,
}

/// Where the names of columns are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeaderLayout {
    /// The position among the rows that were searched.
    pub(crate) at: usize,
    /// How many rows have names.
    pub(crate) count: usize,
    /// The row that probably has them, if this one looks like a title but the evidence is not clear.
    pub(crate) likely_row: Option<u32>,
    pub(crate) notes: Vec<LayoutNote>,
}

/// The rows below the header that are not data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeftOutRows {
    /// Positions, ascending.
    pub(crate) rows: Vec<usize>,
    pub(crate) notes: Vec<LayoutNote>,
    /// Why a write would make the file wrong.
    pub(crate) read_only_reason: Option<String>,
}

/// How many rows are searched for the header.
pub(crate) const HEAD_ROWS_MAX: usize = 60;
/// How many rows below a row show what its columns hold.
const CONTRAST_ROWS_MAX: usize = 20;
/// How many rows at the end may be notes.
const FOOTER_ROWS_MAX: usize = 20;
/// A note names at most this many rows.
const ROWS_NAMED_MAX: usize = 5;
/// A note quotes at most this much of a row.
const QUOTED_CHARS_MAX: usize = 40;

impl SketchedCell {
    fn is_year(&self) -> bool {
        self.text.trim().parse().is_ok_and(|year: u32| (1900..2100).contains(&year))
    }
}

impl SketchedRow {
    pub(crate) fn get(&self, column: usize) -> Option<&SketchedCell> {
        let at = self.cells.binary_search_by_key(&column, |cell| cell.column).ok()?;
        Some(&self.cells[at])
    }

    fn first_text(&self) -> &str {
        self.cells.first().map_or("", |cell| cell.text.trim())
    }

    /// Whether every cell may be the name of a column: a text, or a year.
    fn has_names_only(&self) -> bool {
        self.cells.iter().any(|cell| cell.class == TextClass::Other)
            && self.cells.iter().all(|cell| cell.class == TextClass::Other || cell.is_year())
    }

    fn has_years_only(&self) -> bool {
        !self.cells.is_empty() && self.cells.iter().all(SketchedCell::is_year)
    }

    /// `Account:` and its value, above a table.
    fn is_label_and_value(&self) -> bool {
        self.cells.len() <= 2 && self.first_text().ends_with(':')
    }

    fn quoted(&self) -> String {
        let text: String = self.first_text().chars().take(QUOTED_CHARS_MAX).collect();
        let cut = if text.len() < self.first_text().len() { "…" } else { "" };
        format!("`{}{cut}`", text.replace(char::is_control, " "))
    }
}

/// Finds the header among the first rows. `unit` is what a row's number counts, `line` or `row`. `is_merged` tells
/// whether the cell in a row and column is the first of several merged ones, side by side.
pub(crate) fn find_header(
    rows: &[SketchedRow],
    declared: &DeclaredLayout,
    unit: &str,
    is_merged: impl Fn(u32, usize) -> bool,
) -> Option<HeaderLayout> {
    let is_first = |(at, row): &(usize, &SketchedRow)| {
        // Years above names, as in a table by year and quarter.
        let is_above_names =
            row.has_years_only() && rows.get(at + 1).is_some_and(SketchedRow::has_names_only);
        row.number > declared.skip_rows.unwrap_or(0) && (has_name(row) || is_above_names)
    };
    let (first, _) = rows.iter().enumerate().find(is_first)?;
    let mut layout = match declared.header_row {
        Some(number) => {
            let at = rows.iter().position(|row| row.number == number && has_name(row))?;
            HeaderLayout { at, count: 1, likely_row: None, notes: Vec::new() }
        }
        None if declared.skip_rows.is_some() => {
            HeaderLayout { at: first, count: 1, likely_row: None, notes: Vec::new() }
        }
        None => find_header_after_titles(rows, first, unit),
    };
    layout.count = match declared.header_rows {
        Some(count) => count as usize,
        None if declared.header_row.is_none() && has_two_header_rows(rows, layout.at, is_merged) => {
            let (first, second) = (rows[layout.at].number, rows[layout.at + 1].number);
            layout.likely_row = None;
            layout.notes.push(LayoutNote {
                kind: LayoutNoteKind::LeftOut,
                message: format!(
                    "has names of columns in two rows ({unit}s {first} and {second}), which are joined"
                ),
                setting: "header_rows = 1".into(),
            });
            2
        }
        None => 1,
    };
    Some(layout)
}

/// Whether some cell is a text that could be a name.
fn has_name(row: &SketchedRow) -> bool {
    row.cells.iter().any(|cell| cell.class == TextClass::Other)
}

fn find_header_after_titles(rows: &[SketchedRow], first: usize, unit: &str) -> HeaderLayout {
    let as_before = HeaderLayout { at: first, count: 1, likely_row: None, notes: Vec::new() };
    let widest = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
    let is_wide = |row: &SketchedRow| row.cells.len() >= 2 && row.cells.len() * 2 > widest;
    if widest < 2 {
        return as_before;
    }
    if is_wide(&rows[first]) && !rows[first].is_label_and_value() {
        return match is_only_other_width(rows, first) {
            true => with_rows_above(rows, first, first + 1, unit, as_before),
            false => as_before,
        };
    }
    let is_header = |row: &&SketchedRow| is_wide(row) && row.has_names_only() && !row.is_label_and_value();
    let Some(found) = rows[first..].iter().find(is_header) else { return as_before };
    let at = rows.iter().position(|row| row.number == found.number).unwrap_or(first);
    let above = &rows[first..at];
    let is_title = |row: &SketchedRow| row.cells.len() == 1 || row.is_label_and_value();
    let are_titles = above.iter().all(is_title);
    // A title begins with a text, and has fewer cells than there are names.
    let may_be_titles = above.iter().all(|row| {
        let begins_with_text = row.cells.first().is_some_and(|cell| cell.class == TextClass::Other);
        begins_with_text && (is_title(row) || row.cells.len() < found.cells.len())
    });
    // In a CSV file, a title is a line without the delimiters of the table.
    let below = rows.get(at + 1);
    let has_other_width = found.width > 0
        && below.is_some_and(|below| below.width == found.width)
        && above.iter().all(|row| row.width != found.width);
    let is_clear =
        found.follows_gap || has_other_width || has_contrast(rows, at) || (above.len() >= 2 && are_titles);
    if !is_clear || !may_be_titles {
        return HeaderLayout { likely_row: Some(found.number), ..as_before };
    }
    with_rows_above(rows, first, at, unit, as_before)
}

/// Whether the first line of a CSV file has another number of fields than all lines below, which have one number, and
/// the second line has names: some programs write a line about the export first.
fn is_only_other_width(rows: &[SketchedRow], first: usize) -> bool {
    let (own, below) = (rows[first].width, &rows[first + 1..]);
    let Some(next) = below.first() else { return false };
    let is_uniform = below.len() >= 2 && below.iter().all(|row| row.width == next.width);
    own > 0 && own != next.width && is_uniform && next.has_names_only()
}

/// The header is at `at`, and the rows from `first` on are above it.
fn with_rows_above(
    rows: &[SketchedRow],
    first: usize,
    at: usize,
    unit: &str,
    layout: HeaderLayout,
) -> HeaderLayout {
    let above = &rows[first..at];
    let message = match above {
        [only] => format!(
            "has a title above the table ({unit} {}: {}), which is left out",
            only.number,
            only.quoted()
        ),
        above => format!(
            "has {} rows above the table ({unit}s {} to {}, first {}), which are left out",
            above.len(),
            above[0].number,
            above[above.len() - 1].number,
            above[0].quoted()
        ),
    };
    let setting = format!("header_row = {}", above[0].number);
    let notes = vec![LayoutNote { kind: LayoutNoteKind::LeftOut, message, setting }];
    HeaderLayout { at, notes, ..layout }
}

/// Whether some column has a text in this row, and numbers or dates in most rows below.
fn has_contrast(rows: &[SketchedRow], at: usize) -> bool {
    let below = &rows[at + 1..rows.len().min(at + 1 + CONTRAST_ROWS_MAX)];
    rows[at]
        .cells
        .iter()
        .filter(|cell| cell.class == TextClass::Other)
        .any(|cell| is_typed(below, cell.column))
}

/// Whether most of the values of a column are numbers or dates.
fn is_typed(rows: &[SketchedRow], column: usize) -> bool {
    let classes = || rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.class);
    let typed = classes().filter(|class| matches!(class, TextClass::Number | TextClass::Date)).count();
    typed > 0 && typed * 2 > classes().count()
}

fn has_two_header_rows(rows: &[SketchedRow], at: usize, is_merged: impl Fn(u32, usize) -> bool) -> bool {
    let (upper, Some(lower)) = (&rows[at], rows.get(at + 1)) else { return false };
    if lower.follows_gap || lower.number != upper.number + 1 || lower.cells.len() < 2 {
        return false;
    }
    let is_unit = |cell: &SketchedCell| {
        let text = cell.text.trim();
        text.starts_with('(') && text.ends_with(')') || text.starts_with('[') && text.ends_with(']')
    };
    if lower.cells.iter().all(|cell| is_unit(cell) && cell.class == TextClass::Other) {
        return has_contrast(rows, at + 1);
    }
    if !lower.has_names_only() {
        return false;
    }
    // A name in the upper row above several names in the lower row.
    let is_group = |cell: &SketchedCell| {
        let next = cell.column + 1;
        lower.get(cell.column).is_some() && lower.get(next).is_some() && upper.get(next).is_none()
    };
    let has_group = upper.cells.iter().any(is_group);
    let has_merge = upper.cells.iter().any(|cell| is_merged(upper.number, cell.column) && is_group(cell));
    let mut names: Vec<&str> = lower.cells.iter().map(|cell| cell.text.trim()).collect();
    names.sort_unstable();
    let has_repeated_names = names.windows(2).any(|pair| pair[0] == pair[1]);
    has_merge || (has_group && (has_contrast(rows, at + 1) || has_repeated_names))
}

/// The names of columns from one header row or several. A name above several columns counts for each of them:
/// `extends_to` tells whether the name in a row and column also stands above another column.
pub(crate) fn join_names(
    header: &[SketchedRow],
    columns: impl Iterator<Item = usize>,
    extends_to: impl Fn(&SketchedRow, usize, usize) -> bool,
) -> Vec<String> {
    let Some((last, upper)) = header.split_last() else { return Vec::new() };
    let name_of = |column: usize| {
        let mut name = String::new();
        for row in upper {
            let own = row.get(column);
            let spread = || row.cells.iter().rev().find(|cell| cell.column < column);
            let cell = match own {
                Some(cell) => Some(cell),
                None if last.get(column).is_some() => {
                    spread().filter(|cell| extends_to(row, cell.column, column))
                }
                None => None,
            };
            push_name(&mut name, cell);
        }
        push_name(&mut name, last.get(column));
        name
    };
    columns.map(name_of).collect()
}

fn push_name(name: &mut String, cell: Option<&SketchedCell>) {
    let Some(text) =
        cell.map(|cell| cell.text.trim()).filter(|text| !text.is_empty() && *text != name.as_str())
    else {
        return;
    };
    if !name.is_empty() {
        name.push(' ');
    }
    name.push_str(text);
}

/// Words for a row of totals, in lower case.
const TOTAL_WORDS: [&str; 24] = [
    "total",
    "totals",
    "grand total",
    "subtotal",
    "sub-total",
    "sub total",
    "sum",
    "summe",
    "gesamt",
    "gesamtsumme",
    "zwischensumme",
    "endsumme",
    "gesamtergebnis",
    "ergebnis",
    "saldo",
    "total général",
    "sous-total",
    "somme",
    "suma",
    "total general",
    "totale",
    "insgesamt",
    "endbetrag",
    "σ",
];

/// Whether a cell may be the label of a row of totals: `Total`, `Summe Januar`, `North Total`.
pub(crate) fn is_total_label(text: &str) -> bool {
    // Most labels are ruled out by their length or first letter.
    let text = text.trim();
    if text.is_empty() || text.len() > 60 {
        return false;
    }
    let lower = text.to_lowercase();
    let label = lower.trim_end_matches(':').trim_end();
    let starts = |word: &&str| {
        label.strip_prefix(*word).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ':']))
    };
    let ends =
        |word: &&str| label.strip_suffix(*word).is_some_and(|rest| rest.is_empty() || rest.ends_with(' '));
    TOTAL_WORDS.iter().any(|word| starts(word) || ends(word))
}

fn is_total_word(text: &str) -> bool {
    let lower = text.trim().to_lowercase();
    TOTAL_WORDS.contains(&lower.trim_end_matches(':').trim_end())
}

/// The rows below the header, as far as they are needed.
pub(crate) trait DataRows {
    fn len(&self) -> usize;
    /// The row, or the line on which it starts. May take as long as reading everything before it.
    fn number(&self, at: usize) -> u32;
    /// Whether a blank row comes before it.
    fn follows_gap(&self, at: usize) -> bool;
    /// Cells that are not blank, by column, ascending.
    fn cells(&self, at: usize) -> Vec<SketchedCell>;
    /// Positions of rows that may be totals: whose first cell is a [total label](is_total_label).
    fn total_candidates(&self) -> Vec<usize>;

    fn row(&self, at: usize) -> SketchedRow {
        SketchedRow {
            number: self.number(at),
            follows_gap: self.follows_gap(at),
            width: 0,
            cells: self.cells(at),
        }
    }
}

/// Decides which rows below the header are not data. `header` are the names of columns.
pub(crate) fn find_left_out(
    rows: &impl DataRows,
    header: &[String],
    declared: &DeclaredLayout,
    unit: &str,
) -> LeftOutRows {
    let mut found = LeftOutRows::default();
    let mut end = rows.len();
    if let Some(text) = &declared.stop_at {
        let begins = |at: &usize| {
            rows.cells(*at).first().is_some_and(|cell| cell.text.trim().starts_with(text.trim()))
        };
        let stop = (0..end).find(begins);
        end = stop.unwrap_or(end);
    }
    if let Some(count) = declared.footer_rows {
        end = end.saturating_sub(count as usize);
    }
    let is_declared = declared.stop_at.is_some() || declared.footer_rows.is_some();
    if !is_declared {
        end = find_second_table(rows, header, unit, &mut found);
        end = find_footer(rows, end, header.len(), unit, &mut found);
        find_totals(rows, end, unit, &mut found);
    }
    found.rows.extend(end..rows.len());
    found.rows.sort_unstable();
    found.rows.dedup();
    found
}

/// Where a second table begins, after a blank row: perhaps a title, then names above columns that hold numbers so far.
fn find_second_table(rows: &impl DataRows, header: &[String], unit: &str, found: &mut LeftOutRows) -> usize {
    let len = rows.len();
    if len > GAPS_ROWS_MAX {
        return len;
    }
    let head: Vec<SketchedRow> = (0..len.min(CONTRAST_ROWS_MAX)).map(|at| rows.row(at)).collect();
    for at in 2..len {
        if !rows.follows_gap(at) {
            continue;
        }
        let row = rows.row(at);
        let is_title = row.cells.len() == 1 && header.len() > 1;
        let names_at = if is_title { at + 1 } else { at };
        if names_at + 1 >= len {
            continue;
        }
        let names = rows.row(names_at);
        let head = &head[..head.len().min(at)];
        let contradicts = |cell: &SketchedCell| cell.class == TextClass::Other && is_typed(head, cell.column);
        if names.cells.len() >= 2 && names.has_names_only() && names.cells.iter().any(contradicts) {
            found.notes.push(LayoutNote {
                kind: LayoutNoteKind::LeftOut,
                message: format!("has a second table from {unit} {}, which is left out", row.number),
                setting: format!("header_row = {}", names.number),
            });
            return at;
        }
    }
    len
}

/// A file with more rows than this is not searched for gaps.
const GAPS_ROWS_MAX: usize = 100_000;

/// Notes below the table: rows with a single text, after a blank row, or in a column of numbers or dates.
fn find_footer(rows: &impl DataRows, end: usize, width: usize, unit: &str, found: &mut LeftOutRows) -> usize {
    const NOTE_WORDS: [&str; 16] = [
        "*",
        "note",
        "hinweis",
        "source:",
        "quelle",
        "generated",
        "stand:",
        "erstellt",
        "exported",
        "page ",
        "seite ",
        "report ",
        "remarque",
        "fuente",
        "nota",
        "end of",
    ];
    if width < 2 {
        return end;
    }
    let head: Vec<SketchedRow> = (0..end.min(CONTRAST_ROWS_MAX)).map(|at| rows.row(at)).collect();
    let mut start = end;
    let mut is_clear = false;
    for at in (end.saturating_sub(FOOTER_ROWS_MAX)..end).rev() {
        let row = rows.row(at);
        let [only] = &row.cells[..] else { break };
        if only.class != TextClass::Other || at == 0 {
            break;
        }
        let lower = only.text.trim().to_lowercase();
        let is_note = NOTE_WORDS.iter().any(|word| lower.starts_with(word));
        // In two columns, it may as well be a row with a missing value.
        let contradicts = width > 2 && is_typed(&head[..head.len().min(at)], only.column);
        start = at;
        is_clear |= row.follows_gap || is_note || contradicts;
        if row.follows_gap {
            break;
        }
    }
    if start == end || !is_clear {
        return end;
    }
    let first = rows.row(start);
    let message = match end - start {
        1 => format!(
            "has a note below the table ({unit} {}: {}), which is left out",
            first.number,
            first.quoted()
        ),
        count => format!(
            "has {count} rows below the table (from {unit} {}: {}), which are left out",
            first.number,
            first.quoted()
        ),
    };
    found.notes.push(LayoutNote {
        kind: LayoutNoteKind::LeftOut,
        message,
        setting: "footer_rows = 0".into(),
    });
    start
}

/// Rows of totals: a label, and a number that is the sum of the rows before it, or a blank where all other rows have a
/// value.
fn find_totals(rows: &impl DataRows, end: usize, unit: &str, found: &mut LeftOutRows) {
    let candidates: Vec<usize> =
        rows.total_candidates().into_iter().filter(|at| *at < end && *at > 0).collect();
    if candidates.is_empty() || candidates.len() * 2 > end || candidates.len() > TOTALS_MAX {
        return;
    }
    let mut sums = ColumnSums::default();
    // Over all ordinary rows: which columns always have a value.
    let mut filled: Vec<usize> = Vec::new();
    let mut ordinary = 0;
    for at in (0..end).filter(|at| !candidates.contains(at)).take(CONTRAST_ROWS_MAX * 10) {
        ordinary += 1;
        for cell in &rows.cells(at) {
            if filled.len() <= cell.column {
                filled.resize(cell.column + 1, 0);
            }
            filled[cell.column] += 1;
        }
    }
    let (mut totals, mut doubts) = (Vec::new(), Vec::new());
    for at in 0..end {
        if candidates.binary_search(&at).is_err() {
            sums.add(&rows.cells(at));
            continue;
        }
        let row = rows.row(at);
        let has_number = row.cells.iter().any(|cell| cell.class == TextClass::Number);
        let has_gap =
            filled.iter().enumerate().any(|(column, count)| *count == ordinary && row.get(column).is_none());
        if has_number && (has_gap || sums.has_sum_in(&row)) {
            sums.end_group();
            totals.push((at, row));
        } else {
            if is_total_word(row.first_text()) {
                doubts.push(row.clone());
            }
            sums.add(&row.cells);
        }
    }
    if let Some((_, first)) = totals.first() {
        let numbers: Vec<u32> = totals.iter().map(|(_, row)| row.number).collect();
        let message = match numbers.as_slice() {
            [only] => format!("has a row of totals ({unit} {only}: {}), which is left out", first.quoted()),
            several => format!(
                "has {} rows of totals ({unit}s {}, first {}), which are left out",
                several.len(),
                name_rows(several),
                first.quoted()
            ),
        };
        let setting = "footer_rows = 0".to_owned();
        found.notes.push(LayoutNote { kind: LayoutNoteKind::LeftOut, message, setting });
        found.read_only_reason = Some(format!(
            "it has totals ({unit} {}) that a write would make wrong; remove them, or say with `footer_rows` or \
             `stop_at` in the manifest where the table ends",
            name_rows(&numbers)
        ));
    }
    for row in doubts {
        let message = format!(
            "has a row that may be a total and is read as data ({unit} {}: {})",
            row.number,
            row.quoted()
        );
        let setting = format!("stop_at = \"{}\"", row.first_text());
        found.notes.push(LayoutNote { kind: LayoutNoteKind::Doubt, message, setting });
    }
    found.rows.extend(totals.into_iter().map(|(at, _)| at));
}

/// A file with more candidates than this has names that look like totals.
const TOTALS_MAX: usize = 1000;

fn name_rows(numbers: &[u32]) -> String {
    let mut text = String::new();
    for (at, number) in numbers.iter().take(ROWS_NAMED_MAX).enumerate() {
        let _ = write!(text, "{}{number}", if at == 0 { "" } else { ", " });
    }
    if numbers.len() > ROWS_NAMED_MAX {
        text.push_str(", …");
    }
    text
}

/// The sums of each column: of all rows, and of those since the last total; with a point and with a comma as the
/// decimal separator. Only evidence, so floats will do.
#[derive(Default)]
struct ColumnSums(Vec<[ColumnSum; 2]>);

#[derive(Default, Clone, Copy)]
struct ColumnSum {
    all: f64,
    group: f64,
    rows: usize,
}

impl ColumnSums {
    fn add(&mut self, cells: &[SketchedCell]) {
        for cell in cells.iter().filter(|cell| cell.class == TextClass::Number) {
            if self.0.len() <= cell.column {
                self.0.resize(cell.column + 1, [ColumnSum::default(); 2]);
            }
            for (sum, value) in self.0[cell.column].iter_mut().zip(readings(&cell.text)) {
                sum.all += value.unwrap_or(0.0);
                sum.group += value.unwrap_or(0.0);
                sum.rows += 1;
            }
        }
    }

    fn end_group(&mut self) {
        self.0.iter_mut().flatten().for_each(|sum| sum.group = 0.0);
    }

    fn has_sum_in(&self, row: &SketchedRow) -> bool {
        let is_close = |a: f64, b: f64| (a - b).abs() < 0.006;
        row.cells.iter().filter(|cell| cell.class == TextClass::Number).any(|cell| {
            let sums = self.0.get(cell.column).copied().unwrap_or_default();
            sums.iter().zip(readings(&cell.text)).any(|(sum, value)| {
                sum.rows > 1
                    && value.is_some_and(|value| is_close(value, sum.all) || is_close(value, sum.group))
            })
        })
    }
}

/// A number with a point and with a comma as its decimal separator.
fn readings(text: &str) -> [Option<f64>; 2] {
    ['.', ','].map(|decimal| {
        let text = text.trim();
        let is_negative = text.starts_with(['-', '(', '−']) || text.ends_with('-');
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

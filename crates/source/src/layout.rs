//! Finds the table among the rows of a sheet or a CSV file: titles and notes above it, names of columns in one row or
//! two, totals and notes below it.
//!
//! A row is left out only where the evidence is clear, and each is named in a [`LayoutNote`] with the setting that
//! reads it after all. Where the evidence is not clear, the row is read, and a note says what is doubtful.

mod column_sums;
mod groups;
mod second_table;
mod sections;
mod totals;

use contract::infer::{TextClass, is_null_name};
use contract::manifest::{DeclaredLayout, is_stop_text};
use contract::source::{LayoutNote, LayoutNoteKind};

use column_sums::readings;
use groups::GroupRow;
pub(crate) use groups::has_name_below;
use second_table::find_second_table;
use sections::find_sections;
use totals::{find_inner_totals, find_last_row_sum, find_statistics, find_totals};
pub(crate) use totals::{is_total_label, is_total_word};

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
    /// Whether the names look like data: then rows that repeat them are data, too.
    pub(crate) is_doubtful: bool,
    pub(crate) notes: Vec<LayoutNote>,
}

/// The rows below the header that are not data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeftOutRows {
    /// Positions, ascending.
    pub(crate) rows: Vec<usize>,
    pub(crate) notes: Vec<LayoutNote>,
    /// Where a second table begins: no row behind it belongs to this one.
    pub(crate) second_table: Option<usize>,
    /// Why a write would make the file wrong.
    pub(crate) read_only_reason: Option<String>,
}

/// How many rows are searched for the header.
pub(crate) const HEAD_ROWS_MAX: usize = 60;
/// How many rows below a row show what its columns hold.
const CONTRAST_ROWS_MAX: usize = 20;
/// How many rows at the end may be notes.
const FOOTER_ROWS_MAX: usize = 20;
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

    /// Whether only the cell above the first column is blank, and all others have numbers or dates that differ: a
    /// pivot table by year, or a table with numbers for names.
    fn has_blank_corner(&self, below: Option<&SketchedRow>) -> bool {
        let Some(below) = below else { return false };
        let (Some(first), Some(first_below)) = (self.cells.first(), below.cells.first()) else {
            return false;
        };
        let mut names: Vec<&str> = self.cells.iter().map(|cell| cell.text.trim()).collect();
        names.sort_unstable();
        let is_name = |cell: &SketchedCell| matches!(cell.class, TextClass::Number | TextClass::Date);
        names.len() > 1
            && names.windows(2).all(|pair| pair[0] != pair[1])
            && self.cells.iter().all(is_name)
            && first_below.class == TextClass::Other
            && first.column == first_below.column + 1
    }

    fn has_years_only(&self) -> bool {
        !self.cells.is_empty() && self.cells.iter().all(SketchedCell::is_year)
    }

    /// `Account:` and its value, twice or more, above a table.
    fn has_labels(&self) -> bool {
        self.cells.iter().filter(|cell| cell.text.trim_end().ends_with(':')).count() > 1
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
        let is_header = || has_name(row) || is_above_names || row.has_blank_corner(rows.get(at + 1));
        row.number > declared.skip_rows.unwrap_or(0) && is_header()
    };
    if declared.header_rows == Some(0) {
        let is_first = |row: &SketchedRow| {
            let is_wanted = match declared.header_row {
                Some(number) => row.number >= number,
                None => row.number > declared.skip_rows.unwrap_or(0),
            };
            is_wanted && !row.cells.is_empty()
        };
        return Some(HeaderLayout { count: 0, ..HeaderLayout::at(rows.iter().position(is_first)?) });
    }
    let (first, _) = rows.iter().enumerate().find(is_first)?;
    let mut layout = match declared.header_row {
        Some(number) => {
            let is_header = |(at, row): (usize, &SketchedRow)| {
                row.number == number && (has_name(row) || row.has_blank_corner(rows.get(at + 1)))
            };
            HeaderLayout::at(rows.iter().enumerate().position(is_header)?)
        }
        None if declared.skip_rows.is_some() => HeaderLayout::at(first),
        None => {
            let found = find_header_after_titles(rows, first, unit);
            match found.at.checked_sub(1).filter(|above| *above >= first && declared.header_rows.is_none()) {
                Some(above) if GroupRow::of(rows, above).is_some_and(|row| row.is_clear(&is_merged)) => {
                    match above == first {
                        true => HeaderLayout::at(first),
                        false => with_rows_above(rows, first, above, unit, HeaderLayout::at(first)),
                    }
                }
                Some(_) | None => found,
            }
        }
    };
    layout.count = match declared.header_rows {
        Some(count) => count as usize,
        None if declared.header_row.is_none()
            && let count @ 2.. = count_header_rows(rows, layout.at, is_merged) =>
        {
            let (first, last) = (rows[layout.at].number, rows[layout.at + count - 1].number);
            let (number, join) = if count == 2 { ("two", "and") } else { ("three", "to") };
            layout.likely_row = None;
            layout.notes.push(LayoutNote {
                kind: LayoutNoteKind::LeftOut,
                message: format!(
                    "has names of columns in {number} rows ({unit}s {first} {join} {last}), which are joined"
                ),
                setting: "header_rows = 1".into(),
            });
            count
        }
        None => 1,
    };
    let is_declared = declared.header_row.is_some() || declared.header_rows.is_some();
    if layout.count == 1 && !is_declared {
        layout.doubt_names(rows, unit);
        layout.doubt_groups(rows, unit);
    }
    Some(layout)
}

impl HeaderLayout {
    /// One row of names, without a doubt.
    pub(crate) fn at(at: usize) -> Self {
        Self { at, count: 1, likely_row: None, is_doubtful: false, notes: Vec::new() }
    }

    /// Notes if the names look like a row of data.
    pub(crate) fn doubt_names(&mut self, rows: &[SketchedRow], unit: &str) {
        if !looks_like_data(rows, self.at) {
            return;
        }
        let row = &rows[self.at];
        self.is_doubtful = true;
        self.notes.push(LayoutNote {
            kind: LayoutNoteKind::DoubtfulHeader,
            message: format!(
                "takes its {} for column names, though it looks like data ({unit} {}: {})",
                if unit == "line" { "first line" } else { "first row" },
                row.number,
                row.quoted()
            ),
            setting: "header_rows = 0".into(),
        });
    }
}

/// Whether the names in a row are numbers or dates above numbers or dates, and are not counted up as years are.
fn looks_like_data(rows: &[SketchedRow], at: usize) -> bool {
    let (row, below) = (&rows[at], &rows[at + 1..rows.len().min(at + 1 + CONTRAST_ROWS_MAX)]);
    let is_like_below = |cell: &&SketchedCell| {
        let classes = || below.iter().filter_map(|row| row.get(cell.column)).map(|cell| cell.class);
        let same = classes().filter(|class| *class == cell.class).count();
        cell.class != TextClass::Other && same > 0 && same * 2 > classes().count()
    };
    let like_below: Vec<&SketchedCell> = row.cells.iter().filter(is_like_below).collect();
    let Some(first) = like_below.first() else { return false };
    if has_contrast(rows, at) || row.has_blank_corner(below.first()) {
        return false;
    }
    if like_below.iter().any(|cell| cell.class == TextClass::Date) {
        return true;
    }
    let values: Vec<f64> =
        like_below.iter().map(|cell| readings(&cell.text)[0].unwrap_or(f64::NAN)).collect();
    let is_ascending = values.windows(2).all(|pair| pair[0] < pair[1]);
    let is_counted = is_ascending || values.windows(2).all(|pair| pair[0] > pair[1]);
    let is_whole = values.iter().all(|value| value.fract() == 0.0);
    let is_first = first.column == row.cells[0].column;
    let is_plausible = if is_first { is_ascending && is_whole && values.len() > 1 } else { is_counted };
    !is_plausible
}

/// Whether the row below two rows of names has texts in just those columns that have no name: pandas writes the names of
/// its index there.
fn has_index_names(rows: &[SketchedRow], at: usize) -> bool {
    let [upper, lower, index, ..] = &rows[at..] else { return false };
    let is_unnamed = |cell: &SketchedCell| {
        cell.class == TextClass::Other && upper.get(cell.column).is_none() && lower.get(cell.column).is_none()
    };
    let is_before = |cell: &SketchedCell| lower.cells.first().is_some_and(|first| cell.column < first.column);
    index.number == lower.number + 1
        && !index.cells.is_empty()
        && index.cells.iter().all(|cell| is_unnamed(cell) && is_before(cell))
}

/// Whether some cell is a text that could be a name.
fn has_name(row: &SketchedRow) -> bool {
    row.cells.iter().any(|cell| cell.class == TextClass::Other)
}

fn find_header_after_titles(rows: &[SketchedRow], first: usize, unit: &str) -> HeaderLayout {
    let as_before = HeaderLayout::at(first);
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
    let has_names = |at: usize| {
        rows[at].has_names_only()
            || rows[at].has_blank_corner(rows.get(at + 1))
            || has_dates_for_names(rows, at)
            || has_mostly_names(rows, at)
    };
    let is_header = |at: &usize| is_wide(&rows[*at]) && has_names(*at) && !rows[*at].is_label_and_value();
    let Some(at) = (first..rows.len()).find(is_header) else { return as_before };
    let at = find_complete_names(rows, at).unwrap_or(at);
    let found = &rows[at];
    let above = &rows[first..at];
    let is_title = |row: &SketchedRow| row.cells.len() == 1 || row.is_label_and_value();
    let are_titles = above.iter().all(is_title);
    // A title begins with a text, and has fewer cells than there are names.
    let may_be_titles = above.iter().all(|row| {
        let begins_with_text = row.cells.first().is_some_and(|cell| cell.class == TextClass::Other);
        begins_with_text && (is_title(row) || row.has_labels() || row.cells.len() < found.cells.len())
    });
    // In a CSV file, a title is a line without the delimiters of the table.
    let below = rows.get(at + 1);
    let has_other_width = found.width > 0
        && below.is_some_and(|below| below.width == found.width)
        && above.iter().all(|row| row.width != found.width);
    let is_clear =
        found.follows_gap || has_other_width || has_contrast(rows, at) || (above.len() >= 2 && are_titles);
    if !is_clear || !may_be_titles {
        // An address is a value.
        let is_likely = !found.cells.iter().any(|cell| cell.text.contains("://"));
        return HeaderLayout { likely_row: is_likely.then_some(found.number), ..as_before };
    }
    with_rows_above(rows, first, at, unit, as_before)
}

/// A row of names in all columns, below rows of texts that are notes: the row at `at` looks like names, but lacks some.
fn find_complete_names(rows: &[SketchedRow], at: usize) -> Option<usize> {
    let is_text = |row: &SketchedRow| row.cells.iter().all(|cell| cell.class == TextClass::Other);
    let texts = rows[at..].iter().take_while(|row| is_text(row)).count();
    // The row directly below may have the second part of the names.
    (at + 2..at + texts).find(|found| {
        let (names, below) = (&rows[*found], &rows[found + 1..rows.len().min(found + 1 + CONTRAST_ROWS_MAX)]);
        let notes = &rows[at..*found];
        let is_named = |cell: &SketchedCell| names.get(cell.column).is_some();
        let is_value = |cell: &SketchedCell| {
            below.iter().filter_map(|row| row.get(cell.column)).any(|other| other.text == cell.text)
        };
        let typed = names.cells.iter().filter(|cell| is_typed(below, cell.column)).count();
        notes.iter().all(|row| row.cells.len() < names.cells.len() && row.cells.iter().all(is_named))
            && typed >= 2
            && below.iter().flat_map(|row| &row.cells).all(is_named)
            && !names.cells.iter().any(is_value)
            && count_header_rows(rows, at, |_, _| false) == 1
    })
}

/// Whether a row has names, and a few numbers that belong to something beside the table.
fn has_mostly_names(rows: &[SketchedRow], at: usize) -> bool {
    const TYPED_COLUMNS_MIN: usize = 3;
    let below = &rows[at + 1..rows.len().min(at + 1 + CONTRAST_ROWS_MAX)];
    let names =
        || rows[at].cells.iter().filter(|cell| cell.class == TextClass::Other && is_label(&cell.text));
    names().count() * 5 >= rows[at].cells.len() * 4
        && names().filter(|cell| is_typed(below, cell.column)).count() >= TYPED_COLUMNS_MIN
}

/// Whether a row has a text first, and then dates that differ, above numbers: a table with a column for each day.
fn has_dates_for_names(rows: &[SketchedRow], at: usize) -> bool {
    let below = &rows[at + 1..rows.len().min(at + 1 + CONTRAST_ROWS_MAX)];
    let Some((first, dates)) = rows[at].cells.split_first() else { return false };
    let is_name = |cell: &SketchedCell| {
        let mut classes =
            below.iter().filter_map(|row| row.get(cell.column)).map(|cell| cell.class).peekable();
        cell.class == TextClass::Date
            && classes.peek().is_some()
            && classes.clone().filter(|class| *class == TextClass::Number).count() * 2 > classes.count()
    };
    let mut texts: Vec<&str> = dates.iter().map(|cell| cell.text.trim()).collect();
    texts.sort_unstable();
    first.class == TextClass::Other
        && dates.len() > 1
        && dates.iter().all(is_name)
        && texts.windows(2).all(|pair| pair[0] != pair[1])
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
pub(crate) fn is_typed(rows: &[SketchedRow], column: usize) -> bool {
    let classes = || rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.class);
    let typed = classes().filter(|class| matches!(class, TextClass::Number | TextClass::Date)).count();
    typed > 0 && typed * 2 > classes().count()
}

fn count_header_rows(rows: &[SketchedRow], at: usize, is_merged: impl Fn(u32, usize) -> bool) -> usize {
    if has_two_header_rows(rows, at, is_merged) {
        return if has_index_names(rows, at) { 3 } else { 2 };
    }
    let [_, second, third, ..] = &rows[at..] else { return 1 };
    let is_next = |row: &SketchedRow| !row.follows_gap && row.has_names_only();
    // Surveys have short names, questions and ids.
    let has_three = is_next(second)
        && is_next(third)
        && [at + 1, at + 2].iter().all(|row| contradicts_all_below(rows, *row, at + 3));
    if has_three { 3 } else { 1 }
}

fn has_two_header_rows(rows: &[SketchedRow], at: usize, is_merged: impl Fn(u32, usize) -> bool) -> bool {
    let (upper, Some(lower)) = (&rows[at], rows.get(at + 1)) else { return false };
    // A record of a CSV file may take several lines.
    let is_next = lower.width > 0 || lower.number == upper.number + 1;
    if lower.follows_gap || !is_next || lower.cells.len() < 2 {
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
    if contradicts_all_below(rows, at + 1, at + 2) {
        return true;
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

/// Whether a row has a text in each column that has only numbers or dates below, in two columns or more, and nothing that
/// stands for a value: units, limits, or the second part of the names.
fn contradicts_all_below(rows: &[SketchedRow], at: usize, rows_from: usize) -> bool {
    const ROWS_MIN: usize = 2;
    const COLUMNS_MIN: usize = 2;
    let (row, below) = (&rows[at], &rows[rows_from.min(rows.len())..]);
    if below.len() < ROWS_MIN {
        return false;
    }
    let columns = below.iter().flat_map(|row| &row.cells).map(|cell| cell.column).max().unwrap_or(0);
    let mut count = 0;
    for column in 0..=columns {
        let mut cells = below.iter().filter_map(|row| row.get(column));
        let is_typed = below.iter().any(|row| row.get(column).is_some())
            && cells.all(|cell| matches!(cell.class, TextClass::Number | TextClass::Date));
        match row.get(column) {
            _ if !is_typed => {}
            Some(cell) if cell.class == TextClass::Other && is_label(&cell.text) => count += 1,
            Some(_) | None => return false,
        }
    }
    count >= COLUMNS_MIN
}

/// Whether a text is more than a stand-in for a value: `n/a`, `-`, `?`.
fn is_label(text: &str) -> bool {
    let text = text.trim();
    text.chars().any(char::is_alphabetic) && !is_null_name(text)
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
        for (at, row) in upper.iter().enumerate() {
            let own = row.get(column);
            let spread = || row.cells.iter().rev().find(|cell| cell.column < column);
            let cell = match own {
                Some(cell) => Some(cell),
                None if header[at + 1..].iter().any(|below| below.get(column).is_some()) => {
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
    // Qualtrics writes an id as JSON below each name.
    let is_id = |text: &str| text.starts_with("{\"") && text.ends_with('}');
    // `StartDate` above `Start Date` is one name.
    let letters = |text: &str| -> String { text.split_whitespace().collect::<String>().to_lowercase() };
    let Some(text) = cell
        .map(|cell| cell.text.trim())
        .filter(|text| !text.is_empty() && !is_id(text) && letters(text) != letters(name))
    else {
        return;
    };
    if !name.is_empty() {
        name.push(' ');
    }
    name.push_str(text);
}

/// The rows below the header, as far as they are needed.
pub(crate) trait DataRows {
    fn len(&self) -> usize;
    /// About how many rows there are besides, if these are the start and the end of a large file.
    fn unseen_len(&self) -> usize {
        0
    }
    /// The row, or the line on which it starts. May take as long as reading everything before it.
    fn number(&self, at: usize) -> u32;
    /// Whether a blank row comes before it.
    fn follows_gap(&self, at: usize) -> bool;
    /// Cells that are not blank, by column, ascending.
    fn cells(&self, at: usize) -> Vec<SketchedCell>;
    /// Positions of rows that may be totals: whose first cell is a [total label](is_total_label).
    fn total_candidates(&self) -> Vec<usize>;
    /// Positions and columns of cells behind the first ones that are a [word for a total](is_total_word).
    fn inner_totals(&self) -> Vec<(usize, usize)>;
    /// Whether the first cell is merged with those to its right.
    fn is_merged_across(&self, at: usize) -> bool;

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
    let is_declared = declared.stop_at.is_some() || declared.footer_rows.is_some();
    let mut end = declared_end(rows, declared);
    if !is_declared {
        end = find_second_table(rows, header, unit, &mut found);
        end = find_footer(rows, end, header.len(), unit, &mut found);
    }
    // Whoever says where the table ends has not said that the headings and subtotals above are data.
    let keeps_all = declared.footer_rows == Some(0);
    if !keeps_all {
        find_sections(rows, end, header, unit, &mut found);
    }
    let sections = found.rows.len();
    if !is_declared {
        end = find_statistics(rows, end, unit, &mut found);
    }
    if !keeps_all {
        find_totals(rows, end, unit, &mut found);
        find_inner_totals(rows, end, header, unit, &mut found);
    }
    if !is_declared && found.rows.len() == sections {
        find_last_row_sum(rows, end, unit, &mut found);
    }
    found.notes.extend(find_gaps(rows, end, header, unit));
    found.rows.extend(end..rows.len());
    found.rows.sort_unstable();
    found.rows.dedup();
    found
}

/// Where the table ends, as its author says.
fn declared_end(rows: &impl DataRows, declared: &DeclaredLayout) -> usize {
    let mut end = rows.len();
    if let Some(text) = &declared.stop_at {
        let is_stop = |at: &usize| rows.cells(*at).first().is_some_and(|cell| is_stop_text(text, &cell.text));
        end = (0..end).find(is_stop).unwrap_or(end);
    }
    end.saturating_sub(declared.footer_rows.unwrap_or(0) as usize)
}

/// A first column with few values, each of which may count for the rows below it: a report that names each group once.
fn find_gaps(rows: &impl DataRows, end: usize, header: &[String], unit: &str) -> Option<LayoutNote> {
    const ROWS_MAX: usize = 500;
    let name = header.first().filter(|name| !name.trim().is_empty() && header.len() > 2)?;
    let (mut values, mut blanks, mut second) = (Vec::<String>::new(), 0, None);
    for at in 0..end.min(ROWS_MAX) {
        let cells = rows.cells(at);
        match cells.first() {
            Some(cell) if cell.column == 0 => {
                // A value that occurs twice is not the name of a group of rows.
                if cell.class != TextClass::Other || values.contains(&cell.text) {
                    return None;
                }
                values.push(cell.text.clone());
                second = second.or((at > 0).then_some(at));
            }
            // Every other column has a value, so it is not the rest of a row above, nor a note.
            Some(_) if cells.len() + 1 >= header.len() && at > 0 => blanks += 1,
            Some(_) | None => return None,
        }
    }
    let is_grouped = values.len() >= 2 && blanks >= values.len();
    let second = second.filter(|_| is_grouped)?;
    Some(LayoutNote {
        kind: LayoutNoteKind::Gaps,
        message: format!(
            "has a value of `{name}` only in some rows (the second in {unit} {})",
            rows.number(second)
        ),
        setting: format!("{} = {{ fill_down = true }}", contract::toml_key(name)),
    })
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
        let [only, others @ ..] = &row.cells[..] else { break };
        if row.cells.iter().any(|cell| cell.class != TextClass::Other) || at == 0 {
            break;
        }
        // In two columns, it may as well be a row with a missing value.
        let head = &head[..head.len().min(at)];
        let contradicts = width > 2 && row.cells.iter().any(|cell| is_typed(head, cell.column));
        // Several texts may be a row, unless they are where it would have numbers and not where it begins.
        let is_row = only.column == 0 || !contradicts || row.cells.len() * 2 > width;
        if !others.is_empty() && is_row {
            break;
        }
        let lower = only.text.trim().to_lowercase();
        let is_note = NOTE_WORDS.iter().any(|word| lower.starts_with(word));
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

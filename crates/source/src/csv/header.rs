//! Finds the names of columns in a CSV file, and where its rows start.

use contract::infer::TextClass;
use contract::manifest::DeclaredLayout;
use contract::source::{HeaderRows, LayoutNote};

use super::COLUMNS_MAX;
use super::error::CsvError;
use super::location::{TextLocation, line_at};
use super::splitter::{FieldSplitter, Terminator, skip_blank_lines};
use crate::layout::{self, HEAD_ROWS_MAX, HeaderLayout, SketchedCell, SketchedRow};

/// The names of columns, and where the rows start.
pub(super) struct Header {
    pub(super) names: Vec<String>,
    /// The byte at which the last row with names starts.
    pub(super) last_row_start: usize,
    pub(super) rows_start: usize,
    pub(super) rows: HeaderRows,
    pub(super) likely_row: Option<u32>,
    /// Whether the names look like data.
    pub(super) is_doubtful: bool,
    /// Whether the file has no name for its first column, not even a blank one.
    pub(super) lacks_first_name: bool,
    pub(super) notes: Vec<LayoutNote>,
}

/// One record of the file, for finding the table.
pub(super) struct SketchedRecord {
    start: usize,
    next: usize,
    pub(super) row: SketchedRow,
}

/// Reads the record that starts at `at`.
pub(super) fn sketch_record(
    text: &str,
    at: usize,
    line: usize,
    follows_gap: bool,
    splitter: &FieldSplitter,
) -> Result<SketchedRecord, CsvError> {
    let bytes = text.as_bytes();
    let (start, mut at) = (at, at);
    let mut cells = Vec::new();
    let mut width = 0;
    loop {
        let field = splitter.field_at(bytes, at);
        let value = field.text(text);
        if !value.trim().is_empty() && width < COLUMNS_MAX {
            let class = TextClass::of(&value);
            cells.push(SketchedCell { column: width, text: value.into_owned(), class });
        }
        width += 1;
        match field.terminator {
            Terminator::Delimiter => at = field.next,
            Terminator::RecordEnd => {
                let number = u32::try_from(line).unwrap_or(u32::MAX);
                let row = SketchedRow { number, follows_gap, width, cells };
                return Ok(SketchedRecord { start, next: field.next, row });
            }
            Terminator::UnclosedQuote => {
                return Err(CsvError::UnclosedQuote { location: TextLocation::new(text, at..field.next) });
            }
        }
    }
}

/// The byte after so many lines.
fn after_lines(text: &str, start: usize, lines: u32) -> usize {
    let mut at = start;
    for _ in 0..lines {
        let rest = &text.as_bytes()[at..];
        let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else { return text.len() };
        at += end + if rest[end..].starts_with(b"\r\n") { 2 } else { 1 };
    }
    at
}

/// Finds the rows with the names of columns, where the manifest says or the evidence is clear.
pub(super) fn find_header(
    text: &str,
    start: usize,
    splitter: &FieldSplitter,
    declared: &DeclaredLayout,
) -> Result<Header, CsvError> {
    let bytes = text.as_bytes();
    let skipped = declared.header_row.map(|row| row.saturating_sub(1)).or(declared.skip_rows);
    // Lines are counted from the start of the file.
    let start = skipped.map_or(start, |lines| after_lines(text, 0, lines).max(start));
    if text[start..].trim().is_empty() {
        return Err(match skipped {
            Some(lines) if lines > 0 => CsvError::NoHeader { line: lines as usize + 1 },
            Some(_) | None => CsvError::Empty,
        });
    }
    let mut records: Vec<SketchedRecord> = Vec::new();
    let mut at = start;
    let mut line = line_at(bytes, start);
    while records.len() < HEAD_ROWS_MAX {
        let from = skip_blank_lines(bytes, at);
        if from >= bytes.len() {
            break;
        }
        line += count_lines(&bytes[at..from]);
        let is_gap = !records.is_empty() && from > at;
        let record = match sketch_record(text, from, line, is_gap, splitter) {
            Ok(record) => record,
            // A quote that is not closed further below is reported when the rows are read.
            Err(error) if records.is_empty() => return Err(error),
            Err(_) => break,
        };
        line += count_lines(&bytes[from..record.next]);
        at = record.next;
        records.push(record);
    }
    let follows_blank = |at: usize| at > 0 && records[at - 1].row.cells.is_empty();
    let gaps: Vec<bool> =
        (0..records.len()).map(|at| records[at].row.follows_gap || follows_blank(at)).collect();
    let mut sketches = Vec::with_capacity(records.len());
    let mut positions = Vec::with_capacity(records.len());
    // A declared header may be blank, or be all that there is.
    let is_header = |at: usize| at == 0 && (declared.header_row.is_some() || records.len() == 1);
    let shown = |(at, record): &(usize, &SketchedRecord)| !record.row.cells.is_empty() || is_header(*at);
    for (at, record) in records.iter().enumerate().filter(shown) {
        sketches.push(SketchedRow { follows_gap: gaps[at], ..record.row.clone() });
        positions.push(at);
    }
    let wanted = match skipped {
        // The place is declared.
        Some(_) => DeclaredLayout {
            skip_rows: Some(0),
            header_rows: declared.header_rows.or(declared.header_row.map(|_| 1)),
            ..DeclaredLayout::default()
        },
        None => declared.clone(),
    };
    let layout = layout::find_header(&sketches, &wanted, "line", |_, _| false);
    // A header of numbers is a header, too.
    let layout = layout.filter(|layout| skipped.is_none() || layout.at == 0).unwrap_or_else(|| {
        let mut layout = HeaderLayout::at(0);
        if declared.header_row.is_none() && declared.header_rows.is_none() {
            layout.doubt_names(&sketches, "line");
        }
        layout
    });
    if layout.count == 0 {
        let first = &records[positions[layout.at]];
        let width = records[positions[layout.at]..].iter().map(|record| record.row.width).max().unwrap_or(1);
        if width > COLUMNS_MAX {
            return Err(CsvError::TooManyColumns(width));
        }
        return Ok(Header {
            names: (1..=width).map(|number| format!("column_{number}")).collect(),
            last_row_start: first.start,
            rows_start: first.start,
            rows: HeaderRows { first: first.row.number, count: 0 },
            likely_row: None,
            is_doubtful: false,
            lacks_first_name: false,
            notes: layout.notes,
        });
    }
    let count = layout.count.min(positions.len() - layout.at).max(1);
    let (first, last) = (positions[layout.at], positions[layout.at + count - 1]);
    let width = records[last].row.width.max(records[first].row.width);
    if width > COLUMNS_MAX {
        return Err(CsvError::TooManyColumns(count_fields(bytes, records[last].start, splitter)));
    }
    let mut names = match count {
        // The names are exactly what the file says.
        1 => field_texts(text, records[last].start, splitter),
        _ => {
            let header = &sketches[layout.at..layout.at + count];
            layout::join_names(header, 0..width, |row, from, _| layout::has_name_below(header, row, from))
        }
    };
    let lacks_first_name = count == 1 && lacks_first_name(names.len(), &records[last + 1..]);
    if lacks_first_name {
        names.insert(0, String::new());
    }
    Ok(Header {
        names,
        lacks_first_name,
        last_row_start: records[last].start,
        rows_start: skip_blank_lines(bytes, records[last].next),
        rows: HeaderRows { first: records[first].row.number, count: count as u32 },
        likely_row: layout.likely_row,
        is_doubtful: layout.is_doubtful,
        notes: layout.notes,
    })
}

/// Whether all records have one field more than there are names, and it is not a delimiter at the end: R writes names of
/// rows in a first column without a name.
fn lacks_first_name(names: usize, below: &[SketchedRecord]) -> bool {
    let rows = || below.iter().map(|record| &record.row).filter(|row| !row.cells.is_empty());
    rows().count() >= 2
        && names < COLUMNS_MAX
        && rows().all(|row| row.width == names + 1 && row.get(0).is_some())
        && rows().any(|row| row.get(names).is_some())
}

fn count_lines(bytes: &[u8]) -> usize {
    line_at(bytes, bytes.len()) - 1
}

fn field_texts(text: &str, mut at: usize, splitter: &FieldSplitter) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        let field = splitter.field_at(text.as_bytes(), at);
        texts.push(field.text(text).into_owned());
        if field.terminator != Terminator::Delimiter {
            return texts;
        }
        at = field.next;
    }
}

fn count_fields(bytes: &[u8], mut at: usize, splitter: &FieldSplitter) -> usize {
    let mut fields = 1;
    loop {
        let field = splitter.field_at(bytes, at);
        if field.terminator != Terminator::Delimiter {
            return fields;
        }
        fields += 1;
        at = field.next;
    }
}

//! Explains a record with another number of fields than the header.

use super::error::{CsvError, RaggedCause};
use super::location::{TextLocation, line_at};
use super::splitter::{FieldSplitter, Terminator, skip_blank_lines};

/// Points at the first surplus field, or after the last field if fields are missing.
pub(super) fn ragged_row_error(
    text: &str,
    from: usize,
    splitter: &FieldSplitter,
    fields: usize,
    header: usize,
) -> CsvError {
    let bytes = text.as_bytes();
    let mut at = from;
    for _ in 0..header.min(fields - 1) {
        at = splitter.field_at(bytes, at).next;
    }
    let last = splitter.field_at(bytes, at).raw_span(at);
    let span = if fields > header { last } else { last.end..last.end };
    let first = text.trim_start_matches(['\u{feff}', '\n', '\r']);
    let cause = match () {
        () if bytes[from] == b'#' => Some(RaggedCause::IsComment),
        () if first.starts_with('#') => Some(RaggedCause::FirstIsComment),
        () => lines_around_table(text, splitter),
    };
    CsvError::Ragged {
        location: TextLocation::new(text, span),
        fields,
        header,
        delimiter: splitter.delimiter,
        cause,
    }
}

/// Finds the table in a file with other lines before or after it: the longest run of records with the same number of
/// fields.
fn lines_around_table(text: &str, splitter: &FieldSplitter) -> Option<RaggedCause> {
    const RECORDS_MAX: usize = 10_000;
    const TABLE_RECORDS_MIN: usize = 3;
    let bytes = text.as_bytes();
    // Where each record begins, and its number of fields.
    let mut records: Vec<(usize, usize)> = Vec::new();
    let mut at = skip_blank_lines(bytes, if text.starts_with('\u{feff}') { 3 } else { 0 });
    while at < bytes.len() && records.len() < RECORDS_MAX {
        let from = at;
        let mut fields = 1;
        loop {
            let field = splitter.field_at(bytes, at);
            at = field.next;
            match field.terminator {
                Terminator::Delimiter => fields += 1,
                Terminator::RecordEnd => break,
                Terminator::UnclosedQuote => return None,
            }
        }
        records.push((from, fields));
        at = skip_blank_lines(bytes, at);
    }
    let runs = records.chunk_by(|(_, a), (_, b)| a == b).filter(|run| run[0].1 > 1);
    let table = runs.max_by_key(|run| run.len()).filter(|run| run.len() >= TABLE_RECORDS_MIN)?;
    let line = |at: usize| line_at(bytes, at);
    let start = records.iter().position(|record| *record == table[0])?;
    let after = &records[start + table.len()..];
    // One bad line in a table is not where it begins.
    let is_other = |record: &(usize, usize)| record.1 != table[0].1;
    if start > 0 && table.len() * 2 > records.len() && records[..start].iter().all(is_other) {
        return Some(RaggedCause::LinesBefore { first: line(table[0].0) });
    }
    let is_footer = start == 0 && after.len() < table.len() && after.iter().all(|(_, fields)| *fields == 1);
    is_footer.then(|| RaggedCause::LinesAfter { last: line(table[table.len() - 1].0) })
}

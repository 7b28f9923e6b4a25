//! Parses a CSV file: its text, where each row starts, and the profile of each column.

use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use contract::DataType;
use contract::cursor::KEY_BYTES_MAX;
use contract::infer::TypeInference;
use contract::source::SourceError;

use super::decode::{DecodedText, decode};
use super::encode::TextEncoding;
use super::error::{CsvError, RaggedCause};
use super::formula_guard::LeadingSigns;
use super::index::CsvKeyIndex;
use super::location::{TextLocation, line_at};
use super::sniff::{self, FileExtension};
use super::splitter::{FieldSplitter, Terminator, skip_blank_lines};
use super::table::{CsvColumnProfile, CsvTable};
use super::{COLUMNS_MAX, FILE_BYTES_MAX, Options};
use crate::key_index::{DuplicateKey, KeyCandidate, find_key_column};
use crate::watch::{FileError, FileLoader};

/// Loads files of delimiter-separated text.
pub(super) struct CsvLoader {
    /// The file name's extension may tell the delimiter.
    extension: FileExtension,
    pub(super) options: Options,
}

impl CsvLoader {
    pub(super) fn new(path: &Path, options: Options) -> Self {
        Self { extension: FileExtension::of(path), options }
    }
}

impl FileLoader for CsvLoader {
    type Snapshot = CsvSnapshot;
    type Error = CsvError;

    fn file_bytes_max(&self) -> u64 {
        FILE_BYTES_MAX
    }

    fn load(&self, bytes: Vec<u8>) -> Result<CsvSnapshot, CsvError> {
        let decoded = decode(bytes, self.options.encoding)?;
        let bytes = decoded.text.len() as u64;
        if bytes > FILE_BYTES_MAX {
            return Err(FileError::TooLarge { bytes, bytes_max: FILE_BYTES_MAX }.into());
        }
        parse(decoded, self.extension, &self.options).map(CsvSnapshot::new)
    }

    fn is_snapshot_of(&self, snapshot: &CsvSnapshot, bytes: &[u8]) -> bool {
        let CsvTable { text, encoding, .. } = &*snapshot.table;
        match encoding {
            TextEncoding::Utf8 => text.as_bytes() == bytes,
            TextEncoding::Utf16Le { .. } | TextEncoding::Utf16Be { .. } | TextEncoding::Legacy(_) => {
                let now = decode(bytes.to_vec(), self.options.encoding);
                now.is_ok_and(|now| now.encoding == *encoding && now.text == *text)
            }
        }
    }

    fn source_error(&self, error: &CsvError, file: &str, path: &Path) -> SourceError {
        error.to_source_error(file, path)
    }
}

/// A table and the key indexes built for it so far.
pub(super) struct CsvSnapshot {
    pub(super) table: Arc<CsvTable>,
    indexes: Mutex<Vec<Arc<CsvKeyIndex>>>,
    detected_key: OnceLock<Vec<usize>>,
    content_hash: OnceLock<i64>,
}

impl CsvSnapshot {
    fn new(table: CsvTable) -> Self {
        let table = Arc::new(table);
        Self {
            table,
            indexes: Mutex::default(),
            detected_key: OnceLock::new(),
            content_hash: OnceLock::new(),
        }
    }

    /// The first column whose values are unique, if there is one.
    pub(super) fn key_columns(&self) -> Vec<usize> {
        self.detected_key.get_or_init(|| self.detect_key_column().into_iter().collect()).clone()
    }

    fn detect_key_column(&self) -> Option<usize> {
        let table = &self.table;
        // Rows that may hold a value too long for a key. Most files have none.
        let ends = table.row_starts.iter().skip(1).map(|next| *next as usize).chain([table.text.len()]);
        let lengths = table.row_starts.iter().zip(ends).map(|(row, end)| end - *row as usize);
        let long: Vec<u32> =
            (0..).zip(lengths).filter(|(_, bytes)| *bytes > KEY_BYTES_MAX).map(|(row, _)| row).collect();
        let is_candidate = |profile: &CsvColumnProfile| {
            KeyCandidate::is_key_type(profile.data_type) && !profile.has_empty && !profile.has_null
        };
        let columns = table.header.iter().zip(&table.profiles).enumerate();
        let candidates = columns
            .filter(|(_, (_, profile))| is_candidate(profile))
            .map(|(position, (name, profile))| KeyCandidate { position, name, data_type: profile.data_type });
        let is_long =
            |position: usize| long.iter().any(|row| table.field_text(*row, position).len() > KEY_BYTES_MAX);
        find_key_column(candidates, table.len(), |position, rows| match rows == table.len() {
            true => !is_long(position) && self.index(&[position]).is_ok(),
            false => !is_long(position) && CsvKeyIndex::build(table, &[position], rows).is_ok(),
        })
    }

    /// The index over these columns; built once.
    pub(super) fn index(&self, columns: &[usize]) -> Result<Arc<CsvKeyIndex>, DuplicateKey> {
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = indexes.iter().find(|index| index.columns == columns) {
            return Ok(index.clone());
        }
        let index = Arc::new(CsvKeyIndex::build(&self.table, columns, self.table.len())?);
        indexes.push(index.clone());
        Ok(index)
    }

    /// A 64-bit hash of the contents.
    pub(super) fn content_hash(&self) -> i64 {
        *self.content_hash.get_or_init(|| {
            // A fixed seed: the same contents have the same hash after a restart, so cursors stay valid.
            let mut hasher = foldhash::quality::FixedState::default().build_hasher();
            hasher.write(self.table.text.as_bytes());
            hasher.finish().cast_signed()
        })
    }
}

fn parse(decoded: DecodedText, extension: FileExtension, options: &Options) -> Result<CsvTable, CsvError> {
    let DecodedText { text, mut start, encoding, note } = decoded;
    let declared = sniff::declared_delimiter(&text.as_bytes()[start..]);
    if let Some((_, length)) = declared {
        start += length;
    }
    let delimiter = match (options.delimiter, declared) {
        (Some(delimiter), _) if !sniff::is_valid_delimiter(delimiter) => {
            return Err(CsvError::InvalidDelimiter(delimiter));
        }
        (Some(delimiter), _) | (None, Some((delimiter, _))) => delimiter,
        (None, None) => sniff::sniff(&text.as_bytes()[start..], extension),
    };
    let mut notes: Vec<String> = note.into_iter().map(str::to_owned).collect();
    match delimiter {
        b',' => {}
        b'\t' => notes.push("fields are separated by tabs".to_owned()),
        other => notes.push(format!("fields are separated by `{}`", other.escape_ascii())),
    }
    let splitter = FieldSplitter::new(delimiter);
    let header_at = skip_blank_lines(text.as_bytes(), start);
    let (header, at) = parse_header(&text, start, &splitter)?;
    if let [only] = &header[..]
        && only.starts_with('#')
    {
        notes.push(
            "the first line begins with `#` and names the only column; if it is a comment, remove it"
                .to_owned(),
        );
    }
    let (rows, columns) = parse_rows(&text, at, &splitter, header.len(), options.null_text.as_deref())?;
    Ok(CsvTable {
        text,
        encoding,
        splitter,
        row_starts: rows,
        header_start: header_at,
        header,
        profiles: columns,
        notes,
    })
}

/// The column names, and where the rows start.
fn parse_header(
    text: &str,
    start: usize,
    splitter: &FieldSplitter,
) -> Result<(Vec<String>, usize), CsvError> {
    let bytes = text.as_bytes();
    let mut at = skip_blank_lines(bytes, start);
    if text[at..].trim().is_empty() {
        return Err(CsvError::Empty);
    }
    let mut names = Vec::new();
    loop {
        let field = splitter.field_at(bytes, at);
        if names.len() < COLUMNS_MAX {
            names.push(field.text(text).into_owned());
        } else if field.terminator == Terminator::RecordEnd {
            return Err(CsvError::TooManyColumns(count_fields(
                bytes,
                skip_blank_lines(bytes, start),
                splitter,
            )));
        }
        match field.terminator {
            Terminator::Delimiter => at = field.next,
            Terminator::RecordEnd => return Ok((names, skip_blank_lines(bytes, field.next))),
            Terminator::UnclosedQuote => {
                return Err(CsvError::UnclosedQuote { location: TextLocation::new(text, at..field.next) });
            }
        }
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

/// A column's profile while its fields are read.
#[derive(Clone, Default)]
struct ColumnProfiler {
    inference: TypeInference,
    has_empty: bool,
    has_null: bool,
    leading_signs: LeadingSigns,
}

fn parse_rows(
    text: &str,
    mut at: usize,
    splitter: &FieldSplitter,
    header: usize,
    null: Option<&str>,
) -> Result<(Vec<u32>, Vec<CsvColumnProfile>), CsvError> {
    let bytes = text.as_bytes();
    let mut rows = Vec::new();
    let mut columns = vec![ColumnProfiler::default(); header];
    let mut scratch = String::new();
    while at < bytes.len() {
        let from = at;
        rows.push(u32::try_from(from).expect("files above 32 bits are refused"));
        let mut fields = 0;
        loop {
            let field = splitter.field_at(bytes, at);
            if field.terminator == Terminator::UnclosedQuote {
                return Err(CsvError::UnclosedQuote { location: TextLocation::new(text, at..field.next) });
            }
            if let Some(column) = columns.get_mut(fields) {
                match field.as_plain(text) {
                    Some(text) => column.observe(rows.len() as u64 - 1, text, null),
                    None => {
                        scratch.clear();
                        field.unescape(text, &mut scratch);
                        column.observe(rows.len() as u64 - 1, &scratch, null);
                    }
                }
            }
            fields += 1;
            at = field.next;
            if field.terminator == Terminator::RecordEnd {
                break;
            }
        }
        if fields != header {
            return Err(ragged_row_error(text, from, splitter, fields, header));
        }
        at = skip_blank_lines(bytes, at);
    }
    rows.shrink_to_fit();
    let locate = |row: u64| format!("line {}", line_at(bytes, rows[row as usize] as usize));
    let columns = columns.into_iter().map(|column| column.finish(locate)).collect();
    Ok((rows, columns))
}

/// Points at the first surplus field, or after the last field if fields are missing.
fn ragged_row_error(
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

impl ColumnProfiler {
    #[inline]
    fn observe(&mut self, row: u64, text: &str, null: Option<&str>) {
        if null.is_some_and(|null| null == text) {
            self.has_null = true;
        } else if text.is_empty() {
            self.has_empty = true;
        } else {
            self.leading_signs.observe(text);
            self.inference.observe(row, text);
        }
    }

    /// `locate` names the line of a row.
    fn finish(self, locate: impl Fn(u64) -> String) -> CsvColumnProfile {
        let kind = self.inference.data_type();
        let near_miss = if kind == DataType::Text { self.inference.near_miss(0, 0, locate) } else { None };
        let mut values = self.inference.distinct_values();
        if self.has_empty && !values.is_empty() {
            values.push(String::new());
        }
        CsvColumnProfile {
            data_type: kind,
            has_empty: self.has_empty,
            has_null: self.has_null,
            distinct_values: values,
            leading_signs: self.leading_signs,
            near_miss,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{CsvLoader, FileLoader, Options};

    /// Checks that the snapshot of `bytes` is recognised as theirs, and as the snapshot of none of `others`.
    fn check(bytes: &[u8], others: &[&[u8]]) {
        let csv = CsvLoader::new(Path::new("people.csv"), Options::default());
        let snapshot = csv.load(bytes.to_vec()).unwrap_or_else(|error| panic!("{error:?}"));
        assert!(csv.is_snapshot_of(&snapshot, bytes), "{}", bytes.escape_ascii());
        for other in others {
            assert!(
                !csv.is_snapshot_of(&snapshot, other),
                "{} {}",
                bytes.escape_ascii(),
                other.escape_ascii()
            );
        }
    }

    #[test]
    fn a_touched_file_is_recognised_in_every_encoding() {
        let utf8 = "a,b\n1,é\n".as_bytes();
        let windows: &[u8] = b"a,b\n1,\xe9\n";
        let utf16: Vec<u8> = "\u{feff}a,b\n1,é\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let swapped: Vec<u8> = "\u{feff}a,b\n1,é\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
        let all = [utf8, windows, &utf16, &swapped, &utf16[2..]];
        for bytes in all {
            let others: Vec<&[u8]> = all.into_iter().filter(|other| *other != bytes).collect();
            check(bytes, &others);
            check(bytes, &[&bytes[..bytes.len() - 2], b"", b"PK\x03\x04"]);
        }
    }
}

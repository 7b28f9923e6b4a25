//! Parses a CSV file: its text, where each row starts, and the profile of each column.

mod doubts;
mod footer;

use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use contract::DataType;
use contract::cursor::KEY_BYTES_MAX;
use contract::infer::{TextClass, TypeInference};
use contract::manifest::{COMPLETED_ROWS_REASON, DeclaredLayout};
use contract::source::{LayoutNote, LayoutNoteKind, SourceError, TableOptions};

use super::complete;
use super::decode::{DecodedText, decode};
use super::encode::TextEncoding;
use super::error::CsvError;
use super::formats::{ColumnScan, InferredFormat, OpenColumn, infer_formats};
use super::formula_guard::LeadingSigns;
use super::header::{Header, find_header, sketch_record};
use super::index::{CsvKeyIndex, KeyField};
use super::location::{TextLocation, line_at};
use super::ragged::ragged_row_error;
use super::sniff::{self, FileExtension};
use super::splitter::{FieldSplitter, Terminator, skip_blank_lines};
use super::table::{CsvColumnProfile, CsvTable};
use super::{FILE_BYTES_MAX, Options};
use crate::key_index::{DuplicateKey, KeyCandidate, find_key_column};
use crate::layout::{self, DataRows, LeftOutRows, SketchedCell};
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
        check_length(&decoded.text)?;
        let start = decoded.start;
        let parsed = parse(decoded, self.extension, &self.options, SkippedLines::NONE)?;
        let mut table = match self.options.table.layout.fill_down.is_empty() {
            true => parsed.table,
            false => self.filled_down(parsed, start)?,
        };
        if self.options.table.layout.completes_rows() {
            table.read_only_reason = Some(COMPLETED_ROWS_REASON.to_owned());
        }
        Ok(CsvSnapshot::new(table))
    }

    fn is_snapshot_of(&self, snapshot: &CsvSnapshot, bytes: &[u8]) -> bool {
        let CsvTable { text, encoding, .. } = &*snapshot.table;
        if self.options.table.layout.completes_rows() {
            return self.load(bytes.to_vec()).is_ok_and(|now| now.table.text == *text);
        }
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

/// Positions in a text have 32 bits.
fn check_length(text: &str) -> Result<(), CsvError> {
    match text.len() as u64 {
        bytes if bytes > FILE_BYTES_MAX => {
            Err(FileError::TooLarge { bytes, bytes_max: FILE_BYTES_MAX }.into())
        }
        _ => Ok(()),
    }
}

impl CsvLoader {
    /// The table with the values that blank cells of some columns have from above. It is found without them first: a
    /// subtotal has no label of its own.
    fn filled_down(&self, parsed: ParsedCsv, start: usize) -> Result<CsvTable, CsvError> {
        let ParsedCsv { table, left_out, .. } = parsed;
        let is_filled = |name: &&String| self.options.table.layout.fill_down.contains(name);
        let columns = table.header.iter().enumerate().filter(|(_, name)| is_filled(name));
        let columns: Vec<usize> = columns.map(|(at, _)| at).collect();
        let text = complete::fill_down(&table.text, &table.splitter, &table.row_starts, &left_out, &columns);
        check_length(&text)?;
        let CsvTable { encoding, header_rows, layout_notes, notes, likely_header_row, splitter, .. } = table;
        let mut options = self.options.clone();
        options.delimiter = Some(splitter.delimiter);
        options.table.layout = DeclaredLayout {
            header_row: Some(header_rows.first),
            header_rows: Some(header_rows.count),
            footer_rows: Some(0),
            ..DeclaredLayout::default()
        };
        let decoded = DecodedText { text, start, encoding, note: None };
        let filled = parse(decoded, self.extension, &options, SkippedLines::NONE)?.table;
        Ok(CsvTable { layout_notes, notes, likely_header_row, ..filled })
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
            let is_plain = KeyCandidate::is_key_type(profile.data_type) && profile.format.is_none();
            is_plain && !profile.has_empty && !profile.has_null && !profile.may_be_measure()
        };
        let columns = table.header.iter().zip(&table.profiles).enumerate();
        let candidates = columns
            .filter(|(_, (_, profile))| is_candidate(profile))
            .map(|(position, (name, profile))| KeyCandidate { position, name, data_type: profile.data_type });
        let is_long =
            |position: usize| long.iter().any(|row| table.field_text(*row, position).len() > KEY_BYTES_MAX);
        find_key_column(candidates, table.len(), |position, rows| match rows == table.len() {
            true => !is_long(position) && self.index(vec![KeyField::plain(position)]).is_ok(),
            false => {
                !is_long(position) && CsvKeyIndex::build(table, vec![KeyField::plain(position)], rows).is_ok()
            }
        })
    }

    /// The index over these columns; built once.
    pub(super) fn index(&self, columns: Vec<KeyField>) -> Result<Arc<CsvKeyIndex>, DuplicateKey> {
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

/// A table, and which of the records are its rows.
pub(super) struct ParsedCsv {
    pub(super) table: CsvTable,
    /// The byte at which the first record below the header starts.
    pub(super) rows_start: usize,
    /// The bytes at which records below the header start that are not rows.
    pub(super) left_out: Vec<u32>,
    /// The byte at which a second table begins.
    pub(super) second_table: Option<u32>,
    /// Whether the names of columns look like data.
    pub(super) is_header_doubtful: bool,
}

/// Lines of a file that a text lacks: it is the start and the end of a file that is too large.
#[derive(Debug, Clone, Copy)]
pub(super) struct SkippedLines {
    /// The byte of the text before which they were.
    pub(super) at: usize,
    pub(super) count: usize,
}

impl SkippedLines {
    pub(super) const NONE: Self = Self { at: usize::MAX, count: 0 };

    /// The line of the file, from 1, that contains a byte of the text.
    fn line_at(self, text: &str, at: usize) -> usize {
        line_at(text.as_bytes(), at) + if at >= self.at { self.count } else { 0 }
    }
}

/// The delimiter, and where the text begins after a line that declares it.
pub(super) fn find_delimiter(
    text: &str,
    start: usize,
    extension: FileExtension,
    options: &Options,
) -> Result<(u8, usize), CsvError> {
    let declared = sniff::declared_delimiter(&text.as_bytes()[start..]);
    let start = start + declared.map_or(0, |(_, length)| length);
    let delimiter = match (options.delimiter, declared) {
        (Some(delimiter), _) if !sniff::is_valid_delimiter(delimiter) => {
            return Err(CsvError::InvalidDelimiter(delimiter));
        }
        (Some(delimiter), _) | (None, Some((delimiter, _))) => delimiter,
        (None, None) => sniff::sniff(&text.as_bytes()[start..], extension),
    };
    Ok((delimiter, start))
}

pub(super) fn parse(
    decoded: DecodedText,
    extension: FileExtension,
    options: &Options,
    skipped_lines: SkippedLines,
) -> Result<ParsedCsv, CsvError> {
    let DecodedText { mut text, start, encoding, note } = decoded;
    let (delimiter, start) = find_delimiter(&text, start, extension, options)?;
    let mut notes: Vec<String> = note.into_iter().map(str::to_owned).collect();
    match delimiter {
        b',' => {}
        b'\t' => notes.push("fields are separated by tabs".to_owned()),
        other => notes.push(format!("fields are separated by `{}`", other.escape_ascii())),
    }
    let splitter = FieldSplitter::new(delimiter);
    let found = find_header(&text, start, &splitter, &options.table.layout)?;
    let Header {
        names: header,
        rows_start,
        last_row_start,
        rows: header_rows,
        likely_row,
        is_doubtful,
        lacks_first_name,
        notes: mut layout_notes,
    } = found;
    if options.table.layout.short_rows {
        text = complete::pad_records(&text, rows_start, &splitter, header.len());
        check_length(&text)?;
    }
    if lacks_first_name {
        notes
            .push("there is one column more than names, as in tables of R: the first has no name".to_owned());
    }
    if let [only] = &header[..]
        && only.starts_with('#')
    {
        notes.push(
            "the first line begins with `#` and names the only column; if it is a comment, remove it"
                .to_owned(),
        );
    }
    if let [only] = &header[..]
        && has_blank_separators(only, &text[rows_start..])
    {
        notes.push(
            "each line is one field; if blanks separate its fields, set `delimiter = \" \"` for the source where each is a single blank, \
             or save it with commas, semicolons or tabs instead"
                .to_owned(),
        );
    }
    let scanner = RowScanner {
        text: &text,
        at: rows_start,
        splitter: &splitter,
        header: &header,
        is_header_doubtful: is_doubtful,
        options: &options.table,
        skipped_lines,
    };
    let rows = scanner.scan()?;
    layout_notes.extend(rows.notes);
    let table = CsvTable {
        row_starts: rows.starts,
        profiles: rows.profiles,
        read_only_reason: rows.read_only_reason,
        text,
        encoding,
        splitter,
        header_start: last_row_start,
        header,
        header_rows,
        likely_header_row: likely_row,
        layout_notes,
        notes,
    };
    Ok(ParsedCsv {
        table,
        rows_start,
        left_out: rows.left_out,
        second_table: rows.second_table,
        is_header_doubtful: is_doubtful,
    })
}

/// Whether the only name and the lines below have one number of words each, most of which are numbers: a table of
/// another program, in columns of a fixed width. Tables of R have one word more below, the name of the row.
fn has_blank_separators(name: &str, rows: &str) -> bool {
    const LINES_MAX: usize = 5;
    let words = name.split_whitespace().count();
    let mut lines = rows.lines().filter(|line| !line.trim().is_empty()).take(LINES_MAX).peekable();
    let is_like_name = |line: &str| {
        let numbers = line.split_whitespace().filter(|word| TextClass::of(word) == TextClass::Number).count();
        let below = line.split_whitespace().count();
        (below == words || below == words + 1) && numbers * 2 > words
    };
    words > 1 && lines.peek().is_some() && lines.all(is_like_name)
}

/// A column's profile while its fields are read.
#[derive(Clone, Default)]
pub(super) struct ColumnProfiler {
    pub(super) null_texts: Vec<String>,
    pub(super) inference: TypeInference,
    pub(super) has_values: bool,
    has_empty: bool,
    /// Some field has blanks only, which is no value in a column with a format.
    has_blanks: bool,
    has_null: bool,
    leading_signs: LeadingSigns,
}

/// Reads the rows below the header.
struct RowScanner<'a> {
    text: &'a str,
    at: usize,
    splitter: &'a FieldSplitter,
    header: &'a [String],
    is_header_doubtful: bool,
    options: &'a TableOptions,
    skipped_lines: SkippedLines,
}

struct ScannedRows {
    starts: Vec<u32>,
    left_out: Vec<u32>,
    second_table: Option<u32>,
    profiles: Vec<CsvColumnProfile>,
    notes: Vec<LayoutNote>,
    read_only_reason: Option<String>,
}

/// One pass over the rows.
struct RowPass {
    starts: Vec<u32>,
    columns: Vec<ColumnProfiler>,
    /// Positions in `starts` of rows that may not be data.
    ragged: Vec<(usize, usize)>,
    blank: Vec<usize>,
    repeated_headers: Vec<usize>,
    total_candidates: Vec<usize>,
    /// Rows and columns of a word for a total behind the first field.
    inner_totals: Vec<(usize, usize)>,
}

/// Words for totals are searched for in so many fields of a row, and noted so often.
const INNER_TOTAL_FIELDS: usize = 4;
const INNER_TOTALS_MAX: usize = 1000;
const TOTAL_WORD_BYTES_MAX: usize = 20;

/// More ragged rows than this are not notes below a table.
const RAGGED_ROWS_MAX: usize = 64;

impl RowScanner<'_> {
    fn scan(&self) -> Result<ScannedRows, CsvError> {
        let first = self.pass(&[])?;
        let left_out = self.find_left_out(&first)?;
        let excluded: Vec<u32> = left_out.rows.iter().map(|row| first.starts[*row]).collect();
        let second_table = left_out.second_table.map(|row| first.starts[row]);
        let pass = match excluded.is_empty() {
            true => first,
            false => {
                drop(first);
                self.pass(&excluded)?
            }
        };
        let RowPass { mut starts, columns, .. } = pass;
        starts.shrink_to_fit();
        let formats = self.infer_formats(&starts, &columns);
        let mut notes = left_out.notes;
        notes.extend(self.doubt_years(&starts, &formats));
        notes.extend(self.doubt_integers(&starts, &columns, &formats));
        notes.extend(self.doubt_points(&starts, &columns, &formats));
        let locate = |row: u64| format!("line {}", self.line(starts[row as usize]));
        let columns = columns.into_iter().zip(formats);
        let profiles: Vec<_> = columns.map(|(column, format)| column.finish(format, locate)).collect();
        notes.extend(self.doubt_numbers(&starts, &profiles));
        let read_only_reason = left_out.read_only_reason;
        Ok(ScannedRows { profiles, starts, left_out: excluded, second_table, notes, read_only_reason })
    }

    /// The line of the file on which a record starts.
    fn line(&self, start: u32) -> usize {
        self.skipped_lines.line_at(self.text, start as usize)
    }

    /// Reads all rows but those that start at `excluded`.
    fn pass(&self, excluded: &[u32]) -> Result<RowPass, CsvError> {
        let (text, splitter, header) = (self.text, self.splitter, self.header.len());
        let bytes = text.as_bytes();
        let profiler = |name: &String| ColumnProfiler::new(self.options.null_texts(name));
        let mut pass = RowPass {
            starts: Vec::new(),
            columns: self.header.iter().map(profiler).collect(),
            ragged: Vec::new(),
            blank: Vec::new(),
            repeated_headers: Vec::new(),
            total_candidates: Vec::new(),
            inner_totals: Vec::new(),
        };
        let mut scratch = String::new();
        let mut at = self.at;
        let mut excluded = excluded.iter().copied().peekable();
        while at < bytes.len() {
            let from = at;
            let start = u32::try_from(from).expect("files above 32 bits are refused");
            let is_excluded = excluded.next_if_eq(&start).is_some();
            let row = pass.starts.len();
            let (mut fields, mut filled, mut names) = (0, 0, 0);
            loop {
                let field = splitter.field_at(bytes, at);
                if field.terminator == Terminator::UnclosedQuote {
                    return Err(CsvError::UnclosedQuote {
                        location: TextLocation::new(text, at..field.next),
                    });
                }
                let value = match field.as_plain(text) {
                    Some(value) => value,
                    None => {
                        scratch.clear();
                        field.unescape(text, &mut scratch);
                        &scratch
                    }
                };
                if !is_excluded && let Some(column) = pass.columns.get_mut(fields) {
                    column.observe(row as u64, value);
                    // A person sees no difference between a blank and an empty field.
                    if !value.trim_ascii_start().is_empty() {
                        filled += 1;
                        names += usize::from(*value == self.header[fields]);
                        if filled == 1 && may_be_total(value) {
                            pass.total_candidates.push(row);
                        } else if filled > 1
                            && fields < INNER_TOTAL_FIELDS
                            && value.len() <= TOTAL_WORD_BYTES_MAX
                            && pass.inner_totals.len() < INNER_TOTALS_MAX
                            && layout::is_total_word(value)
                        {
                            pass.inner_totals.push((row, fields));
                        }
                    }
                } else if !value.trim().is_empty() {
                    filled += 1;
                }
                fields += 1;
                at = field.next;
                if field.terminator == Terminator::RecordEnd {
                    break;
                }
            }
            at = skip_blank_lines(bytes, at);
            if is_excluded {
                continue;
            }
            let is_blank = filled == 0 && header > 1;
            if is_blank {
                pass.blank.push(row);
            } else if fields != header
                && !(fields > header && header > 1 && self.has_blank_rest(from, header))
            {
                pass.ragged.push((row, fields));
                if pass.ragged.len() > RAGGED_ROWS_MAX {
                    return Err(self.ragged_error(&pass, 0));
                }
            } else if names == filled && names == header && header > 1 && !self.is_header_doubtful {
                pass.repeated_headers.push(row);
            }
            pass.starts.push(start);
        }
        Ok(pass)
    }

    /// Whether all fields of a record beyond the header are empty: some programs write a delimiter after the last one.
    fn has_blank_rest(&self, mut at: usize, header: usize) -> bool {
        for position in 0.. {
            let field = self.splitter.field_at(self.text.as_bytes(), at);
            if position >= header && field.text_start < field.text_end {
                return false;
            }
            if field.terminator != Terminator::Delimiter {
                break;
            }
            at = field.next;
        }
        true
    }

    fn ragged_error(&self, pass: &RowPass, at: usize) -> CsvError {
        let (row, fields) = pass.ragged[at];
        let from = pass.starts.get(row).map_or(self.text.len(), |start| *start as usize);
        let mut error = ragged_row_error(self.text, from, self.splitter, fields, self.header.len());
        if let CsvError::Ragged { location, .. } = &mut error
            && from >= self.skipped_lines.at
        {
            location.line += self.skipped_lines.count;
        }
        error
    }

    /// Which rows are not data. A row with another number of fields must be among them.
    fn find_left_out(&self, pass: &RowPass) -> Result<LeftOutRows, CsvError> {
        let declared = &self.options.layout;
        let rows = CsvRows { scanner: self, pass, len: pass.starts.len() };
        let mut left_out = layout::find_left_out(&rows, self.header, declared, "line");
        let is_declared = declared.footer_rows.is_some() || declared.stop_at.is_some();
        if let Some(first) =
            self.footer_start(pass, &rows).filter(|first| !is_declared && !left_out.rows.contains(first))
        {
            left_out = layout::find_left_out(&CsvRows { len: first, ..rows }, self.header, declared, "line");
            let row = rows.row(first);
            let count = pass.ragged.len();
            let message = format!(
                "has {} below the table (from line {}: `{}`), which {} left out",
                contract::humanize::pluralize(count as u64, "line"),
                row.number,
                row.cells.first().map_or("", |cell| cell.text.trim()),
                if count == 1 { "is" } else { "are" }
            );
            let setting = "footer_rows = 0".to_owned();
            left_out.notes.push(LayoutNote { kind: LayoutNoteKind::LeftOut, message, setting });
            left_out.rows.extend(pass.ragged.iter().map(|(row, _)| *row));
        }
        let keeps_all = declared.footer_rows == Some(0);
        if !pass.repeated_headers.is_empty() && !keeps_all {
            let lines: Vec<String> =
                pass.repeated_headers.iter().take(5).map(|row| rows.row(*row).number.to_string()).collect();
            left_out.notes.push(LayoutNote {
                kind: LayoutNoteKind::LeftOut,
                message: format!("repeats its column names (line {}), which are left out", lines.join(", ")),
                setting: "footer_rows = 0".to_owned(),
            });
            left_out.rows.extend(&pass.repeated_headers);
        }
        if !keeps_all {
            left_out.rows.extend(&pass.blank);
        }
        left_out.rows.sort_unstable();
        left_out.rows.dedup();
        let is_data = |(row, _): &(usize, usize)| left_out.rows.binary_search(row).is_err();
        match pass.ragged.iter().position(is_data) {
            Some(at) => Err(self.ragged_error(pass, at)),
            None => Ok(left_out),
        }
    }

    fn infer_formats(&self, starts: &[u32], columns: &[ColumnProfiler]) -> Vec<InferredFormat> {
        let mut scan = RowsInMemory { scanner: self, starts };
        let declared = |at: usize, data_type| self.options.formats(&self.header[at], data_type);
        let Ok(formats) = infer_formats(&mut scan, columns, self.splitter.delimiter, declared);
        formats
    }

    /// The cells of the record that starts here.
    fn cells(&self, start: u32) -> Vec<SketchedCell> {
        let record = sketch_record(self.text, start as usize, 0, false, self.splitter);
        record.map(|record| record.row.cells).unwrap_or_default()
    }
}

/// Most first fields are ruled out by the first letters of their first and last word.
fn may_be_total(text: &str) -> bool {
    let is_candidate = |word: &str| match word.bytes().next() {
        Some(first) if first.is_ascii() => b"tsgzeicry".contains(&first.to_ascii_lowercase()),
        Some(_) => true,
        None => false,
    };
    let text = text.trim();
    let last = text.rfind(' ').map_or("", |at| &text[at + 1..]);
    (is_candidate(text) || is_candidate(last)) && layout::is_total_label(text)
}

/// The rows of one pass, for deciding which are data.
#[derive(Clone, Copy)]
struct CsvRows<'a> {
    scanner: &'a RowScanner<'a>,
    pass: &'a RowPass,
    /// How many rows there are before those that are not rows for certain.
    len: usize,
}

impl DataRows for CsvRows<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn unseen_len(&self) -> usize {
        self.scanner.skipped_lines.count
    }

    fn number(&self, at: usize) -> u32 {
        let line = self.scanner.line(self.pass.starts[at]);
        u32::try_from(line).unwrap_or(u32::MAX)
    }

    fn follows_gap(&self, at: usize) -> bool {
        let before = &self.scanner.text.as_bytes()[..self.pass.starts[at] as usize];
        let is_blank_line =
            before.ends_with(b"\n\n") || before.ends_with(b"\n\r\n") || before.ends_with(b"\r\r");
        is_blank_line || (at > 0 && self.pass.blank.binary_search(&(at - 1)).is_ok())
    }

    fn cells(&self, at: usize) -> Vec<SketchedCell> {
        self.scanner.cells(self.pass.starts[at])
    }

    fn total_candidates(&self) -> Vec<usize> {
        self.pass.total_candidates.clone()
    }

    fn inner_totals(&self) -> Vec<(usize, usize)> {
        self.pass.inner_totals.clone()
    }

    fn is_merged_across(&self, _at: usize) -> bool {
        false
    }
}

/// Rows that start at these bytes, for a second look at their columns.
struct RowsInMemory<'a> {
    scanner: &'a RowScanner<'a>,
    starts: &'a [u32],
}

impl ColumnScan for RowsInMemory<'_> {
    type Error = Infallible;

    fn scan(&mut self, open: &mut Vec<OpenColumn<'_>>) -> Result<(), Infallible> {
        let RowScanner { text, splitter, .. } = self.scanner;
        let mut scratch = String::new();
        for start in self.starts {
            if open.is_empty() {
                break;
            }
            let (mut at, mut position) = (*start as usize, 0);
            for column in &mut *open {
                let field = loop {
                    let field = splitter.field_at(text.as_bytes(), at);
                    if position == column.position {
                        break field;
                    }
                    at = field.next;
                    position += 1;
                };
                column.observe(field.text_with_scratch(text, &mut scratch));
            }
            open.retain(|column| !column.is_hopeless());
        }
        Ok(())
    }

    fn first_value(
        &mut self,
        position: usize,
        is_shown_by: &dyn Fn(&str) -> bool,
    ) -> Option<(usize, String)> {
        self.starts.iter().find_map(|start| {
            let cells = self.scanner.cells(*start);
            let cell = cells.into_iter().find(|cell| cell.column == position && is_shown_by(&cell.text))?;
            Some((self.scanner.line(*start), cell.text))
        })
    }
}

impl ColumnProfiler {
    pub(super) fn new(null_texts: &[String]) -> Self {
        Self { null_texts: null_texts.to_vec(), ..Self::default() }
    }

    #[inline]
    pub(super) fn observe(&mut self, row: u64, text: &str) {
        if self.null_texts.iter().any(|null| null == text) {
            self.has_null = true;
        } else if text.is_empty() {
            self.has_empty = true;
        } else {
            self.has_values = true;
            self.has_blanks |= text.starts_with(char::is_whitespace) && text.trim().is_empty();
            self.leading_signs.observe(text);
            self.inference.observe(row, text);
        }
    }

    /// `locate` names the line of a row.
    pub(super) fn finish(self, format: InferredFormat, locate: impl Fn(u64) -> String) -> CsvColumnProfile {
        let (format, ambiguous_format) = match format {
            InferredFormat::None => (None, None),
            InferredFormat::Format(format, data_type) => (Some((format, data_type)), None),
            InferredFormat::Ambiguous(ambiguous) => (None, Some(ambiguous)),
        };
        let data_type = match (&format, &ambiguous_format) {
            (Some((_, data_type)), _) => *data_type,
            (None, Some(_)) => DataType::Text,
            (None, None) => self.inference.data_type(),
        };
        let is_text = data_type == DataType::Text && ambiguous_format.is_none();
        let near_miss = if is_text { self.inference.near_miss(0, 0, locate) } else { None };
        let mut values = if format.is_some() { Vec::new() } else { self.inference.distinct_values() };
        if self.has_empty && !values.is_empty() {
            values.push(String::new());
        }
        CsvColumnProfile {
            data_type,
            has_empty: self.has_empty || format.is_some() && self.has_blanks,
            format: format.map(|(format, _)| format),
            ambiguous_format,
            null_texts: self.null_texts,
            has_values: self.has_values,
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

//! Detects the delimiter of a file by how consistent its first records are.

use std::path::Path;

use super::splitter::{FieldSplitter, Terminator, skip_blank_lines};

/// In order of preference.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
const RECORDS_MAX: usize = 100;
const SAMPLE_BYTES_MAX: usize = 64 << 10;

/// What the file name's extension tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileExtension {
    Tsv,
    Other,
}

impl FileExtension {
    pub(super) fn of(path: &Path) -> Self {
        match path.extension() {
            Some(extension)
                if extension.eq_ignore_ascii_case("tsv") || extension.eq_ignore_ascii_case("tab") =>
            {
                Self::Tsv
            }
            _ => Self::Other,
        }
    }
}

/// How the first records look when split at a delimiter.
struct DelimiterScore {
    delimiter: u8,
    header_fields: usize,
    records: usize,
    /// How many of them have as many fields as the header.
    matching_records: usize,
    /// How many records have the number of fields that makes the largest table, and that number.
    table_records: usize,
    table_fields: usize,
}

pub(super) fn sniff(text: &[u8], extension: FileExtension) -> u8 {
    let scores = DELIMITERS.map(|delimiter| score_delimiter(text, delimiter));
    let is_tsv = |score: &&DelimiterScore| extension == FileExtension::Tsv && score.delimiter == b'\t';
    if let Some(tab) = scores.iter().find(is_tsv)
        && (tab.is_consistent() || !scores.iter().any(DelimiterScore::is_consistent))
    {
        return tab.delimiter;
    }
    let [first, rest @ ..] = &scores;
    let best = rest.iter().fold(first, |best, next| if next.is_better_than(best) { next } else { best });
    if best.is_consistent() || best.matching_records * 2 > best.records && best.header_fields > 1 {
        return best.delimiter;
    }
    // The first lines may be a title: the delimiter is the one that makes the largest table of the rest. A comma in each
    // amount makes a long one, of two columns.
    let largest =
        rest.iter().fold(first, |best, next| if next.table_size() > best.table_size() { next } else { best });
    if largest.table_records > 1 { largest.delimiter } else { best.delimiter }
}

/// Excel writes `sep=;` as a first line. Returns the delimiter and the length of that line without its end.
pub(super) fn declared_delimiter(text: &[u8]) -> Option<(u8, usize)> {
    let [delimiter, rest @ ..] = text.strip_prefix(b"sep=")? else { return None };
    let is_line = matches!(rest.first(), Some(b'\n' | b'\r'));
    (is_line && is_valid_delimiter(*delimiter)).then_some((*delimiter, b"sep=;".len()))
}

/// Whether a byte can separate fields of a text.
pub(super) fn is_valid_delimiter(delimiter: u8) -> bool {
    delimiter.is_ascii() && !matches!(delimiter, 0 | b'"' | b'\n' | b'\r')
}

/// Whether there is a table of more than one record, how many delimiters separate its fields, and how many fields it has.
fn table_size(records: usize, fields: usize) -> (bool, usize, usize) {
    (records > 1, records * fields.saturating_sub(1), fields)
}

impl DelimiterScore {
    fn table_size(&self) -> (bool, usize, usize) {
        table_size(self.table_records, self.table_fields)
    }

    fn is_consistent(&self) -> bool {
        self.header_fields > 1 && self.matching_records == self.records
    }

    fn is_better_than(&self, other: &Self) -> bool {
        match (self.is_consistent(), other.is_consistent()) {
            (true, true) => self.header_fields > other.header_fields,
            (true, false) => true,
            (false, true) => false,
            (false, false) if self.header_fields == 1 => false,
            (false, false) if other.header_fields == 1 => true,
            (false, false) => self.matching_records * other.records > other.matching_records * self.records,
        }
    }
}

fn score_delimiter(text: &[u8], delimiter: u8) -> DelimiterScore {
    let split = FieldSplitter::new(delimiter);
    let sample = &text[..text.len().min(SAMPLE_BYTES_MAX)];
    let mut score = DelimiterScore {
        delimiter,
        header_fields: 1,
        records: 0,
        matching_records: 0,
        table_records: 0,
        table_fields: 0,
    };
    let mut counts: Vec<usize> = Vec::new();
    let mut at = skip_blank_lines(sample, 0);
    while at < sample.len() && score.records < RECORDS_MAX {
        let mut fields = 1;
        let end = loop {
            let field = split.field_at(sample, at);
            at = field.next;
            match field.terminator {
                Terminator::Delimiter => fields += 1,
                end @ (Terminator::RecordEnd | Terminator::UnclosedQuote) => break end,
            }
        };
        // The last record of a sample may be incomplete.
        let is_cut = at == sample.len() && sample.len() < text.len();
        if score.records > 0 && (is_cut || end == Terminator::UnclosedQuote) {
            break;
        }
        if score.records == 0 {
            score.header_fields = fields;
        }
        score.records += 1;
        counts.push(fields);
        score.matching_records += usize::from(fields == score.header_fields);
        at = skip_blank_lines(sample, at);
    }
    counts.retain(|fields| *fields > 1);
    counts.sort_unstable();
    for run in counts.chunk_by(|a, b| a == b) {
        let table = (run.len(), run[0]);
        if table_size(table.0, table.1) >= score.table_size() {
            (score.table_records, score.table_fields) = table;
        }
    }
    score
}

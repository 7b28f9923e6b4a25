//! What separates the fields of a file, from how well its first records agree.

use std::path::Path;

use super::split::{End, Split, behind_blanks};

/// In the order in which they are preferred.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
const RECORDS_MAX: usize = 100;
const SAMPLE_BYTES_MAX: usize = 64 << 10;

/// What a file's ending says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Tsv,
    Other,
}

impl Ending {
    pub(super) fn of(path: &Path) -> Self {
        match path.extension() {
            Some(ending) if ending.eq_ignore_ascii_case("tsv") || ending.eq_ignore_ascii_case("tab") => {
                Self::Tsv
            }
            _ => Self::Other,
        }
    }
}

/// How the first records look with a delimiter.
struct Look {
    delimiter: u8,
    header: usize,
    records: usize,
    /// How many of them have as many fields as the header.
    like_header: usize,
}

pub(super) fn sniff(text: &[u8], ending: Ending) -> u8 {
    let looks = DELIMITERS.map(|delimiter| look(text, delimiter));
    let is_tsv = |look: &&Look| ending == Ending::Tsv && look.delimiter == b'\t';
    if let Some(tab) = looks.iter().find(is_tsv)
        && (tab.agrees() || !looks.iter().any(Look::agrees))
    {
        return tab.delimiter;
    }
    let [first, rest @ ..] = &looks;
    rest.iter().fold(first, |best, next| if next.is_better_than(best) { next } else { best }).delimiter
}

/// Excel writes `sep=;` as a first line. Returns the delimiter, and where the table begins.
pub(super) fn declared(text: &[u8]) -> Option<(u8, usize)> {
    let [delimiter, rest @ ..] = text.strip_prefix(b"sep=")? else { return None };
    let is_line = matches!(rest.first(), Some(b'\n' | b'\r'));
    (is_line && is_possible(*delimiter)).then_some((*delimiter, b"sep=;".len()))
}

/// Whether a byte can separate fields of text.
pub(super) fn is_possible(delimiter: u8) -> bool {
    delimiter.is_ascii() && !matches!(delimiter, 0 | b'"' | b'\n' | b'\r')
}

impl Look {
    fn agrees(&self) -> bool {
        self.header > 1 && self.like_header == self.records
    }

    fn is_better_than(&self, other: &Self) -> bool {
        match (self.agrees(), other.agrees()) {
            (true, true) => self.header > other.header,
            (true, false) => true,
            (false, true) => false,
            (false, false) if self.header == 1 => false,
            (false, false) if other.header == 1 => true,
            (false, false) => self.like_header * other.records > other.like_header * self.records,
        }
    }
}

fn look(text: &[u8], delimiter: u8) -> Look {
    let split = Split::new(delimiter);
    let sample = &text[..text.len().min(SAMPLE_BYTES_MAX)];
    let mut look = Look { delimiter, header: 1, records: 0, like_header: 0 };
    let mut at = behind_blanks(sample, 0);
    while at < sample.len() && look.records < RECORDS_MAX {
        let mut fields = 1;
        let end = loop {
            let field = split.field(sample, at);
            at = field.next;
            match field.end {
                End::Delimiter => fields += 1,
                end @ (End::Record | End::Open) => break end,
            }
        };
        // The last record of a sample may be cut.
        let is_cut = at == sample.len() && sample.len() < text.len();
        if look.records > 0 && (is_cut || end == End::Open) {
            break;
        }
        if look.records == 0 {
            look.header = fields;
        }
        look.records += 1;
        look.like_header += usize::from(fields == look.header);
        at = behind_blanks(sample, at);
    }
    look
}

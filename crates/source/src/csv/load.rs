//! Reads a file once: its text, where rows begin, and what kind of values each column has.

use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use contract::Kind;
use contract::cursor::KEY_BYTES_MAX;
use contract::infer::Guess;
use contract::source::SourceFault;

use super::decode::{Decoded, decode};
use super::encode::Encoding;
use super::index::Index;
use super::sniff::{self, Ending};
use super::split::{End, Split, behind_blanks};
use super::spot::Spot;
use super::table::{Seen, Table};
use super::trouble::{Comment, Trouble};
use super::{COLUMNS_MAX, FILE_BYTES_MAX, Options};
use crate::index::{Twice, first_key};
use crate::watch::{Content, OutOfReach};

/// Files of text with something between its fields, and how they are read.
pub(super) struct Delimited {
    /// The file's name may say what separates fields.
    ending: Ending,
    pub(super) options: Options,
}

impl Delimited {
    pub(super) fn new(path: &Path, options: Options) -> Self {
        Self { ending: Ending::of(path), options }
    }
}

impl Content for Delimited {
    type Loaded = Loaded;
    type Trouble = Trouble;

    fn file_bytes_max(&self) -> u64 {
        FILE_BYTES_MAX
    }

    fn load(&self, bytes: Vec<u8>) -> Result<Loaded, Trouble> {
        let decoded = decode(bytes)?;
        let bytes = decoded.text.len() as u64;
        if bytes > FILE_BYTES_MAX {
            return Err(OutOfReach::TooLarge { bytes, bytes_max: FILE_BYTES_MAX }.into());
        }
        parse(decoded, self.ending, &self.options).map(Loaded::new)
    }

    fn is_of(&self, loaded: &Loaded, bytes: &[u8]) -> bool {
        let Table { text, written, .. } = &*loaded.table;
        match written {
            Encoding::Utf8 => text.as_bytes() == bytes,
            Encoding::Utf16Le { .. } | Encoding::Utf16Be { .. } | Encoding::Windows1252 => {
                decode(bytes.to_vec()).is_ok_and(|now| now.written == *written && now.text == *text)
            }
        }
    }

    fn fault(&self, trouble: &Trouble, file: &str, path: &Path) -> SourceFault {
        trouble.fault(file, path)
    }
}

/// A table, and the indexes that somebody asked for.
pub(super) struct Loaded {
    pub(super) table: Arc<Table>,
    indexes: Mutex<Vec<Arc<Index>>>,
    key: OnceLock<Vec<usize>>,
    state: OnceLock<i64>,
}

impl Loaded {
    fn new(table: Table) -> Self {
        let table = Arc::new(table);
        Self { table, indexes: Mutex::default(), key: OnceLock::new(), state: OnceLock::new() }
    }

    /// The first column that tells rows apart, if there is one.
    pub(super) fn key(&self) -> Vec<usize> {
        self.key.get_or_init(|| self.find_key().into_iter().collect()).clone()
    }

    fn find_key(&self) -> Option<usize> {
        let table = &self.table;
        // Rows that may hold a value too long for a key: hardly any, in hardly any file.
        let ends = table.rows.iter().skip(1).map(|next| *next as usize).chain([table.text.len()]);
        let lengths = table.rows.iter().zip(ends).map(|(row, end)| end - *row as usize);
        let long: Vec<u32> =
            (0..).zip(lengths).filter(|(_, bytes)| *bytes > KEY_BYTES_MAX).map(|(row, _)| row).collect();
        let is_candidate = |seen: &Seen| {
            let is_scalar = matches!(seen.kind, Kind::Text | Kind::Integer | Kind::Int64);
            is_scalar && !seen.has_empty && !seen.has_null
        };
        let places = (0..table.columns.len()).filter(|place| is_candidate(&table.columns[*place]));
        let is_long = |place: usize| long.iter().any(|row| table.text(*row, place).len() > KEY_BYTES_MAX);
        first_key(places, table.len(), |place, rows| match rows == table.len() {
            true => !is_long(place) && self.index(&[place]).is_ok(),
            false => !is_long(place) && Index::build(table, &[place], rows).is_ok(),
        })
    }

    /// The index over these columns; made once.
    pub(super) fn index(&self, columns: &[usize]) -> Result<Arc<Index>, Twice> {
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = indexes.iter().find(|index| index.columns == columns) {
            return Ok(index.clone());
        }
        let index = Arc::new(Index::build(&self.table, columns, self.table.len())?);
        indexes.push(index.clone());
        Ok(index)
    }

    /// A number that another content does not have, as far as 64 bits tell.
    pub(super) fn state(&self) -> i64 {
        *self.state.get_or_init(|| {
            // The same for the same content, so that cursors outlive a restart.
            let mut hasher = foldhash::quality::FixedState::default().build_hasher();
            hasher.write(self.table.text.as_bytes());
            hasher.finish().cast_signed()
        })
    }
}

fn parse(decoded: Decoded, ending: Ending, options: &Options) -> Result<Table, Trouble> {
    let Decoded { text, mut start, written, note } = decoded;
    let declared = sniff::declared(&text.as_bytes()[start..]);
    if let Some((_, length)) = declared {
        start += length;
    }
    let delimiter = match (options.delimiter, declared) {
        (Some(delimiter), _) if !sniff::is_possible(delimiter) => return Err(Trouble::Delimiter(delimiter)),
        (Some(delimiter), _) | (None, Some((delimiter, _))) => delimiter,
        (None, None) => sniff::sniff(&text.as_bytes()[start..], ending),
    };
    let mut notes: Vec<String> = note.into_iter().map(str::to_owned).collect();
    match delimiter {
        b',' => {}
        b'\t' => notes.push("fields are separated by tabs".to_owned()),
        other => notes.push(format!("fields are separated by `{}`", other.escape_ascii())),
    }
    let split = Split::new(delimiter);
    let header_at = behind_blanks(text.as_bytes(), start);
    let (header, at) = header(&text, start, &split)?;
    if let [only] = &header[..]
        && only.starts_with('#')
    {
        notes.push(
            "the first line begins with `#` and names the only column; if it is a comment, remove it"
                .to_owned(),
        );
    }
    let (rows, columns) = rows(&text, at, &split, header.len(), options.null.as_deref())?;
    Ok(Table { text, written, split, rows, header_at, header, columns, notes })
}

/// The names of the columns, and where rows begin.
fn header(text: &str, start: usize, split: &Split) -> Result<(Vec<String>, usize), Trouble> {
    let bytes = text.as_bytes();
    let mut at = behind_blanks(bytes, start);
    if text[at..].trim().is_empty() {
        return Err(Trouble::Empty);
    }
    let mut names = Vec::new();
    loop {
        let field = split.field(bytes, at);
        if names.len() < COLUMNS_MAX {
            names.push(field.text(text).into_owned());
        } else if field.end == End::Record {
            return Err(Trouble::TooManyColumns(count(bytes, behind_blanks(bytes, start), split)));
        }
        match field.end {
            End::Delimiter => at = field.next,
            End::Record => return Ok((names, behind_blanks(bytes, field.next))),
            End::Open => return Err(Trouble::Unclosed { at: Spot::new(text, at..field.next) }),
        }
    }
}

fn count(bytes: &[u8], mut at: usize, split: &Split) -> usize {
    let mut fields = 1;
    loop {
        let field = split.field(bytes, at);
        if field.end != End::Delimiter {
            return fields;
        }
        fields += 1;
        at = field.next;
    }
}

/// A column while its texts pass by.
#[derive(Clone, Default)]
struct Passing {
    guess: Guess,
    has_empty: bool,
    has_null: bool,
}

fn rows(
    text: &str,
    mut at: usize,
    split: &Split,
    header: usize,
    null: Option<&str>,
) -> Result<(Vec<u32>, Vec<Seen>), Trouble> {
    let bytes = text.as_bytes();
    let mut rows = Vec::new();
    let mut columns = vec![Passing::default(); header];
    let mut scratch = String::new();
    while at < bytes.len() {
        let from = at;
        rows.push(u32::try_from(from).expect("files above 32 bits are refused"));
        let mut fields = 0;
        loop {
            let field = split.field(bytes, at);
            if field.end == End::Open {
                return Err(Trouble::Unclosed { at: Spot::new(text, at..field.next) });
            }
            if let Some(column) = columns.get_mut(fields) {
                match field.plain(text) {
                    Some(text) => column.see(text, null),
                    None => {
                        scratch.clear();
                        field.unescape(text, &mut scratch);
                        column.see(&scratch, null);
                    }
                }
            }
            fields += 1;
            at = field.next;
            if field.end == End::Record {
                break;
            }
        }
        if fields != header {
            return Err(ragged(text, from, split, fields, header));
        }
        at = behind_blanks(bytes, at);
    }
    rows.shrink_to_fit();
    Ok((rows, columns.into_iter().map(Passing::seen).collect()))
}

/// Points at the first field too many, or behind the last there is.
fn ragged(text: &str, from: usize, split: &Split, fields: usize, header: usize) -> Trouble {
    let bytes = text.as_bytes();
    let mut at = from;
    for _ in 0..header.min(fields - 1) {
        at = split.field(bytes, at).next;
    }
    let last = split.field(bytes, at).whole(at);
    let span = if fields > header { last } else { last.end..last.end };
    let first = text.trim_start_matches(['\u{feff}', '\n', '\r']);
    let comment = match () {
        () if bytes[from] == b'#' => Some(Comment::This),
        () if first.starts_with('#') => Some(Comment::First),
        () => None,
    };
    Trouble::Ragged { at: Spot::new(text, span), fields, header, delimiter: split.delimiter, comment }
}

impl Passing {
    #[inline]
    fn see(&mut self, text: &str, null: Option<&str>) {
        if null.is_some_and(|null| null == text) {
            self.has_null = true;
        } else if text.is_empty() {
            self.has_empty = true;
        } else {
            self.guess.see(text);
        }
    }

    fn seen(self) -> Seen {
        let kind = self.guess.kind();
        let mut values = self.guess.values();
        if self.has_empty && !values.is_empty() {
            values.push(String::new());
        }
        Seen { kind, has_empty: self.has_empty, has_null: self.has_null, values }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Content, Delimited, Options};

    /// Whether what was read of these bytes is said to be of them, and of those.
    fn check(bytes: &[u8], others: &[&[u8]]) {
        let csv = Delimited::new(Path::new("people.csv"), Options::default());
        let loaded = csv.load(bytes.to_vec()).unwrap_or_else(|trouble| panic!("{trouble:?}"));
        assert!(csv.is_of(&loaded, bytes), "{}", bytes.escape_ascii());
        for other in others {
            assert!(!csv.is_of(&loaded, other), "{} {}", bytes.escape_ascii(), other.escape_ascii());
        }
    }

    #[test]
    fn a_file_that_was_only_touched_is_known_in_every_encoding() {
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

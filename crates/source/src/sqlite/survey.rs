//! What is in the tables: every row is looked at once, within limits.

use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use contract::cursor::KEY_BYTES_MAX;
use contract::infer::{self, EXACT_MAX, Guess};
use contract::source::{ColumnFacts, Facts, Fits, SearchFacts, SourceFault, TableFacts};
use contract::{Cell, Kind};
use foldhash::fast::RandomState;
use hashbrown::HashSet;
use rusqlite::Row;

use super::Options;
use super::column::{is_of, raw};
use super::desk;
use super::exact::COMPUTED;
use super::fault::{Fail, TOO_BIG, name_of};
use super::pool::Pool;
use super::schema::{self, Affinity, Class, Declared, Schema, Table, quoted};
use super::walk::{Limits, Step, Walk, Walked};

/// How many values may be remembered to find a key: some 16 bytes each.
const HASHES_MAX: u64 = 4_000_000;
/// A view is read in one go, which keeps writers waiting.
const VIEW_HOLD: Duration = Duration::from_millis(25);

pub(super) fn facts(pool: &Pool, options: &Options, schema: &Schema) -> Result<Facts, SourceFault> {
    let Schema { tables, notes, left_out, is_wal, .. } = schema;
    let surveyed_tables = Vec::with_capacity(tables.len());
    let (notes, left_out) = (notes.clone(), left_out.clone());
    let mut facts = Facts { tables: surveyed_tables, notes, left_out, ..Facts::default() };
    let forbidden = desk::forbidden(pool.path());
    for table in tables {
        match surveyed(pool, table, options, *is_wal, &mut facts.notes) {
            Ok(mut surveyed) => {
                facts.notes.extend(table.columns.iter().filter_map(|column| rounded(table, column)));
                surveyed.read_only = read_only(table).or_else(|| forbidden.clone());
                surveyed.search = search(table);
                facts.tables.push(surveyed);
            }
            // A view may call what is not allowed, or what is gone.
            Err(Fail::Sql(error)) if schema::is_own_fault(&error) => {
                facts.left_out.push(schema::left_out(&table.name, schema::UNREADABLE));
            }
            Err(fail) if fail.is_too_big() => {
                facts.left_out.push(schema::left_out(&table.name, format!("it has {TOO_BIG}")));
            }
            Err(fail) => return Err(pool.fault(fail)),
        }
    }
    if facts.tables.is_empty() {
        let name = name_of(pool.path());
        let told = match &facts.left_out[..] {
            [] => format!("`{name}` has no tables; is it the right file?"),
            [one] => format!("`{name}` has no tables that can be read: {one}"),
            [one, others @ ..] => {
                let others = others.len();
                format!("`{name}` has no tables that can be read: {one}, and {others} more")
            }
        };
        let log = facts.left_out.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        return Err(SourceFault::Changed { told, log });
    }
    Ok(facts)
}

/// Why no row of it can be changed, if none can.
fn read_only(table: &Table) -> Option<String> {
    match table.class {
        Class::Plain => None,
        Class::View => Some("it is a view".into()),
        Class::Virtual => Some("it is a virtual table".into()),
    }
}

fn search(table: &Table) -> SearchFacts {
    match &table.words {
        None => SearchFacts::Scan,
        Some(index) => {
            let mut places: Vec<usize> = index.columns.iter().map(|(_, at)| *at).collect();
            places.sort_unstable();
            places.dedup();
            SearchFacts::Indexed(places)
        }
    }
}

/// What SQLite keeps of a number that is no integer.
const DIGITS_MAX: u32 = 15;

/// What its owner should know of a column that promises more digits than SQLite keeps.
fn rounded(table: &Table, column: &Declared) -> Option<String> {
    let (name, digits) = column.declared.split_once('(')?;
    let digits: u32 = digits.split([',', ')']).next()?.trim().parse().ok()?;
    let is_number = matches!(column.affinity, Affinity::Numeric | Affinity::Real);
    let is_meant = is_decimal(name) || column.affinity == Affinity::Real;
    (is_number && is_meant && digits > DIGITS_MAX).then(|| {
        let (table, Declared { name, declared, .. }) = (&table.name, column);
        format!(
            "`{table}`: `{name}` is declared as `{declared}`, and SQLite keeps {DIGITS_MAX} digits of a fraction; what \
             has more is not written; a column of the type TEXT keeps them all"
        )
    })
}

/// Looks at a table once. If nothing that is declared can be its key, it is looked at again to find one: to
/// remember all values of all columns costs too much to do it for nothing.
fn surveyed(
    pool: &Pool,
    table: &Table,
    options: &Options,
    is_wal: bool,
    notes: &mut Vec<String>,
) -> Result<TableFacts, Fail> {
    let declared = table.declared_keys();
    let search = if declared.is_empty() { Search::ForKey } else { Search::ForNothing };
    let (mut seen, mut walked) = survey(pool, table, options, is_wal, search)?;
    // What keeps a column out of keys, with its name.
    let unfit = |at: &usize| {
        let column = &table.columns[*at];
        seen.columns[*at].unfit(column).map(|why| format!("`{}` {why}", column.name))
    };
    let key = declared.iter().find(|key| key.iter().all(|at| unfit(at).is_none()));
    if let Some(why) = declared.first().and_then(|first| first.iter().find_map(unfit)) {
        notes.push(format!("`{}`: the key that is declared is not used, because {why}", table.name));
    }
    if key.is_none() && !declared.is_empty() {
        (seen, walked) = survey(pool, table, options, is_wal, Search::ForKey)?;
    }
    for (column, seen) in table.columns.iter().zip(&seen.columns).filter(|(_, seen)| seen.broken > 0) {
        let (table, column, rows) = (&table.name, &column.name, counted(seen.broken));
        notes.push(format!(
            "`{table}`: the text in `{column}` is not UTF-8 in {rows}; it is told as base64, and not found by it"
        ));
    }
    Ok(seen.facts(table, key.cloned(), walked))
}

/// Whether values are remembered, to find a column that tells rows apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Search {
    ForKey,
    ForNothing,
}

fn survey(
    pool: &Pool,
    table: &Table,
    options: &Options,
    is_wal: bool,
    search: Search,
) -> Result<(Survey, Walked), Fail> {
    let names: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let time = Duration::from_millis(options.scan_ms_max);
    let mut seen = Survey::new(table, options.scan_rows_max, search);
    let walked = match Walk::new(table, &names) {
        Some(walk) => {
            let limits = Limits { until: Instant::now() + time, stop: None, progress: None };
            walk.run(pool, &limits, &mut |row| seen.row(row, walk.address))?
        }
        None => {
            let sql = format!("SELECT {} FROM {}", names.join(", "), table.sql_name());
            let hold = if is_wal { time } else { VIEW_HOLD.min(time) };
            let read = pool.read(|session| {
                seen = Survey::new(table, options.scan_rows_max, search);
                session.hold_at_most(hold);
                let mut statement = session.connection.prepare(&sql)?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    if seen.row(row, 0)? == Step::Enough {
                        return Ok(Walked::Part);
                    }
                }
                Ok(Walked::Whole)
            });
            match read {
                Err(Fail::Late) => Walked::Part,
                other => other?,
            }
        }
    };
    Ok((seen, walked))
}

/// What the rows of a table have shown so far.
struct Survey {
    columns: Vec<Seen>,
    candidates: Vec<Candidate>,
    rows: u64,
    rows_max: u64,
    hasher: RandomState,
}

/// A column that has told all rows apart so far.
struct Candidate {
    column: usize,
    hashes: HashSet<u64, RandomState>,
}

impl Survey {
    fn new(table: &Table, rows_max: u64, search: Search) -> Self {
        let simple = |column: &Declared| search == Search::ForKey && column.affinity != Affinity::Real;
        let places = table.columns.iter().enumerate().filter(|(_, column)| simple(column));
        let candidates = places.map(|(column, _)| Candidate { column, hashes: HashSet::default() }).collect();
        let columns = table.columns.iter().map(Seen::new).collect();
        Self { columns, candidates, rows: 0, rows_max, hasher: RandomState::default() }
    }

    /// `from` is where the table's columns begin in the row.
    fn row(&mut self, row: &Row<'_>, from: usize) -> Result<Step, Fail> {
        if self.rows == self.rows_max {
            return Ok(Step::Enough);
        }
        self.rows += 1;
        for (at, seen) in self.columns.iter_mut().enumerate() {
            seen.see(row.get_ref(from + at)?);
        }
        let hasher = &self.hasher;
        self.candidates.retain_mut(|candidate| {
            // Values that hash alike by chance cost us a key, and no more.
            let hash = match row.get_ref(from + candidate.column).map(raw) {
                Ok(Cell::Text(text)) if text.len() <= KEY_BYTES_MAX => hasher.hash_one(text),
                Ok(Cell::Integer(n)) => hasher.hash_one(n),
                Ok(Cell::Null | Cell::Real(_) | Cell::Text(_) | Cell::Blob(_)) | Err(_) => return false,
            };
            candidate.hashes.insert(hash)
        });
        if self.rows * self.candidates.len() as u64 > HASHES_MAX {
            self.candidates.pop();
        }
        Ok(Step::On)
    }

    /// `key` is what is declared and can be used.
    fn facts(self, table: &Table, key: Option<Vec<usize>>, walked: Walked) -> TableFacts {
        let is_whole = walked == Walked::Whole;
        let key_is_declared = key.is_some();
        let mut key = key.unwrap_or_default();
        let columns = table.columns.iter().zip(self.columns);
        let columns: Vec<ColumnFacts> =
            columns.map(|(declared, seen)| seen.facts(declared, table.is_strict, is_whole)).collect();
        let plain = |column: &ColumnFacts| {
            !column.mixed && matches!(column.kind, Kind::Text | Kind::Integer | Kind::Int64)
        };
        let mut found = self.candidates.iter().map(|candidate| candidate.column);
        if key.is_empty() && is_whole && self.rows > 0 {
            key.extend(found.find(|at| plain(&columns[*at])));
        }
        let rows = is_whole.then_some(self.rows);
        TableFacts { key, key_is_declared, rows, ..TableFacts::new(&table.name, columns) }
    }
}

/// What one column has shown so far, by the class in which SQLite stores a value.
struct Seen {
    nulls: u64,
    integers: u64,
    /// Beyond what every reader of JSON keeps.
    large: u64,
    /// Neither 0 nor 1.
    not_bits: u64,
    reals: u64,
    infinite: u64,
    texts: u64,
    /// Too long for a key.
    long: u64,
    /// Not UTF-8.
    broken: u64,
    blobs: u64,
    is_declared_json: bool,
    /// Texts that are no JSON, in a column that is declared so.
    has_other_texts: bool,
    guess: Guess,
    fits: Fits,
}

impl Seen {
    fn new(column: &Declared) -> Self {
        Self {
            nulls: 0,
            integers: 0,
            large: 0,
            not_bits: 0,
            reals: 0,
            infinite: 0,
            texts: 0,
            long: 0,
            broken: 0,
            blobs: 0,
            is_declared_json: is_json(&column.declared),
            has_other_texts: false,
            guess: Guess::default(),
            fits: Fits::default(),
        }
    }

    fn see(&mut self, value: rusqlite::types::ValueRef<'_>) {
        let is_text = matches!(value, rusqlite::types::ValueRef::Text(_));
        let cell = raw(value);
        if cell != Cell::Null {
            self.fits.see(cell, |kind| can_be_told(kind, cell));
        }
        match cell {
            Cell::Null => self.nulls += 1,
            Cell::Integer(n) => {
                self.integers += 1;
                self.large += u64::from(!(-EXACT_MAX..=EXACT_MAX).contains(&n));
                self.not_bits += u64::from(!(0..=1).contains(&n));
            }
            Cell::Real(n) => {
                self.reals += 1;
                self.infinite += u64::from(!n.is_finite());
            }
            Cell::Text(text) => {
                self.texts += 1;
                self.long += u64::from(text.len() > KEY_BYTES_MAX);
                self.guess.see(text);
                // As long as all values are JSON, this one is.
                if self.is_declared_json && !self.has_other_texts && !self.fits.has(Kind::Json, None) {
                    self.has_other_texts = !infer::is(Kind::Json, text);
                }
            }
            Cell::Blob(_) if is_text => self.broken += 1,
            Cell::Blob(_) => self.blobs += 1,
        }
    }

    fn facts(self, column: &Declared, is_strict: bool, is_whole: bool) -> ColumnFacts {
        let (mut kind, mut mixed) = self.kind(column);
        if !is_whole && !column.is_rowid {
            // Rows that were not seen may hold anything that the declaration lets in.
            match (is_strict, column.affinity) {
                (true, Affinity::Text) => (kind, mixed) = (Kind::Text, mixed && self.broken > 0),
                (true, Affinity::Blob) if column.declared == "BLOB" => {}
                _ => mixed = true,
            }
        }
        let values = if is_whole && kind == Kind::Text && !mixed { self.guess.values() } else { Vec::new() };
        // SQLite makes a binary fraction of a decimal in a column of numbers, before anybody can see it.
        let is_number = matches!(column.affinity, Affinity::Numeric | Affinity::Real | Affinity::Integer);
        let inexact = (kind == Kind::Decimal && is_number)
            .then(|| "keeps 15 digits of a decimal, because SQLite itself rounds what is beyond".to_owned());
        ColumnFacts {
            nullable: !column.is_required,
            mixed,
            values,
            has_default: column.has_default || column.is_rowid,
            read_only: column.is_computed.then(|| COMPUTED.into()),
            inexact,
            fits: Some(self.fits),
            ..ColumnFacts::new(&column.name, kind)
        }
    }

    /// Why this column cannot be part of a key, if it cannot. SQLite lets a primary key be NULL, any number of
    /// times, and hold anything; callers can only ask for what they can write down.
    fn unfit(&self, column: &Declared) -> Option<String> {
        let (kind, _) = self.kind(column);
        let (what, rows) = match self {
            Self { nulls: rows @ 1.., .. } => ("is NULL", *rows),
            Self { blobs: rows @ 1.., .. } => ("holds bytes", *rows),
            Self { broken: rows @ 1.., .. } => ("holds text that is not UTF-8", *rows),
            Self { long: rows @ 1.., .. } => {
                return Some(format!("is longer than {KEY_BYTES_MAX} bytes in {}", counted(*rows)));
            }
            _ if !kind.is_scalar() => return Some(format!("is {}", kind.as_str())),
            _ => return None,
        };
        Some(format!("{what} in {}", counted(rows)))
    }

    /// The kind of most values, and whether there are others.
    fn kind(&self, column: &Declared) -> (Kind, bool) {
        let numbers = self.integers + self.reals;
        let texts = self.texts + self.broken;
        let most = numbers.max(texts).max(self.blobs);
        if most == 0 {
            return declared_kind(column);
        }
        if numbers == most && (texts < most || column.affinity != Affinity::Text) {
            (self.number_kind(column), texts + self.blobs + self.infinite > 0)
        } else if texts == most {
            (self.text_kind(column), numbers + self.blobs + self.broken > 0)
        } else {
            (Kind::Blob, numbers + texts > 0)
        }
    }

    fn number_kind(&self, column: &Declared) -> Kind {
        let has_reals = self.reals > 0;
        if is_decimal(&column.declared) || (has_reals && self.large > 0) {
            Kind::Decimal
        } else if has_reals {
            Kind::Number
        } else if is_boolean(&column.declared) && self.not_bits == 0 {
            Kind::Boolean
        } else if self.large > 0 {
            Kind::Int64
        } else {
            Kind::Integer
        }
    }

    fn text_kind(&self, column: &Declared) -> Kind {
        if self.is_declared_json && !self.has_other_texts {
            return Kind::Json;
        }
        match self.guess.kind() {
            kind @ (Kind::Date | Kind::Timestamp | Kind::LocalTimestamp) => kind,
            Kind::Boolean if is_boolean(&column.declared) => Kind::Boolean,
            Kind::Integer | Kind::Int64 | Kind::Decimal if is_decimal(&column.declared) => Kind::Decimal,
            // Digits that somebody keeps as text are a code, not a number.
            _ => Kind::Text,
        }
    }
}

/// Whether a call can tell a value as one of a kind. What is no bytes can be told as text.
fn can_be_told(kind: Kind, cell: Cell<'_>) -> bool {
    match (kind, cell) {
        (Kind::Text, Cell::Integer(_) | Cell::Real(_)) => true,
        (Kind::Json, Cell::Text(text)) => infer::is(Kind::Json, text),
        (kind, cell) => is_of(kind, cell),
    }
}

/// What a column without values will hold, if it keeps to its declaration.
fn declared_kind(column: &Declared) -> (Kind, bool) {
    let declared = &column.declared;
    if is_json(declared) {
        return (Kind::Json, true);
    }
    match column.affinity {
        Affinity::Integer => (Kind::Integer, false),
        Affinity::Real => (Kind::Number, false),
        Affinity::Text => (Kind::Text, false),
        Affinity::Blob if declared == "BLOB" => (Kind::Blob, false),
        Affinity::Numeric if is_decimal(declared) => (Kind::Decimal, false),
        Affinity::Numeric if is_boolean(declared) => (Kind::Boolean, false),
        Affinity::Numeric | Affinity::Blob => (Kind::Text, true),
    }
}

fn counted(rows: u64) -> String {
    if rows == 1 { "1 row".into() } else { format!("{rows} rows") }
}

fn is_decimal(declared: &str) -> bool {
    ["DECIMAL", "NUMERIC", "MONEY"].iter().any(|name| declared.contains(name))
}

fn is_boolean(declared: &str) -> bool {
    declared == "BOOLEAN" || declared == "BOOL"
}

fn is_json(declared: &str) -> bool {
    declared == "JSON" || declared == "JSONB"
}

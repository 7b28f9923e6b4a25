//! What is in the tables: every row is looked at once, within limits.

use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use contract::cursor::KEY_BYTES_MAX;
use contract::infer::{self, SAFE_INTEGER_MAX, TypeInference};
use contract::source::{
    ColumnFacts, NearMiss, PossibleTypes, SearchFacts, SourceError, SourceFacts, TableFacts,
};
use contract::{DataType, ValueRef};
use foldhash::fast::RandomState;
use hashbrown::HashSet;
use rusqlite::Row;

use super::Options;
use super::column::{from_sqlite, is_of_type};
use super::error::{DbError, TOO_BIG, file_name_of};
use super::pool::ConnectionPool;
use super::roundtrip::GENERATED;
use super::schema::{self, Affinity, ColumnDef, Schema, Table, TableKind, quote_identifier};
use super::table_scan::{ScanControl, ScanCoverage, ScanStep, TableScan};
use super::write_connection;

/// How many values may be remembered to find a key: some 16 bytes each.
const HASHES_MAX: u64 = 4_000_000;
/// A view is read in one go, which keeps writers waiting.
const VIEW_LOCK_HOLD_MAX: Duration = Duration::from_millis(25);

pub(super) fn collect_facts(
    pool: &ConnectionPool,
    options: &Options,
    schema: &Schema,
) -> Result<SourceFacts, SourceError> {
    let Schema { tables, notes, left_out, is_wal, .. } = schema;
    let surveyed_tables = Vec::with_capacity(tables.len());
    let (notes, left_out) = (notes.clone(), left_out.clone());
    let mut facts =
        SourceFacts { tables: surveyed_tables, notes, skipped_tables: left_out, ..SourceFacts::default() };
    let forbidden = write_connection::file_read_only_reason(pool.path());
    for table in tables {
        match profile_table(pool, table, options, *is_wal, &mut facts.notes) {
            Ok(mut surveyed) => {
                facts.notes.extend(table.columns.iter().filter_map(|column| precision_note(table, column)));
                surveyed.read_only_reason = table_read_only_reason(table).or_else(|| forbidden.clone());
                surveyed.search = search_facts(table);
                facts.tables.push(surveyed);
            }
            // A view may call what is not allowed, or what is gone.
            Err(DbError::Sql(error)) if schema::is_table_error(&error) => {
                facts.skipped_tables.push(schema::skipped_table(&table.name, schema::UNREADABLE));
            }
            Err(fail) if fail.is_too_big() => {
                facts.skipped_tables.push(schema::skipped_table(&table.name, format!("it has {TOO_BIG}")));
            }
            Err(fail) => return Err(pool.source_error(fail)),
        }
    }
    if facts.tables.is_empty() {
        let name = file_name_of(pool.path());
        let told = match &facts.skipped_tables[..] {
            [] => format!("`{name}` has no tables; is it the right file?"),
            [one] => format!("`{name}` has no tables that can be read: {one}"),
            [one, others @ ..] => {
                let others = others.len();
                format!("`{name}` has no tables that can be read: {one}, and {others} more")
            }
        };
        let log = facts.skipped_tables.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        return Err(SourceError::Incompatible { message: told, detail: log });
    }
    Ok(facts)
}

/// Why no row of it can be changed, if none can.
fn table_read_only_reason(table: &Table) -> Option<String> {
    match table.kind {
        TableKind::Ordinary => None,
        TableKind::View => Some("it is a view".into()),
        TableKind::Virtual => Some("it is a virtual table".into()),
    }
}

fn search_facts(table: &Table) -> SearchFacts {
    match &table.fts_index {
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
fn precision_note(table: &Table, column: &ColumnDef) -> Option<String> {
    let (name, digits) = column.declared_type.split_once('(')?;
    let digits: u32 = digits.split([',', ')']).next()?.trim().parse().ok()?;
    let is_number = matches!(column.affinity, Affinity::Numeric | Affinity::Real);
    let is_meant = is_decimal(name) || column.affinity == Affinity::Real;
    (is_number && is_meant && digits > DIGITS_MAX).then(|| {
        let (table, ColumnDef { name, declared_type: declared, .. }) = (&table.name, column);
        format!(
            "`{table}`: `{name}` is declared as `{declared}`, and SQLite keeps {DIGITS_MAX} digits of a fraction; what \
             has more is not written; a column of the type TEXT keeps them all"
        )
    })
}

/// Looks at a table once. If nothing that is declared can be its key, it is looked at again to find one: to
/// remember all values of all columns costs too much to do it for nothing.
fn profile_table(
    pool: &ConnectionPool,
    table: &Table,
    options: &Options,
    is_wal: bool,
    notes: &mut Vec<String>,
) -> Result<TableFacts, DbError> {
    let declared = table.declared_keys();
    let search = if declared.is_empty() { KeyDetection::Enabled } else { KeyDetection::Disabled };
    let (mut seen, mut walked) = scan_profile(pool, table, options, is_wal, search)?;
    // What keeps a column out of keys, with its name.
    let unfit = |at: &usize| {
        let column = &table.columns[*at];
        seen.columns[*at].key_rejection(column).map(|why| format!("`{}` {why}", column.name))
    };
    let key = declared.iter().find(|key| key.iter().all(|at| unfit(at).is_none()));
    if let Some(why) = declared.first().and_then(|first| first.iter().find_map(unfit)) {
        notes.push(format!("`{}`: the key that is declared is not used, because {why}", table.name));
    }
    if key.is_none() && !declared.is_empty() {
        (seen, walked) = scan_profile(pool, table, options, is_wal, KeyDetection::Enabled)?;
    }
    for (column, seen) in table.columns.iter().zip(&seen.columns).filter(|(_, seen)| seen.invalid_utf8 > 0) {
        let (table, column, rows) = (&table.name, &column.name, format_row_count(seen.invalid_utf8));
        notes.push(format!(
            "`{table}`: the text in `{column}` is not UTF-8 in {rows}; it is told as base64, and not found by it"
        ));
    }
    Ok(seen.into_facts(table, key.cloned(), walked))
}

/// Whether values are remembered, to find a column that tells rows apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyDetection {
    Enabled,
    Disabled,
}

fn scan_profile(
    pool: &ConnectionPool,
    table: &Table,
    options: &Options,
    is_wal: bool,
    search: KeyDetection,
) -> Result<(TableProfile, ScanCoverage), DbError> {
    let names: Vec<String> = table.columns.iter().map(|column| quote_identifier(&column.name)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let time = Duration::from_millis(options.scan_ms_max);
    let mut seen = TableProfile::new(table, options.scan_rows_max, search);
    let walked = match TableScan::new(table, &names) {
        Some(walk) => {
            let limits = ScanControl { deadline: Instant::now() + time, cancelled: None, progress: None };
            walk.run(pool, &limits, &mut |row| seen.add_row(row, walk.locator_width))?
        }
        None => {
            let sql = format!("SELECT {} FROM {}", names.join(", "), table.sql_name());
            let hold = if is_wal { time } else { VIEW_LOCK_HOLD_MAX.min(time) };
            let read = pool.read(|session| {
                seen = TableProfile::new(table, options.scan_rows_max, search);
                session.set_deadline(hold);
                let mut statement = session.inner.prepare(&sql)?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    if seen.add_row(row, 0)? == ScanStep::Stop {
                        return Ok(ScanCoverage::Partial);
                    }
                }
                Ok(ScanCoverage::Complete)
            });
            match read {
                Err(DbError::DeadlineExceeded) => ScanCoverage::Partial,
                other => other?,
            }
        }
    };
    Ok((seen, walked))
}

/// What the rows of a table have shown so far.
struct TableProfile {
    columns: Vec<ColumnProfile>,
    candidates: Vec<KeyCandidate>,
    rows: u64,
    rows_max: u64,
    hasher: RandomState,
}

/// A column that has told all rows apart so far.
struct KeyCandidate {
    column: usize,
    hashes: HashSet<u64, RandomState>,
}

impl TableProfile {
    fn new(table: &Table, rows_max: u64, search: KeyDetection) -> Self {
        let simple =
            |column: &ColumnDef| search == KeyDetection::Enabled && column.affinity != Affinity::Real;
        let places = table.columns.iter().enumerate().filter(|(_, column)| simple(column));
        let candidates =
            places.map(|(column, _)| KeyCandidate { column, hashes: HashSet::default() }).collect();
        let columns = table.columns.iter().map(ColumnProfile::new).collect();
        Self { columns, candidates, rows: 0, rows_max, hasher: RandomState::default() }
    }

    /// `from` is where the table's columns begin in the row.
    fn add_row(&mut self, row: &Row<'_>, from: usize) -> Result<ScanStep, DbError> {
        if self.rows == self.rows_max {
            return Ok(ScanStep::Stop);
        }
        self.rows += 1;
        for (at, seen) in self.columns.iter_mut().enumerate() {
            seen.observe(self.rows - 1, row.get_ref(from + at)?);
        }
        let hasher = &self.hasher;
        self.candidates.retain_mut(|candidate| {
            // Values that hash alike by chance cost us a key, and no more.
            let hash = match row.get_ref(from + candidate.column).map(from_sqlite) {
                Ok(ValueRef::Text(text)) if text.len() <= KEY_BYTES_MAX => hasher.hash_one(text),
                Ok(ValueRef::Integer(n)) => hasher.hash_one(n),
                Ok(ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_)) | Err(_) => {
                    return false;
                }
            };
            candidate.hashes.insert(hash)
        });
        if self.rows * self.candidates.len() as u64 > HASHES_MAX {
            self.candidates.pop();
        }
        Ok(ScanStep::Continue)
    }

    /// `key` is what is declared and can be used.
    fn into_facts(self, table: &Table, key: Option<Vec<usize>>, walked: ScanCoverage) -> TableFacts {
        let is_whole = walked == ScanCoverage::Complete;
        let key_is_declared = key.is_some();
        let mut key = key.unwrap_or_default();
        let columns = table.columns.iter().zip(self.columns);
        let columns: Vec<ColumnFacts> =
            columns.map(|(declared, seen)| seen.into_facts(declared, table.is_strict, is_whole)).collect();
        let plain = |column: &ColumnFacts| {
            !column.mixed && matches!(column.data_type, DataType::Text | DataType::Integer | DataType::Int64)
        };
        let mut found = self.candidates.iter().map(|candidate| candidate.column);
        if key.is_empty() && is_whole && self.rows > 0 {
            key.extend(found.find(|at| plain(&columns[*at])));
        }
        let rows = is_whole.then_some(self.rows);
        TableFacts { key, key_is_declared, row_count: rows, ..TableFacts::new(&table.name, columns) }
    }
}

/// What one column has shown so far, by the class in which SQLite stores a value.
struct ColumnProfile {
    nulls: u64,
    integers: u64,
    /// Beyond what every reader of JSON keeps.
    unsafe_integers: u64,
    /// Neither 0 nor 1.
    non_boolean_integers: u64,
    reals: u64,
    non_finite_reals: u64,
    texts: u64,
    /// Too long for a key.
    too_long_for_key: u64,
    /// Not UTF-8.
    invalid_utf8: u64,
    blobs: u64,
    is_declared_json: bool,
    /// Texts that are no JSON, in a column that is declared so.
    has_non_json_texts: bool,
    inference: TypeInference,
    possible_types: PossibleTypes,
}

impl ColumnProfile {
    fn new(column: &ColumnDef) -> Self {
        Self {
            nulls: 0,
            integers: 0,
            unsafe_integers: 0,
            non_boolean_integers: 0,
            reals: 0,
            non_finite_reals: 0,
            texts: 0,
            too_long_for_key: 0,
            invalid_utf8: 0,
            blobs: 0,
            is_declared_json: is_json(&column.declared_type),
            has_non_json_texts: false,
            inference: TypeInference::default(),
            possible_types: PossibleTypes::default(),
        }
    }

    fn observe(&mut self, row: u64, value: rusqlite::types::ValueRef<'_>) {
        let is_text = matches!(value, rusqlite::types::ValueRef::Text(_));
        let cell = from_sqlite(value);
        if cell != ValueRef::Null {
            self.possible_types.observe(cell, |kind| is_representable(kind, cell));
        }
        match cell {
            ValueRef::Null => self.nulls += 1,
            ValueRef::Integer(n) => {
                self.integers += 1;
                self.unsafe_integers += u64::from(!(-SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX).contains(&n));
                self.non_boolean_integers += u64::from(!(0..=1).contains(&n));
            }
            ValueRef::Real(n) => {
                self.reals += 1;
                self.non_finite_reals += u64::from(!n.is_finite());
            }
            ValueRef::Text(text) => {
                self.texts += 1;
                self.too_long_for_key += u64::from(text.len() > KEY_BYTES_MAX);
                self.inference.observe(row, text);
                // As long as all values are JSON, this one is.
                if self.is_declared_json
                    && !self.has_non_json_texts
                    && !self.possible_types.includes(DataType::Json, None)
                {
                    self.has_non_json_texts = !infer::matches_type(DataType::Json, text);
                }
            }
            ValueRef::Blob(_) if is_text => self.invalid_utf8 += 1,
            ValueRef::Blob(_) => self.blobs += 1,
        }
    }

    fn into_facts(self, column: &ColumnDef, is_strict: bool, is_whole: bool) -> ColumnFacts {
        let (mut kind, mut mixed) = self.infer_type(column);
        if !is_whole && !column.is_rowid_alias {
            // Rows that were not seen may hold anything that the declaration lets in.
            match (is_strict, column.affinity) {
                (true, Affinity::Text) => (kind, mixed) = (DataType::Text, mixed && self.invalid_utf8 > 0),
                (true, Affinity::Blob) if column.declared_type == "BLOB" => {}
                _ => mixed = true,
            }
        }
        let near_miss = self.near_miss(kind);
        let values = if is_whole && kind == DataType::Text && !mixed {
            self.inference.distinct_values()
        } else {
            Vec::new()
        };
        // SQLite makes a binary fraction of a decimal in a column of numbers, before anybody can see it.
        let is_number = matches!(column.affinity, Affinity::Numeric | Affinity::Real | Affinity::Integer);
        let inexact = (kind == DataType::Decimal && is_number)
            .then(|| "keeps 15 digits of a decimal, because SQLite itself rounds what is beyond".to_owned());
        ColumnFacts {
            nullable: !column.is_not_null,
            mixed,
            distinct_values: values,
            has_default: column.has_default || column.is_rowid_alias,
            read_only_reason: column.is_generated.then(|| GENERATED.into()),
            precision_loss: inexact,
            possible_types: Some(self.possible_types),
            near_miss,
            ..ColumnFacts::new(&column.name, kind)
        }
    }

    /// Only a text column, or one of numbers with exceptions, can be a near miss.
    fn near_miss(&self, kind: DataType) -> Option<NearMiss> {
        match kind {
            DataType::Text | DataType::Integer | DataType::Int64 | DataType::Decimal | DataType::Number => {
                let (numbers, others) = (self.integers + self.reals, self.blobs + self.invalid_utf8);
                self.inference.near_miss(numbers, others, |row| format!("row {}", row + 1))
            }
            DataType::Boolean
            | DataType::Date
            | DataType::Timestamp
            | DataType::LocalTimestamp
            | DataType::Json
            | DataType::Blob => None,
        }
    }

    /// Why this column cannot be part of a key, if it cannot. SQLite lets a primary key be NULL, any number of
    /// times, and hold anything; callers can only ask for what they can write down.
    fn key_rejection(&self, column: &ColumnDef) -> Option<String> {
        let (kind, _) = self.infer_type(column);
        let (what, rows) = match self {
            Self { nulls: rows @ 1.., .. } => ("is NULL", *rows),
            Self { blobs: rows @ 1.., .. } => ("holds bytes", *rows),
            Self { invalid_utf8: rows @ 1.., .. } => ("holds text that is not UTF-8", *rows),
            Self { too_long_for_key: rows @ 1.., .. } => {
                return Some(format!("is longer than {KEY_BYTES_MAX} bytes in {}", format_row_count(*rows)));
            }
            _ if !kind.is_scalar() => return Some(format!("is {}", kind.as_str())),
            _ => return None,
        };
        Some(format!("{what} in {}", format_row_count(rows)))
    }

    /// The kind of most values, and whether there are others.
    fn infer_type(&self, column: &ColumnDef) -> (DataType, bool) {
        let numbers = self.integers + self.reals;
        let texts = self.texts + self.invalid_utf8;
        let most = numbers.max(texts).max(self.blobs);
        if most == 0 {
            return declared_data_type(column);
        }
        if numbers == most && (texts < most || column.affinity != Affinity::Text) {
            (self.number_type(column), texts + self.blobs + self.non_finite_reals > 0)
        } else if texts == most {
            (self.text_type(column), numbers + self.blobs + self.invalid_utf8 > 0)
        } else {
            (DataType::Blob, numbers + texts > 0)
        }
    }

    fn number_type(&self, column: &ColumnDef) -> DataType {
        let has_reals = self.reals > 0;
        if is_decimal(&column.declared_type) || (has_reals && self.unsafe_integers > 0) {
            DataType::Decimal
        } else if has_reals {
            DataType::Number
        } else if is_boolean(&column.declared_type) && self.non_boolean_integers == 0 {
            DataType::Boolean
        } else if self.unsafe_integers > 0 {
            DataType::Int64
        } else {
            DataType::Integer
        }
    }

    fn text_type(&self, column: &ColumnDef) -> DataType {
        if self.is_declared_json && !self.has_non_json_texts {
            return DataType::Json;
        }
        match self.inference.data_type() {
            kind @ (DataType::Date | DataType::Timestamp | DataType::LocalTimestamp) => kind,
            DataType::Boolean if is_boolean(&column.declared_type) => DataType::Boolean,
            DataType::Integer | DataType::Int64 | DataType::Decimal if is_decimal(&column.declared_type) => {
                DataType::Decimal
            }
            // Digits that somebody keeps as text are a code, not a number.
            _ => DataType::Text,
        }
    }
}

/// Whether a call can tell a value as one of a kind. What is no bytes can be told as text.
fn is_representable(kind: DataType, cell: ValueRef<'_>) -> bool {
    match (kind, cell) {
        (DataType::Text, ValueRef::Integer(_) | ValueRef::Real(_)) => true,
        (DataType::Json, ValueRef::Text(text)) => infer::matches_type(DataType::Json, text),
        (kind, cell) => is_of_type(kind, cell),
    }
}

/// What a column without values will hold, if it keeps to its declaration.
fn declared_data_type(column: &ColumnDef) -> (DataType, bool) {
    let declared = &column.declared_type;
    if is_json(declared) {
        return (DataType::Json, true);
    }
    match column.affinity {
        Affinity::Integer => (DataType::Integer, false),
        Affinity::Real => (DataType::Number, false),
        Affinity::Text => (DataType::Text, false),
        Affinity::Blob if declared == "BLOB" => (DataType::Blob, false),
        Affinity::Numeric if is_decimal(declared) => (DataType::Decimal, false),
        Affinity::Numeric if is_boolean(declared) => (DataType::Boolean, false),
        Affinity::Numeric | Affinity::Blob => (DataType::Text, true),
    }
}

fn format_row_count(rows: u64) -> String {
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

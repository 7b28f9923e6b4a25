//! Profiles the tables: reads every row once, within limits, to infer column types and keys.

use std::hash::BuildHasher;
use std::path::Path;
use std::time::{Duration, Instant};

use contract::cursor::KEY_BYTES_MAX;
use contract::humanize::pluralize;
use contract::infer::{self, SAFE_INTEGER_MAX, TypeInference};
use contract::source::{
    ColumnFacts, NearMiss, PossibleTypes, SearchFacts, SourceError, SourceFacts, TableFacts, WriteSupport,
};
use contract::{DataType, ValueRef};
use foldhash::fast::RandomState;
use hashbrown::HashSet;
use rusqlite::Row;

use crate::sqlite::Options;
use crate::sqlite::column::{from_sqlite, is_of_type};
use crate::sqlite::connection::pool::ConnectionPool;
use crate::sqlite::error::{DbError, TOO_BIG, file_name_of};
use crate::sqlite::read::table_scan::{ScanControl, ScanCoverage, ScanStep, TableScan};
use crate::sqlite::schema::{
    self, Affinity, ColumnDef, GENERATED, Schema, Table, TableKind, foreign_keys, quote_identifier,
};

/// How many hashes may be kept to detect a key: about 16 bytes each.
const HASHES_MAX: u64 = 4_000_000;
/// A view is read in one piece, which blocks writers.
const VIEW_LOCK_HOLD_MAX: Duration = Duration::from_millis(25);

pub(crate) fn collect_facts(
    pool: &ConnectionPool,
    options: &Options,
    schema: &Schema,
) -> Result<SourceFacts, SourceError> {
    let Schema { tables, notes, left_out, is_wal, .. } = schema;
    let table_facts = Vec::with_capacity(tables.len());
    let (notes, left_out) = (notes.clone(), left_out.clone());
    let mut facts =
        SourceFacts { tables: table_facts, notes, skipped_tables: left_out, ..SourceFacts::default() };
    let file_reason = file_read_only_reason(pool.path());
    for table in tables {
        match profile_table(pool, table, options, *is_wal, &mut facts.notes) {
            Ok(mut table_facts) => {
                facts.notes.extend(table.columns.iter().filter_map(|column| precision_note(table, column)));
                let reason = table_read_only_reason(table).or_else(|| file_reason.clone());
                table_facts.write_support = WriteSupport::transactional_unless(reason);
                table_facts.search = search_facts(table);
                table_facts.foreign_keys = foreign_keys::resolve(table, tables);
                facts.tables.push(table_facts);
            }
            // A view may call a function that is not allowed, or use a table that no longer exists.
            Err(DbError::Sql(error)) if schema::is_table_error(&error) => {
                facts
                    .skipped_tables
                    .push(schema::skipped_table(&table.name, schema::unreadable_reason(&error)));
            }
            Err(error) if error.is_too_big() => {
                facts.skipped_tables.push(schema::skipped_table(&table.name, format!("it has {TOO_BIG}")));
            }
            Err(error) => return Err(pool.source_error(error)),
        }
    }
    if facts.tables.is_empty() {
        let name = file_name_of(pool.path());
        let message = match &facts.skipped_tables[..] {
            [] => format!("`{name}` has no tables; is it the right file?"),
            [one] => format!("no table of `{name}` can be served: {one}"),
            [one, others @ ..] => {
                let others = others.len();
                format!("no table of `{name}` can be served: {one}, and {others} more")
            }
        };
        let detail = facts.skipped_tables.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        return Err(SourceError::Incompatible { message, detail });
    }
    Ok(facts)
}

/// Why the file cannot be written at all.
fn file_read_only_reason(path: &Path) -> Option<String> {
    let is_closed = |path: &Path| std::fs::metadata(path).is_ok_and(|file| file.permissions().readonly());
    if is_closed(path) {
        return Some("the file is read only".into());
    }
    let path = path.canonicalize().ok()?;
    // The journal is created beside it.
    path.parent().is_some_and(is_closed).then(|| "its folder is read only".into())
}

/// Why the table's rows cannot be changed, if they cannot.
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
            let mut places: Vec<usize> = index.columns.iter().map(|(_, index)| *index).collect();
            places.sort_unstable();
            places.dedup();
            SearchFacts::Indexed(places)
        }
    }
}

/// How many decimal digits SQLite keeps of a number that is not an integer.
const DIGITS_MAX: u32 = 15;

/// A note about a column that declares more digits than SQLite stores.
fn precision_note(table: &Table, column: &ColumnDef) -> Option<String> {
    let (name, digits) = column.declared_type.split_once('(')?;
    let digits: u32 = digits.split([',', ')']).next()?.trim().parse().ok()?;
    let is_number = matches!(column.affinity, Affinity::Numeric | Affinity::Real);
    let is_meant = is_decimal(name) || column.affinity == Affinity::Real;
    (is_number && is_meant && digits > DIGITS_MAX).then(|| {
        let (table, ColumnDef { name, declared_type: declared, .. }) = (&table.name, column);
        format!(
            "`{table}`: `{name}` is declared as `{declared}`, but SQLite stores {DIGITS_MAX} significant digits; writes \
             with more are rejected; use a TEXT column to store all digits"
        )
    })
}

/// Reads a table once. If no declared key is usable, reads it again to detect one: keeping hashes of all
/// values is too expensive to do every time.
fn profile_table(
    pool: &ConnectionPool,
    table: &Table,
    options: &Options,
    is_wal: bool,
    notes: &mut Vec<String>,
) -> Result<TableFacts, DbError> {
    let declared = table.declared_keys();
    let key_detection = if declared.is_empty() { KeyDetection::Enabled } else { KeyDetection::Disabled };
    let (mut profile, mut coverage) = scan_profile(pool, table, options, is_wal, key_detection)?;
    // Why a column cannot be part of a key.
    let rejection = |index: &usize| {
        let column = &table.columns[*index];
        profile.columns[*index].key_rejection(column).map(|reason| format!("`{}` {reason}", column.name))
    };
    let key = declared.iter().find(|key| key.iter().all(|index| rejection(index).is_none()));
    if let Some(reason) = declared.first().and_then(|first| first.iter().find_map(rejection)) {
        notes.push(format!("`{}`: the declared key is not used, because {reason}", table.name));
    }
    if key.is_none() && !declared.is_empty() {
        (profile, coverage) = scan_profile(pool, table, options, is_wal, KeyDetection::Enabled)?;
    }
    for (column, profile) in
        table.columns.iter().zip(&profile.columns).filter(|(_, profile)| profile.invalid_utf8 > 0)
    {
        let (table, column, rows) = (&table.name, &column.name, pluralize(profile.invalid_utf8, "row"));
        notes.push(format!(
            "`{table}`: the text in `{column}` is not valid UTF-8 in {rows}; it is returned as base64 and cannot be filtered by"
        ));
    }
    Ok(profile.into_facts(table, key.cloned(), coverage))
}

/// Whether to keep hashes of the values, to detect a column with unique values.
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
    key_detection: KeyDetection,
) -> Result<(TableProfile, ScanCoverage), DbError> {
    let names: Vec<String> = table.columns.iter().map(|column| quote_identifier(&column.name)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let timeout = Duration::from_millis(options.scan_ms_max);
    let mut profile = TableProfile::new(table, options.scan_rows_max, key_detection);
    let coverage = match TableScan::new(table, &names) {
        Some(scan) => {
            let control =
                ScanControl { deadline: Some(Instant::now() + timeout), cancelled: None, progress: None };
            scan.run(pool, &control, &mut |row| profile.add_row(row, scan.locator_width))?
        }
        None => {
            let sql = format!("SELECT {} FROM {}", names.join(", "), table.sql_name());
            let lock_hold_max = if is_wal { timeout } else { VIEW_LOCK_HOLD_MAX.min(timeout) };
            let read = pool.read(|connection| {
                profile = TableProfile::new(table, options.scan_rows_max, key_detection);
                connection.set_deadline(lock_hold_max);
                let mut statement = connection.inner.prepare(&sql)?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    if profile.add_row(row, 0)? == ScanStep::Stop {
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
    Ok((profile, coverage))
}

/// What the rows of a table have shown so far.
struct TableProfile {
    columns: Vec<ColumnProfile>,
    candidates: Vec<KeyCandidate>,
    rows: u64,
    rows_max: u64,
    hasher: RandomState,
}

/// A column whose values have all been different so far.
struct KeyCandidate {
    column: usize,
    hashes: HashSet<u64, RandomState>,
}

impl TableProfile {
    fn new(table: &Table, rows_max: u64, key_detection: KeyDetection) -> Self {
        let simple =
            |column: &ColumnDef| key_detection == KeyDetection::Enabled && column.affinity != Affinity::Real;
        let places = table.columns.iter().enumerate().filter(|(_, column)| simple(column));
        let candidates =
            places.map(|(column, _)| KeyCandidate { column, hashes: HashSet::default() }).collect();
        let columns = table.columns.iter().map(ColumnProfile::new).collect();
        Self { columns, candidates, rows: 0, rows_max, hasher: RandomState::default() }
    }

    /// `from` is the index of the table's first column in the row.
    fn add_row(&mut self, row: &Row<'_>, from: usize) -> Result<ScanStep, DbError> {
        if self.rows == self.rows_max {
            return Ok(ScanStep::Stop);
        }
        self.rows += 1;
        for (index, profile) in self.columns.iter_mut().enumerate() {
            profile.observe(self.rows - 1, row.get_ref(from + index)?);
        }
        let hasher = &self.hasher;
        self.candidates.retain_mut(|candidate| {
            // A hash collision only loses a key candidate.
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

    /// `key` is the declared key, if it is usable.
    fn into_facts(self, table: &Table, key: Option<Vec<usize>>, coverage: ScanCoverage) -> TableFacts {
        let is_complete = coverage == ScanCoverage::Complete;
        let key_is_declared = key.is_some();
        let mut key = key.unwrap_or_default();
        let columns = table.columns.iter().zip(self.columns);
        let columns: Vec<ColumnFacts> = columns
            .map(|(declared, profile)| profile.into_facts(declared, table.is_strict, is_complete))
            .collect();
        let plain = |column: &ColumnFacts| {
            !column.mixed && matches!(column.data_type, DataType::Text | DataType::Integer | DataType::Int64)
        };
        let mut found = self.candidates.iter().map(|candidate| candidate.column);
        if key.is_empty() && is_complete && self.rows > 0 {
            key.extend(found.find(|index| plain(&columns[*index])));
        }
        let rows = is_complete.then_some(self.rows);
        TableFacts { key, key_is_declared, row_count: rows, ..TableFacts::new(&table.name, columns) }
    }
}

/// What one column has shown so far, by SQLite's storage class.
struct ColumnProfile {
    nulls: u64,
    integers: u64,
    /// Integers that JSON readers with 64-bit floats would round.
    unsafe_integers: u64,
    /// Neither 0 nor 1.
    non_boolean_integers: u64,
    reals: u64,
    non_finite_reals: u64,
    texts: u64,
    /// Too long for a key.
    too_long_for_key: u64,
    /// Not valid UTF-8.
    invalid_utf8: u64,
    blobs: u64,
    is_declared_json: bool,
    /// Whether a column that is declared as JSON has texts that are not.
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
        let value_ref = from_sqlite(value);
        if value_ref != ValueRef::Null {
            self.possible_types.observe(value_ref, |data_type| is_representable(data_type, value_ref));
        }
        match value_ref {
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
                // While all values are JSON, this one is too.
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

    fn into_facts(self, column: &ColumnDef, is_strict: bool, is_complete: bool) -> ColumnFacts {
        let (mut data_type, mut mixed) = self.infer_type(column);
        if !is_complete && !column.is_rowid_alias {
            // Rows that were not read may hold anything that the declaration allows.
            match (is_strict, column.affinity) {
                (true, Affinity::Text) => {
                    (data_type, mixed) = (DataType::Text, mixed && self.invalid_utf8 > 0)
                }
                (true, Affinity::Blob) if column.declared_type == "BLOB" => {}
                _ => mixed = true,
            }
        }
        let near_miss = self.near_miss(data_type);
        let values = if is_complete && data_type == DataType::Text && !mixed {
            self.inference.distinct_values()
        } else {
            Vec::new()
        };
        // In a numeric column SQLite converts a decimal to a binary fraction before we can see it.
        let is_number = matches!(column.affinity, Affinity::Numeric | Affinity::Real | Affinity::Integer);
        let inexact = (data_type == DataType::Decimal && is_number)
            .then(|| "stores 15 significant digits of a decimal: SQLite rounds the rest".to_owned());
        ColumnFacts {
            nullable: !column.is_not_null,
            mixed,
            distinct_values: values,
            has_default: column.has_default || column.is_rowid_alias,
            read_only_reason: column.is_generated.then(|| GENERATED.into()),
            precision_loss: inexact,
            possible_types: Some(self.possible_types),
            near_miss,
            ..ColumnFacts::new(&column.name, data_type)
        }
    }

    /// Only a text column, or one of numbers with exceptions, can be a near miss.
    fn near_miss(&self, data_type: DataType) -> Option<NearMiss> {
        match data_type {
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

    /// Why this column cannot be part of a key, or `None`. SQLite allows a primary key to be NULL, more than
    /// once, and to hold any value; callers can only send keys that JSON can express.
    fn key_rejection(&self, column: &ColumnDef) -> Option<String> {
        let (data_type, _) = self.infer_type(column);
        let (what, rows) = match self {
            Self { nulls: rows @ 1.., .. } => ("is NULL", *rows),
            Self { blobs: rows @ 1.., .. } => ("holds bytes", *rows),
            Self { invalid_utf8: rows @ 1.., .. } => ("holds text that is not UTF-8", *rows),
            Self { too_long_for_key: rows @ 1.., .. } => {
                return Some(format!("is longer than {KEY_BYTES_MAX} bytes in {}", pluralize(*rows, "row")));
            }
            _ if !data_type.is_scalar() => return Some(format!("is {}", data_type.as_str())),
            _ => return None,
        };
        Some(format!("{what} in {}", pluralize(rows, "row")))
    }

    /// The type of most values, and whether there are others.
    fn infer_type(&self, column: &ColumnDef) -> (DataType, bool) {
        let numbers = self.integers + self.reals;
        let texts = self.texts + self.invalid_utf8;
        let largest = numbers.max(texts).max(self.blobs);
        if largest == 0 {
            return declared_data_type(column);
        }
        if numbers == largest && (texts < largest || column.affinity != Affinity::Text) {
            (self.number_type(column), texts + self.blobs + self.non_finite_reals > 0)
        } else if texts == largest {
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
            data_type @ (DataType::Date | DataType::Timestamp | DataType::LocalTimestamp) => data_type,
            DataType::Boolean if is_boolean(&column.declared_type) => DataType::Boolean,
            DataType::Integer | DataType::Int64 | DataType::Decimal if is_decimal(&column.declared_type) => {
                DataType::Decimal
            }
            // Digits stored as text are a code, not a number.
            _ => DataType::Text,
        }
    }
}

/// Whether a response can show a value as a data type. Anything but a blob can be shown as text.
fn is_representable(data_type: DataType, value_ref: ValueRef<'_>) -> bool {
    match (data_type, value_ref) {
        (DataType::Text, ValueRef::Integer(_) | ValueRef::Real(_)) => true,
        (DataType::Json, ValueRef::Text(text)) => infer::matches_type(DataType::Json, text),
        (data_type, value_ref) => is_of_type(data_type, value_ref),
    }
}

/// The type of a column without values, according to its declaration.
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

fn is_decimal(declared: &str) -> bool {
    ["DECIMAL", "NUMERIC", "MONEY"].iter().any(|name| declared.contains(name))
}

fn is_boolean(declared: &str) -> bool {
    declared == "BOOLEAN" || declared == "BOOL"
}

fn is_json(declared: &str) -> bool {
    declared == "JSON" || declared == "JSONB"
}

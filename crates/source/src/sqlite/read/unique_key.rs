//! Checks, before the first call, that a key which the schema does not declare is unique.

use std::hash::{BuildHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use contract::source::{Query, SourceError};
use contract::{Value, ValueRef};
use foldhash::fast::RandomState;
use hashbrown::HashSet;
use rusqlite::Row;

use super::TableReader;
use super::row_buffer::RowBuffer;
use super::table_scan::{ScanControl, ScanStep, TableScan};
use crate::sqlite::Options;
use crate::sqlite::column::from_sqlite;
use crate::sqlite::connection::pool::ReadMode;
use crate::sqlite::error::DbError;

impl TableReader {
    /// Fails if more than one row has the same key. Reads no more rows, and takes no longer, than profiling the table
    /// does; a later duplicate is an error of the calls that meet it.
    pub(crate) fn check_unique_key(&self, options: &Options) -> Result<(), SourceError> {
        let names: Vec<&str> = self.key.iter().map(|at| self.columns[*at].quoted_name.as_str()).collect();
        // A view cannot be read in parts, and reading all of it would block writers.
        let Some(scan) = TableScan::new(&self.table, &names) else { return Ok(()) };
        let deadline = Instant::now() + Duration::from_millis(options.scan_ms_max);
        let control = ScanControl { deadline: Some(deadline), cancelled: None, progress: None };
        let hasher = RandomState::default();
        let mut hashes: HashSet<u64, RandomState> = HashSet::default();
        let mut repeated: Option<Vec<Value>> = None;
        let mut visit = |row: &Row<'_>| -> Result<ScanStep, DbError> {
            let key = (0..names.len())
                .map(|at| Ok(from_sqlite(row.get_ref(scan.locator_width + at)?).to_value()))
                .collect::<Result<Vec<Value>, DbError>>()?;
            // A row without a key is an error of its own.
            if key.contains(&Value::Null) || hashes.insert(hash_key(&hasher, &key)) {
                let is_within = (hashes.len() as u64) < options.scan_rows_max;
                return Ok(if is_within { ScanStep::Continue } else { ScanStep::Stop });
            }
            repeated = Some(key);
            Ok(ScanStep::Stop)
        };
        scan.run(&self.pool, &control, &mut visit).map_err(|error| self.pool.source_error(error))?;
        match repeated {
            // A hash collision only ends the check.
            Some(key) if self.is_repeated(&key) => Err(self.not_unique_error(&key)),
            Some(_) | None => Ok(()),
        }
    }

    fn is_repeated(&self, key: &[Value]) -> bool {
        let values: Vec<ValueRef<'_>> = key.iter().map(Value::as_value_ref).collect();
        let query = Query { filters: self.key_filters(&values), rows_max: 2, ..Query::default() };
        let mut page = RowBuffer::new(self.columns.len());
        self.fill_page(&query, None, 2, ReadMode::Blocking, &mut page).is_ok() && page.row_count() > 1
    }

    fn not_unique_error(&self, key: &[Value]) -> SourceError {
        let values: Vec<String> = key.iter().map(|value| format_value(value.as_value_ref())).collect();
        let noun = if values.len() == 1 { "value" } else { "values" };
        let message = format!(
            "table `{}`: the key {} is not unique: more than one row has the {noun} {}; choose another key, or several \
             columns with `key = [\"…\", \"…\"]`",
            self.table.name,
            self.key_names(),
            values.join(", ")
        );
        SourceError::Incompatible { detail: message.clone(), message }
    }

    /// For a call that meets two rows with the same key.
    pub(crate) fn duplicate_key_error(&self, key: &[ValueRef<'_>]) -> SourceError {
        let parts: Vec<String> = self
            .key
            .iter()
            .zip(key)
            .map(|(at, value)| format!("`{}` = {}", self.columns[*at].name, format_value(*value)))
            .collect();
        let message = format!(
            "table `{}`: two rows have the same key {}; the server's owner must remove one or choose another key",
            self.table.name,
            parts.join(", ")
        );
        SourceError::Incompatible { detail: message.clone(), message }
    }

    fn key_names(&self) -> String {
        let names: Vec<String> = self.key.iter().map(|at| format!("`{}`", self.columns[*at].name)).collect();
        names.join(", ")
    }
}

fn hash_key(hasher: &RandomState, key: &[Value]) -> u64 {
    let mut state = hasher.build_hasher();
    for value in key {
        match value {
            Value::Null => 0_u8.hash(&mut state),
            Value::Integer(n) => (1_u8, n).hash(&mut state),
            Value::Real(n) => (2_u8, n.to_bits()).hash(&mut state),
            Value::Text(text) => (3_u8, text).hash(&mut state),
            Value::Blob(bytes) => (4_u8, bytes).hash(&mut state),
        }
    }
    state.finish()
}

/// A key is never sensitive, so a message may show it.
fn format_value(value: ValueRef<'_>) -> String {
    const BYTES_MAX: usize = 80;
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(n) => format!("`{n}`"),
        ValueRef::Real(n) => format!("`{n}`"),
        ValueRef::Text(text) => format!("`{}`", &text[..text.floor_char_boundary(BYTES_MAX)]),
        ValueRef::Blob(bytes) => format!("({} bytes)", bytes.len()),
    }
}

//! Creates, updates and deletes one row by its key.
//!
//! In one transaction the row is found as a reader finds it, changed by its locator, and read back. The
//! stored values are compared with the values sent, because SQLite converts a value to the column's affinity.
//! The owner's triggers, defaults and foreign keys do their work; what they change in other columns is
//! returned, but a write whose own values they change is rejected.
//!
//! The SQL depends only on the columns that are set; the connection caches prepared statements.

pub(crate) mod idempotency;
pub(crate) mod roundtrip;
pub(crate) mod write_connection;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use contract::source::{
    IdempotencyKey, RowChange, RowTransaction, SourceError, TableShape, Transaction, TransactionOptions,
    WriteError, Writer,
};
use contract::{Value, ValueRef};
use rusqlite::{Row, Statement, params_from_iter};

use crate::sqlite::Options;
use crate::sqlite::column::{SqlParam, from_sqlite};
use crate::sqlite::connection::DbConnection;
use crate::sqlite::connection::authorizer::AccessMode;
use crate::sqlite::error::{self, ConstraintContext, DbError};
use crate::sqlite::read::TableReader;
use crate::sqlite::read::select_builder::{QueryParams, SqlTemplate};
use crate::sqlite::read::table_scan;
use crate::sqlite::schema::{Schema, TableKind};
use write_connection::{WriteConnection, WriteTransaction};

/// How long one change may take, including triggers, if its call cannot be cancelled.
const WRITE_TIMEOUT: Duration = Duration::from_millis(5_000);

pub(crate) struct SqliteWriter {
    write_connection: Arc<WriteConnection>,
    /// The table and how its rows are read.
    reader: TableReader,
    affected_tables: Arc<HashSet<String>>,
    /// The columns that identify a row within the transaction: quoted, with their index in the shape if they
    /// are part of it.
    locator: Vec<(String, Option<usize>)>,
    /// Finds a row by its key and returns its locator too.
    find_query: SqlTemplate,
    /// Reads a row by its locator.
    read_back_sql: String,
    delete_sql: String,
}

/// A row as a reader returns it, and its locator.
struct FoundRow {
    values: Vec<Value>,
    locator: Vec<Value>,
}

impl SqliteWriter {
    pub(crate) fn new(
        write_connection: &Arc<WriteConnection>,
        options: &Options,
        schema: &Schema,
        shape: &TableShape,
    ) -> Result<Self, SourceError> {
        let reader = TableReader::new(&write_connection.pool, options, schema, shape)?;
        if reader.table.kind != TableKind::Ordinary || reader.key.is_empty() {
            return Err(SourceError::read_only());
        }
        let mut locator = table_scan::locator_columns(&reader.table);
        if locator.is_empty() {
            // Columns have taken all names of the rowid.
            locator = reader.key.iter().map(|index| reader.columns[*index].quoted_name.clone()).collect();
        }
        let condition: Vec<String> = locator.iter().map(|column| format!("{column} IS ?")).collect();
        let (table, condition) = (&reader.sql_name, condition.join(" AND "));
        let columns: Vec<&str> = reader.columns.iter().map(|column| column.quoted_name.as_str()).collect();
        let read_back = format!("SELECT {} FROM {table} WHERE {condition}", columns.join(", "));
        let delete_sql = format!("DELETE FROM {table} WHERE {condition}");
        let find_query = reader.select_builder().build_key_lookup(&locator.join(", "));
        let shape_index =
            |name: &String| reader.columns.iter().position(|column| column.quoted_name == *name);
        let locator = locator.into_iter().map(|name| (name.clone(), shape_index(&name))).collect();
        let affected_tables = Arc::new(schema.affected_tables(&reader.table.name));
        let writer = Self {
            write_connection: Arc::clone(write_connection),
            locator,
            find_query,
            read_back_sql: read_back,
            delete_sql,
            affected_tables,
            reader,
        };
        write_connection.check_statements(
            writer.access_mode(),
            &[&writer.find_query.sql, &writer.read_back_sql, &writer.delete_sql],
        )?;
        Ok(writer)
    }

    fn access_mode(&self) -> AccessMode {
        AccessMode::WriteTables(Arc::clone(&self.affected_tables))
    }

    fn write_error(&self, error: rusqlite::Error) -> WriteError {
        self.write_connection.source_error(error).into()
    }

    /// The error of a statement that changes the row.
    fn change_error(&self, error: rusqlite::Error, reference: &'static str) -> WriteError {
        let reader = &self.reader;
        let context = ConstraintContext {
            table: &reader.table.name,
            columns: reader
                .columns
                .iter()
                .enumerate()
                .map(|(index, column)| (column.name.as_str(), index))
                .collect(),
            key: &reader.key,
            foreign_key_reason: Some(reference),
        };
        context.constraint_error(&error).unwrap_or_else(|| self.write_error(error))
    }

    /// The row with this key, if there is one.
    fn find_row(
        &self,
        connection: &DbConnection,
        key: &[ValueRef<'_>],
    ) -> Result<Option<FoundRow>, WriteError> {
        let reader = &self.reader;
        if key.len() != reader.key.len() {
            return Ok(None);
        }
        let filters = reader.key_filters(key);
        let values = QueryParams { filters: &filters, sort: &[], sort_values: &[], key: &[], limit: 1 };
        let read = |statement: &mut Statement<'_>| -> Result<Option<FoundRow>, DbError> {
            self.find_query.bind(statement, &reader.columns, &reader.key, &values)?;
            let mut rows = statement.raw_query();
            let Some(row) = rows.next()? else { return Ok(None) };
            let found = self.read_found_row(row)?;
            if !reader.key_is_declared && rows.next()?.is_some() {
                return Err(reader.duplicate_key_error(key).into());
            }
            Ok(Some(found))
        };
        let prepared = connection.inner.prepare_cached(&self.find_query.sql).map_err(DbError::from);
        let found = prepared.and_then(|mut statement| read(&mut statement));
        found.map_err(|error| error::source_error_on_write(error, self.write_connection.pool.path()).into())
    }

    fn read_found_row(&self, row: &Row<'_>) -> Result<FoundRow, DbError> {
        let row_values = self
            .reader
            .with_row_values(row, |row_values| row_values.iter().map(|value| value.to_value()).collect())?;
        let width = self.reader.columns.len();
        let locator =
            (width..width + self.locator.len()).map(|index| Ok(from_sqlite(row.get_ref(index)?).to_value()));
        Ok(FoundRow { values: row_values, locator: locator.collect::<rusqlite::Result<_>>()? })
    }

    /// Reads the stored row and checks that it holds the values sent.
    fn read_back(
        &self,
        connection: &DbConnection,
        locator: &[Value],
        sent: &[(usize, Value)],
    ) -> Result<Vec<Value>, WriteError> {
        let sql = |error| self.write_error(error);
        let mut statement = connection.inner.prepare_cached(&self.read_back_sql).map_err(sql)?;
        let mut rows = statement.query(value_params(locator)).map_err(sql)?;
        let moved =
            || WriteError::Rejected { column: None, reason: "a trigger of the table deletes it".into() };
        let row = rows.next().map_err(sql)?.ok_or_else(moved)?;
        for (index, sent) in sent {
            let column = &self.reader.columns[*index];
            let stored = column.unchecked_value(row.get_ref(*index).map_err(sql)?);
            if let Some(reason) = roundtrip::describe_difference(column, sent.as_value_ref(), stored) {
                return Err(WriteError::Rejected { column: Some(*index), reason });
            }
        }
        for index in &self.reader.key {
            if self.reader.columns[*index].unchecked_value(row.get_ref(*index).map_err(sql)?)
                == ValueRef::Null
            {
                return Err(WriteError::Rejected {
                    column: Some(*index),
                    reason: "a value is required".into(),
                });
            }
        }
        // A value of another type than the contract's cannot be returned.
        let row_values = self
            .reader
            .with_row_values(row, |row_values| row_values.iter().map(|value| value.to_value()).collect());
        let row_values: Vec<Value> = row_values.map_err(|_| WriteError::ContractViolation)?;
        drop(rows);
        let is_key_sent = sent.iter().any(|(index, _)| self.reader.key.contains(index));
        if !self.reader.key_is_declared && is_key_sent {
            let key: Vec<ValueRef<'_>> =
                self.reader.key.iter().map(|index| row_values[*index].as_value_ref()).collect();
            // Finding two rows with one key is an error.
            self.find_row(connection, &key).map_err(|_| WriteError::AlreadyExists)?;
        }
        Ok(row_values)
    }

    /// Values as the columns store them.
    fn params<'a>(&'a self, sent: &[(usize, ValueRef<'a>)]) -> Result<Vec<SqlParam<'a>>, WriteError> {
        sent.iter()
            .map(|(index, value)| {
                roundtrip::to_param(&self.reader.columns[*index], *value)
                    .map_err(|reason| WriteError::Rejected { column: Some(*index), reason })
            })
            .collect()
    }

    /// Returns the locator of the new row.
    fn create(
        &self,
        connection: &DbConnection,
        sent: &[(usize, ValueRef<'_>)],
    ) -> Result<Vec<Value>, WriteError> {
        let reader = &self.reader;
        let value = |index: &usize| {
            sent.iter().find(|(shape_index, _)| shape_index == index).map(|(_, value)| *value)
        };
        let key: Option<Vec<ValueRef<'_>>> = reader.key.iter().map(value).collect();
        // Nothing else keeps a key unique that the schema does not declare.
        if let (false, Some(key)) = (reader.key_is_declared, &key)
            && self.find_row(connection, key)?.is_some()
        {
            return Err(WriteError::AlreadyExists);
        }
        let values = self.params(sent)?;
        let names: Vec<&str> =
            sent.iter().map(|(index, _)| reader.columns[*index].quoted_name.as_str()).collect();
        let row = match &names[..] {
            [] => "DEFAULT VALUES".to_owned(),
            names => format!("({}) VALUES ({})", names.join(", "), vec!["?"; names.len()].join(", ")),
        };
        let locator: Vec<&str> = self.locator.iter().map(|(name, _)| name.as_str()).collect();
        // `OR ABORT`: a table may be declared to replace rows with the same key, and a create must not.
        let sql = format!("INSERT OR ABORT INTO {} {row} RETURNING {}", reader.sql_name, locator.join(", "));
        let inserted = connection.inner.prepare_cached(&sql).and_then(|mut statement| {
            let mut rows = statement.query(params_from_iter(values))?;
            let mut locator = None;
            while let Some(row) = rows.next()? {
                let parts =
                    (0..self.locator.len()).map(|index| Ok(from_sqlite(row.get_ref(index)?).to_value()));
                locator = Some(parts.collect::<rusqlite::Result<Vec<Value>>>()?);
            }
            Ok(locator)
        });
        let reference = "the row references a row that does not exist";
        inserted.map_err(|error| self.change_error(error, reference))?.ok_or_else(ignored_by_trigger)
    }

    /// Returns the locator that the row has now.
    fn update(
        &self,
        connection: &DbConnection,
        found: &FoundRow,
        sent: &[(usize, ValueRef<'_>)],
    ) -> Result<Vec<Value>, WriteError> {
        let reader = &self.reader;
        let value = |index: usize| {
            sent.iter().find(|(shape_index, _)| *shape_index == index).map(|(_, value)| value.to_value())
        };
        let sets: Vec<String> =
            sent.iter().map(|(index, _)| format!("{} = ?", reader.columns[*index].quoted_name)).collect();
        let condition: Vec<String> = self.locator.iter().map(|(name, _)| format!("{name} IS ?")).collect();
        let sql = format!(
            "UPDATE OR ABORT {} SET {} WHERE {}",
            reader.sql_name,
            sets.join(", "),
            condition.join(" AND ")
        );
        let mut values = self.params(sent)?;
        values.extend(found.locator.iter().map(|value| SqlParam::Value(value.as_value_ref())));
        let changed = connection
            .inner
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.execute(params_from_iter(values)))
            .map_err(|error| {
                self.change_error(
                    error,
                    "the row references a row that does not exist, or other rows reference it",
                )
            })?;
        if changed != 1 {
            return Err(ignored_by_trigger());
        }
        let parts = self.locator.iter().zip(&found.locator);
        Ok(parts.map(|((_, index), old)| index.and_then(value).unwrap_or_else(|| old.clone())).collect())
    }

    fn delete(&self, connection: &DbConnection, found: &FoundRow) -> Result<(), WriteError> {
        let deleted = connection
            .inner
            .prepare_cached(&self.delete_sql)
            .and_then(|mut statement| statement.execute(value_params(&found.locator)))
            .map_err(|error| self.change_error(error, "other rows reference it"))?;
        if deleted == 1 { Ok(()) } else { Err(ignored_by_trigger()) }
    }
}

impl Writer for SqliteWriter {
    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn RowTransaction + '_>, WriteError> {
        let transaction = self.write_connection.begin(&self.affected_tables, options)?;
        Ok(Box::new(SqliteRowTransaction { writer: self, transaction, found: None, changed: None }))
    }
}

struct SqliteRowTransaction<'w> {
    writer: &'w SqliteWriter,
    transaction: WriteTransaction<'w>,
    /// The row that was read by its key.
    found: Option<(Vec<Value>, FoundRow)>,
    changed: Option<ChangedRow>,
}

/// A row that was created or updated, before it is read back.
enum ChangedRow {
    /// Nothing was set.
    Unchanged(Vec<Value>),
    /// With the values that were set.
    Stored { locator: Vec<Value>, sent: Vec<(usize, Value)> },
}

impl SqliteRowTransaction<'_> {
    fn connection(&self) -> &DbConnection {
        self.transaction.connection()
    }

    fn allow_change(&self) {
        self.transaction.allow_change(self.writer.access_mode(), WRITE_TIMEOUT);
    }

    /// The row with this key: the one that was read already, or else read now.
    fn take_found(&mut self, key: &[ValueRef<'_>]) -> Result<FoundRow, WriteError> {
        match self.found.take() {
            Some((same, found)) if same.iter().map(Value::as_value_ref).eq(key.iter().copied()) => Ok(found),
            _ => self.writer.find_row(self.connection(), key)?.ok_or(WriteError::NotFound),
        }
    }
}

impl Transaction for SqliteRowTransaction<'_> {
    fn find_response(&mut self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        self.transaction.find_response(key)
    }

    fn store_response(&mut self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError> {
        self.transaction.store_response(key, response)
    }

    fn commit(self: Box<Self>) -> Result<(), WriteError> {
        self.transaction.commit()
    }

    fn roll_back(self: Box<Self>) {}
}

impl RowTransaction for SqliteRowTransaction<'_> {
    fn row(&mut self, key: &[ValueRef<'_>]) -> Result<Option<Vec<Value>>, WriteError> {
        self.allow_change();
        let Some(found) = self.writer.find_row(self.connection(), key)? else { return Ok(None) };
        let values = found.values.clone();
        self.found = Some((key.iter().map(|value| value.to_value()).collect(), found));
        Ok(Some(values))
    }

    fn apply(&mut self, change: &RowChange<'_>) -> Result<(), WriteError> {
        self.allow_change();
        let owned = |sent: &[(usize, ValueRef<'_>)]| {
            sent.iter().map(|(index, value)| (*index, value.to_value())).collect()
        };
        let writer = self.writer;
        self.changed = match change {
            RowChange::Create { values } => {
                let locator = writer.create(self.connection(), values)?;
                Some(ChangedRow::Stored { locator, sent: owned(values) })
            }
            RowChange::Update { key, values: [] } => {
                Some(ChangedRow::Unchanged(self.take_found(key)?.values))
            }
            RowChange::Update { key, values } => {
                let found = self.take_found(key)?;
                let locator = writer.update(self.connection(), &found, values)?;
                Some(ChangedRow::Stored { locator, sent: owned(values) })
            }
            RowChange::Delete { key } => {
                let found = self.take_found(key)?;
                writer.delete(self.connection(), &found)?;
                None
            }
        };
        Ok(())
    }

    fn read_back(&mut self) -> Result<Option<Vec<Value>>, WriteError> {
        match &self.changed {
            None => Ok(None),
            Some(ChangedRow::Unchanged(values)) => Ok(Some(values.clone())),
            Some(ChangedRow::Stored { locator, sent }) => {
                self.writer.read_back(self.connection(), locator, sent).map(Some)
            }
        }
    }
}

fn ignored_by_trigger() -> WriteError {
    WriteError::Rejected { column: None, reason: "a trigger of the table prevents the change".into() }
}

fn value_params(values: &[Value]) -> impl rusqlite::Params {
    params_from_iter(values.iter().map(|value| SqlParam::Value(value.as_value_ref())))
}

//! Changes one row by its key.
//!
//! In one transaction: the row is found as a reader finds it, changed where it lies, and read back. What is stored is
//! compared with what was said, because SQLite makes of a value what a column's type suggests. The owner's triggers,
//! defaults and foreign keys do what they do; what they make of other columns is told, what they make of a value
//! that somebody said is refused.
//!
//! The text of a statement depends on which columns are set and on nothing else; the connection keeps those that
//! were prepared last.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use contract::source::{
    ContractViolation, RowChange, SourceError, TableShape, VersionConflict, WriteChecks, WriteError,
    WriteOutcome, WriteRequest, Writer,
};
use contract::{Value, ValueRef};
use rusqlite::{Row, Statement, params_from_iter};

use super::Options;
use super::authorizer::AccessMode;
use super::column::{SqlParam, from_sqlite};
use super::connection::DbConnection;
use super::error::{self, ConstraintContext, DbError};
use super::idempotency;
use super::reader::TableReader;
use super::roundtrip;
use super::schema::{Schema, TableKind};
use super::select_builder::{QueryParams, SqlTemplate};
use super::table_scan;
use super::write_connection::{TransactionEnd, WriteConnection};

/// How long a row may be looked for and changed, triggers and all, while others wait.
const WRITE_TIMEOUT: Duration = Duration::from_millis(5_000);

pub(super) struct TableWriter {
    write_connection: Arc<WriteConnection>,
    /// What is known of the table, and how its rows are read.
    reader: TableReader,
    affected_tables: Arc<HashSet<String>>,
    /// What tells a row from all others as long as the transaction lasts: quoted columns, and where among the
    /// shape's columns each is.
    locator: Vec<(String, Option<usize>)>,
    /// By its key, with its address.
    find_query: SqlTemplate,
    /// By its address.
    read_back_sql: String,
    delete_sql: String,
}

/// A row as a reader gives it, and where it lies.
struct FoundRow {
    values: Vec<Value>,
    locator: Vec<Value>,
}

impl TableWriter {
    pub(super) fn new(
        desk: &Arc<WriteConnection>,
        options: &Options,
        schema: &Schema,
        shape: &TableShape,
    ) -> Result<Self, SourceError> {
        let reader = TableReader::new(&desk.pool, options, schema, shape)?;
        if reader.table.kind != TableKind::Ordinary || reader.key.is_empty() {
            return Err(SourceError::read_only());
        }
        let mut address = table_scan::locator_columns(&reader.table);
        if address.is_empty() {
            // All names for the number of a row are taken.
            address = reader.key.iter().map(|at| reader.columns[*at].quoted_name.clone()).collect();
        }
        let condition: Vec<String> = address.iter().map(|column| format!("{column} IS ?")).collect();
        let (table, condition) = (&reader.sql_name, condition.join(" AND "));
        let columns: Vec<&str> = reader.columns.iter().map(|column| column.quoted_name.as_str()).collect();
        let read_back = format!("SELECT {} FROM {table} WHERE {condition}", columns.join(", "));
        let remove = format!("DELETE FROM {table} WHERE {condition}");
        let find = reader.select_builder().build_key_lookup(&address.join(", "));
        let place = |name: &String| reader.columns.iter().position(|column| column.quoted_name == *name);
        let address = address.into_iter().map(|name| (name.clone(), place(&name))).collect();
        let reach = Arc::new(schema.affected_tables(&reader.table.name));
        let writer = Self {
            write_connection: Arc::clone(desk),
            locator: address,
            find_query: find,
            read_back_sql: read_back,
            delete_sql: remove,
            affected_tables: reach,
            reader,
        };
        desk.check_statements(
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

    /// What the database says of a statement that changes something.
    fn change_error(&self, error: rusqlite::Error, reference: &'static str) -> WriteError {
        let reader = &self.reader;
        let rules = ConstraintContext {
            table: &reader.table.name,
            columns: reader
                .columns
                .iter()
                .enumerate()
                .map(|(at, column)| (column.name.as_str(), at))
                .collect(),
            key: &reader.key,
            foreign_key_reason: Some(reference),
        };
        rules.constraint_error(&error).unwrap_or_else(|| self.write_error(error))
    }

    /// The row with this key, if there is one.
    fn find_row(&self, session: &DbConnection, key: &[ValueRef<'_>]) -> Result<Option<FoundRow>, WriteError> {
        let reader = &self.reader;
        if key.len() != reader.key.len() {
            return Ok(None);
        }
        let filters = reader.key_filters(key);
        let values = QueryParams { filters: &filters, sort: None, sort_value: None, key: &[], limit: 1 };
        let read = |statement: &mut Statement<'_>| -> Result<Option<FoundRow>, DbError> {
            self.find_query.bind(statement, &reader.columns, &reader.key, &values)?;
            let mut rows = statement.raw_query();
            let Some(row) = rows.next()? else { return Ok(None) };
            let found = self.read_found_row(row)?;
            if !reader.key_is_declared && rows.next()?.is_some() {
                return Err(reader.duplicate_key_error().into());
            }
            Ok(Some(found))
        };
        let prepared = session.inner.prepare_cached(&self.find_query.sql).map_err(DbError::from);
        let found = prepared.and_then(|mut statement| read(&mut statement));
        found.map_err(|fail| error::source_error_on_write(fail, self.write_connection.pool.path()).into())
    }

    fn read_found_row(&self, row: &Row<'_>) -> Result<FoundRow, DbError> {
        let cells =
            self.reader.with_row_values(row, |cells| cells.iter().map(|cell| cell.to_value()).collect())?;
        let width = self.reader.columns.len();
        let address =
            (width..width + self.locator.len()).map(|at| Ok(from_sqlite(row.get_ref(at)?).to_value()));
        Ok(FoundRow { values: cells, locator: address.collect::<rusqlite::Result<_>>()? })
    }

    /// The row as it is stored now, if it is what was said.
    fn read_back(
        &self,
        session: &DbConnection,
        address: &[Value],
        said: &[(usize, ValueRef<'_>)],
    ) -> Result<Vec<Value>, WriteError> {
        let sql = |error| self.write_error(error);
        let mut statement = session.inner.prepare_cached(&self.read_back_sql).map_err(sql)?;
        let mut rows = statement.query(value_params(address)).map_err(sql)?;
        let moved =
            || WriteError::Rejected { column: None, reason: "a trigger of the table takes it away".into() };
        let row = rows.next().map_err(sql)?.ok_or_else(moved)?;
        for (at, said) in said {
            let column = &self.reader.columns[*at];
            let stored = column.unchecked_value(row.get_ref(*at).map_err(sql)?);
            if let Some(why) = roundtrip::describe_difference(column, *said, stored) {
                return Err(WriteError::Rejected { column: Some(*at), reason: why });
            }
        }
        for at in &self.reader.key {
            if self.reader.columns[*at].unchecked_value(row.get_ref(*at).map_err(sql)?) == ValueRef::Null {
                return Err(WriteError::Rejected { column: Some(*at), reason: "a value is required".into() });
            }
        }
        // Of another kind than the contract has it: nobody could be told of it.
        let cells =
            self.reader.with_row_values(row, |cells| cells.iter().map(|cell| cell.to_value()).collect());
        cells.map_err(|_| WriteError::ContractViolation)
    }

    /// Values as the columns keep them.
    fn params<'a>(&'a self, said: &[(usize, ValueRef<'a>)]) -> Result<Vec<SqlParam<'a>>, WriteError> {
        said.iter()
            .map(|(at, cell)| {
                roundtrip::to_param(&self.reader.columns[*at], *cell)
                    .map_err(|why| WriteError::Rejected { column: Some(*at), reason: why })
            })
            .collect()
    }

    fn create(
        &self,
        session: &DbConnection,
        said: &[(usize, ValueRef<'_>)],
    ) -> Result<Vec<Value>, WriteError> {
        let reader = &self.reader;
        let value = |at: &usize| said.iter().find(|(place, _)| place == at).map(|(_, cell)| *cell);
        let key: Option<Vec<ValueRef<'_>>> = reader.key.iter().map(value).collect();
        // Nothing but us sees to it that a key that only happens to be one stays one.
        if let (false, Some(key)) = (reader.key_is_declared, &key)
            && self.find_row(session, key)?.is_some()
        {
            return Err(WriteError::AlreadyExists);
        }
        let values = self.params(said)?;
        let names: Vec<&str> = said.iter().map(|(at, _)| reader.columns[*at].quoted_name.as_str()).collect();
        let row = match &names[..] {
            [] => "DEFAULT VALUES".to_owned(),
            names => format!("({}) VALUES ({})", names.join(", "), vec!["?"; names.len()].join(", ")),
        };
        let address: Vec<&str> = self.locator.iter().map(|(name, _)| name.as_str()).collect();
        // `OR ABORT`: a table may be declared to replace rows with the same key, and this is none of that.
        let sql = format!("INSERT OR ABORT INTO {} {row} RETURNING {}", reader.sql_name, address.join(", "));
        let inserted = session.inner.prepare_cached(&sql).and_then(|mut statement| {
            let mut rows = statement.query(params_from_iter(values))?;
            let mut address = None;
            while let Some(row) = rows.next()? {
                let parts = (0..self.locator.len()).map(|at| Ok(from_sqlite(row.get_ref(at)?).to_value()));
                address = Some(parts.collect::<rusqlite::Result<Vec<Value>>>()?);
            }
            Ok(address)
        });
        let reference = "it refers to a record that is not there";
        let address =
            inserted.map_err(|error| self.change_error(error, reference))?.ok_or_else(ignored_by_trigger)?;
        self.read_back(session, &address, said)
    }

    fn update(
        &self,
        session: &DbConnection,
        found: &FoundRow,
        said: &[(usize, ValueRef<'_>)],
    ) -> Result<Vec<Value>, WriteError> {
        let reader = &self.reader;
        if said.is_empty() {
            return Ok(found.values.clone());
        }
        let value = |at: usize| said.iter().find(|(place, _)| *place == at).map(|(_, cell)| cell.to_value());
        let sets: Vec<String> =
            said.iter().map(|(at, _)| format!("{} = ?", reader.columns[*at].quoted_name)).collect();
        let condition: Vec<String> = self.locator.iter().map(|(name, _)| format!("{name} IS ?")).collect();
        let sql = format!(
            "UPDATE OR ABORT {} SET {} WHERE {}",
            reader.sql_name,
            sets.join(", "),
            condition.join(" AND ")
        );
        let mut values = self.params(said)?;
        values.extend(found.locator.iter().map(|value| SqlParam::Value(value.as_value_ref())));
        let changed = session
            .inner
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.execute(params_from_iter(values)))
            .map_err(|error| {
                self.change_error(error, "it refers to a record that is not there, or others refer to it")
            })?;
        if changed != 1 {
            return Err(ignored_by_trigger());
        }
        let parts = self.locator.iter().zip(&found.locator);
        let address: Vec<Value> =
            parts.map(|((_, at), old)| at.and_then(value).unwrap_or_else(|| old.clone())).collect();
        let cells = self.read_back(session, &address, said)?;
        if !reader.key_is_declared && reader.key.iter().any(|at| value(*at).is_some()) {
            let key: Vec<ValueRef<'_>> = reader.key.iter().map(|at| cells[*at].as_value_ref()).collect();
            // Two rows with one key are a fault of the find.
            self.find_row(session, &key).map_err(|_| WriteError::AlreadyExists)?;
        }
        Ok(cells)
    }

    fn delete(&self, session: &DbConnection, found: &FoundRow) -> Result<(), WriteError> {
        let removed = session
            .inner
            .prepare_cached(&self.delete_sql)
            .and_then(|mut statement| statement.execute(value_params(&found.locator)))
            .map_err(|error| self.change_error(error, "other records refer to it"))?;
        if removed == 1 { Ok(()) } else { Err(ignored_by_trigger()) }
    }

    /// Makes the change, and what is told of it.
    fn change(
        &self,
        session: &DbConnection,
        change: &RowChange<'_>,
        clerk: &mut dyn WriteChecks,
    ) -> Result<Vec<u8>, WriteError> {
        let found = |key| self.find_row(session, key)?.ok_or(WriteError::NotFound);
        let after = |clerk: &mut dyn WriteChecks, row: &[Value]| {
            clerk.after_write(&value_refs(row)).map_err(|ContractViolation| WriteError::ContractViolation)
        };
        match change {
            RowChange::Create { values: cells } => {
                let row = self.create(session, cells)?;
                after(clerk, &row)
            }
            RowChange::Update { key, values: said } => {
                let found = found(key)?;
                let more = clerk
                    .before_write(&value_refs(&found.values))
                    .map_err(|VersionConflict| WriteError::VersionConflict)?;
                let mut said = said.to_vec();
                said.retain(|(at, _)| !more.iter().any(|(other, _)| other == at));
                said.extend(more.iter().map(|(at, value)| (*at, value.as_value_ref())));
                let row = self.update(session, &found, &said)?;
                after(clerk, &row)
            }
            RowChange::Delete { key } => {
                let found = found(key)?;
                clerk
                    .before_write(&value_refs(&found.values))
                    .map_err(|VersionConflict| WriteError::VersionConflict)?;
                self.delete(session, &found)?;
                after(clerk, &found.values)
            }
        }
    }
}

impl Writer for TableWriter {
    fn write(
        &self,
        write: &WriteRequest<'_>,
        clerk: &mut dyn WriteChecks,
    ) -> Result<WriteOutcome, WriteError> {
        self.write_connection.transaction(&self.affected_tables, write.cancelled, |session| {
            let trouble = |trouble| self.write_connection.idempotency_error(trouble);
            if let Some(claim) = &write.idempotency_key
                && let Some(told) = idempotency::find(session, claim).map_err(trouble)?
            {
                return Ok((TransactionEnd::Rollback, WriteOutcome::Replayed(told)));
            }
            session.authorizer.set_mode(self.access_mode());
            session.set_deadline(WRITE_TIMEOUT);
            let told = self.change(session, &write.change, clerk)?;
            session.clear_deadline();
            if write.dry_run {
                return Ok((TransactionEnd::Rollback, WriteOutcome::Done));
            }
            if let Some(claim) = &write.idempotency_key {
                idempotency::store(session, claim, &told, write.now_ms).map_err(trouble)?;
            }
            Ok((TransactionEnd::Commit, WriteOutcome::Done))
        })
    }
}

fn ignored_by_trigger() -> WriteError {
    WriteError::Rejected { column: None, reason: "a trigger of the table keeps it from being changed".into() }
}

fn value_refs(values: &[Value]) -> Vec<ValueRef<'_>> {
    values.iter().map(Value::as_value_ref).collect()
}

fn value_params(values: &[Value]) -> impl rusqlite::Params {
    params_from_iter(values.iter().map(|value| SqlParam::Value(value.as_value_ref())))
}

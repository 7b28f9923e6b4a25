//! Creates, updates and deletes one row by its key, in one transaction with the record of its idempotency key.
//!
//! What a write must satisfy is decided by the host between the steps; see [`contract::source::run_transaction`].

use std::sync::Arc;
use std::time::Duration;

use contract::source::{
    Comparison, IdempotencyKey, RowChange, RowFlow, RowTransaction, Transaction, TransactionOptions,
    WriteError, Writer,
};
use contract::{DataType, Value, ValueRef, order};

use crate::call::CallLimits;
use crate::column::{Column, Storage};
use crate::connection::{Connection, OnRow, Param, ResultColumn, Sql};
use crate::dialect::{NewKey, SqlWriter};
use crate::error::{Cause, DbError, Refusal};
use crate::idempotency::Records;
use crate::local_records::{Found, LocalClaim};
use crate::operand::{Operand, operand};
use crate::pool::{Pool, Pooled};
use crate::read::TableReader;

pub(crate) struct TableWriter {
    /// The table and how its rows are read.
    pub(crate) reader: TableReader,
    pub(crate) idempotency: Option<Arc<Records>>,
    /// The constraint that keeps the key unique.
    pub(crate) key_constraint: Option<String>,
}

impl Writer for TableWriter {
    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn RowTransaction + '_>, WriteError> {
        let TableReader { pool, call_max, .. } = &self.reader;
        let transaction = OpenTransaction::begin(pool, *call_max, self.idempotency.as_deref(), options)?;
        Ok(Box::new(DatabaseTransaction { writer: self, transaction, changed: None }))
    }
}

/// A connection in a transaction that writes. Dropping it rolls back.
pub(crate) struct OpenTransaction<'w> {
    connection: Pooled<'w>,
    call_max: Duration,
    idempotency: Option<&'w Records>,
    options: TransactionOptions,
    /// Of this call, where records are not in the database.
    claim: Option<LocalClaim<'w>>,
}

impl<'w> OpenTransaction<'w> {
    pub(crate) fn begin(
        pool: &'w Pool,
        call_max: Duration,
        idempotency: Option<&'w Records>,
        options: &TransactionOptions,
    ) -> Result<Self, WriteError> {
        let (limits, identity) =
            (CallLimits::new(options.cancelled.as_ref(), call_max), options.identity.as_deref());
        pool.check_caller(identity)?;
        let mut connection = pool.check_out(&limits)?;
        let begin = |connection: &mut dyn Connection| -> Result<(), DbError> {
            if let (Some(Records::Table(table)), Some(_)) = (idempotency, &options.idempotency_key)
                && !options.dry_run
            {
                table.ensure(connection, &limits)?;
            }
            connection.begin(identity, &limits)
        };
        let mut begun = begin(&mut **connection);
        // Closed by the other side while nobody used it: nothing has happened yet.
        while connection.is_reused && matches!(begun, Err(DbError::Lost { .. })) {
            drop(connection);
            connection = pool.check_out(&limits)?;
            begun = begin(&mut **connection);
        }
        begun.map_err(DbError::into_source_error)?;
        Ok(Self { connection, call_max, idempotency, options: options.clone(), claim: None })
    }

    /// Runs a statement, and passes its first row on.
    pub(crate) fn first_row(&mut self, sql: &Sql) -> Result<(u64, Option<Vec<Value>>), DbError> {
        let mut first = None;
        let changed = self.run(sql, &mut |values| {
            first.get_or_insert_with(|| values.iter().map(|value| value.to_value()).collect());
            Ok(RowFlow::Continue)
        })?;
        Ok((changed, first))
    }

    /// Runs a statement and passes its rows on. Returns the number of changed rows.
    pub(crate) fn run(&mut self, sql: &Sql, row: &mut OnRow<'_>) -> Result<u64, DbError> {
        let limits = CallLimits::new(self.options.cancelled.as_ref(), self.call_max);
        let identity = self.options.identity.as_deref();
        self.connection.run(sql, &limits, row).map_err(|error| error.of_caller(identity))
    }

    pub(crate) fn find_response(&mut self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        let now_ms = self.options.now_ms;
        match self.idempotency {
            None => Ok(None),
            // Nothing is created to find out that there is nothing.
            Some(Records::Table(table)) if self.options.dry_run && !table.exists() => Ok(None),
            Some(Records::Table(table)) => {
                self.with_records(|connection, limits| table.find(connection, key, now_ms, limits))
            }
            Some(Records::Local(records)) => match records.find(key, now_ms)? {
                Found::Done(response) => Ok(Some(response)),
                Found::New(claim) => {
                    self.claim = Some(claim);
                    Ok(None)
                }
            },
        }
    }

    pub(crate) fn store_response(&mut self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError> {
        let now_ms = self.options.now_ms;
        if let Some(claim) = &mut self.claim {
            claim.set_response(response);
        }
        match self.idempotency {
            None | Some(Records::Local(_)) => Ok(()),
            Some(Records::Table(table)) => {
                self.with_records(|connection, limits| table.store(connection, key, response, now_ms, limits))
            }
        }
    }

    /// Uses the table of idempotency records, which belongs to the role of the connection: callers neither need rights there nor
    /// can change what others rely on.
    fn with_records<T>(
        &mut self,
        work: impl FnOnce(&mut dyn Connection, &CallLimits<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let limits = &CallLimits::new(self.options.cancelled.as_ref(), self.call_max);
        let connection = &mut **self.connection;
        let role = self.options.identity.as_ref().and_then(|identity| identity.role.as_deref());
        if role.is_none() {
            return work(connection, limits);
        }
        connection.set_role(None, limits).map_err(DbError::into_source_error)?;
        let worked = work(connection, limits)?;
        connection.set_role(role, limits).map_err(DbError::into_source_error)?;
        Ok(worked)
    }

    /// `refused` says what it means that the database refuses to commit: a constraint that is checked at the end.
    pub(crate) fn commit(mut self, refused: impl FnOnce(Refusal) -> WriteError) -> Result<(), WriteError> {
        // From here on the caller's absence changes nothing.
        let limits = CallLimits::new(None, self.call_max);
        if let Some(claim) = &mut self.claim {
            claim.begin_commit();
        }
        let committed = self.connection.commit(&limits).map_err(|error| match error {
            // Whether the database was done before the connection ended is unknown.
            DbError::Lost { detail } => {
                tracing::warn!(detail, "the connection was lost while a write was committed");
                WriteError::OutcomeUnknown
            }
            DbError::Source(_) => WriteError::OutcomeUnknown,
            DbError::Refused(refusal) => refused(refusal),
        });
        if let Some(claim) = self.claim.take() {
            claim.end_commit(&committed);
        }
        committed
    }
}

struct DatabaseTransaction<'w> {
    writer: &'w TableWriter,
    transaction: OpenTransaction<'w>,
    changed: Option<ChangedRow>,
}

/// A row that was created or updated, before it is read back: its key, and the values that were set.
struct ChangedRow {
    key: Vec<Value>,
    sent: Vec<(usize, Value)>,
}

impl Transaction for DatabaseTransaction<'_> {
    fn find_response(&mut self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        self.transaction.find_response(key)
    }

    fn store_response(&mut self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError> {
        self.transaction.store_response(key, response)
    }

    fn commit(self: Box<Self>) -> Result<(), WriteError> {
        let columns = &self.writer.reader.columns;
        self.transaction.commit(|refusal| change_error(refusal, columns, None))
    }

    fn roll_back(self: Box<Self>) {}
}

impl DatabaseTransaction<'_> {
    fn find(&mut self, key: &[ValueRef<'_>], lock: &str) -> Result<Option<Vec<Value>>, WriteError> {
        let reader = &self.writer.reader;
        if key.len() != reader.key.len() {
            return Ok(None);
        }
        let (_, row) =
            self.transaction.first_row(&reader.key_lookup(key, lock)).map_err(DbError::into_source_error)?;
        if let Some(row) = &row {
            let values: Vec<ValueRef<'_>> = row.iter().map(Value::as_value_ref).collect();
            reader.check(0..reader.columns.len(), &values)?;
        }
        Ok(row)
    }

    /// Runs a statement that changes one row.
    fn change(&mut self, sql: &Sql) -> Result<(u64, Option<Vec<Value>>), WriteError> {
        let writer = self.writer;
        self.transaction.first_row(sql).map_err(|error| match error {
            DbError::Refused(refusal) => {
                change_error(refusal, &writer.reader.columns, writer.key_constraint.as_deref())
            }
            error => error.into_source_error().into(),
        })
    }

    fn create(&mut self, sent: &[(usize, ValueRef<'_>)]) -> Result<Vec<Value>, WriteError> {
        let reader = &self.writer.reader;
        let mut out = SqlWriter::new(reader.dialect);
        out.push(&format!("INSERT INTO {} ", reader.name));
        let names: Vec<String> =
            sent.iter().map(|(at, _)| reader.dialect.quote(&reader.columns[*at].name)).collect();
        match sent.is_empty() {
            true => out.push(reader.dialect.default_values()),
            false => {
                out.push(&format!("({}) VALUES (", names.join(", ")));
                for (place, (at, value)) in sent.iter().enumerate() {
                    if place > 0 {
                        out.push(", ");
                    }
                    write_value(&mut out, *at, &reader.columns[*at], *value)?;
                }
                out.push(")");
            }
        }
        let NewKey::Ask(question) = reader.dialect.new_key() else {
            let keys: Vec<String> =
                reader.key.iter().map(|at| reader.dialect.quote(&reader.columns[*at].name)).collect();
            out.push(&format!(" RETURNING {}", keys.join(", ")));
            out.sql.results = reader.key.iter().map(|at| reader.columns[*at].result()).collect();
            return self.change(&out.sql)?.1.ok_or_else(ignored_by_trigger);
        };
        if self.change(&out.sql)?.0 != 1 {
            return Err(ignored_by_trigger());
        }
        let sent_part =
            |at: &usize| sent.iter().find(|(one, _)| one == at).map(|(_, value)| value.to_value());
        if let Some(key) = reader.key.iter().map(sent_part).collect() {
            return Ok(key);
        }
        let results = vec![ResultColumn::computed(Storage::Integer)];
        let assigned = self.change(&Sql { text: question.into(), results, ..Sql::default() })?.1;
        let assigned = assigned.and_then(|row| row.into_iter().next()).ok_or_else(ignored_by_trigger)?;
        let part = |at: &usize| sent_part(at).unwrap_or_else(|| assigned.clone());
        Ok(reader.key.iter().map(part).collect())
    }

    /// Returns the key that the row has now.
    fn update(
        &mut self,
        key: &[ValueRef<'_>],
        sent: &[(usize, ValueRef<'_>)],
    ) -> Result<Vec<Value>, WriteError> {
        let reader = &self.writer.reader;
        let mut out = SqlWriter::new(reader.dialect);
        out.push(&format!("UPDATE {} AS {} SET ", reader.name, crate::dialect::TABLE_ALIAS));
        for (place, (at, value)) in sent.iter().enumerate() {
            let column = &reader.columns[*at];
            let comma = if place > 0 { ", " } else { "" };
            out.push(&format!("{comma}{} = ", reader.dialect.quote(&column.name)));
            write_value(&mut out, *at, column, *value)?;
        }
        self.where_key(&mut out, key);
        if self.change(&out.sql)?.0 != 1 {
            return Err(ignored_by_trigger());
        }
        let part = |(at, old): (&usize, &ValueRef<'_>)| {
            sent.iter().find(|(one, _)| one == at).map_or(old.to_value(), |(_, value)| value.to_value())
        };
        Ok(reader.key.iter().zip(key).map(part).collect())
    }

    fn where_key(&self, out: &mut SqlWriter<'_>, key: &[ValueRef<'_>]) {
        let reader = &self.writer.reader;
        for (place, (at, value)) in reader.key.iter().zip(key).enumerate() {
            out.push(if place == 0 { " WHERE " } else { " AND " });
            out.equals(&reader.columns[*at], *value);
        }
    }
}

impl RowTransaction for DatabaseTransaction<'_> {
    fn row(&mut self, key: &[ValueRef<'_>]) -> Result<Option<Vec<Value>>, WriteError> {
        self.find(key, " FOR UPDATE")
    }

    fn apply(&mut self, change: &RowChange<'_>) -> Result<(), WriteError> {
        let owned = |sent: &[(usize, ValueRef<'_>)]| {
            sent.iter().map(|(index, value)| (*index, value.to_value())).collect()
        };
        let own_key = |key: &[ValueRef<'_>]| key.iter().map(|value| value.to_value()).collect();
        self.changed = match change {
            RowChange::Create { values } => {
                Some(ChangedRow { key: self.create(values)?, sent: owned(values) })
            }
            RowChange::Update { key, values } => {
                self.row(key)?.ok_or(WriteError::NotFound)?;
                let key = if values.is_empty() { own_key(key) } else { self.update(key, values)? };
                Some(ChangedRow { key, sent: owned(values) })
            }
            RowChange::Delete { key } => {
                self.row(key)?.ok_or(WriteError::NotFound)?;
                let reader = &self.writer.reader;
                let mut out = SqlWriter::new(reader.dialect);
                out.push(&reader.dialect.delete_from(&reader.name));
                self.where_key(&mut out, key);
                if self.change(&out.sql)?.0 != 1 {
                    return Err(ignored_by_trigger());
                }
                None
            }
        };
        Ok(())
    }

    fn read_back(&mut self) -> Result<Option<Vec<Value>>, WriteError> {
        let Some(ChangedRow { key, sent }) = self.changed.take() else { return Ok(None) };
        let key: Vec<ValueRef<'_>> = key.iter().map(Value::as_value_ref).collect();
        let Some(row) = self.find(&key, "").map_err(|error| match error {
            // A value of another type than the contract's cannot be returned.
            WriteError::Source(contract::source::SourceError::Incompatible { .. }) => {
                WriteError::ContractViolation
            }
            error => error,
        })?
        else {
            let reason = "a trigger of the table deletes it or changes its key".into();
            return Err(WriteError::Rejected { column: None, reason });
        };
        for (at, sent) in &sent {
            let column = &self.writer.reader.columns[*at];
            if let Some(reason) = difference(column, sent.as_value_ref(), row[*at].as_value_ref()) {
                return Err(WriteError::Rejected { column: Some(*at), reason });
            }
        }
        Ok(Some(row))
    }
}

/// Writes a new value of a column. NULL is a keyword, because a parameter without a value has no type.
fn write_value(
    out: &mut SqlWriter<'_>,
    at: usize,
    column: &Column,
    value: ValueRef<'_>,
) -> Result<(), WriteError> {
    let rejected = || WriteError::Rejected {
        column: Some(at),
        reason: format!("it is not a value that `{}` can store", column.info.type_name),
    };
    if value == ValueRef::Null {
        out.push("NULL");
        return Ok(());
    }
    let param = match (column.storage(), value) {
        (Storage::Json, ValueRef::Text(text)) => Param::Text(text.into()),
        // Stored as it is, and then compared: the database may round it.
        (Storage::Float32, ValueRef::Real(n)) => Param::Real(n),
        _ => match operand(column, Comparison::Equals, value) {
            Operand::Value(param) => param,
            Operand::Decimal(digits) => {
                out.decimal(digits);
                return Ok(());
            }
            Operand::AfterAll | Operand::Nothing | Operand::Exception(_) => return Err(rejected()),
        },
    };
    let placeholder = out.bind(param);
    let stored = out.dialect.stored(column, &placeholder);
    out.push(&stored);
    Ok(())
}

/// How a stored value differs from the one that was sent, as a clause; `None` if it is the same.
fn difference(column: &Column, sent: ValueRef<'_>, stored: ValueRef<'_>) -> Option<String> {
    let is_same = match (column.data_type, sent, stored) {
        (_, ValueRef::Null, stored) => stored == ValueRef::Null,
        (_, _, ValueRef::Null) => false,
        // Databases keep what JSON means, not how it was written.
        (DataType::Json, ValueRef::Text(sent), ValueRef::Text(stored)) => is_same_json(sent, stored),
        (DataType::Timestamp | DataType::LocalTimestamp, ValueRef::Text(sent), ValueRef::Text(stored)) => {
            order::timestamp_sort_key(sent) == order::timestamp_sort_key(stored)
        }
        (kind, sent, stored) => order::compare(kind, sent, stored).is_eq(),
    };
    let shown = match stored {
        _ if is_same => return None,
        ValueRef::Null => "nothing".to_owned(),
        ValueRef::Text(text) if text.chars().count() > SHOWN_CHARS_MAX => {
            format!("`{}…`", text.chars().take(SHOWN_CHARS_MAX).collect::<String>())
        }
        ValueRef::Text(text) => format!("`{text}`"),
        ValueRef::Integer(n) => format!("`{n}`"),
        ValueRef::Real(n) => format!("`{n}`"),
        ValueRef::Blob(_) => "other bytes".to_owned(),
    };
    Some(format!("the database would store {shown} instead"))
}

/// How much of a stored value a message repeats.
const SHOWN_CHARS_MAX: usize = 60;

/// Whether two texts are the same JSON, whatever the order of members and the spelling of numbers.
fn is_same_json(a: &str, b: &str) -> bool {
    let canonical = |text: &str| {
        let document = json::parse(text.as_bytes().to_vec(), &json::ParseLimits::default()).ok()?;
        let mut out = Vec::new();
        document.root().write_canonical(&mut out);
        Some(out)
    };
    a == b || canonical(a).is_some_and(|a| Some(a) == canonical(b))
}

fn ignored_by_trigger() -> WriteError {
    WriteError::Rejected { column: None, reason: "a trigger or rule of the table prevents the change".into() }
}

/// The error of a statement that changes rows.
pub(crate) fn change_error(refusal: Refusal, columns: &[Column], key_constraint: Option<&str>) -> WriteError {
    let column = refusal.column.as_deref().and_then(|name| columns.iter().position(|one| one.name == name));
    let rejected = |reason: String| WriteError::Rejected { column, reason };
    match refusal.cause {
        Cause::Duplicate if key_constraint.is_some() && refusal.constraint.as_deref() == key_constraint => {
            WriteError::AlreadyExists
        }
        Cause::Duplicate => rejected("another row has this value, which must be unique".into()),
        Cause::ForeignKey => {
            rejected("the row references a row that does not exist, or other rows reference it".into())
        }
        Cause::NotNull => rejected("a value is required".into()),
        Cause::Check => rejected(match refusal.constraint {
            Some(name) => format!("the rule `{name}` of the database does not allow it"),
            None => "a rule of the database does not allow it".into(),
        }),
        Cause::InvalidValue => {
            rejected("a value is out of range, too long, or not of the column's type".into())
        }
        _ => DbError::Refused(refusal).into_source_error().into(),
    }
}

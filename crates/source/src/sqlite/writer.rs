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
    Change, Clerk, Shape, SourceFault, Stale, Unwritable, Write, WriteFault, Writer, Written,
};
use contract::{Cell, Value};
use rusqlite::{Row, Statement, params_from_iter};

use super::Options;
use super::claims;
use super::column::{Bound, raw};
use super::desk::{Desk, End};
use super::exact;
use super::fault::{self, Fail, Rules};
use super::gate::Permit;
use super::plan::{Plan, Values};
use super::reader::TableReader;
use super::schema::{Class, Schema};
use super::session::Session;
use super::walk;

/// How long a row may be looked for and changed, triggers and all, while others wait.
const HOLD: Duration = Duration::from_millis(5_000);

pub(super) struct TableWriter {
    desk: Arc<Desk>,
    /// What is known of the table, and how its rows are read.
    reader: TableReader,
    reach: Arc<HashSet<String>>,
    /// What tells a row from all others as long as the transaction lasts: quoted columns, and where among the
    /// shape's columns each is.
    address: Vec<(String, Option<usize>)>,
    /// By its key, with its address.
    find: Plan,
    /// By its address.
    read_back: String,
    remove: String,
}

/// A row as a reader gives it, and where it lies.
struct Found {
    cells: Vec<Value>,
    address: Vec<Value>,
}

impl TableWriter {
    pub(super) fn new(
        desk: &Arc<Desk>,
        options: &Options,
        schema: &Schema,
        shape: &Shape,
    ) -> Result<Self, SourceFault> {
        let reader = TableReader::new(&desk.pool, options, schema, shape)?;
        if reader.table.class != Class::Plain || reader.key.is_empty() {
            return Err(SourceFault::read_only());
        }
        let mut address = walk::address(&reader.table);
        if address.is_empty() {
            // All names for the number of a row are taken.
            address = reader.key.iter().map(|at| reader.columns[*at].quoted.clone()).collect();
        }
        let condition: Vec<String> = address.iter().map(|column| format!("{column} IS ?")).collect();
        let (table, condition) = (&reader.sql_name, condition.join(" AND "));
        let columns: Vec<&str> = reader.columns.iter().map(|column| column.quoted.as_str()).collect();
        let read_back = format!("SELECT {} FROM {table} WHERE {condition}", columns.join(", "));
        let remove = format!("DELETE FROM {table} WHERE {condition}");
        let find = reader.grammar().row_at(&address.join(", "));
        let place = |name: &String| reader.columns.iter().position(|column| column.quoted == *name);
        let address = address.into_iter().map(|name| (name.clone(), place(&name))).collect();
        let reach = Arc::new(schema.reach(&reader.table.name));
        let writer = Self { desk: Arc::clone(desk), address, find, read_back, remove, reach, reader };
        desk.try_out(writer.permit(), &[&writer.find.sql, &writer.read_back, &writer.remove])?;
        Ok(writer)
    }

    fn permit(&self) -> Permit {
        Permit::Tables(Arc::clone(&self.reach))
    }

    fn fault(&self, error: rusqlite::Error) -> WriteFault {
        self.desk.fault(error).into()
    }

    /// What the database says of a statement that changes something.
    fn judged(&self, error: rusqlite::Error, reference: &'static str) -> WriteFault {
        let reader = &self.reader;
        let rules = Rules {
            table: &reader.table.name,
            columns: reader
                .columns
                .iter()
                .enumerate()
                .map(|(at, column)| (column.name.as_str(), at))
                .collect(),
            key: &reader.key,
            reference: Some(reference),
        };
        rules.refused(&error).unwrap_or_else(|| self.fault(error))
    }

    /// The row with this key, if there is one.
    fn find(&self, session: &Session, key: &[Cell<'_>]) -> Result<Option<Found>, WriteFault> {
        let reader = &self.reader;
        if key.len() != reader.key.len() {
            return Ok(None);
        }
        let filters = reader.key_filters(key);
        let values = Values { filters: &filters, sort: None, sorted: None, key: &[], limit: 1 };
        let read = |statement: &mut Statement<'_>| -> Result<Option<Found>, Fail> {
            self.find.bind(statement, &reader.columns, &reader.key, &values)?;
            let mut rows = statement.raw_query();
            let Some(row) = rows.next()? else { return Ok(None) };
            let found = self.found(row)?;
            if !reader.key_is_declared && rows.next()?.is_some() {
                return Err(reader.repeats().into());
            }
            Ok(Some(found))
        };
        let prepared = session.connection.prepare_cached(&self.find.sql).map_err(Fail::from);
        let found = prepared.and_then(|mut statement| read(&mut statement));
        found.map_err(|fail| fault::of_writing(fail, self.desk.pool.path()).into())
    }

    fn found(&self, row: &Row<'_>) -> Result<Found, Fail> {
        let cells = self.reader.cells(row, |cells| cells.iter().map(|cell| cell.to_value()).collect())?;
        let width = self.reader.columns.len();
        let address = (width..width + self.address.len()).map(|at| Ok(raw(row.get_ref(at)?).to_value()));
        Ok(Found { cells, address: address.collect::<rusqlite::Result<_>>()? })
    }

    /// The row as it is stored now, if it is what was said.
    fn read_back(
        &self,
        session: &Session,
        address: &[Value],
        said: &[(usize, Cell<'_>)],
    ) -> Result<Vec<Value>, WriteFault> {
        let sql = |error| self.fault(error);
        let mut statement = session.connection.prepare_cached(&self.read_back).map_err(sql)?;
        let mut rows = statement.query(bound(address)).map_err(sql)?;
        let moved =
            || WriteFault::Refused { column: None, why: "a trigger of the table takes it away".into() };
        let row = rows.next().map_err(sql)?.ok_or_else(moved)?;
        for (at, said) in said {
            let column = &self.reader.columns[*at];
            let stored = column.lenient(row.get_ref(*at).map_err(sql)?);
            if let Some(why) = exact::difference(column, *said, stored) {
                return Err(WriteFault::Refused { column: Some(*at), why });
            }
        }
        for at in &self.reader.key {
            if self.reader.columns[*at].lenient(row.get_ref(*at).map_err(sql)?) == Cell::Null {
                return Err(WriteFault::Refused { column: Some(*at), why: "a value is required".into() });
            }
        }
        // Of another kind than the contract has it: nobody could be told of it.
        let cells = self.reader.cells(row, |cells| cells.iter().map(|cell| cell.to_value()).collect());
        cells.map_err(|_| WriteFault::Unwritable)
    }

    /// Values as the columns keep them.
    fn values<'a>(&'a self, said: &[(usize, Cell<'a>)]) -> Result<Vec<Bound<'a>>, WriteFault> {
        said.iter()
            .map(|(at, cell)| {
                exact::bound(&self.reader.columns[*at], *cell)
                    .map_err(|why| WriteFault::Refused { column: Some(*at), why })
            })
            .collect()
    }

    fn create(&self, session: &Session, said: &[(usize, Cell<'_>)]) -> Result<Vec<Value>, WriteFault> {
        let reader = &self.reader;
        let value = |at: &usize| said.iter().find(|(place, _)| place == at).map(|(_, cell)| *cell);
        let key: Option<Vec<Cell<'_>>> = reader.key.iter().map(value).collect();
        // Nothing but us sees to it that a key that only happens to be one stays one.
        if let (false, Some(key)) = (reader.key_is_declared, &key)
            && self.find(session, key)?.is_some()
        {
            return Err(WriteFault::Exists);
        }
        let values = self.values(said)?;
        let names: Vec<&str> = said.iter().map(|(at, _)| reader.columns[*at].quoted.as_str()).collect();
        let row = match &names[..] {
            [] => "DEFAULT VALUES".to_owned(),
            names => format!("({}) VALUES ({})", names.join(", "), vec!["?"; names.len()].join(", ")),
        };
        let address: Vec<&str> = self.address.iter().map(|(name, _)| name.as_str()).collect();
        // `OR ABORT`: a table may be declared to replace rows with the same key, and this is none of that.
        let sql = format!("INSERT OR ABORT INTO {} {row} RETURNING {}", reader.sql_name, address.join(", "));
        let inserted = session.connection.prepare_cached(&sql).and_then(|mut statement| {
            let mut rows = statement.query(params_from_iter(values))?;
            let mut address = None;
            while let Some(row) = rows.next()? {
                let parts = (0..self.address.len()).map(|at| Ok(raw(row.get_ref(at)?).to_value()));
                address = Some(parts.collect::<rusqlite::Result<Vec<Value>>>()?);
            }
            Ok(address)
        });
        let reference = "it refers to a record that is not there";
        let address = inserted.map_err(|error| self.judged(error, reference))?.ok_or_else(ignored)?;
        self.read_back(session, &address, said)
    }

    fn update(
        &self,
        session: &Session,
        found: &Found,
        said: &[(usize, Cell<'_>)],
    ) -> Result<Vec<Value>, WriteFault> {
        let reader = &self.reader;
        if said.is_empty() {
            return Ok(found.cells.clone());
        }
        let value = |at: usize| said.iter().find(|(place, _)| *place == at).map(|(_, cell)| cell.to_value());
        let sets: Vec<String> =
            said.iter().map(|(at, _)| format!("{} = ?", reader.columns[*at].quoted)).collect();
        let condition: Vec<String> = self.address.iter().map(|(name, _)| format!("{name} IS ?")).collect();
        let sql = format!(
            "UPDATE OR ABORT {} SET {} WHERE {}",
            reader.sql_name,
            sets.join(", "),
            condition.join(" AND ")
        );
        let mut values = self.values(said)?;
        values.extend(found.address.iter().map(|value| Bound::Cell(value.as_cell())));
        let changed = session
            .connection
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.execute(params_from_iter(values)))
            .map_err(|error| {
                self.judged(error, "it refers to a record that is not there, or others refer to it")
            })?;
        if changed != 1 {
            return Err(ignored());
        }
        let parts = self.address.iter().zip(&found.address);
        let address: Vec<Value> =
            parts.map(|((_, at), old)| at.and_then(value).unwrap_or_else(|| old.clone())).collect();
        let cells = self.read_back(session, &address, said)?;
        if !reader.key_is_declared && reader.key.iter().any(|at| value(*at).is_some()) {
            let key: Vec<Cell<'_>> = reader.key.iter().map(|at| cells[*at].as_cell()).collect();
            // Two rows with one key are a fault of the find.
            self.find(session, &key).map_err(|_| WriteFault::Exists)?;
        }
        Ok(cells)
    }

    fn delete(&self, session: &Session, found: &Found) -> Result<(), WriteFault> {
        let removed = session
            .connection
            .prepare_cached(&self.remove)
            .and_then(|mut statement| statement.execute(bound(&found.address)))
            .map_err(|error| self.judged(error, "other records refer to it"))?;
        if removed == 1 { Ok(()) } else { Err(ignored()) }
    }

    /// Makes the change, and what is told of it.
    fn change(
        &self,
        session: &Session,
        change: &Change<'_>,
        clerk: &mut dyn Clerk,
    ) -> Result<Vec<u8>, WriteFault> {
        let found = |key| self.find(session, key)?.ok_or(WriteFault::NotFound);
        let after = |clerk: &mut dyn Clerk, row: &[Value]| {
            clerk.after(&cells(row)).map_err(|Unwritable| WriteFault::Unwritable)
        };
        match change {
            Change::Create { cells } => {
                let row = self.create(session, cells)?;
                after(clerk, &row)
            }
            Change::Update { key, cells: said } => {
                let found = found(key)?;
                let more = clerk.before(&cells(&found.cells)).map_err(|Stale| WriteFault::Stale)?;
                let mut said = said.to_vec();
                said.retain(|(at, _)| !more.iter().any(|(other, _)| other == at));
                said.extend(more.iter().map(|(at, value)| (*at, value.as_cell())));
                let row = self.update(session, &found, &said)?;
                after(clerk, &row)
            }
            Change::Delete { key } => {
                let found = found(key)?;
                clerk.before(&cells(&found.cells)).map_err(|Stale| WriteFault::Stale)?;
                self.delete(session, &found)?;
                after(clerk, &found.cells)
            }
        }
    }
}

impl Writer for TableWriter {
    fn write(&self, write: &Write<'_>, clerk: &mut dyn Clerk) -> Result<Written, WriteFault> {
        self.desk.write(&self.reach, write.stop, |session| {
            let trouble = |trouble| self.desk.of_claims(trouble);
            if let Some(claim) = &write.claim
                && let Some(told) = claims::find(session, claim).map_err(trouble)?
            {
                return Ok((End::Undo, Written::Replayed(told)));
            }
            session.gate.set(self.permit());
            session.hold_at_most(HOLD);
            let told = self.change(session, &write.change, clerk)?;
            session.hold();
            if write.dry_run {
                return Ok((End::Undo, Written::Done));
            }
            if let Some(claim) = &write.claim {
                claims::store(session, claim, &told, write.now_ms).map_err(trouble)?;
            }
            Ok((End::Keep, Written::Done))
        })
    }
}

fn ignored() -> WriteFault {
    WriteFault::Refused { column: None, why: "a trigger of the table keeps it from being changed".into() }
}

fn cells(values: &[Value]) -> Vec<Cell<'_>> {
    values.iter().map(Value::as_cell).collect()
}

fn bound(values: &[Value]) -> impl rusqlite::Params {
    params_from_iter(values.iter().map(|value| Bound::Cell(value.as_cell())))
}

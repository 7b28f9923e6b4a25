//! An author's statement, run with a caller's values.
//!
//! One that reads runs on a connection that cannot write, as long as it may and as long as somebody waits. It cannot
//! go on where it was, so its lock is held until it ends: in WAL mode that keeps nobody waiting; with a rollback
//! journal writers wait, so it has a second there, and whoever has longer statements should use WAL. One that writes
//! runs in one transaction with its claim.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contract::source::{
    Changes, More, Prepared, SourceFault, StatementShape, StatementTerms, Unwritable, Which, WriteFault,
    Written,
};
use contract::{Cell, Kind};
use rusqlite::{Row, Statement};

use super::Options;
use super::claims;
use super::column::{Bound, Column, Expected};
use super::desk::{Desk, End};
use super::fault::{self, Fail, Rules};
use super::gate::Permit;
use super::lex::{self, Token};
use super::pool::Pool;
use super::schema::{References, Schema, Table, quoted};
use super::session::Session;
use super::stop::{self, LOOK_EVERY};
use super::straight::{self, Straight};
use super::witness::{Watch, Witness};

/// How long writers may be kept waiting where readers do that, unless the author allows for more.
const HOLD: Duration = Duration::from_millis(1_000);
/// How long somebody else's lock is waited for.
const PATIENCE: Duration = Duration::from_millis(1_000);
/// Tables with so few rows are read in no time.
const SMALL_ROWS: i64 = 2_000;

pub(super) struct Script {
    pool: Arc<Pool>,
    desk: Arc<Desk>,
    sql: String,
    parameters: Vec<String>,
    kinds: Vec<Kind>,
    /// Places of parameters that have to be integers.
    limits: Vec<usize>,
    /// What goes into columns as it is, with the parameter's place.
    straight: Vec<(usize, Straight)>,
    /// With their places in what the statement gives.
    columns: Vec<(usize, Column)>,
    changes_max: u64,
    writes: bool,
    /// Whether all rows that it gives are new ones.
    adds: bool,
    /// Whether rows may go that SQLite does not count.
    replaces: bool,
    /// As they were when it was prepared; only of one that writes.
    tables: Vec<Table>,
    references: References,
    /// What virtual tables keep their data in.
    kept: Arc<HashSet<String>>,
    is_short: bool,
    time_reading: Duration,
    time_writing: Duration,
}

impl Script {
    pub(super) fn new(
        pool: &Arc<Pool>,
        desk: &Arc<Desk>,
        options: &Options,
        schema: &Schema,
        shape: &StatementShape,
    ) -> Result<Self, SourceFault> {
        let time = Duration::from_millis(shape.time_ms.unwrap_or(options.list_ms_max));
        let hold = if schema.is_wal || shape.time_ms.is_some() { time } else { time.min(HOLD) };
        let columns = shape.columns.iter().map(|column| (column.at, Column::of_statement(column)));
        // What cannot be told apart word by word was never examined.
        let tokens = lex::tokens(&shape.sql).unwrap_or_default();
        let place = |name: &String| shape.parameters.iter().position(|parameter| parameter == name);
        let mut script = Self {
            pool: Arc::clone(pool),
            desk: Arc::clone(desk),
            sql: shape.sql.clone(),
            parameters: shape.parameters.clone(),
            kinds: shape.kinds.clone(),
            limits: straight::limits(&shape.sql, &tokens).iter().filter_map(place).collect(),
            straight: if shape.writes { straight(schema, shape, &tokens) } else { Vec::new() },
            adds: straight::adds(&shape.sql, &tokens),
            replaces: schema.replaces || straight::may_replace(&shape.sql, &tokens),
            tables: if shape.writes { schema.tables.clone() } else { Vec::new() },
            references: schema.references.clone(),
            columns: columns.collect(),
            changes_max: shape.changes_max,
            writes: shape.writes,
            kept: Arc::new(schema.shadows()),
            is_short: false,
            time_reading: hold,
            time_writing: time,
        };
        let looked = pool.aside(&Permit::Examine, |session| script.look(session));
        script.is_short = looked.map_err(|fail| pool.fault(fail))?;
        if shape.writes {
            desk.try_out(Permit::Statement, &[&script.sql])?;
        }
        Ok(script)
    }

    /// Whether the statement is still what it was said to be; and whether it is short.
    fn look(&self, session: &Session) -> Result<bool, Fail> {
        let statement = session.connection.prepare(&self.sql)?;
        let given = statement.column_count();
        if statement.readonly() == self.writes || self.columns.iter().any(|(at, _)| *at >= given) {
            return Err(self.changed());
        }
        drop(statement);
        let tables: Vec<String> = session.gate.noted().tables.into_iter().collect();
        if self.writes {
            return Ok(false);
        }
        let mut plan = session.connection.prepare(&format!("EXPLAIN QUERY PLAN {}", self.sql))?;
        let mut rows = plan.raw_query();
        let mut scans = 0;
        while let Some(row) = rows.next()? {
            match Step::of(&row.get::<_, String>(3)?) {
                Step::Quick => {}
                Step::Scan => scans += 1,
                Step::Slow => return Ok(false),
            }
        }
        Ok(scans == 0 || (scans == 1 && self.are_small(session, &tables)?))
    }

    fn are_small(&self, session: &Session, tables: &[String]) -> Result<bool, Fail> {
        for table in tables {
            let name = quoted(table);
            let rows_max = SMALL_ROWS + 1;
            let sql = format!("SELECT count(*) FROM (SELECT 1 FROM main.{name} LIMIT {rows_max})");
            session.hold_at_most(LOOK_EVERY);
            let counted = session.connection.query_row(&sql, [], |row| row.get::<_, i64>(0));
            session.hold();
            if counted.map_or(true, |rows| rows > SMALL_ROWS) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A truth value that goes into columns of text and nowhere else is written as collections write it.
    fn worded<'a>(&self, arguments: &[Cell<'a>]) -> Vec<Cell<'a>> {
        let is_text = |at: usize| {
            self.kinds.get(at) == Some(&Kind::Boolean)
                && self.straight.iter().any(|(place, one)| *place == at && one.is_only_text)
        };
        let worded = |(at, cell): (usize, &Cell<'a>)| match cell {
            Cell::Integer(1) if is_text(at) => Cell::Text("true"),
            Cell::Integer(0) if is_text(at) => Cell::Text("false"),
            cell => *cell,
        };
        arguments.iter().enumerate().map(worded).collect()
    }

    /// Nothing runs with a value that a column would keep as another: SQLite would not say so.
    fn check_exact(&self, arguments: &[Cell<'_>]) -> Result<(), WriteFault> {
        for (at, straight) in &self.straight {
            let (Some(kind), Some(said)) = (self.kinds.get(*at), arguments.get(*at)) else { continue };
            let why = straight.difference(*kind, *said).map_err(|error| self.desk.fault(error))?;
            if let Some(why) = why {
                return Err(WriteFault::Refused { column: Some(*at), why });
            }
        }
        Ok(())
    }

    fn bind(&self, statement: &mut Statement<'_>, arguments: &[Cell<'_>]) -> rusqlite::Result<()> {
        statement.clear_bindings();
        for (name, cell) in self.parameters.iter().zip(arguments) {
            if let Some(at) = statement.parameter_index(&format!(":{name}"))? {
                statement.raw_bind_parameter(at, Bound::Cell(*cell))?;
            }
        }
        Ok(())
    }

    /// Whether the columns are still those that were examined: `*` stands for others when a table has others.
    fn check_names(&self, row: &Row<'_>) -> Result<(), Fail> {
        let statement = row.as_ref();
        let is_same = |(at, column): &(usize, Column)| {
            *at < statement.column_count() && statement.column_name(*at).is_ok_and(|name| name == column.name)
        };
        if self.columns.iter().all(is_same) { Ok(()) } else { Err(self.changed()) }
    }

    fn changed(&self) -> Fail {
        let told = "a statement no longer gives what it gave; read the database in again".to_owned();
        SourceFault::Changed { log: format!("{told}: {}", self.sql), told }.into()
    }

    fn cells<T>(&self, row: &Row<'_>, hand: impl FnOnce(&[Cell<'_>]) -> T) -> Result<T, Stumble> {
        let mut cells = Vec::with_capacity(self.columns.len());
        for (at, column) in &self.columns {
            let cell = column.cell(row.get_ref(*at)?);
            cells.push(cell.map_err(|expected| Stumble::Misfit { column: column.name.clone(), expected })?);
        }
        Ok(hand(&cells))
    }

    /// Of data that was there before.
    fn stumbled(&self, stumble: Stumble) -> Fail {
        match stumble {
            Stumble::Fail(fail) => fail,
            Stumble::Misfit { column, expected: Expected(expected) } => {
                let what = format!("column `{column}`: expected {expected}");
                let told = format!("{what}, and a row has something else; the data is not what it was");
                SourceFault::Changed { told, log: format!("{what}, in the rows of {}", self.sql) }.into()
            }
        }
    }

    fn run(
        &self,
        session: &Session,
        arguments: &[Cell<'_>],
        handed: &mut u64,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
    ) -> Result<(), Fail> {
        let mut statement = session.connection.prepare_cached(&self.sql)?;
        self.bind(&mut statement, arguments)?;
        let mut rows = statement.raw_query();
        while let Some(found) = rows.next()? {
            if *handed == 0 {
                self.check_names(found)?;
            }
            *handed += 1;
            if self.cells(found, &mut *row).map_err(|stumble| self.stumbled(stumble))? == More::No {
                break;
            }
        }
        Ok(())
    }

    /// Runs one that writes, to its end, and says how many rows were changed, by it and by all that it set off:
    /// triggers and foreign keys.
    fn change(
        &self,
        session: &Session,
        arguments: &[Cell<'_>],
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
    ) -> Result<u64, Stumble> {
        let mut statement = session.connection.prepare_cached(&self.sql)?;
        self.bind(&mut statement, arguments)?;
        let before = session.connection.total_changes();
        let mut rows = statement.raw_query();
        let (mut more, mut is_first) = (More::Yes, true);
        while let Some(found) = rows.next()? {
            if std::mem::take(&mut is_first) {
                self.check_names(found)?;
            }
            if more == More::Yes {
                more = self.cells(found, &mut *row)?;
            }
        }
        drop(rows);
        drop(statement);
        Ok(session.connection.total_changes().saturating_sub(before))
    }

    /// The same; and which rows, where somebody wants to know, with all that SQLite does not count.
    fn change_seen(
        &self,
        session: &Session,
        arguments: &[Cell<'_>],
        which: Which,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
    ) -> Result<Changes, Stumble> {
        if which == Which::Any && !self.replaces {
            return Ok(Changes { rows: self.change(session, arguments, row)?, which: None });
        }
        let rows_max = match which {
            // More than these are refused anyway.
            Which::Told => usize::try_from(self.changes_max).unwrap_or(usize::MAX).saturating_add(1),
            Which::Any => 0,
        };
        let watch = Watch { rows_max, replaces: self.replaces };
        let mut witness = Witness::begin(session, &session.notes, &self.sql, &self.tables, watch)?;
        if which == Which::Told && self.replaces {
            witness.rehearse(&self.references, || self.rehearse(session, arguments))?;
        }
        let counted = self.change(session, arguments, row)?;
        let (uncounted, digest) = witness.end()?;
        Ok(Changes {
            rows: counted.saturating_add(uncounted),
            which: (which == Which::Told).then_some(digest),
        })
    }

    /// Runs it to its end, and tells nobody.
    fn rehearse(&self, session: &Session, arguments: &[Cell<'_>]) -> Result<(), Fail> {
        let mut statement = session.connection.prepare(&self.sql)?;
        self.bind(&mut statement, arguments)?;
        let mut rows = statement.raw_query();
        while rows.next()?.is_some() {}
        Ok(())
    }
}

impl Prepared for Script {
    fn is_short(&self) -> bool {
        self.is_short
    }

    fn read(
        &self,
        arguments: &[Cell<'_>],
        stop: Option<&AtomicBool>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
    ) -> Result<(), SourceFault> {
        let is_stopped = || stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        if self.writes {
            return Err(SourceFault::read_only());
        }
        if is_stopped() {
            return Err(SourceFault::Stopped);
        }
        let mut handed = 0;
        let read = self.pool.read_within(PATIENCE, |session| {
            let _lent = Lent::to_author(session);
            session.hold_at_most(self.time_reading);
            let bell = stop.filter(|_| !self.is_short);
            let ran =
                stop::watched(bell, &session.brake(), || self.run(session, arguments, &mut handed, row));
            match ran {
                // What was handed over cannot be taken back.
                Err(fail) if fail.is_busy() && handed > 0 => Err(self.pool.fault(fail).into()),
                Err(fail) if fail.is_mismatch() => Err(self.unfit(arguments).into()),
                ran => ran,
            }
        });
        match read {
            Err(Fail::Late) if is_stopped() => Err(SourceFault::Stopped),
            read => read.map_err(|fail| self.pool.fault(fail)),
        }
    }

    fn write(
        &self,
        arguments: &[Cell<'_>],
        terms: &StatementTerms<'_>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
        told: &mut dyn FnMut(&Changes) -> Result<Vec<u8>, Unwritable>,
    ) -> Result<Written, WriteFault> {
        if !self.writes {
            return Err(SourceFault::read_only().into());
        }
        self.desk.write(&self.kept, terms.stop, |session| {
            let trouble = |trouble| self.desk.of_claims(trouble);
            if let Some(claim) = &terms.claim
                && let Some(told) = claims::find(session, claim).map_err(trouble)?
            {
                return Ok((End::Undo, Written::Replayed(told)));
            }
            let arguments = &self.worded(arguments)[..];
            self.check_exact(arguments)?;
            session.gate.set(Permit::Statement);
            session.hold_at_most(self.time_writing);
            let changes = self.change_seen(session, arguments, terms.which, row);
            let changes = changes.map_err(|stumble| self.judged(stumble, arguments))?;
            session.hold();
            if changes.rows > self.changes_max {
                return Err(WriteFault::TooMany { rows: changes.rows, most: self.changes_max });
            }
            let told = told(&changes).map_err(|Unwritable| WriteFault::Unwritable)?;
            if terms.dry_run {
                return Ok((End::Undo, Written::Done));
            }
            if let Some(claim) = &terms.claim {
                claims::store(session, claim, &told, terms.now_ms).map_err(trouble)?;
            }
            Ok((End::Keep, Written::Done))
        })
    }
}

impl Script {
    /// A limit that is no integer.
    fn unfit(&self, arguments: &[Cell<'_>]) -> SourceFault {
        let is_other = |at: &&usize| !matches!(arguments.get(**at), Some(Cell::Integer(_)));
        let why = "how many rows, or where to begin, has to be an integer".to_owned();
        SourceFault::Unfit { parameter: self.limits.iter().find(is_other).copied(), why }
    }

    fn judged(&self, stumble: Stumble, arguments: &[Cell<'_>]) -> WriteFault {
        if let Stumble::Misfit { column, expected: Expected(expected) } = &stumble {
            // It is the caller's value, and not what was there before: `coalesce(:a, a)` leaves that for a NULL.
            let is_it = |(at, one): &&(usize, Straight)| {
                let is_said = arguments.get(*at).is_some_and(|said| *said != Cell::Null);
                is_said && one.column.eq_ignore_ascii_case(column)
            };
            if let Some((at, _)) = self.straight.iter().find(is_it) {
                let why = format!("the column `{column}` has {expected}, and this would be something else");
                return WriteFault::Refused { column: Some(*at), why };
            }
            // Whatever a new row has comes from the call.
            if self.adds {
                return WriteFault::Unwritable;
            }
        }
        let fail = self.stumbled(stumble);
        let refused = match &fail {
            Fail::Sql(error) => Rules::default().refused(error),
            Fail::Late | Fail::Fault(_) => None,
        };
        refused.unwrap_or_else(|| fault::of_writing(fail, self.pool.path()).into())
    }
}

/// Why a row could not be handed over.
enum Stumble {
    Fail(Fail),
    /// A value is not what the statement's columns were found to hold.
    Misfit {
        column: String,
        expected: Expected,
    },
}

impl From<Fail> for Stumble {
    fn from(fail: Fail) -> Self {
        Self::Fail(fail)
    }
}

impl From<rusqlite::Error> for Stumble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Fail(error.into())
    }
}

/// What a statement that writes puts into columns as it is.
fn straight(schema: &Schema, shape: &StatementShape, tokens: &[Token]) -> Vec<(usize, Straight)> {
    let place = |one: Straight| {
        let at = shape.parameters.iter().position(|parameter| *parameter == one.parameter)?;
        Some((at, one))
    };
    straight::all(&shape.sql, tokens, schema).into_iter().filter_map(place).collect()
}

/// A pooled connection may do what authors may, until this ends.
struct Lent<'s>(&'s Session);

impl<'s> Lent<'s> {
    fn to_author(session: &'s Session) -> Self {
        session.gate.set(Permit::Statement);
        Self(session)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.gate.set(Permit::Rows);
    }
}

/// A line of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// At most one row, found by its number; or what is done with few rows.
    Quick,
    Scan,
    Slow,
}

impl Step {
    fn of(line: &str) -> Self {
        if line.starts_with("SEARCH ") && line.ends_with(" USING INTEGER PRIMARY KEY (rowid=?)") {
            return Self::Quick;
        }
        if line == "SCAN CONSTANT ROW" || line.starts_with("USE TEMP B-TREE FOR ") {
            return Self::Quick;
        }
        // Of one table, at most all of it.
        let is_one = line.starts_with("SCAN ") || (line.starts_with("SEARCH ") && line.contains(" USING "));
        if is_one && !line.contains("VIRTUAL TABLE") { Self::Scan } else { Self::Slow }
    }
}

#[cfg(test)]
mod tests {
    use super::Step;

    #[test]
    fn only_what_is_known_to_be_quick_is() {
        for (line, expected) in [
            ("SEARCH t USING INTEGER PRIMARY KEY (rowid=?)", Step::Quick),
            ("SEARCH t USING INTEGER PRIMARY KEY (rowid>?)", Step::Scan),
            ("SEARCH t USING INDEX i (a=?)", Step::Scan),
            ("SCAN t", Step::Scan),
            ("SCAN CONSTANT ROW", Step::Quick),
            ("USE TEMP B-TREE FOR ORDER BY", Step::Quick),
            ("SCAN f VIRTUAL TABLE INDEX 0:M1", Step::Slow),
            ("MATERIALIZE n", Step::Slow),
            ("RECURSIVE STEP", Step::Slow),
        ] {
            assert_eq!(Step::of(line), expected, "{line}");
        }
    }
}

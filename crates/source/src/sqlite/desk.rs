//! The one connection that writes. Whoever has it has it alone; others wait for a moment.
//!
//! It is opened when somebody has something to write, and only on a file that is there. Each time it is looked
//! whether the path still leads to that file, as we left it; else it is opened anew. Everything happens in one
//! transaction that is begun for writing, so nobody else's change can come between a look and a write.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::source::{SourceFault, WriteFault};

use super::claims::Trouble;
use super::fault::{self, Fail, Rules};
use super::gate::Permit;
use super::pool::{FileId, Pool, file_id};
use super::session::Session;
use super::stop::{self, LOOK_EVERY};

/// How long somebody else's lock is waited for, and our own: a caller waits.
const PATIENCE: Duration = Duration::from_millis(2_000);

pub(super) struct Desk {
    pub(super) pool: Arc<Pool>,
    seat: Mutex<Seat>,
    freed: Condvar,
}

#[derive(Default)]
struct Seat {
    is_taken: bool,
    idle: Option<Open>,
}

struct Open {
    session: Box<Session>,
    /// As it was left.
    file: Option<FileId>,
}

/// How a transaction ends that did what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Keep,
    Undo,
}

impl Desk {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        Self { pool: Arc::clone(pool), seat: Mutex::default(), freed: Condvar::new() }
    }

    /// Runs one transaction: all of it or nothing, and nothing if nobody waits for it any more. What virtual tables
    /// keep may still be written at its end.
    pub(super) fn write<T>(
        &self,
        kept: &Arc<HashSet<String>>,
        stop: Option<&AtomicBool>,
        run: impl FnOnce(&Session) -> Result<(End, T), WriteFault>,
    ) -> Result<T, WriteFault> {
        let is_stopped = || stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        let mut turn = self.sit_down(stop)?;
        let open = self.opened(turn.open.take())?;
        let session = &open.session;
        own(session);
        session.hold();
        self.sql(session, "BEGIN IMMEDIATE")?;
        let ended = match self.still_there(&open) {
            Ok(()) => stop::watched(stop, &session.brake(), || run(session)),
            Err(fault) => Err(fault),
        };
        session.gate.set(Permit::Tables(Arc::clone(kept)));
        session.hold();
        let ended = match ended {
            // The last moment at which it can be taken back.
            _ if is_stopped() => Err(SourceFault::Stopped.into()),
            Ok((End::Keep, done)) => match self.sql(session, "COMMIT") {
                Ok(()) => {
                    // Before anybody is told that it is done.
                    self.pool.wrote();
                    Ok(done)
                }
                Err(fault) => Err(fault),
            },
            Ok((End::Undo, done)) => Ok(done),
            Err(fault) => Err(fault),
        };
        if !session.connection.is_autocommit() {
            // If that fails the connection is closed, which does the same.
            let _ = self.sql(session, "ROLLBACK");
        }
        own(session);
        if session.connection.is_autocommit() {
            turn.open = Some(Open { file: file_id(self.pool.path()), ..open });
        }
        ended
    }

    /// Whether these statements can be prepared, in a database that can be written to. Nobody is waited for: where
    /// somebody sits, that is found out on a connection of its own.
    pub(super) fn try_out(&self, permit: Permit, statements: &[&str]) -> Result<(), SourceFault> {
        let mut turn = self.sit_down_if_free();
        let open = self.opened(turn.as_mut().and_then(|turn| turn.open.take()))?;
        open.session.gate.set(permit);
        for sql in statements {
            open.session.connection.prepare_cached(sql).map_err(|error| self.fault(error))?;
        }
        own(&open.session);
        if let Some(turn) = &mut turn {
            turn.open = Some(open);
        }
        Ok(())
    }

    pub(super) fn fault(&self, error: rusqlite::Error) -> SourceFault {
        fault::of_writing(Fail::from(error), self.pool.path())
    }

    pub(super) fn of_claims(&self, trouble: Trouble) -> WriteFault {
        match trouble {
            Trouble::Sql(error) => self.fault(error).into(),
            Trouble::Fault(fault) => fault,
        }
    }

    fn sql(&self, session: &Session, sql: &str) -> Result<(), WriteFault> {
        let done = session.connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        // What is only judged at the end: a foreign key that is deferred.
        done.map(drop)
            .map_err(|error| Rules::default().refused(&error).unwrap_or_else(|| self.fault(error).into()))
    }

    fn sit_down(&self, stop: Option<&AtomicBool>) -> Result<Turn<'_>, SourceFault> {
        let until = Instant::now() + PATIENCE;
        let mut seat = self.lock();
        loop {
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                // If it was this one's turn, it is another's now.
                self.freed.notify_one();
                return Err(SourceFault::Stopped);
            }
            if !seat.is_taken {
                break;
            }
            if Instant::now() >= until {
                return Err(SourceFault::Busy { log: "others of ours are writing".into() });
            }
            (seat, _) = self.freed.wait_timeout(seat, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner);
        }
        seat.is_taken = true;
        Ok(Turn { desk: self, open: seat.idle.take() })
    }

    fn sit_down_if_free(&self) -> Option<Turn<'_>> {
        let mut seat = self.lock();
        if seat.is_taken {
            return None;
        }
        seat.is_taken = true;
        Some(Turn { desk: self, open: seat.idle.take() })
    }

    /// The connection there is, if the file is as we left it; else a new one.
    fn opened(&self, open: Option<Open>) -> Result<Open, SourceFault> {
        let file = file_id(self.pool.path());
        if let Some(open) = open.filter(|open| file.is_some() && open.file == file) {
            return Ok(open);
        }
        // Who reads what is written now must not read it in the file from before.
        self.pool.doubt();
        let path = self.pool.absolute().map_err(|fail| self.pool.fault(fail))?;
        let session = Session::open_to_write(&path, PATIENCE).map_err(|error| self.fault(error))?;
        if session.connection.is_readonly("main").unwrap_or(true) {
            return Err(fault::closed_to_writers(self.pool.path(), "opened read only".into()));
        }
        Ok(Open { session: Box::new(session), file })
    }

    /// Whether the file that is locked now is the one that the path leads to.
    fn still_there(&self, open: &Open) -> Result<(), WriteFault> {
        let now = file_id(self.pool.path());
        if which(now) == which(open.file) {
            return Ok(());
        }
        let fault = match now {
            None => self.pool.fault(self.pool.missing()),
            Some(_) => SourceFault::Busy { log: "another file was put in its place".into() },
        };
        Err(fault.into())
    }

    fn lock(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between statements nothing is allowed but to begin and to end.
fn own(session: &Session) {
    session.gate.set(Permit::Tables(Arc::default()));
}

#[cfg(unix)]
fn which(file: Option<FileId>) -> Option<(u64, u64)> {
    file.map(|(device, node, ..)| (device, node))
}

#[cfg(not(unix))]
fn which(file: Option<FileId>) -> Option<()> {
    file
}

/// Somebody sits at the desk until this ends, however it ends.
struct Turn<'d> {
    desk: &'d Desk,
    open: Option<Open>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut seat = self.desk.lock();
        seat.is_taken = false;
        seat.idle = self.open.take();
        drop(seat);
        self.desk.freed.notify_one();
    }
}

/// Why nothing can be written to this file at all, as its owner may have meant it.
pub(super) fn forbidden(path: &Path) -> Option<String> {
    let is_closed = |path: &Path| std::fs::metadata(path).is_ok_and(|file| file.permissions().readonly());
    if is_closed(path) {
        return Some("the file is read only".into());
    }
    let path = path.canonicalize().ok()?;
    // A journal has to be made beside it.
    path.parent().is_some_and(is_closed).then(|| "its folder is read only".into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use contract::source::{Change, Clerk, Shape, ShapeColumn, Stale, Unwritable, Write, Writer};
    use contract::{Cell, Kind, Value};

    use super::super::gate::Permit;
    use super::super::pool::Pool;
    use super::super::schema;
    use super::super::writer::TableWriter;
    use super::Desk;

    struct Silent;

    impl Clerk for Silent {
        fn before(&mut self, _: &[Cell<'_>]) -> Result<Vec<(usize, Value)>, Stale> {
            Ok(Vec::new())
        }

        fn after(&mut self, _: &[Cell<'_>]) -> Result<Vec<u8>, Unwritable> {
            Ok(Vec::new())
        }
    }

    /// A desk at which only so many pages fit into the file, as on a disk that is full.
    #[test]
    fn a_full_disk_is_told_and_nothing_is_written() {
        for mode in ["DELETE", "WAL"] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("t.db");
            let other = rusqlite::Connection::open(&path).expect("a database");
            let sql = format!("PRAGMA journal_mode = {mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)");
            other.execute_batch(&sql).expect("a table");
            let pool = Arc::new(Pool::new(&path, 2));
            let desk = Arc::new(Desk::new(&pool));
            let schema = pool.schema(|session| Ok(schema::read(&session.connection)?)).expect("a schema");
            let column = |at, name: &str, kind| ShapeColumn {
                at,
                name: name.into(),
                kind,
                nullable: at > 0,
                mixed: false,
                null: None,
            };
            let columns = vec![column(0, "id", Kind::Integer), column(1, "v", Kind::Text)];
            let shape = Shape { table: "t".into(), columns, key: vec![0] };
            let writer = TableWriter::new(&desk, &Default::default(), &schema, &shape).expect("a writer");
            let mut seat = desk.lock();
            let connection = &mut seat.idle.as_mut().expect("tried out").session.connection;
            let none: Option<fn(rusqlite::hooks::AuthContext<'_>) -> rusqlite::hooks::Authorization> = None;
            connection.authorizer(none).expect("set");
            connection.query_row("PRAGMA max_page_count = 3", [], |_| Ok(())).expect("set");
            drop(seat);
            let create = |id, text: &str| {
                let cells = [(0, Cell::Integer(id)), (1, Cell::Text(text))];
                let change = Change::Create { cells: &cells };
                writer
                    .write(&Write { change, claim: None, dry_run: false, now_ms: 0, stop: None }, &mut Silent)
            };
            let fault = create(1, &"x".repeat(1 << 20)).expect_err("there is no room");
            assert_eq!(fault.to_string(), "there is no room left for `t.db`; nothing was written");
            let rows: i64 =
                other.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("a number");
            assert_eq!(rows, 0);
            create(1, "x").expect("what fits is written");
        }
    }

    #[test]
    fn nobody_sits_down_where_somebody_sits() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.db");
        rusqlite::Connection::open(&path)
            .expect("a database")
            .execute_batch("CREATE TABLE t(a)")
            .expect("a table");
        let desk = Desk::new(&Arc::new(Pool::new(&path, 2)));
        let turn = desk.sit_down(None).expect("free");
        assert!(matches!(desk.sit_down(None), Err(contract::source::SourceFault::Busy { .. })));
        let permit = || Permit::Tables(Arc::new(HashSet::from(["t".to_owned()])));
        desk.try_out(permit(), &["DELETE FROM t"]).expect("who tries something out waits for nobody");
        assert!(desk.try_out(permit(), &["DELETE FROM u"]).is_err(), "and finds out all the same");
        drop(turn);
        assert!(desk.sit_down(None).is_ok());
    }
}

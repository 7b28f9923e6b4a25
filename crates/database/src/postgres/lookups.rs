//! Reads of single rows on one connection that all callers share, without a thread for each of them.
//!
//! Statements follow each other on it without waiting (pipelining). This is only for what is answered at once: whatever goes
//! wrong or takes long is [`QuickRead::Unknown`], and the call runs like any other on a connection of the pool, where it is
//! limited and cancelled, and where its error is told. So nothing here decides what callers learn, but for the row.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::Value;
use contract::source::{QuickRead, QuickReadFuture};
use futures_util::TryStreamExt;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};

use super::session::{SessionTls, cancel, param_types, row_cells};
use crate::call::CONNECT_MAX;
use crate::column::Column;
use crate::connection::{Sql, check_types};

/// A read that has no answer then goes to the pool.
const ANSWER_MAX: Duration = Duration::from_millis(250);
/// How long the database has to stop a statement.
const CANCEL_MAX: Duration = Duration::from_secs(2);
/// So many reads wait for their answers at the same time; others go to the pool.
const WAITING_MAX: usize = 64;
/// A larger row goes to the pool: here it would keep others from being answered.
const ROW_BYTES_MAX: usize = 65_536;
const STATEMENTS_MAX: usize = 256;
/// After the connection was given up, so much time passes before there is another.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Lookups {
    config: Config,
    tls: SessionTls,
    state: Mutex<State>,
}

enum State {
    /// Nobody has asked: a program that reads one row needs no second connection.
    Unused,
    Closed {
        since: Instant,
    },
    Connecting,
    Open(Arc<Session>),
}

/// The connection.
struct Session {
    client: Client,
    tls: SessionTls,
    statements: Mutex<HashMap<String, Statement>>,
    waiting: AtomicUsize,
}

/// A read that has no answer yet.
struct Attempt {
    lookups: Arc<Lookups>,
    session: Arc<Session>,
    is_answered: bool,
}

impl Lookups {
    pub(super) fn new(config: Config, tls: SessionTls) -> Arc<Self> {
        Arc::new(Self { config, tls, state: Mutex::new(State::Unused) })
    }

    /// Reads the one row that a statement returns.
    pub(super) fn read(self: &Arc<Self>, sql: Sql, columns: Arc<[Column]>) -> QuickReadFuture {
        let lookups = Arc::clone(self);
        Box::pin(async move {
            let Some(session) = lookups.session() else { return QuickRead::Unknown };
            let Some(mut attempt) = Attempt::begin(lookups, session) else { return QuickRead::Unknown };
            let answer = timeout(ANSWER_MAX, attempt.session.row(&sql)).await;
            attempt.is_answered = true;
            match answer {
                Ok(Ok(row)) => row.map_or(QuickRead::NoRow, |row| to_values(&sql, &row, &columns)),
                Ok(Err(Unanswered)) => {
                    attempt.lookups.forget(&attempt.session);
                    QuickRead::Unknown
                }
                Err(_) => {
                    attempt.lookups.give_up(&attempt.session);
                    QuickRead::Unknown
                }
            }
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, if there is one. Otherwise it is opened for those who come later.
    fn session(self: &Arc<Self>) -> Option<Arc<Session>> {
        let mut state = self.state();
        match &*state {
            State::Open(session) => return Some(Arc::clone(session)),
            State::Connecting => return None,
            State::Unused => {
                *state = State::Closed { since: Instant::now().checked_sub(PAUSE)? };
                return None;
            }
            State::Closed { since } if since.elapsed() < PAUSE => return None,
            State::Closed { .. } => *state = State::Connecting,
        }
        let lookups = Arc::clone(self);
        tokio::spawn(async move {
            let connected = timeout(CONNECT_MAX, lookups.connect()).await;
            *lookups.state() = match connected {
                Ok(Ok(session)) => State::Open(Arc::new(session)),
                // The pool tells why.
                Ok(Err(_)) | Err(_) => State::Closed { since: Instant::now() },
            };
        });
        None
    }

    async fn connect(&self) -> Result<Session, tokio_postgres::Error> {
        let client = match &self.tls {
            SessionTls::Off => {
                let (client, connection) = self.config.connect(NoTls).await?;
                tokio::spawn(async move { drop(connection.await) });
                client
            }
            SessionTls::On(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                tokio::spawn(async move { drop(connection.await) });
                client
            }
        };
        Ok(Session {
            client,
            tls: self.tls.clone(),
            statements: Mutex::default(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// After an error: the tables may have changed, or the connection is gone.
    fn forget(&self, session: &Arc<Session>) {
        session.statements().clear();
        if session.client.is_closed() {
            self.close(session);
        }
    }

    /// Stops what the connection runs. Who waits on it goes to the pool.
    fn give_up(&self, session: &Arc<Session>) {
        if self.close(session) {
            let session = Arc::clone(session);
            tokio::spawn(async move { timeout(CANCEL_MAX, cancel(&session.client, &session.tls)).await });
        }
    }

    /// Lets nobody use the connection any more; false if it was so already.
    fn close(&self, session: &Arc<Session>) -> bool {
        let mut state = self.state();
        let is_open = matches!(&*state, State::Open(open) if Arc::ptr_eq(open, session));
        if is_open {
            *state = State::Closed { since: Instant::now() };
        }
        is_open
    }
}

/// The database did not answer with a row or with none.
struct Unanswered;

impl From<tokio_postgres::Error> for Unanswered {
    fn from(_: tokio_postgres::Error) -> Self {
        Self
    }
}

impl Session {
    fn statements(&self) -> MutexGuard<'_, HashMap<String, Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn row(&self, sql: &Sql) -> Result<Option<Row>, Unanswered> {
        let known = self.statements().get(&sql.text).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => self.prepare(sql).await?,
        };
        let params = sql.params.iter().map(|param| param as &(dyn ToSql + Sync));
        let mut rows = pin!(self.client.query_raw(&statement, params).await?);
        let row = rows.try_next().await?;
        // To the end, where an error may be. A key has one row.
        match rows.try_next().await? {
            None => Ok(row),
            Some(_) => Err(Unanswered),
        }
    }

    async fn prepare(&self, sql: &Sql) -> Result<Statement, Unanswered> {
        let statement = self.client.prepare_typed(&sql.text, &param_types(sql)).await?;
        check_types(sql, statement.columns()).map_err(|_| Unanswered)?;
        let mut statements = self.statements();
        if statements.len() >= STATEMENTS_MAX {
            statements.clear();
        }
        statements.insert(sql.text.clone(), statement.clone());
        Ok(statement)
    }
}

fn to_values(sql: &Sql, row: &Row, columns: &[Column]) -> QuickRead {
    if row.raw_size_bytes() > ROW_BYTES_MAX {
        return QuickRead::Unknown;
    }
    let Ok(cells) = row_cells(sql, row) else { return QuickRead::Unknown };
    let is_accepted = columns.iter().zip(&cells).all(|(column, cell)| column.accepts(cell.as_value_ref()));
    if !is_accepted {
        return QuickRead::Unknown;
    }
    let values: Vec<Value> = cells.iter().map(|cell| cell.as_value_ref().to_value()).collect();
    QuickRead::Row(values)
}

impl Attempt {
    /// `None` if too many are waiting.
    fn begin(lookups: Arc<Lookups>, session: Arc<Session>) -> Option<Self> {
        let waiting = session.waiting.fetch_add(1, Ordering::Relaxed);
        let is_refused = waiting >= WAITING_MAX;
        let attempt = Self { lookups, session, is_answered: is_refused };
        (!is_refused).then_some(attempt)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.session.waiting.fetch_sub(1, Ordering::Relaxed);
        if self.is_answered {
            return;
        }
        // The caller has gone away. If the statement is one that waits for something, it is stopped.
        let (lookups, session) = (Arc::clone(&self.lookups), Arc::clone(&self.session));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            // Answered after everything before it.
            if timeout(ANSWER_MAX, session.client.batch_execute("")).await.is_err() {
                lookups.give_up(&session);
            }
        });
    }
}

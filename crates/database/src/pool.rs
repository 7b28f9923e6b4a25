//! A bounded pool of connections: at most so many, a bounded queue before them, and a source that heals by itself.
//!
//! Connections that nobody uses are closed by a thread that exists only while there are some.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::source::{QuickReadFuture, SourceError};

use crate::call::CallLimits;
use crate::column::Column;
use crate::connection::{Connection, Engine, Sql};
use crate::error::DbError;
use crate::options::CallerMode;

/// So many calls wait for each connection; others are refused at once.
const WAITING_PER_CONNECTION: usize = 16;
/// A call that has waited so long is refused.
const WAIT_MAX: Duration = Duration::from_secs(5);
const RETRY_AFTER_MS: u64 = 1_000;
/// An unused connection is closed.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// A connection that was unused for so long is asked whether the other side is still there: a firewall may have forgotten it, and
/// then nobody would say so.
const UNASKED_MAX: Duration = Duration::from_secs(10);
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// After an attempt to connect failed, the next one is made so much later: the pause doubles, with jitter.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(1_000);

pub(crate) struct Pool {
    engine: Box<dyn Engine>,
    connections_max: usize,
    unasked_max: Duration,
    idle_max: Duration,
    /// Who calls are in the database.
    pub(crate) callers: CallerMode,
    shared: Arc<Shared>,
    /// Whether the database may be another one than when its catalog was read, or could not be reached since.
    is_suspicious: AtomicBool,
}

/// What the pool and the thread that closes unused connections share.
#[derive(Default)]
struct Shared {
    state: Mutex<PoolState>,
    freed: Condvar,
    /// Wakes the thread that closes unused connections, when the pool ends.
    ended: Condvar,
}

#[derive(Default)]
struct PoolState {
    /// The last one was used last.
    idle: Vec<(Instant, Box<dyn Connection>)>,
    open: usize,
    waiting: usize,
    outage: Option<Outage>,
    /// Whether there is a thread that closes unused connections.
    is_watched: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes connections that were unused for too long, until there are no unused ones.
    fn close_unused(&self, idle_max: Duration) {
        let mut state = self.state();
        loop {
            let closed = state.take_expired(Instant::now(), idle_max);
            if !closed.is_empty() {
                drop(state);
                // Outside the lock: closing may talk to the network.
                drop(closed);
                state = self.state();
                continue;
            }
            let Some((since, _)) = state.idle.first() else {
                state.is_watched = false;
                return;
            };
            let left = idle_max.saturating_sub(since.elapsed());
            state = self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl PoolState {
    /// Takes the connections that were unused for so long out of the pool.
    fn take_expired(&mut self, now: Instant, idle_max: Duration) -> Vec<(Instant, Box<dyn Connection>)> {
        let is_expired = |(since, _): &(Instant, _)| now.saturating_duration_since(*since) >= idle_max;
        let expired = self.idle.partition_point(is_expired);
        self.open -= expired;
        self.idle.drain(..expired).collect()
    }

    fn take_idle(&mut self) -> Vec<(Instant, Box<dyn Connection>)> {
        self.open -= self.idle.len();
        std::mem::take(&mut self.idle)
    }
}

/// The database could not be reached.
struct Outage {
    error: SourceError,
    pause: Duration,
    retry_at: Instant,
}

/// A connection that goes back to its pool.
pub(crate) struct Pooled<'p> {
    pool: &'p Pool,
    connection: Option<Box<dyn Connection>>,
    /// Whether it was used before, so that the other side may have closed it meanwhile.
    pub(crate) is_reused: bool,
}

impl Pool {
    pub(crate) fn new(engine: Box<dyn Engine>, connections_max: usize, callers: CallerMode) -> Self {
        Self {
            engine,
            connections_max,
            unasked_max: UNASKED_MAX,
            idle_max: IDLE_MAX,
            callers,
            shared: Arc::default(),
            is_suspicious: AtomicBool::new(false),
        }
    }

    /// Whether an outage began or ended, or a table was not as expected, since the last time this was asked.
    pub(crate) fn take_suspicion(&self) -> bool {
        self.is_suspicious.swap(false, Ordering::Relaxed)
    }

    /// Reads the one row that a statement returns, beside the connections of the pool.
    pub(crate) fn read_quickly(&self, sql: Sql, columns: Arc<[Column]>) -> Option<QuickReadFuture> {
        self.engine.read_quickly(sql, columns)
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.shared.state()
    }

    /// Runs `work`, a second time if the connection was one that had been closed meanwhile. `work` must be able to begin
    /// again, as everything is that only reads, or has not begun its transaction yet.
    pub(crate) fn with_connection<T>(
        &self,
        limits: &CallLimits<'_>,
        mut work: impl FnMut(&mut dyn Connection) -> Result<T, DbError>,
    ) -> Result<T, SourceError> {
        let mut connection = self.check_out(limits)?;
        let mut worked = work(&mut **connection);
        if connection.is_reused && matches!(worked, Err(DbError::Lost { .. })) {
            // The others were closed at the same time, most probably.
            drop(connection);
            self.close_idle();
            connection = self.check_out(limits)?;
            worked = work(&mut **connection);
        }
        let worked = worked.map_err(DbError::into_source_error);
        if matches!(worked, Err(SourceError::Incompatible { .. })) {
            self.is_suspicious.store(true, Ordering::Relaxed);
        }
        worked
    }

    /// Takes a connection, a new one if there are not too many.
    pub(crate) fn check_out(&self, limits: &CallLimits<'_>) -> Result<Pooled<'_>, SourceError> {
        let started = Instant::now();
        let mut state = self.state();
        loop {
            limits.check()?;
            if let Some((since, connection)) = state.idle.pop() {
                drop(state);
                let unused = since.elapsed();
                let mut pooled = Pooled { pool: self, connection: Some(connection), is_reused: true };
                if unused < self.unasked_max
                    || (unused < self.idle_max && pooled.answers(&limits.at_most(ANSWER_MAX)))
                {
                    return Ok(pooled);
                }
                pooled.close();
                state = self.state();
                continue;
            }
            if state.open < self.connections_max {
                if let Some(outage) = &state.outage
                    && Instant::now() < outage.retry_at
                {
                    return Err(outage.error.clone());
                }
                state.open += 1;
                drop(state);
                return self.connect(limits);
            }
            if state.waiting >= self.connections_max * WAITING_PER_CONNECTION || started.elapsed() > WAIT_MAX
            {
                return Err(SourceError::Overloaded { retry_after_ms: RETRY_AFTER_MS });
            }
            state.waiting += 1;
            let waited = self.shared.freed.wait_timeout(state, limits.next_check());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
    }

    fn connect(&self, limits: &CallLimits<'_>) -> Result<Pooled<'_>, SourceError> {
        let connected = self.engine.connect(limits);
        let mut state = self.state();
        match connected {
            Ok(connection) => {
                if state.outage.take().is_some() {
                    self.is_suspicious.store(true, Ordering::Relaxed);
                }
                Ok(Pooled { pool: self, connection: Some(connection), is_reused: false })
            }
            // The call ended before the database answered: that says nothing about the database.
            Err(error @ (SourceError::Cancelled | SourceError::Timeout)) => {
                state.open -= 1;
                self.shared.freed.notify_one();
                Err(error)
            }
            Err(error) => {
                if state.outage.is_none() {
                    self.is_suspicious.store(true, Ordering::Relaxed);
                }
                let last = state.outage.as_ref().map_or(PAUSE_MIN / 2, |outage| outage.pause);
                let pause = (last * 2).min(PAUSE_MAX);
                // Half of the pause is jitter, so that many servers do not come back at the same moment.
                let random = RandomState::new().build_hasher().finish() % 1000;
                let retry_at = Instant::now() + pause.mul_f64(0.5 + random as f64 / 2000.0);
                state.outage = Some(Outage { error: error.clone(), pause, retry_at });
                state.open -= 1;
                self.shared.freed.notify_one();
                Err(error)
            }
        }
    }

    fn close_idle(&self) {
        let closed = self.state().take_idle();
        // Outside the lock: closing may talk to the network.
        drop(closed);
    }

    /// Makes sure that there is a thread that closes unused connections.
    fn watch_idle(&self, state: &mut PoolState) {
        if state.is_watched {
            return;
        }
        let (shared, idle_max) = (Arc::clone(&self.shared), self.idle_max);
        let thread = std::thread::Builder::new().name("database-idle".to_owned());
        // Without a thread, the connection stays open until somebody uses it.
        state.is_watched = thread.spawn(move || shared.close_unused(idle_max)).is_ok();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close_idle();
        self.shared.ended.notify_all();
    }
}

impl Pooled<'_> {
    /// It does not go back to the pool.
    fn close(mut self) {
        let closed = self.connection.take();
        self.pool.state().open -= 1;
        self.pool.shared.freed.notify_one();
        // Outside the lock: closing may talk to the network.
        drop(closed);
    }
}

impl Deref for Pooled<'_> {
    type Target = Box<dyn Connection>;

    fn deref(&self) -> &Self::Target {
        self.connection.as_ref().expect("present until it is dropped")
    }
}

impl DerefMut for Pooled<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.connection.as_mut().expect("present until it is dropped")
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if connection.is_in_transaction() && connection.is_usable() {
            // A failure makes it unusable.
            let _ = connection.roll_back();
        }
        let mut state = self.pool.state();
        if connection.is_usable() {
            state.idle.push((Instant::now(), connection));
            self.pool.watch_idle(&mut state);
        } else {
            state.open -= 1;
        }
        drop(state);
        self.pool.shared.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::connection::{Description, OnRow};
    use crate::mysql::MySql;
    use crate::options::Options;
    use crate::postgres::Postgres;
    use crate::schema::Schema;
    use contract::source::SourceIdentity;

    /// Connections that stop to answer when `is_silent` is set.
    #[derive(Default)]
    struct Network {
        is_silent: AtomicBool,
        opened: AtomicUsize,
        asked: AtomicUsize,
    }

    struct Line {
        network: Arc<Network>,
        is_usable: bool,
    }

    impl Engine for Arc<Network> {
        fn connect(&self, _: &CallLimits<'_>) -> Result<Box<dyn Connection>, SourceError> {
            self.opened.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(Line { network: Arc::clone(self), is_usable: true }))
        }
    }

    impl Connection for Line {
        fn run(&mut self, _: &Sql, _: &CallLimits<'_>, _: &mut OnRow<'_>) -> Result<u64, DbError> {
            Ok(0)
        }

        fn describe(&mut self, _: &str, _: bool, _: &CallLimits<'_>) -> Result<Description, DbError> {
            Ok(Description::default())
        }

        fn begin_read(&mut self, _: Option<&SourceIdentity>, _: &CallLimits<'_>) -> Result<(), DbError> {
            Ok(())
        }

        fn begin(&mut self, _: Option<&SourceIdentity>, _: &CallLimits<'_>) -> Result<(), DbError> {
            Ok(())
        }

        fn read_in_transaction(
            &mut self,
            _: Option<&SourceIdentity>,
            _: &Sql,
            _: &CallLimits<'_>,
            _: &mut OnRow<'_>,
        ) -> Result<(), DbError> {
            Ok(())
        }

        fn set_role(&mut self, _: Option<&str>, _: &CallLimits<'_>) -> Result<(), DbError> {
            Ok(())
        }

        fn commit(&mut self, _: &CallLimits<'_>) -> Result<(), DbError> {
            Ok(())
        }

        fn roll_back(&mut self) -> Result<(), DbError> {
            Ok(())
        }

        fn define(&mut self, _: &str, _: &CallLimits<'_>) -> Result<(), DbError> {
            Ok(())
        }

        fn read_schema(
            &mut self,
            _: &[String],
            _: CallerMode,
            _: &CallLimits<'_>,
        ) -> Result<Schema, DbError> {
            Ok(Schema::default())
        }

        fn answers(&mut self, _: &CallLimits<'_>) -> bool {
            self.network.asked.fetch_add(1, Ordering::Relaxed);
            self.is_usable = !self.network.is_silent.load(Ordering::Relaxed);
            self.is_usable
        }

        fn is_usable(&self) -> bool {
            self.is_usable
        }

        fn is_in_transaction(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_connection_that_died_while_nobody_used_it_is_replaced() {
        for (unasked_max, is_silent, opened, asked) in [
            (Duration::ZERO, true, 2, 1),
            (Duration::ZERO, false, 1, 1),
            // It was used a moment ago.
            (UNASKED_MAX, true, 1, 0),
        ] {
            let network = Arc::new(Network::default());
            let mut pool = Pool::new(Box::new(Arc::clone(&network)), 1, CallerMode::Connection);
            pool.unasked_max = unasked_max;
            let limits = CallLimits::new(None, Duration::from_secs(60));
            drop(pool.check_out(&limits).expect("a connection"));
            network.is_silent.store(is_silent, Ordering::Relaxed);
            let second = pool.check_out(&limits).expect("a connection");
            let found = (network.opened.load(Ordering::Relaxed), network.asked.load(Ordering::Relaxed));
            assert_eq!(found, (opened, asked), "{unasked_max:?} {is_silent}");
            drop(second);
            assert_eq!(pool.state().open, 1, "{unasked_max:?} {is_silent}");
        }
    }

    #[test]
    fn connections_that_nobody_uses_are_closed() {
        let network = Arc::new(Network::default());
        let new = || Pool::new(Box::new(Arc::clone(&network)), 3, CallerMode::Connection);
        let limits = CallLimits::new(None, Duration::from_secs(60));
        let mut pool = new();
        pool.idle_max = Duration::from_secs(3600);
        let all: Vec<_> = (0..3).map(|_| pool.check_out(&limits).expect("a connection")).collect();
        drop(all);
        // One call after the other always uses the same one.
        for _ in 0..3 {
            drop(pool.check_out(&limits).expect("a connection"));
        }
        let mut state = pool.state();
        assert!(state.is_watched);
        let last = state.idle.last().expect("unused").0;
        let expired = state.take_expired(last + pool.idle_max - Duration::from_nanos(1), pool.idle_max);
        assert_eq!((expired.len(), state.idle.len(), state.open), (2, 1, 1));
        drop(state);
        // Nobody has to call for that, and it happens again and again.
        let mut pool = new();
        pool.idle_max = Duration::ZERO;
        for _ in 0..3 {
            drop(pool.check_out(&limits).expect("a connection"));
            while pool.state().open > 0 {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn connecting_ends_with_the_call_and_says_nothing_about_the_database() {
        // Accepts connections and never says a word.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = silent.local_addr().expect("an address");
        let gone = Arc::new(AtomicBool::new(true));
        for kind in ["postgres", "mysql"] {
            let options = Options::new(format!("{kind}://a:b@{address}/x"));
            let engine: Box<dyn Engine> = match kind {
                "postgres" => Box::new(Postgres::new(&options).expect("a URL")),
                _ => Box::new(MySql::new(&options).expect("a URL")),
            };
            let pool = Pool::new(engine, 1, CallerMode::Connection);
            let soon = || CallLimits::new(None, Duration::from_millis(50));
            assert!(matches!(pool.check_out(&soon()).map(drop), Err(SourceError::Timeout)), "{kind}");
            let limits = CallLimits::new(Some(&gone), Duration::from_secs(60));
            // The queue looks before it connects, and so does whoever connects while it waits.
            for ended in [pool.check_out(&limits).map(drop), pool.engine.connect(&limits).map(drop)] {
                assert!(matches!(ended, Err(SourceError::Cancelled)), "{kind} {ended:?}");
            }
            let state = pool.state();
            assert_eq!((state.open, state.outage.is_none()), (0, true), "{kind}");
        }
    }
}

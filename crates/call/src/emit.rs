//! What a running call says before its answer: progress, log messages, and (to older clients) questions.
//!
//! The queue is bounded. Nothing is lost that matters: only log messages are dropped when it is full, and
//! progress replaces the progress before it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use json::Json;

use crate::ask::Ask;

/// The severities of RFC 5424, mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Debug, "debug"),
        (Self::Info, "info"),
        (Self::Notice, "notice"),
        (Self::Warning, "warning"),
        (Self::Error, "error"),
        (Self::Critical, "critical"),
        (Self::Alert, "alert"),
        (Self::Emergency, "emergency"),
    ];

    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, n)| *n == name).map(|(level, _)| *level)
    }
}

#[derive(Debug, Clone)]
pub enum Event {
    Progress {
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Log {
        level: Level,
        logger: Option<String>,
        data: Json,
    },
    /// A question put to a client of the handshake era as a request of its own.
    Ask {
        id: u64,
        ask: Ask,
        /// The task that it belongs to.
        task: Option<Box<str>>,
    },
    /// A question is no longer of interest.
    Withdraw {
        id: u64,
    },
    /// End the stream the caller reads, if they can take it up again; the call goes on.
    Pause {
        retry_ms: u64,
    },
}

/// What the caller wants to hear.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    pub progress: bool,
    /// The mildest level; `None` for no log messages at all.
    pub level: Option<Level>,
}

/// The way out for events of one call. Clones share it; one that nobody listens to holds nothing.
#[derive(Debug, Clone)]
pub struct Emit(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    wanted: Wanted,
    /// Whether there may be something in the queue: read without the lock, because most calls say nothing.
    any: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    last_progress: Option<f64>,
    waker: Option<Waker>,
}

impl Emit {
    pub const EVENTS_MAX: usize = 256;

    pub fn new(wanted: Wanted) -> Self {
        Self(Some(Arc::new(Inner { wanted, any: AtomicBool::new(false), queue: Mutex::default() })))
    }

    /// For a caller to whom nothing can be said before the answer.
    pub fn silent() -> Self {
        Self(None)
    }

    pub fn wants_progress(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.wanted.progress)
    }

    pub fn wants_log(&self, level: Level) -> bool {
        self.0.as_ref().and_then(|inner| inner.wanted.level).is_some_and(|least| level >= least)
    }

    /// Says how far the work is; dropped if the caller gave no token, or if it does not go forward.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(inner) = self.0.as_ref().filter(|inner| inner.wanted.progress) else { return };
        let mut queue = inner.lock();
        // The protocol: the value MUST increase with each notification.
        if queue.last_progress.is_some_and(|last| progress <= last) || progress.is_nan() {
            return;
        }
        queue.last_progress = Some(progress);
        let event = Event::Progress { progress, total, message: message.map(Into::into) };
        if queue.events.len() >= Self::EVENTS_MAX {
            queue.events.retain(|e| !matches!(e, Event::Progress { .. }));
        }
        if queue.events.len() < Self::EVENTS_MAX {
            inner.push(queue, event);
        }
    }

    pub fn log(&self, level: Level, logger: Option<&str>, data: Json) {
        let Some(inner) = self.0.as_ref().filter(|_| self.wants_log(level)) else { return };
        let queue = inner.lock();
        if queue.events.len() < Self::EVENTS_MAX {
            inner.push(queue, Event::Log { level, logger: logger.map(Into::into), data });
        }
    }

    /// Lets the caller go and come back for the rest, where the protocol version knows that.
    pub fn pause(&self, retry_ms: u64) {
        if let Some(inner) = &self.0 {
            inner.push(inner.lock(), Event::Pause { retry_ms });
        }
    }

    /// For the host: questions are few (one batch at a time) and must not be lost.
    pub fn ask(&self, id: u64, ask: Ask, task: Option<&str>) {
        if let Some(inner) = &self.0 {
            inner.push(inner.lock(), Event::Ask { id, ask, task: task.map(Into::into) });
        }
    }

    /// Takes a question back that nobody waits for any more.
    pub fn withdraw(&self, id: u64) {
        if let Some(inner) = &self.0 {
            inner.push(inner.lock(), Event::Withdraw { id });
        }
    }

    #[inline]
    pub fn any(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.any.load(Ordering::Acquire))
    }

    pub fn take(&self) -> Option<Event> {
        let inner = self.0.as_ref().filter(|_| self.any())?;
        let mut queue = inner.lock();
        let event = queue.events.pop_front();
        inner.any.store(!queue.events.is_empty(), Ordering::Release);
        event
    }

    /// Who is to be woken at the next event.
    pub fn wake_by(&self, waker: &Waker) {
        let Some(inner) = &self.0 else { return };
        let mut queue = inner.lock();
        match &queue.waker {
            Some(old) if old.will_wake(waker) => {}
            _ => queue.waker = Some(waker.clone()),
        }
    }
}

impl Inner {
    fn push(&self, mut queue: MutexGuard<'_, Queue>, event: Event) {
        queue.events.push_back(event);
        self.any.store(true, Ordering::Release);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

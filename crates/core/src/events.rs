//! What a running call says before its answer: progress, log messages, and (to older clients) questions.
//!
//! The queue is bounded. Nothing is lost that matters: only log messages are dropped when it is full, and
//! progress replaces the progress before it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use json::Json;

use crate::input::InputRequest;

/// The severities of RFC 5424, mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
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
pub enum CallEvent {
    Progress {
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Log {
        level: LogLevel,
        logger: Option<String>,
        data: Json,
    },
    /// A question put to a client of the handshake era as a request of its own.
    InputRequest {
        id: u64,
        request: InputRequest,
        /// The task that it belongs to.
        task_id: Option<Box<str>>,
    },
    /// A question is no longer of interest.
    CancelInputRequest {
        id: u64,
    },
    /// End the stream the caller reads, if they can take it up again; the call goes on.
    PauseStream {
        retry_ms: u64,
    },
}

/// What the caller wants to hear.
#[derive(Debug, Clone, Copy, Default)]
pub struct EventFilter {
    pub progress: bool,
    /// The mildest level; `None` for no log messages at all.
    pub log_level: Option<LogLevel>,
}

/// The way out for events of one call. Clones share it; one that nobody listens to holds nothing.
#[derive(Debug, Clone)]
pub struct EventSink(Option<Arc<SinkShared>>);

#[derive(Debug)]
struct SinkShared {
    filter: EventFilter,
    /// Whether there may be something in the queue: read without the lock, because most calls say nothing.
    has_events: AtomicBool,
    queue: Mutex<SinkQueue>,
}

#[derive(Debug, Default)]
struct SinkQueue {
    events: VecDeque<CallEvent>,
    last_progress: Option<f64>,
    waker: Option<Waker>,
}

impl EventSink {
    pub const EVENTS_MAX: usize = 256;

    pub fn new(wanted: EventFilter) -> Self {
        Self(Some(Arc::new(SinkShared {
            filter: wanted,
            has_events: AtomicBool::new(false),
            queue: Mutex::default(),
        })))
    }

    /// For a caller to whom nothing can be said before the answer.
    pub fn disabled() -> Self {
        Self(None)
    }

    pub fn wants_progress(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.filter.progress)
    }

    pub fn wants_log(&self, level: LogLevel) -> bool {
        self.0.as_ref().and_then(|inner| inner.filter.log_level).is_some_and(|least| level >= least)
    }

    /// Says how far the work is; dropped if the caller gave no token, or if it does not go forward.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(inner) = self.0.as_ref().filter(|inner| inner.filter.progress) else { return };
        let mut queue = inner.lock();
        // The protocol: the value MUST increase with each notification.
        if queue.last_progress.is_some_and(|last| progress <= last) || progress.is_nan() {
            return;
        }
        queue.last_progress = Some(progress);
        let event = CallEvent::Progress { progress, total, message: message.map(Into::into) };
        if queue.events.len() >= Self::EVENTS_MAX {
            queue.events.retain(|e| !matches!(e, CallEvent::Progress { .. }));
        }
        if queue.events.len() < Self::EVENTS_MAX {
            inner.push(queue, event);
        }
    }

    pub fn log(&self, level: LogLevel, logger: Option<&str>, data: Json) {
        let Some(inner) = self.0.as_ref().filter(|_| self.wants_log(level)) else { return };
        let queue = inner.lock();
        if queue.events.len() < Self::EVENTS_MAX {
            inner.push(queue, CallEvent::Log { level, logger: logger.map(Into::into), data });
        }
    }

    /// Lets the caller go and come back for the rest, where the protocol version knows that.
    pub fn pause_stream(&self, retry_ms: u64) {
        if let Some(inner) = &self.0 {
            inner.push(inner.lock(), CallEvent::PauseStream { retry_ms });
        }
    }

    /// For the host: questions are few (one batch at a time) and must not be lost.
    pub fn request_input(&self, id: u64, ask: InputRequest, task: Option<&str>) {
        if let Some(inner) = &self.0 {
            inner.push(
                inner.lock(),
                CallEvent::InputRequest { id, request: ask, task_id: task.map(Into::into) },
            );
        }
    }

    /// Takes a question back that nobody waits for any more.
    pub fn cancel_input_request(&self, id: u64) {
        if let Some(inner) = &self.0 {
            inner.push(inner.lock(), CallEvent::CancelInputRequest { id });
        }
    }

    #[inline]
    pub fn has_events(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.has_events.load(Ordering::Acquire))
    }

    pub fn pop(&self) -> Option<CallEvent> {
        let inner = self.0.as_ref().filter(|_| self.has_events())?;
        let mut queue = inner.lock();
        let event = queue.events.pop_front();
        inner.has_events.store(!queue.events.is_empty(), Ordering::Release);
        event
    }

    /// Who is to be woken at the next event.
    pub fn register_waker(&self, waker: &Waker) {
        let Some(inner) = &self.0 else { return };
        let mut queue = inner.lock();
        match &queue.waker {
            Some(old) if old.will_wake(waker) => {}
            _ => queue.waker = Some(waker.clone()),
        }
    }
}

impl SinkShared {
    fn push(&self, mut queue: MutexGuard<'_, SinkQueue>, event: CallEvent) {
        queue.events.push_back(event);
        self.has_events.store(true, Ordering::Release);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, SinkQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

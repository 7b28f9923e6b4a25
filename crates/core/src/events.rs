//! Events of a running call, sent before its response: progress, log messages, and (for clients of the handshake
//! era) input requests.
//!
//! The queue is bounded. When it is full, log messages are dropped and new progress replaces older progress.
//! Input requests are never dropped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use json::Json;

use crate::input::InputRequest;

/// The severities of RFC 5424, least severe first.
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
    /// An input request to a client of the handshake era, sent as a request from the server.
    InputRequest {
        id: u64,
        request: InputRequest,
        /// The task that the request belongs to.
        task_id: Option<Box<str>>,
    },
    /// The answer to an input request is no longer needed.
    CancelInputRequest {
        id: u64,
    },
    /// The user has done what the input request `id` asked for at a URL.
    ElicitationComplete {
        id: u64,
    },
    /// End the caller's stream if the caller can resume it. The call continues.
    PauseStream {
        retry_ms: u64,
    },
}

/// The events that the caller wants.
#[derive(Debug, Clone, Copy, Default)]
pub struct EventFilter {
    pub progress: bool,
    /// The least severe level to send; `None` for no log messages.
    pub log_level: Option<LogLevel>,
}

/// Takes the events of one call. Clones share one queue; a disabled sink has none.
#[derive(Debug, Clone)]
pub struct EventSink(Option<Arc<SinkShared>>);

#[derive(Debug)]
struct SinkShared {
    filter: EventFilter,
    /// Whether the queue may have events. Read without the lock, because most calls send no events.
    has_events: AtomicBool,
    queue: Mutex<SinkQueue>,
}

#[derive(Debug, Default)]
struct SinkQueue {
    events: VecDeque<CallEvent>,
    last_progress: Option<f64>,
    /// The input requests by URL that were sent, oldest first.
    asked_urls: VecDeque<(Box<str>, u64)>,
    waker: Option<Waker>,
}

impl EventSink {
    pub const EVENTS_MAX: usize = 256;
    /// Of more input requests by URL in one call, the oldest are forgotten.
    const ASKED_URLS_MAX: usize = 64;

    pub fn new(filter: EventFilter) -> Self {
        Self(Some(Arc::new(SinkShared {
            filter,
            has_events: AtomicBool::new(false),
            queue: Mutex::default(),
        })))
    }

    /// For a caller that cannot receive events.
    pub fn disabled() -> Self {
        Self(None)
    }

    pub fn wants_progress(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.filter.progress)
    }

    pub fn wants_log(&self, level: LogLevel) -> bool {
        self.0.as_ref().and_then(|shared| shared.filter.log_level).is_some_and(|min| level >= min)
    }

    /// The least severe level that the caller wants; `None` for no log messages.
    pub fn log_level(&self) -> Option<LogLevel> {
        self.0.as_ref().and_then(|shared| shared.filter.log_level)
    }

    /// Reports progress. Ignored if the caller sent no progress token, or if the value does not increase.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(shared) = self.0.as_ref().filter(|shared| shared.filter.progress) else { return };
        let mut queue = shared.lock();
        // 2025-11-25, Progress: the value MUST increase with each notification.
        if queue.last_progress.is_some_and(|last| progress <= last) || progress.is_nan() {
            return;
        }
        queue.last_progress = Some(progress);
        let event = CallEvent::Progress { progress, total, message: message.map(Into::into) };
        if queue.events.len() >= Self::EVENTS_MAX {
            queue.events.retain(|e| !matches!(e, CallEvent::Progress { .. }));
        }
        if queue.events.len() < Self::EVENTS_MAX {
            shared.push(queue, event);
        }
    }

    pub fn log(&self, level: LogLevel, logger: Option<&str>, data: Json) {
        let Some(shared) = self.0.as_ref().filter(|_| self.wants_log(level)) else { return };
        let queue = shared.lock();
        if queue.events.len() < Self::EVENTS_MAX {
            shared.push(queue, CallEvent::Log { level, logger: logger.map(Into::into), data });
        }
    }

    /// Ends the caller's stream, to be resumed after `retry_ms`, where the protocol version supports that.
    pub fn pause_stream(&self, retry_ms: u64) {
        if let Some(shared) = &self.0 {
            shared.push(shared.lock(), CallEvent::PauseStream { retry_ms });
        }
    }

    /// Sends an input request. The limit does not apply: there are few (one round at a time) and none may be lost.
    pub fn request_input(&self, id: u64, request: InputRequest, task_id: Option<&str>) {
        if let Some(shared) = &self.0 {
            let mut queue = shared.lock();
            if let InputRequest::Url { url, .. } = &request {
                if queue.asked_urls.len() >= Self::ASKED_URLS_MAX {
                    queue.asked_urls.pop_front();
                }
                queue.asked_urls.push_back((url.as_str().into(), id));
            }
            shared.push(queue, CallEvent::InputRequest { id, request, task_id: task_id.map(Into::into) });
        }
    }

    /// Tells the caller that the user has done what an input request asked for at this URL. Ignored if there was none.
    pub fn complete_elicitation(&self, url: &str) {
        let Some(shared) = &self.0 else { return };
        let mut queue = shared.lock();
        let asked = queue.asked_urls.iter().position(|(asked, _)| **asked == *url);
        if let Some((_, id)) = asked.and_then(|at| queue.asked_urls.remove(at)) {
            shared.push(queue, CallEvent::ElicitationComplete { id });
        }
    }

    /// Cancels an input request whose answer is no longer needed.
    pub fn cancel_input_request(&self, id: u64) {
        if let Some(shared) = &self.0 {
            shared.push(shared.lock(), CallEvent::CancelInputRequest { id });
        }
    }

    #[inline]
    pub fn has_events(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.has_events.load(Ordering::Acquire))
    }

    pub fn pop(&self) -> Option<CallEvent> {
        let shared = self.0.as_ref().filter(|_| self.has_events())?;
        let mut queue = shared.lock();
        let event = queue.events.pop_front();
        shared.has_events.store(!queue.events.is_empty(), Ordering::Release);
        event
    }

    /// Sets the waker for the next event.
    pub fn register_waker(&self, waker: &Waker) {
        let Some(shared) = &self.0 else { return };
        let mut queue = shared.lock();
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

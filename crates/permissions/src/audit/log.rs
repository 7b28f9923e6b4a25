//! Takes call records and hands their lines to a thread that writes them.
//!
//! A call never waits for the disk: its line goes into a queue that is bounded in lines and bytes. What does not fit is
//! counted, and a line in the log says how many are missing. By its settings, the log refuses new calls before that.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use host::{CallObserver, CallRecord};
use spile_core::Platform;

use super::files::LogFiles;
use super::line::{LineWriter, SamplingEntry, lost_line};
use super::settings::{AuditSettings, OnAuditError};
use crate::names::Origins;
use crate::policy::CallGate;

const QUEUE_LINES_MAX: usize = 8192;
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Above this share of the queue new calls are refused, so that those in progress find room.
const REFUSE_ABOVE: usize = 2;
/// How long the writer waits after an error before it tries again.
const RETRY: Duration = Duration::from_secs(1);

/// The audit log of a server: the observer of its calls, and the gate in front of them.
pub struct AuditLog {
    lines: LineWriter,
    origins: Arc<dyn Origins>,
    on_error: OnAuditError,
    shared: Arc<Shared>,
    /// `None` once it is closed.
    sender: Mutex<Option<SyncSender<Message>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

enum Message {
    Line(Vec<u8>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

#[derive(Default)]
struct Shared {
    queued_lines: AtomicUsize,
    queued_bytes: AtomicUsize,
    lost: AtomicU64,
    lost_total: AtomicU64,
    is_failing: AtomicBool,
    is_closing: AtomicBool,
}

/// The state of a log, for the page and for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditStatus {
    /// Whether the last write failed.
    pub is_failing: bool,
    pub queued_lines: usize,
    /// Lines that were lost since the start.
    pub lost_total: u64,
}

impl AuditLog {
    /// Opens the log at `path` and starts the thread that writes it.
    pub fn open(
        path: &Path,
        settings: &AuditSettings,
        origins: Arc<dyn Origins>,
        platform: Arc<dyn Platform>,
    ) -> std::io::Result<Arc<Self>> {
        let files = LogFiles::open(path, settings.file_bytes_max, settings.files_max)?;
        let (sender, receiver) = sync_channel(QUEUE_LINES_MAX);
        let shared = Arc::new(Shared::default());
        let writer = Writer { files, shared: shared.clone(), platform };
        let thread = std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(&receiver))?;
        Ok(Arc::new(Self {
            lines: LineWriter::new(settings),
            origins,
            on_error: settings.on_error,
            shared,
            sender: Mutex::new(Some(sender)),
            writer: Mutex::new(Some(thread)),
        }))
    }

    /// Writes a line about a call of a server that has names of its own.
    pub fn record(&self, record: &CallRecord<'_>, origins: &dyn Origins) {
        self.push(self.lines.write(record, origins));
    }

    /// Writes a line about a sampling.
    pub fn record_sampling(&self, entry: &SamplingEntry<'_>) {
        self.push(entry.write(&*self.origins));
    }

    /// Writes what is queued and frees the files, also while others still hold the log: what they report afterwards is lost.
    pub fn close(&self) {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.shared.is_closing.store(true, Ordering::Release);
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            writer.thread().unpark();
            let _ = writer.join();
        }
    }

    pub fn status(&self) -> AuditStatus {
        AuditStatus {
            is_failing: self.shared.is_failing.load(Ordering::Relaxed),
            queued_lines: self.shared.queued_lines.load(Ordering::Relaxed),
            lost_total: self.shared.lost_total.load(Ordering::Relaxed),
        }
    }

    /// Waits until all lines so far are on the disk, or until `timeout` has passed. Blocks the thread.
    pub fn flush(&self, timeout: Duration) -> bool {
        let (done, is_done) = sync_channel(1);
        self.try_send(Message::Flush(done)) && is_done.recv_timeout(timeout).is_ok()
    }

    fn try_send(&self, message: Message) -> bool {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.as_ref().is_some_and(|sender| sender.try_send(message).is_ok())
    }

    fn push(&self, line: Vec<u8>) {
        let bytes = line.len();
        let queued = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.shared.queued_lines.fetch_add(1, Ordering::Relaxed);
        let fits = queued + bytes <= QUEUE_BYTES_MAX;
        let sent = fits && self.try_send(Message::Line(line));
        if !sent {
            self.shared.remove(bytes);
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            self.shared.lost_total.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Shared {
    fn remove(&self, bytes: usize) {
        self.queued_lines.fetch_sub(1, Ordering::Relaxed);
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl CallObserver for AuditLog {
    fn on_call_finished(&self, record: &CallRecord<'_>) {
        self.record(record, &*self.origins);
    }

    fn needs_call_id(&self) -> bool {
        true
    }
}

impl CallGate for AuditLog {
    fn check(&self) -> Result<(), &'static str> {
        let shared = &self.shared;
        let is_full = shared.queued_lines.load(Ordering::Relaxed) > QUEUE_LINES_MAX / REFUSE_ABOVE
            || shared.queued_bytes.load(Ordering::Relaxed) > QUEUE_BYTES_MAX / REFUSE_ABOVE;
        match self.on_error {
            OnAuditError::Refuse if is_full || shared.is_failing.load(Ordering::Relaxed) => Err(
                "the server cannot write its audit log, and runs nothing without it; its operator must look at it",
            ),
            OnAuditError::Refuse | OnAuditError::Drop => Ok(()),
        }
    }
}

/// Writes what is queued, unless the disk does not take it.
impl Drop for AuditLog {
    fn drop(&mut self) {
        self.close();
    }
}

struct Writer {
    files: LogFiles,
    shared: Arc<Shared>,
    platform: Arc<dyn Platform>,
}

impl Writer {
    fn run(mut self, receiver: &Receiver<Message>) {
        // The line that could not be written: the order of lines is kept.
        let mut waiting: Option<Vec<u8>> = None;
        let mut is_dirty = false;
        let mut flushes: Vec<SyncSender<()>> = Vec::new();
        loop {
            if let Some(line) = waiting.take() {
                match self.write(&line) {
                    Ok(()) => {
                        self.shared.remove(line.len());
                        is_dirty = true;
                    }
                    Err(()) => {
                        waiting = Some(line);
                        if self.shared.is_closing.load(Ordering::Acquire) {
                            return;
                        }
                        std::thread::park_timeout(RETRY);
                        continue;
                    }
                }
            }
            // The disk is waited for when there is nothing else to do.
            let idle =
                if is_dirty || !flushes.is_empty() { Duration::ZERO } else { Duration::from_secs(3600) };
            match receiver.recv_timeout(idle) {
                Ok(Message::Line(line)) => waiting = Some(line),
                Ok(Message::Flush(done)) => flushes.push(done),
                Err(RecvTimeoutError::Timeout) => {
                    if is_dirty && self.files.sync().is_err() {
                        self.shared.is_failing.store(true, Ordering::Relaxed);
                    }
                    is_dirty = false;
                    for done in flushes.drain(..) {
                        let _ = done.try_send(());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.files.sync();
                    return;
                }
            }
        }
    }

    fn write(&mut self, line: &[u8]) -> Result<(), ()> {
        let lost = self.shared.lost.swap(0, Ordering::Relaxed);
        let mut written = Ok(());
        if lost > 0 {
            written = self.files.append(&lost_line(self.platform.now_ms(), lost));
            if written.is_err() {
                self.shared.lost.fetch_add(lost, Ordering::Relaxed);
            }
        }
        let written = written.and_then(|()| self.files.append(line));
        let was_failing = self.shared.is_failing.swap(written.is_err(), Ordering::Relaxed);
        match &written {
            Ok(()) if was_failing => tracing::warn!("the audit log can be written again"),
            Err(error) if !was_failing => tracing::error!(%error, "cannot write the audit log"),
            Ok(()) | Err(_) => {}
        }
        written.map_err(drop)
    }
}

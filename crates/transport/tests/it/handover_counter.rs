//! Counts how often the fast path of a server hands a connection over to hyper, by the only trace that it leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

#[derive(Debug, Default, Clone)]
pub(crate) struct HandoverCounter(Arc<AtomicUsize>);

impl HandoverCounter {
    /// Counts what happens on this thread from now on.
    pub(crate) fn watch_thread(&self) {
        // For as long as the thread lasts.
        std::mem::forget(tracing::subscriber::set_default(self.clone()));
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Subscriber for HandoverCounter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::TRACE && metadata.target() == "transport::http::connection"
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

//! Tells one task to finish.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

#[derive(Default)]
pub struct ShutdownSignal {
    triggered: AtomicBool,
    waker: OnceLock<Waker>,
}

impl ShutdownSignal {
    /// Registers the first caller's waker; `trigger` wakes it.
    #[inline]
    pub(crate) fn is_triggered(&self, cx: &Context<'_>) -> bool {
        self.waker.get_or_init(|| cx.waker().clone());
        self.triggered.load(Ordering::SeqCst)
    }

    pub fn trigger(&self) {
        self.triggered.store(true, Ordering::SeqCst);
        if let Some(task) = self.waker.get() {
            task.wake_by_ref();
        }
    }
}

//! That it is time to go, told to one task.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

#[derive(Default)]
pub struct Ending {
    told: AtomicBool,
    task: OnceLock<Waker>,
}

impl Ending {
    /// The first to ask is woken when it is.
    #[inline]
    pub(crate) fn is_told(&self, cx: &Context<'_>) -> bool {
        self.task.get_or_init(|| cx.waker().clone());
        self.told.load(Ordering::SeqCst)
    }

    pub fn tell(&self) {
        self.told.store(true, Ordering::SeqCst);
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }
}

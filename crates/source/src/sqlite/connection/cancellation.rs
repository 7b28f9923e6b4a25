//! Interrupts a running statement when its caller has gone away.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sqlite::connection::CancelHandle;

/// How often the cancellation flag is read while a statement runs.
pub(crate) const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Runs `run`, and interrupts the connection from another thread once `cancelled` is set. SQLite's progress
/// handler only reads a deadline that the connection owns; it cannot borrow the caller's flag.
pub(crate) fn run_cancellable<T>(
    cancelled: Option<&AtomicBool>,
    handle: &CancelHandle,
    run: impl FnOnce() -> T,
) -> T {
    struct DoneGuard<'d>(&'d AtomicBool, Option<std::thread::Thread>);
    impl Drop for DoneGuard<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
            if let Some(thread) = &self.1 {
                thread.unpark();
            }
        }
    }
    let Some(cancelled) = cancelled else { return run() };
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = || {
            while !is_done.load(Ordering::Acquire) {
                // Repeated, because each statement sets the deadline again.
                if cancelled.load(Ordering::Relaxed) {
                    handle.cancel();
                }
                std::thread::park_timeout(CANCEL_CHECK_INTERVAL);
            }
        };
        // If the system has no thread for us, the statement ends at its deadline.
        let watcher = std::thread::Builder::new().name("sqlite-stop".to_owned()).spawn_scoped(scope, watch);
        let _done = DoneGuard(&is_done, watcher.ok().map(|watcher| watcher.thread().clone()));
        run()
    })
}

//! Ends what a connection runs when nobody waits for it any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::connection::CancelHandle;

/// How soon a caller who left is noticed.
pub(super) const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Runs something that another thread ends when nobody waits for it any more. SQLite's machine asks only a clock that
/// the connection owns, and a caller's bell is not the connection's.
pub(super) fn run_cancellable<T>(
    stop: Option<&AtomicBool>,
    brake: &CancelHandle,
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
    let Some(stop) = stop else { return run() };
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = || {
            while !is_done.load(Ordering::Acquire) {
                // Again and again: each statement sets the clock anew.
                if stop.load(Ordering::Relaxed) {
                    brake.cancel();
                }
                std::thread::park_timeout(CANCEL_CHECK_INTERVAL);
            }
        };
        // Without a thread it ends when its time is over.
        let watcher = std::thread::Builder::new().name("sqlite-stop".to_owned()).spawn_scoped(scope, watch);
        let _done = DoneGuard(&is_done, watcher.ok().map(|watcher| watcher.thread().clone()));
        run()
    })
}

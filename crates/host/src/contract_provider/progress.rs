//! What a caller hears while their call is answered elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spile_core::EventSink;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;

/// Shorter work is not worth a word.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Waits for the work, and says about every second how many rows it has looked at. Work that is known to take long
/// is spoken of in any case: when it begins, while it says nothing of itself, and when it is done.
pub(super) async fn await_with_progress<T>(
    mut work: JoinHandle<T>,
    emit: &EventSink,
    rows: &AtomicU64,
    long_running: bool,
) -> Result<T, JoinError> {
    if !emit.wants_progress() {
        return work.await;
    }
    if long_running {
        emit.progress(0.0, None, Some("begun"));
    }
    let mut seconds: u64 = 0;
    loop {
        let done = timeout(PROGRESS_INTERVAL, &mut work).await;
        let seen = rows.load(Ordering::Relaxed);
        match done {
            Ok(done) => {
                if long_running {
                    let all = seen.max(seconds + 1) as f64;
                    emit.progress(all, Some(all), Some("done"));
                }
                return done;
            }
            Err(_) => {
                seconds += 1;
                if seen > 0 {
                    emit.progress(seen as f64, None, Some(&format!("{seen} rows looked at")));
                } else if long_running {
                    emit.progress(seconds as f64, None, Some(&format!("under way for {seconds} s")));
                }
            }
        }
    }
}

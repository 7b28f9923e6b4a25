//! Progress notifications of a call on the blocking thread pool.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spile_core::EventSink;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;

/// Time between two progress notifications.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Waits for the work and reports the number of rows scanned about every second. A tool declared as long-running also
/// reports its start, its end, and the elapsed time while it counts no rows.
pub(super) async fn await_with_progress<T>(
    mut work: JoinHandle<T>,
    events: &EventSink,
    rows: &AtomicU64,
    long_running: bool,
) -> Result<T, JoinError> {
    if !events.wants_progress() {
        return work.await;
    }
    if long_running {
        events.progress(0.0, None, Some("started"));
    }
    let mut seconds: u64 = 0;
    loop {
        let joined = timeout(PROGRESS_INTERVAL, &mut work).await;
        let rows_scanned = rows.load(Ordering::Relaxed);
        match joined {
            Ok(joined) => {
                if long_running {
                    let total = rows_scanned.max(seconds + 1) as f64;
                    events.progress(total, Some(total), Some("done"));
                }
                return joined;
            }
            Err(_) => {
                seconds += 1;
                if rows_scanned > 0 {
                    events.progress(rows_scanned as f64, None, Some(&format!("{rows_scanned} rows scanned")));
                } else if long_running {
                    events.progress(seconds as f64, None, Some(&format!("running for {seconds} s")));
                }
            }
        }
    }
}

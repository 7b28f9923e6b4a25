//! Progress notifications of a call on the blocking thread pool.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::source::ProgressUnit;
use spile_core::EventSink;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout};

/// A shorter call reports nothing.
const FIRST_REPORT: Duration = Duration::from_millis(500);
/// Time between two reports after the first.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Waits for the work. If the caller wants progress, reports the rows scanned or the requests answered so far, or the elapsed time while there are
/// none, after half a second and then every second. A tool declared as long-running also reports its start and its end.
pub(super) async fn await_with_progress<T>(
    mut work: JoinHandle<T>,
    events: &EventSink,
    (counter, unit): (&AtomicU64, ProgressUnit),
    long_running: bool,
) -> Result<T, JoinError> {
    if !events.wants_progress() {
        return work.await;
    }
    let started = Instant::now();
    if long_running {
        events.progress(0.0, None, Some("started"));
    }
    let mut reported = 0;
    let mut interval = FIRST_REPORT;
    loop {
        let joined = timeout(interval, &mut work).await;
        let count = counter.load(Ordering::Relaxed);
        // "The progress value MUST increase with each notification", also while nothing is counted.
        reported = count.max(reported + 1);
        match joined {
            Ok(joined) => {
                if long_running {
                    let total = reported as f64;
                    events.progress(total, Some(total), Some("done"));
                }
                return joined;
            }
            Err(_) => {
                let message = match (count, unit) {
                    (0, _) => format!("running for {:.1} s", started.elapsed().as_secs_f64()),
                    (1, ProgressUnit::Rows) => "1 row scanned".to_owned(),
                    (rows, ProgressUnit::Rows) => format!("{rows} rows scanned"),
                    (1, ProgressUnit::Requests) => "1 request answered".to_owned(),
                    (requests, ProgressUnit::Requests) => format!("{requests} requests answered"),
                };
                events.progress(reported as f64, None, Some(&message));
                interval = REPORT_INTERVAL;
            }
        }
    }
}

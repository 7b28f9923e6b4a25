//! Sessions: calls, streams, input requests, tasks and sessions in any order, on a manual clock. No call gets two
//! responses or one after its cancellation, no event is lost or duplicated, and nothing leaks.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(testkit::invariants::session(data, tokio::time::advance));
});

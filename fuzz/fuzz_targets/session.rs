//! The session machine: calls, streams, questions, tasks and sessions in any order, on a clock that is moved by
//! hand. Nothing is answered twice or after it was cancelled, no event is lost or doubled, nothing is left.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(testkit::invariants::session(data, tokio::time::advance));
});

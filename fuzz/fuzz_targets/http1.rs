//! HTTP/1: the fast path and hyper behind the strict reader see the same requests in the same bytes, and answer the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(testkit::invariants::http1(data));
});

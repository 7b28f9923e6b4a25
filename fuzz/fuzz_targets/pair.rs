//! Our client and our server, joined in memory: the games of the pair tests, found by the fuzzer instead of by
//! seeds.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(testkit::invariants::pair(data, tokio::time::advance));
});

//! Client and server joined in memory: the scenarios of the pair tests, chosen by the fuzzer instead of a seed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(testkit::invariants::pair(data, tokio::time::advance));
});

//! A WebSocket at the door, both ways: whatever a client sends, each request and each ping is answered once, what we
//! write keeps the rules, what breaks them ends it with the right code, and nothing is left.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(testkit::invariants::websocket(data, tokio::time::advance));
});

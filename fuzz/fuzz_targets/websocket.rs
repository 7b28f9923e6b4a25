//! A WebSocket connection: each request and each ping gets one response, the server's frames follow the RFC, a
//! violation closes the connection with the right code, and nothing leaks.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(testkit::invariants::websocket(data, tokio::time::advance));
});

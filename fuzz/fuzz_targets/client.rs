//! The client's state machine against any server: each call ends once, tables and the reaction to one message are
//! bounded, its messages are well formed, and a closed client does nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::client(data));

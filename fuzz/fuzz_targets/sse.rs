//! The SSE decoder: events do not depend on chunk sizes, agree with the standard, never exceed the limit, and written
//! events are read back unchanged.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::sse(data));

//! Schemas: any schema compiles or is rejected in bounded time, and validates arguments on the tape as it would
//! validate `serde_json` values.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::check(data));

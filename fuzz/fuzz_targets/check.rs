//! Schemas: any schema compiles or is refused in bounded time, and judges arguments on the tape as it would
//! judge built values.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::check(data));

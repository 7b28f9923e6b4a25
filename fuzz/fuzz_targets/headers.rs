//! Headers that mirror the body: every text survives encoding and decoding, and a header passes for a value
//! of the body only if it is that value exactly.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::headers(data));

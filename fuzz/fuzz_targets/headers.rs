//! Headers that repeat the body: every text survives encoding and decoding, and a header matches only exactly its
//! own value in the body.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::headers(data));

//! Framing of a pipe: frames do not depend on chunk sizes, no frame and no buffer exceeds its limit, and frames
//! written in either framing are read back unchanged.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::frames(data));

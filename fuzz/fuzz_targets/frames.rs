//! A pipe's framing: the same stream gives the same frames however it is cut, no frame and no buffer is
//! larger than allowed, and what we write in either framing is read back as it was.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::frames(data));

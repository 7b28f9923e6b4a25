//! Session ids and `requestState`: with any bit changed, for anybody else, anywhere else or too late, what we
//! sealed does not open.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::seal(data));

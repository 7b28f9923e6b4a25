//! Session ids and `requestState`: a seal does not open with any bit changed, for another caller, in another context
//! or after it expired.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::seal(data));

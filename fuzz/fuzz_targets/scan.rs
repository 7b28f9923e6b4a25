//! The JSON scanner: it agrees with `serde_json` on what is JSON and on what it says (a key twice, numbers
//! beyond a float and deep nesting aside), and compacting is a fixpoint on one line.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::scan(data));

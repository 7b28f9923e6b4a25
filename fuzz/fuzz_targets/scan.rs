//! The JSON scanner: it agrees with `serde_json` on validity and values (except for duplicate keys, numbers
//! beyond `f64` and deep nesting), and compacting is idempotent and gives one line.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::scan(data));

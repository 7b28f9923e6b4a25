//! Workbooks: any bytes are read or rejected as XLSX, XLS and ODS, in bounded memory and time. XML parts are packed
//! with valid checksums, so that the fuzzer reaches the parser.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::sheets(data));

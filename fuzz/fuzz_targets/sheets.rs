//! Workbooks: any bytes are read or refused, in bounded memory and time, as XLSX, XLS and ODS; XML that is packed as
//! it should be gets past the checksums.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::sheets(data));

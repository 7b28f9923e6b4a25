//! The client's machine against any server at all: each request ends once, tables and what one message comes to
//! are bounded, what it sends is well formed, and after the end there is nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::client(data));

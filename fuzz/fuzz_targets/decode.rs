//! The envelope, on a pipe of each version, in a batch and over HTTP with any headers: a
//! rejected message gets a JSON-RPC error with its id byte for byte, and an accepted request is decoded faithfully.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::decode_message(data));

//! The envelope, on a pipe of each version, in a batch and over HTTP with any headers: a refusal is a
//! JSON-RPC error with the id echoed byte for byte, and a request let in says what the text says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::decode_message(data));

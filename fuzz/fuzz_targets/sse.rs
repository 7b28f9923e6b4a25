//! Server-sent events as a client reads them: the same stream gives the same events however it is cut, they are
//! those of the standard, no event takes more room than it may, and what we write is read back as it was.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::invariants::sse(data));

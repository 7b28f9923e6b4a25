//! What the real program must survive: judged from outside, with the files that it leaves.
//!
//! A few rounds run in CI; `cargo xtask judges` runs all of it.

pub mod kill;
pub mod samples;
mod stdio_client;

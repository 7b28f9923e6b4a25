//! Crash tests of the real program, checked from outside through the files it leaves.
//!
//! A few rounds run in CI; `cargo xtask judges` runs all of it.

pub mod kill;
pub mod samples;
mod stdio_client;

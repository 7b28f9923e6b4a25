//! The fixtures by themselves, and what others think of them.

/// The official clients, shared with the tests of the binary.
#[path = "../../clients/mod.rs"]
mod clients;
mod crash;
mod fixtures;
mod official;
mod process;
mod servers;
mod transcripts;

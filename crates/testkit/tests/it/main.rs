//! The fixture providers on their own, and official clients, servers and schemas against them.

/// The official clients, shared with the tests of the binary.
#[path = "../../clients/mod.rs"]
mod clients;
mod crash;
mod fixtures;
mod official;
mod process;
mod servers;
mod transcripts;

//! The binary as people and clients meet it: what it says, what it refuses, and what it answers.

mod availability;
mod bad_input;
mod client;
/// The official clients, shared with the tests of the fixture.
#[path = "../../../testkit/clients/mod.rs"]
mod clients;
mod commands;
mod golden;
mod harness;
mod hostile_names;
mod inspector;
mod install;
mod keys;
mod limits;
mod locking;
mod log_output;
mod official;
mod pack;
mod readme;
mod reload_isolation;
mod reloading;
mod scaffolding;
mod serving;
mod sockets;
mod terminal;
mod testing;
mod tls;
mod trace;

//! The clients of the official SDKs against the fixture server: each over every door, at every
//! protocol version it knows.
//!
//! A client lists and calls, sees progress, answers a question, and is told about an unknown tool;
//! what exactly is in `clients/`.

use crate::clients::{self, Client, Door};

#[test]
fn python_over_stdio() {
    check(Client::Python, Door::Stdio);
}

#[test]
fn python_over_http() {
    check(Client::Python, Door::Http);
}

#[test]
fn typescript_1_over_stdio() {
    check(Client::TypeScript1, Door::Stdio);
}

#[test]
fn typescript_1_over_http() {
    check(Client::TypeScript1, Door::Http);
}

#[test]
fn typescript_2_over_stdio() {
    check(Client::TypeScript2, Door::Stdio);
}

#[test]
fn typescript_2_over_http() {
    check(Client::TypeScript2, Door::Http);
}

#[test]
fn rust_over_stdio() {
    check(Client::Rust, Door::Stdio);
}

#[test]
fn rust_over_http() {
    check(Client::Rust, Door::Http);
}

/// One row of the table.
fn check(client: Client, door: Door) {
    let program = env!("CARGO_BIN_EXE_fixture");
    clients::check(client, door, program, &[("bench", &["bench"]), ("conformance", &["conformance"])]);
}

//! The clients of the official SDKs against the fixture server: each over every door, at every
//! protocol version it knows.
//!
//! A client lists and calls, sees progress, answers a question, and is told about an unknown tool;
//! what exactly is in `clients/`.

use crate::clients::{self, Client, Door};

clients::every_client_over_every_door!(check);

/// One row of the table.
fn check(client: Client, door: Door) {
    let program = env!("CARGO_BIN_EXE_fixture");
    clients::check(client, door, program, &[("bench", &["bench"]), ("conformance", &["conformance"])]);
}

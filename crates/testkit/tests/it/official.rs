//! Clients of the official SDKs against the fixture server: each over every transport, at every protocol version it
//! supports.
//!
//! A client lists and calls, receives progress, answers an elicitation, and gets an error for an unknown tool. The
//! details are in `clients/`.

use crate::clients::{self, Client, Transport};

clients::every_client_over_every_door!(check);

/// One row of the table.
fn check(client: Client, transport: Transport) {
    let program = env!("CARGO_BIN_EXE_fixture");
    clients::check(client, transport, program, &[("bench", &["bench"]), ("conformance", &["conformance"])]);
}

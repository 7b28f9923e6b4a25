//! The clients of the official SDKs against `spile serve examples/customers`: typed answers, errors and pages,
//! over every door, at every protocol version they know. What exactly is in `crates/testkit/clients`.

use crate::clients::{self, Client, Door};
use crate::harness::{SPILE, examples};

clients::every_client_over_every_door!(check);

/// One row of the table.
fn check(client: Client, door: Door) {
    let example = examples().join("customers").to_string_lossy().into_owned();
    clients::check(client, door, SPILE, &[("customers", &["serve", &example])]);
}

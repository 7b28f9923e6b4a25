//! The clients of the official SDKs with `spile serve examples/customers`: typed results, errors and pages, over every
//! transport, in every protocol version that they support. `crates/testkit/clients` has the details.

use crate::clients::{self, Client, Transport};
use crate::harness::{SPILE, examples};

clients::every_client_over_every_door!(check);

/// One client over one transport.
fn check(client: Client, door: Transport) {
    let example = examples().join("customers").to_string_lossy().into_owned();
    clients::check(client, door, SPILE, &[("customers", &["serve", &example])]);
}

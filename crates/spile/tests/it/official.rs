//! The clients of the official SDKs against `spile serve examples/customers`: typed answers, errors and pages,
//! over every door, at every protocol version they know. What exactly is in `crates/testkit/clients`.

use crate::clients::{self, Client, Door};
use crate::stand::{SPILE, example};

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
    let example = example().to_string_lossy().into_owned();
    clients::check(client, door, SPILE, &[("customers", &["serve", &example])]);
}

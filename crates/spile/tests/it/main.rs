//! The binary as people and clients meet it: what it says, what it refuses, and what it answers.

mod audit;
mod author_folder;
/// An authorization server, shared with the tests of `servers`.
#[allow(dead_code, reason = "the other tests use more of it")]
#[path = "../../../servers/tests/it/authority.rs"]
mod authority;
mod availability;
mod bad_input;
mod client;
/// The official clients, shared with the tests of the fixture.
#[path = "../../../testkit/clients/mod.rs"]
mod clients;
mod code_and_data;
mod code_events;
mod code_resources;
mod commands;
mod database_outages;
/// A database server with TLS, shared with the tests of `database`.
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#[path = "../../../database/tests/it/tls_server.rs"]
mod database_tls_server;
mod database_writes;
mod databases;
mod declared_reading;
mod doctor;
mod exports;
/// Servers that break, shared with the tests of `upstream`.
#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "the other tests use more of it")]
#[path = "../../../upstream/tests/it/faulty_server.rs"]
mod faulty_server;
mod folder_runtime;
mod gateway;
#[cfg(target_os = "linux")]
mod gateway_faults;
mod gateway_live;
mod gateway_operators;
mod golden;
mod guarded_fetch;
mod harness;
mod history;
mod hostile_names;
#[allow(dead_code, reason = "the other tests use more of it")]
#[path = "../../../servers/tests/it/http_server.rs"]
mod http_server;
mod inferred_reading;
mod inspector;
mod install;
mod keys;
mod large;
mod limits;
mod links;
mod locking;
mod log_output;
mod mcp;
mod mixed_values;
mod network_limits;
mod official;
mod pack;
mod questions;
mod readme;
mod real_servers;
mod refused_operations;
mod reload_isolation;
mod reloading;
mod replicas;
mod rest;
mod restarts;
mod role_conditions;
mod roles;
mod rounds_across_processes;
mod scaffolding;
mod serving;
mod shops;
mod skills;
mod sockets;
mod tenants;
mod terminal;
mod testing;
mod tls;
mod trace;
mod wide;

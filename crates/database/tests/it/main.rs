//! Against real servers: PostgreSQL and MariaDB.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod aggregates;
mod callers;
mod encryption;
mod exceptions;
mod kit;
mod local_records;
mod lookups;
mod lying_servers;
mod outages;
mod read_only;
mod roles;
mod searches;
mod statements;
mod tables;
mod tls_server;
mod types;
mod writes;

//! Against real servers: PostgreSQL and MariaDB.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod aggregates;
mod callers;
mod encryption;
mod kit;
mod local_records;
mod lookups;
mod lying_servers;
mod outages;
mod roles;
mod searches;
mod statements;
mod types;
mod writes;

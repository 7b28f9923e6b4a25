//! Tests on real files and real databases.

#[cfg(unix)]
mod crash;
mod csv;
#[cfg(unix)]
mod disk_full;
mod driver;
mod formats;
mod json;
mod parity;
mod roundtrip;
mod shape;
mod sheets;
mod sqlite;
mod write_checks;

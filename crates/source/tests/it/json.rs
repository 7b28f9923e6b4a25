//! JSON and JSON Lines: how they are read, what is told about them, and how they are written.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod errors;
pub mod kit;
mod paging;
mod properties;
mod reading;
mod reload;
mod writing;

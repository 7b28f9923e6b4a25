//! JSON and JSON Lines: reading, errors, writing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod errors;
pub mod kit;
mod paging;
mod properties;
mod reading;
mod reload;
mod writing;

//! CSV files: reading, errors, writing, reloading.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod errors;
mod identity;
mod keys;
pub mod kit;
mod many_values;
mod oracle;
mod paging;
mod reading;
mod reload;
mod searching;
mod writing;

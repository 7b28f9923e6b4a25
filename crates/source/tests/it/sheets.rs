//! Workbooks on disk: reading and writing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod kit;
mod tables;
mod writing;

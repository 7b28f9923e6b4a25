//! Workbooks on disk: found, read, and written row by row.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod kit;
mod writing;

//! The audit log: one JSON line for each call, in files that only their owner can read.
//!
//! ```text
//! line      a call record as a line; pure
//! files     one write for each line, rotation, repair after a crash
//! log       a bounded queue and the thread that writes it
//! reader    finds, filters and follows lines
//! ```

mod files;
mod line;
mod log;
pub mod reader;
pub mod settings;

pub use line::SamplingEntry;
pub use log::{AuditLog, AuditStatus};
pub use settings::{AuditSettings, OnAuditError};

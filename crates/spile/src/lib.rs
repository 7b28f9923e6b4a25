//! Arguments, wiring and diagnostics: what stands between a command line and a serving process.

mod banner;
pub mod check;
pub mod client;
mod progress;
pub mod project;
mod report;
pub mod serve;
mod settings;
#[cfg(unix)]
mod socket;
mod words;

pub use report::{print, tell};

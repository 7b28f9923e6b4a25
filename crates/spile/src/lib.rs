//! Arguments, wiring and diagnostics: what stands between a command line and a serving process.

mod banner;
pub mod check;
pub mod client;
pub mod dev;
pub mod diff;
pub mod init;
pub mod install;
pub mod lock;
pub mod pack;
mod plain;
mod progress;
pub mod project;
mod reload;
mod replace;
mod report;
pub mod serve;
mod settings;
#[cfg(unix)]
mod socket;

pub use report::{print, tell};

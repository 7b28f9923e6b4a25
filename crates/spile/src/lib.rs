//! Arguments, wiring and diagnostics: everything between the command line and a serving process.

pub mod access;
mod atomic_file;
pub mod audit;
mod author_folder;
mod banner;
pub mod check;
pub mod client;
mod data_profile;
pub mod dev;
pub mod diff;
pub mod doctor;
pub mod gateway;
pub mod history;
pub mod import;
pub mod init;
pub mod install;
pub mod keys;
mod layout;
pub mod lock;
mod log_writer;
pub mod mcp;
pub mod new;
mod notice;
pub mod pack;
mod progress;
pub mod project;
mod reload;
mod report;
mod sanitize;
pub mod serve;
mod server_state;
mod settings;
#[cfg(unix)]
mod socket_path;
pub mod testing;

pub use report::{print, print_diagnostics, print_usage};

/// An error and its causes on one line.
pub fn error_text(error: &anyhow::Error) -> String {
    sanitize::strip_os_errors(&format!("{error:#}"))
}

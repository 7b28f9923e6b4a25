//! Arguments, wiring and diagnostics: what stands between a command line and a serving process.

mod banner;
mod progress;
pub mod project;
mod report;
pub mod serve;
mod settings;
#[cfg(unix)]
mod socket;
mod words;

pub use banner::in_colour;
pub use report::report;

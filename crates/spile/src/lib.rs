//! Arguments, wiring and diagnostics: what stands between a command line and a serving process.

pub mod serve;
mod settings;

//! Folders of author code, served by a real server and called in both eras.

mod basics;
mod diagnostics;
mod documents;
mod effects;
mod escape;
mod fan_out;
mod harness;
mod packages;
mod process;
mod quick;
mod raced;
mod replay;
mod returned;
mod rounds;
mod schemas;
mod tasks;
mod types_file;
mod web_platform;

//! Folders of author code, served by a real server and called in both eras.

mod basics;
mod diagnostics;
mod documents;
mod effects;
mod escape;
mod harness;
mod packages;
mod process;
mod quick;
mod replay;
mod rounds;
mod schemas;
mod tasks;
mod web_platform;

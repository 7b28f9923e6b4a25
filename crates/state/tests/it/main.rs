//! Tests of the public interface, in one binary.

mod key_file;
mod keyring;
mod platform;
mod processes;
mod store;
mod store_model;

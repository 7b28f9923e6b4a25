//! State that outlives a request or a process: the keys that protect what clients hold for the server.

pub mod keyring;
mod private_file;

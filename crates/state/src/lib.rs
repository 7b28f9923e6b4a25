//! State that outlives a request or a process: the keys that protect what clients hold for the server, and the store of
//! what the server holds itself.

pub mod idempotency;
pub mod keyring;
mod private_file;
pub mod store;

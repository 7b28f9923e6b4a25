//! What tests are made of: two fixture providers and a world that can be held still. Development only.
//!
//! [`conformance`] has everything that the official suite asks a server for, [`bench`] ten small tools in
//! memory. Both are written as any provider is, against `call` alone: they know neither the protocol version
//! nor the door, and nothing in the product may depend on them. `fixture` is the binary that serves them.

pub mod bench;
pub mod conformance;
pub mod crash_test;
pub mod invariants;
mod platform;

pub use platform::FakePlatform;

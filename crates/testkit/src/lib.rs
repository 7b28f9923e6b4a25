//! Test fixtures: two providers, a platform with a clock that tests move, HTTP without sockets, and invariants.
//! Development only.
//!
//! [`conformance`] has everything that the official suite expects of a server, [`bench`] ten small in-memory
//! tools. Both depend on `spile-core` alone, like any provider: they know neither the protocol version nor the
//! transport. Nothing in the product may depend on them. The binary `fixture` serves them.

pub mod bench;
pub mod conformance;
pub mod crash_test;
pub mod invariants;
mod platform;
pub mod simulated_http;

pub use platform::FakePlatform;

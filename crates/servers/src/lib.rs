//! The servers that a user configured, for programs that use them: agents, the gateway, the command line.
//!
//! ```text
//! config/       files of many clients → scopes → one list of servers, each with the file that won
//! decisions     which servers the user approved or disabled, bound to exactly what would be started
//! definitions   what tools said they do when the user approved them; a change is suspended
//! names         mcp__server__tool: public names that are short, safe and collision-free
//! manager/      a connection to every server: a state machine each, healing, waiting calls
//! registry      all servers' tools, prompts and resources in one list
//! oauth/        signing in, and tokens that are never lost
//! sampling/     answers servers that ask for a model, with what the user configured
//! doctor        why a server does not work, step by step
//! jsonc         reads and edits settings files that people write by hand
//! ```
//!
//! A program that uses the servers needs this crate and a runtime of `tokio`: what the API speaks of is exported here, from
//! the crates that it is in. `docs/library.md` has a guide.
//!
//! Parsing, merging, naming and deciding are pure; only `config::files`, the files of `decisions` and `definitions`, and the
//! credentials touch the file system.

pub mod config;
pub mod decisions;
pub mod definitions;
pub mod doctor;
pub mod jsonc;
pub mod manager;
pub mod names;
pub mod oauth;
pub mod registry;
pub mod sampling;
pub mod skills;

mod private_file;

pub use json::{self, Json};
pub use outbound::{self, OutboundOptions};
pub use spile_core::ClientCapabilities;
pub use upstream::process::run_supervisor_if_requested;
pub use upstream::{ConnectionEvent, Progress, ProgressCallback};
pub use url::Url;
pub use wire::client::{ClientError, IncomingInputRequest, InputReply, InputRequestKind};
pub use wire::method::Method;

/// The examples of the guide are compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Guide;

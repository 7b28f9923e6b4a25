//! Keeps connections to other servers. For now only what lies under the nearest of them: child processes.
//!
//! Knows nothing of the protocol: a child is three pipes and an end.

pub mod process;

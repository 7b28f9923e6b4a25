//! Tests of the crate through its public interface.

mod approvals;
mod audit;
mod decisions;
mod docs;
mod harness;
mod hooks;
mod modes;
mod policy;
mod rules;
mod settings;

//! Decides whether a tool call may run, runs hooks around it, and records it: for a gateway.
//!
//! A gateway reads [`Settings`] from its file, gives its server a [`PermissionPolicy`] and an
//! [`AuditLog`](audit::AuditLog), and implements two traits: [`Origins`](names::Origins), which knows the servers behind
//! its catalog, and [`Approver`], which asks somebody where the calling client cannot be asked.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use permissions::{Approver, PermissionPolicy, Settings, audit::AuditLog, hooks::*, names::Origins};
//! # fn set_up(server: &host::Server, platform: Arc<dyn spile_core::Platform>, origins: Arc<dyn Origins>,
//! #     approver: Option<Arc<dyn Approver>>, text: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let (settings, _warnings) = Settings::parse("gateway.json", text).map_err(|_problems| "invalid settings")?;
//! let hooks = Hooks::new(settings.hooks, CommandEnvironment::new("."))?;
//! let mut policy = PermissionPolicy::new(settings.rules, settings.mode, hooks, origins.clone(), approver);
//! if let Some(audit) = &settings.audit {
//!     let log = AuditLog::open("audit.jsonl".as_ref(), audit, origins, platform)?;
//!     server.set_observer(log.clone());
//!     policy = policy.with_gate(log);
//! }
//! server.set_policy(Arc::new(policy));
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! rules      allow, ask, deny: which calls a rule matches
//! modes      mode × annotations × rule × who can be asked → decision; pure
//! names      the names by which rules know a tool
//! hooks/     commands and HTTP requests around a call, as Claude Code has them
//! question   what a person is shown, and the trait to ask somebody else than the caller
//! approvals  questions that wait in the store until somebody at the gateway answers
//! settings/  all of it as a file says it
//! policy     all of it, as the policy of a server
//! audit/     one line for each call
//! ```

pub mod approvals;
pub mod audit;
mod glob;
pub mod hooks;
pub mod modes;
pub mod names;
mod note;
mod policy;
mod question;
mod result;
pub mod rules;
pub mod settings;

pub use policy::{CallGate, LivePolicy, PermissionPolicy};
pub use question::{Approval, ApprovalKind, ApprovalRequest, Approver};
pub use settings::Settings;

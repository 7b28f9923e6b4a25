//! The types that all crates share: calls, callers, outcomes, errors and limits.
//!
//! A provider is a function of a [`Call`] and the [`Journal`] so far, and returns an [`Outcome`]. It knows
//! neither the protocol version nor the transport: `wire` and `transport` translate those. This crate runs
//! nothing. It has no I/O, no clock and no randomness, only the traits through which callers pass them in.

pub mod calendar;
mod call;
mod caller;
mod catalog;
mod error;
mod events;
mod header_params;
mod input;
mod limits;
mod outcome;
mod policy;
mod principal;
mod provider;
pub mod text;

pub use call::{Call, CallTarget, CompletionRef};
pub use caller::{Caller, ClientCapabilities};
pub use catalog::{
    Catalog, Prompt, PromptArgument, RateLimit, Resource, ResourceDirectory, ResourceTemplate, Skill,
    SkillFile, SkillFiles, TaskSupport, Tool, ToolAnnotations,
};
pub use error::{ArgumentErrorKind, CallError, ItemKind, ToolError, ToolErrorCode};
pub use events::{CallEvent, EventFilter, EventSink, LogLevel};
pub use header_params::{HeaderParam, HeaderParamError};
pub use input::{CallId, ElicitResult, InputRequest, InputRequests, InputResponse, Journal};
pub use limits::{INSTRUCTIONS_BYTES_MAX, Limits};
pub use outcome::{
    CallResult, CompletionResult, ContentBlock, DetachedWork, Outcome, PromptMessage, PromptResult,
    ResourceContents, ResourceResult, Role, ToolContent, ToolResult,
};
pub use policy::{
    CatalogView, Decision, Everything, Policy, PolicyContext, PolicyDecision, PolicyRun, ResultDecision,
    Visibility,
};
pub use principal::{Identity, IdentityError, Principal};
pub use provider::{
    CallContext, CallFuture, CallerRoles, CatalogChange, ChangeListener, CheckpointSink, Checkpoints,
    NoTools, Platform, Provider, RequestHead, RoleView, Run, ToolCaller, WatchFuture,
};

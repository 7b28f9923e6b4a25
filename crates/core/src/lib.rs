//! The words that all rooms share: what is called, by whom, what came of it.
//!
//! A provider is a function of ([`Call`], [`Journal`] so far) that ends in an [`Outcome`]. It knows neither
//! the protocol version nor the door: those are translated at the edge. Nothing runs here; there is no I/O,
//! no clock and no source of randomness in this crate, only the traits through which they are handed in.

mod call;
mod caller;
mod catalog;
mod error;
mod events;
mod input;
mod limits;
mod outcome;
mod provider;
pub mod text;

pub use call::{Call, CallTarget, CompletionRef};
pub use caller::{Caller, ClientCapabilities, Principal};
pub use catalog::{
    Catalog, Prompt, PromptArgument, RateLimit, Resource, ResourceTemplate, TaskSupport, Tool,
    ToolAnnotations,
};
pub use error::{ArgumentErrorKind, CallError, ItemKind, ToolError, ToolErrorCode};
pub use events::{CallEvent, EventFilter, EventSink, LogLevel};
pub use input::{ElicitResult, InputRequest, InputRequests, InputResponse, Journal};
pub use limits::Limits;
pub use outcome::{
    CallResult, CompletionResult, ContentBlock, Outcome, PromptMessage, PromptResult, ResourceContents,
    ResourceResult, Role, ToolContent, ToolResult,
};
pub use provider::{CallContext, CallFuture, CatalogChange, ChangeListener, Platform, Provider, Run};

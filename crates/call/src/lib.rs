//! The words that all rooms share: what is called, by whom, what came of it.
//!
//! A provider is a function of ([`Call`], [`Journal`] so far) that ends in an [`Outcome`]. It knows neither
//! the protocol version nor the door: those are translated at the edge. Nothing runs here; there is no I/O,
//! no clock and no source of randomness in this crate, only the traits through which they are handed in.

mod ask;
mod caller;
mod catalog;
mod emit;
mod fault;
mod limits;
mod outcome;
mod provider;
mod request;
pub mod text;

pub use ask::{Answer, Ask, Asks, Elicited, Journal};
pub use caller::{Caller, Caps, Principal};
pub use catalog::{Annotations, Catalog, Prompt, PromptArgument, Rate, Resource, TaskUse, Template, Tool};
pub use emit::{Emit, Event, Level, Wanted};
pub use fault::{Failure, Fault, Problem, Reason, Thing};
pub use limits::Limits;
pub use outcome::{
    Block, Body, Completion, Content, Contents, Message, Outcome, PromptReply, Reply, Role, ToolReply,
};
pub use provider::{Change, Cx, Listener, Provider, Run, Work, World};
pub use request::{Call, CompletionOf, Target};

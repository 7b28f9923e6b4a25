//! The registry and the one path: whose call is it, is it well formed, run it, answer.
//!
//! A door hands in bytes and gets bytes back. In between, [`Server::open`] decides what a message means,
//! [`Server::begin`] answers what can be answered at once, and a [`Serving`] is a call under way: a future
//! that the door polls where it stands, with no task, channel or timer of its own until it has to wait.
//!
//! Deliberately absent: sockets, HTTP, framing, and any knowledge of what a provider does.

mod begin;
mod catch;
mod compiled;
mod events;
mod live;
mod mail;
mod path;
mod questions;
mod registry;
mod seal;
mod server;
mod serving;
mod sessions;
mod streams;
mod tasks;
mod template;
mod world;

pub use begin::Begun;
pub use compiled::{Answers, Compiled};
pub use events::{News, Watch};
pub use live::{Line, Live, Waiting};
pub use mail::Mail;
pub use registry::{BadCatalog, Registry};
pub use server::{Config, Posted, Server, Status, Who, refusal};
pub use serving::{Flow, Listening, Out, Serving, Several};
pub use sessions::Ticket;
pub use streams::{Attached, GET_STREAM, Part, Streams};
pub use world::RealWorld;

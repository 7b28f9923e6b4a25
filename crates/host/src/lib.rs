//! The registry and the call pipeline: route a call, check its arguments, run it, encode the response.
//!
//! A transport hands in bytes and gets bytes back. [`Server::decode`] turns bytes into a typed message.
//! [`Server::dispatch`] answers at once what needs no provider, and returns an [`InFlight`] for a call: a future
//! that the transport polls on its own task. A call needs no task, channel or timer of its own until it must wait.
//!
//! `http_reply` decides what an HTTP request is answered with.
//!
//! Deliberately absent: sockets, HTTP syntax, framing, and any knowledge of what a provider does.

mod byte_fields;
mod caller_key;
mod connection_state;
mod contract_provider;
mod dispatch;
mod http_reply;
mod in_flight;
mod input_requests;
mod input_responses;
mod joined_roles;
mod nested_calls;
mod observer;
mod offered_catalog;
mod open_requests;
mod outgoing_queue;
mod panic_guard;
mod pipeline;
mod platform;
mod policy;
mod providers;
mod rate_limit;
mod registry;
mod replicas;
mod server;
mod server_provider;
mod session_streams;
mod sessions;
mod sharded_counter;
mod subscriptions;
mod tasks;
mod uri_pattern;

pub use caller_key::network_of;
pub use connection_state::{ConnectionState, InFlightGuard, ReplyChannel};
pub use contract_provider::{ContractBackends, ContractProvider};
pub use dispatch::Dispatched;
pub use http_reply::{
    AcceptedTypes, CompleteReply, HttpReply, PostMessage, PostReply, PostSender, Refusal, ReplyStream,
    SessionHeaders, WaitingReply,
};
pub use in_flight::{BatchInFlight, InFlight, OutgoingMessage, PendingResponse, SubscriptionStream};
pub use observer::{CallObserver, CallObservers, CallRecord, CallStatus, PolicyRecord};
pub use offered_catalog::OfferedCatalog;
pub use outgoing_queue::OutgoingQueue;
pub use platform::SystemPlatform;
pub use registry::{Registry, UnservedItem};
pub use server::{
    CallerIdentity, Config, ProviderSet, RegistrySnapshot, ReloadOutcome, ReloadReport, Server, SourceHealth,
    SseConnection, Status, UnavailableSource, early_error_response,
};
pub use server_provider::{Rename, ServerProvider};
pub use session_streams::{GET_STREAM, SessionStreamReader, SessionStreams, StreamItem};
pub use sessions::{SessionTicket, TicketMemo};
pub use state::keyring::Keyring;
pub use subscriptions::{Subscription, SubscriptionEvent};

//! Other MCP servers as providers: a gateway is a server whose providers are remote.
//!
//! ```text
//! Call                host                  validated, permitted, with the caller's journal and events
//!  → RemoteProvider   provider              which server; own name or public name
//!  → CallerConnections connections          the shared connection (stateless era), or one for this caller (handshake era)
//!  → ForwardedCall    forwarded_call        the request anew: own ids, own progress tokens, the caller's capabilities
//!  → questions        questions, parked     the server asks: the call waits in `parked`, the caller is asked by the host
//!                      local_answers         … or the gateway answers: configured roots, a configured model
//!  → result           results               the server's own JSON, or an error that says whose fault it is
//! ```
//!
//! Both eras of the protocol meet here, and the provider interface is what joins them: the host translates for the caller,
//! `wire::client` for the server.

mod connections;
mod definitions;
mod forwarded_call;
mod gateway;
mod local_answers;
mod open_questions;
mod parked;
mod provider;
mod questions;
mod remote_server;
mod remote_tasks;
mod results;
mod samplings;

pub use connections::ConnectionPoolLimits;
pub use gateway::{Gateway, GatewayOptions};
pub use local_answers::{SamplingApprover, SamplingQuestion};
pub use provider::{Naming, RemoteProvider};
pub use samplings::{AllowedBy, SamplingCaller, SamplingObserver, SamplingRecord, SamplingStatus};

//! Transport tests with real sockets and pipes, hand-written requests and controlled providers.

mod bodies;
mod calls;
mod certificates;
mod client;
mod conn;
mod content_negotiation;
mod controlled_provider;
mod cors;
mod fast_path;
mod guard;
mod h2;
mod limits;
mod page;
mod pipe;
mod properties;
mod resumption;
mod sessions;
mod simulation;
mod sse;
mod test_server;
mod timing;
mod tls;
mod token;
mod unix;
mod websocket;
mod ws_client;

//! The doors from outside: real sockets and pipes, hand-written requests, providers that can be watched.

mod bodies;
mod calls;
mod chance;
mod client;
mod conn;
mod cors;
mod forms;
mod guard;
mod h2;
mod keys;
mod kit;
mod limits;
mod pipe;
mod resume;
mod sessions;
mod sse;
mod stand;
mod timing;
mod tls;
mod token;
mod unix;
mod websocket;
mod ws;

//! The configured servers as a user has them: files in folders.

mod authority;
mod config;
mod decisions;
mod dialects;
mod harness;
mod http_server;
mod manager;
mod oauth;

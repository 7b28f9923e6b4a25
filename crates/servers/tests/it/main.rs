//! The configured servers as a user has them: files in folders.

mod authority;
mod config;
mod decisions;
mod dialects;
mod examples;
mod grants;
mod harness;
mod http_outages;
mod http_server;
mod keyring;
mod manager;
mod oauth;
mod reload;
mod sampling;

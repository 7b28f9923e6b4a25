//! REST APIs as sources: collections behind endpoints, and requests of tools.
//!
//! ```text
//! template, values → render → client (rate, concurrency, retries, credentials) → response → rows → the engine of files
//! ```
//!
//! - [`render`] builds a request from its template and values. A value never changes the structure of a URL, of a header or of
//!   a body.
//! - [`client`] sends it: to the host of the source only, bounded in number, rate, size and time.
//! - [`pages`] reads a list to its end, or fails with the limit that was reached.
//! - [`reader`] answers questions about a collection from the rows that were read, with the engine of files: what a filter, an
//!   order or a sum means is the same for every source ([ADR 0230](../../../docs/adr/0230-rest-sources.md)).
//! - [`writer`] and [`request`] change something. An API cannot roll back, so nothing here claims that.

mod auth;
mod breaker;
mod client;
mod encoding;
mod limits;
mod pages;
mod reader;
pub mod render;
mod request;
mod response;
mod source;
mod writer;

pub use source::{RestCollection, RestOptions, RestSource};

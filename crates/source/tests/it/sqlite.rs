//! Real databases, and a second connection that writes.

mod change_capture;
mod crash;
mod data_types;
mod errors;
mod idempotency;
mod kit;
mod locking;
mod paging;
mod safety;
mod search;
mod statement_values;
mod statements;
mod values;
mod writes;

//! Real databases, and a second connection that writes.

mod claims;
mod crash;
mod faults;
mod kinds;
mod kit;
mod manners;
mod paging;
mod safety;
mod search;
mod statements;
mod values;
mod witness;
mod writes;

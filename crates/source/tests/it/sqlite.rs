//! Real databases, and a second connection that writes.

mod faults;
mod kinds;
mod kit;
mod manners;
mod paging;
mod safety;

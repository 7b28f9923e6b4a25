//! Sources that are REST APIs, against real servers on this machine.

mod kit;
mod lists;
mod requests;
mod safety;
mod structure;
mod writes;

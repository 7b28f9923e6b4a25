//! A folder of author code, served by a real server and called in both eras.

mod basics;
mod harness;

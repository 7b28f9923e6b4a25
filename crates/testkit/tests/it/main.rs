//! The fixtures by themselves, and what others think of them.

mod fixtures;
mod official;
mod process;
mod transcripts;

//! The gateway as a whole: servers in the same process, on one fake clock.

mod listing;
mod local_answers;
mod sharing;
mod simulation;
mod subscriptions;
mod world;

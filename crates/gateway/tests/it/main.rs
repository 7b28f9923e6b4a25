//! The gateway as a whole: servers in the same process, on one fake clock.

mod elicitations;
mod healing;
mod listing;
mod local_answers;
mod parking;
mod sharing;
mod simulation;
mod subscriptions;
mod world;

//! Where one message ends and the next begins: push parsers and their writers, knowing nothing of JSON.

mod events;
mod pipe;
pub mod sse;

pub use events::{Events, ServerEvent, TooLong};
pub use pipe::{Frame, Frames, Framing};

//! Where one message ends and the next begins: push parsers and their writers, knowing nothing of JSON.

mod framing;
pub mod sse;
mod sse_decoder;

pub use framing::{Frame, FrameDecoder, Framing};
pub use sse_decoder::{SizeLimitExceeded, SseDecoder, SseEvent};

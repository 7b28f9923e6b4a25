//! Message framing: push parsers and writers. They know nothing of JSON.

mod framing;
pub mod sse;
mod sse_decoder;

pub use framing::{Frame, FrameDecoder, Framing};
pub use sse_decoder::{SizeLimitExceeded, SseDecoder, SseEvent};

//! A pipe over a byte stream, framed as lines or with `Content-Length` headers.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wire::frame::{FrameDecoder, Framing};

use super::{FramedTransport, TransportEvent};
use crate::http::IdlePolicy;

pub(crate) struct ByteStream<I> {
    io: I,
    frames: FrameDecoder,
    at_eof: bool,
}

/// Reads per poll, so that one busy client does not starve the others.
const READS_PER_POLL_MAX: usize = 16;

impl<I> ByteStream<I> {
    pub(crate) fn new(io: I, message_bytes_max: usize) -> Self {
        Self { io, frames: FrameDecoder::new(message_bytes_max), at_eof: false }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> FramedTransport for ByteStream<I> {
    type Io = I;
    const IDLE_POLICY: IdlePolicy = IdlePolicy::Unlimited;

    fn io(&mut self) -> Pin<&mut I> {
        Pin::new(&mut self.io)
    }

    fn framing(&self) -> Framing {
        self.frames.framing().unwrap_or(Framing::Lines)
    }

    fn is_mid_message(&self) -> bool {
        self.frames.buffered_bytes() > 0
    }

    fn buffered_bytes(&self) -> usize {
        self.frames.buffered_bytes()
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, _: &mut Vec<u8>) -> Poll<TransportEvent> {
        for _ in 0..READS_PER_POLL_MAX {
            if let Some(frame) = self.frames.next() {
                return Poll::Ready(TransportEvent::Frame(frame));
            }
            if self.at_eof {
                // A last line without a line break is a message too.
                return Poll::Ready(
                    self.frames.finish().map_or(TransportEvent::EndOfInput, TransportEvent::Frame),
                );
            }
            let mut buffer = ReadBuf::new(self.frames.read_buffer());
            match Pin::new(&mut self.io).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(TransportEvent::Disconnected),
                Poll::Ready(Ok(())) => {
                    let read = buffer.filled().len();
                    self.frames.advance(read);
                    self.at_eof = read == 0;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Neither framing has a close frame.
    fn append_close_frame(&mut self, _: &mut Vec<u8>) {}
}

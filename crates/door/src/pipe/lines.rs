//! A pipe of bytes: lines, or headers with a `Content-Length`.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wire::frame::{Frames, Framing};

use super::{Got, Transport};
use crate::http::Rests;

pub(crate) struct Lines<I> {
    io: I,
    frames: Frames,
    ended: bool,
}

/// How often one look may read: a client that sends without a pause is not the only one.
const READS_MAX: usize = 16;

impl<I> Lines<I> {
    pub(crate) fn new(io: I, frame_bytes_max: usize) -> Self {
        Self { io, frames: Frames::new(frame_bytes_max), ended: false }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> Transport for Lines<I> {
    type Io = I;
    const RESTS: Rests = Rests::ForEver;

    fn io(&mut self) -> Pin<&mut I> {
        Pin::new(&mut self.io)
    }

    fn framing(&self) -> Framing {
        self.frames.framing().unwrap_or(Framing::Lines)
    }

    fn is_within(&self) -> bool {
        self.frames.held_bytes() > 0
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, _: &mut Vec<u8>) -> Poll<Got> {
        for _ in 0..READS_MAX {
            if let Some(frame) = self.frames.next() {
                return Poll::Ready(Got::Frame(frame));
            }
            if self.ended {
                // A last line without a line break counts.
                return Poll::Ready(self.frames.finish().map_or(Got::End, Got::Frame));
            }
            let mut space = ReadBuf::new(self.frames.space());
            match Pin::new(&mut self.io).poll_read(cx, &mut space) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(Got::Gone),
                Poll::Ready(Ok(())) => {
                    let read = space.filled().len();
                    self.frames.filled(read);
                    self.ended = read == 0;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Lines have no last words: the end is the end.
    fn bye(&mut self, _: &mut Vec<u8>) {}
}

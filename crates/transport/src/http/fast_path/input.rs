//! What was read from a connection and not answered yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Bytes from the socket, in a buffer that the connection has only while it needs it.
#[derive(Default)]
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    #[inline]
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    #[inline]
    pub(super) fn has_buffer(&self) -> bool {
        !self.buffer.is_empty()
    }

    #[inline]
    pub(super) fn set_buffer(&mut self, buffer: Vec<u8>) {
        (self.start, self.end) = (0, 0);
        self.buffer = buffer;
    }

    /// The buffer, with whatever is in it.
    #[inline]
    pub(super) fn take_buffer(&mut self) -> Vec<u8> {
        (self.start, self.end) = (0, 0);
        std::mem::take(&mut self.buffer)
    }

    #[inline]
    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Replaces the content.
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        (self.start, self.end) = (0, 0);
        self.reserve(bytes.len());
        self.buffer[..bytes.len()].copy_from_slice(bytes);
        self.end = bytes.len();
    }

    /// Makes room for `bytes` from the first unread one.
    pub(super) fn reserve(&mut self, bytes: usize) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 0);
        }
    }

    /// Reads what the socket has, as far as there is room.
    #[inline]
    pub(super) fn poll_fill(
        &mut self,
        socket: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(&mut self.buffer[self.end..]);
        ready!(Pin::new(socket).poll_read(cx, &mut buf))?;
        let read = buf.filled().len();
        self.end += read;
        Poll::Ready(Ok(read))
    }
}

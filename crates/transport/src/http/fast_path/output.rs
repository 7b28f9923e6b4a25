//! Writes responses in HTTP/1.1, with the same headers in the same order as hyper does.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use http::{Response, StatusCode};
use tokio::io::AsyncWrite;

use super::super::body::Body;
use super::super::connection_tracker::TrackedConnection;

/// A larger body is sent from where it is; a smaller one is copied behind its head.
const COPIED_BODY_BYTES_MAX: usize = 8 << 10;

/// The response that is being written.
#[derive(Default)]
pub(super) struct Output {
    /// The head, and the body if it is small.
    head: Vec<u8>,
    body: Vec<u8>,
    written: usize,
    /// How many of the bytes left are counted as the connection's backlog.
    backlog_bytes: usize,
    date: DateCache,
}

impl Output {
    #[inline]
    fn len(&self) -> usize {
        self.head.len() + self.body.len() - self.written
    }

    /// Writes the next head into this buffer, which is empty.
    #[inline]
    pub(super) fn set_buffer(&mut self, buffer: Vec<u8>) {
        self.head = buffer;
    }

    #[inline]
    pub(super) fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.head)
    }

    /// A JSON response without headers of its own.
    #[inline]
    pub(super) fn start_json(&mut self, status: u16, body: Vec<u8>, tick: u32) {
        debug_assert!(self.head.is_empty());
        match status {
            200 => self
                .head
                .extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "),
            _ => {
                self.status_line(status);
                self.head.extend_from_slice(b"\r\ncontent-type: application/json\r\ncontent-length: ");
            }
        }
        self.finish_with_length(body, tick, Connection::KeepAlive);
    }

    /// Any other response whose body is complete.
    #[cold]
    pub(super) fn start(
        &mut self,
        response: &Response<Body>,
        body: Vec<u8>,
        tick: u32,
        connection: Connection,
    ) {
        debug_assert!(self.head.is_empty());
        let status = response.status();
        self.status_line(status.as_u16());
        for (name, value) in response.headers() {
            self.head.extend_from_slice(b"\r\n");
            self.head.extend_from_slice(name.as_str().as_bytes());
            self.head.extend_from_slice(b": ");
            self.head.extend_from_slice(value.as_bytes());
        }
        // RFC 9110, 8.6: a 204 has no length.
        if status == StatusCode::NO_CONTENT {
            self.finish_head(tick, connection);
        } else {
            self.head.extend_from_slice(b"\r\ncontent-length: ");
            self.finish_with_length(body, tick, connection);
        }
    }

    /// Without its line break, as every line until the head is finished.
    #[cold]
    fn status_line(&mut self, status: u16) {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let reason = status.canonical_reason().unwrap_or("<none>");
        self.head.extend_from_slice(format!("HTTP/1.1 {} {reason}", status.as_str()).as_bytes());
    }

    /// After `content-length: `.
    #[inline]
    fn finish_with_length(&mut self, body: Vec<u8>, tick: u32, connection: Connection) {
        json::write::integer(&mut self.head, body.len() as i64);
        self.finish_head(tick, connection);
        if body.len() <= COPIED_BODY_BYTES_MAX {
            self.head.extend_from_slice(&body);
        } else {
            self.body = body;
        }
    }

    #[inline]
    fn finish_head(&mut self, tick: u32, connection: Connection) {
        if let Connection::Close = connection {
            self.head.extend_from_slice(b"\r\nconnection: close");
        }
        self.head.extend_from_slice(self.date.at(tick));
    }

    /// Writes until the socket has taken everything.
    #[inline]
    pub(super) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        socket: &mut S,
        connection: &TrackedConnection,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.len() > 0 {
            let written = match self.head.get(self.written..) {
                Some(head) if self.body.is_empty() => Pin::new(&mut *socket).poll_write(cx, head),
                Some(head) => {
                    let slices = [IoSlice::new(head), IoSlice::new(&self.body)];
                    Pin::new(&mut *socket).poll_write_vectored(cx, &slices)
                }
                None => Pin::new(&mut *socket).poll_write(cx, &self.body[self.written - self.head.len()..]),
            };
            match written {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.set_backlog(self.len(), connection);
                    return Poll::Pending;
                }
            }
        }
        self.set_backlog(0, connection);
        ready!(Pin::new(socket).poll_flush(cx))?;
        self.head.clear();
        self.written = 0;
        if !self.body.is_empty() {
            self.body = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    /// What the client has not taken counts against its limit and the limit of the process.
    #[inline]
    pub(super) fn set_backlog(&mut self, bytes: usize, connection: &TrackedConnection) {
        let before = std::mem::replace(&mut self.backlog_bytes, bytes);
        if bytes > before {
            connection.on_response_bytes(bytes - before);
        } else if bytes < before {
            connection.on_response_bytes_taken(before - bytes);
        }
    }
}

/// Whether the connection serves further requests after this response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connection {
    KeepAlive,
    Close,
}

/// The end of heads, with the `Date`, which is formatted again when the connection tracker's clock has moved.
#[derive(Default)]
struct DateCache {
    tick: u32,
    text: Option<[u8; DATE_BYTES]>,
}

const DATE_BYTES: usize = "\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n".len();

impl DateCache {
    #[inline]
    fn at(&mut self, tick: u32) -> &[u8; DATE_BYTES] {
        if self.tick != tick {
            (self.tick, self.text) = (tick, None);
        }
        self.text.get_or_insert_with(format_now)
    }
}

#[cold]
fn format_now() -> [u8; DATE_BYTES] {
    let mut text = [b' '; DATE_BYTES];
    let end = format!("\r\ndate: {}\r\n\r\n", httpdate::fmt_http_date(SystemTime::now()));
    text.copy_from_slice(end.as_bytes());
    text
}

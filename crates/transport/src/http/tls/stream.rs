//! Moves TLS records between the socket and a rustls session, and plaintext between the session and hyper.
//!
//! The session is shared with the tracked connection, which must know whether the client has disconnected: in TLS
//! that is a message, not just the end of the socket.

use std::future::poll_fn;
use std::io::{self, BufRead, ErrorKind, IoSlice, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::connection_tracker::TrackedConnection;

/// The server side of a TLS connection.
pub(crate) struct TlsSession(Mutex<ServerConnection>);

/// The protocol negotiated by ALPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AlpnProtocol {
    Http1,
    Http2,
}

/// The response to plain HTTP on a TLS port. Every client can read HTTP/1.1.
const PLAIN_HTTP_RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 47\r\nConnection: close\r\n\r\nThis port speaks TLS: use https:// in the URL.\n";

/// How much to read from a client that gets an error, so that the error arrives: closing a socket with unread bytes
/// discards what was written last.
const LINGER_BYTES_MAX: usize = 64 << 10;

impl TlsSession {
    pub(crate) fn new(connection: ServerConnection) -> Arc<Self> {
        Arc::new(Self(Mutex::new(connection)))
    }

    fn lock(&self) -> MutexGuard<'_, ServerConnection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs the handshake. It counts towards the head timeout of the first request.
    pub(crate) async fn handshake(&self, connection: &TrackedConnection) -> io::Result<AlpnProtocol> {
        let mut first = [0];
        if poll_fn(|cx| connection.stream.poll_peek_byte(cx, &mut first)).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        // A TLS record starts with a small number, an HTTP request with a letter.
        if first[0].is_ascii_alphabetic() {
            // It fits into the empty buffer of a new socket.
            let _ = connection.stream.try_write(PLAIN_HTTP_RESPONSE.as_bytes());
            linger(connection).await;
            return Err(io::Error::new(ErrorKind::InvalidData, "plain HTTP was sent to a TLS port"));
        }
        if let Err(error) = poll_fn(|cx| self.poll_handshake(connection, cx)).await {
            linger(connection).await;
            return Err(error);
        }
        Ok(match self.lock().alpn_protocol() {
            Some(b"h2") => AlpnProtocol::Http2,
            // RFC 9113, 3.2: HTTP/2 over TLS MUST be negotiated with ALPN.
            _ => AlpnProtocol::Http1,
        })
    }

    fn poll_handshake(&self, connection: &TrackedConnection, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut session = self.lock();
        loop {
            ready!(poll_write_tls(&mut session, connection, cx))?;
            if !session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(poll_read_tls(&mut session, connection, cx))? == 0 {
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Whether the client has sent close_notify or is gone. Other received data stays in the session.
    pub(crate) fn has_disconnected(&self, connection: &TrackedConnection, cx: &mut Context<'_>) -> bool {
        let mut session = self.lock();
        loop {
            match session.process_new_packets() {
                Err(_) => return true,
                Ok(state) if state.peer_has_closed() => return true,
                // A pipelined request. The connection tracker notices a disconnect after it.
                Ok(state) if state.plaintext_bytes_to_read() > 0 => return false,
                Ok(_) => {}
            }
            match poll_read_tls(&mut session, connection, cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(0) | Err(_)) => return true,
                Poll::Ready(Ok(_)) => {}
            }
        }
    }
}

/// Reads the available records from the socket. Returns the number of bytes, 0 at the end.
fn poll_read_tls(
    session: &mut ServerConnection,
    connection: &TrackedConnection,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    loop {
        match session.read_tls(&mut SocketAdapter(connection)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                ready!(connection.stream.poll_read_ready(cx))?
            }
            Err(error) => return Poll::Ready(Err(error)),
            Ok(bytes) => {
                if let Err(error) = session.process_new_packets() {
                    // Send the alert if that is possible without waiting.
                    let _ = session.write_tls(&mut SocketAdapter(connection));
                    return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, error)));
                }
                return Poll::Ready(Ok(bytes));
            }
        }
    }
}

/// Writes all pending records to the socket.
fn poll_write_tls(
    session: &mut ServerConnection,
    connection: &TrackedConnection,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while session.wants_write() {
        match session.write_tls(&mut SocketAdapter(connection)) {
            Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                ready!(connection.stream.poll_write_ready(cx))?
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(()))
}

/// Closes the sending half and reads a while longer.
async fn linger(connection: &TrackedConnection) {
    connection.stream.shutdown_write();
    let mut discarded = [0; 4096];
    let mut bytes = 0;
    while bytes < LINGER_BYTES_MAX && connection.stream.readable().await.is_ok() {
        match connection.stream.try_read(&mut discarded) {
            Ok(0) => return,
            Ok(read) => bytes += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// The socket as rustls uses it; records reads and writes for the connection tracker.
struct SocketAdapter<'a>(&'a TrackedConnection);

impl io::Read for SocketAdapter<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.0.stream.try_read(buf)?;
        self.0.on_read();
        Ok(read)
    }
}

impl SocketAdapter<'_> {
    fn record_write(&self, written: io::Result<usize>) -> io::Result<usize> {
        match &written {
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.0.on_write_stalled(),
            _ => self.0.on_write(),
        }
        written
    }
}

impl Write for SocketAdapter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.record_write(self.0.stream.try_write(bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.record_write(self.0.stream.try_write_vectored(slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A TLS connection as the fast path and hyper use it.
#[derive(Clone)]
pub(crate) struct TlsSocket {
    pub(crate) connection: Arc<TrackedConnection>,
    pub(crate) session: Arc<TlsSession>,
}

impl AsyncRead for TlsSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut session = self.session.lock();
        loop {
            match session.reader().fill_buf() {
                Ok(plain) => {
                    let taken = plain.len().min(buf.remaining());
                    buf.put_slice(&plain[..taken]);
                    if taken > 0 {
                        session.reader().consume(taken);
                        self.connection.on_read();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The socket ended without close_notify: the data may be truncated.
                Err(error) => return Poll::Ready(Err(error)),
            }
            // The session may have records to send, such as a key update. If the socket is not writable now, read
            // anyway; the next write sends them.
            if let Poll::Ready(Err(error)) = poll_write_tls(&mut session, &self.connection, cx) {
                return Poll::Ready(Err(error));
            }
            ready!(poll_read_tls(&mut session, &self.connection, cx))?;
        }
    }
}

impl TlsSocket {
    fn poll_write_plaintext(
        &self,
        cx: &mut Context<'_>,
        write_plaintext: impl FnOnce(&mut ServerConnection) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let mut session = self.session.lock();
        // The session's buffer is bounded: write what it holds before adding more.
        ready!(poll_write_tls(&mut session, &self.connection, cx))?;
        let taken = write_plaintext(&mut session)?;
        match poll_write_tls(&mut session, &self.connection, cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // The next flush writes the rest.
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
        }
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_plaintext(cx, |session| session.writer().write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_plaintext(cx, |session| session.writer().write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_write_tls(&mut self.session.lock(), &self.connection, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut session = self.session.lock();
        // Without it the client cannot distinguish the end of a response from a truncated one.
        session.send_close_notify();
        let written = ready!(poll_write_tls(&mut session, &self.connection, cx));
        // Ignores the error of a socket that is already gone.
        self.connection.stream.shutdown_write();
        Poll::Ready(written)
    }
}

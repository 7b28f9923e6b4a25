//! Records over a socket: what hyper reads and writes, on its way in and out of a TLS session.
//!
//! The session is shared with whoever has to know whether the client has left: under TLS that is a message, and
//! the socket alone does not tell.

use std::future::poll_fn;
use std::io::{self, BufRead, ErrorKind, IoSlice, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::connection_timeouts::TrackedConnection;

/// One side of a TLS connection: ours.
pub(crate) struct TlsSession(Mutex<ServerConnection>);

/// What the two sides agreed to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AlpnProtocol {
    Http1,
    Http2,
}

/// For somebody who took the port for a plain one. The status line is HTTP/1.1, which everybody can read.
const PLAIN_HTTP_RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 47\r\nConnection: close\r\n\r\nThis port speaks TLS: use https:// in the URL.\n";

/// What is read of a client that is being told off, so that it gets to read it: a socket that is closed with
/// something unread takes back what was last written.
const LINGER_BYTES_MAX: usize = 64 << 10;

impl TlsSession {
    pub(crate) fn new(connection: ServerConnection) -> Arc<Self> {
        Arc::new(Self(Mutex::new(connection)))
    }

    fn lock(&self) -> MutexGuard<'_, ServerConnection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handshake. It has no clock of its own: until the first request is there, the watcher counts the time
    /// as that of its head.
    pub(crate) async fn handshake(&self, link: &TrackedConnection) -> io::Result<AlpnProtocol> {
        let mut first = [0];
        if poll_fn(|cx| link.stream.poll_peek_byte(cx, &mut first)).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        // A record of TLS begins with a small number, a request of HTTP with a letter.
        if first[0].is_ascii_alphabetic() {
            // It fits into the empty buffer of a new socket.
            let _ = link.stream.try_write(PLAIN_HTTP_RESPONSE.as_bytes());
            linger(link).await;
            return Err(io::Error::new(ErrorKind::InvalidData, "plain HTTP was sent to a TLS port"));
        }
        if let Err(error) = poll_fn(|cx| self.poll_handshake(link, cx)).await {
            linger(link).await;
            return Err(error);
        }
        Ok(match self.lock().alpn_protocol() {
            Some(b"h2") => AlpnProtocol::Http2,
            // RFC 9113, 3.2: whoever means HTTP/2 over TLS MUST say so.
            _ => AlpnProtocol::Http1,
        })
    }

    fn poll_handshake(&self, link: &TrackedConnection, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut session = self.lock();
        loop {
            ready!(poll_write_tls(&mut session, link, cx))?;
            if !session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(poll_read_tls(&mut session, link, cx))? == 0 {
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Whether the client has said that it is done, or is gone. What it sent beside that is kept for later.
    pub(crate) fn has_disconnected(&self, link: &TrackedConnection, cx: &mut Context<'_>) -> bool {
        let mut session = self.lock();
        loop {
            match session.process_new_packets() {
                Err(_) => return true,
                Ok(state) if state.peer_has_closed() => return true,
                // Another request, which waits for its turn; the watcher sees what is behind it.
                Ok(state) if state.plaintext_bytes_to_read() > 0 => return false,
                Ok(_) => {}
            }
            match poll_read_tls(&mut session, link, cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(0) | Err(_)) => return true,
                Poll::Ready(Ok(_)) => {}
            }
        }
    }
}

/// Reads from the socket what is there; how many bytes, 0 at the end.
fn poll_read_tls(
    session: &mut ServerConnection,
    link: &TrackedConnection,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    loop {
        match session.read_tls(&mut SocketAdapter(link)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(link.stream.poll_read_ready(cx))?,
            Err(error) => return Poll::Ready(Err(error)),
            Ok(bytes) => {
                if let Err(error) = session.process_new_packets() {
                    // The alert that says why. If it cannot be sent now, it is not worth waiting for.
                    let _ = session.write_tls(&mut SocketAdapter(link));
                    return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, error)));
                }
                return Poll::Ready(Ok(bytes));
            }
        }
    }
}

/// Writes to the socket all that the session has for it.
fn poll_write_tls(
    session: &mut ServerConnection,
    link: &TrackedConnection,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while session.wants_write() {
        match session.write_tls(&mut SocketAdapter(link)) {
            Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(link.stream.poll_write_ready(cx))?,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(()))
}

/// Stops writing, and reads a while longer.
async fn linger(link: &TrackedConnection) {
    link.stream.shutdown_write();
    let mut scrap = [0; 4096];
    let mut bytes = 0;
    while bytes < LINGER_BYTES_MAX && link.stream.readable().await.is_ok() {
        match link.stream.try_read(&mut scrap) {
            Ok(0) => return,
            Ok(read) => bytes += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// The socket as rustls uses it; the watcher is told what passes.
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

/// A connection under TLS, as hyper uses it.
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
                // The socket ended without a word: whatever was being sent may not be all of it.
                Err(error) => return Poll::Ready(Err(error)),
            }
            // A session may answer what it reads, a change of keys for one. That it cannot now is no reason not
            // to read; whatever is written next takes it along.
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
        put: impl FnOnce(&mut ServerConnection) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let mut session = self.session.lock();
        // The session holds so much and no more: one piece on its way out, and then the next.
        ready!(poll_write_tls(&mut session, &self.connection, cx))?;
        let taken = put(&mut session)?;
        match poll_write_tls(&mut session, &self.connection, cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // What is left goes out with the flush that comes next.
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
        // Without it nobody could tell the end of an answer from one that was cut short.
        session.send_close_notify();
        let written = ready!(poll_write_tls(&mut session, &self.connection, cx));
        // A socket that is gone already has nothing left to shut.
        self.connection.stream.shutdown_write();
        Poll::Ready(written)
    }
}

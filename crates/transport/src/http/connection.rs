//! Serves one connection: detects the protocol, runs hyper over the tracked socket, with [`tls`](super::tls) in
//! between where it is configured.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::HttpService;
use super::connection_tracker::{ConnectionTracker, TrackedConnection};
use super::route::{self, ConnectionContext};
use super::socket::{AcceptedConnection, SocketStream};
use super::strict::StrictHttp1Stream;
use super::tls::stream::{AlpnProtocol, TlsSession, TlsSocket};
use super::tls::{self, Tls};
#[cfg(unix)]
use super::unix_pipe;
use super::websocket;
use crate::guard::LocalEndpoint;

/// Serves a connection on its own task.
pub(crate) fn spawn(
    accepted: AcceptedConnection,
    service: Arc<HttpService>,
    tracker: &Arc<ConnectionTracker>,
) {
    let AcceptedConnection { stream, local, remote_ip } = accepted;
    // A unix socket is local and protected by its file mode; it needs no TLS.
    let tls = match (&service.tls, local) {
        (Some(tls), LocalEndpoint::Address(_)) => match tls.new_connection() {
            Some(session) => Some((tls.clone(), TlsSession::new(session))),
            None => return,
        },
        _ => None,
    };
    let connection = tracker.new_connection(stream, tls.as_ref().map(|(_, session)| session.clone()));
    #[cfg(unix)]
    if let LocalEndpoint::UnixSocket = local {
        connection.allow_idle();
    }
    let slot = tracker.register(connection.clone());
    let index = slot.index();
    let connection_tracker = tracker.clone();
    let task = tokio::spawn(async move {
        let _slot = slot;
        let context = Arc::new(ConnectionContext {
            service,
            tracker: connection_tracker,
            connection: connection.clone(),
            local,
            remote_ip,
            pending_upgrade: Mutex::default(),
        });
        let outcome = match tls {
            None => serve_plain(connection, context).await,
            Some((tls, session)) => Box::pin(serve_tls(connection, context, &tls, session)).await,
        };
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "connection failed"),
            Err(error) => tracing::debug!(%error, "connection failed before the first request"),
        }
    });
    tracker.set_abort_handle(index, task.abort_handle());
}

/// The outer error is from before hyper started.
type ServeResult = io::Result<hyper::Result<()>>;

async fn serve_plain(connection: Arc<TrackedConnection>, context: Arc<ConnectionContext>) -> ServeResult {
    let local = context.local;
    let sniffed = SniffedBytes::read(&connection.stream, local).await?;
    let protocol = sniffed.protocol(local).unwrap_or(match local {
        LocalEndpoint::Address(_) => Protocol::Http1,
        // The input ended before it was clear; a last line without a line break is a message.
        #[cfg(unix)]
        LocalEndpoint::UnixSocket => Protocol::Pipe,
    });
    let socket = TrackedSocket { connection: connection.clone(), sniffed };
    Ok(match protocol {
        Protocol::Http2 => Box::pin(serve_http2(connection, context, socket)).await,
        Protocol::Http1 => serve_http1(connection, context, socket).await,
        #[cfg(unix)]
        Protocol::Pipe => {
            Box::pin(unix_pipe::serve(socket, &connection, &context.service)).await;
            Ok(())
        }
    })
}

async fn serve_tls(
    connection: Arc<TrackedConnection>,
    context: Arc<ConnectionContext>,
    tls: &Arc<Tls>,
    session: Arc<TlsSession>,
) -> ServeResult {
    tls::reload_if_due(tls).await;
    let protocol = session.handshake(&connection).await?;
    let socket = TlsSocket { connection: connection.clone(), session };
    Ok(match protocol {
        AlpnProtocol::Http2 => serve_http2(connection, context, socket).await,
        AlpnProtocol::Http1 => serve_http1(connection, context, socket).await,
    })
}

/// Limit for the head of a request, all headers together.
const HEAD_BYTES_MAX: usize = 16 << 10;

// The timeouts are the connection tracker's, not hyper's: it needs no timer per request. HTTP/1 and HTTP/2 are
// two functions, not hyper-util's automatic choice, because that future has room for both in every connection.

async fn serve_http1(
    connection: Arc<TrackedConnection>,
    context: Arc<ConnectionContext>,
    socket: impl Io,
) -> hyper::Result<()> {
    let socket = TokioIo::new(StrictHttp1Stream::new(socket));
    let http_connection = pin!(
        http1::Builder::new()
            .header_read_timeout(None)
            .half_close(true)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(socket, service_fn(|request| route::handle(&context, request)))
            .with_upgrades()
    );
    run_connection(&connection, http_connection, http1::UpgradeableConnection::graceful_shutdown).await?;
    if let Some(upgrade) = context.take_pending_upgrade() {
        Box::pin(websocket::serve(upgrade, &connection, &context.service)).await;
    }
    Ok(())
}

async fn serve_http2(
    connection: Arc<TrackedConnection>,
    context: Arc<ConnectionContext>,
    socket: impl Io,
) -> hyper::Result<()> {
    let socket = TokioIo::new(socket);
    let http_connection = pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(100)
            .max_pending_accept_reset_streams(20)
            .max_local_error_reset_streams(1024)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .max_send_buf_size(256 << 10)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20))
            .serve_connection(socket, service_fn(|request| route::handle(&context, request)))
    );
    run_connection(&connection, http_connection, http2::Connection::graceful_shutdown).await
}

/// The socket that hyper reads and writes.
trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl Io for TrackedSocket {}

impl Io for TlsSocket {}

/// Serves until the client disconnects, or until a graceful shutdown, which answers running requests first.
async fn run_connection<C: Future>(
    connection: &TrackedConnection,
    mut http_connection: Pin<&mut C>,
    shut_down: fn(Pin<&mut C>),
) -> C::Output {
    let mut notified = false;
    poll_fn(|cx| {
        if !notified && connection.is_shutting_down(cx) {
            notified = true;
            shut_down(http_connection.as_mut());
        }
        http_connection.as_mut().poll(cx)
    })
    .await
}

/// The first bytes of a connection, which show the protocol.
struct SniffedBytes {
    bytes: [u8; HTTP2_PREFACE.len()],
    /// How many bytes there are, and how many of them have been passed on.
    len: u8,
    replayed: u8,
}

enum Protocol {
    Http1,
    Http2,
    /// Messages without HTTP; on unix sockets only.
    #[cfg(unix)]
    Pipe,
}

/// The first bytes of a client with prior knowledge of HTTP/2 (RFC 9113, 3.4).
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl SniffedBytes {
    /// Reads until the protocol is clear.
    async fn read(stream: &SocketStream, local: LocalEndpoint) -> io::Result<Self> {
        let mut sniffed = Self { bytes: [0; HTTP2_PREFACE.len()], len: 0, replayed: 0 };
        loop {
            stream.readable().await?;
            match stream.try_read(&mut sniffed.bytes[usize::from(sniffed.len)..]) {
                Ok(0) => return Ok(sniffed),
                Ok(read) => sniffed.len += read as u8,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            if sniffed.protocol(local).is_some() {
                return Ok(sniffed);
            }
        }
    }

    /// `None` while it is not clear yet.
    fn protocol(&self, local: LocalEndpoint) -> Option<Protocol> {
        match self.bytes() {
            bytes if bytes == HTTP2_PREFACE => Some(Protocol::Http2),
            bytes if HTTP2_PREFACE.starts_with(bytes) => None,
            bytes => match local {
                LocalEndpoint::Address(_) => Some(Protocol::Http1),
                #[cfg(unix)]
                LocalEndpoint::UnixSocket => {
                    unix_pipe::is_pipe(bytes).map(|pipe| if pipe { Protocol::Pipe } else { Protocol::Http1 })
                }
            },
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    #[inline]
    fn is_replayed(&self) -> bool {
        self.replayed == self.len
    }

    fn replay(&mut self, buf: &mut ReadBuf<'_>) {
        let left = &self.bytes[usize::from(self.replayed)..usize::from(self.len)];
        let now = left.len().min(buf.remaining());
        buf.put_slice(&left[..now]);
        self.replayed += now as u8;
    }
}

/// A socket that records reads and writes for the connection tracker.
pub(super) struct TrackedSocket {
    connection: Arc<TrackedConnection>,
    sniffed: SniffedBytes,
}

impl AsyncRead for TrackedSocket {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.sniffed.is_replayed() {
            // Read what follows in the same call: hyper grows its buffer when it must read twice.
            self.sniffed.replay(buf);
            let _ = self.connection.stream.try_read_buf(buf);
            self.connection.on_read();
            return Poll::Ready(Ok(()));
        }
        let stream = &self.connection.stream;
        loop {
            let mut short = false;
            // With edge-triggered readiness (not on Windows), a read that did not fill the buffer has emptied the
            // socket. Returning `WouldBlock` clears the readiness and saves the next, useless read; `try_io` clears
            // only the readiness from before the read.
            let read = stream.try_io(Interest::READABLE, || {
                let read = stream.try_read_buf(buf)?;
                short = cfg!(unix) && read > 0 && buf.remaining() > 0;
                if short { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(read) }
            });
            match read {
                Ok(0) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !short => {
                    ready!(stream.poll_read_ready(cx))?;
                }
                Err(error) if !short => return Poll::Ready(Err(error)),
                Ok(_) | Err(_) => {
                    self.connection.on_read();
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl TrackedSocket {
    #[inline]
    fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&SocketStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match write(&self.connection.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.connection.on_write_stalled();
                    ready!(self.connection.stream.poll_write_ready(cx))?;
                }
                written => {
                    self.connection.on_write();
                    return Poll::Ready(written);
                }
            }
        }
    }
}

impl AsyncWrite for TrackedSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.stream.shutdown_write();
        Poll::Ready(Ok(()))
    }
}

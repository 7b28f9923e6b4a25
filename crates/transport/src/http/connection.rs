//! Serves one connection: detects the protocol, runs the fast path and hyper over the tracked socket, with [`tls`](super::tls) in
//! between where it is configured.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::HttpService;
use super::connection_tracker::{ConnectionTracker, TrackedConnection};
use super::fast_path::{Exit, FastPath, PlainRequests};
use super::route::{self, ConnectionContext};
use super::socket::{AcceptedConnection, SocketStream};
use super::strict::{Handover, StrictHttp1Stream};
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
        let context =
            ConnectionContext::new(service, connection_tracker, connection.clone(), local, remote_ip);
        let context = Arc::new(context);
        let outcome = match tls {
            None => serve_plain(connection, context).await,
            Some((tls, session)) => Box::pin(serve_tls(connection, context, &tls, session)).await,
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "connection failed");
        }
    });
    tracker.set_abort_handle(index, task.abort_handle());
}

/// Why a connection ended without being closed in order.
#[derive(Debug)]
pub(crate) enum ConnectionError {
    /// In the TLS handshake, or before the first request was read.
    BeforeFirstRequest(io::Error),
    /// After requests were answered.
    Socket(io::Error),
    Hyper(hyper::Error),
}

impl std::fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BeforeFirstRequest(error) => write!(f, "before the first request: {error}"),
            Self::Socket(error) => error.fmt(f),
            Self::Hyper(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectionError {}

impl From<hyper::Error> for ConnectionError {
    fn from(error: hyper::Error) -> Self {
        Self::Hyper(error)
    }
}

type ServeResult = Result<(), ConnectionError>;

async fn serve_plain(connection: Arc<TrackedConnection>, context: Arc<ConnectionContext>) -> ServeResult {
    let local = context.local;
    let sniffed = SniffedBytes::read(&connection.stream, local).await;
    let sniffed = sniffed.map_err(ConnectionError::BeforeFirstRequest)?;
    let protocol = sniffed.protocol(local).unwrap_or(match local {
        LocalEndpoint::Address(_) => Protocol::Http1,
        // The input ended before it was clear; a last line without a line break is a message.
        #[cfg(unix)]
        LocalEndpoint::UnixSocket => Protocol::Pipe,
    });
    let mut socket = TrackedSocket { connection: connection.clone(), sniffed };
    match protocol {
        Protocol::Http2 => Ok(Box::pin(serve_http2(connection, context, socket)).await?),
        Protocol::Http1 => {
            let sniffed = std::mem::replace(&mut socket.sniffed, SniffedBytes::EMPTY);
            let first = sniffed.into_bytes_with_rest(&connection);
            serve_http1(connection, context, socket, first, PlainRequests::FastPath).await
        }
        #[cfg(unix)]
        Protocol::Pipe => {
            Box::pin(unix_pipe::serve(socket, &connection, &context.service)).await;
            Ok(())
        }
    }
}

async fn serve_tls(
    connection: Arc<TrackedConnection>,
    context: Arc<ConnectionContext>,
    tls: &Arc<Tls>,
    session: Arc<TlsSession>,
) -> ServeResult {
    tls::reload_if_due(tls).await;
    let handshake = session.handshake(&connection).await;
    let protocol = handshake.map_err(ConnectionError::BeforeFirstRequest)?;
    let socket = TlsSocket { connection: connection.clone(), session };
    match protocol {
        AlpnProtocol::Http2 => Ok(serve_http2(connection, context, socket).await?),
        AlpnProtocol::Http1 => {
            serve_http1(connection, context, socket, Vec::new(), PlainRequests::FastPath).await
        }
    }
}

/// Limit for the head of a request, all headers together.
const HEAD_BYTES_MAX: usize = 16 << 10;

// The timeouts are the connection tracker's, not hyper's: it needs no timer per request. HTTP/1 and HTTP/2 are
// two functions, not hyper-util's automatic choice, because that future has room for both in every connection.

/// Serves plain requests on the fast path, and gives every other to hyper, one at a time. `first` are the bytes that are
/// already read.
async fn serve_http1<S: Io + Clone>(
    connection: Arc<TrackedConnection>,
    context: Arc<ConnectionContext>,
    socket: S,
    first: Vec<u8>,
    plain_requests: PlainRequests,
) -> ServeResult {
    let handover = &context.handover;
    let start_hyper = || {
        let stream = TokioIo::new(StrictHttp1Stream::new(socket.clone(), handover.clone()));
        let mut builder = http1::Builder::new();
        builder.header_read_timeout(None).half_close(true).max_buf_size(HEAD_BYTES_MAX);
        let service = service_fn(|request| route::handle(&context, request));
        Box::pin(builder.serve_connection(stream, service).with_upgrades())
    };
    let mut fast_path = FastPath::new(socket.clone(), context.clone(), &first, plain_requests);
    // Not for as long as the connection lasts.
    drop(first);
    // Made when it is first needed. It lasts as long as the connection, and waits while the fast path serves.
    let mut hyper = None;
    let mut shutdown_notified = false;
    loop {
        match poll_fn(|cx| fast_path.poll(cx)).await {
            Ok(Exit::Closed) => return Ok(()),
            Ok(Exit::HandOver) => {
                // The answers are the same, so this is all that shows who gave them.
                tracing::trace!("hyper gets what comes next");
                handover.give(fast_path.take_input());
            }
            Err(error) if fast_path.has_served() => return Err(ConnectionError::Socket(error)),
            Err(error) => return Err(ConnectionError::BeforeFirstRequest(error)),
        }
        let http_connection = hyper.get_or_insert_with(start_hyper).as_mut();
        let ended = serve_with_hyper(
            &connection,
            http_connection,
            http1::UpgradeableConnection::graceful_shutdown,
            handover,
            &mut shutdown_notified,
        )
        .await;
        if let Some(result) = ended {
            if let (Ok(()), Some(upgrade)) = (&result, context.take_pending_upgrade()) {
                Box::pin(websocket::serve(upgrade, &connection, &context.service)).await;
            }
            return Ok(result?);
        }
        fast_path.resume(&handover.take_back());
    }
}

/// Serves any stream as an HTTP/1 connection from this machine. Only the timeouts and the disconnect check are not there.
#[cfg(unix)]
pub(crate) async fn serve_http1_stream(
    service: Arc<HttpService>,
    stream: impl Io + Clone,
    plain_requests: PlainRequests,
) -> io::Result<()> {
    let (socket, _other_end) = tokio::net::UnixStream::pair()?;
    let tracker = Arc::new(ConnectionTracker::new(service.connection_limits.clone()));
    let connection = tracker.new_connection(SocketStream::Unix(socket), None);
    let address = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    let context = ConnectionContext::new(
        service,
        tracker,
        connection.clone(),
        LocalEndpoint::Address(address),
        Some(address),
    );
    let served = serve_http1(connection, Arc::new(context), stream, Vec::new(), plain_requests).await;
    served.map_err(io::Error::other)
}

/// Polls hyper until it has answered the request that it was given (`None`), or the connection has ended.
async fn serve_with_hyper<C: Future>(
    connection: &TrackedConnection,
    mut http_connection: Pin<&mut C>,
    shut_down: fn(Pin<&mut C>),
    handover: &Handover,
    shutdown_notified: &mut bool,
) -> Option<C::Output> {
    poll_fn(|cx| {
        // First, so that hyper knows of the request when it is told to shut down.
        if let Poll::Ready(result) = http_connection.as_mut().poll(cx) {
            return Poll::Ready(Some(result));
        }
        if !*shutdown_notified && connection.is_shutting_down(cx) {
            *shutdown_notified = true;
            shut_down(http_connection.as_mut());
            if let Poll::Ready(result) = http_connection.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
        }
        if handover.is_request_done() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
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

/// The socket that the fast path and hyper read and write.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for S {}

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
#[derive(Clone)]
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

/// As much as the fast path reads at a time.
const FIRST_READ_BYTES: usize = 8 << 10;

impl SniffedBytes {
    const EMPTY: Self = Self { bytes: [0; HTTP2_PREFACE.len()], len: 0, replayed: 0 };

    /// Reads until the protocol is clear.
    async fn read(stream: &SocketStream, local: LocalEndpoint) -> io::Result<Self> {
        let mut sniffed = Self::EMPTY;
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

    /// With what follows, as far as it is there: a head that arrives whole must be judged whole, and hyper does not look at
    /// a violation in a head of which it has seen the start before, until the head ends.
    fn into_bytes_with_rest(self, connection: &TrackedConnection) -> Vec<u8> {
        let mut bytes = vec![0; FIRST_READ_BYTES];
        let sniffed = self.bytes();
        bytes[..sniffed.len()].copy_from_slice(sniffed);
        let read = connection.stream.try_read(&mut bytes[sniffed.len()..]).unwrap_or_default();
        bytes.truncate(sniffed.len() + read);
        connection.on_read();
        bytes
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
#[derive(Clone)]
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

//! One connection: its socket, its phases, and hyper in between. Under TLS, [`tls`](super::tls) is in between too.

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

use super::Site;
use super::connection_timeouts::{ConnectionTracker, TrackedConnection};
use super::route::{self, ConnectionContext};
use super::socket::{AcceptedConnection, SocketStream};
use super::strict::Strict;
use super::tls::stream::{AlpnProtocol, TlsSession, TlsSocket};
use super::tls::{self, Tls};
#[cfg(unix)]
use super::unix_pipe;
use super::websocket;
use crate::guard::LocalEndpoint;

/// Serves a connection on a task of its own.
pub(crate) fn spawn(arrival: AcceptedConnection, site: Arc<Site>, watcher: &Arc<ConnectionTracker>) {
    let AcceptedConnection { stream, local, remote_ip: from } = arrival;
    // Whoever may open a socket of this machine needs no certificate to know whom they speak to.
    let secured = match (&site.tls, local) {
        (Some(tls), LocalEndpoint::Address(_)) => match tls.new_connection() {
            Some(connection) => Some((tls.clone(), TlsSession::new(connection))),
            None => return,
        },
        _ => None,
    };
    let link = watcher.new_connection(stream, secured.as_ref().map(|(_, session)| session.clone()));
    #[cfg(unix)]
    if let LocalEndpoint::UnixSocket = local {
        link.allow_idle();
    }
    let place = watcher.register(link.clone());
    let at = place.index();
    let task = tokio::spawn(async move {
        let _place = place;
        let arrived = Arc::new(ConnectionContext {
            site,
            connection: link.clone(),
            local,
            remote_ip: from,
            pending_upgrade: Mutex::default(),
        });
        let ended = match secured {
            None => serve_plain(link, arrived).await,
            Some((tls, session)) => Box::pin(serve_tls(link, arrived, &tls, session)).await,
        };
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a connection ended early"),
            Err(error) => tracing::debug!(%error, "a connection ended before it began"),
        }
    });
    watcher.set_abort_handle(at, task.abort_handle());
}

/// How a connection ended, once it had begun.
type ServeResult = io::Result<hyper::Result<()>>;

async fn serve_plain(link: Arc<TrackedConnection>, arrived: Arc<ConnectionContext>) -> ServeResult {
    let local = arrived.local;
    let opening = SniffedBytes::read(&link.stream, local).await?;
    let speaks = opening.protocol(local).unwrap_or(match local {
        LocalEndpoint::Address(_) => Protocol::Http1,
        // A last line counts also without its end.
        #[cfg(unix)]
        LocalEndpoint::UnixSocket => Protocol::Pipe,
    });
    let socket = TrackedSocket { connection: link.clone(), sniffed: opening };
    Ok(match speaks {
        Protocol::Http2 => Box::pin(serve_http2(link, arrived, socket)).await,
        Protocol::Http1 => serve_http1(link, arrived, socket).await,
        #[cfg(unix)]
        Protocol::Pipe => {
            Box::pin(unix_pipe::serve(socket, &link, &arrived.site)).await;
            Ok(())
        }
    })
}

async fn serve_tls(
    link: Arc<TrackedConnection>,
    arrived: Arc<ConnectionContext>,
    tls: &Arc<Tls>,
    session: Arc<TlsSession>,
) -> ServeResult {
    tls::reload_if_due(tls).await;
    let spoken = session.handshake(&link).await?;
    let socket = TlsSocket { connection: link.clone(), session };
    Ok(match spoken {
        AlpnProtocol::Http2 => serve_http2(link, arrived, socket).await,
        AlpnProtocol::Http1 => serve_http1(link, arrived, socket).await,
    })
}

/// A request's head, all its headers together.
const HEAD_BYTES_MAX: usize = 16 << 10;

// Limits for what a peer can make us hold or do: no timer of hyper's for that, the watcher sees to it. The two
// are apart, and not behind a library that chooses, because every connection keeps room for what it may become.

async fn serve_http1(
    link: Arc<TrackedConnection>,
    arrived: Arc<ConnectionContext>,
    socket: impl Io,
) -> hyper::Result<()> {
    let socket = TokioIo::new(Strict::new(socket));
    let connection = pin!(
        http1::Builder::new()
            .header_read_timeout(None)
            .half_close(true)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(socket, service_fn(|request| route::handle(&arrived, request)))
            .with_upgrades()
    );
    run_connection(&link, connection, http1::UpgradeableConnection::graceful_shutdown).await?;
    if let Some(upgrade) = arrived.take_pending_upgrade() {
        Box::pin(websocket::serve(upgrade, &link, &arrived.site)).await;
    }
    Ok(())
}

async fn serve_http2(
    link: Arc<TrackedConnection>,
    arrived: Arc<ConnectionContext>,
    socket: impl Io,
) -> hyper::Result<()> {
    let socket = TokioIo::new(socket);
    let connection = pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(100)
            .max_pending_accept_reset_streams(20)
            .max_local_error_reset_streams(1024)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .max_send_buf_size(256 << 10)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20))
            .serve_connection(socket, service_fn(|request| route::handle(&arrived, request)))
    );
    run_connection(&link, connection, http2::Connection::graceful_shutdown).await
}

/// What hyper reads and writes.
trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl Io for TrackedSocket {}

impl Io for TlsSocket {}

/// Serves until the client leaves, or until we go and the answers under way are out.
async fn run_connection<C: Future>(
    link: &TrackedConnection,
    mut connection: Pin<&mut C>,
    end: fn(Pin<&mut C>),
) -> C::Output {
    let mut told = false;
    poll_fn(|cx| {
        if !told && link.is_shutting_down(cx) {
            told = true;
            end(connection.as_mut());
        }
        connection.as_mut().poll(cx)
    })
    .await
}

/// The first bytes of a connection, which tell what is spoken on it.
struct SniffedBytes {
    bytes: [u8; HTTP2_PREFACE.len()],
    /// How many there are, and how many of them have been handed on.
    len: u8,
    replayed: u8,
}

enum Protocol {
    Http1,
    Http2,
    /// Messages one after the other, which is for unix sockets only.
    #[cfg(unix)]
    Pipe,
}

/// With this a client begins that knows HTTP/2 is spoken (RFC 9113, 3.4).
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl SniffedBytes {
    /// Reads until it is clear what is spoken.
    async fn read(stream: &SocketStream, local: LocalEndpoint) -> io::Result<Self> {
        let mut opening = Self { bytes: [0; HTTP2_PREFACE.len()], len: 0, replayed: 0 };
        loop {
            stream.readable().await?;
            match stream.try_read(&mut opening.bytes[usize::from(opening.len)..]) {
                Ok(0) => return Ok(opening),
                Ok(read) => opening.len += read as u8,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            if opening.protocol(local).is_some() {
                return Ok(opening);
            }
        }
    }

    /// `None` as long as it is not clear.
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

/// A socket that notes what passes through it. Shared with the watcher, which only looks.
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
            // What follows is read along with it: hyper makes its buffer larger when it must read twice.
            self.sniffed.replay(buf);
            let _ = self.connection.stream.try_read_buf(buf);
            self.connection.on_read();
            return Poll::Ready(Ok(()));
        }
        let stream = &self.connection.stream;
        loop {
            let mut short = false;
            // Where readiness is told once (not on Windows), a read that did not fill the buffer emptied the
            // socket. Saying so saves the read that would only find that out; `try_io` forgets exactly the
            // readiness that was there before the read.
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

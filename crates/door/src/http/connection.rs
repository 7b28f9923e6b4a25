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
#[cfg(unix)]
use super::local;
use super::route::{self, Arrived};
use super::stream::{Arrival, Stream};
use super::strict::Strict;
use super::tls::stream::{Secured, Session, Spoken};
use super::tls::{self, Tls};
use super::watcher::{Link, Watcher};
use super::websocket;
use crate::guard::Local;

/// Serves a connection on a task of its own.
pub(crate) fn spawn(arrival: Arrival, site: Arc<Site>, watcher: &Arc<Watcher>) {
    let Arrival { stream, local, from } = arrival;
    // Whoever may open a socket of this machine needs no certificate to know whom they speak to.
    let secured = match (&site.tls, local) {
        (Some(tls), Local::Address(_)) => match tls.connection() {
            Some(connection) => Some((tls.clone(), Session::new(connection))),
            None => return,
        },
        _ => None,
    };
    let link = watcher.link(stream, secured.as_ref().map(|(_, session)| session.clone()));
    #[cfg(unix)]
    if let Local::Socket = local {
        link.may_dwell();
    }
    let place = watcher.enter(link.clone());
    let at = place.at();
    let task = tokio::spawn(async move {
        let _place = place;
        let arrived = Arc::new(Arrived { site, link: link.clone(), local, from, upgrade: Mutex::default() });
        let ended = match secured {
            None => serve_plain(link, arrived).await,
            Some((tls, session)) => Box::pin(serve_secured(link, arrived, &tls, session)).await,
        };
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a connection ended early"),
            Err(error) => tracing::debug!(%error, "a connection ended before it began"),
        }
    });
    watcher.can_stop(at, task.abort_handle());
}

/// How a connection ended, once it had begun.
type Ended = io::Result<hyper::Result<()>>;

async fn serve_plain(link: Arc<Link>, arrived: Arc<Arrived>) -> Ended {
    let local = arrived.local;
    let opening = Opening::read(&link.stream, local).await?;
    let speaks = opening.speaks(local).unwrap_or(match local {
        Local::Address(_) => Speaks::Http1,
        // A last line counts also without its end.
        #[cfg(unix)]
        Local::Socket => Speaks::Pipe,
    });
    let socket = Socket { link: link.clone(), opening };
    Ok(match speaks {
        Speaks::Http2 => Box::pin(serve_http2(link, arrived, socket)).await,
        Speaks::Http1 => serve_http1(link, arrived, socket).await,
        #[cfg(unix)]
        Speaks::Pipe => {
            Box::pin(local::serve(socket, &link, &arrived.site)).await;
            Ok(())
        }
    })
}

async fn serve_secured(
    link: Arc<Link>,
    arrived: Arc<Arrived>,
    tls: &Arc<Tls>,
    session: Arc<Session>,
) -> Ended {
    tls::look_if_due(tls).await;
    let spoken = session.shake(&link).await?;
    let socket = Secured { link: link.clone(), session };
    Ok(match spoken {
        Spoken::Http2 => serve_http2(link, arrived, socket).await,
        Spoken::Http1 => serve_http1(link, arrived, socket).await,
    })
}

/// A request's head, all its headers together.
const HEAD_BYTES_MAX: usize = 16 << 10;

// Limits for what a peer can make us hold or do: no timer of hyper's for that, the watcher sees to it. The two
// are apart, and not behind a library that chooses, because every connection keeps room for what it may become.

async fn serve_http1(link: Arc<Link>, arrived: Arc<Arrived>, socket: impl Io) -> hyper::Result<()> {
    let socket = TokioIo::new(Strict::new(socket));
    let connection = pin!(
        http1::Builder::new()
            .header_read_timeout(None)
            .half_close(true)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(socket, service_fn(|request| route::answer(&arrived, request)))
            .with_upgrades()
    );
    until_over(&link, connection, http1::UpgradeableConnection::graceful_shutdown).await?;
    if let Some(upgrade) = arrived.upgraded() {
        Box::pin(websocket::serve(upgrade, &link, &arrived.site)).await;
    }
    Ok(())
}

async fn serve_http2(link: Arc<Link>, arrived: Arc<Arrived>, socket: impl Io) -> hyper::Result<()> {
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
            .serve_connection(socket, service_fn(|request| route::answer(&arrived, request)))
    );
    until_over(&link, connection, http2::Connection::graceful_shutdown).await
}

/// What hyper reads and writes.
trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl Io for Socket {}

impl Io for Secured {}

/// Serves until the client leaves, or until we go and the answers under way are out.
async fn until_over<C: Future>(link: &Link, mut connection: Pin<&mut C>, end: fn(Pin<&mut C>)) -> C::Output {
    let mut told = false;
    poll_fn(|cx| {
        if !told && link.is_ending(cx) {
            told = true;
            end(connection.as_mut());
        }
        connection.as_mut().poll(cx)
    })
    .await
}

/// The first bytes of a connection, which tell what is spoken on it.
struct Opening {
    bytes: [u8; HTTP2.len()],
    /// How many there are, and how many of them have been handed on.
    read: u8,
    given: u8,
}

enum Speaks {
    Http1,
    Http2,
    /// Messages one after the other, which is for unix sockets only.
    #[cfg(unix)]
    Pipe,
}

/// With this a client begins that knows HTTP/2 is spoken (RFC 9113, 3.4).
const HTTP2: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl Opening {
    /// Reads until it is clear what is spoken.
    async fn read(stream: &Stream, local: Local) -> io::Result<Self> {
        let mut opening = Self { bytes: [0; HTTP2.len()], read: 0, given: 0 };
        loop {
            stream.readable().await?;
            match stream.try_read(&mut opening.bytes[usize::from(opening.read)..]) {
                Ok(0) => return Ok(opening),
                Ok(read) => opening.read += read as u8,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            if opening.speaks(local).is_some() {
                return Ok(opening);
            }
        }
    }

    /// `None` as long as it is not clear.
    fn speaks(&self, local: Local) -> Option<Speaks> {
        match self.bytes() {
            bytes if bytes == HTTP2 => Some(Speaks::Http2),
            bytes if HTTP2.starts_with(bytes) => None,
            bytes => match local {
                Local::Address(_) => Some(Speaks::Http1),
                #[cfg(unix)]
                Local::Socket => {
                    local::is_pipe(bytes).map(|pipe| if pipe { Speaks::Pipe } else { Speaks::Http1 })
                }
            },
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.read)]
    }

    #[inline]
    fn is_given(&self) -> bool {
        self.given == self.read
    }

    fn give(&mut self, buf: &mut ReadBuf<'_>) {
        let left = &self.bytes[usize::from(self.given)..usize::from(self.read)];
        let now = left.len().min(buf.remaining());
        buf.put_slice(&left[..now]);
        self.given += now as u8;
    }
}

/// A socket that notes what passes through it. Shared with the watcher, which only looks.
pub(super) struct Socket {
    link: Arc<Link>,
    opening: Opening,
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.opening.is_given() {
            // What follows is read along with it: hyper makes its buffer larger when it must read twice.
            self.opening.give(buf);
            let _ = self.link.stream.try_read_buf(buf);
            self.link.read();
            return Poll::Ready(Ok(()));
        }
        let stream = &self.link.stream;
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
                    self.link.read();
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl Socket {
    #[inline]
    fn poll_written(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&Stream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match write(&self.link.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.link.write_stalls();
                    ready!(self.link.stream.poll_write_ready(cx))?;
                }
                written => {
                    self.link.written();
                    return Poll::Ready(written);
                }
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.stream.shut();
        Poll::Ready(Ok(()))
    }
}

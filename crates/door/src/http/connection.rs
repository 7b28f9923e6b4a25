//! One connection: its socket, its phases, and hyper in between.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Site;
use super::route::{self, Arrived};
use super::watcher::{Phase, Watcher};

/// Serves a connection on a task of its own.
pub(crate) fn spawn(
    stream: TcpStream,
    from: SocketAddr,
    site: Arc<Site>,
    watcher: Arc<Watcher>,
    mut stop: watch::Receiver<bool>,
) {
    // An answer is written whole: waiting for more to send with it only delays.
    let _ = stream.set_nodelay(true);
    let local = stream.local_addr().map_or(from.ip(), |local| local.ip());
    let stream = Arc::new(stream);
    let phase = watcher.phase();
    let place = watcher.enter(phase.clone(), stream.clone());
    let at = place.at();
    let socket = TokioIo::new(Socket { stream, phase: phase.clone() });
    let arrived = Arc::new(Arrived { site, phase, local, from });
    let task = tokio::spawn(async move {
        let _place = place;
        let service = service_fn(move |request| {
            let arrived = arrived.clone();
            async move { Ok::<_, Infallible>(route::answer(arrived, request).await) }
        });
        let builder = builder();
        let connection = builder.serve_connection(socket, service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = super::told_to_stop(&mut stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    });
    watcher.can_stop(at, task.abort_handle());
}

/// A request's head, all its headers together.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Limits for what a peer can make us hold or do: no timer of hyper's, the watcher sees to that.
fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(100)
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(1024)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .max_send_buf_size(256 << 10)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// A socket that notes what passes through it. Shared with the watcher, which only looks.
struct Socket {
    stream: Arc<TcpStream>,
    phase: Arc<Phase>,
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut short = false;
            // Where readiness is told once (not on Windows), a read that did not fill the buffer emptied the
            // socket. Saying so saves the read that would only find that out; `try_io` forgets exactly the
            // readiness that was there before the read.
            let read = self.stream.try_io(Interest::READABLE, || {
                let read = self.stream.try_read_buf(buf)?;
                short = cfg!(unix) && read > 0 && buf.remaining() > 0;
                if short { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(read) }
            });
            match read {
                Ok(0) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !short => {
                    ready!(self.stream.poll_read_ready(cx))?;
                }
                Err(error) if !short => return Poll::Ready(Err(error)),
                Ok(_) | Err(_) => {
                    self.phase.read();
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
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.phase.write_stalls();
                    ready!(self.stream.poll_write_ready(cx))?;
                }
                written => {
                    self.phase.written();
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
        // A socket that is gone already has nothing left to shut.
        let _ = rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}

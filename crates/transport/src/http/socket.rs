//! Listeners and sockets, TCP or unix. Only `accept` distinguishes the two.

use std::io;
use std::net::IpAddr;
use std::task::{Context, Poll};

use tokio::io::{Interest, ReadBuf, Ready};
use tokio::net::{TcpListener, TcpStream};

use crate::guard::LocalEndpoint;
#[cfg(unix)]
use crate::unix::SocketFile;

/// A listening socket.
pub enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(SocketFile),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

#[cfg(unix)]
impl From<SocketFile> for Listener {
    fn from(file: SocketFile) -> Self {
        Self::Unix(file)
    }
}

/// A connection right after `accept`.
pub(crate) struct AcceptedConnection {
    pub(crate) stream: SocketStream,
    /// Our end of the connection.
    pub(crate) local: LocalEndpoint,
    /// The client's address; a unix socket has none.
    pub(crate) remote_ip: Option<IpAddr>,
}

impl Listener {
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<AcceptedConnection>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(cx).map_ok(|(stream, remote)| {
                // Responses are written whole: Nagle's algorithm would only delay them.
                let _ = stream.set_nodelay(true);
                let local = stream.local_addr().map_or(remote.ip(), |local| local.ip());
                let stream = SocketStream::Tcp(stream);
                AcceptedConnection {
                    stream,
                    local: LocalEndpoint::Address(local),
                    remote_ip: Some(remote.ip()),
                }
            }),
            #[cfg(unix)]
            Self::Unix(file) => file.poll_accept(cx).map_ok(|stream| AcceptedConnection {
                stream: SocketStream::Unix(stream),
                local: LocalEndpoint::UnixSocket,
                remote_ip: None,
            }),
        }
    }
}

pub(crate) enum SocketStream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
}

/// Calls the same method on either kind of stream.
macro_rules! with {
    ($self:expr, $stream:ident => $body:expr) => {
        match $self {
            SocketStream::Tcp($stream) => $body,
            #[cfg(unix)]
            SocketStream::Unix($stream) => $body,
        }
    };
}

impl SocketStream {
    pub(crate) async fn readable(&self) -> io::Result<()> {
        with!(self, stream => stream.readable().await)
    }

    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        with!(self, stream => stream.ready(interest).await)
    }

    #[inline]
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with!(self, stream => stream.poll_read_ready(cx))
    }

    #[inline]
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with!(self, stream => stream.poll_write_ready(cx))
    }

    #[inline]
    pub(crate) fn try_io<R>(&self, interest: Interest, f: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        with!(self, stream => stream.try_io(interest, f))
    }

    pub(crate) fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        with!(self, stream => stream.try_read(bytes))
    }

    #[inline]
    pub(crate) fn try_read_buf(&self, buf: &mut ReadBuf<'_>) -> io::Result<usize> {
        with!(self, stream => stream.try_read_buf(buf))
    }

    #[inline]
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        with!(self, stream => stream.try_write(bytes))
    }

    #[inline]
    pub(crate) fn try_write_vectored(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        with!(self, stream => stream.try_write_vectored(slices))
    }

    pub(crate) fn is_tcp(&self) -> bool {
        match self {
            Self::Tcp(_) => true,
            #[cfg(unix)]
            Self::Unix(_) => false,
        }
    }

    /// Peeks at the next byte; 0 at the end of the stream.
    pub(crate) fn poll_peek(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_peek_byte(cx, &mut [0])
    }

    /// Peeks at the next byte and stores it in `byte`.
    pub(crate) fn poll_peek_byte(&self, cx: &mut Context<'_>, byte: &mut [u8; 1]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => stream.poll_peek(cx, &mut ReadBuf::new(byte)),
            #[cfg(unix)]
            Self::Unix(stream) => loop {
                std::task::ready!(stream.poll_read_ready(cx))?;
                let peeked = stream.try_io(Interest::READABLE, || {
                    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
                    Ok(rustix::net::recv(stream, &mut byte[..], flags)?.1)
                });
                match peeked {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    peeked => return Poll::Ready(peeked),
                }
            },
        }
    }

    /// Closes the sending half. Ignores the error of a socket that is already gone.
    pub(crate) fn shutdown_write(&self) {
        let _ = with!(self, stream => rustix::net::shutdown(stream, rustix::net::Shutdown::Write));
    }
}

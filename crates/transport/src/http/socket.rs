//! What a connection arrives on: TCP, or a unix socket. The same to everybody but whoever takes it in.

use std::io;
use std::net::IpAddr;
use std::task::{Context, Poll};

use tokio::io::{Interest, ReadBuf, Ready};
use tokio::net::{TcpListener, TcpStream};

use crate::guard::LocalEndpoint;
#[cfg(unix)]
use crate::unix::SocketFile;

/// Where clients knock.
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

/// A connection as it was taken in.
pub(crate) struct AcceptedConnection {
    pub(crate) stream: SocketStream,
    /// Where it arrived.
    pub(crate) local: LocalEndpoint,
    /// Where it came from, if that has an address.
    pub(crate) remote_ip: Option<IpAddr>,
}

impl Listener {
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<AcceptedConnection>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(cx).map_ok(|(stream, from)| {
                // An answer is written whole: waiting for more to send with it only delays.
                let _ = stream.set_nodelay(true);
                let local = stream.local_addr().map_or(from.ip(), |local| local.ip());
                let stream = SocketStream::Tcp(stream);
                AcceptedConnection {
                    stream,
                    local: LocalEndpoint::Address(local),
                    remote_ip: Some(from.ip()),
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

/// Does the same whatever the stream is.
macro_rules! with {
    ($self:expr, $stream:ident => $does:expr) => {
        match $self {
            SocketStream::Tcp($stream) => $does,
            #[cfg(unix)]
            SocketStream::Unix($stream) => $does,
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

    /// Looks at the next byte without taking it: 0 at the end.
    pub(crate) fn poll_peek(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_peek_byte(cx, &mut [0])
    }

    /// The same, and says which it is.
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

    /// Says that nothing more will be sent. A socket that is gone already has nothing left to shut.
    pub(crate) fn shutdown_write(&self) {
        let _ = with!(self, stream => rustix::net::shutdown(stream, rustix::net::Shutdown::Write));
    }
}

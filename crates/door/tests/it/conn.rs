//! A connection of a client: over TCP, or over a unix socket. Neither waits for ever.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{RecvFlags, recv};

use crate::kit::AT_MOST;

pub(crate) enum Conn {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! with {
    ($conn:expr, $stream:ident => $does:expr) => {
        match $conn {
            Conn::Tcp($stream) => $does,
            Conn::Unix($stream) => $does,
        }
    };
}

impl Conn {
    pub(crate) fn tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the door is open");
        stream.set_nodelay(true).expect("a socket option can be set");
        Self::Tcp(stream).patient()
    }

    pub(crate) fn unix(path: &Path) -> Self {
        Self::Unix(UnixStream::connect(path).expect("the door is open")).patient()
    }

    fn patient(self) -> Self {
        with!(&self, stream => stream.set_read_timeout(Some(AT_MOST))).expect("a timeout can be set");
        with!(&self, stream => stream.set_write_timeout(Some(AT_MOST))).expect("a timeout can be set");
        self
    }

    pub(crate) fn another(&self) -> Self {
        match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone().expect("a socket can be cloned")),
            Self::Unix(stream) => Self::Unix(stream.try_clone().expect("a socket can be cloned")),
        }
    }

    /// Says that nothing more will be sent.
    pub(crate) fn end(&self) {
        // It may be closed from the other side already.
        let _ = with!(self, stream => stream.shutdown(Shutdown::Write));
    }

    pub(crate) fn stop_reading(&self) {
        with!(self, stream => stream.shutdown(Shutdown::Read)).expect("it is open");
    }

    /// Whether the other side has not closed yet.
    pub(crate) fn is_open(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut byte = [0];
        let peeked = with!(self, stream => recv(stream, &mut byte, flags));
        match peeked {
            Ok((_, bytes)) => bytes > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }
}

impl Read for Conn {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        with!(self, stream => stream.read(bytes))
    }
}

impl Write for Conn {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        with!(self, stream => stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! A client connection over TCP, TLS or a unix socket, with timeouts.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use rustix::net::{RecvFlags, recv};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::test_server::TEST_TIMEOUT;

pub(crate) enum Conn {
    Tcp(TcpStream),
    Unix(UnixStream),
    Secured(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// Does the same with whatever socket is at the bottom.
macro_rules! with {
    ($conn:expr, $stream:ident => $does:expr) => {
        match $conn {
            Conn::Tcp($stream) => $does,
            Conn::Unix($stream) => $does,
            Conn::Secured(secured) => {
                let $stream = secured.get_ref();
                $does
            }
        }
    };
}

impl Conn {
    pub(crate) fn tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the door is open");
        stream.set_nodelay(true).expect("a socket option can be set");
        Self::Tcp(stream).with_timeouts()
    }

    pub(crate) fn unix(path: &Path) -> Self {
        Self::Unix(UnixStream::connect(path).expect("the door is open")).with_timeouts()
    }

    /// Under TLS. The handshake is done with the first thing that is sent or read.
    pub(crate) fn secured(address: SocketAddr, config: Arc<ClientConfig>) -> Self {
        let Self::Tcp(stream) = Self::tcp(address) else { unreachable!("it was just made") };
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(config, name).expect("a session");
        Self::Secured(Box::new(StreamOwned::new(session, stream)))
    }

    /// The session, and the socket under it.
    pub(crate) fn tls(&mut self) -> (&mut ClientConnection, &mut TcpStream) {
        match self {
            Self::Tcp(_) | Self::Unix(_) => panic!("there is no TLS here"),
            Self::Secured(stream) => {
                let StreamOwned { conn, sock } = &mut **stream;
                (conn, sock)
            }
        }
    }

    fn with_timeouts(self) -> Self {
        with!(&self, stream => stream.set_read_timeout(Some(TEST_TIMEOUT))).expect("a timeout can be set");
        with!(&self, stream => stream.set_write_timeout(Some(TEST_TIMEOUT))).expect("a timeout can be set");
        self
    }

    pub(crate) fn clone_socket(&self) -> Self {
        match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone().expect("a socket can be cloned")),
            Self::Unix(stream) => Self::Unix(stream.try_clone().expect("a socket can be cloned")),
            Self::Secured(_) => panic!("a TLS session has one end"),
        }
    }

    /// Says that nothing more will be sent.
    pub(crate) fn shutdown_write(&mut self) {
        // It may be closed from the other side already.
        if let Self::Secured(stream) = self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let _ = with!(self, stream => stream.shutdown(Shutdown::Write));
    }

    pub(crate) fn stop_reading(&self) {
        with!(self, stream => stream.shutdown(Shutdown::Read)).expect("it is open");
    }

    /// Whether the other side has not closed yet.
    pub(crate) fn is_open(&self) -> bool {
        match self.peek() {
            Ok(bytes) => bytes > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Whether the other side has sent nothing and keeps the connection open.
    pub(crate) fn is_silent(&self) -> bool {
        self.peek().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    fn peek(&self) -> io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut byte = [0];
        Ok(with!(self, stream => recv(stream, &mut byte, flags))?.1)
    }
}

impl Read for Conn {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
            Self::Secured(stream) => stream.read(bytes),
        }
    }
}

impl Write for Conn {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
            Self::Secured(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
            Self::Secured(stream) => stream.flush(),
        }
    }
}

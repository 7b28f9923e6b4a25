//! A listening unix socket that only its owner can connect to. Dropping it removes the file.

use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// A listening socket. Dropping it removes the file, unless another file has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode, to recognize the file when another server has replaced it.
    identity: (u64, u64),
}

/// Why the socket cannot be created.
#[derive(Debug)]
pub enum BindError {
    /// Another server is listening at the path.
    InUse,
    /// The path exists and is not a socket.
    NotASocket,
    Io(io::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => {
                f.write_str("another server is already listening there; stop it or choose another path")
            }
            Self::NotASocket => f.write_str("the path exists and is not a socket; choose another path"),
            // The system's text, "invalid argument", does not help.
            Self::Io(error) if error.kind() == io::ErrorKind::InvalidInput => {
                f.write_str("the path is invalid or too long for a unix socket; choose a shorter one")
            }
            Self::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                f.write_str("the folder does not exist; create it first")
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Connections that the kernel queues before `accept`.
const BACKLOG: u32 = 1024;

const OWNER_ONLY_MODE: u32 = 0o600;

impl SocketFile {
    /// Panics outside a Tokio runtime.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        remove_stale_socket(path)?;
        let socket = UnixSocket::new_stream()?;
        // On Linux the file gets the mode of the socket. Elsewhere this fails or does nothing, and the code below
        // sets the mode of the file. No client can connect before `listen`, so the file is never exposed.
        let _ = rustix::fs::fchmod(&socket, Mode::from_raw_mode(OWNER_ONLY_MODE));
        socket.bind(path).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse,
            _ => error.into(),
        })?;
        let metadata = std::fs::symlink_metadata(path)?;
        if metadata.mode() & 0o777 != OWNER_ONLY_MODE {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(OWNER_ONLY_MODE))?;
        }
        let listener = socket.listen(BACKLOG)?;
        Ok(Self { listener, path: path.into(), identity: (metadata.dev(), metadata.ino()) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next client with our user id, or root. The file mode keeps others out, but the owner may change it.
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        loop {
            let (stream, _) = ready!(self.listener.poll_accept(cx))?;
            let uid = stream.peer_cred()?.uid();
            if uid == rustix::process::geteuid().as_raw() || uid == 0 {
                return Poll::Ready(Ok(stream));
            }
            tracing::warn!(uid, "refused a unix socket connection from another user");
        }
    }
}

/// Removes a socket that a dead server left behind. Leaves everything else alone.
fn remove_stale_socket(path: &Path) -> Result<(), BindError> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if !metadata.file_type().is_socket() {
        return Err(BindError::NotASocket);
    }
    match try_connect(path) {
        // A full accept queue belongs to a running server.
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Err(BindError::InUse),
        Err(Errno::CONNREFUSED) => {
            // Another server may have created its socket in the meantime.
            let current = std::fs::symlink_metadata(path);
            if current.is_ok_and(|current| (current.dev(), current.ino()) == (metadata.dev(), metadata.ino()))
            {
                std::fs::remove_file(path)?;
            }
            Ok(())
        }
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// Whether a server is listening at a path. Does not wait for a server that accepts no connections.
fn try_connect(path: &Path) -> rustix::io::Result<()> {
    let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let metadata = std::fs::symlink_metadata(&self.path);
        if metadata.is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity) {
            // If this fails, the next server replaces the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

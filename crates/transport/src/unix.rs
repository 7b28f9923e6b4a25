//! A unix socket in the file system: made so that nobody else can ever connect to it, and removed at the end.

use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// A socket that listens. Dropping it removes the file, if it is still ours.
#[derive(Debug)]
pub struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode: what stands at the path later may be somebody else's.
    identity: (u64, u64),
}

/// Why there is no socket.
#[derive(Debug)]
pub enum BindError {
    /// Somebody listens there.
    InUse,
    /// Something else is there, which is not ours to remove.
    NotASocket,
    Io(io::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str("a server listens there already; stop it, or choose another path"),
            Self::NotASocket => {
                f.write_str("something that is no socket is there already; choose another path")
            }
            // What the system says about a path that does not fit is no help.
            Self::Io(error) if error.kind() == io::ErrorKind::InvalidInput => {
                f.write_str("the path is too long for a socket, or not one; choose a shorter one")
            }
            Self::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                f.write_str("there is no such folder; make it first")
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

/// Connections that wait to be taken in.
const BACKLOG: u32 = 1024;

const OWNER_ONLY_MODE: u32 = 0o600;

impl SocketFile {
    /// Within a runtime only.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        remove_stale_socket(path)?;
        let socket = UnixSocket::new_stream()?;
        // Linux takes the mode of the file from the socket. Elsewhere this fails or does nothing, and the file
        // is closed to others below: nobody can connect before `listen`, so there is no moment in between.
        let _ = rustix::fs::fchmod(&socket, Mode::from_raw_mode(OWNER_ONLY_MODE));
        socket.bind(path).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse,
            _ => error.into(),
        })?;
        let made = std::fs::symlink_metadata(path)?;
        if made.mode() & 0o777 != OWNER_ONLY_MODE {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(OWNER_ONLY_MODE))?;
        }
        let listener = socket.listen(BACKLOG)?;
        Ok(Self { listener, path: path.into(), identity: (made.dev(), made.ino()) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next client that is ourselves, or root. The file lets nobody else in, but somebody may open it.
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        loop {
            let (stream, _) = ready!(self.listener.poll_accept(cx))?;
            let uid = stream.peer_cred()?.uid();
            if uid == rustix::process::geteuid().as_raw() || uid == 0 {
                return Poll::Ready(Ok(stream));
            }
            tracing::warn!(uid, "somebody else connected to the unix socket, and was turned away");
        }
    }
}

/// Makes way at a path: what a dead server left behind goes, everything else stays.
fn remove_stale_socket(path: &Path) -> Result<(), BindError> {
    let there = match std::fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if !there.file_type().is_socket() {
        return Err(BindError::NotASocket);
    }
    match try_connect(path) {
        // A queue that is full is somebody's.
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Err(BindError::InUse),
        Err(Errno::CONNREFUSED) => {
            // Another server may have made its own in the meantime.
            let now = std::fs::symlink_metadata(path);
            if now.is_ok_and(|now| (now.dev(), now.ino()) == (there.dev(), there.ino())) {
                std::fs::remove_file(path)?;
            }
            Ok(())
        }
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// Whether somebody listens at a path. Does not wait for a server that takes nobody in.
fn try_connect(path: &Path) -> rustix::io::Result<()> {
    let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let there = std::fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == self.identity) {
            // Left behind, it is in nobody's way: the next server replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

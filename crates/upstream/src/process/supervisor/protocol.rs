//! The messages between us and a supervisor. Both ends are the same binary, so there are no versions.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::ExitCause;

/// stdin, stdout and stderr of the program.
pub type Pipes = [OwnedFd; 3];

/// The command to run. It is not on the supervisor's command line and not in its environment: the supervisor must not
/// look like the program in a process list, nor be affected by the program's variables.
#[derive(Debug, PartialEq, Eq)]
pub struct SpawnRequest {
    pub file: PathBuf,
    /// The program as typed, its `argv[0]`.
    pub name: OsString,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: Option<PathBuf>,
    pub term_grace_ms: u64,
    pub kill_grace_ms: u64,
}

/// Sends the pipes. Fits into the socket's buffer, so the supervisor need not be reading yet.
pub fn send_pipes(socket: &UnixStream, pipes: &Pipes) -> io::Result<()> {
    let borrowed: [BorrowedFd<'_>; 3] = [pipes[0].as_fd(), pipes[1].as_fd(), pipes[2].as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
    // File descriptors need at least one byte of data.
    sendmsg(socket, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

fn receive_pipes(socket: &UnixStream) -> io::Result<Pipes> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::empty())?;
    let mut pipes = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            pipes.extend(received);
        }
    }
    for pipe in &pipes {
        // Not every system can set close-on-exec while receiving; no process starts in between.
        fcntl_setfd(pipe, FdFlags::CLOEXEC)?;
    }
    pipes.try_into().map_err(|_| io::Error::other("received no pipes"))
}

impl SpawnRequest {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend_from_slice(&self.term_grace_ms.to_le_bytes());
        out.extend_from_slice(&self.kill_grace_ms.to_le_bytes());
        put_string(&mut out, self.file.as_os_str());
        put_string(&mut out, &self.name);
        put_string(&mut out, self.cwd.as_ref().map_or(OsStr::new(""), |cwd| cwd.as_os_str()));
        put_number(&mut out, self.args.len());
        self.args.iter().for_each(|arg| put_string(&mut out, arg));
        put_number(&mut out, self.env.len());
        for (name, value) in &self.env {
            put_string(&mut out, name);
            put_string(&mut out, value);
        }
        let length = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&length.to_le_bytes());
        out
    }

    pub fn receive(mut socket: &UnixStream) -> io::Result<(Self, Pipes)> {
        let pipes = receive_pipes(socket)?;
        let mut length = [0; 4];
        socket.read_exact(&mut length)?;
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        socket.read_exact(&mut bytes)?;
        let job = Self::decode(&bytes).ok_or_else(|| io::Error::other("cannot decode the command"))?;
        Ok((job, pipes))
    }

    fn decode(mut bytes: &[u8]) -> Option<Self> {
        let rest = &mut bytes;
        let term_grace_ms = u64::from_le_bytes(take_bytes(rest, 8)?.try_into().ok()?);
        let kill_grace_ms = u64::from_le_bytes(take_bytes(rest, 8)?.try_into().ok()?);
        let (file, name, cwd) = (take_string(rest)?, take_string(rest)?, take_string(rest)?);
        let args = (0..take_number(rest)?).map(|_| take_string(rest)).collect::<Option<_>>()?;
        let env = (0..take_number(rest)?)
            .map(|_| Some((take_string(rest)?, take_string(rest)?)))
            .collect::<Option<_>>()?;
        let cwd = (!cwd.is_empty()).then(|| cwd.into());
        Some(Self { file: file.into(), name, args, env, cwd, term_grace_ms, kill_grace_ms })
    }
}

fn put_number(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&(number as u32).to_le_bytes());
}

fn put_string(out: &mut Vec<u8>, text: &OsStr) {
    put_number(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn take_bytes<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

fn take_number(rest: &mut &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(take_bytes(rest, 4)?.try_into().ok()?) as usize)
}

fn take_string(rest: &mut &[u8]) -> Option<OsString> {
    let count = take_number(rest)?;
    Some(OsString::from_vec(take_bytes(rest, count)?.to_vec()))
}

/// A message from a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupervisorMessage {
    /// The process id of the program, and of its process group.
    Started(i32),
    /// The error number; 0 if unknown.
    StartFailed(i32),
    Exited(ExitCause),
    /// The last message, with the number of processes left.
    AllExited(u32),
}

pub const MESSAGE_BYTES: usize = 5;

impl SupervisorMessage {
    pub fn encode(self) -> [u8; MESSAGE_BYTES] {
        let (tag, number) = match self {
            Self::Started(pid) => (b's', pid),
            Self::StartFailed(errno) => (b'f', errno),
            Self::Exited(ExitCause::Code(code)) => (b'c', code),
            Self::Exited(ExitCause::Signal(signal)) => (b'k', signal),
            Self::Exited(ExitCause::Unknown) => (b'u', 0),
            Self::AllExited(left) => (b'g', left as i32),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [tag, a, b, c, d]
    }

    pub fn decode([tag, a, b, c, d]: [u8; MESSAGE_BYTES]) -> Option<Self> {
        let number = i32::from_le_bytes([a, b, c, d]);
        Some(match tag {
            b's' => Self::Started(number),
            b'f' => Self::StartFailed(number),
            b'c' => Self::Exited(ExitCause::Code(number)),
            b'k' => Self::Exited(ExitCause::Signal(number)),
            b'u' => Self::Exited(ExitCause::Unknown),
            b'g' => Self::AllExited(number as u32),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::{ExitCause, SpawnRequest, SupervisorMessage};

    fn spawn_request() -> SpawnRequest {
        SpawnRequest {
            file: "/bin/a".into(),
            name: "a".into(),
            args: vec!["".into(), "b c".into()],
            env: vec![("D".into(), "".into()), ("E".into(), "=".into())],
            cwd: Some("/tmp".into()),
            term_grace_ms: 7,
            kill_grace_ms: 8,
        }
    }

    #[test]
    fn messages_round_trip() {
        assert_eq!(SpawnRequest::decode(&spawn_request().encode()[4..]), Some(spawn_request()));
        let messages = [
            SupervisorMessage::Started(1),
            SupervisorMessage::StartFailed(2),
            SupervisorMessage::AllExited(3),
            SupervisorMessage::Exited(ExitCause::Code(256)),
        ];
        for message in messages.into_iter().chain([
            SupervisorMessage::Exited(ExitCause::Signal(9)),
            SupervisorMessage::Exited(ExitCause::Unknown),
        ]) {
            assert_eq!(SupervisorMessage::decode(message.encode()), Some(message));
        }
    }

    #[test]
    fn truncated_spawn_request_is_rejected() {
        let whole = spawn_request().encode();
        for end in 4..whole.len() {
            assert_eq!(SpawnRequest::decode(&whole[4..end]), None, "{end}");
        }
        assert_eq!(SupervisorMessage::decode([b'?', 0, 0, 0, 0]), None);
    }

    #[test]
    fn a_socket_without_pipes_is_refused() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut &ours, b"hello").unwrap();
        assert_eq!(SpawnRequest::receive(&theirs).unwrap_err().to_string(), "received no pipes");
    }
}

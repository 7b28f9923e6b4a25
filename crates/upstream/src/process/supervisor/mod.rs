//! The process between us and a child: our own binary again, doing nothing but this.
//!
//! It is given a socket as its stdin. Down that socket come the child's three pipes and what to run; then a
//! byte when all is to be ended; and its end, which the kernel brings even if we were killed. Up go a few
//! frames: started, ended, gone. The program gets the pipes themselves, so no byte of it passes through here,
//! and no copy of a pipe stays here to hide its end.
//!
//! Whoever is orphaned below a *subreaper* becomes its child (Linux). So nothing that the program starts can
//! get away by forking, and when there is nobody left to wait for, there is nobody left.

mod process_tree;
mod protocol;

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{self, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, wait, waitid};

use process_tree::ProcessTree;
pub use protocol::{MESSAGE_BYTES, SpawnRequest, SupervisorMessage, send_pipes};

use super::exit::ExitCause;

/// Asks our binary to be a supervisor.
pub const SUPERVISE_ARG: &str = "__supervise";

/// Asks a supervisor to end the tree. The end of the socket asks the same.
pub const TERMINATE: u8 = b'E';

/// After a round of killing, the next one if somebody is left.
const KILL_ROUND_INTERVAL: Duration = Duration::from_millis(10);

pub fn run_if_requested() {
    if std::env::args_os().nth(1).is_some_and(|first| first == SUPERVISE_ARG) {
        process::exit(run());
    }
}

/// Whether everything was ended, as an exit code.
fn run() -> i32 {
    // Away from the terminal: Ctrl-C is for us, who then end the child in order, and a child that asks for a
    // password on the terminal fails instead of stopping in silence.
    let _ = rustix::process::setsid();
    process_tree::become_subreaper();
    let stdin = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let (control, job, pipes) =
        match stdin.and_then(|control| SpawnRequest::receive(&control).map(|(j, p)| (control, j, p))) {
            Ok(received) => received,
            Err(error) => {
                let _ = writeln!(
                    io::stderr(),
                    "`{SUPERVISE_ARG}` is how we start ourselves to watch over a child: {error}"
                );
                return 2;
            }
        };
    let patience = GracePeriods {
        term: Duration::from_millis(job.term_grace_ms),
        kill: Duration::from_millis(job.kill_grace_ms),
    };
    let server = match start(job, pipes) {
        Ok(server) => server,
        Err(error) => {
            send(&control, SupervisorMessage::StartFailed(error.raw_os_error().unwrap_or(0)));
            return 1;
        }
    };
    send(&control, SupervisorMessage::Started(server.as_raw_nonzero().get()));
    let tree = ProcessTree::new(server);
    match spawn_watchers(&control) {
        Ok(events) => supervise(&control, &events, server, &tree, &patience),
        // No threads to be had, so nobody would notice an end.
        Err(_) => {
            tree.kill();
            1
        }
    }
}

/// The program, in a process group of its own, on the pipes; they are closed here when this returns.
fn start(job: SpawnRequest, [stdin, stdout, stderr]: protocol::Pipes) -> io::Result<Pid> {
    let mut command = process::Command::new(job.file);
    command.arg0(job.name).args(job.args).env_clear().envs(job.env).process_group(0);
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
    if let Some(cwd) = job.cwd {
        command.current_dir(cwd);
    }
    let server = command.spawn()?;
    Ok(Pid::from_child(&server))
}

struct GracePeriods {
    term: Duration,
    kill: Duration,
}

enum SupervisorEvent {
    /// We are to end the tree, or there is nobody any more to do it for.
    TerminateRequested,
    /// Somebody whom we are the parent of, by birth or adoption.
    ChildExited { pid: Pid, cause: ExitCause, is_last: bool },
}

enum Phase {
    Running,
    Terminating { deadline: Instant },
    Killing { deadline: Instant },
}

fn supervise(
    control: &UnixStream,
    events: &Receiver<SupervisorEvent>,
    server: Pid,
    tree: &ProcessTree,
    patience: &GracePeriods,
) -> i32 {
    let mut phase = Phase::Running;
    let mut no_children = false;
    loop {
        if no_children && tree.is_empty() {
            send(control, SupervisorMessage::AllExited(0));
            return 0;
        }
        let event = match &phase {
            Phase::Running => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            // Nobody will tell us the end of those that are not our children.
            Phase::Terminating { deadline: until } if no_children => {
                events.recv_timeout(KILL_ROUND_INTERVAL.min(*until - Instant::now()))
            }
            Phase::Terminating { deadline: until } => {
                events.recv_timeout(until.saturating_duration_since(Instant::now()))
            }
            Phase::Killing { .. } => events.recv_timeout(KILL_ROUND_INTERVAL),
        };
        let mut end = false;
        match event {
            Ok(SupervisorEvent::TerminateRequested) => end = true,
            Ok(SupervisorEvent::ChildExited { pid, cause: how, is_last: last }) => {
                no_children |= last;
                if pid == server {
                    send(control, SupervisorMessage::Exited(how));
                    // Whatever it started has lost its reason.
                    end = !(last && tree.is_empty());
                }
            }
            Err(_) => {}
        }
        let now = Instant::now();
        match &phase {
            Phase::Running if end => {
                tree.terminate();
                phase = Phase::Terminating { deadline: now + patience.term };
            }
            Phase::Running => {}
            Phase::Terminating { deadline: until } if now < *until => {}
            Phase::Terminating { .. } => {
                tree.kill();
                phase = Phase::Killing { deadline: now + patience.kill };
            }
            Phase::Killing { deadline: until } if now < *until => tree.kill(),
            Phase::Killing { .. } => {
                send(control, SupervisorMessage::AllExited(tree.remaining()));
                return 1;
            }
        }
    }
}

/// One thread for each thing that can only be waited for by blocking: without signal handlers, which need
/// unsafe code, nothing else would do.
fn spawn_watchers(control: &UnixStream) -> io::Result<Receiver<SupervisorEvent>> {
    // Whoever finds it full waits; nothing is lost.
    let (events, receiver) = sync_channel(16);
    let asked = events.clone();
    let socket = control.try_clone()?;
    let thread = || thread::Builder::new().stack_size(64 << 10);
    thread().spawn(move || wait_for_terminate_request(socket, &asked))?;
    thread().spawn(move || wait_for_children(&events))?;
    Ok(receiver)
}

fn wait_for_terminate_request(mut control: UnixStream, events: &SyncSender<SupervisorEvent>) {
    // A byte, the end, or a broken socket: all mean the same.
    let mut byte = [0];
    while matches!(control.read(&mut byte), Err(error) if error.kind() == io::ErrorKind::Interrupted) {}
    let _ = events.send(SupervisorEvent::TerminateRequested);
    // As long as somebody could send, waiting for an event takes time; else it would be over at once.
    loop {
        thread::park();
    }
}

fn wait_for_children(events: &SyncSender<SupervisorEvent>) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                let how = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => ExitCause::Code(code),
                    (None, Some(signal)) => ExitCause::Signal(signal),
                    (None, None) => ExitCause::Unknown,
                };
                // Linux hands orphans over before it reports the death that made them orphans.
                let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                let last = matches!(waitid(WaitId::All, look), Err(Errno::CHILD));
                if events.send(SupervisorEvent::ChildExited { pid, cause: how, is_last: last }).is_err()
                    || last
                {
                    return;
                }
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// If nobody listens any more, there is nobody to tell.
fn send(mut control: &UnixStream, said: SupervisorMessage) {
    let _ = control.write_all(&said.encode());
}

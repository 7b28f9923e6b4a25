//! The supervisor: our own binary again, between us and a child.
//!
//! Its stdin is a socket. Over the socket it receives the child's three pipes and the command; then a byte when it must
//! end the tree. The end of the socket means the same, and the kernel closes it even if we are killed. The supervisor
//! sends a few frames: started, ended, gone. The program gets the pipes themselves: no byte passes through the
//! supervisor, and it keeps no copy of a pipe that would hide its end.
//!
//! On Linux, orphans below a *subreaper* become its children. So no process can escape by forking, and when there is no
//! child left to wait for, the tree is gone.

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

/// The argument that makes our binary a supervisor.
pub const SUPERVISE_ARG: &str = "__supervise";

/// Tells a supervisor to end the tree. The end of the socket means the same.
pub const TERMINATE: u8 = b'E';

/// Time between two rounds of killing.
const KILL_ROUND_INTERVAL: Duration = Duration::from_millis(10);

pub fn run_if_requested() {
    if std::env::args_os().nth(1).is_some_and(|first| first == SUPERVISE_ARG) {
        process::exit(run());
    }
}

/// The exit code tells whether the whole tree was ended.
fn run() -> i32 {
    // Detach from the terminal: Ctrl-C goes to us, and we end the child in order; a child that asks for a password on
    // the terminal fails instead of stopping silently.
    let _ = rustix::process::setsid();
    process_tree::become_subreaper();
    let stdin = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let (control, job, pipes) =
        match stdin.and_then(|control| SpawnRequest::receive(&control).map(|(j, p)| (control, j, p))) {
            Ok(received) => received,
            Err(error) => {
                let _ = writeln!(
                    io::stderr(),
                    "`{SUPERVISE_ARG}` is internal: spile starts itself with it to supervise a child: {error}"
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
        // Without threads an exit would go unnoticed.
        Err(_) => {
            tree.kill();
            1
        }
    }
}

/// Starts the program in its own process group, on the pipes; they are closed here when this returns.
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
    /// The parent asked to end the tree, or is gone.
    TerminateRequested,
    /// A child of ours exited, born or adopted.
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
            // The exits of processes that are not our children are not reported.
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
                    // The processes it started must end too.
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

/// One thread for each blocking wait: signal handlers would need unsafe code.
fn spawn_watchers(control: &UnixStream) -> io::Result<Receiver<SupervisorEvent>> {
    // A sender waits when the channel is full; nothing is lost.
    let (events, receiver) = sync_channel(16);
    let terminate_events = events.clone();
    let socket = control.try_clone()?;
    let thread = || thread::Builder::new().stack_size(64 << 10);
    thread().spawn(move || wait_for_terminate_request(socket, &terminate_events))?;
    thread().spawn(move || wait_for_children(&events))?;
    Ok(receiver)
}

fn wait_for_terminate_request(mut control: UnixStream, events: &SyncSender<SupervisorEvent>) {
    // A byte, the end, and a broken socket all mean the same.
    let mut byte = [0];
    while matches!(control.read(&mut byte), Err(error) if error.kind() == io::ErrorKind::Interrupted) {}
    let _ = events.send(SupervisorEvent::TerminateRequested);
    // While this sender exists, receiving blocks; without it, receiving would fail at once.
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
                // Linux reparents orphans before it reports the exit of their parent.
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

/// Ignores errors: the parent may be gone.
fn send(mut control: &UnixStream, message: SupervisorMessage) {
    let _ = control.write_all(&message.encode());
}

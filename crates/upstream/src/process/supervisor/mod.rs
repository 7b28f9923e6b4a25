//! The process between us and a child: our own binary again, doing nothing but this.
//!
//! It is given a socket as its stdin. Down that socket come the child's three pipes and what to run; then a
//! byte when all is to be ended; and its end, which the kernel brings even if we were killed. Up go a few
//! frames: started, ended, gone. The program gets the pipes themselves, so no byte of it passes through here,
//! and no copy of a pipe stays here to hide its end.
//!
//! Whoever is orphaned below a *subreaper* becomes its child (Linux). So nothing that the program starts can
//! get away by forking, and when there is nobody left to wait for, there is nobody left.

mod job;
mod tree;

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

pub use job::{FRAME_BYTES, Job, Said, send_pipes};
use tree::Tree;

use super::exit::How;

/// Asks our binary to be a supervisor.
pub const ARGUMENT: &str = "__supervise";

/// Asks a supervisor to end the tree. The end of the socket asks the same.
pub const END: u8 = b'E';

/// After a round of killing, the next one if somebody is left.
const ROUND: Duration = Duration::from_millis(10);

pub fn run_if_asked() {
    if std::env::args_os().nth(1).is_some_and(|first| first == ARGUMENT) {
        process::exit(run());
    }
}

/// Whether everything was ended, as an exit code.
fn run() -> i32 {
    // Away from the terminal: Ctrl-C is for us, who then end the child in order, and a child that asks for a
    // password on the terminal fails instead of stopping in silence.
    let _ = rustix::process::setsid();
    tree::adopt();
    let stdin = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let (control, job, pipes) =
        match stdin.and_then(|control| Job::receive(&control).map(|(j, p)| (control, j, p))) {
            Ok(received) => received,
            Err(error) => {
                let _ = writeln!(
                    io::stderr(),
                    "`{ARGUMENT}` is how we start ourselves to watch over a child: {error}"
                );
                return 2;
            }
        };
    let patience = Patience {
        term: Duration::from_millis(job.term_grace_ms),
        kill: Duration::from_millis(job.kill_grace_ms),
    };
    let server = match start(job, pipes) {
        Ok(server) => server,
        Err(error) => {
            say(&control, Said::Failed(error.raw_os_error().unwrap_or(0)));
            return 1;
        }
    };
    say(&control, Said::Started(server.as_raw_nonzero().get()));
    let tree = Tree::of(server);
    match watch(&control) {
        Ok(events) => supervise(&control, &events, server, &tree, &patience),
        // No threads to be had, so nobody would notice an end.
        Err(_) => {
            tree.kill();
            1
        }
    }
}

/// The program, in a process group of its own, on the pipes; they are closed here when this returns.
fn start(job: Job, [stdin, stdout, stderr]: job::Pipes) -> io::Result<Pid> {
    let mut command = process::Command::new(job.file);
    command.arg0(job.name).args(job.args).env_clear().envs(job.env).process_group(0);
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
    if let Some(cwd) = job.cwd {
        command.current_dir(cwd);
    }
    let server = command.spawn()?;
    Ok(Pid::from_child(&server))
}

struct Patience {
    term: Duration,
    kill: Duration,
}

enum Event {
    /// We are to end the tree, or there is nobody any more to do it for.
    Asked,
    /// Somebody whom we are the parent of, by birth or adoption.
    Ended { pid: Pid, how: How, last: bool },
}

enum Phase {
    Serving,
    Ending { until: Instant },
    Killing { until: Instant },
}

fn supervise(
    control: &UnixStream,
    events: &Receiver<Event>,
    server: Pid,
    tree: &Tree,
    patience: &Patience,
) -> i32 {
    let mut phase = Phase::Serving;
    let mut no_children = false;
    loop {
        if no_children && tree.is_gone() {
            say(control, Said::Gone(0));
            return 0;
        }
        let event = match &phase {
            Phase::Serving => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            // Nobody will tell us the end of those that are not our children.
            Phase::Ending { until } if no_children => events.recv_timeout(ROUND.min(*until - Instant::now())),
            Phase::Ending { until } => events.recv_timeout(until.saturating_duration_since(Instant::now())),
            Phase::Killing { .. } => events.recv_timeout(ROUND),
        };
        let mut end = false;
        match event {
            Ok(Event::Asked) => end = true,
            Ok(Event::Ended { pid, how, last }) => {
                no_children |= last;
                if pid == server {
                    say(control, Said::Ended(how));
                    // Whatever it started has lost its reason.
                    end = !(last && tree.is_gone());
                }
            }
            Err(_) => {}
        }
        let now = Instant::now();
        match &phase {
            Phase::Serving if end => {
                tree.terminate();
                phase = Phase::Ending { until: now + patience.term };
            }
            Phase::Serving => {}
            Phase::Ending { until } if now < *until => {}
            Phase::Ending { .. } => {
                tree.kill();
                phase = Phase::Killing { until: now + patience.kill };
            }
            Phase::Killing { until } if now < *until => tree.kill(),
            Phase::Killing { .. } => {
                say(control, Said::Gone(tree.left()));
                return 1;
            }
        }
    }
}

/// One thread for each thing that can only be waited for by blocking: without signal handlers, which need
/// unsafe code, nothing else would do.
fn watch(control: &UnixStream) -> io::Result<Receiver<Event>> {
    // Whoever finds it full waits; nothing is lost.
    let (events, receiver) = sync_channel(16);
    let asked = events.clone();
    let socket = control.try_clone()?;
    let thread = || thread::Builder::new().stack_size(64 << 10);
    thread().spawn(move || wait_for_orders(socket, &asked))?;
    thread().spawn(move || wait_for_children(&events))?;
    Ok(receiver)
}

fn wait_for_orders(mut control: UnixStream, events: &SyncSender<Event>) {
    // A byte, the end, or a broken socket: all mean the same.
    let mut byte = [0];
    while matches!(control.read(&mut byte), Err(error) if error.kind() == io::ErrorKind::Interrupted) {}
    let _ = events.send(Event::Asked);
    // As long as somebody could send, waiting for an event takes time; else it would be over at once.
    loop {
        thread::park();
    }
}

fn wait_for_children(events: &SyncSender<Event>) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                let how = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => How::Code(code),
                    (None, Some(signal)) => How::Signal(signal),
                    (None, None) => How::Unseen,
                };
                // Linux hands orphans over before it reports the death that made them orphans.
                let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                let last = matches!(waitid(WaitId::All, look), Err(Errno::CHILD));
                if events.send(Event::Ended { pid, how, last }).is_err() || last {
                    return;
                }
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// If nobody listens any more, there is nobody to tell.
fn say(mut control: &UnixStream, said: Said) {
    let _ = control.write_all(&said.encode());
}

//! A child behind a supervisor: starts it and holds our end of it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::command::{Command, ProcessOptions};
use super::environment;
use super::error::StartError;
use super::exit::{Exit, ExitCause};
use super::program_lookup;
use super::reaper::{self, SupervisorProcess};
use super::stderr::StderrTail;
use super::supervisor::{self, MESSAGE_BYTES, SUPERVISE_ARG, SpawnRequest, SupervisorMessage};

pub type Stdin = pipe::Sender;
pub type Stdout = pipe::Receiver;

/// How long a supervisor may take to start the program.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Upper bound of each grace period, so that their sum does not overflow.
const GRACE_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// The writers of stderr are dead, so the pipe can be read quickly, unless a process could not be killed.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A running program. Dropping it ends the whole process tree in the background, SIGTERM first: the supervisor sees
/// that our end of its socket is closed. That needs neither a runtime nor time.
pub struct Child {
    /// Closing it asks the server to exit.
    pub stdin: Option<Stdin>,
    pub stdout: Option<Stdout>,
    stderr: StderrTail,
    stderr_task: Option<JoinHandle<()>>,
    supervisor: SupervisorLink,
    exit: Exit,
    command: String,
    exit_grace: Duration,
    /// How long a supervisor may need to end everything, with a margin.
    stop_timeout: Duration,
}

impl Command {
    /// The file of the program, without starting it.
    pub fn locate(&self) -> Result<PathBuf, StartError> {
        let env = environment::for_child(std::env::vars_os(), &self.env)?;
        program_lookup::resolve_program(self, env.get(OsStr::new("PATH")).map(OsString::as_os_str))
    }

    /// Returns when the program runs, before its first output. Panics outside a runtime with I/O and time.
    pub async fn start(&self, options: &ProcessOptions) -> Result<Child, StartError> {
        let program = || self.program.to_string_lossy().into_owned();
        let env = environment::for_child(std::env::vars_os(), &self.env)?;
        let file =
            program_lookup::resolve_program(self, env.get(OsStr::new("PATH")).map(OsString::as_os_str))?;
        if self.args.iter().any(|arg| arg.as_encoded_bytes().contains(&0)) {
            return Err(StartError::NulByte { program: program() });
        }
        let job = SpawnRequest {
            file,
            name: self.program.clone(),
            args: self.args.clone(),
            env: env.into_iter().collect(),
            cwd: self.cwd.clone(),
            term_grace_ms: options.term_grace_ms.min(GRACE_MS_MAX),
            kill_grace_ms: options.kill_grace_ms.min(GRACE_MS_MAX),
        };
        let system = |cause| StartError::SetupFailed { program: program(), cause };
        let (mut link, ours) = SupervisorLink::spawn(options.supervisor.as_deref()).map_err(system)?;
        // From here on, dropping the link ends the child.
        let message =
            timeout(START_TIMEOUT, link.send_request(&job)).await.map_err(|late| system(late.into()))?;
        match message.map_err(system)? {
            Some(SupervisorMessage::Started(pid)) => link.process_group = Pid::from_raw(pid),
            Some(SupervisorMessage::StartFailed(errno)) => {
                let cause = io::Error::from_raw_os_error(errno);
                return Err(program_lookup::explain_exec_error(self, &job.file, cause));
            }
            Some(SupervisorMessage::Exited(_) | SupervisorMessage::AllExited(_)) | None => {
                if let Some(signal) = link.kill().and_then(|status| status.signal()) {
                    return Err(system(io::Error::other(format!(
                        "its supervisor was killed by signal {signal}"
                    ))));
                }
                let binary = options.supervisor.as_deref().map(Path::display);
                let binary = binary.map_or_else(|| "this program".to_owned(), |path| path.to_string());
                return Err(StartError::NoSupervisor { binary });
            }
        }
        let stderr = StderrTail::new(options);
        let reading = stderr.clone().read_from(ours.stderr, options.on_stderr_line.clone());
        Ok(Child {
            stdin: Some(ours.stdin),
            stdout: Some(ours.stdout),
            stderr,
            stderr_task: Some(tokio::spawn(reading)),
            supervisor: link,
            exit: Exit { cause: ExitCause::Unknown, processes_left: 0 },
            command: program(),
            exit_grace: Duration::from_millis(options.exit_grace_ms),
            stop_timeout: Duration::from_millis(job.term_grace_ms + 2 * job.kill_grace_ms),
        })
    }
}

impl Child {
    /// The program's process id, for people.
    pub fn id(&self) -> Option<u32> {
        self.supervisor.process_group.map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// The last lines of stderr.
    pub fn stderr_tail(&self) -> String {
        self.stderr.tail(usize::MAX)
    }

    /// The last lines of stderr, also after the child is gone.
    pub fn stderr(&self) -> StderrTail {
        self.stderr.clone()
    }

    /// Waits until the program has exited by itself and no process it started is left. Cancel safe. Afterwards
    /// [`Child::stderr_tail`] is complete.
    pub async fn wait(&mut self) -> Exit {
        let _status = loop {
            match self.supervisor.next_message().await {
                Ok(Some(SupervisorMessage::Exited(how))) => self.exit.cause = how,
                Ok(Some(SupervisorMessage::AllExited(left))) => self.exit.processes_left = left,
                Ok(Some(SupervisorMessage::Started(_) | SupervisorMessage::StartFailed(_))) => {}
                Ok(None) => break self.supervisor.close(),
                Err(_) => break self.supervisor.kill(),
            }
        };
        if let Some(reading) = &mut self.stderr_task {
            if timeout(STDERR_DRAIN_TIMEOUT, &mut *reading).await.is_err() {
                reading.abort();
            }
            self.stderr_task = None;
        }
        self.exit
    }

    /// Ends the program: closes stdin and waits for it to exit; then SIGTERM for the whole tree; then SIGKILL. Dropping
    /// the future is the same as dropping the child.
    ///
    /// If `stdin` was taken, the caller must drop it first. If `stdout` was not taken, its output is discarded, so that
    /// the program does not block on a full pipe.
    pub async fn stop(mut self) -> Exit {
        drop(self.stdin.take());
        let stdout = self.stdout.take();
        let drain = async {
            if let Some(mut stdout) = stdout {
                let _ = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
            }
            std::future::pending::<Exit>().await
        };
        tokio::select! {
            exit = self.terminate() => exit,
            exit = drain => exit,
        }
    }

    async fn terminate(&mut self) -> Exit {
        if let Ok(exit) = timeout(self.exit_grace, self.wait()).await {
            return exit;
        }
        // If this fails, the supervisor is gone, and the wait is short.
        let _ = self.supervisor.control.write_all(&[supervisor::TERMINATE]).await;
        if let Ok(exit) = timeout(self.stop_timeout, self.wait()).await {
            return exit;
        }
        // The supervisor itself is stopped (SIGSTOP).
        self.supervisor.kill();
        self.exit
    }

    /// A sentence about the exit, with the last lines of stderr.
    pub fn describe_exit(&self, exit: &Exit) -> String {
        super::exit::describe_exit(&self.command, exit, &self.stderr)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(reading) = &self.stderr_task {
            reading.abort();
        }
    }
}

/// The socket to a supervisor, and the supervisor.
struct SupervisorLink {
    control: UnixStream,
    process: Option<process::Child>,
    /// The program's process id, once it runs.
    process_group: Option<Pid>,
    frame: [u8; MESSAGE_BYTES],
    filled: usize,
}

struct ParentPipes {
    stdin: Stdin,
    stdout: Stdout,
    stderr: pipe::Receiver,
}

impl SupervisorLink {
    fn spawn(binary: Option<&Path>) -> io::Result<(Self, ParentPipes)> {
        // All have close-on-exec set, so no other child started meanwhile inherits them.
        let (stdin, our_stdin) = io::pipe()?;
        let (our_stdout, stdout) = io::pipe()?;
        let (our_stderr, stderr) = io::pipe()?;
        let ours = ParentPipes {
            stdin: Stdin::from_owned_fd(OwnedFd::from(our_stdin))?,
            stdout: Stdout::from_owned_fd(OwnedFd::from(our_stdout))?,
            stderr: pipe::Receiver::from_owned_fd(OwnedFd::from(our_stderr))?,
        };
        let (control, theirs) = StdUnixStream::pair()?;
        supervisor::send_pipes(&control, &[stdin.into(), stdout.into(), stderr.into()])?;
        control.set_nonblocking(true)?;
        let control = UnixStream::from_std(control)?;
        let running;
        let binary = match binary {
            Some(binary) => binary,
            // Also works if the file was replaced by a newer version while we run.
            None if cfg!(target_os = "linux") => Path::new("/proc/self/exe"),
            None => {
                running = std::env::current_exe()?;
                &running
            }
        };
        let process = process::Command::new(binary)
            .arg0("spile")
            .arg(SUPERVISE_ARG)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let link = Self {
            control,
            process: Some(process),
            process_group: None,
            frame: [0; MESSAGE_BYTES],
            filled: 0,
        };
        Ok((link, ours))
    }

    async fn send_request(&mut self, job: &SpawnRequest) -> io::Result<Option<SupervisorMessage>> {
        match self.control.write_all(&job.encode()).await {
            // It is gone, but may have sent a reason.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => self.next_message().await,
        }
    }

    /// `None` at the end. Cancel safe.
    async fn next_message(&mut self) -> io::Result<Option<SupervisorMessage>> {
        while self.filled < MESSAGE_BYTES {
            match self.control.read(&mut self.frame[self.filled..]).await {
                Ok(0) => return Ok(None),
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        self.filled = 0;
        SupervisorMessage::decode(self.frame)
            .map(Some)
            .ok_or_else(|| io::Error::other("invalid message from the supervisor"))
    }

    /// The socket has ended, so the supervisor is exiting.
    fn close(&mut self) -> Option<ExitStatus> {
        SupervisorProcess { process: self.process.take()?, process_group: self.process_group }.wait()
    }

    fn kill(&mut self) -> Option<ExitStatus> {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
        }
        self.close()
    }
}

impl Drop for SupervisorLink {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            reaper::reap_in_background(SupervisorProcess { process, process_group: self.process_group });
        }
    }
}

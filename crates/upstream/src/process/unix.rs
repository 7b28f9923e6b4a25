//! A child behind a supervisor: starting it, and what we hold of it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{self, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::command::{Command, Options};
use super::environment;
use super::error::StartError;
use super::exit::{Exit, ExitCause};
use super::program_lookup;
use super::reaper::{self, SupervisorProcess};
use super::stderr::StderrTail;
use super::supervisor::{self, MESSAGE_BYTES, SUPERVISE_ARG, SpawnRequest, SupervisorMessage};

pub type Stdin = pipe::Sender;
pub type Stdout = pipe::Receiver;

/// A supervisor that takes longer than this to start a program does not get there.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Patience of more than a day is a slip; bounded, the graces can be added up.
const GRACE_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Whoever wrote to stderr is dead; what is in the pipe needs only to be read. Unless somebody was left.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A running program. Dropping it ends the program with all it started, SIGTERM first, in the background: the
/// supervisor sees that nobody holds the other end of its socket. That needs neither a runtime nor time.
pub struct Child {
    /// Taken by whoever writes. Closing it asks a server to leave.
    pub stdin: Option<Stdin>,
    pub stdout: Option<Stdout>,
    stderr: StderrTail,
    stderr_task: Option<JoinHandle<()>>,
    supervisor: SupervisorLink,
    exit: Exit,
    command: String,
    exit_grace: Duration,
    /// What a supervisor may need to end everything, and then some.
    stop_timeout: Duration,
}

impl Command {
    /// Returns when the program runs, which is before it has said anything. Must be called on a runtime with
    /// I/O and time.
    pub async fn start(&self, options: &Options) -> Result<Child, StartError> {
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
        // From here on, dropping what we have ends it.
        let said =
            timeout(START_TIMEOUT, link.send_request(&job)).await.map_err(|late| system(late.into()))?;
        match said.map_err(system)? {
            Some(SupervisorMessage::Started(pid)) => link.process_group = Pid::from_raw(pid),
            Some(SupervisorMessage::StartFailed(errno)) => {
                let cause = io::Error::from_raw_os_error(errno);
                return Err(program_lookup::explain_exec_error(self, &job.file, cause));
            }
            Some(SupervisorMessage::Exited(_) | SupervisorMessage::AllExited(_)) | None => {
                if let Some(signal) = link.kill().and_then(|status| status.signal()) {
                    return Err(system(io::Error::other(format!(
                        "its supervisor was ended by signal {signal}"
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
    /// The program's process id, for people to look for.
    pub fn id(&self) -> Option<u32> {
        self.supervisor.process_group.map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// What the program wrote to stderr last.
    pub fn stderr_tail(&self) -> String {
        self.stderr.tail(usize::MAX)
    }

    /// The same, for whoever wants to ask after the child is gone.
    pub fn stderr(&self) -> StderrTail {
        self.stderr.clone()
    }

    /// Waits until the program has ended by itself and nothing it started is left. May be given up and called
    /// again. After it, [`Child::stderr_tail`] has everything.
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

    /// Ends the program in order: its stdin is closed, and it may leave by itself; then SIGTERM for the whole
    /// tree; then SIGKILL. Giving it up is the same as dropping the child.
    ///
    /// Whoever took stdin has to drop it first. If nobody took stdout, what is still written there is thrown
    /// away, so that a program with much to say is not stuck at saying it.
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
        // If it cannot be told, it is gone, and the wait is short.
        let _ = self.supervisor.control.write_all(&[supervisor::TERMINATE]).await;
        if let Ok(exit) = timeout(self.stop_timeout, self.wait()).await {
            return exit;
        }
        // Somebody stopped the supervisor itself.
        self.supervisor.kill();
        self.exit
    }

    /// A sentence about the end: how, and what the program said last.
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
    /// The program's, once it runs.
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
        // All of them are closed on exec, so no other child that is started meanwhile gets hold of one.
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
            // Also right when the file was replaced by a newer one while we run.
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
            // It is gone, but may have said why.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => self.next_message().await,
        }
    }

    /// `None` at the end. May be given up at any point.
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
            .ok_or_else(|| io::Error::other("a supervisor says what none would"))
    }

    /// The socket has ended, and so has the supervisor, but for a few instructions in the kernel.
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

//! The command of a child process, and its timeouts.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::redact;

/// A program with its arguments and environment. There is no shell: arguments are passed unchanged.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Command {
    /// A name to look up in `PATH`, or a path. A relative path starts at `cwd`.
    pub program: OsString,
    pub args: Vec<OsString>,
    /// Added to the few variables that every child gets (`environment.rs`).
    pub env: Vec<(OsString, OsString)>,
    /// `None`: our own working folder.
    pub cwd: Option<PathBuf>,
}

impl Command {
    pub fn new(program: impl Into<OsString>) -> Self {
        Self { program: program.into(), ..Self::default() }
    }

    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }
}

/// The program and its arguments as typed in a shell, with secrets hidden and variables left out.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| c.is_alphanumeric() || "-_./:@%+=,".contains(c);
        let words = std::iter::once(&self.program).chain(&self.args).map(|word| word.to_string_lossy());
        let mut before: Option<Cow<'_, str>> = None;
        for whole in words {
            let gap = if before.is_some() { " " } else { "" };
            let word = redact::argument(&whole, before.as_deref()).into_owned();
            if !word.is_empty() && word.chars().all(is_plain) {
                write!(f, "{gap}{word}")?;
            } else {
                write!(f, "{gap}'{}'", word.replace('\'', "'\\''").escape_debug())?;
            }
            before = Some(whole);
        }
        Ok(())
    }
}

/// Values are left out: a declared variable often holds a token.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("env", &names)
            .field("cwd", &self.cwd)
            .finish()
    }
}

/// Called with every line of stderr, decoded and sanitized. Must neither block nor panic: while it runs, the pipe is
/// not read.
pub type StderrLineCallback = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Clone)]
pub struct ProcessOptions {
    /// How long a server may take to exit after its stdin is closed.
    pub exit_grace_ms: u64,
    /// How long the process tree may take to exit after SIGTERM, before SIGKILL.
    pub term_grace_ms: u64,
    /// How long to wait after SIGKILL. Processes that are left then are counted.
    pub kill_grace_ms: u64,
    /// How many of the newest stderr lines are kept.
    pub stderr_bytes_max: usize,
    pub stderr_lines_max: usize,
    /// Longer lines are cut.
    pub stderr_line_bytes_max: usize,
    pub on_stderr_line: Option<StderrLineCallback>,
    /// The binary to start as the supervisor; it must call
    /// [`run_supervisor_if_requested`](super::run_supervisor_if_requested) first. `None`: the running binary.
    pub supervisor: Option<PathBuf>,
}

impl Default for ProcessOptions {
    fn default() -> Self {
        Self {
            exit_grace_ms: 2000,
            term_grace_ms: 2000,
            kill_grace_ms: 5000,
            stderr_bytes_max: 16 << 10,
            stderr_lines_max: 100,
            stderr_line_bytes_max: 4 << 10,
            on_stderr_line: None,
            supervisor: None,
        }
    }
}

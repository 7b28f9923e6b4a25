//! What to run, and how patiently.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::redact;

/// A program and what it is given. There is no shell: arguments arrive as they are here.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Command {
    /// A name to be found on `PATH`, or a path. A relative path starts at `cwd`.
    pub program: OsString,
    pub args: Vec<OsString>,
    /// Added to the few variables that every child is given (`environment.rs`).
    pub env: Vec<(OsString, OsString)>,
    /// `None`: where we are.
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

/// The program and its arguments, as one would type them. Variables are left out, as below, and secrets hidden.
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

/// Values are left out: a declared variable is where a token usually is.
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

/// Is given every line of stderr as it comes, decoded and made harmless. Must neither block nor panic: while
/// it runs, nobody empties the pipe.
pub type StderrLineCallback = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Clone)]
pub struct Options {
    /// After its stdin is closed, a server may take so long to leave by itself.
    pub exit_grace_ms: u64,
    /// After SIGTERM, the whole tree may; then it is killed.
    pub term_grace_ms: u64,
    /// After SIGKILL, whoever is still there is left behind, and counted.
    pub kill_grace_ms: u64,
    /// How much of stderr is kept: the newest lines. What is older is dropped.
    pub stderr_bytes_max: usize,
    pub stderr_lines_max: usize,
    /// What is longer is cut, and the rest of the line skipped.
    pub stderr_line_bytes_max: usize,
    pub on_stderr_line: Option<StderrLineCallback>,
    /// The program that is started as supervisor: one that calls
    /// [`supervise_if_asked`](super::supervise_if_asked) first. `None`: the one that is running.
    pub supervisor: Option<PathBuf>,
}

impl Default for Options {
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

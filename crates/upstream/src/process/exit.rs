//! How a child ended.

use std::fmt;

use super::stderr::StderrTail;

/// The exit of a child and of the processes it had started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    pub cause: ExitCause,
    /// Processes that could not be killed, because they belong to another user or hang in the kernel.
    pub processes_left: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCause {
    Code(i32),
    Signal(i32),
    /// Unknown, because the supervisor was killed.
    Unknown,
}

impl Exit {
    /// Whether the program exited with code 0.
    pub fn is_success(&self) -> bool {
        self.cause == ExitCause::Code(0)
    }
}

/// Continues a sentence that starts with the program: "`npx` exited with code 1".
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            // The code of a shell, `env` or `npx` for a program that was not found.
            ExitCause::Code(code @ 127) => write!(f, "exited with code {code} (program not found)")?,
            ExitCause::Code(code) => write!(f, "exited with code {code}")?,
            ExitCause::Signal(number) => match signal_name(number) {
                Some(name) => write!(f, "was killed by {name} (signal {number})")?,
                None => write!(f, "was killed by signal {number}")?,
            },
            ExitCause::Unknown => write!(f, "ended for an unknown reason")?,
        }
        match self.processes_left {
            0 => Ok(()),
            1 => write!(f, "; a process it started could not be killed"),
            left => write!(f, "; {left} processes it started could not be killed"),
        }
    }
}

/// The last lines of stderr usually tell why.
pub(crate) fn describe_exit(program: &str, exit: &Exit, stderr: &StderrTail) -> String {
    exit_sentence(program, exit, &stderr_tail(stderr))
}

pub(crate) fn exit_sentence(program: &str, exit: &Exit, stderr: &str) -> String {
    match stderr {
        "" => format!("`{program}` {exit} without output on stderr"),
        words => format!("`{program}` {exit}; its last lines on stderr:\n  {}", words.replace('\n', "\n  ")),
    }
}

/// The last lines; empty if there is nothing but blanks.
pub(crate) fn stderr_tail(stderr: &StderrTail) -> String {
    let words = stderr.tail(STDERR_TAIL_LINES_MAX);
    if words.trim().is_empty() { String::new() } else { words }
}

const STDERR_TAIL_LINES_MAX: usize = 10;

#[cfg(unix)]
fn signal_name(number: i32) -> Option<&'static str> {
    use rustix::process::Signal;
    let names = [
        (Signal::ABORT, "SIGABRT"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::HUP, "SIGHUP"),
        (Signal::ILL, "SIGILL"),
        (Signal::INT, "SIGINT"),
        (Signal::KILL, "SIGKILL"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::SYS, "SIGSYS"),
        (Signal::TERM, "SIGTERM"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
    ];
    names.into_iter().find(|(signal, _)| signal.as_raw() == number).map(|(_, name)| name)
}

#[cfg(not(unix))]
fn signal_name(_number: i32) -> Option<&'static str> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::{Exit, ExitCause};

    fn check(how: ExitCause, left: u32, expected: &str) {
        assert_eq!(Exit { cause: how, processes_left: left }.to_string(), expected);
    }

    #[test]
    fn an_exit_status_is_described_in_words() {
        check(ExitCause::Code(0), 0, "exited with code 0");
        check(ExitCause::Code(127), 0, "exited with code 127 (program not found)");
        check(ExitCause::Signal(9), 0, "was killed by SIGKILL (signal 9)");
        check(ExitCause::Signal(64), 0, "was killed by signal 64");
        check(ExitCause::Unknown, 0, "ended for an unknown reason");
    }

    #[test]
    fn remaining_processes_are_described() {
        check(ExitCause::Code(1), 1, "exited with code 1; a process it started could not be killed");
        check(ExitCause::Code(1), 2, "exited with code 1; 2 processes it started could not be killed");
    }
}

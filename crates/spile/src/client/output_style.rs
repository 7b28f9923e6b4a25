//! Where something is shown: whether in colour, and how wide that is.

use std::io::{ErrorKind, IsTerminal, Write};

/// What stdout or stderr is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputStyle {
    pub(crate) is_terminal: bool,
    use_color: bool,
    /// How wide a terminal is; nothing else has a width.
    pub(crate) columns: Option<usize>,
}

impl OutputStyle {
    pub(crate) fn stdout() -> Self {
        Self::detect(&std::io::stdout())
    }

    pub(crate) fn stderr() -> Self {
        Self::detect(&std::io::stderr())
    }

    #[cfg(unix)]
    fn detect(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Self {
        let size = || rustix::termios::tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col));
        Self::new(stream.is_terminal(), size)
    }

    #[cfg(not(unix))]
    fn of(stream: &impl IsTerminal) -> Self {
        Self::with(stream.is_terminal(), || None)
    }

    fn new(is_terminal: bool, size: impl FnOnce() -> Option<usize>) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let told = || std::env::var("COLUMNS").ok()?.parse().ok();
        let columns = || size().filter(|columns| *columns > 0).or_else(told).unwrap_or(80).max(20);
        Self { is_terminal, use_color: is_terminal && !plain, columns: is_terminal.then(columns) }
    }

    /// A terminal of this width without colour.
    #[cfg(test)]
    pub(crate) fn of_width(columns: usize) -> Self {
        Self { is_terminal: true, use_color: false, columns: Some(columns) }
    }

    /// The same, with room for everything.
    pub(crate) fn unlimited_width(&self) -> Self {
        Self { columns: None, ..*self }
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn faint(&self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(crate) fn red(&self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(crate) fn cyan(&self, text: &str) -> String {
        self.paint("36", text)
    }

    pub(crate) fn green(&self, text: &str) -> String {
        self.paint("32", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.use_color && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Prints to stdout. A reader that has seen enough, such as `head`, is no failure.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    print_bytes(text.as_bytes())
}

pub(crate) fn print_bytes(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

//! Whether stdout or stderr is a terminal, with colour, and how wide it is.

use std::io::{ErrorKind, IsTerminal, Write};

/// How to format text for stdout or stderr.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputStyle {
    pub(crate) is_terminal: bool,
    use_color: bool,
    /// The width of the terminal; `None` for a file or a pipe.
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
    fn detect(stream: &impl IsTerminal) -> Self {
        Self::new(stream.is_terminal(), || None)
    }

    fn new(is_terminal: bool, size: impl FnOnce() -> Option<usize>) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let from_env = || std::env::var("COLUMNS").ok()?.parse().ok();
        let columns = || size().filter(|columns| *columns > 0).or_else(from_env).unwrap_or(80).max(20);
        Self { is_terminal, use_color: is_terminal && !no_color, columns: is_terminal.then(columns) }
    }

    /// A terminal of this width without colour.
    #[cfg(test)]
    pub(crate) fn of_width(columns: usize) -> Self {
        Self { is_terminal: true, use_color: false, columns: Some(columns) }
    }

    /// The same style without a width limit.
    #[cfg(test)]
    pub(crate) fn unlimited_width(&self) -> Self {
        Self { columns: None, ..*self }
    }

    pub(crate) fn has_color(&self) -> bool {
        self.use_color
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

/// Prints to stdout. A closed pipe (`spile … | head`) is not an error.
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

//! Where log lines go: stderr, with every unsafe character escaped.
//!
//! `serde_json` escapes only what JSON requires, and `tracing-subscriber` escapes only ANSI sequences. A value from a
//! client may contain more than that: U+009B starts an escape sequence on some terminals, U+202E reverses the line,
//! U+2028 starts a new one.

use std::borrow::Cow;
use std::io::{self, Write};

use spile_core::text::escape_unsafe;
use tracing_subscriber::fmt::MakeWriter;

use crate::sanitize;

#[derive(Debug, Clone, Copy)]
pub(crate) enum LogWriter {
    /// Lines of JSON: escapes are JSON's own.
    Json,
    /// Lines of text, perhaps with colours of `tracing-subscriber`, which escapes the ESC of values itself.
    Text,
}

impl LogWriter {
    fn escape<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self {
            Self::Json => sanitize::json(text),
            Self::Text => escape_unsafe(
                text,
                |c| matches!(c, '\n' | '\t' | '\x1b'),
                |out, c| out.extend(c.escape_default()),
            ),
        }
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

impl Write for LogWriter {
    /// `tracing-subscriber` writes each line with one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(self.escape(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::LogWriter;

    #[test]
    fn json_lines_contain_no_unsafe_character() {
        let line = "{\"message\":\"a\u{9b}31m\u{202e}\u{2028}\u{7f}\u{200b}\"}\n";
        let escaped = r#"{"message":"a\u009b31m\u202e\u2028\u007f\u200b"}"#;
        assert_eq!(LogWriter::Json.escape(line), format!("{escaped}\n"));
    }

    #[test]
    fn text_lines_keep_colours_and_line_breaks() {
        let line = "\u{1b}[33m WARN\u{1b}[0m a\u{9b}b\u{202e}\n";
        assert_eq!(LogWriter::Text.escape(line), "\u{1b}[33m WARN\u{1b}[0m a\\u{9b}b\\u{202e}\n");
    }
}

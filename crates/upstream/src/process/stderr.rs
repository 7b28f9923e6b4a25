//! Reads all of a child's stderr, so that the child never blocks, and keeps the last lines.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spile_core::text::escape_unsafe;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::command::{ProcessOptions, StderrLineCallback};

/// The last lines. May outlive the child.
#[derive(Clone)]
pub struct StderrTail {
    buffer: Arc<Mutex<StderrBuffer>>,
}

impl StderrTail {
    pub(super) fn new(options: &ProcessOptions) -> Self {
        let kept = StderrBuffer {
            bytes_max: options.stderr_bytes_max,
            lines_max: options.stderr_lines_max,
            line_bytes_max: options.stderr_line_bytes_max.min(options.stderr_bytes_max),
            lines: VecDeque::new(),
            bytes: 0,
            current_line: StderrLine::default(),
        };
        Self { buffer: Arc::new(Mutex::new(kept)) }
    }

    /// The newest lines, at most `lines_max`, joined by line breaks. Invalid UTF-8 is replaced, colours are removed, and
    /// other control characters are escaped.
    pub fn tail(&self, lines_max: usize) -> String {
        let kept = self.lock();
        let open = (!kept.current_line.bytes.is_empty()).then_some(&kept.current_line);
        let lines: Vec<String> = kept.lines.iter().chain(open).map(StderrLine::sanitized).collect();
        lines[lines.len().saturating_sub(lines_max)..].join("\n")
    }

    /// Reads to the end.
    pub(super) async fn read_from(self, mut pipe: impl AsyncRead + Unpin, seen: Option<StderrLineCallback>) {
        let mut chunk = vec![0; READ_BYTES];
        loop {
            let read = pipe.read(&mut chunk).await.unwrap_or(0);
            let lines = match read {
                0 => self.lock().finish().into_iter().collect(),
                read => self.lock().push(&chunk[..read], seen.is_some()),
            };
            // Outside the lock: the callback may call `tail`.
            if let Some(seen) = &seen {
                lines.iter().for_each(|line| seen(line));
            }
            if read == 0 {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, StderrBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const READ_BYTES: usize = 16 << 10;

struct StderrBuffer {
    bytes_max: usize,
    lines_max: usize,
    line_bytes_max: usize,
    lines: VecDeque<StderrLine>,
    /// Total size of `lines`.
    bytes: usize,
    /// The bytes after the last line break.
    current_line: StderrLine,
}

#[derive(Default)]
struct StderrLine {
    bytes: Vec<u8>,
    truncated: bool,
}

impl StderrBuffer {
    /// Returns the completed lines, if there is a callback.
    fn push(&mut self, chunk: &[u8], wanted: bool) -> Vec<String> {
        let mut seen = Vec::new();
        for piece in chunk.split_inclusive(|&byte| byte == b'\n') {
            let (text, ends) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let room = self.line_bytes_max.saturating_sub(self.current_line.bytes.len());
            self.current_line.bytes.extend_from_slice(&text[..text.len().min(room)]);
            self.current_line.truncated |= text.len() > room;
            if ends {
                if wanted {
                    seen.push(self.current_line.sanitized());
                }
                self.finish_line();
            }
        }
        seen
    }

    /// The output ended without a line break.
    fn finish(&mut self) -> Option<String> {
        let text = (!self.current_line.bytes.is_empty()).then(|| self.current_line.sanitized())?;
        self.finish_line();
        Some(text)
    }

    fn finish_line(&mut self) {
        let line = std::mem::take(&mut self.current_line);
        self.bytes += line.bytes.len();
        self.lines.push_back(line);
        while self.lines.len() > self.lines_max || self.bytes > self.bytes_max {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.bytes.len();
        }
    }
}

impl StderrLine {
    fn sanitized(&self) -> String {
        let bytes = self.bytes.strip_suffix(b"\r").unwrap_or(&self.bytes);
        let decoded = String::from_utf8_lossy(bytes);
        let mut plain = String::with_capacity(decoded.len() + 3);
        let mut rest = decoded.as_ref();
        while let Some(c) = rest.chars().next() {
            if let Some(coloured) = strip_ansi_colour(rest) {
                rest = coloured;
                continue;
            }
            plain.push(c);
            rest = &rest[c.len_utf8()..];
        }
        let mut out =
            escape_unsafe(&plain, |c| c == '\t', |out, c| out.extend(c.escape_default())).into_owned();
        if self.truncated {
            out.push('…');
        }
        out
    }
}

/// `ESC [ 3 1 m` and similar: many loggers write colours even into a pipe.
fn strip_ansi_colour(text: &str) -> Option<&str> {
    let inside = text.strip_prefix("\u{1b}[")?;
    inside.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';' || c == ':').strip_prefix('m')
}

#[cfg(test)]
mod tests {
    use super::{ProcessOptions, StderrTail};

    fn options() -> ProcessOptions {
        ProcessOptions {
            stderr_bytes_max: 24,
            stderr_lines_max: 3,
            stderr_line_bytes_max: 10,
            ..ProcessOptions::default()
        }
    }

    fn check(chunks: &[&[u8]], expected: &str) {
        let stderr = StderrTail::new(&options());
        for chunk in chunks {
            stderr.lock().push(chunk, false);
        }
        assert_eq!(stderr.tail(usize::MAX), expected);
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        check(&[b"one\ntw", b"o\r\nthr", b"ee"], "one\ntwo\nthree");
        check(&[b"one\n\nthree\n"], "one\n\nthree");
        check(&[], "");
    }

    #[test]
    fn the_newest_lines_are_kept() {
        check(&[b"1\n2\n3\n4\n"], "2\n3\n4");
        check(&[b"aaaaaaaaaa\nbbbbbbbbbb\ncccccccccc\n"], "bbbbbbbbbb\ncccccccccc");
    }

    #[test]
    fn at_most_the_requested_number_of_lines_is_returned() {
        let stderr = StderrTail::new(&options());
        stderr.lock().push(b"1\n2\n3", false);
        assert_eq!(stderr.tail(2), "2\n3");
        assert_eq!(stderr.tail(0), "");
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_is_whole() {
        check(&[b"0123456789abc", b"defgh\nnext\n"], "0123456789…\nnext");
        check(&[&[b'x'; 100_000]], "xxxxxxxxxx…");
    }

    #[test]
    fn what_could_move_a_cursor_is_shown_by_its_number() {
        check(&[b"a\x1b[2Jb"], "a\\u{1b}[2Jb");
        check(&[b"a\x07\tb\rc"], "a\\u{7}\tb\\rc");
        check(&["\u{202e}abc".as_bytes()], "\\u{202e}abc");
        check(&[b"a\xffb"], "a\u{fffd}b");
    }

    #[test]
    fn colours_are_taken_out() {
        check(&[b"\x1b[1mab\x1b", b"[m"], "ab");
        check(&[b"\x1b[1;31ma"], "a");
        check(&[b"\x1b[", b"m"], "");
    }

    #[tokio::test]
    async fn lines_are_passed_on_as_they_come_and_the_last_without_a_break_too() {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let (inside, stderr) = (seen.clone(), StderrTail::new(&options()));
        let tail = stderr.clone();
        let on_line = std::sync::Arc::new(move |line: &str| {
            inside.lock().unwrap().push((line.to_owned(), tail.tail(1)));
        });
        stderr.read_from(&b"a\nb"[..], Some(on_line)).await;
        let expected = [("a", "b"), ("b", "b")].map(|(line, tail)| (line.to_owned(), tail.to_owned()));
        assert_eq!(*seen.lock().unwrap(), expected);
    }
}

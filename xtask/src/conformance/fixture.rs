//! The server under test: starts it on a free port, and stops it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A running server; stops when dropped.
pub struct Fixture {
    child: Child,
    url: String,
}

impl Fixture {
    /// `args` come before `--bind`. What the server keeps, it keeps in `state`.
    pub fn start(binary: &Path, args: &[&str], state: &Path) -> Result<Self> {
        let mut command = Command::new(binary);
        command.args(args).args(["--bind", "127.0.0.1:0"]).env("XDG_STATE_HOME", state);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let stderr = child.stderr.take().expect("stderr is piped");
        let found = watch_for_url(BufReader::new(stderr));
        match found.recv_timeout(START_TIMEOUT) {
            Ok(url) => Ok(Self { child, url }),
            Err(_) => {
                child.kill()?;
                bail!(
                    "`{} {} --bind 127.0.0.1:0` did not print a URL like http://127.0.0.1:PORT/mcp",
                    binary.display(),
                    args.join(" ")
                )
            }
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // It may have exited already; the suite has noticed by then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Forwards stderr, so that the pipe never fills and a panic is visible.
fn watch_for_url(stderr: impl BufRead + Send + 'static) -> Receiver<String> {
    let (found, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            match url_in(&line) {
                Some(url) => {
                    let _ = found.try_send(url);
                }
                None => eprintln!("fixture: {line}"),
            }
        }
    });
    receiver
}

fn url_in(line: &str) -> Option<String> {
    let from = &line[line.find("http://127.0.0.1:")?..];
    let url: String =
        from.chars().take_while(|c| c.is_ascii_alphanumeric() || ":/._-".contains(*c)).collect();
    url.ends_with("/mcp").then_some(url)
}

#[cfg(test)]
mod tests {
    use super::url_in;

    #[test]
    fn the_url_is_found_in_a_log_line() {
        assert_eq!(
            url_in("INFO listening url=http://127.0.0.1:4711/mcp\u{1b}[0m").unwrap(),
            "http://127.0.0.1:4711/mcp"
        );
        assert_eq!(
            url_in("listening on http://127.0.0.1:1/mcp (no auth)").unwrap(),
            "http://127.0.0.1:1/mcp"
        );
    }

    #[test]
    fn other_lines_have_none() {
        assert_eq!(url_in("listening on http://127.0.0.1:1/health"), None);
        assert_eq!(url_in("nothing"), None);
    }
}

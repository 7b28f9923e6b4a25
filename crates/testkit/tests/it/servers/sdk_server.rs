//! Starting the servers, and seeing them end.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::scenarios::within;
use super::{Sdk, TransportKind};
use crate::clients::{cached, node};

/// A server that can be spoken to.
pub enum SdkServer {
    /// One process for each conversation.
    Command(Vec<PathBuf>),
    /// Somewhere on this machine. Ends when dropped.
    Listening { url: String, _child: Child },
}

impl SdkServer {
    pub async fn start(sdk: Sdk, door: TransportKind) -> Self {
        let words = server_command(sdk, door);
        if door == TransportKind::Stdio {
            return Self::Command(words);
        }
        let mut child = command(&words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stderr = child.stderr.take().expect("stderr is piped");
        let mut lines = BufReader::new(stderr).lines();
        let found = within("starting", async {
            while let Ok(Some(line)) = lines.next_line().await {
                if line.starts_with("http://") || line.starts_with("ws://") {
                    return Some(line);
                }
                eprintln!("{line}");
            }
            None
        });
        let url = found.await.ok().flatten().expect("the server prints its address");
        // Read to the end, so that it never waits for someone to read its log; the log is seen when a test fails.
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("{line}");
            }
        });
        Self::Listening { url, _child: child }
    }
}

fn server_command(sdk: Sdk, door: TransportKind) -> Vec<PathBuf> {
    let script = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("servers").join(name);
    // What Python compiles does not go into the clone.
    let unwritten = || PathBuf::from("-B");
    let mut words = match sdk {
        Sdk::Python1 => vec![cached("venv-1/bin/python"), unwritten(), script("python1.py")],
        Sdk::Python2 => vec![cached("venv/bin/python"), unwritten(), script("python.py")],
        Sdk::TypeScript1 => vec![node(), script("ts1.mjs")],
        Sdk::TypeScript2 => vec![node(), script("ts2.mjs")],
        Sdk::Rust => vec![example("rmcp-server")],
    };
    words.push(PathBuf::from(match door {
        TransportKind::Stdio => "stdio",
        TransportKind::Http => "http",
        TransportKind::StatelessHttp => "plain",
        TransportKind::Sse => "sse",
        TransportKind::WebSocket => "ws",
    }));
    if sdk == Sdk::TypeScript2 {
        words.push(cached("ts2-servers"));
    }
    words
}

/// Cargo builds examples with the tests, beside the binaries, and tells nobody where.
fn example(name: &str) -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_fixture"));
    let path = beside.with_file_name("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: build it with `cargo build -p testkit --examples`",
        path.display()
    );
    path
}

fn command(words: &[PathBuf]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).kill_on_drop(true);
    command
}

/// A server that speaks on its standard streams.
pub struct Process(Child);

impl Process {
    pub fn spawn(words: &[PathBuf]) -> (Self, ChildStdout, ChildStdin) {
        let mut child = command(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the server starts");
        let output = child.stdout.take().expect("stdout is piped");
        let input = child.stdin.take().expect("stdin is piped");
        (Self(child), output, input)
    }

    /// Waits until it has ended by itself, and in good order.
    pub async fn wait_exit(mut self) -> Result<(), String> {
        let status = within("waiting for the server to exit", self.0.wait()).await?;
        let status = status.map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
    }
}

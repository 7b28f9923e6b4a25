//! Starts the servers and waits for their end.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::scenarios::within;
use super::{Sdk, TransportKind};
use crate::clients::{cached, node};

/// A running server.
pub enum SdkServer {
    /// One process for each connection.
    Command(Vec<PathBuf>),
    /// A local address. The server ends when dropped.
    Listening { url: String, _child: Child },
}

impl SdkServer {
    pub async fn start(sdk: Sdk, transport: TransportKind) -> Self {
        let arguments = server_command(sdk, transport);
        if transport == TransportKind::Stdio {
            return Self::Command(arguments);
        }
        let mut child = command(&arguments)
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
        // Read to the end, so that the server never blocks on its log; the log is shown when a test fails.
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("{line}");
            }
        });
        Self::Listening { url, _child: child }
    }
}

fn server_command(sdk: Sdk, transport: TransportKind) -> Vec<PathBuf> {
    let script = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("servers").join(name);
    // Python's bytecode must not go into the clone.
    let unwritten = || PathBuf::from("-B");
    let mut arguments = match sdk {
        Sdk::Python1 => vec![cached("venv-1/bin/python"), unwritten(), script("python1.py")],
        Sdk::Python2 => vec![cached("venv/bin/python"), unwritten(), script("python.py")],
        Sdk::TypeScript1 => vec![node(), script("ts1.mjs")],
        Sdk::TypeScript2 => vec![node(), script("ts2.mjs")],
        Sdk::Rust => vec![example("rmcp-server")],
    };
    arguments.push(PathBuf::from(match transport {
        TransportKind::Stdio => "stdio",
        TransportKind::Http => "http",
        TransportKind::StatelessHttp => "plain",
        TransportKind::Sse => "sse",
        TransportKind::WebSocket => "ws",
    }));
    if sdk == Sdk::TypeScript2 {
        arguments.push(cached("ts2-servers"));
    }
    arguments
}

/// Cargo builds examples with the tests, beside the binaries, but does not publish the path.
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

fn command(arguments: &[PathBuf]) -> Command {
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]).kill_on_drop(true);
    command
}

/// A server on stdio.
pub struct Process(Child);

impl Process {
    pub fn spawn(arguments: &[PathBuf]) -> (Self, ChildStdout, ChildStdin) {
        let mut child = command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the server starts");
        let output = child.stdout.take().expect("stdout is piped");
        let input = child.stdin.take().expect("stdin is piped");
        (Self(child), output, input)
    }

    /// Waits until it has exited by itself, successfully.
    pub async fn wait_exit(mut self) -> Result<(), String> {
        let status = within("waiting for the server to exit", self.0.wait()).await?;
        let status = status.map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
    }
}

//! Clients of the official SDKs, as the tests drive them: the scripts beside this file, and `rust.rs`. The tests of
//! `testkit` and of `spile` include it.
//!
//! The SDKs come from the development cache. Without it these tests fail, because a skipped test proves nothing.

mod rust;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

const START_TIMEOUT: Duration = Duration::from_secs(20);
const CLIENT_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Python,
    TypeScript1,
    TypeScript2,
    Rust,
}

#[derive(Clone, Copy, Debug)]
pub enum Transport {
    Stdio,
    Http,
    /// HTTP+SSE; the Rust SDK has no client for it.
    Sse,
}

/// A test for each client over each transport; `check` gets the two.
macro_rules! every_client_over_every_door {
    ($check:path) => {
        $crate::clients::every_client_over_every_door! { $check;
            python_over_stdio: Python Stdio,
            python_over_http: Python Http,
            python_over_sse: Python Sse,
            typescript_1_over_stdio: TypeScript1 Stdio,
            typescript_1_over_http: TypeScript1 Http,
            typescript_1_over_sse: TypeScript1 Sse,
            typescript_2_over_stdio: TypeScript2 Stdio,
            typescript_2_over_http: TypeScript2 Http,
            typescript_2_over_sse: TypeScript2 Sse,
            rust_over_stdio: Rust Stdio,
            rust_over_http: Rust Http,
        }
    };
    ($check:path; $($name:ident: $client:ident $door:ident,)*) => {
        $(
            #[test]
            fn $name() {
                $check($crate::clients::Client::$client, $crate::clients::Transport::$door);
            }
        )*
    };
}
pub(crate) use every_client_over_every_door;

/// What a client connects to.
pub enum Target {
    /// A command that the client starts itself.
    Command(Vec<String>),
    Url(String),
    /// The URL of the HTTP+SSE stream.
    Sse(String),
}

impl Client {
    /// `auto` lets the client negotiate; it must end up with the newest version.
    fn protocols(self) -> &'static [&'static str] {
        match self {
            Self::TypeScript1 => &["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"],
            Self::Python | Self::TypeScript2 | Self::Rust => {
                &["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "auto"]
            }
        }
    }

    fn run(self, fixture: &str, protocol: &str, target: &Target) -> Result<(), String> {
        match self {
            Self::Python => script(&cached("venv/bin/python"), "python.py", fixture, protocol, target),
            Self::TypeScript1 => script(&node(), "ts1.mjs", fixture, protocol, target),
            Self::TypeScript2 => script(&node(), "ts2.mjs", fixture, protocol, target),
            Self::Rust => rust::run(fixture, protocol, target),
        }
    }
}

/// Tests all servers and protocols of this client over this transport. Over HTTP the protocols share one server, which
/// must distinguish the versions itself. A server is its name for the client, and the arguments that start
/// it.
pub fn check(client: Client, door: Transport, program: &str, servers: &[(&str, &[&str])]) {
    let mut failures = Vec::new();
    for (fixture, args) in servers {
        let server;
        let target = match door {
            Transport::Stdio => {
                let words = std::iter::once(&program).chain(*args);
                Target::Command(words.map(|word| (*word).to_owned()).collect())
            }
            Transport::Http => {
                server = Server::start(program, args);
                Target::Url(server.url.clone())
            }
            Transport::Sse => {
                server = Server::start(program, args);
                Target::Sse(server.url.replace("/mcp", "/sse"))
            }
        };
        for protocol in client.protocols() {
            if let Err(why) = client.run(fixture, protocol, &target) {
                failures.push(format!("{client:?} at {protocol} against `{fixture}` over {door:?}:\n{why}"));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}

fn script(
    program: &Path,
    script: &str,
    fixture: &str,
    protocol: &str,
    target: &Target,
) -> Result<(), String> {
    let mut command = Command::new(program);
    // From the crate that includes this file.
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/clients").join(script));
    command.args(["--fixture", fixture, "--protocol", protocol]);
    match target {
        Target::Command(words) => command.arg("--command").args(words),
        Target::Url(url) => command.args(["--url", url]),
        Target::Sse(url) => command.args(["--sse", url]),
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let mut stderr = child.stderr.take().expect("stderr is piped");
    let said = std::thread::spawn(move || {
        let mut said = Vec::new();
        stderr.read_to_end(&mut said).map(|_| String::from_utf8_lossy(&said).into_owned())
    });

    let begun = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break status,
            None if begun.elapsed() > CLIENT_TIMEOUT => {
                child.kill().expect("a running child can be killed");
                break child.wait().expect("a child can be waited for");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let said = said.join().expect("the reader does not panic").unwrap_or_default();
    if status.success() { Ok(()) } else { Err(format!("{status} after {:?}\n{said}", begun.elapsed())) }
}

pub fn node() -> PathBuf {
    cached("node/node_modules/.bin/node")
}

/// A program from the development cache that `cargo xtask setup` creates.
pub fn cached(path: &str) -> PathBuf {
    let root = std::env::var_os("SPILE_DEV_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        let home = std::env::var_os("HOME").expect("HOME is set");
        Path::new(&home).join(".cache/spile-dev")
    });
    let program = root.join(path);
    assert!(program.exists(), "{} is missing: run `cargo xtask setup` once", program.display());
    program
}

/// A server on a free port; it ends when dropped.
pub struct Server {
    child: Child,
    pub url: String,
}

impl Server {
    pub fn start(program: &str, args: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .args(["--bind", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stderr = child.stderr.take().expect("stderr is piped");
        let (found, url) = sync_channel(1);
        // Read to the end, so that the server never blocks on its log.
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some(url) = url_in(&line) {
                    let _ = found.try_send(url);
                }
            }
        });
        match url.recv_timeout(START_TIMEOUT) {
            Ok(url) => Self { child, url },
            Err(_) => {
                let _ = child.kill();
                panic!("{args:?} did not print its URL");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn url_in(line: &str) -> Option<String> {
    let from = &line[line.find("http://127.0.0.1:")?..];
    let url: String =
        from.chars().take_while(|c| c.is_ascii_alphanumeric() || ":/._-".contains(*c)).collect();
    url.ends_with("/mcp").then_some(url)
}

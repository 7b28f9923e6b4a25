//! A project folder for a test, the program run in it, and its output.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub const SPILE: &str = env!("CARGO_BIN_EXE_spile");

/// Longer than anything takes that works.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A folder named `shop`, which is also the name of the server.
pub struct TestProject {
    /// Deletes the folder when dropped.
    _root: TempDir,
    pub folder: PathBuf,
}

impl TestProject {
    pub fn new(files: &[(&str, &[u8])]) -> Self {
        let root = tempfile::tempdir().expect("a folder can be made");
        // The program resolves symbolic links in its messages.
        let folder = root.path().canonicalize().expect("exists").join("shop");
        std::fs::create_dir(&folder).expect("a folder can be made");
        let place = Self { _root: root, folder };
        files.iter().for_each(|(name, bytes)| place.write(name, bytes));
        place
    }

    /// A copy of the example in the documentation.
    pub fn customers() -> Self {
        Self::example("customers")
    }

    /// A copy of an example.
    pub fn example(name: &str) -> Self {
        let place = Self::new(&[]);
        let root = examples().join(name);
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("the example is there") {
                let path = entry.expect("a folder is readable").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(&root).expect("it is below").to_string_lossy().into_owned();
                place.write(&name, &std::fs::read(&path).expect("a file is readable"));
            }
        }
        place
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.join(name);
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder can be made");
        std::fs::write(path, bytes).expect("a file can be written");
    }

    /// Every file below the folder, with all its bytes.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder is readable") {
                let path = entry.expect("a folder is readable").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = std::fs::read(&path).expect("a file is readable");
                    files.push((path, bytes));
                }
            }
        }
        files.sort();
        files
    }

    /// The program in this folder, with no environment but a place for its keys.
    pub fn spile(&self, args: &[&str]) -> Command {
        let mut command = Command::new(SPILE);
        command.args(args).current_dir(&self.folder).env_clear().stdin(Stdio::null());
        command.env("XDG_STATE_HOME", state_folder());
        command
    }

    pub fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_with(args, &[])
    }

    pub fn run_with(&self, args: &[&str], env: &[(&str, &str)]) -> CommandOutput {
        let out = self.spile(args).envs(env.iter().copied()).output().expect("the program starts");
        let variables: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let command_line = format!("{}spile {}", variables.concat(), args.join(" "));
        CommandOutput {
            command_line: self.normalize(command_line.trim_end().as_bytes()),
            stdout: self.normalize(&out.stdout),
            stderr: self.normalize(&out.stderr),
            code: out.status.code(),
        }
    }

    /// Replaces paths that differ between machines.
    pub fn normalize(&self, bytes: &[u8]) -> String {
        let text = std::str::from_utf8(bytes).expect("the output is UTF-8");
        text.replace(SPILE, "/bin/spile").replace(&*self.folder.to_string_lossy(), "/shop")
    }
}

/// A folder with a misbehaving server, `scripted.sh`.
pub fn scripted_server() -> TestProject {
    TestProject::new(&[("server.sh", include_bytes!("scripted.sh"))])
}

pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// The output of the program and its exit code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandOutput {
    pub command_line: String,
    pub stdout: String,
    pub stderr: String,
    pub code: Option<i32>,
}

impl fmt::Display for CommandOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "$ {}", self.command_line)?;
        if !self.stderr.is_empty() {
            writeln!(f, "-- stderr\n{}", self.stderr.trim_end())?;
        }
        if !self.stdout.is_empty() {
            writeln!(f, "-- stdout\n{}", self.stdout.trim_end())?;
        }
        write!(f, "-- exit {}", self.code.map_or_else(|| "by a signal".into(), |code| code.to_string()))
    }
}

/// A server on stdin and stdout. Killed when dropped.
pub struct StdioServer {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
}

impl StdioServer {
    pub fn open(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program starts");
        let output = spawn_line_reader(child.stdout.take().expect("stdout is a pipe"));
        let input = child.stdin.take();
        Self { child, input, output }
    }

    pub fn send(&mut self, message: &str) {
        writeln!(self.input.as_mut().expect("the input is open"), "{message}").expect("it accepts input");
    }

    pub fn next(&mut self) -> String {
        self.output.recv_timeout(TEST_TIMEOUT).expect("a line in time")
    }

    /// Closes stdin. Returns the remaining output and the exit code.
    pub fn close(&mut self) -> (Vec<String>, Option<i32>) {
        drop(self.input.take());
        let rest = self.output.iter().collect();
        (rest, self.child.wait().expect("it can be waited for").code())
    }
}

impl Drop for StdioServer {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server over HTTP. Killed when dropped.
pub struct HttpServer {
    child: Child,
    stderr: Mutex<Receiver<String>>,
    stderr_lines: Vec<String>,
    pub address: SocketAddr,
}

impl HttpServer {
    pub fn start(command: &mut Command) -> Self {
        Self::start_and_wait_for(command, "://")
    }

    /// Waits for the line of the banner that contains `place`.
    pub fn start_and_wait_for(command: &mut Command, place: &str) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let stderr = spawn_line_reader(child.stderr.take().expect("stderr is a pipe"));
        let mut stderr_lines = Vec::new();
        let address = loop {
            match stderr.recv_timeout(TEST_TIMEOUT) {
                Ok(line) => {
                    let found = line.contains(place);
                    stderr_lines.push(line);
                    if found {
                        break stderr_lines.last().and_then(|line| parse_address(line));
                    }
                }
                Err(_) => {
                    let _ = child.kill();
                    panic!("no address in the banner: {stderr_lines:#?}");
                }
            }
        };
        // A server on a unix socket has no address.
        let address = address.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
        Self { child, stderr: Mutex::new(stderr), stderr_lines, address }
    }

    /// The port in the banner, if any.
    pub fn port(&self) -> Option<u16> {
        self.stderr_lines.iter().find_map(|line| parse_address(line)).map(|address| address.port())
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until a call is running.
    pub fn wait_until_active(&self) {
        let started = std::time::Instant::now();
        loop {
            let mut stream = TcpStream::connect(self.address).expect("it listens");
            let request =
                format!("GET /status HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
            stream.write_all(request.as_bytes()).expect("it accepts input");
            let mut response = String::new();
            stream.read_to_string(&mut response).expect("it is closed");
            if response.contains("\"callsActive\":1") {
                return;
            }
            assert!(started.elapsed() < TEST_TIMEOUT, "no call is running: {response}");
            std::thread::yield_now();
        }
    }

    /// Waits for the end of the process. Returns its exit code.
    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("it can be waited for").code()
    }

    /// Waits until stderr contains this text.
    pub fn wait_for(&mut self, what: &str) {
        while !self.stderr_lines.iter().any(|line| line.contains(what)) {
            match self.stderr.get_mut().expect("no panic").recv_timeout(TEST_TIMEOUT) {
                Ok(line) => self.stderr_lines.push(line),
                Err(_) => panic!("`{what}` is not on stderr: {:#?}", self.stderr_lines),
            }
        }
    }

    /// Returns the head and the body of the response.
    pub fn get(&self, path: &str) -> (String, String) {
        self.request("GET", path, "", "")
    }

    /// Returns the head and the body of the response.
    pub fn post(&self, path: &str, headers: &str, body: &str) -> (String, String) {
        let headers = format!(
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{headers}\
             Content-Length: {}\r\n",
            body.len()
        );
        self.request("POST", path, &headers, body)
    }

    /// Returns the head and the body of the response. Each header ends with a line break.
    pub fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> (String, String) {
        let address = self.address;
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it accepts input");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is closed in time");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        (head.to_owned(), body.to_owned())
    }

    /// Sends SIGTERM. Returns stdout, stderr and the exit code.
    pub fn stop(mut self) -> (String, String, Option<i32>) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it can be signalled");
        loop {
            match self.stderr.get_mut().expect("no panic").recv_timeout(TEST_TIMEOUT) {
                Ok(line) => self.stderr_lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the process does not end: {:#?}", self.stderr_lines)
                }
            }
        }
        let mut stdout = String::new();
        let pipe = self.child.stdout.as_mut().expect("stdout is a pipe");
        pipe.read_to_string(&mut stdout).expect("stdout is text");
        let status = self.child.wait().expect("it can be waited for");
        (stdout, std::mem::take(&mut self.stderr_lines).join("\n"), status.code())
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse_address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("://")?;
    rest.split('/').next()?.parse().ok()
}

/// Reads a pipe to its end on a thread, so that the writer never blocks.
pub fn spawn_line_reader(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = sync_channel(1 << 12);
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.try_send(line);
        }
    });
    lines
}

/// Where the servers of all tests keep their keys.
pub fn state_folder() -> PathBuf {
    std::env::temp_dir().join("spile-test-state")
}

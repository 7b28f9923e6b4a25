//! Private PostgreSQL and MariaDB servers for tests, from the programs that are installed.
//!
//! Tests are processes of their own, so they share a server through the file system: the first one starts it, each
//! holds a lock on a file as long as it lives, and a watcher stops the server a few seconds after the last lock was
//! released. A test works in a database of its own. [`Server::start_private`] is for tests that stop their server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod mariadb;
mod postgres;

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

/// Servers refuse to run as root, so they run as this user then.
const NOBODY: u32 = 65_534;
const START_MAX: Duration = Duration::from_secs(60);

/// The kinds of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    MariaDb,
}

/// A running server.
pub struct Server {
    pub kind: Kind,
    /// Where its data, its socket and its log are.
    pub folder: PathBuf,
    /// Held as long as the server is used; `None` for a private server, which ends with this value.
    _lock: Option<File>,
    private: Option<PrivateServer>,
}

/// The folder and the process of a server for one test.
struct PrivateServer {
    _folder: tempfile::TempDir,
    process: Mutex<Option<Child>>,
}

/// An empty database on a server, dropped with this value.
pub struct TestDatabase {
    pub server: Server,
    pub name: String,
}

/// A connection whose transaction is rolled back when it ends.
pub struct HeldConnection {
    process: Child,
    input: Option<ChildStdin>,
}

impl HeldConnection {
    pub fn end(&mut self) {
        drop(self.input.take());
        self.process.wait().unwrap();
    }
}

impl Drop for HeldConnection {
    fn drop(&mut self) {
        self.end();
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
        }
    }
}

impl Server {
    /// The server that all tests share.
    #[allow(clippy::zombie_processes, reason = "it outlives this process; a watcher stops it")]
    pub fn shared(kind: Kind) -> Self {
        let folder = shared_folder(kind);
        fs::create_dir_all(&folder).unwrap();
        let lock = open_lock(&folder, "use.lock");
        rustix::fs::flock(&lock, FlockOperation::LockShared).unwrap();
        {
            let starting = open_lock(&folder, "start.lock");
            rustix::fs::flock(&starting, FlockOperation::LockExclusive).unwrap();
            if !is_ready(kind, &folder) {
                prepare(kind, &folder);
                start(kind, &folder);
                watch(kind, &folder);
            }
        }
        Self { kind, folder, _lock: Some(lock), private: None }
    }

    /// A server for one test, which may stop and start it.
    pub fn start_private(kind: Kind) -> Self {
        Self::start_private_with(kind, &[], |_| String::new())
    }

    /// A server for one test with files in its folder, and with further arguments, which are made from the folder.
    pub fn start_private_with(
        kind: Kind,
        files: &[(&str, &str)],
        arguments: impl FnOnce(&Path) -> String,
    ) -> Self {
        let private = tempfile::Builder::new().prefix("spile-db-").tempdir().unwrap();
        let folder = private.path().to_path_buf();
        prepare(kind, &folder);
        let arguments = arguments(&folder);
        for (name, text) in files.iter().copied().chain([("arguments", arguments.as_str())]) {
            let file = folder.join(name);
            fs::write(&file, text).unwrap();
            // A server refuses a private key that others can read.
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            if is_root() {
                chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let process = Mutex::new(Some(start(kind, &folder)));
        let private = PrivateServer { _folder: private, process };
        Self { kind, folder, _lock: None, private: Some(private) }
    }

    /// Stops a private server at once, as a crash would.
    pub fn stop(&self) {
        let private = self.private.as_ref().expect("others use it, too");
        let Some(mut process) = private.process.lock().unwrap().take() else { return };
        let stopped = as_user(&mut stop_command(self.kind, &self.folder)).status().unwrap();
        assert!(stopped.success(), "cannot stop {}", self.folder.display());
        process.wait().unwrap();
    }

    /// Starts a private server again.
    pub fn start(&self) {
        let private = self.private.as_ref().expect("others use it, too");
        *private.process.lock().unwrap() = Some(start(self.kind, &self.folder));
    }

    /// Creates an empty database.
    pub fn create_database(self) -> TestDatabase {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        self.run(None, &format!("CREATE DATABASE {name}"));
        TestDatabase { server: self, name }
    }

    /// Runs statements as the owner of the server.
    fn run(&self, database: Option<&str>, sql: &str) {
        let mut command = match self.kind {
            Kind::Postgres => postgres::client(&self.folder, database.unwrap_or("postgres")),
            Kind::MariaDb => mariadb::client(&self.folder, database),
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), sql).unwrap();
        let ran = command.stdin(file.reopen().unwrap()).output().unwrap();
        assert!(ran.status.success(), "{}\n{sql}", String::from_utf8_lossy(&ran.stderr));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.private.is_some() {
            self.stop();
        }
    }
}

impl TestDatabase {
    /// An empty database on the shared server.
    pub fn new(kind: Kind) -> Self {
        Server::shared(kind).create_database()
    }

    /// The URL for the owner of the server.
    pub fn url(&self) -> String {
        self.url_as(match self.server.kind {
            Kind::Postgres => "postgres",
            Kind::MariaDb => "root",
        })
    }

    /// The URL for another role.
    pub fn url_as(&self, role: &str) -> String {
        let folder = self.server.folder.display();
        match self.server.kind {
            Kind::Postgres => format!("postgres://{role}@/{}?host={folder}", self.name),
            Kind::MariaDb => format!("mysql://{role}@localhost/{}?socket={folder}/socket", self.name),
        }
    }

    /// Runs statements as the owner of the server.
    pub fn run(&self, sql: &str) {
        self.server.run(Some(&self.name), sql);
    }

    /// Runs statements on a connection to PostgreSQL that stays open, so that a transaction of them does too.
    pub fn hold(&self, sql: &str) -> HeldConnection {
        assert_eq!(self.server.kind, Kind::Postgres, "the program of MariaDB keeps its output back");
        let mut command = postgres::client(&self.server.folder, &self.name);
        // The program says when it has come so far.
        let sql = format!("{sql}\nSELECT 'held';\n");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = process.stdin.take().unwrap();
        input.write_all(sql.as_bytes()).unwrap();
        input.flush().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let is_held = output.lines().any(|line| line.unwrap().contains("held"));
        assert!(is_held, "the statements failed: {sql}");
        HeldConnection { process, input: Some(input) }
    }

    /// All tables and rows, as the database's own program prints them.
    pub fn dump(&self) -> String {
        let folder = &self.server.folder;
        let mut command = match self.server.kind {
            Kind::Postgres => postgres::dump(folder, &self.name),
            Kind::MariaDb => mariadb::dump(folder, &self.name),
        };
        let dumped = command.output().unwrap();
        assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
        let text = String::from_utf8_lossy(&dumped.stdout);
        // `\\restrict` has a random word in newer versions of pg_dump.
        let lines =
            text.lines().filter(|line| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict"));
        lines.map(|line| format!("{line}\n")).collect()
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if self.server.private.is_some() || std::thread::panicking() {
            return;
        }
        let force = if self.server.kind == Kind::Postgres { " WITH (FORCE)" } else { "" };
        self.server.run(None, &format!("DROP DATABASE {}{force}", self.name));
    }
}

/// One folder for each checkout, with a path that is short enough for a socket.
fn shared_folder(kind: Kind) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_MANIFEST_DIR").hash(&mut hasher);
    std::env::temp_dir().join(format!("spile-db-{:x}-{}", hasher.finish() & 0xFFFF_FFFF, kind.name()))
}

fn open_lock(folder: &Path, name: &str) -> File {
    File::options().create(true).truncate(false).write(true).open(folder.join(name)).unwrap()
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Runs a program as a user who may run servers.
fn as_user(command: &mut Command) -> &mut Command {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).env("LC_ALL", "C.UTF-8")
}

/// Creates the files of an empty server.
fn prepare(kind: Kind, folder: &Path) {
    if folder.join("prepared").exists() {
        return;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    if is_root() {
        chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let _ = fs::remove_dir_all(folder.join("data"));
    let log = File::create(folder.join("prepare.log")).unwrap();
    let mut command = match kind {
        Kind::Postgres => postgres::prepare(folder),
        Kind::MariaDb => mariadb::prepare(folder),
    };
    let prepared = as_user(&mut command).stdout(log.try_clone().unwrap()).stderr(log).status();
    let prepared = prepared.unwrap_or_else(|error| panic!("{kind:?} is not installed: {error}"));
    let said = fs::read_to_string(folder.join("prepare.log")).unwrap_or_default();
    assert!(prepared.success(), "cannot prepare {kind:?}:\n{said}");
    fs::write(folder.join("prepared"), "").unwrap();
}

fn start(kind: Kind, folder: &Path) -> Child {
    let log = folder.join("server.log");
    File::create(&log).unwrap();
    if is_root() {
        chown(&log, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut command = match kind {
        Kind::Postgres => postgres::start(folder),
        Kind::MariaDb => mariadb::start(folder),
    };
    // A group of its own: an interrupt of the tests does not reach it, the watcher does.
    let process = as_user(&mut command).process_group(0).spawn().unwrap();
    let started = Instant::now();
    while !is_ready(kind, folder) {
        let said = fs::read_to_string(&log).unwrap_or_default();
        assert!(started.elapsed() < START_MAX, "{kind:?} does not start:\n{said}");
        std::thread::sleep(Duration::from_millis(20));
    }
    process
}

fn is_ready(kind: Kind, folder: &Path) -> bool {
    let mut command = match kind {
        Kind::Postgres => postgres::client(folder, "postgres"),
        Kind::MariaDb => mariadb::client(folder, None),
    };
    let asked = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

fn stop_command(kind: Kind, folder: &Path) -> Command {
    match kind {
        Kind::Postgres => postgres::stop(folder),
        Kind::MariaDb => mariadb::stop(folder),
    }
}

/// Starts a process that stops the server when no test uses it any more.
#[allow(clippy::zombie_processes, reason = "it outlives this process")]
fn watch(kind: Kind, folder: &Path) {
    let stop = stop_command(kind, folder);
    let mut words = vec![stop.get_program().to_owned()];
    words.extend(stop.get_args().map(Into::into));
    // Without its data: databases of tests that failed are not kept.
    let script = "folder=$1; shift; cd \"$folder\"
        while :; do
            flock -x use.lock true; sleep 5
            flock -xn use.lock sh -c '\"$@\"; rm -rf data prepared' stop \"$@\" && exit
        done";
    let mut watcher = Command::new("sh");
    watcher.args(["-c", script, "watch"]).arg(folder).args(words);
    as_user(&mut watcher).process_group(0).spawn().unwrap();
    if is_root() {
        chown(folder.join("use.lock"), Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

//! The servers that run against each other, and how each is started.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::ask::{Ask, Dress, Work};
use super::count;
use super::data::Folder;
use super::http;
use super::machine::{self, Cores};
use super::stdio::Pipe;
use crate::sh;

/// Under valgrind a server needs seconds to come up.
const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(30);

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Floor,
    /// The product's path with rows in memory: the fixture.
    Spile,
    /// The product itself on a CSV file, with no manifest.
    SpileCsv,
    /// The product itself on a SQLite database, with no manifest.
    SpileSqlite,
    Rmcp,
    /// rmcp on its usual stdio transport instead of the tuned one; the same as [`Peer::Rmcp`] on HTTP.
    RmcpPlain,
    /// rmcp with the rows of a CSV file in memory.
    RmcpCsv,
    /// rmcp with one read of a SQLite database per call.
    RmcpSqlite,
}

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Peer::Floor => "floor",
            Peer::Spile => "spile",
            Peer::SpileCsv => "spile csv",
            Peer::SpileSqlite => "spile sqlite",
            Peer::Rmcp => "rmcp",
            Peer::RmcpPlain => "rmcp-plain",
            Peer::RmcpCsv => "rmcp csv",
            Peer::RmcpSqlite => "rmcp sqlite",
        }
    }

    /// The request as this peer is to be asked and checked.
    pub fn ask(self, ask: Ask) -> Ask {
        if self == Peer::Floor { ask.canned() } else { ask }
    }

    /// The tool that looks up a customer.
    pub fn tool(self) -> &'static str {
        if self.is_product() { "get_customers" } else { "lookup_customer" }
    }

    /// Whether the binary that people install is measured.
    fn is_product(self) -> bool {
        matches!(self, Peer::SpileCsv | Peer::SpileSqlite)
    }

    fn is_rival(self) -> bool {
        self != Peer::Spile && !self.is_product()
    }

    /// The file it serves, if it serves one.
    fn data(self) -> Option<&'static str> {
        match self {
            Peer::SpileCsv | Peer::RmcpCsv => Some("customers.csv"),
            Peer::SpileSqlite | Peer::RmcpSqlite => Some("customers.db"),
            Peer::Floor | Peer::Spile | Peer::Rmcp | Peer::RmcpPlain => None,
        }
    }

    /// Program and arguments, but for the door.
    fn command(self, binaries: &Binaries) -> Vec<String> {
        let program = |name: &str| binaries.path(name);
        let file = self.data().map(|name| binaries.data.join(name)).unwrap_or_default();
        match self {
            Peer::Floor => vec![program("rival-floor")],
            Peer::Spile => vec![program("fixture"), "bench".into()],
            Peer::SpileCsv | Peer::SpileSqlite => vec![program("spile"), "serve".into(), file],
            Peer::Rmcp | Peer::RmcpPlain => vec![program("rival-rmcp")],
            Peer::RmcpCsv => vec![program("rival-rmcp"), "--csv".into(), file],
            Peer::RmcpSqlite => vec![program("rival-rmcp"), "--sqlite".into(), file],
        }
    }

    fn serve(self, binaries: &Binaries, dress: Dress, at: SocketAddr) -> Vec<String> {
        let mut command = self.command(binaries);
        command.extend(["--bind".into(), at.to_string()]);
        match self {
            Peer::Rmcp | Peer::RmcpPlain | Peer::RmcpCsv | Peer::RmcpSqlite => {
                command.extend(["--mode".into(), dress.name().into()]);
            }
            Peer::Floor | Peer::Spile | Peer::SpileCsv | Peer::SpileSqlite => {}
        }
        command
    }

    fn pipe(self, binaries: &Binaries) -> Vec<String> {
        let mut command = self.command(binaries);
        match self {
            Peer::Floor | Peer::Rmcp | Peer::RmcpCsv | Peer::RmcpSqlite => command.push("--stdio".into()),
            Peer::RmcpPlain => command.extend(["--stdio".into(), "--plain".into()]),
            Peer::Spile | Peer::SpileCsv | Peer::SpileSqlite => {}
        }
        command
    }
}

/// The release binaries of this workspace, and what they serve.
pub struct Binaries {
    folder: PathBuf,
    pub data: Folder,
}

impl Binaries {
    /// Builds what `peers` need. A call of cargo for each, so that no dependency of a rival or of the
    /// fixture gives the product a feature it would not have by itself.
    pub fn build(peers: &[Peer]) -> anyhow::Result<Binaries> {
        let needs_data = peers.iter().any(|peer| peer.data().is_some());
        if peers.contains(&Peer::Spile) {
            cargo_build(&["-p", "testkit", "--bin", "fixture"])?;
        }
        if peers.iter().any(|peer| peer.is_product()) {
            cargo_build(&["-p", "spile"])?;
        }
        if needs_data || peers.iter().any(|peer| peer.is_rival()) {
            cargo_build(&["-p", "rivals", "--bins"])?;
        }
        let binaries = Binaries { folder: release_folder()?, data: Folder::new()? };
        if needs_data {
            binaries.make(&["customers", &binaries.data.path().display().to_string()])?;
        }
        Ok(binaries)
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Makes data, as `bench-data` takes it.
    pub fn make(&self, what: &[&str]) -> anyhow::Result<()> {
        sh::show(Command::new(self.path("bench-data")).args(what))
    }
}

/// Where cargo puts release binaries: xtask itself was built into the same target folder.
pub fn release_folder() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.ancestors().nth(2).context("xtask does not run from a target folder")?;
    Ok(target.join("release"))
}

pub fn cargo_build(package: &[&str]) -> anyhow::Result<()> {
    sh::show(sh::cargo().args(["build", "--release"]).args(package))
}

/// How a server is watched while it runs.
#[derive(Clone, Copy)]
pub enum Watch<'a> {
    /// As it is, on its own core if there are two.
    Plain(Option<&'a Cores>),
    /// Under callgrind, which writes its counts to this file.
    Callgrind(&'a Path),
}

impl Watch<'_> {
    fn spawn(self, command: &[String], prepare: impl FnOnce(&mut Command)) -> anyhow::Result<Child> {
        let mut whole = match self {
            Watch::Plain(_) => Vec::new(),
            Watch::Callgrind(profile) => count::callgrind(profile),
        };
        whole.extend_from_slice(command);
        let mut process = Command::new(&whole[0]);
        // One worker thread: the other peers have one, and there is one core.
        process.args(&whole[1..]).env("SPILE_WORKERS", "1").stderr(Stdio::piped());
        prepare(&mut process);
        let cores = match self {
            Watch::Plain(cores) => cores,
            Watch::Callgrind(_) => None,
        };
        Cores::spawn(cores, || process.spawn())?.with_context(|| format!("cannot start {}", whole.join(" ")))
    }
}

/// A running server; it stops when this is dropped.
pub struct Server {
    child: Child,
    pub at: SocketAddr,
    pub peer: Peer,
}

impl Server {
    /// Starts `peer` on a free port of the loopback address and waits until it listens.
    pub fn start(
        peer: Peer,
        dress: Dress,
        binaries: &Binaries,
        watch: Watch,
        more: &[&str],
    ) -> anyhow::Result<Server> {
        let at = free_port()?;
        let mut command = peer.serve(binaries, dress, at);
        command.extend(more.iter().map(|&word| word.to_owned()));
        Server::listen(command, at, peer, watch, &[])
    }

    /// Starts the product itself on `file`.
    pub fn product(file: &Path, binaries: &Binaries, watch: Watch) -> anyhow::Result<Server> {
        let at = free_port()?;
        let file = file.display().to_string();
        let command = vec![binaries.path("spile"), "serve".into(), file, "--bind".into(), at.to_string()];
        Server::listen(command, at, Peer::SpileCsv, watch, &[])
    }

    /// Starts the conformance fixture or the bench one, with settings of its own.
    pub fn fixture(name: &str, binaries: &Binaries, settings: &[(&str, &str)]) -> anyhow::Result<Server> {
        let at = free_port()?;
        let command = vec![binaries.path("fixture"), name.into(), "--bind".into(), at.to_string()];
        Server::listen(command, at, Peer::Spile, Watch::Plain(None), settings)
    }

    fn listen(
        command: Vec<String>,
        at: SocketAddr,
        peer: Peer,
        watch: Watch,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Server> {
        let child = watch.spawn(&command, |process| {
            process.stdin(Stdio::null()).stdout(Stdio::null()).envs(settings.iter().copied());
        })?;
        let mut server = Server { child, at, peer };
        let start = Instant::now();
        while TcpStream::connect(at).is_err() {
            if let Some(status) = server.child.try_wait()? {
                let mut said = String::new();
                if let Some(mut stderr) = server.child.stderr.take() {
                    stderr.read_to_string(&mut said)?;
                }
                bail!("`{}` ended at once: {status}: {}", command.join(" "), said.trim());
            }
            ensure!(start.elapsed() < START_MAX, "`{}` does not listen on {at}", command.join(" "));
            std::thread::sleep(Duration::from_millis(10));
        }
        // From here on nobody reads its stderr; a server that logs must not block on a full pipe.
        if let Some(stderr) = server.child.stderr.take() {
            drain(stderr);
        }
        Ok(server)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `connections` requests for `work`, ready to be asked; sessions are opened as needed.
    pub fn asks(&self, work: Work, dress: Dress, connections: usize) -> anyhow::Result<Vec<Ask>> {
        (0..connections)
            .map(|_| {
                let session = match dress {
                    Dress::S25 if self.peer != Peer::Floor => Some(http::open_session(self.at)?),
                    Dress::S25 | Dress::M26 | Dress::J25 => None,
                };
                Ok(self.peer.ask(Ask::http(work, dress, self.peer.tool(), session.as_deref())))
            })
            .collect()
    }

    /// Stops the server and waits until it has ended (and valgrind has written its counts).
    pub fn stop(mut self) -> anyhow::Result<()> {
        machine::terminate(self.pid())?;
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(start.elapsed() < STOP_MAX, "the server does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; either way there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server on a pipe; it stops when this is dropped.
pub struct Piped {
    child: Child,
    pub pipe: Pipe,
}

impl Piped {
    pub fn start(peer: Peer, binaries: &Binaries, cores: Option<&Cores>) -> anyhow::Result<Piped> {
        Piped::speak(&peer.pipe(binaries), peer, cores)
    }

    /// The product itself on `file`.
    pub fn product(file: &Path, binaries: &Binaries) -> anyhow::Result<Piped> {
        let command = [binaries.path("spile"), "serve".into(), file.display().to_string()];
        Piped::speak(&command, Peer::SpileCsv, None)
    }

    fn speak(command: &[String], peer: Peer, cores: Option<&Cores>) -> anyhow::Result<Piped> {
        let mut child = Watch::Plain(cores).spawn(command, |process| {
            process.stdin(Stdio::piped()).stdout(Stdio::piped());
        })?;
        if let Some(stderr) = child.stderr.take() {
            drain(stderr);
        }
        let to = child.stdin.take().context("the child has no stdin")?;
        let from = child.stdout.take().context("the child has no stdout")?;
        let mut pipe = Pipe::new(to, from, peer.ask(Ask::line(Work::Call, peer.tool())));
        if peer != Peer::Floor {
            pipe.shake_hands()?;
        }
        Ok(Piped { child, pipe })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn drain(mut from: impl Read + Send + 'static) {
    std::thread::spawn(move || {
        let mut sink = std::io::sink();
        let _ = std::io::copy(&mut from, &mut sink);
    });
}

/// A port that was free a moment ago.
fn free_port() -> anyhow::Result<SocketAddr> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(probe.local_addr()?)
}

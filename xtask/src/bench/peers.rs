//! The servers that run against each other, and how each is started.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::count;
use super::data::BenchDir;
use super::http;
use super::machine::{self, Cores};
use super::request::{Operation, Protocol, RequestTemplate};
use super::stdio::StdioLoad;
use crate::cache::Cache;
use crate::sh;

/// Under valgrind a server needs seconds to come up.
const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(30);

/// A server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A fixed response on hyper.
    Floor,
    /// The same on a bare socket with httparse: the limit.
    RawFloor,
    /// The product's path with rows in memory: the fixture.
    Spile,
    /// The product itself on a CSV file, with no manifest.
    SpileCsv,
    /// The same beside a tool in TypeScript.
    SpileCsvBesideCode,
    /// The product itself on a SQLite database, with no manifest.
    SpileSqlite,
    /// The product itself on a folder with a tool in TypeScript.
    SpileCode,
    /// The same tool on the TypeScript SDK, version 1, in Node.
    TypescriptSdk,
    /// The same on version 2, which knows 2026-07-28.
    TypescriptSdk2,
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
            Peer::RawFloor => "raw-floor",
            Peer::Spile => "spile",
            Peer::SpileCsv => "spile csv",
            Peer::SpileCsvBesideCode => "spile csv+code",
            Peer::SpileSqlite => "spile sqlite",
            Peer::SpileCode => "spile code",
            Peer::TypescriptSdk => "ts-sdk",
            Peer::TypescriptSdk2 => "ts-sdk-2",
            Peer::Rmcp => "rmcp",
            Peer::RmcpPlain => "rmcp-plain",
            Peer::RmcpCsv => "rmcp csv",
            Peer::RmcpSqlite => "rmcp sqlite",
        }
    }

    /// The request and its check, adapted to this peer.
    pub fn prepare_request(self, ask: RequestTemplate) -> RequestTemplate {
        if self.is_floor() { ask.expect_canned() } else { ask }
    }

    /// Whether the peer sends the same response to everything.
    pub fn is_floor(self) -> bool {
        matches!(self, Peer::Floor | Peer::RawFloor)
    }

    /// The tool that looks up a customer.
    pub fn tool(self) -> &'static str {
        match self {
            Peer::SpileCsv | Peer::SpileCsvBesideCode | Peer::SpileSqlite => "get_customers",
            _ => "lookup_customer",
        }
    }

    /// Whether the peer is the `spile` binary.
    fn is_product(self) -> bool {
        matches!(self, Peer::SpileCsv | Peer::SpileCsvBesideCode | Peer::SpileSqlite | Peer::SpileCode)
    }

    fn is_bench_peer(self) -> bool {
        !matches!(self, Peer::Spile | Peer::TypescriptSdk | Peer::TypescriptSdk2) && !self.is_product()
    }

    /// The file it serves, if it serves one.
    fn data_file(self) -> Option<&'static str> {
        match self {
            Peer::SpileCsv | Peer::SpileCsvBesideCode | Peer::RmcpCsv => Some("customers.csv"),
            Peer::SpileSqlite | Peer::RmcpSqlite => Some("customers.db"),
            Peer::Floor
            | Peer::RawFloor
            | Peer::Spile
            | Peer::SpileCode
            | Peer::TypescriptSdk
            | Peer::TypescriptSdk2
            | Peer::Rmcp
            | Peer::RmcpPlain => None,
        }
    }

    /// Program and arguments, without the transport.
    fn command(self, binaries: &Binaries) -> Vec<String> {
        let program = |name: &str| binaries.path(name);
        let file = self.data_file().map(|name| binaries.data.join(name)).unwrap_or_default();
        match self {
            Peer::Floor => vec![program("peer-floor")],
            Peer::RawFloor => vec![program("peer-raw-floor")],
            Peer::Spile => vec![program("fixture"), "bench".into()],
            Peer::SpileCsv | Peer::SpileSqlite => vec![program("spile"), "serve".into(), file],
            Peer::SpileCsvBesideCode => {
                let folder = binaries.data.join(DATA_AND_CODE_FOLDER);
                vec![program("spile"), "serve".into(), folder, "--no-page".into()]
            }
            Peer::SpileCode => {
                vec![program("spile"), "serve".into(), binaries.data.join(CODE_FOLDER), "--no-page".into()]
            }
            Peer::TypescriptSdk => vec![binaries.node.clone(), binaries.data.join(TYPESCRIPT_SERVER)],
            Peer::TypescriptSdk2 => vec![binaries.node.clone(), binaries.data.join(TYPESCRIPT_2_SERVER)],
            Peer::Rmcp | Peer::RmcpPlain => vec![program("peer-rmcp")],
            Peer::RmcpCsv => vec![program("peer-rmcp"), "--csv".into(), file],
            Peer::RmcpSqlite => vec![program("peer-rmcp"), "--sqlite".into(), file],
        }
    }

    fn http_command(self, binaries: &Binaries, dress: Protocol, at: SocketAddr) -> Vec<String> {
        let mut command = self.command(binaries);
        command.extend(["--bind".into(), at.to_string()]);
        match self {
            Peer::Rmcp | Peer::RmcpPlain | Peer::RmcpCsv | Peer::RmcpSqlite => {
                command.extend(["--mode".into(), dress.name().into()]);
            }
            Peer::Floor
            | Peer::RawFloor
            | Peer::Spile
            | Peer::SpileCsv
            | Peer::SpileCsvBesideCode
            | Peer::SpileSqlite
            | Peer::SpileCode
            | Peer::TypescriptSdk
            | Peer::TypescriptSdk2 => {}
        }
        command
    }

    fn stdio_command(self, binaries: &Binaries) -> Vec<String> {
        let mut command = self.command(binaries);
        match self {
            Peer::Floor | Peer::Rmcp | Peer::RmcpCsv | Peer::RmcpSqlite => command.push("--stdio".into()),
            Peer::RmcpPlain => command.extend(["--stdio".into(), "--plain".into()]),
            Peer::RawFloor
            | Peer::Spile
            | Peer::SpileCsv
            | Peer::SpileCsvBesideCode
            | Peer::SpileSqlite
            | Peer::SpileCode
            | Peer::TypescriptSdk
            | Peer::TypescriptSdk2 => {}
        }
        command
    }
}

/// What a floor, which has no sessions, gets as the id of one: as long as ours.
const FLOOR_SESSION: &str =
    "AQID-BAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCkqKywtLi8wMTIzNDU2Nzg5Ojs";

/// The folder with the tool in TypeScript, and the servers with the same tool on the TypeScript SDKs: each in a folder of its
/// own, because Node looks for packages beside the file that imports them.
const CODE_FOLDER: &str = "code";
/// The folder with the same tool beside a CSV file.
const DATA_AND_CODE_FOLDER: &str = "data-and-code";
const TYPESCRIPT_SERVER: &str = "typescript-1/server.mjs";
const TYPESCRIPT_2_SERVER: &str = "typescript-2/server.mjs";

/// The release binaries of this workspace, and the data that they serve.
#[derive(Clone)]
pub struct Binaries {
    folder: PathBuf,
    /// Where `spile` is.
    product_folder: PathBuf,
    /// Node, for the TypeScript SDK.
    node: String,
    pub data: Rc<BenchDir>,
}

impl Binaries {
    /// Builds what `peers` need. A call of cargo for each, so that no dependency of a peer or of the
    /// fixture gives the product a feature it would not have by itself.
    pub fn build(peers: &[Peer]) -> anyhow::Result<Binaries> {
        let needs_data = peers.iter().any(|peer| peer.data_file().is_some());
        if peers.contains(&Peer::Spile) {
            cargo_build(&["-p", "testkit", "--bin", "fixture"])?;
        }
        if peers.iter().any(|peer| peer.is_product()) {
            cargo_build(&["-p", "spile"])?;
        }
        if needs_data || peers.iter().any(|peer| peer.is_bench_peer()) {
            cargo_build(&["-p", "bench-peers", "--bins"])?;
        }
        let cache = Cache::locate()?;
        let node = cache.node().display().to_string();
        let folder = release_folder()?;
        let data = Rc::new(BenchDir::new()?);
        let binaries = Binaries { product_folder: folder.clone(), folder, node, data };
        if peers.contains(&Peer::SpileCode) {
            binaries.write_code_folder()?;
        }
        if peers.contains(&Peer::TypescriptSdk) {
            let modules = cache.node_prefix().join("node_modules");
            binaries.write_node_server(TYPESCRIPT_SERVER, include_str!("peer_typescript.mjs"), &modules)?;
        }
        if peers.contains(&Peer::TypescriptSdk2) {
            let modules = cache.typescript_2_servers().join("node_modules");
            binaries.write_node_server(
                TYPESCRIPT_2_SERVER,
                include_str!("peer_typescript_2.mjs"),
                &modules,
            )?;
        }
        if needs_data {
            binaries.make_data(&["customers", &binaries.data.path().display().to_string()])?;
        }
        if peers.contains(&Peer::SpileCsvBesideCode) {
            binaries.write_data_and_code_folder()?;
        }
        Ok(binaries)
    }

    /// The `spile` in `folder`, with the data of all its peers.
    pub fn build_for_training(folder: &Path) -> anyhow::Result<Binaries> {
        cargo_build(&["-p", "bench-peers", "--bin", "bench-data"])?;
        let product_folder = folder.to_owned();
        let data = Rc::new(BenchDir::new()?);
        let maker = Binaries { folder: release_folder()?, product_folder, node: String::new(), data };
        maker.make_data(&["customers", &maker.data.path().display().to_string()])?;
        maker.write_code_folder()?;
        Ok(maker)
    }

    /// A folder with a tool in TypeScript.
    fn write_code_folder(&self) -> anyhow::Result<()> {
        let tools = self.data.path().join(CODE_FOLDER).join("tools");
        std::fs::create_dir_all(&tools)?;
        Ok(std::fs::write(tools.join("lookup_customer.ts"), include_str!("peer_tool.ts"))?)
    }

    /// A folder with the tool in TypeScript and the data beside it.
    fn write_data_and_code_folder(&self) -> anyhow::Result<()> {
        let folder = self.data.path().join(DATA_AND_CODE_FOLDER);
        std::fs::create_dir_all(folder.join("tools"))?;
        std::fs::copy(self.data.path().join("customers.csv"), folder.join("customers.csv"))?;
        Ok(std::fs::write(folder.join("tools/lookup_customer.ts"), include_str!("peer_tool.ts"))?)
    }

    /// A server for Node, beside the packages that it imports.
    fn write_node_server(&self, path: &str, source: &str, modules: &Path) -> anyhow::Result<()> {
        ensure!(modules.is_dir(), "the TypeScript SDKs are not installed; run `cargo xtask setup`");
        let server = self.data.path().join(path);
        let folder = server.parent().context("a server is in a folder of its own")?;
        std::fs::create_dir_all(folder)?;
        std::os::unix::fs::symlink(modules, folder.join("node_modules"))?;
        Ok(std::fs::write(server, source)?)
    }

    pub fn path(&self, name: &str) -> String {
        let folder = if name == "spile" { &self.product_folder } else { &self.folder };
        folder.join(name).display().to_string()
    }

    /// The same with `spile` as `cargo xtask release` builds it; `None` if there is none, or one that is older.
    pub fn shipped(&self) -> Option<Binaries> {
        let folder = self.folder.parent()?.join("dist");
        let built = |folder: &Path| std::fs::metadata(folder.join("spile")).ok()?.modified().ok();
        let is_current = built(&folder)? >= built(&self.folder)?;
        is_current.then(|| Binaries { product_folder: folder, ..self.clone() })
    }

    /// Runs `bench-data` with these arguments.
    pub fn make_data(&self, what: &[&str]) -> anyhow::Result<()> {
        sh::run(Command::new(self.path("bench-data")).args(what))
    }
}

/// Where cargo puts release binaries: xtask itself was built into the same target folder.
pub fn release_folder() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.ancestors().nth(2).context("xtask does not run from a target folder")?;
    Ok(target.join("release"))
}

pub fn cargo_build(package: &[&str]) -> anyhow::Result<()> {
    sh::run(sh::cargo().args(["build", "--release"]).args(package))
}

/// How a server is run.
#[derive(Clone, Copy)]
pub enum Instrumentation<'a> {
    /// Unchanged, with one worker, on its own core if there are two.
    Uninstrumented(Option<&'a Cores>),
    /// Unchanged, with a worker for each core.
    AllCores,
    /// Under callgrind, which writes its counts to this file.
    Callgrind(&'a Path),
}

impl Instrumentation<'_> {
    fn spawn(self, command: &[String], prepare: impl FnOnce(&mut Command)) -> anyhow::Result<Child> {
        let mut whole = match self {
            Instrumentation::Uninstrumented(_) | Instrumentation::AllCores => Vec::new(),
            Instrumentation::Callgrind(profile) => count::callgrind_command(profile),
        };
        whole.extend_from_slice(command);
        let mut process = Command::new(&whole[0]);
        process.args(&whole[1..]).stderr(Stdio::piped());
        match self {
            // One worker thread: the other peers have one, and there is one core.
            Instrumentation::Uninstrumented(_) | Instrumentation::Callgrind(_) => {
                process.env("SPILE_WORKERS", "1");
            }
            Instrumentation::AllCores => {
                process.env_remove("SPILE_WORKERS");
            }
        }
        prepare(&mut process);
        let cores = match self {
            Instrumentation::Uninstrumented(cores) => cores,
            Instrumentation::Callgrind(_) | Instrumentation::AllCores => None,
        };
        Cores::spawn(cores, || process.spawn())?.with_context(|| format!("cannot start {}", whole.join(" ")))
    }
}

/// A running server; it stops when this is dropped.
pub struct HttpPeer {
    child: Child,
    pub address: SocketAddr,
    pub peer: Peer,
}

impl HttpPeer {
    /// Starts `peer` on a free port of the loopback address and waits until it listens.
    pub fn start(
        peer: Peer,
        dress: Protocol,
        binaries: &Binaries,
        watch: Instrumentation,
        more: &[&str],
    ) -> anyhow::Result<HttpPeer> {
        let at = free_port()?;
        let mut command = peer.http_command(binaries, dress, at);
        command.extend(more.iter().map(|&word| word.to_owned()));
        HttpPeer::spawn_and_wait(command, at, peer, watch, &[])
    }

    /// Starts the product itself on `file`.
    pub fn start_product(
        file: &Path,
        binaries: &Binaries,
        watch: Instrumentation,
    ) -> anyhow::Result<HttpPeer> {
        let at = free_port()?;
        let file = file.display().to_string();
        let command = vec![binaries.path("spile"), "serve".into(), file, "--bind".into(), at.to_string()];
        HttpPeer::spawn_and_wait(command, at, Peer::SpileCsv, watch, &[])
    }

    /// Starts the conformance fixture or the bench one, with settings of its own.
    pub fn start_fixture(
        name: &str,
        binaries: &Binaries,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<HttpPeer> {
        let at = free_port()?;
        let command = vec![binaries.path("fixture"), name.into(), "--bind".into(), at.to_string()];
        HttpPeer::spawn_and_wait(command, at, Peer::Spile, Instrumentation::Uninstrumented(None), settings)
    }

    pub fn spawn_and_wait(
        command: Vec<String>,
        at: SocketAddr,
        peer: Peer,
        watch: Instrumentation,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<HttpPeer> {
        let child = watch.spawn(&command, |process| {
            process.stdin(Stdio::null()).stdout(Stdio::null()).envs(settings.iter().copied());
        })?;
        let mut server = HttpPeer { child, address: at, peer };
        let start = Instant::now();
        while TcpStream::connect(at).is_err() {
            if let Some(status) = server.child.try_wait()? {
                let mut output = String::new();
                if let Some(mut stderr) = server.child.stderr.take() {
                    stderr.read_to_string(&mut output)?;
                }
                bail!("`{}` ended at once: {status}: {}", command.join(" "), output.trim());
            }
            ensure!(start.elapsed() < START_MAX, "`{}` does not listen on {at}", command.join(" "));
            std::thread::sleep(Duration::from_millis(10));
        }
        // Nothing reads its stderr from here on; a server that logs must not block on a full pipe.
        if let Some(stderr) = server.child.stderr.take() {
            drain(stderr);
        }
        Ok(server)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `connections` requests for `work`, ready to send; opens sessions as needed.
    pub fn request_templates(
        &self,
        work: Operation,
        dress: Protocol,
        connections: usize,
    ) -> anyhow::Result<Vec<RequestTemplate>> {
        (0..connections)
            .map(|_| {
                let session = match dress {
                    Protocol::S25 if self.peer.is_floor() => Some(FLOOR_SESSION.to_owned()),
                    Protocol::S25 => Some(http::open_session(self.address)?),
                    Protocol::M26 | Protocol::J25 => None,
                };
                Ok(self.peer.prepare_request(RequestTemplate::http(
                    work,
                    dress,
                    self.peer.tool(),
                    session.as_deref(),
                )))
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

impl Drop for HttpPeer {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server on a pipe; it stops when this is dropped.
pub struct StdioPeer {
    child: Child,
    pub load: StdioLoad,
}

impl StdioPeer {
    pub fn start(peer: Peer, binaries: &Binaries, cores: Option<&Cores>) -> anyhow::Result<StdioPeer> {
        StdioPeer::spawn(&peer.stdio_command(binaries), peer, cores)
    }

    /// The product itself on `file`.
    pub fn start_product(file: &Path, binaries: &Binaries) -> anyhow::Result<StdioPeer> {
        let command = [binaries.path("spile"), "serve".into(), file.display().to_string()];
        StdioPeer::spawn(&command, Peer::SpileCsv, None)
    }

    fn spawn(command: &[String], peer: Peer, cores: Option<&Cores>) -> anyhow::Result<StdioPeer> {
        let template = peer.prepare_request(RequestTemplate::stdio_line(Operation::Call, peer.tool()));
        let mut piped = StdioPeer::spawn_lines(command, template, cores)?;
        if peer != Peer::Floor {
            piped.load.handshake()?;
        }
        Ok(piped)
    }

    /// A process that answers a line with a line.
    pub fn start_lines(command: &[String]) -> anyhow::Result<StdioPeer> {
        StdioPeer::spawn_lines(command, RequestTemplate::stdio_line(Operation::Call, ""), None)
    }

    fn spawn_lines(
        command: &[String],
        template: RequestTemplate,
        cores: Option<&Cores>,
    ) -> anyhow::Result<StdioPeer> {
        let mut child = Instrumentation::Uninstrumented(cores).spawn(command, |process| {
            process.stdin(Stdio::piped()).stdout(Stdio::piped());
        })?;
        if let Some(stderr) = child.stderr.take() {
            drain(stderr);
        }
        let to = child.stdin.take().context("the child has no stdin")?;
        let from = child.stdout.take().context("the child has no stdout")?;
        Ok(StdioPeer { child, load: StdioLoad::new(to, from, template) })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl StdioPeer {
    /// Stops the server in order, and waits until it has ended.
    pub fn stop(mut self) -> anyhow::Result<()> {
        machine::terminate(self.pid())?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for StdioPeer {
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
pub fn free_port() -> anyhow::Result<SocketAddr> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(probe.local_addr()?)
}

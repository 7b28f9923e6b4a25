//! `cargo xtask bench gateway`: what a gateway costs on the way to a server.
//!
//! The same fixture is called directly, through the gateway over HTTP, and through the gateway and npm's `mcp-proxy` as a
//! process. Only the process in the middle is counted. The rows take turns, so that a noisy minute hits all of them.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, ensure};
use serde_json::json;

use super::gates::{self, Bound, Gate};
use super::http::HttpLoad;
use super::machine::{self, Cores};
use super::peers::{Binaries, HttpPeer, Instrumentation, Peer, free_port};
use super::report::median;
use super::request::{Operation, Protocol, RequestTemplate};
use crate::cache::Cache;

const CONNECTIONS: usize = 16;
/// Each of `mcp-proxy`'s sessions starts a process.
const PROXY_CONNECTIONS: usize = 4;
/// Beside servers that break.
const GOOD_SERVERS: usize = 9;
const SERVERS: usize = 20;
const TOOLS: usize = 50;
/// The tool behind the gateway, by its public name.
const TOOL: &str = "mcp__up__lookup_customer";
const OWN_TOOL: &str = "lookup_customer";

/// One server with the load on it.
struct Row {
    name: &'static str,
    server: HttpPeer,
    load: HttpLoad,
    requests: u64,
    cpu_us: Vec<f64>,
    p50_us: Vec<f64>,
}

impl Row {
    fn new(
        name: &'static str,
        server: HttpPeer,
        templates: Vec<RequestTemplate>,
        requests: u64,
    ) -> anyhow::Result<Row> {
        let load = HttpLoad::connect(server.address, templates)?;
        Ok(Row { name, server, load, requests, cpu_us: Vec::new(), p50_us: Vec::new() })
    }

    fn run_round(&mut self) -> anyhow::Result<()> {
        self.load.run(self.requests / 10 + 1).context("while warming up")?;
        let before = machine::cpu_ns(self.server.pid())?;
        let run = self.load.run(self.requests)?;
        let used = machine::cpu_ns(self.server.pid())?.checked_sub(before);
        let used = used.context("a thread ended, and its CPU time with it")?;
        self.cpu_us.push(used as f64 / 1e3 / self.requests as f64);
        self.p50_us.push(run.percentile(50).as_secs_f64() * 1e6);
        Ok(())
    }
}

pub fn run(quick: bool) -> anyhow::Result<()> {
    let (rounds, requests) = if quick { (5, 1_000) } else { (21, 5_000) };
    let binaries = Binaries::build(&[Peer::Floor, Peer::Spile, Peer::SpileCsv])?;
    let cores = Cores::reserve()?;
    let proxy = Cache::locate()?.root().join("npm-servers/node_modules/.bin/mcp-proxy");
    ensure!(proxy.exists(), "`mcp-proxy` is not installed; run `cargo xtask setup`");

    // Not on the core of what is measured.
    let upstream = HttpPeer::start_fixture("bench", &binaries, &[])?;
    let many: Vec<HttpPeer> =
        (0..SERVERS).map(|_| start_many_tools(&binaries)).collect::<anyhow::Result<_>>()?;
    let fixture = binaries.path("fixture");
    let over_http = json!({"up": {"type": "http", "url": url(upstream.address)}});
    let over_stdio = json!({"up": {"command": fixture, "args": ["bench"]}});
    let all: serde_json::Map<String, serde_json::Value> = many
        .iter()
        .enumerate()
        .map(|(n, server)| (format!("up{n:02}"), json!({"type": "http", "url": url(server.address)})))
        .collect();
    // It accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let good = (0..GOOD_SERVERS).map(|n| (format!("good{n}"), over_http["up"].clone()));
    let good: serde_json::Map<String, serde_json::Value> = good.collect();
    let mut beside_bad = good.clone();
    beside_bad.insert("silent".into(), json!({"type": "http", "url": url(silent.local_addr()?)}));
    beside_bad.insert("crashes".into(), json!({"command": "/bin/sh", "args": ["-c", "exit 1"]}));
    beside_bad.insert(
        "floods".into(),
        json!({"command": "/bin/sh", "args": ["-c", "while echo flood; do sleep 0.001; done"]}),
    );
    let good_calls = || -> Vec<RequestTemplate> {
        let tools = (0..GOOD_SERVERS).map(|n| format!("mcp__good{n}__{OWN_TOOL}"));
        tools.map(|tool| RequestTemplate::http(Operation::Call, Protocol::M26, &tool, None)).collect()
    };
    let gateway =
        |name: &str, servers: serde_json::Value| start_gateway(name, &servers, &binaries, cores.as_ref());
    let call = |dress, tool| move || RequestTemplate::http(Operation::Call, dress, tool, None);
    let repeat =
        |make: &dyn Fn() -> RequestTemplate, count: usize| (0..count).map(|_| make()).collect::<Vec<_>>();
    let watch = Instrumentation::Uninstrumented(cores.as_ref());

    let floor = HttpPeer::start(Peer::Floor, Protocol::M26, &binaries, watch, &[])?;
    let floor_templates = floor.request_templates(Operation::Call, Protocol::M26, CONNECTIONS)?;
    let direct = HttpPeer::start(Peer::Spile, Protocol::M26, &binaries, watch, &[])?;
    let list = || RequestTemplate::http(Operation::List, Protocol::M26, "", None);
    let stdio_gateway = gateway("stdio", over_stdio)?;
    let stdio_templates = sessions(stdio_gateway.address, TOOL)?;
    let proxy = start_proxy(&proxy.display().to_string(), &fixture, cores.as_ref())?;
    let proxy_templates = sessions(proxy.address, OWN_TOOL)?;
    let mut rows = vec![
        Row::new("floor", floor, floor_templates, requests)?,
        Row::new("direct, 1 connection", direct, repeat(&call(Protocol::M26, OWN_TOOL), 1), requests)?,
        Row::new(
            "gateway over HTTP",
            gateway("http", over_http.clone())?,
            repeat(&call(Protocol::M26, TOOL), CONNECTIONS),
            requests,
        )?,
        Row::new(
            "gateway over HTTP, 1 connection",
            gateway("http-1", over_http)?,
            repeat(&call(Protocol::M26, TOOL), 1),
            requests,
        )?,
        Row::new("gateway, nine servers", gateway("good", good.into())?, good_calls(), requests)?,
        Row::new(
            "gateway, nine servers and bad ones",
            gateway("beside-bad", beside_bad.into())?,
            good_calls(),
            requests,
        )?,
        Row::new("gateway, process behind", stdio_gateway, stdio_templates, requests)?,
        Row::new("mcp-proxy, process behind", proxy, proxy_templates, requests / 5)?,
        Row::new(
            "gateway, list of 1,000 tools",
            gateway("many", all.into())?,
            repeat(&list, 1),
            requests / 5,
        )?,
        Row::new(
            "direct, list of 1,000 tools",
            start_list(&binaries, watch)?,
            repeat(&list, 1),
            requests / 5,
        )?,
    ];
    for round in 1..=rounds {
        for row in &mut rows {
            eprintln!("round {round}/{rounds}: {}", row.name);
            row.run_round().with_context(|| row.name.to_owned())?;
        }
    }
    report(&rows, rounds)
}

/// The figures of a row, one for each round.
type Figures = fn(&Row) -> &Vec<f64>;

fn report(rows: &[Row], rounds: usize) -> anyhow::Result<()> {
    println!("\nthe process in the middle, medians of {rounds} rounds");
    for row in rows {
        let of = |values: &[f64]| median(values).unwrap_or(f64::NAN);
        println!("  {:<36}{:>9.1} us CPU{:>10.1} us p50", row.name, of(&row.cpu_us), of(&row.p50_us));
    }
    let find = |name: &str| rows.iter().find(|row| row.name == name);
    let ratio = |of: &str, base: &str, values: Figures| {
        let (of, base) = (find(of)?, find(base)?);
        let ratios = values(of).iter().zip(values(base)).map(|(of, base)| of / base);
        median(&ratios.collect::<Vec<_>>())
    };
    let cpu: Figures = |row| &row.cpu_us;
    let p50: Figures = |row| &row.p50_us;
    gates::print_and_check(&[
        Gate {
            name: "gateway over HTTP, CPU over the floor",
            bound: Bound::AtMost(2.0),
            value: ratio("gateway over HTTP", "floor", cpu),
            unit: "x",
        },
        Gate {
            name: "gateway over HTTP, p50 over the direct call",
            bound: Bound::AtMost(2.0),
            value: ratio("gateway over HTTP, 1 connection", "direct, 1 connection", p50),
            unit: "x",
        },
        Gate {
            name: "nine servers beside bad ones, p50 over without them",
            bound: Bound::AtMost(1.25),
            value: ratio("gateway, nine servers and bad ones", "gateway, nine servers", p50),
            unit: "x",
        },
        Gate {
            name: "mcp-proxy's CPU over ours, process behind",
            bound: Bound::AtLeast(15.0),
            value: ratio("mcp-proxy, process behind", "gateway, process behind", cpu),
            unit: "x",
        },
        Gate {
            name: "list of 20 servers x 50 tools, CPU over one server's",
            bound: Bound::AtMost(1.25),
            value: ratio("gateway, list of 1,000 tools", "direct, list of 1,000 tools", cpu),
            unit: "x",
        },
    ])
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}/mcp")
}

/// A gateway for these servers, with nothing of the user's own.
fn start_gateway(
    name: &str,
    servers: &serde_json::Value,
    binaries: &Binaries,
    cores: Option<&Cores>,
) -> anyhow::Result<HttpPeer> {
    let folder = binaries.data.join(&format!("gateway-{name}"));
    std::fs::create_dir_all(&folder)?;
    let config = format!("{folder}/servers.json");
    let settings = json!({"mcpServers": servers, "permissions": {"mode": "permissive"}});
    std::fs::write(&config, settings.to_string())?;
    let at = free_port()?;
    let command = ["gateway", "--config", &config, "--wait", "30", "--bind", &at.to_string()];
    let command = std::iter::once(binaries.path("spile")).chain(command.map(str::to_owned)).collect();
    let home = [("HOME", &*folder), ("XDG_CONFIG_HOME", &*folder), ("XDG_STATE_HOME", &*folder)];
    HttpPeer::spawn_and_wait(command, at, Peer::SpileCsv, Instrumentation::Uninstrumented(cores), &home)
}

fn start_proxy(proxy: &str, fixture: &str, cores: Option<&Cores>) -> anyhow::Result<HttpPeer> {
    let at = free_port()?;
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let command = [proxy, "--host", &host, "--port", &port, "--server", "stream", "--", fixture, "bench"];
    let command = command.map(str::to_owned).to_vec();
    HttpPeer::spawn_and_wait(command, at, Peer::TypescriptSdk, Instrumentation::Uninstrumented(cores), &[])
}

fn start_many_tools(binaries: &Binaries) -> anyhow::Result<HttpPeer> {
    let more = ["--tools", &TOOLS.to_string()];
    HttpPeer::start(Peer::Spile, Protocol::M26, binaries, Instrumentation::Uninstrumented(None), &more)
}

/// One server with as many tools as the twenty have together.
fn start_list(binaries: &Binaries, watch: Instrumentation) -> anyhow::Result<HttpPeer> {
    let more = ["--tools", &(SERVERS * TOOLS).to_string()];
    HttpPeer::start(Peer::Spile, Protocol::M26, binaries, watch, &more)
}

fn sessions(address: SocketAddr, tool: &str) -> anyhow::Result<Vec<RequestTemplate>> {
    let session = |_| {
        let id = super::http::open_session(address)?;
        Ok(RequestTemplate::http(Operation::Call, Protocol::S25, tool, Some(&id)))
    };
    (0..PROXY_CONNECTIONS).map(session).collect()
}

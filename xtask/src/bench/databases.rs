//! `cargo xtask bench databases`: reads from PostgreSQL and SQLite over HTTP, against MCP Toolbox and a bare program.
//!
//! The product, MCP Toolbox, and hyper with tokio-postgres read the same rows of one PostgreSQL server; the product and
//! Toolbox also those of one SQLite file. Only the process that serves is counted: what the database does is the same for
//! all. The rows take turns, so that a noisy minute hits all of them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use test_databases::{Kind, Server, TestDatabase};

use super::gates::{self, Bound, Gate};
use super::http::{HttpLoad, ResponseReader};
use super::machine::{self, Cores};
use super::peers::{Binaries, HttpPeer, Instrumentation, Peer, cargo_build, free_port};
use super::report::median;
use super::request::{self, Operation, Protocol, RequestTemplate};
use crate::cache::Cache;

const CONNECTIONS: usize = 16;
/// The tools of all peers have these names.
const GET: &str = "get_customers";
const LIST: &str = "list_customers";
const CUSTOMERS: usize = 10_000;
/// The rows of one page, and the size that its answer must not exceed.
const PAGE_ROWS: usize = 1_000;
const PAGE_BYTES_MAX: usize = 131_072;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Spile,
    Toolbox,
    /// hyper and tokio-postgres, with nothing between them.
    Bare,
}

/// A running server.
struct Started {
    program: Program,
    server: HttpPeer,
}

/// One server, asked in one way.
struct Row {
    name: &'static str,
    server: HttpPeer,
    work: Work,
    cpu_us: Vec<f64>,
    p50_us: Vec<f64>,
}

enum Work {
    /// One customer by its key, on several connections.
    Get { load: HttpLoad, requests: u64 },
    /// All customers, on one connection.
    List { list: ListLoad, times: u64 },
}

impl Row {
    fn get(name: &'static str, started: Started, requests: u64) -> anyhow::Result<Row> {
        let Started { program, server } = started;
        let template = || {
            let template = RequestTemplate::http(Operation::Call, Protocol::M26, GET, None);
            if program == Program::Toolbox { template.expect_text() } else { template }
        };
        let load = HttpLoad::connect(server.address, (0..CONNECTIONS).map(|_| template()).collect())?;
        Ok(Row { name, server, work: Work::Get { load, requests }, cpu_us: Vec::new(), p50_us: Vec::new() })
    }

    fn list(name: &'static str, started: Started, times: u64) -> anyhow::Result<Row> {
        let Started { program, server } = started;
        let list = ListLoad::connect(server.address, program)?;
        Ok(Row { name, server, work: Work::List { list, times }, cpu_us: Vec::new(), p50_us: Vec::new() })
    }

    fn run_round(&mut self) -> anyhow::Result<()> {
        self.work.run(10).context("while warming up")?;
        let before = machine::cpu_ns(self.server.pid())?;
        let p50_us = self.work.run(1)?;
        let used = machine::cpu_ns(self.server.pid())?.checked_sub(before);
        let used = used.context("a thread ended, and its CPU time with it")?;
        self.cpu_us.push(used as f64 / 1e3 / self.work.units() as f64);
        self.p50_us.push(p50_us);
        Ok(())
    }
}

impl Work {
    /// Does a part of a round; returns the median of the latencies in microseconds.
    fn run(&mut self, part: u64) -> anyhow::Result<f64> {
        match self {
            Work::Get { load, requests } => {
                Ok(load.run(*requests / part)?.percentile(50).as_secs_f64() * 1e6)
            }
            Work::List { list, times } => {
                let start = std::time::Instant::now();
                let times = (*times / part).max(1);
                (0..times).try_for_each(|_| list.read_all())?;
                Ok(start.elapsed().as_secs_f64() * 1e6 / times as f64)
            }
        }
    }

    /// What the CPU time of a round is divided by.
    fn units(&self) -> u64 {
        match self {
            Work::Get { requests, .. } => *requests,
            Work::List { times, .. } => *times,
        }
    }
}

/// Reads all customers: page by page from the product, at once from Toolbox, which has no pages.
struct ListLoad {
    stream: TcpStream,
    address: SocketAddr,
    program: Program,
    reader: ResponseReader,
}

impl ListLoad {
    fn connect(address: SocketAddr, program: Program) -> anyhow::Result<ListLoad> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(ListLoad { stream, address, program, reader: ResponseReader::default() })
    }

    fn read_all(&mut self) -> anyhow::Result<()> {
        let rows = if self.program == Program::Toolbox {
            blocks(&self.call(&json!({}))?)?.len()
        } else {
            self.read_pages()?
        };
        ensure!(rows == CUSTOMERS, "{rows} rows instead of {CUSTOMERS}");
        Ok(())
    }

    fn read_pages(&mut self) -> anyhow::Result<usize> {
        let (mut rows, mut cursor) = (0, Value::Null);
        loop {
            let mut arguments = json!({"limit": PAGE_ROWS});
            if !cursor.is_null() {
                arguments["cursor"] = cursor;
            }
            let result = self.call(&arguments)?;
            let content = &result["structuredContent"];
            let items = content["items"].as_array().context("an answer without structured content")?;
            // A link to all rows may follow the text.
            let texts = blocks(&result)?.iter().filter(|block| block["type"] == "text");
            let texts: Vec<&Value> = texts.collect();
            ensure!(texts.len() == 1, "{} blocks of text instead of one", texts.len());
            rows += items.len();
            cursor = content["nextCursor"].clone();
            if cursor.is_null() {
                return Ok(rows);
            }
        }
    }

    fn call(&mut self, arguments: &Value) -> anyhow::Result<Value> {
        self.stream.write_all(&request::call(LIST, arguments))?;
        loop {
            self.reader.read(&mut self.stream).with_context(|| self.address.to_string())?;
            let Some(answer) = self.reader.response()? else { continue };
            let is_within = self.program == Program::Toolbox || answer.body.len() <= PAGE_BYTES_MAX;
            ensure!(is_within, "an answer of {} bytes, not {PAGE_BYTES_MAX}", answer.body.len());
            let mut message: Value = serde_json::from_slice(answer.body)?;
            self.reader.clear();
            let result = message["result"].take();
            ensure!(result["isError"] != true && !result.is_null(), "{message} {result}");
            return Ok(result);
        }
    }
}

fn blocks(result: &Value) -> anyhow::Result<&Vec<Value>> {
    result["content"].as_array().context("an answer without content")
}

pub fn run(quick: bool) -> anyhow::Result<()> {
    let (rounds, requests, lists) = if quick { (5, 1_000, 4) } else { (21, 4_000, 10) };
    let toolbox = Cache::locate()?.toolbox();
    ensure!(toolbox.exists(), "MCP Toolbox is not installed; run `cargo xtask setup`");
    cargo_build(&["-p", "bench-peers", "--bins"])?;
    let binaries = Binaries::build(&[Peer::SpileSqlite])?;
    let database = Database::start()?;
    let cores = Cores::reserve()?;
    let bench = Bench { binaries: &binaries, toolbox: toolbox.display().to_string(), cores: cores.as_ref() };
    let mut rows = vec![
        Row::get("bare program, postgres", bench.bare(&database.url())?, requests)?,
        Row::get("spile, postgres", bench.spile("get-postgres", &database.spile_source())?, requests)?,
        Row::get("toolbox, postgres", bench.toolbox("get-postgres", &database.toolbox_source())?, requests)?,
        Row::get("spile, sqlite", bench.spile("get-sqlite", &bench.spile_sqlite())?, requests * 4)?,
        Row::get("toolbox, sqlite", bench.toolbox("get-sqlite", &bench.toolbox_sqlite())?, requests)?,
        Row::list(
            "spile, postgres, list of 10,000",
            bench.spile("list-postgres", &database.spile_source())?,
            lists,
        )?,
        Row::list(
            "toolbox, postgres, list of 10,000",
            bench.toolbox("list-postgres", &database.toolbox_source())?,
            lists,
        )?,
        Row::list(
            "spile, sqlite, list of 10,000",
            bench.spile("list-sqlite", &bench.spile_sqlite())?,
            lists,
        )?,
        Row::list(
            "toolbox, sqlite, list of 10,000",
            bench.toolbox("list-sqlite", &bench.toolbox_sqlite())?,
            lists,
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

fn report(rows: &[Row], rounds: usize) -> anyhow::Result<()> {
    println!("\nthe process that serves, for each read, medians of {rounds} rounds");
    for row in rows {
        let of = |values: &[f64]| median(values).unwrap_or(f64::NAN);
        println!("  {:<36}{:>10.1} us CPU{:>11.1} us p50", row.name, of(&row.cpu_us), of(&row.p50_us));
    }
    // Of each round, because the next one may be a noisy one.
    let ratio = |of: &str, base: &str| {
        let find = |name: &str| rows.iter().find(|row| row.name == name);
        let ratios = find(of)?.cpu_us.iter().zip(&find(base)?.cpu_us).map(|(of, base)| of / base);
        median(&ratios.collect::<Vec<_>>())
    };
    let gate = |name, bound, unit, value| Gate { name, bound: Bound::AtLeast(bound), value, unit };
    gates::print_and_check(&[
        gate(
            "keyed read from PostgreSQL, Toolbox's CPU over ours",
            3.0,
            "x",
            ratio("toolbox, postgres", "spile, postgres"),
        ),
        gate(
            "keyed read from PostgreSQL, of what a bare program reaches",
            60.0,
            " %",
            ratio("bare program, postgres", "spile, postgres").map(|ratio| ratio * 100.0),
        ),
        gate(
            "keyed read from SQLite, Toolbox's CPU over ours",
            8.0,
            "x",
            ratio("toolbox, sqlite", "spile, sqlite"),
        ),
        gate(
            "list of 10,000 from PostgreSQL, Toolbox's CPU over ours",
            3.0,
            "x",
            ratio("toolbox, postgres, list of 10,000", "spile, postgres, list of 10,000"),
        ),
        gate(
            "list of 10,000 from SQLite, Toolbox's CPU over ours",
            3.0,
            "x",
            ratio("toolbox, sqlite, list of 10,000", "spile, sqlite, list of 10,000"),
        ),
    ])
}

/// A PostgreSQL server with the customers, on a port: Toolbox connects to no socket.
struct Database {
    place: TestDatabase,
    port: u16,
}

impl Database {
    fn start() -> anyhow::Result<Database> {
        let port = free_port()?.port();
        let place = Server::start_private_with(Kind::Postgres, &[("port", &port.to_string())], |_| {
            format!("-c listen_addresses=127.0.0.1 -c port={port}")
        });
        let place = place.create_database();
        let mut script = String::from(
            "CREATE TABLE customers (email text PRIMARY KEY, plan text NOT NULL, signup_date text NOT NULL);
             CREATE ROLE reader LOGIN PASSWORD 'reader'; GRANT SELECT ON customers TO reader;",
        );
        // The same as those of the SQLite file, but for the dates, which are as long as theirs.
        write!(
            script,
            "INSERT INTO customers SELECT 'user' || n || '@example.com', (ARRAY['free', 'emerald', 'ruby'])[1 + n % 3],
                 (date '2016-01-01' + n % 3600)::text FROM generate_series(0, {}) n; ANALYZE customers;",
            CUSTOMERS - 1
        )?;
        place.run(&script);
        Ok(Database { place, port })
    }

    fn url(&self) -> String {
        format!("postgres://reader:reader@127.0.0.1:{}/{}", self.port, self.place.name)
    }

    fn spile_source(&self) -> String {
        format!("url = \"{}\"", self.url())
    }

    fn toolbox_source(&self) -> ToolboxSource {
        let (port, name) = (self.port, &self.place.name);
        ToolboxSource {
            kind: "postgres",
            settings: format!(
                "host: 127.0.0.1\nport: {port}\ndatabase: {name}\nuser: reader\npassword: reader"
            ),
            placeholder: "$1",
        }
    }
}

struct ToolboxSource {
    kind: &'static str,
    settings: String,
    /// How a statement writes its first parameter.
    placeholder: &'static str,
}

/// What is needed to start the servers.
struct Bench<'a> {
    binaries: &'a Binaries,
    toolbox: String,
    cores: Option<&'a Cores>,
}

impl Bench<'_> {
    fn spile_sqlite(&self) -> String {
        format!("path = \"{}\"", self.binaries.data.join("customers.db"))
    }

    fn toolbox_sqlite(&self) -> ToolboxSource {
        ToolboxSource {
            kind: "sqlite",
            settings: format!("database: {}", self.binaries.data.join("customers.db")),
            placeholder: "?",
        }
    }

    /// Writes a file into a folder of the bench's data.
    fn write(&self, folder: &str, file: &str, text: &str) -> anyhow::Result<String> {
        let folder = self.binaries.data.path().join(folder);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(file), text)?;
        Ok(folder.join(file).display().to_string())
    }

    fn start(&self, command: Vec<String>, at: SocketAddr, program: Program) -> anyhow::Result<Started> {
        let watch = Instrumentation::Uninstrumented(self.cores);
        // Requests are made here, so the kind of peer decides nothing.
        let server = HttpPeer::spawn_and_wait(command, at, Peer::SpileCsv, watch, &[])?;
        Ok(Started { program, server })
    }

    fn bare(&self, url: &str) -> anyhow::Result<Started> {
        let at = free_port()?;
        let command = [&self.binaries.path("peer-postgres"), url, "--bind", &at.to_string()];
        self.start(command.map(str::to_owned).to_vec(), at, Program::Bare)
    }

    fn spile(&self, folder: &str, source: &str) -> anyhow::Result<Started> {
        let manifest = format!(
            "[server]\nname = \"bench\"\n\n[sources.shop]\n{source}\n\n[collections.customers]\nsource = \"shop\"\n\
             table = \"customers\"\noperations = [\"get\", \"list\"]\nrows_max = {PAGE_ROWS}\nbytes_max = {PAGE_BYTES_MAX}\n"
        );
        let manifest = self.write(&format!("spile-{folder}"), "spile.toml", &manifest)?;
        let at = free_port()?;
        let command = [&self.binaries.path("spile"), "serve", &manifest, "--bind", &at.to_string()];
        self.start(command.map(str::to_owned).to_vec(), at, Program::Spile)
    }

    fn toolbox(&self, folder: &str, source: &ToolboxSource) -> anyhow::Result<Started> {
        let ToolboxSource { kind, settings, placeholder } = source;
        let columns = "SELECT email, plan, signup_date FROM customers";
        let tools = format!(
            "kind: source\nname: shop\ntype: {kind}\n{settings}\n---\nkind: tool\nname: {GET}\ntype: {kind}-sql\nsource: shop\n\
             description: Finds a customer.\nstatement: {columns} WHERE email = {placeholder}\nparameters:\n  - name: email\n    \
             type: string\n    description: The email.\n---\nkind: tool\nname: {LIST}\ntype: {kind}-sql\nsource: shop\n\
             description: Lists all customers.\nstatement: {columns} ORDER BY email\n"
        );
        let tools = self.write(&format!("toolbox-{folder}"), "tools.yaml", &tools)?;
        let at = free_port()?;
        let port = at.port().to_string();
        let quiet = ["--disable-reload", "--disable-version-check", "--log-level", "ERROR"];
        let command = [self.toolbox.as_str(), "--config", &tools, "--port", &port];
        let command = command.into_iter().chain(quiet).map(str::to_owned).collect();
        self.start(command, at, Program::Toolbox)
    }
}

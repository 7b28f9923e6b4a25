//! Runs sqlmap on every argument of the examples ([`attacks`](super::attacks)): it must find no injection and change no file.
//!
//! Tools that write are attacked, too: then the data may change only as their calls say. And an endpoint that is injectable on
//! purpose must be found by the same command line, so that the judge is known to be able to fail.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use test_databases::{Kind, TestDatabase};

use super::attacks::{self, Attack};
use crate::cache::Cache;
use crate::sh;

/// The examples, and the path of each that is served.
const EXAMPLES: [(&str, &str); 4] =
    [("customers", "."), ("customers", "customers.db"), ("stock", "."), ("verbs", ".")];
/// The examples whose source is a database.
const SAMPLE_EXAMPLES: [(&str, &str); 2] = [("customers", "customers.db"), ("verbs", ".")];
/// Tools of the examples whose SQL is their author's. A sample attacks their first argument, too.
const STATEMENTS: [&str; 2] = ["best_customers", "lookup_irregular_verb"];
/// Every request stands alone, so sqlmap needs no handshake.
const PROTOCOL: &str = "2026-07-28";
/// The time limit for one argument.
const ARGUMENT_TIMEOUT: Duration = Duration::from_secs(1800);
/// sqlmap sends more calls than this unless it gave up early.
const CALLS_MIN: u64 = 50;

/// Which arguments are attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Every argument of every tool, in all its forms.
    All,
    /// One place of each kind for each database, and an argument of a statement.
    Sample,
}

/// The examples behind a URL: their names, what sqlmap calls the database, and where the example expects it.
const SHOPS: [(&str, &str, Kind, &str); 2] = [
    ("shop-postgres", "postgresql", Kind::Postgres, "${SHOP_URL:-postgres://shop_server@localhost/shop}"),
    ("shop-mysql", "mysql", Kind::MariaDb, "${SHOP_URL:-mysql://shop_server@localhost/shop}"),
];

/// A caller of the shops who may write.
const WRITER_TOKEN: &str = "example-token-of-sam-0123456789";
/// The argument of each tool that writes that a sample attacks.
const SAMPLE_WRITES: [(&str, &str); 2] = [("take_from_stock", "sku"), ("create_orders", "note")];

/// What may not happen while tools that write are attacked, as queries without a row. `was_*` are copies of the tables.
///
/// The calls name no product, the order 1, and for new orders the customer 1 and one day; only notes are theirs to choose.
const VIOLATIONS: [&str; 8] = [
    "SELECT 1 FROM (SELECT * FROM customers EXCEPT SELECT * FROM was_customers) AS x",
    "SELECT 1 FROM (SELECT * FROM was_customers EXCEPT SELECT * FROM customers) AS x",
    "SELECT 1 FROM (SELECT * FROM products EXCEPT SELECT * FROM was_products) AS x",
    "SELECT 1 FROM (SELECT * FROM was_products EXCEPT SELECT * FROM products) AS x",
    "SELECT 1 FROM (SELECT * FROM order_lines EXCEPT SELECT * FROM was_order_lines) AS x",
    "SELECT 1 FROM (SELECT * FROM was_order_lines EXCEPT SELECT * FROM order_lines) AS x",
    "SELECT 1 FROM (SELECT * FROM was_orders WHERE id <> 1 EXCEPT SELECT * FROM orders) AS x",
    "SELECT 1 FROM orders o LEFT JOIN was_orders w ON w.id = o.id WHERE (w.id IS NULL OR w.id = 1) AND NOT (o.customer_id = 1 \
     AND (o.status = 'open' OR o.status = w.status) AND (o.ordered_on = '2026-01-01' OR o.ordered_on = w.ordered_on))",
];

pub fn run(cache: &Cache, spile: &Path, extent: Extent) -> Result<()> {
    run_control(cache)?;
    run_files(cache, spile, extent)?;
    SHOPS.into_iter().try_for_each(|shop| run_shop(cache, spile, extent, shop))
}

/// Attacks an endpoint that is injectable on purpose.
fn run_control(cache: &Cache) -> Result<()> {
    let mut child = Command::new(cache.root().join("sqlmap/bin/python"))
        .arg(sh::repo_root().join("xtask/src/judges/injectable.py"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("the injectable endpoint cannot be started")?;
    let mut port = String::new();
    let read = BufReader::new(child.stdout.take().context("its stdout is a pipe")?).read_line(&mut port);
    let server = SpileServer { child, url: format!("http://127.0.0.1:{}/mcp", port.trim()), token: None };
    ensure!(read? > 0, "the injectable endpoint did not print its port");
    let log =
        run_sqlmap(cache, &server, ("control", "sqlite"), "find_people", "name", &json!({ "name": "x*" }))?;
    let report = fs::read_to_string(&log)?;
    ensure!(is_found(&report), "sqlmap does not find an injection that is there; see {}", log.display());
    println!("  control: the injection that is there was found");
    Ok(())
}

/// Attacks an example with a real database: as a visitor, for whom all tools only read, and what a caller may write.
fn run_shop(
    cache: &Cache,
    spile: &Path,
    extent: Extent,
    (example, dbms, kind, url): (&str, &'static str, Kind, &str),
) -> Result<()> {
    let folder = sh::repo_root().join("examples").join(example);
    let copy = copy_folder(&folder, &cache.root().join("judges").join(example))?;
    let place = TestDatabase::new(kind);
    let role = format!("shop_server_{}", place.name);
    let script = fs::read_to_string(folder.join("shop.sql"))?;
    place.run(&script.replace("shop_server", &role).replace("shop.", &format!("{}.", place.name)));
    let manifest = fs::read_to_string(folder.join("spile.toml"))?;
    fs::write(copy.join("spile.toml"), manifest.replace(url, &place.url_as(&role)))?;
    let before = place.dump();
    let server = SpileServer::start(spile, &copy, ".", None)?;
    let tools = server.tools(spile)?;
    for tool in &tools {
        ensure!(!writes(tool), "{example}: a visitor may write: {}", tool["name"]);
    }
    let tried = attack_all(cache, &server, (example, dbms), &tools, extent)?;
    drop(server);
    ensure!(place.dump() == before, "the data of {example} is not what it was");
    println!("  {example}: {tried} places held, and the database is unchanged");

    for table in ["customers", "products", "orders", "order_lines"] {
        place.run(&format!("CREATE TABLE was_{table} AS SELECT * FROM {table}"));
    }
    place.run("CREATE TABLE violations (x integer NOT NULL)");
    let server = SpileServer::start(spile, &copy, ".", Some(WRITER_TOKEN))?;
    let mut tools = server.tools(spile)?;
    tools.retain(writes);
    for name in ["take_from_stock", "create_orders", "update_orders"] {
        ensure!(tools.iter().any(|tool| tool["name"] == name), "{example}: nobody may call {name}");
    }
    let tried = attack_all(cache, &server, (example, dbms), &tools, extent)?;
    drop(server);
    for violation in VIOLATIONS {
        // The column takes no NULL, so a row of the query ends the program of the database with an error.
        place.run(&format!("INSERT INTO violations SELECT NULL FROM ({violation}) AS found"));
    }
    println!("  {example}: {tried} places of tools that write held, and changed only what their calls say");
    Ok(())
}

fn writes(tool: &Value) -> bool {
    tool["annotations"]["readOnlyHint"] != true
}

fn run_files(cache: &Cache, spile: &Path, extent: Extent) -> Result<()> {
    for (example, served) in EXAMPLES {
        let folder = sh::repo_root().join("examples").join(example);
        // Serves a copy, so that a successful attack does not change the examples.
        let copy = copy_folder(&folder, &cache.root().join("judges").join(example))?;
        if extent == Extent::Sample && !SAMPLE_EXAMPLES.contains(&(example, served)) {
            continue;
        }
        let before = folder_contents(&copy)?;
        let server = SpileServer::start(spile, &copy, served, None)?;
        let tools = server.tools(spile)?;
        let tried = attack_all(cache, &server, (example, "sqlite"), &tools, extent)?;
        drop(server);
        // A tool that may write may have done so legitimately.
        let only_reads = !tools.iter().any(writes);
        ensure!(!only_reads || folder_contents(&copy)? == before, "the data of {example} is not what it was");
        println!("  {example} ({served}): {tried} places held");
    }
    Ok(())
}

/// Attacks all places of all tools, or one of each kind, and returns how many.
fn attack_all(
    cache: &Cache,
    server: &SpileServer,
    example: (&str, &'static str),
    tools: &[Value],
    extent: Extent,
) -> Result<usize> {
    let mut all: Vec<(&Value, Attack)> = Vec::new();
    for tool in tools {
        all.extend(attacks::attacks(tool)?.into_iter().map(|attack| (tool, attack)));
    }
    if extent == Extent::Sample && tools.iter().any(writes) {
        all.retain(|(tool, one)| {
            SAMPLE_WRITES.iter().any(|(name, label)| tool["name"] == *name && one.label == *label)
        });
    } else if extent == Extent::Sample {
        let statement =
            all.iter().find(|(tool, _)| STATEMENTS.iter().any(|name| tool["name"] == *name)).cloned();
        all = attacks::sample(all).into_iter().chain(statement).collect();
    }
    ensure!(!all.is_empty(), "{} has no argument to try", example.0);
    for (tool, one) in &all {
        attack(cache, server, example, tool, one)?;
    }
    Ok(all.len())
}

fn copy_folder(from: &Path, to: &Path) -> Result<PathBuf> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(to.to_owned())
}

/// Every file with its bytes.
fn folder_contents(folder: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut all = fs::read_dir(folder)?
        .map(|entry| {
            let path = entry?.path();
            let bytes = fs::read(&path)?;
            Ok((path, bytes))
        })
        .collect::<Result<Vec<_>>>()?;
    all.sort();
    Ok(all)
}

struct SpileServer {
    child: Child,
    url: String,
    /// With which it is called.
    token: Option<&'static str>,
}

impl SpileServer {
    fn start(spile: &Path, folder: &Path, served: &str, token: Option<&'static str>) -> Result<Self> {
        let token_file = token.map_or(&[][..], |_| &["--token-file", "tokens.json"]);
        let mut child = Command::new(spile)
            .args(["serve", served, "--bind", "127.0.0.1:0"])
            .args(token_file)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("`{}` cannot be started", spile.display()))?;
        let mut stderr = BufReader::new(child.stderr.take().context("its stderr is a pipe")?).lines();
        let url = stderr.by_ref().map_while(Result::ok).find_map(|line| {
            let from = line.find("http://127.0.0.1:")?;
            line[from..].split_whitespace().next().map(str::to_owned)
        });
        // Keeps reading stderr, so that the server never blocks on a full pipe.
        std::thread::spawn(move || stderr.for_each(drop));
        Ok(Self { child, url: url.context("the server did not print its address")?, token })
    }

    /// The header that every request has, if one is needed.
    fn authorization(&self) -> Option<String> {
        self.token.map(|token| format!("Authorization: Bearer {token}"))
    }

    fn tools(&self, spile: &Path) -> Result<Vec<Value>> {
        let mut command = Command::new(spile);
        command.args(["tools", "--url", &self.url, "--json"]);
        if let Some(header) = self.authorization() {
            command.args(["--header", &header]);
        }
        let list = sh::output(&mut command)?;
        let value: Value = serde_json::from_str(&list)?;
        let tools = value["tools"].as_array().or(value.as_array()).context("a list of tools")?;
        Ok(tools.clone())
    }
}

impl SpileServer {
    /// How many calls the server has received.
    fn call_count(&self) -> Result<u64> {
        let authority = self.url.trim_start_matches("http://").split('/').next().unwrap_or_default();
        let mut stream = TcpStream::connect(authority)?;
        let header = self.authorization().map_or_else(String::new, |header| format!("{header}\r\n"));
        stream.write_all(
            format!("GET /status HTTP/1.1\r\nHost: {authority}\r\n{header}Connection: close\r\n\r\n")
                .as_bytes(),
        )?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        let body = response.split_once("\r\n\r\n").context("a status has a body")?.1;
        let status: Value = serde_json::from_str(body)?;
        status["servers"][0]["calls"].as_u64().context("a status counts calls")
    }
}

impl Drop for SpileServer {
    fn drop(&mut self) {
        // It may have exited already; the next request would have failed then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs sqlmap on one place, and returns its report.
fn run_sqlmap(
    cache: &Cache,
    server: &SpileServer,
    (example, dbms): (&str, &str),
    name: &str,
    argument: &str,
    arguments: &Value,
) -> Result<PathBuf> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": PROTOCOL,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": name, "arguments": arguments, "_meta": meta },
    });
    let mut sqlmap = Command::new(cache.root().join("sqlmap/bin/sqlmap"));
    sqlmap
        .args(["-u", &server.url, "--method", "POST", "--data", &body.to_string()])
        .args(["-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream"])
        .args(["-H", &format!("MCP-Protocol-Version: {PROTOCOL}")])
        .args(["-H", "Mcp-Method: tools/call", "-H", &format!("Mcp-Name: {name}")])
        .args(["--batch", "--flush-session", "--disable-coloring", "--dbms", dbms, "--ignore-code", "*"])
        .args(["--level", "5", "--risk", "3", "--output-dir"])
        .arg(cache.root().join("sqlmap-results"));
    if let Some(header) = server.authorization() {
        sqlmap.args(["-H", &header]);
    }
    let log = cache.log("sqlmap");
    let what = format!("sqlmap {example}: {name}.{argument}");
    sh::run_with_timeout(&what, &mut sqlmap, &log, ARGUMENT_TIMEOUT)?;
    Ok(log)
}

fn is_found(report: &str) -> bool {
    ["identified the following injection point", "appears to be injectable", "is vulnerable"]
        .iter()
        .any(|words| report.contains(words))
}

fn attack(
    cache: &Cache,
    server: &SpileServer,
    (example, dbms): (&str, &str),
    tool: &Value,
    one: &Attack,
) -> Result<()> {
    let name = tool["name"].as_str().context("a tool has a name")?;
    let argument = &one.label;
    let calls_before = server.call_count()?;
    let log = run_sqlmap(cache, server, (example, dbms), name, argument, &one.arguments)?;
    let calls = server.call_count()? - calls_before;
    let report = fs::read_to_string(&log)?;
    ensure!(!is_found(&report), "sqlmap found something in {name}.{argument}; see {}", log.display());
    if !report.contains("do not appear to be injectable")
        && !report.contains("does not seem to be injectable")
    {
        bail!("sqlmap did not come to an end with {name}.{argument}; see {}", log.display());
    }
    ensure!(calls >= CALLS_MIN, "only {calls} calls of sqlmap reached {name}; see {}", log.display());
    println!("  {example}: {name}.{argument} held against {calls} calls");
    Ok(())
}

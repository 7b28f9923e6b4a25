//! sqlmap against every argument of the examples: it must find nothing, and change nothing.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::sh;

const EXAMPLES: [&str; 2] = ["customers", "verbs"];
/// Every request stands alone, so sqlmap needs no handshake.
const PROTOCOL: &str = "2026-07-28";
/// One argument may take so long.
const LIMIT: Duration = Duration::from_secs(1800);

pub fn run(cache: &Cache, spile: &Path) -> Result<()> {
    for example in EXAMPLES {
        let folder = sh::top().join("examples").join(example);
        // The examples are read from a copy: whoever finds a way to write shall not write there.
        let copy = copied(&folder, &cache.root().join("judges").join(example))?;
        let before = contents(&copy)?;
        let server = Server::start(spile, &copy)?;
        let mut tried = 0;
        for tool in server.tools(spile)? {
            let name = tool["name"].as_str().context("a tool has a name")?.to_owned();
            let arguments = sample_arguments(&tool);
            for argument in arguments.keys() {
                tried += 1;
                attack(cache, &server.url, example, &name, &arguments, argument)?;
            }
        }
        ensure!(tried > 0, "{example} has no argument to try");
        drop(server);
        ensure!(contents(&copy)? == before, "the data of {example} is not what it was");
    }
    Ok(())
}

fn copied(from: &Path, to: &Path) -> Result<PathBuf> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(to.to_owned())
}

/// Every file with its bytes.
fn contents(folder: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
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

struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(spile: &Path, folder: &Path) -> Result<Self> {
        let mut child = Command::new(spile)
            .args(["serve", ".", "--bind", "127.0.0.1:0"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("`{}` cannot be started", spile.display()))?;
        let mut said = BufReader::new(child.stderr.take().context("its stderr is a pipe")?).lines();
        let url = said.by_ref().map_while(Result::ok).find_map(|line| {
            let from = line.find("http://127.0.0.1:")?;
            line[from..].split_whitespace().next().map(str::to_owned)
        });
        // Read on, so that it never waits for us.
        std::thread::spawn(move || said.for_each(drop));
        Ok(Self { child, url: url.context("the server said no address")? })
    }

    fn tools(&self, spile: &Path) -> Result<Vec<Value>> {
        let said = sh::read(Command::new(spile).args(["tools", "--url", &self.url, "--output", "json"]))?;
        let value: Value = serde_json::from_str(&said)?;
        let tools = value["tools"].as_array().or(value.as_array()).context("a list of tools")?;
        Ok(tools.clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, which the next request would have told.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A value for each argument that can be written down: the first of a choice, else what its type allows.
fn sample_arguments(tool: &Value) -> serde_json::Map<String, Value> {
    let required = |name: &str| {
        let list = tool["inputSchema"]["required"].as_array();
        list.is_some_and(|list| list.iter().any(|one| one == name))
    };
    let mut out = serde_json::Map::new();
    for (name, schema) in tool["inputSchema"]["properties"].as_object().into_iter().flatten() {
        let value = match (&schema["enum"][0], schema["type"].as_str(), schema["format"].as_str()) {
            (first, _, _) if !first.is_null() => first.clone(),
            (_, Some("string"), Some("date")) => json!("2026-01-01"),
            (_, Some("string"), Some("email")) => json!("dana@acme.test"),
            (_, Some("string"), _) => json!("x"),
            (_, Some("integer" | "number"), _) => json!(1),
            (_, Some("boolean"), _) => json!(true),
            _ => continue,
        };
        // A cursor of nobody is refused before anything is read.
        if name != "cursor" || required(name) {
            out.insert(name.clone(), value);
        }
    }
    out
}

fn attack(
    cache: &Cache,
    url: &str,
    example: &str,
    tool: &str,
    arguments: &serde_json::Map<String, Value>,
    argument: &str,
) -> Result<()> {
    let mut arguments = arguments.clone();
    // The mark tells sqlmap where to write; a number is attacked as text, which a schema must refuse.
    let plain = match &arguments[argument] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    arguments.insert(argument.to_owned(), json!(format!("{plain}*")));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": PROTOCOL,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments, "_meta": meta },
    });
    let results = cache.root().join("sqlmap-results");
    let mut sqlmap = Command::new(cache.root().join("sqlmap/bin/sqlmap"));
    sqlmap
        .args(["-u", url, "--method", "POST", "--data", &body.to_string()])
        .args(["-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream"])
        .args(["-H", &format!("MCP-Protocol-Version: {}", PROTOCOL)])
        .args(["-H", "Mcp-Method: tools/call", "-H", &format!("Mcp-Name: {tool}")])
        .args(["--batch", "--flush-session", "--disable-coloring", "--dbms", "sqlite", "--ignore-code", "*"])
        .args(["--level", "5", "--risk", "3", "--output-dir"])
        .arg(&results);
    let log = cache.log("sqlmap");
    let what = format!("sqlmap {example}: {tool}.{argument}");
    sh::watch(&what, &mut sqlmap, &log, LIMIT)?;
    let said = fs::read_to_string(&log)?;
    let is_found = ["identified the following injection point", "appears to be injectable", "is vulnerable"]
        .iter()
        .any(|words| said.contains(words));
    ensure!(!is_found, "sqlmap found something in {tool}.{argument}; see {}", log.display());
    if !said.contains("do not appear to be injectable") && !said.contains("does not seem to be injectable") {
        bail!("sqlmap did not come to an end with {tool}.{argument}; see {}", log.display());
    }
    Ok(())
}

//! Conversations with `examples/customers`, byte for byte: the exchanges that the documentation shows, for each
//! shape of the protocol, over both doors, from the spreadsheet and from the database.
//!
//! A line with `>` is sent, the line with `<` below it is all that comes back. What is new each time has a
//! name instead: `<ref>`, and `<cursor>`, which is also how a later line sends it.
//!
//! With `GOLDEN=write` in the environment the spreadsheet's answers are written down, to be read in the diff.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{HttpServer, StdioServer, TestProject};

#[test]
fn from_the_spreadsheet() {
    let place = TestProject::customers();
    if std::env::var("GOLDEN").is_ok_and(|what| what == "write") {
        for version in VERSIONS {
            let answered = replay(&read_golden(version), &mut StdioTransport::open(&place));
            std::fs::write(golden_path(version), answered).expect("a transcript can be written");
        }
    }
    check(&place);
}

/// Where the rows lie makes no difference to anybody who asks.
#[test]
fn from_the_database() {
    let place = TestProject::customers();
    let manifest = std::fs::read_to_string(place.folder.join("spile.toml")).expect("there is a manifest");
    let (kind, path) =
        ("kind = \"csv\"\npath = \"customers.csv\"", "kind = \"sqlite\"\npath = \"customers.db\"");
    assert!(manifest.contains(kind), "the example reads a spreadsheet");
    place.write("spile.toml", manifest.replace(kind, path).as_bytes());
    std::fs::remove_file(place.folder.join("customers.csv")).expect("it is not needed");
    check(&place);
}

/// The verb tutor: what it is asked for, what it does not know, and what it does not have.
#[test]
fn the_verb_tutor() {
    let place = TestProject::example("verbs");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/verbs.txt");
    let golden = std::fs::read_to_string(&file).expect("a transcript is readable");
    let (stdio, http) = (
        replay(&golden, &mut StdioTransport::open(&place)),
        replay(&golden, &mut HttpTransport::open(&place)),
    );
    if std::env::var("GOLDEN").is_ok_and(|what| what == "write") {
        std::fs::write(&file, &stdio).expect("a transcript can be written");
    } else {
        assert!(stdio == golden, "over stdio it is now:\n{stdio}");
    }
    assert!(http == stdio, "over HTTP it is:\n{http}");
}

/// A list sends the very bytes that arguments are checked with, for every example.
#[test]
fn what_is_listed_is_what_is_checked() {
    for entry in std::fs::read_dir(crate::harness::examples()).expect("there are examples") {
        let folder = entry.expect("a folder is readable").path();
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let place = TestProject::example(&name);
        let looked = spile::project::Project::find(&place.folder).and_then(|project| project.scan());
        let contract =
            looked.expect("an example can be read").compiled.expect("an example can be served").contract;
        let ask = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        let listed = StdioTransport::open(&place).request(ask).expect("an answer");
        assert!(!contract.tools.is_empty());
        for tool in &contract.tools {
            // `Check` is compiled from this text, wherever the contract is served.
            contract::CompiledSchema::compile(&tool.input_schema).expect("a schema");
            for (member, schema) in
                [("inputSchema", &tool.input_schema), ("outputSchema", &tool.output_schema)]
            {
                let bytes = format!("\"{member}\":{}", schema.as_str());
                assert!(listed.contains(&bytes), "{name}: {} of {} is sent otherwise", member, tool.name);
            }
        }
    }
}

/// The database is the text beside it, so that it can be read and changed.
#[test]
fn the_verbs_are_those_of_the_text() {
    let place = TestProject::example("verbs");
    let sql = std::fs::read_to_string(place.folder.join("verbs.sql")).expect("there is a text");
    let made = rusqlite::Connection::open_in_memory().expect("a database");
    made.execute_batch(&sql).expect("the text is SQL");
    let kept = rusqlite::Connection::open(place.folder.join("verbs.db")).expect("a database");
    for table in ["forms", "irregular", "spanish", "subjects"] {
        let rows = |from: &rusqlite::Connection| -> Vec<Vec<String>> {
            let mut all = from
                .prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2, 3"))
                .or_else(|_| from.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")))
                .expect("a table");
            let columns = all.column_count();
            let rows = all.query_map((), |row| (0..columns).map(|at| row.get(at)).collect()).expect("rows");
            rows.map(|row| row.expect("a row")).collect()
        };
        assert_eq!(rows(&made), rows(&kept), "{table}");
    }
}

const VERSIONS: [&str; 3] = ["2024-11-05", "2025-06-18", "2026-07-28"];

fn golden_path(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/golden/{version}.txt"))
}

fn read_golden(version: &str) -> String {
    std::fs::read_to_string(golden_path(version)).expect("a transcript is readable")
}

fn check(place: &TestProject) {
    for version in VERSIONS {
        let golden = read_golden(version);
        let (stdio, http) = (
            replay(&golden, &mut StdioTransport::open(place)),
            replay(&golden, &mut HttpTransport::open(place)),
        );
        assert!(stdio == golden, "{version} over stdio is now:\n{stdio}");
        assert!(http == golden, "{version} over HTTP is now:\n{http}");
    }
}

trait TestTransport {
    /// `None` if nothing comes back.
    fn request(&mut self, message: &str) -> Option<String>;
}

/// The transcript with the answers of today.
fn replay(golden: &str, door: &mut dyn TestTransport) -> String {
    let mut out = String::new();
    let mut cursor = String::new();
    for line in golden.lines().filter(|line| !line.starts_with('<')) {
        out.extend([line, "\n"]);
        let Some(message) = line.strip_prefix("> ") else { continue };
        if let Some(mut answer) = door.request(&message.replace("<cursor>", &cursor)) {
            redact(&mut answer, "ref", "<ref>");
            cursor = redact(&mut answer, "nextCursor", "<cursor>").unwrap_or(cursor);
            out.extend(["< ", &answer, "\n"]);
        }
    }
    out
}

/// Puts a name in the place of a member's text, also within a text that is JSON itself. Returns what was there.
pub fn redact(answer: &mut String, member: &str, name: &str) -> Option<String> {
    let mut hidden = None;
    for quote in ["\"", "\\\""] {
        let begins = format!("{quote}{member}{quote}:{quote}");
        if let Some(at) = answer.find(&begins) {
            let from = at + begins.len();
            let to = from + answer[from..].find(quote).expect("a text ends");
            hidden = Some(answer[from..to].to_owned());
            answer.replace_range(from..to, name);
        }
    }
    hidden
}

/// A client's process.
struct StdioTransport(StdioServer);

impl StdioTransport {
    fn open(place: &TestProject) -> Self {
        Self(StdioServer::open(&mut place.spile(&["serve"])))
    }
}

impl TestTransport for StdioTransport {
    fn request(&mut self, message: &str) -> Option<String> {
        self.0.send(message);
        let sent: Value = serde_json::from_str(message).expect("a transcript holds JSON");
        sent.get("id")?;
        Some(self.0.next())
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let nothing_but_answers = (Vec::new(), Some(0));
            assert_eq!(self.0.close(), nothing_but_answers, "the end of the input is the end");
        }
    }
}

/// One request for each message.
struct HttpTransport {
    server: HttpServer,
    session: Option<String>,
    version: Option<String>,
}

impl HttpTransport {
    fn open(place: &TestProject) -> Self {
        let server = HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0"]));
        Self { server, session: None, version: None }
    }
}

impl TestTransport for HttpTransport {
    fn request(&mut self, message: &str) -> Option<String> {
        let sent: Value = serde_json::from_str(message).expect("a transcript holds JSON");
        let own = &sent["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        let mut heads = String::new();
        if let Some(version) = own.as_str().or(self.version.as_deref()) {
            heads += &format!("MCP-Protocol-Version: {version}\r\n");
        }
        if own.is_string() {
            heads += &format!("Mcp-Method: {}\r\n", sent["method"].as_str().expect("a method"));
            if let Some(name) = sent["params"]["name"].as_str() {
                heads += &format!("Mcp-Name: {name}\r\n");
            }
        }
        if let Some(session) = &self.session {
            heads += &format!("Mcp-Session-Id: {session}\r\n");
        }
        let (head, body) = self.server.post("/mcp", &heads, message);
        if sent["method"] == "initialize" {
            let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
            self.session = session.map(str::to_owned);
            self.version = sent["params"]["protocolVersion"].as_str().map(str::to_owned);
        }
        sent.get("id")?;
        Some(body)
    }
}

//! Sessions with `examples/customers`, byte for byte: the exchanges that the documentation shows, in several protocol
//! versions, over stdio and HTTP, from the CSV file and from the database.
//!
//! A line with `>` is sent; the line with `<` below it is the whole response. Values that differ between runs are
//! replaced: `<ref>`, and `<cursor>`, which a later line can send.
//!
//! With `GOLDEN=write` in the environment the tests write the responses, to be reviewed in the diff.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{HttpServer, StdioServer, TestProject};

#[test]
fn the_csv_file_matches_the_transcripts() {
    let project = TestProject::customers();
    if std::env::var("GOLDEN").is_ok_and(|value| value == "write") {
        for version in VERSIONS {
            let answered = replay(&read_golden(version), &mut StdioTransport::open(&project));
            std::fs::write(golden_path(version), answered).expect("write a transcript");
        }
    }
    check(&project);
}

/// The source makes no difference to a client, except for its name in a description.
#[test]
fn the_database_matches_the_same_transcripts() {
    let project = TestProject::customers();
    let manifest = std::fs::read_to_string(project.folder.join("spile.toml")).expect("a manifest");
    let (kind, path) =
        ("kind = \"csv\"\npath = \"customers.csv\"", "kind = \"sqlite\"\npath = \"customers.db\"");
    assert!(manifest.contains(kind), "the example reads a spreadsheet");
    project.write("spile.toml", manifest.replace(kind, path).as_bytes());
    std::fs::remove_file(project.folder.join("customers.csv")).expect("remove the file");
    for version in VERSIONS {
        let golden = read_golden(version);
        let replayed = replay(&golden, &mut StdioTransport::open(&project));
        let renamed =
            without_contract_version(&replayed).replace(r#"\"customers\" (customers.db)"#, "customers.csv");
        assert!(renamed == without_contract_version(&golden), "{version} is now:\n{replayed}");
    }
}

/// The verb tutor: known verbs, unknown verbs and unknown tools.
#[test]
fn the_verb_tutor_matches_its_transcript() {
    let project = TestProject::example("verbs");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/verbs.txt");
    let golden = std::fs::read_to_string(&file).expect("read a transcript");
    let (stdio, http) = (
        replay(&golden, &mut StdioTransport::open(&project)),
        replay(&golden, &mut HttpTransport::open(&project)),
    );
    if std::env::var("GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&file, &stdio).expect("write a transcript");
    } else {
        assert!(stdio == golden, "over stdio it is now:\n{stdio}");
    }
    assert!(http == stdio, "over HTTP it is:\n{http}");
}

/// `tools/list` sends the bytes of the schemas that validate arguments, for every example.
#[test]
fn listed_schemas_are_the_validated_schemas() {
    for entry in std::fs::read_dir(crate::harness::examples()).expect("the examples folder") {
        let folder = entry.expect("read a folder").path();
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        // These need a database, and their callers a role; `shops` tests them.
        if name.starts_with("shop-") {
            continue;
        }
        let project = TestProject::example(&name);
        // One needs a variable, which a test cannot set for itself.
        let manifest = project.folder.join("spile.toml");
        if let Ok(text) = std::fs::read_to_string(&manifest) {
            std::fs::write(&manifest, text.replace("${SHOP_TOKEN}", "token")).expect("write a copy");
        }
        let scan = spile::project::Project::find(&project.folder).and_then(|project| project.scan());
        let contract = scan.expect("scan an example").compiled.expect("compile an example").contract;
        // With roles, a caller on stdin has none.
        if contract.roles.is_some() {
            continue;
        }
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        let listed = StdioTransport::open(&project).request(request).expect("an answer");
        // A folder of code has no compiled tools.
        assert!(!contract.tools.is_empty() || project.folder.join("tools").is_dir());
        for tool in &contract.tools {
            // The validator is compiled from this text.
            contract::CompiledSchema::compile(&tool.input_schema).expect("a schema");
            assert!(
                contract::lint::lint_input_schema(&tool.name, &tool.input_schema).is_empty(),
                "{name}: {}",
                tool.name
            );
            for (member, schema) in
                [("inputSchema", &tool.input_schema), ("outputSchema", &tool.output_schema)]
            {
                let bytes = format!("\"{member}\":{}", schema.as_str());
                assert!(
                    listed.contains(&bytes),
                    "{name}: {} of {} is not sent as compiled",
                    member,
                    tool.name
                );
            }
        }
    }
}

/// `verbs.sql` is the readable source of `verbs.db`.
#[test]
fn the_verb_database_matches_its_sql_file() {
    let project = TestProject::example("verbs");
    let sql = std::fs::read_to_string(project.folder.join("verbs.sql")).expect("read verbs.sql");
    let from_sql = rusqlite::Connection::open_in_memory().expect("a database");
    from_sql.execute_batch(&sql).expect("run verbs.sql");
    let committed = rusqlite::Connection::open(project.folder.join("verbs.db")).expect("a database");
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
        assert_eq!(rows(&from_sql), rows(&committed), "{table}");
    }
}

/// The version of a contract without a lock file is a hash that depends on descriptions.
fn without_contract_version(transcript: &str) -> String {
    let mut parts = transcript.split("\"version\":\"0+");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "\"version\":\"0+" + part.get(8..).unwrap_or_default())
}

const VERSIONS: [&str; 3] = ["2024-11-05", "2025-06-18", "2026-07-28"];

fn golden_path(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/golden/{version}.txt"))
}

fn read_golden(version: &str) -> String {
    std::fs::read_to_string(golden_path(version)).expect("read a transcript")
}

fn check(project: &TestProject) {
    for version in VERSIONS {
        let golden = read_golden(version);
        let (stdio, http) = (
            replay(&golden, &mut StdioTransport::open(project)),
            replay(&golden, &mut HttpTransport::open(project)),
        );
        assert!(stdio == golden, "{version} over stdio is now:\n{stdio}");
        assert!(http == golden, "{version} over HTTP is now:\n{http}");
    }
}

trait TestTransport {
    /// `None` for a notification.
    fn request(&mut self, message: &str) -> Option<String>;
}

/// The transcript with the current responses.
fn replay(golden: &str, transport: &mut dyn TestTransport) -> String {
    let mut out = String::new();
    let mut cursor = String::new();
    for line in golden.lines().filter(|line| !line.starts_with('<')) {
        out.extend([line, "\n"]);
        let Some(message) = line.strip_prefix("> ") else { continue };
        if let Some(mut answer) = transport.request(&message.replace("<cursor>", &cursor)) {
            redact(&mut answer, "ref", "<ref>");
            cursor = redact(&mut answer, "nextCursor", "<cursor>").unwrap_or(cursor);
            out.extend(["< ", &answer, "\n"]);
        }
    }
    out
}

/// Replaces the string value of a member, also within a string that contains JSON. Returns the old value.
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

/// A server process on a pipe.
struct StdioTransport(StdioServer);

impl StdioTransport {
    fn open(project: &TestProject) -> Self {
        Self(StdioServer::open(&mut project.spile(&["serve"])))
    }
}

impl TestTransport for StdioTransport {
    fn request(&mut self, message: &str) -> Option<String> {
        self.0.send(message);
        let sent: Value = serde_json::from_str(message).expect("a transcript contains JSON");
        sent.get("id")?;
        Some(self.0.next())
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let only_responses = (Vec::new(), Some(0));
            assert_eq!(self.0.close(), only_responses, "the server exits when its input ends");
        }
    }
}

/// One HTTP request for each message.
struct HttpTransport {
    server: HttpServer,
    session: Option<String>,
    version: Option<String>,
}

impl HttpTransport {
    fn open(project: &TestProject) -> Self {
        let server = HttpServer::start(&mut project.spile(&["serve", "--bind", "127.0.0.1:0"]));
        Self { server, session: None, version: None }
    }
}

impl TestTransport for HttpTransport {
    fn request(&mut self, message: &str) -> Option<String> {
        let sent: Value = serde_json::from_str(message).expect("a transcript contains JSON");
        let own = &sent["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        let mut headers = String::new();
        if let Some(version) = own.as_str().or(self.version.as_deref()) {
            headers += &format!("MCP-Protocol-Version: {version}\r\n");
        }
        if own.is_string() {
            headers += &format!("Mcp-Method: {}\r\n", sent["method"].as_str().expect("a method"));
            if let Some(name) = sent["params"]["name"].as_str() {
                headers += &format!("Mcp-Name: {name}\r\n");
            }
        }
        if let Some(session) = &self.session {
            headers += &format!("Mcp-Session-Id: {session}\r\n");
        }
        let (head, body) = self.server.post("/mcp", &headers, message);
        if sent["method"] == "initialize" {
            let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
            self.session = session.map(str::to_owned);
            self.version = sent["params"]["protocolVersion"].as_str().map(str::to_owned);
        }
        sent.get("id")?;
        Some(body)
    }
}

//! Handlers that ask give the same result and the same effects in both eras, with the process stopped and started again between
//! any two rounds. The processes share a store and keys. In the handshake era the call is a task: nothing else of it
//! outlives a process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::mpsc::Receiver;

use serde_json::{Value, json};

use crate::harness::{HttpServer, TEST_TIMEOUT, TestProject, spawn_line_reader};

/// Numbers that look random: the same in each run for one seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The handler of a seed: effects, questions and failures, one after the other or side by side.
fn handler(seed: u64) -> String {
    let mut numbers = Numbers(seed);
    // Every handler asks at least once, so that there is something to cut.
    let mut body = "seen.push(await ask(0));\n".to_owned();
    for step in 1..=3 + numbers.below(3) {
        let _ = match numbers.below(6) {
            0 => writeln!(body, "seen.push(await ask({step}));"),
            1 => writeln!(body, "seen.push(await write({step}));"),
            2 => writeln!(body, "seen.push(await Promise.all([write({step}), ask({step}), ctx.sleep(1)]));"),
            3 => writeln!(
                body,
                "seen.push(await Promise.all([ask({step}), fail({step})]).catch((e) => e.message));"
            ),
            4 => writeln!(body, "seen.push(await fail({step}).catch((e) => e.name)); await write({step});"),
            _ => writeln!(body, "seen.push((await ctx.tool('nested', {{ n: {step} }})).content[0].text);"),
        };
    }
    if numbers.below(4) == 0 {
        body += "await Promise.all([write('last'), fail('last')]);\n";
    }
    format!(
        r#"
        export const metadata = {{ task: "optional" }};
        const schema = {{ type: "object", properties: {{ value: {{ type: "string" }} }}, required: ["value"] }};
        export default async (_: {{}}, ctx: any) => {{
            const seen: unknown[] = [];
            const ask = async (n: number) => {{
                const answer = await ctx.elicit(`k${{n}}`, {{ message: `question ${{n}}`, schema }});
                return answer.action === "accept" ? answer.content.value : answer.action;
            }};
            const write = async (n: unknown) => {{
                await ctx.files.write(`out/effect-${{n}}-${{crypto.randomUUID()}}`, "");
                return `wrote ${{n}}`;
            }};
            const fail = async (n: unknown) => {{
                await ctx.fetch(`https://undeclared.example/${{n}}`).catch(() => {{}});
                throw new TypeError(`failed ${{n}}`);
            }};
            {body}
            return JSON.stringify(seen);
        }};"#
    )
}

const NESTED: &[u8] = br#"
const schema = { type: "object", properties: { value: { type: "string" } }, required: ["value"] };
export default async ({ n }: { n: number }, ctx: any) => {
    await ctx.files.write(`out/effect-nested-${n}-${crypto.randomUUID()}`, "");
    const answer = await ctx.elicit("nested", { message: `nested ${n}`, schema });
    return `${n} ${answer.action}`;
};
"#;

/// What the user does with a question: some are declined, some cancelled.
fn reply(request: &Value) -> Value {
    let message = request["params"]["message"].as_str().expect("a message");
    match message.bytes().map(u32::from).sum::<u32>() % 4 {
        0 => json!({"action": "decline"}),
        1 => json!({"action": "cancel"}),
        _ => json!({"action": "accept", "content": {"value": format!("to {message}")}}),
    }
}

fn project(seed: u64) -> TestProject {
    TestProject::new(&[
        ("spile.toml", b"[permissions]\nwritable_files = [\"out\"]\n"),
        ("tools/t.ts", handler(seed).as_bytes()),
        ("tools/nested.ts", NESTED),
        ("out/README", b""),
    ])
}

fn start(project: &TestProject) -> HttpServer {
    let args = ["serve", ".", "--bind", "127.0.0.1:0", "--key-file", "keys", "--store-file", "store"];
    HttpServer::start(&mut project.spile(&args))
}

fn restart(project: &TestProject, server: HttpServer) -> HttpServer {
    assert_eq!(server.stop().2, Some(0));
    start(project)
}

/// The text of the result, and how often each effect happened.
type Seen = (Value, Value, BTreeMap<String, usize>);

fn seen(project: &TestProject, result: &Value) -> Seen {
    let mut effects = BTreeMap::new();
    for entry in std::fs::read_dir(project.folder.join("out")).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // Without the random part.
        if let Some(effect) = name.strip_prefix("effect-").and_then(|name| name.get(..name.len() - 37)) {
            *effects.entry(effect.to_owned()).or_default() += 1;
        }
    }
    (result["isError"].clone(), result["content"][0]["text"].clone(), effects)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Processes {
    One,
    OnePerRound,
}

/// A client of 2026-07-28.
fn stateless(project: &TestProject, processes: Processes) -> Seen {
    let mut server = start(project);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    let mut params = json!({"name": "t", "arguments": {}, "_meta": meta});
    loop {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: t\r\n";
        let (_, body) = server.post("/mcp", headers, &message.to_string());
        let body = body
            .lines()
            .find_map(|line| line.strip_prefix("data: {"))
            .map_or(body.clone(), |json| format!("{{{json}"));
        let response: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"));
        let result = &response["result"];
        let Some(requests) = result["inputRequests"].as_object() else { return seen(project, result) };
        let answers: serde_json::Map<String, Value> =
            requests.iter().map(|(key, request)| (key.clone(), reply(request))).collect();
        params["requestState"] = result["requestState"].clone();
        params["inputResponses"] = Value::Object(answers);
        if processes == Processes::OnePerRound {
            server = restart(project, server);
        }
    }
}

/// A session of 2025-11-25. It is known to every process with the same keys.
struct Session(String);

impl Session {
    fn open(server: &HttpServer) -> Self {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "t", "version": "1"},
        });
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let (head, _) = server.post("/mcp", "", &message.to_string());
        let id = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session");
        let session = Self(format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-11-25\r\n"));
        session.post(server, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        session
    }

    fn post(&self, server: &HttpServer, message: &Value) -> String {
        server.post("/mcp", &self.0, &message.to_string()).1
    }

    /// The messages of a response that goes on.
    fn stream(&self, server: &HttpServer, message: &Value) -> Receiver<String> {
        let mut stream = TcpStream::connect(server.address).expect("it listens");
        let body = message.to_string();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Accept: application/json, text/event-stream\r\n{}Content-Length: {}\r\n\r\n{body}",
            server.address,
            self.0,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it accepts input");
        spawn_line_reader(stream)
    }
}

fn next_message(lines: &Receiver<String>) -> Value {
    loop {
        let line = lines.recv_timeout(TEST_TIMEOUT).expect("it goes on");
        let data = line.strip_prefix("data: ").unwrap_or(&line);
        if data.starts_with('{') {
            return serde_json::from_str(data).unwrap_or_else(|_| panic!("JSON: {data}"));
        }
    }
}

/// A client of 2025-11-25 that asks for a task. A process ends whenever a question is open, and the next one asks it again.
fn handshake(project: &TestProject) -> Seen {
    let mut server = start(project);
    let session = Session::open(&server);
    let params = json!({"name": "t", "arguments": {}, "task": {"ttl": 600_000}});
    let created =
        session.post(&server, &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}));
    let created = created.lines().find_map(|line| {
        let value: Value = serde_json::from_str(line.strip_prefix("data: ").unwrap_or(line)).ok()?;
        value["result"]["task"]["taskId"].as_str().map(ToOwned::to_owned)
    });
    let id = created.expect("a task");
    let wait = json!({"jsonrpc": "2.0", "id": 3, "method": "tasks/result", "params": {"taskId": id}});
    let mut messages = session.stream(&server, &wait);
    let mut known = BTreeSet::new();
    loop {
        let message = next_message(&messages);
        if message["method"] == "elicitation/create" {
            if known.insert(message["params"]["message"].to_string()) {
                server = restart(project, server);
                messages = session.stream(&server, &wait);
            } else {
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": reply(&message)});
                session.post(&server, &answer);
            }
        } else if message["id"] == 3 {
            return seen(project, &message["result"]);
        }
    }
}

/// The number of handlers; `cargo xtask judges` sets more.
fn handlers() -> u64 {
    std::env::var("SPILE_REPLAYS").map_or(2, |count| count.parse().expect("a number"))
}

#[test]
fn handlers_survive_a_restart_between_any_two_rounds_in_both_eras() {
    for seed in 1..=handlers() {
        let expected = stateless(&project(seed), Processes::One);
        assert!(expected.1.is_string(), "{expected:?}: {}", handler(seed));
        let restarted = stateless(&project(seed), Processes::OnePerRound);
        assert_eq!(restarted, expected, "2026-07-28: {}", handler(seed));
        let task = handshake(&project(seed));
        assert_eq!(task, expected, "2025-11-25: {}", handler(seed));
    }
}

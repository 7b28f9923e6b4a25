//! A folder of code, prompts and resources is a server, without a manifest and without Node.

use serde_json::{Value, json};

use crate::harness::{HttpServer, TEST_TIMEOUT, TestProject};

const ADD: &[u8] = br#"
export const metadata = { title: "Add", description: "Add two numbers.", annotations: { readOnlyHint: true } };
export default ({ a, b }: { a: number; b: number }) => ({ sum: a + b });
"#;

const BOOK: &[u8] = br#"
/** Books a table. */
export default async function book(args: { guests: number }, ctx: any) {
    const started = Date.now();
    const name = await ctx.elicit("name", {
        message: "Whose name?",
        schema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
    });
    const time = await ctx.elicit("time", {
        message: "At what time?",
        schema: { type: "object", properties: { time: { type: "string" } }, required: ["time"] },
    });
    return { guests: args.guests, name: name.content.name, time: time.content.time, same: started === Date.now() || true };
}
"#;

const GREETING: &[u8] =
    b"---\ndescription: Greets somebody.\narguments:\n  - name: who\n    required: true\n---\nHello {{who}}!\n";

fn folder() -> TestProject {
    TestProject::new(&[
        ("tools/add.ts", ADD),
        ("tools/book.ts", BOOK),
        ("prompts/greeting.md", GREETING),
        ("resources/notes.txt", b"Closed on Mondays.\n"),
    ])
}

fn start(project: &TestProject) -> HttpServer {
    HttpServer::start(&mut project.spile(&["serve", ".", "--bind", "127.0.0.1:0"]))
}

/// The response to a request of the stateless era.
fn request(server: &HttpServer, method: &str, params: &Value) -> Value {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default();
    let headers = match name {
        "" => format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n"),
        name => format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n"),
    };
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let (_, body) = server.post("/mcp", &headers, &message.to_string());
    serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"))
}

fn call(server: &HttpServer, tool: &str, arguments: &Value) -> Value {
    request(server, "tools/call", &json!({"name": tool, "arguments": arguments}))
}

#[test]
fn tools_prompts_and_resources_of_a_folder_are_served() {
    let project = folder();
    for (args, expected) in [
        (&["call", "add", "a=1", "b=2.5"][..], "3.5"),
        (&["prompt", "greeting", "who=Ada"], "Hello Ada!"),
        (&["read", "resource://notes"], "Closed on Mondays."),
        (&["read", "resources/notes.txt"], "Closed on Mondays."),
        (&["tools"], "Add two numbers."),
        (&["check"], "2 tools (all code)"),
    ] {
        let output = project.run(args);
        assert_eq!(output.code, Some(0), "{output}");
        assert!(output.stdout.contains(expected), "{output}");
    }
    let output = project.run(&["call", "add", "a=1"]);
    assert_ne!(output.code, Some(0), "{output}");
    assert!(output.to_string().contains("`b`"), "{output}");
}

#[test]
fn a_handler_asks_in_the_same_way_in_both_eras() {
    let project = folder();
    let server = start(&project);
    let mut params = json!({"name": "book", "arguments": {"guests": 4}});
    for (key, value) in [("name", "Ada"), ("time", "20:00")] {
        let asked = request(&server, "tools/call", &params);
        let asked = &asked["result"];
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let question =
            asked["inputRequests"].as_object().expect("questions").keys().next().expect("one").clone();
        let mut content = serde_json::Map::new();
        content.insert(key.into(), json!(value));
        let mut responses = serde_json::Map::new();
        responses.insert(question, json!({"action": "accept", "content": content}));
        params["inputResponses"] = Value::Object(responses);
        params["requestState"] = asked["requestState"].clone();
    }
    let booked = request(&server, "tools/call", &params);
    let booked = &booked["result"]["structuredContent"];
    assert_eq!(
        (&booked["name"], &booked["time"], &booked["guests"]),
        (&json!("Ada"), &json!("20:00"), &json!(4))
    );
    let again = request(&server, "tools/call", &params);
    assert!(again.to_string().contains("already used"), "{again}");
}

#[test]
fn a_broken_tool_leaves_the_others_and_says_where_it_is_broken() {
    let project = folder();
    project.write("tools/broken.ts", b"export default function (x: = 3");
    let output = project.run(&["check"]);
    assert!(
        output.stdout.contains("/shop/tools/broken.ts:1:") || output.stdout.contains("tools/broken.ts:1:"),
        "{output}"
    );
    let server = start(&project);
    assert_eq!(call(&server, "add", &json!({"a": 1, "b": 2}))["result"]["structuredContent"]["sum"], 3);
    assert!(call(&server, "broken", &json!({})).to_string().contains("unknown tool"));
}

#[test]
fn a_changed_tool_is_served_without_a_restart() {
    let project = folder();
    let server = start(&project);
    assert_eq!(call(&server, "add", &json!({"a": 1, "b": 2}))["result"]["structuredContent"]["sum"], 3);
    project.write("tools/add.ts", &String::from_utf8_lossy(ADD).replace("a + b", "a * b * 10").into_bytes());
    let started = std::time::Instant::now();
    while call(&server, "add", &json!({"a": 1, "b": 2}))["result"]["structuredContent"]["sum"] != 20 {
        assert!(started.elapsed() < TEST_TIMEOUT, "the change is never served");
    }
    project.write("tools/new-one.js", b"export default () => 'new';");
    while !call(&server, "new-one", &json!({})).to_string().contains("new") {
        assert!(started.elapsed() < TEST_TIMEOUT, "the new tool is never served");
    }
}

#[test]
fn a_locked_tool_in_code_changes_only_in_compatible_ways_while_it_is_served() {
    let project = folder();
    project.write("spile.toml", b"[server]\nname = \"shop\"\n");
    assert_eq!(project.run(&["compile"]).code, Some(0));
    assert_eq!(project.run(&["check", "--locked"]).code, Some(0));
    let mut server = start(&project);
    let changed = |to: &str| {
        let code = String::from_utf8_lossy(ADD).replace("{ a: number; b: number }", to);
        project.write("tools/add.ts", code.as_bytes());
    };
    changed("{ a: number; b: number; c: number }");
    let output = project.run(&["diff", "--fail-on", "breaking"]);
    assert_eq!(output.code, Some(1), "{output}");
    assert!(output.stdout.contains("breaking") && output.stdout.contains("add input.c"), "{output}");
    assert_eq!(project.run(&["check", "--locked"]).code, Some(1));
    server.wait_for("the changed tools are not served, because callers rely on the old ones: add input.c");
    assert_eq!(call(&server, "add", &json!({"a": 1, "b": 2}))["result"]["structuredContent"]["sum"], 3);
    // A broken file takes nothing away either.
    project.write("tools/add.ts", b"export default (");
    server.wait_for("tools/add.ts:1:");
    assert_eq!(call(&server, "add", &json!({"a": 1, "b": 2}))["result"]["structuredContent"]["sum"], 3);
    changed("{ a: number; b: number; c?: number }");
    let started = std::time::Instant::now();
    while !request(&server, "tools/list", &json!({})).to_string().contains("\"c\"") {
        assert!(started.elapsed() < TEST_TIMEOUT, "the compatible change is never served");
    }
}

#[test]
fn code_reaches_the_data_beside_it_and_nothing_else() {
    let project = folder();
    project.write("people.csv", b"id,name\n1,Ada\n2,Bob\n");
    project.write(
        "tools/names.ts",
        br#"export default async (_: {}, ctx: any) => {
            const page = await ctx.collection("people").list({ limit: 10 });
            return { names: page.items.map((one: any) => one.name) };
        };"#,
    );
    project.write(
        "tools/escape.ts",
        br#"export default async (args: { how: string }, ctx: any) => {
            if (args.how === "fetch") return await ctx.fetch("https://example.com/");
            if (args.how === "files") return await ctx.files.read("/etc/passwd");
            if (args.how === "env") return { home: ctx.env.HOME ?? "hidden" };
            return { process: typeof (globalThis as any).process };
        };"#,
    );
    let server = start(&project);
    let names = call(&server, "names", &json!({}));
    assert_eq!(names["result"]["structuredContent"]["names"], json!(["Ada", "Bob"]), "{names}");
    for how in ["fetch", "files"] {
        let refused = call(&server, "escape", &json!({"how": how}));
        assert_eq!(refused["result"]["isError"], true, "{how}: {refused}");
        assert!(!refused.to_string().contains("root:"), "{refused}");
    }
    let hidden = call(&server, "escape", &json!({"how": "env"}));
    assert!(!hidden.to_string().contains("/root"), "{hidden}");
    let none = call(&server, "escape", &json!({"how": "process"}));
    assert_eq!(none["result"]["structuredContent"]["process"], "undefined", "{none}");
}

#[test]
fn a_folder_with_an_mcp_json_is_served_under_its_name() {
    let project = TestProject::new(&[
        ("mcp.json", br#"{"name":"demo","version":"1.0.0","toolsDir":"./src/tools"}"#),
        ("src/tools/user-profile.ts", br#"
            export const schema = { input: { type: "object", properties: { userId: { type: "string" } }, required: ["userId"] } };
            export default async function userProfile(args, context) { return { id: args.userId, tenant: context.tenant }; }"#),
        ("src/context.ts", br#"export default function createContext(req) { return { tenant: "t1" }; }"#),
    ]);
    let server = start(&project);
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "user-profile", "arguments": {"userId": "123"}}});
    let (_, body) = server.post("/mcp/demo", "", &message.to_string());
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["result"]["structuredContent"], json!({"id": "123", "tenant": "t1"}), "{body}");
}

#[test]
fn every_example_of_the_page_about_code_works() {
    let commands = crate::readme::run_guide(include_str!("../../../../docs/code.md"));
    assert!(commands >= 6, "the page has lost its examples");
}

#[test]
fn check_and_the_banner_count_the_tools_in_code() {
    let place = TestProject::new(&[
        ("customers.csv", b"email,plan\na@b.test,free\n"),
        (
            "tools/greet.ts",
            b"export default function greet(args: { name: string }): string { return args.name; }\n",
        ),
    ]);
    let tools = place.run(&["tools", "--json"]);
    let listed: Value = serde_json::from_str(&tools.stdout).expect("JSON");
    let listed = listed["tools"].as_array().expect("tools").len();
    let checked = place.run(&["check", "--json"]);
    let checked: Value = serde_json::from_str(&checked.stdout).expect("JSON");
    let tools = checked["tools"].as_array().expect("tools");
    assert_eq!(tools.len(), listed, "{checked}");
    let greet = tools.iter().find(|tool| tool["name"] == "greet").expect("a tool in code");
    assert_eq!(greet["kind"], "code");
    let sum: u64 = tools.iter().map(|tool| tool["tokens"].as_u64().expect("a number")).sum();
    let instructions = checked["instructions_tokens"].as_u64().expect("a number");
    assert_eq!(checked["tokens"].as_u64(), Some(sum + instructions));
    let report = place.run(&["check"]);
    assert!(report.stdout.contains(&format!("{listed} tools ({} data, 1 code)", listed - 1)), "{report}");
    let output = place.run(&["serve", "--log-format", "json"]);
    assert!(output.stderr.contains(&format!("\"tools\":{listed}")), "{output}");
}

#[test]
fn dev_shows_what_happens_to_code_with_the_line_at_fault() {
    let project = folder();
    let mut server = HttpServer::start(&mut project.spile(&["dev", ".", "--bind", "127.0.0.1:0"]));
    let add = |code: &[u8]| project.write("tools/add.ts", code);
    add(b"export default ({ a }: { a: number }) => {\n  return a.missing.member;\n};\n");
    server.wait_for("reloaded the code; changed, with another definition: add");
    let failed = call(&server, "add", &json!({"a": 1}));
    assert_eq!(failed["result"]["isError"], true, "{failed}");
    assert!(!failed.to_string().contains("missing"), "the client sees no internals: {failed}");
    server.wait_for("add failed");
    server.wait_for("2 |   return a.missing.member;");
    add(b"export default (");
    server.wait_for("the code has a problem");
    server.wait_for("1 | export default (");
    add(ADD);
    server.wait_for("reloaded the code; added: add");
}

/// Clients compare it to know whether what they remember of a server is still true.
#[test]
fn the_version_of_a_folder_without_data_follows_the_interface_of_its_code() {
    let project = TestProject::new(&[("tools/add.ts", b"export default ({ a }: { a: number }) => a;")]);
    let version = || {
        let checked: Value =
            serde_json::from_str(&project.run(&["check", ".", "--json"]).stdout).expect("JSON");
        checked["version"].as_str().expect("a version").to_owned()
    };
    let first = version();
    project.write("tools/add.ts", b"export default ({ a }: { a: number }) => a + 1;");
    assert_eq!(version(), first, "the same interface");
    project.write("tools/add.ts", b"export default ({ a, b }: { a: number; b: number }) => a + b;");
    let second = version();
    assert_ne!(second, first);
    project.write("tools/more.ts", b"export default () => 1;");
    assert_ne!(version(), second);
}

#[test]
fn a_mistake_in_a_resource_of_the_manifest_is_shown_where_it_stands() {
    let project = TestProject::new(&[
        ("people.csv", b"id,name\n1,Ada\n"),
        (
            "spile.toml",
            b"[sources.people]\npath = \"people.csv\"\n\n[collections.people]\nkey = \"id\"\n\n\
              [resources.all]\nuri = \"people://all\"\ncollection = \"people\"\n",
        ),
    ]);
    let checked = project.run(&["check", "."]);
    let text = format!("{}{}", checked.stdout, checked.stderr);
    assert!(text.contains("spile.toml:8:7"), "{checked}");
}

#[test]
fn a_tool_without_arguments_says_so() {
    let project = TestProject::new(&[("tools/now.ts", b"export default () => 1;")]);
    let called = project.run(&["call", "now", "id=1", "--unchecked", "--from", "."]);
    assert!(called.stderr.contains("this tool takes no arguments"), "{called}");
}

/// Settings of other programs, and values that code imports.
#[test]
fn json_without_rows_beside_code_is_not_data() {
    let project = TestProject::new(&[
        (
            "tools/limit.ts",
            b"import config from '../config.json';\n/** d */\nexport default () => config.limit;\n",
        ),
        ("config.json", b"\n{ \"limit\": 5 }\n"),
        ("words.json", b"[\"a\", \"b\"]\n"),
        ("biome.json", b"\xef\xbb\xbf{ \"linter\": { \"enabled\": true } }\n"),
        ("people.json", b" [ { \"id\": 1, \"name\": \"Ada\" } ]\n"),
    ]);
    let output = project.run(&["check", "."]);
    assert_eq!(output.code, Some(0), "{output}");
    for file in ["config.json", "words.json", "biome.json"] {
        let note = format!("`{file}` is not served as data: it is not an array of objects");
        assert!(output.stdout.contains(&note), "{file}: {output}");
    }
    assert_eq!(project.run(&["call", "limit", "--from", "."]).stdout, "5\n");
    assert!(project.run(&["call", "get_people", "id=1", "--from", "."]).stdout.contains("Ada"));
}

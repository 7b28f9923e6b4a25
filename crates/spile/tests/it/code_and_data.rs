//! Code beside data: operations of collections are calls of their tools, `ctx.sql` reads what is permitted, and permissions
//! follow the manifest.

use serde_json::{Value, json};

use crate::harness::{CommandOutput, HttpServer, TEST_TIMEOUT, TestProject};

const MANIFEST: &[u8] = br#"
[server]
name = "shop"

[sources.crm]
path = "crm.db"

[sources.people]
path = "people.csv"

[collections.people]
source = "people"
key = "id"
operations = ["get", "list", "update"]
confirm = "ask"

[tools.list_people]
uses = "people.list"
rate_limit = "2/min"

[permissions]
sql = ["crm"]
env = ["REGION"]
"#;

fn project(code: &str) -> TestProject {
    let source = format!("export default async (args: any, ctx: any) => {{ {code} }};\n");
    let project = TestProject::new(&[
        ("spile.toml", MANIFEST),
        ("people.csv", b"id,name\n1,Ada\n2,Bea\n"),
        ("tools/run.ts", source.as_bytes()),
    ]);
    let database = rusqlite::Connection::open(project.folder.join("crm.db")).expect("a database");
    let schema = "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, total REAL, paid BOOLEAN NOT NULL);
        INSERT INTO orders VALUES (1, 'Ada', 9.5, 1), (2, 'Bea', NULL, 0), (3, 'Ada', 4, 0);";
    database.execute_batch(schema).expect("a table");
    project
}

/// What the expression is, or the message and the code of its error.
fn evaluate(expressions: &[&str]) -> Vec<Value> {
    let arms: String = expressions
        .iter()
        .enumerate()
        .map(|(n, code)| format!("case {n}: return {{ is: {code} }};\n"))
        .collect();
    let code = format!(
        "try {{ switch (args.n) {{ {arms} }} }} catch (e) {{ return {{ error: e.message, code: e.code }}; }}"
    );
    let project = project(&code);
    let evaluate = |n: usize| {
        let output = project.run(&["call", "run", &format!("n={n}"), "--from", ".", "--json"]);
        structured(&output)
    };
    (0..expressions.len()).map(evaluate).collect()
}

fn structured(output: &CommandOutput) -> Value {
    let result: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output}"));
    result["structuredContent"].clone()
}

#[test]
fn statements_read_with_bound_values() {
    let seen = evaluate(&[
        "await ctx.sql`select id, total, paid from orders where customer = ${'Ada'} order by id`",
        "await ctx.sql('crm')`select count(*) as n from orders where total > ${4} or paid = ${true}`",
        "await ctx.sql`select customer from orders where customer = ${\"x' or '1'='1\"}`",
        "await ctx.sql`select ${null} as a, ${1.5} as b, ${'é'} as c`",
        "await ctx.sql`select id from orders limit ${1} offset ${1}`",
        "await ctx.sql`select id, ${9007199254740993n} as big from orders where id = ${3n}`",
    ]);
    let expected = [
        json!([{"id": 1, "total": 9.5, "paid": true}, {"id": 3, "total": 4, "paid": false}]),
        json!([{"n": 1}]),
        json!([]),
        json!([{"a": null, "b": 1.5, "c": "é"}]),
        json!([{"id": 2}]),
        json!([{"id": 3, "big": "9007199254740993"}]),
    ];
    for (seen, expected) in seen.iter().zip(expected) {
        assert_eq!(seen["is"], expected, "{seen}");
    }
}

#[test]
fn statements_that_write_or_hide_values_are_refused() {
    let seen = evaluate(&[
        "await ctx.sql`delete from orders where id = ${1}`",
        "await ctx.sql`select * from orders where customer = '${'Ada'}'`",
        "await ctx.sql`select * from orders where customer = :name`",
        "await ctx.sql`select 1; select 2`",
        "await ctx.sql`select nope from orders`",
        "await ctx.sql`select ${[1]}`",
        "await ctx.sql`select 1 as a, 2 as a`",
        "await ctx.sql('people')`select * from people`",
        "await ctx.sql`attach database ${'/etc/passwd'} as x`",
        "await ctx.sql`with recursive c(n) as (select 1 union all select n + 1 from c limit 20000) select n from c`",
    ]);
    let expected = [
        "ctx.sql only reads; declare the statement as a tool",
        "outside of quotes and comments",
        "outside of quotes and comments",
        "ctx.sql: ",
        "nope",
        "value 1 must be a text, a number, a boolean or null",
        "two columns are named `a`",
        "the source `people` is not named in `permissions.sql`",
        "ctx.sql: ",
        "exceeds the limit of 10000 rows",
    ];
    for (seen, expected) in seen.iter().zip(expected) {
        assert!(seen["error"].as_str().is_some_and(|error| error.contains(expected)), "{expected}: {seen}");
    }
}

#[test]
fn an_operation_of_a_collection_is_a_call_of_its_tool() {
    let code = r#"
        const seen = [];
        for (const step of args.steps) {
            try { seen.push(await ctx.collection("people")[step.operation](step.arguments)); }
            catch (e) { seen.push(e.code ?? e.message); }
        }
        return { seen };
    "#;
    let project = project(code);
    let server = HttpServer::start(&mut project.spile(&["serve", ".", "--bind", "127.0.0.1:0", "-v"]));
    let call = |steps: Value| {
        let params = json!({"name": "run", "arguments": {"steps": steps}});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let (_, body) = server.post("/mcp", "", &message.to_string());
        let response: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"));
        response["result"]["structuredContent"]["seen"].clone()
    };
    let step = |operation: &str, arguments: Value| json!({"operation": operation, "arguments": arguments});
    let seen = call(json!([
        step("get", json!({"id": 2})),
        step("get", json!({"id": 9})),
        step("get", json!({"id": "x"})),
        step("remove", json!({"id": 1})),
    ]));
    assert_eq!(seen[0]["name"], "Bea", "{seen}");
    assert_eq!((&seen[1], &seen[2]), (&json!("not_found"), &json!("invalid_arguments")), "{seen}");
    assert_eq!(seen[3], "the collection `people` has no operation `remove`");
    // The rate limit of the tool holds, whoever calls it.
    let seen = call(json!([step("list", json!({})), step("list", json!({})), step("list", json!({}))]));
    assert_eq!(seen[2], "rate_limited", "{seen}");
    // The client cannot ask its user, so that a write that must be confirmed is refused.
    let seen = call(json!([step("update", json!({"id": 1, "name": "Eve"}))]));
    assert!(
        seen[0].is_string() && project.files().iter().all(|(_, bytes)| !bytes.ends_with(b"1,Eve\n2,Bea\n")),
        "{seen}"
    );
    let (_, log, _) = server.stop();
    assert!(
        log.contains("list_people") && log.contains("get_people"),
        "nested calls are in the call log: {log}"
    );
}

#[test]
fn permissions_that_are_removed_are_no_longer_granted() {
    let project = project(
        "try { return { is: ctx.env('REGION') ?? 'unset' }; } catch (e) { return { error: e.message }; }",
    );
    let mut command = project.spile(&["serve", ".", "--bind", "127.0.0.1:0"]);
    let server = HttpServer::start(command.env("REGION", "eu"));
    let call = |server: &HttpServer| {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run", "arguments": {}}});
        let (_, body) = server.post("/mcp", "", &message.to_string());
        let response: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"));
        response["result"]["structuredContent"].clone()
    };
    assert_eq!(call(&server), json!({"is": "eu"}));
    let without = String::from_utf8_lossy(MANIFEST).replace("env = [\"REGION\"]", "");
    project.write("spile.toml", without.as_bytes());
    let started = std::time::Instant::now();
    while !call(&server).to_string().contains("not declared") {
        assert!(started.elapsed() < TEST_TIMEOUT, "the permission stays");
    }
}

fn post(server: &HttpServer, method: &str, params: Value) -> Value {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let (_, body) = server.post("/mcp", "", &message.to_string());
    serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"))
}

/// Asks until the answer is as expected.
#[track_caller]
fn wait_for(server: &HttpServer, method: &str, params: &Value, is_expected: impl Fn(&Value) -> bool) {
    let started = std::time::Instant::now();
    loop {
        let answer = post(server, method, params.clone());
        if is_expected(&answer) {
            return;
        }
        assert!(started.elapsed() < TEST_TIMEOUT, "{answer}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn code_moves_into_processes_and_back_when_the_manifest_says_so() {
    let project = project("return { at: ctx.env('REGION') };");
    let mut command = project.spile(&["serve", ".", "--bind", "127.0.0.1:0"]);
    let server = HttpServer::start(command.env("REGION", "eu"));
    let pid = server.pid().as_raw_nonzero();
    let has_workers = || {
        let children = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        children.into_iter().any(|task| {
            std::fs::read_to_string(task.path().join("children")).is_ok_and(|pids| !pids.trim().is_empty())
        })
    };
    let call = json!({"name": "run", "arguments": {}});
    let is_answered = |answer: &Value| answer["result"]["structuredContent"] == json!({"at": "eu"});
    wait_for(&server, "tools/call", &call, is_answered);
    assert!(!has_workers());
    let threads = String::from_utf8_lossy(MANIFEST).into_owned();
    let processes = threads.replace("[server]\n", "[server]\nisolation = \"process\"\n");
    project.write("spile.toml", processes.as_bytes());
    wait_for(&server, "tools/call", &call, |answer| is_answered(answer) && has_workers());
    project.write("spile.toml", threads.as_bytes());
    wait_for(&server, "tools/call", &call, |answer| is_answered(answer) && !has_workers());
}

#[test]
fn resources_of_the_manifest_follow_it() {
    let project = project("return 1;");
    project.write("hours.ts", b"export default ({ day }) => `${day}: 9 to 5`;\n");
    project.write("resources/about.md", b"# About\n");
    let server = HttpServer::start(&mut project.spile(&["serve", ".", "--bind", "127.0.0.1:0"]));
    let read = json!({"uri": "hours://monday"});
    wait_for(&server, "resources/read", &read, |answer| answer["error"].is_object());
    let before = String::from_utf8_lossy(MANIFEST).into_owned();
    let with_code = format!(
        "{before}\n[resources.hours]\nuri = \"hours://{{day}}\"\nscript = \"hours.ts\"\n\n\
         [resources.about]\nfile = \"about.md\"\nuri = \"about://us\"\ntitle = \"About us\"\n"
    );
    project.write("spile.toml", with_code.as_bytes());
    wait_for(&server, "resources/read", &read, |answer| {
        answer["result"]["contents"][0]["text"] == "monday: 9 to 5"
    });
    let list = post(&server, "resources/list", json!({}));
    assert!(list.to_string().contains("about://us"), "{list}");
    // The code of a resource is followed from now on, too.
    project.write("hours.ts", b"export default ({ day }) => `${day}: closed`;\n");
    wait_for(&server, "resources/read", &read, |answer| {
        answer["result"]["contents"][0]["text"] == "monday: closed"
    });
    project.write("spile.toml", before.as_bytes());
    wait_for(&server, "resources/read", &read, |answer| answer["error"].is_object());
    assert_eq!(
        post(&server, "tools/call", json!({"name": "run", "arguments": {}}))["result"]["isError"],
        false
    );
}

#[test]
fn a_source_that_is_not_there_cannot_be_permitted() {
    let project = project("return 1;");
    let wrong = String::from_utf8_lossy(MANIFEST).replace("sql = [\"crm\"]", "sql = [\"crn\"]");
    project.write("spile.toml", wrong.as_bytes());
    let output = project.run(&["check", "."]);
    let shown = output.to_string();
    assert!(shown.contains("there is no source `crn`") && shown.contains("did you mean `crm`?"), "{output}");
}

#[test]
fn code_runs_in_processes_where_the_manifest_says_so() {
    let project =
        project("return { sum: args.a + args.b, rows: await ctx.sql`select count(*) as n from orders` };");
    let isolated = String::from_utf8_lossy(MANIFEST)
        .replace("name = \"shop\"", "name = \"shop\"\nisolation = \"process\"");
    project.write("spile.toml", isolated.as_bytes());
    let output = project.run(&["call", "run", "a=1", "b=2", "--from", ".", "--json"]);
    assert_eq!(structured(&output), json!({"sum": 3, "rows": [{"n": 3}]}), "{output}");
    project.write("spile.toml", isolated.replace("\"process\"", "\"proces\"").as_bytes());
    let output = project.run(&["check", "."]);
    assert!(output.code != Some(0) && output.to_string().contains("did you mean `process`?"), "{output}");
}

#[test]
fn check_proposes_processes_for_code_from_elsewhere() {
    let project = TestProject::new(&[
        ("tools/run.js", b"import pad from 'left';\nexport default () => pad;\n"),
        ("node_modules/left/package.json", br#"{"name":"left","main":"index.js"}"#),
        ("node_modules/left/index.js", b"export default 1;\n"),
    ]);
    let output = project.run(&["check", "."]);
    let shown = output.to_string();
    assert!(
        shown.contains("code from elsewhere (the package left)") && shown.contains("isolation = \"process\""),
        "{output}"
    );
    project.write("spile.toml", b"[server]\nisolation = \"thread\"\n");
    let output = project.run(&["check", "."]);
    assert!(!output.to_string().contains("elsewhere"), "declared: {output}");
}

//! What `ctx` does, and what it refuses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use json::Json;
use script::{
    Collections, EffectFuture, FileRoot, HostRule, HttpRequest, HttpResponse, Network, NetworkFuture,
    Permissions, ScriptServices,
};
use spile_core::Caller;

use crate::harness::{App, AppOptions, PipeClient, folder, write};

/// Answers from a table of URLs and remembers what was asked.
#[derive(Default)]
struct FakeNetwork(Mutex<Vec<HttpRequest>>);

impl Network for FakeNetwork {
    fn send(&self, request: HttpRequest) -> NetworkFuture {
        let redirect = |to: &str| (302, vec![("location".to_owned(), to.to_owned())], Vec::new());
        let (status, headers, body) = match request.url.as_str() {
            "https://api.example.com/json" => (
                200,
                vec![("Content-Type".to_owned(), "application/json".to_owned())],
                br#"{"a":1}"#.to_vec(),
            ),
            "https://api.example.com/bytes" => (200, Vec::new(), vec![0, 255, 7]),
            "https://api.example.com/moved" => redirect("/json"),
            "https://api.example.com/with-password" => redirect("https://ada:secret@api.example.com/json"),
            "https://api.example.com/away" => redirect("https://evil.example/"),
            "https://api.example.com/down" => redirect("http://api.example.com/json"),
            "https://api.example.com/loop" => redirect("/loop"),
            "https://api.example.com/other" => redirect("https://other.example.com/echo"),
            _ => (404, Vec::new(), Vec::new()),
        };
        self.0.lock().expect("no panic before").push(request);
        Box::pin(async move { Ok(HttpResponse { status, headers, body }) })
    }
}

struct FakeCollections;

impl Collections for FakeCollections {
    /// The tools of the folder are the operations.
    fn tool(&self, collection: &str, operation: &str) -> Result<String, String> {
        match (collection, operation) {
            ("orders", "list") => Ok("other".into()),
            _ => Err(format!("the collection `{collection}` has no operation `{operation}`")),
        }
    }

    fn complete(&self, _: &Caller, collection: &str, field: &str, prefix: &str, _: usize) -> EffectFuture {
        let values = format!(r#"["{prefix}{collection}.{field}"]"#);
        Box::pin(std::future::ready(Ok(Json::parse(&values).expect("JSON"))))
    }

    fn sql(&self, _: &Caller, source: &str, parts: Vec<String>, values: Vec<Json>) -> EffectFuture {
        let text = format!("{source} {parts:?} {values:?}");
        Box::pin(async move { Ok(Json::string(&text)) })
    }
}

fn app(body: &str) -> (App, tempfile::TempDir, Arc<FakeNetwork>) {
    let source = format!("export default async (args, ctx) => {{ {body} }};");
    let folder = folder(&[
        ("tools/t.js", &source),
        (
            "tools/other.js",
            "export default (args) => { if (args.fail) throw new Error('other failed'); return { got: args }; };",
        ),
        ("data/a.txt", "hello"),
        ("data/sub/b.json", "{\"b\":2}"),
        ("secret.txt", "secret"),
    ]);
    std::os::unix::fs::symlink("../secret.txt", folder.path().join("data/link.txt")).expect("a link");
    std::os::unix::fs::symlink("..", folder.path().join("data/up")).expect("a link");
    write(folder.path(), "data2/x.txt", "sibling");
    let network = Arc::new(FakeNetwork::default());
    let root =
        |name: &str, can_write| FileRoot { name: name.into(), folder: folder.path().join(name), can_write };
    let permissions = Permissions {
        network: ["api.example.com", "other.example.com"]
            .iter()
            .filter_map(|host| HostRule::parse(host))
            .collect(),
        files: vec![root("data", false), root("data/out", true)],
        client_roots: None,
        env: BTreeMap::from([("REGION".into(), Some("eu".into())), ("UNSET".into(), None)]),
        secrets: BTreeMap::from([("KEY".into(), Some("k1".into())), ("GONE".into(), None)]),
        sql: vec!["shop".into()],
    };
    std::fs::create_dir(folder.path().join("data/out")).expect("a folder");
    let services = ScriptServices {
        permissions,
        network: Some(network.clone()),
        collections: Some(Arc::new(FakeCollections)),
        diagnostics: None,
    };
    (App::with(folder.path(), AppOptions { services, ..AppOptions::default() }), folder, network)
}

/// Runs expressions one by one; each result or error message on a line.
async fn evaluate(expressions: &[&str]) -> String {
    let arms: String = expressions
        .iter()
        .enumerate()
        .map(|(n, code)| format!("case {n}: return JSON.stringify({code});\n"))
        .collect();
    let (app, _folder, _) = app(&format!(
        "try {{ switch (args.n) {{ {arms} }} }} catch (e) {{ return `${{e.name}}: ${{e.message}}`; }}"
    ));
    let mut lines = String::new();
    for (n, code) in expressions.iter().enumerate() {
        let result = app.call("t", &format!(r#"{{"n":{n}}}"#)).await;
        lines += &format!("{code}\n    {}\n", result["content"][0]["text"].as_str().unwrap_or("undefined"));
    }
    lines
}

#[tokio::test]
async fn requests_reach_declared_hosts_only() {
    let seen = evaluate(&[
        r#"await (await ctx.fetch("https://api.example.com/json")).json()"#,
        r#"[...await (await fetch("https://api.example.com/bytes")).bytes()]"#,
        r#"await (async () => { const r = await ctx.fetch("https://api.example.com/moved"); return [r.url, r.redirected, r.headers.get("content-type")]; })()"#,
        r#"(await ctx.fetch("https://api.example.com/moved", { redirect: "manual" })).status"#,
        r#"await ctx.fetch("https://api.example.com/moved", { redirect: "error" })"#,
        r#"await ctx.fetch("https://api.example.com/away")"#,
        r#"await ctx.fetch("https://api.example.com/down")"#,
        r#"await ctx.fetch("https://api.example.com/loop")"#,
        r#"await ctx.fetch("https://evil.example/")"#,
        r#"await ctx.fetch("file:///etc/passwd")"#,
        r#"await ctx.fetch("data:text/plain,x")"#,
        r#"await ctx.fetch("https://api.example.com/with-password")"#,
        r#"await ctx.fetch("https://user:pass@api.example.com/")"#,
        r#"await ctx.fetch("https://api.example.com/", { headers: { host: "evil.example" } })"#,
        r#"await ctx.fetch("https://api.example.com/", { headers: { "x-a": "1\r\nx-b: 2" } })"#,
        r#"await ctx.fetch("https://api.example.com/", { method: "CONNECT" })"#,
        r#"await ctx.fetch("https://api.example.com/json", { signal: AbortSignal.abort() })"#,
    ])
    .await;
    insta::assert_snapshot!(seen);
}

#[tokio::test]
async fn credentials_stay_with_their_origin() {
    let (app, _folder, network) = app(
        r#"return (await ctx.fetch("https://api.example.com/other", { method: "POST", body: "x", headers: { Authorization: "Bearer t", "X-Own": "1" } })).status;"#,
    );
    app.call("t", "{}").await;
    let requests = network.0.lock().expect("no panic before").clone();
    let seen: Vec<_> =
        requests.iter().map(|request| (request.method.as_str(), request.headers.len())).collect();
    // The redirect became a GET: no body, no type of a body, no credentials.
    assert_eq!(seen, [("POST", 3), ("GET", 1)], "{requests:?}");
}

#[tokio::test]
async fn files_are_those_of_declared_folders() {
    let seen = evaluate(&[
        r#"await ctx.files.read("data/a.txt")"#,
        r#"await ctx.files.readJson("./data/sub//b.json")"#,
        r#"await ctx.files.list("data")"#,
        r#"await ctx.files.exists("data/none.txt")"#,
        r#"await ctx.files.read("data/none.txt")"#,
        r#"await ctx.files.read("data/link.txt")"#,
        r#"await ctx.files.read("data/up/secret.txt")"#,
        r#"await ctx.files.read("data/../secret.txt")"#,
        r#"await ctx.files.read("secret.txt")"#,
        r#"await ctx.files.read("data2/x.txt")"#,
        r#"await ctx.files.read("/etc/passwd")"#,
        r#"await ctx.files.read("data/a.txt\0")"#,
        r#"await ctx.files.read("data\\..\\secret.txt")"#,
        r#"await ctx.files.read("data/sub")"#,
        r#"await ctx.files.write("data/new.txt", "x")"#,
        r#"(await ctx.files.write("data/out/deep/new.bin", new Uint8Array([1, 255])), [...await ctx.files.readBytes("data/out/deep/new.bin")])"#,
        r#"(await ctx.files.remove("data/out/deep/new.bin"), await ctx.files.exists("data/out/deep/new.bin"))"#,
        r#"await ctx.files.remove("data/a.txt")"#,
        r#"await ctx.files.read("data/out/deep/new.bin")"#,
    ])
    .await;
    insta::assert_snapshot!(seen);
}

#[tokio::test]
async fn settings_data_and_tools() {
    let seen = evaluate(&[
        r#"[ctx.env("REGION"), ctx.env("UNSET") ?? "unset", ctx.secret("KEY")]"#,
        r#"ctx.env("HOME")"#,
        r#"ctx.secret("GONE")"#,
        r#"ctx.secret("OTHER")"#,
        r#"await ctx.collection("orders").list({ limit: 2 })"#,
        r#"await ctx.collection("nothing").list()"#,
        r#"await ctx.collection("orders").list({ fail: true }).catch((e) => [e.message, e.code])"#,
        r#"await ctx.collection("orders").list(7)"#,
        r#"await ctx.sql("other")`select 1`"#,
        r#"await ctx.sql`select * from t where id = ${1} and name = ${"x'; drop table t"}`"#,
        r#"await ctx.sql("shop")`select ${null}`"#,
        r#"await ctx.sql("select 1")"#,
        r#"await ctx.tool("other", { a: 1 })"#,
        r#"await ctx.tool("other", { fail: true })"#,
        r#"await ctx.tool("missing")"#,
        r#"await ctx.tool("other", 7)"#,
        r#"ctx.requires("telepathy")"#,
        r#"ctx.emit("nonsense")"#,
        r#"ctx.log("loud", "x")"#,
        r#"await ctx.elicit("", {})"#,
        r#"await ctx.elicit("k", { message: "m" })"#,
    ])
    .await;
    insta::assert_snapshot!(seen);
}

#[tokio::test]
async fn a_missing_capability_and_any_error_code_reach_the_client() {
    let (app, _folder, _) = app(
        r#"if (args.code) throw new McpError(args.code, "as asked", { n: 1 }); ctx.requires("sampling.tools"); return 1;"#,
    );
    let error = app.call("t", r#"{"code":-32000}"#).await;
    assert_eq!((error["code"].as_i64(), error["data"]["n"].as_i64()), (Some(-32000), Some(1)), "{error}");
    let error = app.call("t", "{}").await;
    assert_eq!(error["code"], -32021, "{error}");
}

#[tokio::test]
async fn progress_arrives_and_increases() {
    let (app, _folder, _) = app(
        r#"for (const n of [1, 2, 2, 3]) { ctx.progress(n, 3, `step ${n}`); await ctx.sleep(1); } return "done";"#,
    );
    let client = PipeClient::new(&app);
    let result = client.call("t", "{}", |_| panic!("no questions")).await;
    assert_eq!(result["content"][0]["text"], "done", "{result}");
    let notifications = client.notifications.lock().expect("no panic before").clone();
    let seen: Vec<_> =
        notifications.iter().map(|n| n["params"]["message"].as_str().unwrap_or_default()).collect();
    assert_eq!(seen, ["step 1", "step 2", "step 3"]);
}

#[tokio::test]
async fn a_context_function_gives_every_tool_its_second_argument() {
    let folder = folder(&[
        (
            "src/context.ts",
            r#"
            import type { IncomingMessage } from "http";
            export default function createContext(req: IncomingMessage) {
                return { requestId: req.headers["x-request-id"], tool: (req as any).tool, log: "mine" };
            }"#,
        ),
        (
            "tools/my-tool.ts",
            "export default async function myTool(args, context) { return [context.requestId ?? 'none', context.tool, context.log, typeof context.progress, typeof context.ctx.log].join(' '); }",
        ),
    ]);
    let app = App::new(folder.path());
    assert_eq!(app.text("my-tool", "{}").await, "none my-tool mine function function");
}

//! Questions: the same handler in both eras, with restarts between rounds, and no effect twice.

use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use host::{Keyring, SystemPlatform};
use json::Json;
use script::{
    Bundle, BundleOptions, ClientRootAccess, EngineLimits, HostRule, HttpRequest, HttpResponse, Network,
    NetworkFuture, Permissions, ScriptServices,
};
use serde_json::{Value, json};
use spile_core::{Call, Identity, Policy, PolicyContext, PolicyDecision, PolicyRun, Principal};
use state::store::Store;

use crate::harness::{App, AppOptions, PipeClient, build, call_stateless, folder, write};

/// Counts what was requested.
#[derive(Default)]
pub struct CountingNetwork(pub Mutex<Vec<String>>);

impl Network for CountingNetwork {
    fn send(&self, request: HttpRequest) -> NetworkFuture {
        let mut seen = self.0.lock().expect("no panic before");
        seen.push(request.url.path().to_owned());
        let body = format!("{} after {}", request.url.path(), seen.len()).into_bytes();
        let status = if request.url.path().contains("fail") { 500 } else { 200 };
        Box::pin(async move { Ok(HttpResponse { status, headers: Vec::new(), body }) })
    }
}

fn app_with(folder: &Path, network: &Arc<CountingNetwork>, keys: &Path) -> App {
    app_of(&build(folder), network, keys)
}

pub fn app_of(bundle: &Bundle, network: &Arc<CountingNetwork>, keys: &Path) -> App {
    app_sharing(bundle, network, keys, &AppOptions::default().store())
}

/// One of several processes with the same keys and the same store.
pub fn app_sharing(
    bundle: &Bundle,
    network: &Arc<CountingNetwork>,
    keys: &Path,
    store: &Arc<dyn Store>,
) -> App {
    app_on(bundle, network.clone(), keys, store)
}

/// The same, with any network.
pub fn app_on(bundle: &Bundle, network: Arc<dyn Network>, keys: &Path, store: &Arc<dyn Store>) -> App {
    let permissions = Permissions {
        network: HostRule::parse("api.example.com").into_iter().collect(),
        ..Permissions::default()
    };
    let services = ScriptServices { permissions, network: Some(network), ..ScriptServices::default() };
    let keyring = Arc::new(Keyring::open_file(keys, &SystemPlatform::default()).expect("a key file"));
    let options =
        AppOptions { services, keyring: Some(keyring), store: Some(store.clone()), ..AppOptions::default() };
    App::of_bundle(bundle, options)
}

/// Answers a form with the key that it was asked under, where that is known, and with its message.
pub fn accept(request: &Value) -> Value {
    let params = &request["params"];
    match request["method"].as_str() {
        Some("sampling/createMessage") => {
            json!({ "role": "assistant", "content": { "type": "text", "text": "sampled" }, "model": "m" })
        }
        Some("roots/list") => json!({ "roots": [{ "uri": "file:///work" }] }),
        _ => json!({ "action": "accept", "content": { "value": params["message"] } }),
    }
}

const ORDER: &str = r#"
    const form = (message) => ({ message, schema: { type: "object", properties: { value: { type: "string" } } } });
    export default async (args, ctx) => {
        const id = crypto.randomUUID(), at = Date.now(), luck = Math.random();
        const stock = await (await ctx.fetch("https://api.example.com/stock")).text();
        const size = await ctx.elicit("size", form("size"));
        ctx.log("info", "asked once");
        const [price, colour, again] = await Promise.all([
            ctx.fetch("https://api.example.com/price").then((r) => r.text()),
            ctx.elicit("colour", form("colour")),
            ctx.elicit("colour", form("second colour")),
        ]);
        const advice = await ctx.sample("advice", "what now?");
        const roots = await ctx.roots();
        await ctx.fetch(`https://api.example.com/order/${size.content.value}`);
        const same = id.length === 36 && Date.now() >= at && luck >= 0;
        return { stock, price, size: size.content.value, colour: colour.content.value, again: again.content.value,
            advice: advice.content.text, root: roots[0].uri, same };
    };
"#;

fn expected() -> Value {
    json!({
        "stock": "/stock after 1", "price": "/price after 2", "size": "size", "colour": "colour",
        "again": "second colour", "advice": "sampled", "root": "file:///work", "same": true,
    })
}

#[tokio::test]
async fn a_handler_is_written_once_for_both_eras() {
    let folder = folder(&[("tools/order.js", ORDER)]);
    let keys = folder.path().join("keys");

    let network = Arc::new(CountingNetwork::default());
    let client = PipeClient::new(&app_with(folder.path(), &network, &keys));
    let result = client.call("order", "{}", accept).await;
    assert_eq!(result["structuredContent"], expected(), "{result}");
    assert_eq!(*network.0.lock().expect("no panic before"), ["/stock", "/price", "/order/size"]);

    // Each round reaches another process.
    let network = Arc::new(CountingNetwork::default());
    let apps: Vec<App> = (0..5).map(|_| app_with(folder.path(), &network, &keys)).collect();
    let rounds =
        call_stateless(|round| &apps[round as usize], "order", "{}", |_, request| accept(request)).await;
    assert_eq!(rounds.result["structuredContent"], expected(), "{}", rounds.result);
    assert_eq!(rounds.count, 4);
    assert_eq!(*network.0.lock().expect("no panic before"), ["/stock", "/price", "/order/size"]);
}

#[tokio::test]
async fn a_changed_tool_refuses_an_old_journal() {
    let folder = folder(&[("tools/order.js", ORDER)]);
    let keys = folder.path().join("keys");
    let network = Arc::new(CountingNetwork::default());
    let before = app_with(folder.path(), &network, &keys);
    let first = before.call("order", "{}").await;
    write(folder.path(), "tools/order.js", &ORDER.replace("what now?", "what then?"));
    let after = app_with(folder.path(), &network, &keys);
    let params = format!(
        r#","requestState":{},"inputResponses":{{"size":{{"action":"accept","content":{{}}}}}}"#,
        first["requestState"]
    );
    let refused = after.call_as("order", "{}", &params).await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains("the tool changed while it waited for input"), "{refused}");
}

#[tokio::test]
async fn a_handler_that_takes_another_path_is_stopped_with_a_reason() {
    let source = r#"
        const loaded = crypto.randomUUID();
        export default async (args, ctx) => {
            await ctx.fetch(`https://undeclared.example/${loaded}`).catch(() => {});
            await ctx.elicit("k", { message: "m", schema: { type: "object", properties: {} } });
            return "done";
        };
    "#;
    let folder = folder(&[("tools/t.js", source)]);
    let app = App::new(folder.path());
    let rounds = call_stateless(|_| &app, "t", "{}", |_, request| accept(request)).await;
    let message = rounds.result["message"].as_str().unwrap_or_default();
    assert!(message.contains("took another path"), "{}", rounds.result);
    let reports = app.reports.take().join("\n");
    assert!(reports.contains("may depend only on its arguments"), "{reports}");
}

#[tokio::test]
async fn declining_is_an_answer_and_a_timer_that_ran_out_meanwhile_came_first() {
    let source = r#"
        const form = { message: "m", schema: { type: "object", properties: {} } };
        let calls = 0;
        export default async (args, ctx) => {
            // Fresh in every round, or the call could not be replayed.
            if (calls++ > 0) await ctx.sleep(1);
            const answer = ctx.elicit("k", form);
            const first = await Promise.race([answer.then((a) => a.action), ctx.sleep(args.ms).then(() => "timer")]);
            return `${first} ${(await answer).action}`;
        };
    "#;
    let folder = folder(&[("tools/t.js", source)]);
    let app = App::new(folder.path());
    let decline = |_: &str, _: &Value| json!({ "action": "decline" });
    let rounds = call_stateless(|_| &app, "t", r#"{"ms":600000}"#, decline).await;
    assert_eq!(rounds.result["content"][0]["text"], "decline decline", "{}", rounds.result);
    let wait = |_: &str, _: &Value| {
        std::thread::sleep(Duration::from_millis(5));
        json!({ "action": "decline" })
    };
    let rounds = call_stateless(|_| &app, "t", r#"{"ms":1}"#, wait).await;
    assert_eq!(rounds.result["content"][0]["text"], "timer decline", "{}", rounds.result);
}

#[tokio::test]
async fn questions_of_a_called_tool_become_questions_of_the_call() {
    let inner = r#"
        const form = { message: "inner", schema: { type: "object", properties: { value: { type: "string" } } } };
        export default async (args, ctx) => {
            const a = await ctx.fetch("https://api.example.com/inner");
            const one = await ctx.elicit("one", form), two = await ctx.elicit("two", form);
            return `${await a.text()} ${one.content.value} ${two.content.value}`;
        };
    "#;
    let outer = r#"
        export default async (args, ctx) => {
            const both = await Promise.all([ctx.tool("inner"), ctx.tool("inner")]);
            return both.map((result) => result.content[0].text).join(" | ");
        };
    "#;
    let folder = folder(&[("tools/inner.js", inner), ("tools/outer.js", outer)]);
    let keys = folder.path().join("keys");
    let network = Arc::new(CountingNetwork::default());
    let apps: Vec<App> = (0..4).map(|_| app_with(folder.path(), &network, &keys)).collect();
    let answer = |key: &str, _: &Value| json!({ "action": "accept", "content": { "value": key } });
    let rounds = call_stateless(|round| &apps[round as usize], "outer", "{}", answer).await;
    let text = rounds.result["content"][0]["text"].as_str().unwrap_or_default();
    let mut parts: Vec<_> = text
        .split(" | ")
        .map(|part| part.split(" after ").nth(1).unwrap_or_default()[2..].to_owned())
        .collect();
    parts.sort();
    assert_eq!(parts, ["tool-0:one tool-0:two", "tool-1:one tool-1:two"], "{}", rounds.result);
    assert_eq!(network.0.lock().expect("no panic before").len(), 2, "each inner call requests once");
}

/// Notes each decision, and counts those that it makes without a note.
#[derive(Default)]
struct CountingPolicy(Mutex<Vec<String>>);

impl Policy for CountingPolicy {
    fn before(&self, call: &Call, cx: &PolicyContext<'_>) -> PolicyRun<PolicyDecision> {
        if cx.journal.policy_note().is_some() {
            return PolicyRun::Now(PolicyDecision::allow());
        }
        self.0.lock().expect("no panic before").push(call.name().into_owned());
        let note = Some(Json::parse("true").expect("JSON"));
        PolicyRun::Now(PolicyDecision { note, ..PolicyDecision::allow() })
    }
}

#[tokio::test]
async fn the_policy_decides_once_about_a_called_tool_that_asks() {
    let inner = r#"
        const form = { message: "inner", schema: { type: "object", properties: { value: { type: "string" } } } };
        export default async (args, ctx) => {
            const one = await ctx.elicit("one", form), two = await ctx.elicit("two", form);
            return `${one.content.value} ${two.content.value}`;
        };
    "#;
    let outer = r#"
        export default async (args, ctx) => (await ctx.tool("inner")).content[0].text;
    "#;
    let folder = folder(&[("tools/inner.js", inner), ("tools/outer.js", outer)]);
    let (keys, network) = (folder.path().join("keys"), Arc::new(CountingNetwork::default()));
    let policy = Arc::new(CountingPolicy::default());
    let apps: Vec<App> = (0..3).map(|_| app_with(folder.path(), &network, &keys)).collect();
    apps.iter().for_each(|app| app.server.set_policy(policy.clone()));
    let rounds =
        call_stateless(|round| &apps[round as usize], "outer", "{}", |_, request| accept(request)).await;
    assert_eq!(rounds.result["content"][0]["text"], "inner inner", "{}", rounds.result);
    assert_eq!(rounds.count, 2);
    assert_eq!(std::mem::take(&mut *policy.0.lock().expect("no panic before")), ["outer", "inner"]);
    let result = PipeClient::new(&apps[0]).call("outer", "{}", accept).await;
    assert_eq!(result["content"][0]["text"], "inner inner", "{result}");
    assert_eq!(*policy.0.lock().expect("no panic before"), ["outer", "inner"]);
}

/// Neither `elicit` nor a name like it is in a file of the folder, so the syntax does not show that the tool asks.
#[tokio::test]
async fn a_tool_that_asks_through_a_package_or_a_computed_name_can_be_replayed() {
    let package = "export const ask = (ctx, key, form) => ctx.elicit(key, form);";
    let handler = |ask: &str| {
        format!(
            r#"import {{ ask }} from "asker";
            const form = {{ message: "m", schema: {{ type: "object", properties: {{ value: {{ type: "string" }} }} }} }};
            let calls = 0;
            export default async (args, ctx) => {{
                calls += 1;
                if (calls > 1) await ctx.sleep(1);
                const answer = await {ask};
                return `${{answer.content.value}} in call ${{calls}}`;
            }};"#
        )
    };
    let folder = folder(&[
        ("node_modules/asker/package.json", r#"{"name":"asker","type":"module","main":"index.js"}"#),
        ("node_modules/asker/index.js", package),
        ("tools/package.js", &handler("ask(ctx, 'k', form)")),
        ("tools/computed.js", &handler("ctx[['el', 'icit'].join('')]('k', form)")),
    ]);
    let app = App::new(folder.path());
    let client = PipeClient::new(&app);
    for tool in ["package", "computed"] {
        for _ in 0..3 {
            let rounds = call_stateless(|_| &app, tool, "{}", |_, request| accept(request)).await;
            assert_eq!(rounds.result["content"][0]["text"], "m in call 1", "{}", rounds.result);
            let result = client.call(tool, "{}", accept).await;
            assert_eq!(result["content"][0]["text"], "m in call 1", "{result}");
        }
    }
}

/// What the caller may do is decided when it answers, not when it was asked.
#[tokio::test]
async fn a_replayed_handler_sees_the_principal_of_its_round() {
    let source = r#"
        export default async (args, ctx) => {
            const before = ctx.request.tool;
            await ctx.elicit("k", { message: "m", schema: { type: "object", properties: {} } });
            return `${before}: ${ctx.request.principal.scopes.join()}`;
        };
    "#;
    let folder = folder(&[("tools/t.js", source)]);
    let app = App::new(folder.path());
    let named = |scope: &str| {
        let identity = Identity::new("test", "ada").expect("an identity");
        Principal::Named(Arc::new(identity.with_scopes([scope]).expect("a scope")))
    };
    let asked = app.call_by(named("admin"), "t", "{}", "").await;
    let params = format!(
        r#","requestState":{},"inputResponses":{{"k":{{"action":"accept","content":{{}}}}}}"#,
        asked["requestState"]
    );
    let result = app.call_by(named("read"), "t", "{}", &params).await;
    assert_eq!(result["content"][0]["text"], "t: read", "{result}");
}

/// Polls once.
async fn is_pending(mut future: Pin<&mut impl Future>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// A call that is dropped while it waits ends: its thread takes the next one, and its effects stop.
#[tokio::test]
async fn a_cancelled_call_frees_its_place() {
    let source = r#"
        export default async (args, ctx) => {
            if (args.quick) return "quick";
            ctx.signal.addEventListener("abort", () => { for (;;) {} });
            await new Promise(() => setInterval(() => {}, 5));
        };
    "#;
    let folder = folder(&[("tools/t.js", source)]);
    let limits =
        EngineLimits { threads: 1, calls_per_thread_max: 2, cpu_ms_max: 200, ..EngineLimits::default() };
    let app = App::with(folder.path(), AppOptions { limits, ..AppOptions::default() });
    for _ in 0..4 {
        let waiting = tokio::time::timeout(Duration::from_millis(100), app.call("t", "{}")).await;
        assert!(waiting.is_err(), "it waits: {waiting:?}");
        assert_eq!(app.text("t", r#"{"quick":true}"#).await, "quick");
    }
    // Two calls that wait are all that the thread takes.
    let two = async { tokio::join!(app.call("t", "{}"), app.call("t", "{}")) };
    let mut two = std::pin::pin!(tokio::time::timeout(Duration::from_secs(1), two));
    assert!(is_pending(two.as_mut()).await, "both have begun");
    let busy = app.call("t", r#"{"quick":true}"#).await;
    assert_eq!(busy["structuredContent"]["code"], "rate_limited", "{busy}");
}

#[test]
fn a_reload_reports_what_changed() {
    let folder = folder(&[
        ("tools/a.ts", "export default (args: { x: string }) => 1;"),
        ("tools/b.ts", "export default () => 1;"),
        ("tools/c.ts", "import { v } from '../lib/v'; export default () => v;"),
        ("lib/v.ts", "export const v = 1;"),
    ]);
    let app = App::new(folder.path());
    let mut bundle = build(folder.path());
    let unchanged = app.provider.reload(&bundle);
    assert!(!unchanged.changes_catalog() && unchanged.changed_code.is_empty(), "{unchanged:?}");
    write(folder.path(), "lib/v.ts", "export const v = 2;");
    bundle.rebuild(folder.path(), &BundleOptions::default());
    let code = app.provider.reload(&bundle);
    assert_eq!(code.changed_code, ["c"]);
    assert!(!code.changes_catalog(), "{code:?}");
    write(folder.path(), "tools/a.ts", "export default (args: { y: string }) => 1;");
    write(folder.path(), "tools/d.ts", "export default () => 1;");
    std::fs::remove_file(folder.path().join("tools/b.ts")).expect("removed");
    bundle.rebuild(folder.path(), &BundleOptions::default());
    let report = app.provider.reload(&bundle);
    assert!(report.changes_catalog());
    assert_eq!(
        (report.added, report.removed, report.changed_definition),
        (vec!["d".into()], vec!["b".into()], vec!["a".into()])
    );
}

/// `permissions.files = { roots = "client" }`: the client is asked once for its roots, and nothing else can be read.
#[tokio::test]
async fn files_can_be_limited_to_the_roots_of_the_client() {
    let source = r#"
        export default async ({ paths }, ctx) => {
            const read = (path) => ctx.files.read(path).catch((e) => `${e.name}: ${e.message}`);
            return (await Promise.all(paths.map(read))).join("\n");
        };
    "#;
    let writing = r#"export default async ({ path }, ctx) => { await ctx.files.write(path, "new"); return "written"; };"#;
    let folder = folder(&[
        ("tools/read.js", source),
        ("tools/put.js", writing),
        ("work/a b.txt", "in the first root"),
        ("other/deep/b.txt", "in the second root"),
        ("workshop/c.txt", "beside the first root"),
        ("secret.txt", "outside"),
    ]);
    std::os::unix::fs::symlink("../secret.txt", folder.path().join("work/link.txt")).expect("a link");
    let at = |path: &str| folder.path().join(path).display().to_string();
    let roots = json!({ "roots": [
        { "uri": "https://example.com/" },
        { "uri": format!("file://{}/", at("work")) },
        { "uri": format!("file://{}", at("other/deep")) },
    ] });
    let app_with = |access| {
        let permissions = Permissions { client_roots: access, ..Permissions::default() };
        let services = ScriptServices { permissions, ..ScriptServices::default() };
        App::with(folder.path(), AppOptions { services, ..AppOptions::default() })
    };
    let app = app_with(Some(ClientRootAccess::Read));
    let outside = [
        at("secret.txt"),
        at("workshop/c.txt"),
        at("work/../secret.txt"),
        "../secret.txt".into(),
        at("other"),
    ];
    let inside = ["a b.txt".to_owned(), at("work/a b.txt"), format!("file://{}/b.txt", at("other/deep"))];
    let paths: Vec<String> = inside.iter().chain(&outside).cloned().chain(["link.txt".into()]).collect();
    let arguments = json!({ "paths": paths }).to_string();

    let check = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], ["in the first root", "in the first root", "in the second root"], "{text}");
        for line in &lines[3..8] {
            assert!(line.starts_with("PermissionError: files: "), "{text}");
        }
        assert!(lines[8].contains("symbolic link"), "{text}");
        assert!(!text.contains("outside"), "{text}");
    };
    let client = PipeClient::new(&app);
    let result = client.call("read", &arguments, |_| roots.clone()).await;
    check(result["content"][0]["text"].as_str().unwrap_or_default());
    assert_eq!(client.requests.lock().expect("no panic before").len(), 1, "asked once");
    let rounds = call_stateless(|_| &app, "read", &arguments, |_, _| roots.clone()).await;
    check(rounds.result["content"][0]["text"].as_str().unwrap_or_default());
    assert_eq!(rounds.count, 1);

    let no_roots = client.call("read", r#"{"paths":["a"]}"#, |_| json!({ "roots": [] })).await;
    let text = no_roots["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("the client has no roots"), "{no_roots}");

    let arguments = json!({ "path": at("work/new.txt") }).to_string();
    let refused = client.call("put", &arguments, |_| roots.clone()).await;
    let text = refused["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("for reading only"), "{refused}");
    let writer = PipeClient::new(&app_with(Some(ClientRootAccess::Write)));
    let written = writer.call("put", &arguments, |_| roots.clone()).await;
    assert_eq!(written["content"][0]["text"], "written", "{written}");
    assert_eq!(std::fs::read_to_string(at("work/new.txt")).expect("written"), "new");

    // A client on the network could name any folder of this machine.
    let remote = app.call_from("192.0.2.1", "read", r#"{"paths":["a b.txt"]}"#).await;
    let text = remote["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("stdio or a unix socket"), "{remote}");
}

#[tokio::test]
async fn a_question_at_a_url_is_asked_in_both_eras() {
    let source = r#"
        export default async (args, ctx) => {
            const url = new URL("https://example.com/sign-in?for=t");
            const { action, content } = await ctx.elicit("sign-in", { message: "Sign in", url });
            return `${action} ${content}`;
        };
    "#;
    let folder = folder(&[("tools/t.js", source)]);
    let app = App::new(folder.path());
    let check = |params: &Value| {
        let asked = (&params["mode"], &params["message"], &params["url"]);
        let expected = (&json!("url"), &json!("Sign in"), &json!("https://example.com/sign-in?for=t"));
        assert_eq!(asked, expected, "{params}");
    };
    for (action, expected) in
        [("accept", "accept undefined"), ("decline", "decline undefined"), ("cancel", "cancel undefined")]
    {
        let client = PipeClient::new(&app);
        let result = client.call("t", "{}", |_| json!({ "action": action })).await;
        assert_eq!(result["content"][0]["text"], expected, "{result}");
        let requests = std::mem::take(&mut *client.requests.lock().expect("no panic before"));
        assert_eq!((requests.len(), &requests[0]["method"]), (1, &json!("elicitation/create")));
        check(&requests[0]["params"]);
        let rounds = call_stateless(
            |_| &app,
            "t",
            "{}",
            |key, request| {
                assert_eq!((key, &request["method"]), ("sign-in", &json!("elicitation/create")));
                check(&request["params"]);
                json!({ "action": action })
            },
        );
        let rounds = rounds.await;
        assert_eq!(
            (&rounds.result["content"][0]["text"], rounds.count),
            (&json!(expected), 1),
            "{}",
            rounds.result
        );
    }
}

/// Answers `/late` only after `/early`, whichever was asked for first.
#[derive(Default)]
struct RacingNetwork {
    early_has_ended: Arc<tokio::sync::Notify>,
    sent: Mutex<Vec<String>>,
}

impl Network for RacingNetwork {
    fn send(&self, request: HttpRequest) -> NetworkFuture {
        let path = request.url.path().to_owned();
        self.sent.lock().expect("no panic before").push(path.clone());
        let early = self.early_has_ended.clone();
        Box::pin(async move {
            match path.as_str() {
                "/early" => early.notify_one(),
                _ => early.notified().await,
            }
            Ok(HttpResponse { status: 200, headers: Vec::new(), body: path.into_bytes() })
        })
    }
}

#[tokio::test]
async fn parallel_effects_complete_in_the_order_of_the_first_round_whenever_they_are_replayed() {
    let source = r#"
        const form = { message: "m", schema: { type: "object", properties: {} } };
        export default async ({ paths }, ctx) => {
            const order = [];
            const all = paths.map(async (path) => {
                const text = await (await ctx.fetch(`https://api.example.com/${path}`)).text();
                order.push(text);
                return text;
            });
            const winner = await Promise.race(all);
            await Promise.all(all);
            const { action } = await ctx.elicit("k", form);
            return `${winner} of ${order.join()}: ${action}`;
        };
    "#;
    let folder = folder(&[("tools/t.js", source)]);
    let keys = folder.path().join("keys");
    for paths in [r#"["late","early"]"#, r#"["early","late"]"#] {
        let network = Arc::new(RacingNetwork::default());
        let store = AppOptions::default().store();
        let apps: Vec<App> =
            (0..2).map(|_| app_on(&build(folder.path()), network.clone(), &keys, &store)).collect();
        let arguments = format!(r#"{{"paths":{paths}}}"#);
        let rounds =
            call_stateless(|round| &apps[round as usize], "t", &arguments, |_, request| accept(request));
        let result = rounds.await.result;
        assert_eq!(result["content"][0]["text"], "/early of /early,/late: accept", "{paths}: {result}");
        assert_eq!(network.sent.lock().expect("no panic before").len(), 2, "no request is sent twice");
    }
}

/// Answers with as many bytes as the path says.
struct LargeNetwork;

impl Network for LargeNetwork {
    fn send(&self, request: HttpRequest) -> NetworkFuture {
        let bytes = request.url.path()[1..].parse().unwrap_or_default();
        Box::pin(
            async move { Ok(HttpResponse { status: 200, headers: Vec::new(), body: vec![b'x'; bytes] }) },
        )
    }
}

/// A client carries 32 KiB at most.
#[tokio::test]
async fn a_journal_that_is_too_large_for_the_client_waits_in_the_store() {
    let source = r#"
        const form = { message: "m", schema: { type: "object", properties: {} } };
        export default async ({ bytes }, ctx) => {
            const text = await (await ctx.fetch(`https://api.example.com/${bytes}`)).text();
            await ctx.elicit("k", form);
            return `${text.length} bytes`;
        };
    "#;
    let folder = folder(&[("tools/t.js", source)]);
    let keys = folder.path().join("keys");
    let bundle = build(folder.path());
    let store = AppOptions::default().store();
    let app = |store: &Arc<dyn Store>| app_on(&bundle, Arc::new(LargeNetwork), &keys, store);
    let (first, second, stranger) = (app(&store), app(&store), app(&AppOptions::default().store()));
    for bytes in [1000, 100_000] {
        let arguments = format!(r#"{{"bytes":{bytes}}}"#);
        let asked = first.call("t", &arguments).await;
        let state = asked["requestState"].as_str().expect("a state");
        assert!(state.len() < 50_000, "the client carries {} bytes", state.len());
        let params = format!(
            r#","requestState":"{state}","inputResponses":{{"k":{{"action":"accept","content":{{}}}}}}"#
        );
        if bytes == 100_000 {
            let refused = stranger.call_as("t", &arguments, &params).await;
            assert!(refused["message"].is_string(), "another store does not have it: {refused}");
        }
        let result = second.call_as("t", &arguments, &params).await;
        assert_eq!(result["content"][0]["text"], format!("{bytes} bytes"), "{result}");
    }
    let refused = first.call("t", r#"{"bytes":300000}"#).await;
    assert_eq!(refused["structuredContent"]["code"], "too_large", "{refused}");
}

//! Calls that end at once run on the thread of their caller; all others start over on a script thread, and nobody can tell.

use script::{BundleOptions, EngineLimits};
use serde_json::{Value, json};
use spile_core::Principal;
use tempfile::TempDir;

use crate::harness::{App, AppOptions, PipeClient, folder};

/// One call is trial enough, however long it takes: the machine of a test may be busy.
const QUICK: (u32, u64) = (1, 60_000);
const NEVER: (u32, u64) = (u32::MAX, 0);

fn app(folder: &TempDir, (quick_calls_min, quick_ms_max): (u32, u64)) -> App {
    let limits = EngineLimits {
        quick_calls_min,
        quick_call_ms_max: quick_ms_max,
        quick_load_ms_max: quick_ms_max,
        cpu_ms_max: 300,
        memory_bytes_max: 32 << 20,
        ..EngineLimits::default()
    };
    let bundle = BundleOptions { engine_limits: limits.clone(), ..BundleOptions::default() };
    App::with(folder.path(), AppOptions { limits, bundle, ..AppOptions::default() })
}

fn tool(code: &str) -> TempDir {
    folder(&[("tools/t.js", code)])
}

const TRIAL: &str = r#"{"how":"trial"}"#;

/// Whether the second call of a tool ends on the thread of its caller.
async fn is_quick(code: &str) -> bool {
    let folder = tool(code);
    let app = app(&folder, QUICK);
    let first = app.call("t", TRIAL).await;
    let Some(again) = app.call_at_once(Principal::Anonymous, "t", TRIAL) else { return false };
    assert_eq!(again, first, "{code}");
    true
}

#[tokio::test]
async fn functions_of_their_arguments_are_quick() {
    for code in [
        "export default ({ how }) => ({ how });",
        "export default async ({ how }) => { await null; return how; };",
        "export const schema = { output: { type: 'object', properties: { how: { type: 'string' } }, required: ['how'] } };
         export default ({ how }) => ({ how });",
        "const NAMES = ['a', 'b']; export default ({ how }) => NAMES.map((name) => name + how);",
        "export default ({ how }, ctx) => { ctx.log('info', how); return how; };",
        "export default ({ how }) => { throw new Error(`not ${how}`); };",
        "export default ({ how }) => { throw new McpError(-32000, `not ${how}`); };",
    ] {
        assert!(is_quick(code).await, "{code}");
    }
}

#[tokio::test]
async fn whatever_waits_keeps_state_or_cannot_be_interrupted_is_not_quick() {
    for code in [
        "export default async ({ how }, ctx) => { await ctx.sleep(1); return how; };",
        "let count = 0; export default ({ how }) => { count = 1; return how + count; };",
        "export default ({ how }) => `${how} ${2n ** 8n}`;",
        "export default ({ how }) => `${BigInt(how.length)}`;",
        "export default ({ how }) => `${globalThis['Big' + 'Int'](how.length)}`;",
        "export default ({ how }) => `${how} ${Reflect.getOwnPropertyDescriptor(globalThis, 'BigInt').get()(7)}`;",
        "export default ({ how }) => `${how} ${new globalThis['BigInt' + '64Array'](1)}`;",
        "export default ({ how }) => `${how} ${new DataView(new ArrayBuffer(8)).getBigInt64(0)}`;",
        "export default ({ how }) => `${how} ${new DataView(new ArrayBuffer(8))['getBig' + 'Uint64'](0)}`;",
        "const N = Object.freeze([globalThis['Big' + 'Int'](7)]); export default ({ how }) => `${how} ${N[0] * N[0]}`;",
        "export default async ({ how }, ctx) => how === 'trial' ? 'a' : ctx.elicit('k', { message: 'm', schema: {} });",
    ] {
        assert!(!is_quick(code).await, "{code}");
    }
    let folder = tool("export default ({ how }) => how.length;");
    let app = app(&folder, QUICK);
    app.call("t", TRIAL).await;
    assert!(app.call_at_once(Principal::Anonymous, "t", TRIAL).is_some());
    let long = format!(r#"{{"how":"{}"}}"#, "x".repeat(20 << 10));
    let at_once = app.call_at_once(Principal::Anonymous, "t", &long);
    assert_eq!(at_once, None, "much work may follow from long arguments");
}

/// After a trial, a call with `how` does something else than before. Its result is that of a tool that is never quick.
async fn check(body: &str) {
    let code = format!(
        "export default async ({{ how }}, ctx) => {{ if (how === 'trial') return 'quick'; {body} }};"
    );
    let folder = tool(&code);
    let (quick, never) = (app(&folder, QUICK), app(&folder, NEVER));
    quick.call("t", TRIAL).await;
    let at_once = quick.call_at_once(Principal::Anonymous, "t", TRIAL);
    assert!(at_once.is_some_and(|result| result["content"][0]["text"] == "quick"), "{body}");
    let arguments = r#"{"how":"now"}"#;
    let known = |mut result: Value| {
        // A reference into the log is another one each time.
        if let Some(data) = result["structuredContent"].as_object_mut() {
            data.remove("ref");
        }
        result
    };
    let expected = known(never.call("t", arguments).await);
    assert_eq!(known(quick.call("t", arguments).await), expected, "{body}");
    assert_eq!(quick.reports.take(), never.reports.take(), "{body}");
    assert_eq!(quick.text("t", TRIAL).await, "quick", "{body}");
}

#[tokio::test]
async fn a_call_that_is_not_quick_after_all_ends_as_it_would_elsewhere() {
    for body in [
        "await ctx.sleep(1); return 'waited';",
        "let n = 0; for (let i = 0; i < 1e6; i++) n += i; return n;",
        "while (true) {}",
        "try { while (true) {} } catch { return 'caught'; }",
        "const f = () => f() + 1; return f();",
        "return 'x'.repeat(1e5).length;",
        "try { return 'x'.repeat(1e5).length; } catch (error) { return error.message; }",
        "return JSON.parse('[' + '1,'.repeat(5e4) + '1]').length;",
        "return Array(1e5).fill(1).sort().length;",
        "return new Uint8Array(1e5).sort().length;",
        "try { return `${new DataView(new ArrayBuffer(8)).getBigInt64(0)}`; } catch (error) { return error.message; }",
        "return typeof BigInt;",
        "try { return `${BigInt(7)}`; } catch (error) { return error.message; }",
        "const t = 'a\u{301}'.repeat(3e4); for (let i = 0; i < 9999; i++) t.normalize('NFD'); return t.length;",
        "const t = JSON.stringify(Array(3e4).fill(1)); let n = 0; for (let i = 0; i < 99; i++) n += JSON.parse(t).length; return n;",
        "const a = Array(6e4).fill(3); for (let i = 0; i < 9; i++) a.toSorted(); return a.length;",
        "const t = 'A'.repeat(6e4); for (let i = 0; i < 99; i++) try { t.toLowerCase(); } catch {} return t.toLowerCase()[0];",
        "const t = 'ä'.repeat(6e4); for (let i = 0; i < 99; i++) encodeURIComponent(t); return encodeURIComponent(t).length;",
        "const t = 'ä'.repeat(6e4); for (let i = 0; i < 99; i++) new TextEncoder().encode(t); return t.length;",
        "let a = []; for (let i = 0; i < 16; i++) a = [a, a]; return JSON.stringify(a).length;",
        "return 'a'.repeat(6e4).concat('b').repeat(2).indexOf('b');",
        "let s = 'x'; for (;;) s += s;",
        "Promise.reject(new Error('nobody hears')); return 1;",
        "throw new TypeError('a bug');",
        "return undefined;",
        "return new Uint8Array(3);",
        "return { then(done) { done('adopted'); } };",
        "return { get then() { throw new Error('no'); } };",
        "await new Promise(() => {});",
    ] {
        check(body).await;
    }
}

#[tokio::test]
async fn code_from_text_is_not_quick() {
    let folder = tool("export default ({ how }) => `${how} ${eval('2n ** 8n')}`;");
    let limits = EngineLimits {
        quick_calls_min: 1,
        quick_call_ms_max: 60_000,
        quick_load_ms_max: 60_000,
        ..EngineLimits::default()
    };
    let bundle = BundleOptions { eval_tools: ["t".to_owned()].into(), ..BundleOptions::default() };
    let app = App::with(folder.path(), AppOptions { limits, bundle, ..AppOptions::default() });
    assert_eq!(app.text("t", TRIAL).await, "trial 256");
    assert_eq!(app.call_at_once(Principal::Anonymous, "t", TRIAL), None);
}

#[tokio::test]
async fn what_a_call_said_before_it_started_over_is_said_once() {
    let folder = tool(
        "export default async ({ how }, ctx) => {
           ctx.progress(1, 2, how);
           if (how !== 'trial') { await ctx.sleep(1); ctx.progress(2, 2, how); }
           return how;
         };",
    );
    let app = app(&folder, QUICK);
    let client = PipeClient::new(&app);
    for how in ["trial", "trial", "now", "trial"] {
        let arguments = format!(r#"{{"how":"{how}"}}"#);
        let result = client.call("t", &arguments, |_| json!(null)).await;
        assert_eq!(result["content"][0]["text"], how);
    }
    let notifications = client.notifications.lock().expect("no panic before");
    let said: Vec<&str> = notifications.iter().filter_map(|one| one["params"]["message"].as_str()).collect();
    assert_eq!(said, ["trial", "trial", "now", "now", "trial"]);
}

#[tokio::test]
async fn callers_do_not_share_what_a_quick_tool_keeps() {
    // The syntax does not show that this is state.
    let folder = tool(
        "function calls() { const own = calls; own.count = (own.count ?? 0) + 1; return own.count; }
         export default ({ how }) => `${how} ${calls()}`;",
    );
    let app = app(&folder, QUICK);
    app.call("t", TRIAL).await;
    let call = |principal: &Principal| {
        let result = app.call_at_once(principal.clone(), "t", r#"{"how":"call"}"#).expect("quick");
        result["content"][0]["text"].as_str().expect("a text").to_owned()
    };
    let [ann, ben] = ["ann", "ben"].map(|name| Principal::local(name).expect("a name"));
    assert_eq!([call(&ann), call(&ann), call(&ben), call(&ann)], ["call 1", "call 2", "call 1", "call 3"]);
}

#[tokio::test]
async fn time_and_randomness_are_those_of_each_call() {
    let folder = tool(
        "export default () => {
           const now = Date.now();
           for (let i = 0; i < 1000; i++) if (Date.now() !== now) throw new Error('the clock moved');
           return [now > 1.7e12, crypto.randomUUID(), Math.random()].join();
         };",
    );
    let app = app(&folder, QUICK);
    let mut seen = vec![app.text("t", "{}").await];
    for _ in 0..3 {
        let result = app.call_at_once(Principal::Anonymous, "t", "{}").expect("quick");
        seen.push(result["content"][0]["text"].as_str().expect("a text").to_owned());
    }
    assert!(seen.iter().all(|text| text.starts_with("true,")), "{seen:?}");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[tokio::test]
async fn a_reload_ends_what_an_older_version_kept() {
    let before = folder(&[("tools/t.js", "export default () => 'before';")]);
    let after = folder(&[("tools/t.js", "export default () => 'after';")]);
    let app = app(&before, QUICK);
    app.call("t", "{}").await;
    assert!(app.call_at_once(Principal::Anonymous, "t", "{}").is_some());
    // The same code is read again when a file was saved without a change.
    app.provider.reload(&script::Bundle::build(before.path(), &BundleOptions::default()));
    assert_eq!(app.call_at_once(Principal::Anonymous, "t", "{}"), None, "a new trial");
    assert_eq!(app.text("t", "{}").await, "before");
    assert!(app.call_at_once(Principal::Anonymous, "t", "{}").is_some());
    app.provider.reload(&script::Bundle::build(after.path(), &BundleOptions::default()));
    assert_eq!(app.text("t", "{}").await, "after");
    let at_once = app.call_at_once(Principal::Anonymous, "t", "{}").expect("quick again");
    assert_eq!(at_once["content"][0]["text"], "after");
}

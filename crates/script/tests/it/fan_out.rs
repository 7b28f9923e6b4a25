//! Handlers that start many effects at once, and what their neighbours notice of it.

use std::sync::Arc;

use script::EngineLimits;
use serde_json::json;

use crate::harness::{App, AppOptions, folder};
use crate::rounds::CountingNetwork;

const INNER: &str = r#"
    export default async ({ n }, ctx) => {
        await ctx.sleep(1);
        await Promise.all([ctx.sleep(1), ctx.sleep(1), ctx.sleep(1)]);
        return { n };
    };
"#;
const OUTER: &str = r#"
    export default async ({ count }, ctx) => {
        const all = Array.from({ length: count }, (_, n) => ctx.tool("inner", { n }));
        const results = await Promise.allSettled(all);
        const failed = results.filter((one) => one.status === "rejected" || one.value.isError);
        return {
            sum: results.reduce((sum, one) => sum + (one.value?.structuredContent?.n ?? 0), 0),
            failed: failed.length,
            reason: failed[0]?.value?.content?.[0]?.text ?? String(failed[0]?.reason ?? ""),
        };
    };
"#;

fn app(limits: EngineLimits) -> (tempfile::TempDir, App) {
    let folder = folder(&[
        ("tools/inner.js", INNER),
        ("tools/outer.js", OUTER),
        ("tools/plain.js", "export default async (_, ctx) => { await ctx.sleep(1); return 'plain'; };"),
    ]);
    let app = App::with(folder.path(), AppOptions { limits, ..AppOptions::default() });
    (folder, app)
}

/// One thread with eight places: every message of the fan-out and of the neighbours must find room.
#[tokio::test]
async fn a_call_of_many_tools_ends_and_its_neighbours_are_answered() {
    let (_folder, app) =
        app(EngineLimits { threads: 1, calls_per_thread_max: 32, ..EngineLimits::default() });
    let neighbours = async {
        for _ in 0..50 {
            assert_eq!(app.text("plain", "{}").await, "plain");
        }
    };
    let (wide, ()) = tokio::join!(app.call("outer", r#"{"count":50}"#), neighbours);
    assert_eq!(wide["structuredContent"], json!({ "sum": 1225, "failed": 0, "reason": "" }), "{wide}");
}

#[tokio::test]
async fn the_calls_below_one_call_are_bounded_with_a_reason() {
    let (_folder, app) = app(EngineLimits::default());
    let result = app.call("outer", r#"{"count":1003}"#).await;
    assert_eq!(result["structuredContent"]["failed"], 3, "{result}");
    let reason = result["structuredContent"]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("one call may make 1000 calls of other tools"), "{reason}");
}

#[tokio::test]
async fn many_effects_that_complete_at_once_are_all_delivered() {
    let source = r#"
        export default async (_, ctx) => {
            const get = async (n) => (await ctx.fetch(`https://api.example.com/${n}`)).text();
            const all = await Promise.all(Array.from({ length: 500 }, (_, n) => get(n)));
            return { count: new Set(all).size };
        };
    "#;
    let folder = folder(&[("tools/t.js", source)]);
    let keys = folder.path().join("keys");
    let network = Arc::new(CountingNetwork::default());
    let app = crate::rounds::app_of(&crate::harness::build(folder.path()), &network, &keys);
    let result = app.call("t", "{}").await;
    assert_eq!(result["structuredContent"], json!({ "count": 500 }), "{result}");
}

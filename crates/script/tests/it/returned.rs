//! What a handler returns or throws, and what its caller gets.

use serde_json::{Value, json};
use spile_core::Principal;

use crate::harness::{App, AppOptions, PipeClient, folder};

async fn returned(declarations: &str, value: &str) -> Value {
    let code = format!("{declarations}\nexport default async (args, ctx) => {{ {value} }};");
    let folder = folder(&[("tools/t.js", &code)]);
    App::new(folder.path()).call("t", "{}").await
}

const OUTPUT: &str = r#"export const schema = { output: {
    type: "object", properties: { content: { type: "array" }, n: { type: "number" } }, required: ["n"] } };"#;

#[tokio::test]
async fn a_declared_output_holds_for_every_value() {
    for (value, expected) in [
        (r#"return { n: 1 };"#, Ok(json!({ "n": 1 }))),
        // Data that looks like a result.
        (
            r#"return { n: 1, content: [{ type: "text", text: "x" }] };"#,
            Ok(json!({ "n": 1, "content": [{ "type": "text", "text": "x" }] })),
        ),
        (
            r#"return { content: [{ type: "text", text: "x" }], structuredContent: { n: 1 } };"#,
            Ok(json!({ "n": 1 })),
        ),
        (
            r#"return { content: [{ type: "text", text: "x" }], structuredContent: { n: "1" } };"#,
            Err("does not match its output schema"),
        ),
        (r#"return { content: [{ type: "text", text: "x" }] };"#, Err("does not match its output schema")),
        (r#"return { content: [{ type: "text", text: "wrong" }], isError: true };"#, Err("wrong")),
    ] {
        let result = returned(OUTPUT, value).await;
        match expected {
            Ok(structured) => assert_eq!(result["structuredContent"], structured, "{value}: {result}"),
            Err(reason) => {
                assert_eq!(result["isError"], true, "{value}: {result}");
                assert!(result.to_string().contains(reason), "{value}: {result}");
            }
        }
    }
}

#[tokio::test]
async fn without_an_output_schema_a_result_is_one_by_its_known_blocks() {
    let result = returned("", r#"return { content: [{ type: "text", text: "x" }] };"#).await;
    assert_eq!((&result["content"][0]["text"], &result["structuredContent"]), (&json!("x"), &Value::Null));
    let data = json!({ "content": [{ "type": "chapter", "pages": 3 }] });
    let result = returned("", &format!("return {data};")).await;
    assert_eq!((&result["structuredContent"], &result["isError"]), (&data, &json!(false)), "{result}");
    let result = returned("", r#"return { content: [{ type: "image", data: "AA==" }] };"#).await;
    assert!(result.to_string().contains("without `mimeType`"), "{result}");
}

#[tokio::test]
async fn half_a_surrogate_pair_becomes_a_replacement_character_everywhere() {
    let folder = folder(&[
        ("tools/echo.js", "export default ({ text }) => ({ text });"),
        (
            "tools/t.js",
            r#"export default async (args, ctx) => {
                const half = "a\ud800b";
                ctx.progress(1, 2, half);
                ctx.log.error({ half });
                const echo = await ctx.tool("echo", { text: half });
                return { half, [half]: 1, echo: echo.structuredContent.text };
            };"#,
        ),
        ("tools/throws.js", r#"export default () => { throw new Error("a\ud800b"); };"#),
    ]);
    let app = App::new(folder.path());
    let client = PipeClient::new(&app);
    let result = client.call("t", "{}", |_| panic!("no questions")).await;
    let whole = "a\u{fffd}b";
    assert_eq!(result["structuredContent"], json!({ "half": whole, whole: 1, "echo": whole }), "{result}");
    let notifications = client.notifications.lock().expect("no panic before").clone();
    let params: Vec<&Value> = notifications.iter().map(|one| &one["params"]).collect();
    assert!(params.iter().any(|one| one["message"] == whole), "{params:?}");
    assert!(params.iter().any(|one| one["data"]["half"] == whole && one["level"] == "error"), "{params:?}");
    let thrown = app.call("throws", "{}").await;
    assert_eq!(thrown["content"][0]["text"], whole, "{thrown}");
}

#[tokio::test]
async fn a_call_that_runs_out_of_memory_says_so() {
    for code in [
        // Each promise waits for the next one.
        "const f = () => Promise.resolve().then(f); f(); await new Promise(() => {});",
        "const all = []; for (;;) all.push(new Array(1000).fill({}));",
        "let text = 'x'; const all = []; for (;;) { all.push({ text }); }",
    ] {
        let folder = folder(&[("tools/t.js", &format!("export default async () => {{ {code} }};"))]);
        let limits = script::EngineLimits {
            memory_bytes_max: 8 << 20,
            cpu_ms_max: 20_000,
            ..script::EngineLimits::default()
        };
        let app = App::with(folder.path(), AppOptions { limits, ..AppOptions::default() });
        let result = app.call("t", "{}").await;
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains("bytes of memory"), "{code}: {result}");
    }
}

#[tokio::test]
async fn a_rejection_that_nobody_handles_is_the_reason_why_a_call_never_ends() {
    let result = returned("", "Promise.reject(new Error('lost')); await new Promise(() => {});").await;
    assert_eq!(result["isError"], true, "{result}");
    assert!(!result.to_string().contains("never happens"), "{result}");
    let result = returned("", "await new Promise(() => {});").await;
    assert!(result.to_string().contains("never happens"), "{result}");
}

#[tokio::test]
async fn module_state_in_a_literal_is_kept_between_calls() {
    let folder = folder(&[(
        "tools/t.js",
        "const state = { count: 0 };\nexport default () => ({ count: ++state.count });",
    )]);
    let app = App::new(folder.path());
    for count in 1..40 {
        let ann = Principal::local("ann").expect("a name");
        let result = app.call_by(ann, "t", "{}", "").await;
        assert_eq!(result["structuredContent"]["count"], count, "{result}");
    }
}

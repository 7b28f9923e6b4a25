//! Prompts in code: what they take, what they return, and what is wrong with them.

use serde_json::{Value, json};

use crate::harness::{App, folder, problems, respond};

async fn request(app: &App, method: &str, params: Value) -> Value {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
    });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let response = respond(&app.server, &message.to_string()).await;
    let value: Value = serde_json::from_str(response.text()).expect("JSON");
    value.get("result").unwrap_or(&value["error"]).clone()
}

async fn get(app: &App, name: &str, arguments: Value) -> Value {
    request(app, "prompts/get", json!({ "name": name, "arguments": arguments })).await
}

const REVIEW: &str = r#"
type Arguments = {
    /** The code to review. */
    code: string;
    language?: "Rust" | "SQL";
};
/** Reviews code. */
export default ({ code, language }: Arguments) => `Review this ${language ?? ""} code: ${code}`;
"#;

#[tokio::test]
async fn the_arguments_of_a_prompt_come_from_its_types() {
    let folder = folder(&[("prompts/review.ts", REVIEW)]);
    let app = App::new(folder.path());
    let list = request(&app, "prompts/list", json!({})).await;
    assert_eq!(
        list["prompts"],
        json!([{
            "name": "review",
            "description": "Reviews code.",
            "arguments": [
                { "name": "code", "description": "The code to review.", "required": true },
                { "name": "language", "required": false },
            ],
        }])
    );
    let result = get(&app, "review", json!({ "code": "a + b", "language": "Rust" })).await;
    assert_eq!(
        result["messages"],
        json!([{ "role": "user", "content": { "type": "text", "text": "Review this Rust code: a + b" } }])
    );
    for (arguments, expected) in [
        (json!({}), "code"),
        (json!({ "code": "a", "language": "Go" }), "language"),
        (json!({ "code": "a", "tone": "kind" }), "tone"),
    ] {
        let error = get(&app, "review", arguments.clone()).await;
        assert_eq!(error["code"], -32602, "{arguments}: {error}");
        assert!(
            error["message"].as_str().is_some_and(|text| text.contains(expected)),
            "{arguments}: {error}"
        );
    }
}

#[tokio::test]
async fn the_allowed_values_and_the_listed_ones_are_completed() {
    let listed = r#"
        export const metadata = { arguments: ["topic", { name: "city", complete: ["Bonn", "Berlin", "Köln"] }] };
        export default ({ topic, city }) => `${topic} in ${city}`;
    "#;
    let folder = folder(&[("prompts/review.ts", REVIEW), ("prompts/talk.js", listed)]);
    let app = App::new(folder.path());
    let complete = async |name: &str, argument: &str, value: &str| {
        let params = json!({
            "ref": { "type": "ref/prompt", "name": name }, "argument": { "name": argument, "value": value },
        });
        let result = request(&app, "completion/complete", params).await;
        result.get("completion").map_or(result.clone(), |completion| completion["values"].clone())
    };
    assert_eq!(complete("review", "language", "").await, json!(["Rust", "SQL"]));
    assert_eq!(complete("review", "language", "s").await, json!(["SQL"]));
    assert_eq!(complete("talk", "city", "B").await, json!(["Bonn", "Berlin"]));
    assert_eq!(complete("talk", "topic", "x").await, json!([]));
    assert_eq!(complete("talk", "other", "").await["code"], -32602);
}

/// A handler's returned value, as JavaScript, and the messages that clients get.
async fn check(returned: &str, expected: Result<Value, &str>) {
    let folder = folder(&[("prompts/p.js", &format!("export default () => ({returned});"))]);
    let app = App::new(folder.path());
    let result = get(&app, "p", json!({})).await;
    match expected {
        Ok(messages) => assert_eq!(result["messages"], messages, "{returned}: {result}"),
        Err(reason) => {
            assert_eq!(result["code"], -32603, "{returned}: {result}");
            assert!(result["message"].as_str().is_some_and(|text| text.contains(reason)), "{result}");
            assert!(!app.reports.take().is_empty(), "the author is told");
        }
    }
}

#[tokio::test]
async fn a_prompt_returns_a_text_messages_or_the_whole_result() {
    let text = |role: &str, text: &str| json!({ "role": role, "content": { "type": "text", "text": text } });
    check("'hello'", Ok(json!([text("user", "hello")]))).await;
    check(
        "['a', { role: 'assistant', content: 'b' }]",
        Ok(json!([text("user", "a"), text("assistant", "b")])),
    )
    .await;
    check(
        "({ description: 'd', messages: [{ role: 'user', content: ['a', { type: 'text', text: 'b' }] }] })",
        Ok(json!([text("user", "a"), text("user", "b")])),
    )
    .await;
    let image = json!({ "type": "image", "data": "AA==", "mimeType": "image/png" });
    check(&format!("[{image}]"), Ok(json!([{ "role": "user", "content": image }]))).await;
    check("undefined", Err("returned nothing")).await;
    check("7", Err("neither a text nor a list of messages")).await;
    check("[{ role: 'system', content: 'x' }]", Err("neither `user` nor `assistant`")).await;
    check("[{ role: 'user' }]", Err("without `content`")).await;
    check("[{ type: 'video', url: 'x' }]", Err("unknown type `video`")).await;
    check("new Uint8Array(3)", Err("returned bytes")).await;
    check("(() => { throw new Error('no such topic'); })()", Err("no such topic")).await;
    check("null.x", Err("the server's log has the details")).await;
}

#[tokio::test]
async fn a_prompt_asks_and_is_replayed() {
    let asks = r#"
        export default async (_, ctx) => {
            const schema = { type: "object", properties: { value: { type: "string" } }, required: ["value"] };
            const answer = await ctx.elicit("topic", { message: "Which topic?", schema });
            return `About ${answer.content.value}`;
        };
        export const metadata = { arguments: [] };
    "#;
    let folder = folder(&[("prompts/ask.js", asks)]);
    let app = App::new(folder.path());
    let asked = get(&app, "ask", json!({})).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let params = json!({
        "name": "ask", "arguments": {}, "requestState": asked["requestState"],
        "inputResponses": { "topic": { "action": "accept", "content": { "value": "tea" } } },
    });
    let result = request(&app, "prompts/get", params).await;
    assert_eq!(result["messages"][0]["content"]["text"], "About tea", "{result}");
}

#[test]
fn what_is_wrong_with_a_prompt_is_said_with_its_place() {
    for (code, expected) in [
        ("export default ({ a }) => a;", "the arguments of the prompt are unknown"),
        ("export default ({ n }: { n: number }) => `${n}`;", "`n`: arguments of prompts are texts"),
        (
            "export const metadata = { arguments: 7 }; export default () => '';",
            "`arguments`: expected a list",
        ),
        ("export const metadata = { schema: 1 }; export default () => '';", "unknown key `schema`"),
        ("export const x = 1;", "a prompt must export a default function"),
    ] {
        let folder = folder(&[("prompts/p.ts", code)]);
        let told = problems(folder.path());
        assert!(told.contains(expected) && told.contains("prompts/p.ts"), "{code}: {told}");
    }
}

//! The document as text, and what must never be in it.

use json::Json;
use spile_core::{Prompt, PromptArgument, Resource, ResourceTemplate, Tool, ToolAnnotations};

use super::{bytes, clock_time, duration, render, render_unauthorized};
use crate::view::{
    CallOutcome, CallView, ConnectSnippet, PageView, ReloadView, ServerView, SourceView, UnservedView,
    UpstreamHealth, UpstreamView,
};
use crate::{ASSETS, SECURITY_HEADERS, activity_json, overview_json};

fn tool() -> Tool {
    let input = r#"{"type":"object","properties":{"email":{"type":"string","format":"email","description":"Whose record."},"plan":{"enum":["free","ruby"]}},"required":["email"]}"#;
    let output = r#"{"type":"object"}"#;
    Tool {
        title: Some("Look up a customer".into()),
        output_schema: Some(Json::parse(output).expect("JSON")),
        annotations: ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() },
        ..Tool::new("lookup_customer", "Returns one record.", Json::parse(input).expect("JSON"))
    }
}

fn server<'a>(name: &'a str, tools: Vec<&'a Tool>) -> ServerView<'a> {
    ServerView {
        name,
        version: "1.0.0",
        instructions: Some("Customer records by email."),
        url: "http://127.0.0.1:3333/mcp".into(),
        snippets: vec![ConnectSnippet {
            client: "curl",
            place: "shell",
            text: "curl http://127.0.0.1:3333/mcp".into(),
        }],
        tools,
        resources: Vec::new(),
        resource_templates: Vec::new(),
        prompts: Vec::new(),
        unserved: Vec::new(),
        health: "ok",
        source_count: 1,
        unavailable_sources: Vec::new(),
        reload: None,
        uptime_ms: 61_000,
        calls_total: 1,
        calls_active: 0,
        sessions: 0,
        recent_calls: Vec::new(),
        recorded_since_ms: 1_000,
    }
}

fn page(servers: Vec<ServerView<'_>>) -> PageView<'_> {
    PageView { servers, upstreams: Vec::new(), failed_servers: Vec::new(), requires_token: false }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}

fn call(name: Option<&str>, outcome: CallOutcome) -> CallView<'_> {
    CallView {
        at_ms: 50_000,
        kind: "tool",
        name,
        outcome,
        duration_ms: 3,
        response_bytes: 1234,
        is_nested: false,
    }
}

#[test]
fn a_server_with_one_tool() {
    let tool = tool();
    let mut server = server("customers", vec![&tool]);
    server.recent_calls = vec![call(Some("lookup_customer"), CallOutcome::Ok)];
    insta::assert_snapshot!(text(render(&page(vec![server]))));
}

#[test]
fn everything_that_a_page_can_show() {
    let resource = Resource { uri: "resource://a".into(), name: "a".into(), ..Resource::default() };
    let template = ResourceTemplate {
        uri_template: "resource://verbs/{verb}".into(),
        name: "verbs".into(),
        mime_type: Some("text/plain".into()),
        ..ResourceTemplate::default()
    };
    let prompt = Prompt {
        name: "drill".into(),
        title: Some("Drill a verb".into()),
        arguments: vec![PromptArgument { name: "verb".into(), required: true, ..PromptArgument::default() }],
        ..Prompt::default()
    };
    let full = ServerView {
        resources: vec![&resource],
        resource_templates: vec![&template],
        prompts: vec![&prompt],
        unserved: vec![UnservedView { kind: "tool".into(), name: "broken", reason: "its schema is invalid" }],
        health: "degraded",
        source_count: 2,
        unavailable_sources: vec![
            SourceView { name: "crm", reason: "the file is locked", is_readable: false },
            SourceView { name: "notes", reason: "the folder is read-only", is_readable: true },
        ],
        reload: Some(ReloadView { at_ms: 7_000, outcome: "rejected", message: Some("line 3: unknown key") }),
        recent_calls: vec![
            CallView { is_nested: true, ..call(None, CallOutcome::ToolError(Some("not_found"))) },
            call(Some("drill"), CallOutcome::InputRequired),
            call(Some("drill"), CallOutcome::Error("timeout")),
        ],
        ..server("verbs", Vec::new())
    };
    let view = PageView {
        servers: vec![server("customers", Vec::new()), full],
        upstreams: Vec::new(),
        failed_servers: vec![SourceView { name: "stock.xlsx", reason: "not a workbook", is_readable: false }],
        requires_token: true,
    };
    insta::assert_snapshot!("everything", text(render(&view)));
    insta::assert_snapshot!("activity", text(activity_json(&view)));
    insta::assert_snapshot!("overview", text(overview_json(&view)));
}

#[test]
fn the_servers_behind_a_gateway() {
    let connected = UpstreamView {
        name: "github".into(),
        url: "http://127.0.0.1:3333/mcp/github".into(),
        state: "connected",
        health: UpstreamHealth::Good,
        detail: "github-mcp 2.1.0 · protocol 2025-11-25".into(),
        reconnects: 2,
        tools: 41,
        tokens: 8_120,
        unapproved: vec!["create_issue".into()],
    };
    let waiting = UpstreamView {
        name: "jira".into(),
        state: "needs-auth",
        health: UpstreamHealth::Bad,
        detail: "sign in with: spile login jira".into(),
        ..UpstreamView::default()
    };
    let view = PageView { upstreams: vec![connected, waiting], ..page(vec![server("gateway", Vec::new())]) };
    insta::assert_snapshot!("gateway", text(render(&view)));
    insta::assert_snapshot!("gateway_activity", text(activity_json(&view)));
}

#[test]
fn hostile_texts_stay_texts() {
    const EVIL: &str = "</code></pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'\u{202e}\u{0}";
    let evil_schema = Json::object(|o| {
        o.str("type", "object").object("properties", |o| {
            o.object(EVIL, |o| {
                o.str("type", EVIL).str("description", EVIL);
            });
        });
    });
    let tool = Tool { title: Some(EVIL.into()), ..Tool::new(EVIL, EVIL, evil_schema) };
    let resource = Resource {
        uri: EVIL.into(),
        name: EVIL.into(),
        description: Some(EVIL.into()),
        mime_type: Some(EVIL.into()),
        ..Resource::default()
    };
    let prompt = Prompt { name: EVIL.into(), description: Some(EVIL.into()), ..Prompt::default() };
    let snippet = ConnectSnippet { client: "curl", place: "shell", text: EVIL.into() };
    let hostile = ServerView {
        version: EVIL,
        instructions: Some(EVIL),
        url: EVIL.into(),
        snippets: vec![snippet],
        resources: vec![&resource],
        prompts: vec![&prompt],
        unserved: vec![UnservedView { kind: EVIL.into(), name: EVIL, reason: EVIL }],
        unavailable_sources: vec![SourceView { name: EVIL, reason: EVIL, is_readable: false }],
        reload: Some(ReloadView { at_ms: 0, outcome: "rejected", message: Some(EVIL) }),
        recent_calls: vec![call(Some(EVIL), CallOutcome::Ok)],
        ..server(EVIL, vec![&tool])
    };
    let upstream = UpstreamView {
        name: EVIL.into(),
        url: EVIL.into(),
        detail: EVIL.into(),
        unapproved: vec![EVIL.into()],
        ..UpstreamView::default()
    };
    let html = text(render(&PageView { upstreams: vec![upstream], ..page(vec![hostile]) }));
    assert_eq!(html.matches("<script").count(), 1, "only the page's own script");
    assert!(!html.contains("<img") && !html.contains('\u{202e}') && !html.contains('\0'));
    // Nothing in the document is code: no inline script, style or handler, no address elsewhere.
    for forbidden in
        ["<style", "style=", " onerror=\"", " onclick", "javascript:", "href=\"http", "src=\"http"]
    {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    let unauthorized = text(render_unauthorized(EVIL));
    assert_eq!(unauthorized.matches("<script").count(), 1);
}

#[test]
fn very_many_tools_and_very_long_texts_are_cut() {
    let tools: Vec<Tool> = (0..600)
        .map(|n| Tool::new(&format!("tool_{n}"), "d", Json::parse(r#"{"type":"object"}"#).expect("JSON")))
        .collect();
    let html = text(render(&page(vec![server("many", tools.iter().collect())])));
    assert!(html.contains("tool_499") && !html.contains("tool_500") && html.contains("And 100 more"));
    let long = Tool { description: Some("é".repeat(1 << 20)), ..tool() };
    assert!(render(&page(vec![server("long", vec![&long])])).len() < 64 << 10);
}

#[test]
fn times_and_sizes_are_short() {
    assert_eq!(clock_time(50_645_123), "14:04:05");
    for (ms, expected) in [(0, "0 s"), (61_000, "1 min"), (3_720_000, "1 h 2 min"), (90_000_000, "1 d 1 h")] {
        assert_eq!(duration(ms), expected);
    }
    assert_eq!([bytes(999), bytes(1_000), bytes(2_500_000)], ["999 B", "1.0 kB", "2.5 MB"]);
}

#[test]
fn the_policy_allows_nothing_inline_and_nothing_from_elsewhere() {
    let (_, policy) =
        SECURITY_HEADERS.iter().find(|(name, _)| *name == "content-security-policy").expect("one");
    assert!(
        policy.starts_with("default-src 'none'") && !policy.contains("unsafe") && !policy.contains("http")
    );
    for asset in ASSETS {
        assert!(asset.body.len() < 15 << 10, "{} is not small", asset.path);
        for word in ["http:", "https:", "//cdn", "@import", "innerHTML", "eval("] {
            let is_namespace = asset.path.ends_with(".svg") && word == "http:";
            assert!(is_namespace || !asset.body.contains(word), "{} contains {word}", asset.path);
        }
    }
}

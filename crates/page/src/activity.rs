//! The page's data for programs.

use json::Json;
use json::write::ObjectWriter;

use crate::render::{clock_time, upstream_detail};
use crate::view::{CallView, PageView, ServerView, SourceView, UpstreamView};

/// What changes while the page is open: the state of sources, counters and recent calls.
pub fn activity_json(view: &PageView<'_>) -> Vec<u8> {
    object(|out| {
        out.array("servers", &view.servers, |out, server| extend(out, &server_activity(server)));
        if !view.upstreams.is_empty() {
            out.array("upstreams", &view.upstreams, |out, upstream| extend(out, &upstream_json(upstream)));
        }
    })
}

/// For a client that asks for the root and accepts no HTML: which servers there are, and where.
pub fn overview_json(view: &PageView<'_>) -> Vec<u8> {
    object(|out| {
        out.array("servers", &view.servers, |out, server| {
            let entry = Json::object(|o| {
                o.str("name", server.name).str("version", server.version);
                o.str("url", &server.url).str("transport", "streamable-http").str("status", server.health);
                o.int("tools", server.tools.len() as i64);
                o.int("resources", (server.resources.len() + server.resource_templates.len()) as i64);
                o.int("prompts", server.prompts.len() as i64);
            });
            extend(out, &entry);
        });
        out.bool("tokenRequired", view.requires_token);
    })
}

fn server_activity(server: &ServerView<'_>) -> Json {
    Json::object(|o| {
        o.str("name", server.name).str("version", server.version).str("status", server.health);
        o.int("sources", server.source_count as i64);
        o.array("unavailable", &server.unavailable_sources, |out, source| extend(out, &source_json(source)));
        o.int("calls", server.calls_total.min(i64::MAX as u64) as i64);
        o.int("callsActive", server.calls_active as i64).int("sessions", server.sessions as i64);
        o.array("recentCalls", &server.recent_calls, |out, call| extend(out, &call_json(call)));
    })
}

fn upstream_json(upstream: &UpstreamView) -> Json {
    let number = |count: usize| count as i64;
    Json::object(|o| {
        o.str("name", &upstream.name).str("url", &upstream.url).str("state", upstream.state);
        o.str("class", upstream.health.class()).str("detail", &upstream_detail(upstream));
        o.int("reconnects", upstream.reconnects.min(i64::MAX as u64) as i64);
        o.int("tools", number(upstream.tools)).int("tokens", number(upstream.tokens));
        o.array("unapproved", &upstream.unapproved, |out, tool| json::write::string(out, tool));
    })
}

fn source_json(source: &SourceView<'_>) -> Json {
    Json::object(|o| {
        o.str("name", source.name).str("reason", source.reason).bool("readable", source.is_readable);
    })
}

fn call_json(call: &CallView<'_>) -> Json {
    Json::object(|o| {
        o.str("time", &clock_time(call.at_ms)).str("kind", call.kind).maybe_str("name", call.name);
        o.str("outcome", call.outcome.text()).str("class", call.outcome.class());
        o.int("ms", call.duration_ms.min(i64::MAX as u64) as i64).int("bytes", call.response_bytes as i64);
        o.bool("nested", call.is_nested);
    })
}

fn object(fill: impl FnOnce(&mut ObjectWriter<'_>)) -> Vec<u8> {
    Json::object(fill).as_str().as_bytes().to_vec()
}

fn extend(out: &mut Vec<u8>, json: &Json) {
    out.extend_from_slice(json.as_str().as_bytes());
}

//! The state of all servers at one moment, as one caller may see it.

use ::page::{
    CallView, PageView, ReloadView, ServerView, SourceView, UnservedView, UpstreamHealth, UpstreamView,
};
use host::{CallerIdentity, OfferedCatalog, Server, SourceHealth, Status, UnavailableSource};
use spile_core::CallTarget;

use super::call_history::RecordedCall;
use super::{Page, SnippetRequest};
use crate::http::{HttpService, server_path};

pub(super) struct ServiceSnapshot<'s> {
    service: &'s HttpService,
    page: &'s Page,
    servers: Vec<ServerSnapshot<'s>>,
    upstreams: Vec<UpstreamView>,
}

struct ServerSnapshot<'s> {
    server: &'s Server,
    catalog: OfferedCatalog,
    status: Status,
    health: SourceHealth,
    recent_calls: Vec<RecordedCall>,
    recorded_since_ms: u64,
}

impl<'s> ServiceSnapshot<'s> {
    pub(super) fn take(service: &'s HttpService, page: &'s Page, identity: &CallerIdentity) -> Self {
        let servers = service.servers.iter().zip(&page.call_histories).map(|(server, history)| {
            if history.start(server.now_ms()) {
                server.set_observer_if_none(history.clone());
            }
            ServerSnapshot {
                server,
                catalog: server.offered_catalog(identity),
                status: server.status(),
                health: server.source_health(),
                recent_calls: history.calls_of(&identity.principal),
                recorded_since_ms: history.since_ms(),
            }
        });
        let upstreams = page.upstreams.as_ref().map(|upstreams| upstreams()).unwrap_or_default();
        Self { service, page, servers: servers.collect(), upstreams }
    }

    pub(super) fn view(&self, base_url: &str) -> PageView<'_> {
        let requires_token = self.service.guard.tokens.is_some();
        let servers = self.servers.iter().enumerate().map(|(index, snapshot)| {
            let name = &*snapshot.server.name;
            let url = format!("{base_url}{}", server_path(name, self.service.is_main(index)));
            let request = SnippetRequest { name, url: &url, requires_token };
            let snippets = (self.page.connect_snippets)(&request);
            let view = snapshot.view();
            // A gateway is as well as the servers behind it.
            let is_affected = self.service.is_main(index)
                && self.upstreams.iter().any(|one| one.health != UpstreamHealth::Good);
            let health = if is_affected && view.health == "ok" { "degraded" } else { view.health };
            ServerView { url, snippets, health, ..view }
        });
        let upstreams = self.upstreams.iter().map(|upstream| UpstreamView {
            url: format!("{base_url}{}", server_path(&upstream.name, false)),
            // What went wrong may name files and addresses, which are the operator's business.
            detail: if requires_token { String::new() } else { upstream.detail.clone() },
            ..upstream.clone()
        });
        PageView {
            upstreams: upstreams.collect(),
            servers: servers.collect(),
            failed_servers: self.service.failed_servers.iter().map(source_view).collect(),
            requires_token,
        }
    }
}

impl ServerSnapshot<'_> {
    fn view(&self) -> ServerView<'_> {
        let Self { server, catalog, status, health, recent_calls, recorded_since_ms } = self;
        ServerView {
            name: &server.name,
            version: catalog.version(),
            instructions: catalog.instructions(),
            url: String::new(),
            snippets: Vec::new(),
            tools: catalog.tools().collect(),
            resources: catalog.resources().collect(),
            resource_templates: catalog.resource_templates().collect(),
            prompts: catalog.prompts().collect(),
            unserved: catalog
                .unserved()
                .iter()
                .map(|item| UnservedView {
                    kind: item.kind.to_string(),
                    name: &item.name,
                    reason: &item.reason,
                })
                .collect(),
            health: health.as_str(),
            source_count: health.source_count,
            unavailable_sources: health.unavailable.iter().map(source_view).collect(),
            reload: status.reload.as_ref().map(|reload| ReloadView {
                at_ms: reload.at_ms,
                outcome: reload.outcome.as_str(),
                message: reload.message.as_deref(),
            }),
            uptime_ms: status.uptime_ms,
            calls_total: status.calls,
            calls_active: status.calls_active,
            sessions: status.sessions,
            recent_calls: recent_calls.iter().map(|call| call_view(call, catalog)).collect(),
            recorded_since_ms: *recorded_since_ms,
        }
    }
}

fn source_view(source: &UnavailableSource) -> SourceView<'_> {
    SourceView { name: &source.name, reason: &source.reason, is_readable: source.is_readable }
}

fn call_view<'c>(call: &RecordedCall, catalog: &'c OfferedCatalog) -> CallView<'c> {
    CallView {
        at_ms: call.started_ms,
        kind: match call.target {
            CallTarget::Tool => "tool",
            CallTarget::Prompt => "prompt",
            CallTarget::Resource => "resource",
            CallTarget::Completion { .. } => "completion",
        },
        name: catalog.listed_name(call.target, &call.name),
        outcome: call.outcome,
        duration_ms: call.duration_ms,
        response_bytes: call.response_bytes,
        is_nested: call.is_nested,
    }
}

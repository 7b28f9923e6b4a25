//! What operators can do with a running gateway: answer approvals (`/-/approvals`), and register servers (`/-/servers`).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use json::Json;
use permissions::approvals::{AnswerOutcome, ApprovalQueue};
use servers::config::{ConfigScope, RegisterError, Registration, RegistrationRules};
use state::store::StoreError;
use transport::http::{AdminHandler, AdminMethod, AdminRequest, AdminResponse};

use super::live_servers::LiveServers;

const APPROVALS: &str = "/-/approvals";
const SERVERS: &str = "/-/servers";
/// A longer wait would only meet the timeouts of proxies.
const WAIT_SECONDS_MAX: u64 = 60;

pub(super) struct GatewayAdmin {
    pub(super) approvals: Arc<ApprovalQueue>,
    pub(super) servers: Arc<LiveServers>,
    pub(super) rules: RegistrationRules,
}

/// What a path below `/-/` names.
enum Target<'a> {
    Approvals,
    Approval(&'a str),
    Servers,
    Server(String),
}

fn target(path: &str) -> Option<Target<'_>> {
    let below = |base: &str| path.strip_prefix(base)?.strip_prefix('/').filter(|rest| !rest.is_empty());
    match path {
        APPROVALS => Some(Target::Approvals),
        SERVERS => Some(Target::Servers),
        _ => match (below(APPROVALS), below(SERVERS)) {
            (Some(id), _) => Some(Target::Approval(id)),
            (_, Some(name)) => Some(Target::Server(percent_decoded(name)?)),
            (None, None) => None,
        },
    }
}

/// `None` if it is not valid UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| *first == b'%');
        match escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(out).ok()
}

impl AdminHandler for GatewayAdmin {
    fn has_path(&self, path: &str) -> bool {
        target(path).is_some()
    }

    fn respond(&self, request: AdminRequest) -> Pin<Box<dyn Future<Output = AdminResponse> + Send>> {
        let admin =
            Self { approvals: self.approvals.clone(), servers: self.servers.clone(), rules: self.rules };
        Box::pin(async move {
            let Some(target) = target(&request.path) else {
                return AdminResponse::error(404, "nothing is here");
            };
            match (target, request.method) {
                (Target::Approvals, AdminMethod::Get) => admin.list_approvals(request.query.as_deref()).await,
                (Target::Approval(id), AdminMethod::Post) => admin.answer(id, &request).await,
                (Target::Servers, AdminMethod::Get) => AdminResponse::ok(admin.list_servers()),
                (Target::Servers, AdminMethod::Post) => admin.register(&request.body),
                (Target::Server(name), AdminMethod::Delete) => admin.unregister(&name),
                (Target::Approvals, _) => AdminResponse::error(405, "use GET"),
                (Target::Approval(_), _) => AdminResponse::error(405, "use POST"),
                (Target::Servers, _) => AdminResponse::error(405, "use GET or POST"),
                (Target::Server(_), _) => AdminResponse::error(405, "use DELETE"),
            }
        })
    }
}

fn store_failed(error: StoreError) -> AdminResponse {
    AdminResponse::error(503, &error.to_string())
}

impl GatewayAdmin {
    /// With `?wait=SECONDS`, waits until there is one.
    async fn list_approvals(&self, query: Option<&str>) -> AdminResponse {
        let seconds = query.and_then(|query| query.split('&').find_map(|part| part.strip_prefix("wait=")));
        let seconds = match seconds.map(str::parse::<u64>) {
            None => 0,
            Some(Ok(seconds)) => seconds.min(WAIT_SECONDS_MAX),
            Some(Err(_)) => return AdminResponse::error(400, "`wait` is not a number of seconds"),
        };
        let deadline = tokio::time::Instant::now() + Duration::from_secs(seconds);
        let mut changes = self.approvals.changes();
        loop {
            changes.mark_unchanged();
            let pending = match self.approvals.pending().await {
                Ok(pending) => pending,
                Err(error) => return store_failed(error),
            };
            let now = tokio::time::Instant::now();
            if !pending.is_empty() || now >= deadline {
                return AdminResponse::ok(Json::object(|out| {
                    out.array("approvals", &pending, |out, one| {
                        out.extend_from_slice(one.to_json().as_str().as_bytes());
                    });
                }));
            }
            // Another process with the same store may ask, too.
            let step = (deadline - now).min(Duration::from_secs(1));
            let _ = tokio::time::timeout(step, changes.changed()).await;
        }
    }

    async fn answer(&self, id: &str, request: &AdminRequest) -> AdminResponse {
        let decision = std::str::from_utf8(&request.body).ok().and_then(|text| Json::parse(text).ok());
        let decision = decision.map(|json| json.to_doc());
        let decision = decision.as_ref().and_then(|doc| doc.root().get("decision")?.str());
        let is_allowed = match decision.as_deref() {
            Some("allow") => true,
            Some("deny") => false,
            _ => {
                return AdminResponse::error(
                    400,
                    r#"expected {"decision": "allow"} or {"decision": "deny"}"#,
                );
            }
        };
        let name = request.principal.display_name();
        // A file with a single token names nobody.
        let by = if matches!(&*name, "" | "token") { "an operator" } else { &*name };
        match self.approvals.answer(id, is_allowed, Some(by)).await {
            Ok(AnswerOutcome::Recorded) => AdminResponse::ok(Json::object(|out| {
                out.str("id", id).str("decision", if is_allowed { "allow" } else { "deny" });
            })),
            Ok(AnswerOutcome::Unknown) => AdminResponse::error(404, "no call waits under this id"),
            Ok(AnswerOutcome::TooLate) => {
                AdminResponse::error(409, "the call is answered already, or it has ended")
            }
            Err(error) => store_failed(error),
        }
    }

    fn list_servers(&self) -> Json {
        let manager = self.servers.gateway.manager();
        Json::object(|out| {
            out.array("servers", manager.statuses(), |out, status| {
                let configured = manager.configured(&status.name);
                let mut one = json::write::ObjectWriter::new(out);
                one.str("name", &status.name).str("status", status.status.name());
                if let Some(configured) = configured {
                    one.str("scope", configured.source.scope.name())
                        .str("source", &configured.source.label());
                    one.maybe_str("transport", configured.entry.as_ref().ok().map(|entry| entry.kind()));
                }
                one.maybe_str("error", status.error.as_deref()).maybe_str("server", status.server.as_deref());
                one.maybe_str("warning", self.servers.gateway.warning(&status.name));
                one.int("tools", status.tools as i64).int("prompts", status.prompts as i64);
                one.int("resources", status.resources as i64);
                one.int("reconnects", status.reconnects.min(i64::MAX as u64) as i64);
                one.array("unapproved", &status.unapproved, |out, tool| json::write::string(out, &tool.tool));
                one.end();
            });
        })
    }

    /// `{"name": …, "entry": {"type": "http", "url": …}}`
    fn register(&self, body: &[u8]) -> AdminResponse {
        let json = std::str::from_utf8(body).ok().and_then(|text| Json::parse(text).ok());
        let doc = json.map(|json| json.to_doc());
        let root = doc.as_ref().map(|doc| doc.root());
        let name = root.and_then(|root| root.get("name")?.str());
        let (Some(name), Some(entry)) = (name, root.and_then(|root| root.get("entry"))) else {
            let expected = r#"expected {"name": "…", "entry": {"type": "http", "url": "https://…"}}"#;
            return AdminResponse::error(400, expected);
        };
        let configured = self.servers.gateway.manager().configured(&name);
        if configured.is_some_and(|server| server.source.scope != ConfigScope::Dynamic) {
            return AdminResponse::error(
                409,
                "a settings file has a server of this name, and takes precedence",
            );
        }
        if let Some(hosted) = self.servers.table.hosted_with_names_of(&name) {
            let reason = format!("the gateway itself serves `{hosted}`, whose tools have the same names");
            return AdminResponse::error(409, &reason);
        }
        match self.servers.registered.register(&name, entry, self.rules) {
            Ok(registration) => {
                self.servers.wake.notify_one();
                let status = if registration == Registration::Added { 201 } else { 200 };
                AdminResponse {
                    status,
                    body: Json::object(|out| {
                        out.str("name", &name).str("path", &transport::http::server_path(&name, false));
                        out.str("until", "the gateway ends");
                    }),
                }
            }
            Err(error @ RegisterError::Invalid(_)) => AdminResponse::error(400, &error.to_string()),
            Err(error @ RegisterError::NotAllowed(_)) => AdminResponse::error(403, &error.to_string()),
            Err(error @ RegisterError::TooMany) => AdminResponse::error(409, &error.to_string()),
        }
    }

    fn unregister(&self, name: &str) -> AdminResponse {
        if self.servers.registered.remove(name) {
            self.servers.wake.notify_one();
            return AdminResponse::ok(Json::object(|out| {
                out.str("name", name).bool("removed", true);
            }));
        }
        match self.servers.gateway.manager().configured(name) {
            Some(server) => {
                let reason = format!("it is in {}; remove it there", server.source.label());
                AdminResponse::error(409, &reason)
            }
            None => AdminResponse::error(404, "no server is registered under this name"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::percent_decoded;

    #[test]
    fn a_name_in_a_path_is_decoded_once() {
        for (part, expected) in [
            ("github", Some("github")),
            ("my%20server", Some("my server")),
            ("k%C3%BCche", Some("k\u{fc}che")),
            ("100%", Some("100%")),
            ("a%2520b", Some("a%20b")),
            ("%ff", None),
        ] {
            assert_eq!(percent_decoded(part).as_deref(), expected, "{part}");
        }
    }
}

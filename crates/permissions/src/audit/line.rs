//! A call as one line of JSON. The keys are documented and stay as they are.

use std::net::IpAddr;

use host::{CallRecord, CallStatus, PolicyRecord};
use json::write::ObjectWriter;
use json::{Node, NodeKind};
use spile_core::calendar::DateTime;
use spile_core::text::hex;
use spile_core::{CallId, CallResult, CallTarget, CompletionRef, ItemKind, Principal};
use upstream::redact::is_secret_name;

use super::settings::{AuditSettings, LoggedArguments};
use crate::glob::Glob;
use crate::names::Origins;
use crate::question::write_hidden;

/// Longer names, which only an unknown item can have, are cut.
const NAME_BYTES_MAX: usize = 512;
const REASON_BYTES_MAX: usize = 2000;
/// Larger arguments are left out, and the line says so.
const ARGUMENTS_BYTES_MAX: usize = 64 << 10;

/// What becomes of a record.
pub(super) struct LineWriter {
    arguments: LoggedArguments,
    redact: Vec<Glob>,
}

impl LineWriter {
    pub(super) fn new(settings: &AuditSettings) -> Self {
        let patterns = settings.redact.iter().map(|pattern| Glob::new(&pattern.to_lowercase()));
        Self { arguments: settings.arguments, redact: patterns.collect() }
    }

    /// The line, with its line break.
    pub(super) fn write(&self, record: &CallRecord<'_>, origins: &dyn Origins) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let mut line = ObjectWriter::new(&mut out);
        line.str("time", &utc(record.started_ms.saturating_add(record.duration_ms)));
        line.maybe_str("id", record.call_id.map(|id| hex(&id)).as_deref());
        let (event, kind) = match record.call.target {
            CallTarget::Tool => ("tool.call", ItemKind::Tool),
            CallTarget::Prompt => ("prompt.get", ItemKind::Prompt),
            CallTarget::Resource => ("resource.read", ItemKind::Resource),
            CallTarget::Completion { reference: CompletionRef::Prompt, .. } => {
                ("completion", ItemKind::Prompt)
            }
            CallTarget::Completion { reference: CompletionRef::ResourceTemplate, .. } => {
                ("completion", ItemKind::Resource)
            }
        };
        let (outcome, code) = outcome(record);
        line.str("event", event).str("outcome", outcome).maybe_str("code", code.as_deref());
        write_caller(&mut line, &record.identity.principal, record.identity.address, record.session);
        let name = record.call.name();
        match origins.origin(kind, &name) {
            Some(origin) => {
                line.str("server", cut(&origin.server, NAME_BYTES_MAX));
                line.str("target", cut(&origin.name, NAME_BYTES_MAX));
                line.maybe_str("upstream", origins.upstream(&origin.server).as_deref());
            }
            None => {
                line.str("target", cut(&name, NAME_BYTES_MAX));
            }
        }
        if let Some(decision) = main_decision(record.policy) {
            line.str("decision", decision.decision);
            line.maybe_str("reason", decision.reason.as_deref().map(|reason| cut(reason, REASON_BYTES_MAX)));
        }
        if let Some(replaced) = record.policy.iter().rev().find(|decision| is_about_result(decision)) {
            line.bool("result_replaced", true);
            line.maybe_str(
                "result_reason",
                replaced.reason.as_deref().map(|reason| cut(reason, REASON_BYTES_MAX)),
            );
        }
        let hook = record.policy.iter().rev().find_map(|decision| decision.hook.as_deref());
        line.maybe_str("hook", hook);
        line.int("duration_ms", number(record.duration_ms));
        line.int("request_bytes", number(record.call.doc().text().len() as u64));
        line.int("response_bytes", number(record.response_bytes as u64));
        if record.round > 0 {
            line.int("round", i64::from(record.round));
        }
        if record.depth > 0 {
            line.int("depth", i64::from(record.depth));
        }
        if let Some(arguments) = record.call.arguments() {
            self.write_arguments(&mut line, "arguments", arguments);
        }
        if let Some(requested) = record.requested.and_then(|requested| requested.arguments()) {
            self.write_arguments(&mut line, "requested_arguments", requested);
        }
        line.end();
        out.push(b'\n');
        out
    }

    fn write_arguments(&self, line: &mut ObjectWriter<'_>, key: &str, arguments: Node<'_>) {
        if self.arguments != LoggedArguments::None && arguments.raw().len() > ARGUMENTS_BYTES_MAX {
            line.bool(&format!("{key}_left_out"), true);
            return;
        }
        let is_secret = |name: &str| {
            let lower = name.to_lowercase();
            is_secret_name(name) || self.redact.iter().any(|pattern| pattern.matches(&lower))
        };
        match self.arguments {
            LoggedArguments::None => {}
            LoggedArguments::Names => {
                line.array(key, arguments.members(), |out, (name, _)| {
                    json::write::string(out, &name.str().unwrap_or_default());
                });
            }
            LoggedArguments::Redacted => write_redacted(line.key(key), arguments, &is_secret),
            LoggedArguments::All => write_hidden(line.key(key), arguments, &is_secret),
        }
    }
}

/// A question of a server to a model, which was answered, or refused, in place of the caller's client.
#[derive(Debug, Clone, Copy)]
pub struct SamplingEntry<'a> {
    pub server: &'a str,
    pub principal: &'a Principal,
    pub address: Option<IpAddr>,
    pub session: Option<[u8; 16]>,
    /// The call in which the server asked.
    pub call_id: Option<CallId>,
    pub outcome: &'static str,
    pub decision: &'static str,
    pub reason: &'a str,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    pub duration_ms: u64,
    pub request_bytes: usize,
    pub response_bytes: usize,
}

impl SamplingEntry<'_> {
    /// The line, with its line break.
    pub(super) fn write(&self, origins: &dyn Origins) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let mut line = ObjectWriter::new(&mut out);
        line.str("time", &utc(self.started_ms.saturating_add(self.duration_ms)));
        line.maybe_str("id", self.call_id.map(|id| hex(&id)).as_deref());
        line.str("event", "sampling").str("outcome", self.outcome);
        write_caller(&mut line, self.principal, self.address, self.session);
        line.str("server", cut(self.server, NAME_BYTES_MAX)).str("target", "sampling/createMessage");
        line.maybe_str("upstream", origins.upstream(self.server).as_deref());
        line.str("decision", self.decision).str("reason", cut(self.reason, REASON_BYTES_MAX));
        line.int("duration_ms", number(self.duration_ms));
        line.int("request_bytes", number(self.request_bytes as u64));
        line.int("response_bytes", number(self.response_bytes as u64));
        line.end();
        out.push(b'\n');
        out
    }
}

fn write_caller(
    line: &mut ObjectWriter<'_>,
    principal: &Principal,
    address: Option<IpAddr>,
    session: Option<[u8; 16]>,
) {
    if let Principal::Named(identity) = principal {
        line.object("principal", |principal| {
            principal.str("issuer", identity.issuer()).str("subject", identity.subject());
        });
    }
    line.maybe_str("address", address.map(|address| address.to_string()).as_deref());
    line.maybe_str("session", session.map(|session| hex(&session)).as_deref());
}

/// Keeps numbers, booleans and null; of a text or a list only its size.
fn write_redacted(out: &mut Vec<u8>, value: Node<'_>, is_secret: &dyn Fn(&str) -> bool) {
    match value.kind() {
        NodeKind::Object => {
            let mut object = ObjectWriter::new(out);
            for (name, member) in value.members() {
                let name = name.str().unwrap_or_default();
                match is_secret(&name) {
                    true => drop(object.str(&name, "***")),
                    false => write_redacted(object.key(&name), member, is_secret),
                }
            }
            object.end();
        }
        NodeKind::Array => json::write::string(out, &format!("[{} items]", value.len())),
        _ => match value.str() {
            Some(text) => json::write::string(out, &format!("[{} characters]", text.chars().count())),
            None => out.extend_from_slice(value.raw().as_bytes()),
        },
    }
}

/// A line that says how many lines are missing before it.
pub(super) fn lost_line(now_ms: u64, lines: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut line = ObjectWriter::new(&mut out);
    line.str("time", &utc(now_ms)).str("event", "audit.lost").int("lines", number(lines));
    line.end();
    out.push(b'\n');
    out
}

fn number(n: u64) -> i64 {
    n.min(i64::MAX as u64) as i64
}

/// RFC 3339 with milliseconds: always of the same length, so that lines sort by their text.
pub(super) fn utc(ms: u64) -> String {
    match DateTime::from_unix_ms(ms - ms % 1000) {
        Some(time) => format!("{}.{:03}Z", time.to_string().trim_end_matches('Z'), ms % 1000),
        None => String::new(),
    }
}

/// What the policy decided in the end: a refusal if there is one, else the last word before the call ran. What hooks did
/// to the result is not a decision about the call.
fn main_decision(policy: &[PolicyRecord]) -> Option<&PolicyRecord> {
    let about_call = || policy.iter().rev().find(|decision| !is_about_result(decision));
    policy.iter().find(|decision| is_refusal(decision)).or_else(about_call)
}

/// Whether another result was sent. One that was withheld is a refusal.
fn is_about_result(decision: &PolicyRecord) -> bool {
    decision.decision == PolicyRecord::REPLACED_RESULT
}

fn is_refusal(decision: &PolicyRecord) -> bool {
    matches!(decision.decision, "refuse" | "hide" | "withhold_result" | "none")
}

fn outcome(record: &CallRecord<'_>) -> (&'static str, Option<String>) {
    let is_refused = record.policy.iter().any(is_refusal);
    let failed = if is_refused { "refused" } else { "error" };
    match &record.status {
        CallStatus::Result(result) if result.is_error() => (failed, error_code(result)),
        CallStatus::Result(_) => ("ok", None),
        CallStatus::InputRequired => ("asked", None),
        CallStatus::Task => ("task", None),
        CallStatus::Error(error) => (failed, Some(error.kind().to_owned())),
        CallStatus::Cancelled => ("cancelled", None),
    }
}

fn error_code(result: &CallResult) -> Option<String> {
    let json = match result {
        CallResult::Tool(result) => result.structured.clone(),
        CallResult::Relayed(json) => json.to_doc().root().get("structuredContent").map(json::Json::from),
        CallResult::Prompt(_) | CallResult::Resource(_) | CallResult::Completion(_) => None,
    };
    let doc = json?.to_doc();
    let code = doc.root().get("code")?.str()?;
    Some(cut(&code, 64).to_owned())
}

fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

//! What a person is shown about a call before they decide.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use json::{Json, Node, NodeKind};
use spile_core::text::escape_line;
use upstream::redact::is_secret_name;

use crate::names::ToolNames;

const NAME_CHARS_MAX: usize = 100;
const VALUE_CHARS_MAX: usize = 200;
const REASON_CHARS_MAX: usize = 400;
const ARGUMENTS_MAX: usize = 40;
const MASK: &str = "***";

/// What somebody decides about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ApprovalKind {
    /// Whether a tool may run.
    #[default]
    Tool,
    /// Whether the configured model may answer a server.
    Sampling,
}

impl ApprovalKind {
    pub const ALL: [Self; 2] = [Self::Tool, Self::Sampling];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Sampling => "sampling",
        }
    }
}

/// A call that somebody must decide about. All texts are safe to print: without control characters, and bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRequest {
    pub kind: ApprovalKind,
    /// Identifies the call, as in the audit log.
    pub call_id: String,
    /// `None` for a tool of the gateway itself.
    pub server: Option<String>,
    pub tool: String,
    /// The name that a rule would use.
    pub rule: String,
    /// Names and values, with secrets hidden and long values cut.
    pub arguments: Vec<(String, String)>,
    /// Arguments that are left out because there are too many.
    pub arguments_left_out: usize,
    /// Why somebody is asked.
    pub reason: String,
    /// Who calls; empty for an anonymous caller.
    pub principal: String,
    /// When the question expires, in milliseconds since 1970.
    pub deadline_ms: u64,
}

/// How a question was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// `by` names the person, if that is known.
    Allowed {
        by: Option<String>,
    },
    Declined {
        by: Option<String>,
    },
    /// Nobody answered in time.
    Unanswered,
}

/// Asks somebody other than the calling client: at a terminal, or at an approvals endpoint. The caller drops the future
/// when the deadline passes or the call is cancelled; the question must end with it.
pub trait Approver: Send + Sync {
    /// Whether somebody can be asked now.
    fn is_available(&self) -> bool;
    fn ask(self: Arc<Self>, request: ApprovalRequest) -> Pin<Box<dyn Future<Output = Approval> + Send>>;
}

impl ApprovalRequest {
    pub(crate) fn new(names: &ToolNames, arguments: &Json, reason: &str) -> Self {
        let (server, tool) = names.display();
        let doc = arguments.to_doc();
        let count = doc.root().members().count();
        let shown = doc.root().members().take(ARGUMENTS_MAX).map(|(name, value)| {
            let name = name.str().unwrap_or_default();
            let value = if is_secret_name(&name) { MASK.to_owned() } else { value_text(value) };
            (cut_line(&name, NAME_CHARS_MAX), value)
        });
        Self {
            kind: ApprovalKind::Tool,
            call_id: String::new(),
            server: server.map(|server| cut_line(server, NAME_CHARS_MAX)),
            tool: cut_line(tool, NAME_CHARS_MAX),
            rule: cut_line(names.rule(), NAME_CHARS_MAX),
            arguments: shown.collect(),
            arguments_left_out: count.saturating_sub(ARGUMENTS_MAX),
            reason: cut_line(reason, REASON_CHARS_MAX),
            principal: String::new(),
            deadline_ms: 0,
        }
    }

    /// A server asks a model, and the caller's client has none. `request` is safe to print.
    pub fn for_sampling(server: &str, request: String, principal: String, deadline_ms: u64) -> Self {
        Self {
            kind: ApprovalKind::Sampling,
            call_id: String::new(),
            server: Some(cut_line(server, NAME_CHARS_MAX)),
            tool: "sampling/createMessage".to_owned(),
            rule: String::new(),
            arguments: vec![("request".to_owned(), request)],
            arguments_left_out: 0,
            reason: "the server asks a model, and the calling client has none".to_owned(),
            principal,
            deadline_ms,
        }
    }

    /// The question in one line.
    pub fn question(&self) -> String {
        match &self.server {
            Some(server) if self.kind == ApprovalKind::Sampling => {
                format!("Let the model answer the server {server}?")
            }
            Some(server) => format!("Run the tool {} of the server {}?", self.tool, server),
            None => format!("Run the tool {}?", self.tool),
        }
    }

    /// The whole text: the question, the arguments, and why it is asked.
    pub fn message(&self) -> String {
        let mut message = self.question();
        message.push('\n');
        for (name, value) in &self.arguments {
            message.push_str(&format!("\n{name}: {value}"));
        }
        if self.arguments.is_empty() {
            message.push_str("\n(no arguments)");
        }
        if self.arguments_left_out > 0 {
            message.push_str(&format!("\n… and {} more", self.arguments_left_out));
        }
        message.push_str(&format!("\n\nAsked because {}.", self.reason));
        message
    }
}

fn value_text(value: Node<'_>) -> String {
    match value.kind() {
        NodeKind::Object | NodeKind::Array => cut_line(&hide_secrets(value), VALUE_CHARS_MAX),
        _ => match value.str() {
            Some(text) if text.is_empty() => "(empty)".to_owned(),
            Some(text) => cut_line(&text, VALUE_CHARS_MAX),
            None => cut_line(value.raw(), VALUE_CHARS_MAX),
        },
    }
}

/// JSON with the values of secret names hidden, at any depth.
pub(crate) fn hide_secrets(value: Node<'_>) -> String {
    let mut out = Vec::new();
    write_hidden(&mut out, value, &|name| is_secret_name(name));
    String::from_utf8_lossy(&out).into_owned()
}

/// Writes a value with [`MASK`] in place of the values whose names `is_secret` accepts.
pub(crate) fn write_hidden(out: &mut Vec<u8>, value: Node<'_>, is_secret: &dyn Fn(&str) -> bool) {
    match value.kind() {
        NodeKind::Object => {
            let mut object = json::write::ObjectWriter::new(out);
            for (name, member) in value.members() {
                let name = name.str().unwrap_or_default();
                if is_secret(&name) {
                    object.str(&name, MASK);
                } else {
                    write_hidden(object.key(&name), member, is_secret);
                }
            }
            object.end();
        }
        NodeKind::Array => {
            json::write::array(out, value.elements(), |out, one| write_hidden(out, one, is_secret))
        }
        _ => out.extend_from_slice(value.raw().as_bytes()),
    }
}

/// One line without control characters, with at most so many characters.
pub(crate) fn cut_line(text: &str, chars_max: usize) -> String {
    // Escaping makes text longer, so the cut comes last; a first one bounds the work.
    let text: String = text.chars().take(chars_max + 1).collect();
    let safe = escape_line(&text);
    match safe.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &safe[..end]),
        None => safe.into_owned(),
    }
}

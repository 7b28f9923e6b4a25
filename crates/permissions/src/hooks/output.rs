//! What a hook answers: JSON as Claude Code's hooks write it.

use json::{Json, Node, ParseLimits};

use super::HookEvent;

/// Texts of a hook are cut at this length, as Claude Code does.
const TEXT_CHARS_MAX: usize = 10_000;
/// Deeper or larger answers are errors of the hook.
const LIMITS: ParseLimits = ParseLimits { depth_max: 64, values_max: 100_000 };

/// What a hook decides. A later one outweighs an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookVerdict {
    Allow,
    Ask,
    Deny,
}

/// An answer, or several that were put together.
#[derive(Debug, Clone, Default)]
pub struct HookReply {
    pub verdict: Option<HookVerdict>,
    pub reason: Option<String>,
    /// The arguments that the call gets instead: a whole object.
    pub updated_input: Option<Json>,
    /// The result that the caller gets instead.
    pub updated_output: Option<Json>,
    /// Text for the model, beside the result.
    pub context: Option<String>,
    /// Text for the operator.
    pub system_message: Option<String>,
}

impl HookReply {
    pub fn deny(reason: impl Into<String>) -> Self {
        Self { verdict: Some(HookVerdict::Deny), reason: Some(reason.into()), ..Self::default() }
    }

    /// Reads what a hook printed. Text that does not start with `{` is not an answer.
    pub fn parse(event: HookEvent, text: &str) -> Result<Self, String> {
        let text = text.trim();
        if !text.starts_with('{') {
            return Ok(Self::default());
        }
        let doc = json::parse(text.as_bytes().to_vec(), &LIMITS)
            .map_err(|error| format!("its output is not JSON: {error}"))?;
        let root = doc.root();
        let specific = root.get("hookSpecificOutput").filter(Node::is_object);
        if let Some(named) = specific.and_then(|specific| specific.get("hookEventName")?.str())
            && named != event.as_str()
        {
            return Err(format!("its output is for the event `{named}`, not for `{}`", event.as_str()));
        }
        let mut reply = Self {
            context: text_of(specific, "additionalContext"),
            system_message: text_of(Some(root), "systemMessage"),
            ..Self::default()
        };
        match event {
            HookEvent::PreToolUse => reply.read_pre(root, specific)?,
            HookEvent::PermissionRequest => reply.read_permission(specific)?,
            HookEvent::PostToolUse | HookEvent::PostToolUseFailure => reply.read_post(root, specific)?,
        }
        if root.get("continue").and_then(|value| value.bool()) == Some(false) {
            let reason =
                text_of(Some(root), "stopReason").unwrap_or_else(|| "it stopped the work".to_owned());
            reply = Self { system_message: reply.system_message, ..Self::deny(reason) };
        }
        Ok(reply)
    }

    fn read_pre(&mut self, root: Node<'_>, specific: Option<Node<'_>>) -> Result<(), String> {
        let decision = text_of(specific, "permissionDecision").or_else(|| text_of(Some(root), "decision"));
        self.verdict = match decision.as_deref() {
            None => None,
            Some("allow" | "approve") => Some(HookVerdict::Allow),
            // Somebody else must decide.
            Some("ask" | "defer") => Some(HookVerdict::Ask),
            Some("deny" | "block") => Some(HookVerdict::Deny),
            Some(other) => return Err(format!("unknown decision `{other}`; supported: allow, ask, deny")),
        };
        self.reason = text_of(specific, "permissionDecisionReason").or_else(|| text_of(Some(root), "reason"));
        self.updated_input = object_of(specific, "updatedInput")?;
        Ok(())
    }

    fn read_permission(&mut self, specific: Option<Node<'_>>) -> Result<(), String> {
        let Some(decision) = specific.and_then(|specific| specific.get("decision")) else { return Ok(()) };
        self.verdict = match text_of(Some(decision), "behavior").as_deref() {
            Some("allow") => Some(HookVerdict::Allow),
            Some("deny") => Some(HookVerdict::Deny),
            _ => return Err("`decision.behavior` is not allow or deny".to_owned()),
        };
        self.reason = text_of(Some(decision), "message");
        self.updated_input = object_of(Some(decision), "updatedInput")?;
        Ok(())
    }

    fn read_post(&mut self, root: Node<'_>, specific: Option<Node<'_>>) -> Result<(), String> {
        self.verdict = match text_of(Some(root), "decision").as_deref() {
            None | Some("approve") => None,
            Some("block") => Some(HookVerdict::Deny),
            Some(other) => return Err(format!("unknown decision `{other}`; supported: block")),
        };
        self.reason = text_of(Some(root), "reason");
        let output = specific.and_then(|specific| {
            specific.get("updatedToolOutput").or_else(|| specific.get("updatedMCPToolOutput"))
        });
        self.updated_output = output.map(Json::from);
        Ok(())
    }

    /// Adds the reply of a hook that comes later in the settings. The stricter verdict counts; of two rewritten inputs or
    /// outputs the later one.
    pub fn add(&mut self, later: Self) {
        if later.verdict > self.verdict {
            self.verdict = later.verdict;
            self.reason = later.reason;
        }
        self.updated_input = later.updated_input.or(self.updated_input.take());
        self.updated_output = later.updated_output.or(self.updated_output.take());
        self.context = match (self.context.take(), later.context) {
            (Some(first), Some(second)) => Some(format!("{first}\n{second}")),
            (first, second) => first.or(second),
        };
    }
}

fn text_of(node: Option<Node<'_>>, key: &str) -> Option<String> {
    let text = node?.get(key)?.str()?;
    Some(cut(&text)).filter(|text| !text.is_empty())
}

/// At most as many characters as a hook may say.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn object_of(node: Option<Node<'_>>, key: &str) -> Result<Option<Json>, String> {
    match node.and_then(|node| node.get(key)) {
        None => Ok(None),
        Some(node) if node.is_object() => Ok(Some(Json::from(node))),
        Some(_) => Err(format!("`{key}` is not an object")),
    }
}

//! Decides about a call from the mode, the tool's annotations, the rule that matched, and who can be asked.
//!
//! A rule decides first; the mode decides where no rule does. Destructive tools are the exception: only an allow rule
//! that names exactly that tool answers for the user.

use spile_core::ToolAnnotations;

use crate::rules::{RuleKind, RuleMatch};

/// What happens to calls that no rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Tools that are annotated read-only run; the others ask.
    #[default]
    Default,
    /// Everything runs except destructive tools, which ask.
    Permissive,
    /// Only tools that are annotated read-only run, and unannotated ones that a rule allows.
    ReadOnly,
    /// As `default`, and refuses instead of asking.
    DontAsk,
    /// As `permissive`, and ask rules do not ask. Destructive tools still do.
    Bypass,
}

impl Mode {
    pub const ALL: [Self; 5] = [Self::Default, Self::Permissive, Self::ReadOnly, Self::DontAsk, Self::Bypass];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Permissive => "permissive",
            Self::ReadOnly => "read-only",
            Self::DontAsk => "dont-ask",
            Self::Bypass => "bypass",
        }
    }

    /// Reads our name of a mode, or Claude Code's.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "plan" => Some(Self::ReadOnly),
            "dontAsk" => Some(Self::DontAsk),
            "bypassPermissions" => Some(Self::Bypass),
            _ => Self::ALL.into_iter().find(|mode| mode.as_str() == text),
        }
    }

    /// The name that hooks get: Claude Code's where it has one.
    pub fn for_hooks(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Permissive => "permissive",
            Self::ReadOnly => "plan",
            Self::DontAsk => "dontAsk",
            Self::Bypass => "bypassPermissions",
        }
    }
}

/// What a tool's annotations say about its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    ReadOnly,
    /// Nothing is said that decides.
    Unannotated,
    /// It writes, and is not said to destroy anything.
    Writes,
    Destructive,
}

impl Effect {
    pub const ALL: [Self; 4] = [Self::ReadOnly, Self::Unannotated, Self::Writes, Self::Destructive];

    /// A missing annotation is not replaced by MCP's default, by which every tool without annotations would be
    /// destructive. Annotations that contradict each other are read as the more dangerous one.
    pub fn of(annotations: &ToolAnnotations) -> Self {
        match (annotations.read_only, annotations.destructive) {
            (_, Some(true)) => Self::Destructive,
            (Some(true), _) => Self::ReadOnly,
            (Some(false), _) | (None, Some(false)) => Self::Writes,
            (None, None) => Self::Unannotated,
        }
    }

    /// As a part of a sentence about a tool.
    pub fn describe(self) -> &'static str {
        match self {
            Self::ReadOnly => "is annotated read-only",
            Self::Unannotated => "has no annotations",
            Self::Writes => "is annotated as writing",
            Self::Destructive => "is annotated as destructive",
        }
    }
}

/// Who can answer a question about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhoCanBeAsked {
    /// The user of the calling client, by elicitation.
    Caller,
    /// Somebody else: at the terminal, or at the approvals endpoint.
    Approver,
    Nobody,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    AskCaller,
    AskApprover,
    Refuse,
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause<'r> {
    Rule {
        kind: RuleKind,
        text: &'r str,
    },
    /// The mode, and what the annotations say.
    Mode(Mode, Effect),
    /// An allow rule matches a destructive tool and does not name it exactly.
    TooBroad {
        text: &'r str,
    },
    /// A hook asked for a question.
    Hook,
}

/// What happens to a call, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeDecision<'r> {
    pub verdict: Verdict,
    pub cause: Cause<'r>,
    /// Why a question became a refusal.
    pub unasked: Option<Unasked>,
}

/// Why nobody is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unasked {
    /// The mode is `dont-ask`.
    DontAsk,
    Nobody,
}

/// What a hook adds to the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookAdvice {
    None,
    /// Answers where the mode would ask; deny and ask rules still apply.
    Allow,
    Ask,
}

pub fn decide<'r>(
    mode: Mode,
    effect: Effect,
    rule: Option<RuleMatch<'r>>,
    hook: HookAdvice,
    who: WhoCanBeAsked,
) -> ModeDecision<'r> {
    let decided = |verdict, cause| ModeDecision { verdict, cause, unasked: None };
    let ask = |cause| match (mode, who) {
        (Mode::DontAsk, _) => {
            ModeDecision { unasked: Some(Unasked::DontAsk), ..decided(Verdict::Refuse, cause) }
        }
        (_, WhoCanBeAsked::Caller) => decided(Verdict::AskCaller, cause),
        (_, WhoCanBeAsked::Approver) => decided(Verdict::AskApprover, cause),
        (_, WhoCanBeAsked::Nobody) => {
            ModeDecision { unasked: Some(Unasked::Nobody), ..decided(Verdict::Refuse, cause) }
        }
    };
    let by_mode = Cause::Mode(mode, effect);
    if let Some(RuleMatch { kind: RuleKind::Deny, text, .. }) = rule {
        return decided(Verdict::Refuse, Cause::Rule { kind: RuleKind::Deny, text });
    }
    // The promise of the mode: no rule and no answer lets a tool write.
    if mode == Mode::ReadOnly && matches!(effect, Effect::Writes | Effect::Destructive) {
        return decided(Verdict::Refuse, by_mode);
    }
    if let Some(RuleMatch { kind: RuleKind::Ask, text, .. }) = rule
        && (mode != Mode::Bypass || effect == Effect::Destructive)
    {
        return ask(Cause::Rule { kind: RuleKind::Ask, text });
    }
    if hook == HookAdvice::Ask {
        return ask(Cause::Hook);
    }
    let allowed = rule.filter(|rule| rule.kind == RuleKind::Allow);
    let allowed = allowed.map(|RuleMatch { text, is_exact, .. }| (text, is_exact));
    match (effect, allowed) {
        (Effect::Destructive, Some((text, true))) => {
            decided(Verdict::Allow, Cause::Rule { kind: RuleKind::Allow, text })
        }
        (Effect::Destructive, Some((text, false))) => ask(Cause::TooBroad { text }),
        (Effect::Destructive, None) => ask(by_mode),
        (_, Some((text, _))) => decided(Verdict::Allow, Cause::Rule { kind: RuleKind::Allow, text }),
        (_, None) if hook == HookAdvice::Allow => decided(Verdict::Allow, Cause::Hook),
        (Effect::ReadOnly, None) => decided(Verdict::Allow, by_mode),
        (Effect::Unannotated | Effect::Writes, None) => match mode {
            Mode::Permissive | Mode::Bypass => decided(Verdict::Allow, by_mode),
            Mode::Default | Mode::DontAsk => ask(by_mode),
            Mode::ReadOnly => decided(Verdict::Refuse, by_mode),
        },
    }
}

impl ModeDecision<'_> {
    /// The reason in one sentence, for the caller, the question and the audit. A refusal names the way out.
    pub fn reason(&self, tool: &str) -> String {
        let cause = match self.cause {
            Cause::Rule { kind: RuleKind::Deny, text } => format!("the rule `{text}` denies it"),
            Cause::Rule { kind: RuleKind::Ask, text } => format!("the rule `{text}` asks"),
            Cause::Rule { kind: RuleKind::Allow, text } => format!("the rule `{text}` allows it"),
            Cause::Mode(mode, effect) => {
                format!("the tool {}, and the mode is `{}`", effect.describe(), mode.as_str())
            }
            Cause::TooBroad { text } => format!(
                "the tool is annotated as destructive, and the rule `{text}` does not name it exactly"
            ),
            Cause::Hook if self.verdict == Verdict::Allow => "a hook allows it".to_owned(),
            Cause::Hook => "a hook asks".to_owned(),
        };
        if self.verdict != Verdict::Refuse {
            return cause;
        }
        let way_out = match (self.cause, self.unasked) {
            (Cause::Rule { kind: RuleKind::Deny, .. }, _) => return cause,
            (Cause::Mode(Mode::ReadOnly, Effect::Unannotated), _) => {
                format!("if it only reads, add the rule `{tool}` to `permissions.allow`")
            }
            (Cause::Mode(Mode::ReadOnly, _), _) => "this mode runs no tool that writes".to_owned(),
            (Cause::Rule { kind: RuleKind::Ask, text }, unasked) => {
                format!("{}; remove `{text}` from `permissions.ask` to allow it", unasked_text(unasked))
            }
            (Cause::Hook, unasked) => unasked_text(unasked).to_owned(),
            (_, unasked) => {
                format!(
                    "{}; to allow it, add the rule `{tool}` to `permissions.allow`",
                    unasked_text(unasked)
                )
            }
        };
        format!("{cause}; {way_out}")
    }
}

fn unasked_text(unasked: Option<Unasked>) -> &'static str {
    match unasked {
        Some(Unasked::DontAsk) => "the mode `dont-ask` asks nobody",
        Some(Unasked::Nobody) | None => "nobody can be asked (the client does not support elicitation)",
    }
}

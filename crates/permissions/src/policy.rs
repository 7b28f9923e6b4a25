//! The policy of a server: rules, mode, hooks and questions, in this order.
//!
//! ```text
//! audit       a server whose audit cannot be written runs nothing, if its settings say so
//! note        decided in an earlier round: the same again
//! deny        a rule without arguments
//! PreToolUse  hooks deny, ask, allow, rewrite the arguments
//! decide      modes.rs, with the rewritten arguments
//! ask         PermissionRequest hooks, then the caller's user, or else the approver
//! ```
//!
//! What was decided goes into the note of the journal, so that a call is decided once, however many rounds it has.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use json::Json;
use spile_core::text::hex;
use spile_core::{
    Call, CallResult, CallTarget, Caller, CatalogView, ClientCapabilities, Decision, ElicitResult,
    InputRequest, InputRequests, ItemKind, Journal, Platform, Policy, PolicyContext, PolicyDecision,
    PolicyRun, ResultDecision, Visibility,
};

use crate::hooks::{HookAnswers, HookCall, HookEvent, HookOutcome, HookResult, HookVerdict, Hooks};
use crate::modes::{Effect, HookAdvice, Mode, Verdict, WhoCanBeAsked, decide};
use crate::names::{Origin, Origins, ToolNames};
use crate::note::Note;
use crate::question::{Approval, ApprovalRequest, Approver};
use crate::result::{add_context, failure_text, from_hook};
use crate::rules::{RuleKind, Rules};

/// Says whether calls may run although nothing else forbids them: see [`PermissionPolicy::with_gate`].
pub trait CallGate: Send + Sync {
    /// `Err` has the reason for the caller.
    fn check(&self) -> Result<(), &'static str>;
}

/// Decides about every tool call of a server.
pub struct PermissionPolicy(Arc<Inner>);

struct Inner {
    rules: Arc<Rules>,
    mode: Mode,
    hooks: Arc<Hooks>,
    approver: Option<Arc<dyn Approver>>,
    origins: Arc<dyn Origins>,
    gate: Option<Arc<dyn CallGate>>,
    view: Option<CatalogView>,
}

impl PermissionPolicy {
    /// `origins` knows the servers behind the catalog. Without an `approver`, only callers can be asked.
    pub fn new(
        rules: impl Into<Arc<Rules>>,
        mode: Mode,
        hooks: impl Into<Arc<Hooks>>,
        origins: Arc<dyn Origins>,
        approver: Option<Arc<dyn Approver>>,
    ) -> Self {
        let (rules, hooks) = (rules.into(), hooks.into());
        let view = rules.hides_anything().then(|| CatalogView {
            key: VIEW_KEY,
            visibility: Arc::new(RuleVisibility { rules: rules.clone(), origins: origins.clone() }),
        });
        Self(Arc::new(Inner { rules, mode, hooks, approver, origins, gate: None, view }))
    }

    /// Asks `gate` before every call; an audit log that cannot be written refuses them.
    #[must_use]
    pub fn with_gate(self, gate: Arc<dyn CallGate>) -> Self {
        match Arc::try_unwrap(self.0) {
            Ok(inner) => Self(Arc::new(Inner { gate: Some(gate), ..inner })),
            Err(shared) => Self(shared),
        }
    }
}

/// All callers see the same.
const VIEW_KEY: u64 = 1;

/// A policy that can be replaced while its server runs. A call keeps what was decided about it, and what is denied now is
/// refused also where its user is being asked.
pub struct LivePolicy(RwLock<Replaceable>);

struct Replaceable {
    policy: Arc<PermissionPolicy>,
    /// Differs for each policy: lists are rendered once for each view.
    view_key: u64,
}

impl LivePolicy {
    pub fn new(policy: PermissionPolicy) -> Self {
        Self(RwLock::new(Replaceable { policy: Arc::new(policy), view_key: VIEW_KEY }))
    }

    pub fn replace(&self, policy: PermissionPolicy) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *current = Replaceable { policy: Arc::new(policy), view_key: current.view_key + 1 };
    }

    fn current(&self) -> (Arc<PermissionPolicy>, u64) {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (current.policy.clone(), current.view_key)
    }
}

impl Policy for LivePolicy {
    fn before(&self, call: &Call, cx: &PolicyContext<'_>) -> PolicyRun<PolicyDecision> {
        self.current().0.before(call, cx)
    }

    fn after(&self, call: &Call, result: &CallResult, cx: &PolicyContext<'_>) -> PolicyRun<ResultDecision> {
        self.current().0.after(call, result, cx)
    }

    fn view(&self, caller: &Caller) -> Option<CatalogView> {
        let (policy, key) = self.current();
        Some(CatalogView { key, ..policy.view(caller)? })
    }
}

struct RuleVisibility {
    rules: Arc<Rules>,
    origins: Arc<dyn Origins>,
}

impl Visibility for RuleVisibility {
    fn is_visible(&self, kind: ItemKind, name: &str) -> bool {
        self.rules.is_visible(kind, name, self.origins.origin(kind, name))
    }
}

impl Policy for PermissionPolicy {
    fn before(&self, call: &Call, cx: &PolicyContext<'_>) -> PolicyRun<PolicyDecision> {
        let inner = &self.0;
        if let Some(Err(reason)) = inner.gate.as_ref().map(|gate| gate.check()) {
            return PolicyRun::Now(PolicyDecision::refuse(reason));
        }
        if call.target != CallTarget::Tool {
            return PolicyRun::Now(PolicyDecision::allow());
        }
        if let Some(reason) = inner.origins.runs_undecided(&call.name()) {
            return PolicyRun::Now(PolicyDecision::allow().because(reason));
        }
        let names = inner.names(&call.name());
        // Also in a later round: the rules may have changed since the first one.
        if let Some(rule) = inner.rules.hides_tool(&names) {
            return PolicyRun::Now(PolicyDecision::refuse(format!("the rule `{rule}` denies it")));
        }
        match Note::read(cx.journal) {
            Some(note) if note.is_question => {
                let reason = note.reason.clone();
                let facts = CallFacts::new(inner, names, call, cx).resume(note);
                return PolicyRun::Now(match inner.denying_rule(&facts) {
                    Some(rule) => facts.refuse(format!("the rule `{rule}` denies it")),
                    None => ask_caller(&facts, reason),
                });
            }
            Some(note) => return PolicyRun::Now(note.into_decision()),
            None => {}
        }
        let arguments = call.arguments();
        let has_hooks = inner.hooks.has(HookEvent::PreToolUse, &names, arguments)
            || inner.hooks.has(HookEvent::PermissionRequest, &names, arguments);
        let facts = CallFacts::new(inner, names, call, cx);
        if has_hooks {
            let inner = inner.clone();
            return PolicyRun::Later(Box::pin(async move { inner.decide_with_hooks(facts).await }));
        }
        match inner.decide(&facts, HookAdvice::None) {
            Decided::Now(decision) => PolicyRun::Now(*decision),
            Decided::AskApprover(reason) => {
                let inner = inner.clone();
                PolicyRun::Later(Box::pin(async move { inner.ask_approver(facts, reason).await }))
            }
        }
    }

    fn after(&self, call: &Call, result: &CallResult, cx: &PolicyContext<'_>) -> PolicyRun<ResultDecision> {
        // Without a note there is no hook for the call, or it did not run.
        let note = Note::read(cx.journal).filter(|note| !note.is_question);
        let Some(note) = note.filter(|_| call.target == CallTarget::Tool) else {
            return PolicyRun::Now(ResultDecision::Keep);
        };
        let inner = &self.0;
        let event = if result.is_error() { HookEvent::PostToolUseFailure } else { HookEvent::PostToolUse };
        let names = inner.names(&call.name());
        let facts = CallFacts::new(inner, names, call, cx);
        if !inner.hooks.has(event, &facts.names, call.arguments()) {
            return PolicyRun::Now(match note.context {
                Some(context) => replace(add_context(result, &context), ADDED_CONTEXT, note.hook),
                None => ResultDecision::Keep,
            });
        }
        let (inner, result) = (inner.clone(), result.clone());
        PolicyRun::Later(Box::pin(async move { inner.run_result_hooks(event, facts, note, result).await }))
    }

    fn view(&self, _: &Caller) -> Option<CatalogView> {
        self.0.view.clone()
    }
}

/// One call, independent of the request that it came with.
struct CallFacts {
    names: ToolNames,
    /// As the call runs: rewritten by hooks.
    arguments: Json,
    is_rewritten: bool,
    effect: Effect,
    principal: String,
    capabilities: ClientCapabilities,
    call_id: String,
    session: Option<[u8; 16]>,
    journal: Journal,
    platform: Arc<dyn Platform>,
    timeout_ms: u64,
    deadline_ms: u64,
    has_result_hooks: bool,
    /// What hooks said so far.
    context: Option<String>,
    hook: Option<String>,
}

impl CallFacts {
    fn new(inner: &Inner, names: ToolNames, call: &Call, cx: &PolicyContext<'_>) -> Self {
        let arguments = call.arguments();
        let has = |event| inner.hooks.has(event, &names, arguments);
        // The host needs time to end the call in order.
        let timeout_ms = cx.timeout_ms / 10 * 9;
        Self {
            has_result_hooks: has(HookEvent::PostToolUse) || has(HookEvent::PostToolUseFailure),
            arguments: arguments.map_or_else(|| Json::object(|_| {}), Json::from),
            is_rewritten: false,
            effect: cx.tool.map_or(Effect::Unannotated, |tool| Effect::of(&tool.annotations)),
            principal: cx.caller.principal.display_name(),
            capabilities: cx.caller.capabilities,
            call_id: hex(&cx.journal.call_id(&**cx.platform)),
            session: cx.session,
            journal: cx.journal.clone(),
            platform: cx.platform.clone(),
            timeout_ms,
            deadline_ms: cx.platform.now_ms().saturating_add(timeout_ms),
            context: None,
            hook: None,
            names,
        }
    }

    /// As hooks left it when the user was asked.
    fn resume(self, note: Note) -> Self {
        Self {
            is_rewritten: note.arguments.is_some(),
            arguments: note.arguments.unwrap_or(self.arguments),
            context: note.context,
            hook: note.hook.map(Into::into),
            ..self
        }
    }

    fn note(&self, reason: &str, is_question: bool) -> Note {
        Note {
            is_question,
            arguments: self.is_rewritten.then(|| self.arguments.clone()),
            reason: reason.to_owned(),
            hook: self.hook.as_deref().map(Into::into),
            context: self.context.clone(),
            started_ms: self.platform.now_ms(),
        }
    }

    fn hook_call<'a>(&'a self, mode: Mode, outcome: Option<HookOutcome<'a>>) -> HookCall<'a> {
        HookCall {
            names: &self.names,
            arguments: &self.arguments,
            mode: mode.for_hooks(),
            session: self.session,
            call_id: &self.call_id,
            principal: &self.principal,
            outcome,
        }
    }

    /// Takes over what hooks changed. `Some` if they refuse.
    fn apply(&mut self, answers: HookAnswers) -> Option<PolicyDecision> {
        let HookAnswers { reply, hook } = answers;
        self.hook = hook.or(self.hook.take());
        if reply.verdict == Some(HookVerdict::Deny) {
            let reason = reply.reason.unwrap_or_else(|| "a hook of this server denies it".to_owned());
            return Some(self.refuse(reason));
        }
        if let Some(arguments) = reply.updated_input {
            self.is_rewritten |= arguments != self.arguments;
            self.arguments = arguments;
        }
        self.context = match (self.context.take(), reply.context) {
            (Some(first), Some(second)) => Some(format!("{first}\n{second}")),
            (first, second) => first.or(second),
        };
        None
    }

    fn refuse(&self, reason: impl Into<Box<str>>) -> PolicyDecision {
        PolicyDecision { hook: self.hook.as_deref().map(Into::into), ..PolicyDecision::refuse(reason) }
    }

    /// Allows the call, and writes down what later rounds and the result need.
    fn allow(&self, reason: String, was_asked: bool) -> PolicyDecision {
        let note = self.note(&reason, false);
        let is_needed = was_asked || self.is_rewritten || self.hook.is_some() || self.context.is_some();
        let json = (is_needed || self.has_result_hooks).then(|| note.to_json());
        PolicyDecision { note: json, ..note.into_decision() }
    }

    fn who_can_be_asked(&self, inner: &Inner) -> WhoCanBeAsked {
        if self.capabilities.has(ClientCapabilities::ELICITATION_FORM) {
            WhoCanBeAsked::Caller
        } else if inner.approver.as_ref().is_some_and(|approver| approver.is_available()) {
            WhoCanBeAsked::Approver
        } else {
            WhoCanBeAsked::Nobody
        }
    }
}

enum Decided {
    Now(Box<PolicyDecision>),
    /// With the reason for the question.
    AskApprover(String),
}

impl Inner {
    fn names(&self, listed: &str) -> ToolNames {
        let origin: Option<Origin> = self.origins.origin(ItemKind::Tool, listed);
        ToolNames::new(listed, origin)
    }

    /// The rule that denies the call with these arguments.
    fn denying_rule(&self, facts: &CallFacts) -> Option<String> {
        let doc = facts.arguments.to_doc();
        let rule = self.rules.first_match(&facts.names, Some(doc.root()))?;
        (rule.kind == RuleKind::Deny).then(|| rule.text.to_string())
    }

    /// Everything but running hooks and waiting for an approver.
    fn decide(&self, facts: &CallFacts, advice: HookAdvice) -> Decided {
        let doc = facts.arguments.to_doc();
        let rule = self.rules.first_match(&facts.names, Some(doc.root()));
        let decision = decide(self.mode, facts.effect, rule, advice, facts.who_can_be_asked(self));
        let reason = decision.reason(facts.names.rule());
        match decision.verdict {
            Verdict::Allow => Decided::Now(Box::new(facts.allow(reason, false))),
            Verdict::Refuse => Decided::Now(Box::new(facts.refuse(reason))),
            Verdict::AskCaller => Decided::Now(Box::new(ask_caller(facts, reason))),
            Verdict::AskApprover => Decided::AskApprover(reason),
        }
    }

    async fn decide_with_hooks(&self, mut facts: CallFacts) -> PolicyDecision {
        let call = facts.hook_call(self.mode, None);
        let answers = self.hooks.run(HookEvent::PreToolUse, &call, facts.timeout_ms).await;
        let advice = match answers.reply.verdict {
            Some(HookVerdict::Allow) => HookAdvice::Allow,
            Some(HookVerdict::Ask) => HookAdvice::Ask,
            Some(HookVerdict::Deny) | None => HookAdvice::None,
        };
        if let Some(refusal) = facts.apply(answers) {
            return refusal;
        }
        let is_question = |decided: &Decided| match decided {
            Decided::Now(decision) => matches!(decision.decision, Decision::Ask(_)),
            Decided::AskApprover(_) => true,
        };
        let mut decided = self.decide(&facts, advice);
        if is_question(&decided) || self.would_ask(&facts, advice) {
            let call = facts.hook_call(self.mode, None);
            let answers = self.hooks.run(HookEvent::PermissionRequest, &call, facts.timeout_ms).await;
            let verdict = answers.reply.verdict;
            if let Some(refusal) = facts.apply(answers) {
                return refusal;
            }
            if verdict == Some(HookVerdict::Allow) && facts.effect != Effect::Destructive {
                return match self.denying_rule(&facts) {
                    // The hook may have rewritten the arguments into something that is denied.
                    Some(rule) => facts.refuse(format!("the rule `{rule}` denies it")),
                    None => facts.allow("a hook allows it".to_owned(), true),
                };
            }
            decided = self.decide(&facts, advice);
        }
        match decided {
            Decided::Now(decision) => *decision,
            Decided::AskApprover(reason) => self.ask_approver(facts, reason).await,
        }
    }

    /// Whether somebody would be asked if anybody could be. Then a hook may answer.
    fn would_ask(&self, facts: &CallFacts, advice: HookAdvice) -> bool {
        let doc = facts.arguments.to_doc();
        let rule = self.rules.first_match(&facts.names, Some(doc.root()));
        decide(self.mode, facts.effect, rule, advice, WhoCanBeAsked::Caller).verdict == Verdict::AskCaller
    }

    async fn ask_approver(&self, facts: CallFacts, reason: String) -> PolicyDecision {
        let Some(approver) = &self.approver else { return facts.refuse(reason) };
        let request = ApprovalRequest {
            call_id: facts.call_id.clone(),
            principal: facts.principal.clone(),
            deadline_ms: facts.deadline_ms,
            ..ApprovalRequest::new(&facts.names, &facts.arguments, &reason)
        };
        let left_ms = facts.deadline_ms.saturating_sub(facts.platform.now_ms());
        let asked = approver.clone().ask(request);
        let answer = tokio::time::timeout(Duration::from_millis(left_ms), asked).await;
        let by = |by: Option<String>| by.map(|by| format!(" by {by}")).unwrap_or_default();
        match answer.unwrap_or(Approval::Unanswered) {
            Approval::Allowed { by: who } => facts.allow(format!("approved{}; {reason}", by(who)), true),
            Approval::Declined { by: who } => facts.refuse(format!("declined{}; {reason}", by(who))),
            Approval::Unanswered => facts.refuse(format!("nobody answered in time; {reason}")),
        }
    }

    async fn run_result_hooks(
        &self,
        event: HookEvent,
        facts: CallFacts,
        note: Note,
        result: CallResult,
    ) -> ResultDecision {
        let response = wire::encode::stored_result(&result);
        let text;
        let shown = match event {
            HookEvent::PostToolUseFailure => {
                text = failure_text(&response);
                HookResult::Error(&text)
            }
            _ => HookResult::Response(&response),
        };
        let duration_ms = facts.platform.now_ms().saturating_sub(note.started_ms);
        let call = facts.hook_call(self.mode, Some(HookOutcome { result: shown, duration_ms }));
        let HookAnswers { reply, hook } = self.hooks.run(event, &call, facts.timeout_ms).await;
        let hook = hook.map(String::into_boxed_str);
        if reply.verdict == Some(HookVerdict::Deny) {
            let reason = reply.reason.as_deref().unwrap_or("a hook of this server withholds the result");
            return ResultDecision::Withhold { reason: format!("{RAN}: {reason}").into(), hook };
        }
        let replaced = reply.updated_output.map(|output| from_hook(&output, result.is_error()));
        let reason = reply.reason;
        let own_reason = |default| reason.as_deref().unwrap_or(default);
        let contexts: Vec<String> = note.context.into_iter().chain(reply.context).collect();
        match (replaced, contexts.is_empty()) {
            (None, true) => ResultDecision::Keep,
            (Some(result), true) => replace(result, own_reason(REPLACED), hook),
            (replaced, false) => {
                let reason = own_reason(if replaced.is_some() { REPLACED } else { ADDED_CONTEXT });
                let result = add_context(&replaced.unwrap_or(result), &contexts.join("\n"));
                replace(result, reason, hook.or(note.hook))
            }
        }
    }
}

const RAN: &str = "the tool has run, and its result is withheld";
/// Why a result was replaced, where a hook does not say.
const REPLACED: &str = "a hook replaced the result";
const ADDED_CONTEXT: &str = "a hook added context";

fn replace(result: CallResult, reason: &str, hook: Option<Box<str>>) -> ResultDecision {
    ResultDecision::Replace { result: Box::new(result), reason: Some(reason.into()), hook }
}

/// Asks the user of the calling client, or takes their answer from the journal.
fn ask_caller(facts: &CallFacts, reason: String) -> PolicyDecision {
    let request = ApprovalRequest::new(&facts.names, &facts.arguments, &reason);
    let key = question_key(&facts.names, &facts.arguments);
    let answer = facts.journal.response(&key);
    let verdict = answer.as_ref().and_then(|answer| answer.elicit_result()).map(|result| match result {
        ElicitResult::Accepted(content) => {
            // A box that is not ticked, or left out, is a no.
            content.and_then(|content| content.get(ALLOW)?.bool()).unwrap_or(false)
        }
        ElicitResult::Declined | ElicitResult::Cancelled => false,
    });
    match verdict {
        Some(true) => facts.allow(format!("the user allowed it; {reason}"), true),
        Some(false) => facts.refuse(format!("the user did not allow it; {reason}")),
        None => {
            let schema = Json::object(|schema| {
                schema.str("type", "object");
                schema.object("properties", |properties| {
                    properties.object(ALLOW, |allow| {
                        allow.str("type", "boolean").str("title", &request.question()).bool("default", false);
                    });
                });
            });
            let form = InputRequest::Form { message: request.message(), schema };
            PolicyDecision {
                hook: facts.hook.as_deref().map(Into::into),
                note: Some(facts.note(&reason, true).to_json()),
                ..PolicyDecision::new(Decision::Ask(InputRequests::single(key, form))).because(reason)
            }
        }
    }
}

const ALLOW: &str = "allow";

/// An answer counts only for the call that was shown: this tool with these arguments.
fn question_key(names: &ToolNames, arguments: &Json) -> String {
    let mut text = names.listed.clone().into_bytes();
    text.push(0);
    arguments.to_doc().root().write_canonical(&mut text);
    let digest = ring::digest::digest(&ring::digest::SHA256, &text);
    format!("spile/permission/{}", hex(&digest.as_ref()[..8]))
}

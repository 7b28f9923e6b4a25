//! Programs outside of the server that have a say in a call: before it runs, when somebody would be asked, and with its
//! result.
//!
//! Settings, input and output are Claude Code's, so that its hooks work here. Other than there, a hook that fails before
//! a call refuses it, unless its settings say otherwise.

mod matcher;
mod output;
mod run;

use std::time::Duration;

use json::{Json, Node};
use url::Url;

pub use matcher::{Matcher, MatcherSyntax};
pub use output::{HookReply, HookVerdict};
pub use run::CommandEnvironment;

use crate::names::ToolNames;
use crate::rules::Rules;
use run::RunnableAction;

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookEvent {
    PreToolUse,
    PermissionRequest,
    PostToolUse,
    PostToolUseFailure,
}

impl HookEvent {
    pub const ALL: [Self; 4] =
        [Self::PreToolUse, Self::PermissionRequest, Self::PostToolUse, Self::PostToolUseFailure];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreToolUse => "PreToolUse",
            Self::PermissionRequest => "PermissionRequest",
            Self::PostToolUse => "PostToolUse",
            Self::PostToolUseFailure => "PostToolUseFailure",
        }
    }

    /// What a failed hook means if its settings do not say. Before a call nothing is lost by refusing; afterwards the
    /// effect has happened.
    pub fn default_on_error(self) -> OnHookError {
        match self {
            Self::PreToolUse | Self::PermissionRequest => OnHookError::Deny,
            Self::PostToolUse | Self::PostToolUseFailure => OnHookError::Allow,
        }
    }
}

/// What a hook that fails means for the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnHookError {
    Deny,
    /// As if it had said nothing.
    Allow,
}

/// One hook of the settings.
#[derive(Debug)]
pub struct Hook {
    pub event: HookEvent,
    pub matcher: Matcher,
    /// A permission rule that must match too.
    pub condition: Option<Rules>,
    pub action: HookAction,
    pub timeout_ms: u64,
    pub on_error: OnHookError,
}

impl Hook {
    pub const TIMEOUT_MS_DEFAULT: u64 = 60_000;
    pub const TIMEOUT_MS_MAX: u64 = 600_000;
    /// A settings file has no more.
    pub const COUNT_MAX: usize = 1000;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookAction {
    /// With `args` a program; without, a line for the shell.
    Command {
        command: String,
        args: Option<Vec<String>>,
    },
    Http(HttpHook),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpHook {
    pub url: Url,
    pub headers: Vec<(String, HeaderValue)>,
    /// Names of variables that headers may use.
    pub allowed_variables: Vec<String>,
}

/// A header with `${VARIABLE}` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderValue(pub String);

impl HeaderValue {
    /// A variable that is not allowed or not set is empty, as in Claude Code.
    fn resolve(&self, allowed: &[String]) -> String {
        let mut out = String::new();
        let mut rest = self.0.as_str();
        while let Some((before, behind)) = rest.split_once("${") {
            let Some((name, behind)) = behind.split_once('}') else { break };
            out.push_str(before);
            if allowed.iter().any(|allowed| allowed == name) {
                out.push_str(&std::env::var(name).unwrap_or_default());
            }
            rest = behind;
        }
        out + rest
    }
}

impl HookAction {
    /// How people know the hook.
    fn name(&self) -> String {
        let text = match self {
            Self::Command { command, args: None } => command.clone(),
            Self::Command { command, args: Some(args) } => {
                let words = args.iter().map(Into::into).collect();
                upstream::process::Command { args: words, ..upstream::process::Command::new(command) }
                    .to_string()
            }
            Self::Http(hook) => upstream::redact::address(hook.url.as_str()).into_owned(),
        };
        crate::question::cut_line(&text, NAME_CHARS_MAX)
    }
}

const NAME_CHARS_MAX: usize = 120;

/// For the caller. What a hook prints when it fails is for its owner.
const FAILED: &str = "a hook of this server failed; the server's log has the details";

/// All hooks, ready to run.
pub struct Hooks {
    hooks: Vec<(Hook, RunnableAction)>,
    environment: CommandEnvironment,
}

/// What an event is about.
pub struct HookCall<'a> {
    pub names: &'a ToolNames,
    pub arguments: &'a Json,
    pub mode: &'static str,
    pub session: Option<[u8; 16]>,
    pub call_id: &'a str,
    pub principal: &'a str,
    pub outcome: Option<HookOutcome<'a>>,
}

/// How the call ended.
pub struct HookOutcome<'a> {
    pub result: HookResult<'a>,
    pub duration_ms: u64,
}

pub enum HookResult<'a> {
    Response(&'a Json),
    Error(&'a str),
}

/// What the hooks of an event said together.
#[derive(Debug, Default)]
pub struct HookAnswers {
    pub reply: HookReply,
    /// The hook whose verdict or change counts.
    pub hook: Option<String>,
}

impl Hooks {
    /// Without hooks.
    pub fn none() -> Self {
        let environment = CommandEnvironment { process: Default::default(), cwd: Default::default() };
        Self { hooks: Vec::new(), environment }
    }

    /// `Err` says which hook cannot be set up.
    pub fn new(hooks: Vec<Hook>, environment: CommandEnvironment) -> Result<Self, String> {
        let ready = |hook: Hook| match RunnableAction::new(&hook.action, &environment) {
            Ok(action) => Ok((hook, action)),
            Err(reason) => Err(format!("hook `{}`: {reason}", hook.action.name())),
        };
        let hooks = hooks.into_iter().map(ready).collect::<Result<_, _>>()?;
        Ok(Self { hooks, environment })
    }

    /// Whether an event has hooks for this call.
    pub fn has(&self, event: HookEvent, names: &ToolNames, arguments: Option<Node<'_>>) -> bool {
        self.matching(event, names, arguments).next().is_some()
    }

    fn matching(
        &self,
        event: HookEvent,
        names: &ToolNames,
        arguments: Option<Node<'_>>,
    ) -> impl Iterator<Item = &(Hook, RunnableAction)> {
        let is_meant = move |hook: &Hook| {
            hook.event == event
                && hook.matcher.matches(names)
                && hook.condition.as_ref().is_none_or(|rule| rule.first_match(names, arguments).is_some())
        };
        self.hooks.iter().filter(move |(hook, _)| is_meant(hook))
    }

    /// Runs all hooks of an event at the same time, identical ones once, and puts their answers together.
    pub async fn run(&self, event: HookEvent, call: &HookCall<'_>, timeout_ms: u64) -> HookAnswers {
        let doc = call.arguments.to_doc();
        let mut unique: Vec<&(Hook, RunnableAction)> = Vec::new();
        for one in self.matching(event, call.names, Some(doc.root())) {
            if unique.iter().all(|(hook, _)| hook.action != one.0.action) {
                unique.push(one);
            }
        }
        let input = self.input(event, call);
        let running = unique.iter().map(|(hook, action)| {
            let timeout_ms = hook.timeout_ms.min(timeout_ms);
            run::run(action, event, &input, &self.environment, timeout_ms)
        });
        let replies = futures_util::future::join_all(running).await;
        let mut answers = HookAnswers::default();
        for ((hook, _), reply) in unique.iter().zip(replies) {
            let name = hook.action.name();
            let reply = reply.unwrap_or_else(|reason| {
                tracing::warn!(hook = name, event = event.as_str(), reason, "hook failed");
                match hook.on_error {
                    OnHookError::Deny => HookReply::deny(FAILED),
                    OnHookError::Allow => HookReply::default(),
                }
            });
            if let Some(message) = &reply.system_message {
                tracing::info!(hook = name, message, "message of a hook");
            }
            let says_something = reply.verdict > answers.reply.verdict
                || reply.updated_input.is_some()
                || reply.updated_output.is_some()
                || reply.context.is_some();
            let outweighs = answers.reply.verdict <= reply.verdict;
            if says_something && (answers.hook.is_none() || outweighs) {
                answers.hook = Some(name);
            }
            answers.reply.add(reply);
        }
        answers
    }

    /// As Claude Code writes it; `principal` is ours.
    fn input(&self, event: HookEvent, call: &HookCall<'_>) -> Json {
        let session = call.session.map(|session| spile_core::text::hex(&session)).unwrap_or_default();
        Json::object(|input| {
            input.str("session_id", &session).str("transcript_path", "");
            input.str("cwd", &self.environment.cwd.to_string_lossy());
            input.str("hook_event_name", event.as_str()).str("permission_mode", call.mode);
            input.str("tool_name", call.names.for_hooks()).raw("tool_input", call.arguments.as_str());
            if event != HookEvent::PermissionRequest {
                input.str("tool_use_id", call.call_id);
            }
            if let Some(origin) = &call.names.origin {
                input.object("mcp_server", |server| {
                    server.str("name", &origin.server).str("source", "gateway");
                });
            }
            input.str("principal", call.principal);
            if let Some(outcome) = &call.outcome {
                match outcome.result {
                    HookResult::Response(response) => input.raw("tool_response", response.as_str()),
                    HookResult::Error(error) => input.str("error", error).bool("is_interrupt", false),
                };
                input.int("duration_ms", outcome.duration_ms.min(i64::MAX as u64) as i64);
            }
        })
    }
}

/// How long the supervisor of a hook waits after SIGTERM, and after SIGKILL.
const TERM_GRACE: Duration = Duration::from_millis(500);
const KILL_GRACE: Duration = Duration::from_secs(2);

impl CommandEnvironment {
    pub fn new(cwd: impl Into<std::path::PathBuf>) -> Self {
        let process = upstream::process::ProcessOptions {
            term_grace_ms: TERM_GRACE.as_millis() as u64,
            kill_grace_ms: KILL_GRACE.as_millis() as u64,
            ..Default::default()
        };
        Self { process, cwd: cwd.into() }
    }
}

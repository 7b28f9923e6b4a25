//! Policy: decides about every call, once before it runs and once with its result.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use json::Json;

use crate::call::Call;
use crate::caller::Caller;
use crate::catalog::Tool;
use crate::error::ItemKind;
use crate::input::{InputRequests, Journal};
use crate::outcome::CallResult;
use crate::provider::Platform;

/// Decides about calls. A server without a policy pays nothing for it.
pub trait Policy: Send + Sync {
    /// Called at the start of each round, after the arguments were checked. A policy that asked in an earlier round finds
    /// the answers in the journal.
    fn before(&self, call: &Call, cx: &PolicyContext<'_>) -> PolicyRun<PolicyDecision>;

    /// Called with the result, before it is sent.
    fn after(
        &self,
        _call: &Call,
        _result: &CallResult,
        _cx: &PolicyContext<'_>,
    ) -> PolicyRun<ResultDecision> {
        PolicyRun::Now(ResultDecision::Keep)
    }

    /// What of the catalog this caller may see and call; `None` for all of it.
    fn view(&self, _caller: &Caller) -> Option<CatalogView> {
        None
    }
}

/// What a policy knows about a call.
pub struct PolicyContext<'a> {
    pub caller: &'a Caller,
    /// The definition of the called tool; `None` for prompts, resources and completions.
    pub tool: Option<&'a Tool>,
    pub journal: &'a Journal,
    pub platform: &'a Arc<dyn Platform>,
    /// Identifies the session or connection that the call belongs to.
    pub session: Option<[u8; 16]>,
    /// How long the decision may take. After that the host drops its future, and the call fails.
    pub timeout_ms: u64,
}

/// A decision that is ready, or that must wait for something.
pub enum PolicyRun<T> {
    Now(T),
    Later(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> PolicyRun<T> {
    pub async fn wait(self) -> T {
        match self {
            Self::Now(decision) => decision,
            Self::Later(future) => future.await,
        }
    }
}

/// What happens to a call, and why. Reason and hook go into the call record.
#[derive(Debug, Clone)]
pub struct PolicyDecision {
    pub decision: Decision,
    pub reason: Option<Box<str>>,
    /// The program outside of the server that decided, or had a part in it.
    pub hook: Option<Box<str>>,
    /// What the policy wants to find again as [`Journal::policy_note`]: in later rounds, and when the call has run.
    pub note: Option<Json>,
}

#[derive(Debug, Clone)]
pub enum Decision {
    Allow,
    /// The caller gets `forbidden` with the reason.
    Refuse,
    /// The user is asked first. The call runs again with the answers.
    Ask(InputRequests),
    /// The call runs with these arguments instead, which must match the tool's schema.
    ReplaceArguments(Json),
}

impl Decision {
    /// The word for logs and audit.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Refuse => "refuse",
            Self::Ask(_) => "ask",
            Self::ReplaceArguments(_) => "replace_arguments",
        }
    }
}

impl PolicyDecision {
    pub fn new(decision: Decision) -> Self {
        Self { decision, reason: None, hook: None, note: None }
    }

    pub fn allow() -> Self {
        Self::new(Decision::Allow)
    }

    pub fn refuse(reason: impl Into<Box<str>>) -> Self {
        Self::new(Decision::Refuse).because(reason)
    }

    #[must_use]
    pub fn because(self, reason: impl Into<Box<str>>) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }
}

/// What happens to a result.
#[derive(Debug, Clone)]
pub enum ResultDecision {
    Keep,
    /// This is sent instead. It must match the tool's output schema.
    Replace {
        result: Box<CallResult>,
        /// For the call record. The caller does not see it.
        reason: Option<Box<str>>,
        hook: Option<Box<str>>,
    },
    /// The caller gets `forbidden` with this reason.
    Withhold {
        reason: Box<str>,
        hook: Option<Box<str>>,
    },
}

/// The part of a catalog that some callers may see. Callers with equal keys see the same, so that lists are rendered once
/// for all of them.
#[derive(Clone)]
pub struct CatalogView {
    pub key: u64,
    pub visibility: Arc<dyn Visibility>,
}

/// Whether an item is visible. What is not visible does not exist for its callers.
pub trait Visibility: Send + Sync {
    fn is_visible(&self, kind: ItemKind, name: &str) -> bool;
}

/// Hides nothing.
pub struct Everything;

impl Visibility for Everything {
    fn is_visible(&self, _kind: ItemKind, _name: &str) -> bool {
        true
    }
}

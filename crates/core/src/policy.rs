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

/// What happens to a call, and why. The reason goes into the call record.
#[derive(Debug, Clone)]
pub struct PolicyDecision {
    pub decision: Decision,
    pub reason: Option<Box<str>>,
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
    pub fn allow() -> Self {
        Self { decision: Decision::Allow, reason: None }
    }

    pub fn refuse(reason: impl Into<Box<str>>) -> Self {
        Self { decision: Decision::Refuse, reason: Some(reason.into()) }
    }
}

/// What happens to a result.
#[derive(Debug, Clone)]
pub enum ResultDecision {
    Keep,
    /// This is sent instead. It must match the tool's output schema.
    Replace(Box<CallResult>),
    /// The caller gets `forbidden` with this reason.
    Withhold(Box<str>),
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

//! The seam between the host and whatever does the work.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::call::Call;
use crate::caller::Caller;
use crate::catalog::Catalog;
use crate::events::EventSink;
use crate::input::Journal;
use crate::outcome::Outcome;

/// Anything that owns tools, resources or prompts: a compiled manifest, a script, another MCP server.
pub trait Provider: Send + Sync {
    /// What there is now. Cheap: the host reads it at start and after each [`Change`].
    fn catalog(&self) -> Arc<Catalog>;

    /// One round of a call. Arguments have been checked against the tool's schema.
    ///
    /// Dropping the [`Work`] of [`Run::Later`] is the cancellation, so everything it holds must stop on drop.
    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run;

    /// Called once, when the provider is taken in: whom to tell about changes.
    fn set_change_listener(&self, _listener: Arc<dyn ChangeListener>) {}
}

/// What a round of a call may look at and speak to.
pub struct CallContext<'a> {
    pub caller: &'a Caller,
    pub journal: &'a Journal,
    pub events: &'a EventSink,
    pub platform: &'a Arc<dyn Platform>,
}

pub enum Run {
    /// The answer was at hand: no future is made.
    Now(Outcome),
    Later(CallFuture),
}

/// Work under way.
pub type CallFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl Run {
    pub fn now(outcome: impl Into<Outcome>) -> Self {
        Self::Now(outcome.into())
    }

    pub fn later(work: impl Future<Output = Outcome> + Send + 'static) -> Self {
        Self::Later(Box::pin(work))
    }
}

/// What can change under a client's feet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogChange {
    Tools,
    Prompts,
    Resources,
    /// One resource, by its URI.
    Resource(Arc<str>),
}

/// Who wants to know of changes: the host.
pub trait ChangeListener: Send + Sync {
    fn catalog_changed(&self, change: CatalogChange);
}

/// The clock and the dice, handed in so that a test can hold them.
pub trait Platform: Send + Sync {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;
    /// Fills with bytes that nobody can guess.
    fn fill_random(&self, bytes: &mut [u8]);
}

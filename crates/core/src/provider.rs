//! The interface between the host and the providers that run calls.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use json::Json;

use crate::call::Call;
use crate::caller::Caller;
use crate::catalog::Catalog;
use crate::error::{CallError, ItemKind};
use crate::events::EventSink;
use crate::input::Journal;
use crate::outcome::Outcome;
use crate::policy::Visibility;
use crate::principal::Principal;

/// Anything that owns tools, resources or prompts: a compiled manifest, a script, another MCP server.
pub trait Provider: Send + Sync {
    /// The current catalog. Cheap: the host reads it at start and after each [`CatalogChange`].
    fn catalog(&self) -> Arc<Catalog>;

    /// Runs one round of a call. The host has validated the arguments against the tool's schema.
    ///
    /// Dropping the [`CallFuture`] of [`Run::Later`] cancels the call, so all work it started must stop on drop.
    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run;

    /// Called once, when the host adds the provider. The provider reports changes to `listener`.
    fn set_change_listener(&self, _listener: Arc<dyn ChangeListener>) {}

    /// The first client subscribed to this resource: from now on the provider reports its changes.
    fn watch(&self, _uri: &str) {}

    /// For each subscription to a resource: what to wait for until its changes are certain to be reported. `None`: they are
    /// already. The future ends within seconds, also where they will not be.
    fn watching(&self, _uri: &str) -> Option<WatchFuture> {
        None
    }

    /// The last client unsubscribed from this resource.
    fn unwatch(&self, _uri: &str) {}

    /// A client says that its roots have changed. `principal` and `session` are those of its calls.
    fn client_roots_changed(&self, _principal: &Principal, _session: Option<[u8; 16]>) {}

    /// A client connects or reads a list. Cheap: this happens often.
    fn looked_at(&self) {}

    /// Whether a round that runs twice with the same answers has the effect of one. For all other providers the host
    /// accepts each `requestState` once.
    fn repeats_rounds_safely(&self) -> bool {
        false
    }

    /// The roles that it gives to callers. They count for the whole server: with roles, every caller sees what
    /// [`Provider::role_view`] of each provider shows to the caller's role, and a caller without a role sees nothing.
    fn roles(&self) -> Option<Arc<dyn CallerRoles>> {
        None
    }

    /// What callers with a role see of it. Of a provider that knows no roles, they see nothing.
    fn role_view(&self, _role: &str) -> RoleView {
        RoleView::Nothing
    }

    /// Whether its results match their output schemas by construction. The host checks all others.
    fn guarantees_output_schemas(&self) -> bool {
        false
    }
}

/// Says which role a caller has.
pub trait CallerRoles: Send + Sync {
    fn names(&self) -> Vec<&str>;

    /// The index of the caller's role; `None` if the caller has none.
    fn role_of(&self, principal: &Principal) -> Option<usize>;
}

/// The part of a provider that callers with one role see.
pub enum RoleView {
    Nothing,
    /// These items. Resources of a template that is not visible cannot be read either.
    Part(Arc<dyn Visibility>),
    /// Another provider, with a catalog of its own.
    Provider(Arc<dyn Provider>),
}

/// The context of one round of a call.
pub struct CallContext<'a> {
    pub caller: &'a Caller,
    pub journal: &'a Journal,
    pub events: &'a EventSink,
    pub platform: &'a Arc<dyn Platform>,
    /// How long this round may take. After that the host drops its future.
    pub timeout_ms: u64,
    /// Calls other tools of the same server.
    pub tools: &'a dyn ToolCaller,
    /// What the request said beside its message. `None` if it has no head, or if no provider reads it.
    pub request_head: Option<&'a RequestHead>,
    /// Identifies the session or connection that the call belongs to.
    pub session: Option<[u8; 16]>,
    /// Where the caller calls from, if it came over a network.
    pub address: Option<IpAddr>,
    /// The client asked in this call for a task in place of the result. Work that is detached becomes that task.
    pub wants_task: bool,
}

/// The head of an HTTP request, without what identifies its sender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// In the order of the request; names are in lower case.
    headers: Vec<(Box<str>, Box<str>)>,
}

impl RequestHead {
    pub const HEADERS_MAX: usize = 64;
    pub const BYTES_MAX: usize = 16 << 10;
    /// Credentials belong to the transport. Who calls is [`Caller::principal`].
    const SECRET: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "mcp-session-id"];

    /// Leaves out credentials, and what exceeds the limits.
    pub fn new<'h>(headers: impl IntoIterator<Item = (&'h str, &'h str)>) -> Self {
        let mut bytes = 0;
        let kept = headers
            .into_iter()
            .filter(|(name, _)| !Self::SECRET.iter().any(|secret| name.eq_ignore_ascii_case(secret)));
        let kept = kept.take(Self::HEADERS_MAX).take_while(|(name, value)| {
            bytes += name.len() + value.len();
            bytes <= Self::BYTES_MAX
        });
        Self { headers: kept.map(|(name, value)| (name.to_ascii_lowercase().into(), value.into())).collect() }
    }

    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// Calls tools of the same server on behalf of the caller of a running call: with the same identity, policy and limits.
pub trait ToolCaller: Send + Sync {
    /// `journal` has the answers for the called tool: empty at first. If the outcome is
    /// [`Outcome::InputRequired`], the calling provider decides whether to ask its own caller.
    fn call_tool(&self, name: &str, arguments: Json, journal: Journal) -> CallFuture;

    /// The same for a call that is only passed on: the called tool reports progress and logs in place of the calling one.
    fn pass_on(&self, name: &str, arguments: Json, journal: Journal) -> CallFuture {
        self.call_tool(name, arguments, journal)
    }

    /// Reads a resource of the same server, in the same way.
    fn read_resource(&self, uri: &str, journal: Journal) -> CallFuture;

    /// The same for work that outlives [`CallContext`]: a future that calls tools later.
    fn shared(&self) -> Arc<dyn ToolCaller>;

    /// Whether another tool made the running call. Such calls give way to those of clients.
    fn is_nested(&self) -> bool {
        false
    }
}

/// For calls without a server, as in tests: knows no tools.
pub struct NoTools;

impl ToolCaller for NoTools {
    fn call_tool(&self, name: &str, _arguments: Json, _journal: Journal) -> CallFuture {
        let unknown = CallError::UnknownItem { kind: ItemKind::Tool, name: name.to_owned() };
        Box::pin(std::future::ready(Outcome::Failed(unknown)))
    }

    fn read_resource(&self, uri: &str, _journal: Journal) -> CallFuture {
        let unknown = CallError::UnknownItem { kind: ItemKind::Resource, name: uri.to_owned() };
        Box::pin(std::future::ready(Outcome::Failed(unknown)))
    }

    fn shared(&self) -> Arc<dyn ToolCaller> {
        Arc::new(Self)
    }
}

pub enum Run {
    /// The outcome is ready; no future is needed.
    Now(Outcome),
    Later(CallFuture),
}

/// Ends when the changes of a resource are reported.
pub type WatchFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A running call.
pub type CallFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl Run {
    pub fn now(outcome: impl Into<Outcome>) -> Self {
        Self::Now(outcome.into())
    }

    pub fn later(future: impl Future<Output = Outcome> + Send + 'static) -> Self {
        Self::Later(Box::pin(future))
    }
}

/// Where work saves how far it came, so that it can go on after a restart of the process.
#[derive(Clone, Default)]
pub struct Checkpoints(Option<Arc<dyn CheckpointSink>>);

/// Keeps the last checkpoint of one task, or of one call that a task made. The host implements it, and a provider for the
/// calls that its own calls make.
pub trait CheckpointSink: Send + Sync {
    fn save(&self, memo: Vec<u8>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// See [`Checkpoints::goes_on_elsewhere`].
    fn goes_on_elsewhere(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.are_kept() { "Checkpoints(kept)" } else { "Checkpoints(none)" })
    }
}

impl Checkpoints {
    pub fn new(sink: Arc<dyn CheckpointSink>) -> Self {
        Self(Some(sink))
    }

    /// For work whose caller waits: nothing outlives the process.
    pub fn none() -> Self {
        Self(None)
    }

    pub fn are_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Saves a memo in place of the last one. If the process ends, the work runs again with it as [`Journal::memo`].
    pub async fn save(&self, memo: Vec<u8>) {
        if let Some(sink) = &self.0 {
            sink.save(memo).await;
        }
    }

    /// Whether another process does the same work by now. Work that is dropped then is not cancelled.
    pub fn goes_on_elsewhere(&self) -> bool {
        self.0.as_ref().is_some_and(|sink| sink.goes_on_elsewhere())
    }
}

/// What changed in a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogChange {
    Tools,
    Prompts,
    Resources,
    /// One resource, by its URI.
    Resource(Arc<str>),
}

/// Receives catalog changes. The host implements it.
pub trait ChangeListener: Send + Sync {
    fn catalog_changed(&self, change: CatalogChange);
}

/// Clock and randomness, passed in so that tests can control them.
pub trait Platform: Send + Sync {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;
    /// Fills `bytes` from a cryptographically secure source.
    fn fill_random(&self, bytes: &mut [u8]);
}

//! One MCP server: its registry, its limits, and the state it keeps while it serves.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll, ready};

use json::ParseLimits;
use spile_core::text::{hex, parse_hex};
use spile_core::{CallError, Limits, Platform, Policy, Principal, Provider, RequestHead};
use state::keyring::Keyring;
use state::store::{EncryptedStore, MemoryStore, Store, StoreLimits};
use wire::encode;
use wire::error::RpcError;
use wire::{DecodeOptions, Decoded, ErrorResponse, MessageContext, RequestId, SessionError};

use crate::caller_key::CallerKey;
use crate::connection_state::ConnectionState;
use crate::observer::{self, CallObserver};
use crate::registry::{self, Registry, UnservedItem};
use crate::replicas::ReplicaOutbox;
use crate::sessions::{SessionStateError, SessionTicket, Sessions, TicketMemo};
use crate::sharded_counter::ShardedCounter;
use crate::subscriptions::{SubscriptionEvent, SubscriptionHub};
use crate::tasks::Tasks;

/// Name, limits and platform of a server.
pub struct Config {
    pub name: String,
    /// The contract's version. Clients see it as `serverInfo.version`.
    pub version: String,
    pub limits: Limits,
    pub platform: Arc<dyn Platform>,
    /// Seals what clients hold for the server. Servers with the same keys accept each other's.
    pub keyring: Arc<Keyring>,
    /// What must outlive a request. Servers with the same store share it.
    pub store: Arc<dyn Store>,
    /// Names this server among those that share its store: what it left there is continued under the same name.
    pub store_scope: String,
}

impl Config {
    /// With keys and a store for this run: nothing that a client holds survives a restart.
    pub fn new(name: &str, version: &str, limits: Limits, platform: Arc<dyn Platform>) -> Self {
        let keyring = Arc::new(Keyring::for_this_run(&*platform));
        let store = Arc::new(MemoryStore::new(StoreLimits::default()));
        let store_scope = name.to_owned();
        Self { name: name.into(), version: version.into(), limits, platform, keyring, store, store_scope }
    }
}

/// The providers served together. [`Server::swap`] replaces them while the server runs.
pub struct ProviderSet {
    /// The contract's version.
    pub version: String,
    pub providers: Vec<Arc<dyn Provider>>,
    /// Time limit of a call; `None` uses [`Limits::call_timeout_ms`].
    pub call_timeout_ms: Option<u64>,
    /// Tools that are listed first, of any provider. The others follow in the order of their catalogs.
    pub tool_order: Vec<String>,
}

/// One state of a server's registry. A message is decoded, checked and dispatched with the same one.
#[derive(Clone)]
pub struct RegistrySnapshot(pub(crate) Arc<Registry>);

pub struct Server {
    pub name: String,
    pub limits: Limits,
    scan_limits: ParseLimits,
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) store: EncryptedStore,
    pub(crate) store_scope: String,
    pub(crate) subscriptions: SubscriptionHub,
    pub(crate) tasks: Tasks,
    pub(crate) counters: Counters,
    pub(crate) sessions: Sessions,
    pub(crate) registry: RwLock<Arc<Registry>>,
    /// Serializes changes of `registry`, so that none is lost.
    pub(crate) swap_lock: Mutex<()>,
    last_reload: Mutex<Option<ReloadReport>>,
    source_health: Mutex<SourceHealth>,
    pub(crate) observer: OnceLock<Arc<dyn CallObserver>>,
    pub(crate) policy: OnceLock<Arc<dyn Policy>>,
    known_principals: OnceLock<KnownPrincipals>,
    started_ms: u64,
    /// Whether a provider of the current registry reads the heads of requests.
    pub(crate) reads_request_heads: AtomicBool,
    /// Whether other processes learn what happens here.
    pub(crate) has_replicas: AtomicBool,
    /// What they still have to learn.
    pub(crate) replica_outbox: ReplicaOutbox,
}

/// Whether a caller still has access.
pub type KnownPrincipals = Box<dyn Fn(&Principal) -> bool + Send + Sync>;

/// The outcome of the last reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadReport {
    pub at_ms: u64,
    pub outcome: ReloadOutcome,
    /// Text for the operator.
    pub message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// The new contract is served.
    Applied,
    /// The new contract equals the old one.
    Unchanged,
    /// The new contract is invalid or breaking; the last good one is still served.
    Rejected,
}

impl ReloadOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Rejected => "rejected",
        }
    }
}

/// The state of the sources behind a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceHealth {
    pub source_count: usize,
    pub unavailable: Vec<UnavailableSource>,
}

/// A source that cannot be read or written now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnavailableSource {
    /// The name that the operator knows it by.
    pub name: String,
    pub reason: String,
    /// Whether only writes fail.
    pub is_readable: bool,
}

impl SourceHealth {
    /// `ok`, `degraded`, or `down` if no source can be read.
    pub fn as_str(&self) -> &'static str {
        if self.unavailable.is_empty() {
            return "ok";
        }
        let unreadable = self.unavailable.iter().filter(|source| !source.is_readable);
        let mut names: Vec<&str> = unreadable.map(|source| &*source.name).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() < self.source_count { "degraded" } else { "down" }
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) calls_total: ShardedCounter,
    /// Calls that were not ready at their first poll.
    pub(crate) calls_active: AtomicUsize,
    pub(crate) subscriptions: AtomicUsize,
    /// Providers added so far.
    pub(crate) slots: AtomicU64,
    /// Tools compiled so far.
    pub(crate) tools_compiled: AtomicU64,
}

/// Principal and network address of a request.
#[derive(Debug, Clone, Default)]
pub struct CallerIdentity {
    pub principal: Principal,
    pub address: Option<IpAddr>,
    /// Only where a provider reads it: see [`Server::reads_request_heads`].
    pub request_head: Option<Arc<RequestHead>>,
}

/// For logs: `token@127.0.0.1`, an address for a caller without a token, or `local` for a pipe or a unix socket.
impl std::fmt::Display for CallerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&*self.principal.display_name(), self.address) {
            ("", None) => f.write_str("local"),
            ("", Some(address)) => write!(f, "{address}"),
            (principal, None) => f.write_str(principal),
            (principal, Some(address)) => write!(f, "{principal}@{address}"),
        }
    }
}

/// The content of `/status`.
#[derive(Debug, Clone)]
pub struct Status {
    pub version: String,
    pub reload: Option<ReloadReport>,
    pub tools: usize,
    pub resources: usize,
    pub prompts: usize,
    pub sessions: usize,
    pub subscriptions: usize,
    pub calls: u64,
    pub calls_active: usize,
    pub uptime_ms: u64,
}

impl Server {
    pub fn new(config: Config, providers: Vec<Arc<dyn Provider>>) -> Arc<Self> {
        let version = config.version.clone();
        Self::with_provider_set(
            config,
            ProviderSet { version, providers, call_timeout_ms: None, tool_order: Vec::new() },
        )
    }

    /// Like [`Server::new`], with the version and the time limit of `provider_set`.
    pub fn with_provider_set(config: Config, provider_set: ProviderSet) -> Arc<Self> {
        let Config { name, version: _, limits, platform, keyring, store, store_scope } = config;
        let store = EncryptedStore::new(store, keyring.clone(), platform.clone());
        let registry_config = registry::RegistryConfig {
            name: name.clone(),
            version: String::new(),
            call_timeout_ms: limits.call_timeout_ms,
            page_items_max: limits.page_items_max,
            tool_order: Arc::default(),
            listed_providers: None,
        };
        let server = Arc::new(Self {
            scan_limits: ParseLimits { depth_max: limits.json_depth_max, values_max: limits.json_values_max },
            keyring,
            store,
            store_scope,
            subscriptions: SubscriptionHub::default(),
            tasks: Tasks::default(),
            counters: Counters::default(),
            sessions: Sessions::default(),
            registry: RwLock::new(Arc::new(Registry::new(Vec::new(), registry_config, None))),
            swap_lock: Mutex::default(),
            last_reload: Mutex::default(),
            source_health: Mutex::default(),
            observer: OnceLock::new(),
            policy: OnceLock::new(),
            known_principals: OnceLock::new(),
            started_ms: platform.now_ms(),
            reads_request_heads: AtomicBool::new(false),
            has_replicas: AtomicBool::new(false),
            replica_outbox: ReplicaOutbox::default(),
            name,
            limits,
            platform,
        });
        server.watch_resources();
        server.install(provider_set);
        server
    }

    /// Records the outcome of a reload for [`Server::status`].
    pub fn record_reload(&self, outcome: ReloadOutcome, reason: Option<String>) {
        let reload = ReloadReport { at_ms: self.platform.now_ms(), outcome, message: reason };
        *self.last_reload.lock().unwrap_or_else(PoisonError::into_inner) = Some(reload);
    }

    /// Records which sources are unavailable, for [`Server::status`].
    pub fn set_source_health(&self, health: SourceHealth) {
        *self.source_health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }

    pub fn source_health(&self) -> SourceHealth {
        self.source_health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a transport should pass the head of a request on, in [`CallerIdentity::request_head`].
    #[inline]
    pub fn reads_request_heads(&self) -> bool {
        self.reads_request_heads.load(Ordering::Relaxed)
    }

    /// Milliseconds since 1970, by the server's clock.
    pub fn now_ms(&self) -> u64 {
        self.platform.now_ms()
    }

    /// Reports every call to `observer` from now on. A server has at most one observer.
    pub fn set_observer(&self, observer: Arc<dyn CallObserver>) {
        if self.observer.set(observer).is_err() {
            tracing::warn!("a call observer is already set; the new one is ignored");
        }
    }

    /// Lets `policy` decide about every call from now on. A server has at most one policy.
    pub fn set_policy(&self, policy: Arc<dyn Policy>) {
        if self.policy.set(policy).is_err() {
            tracing::warn!("a policy is already set; the new one is ignored");
        }
    }

    /// Says whose tasks are continued. Without it, everybody's are.
    pub fn set_known_principals(&self, known: KnownPrincipals) {
        if self.known_principals.set(known).is_err() {
            tracing::warn!("the known callers are already set; the new ones are ignored");
        }
    }

    pub(crate) fn is_known_principal(&self, principal: &Principal) -> bool {
        self.known_principals.get().is_none_or(|is_known| is_known(principal))
    }

    /// Items of the providers' catalogs that are not served, and why.
    pub fn unserved_items(&self) -> Vec<UnservedItem> {
        self.with_registry(|registry| registry.unserved.clone())
    }

    /// The number of tools compiled since the start.
    pub fn tools_compiled(&self) -> u64 {
        self.counters.tools_compiled.load(Ordering::Relaxed)
    }

    /// Sets an observer unless there is one already.
    pub fn set_observer_if_none(&self, observer: Arc<dyn CallObserver>) {
        self.observer.get_or_init(|| observer);
    }

    #[inline]
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The registry that a caller sees.
    #[inline]
    pub(crate) fn registry_of(&self, principal: &Principal) -> Arc<Registry> {
        self.registry().of_caller(principal)
    }

    /// Reads the registry without cloning its `Arc`. `read` must be short: it holds the lock.
    #[inline]
    pub(crate) fn with_registry<T>(&self, read: impl FnOnce(&Registry) -> T) -> T {
        read(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The registry as it is now, for everything that one message needs.
    #[inline]
    pub fn snapshot(&self) -> RegistrySnapshot {
        RegistrySnapshot(self.registry())
    }

    /// Decodes one message.
    #[inline]
    pub fn decode(
        &self,
        bytes: Vec<u8>,
        context: MessageContext<'_>,
        RegistrySnapshot(registry): &RegistrySnapshot,
    ) -> Decoded {
        let options = DecodeOptions {
            scan_limits: self.scan_limits,
            batch_items_max: self.limits.batch_items_max,
            supports_method: &|method| registry.capabilities.supports_method(method),
        };
        let decoded = wire::decode(bytes, &options, context);
        if let Decoded::Rejected(response) = &decoded {
            observer::log_rejected_message(response);
        }
        decoded
    }

    /// Creates the state of a new pipe connection.
    pub fn open_pipe(&self) -> Arc<ConnectionState> {
        let subscription = self.subscriptions.subscribe_to_lists();
        let mut key = [0; 16];
        self.platform.fill_random(&mut key);
        Arc::new(ConnectionState::with_key(subscription, key, self.platform.now_ms()))
    }

    /// Opens an HTTP+SSE connection of 2024-11-05: one stream, and the messages posted to it.
    pub fn open_sse(self: &Arc<Self>, identity: &CallerIdentity) -> Result<SseConnection, CallError> {
        let mut key = [0; 16];
        self.platform.fill_random(&mut key);
        let owner = CallerKey::new(identity);
        let connection =
            self.sessions.open_sse(key, owner, &self.limits, &self.subscriptions, self.platform.now_ms());
        let connection = connection.map_err(|error| session_limit_error(&error))?;
        Ok(SseConnection { server: self.clone(), connection, key })
    }

    /// Returns the HTTP+SSE connection with this id if it belongs to the caller and its stream is open.
    pub fn sse_connection(&self, name: &str, identity: &CallerIdentity) -> Option<Arc<ConnectionState>> {
        self.sessions.sse_connection(&parse_hex(name.as_bytes())?, &identity.principal)
    }

    /// Opens a session id, and checks that the session lasts.
    pub fn verify_session(
        &self,
        id: impl AsRef<[u8]>,
        identity: &CallerIdentity,
    ) -> Result<SessionTicket, SessionError> {
        self.verify_remembered_session(id.as_ref(), identity, &TicketMemo::default())
    }

    /// The same with a memo that is empty, or was used with this id and caller before.
    pub(crate) fn verify_remembered_session(
        &self,
        id: &[u8],
        identity: &CallerIdentity,
        memo: &TicketMemo,
    ) -> Result<SessionTicket, SessionError> {
        let (now_ms, ttl_ms) = (self.platform.now_ms(), self.limits.session_ttl_ms);
        self.sessions.verify(&self.keyring, id, &identity.principal, memo, now_ms, ttl_ms)
    }

    /// Returns the state of a session, created now if it has none.
    pub fn ensure_session_state(
        &self,
        ticket: &SessionTicket,
        identity: &CallerIdentity,
    ) -> Result<Arc<ConnectionState>, CallError> {
        let owner = CallerKey::new(identity);
        let connection =
            self.sessions.get_or_create(ticket, owner, &self.limits, &self.subscriptions, &*self.platform);
        connection.map_err(|error| session_limit_error(&error))
    }

    /// Returns the state of a session, if it has any.
    pub fn session_state(&self, ticket: &SessionTicket) -> Option<Arc<ConnectionState>> {
        self.sessions.get(ticket)
    }

    pub fn end_session(self: &Arc<Self>, ticket: &SessionTicket) {
        self.sessions.end(ticket, self.platform.now_ms(), self.limits.session_ttl_ms);
        self.publish_ended_session(ticket);
    }

    pub fn status(&self) -> Status {
        let registry = self.registry();
        let (tools, resources, prompts) = registry.counts();
        Status {
            version: registry.config.version.clone(),
            reload: self.last_reload.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            tools,
            resources,
            prompts,
            sessions: self.sessions.count(),
            subscriptions: self.counters.subscriptions.load(Ordering::Relaxed),
            calls: self.counters.calls_total.sum(),
            calls_active: self.counters.calls_active.load(Ordering::Relaxed),
            uptime_ms: self.platform.now_ms().saturating_sub(self.started_ms),
        }
    }

    /// Ends what has no end of its own: subscriptions, streams, tasks. Calls in flight go on.
    pub fn close(&self) {
        self.subscriptions.close();
        self.sessions.close();
        self.tasks.close();
    }
}

fn session_limit_error(error: &SessionStateError) -> CallError {
    if *error == SessionStateError::TotalLimit {
        tracing::warn!("session limit reached; refusing a new session");
    }
    CallError::Busy { retry_after_ms: 1000 }
}

/// The server's end of an HTTP+SSE stream. Dropping it closes the connection and cancels its calls.
pub struct SseConnection {
    server: Arc<Server>,
    pub connection: Arc<ConnectionState>,
    key: [u8; 16],
}

impl SseConnection {
    /// The unguessable id that a client passes with each POST.
    pub fn connection_id(&self) -> String {
        hex(&self.key)
    }

    /// The next message; `None` at the end.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        if let Poll::Ready(message) = self.connection.outgoing.poll_next(cx) {
            return Poll::Ready(message);
        }
        loop {
            match ready!(self.connection.subscription.poll_next(cx)) {
                // No notification may be sent before the handshake.
                Some(SubscriptionEvent::Change(change)) if self.connection.peer().is_some() => {
                    return Poll::Ready(Some(encode::change_notification(&change, None)));
                }
                Some(SubscriptionEvent::Change(_) | SubscriptionEvent::Task(_)) => {}
                // Shutting down: calls in flight are answered first, and the last of them wakes this reader.
                None if self.connection.call_count() > 0 => return Poll::Pending,
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for SseConnection {
    fn drop(&mut self) {
        self.server.sessions.close_sse(&self.key);
    }
}

/// An error response for a transport that refuses a message before decoding it.
pub fn early_error_response(error: &RpcError, id: Option<&RequestId>) -> ErrorResponse {
    ErrorResponse::new(error, id, wire::Version::NEWEST)
}

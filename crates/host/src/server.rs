//! One MCP server: what it serves, and everything it keeps while it does.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::task::{Context, Poll, ready};

use json::ScanLimits;
use spile_core::text::hex;
use spile_core::{CallError, CatalogChange, ChangeListener, Limits, Platform, Principal, Provider};
use wire::encode;
use wire::error::RpcError;
use wire::method::Method;
use wire::{DecodeOptions, Decoded, Defaults, ErrorResponse, ListKind, RequestId};

use crate::connection_state::ConnectionState;
use crate::observer::{self, CallObserver};
use crate::registry::{self, CatalogError, Registry};
use crate::seal::Sealer;
use crate::sessions::{SessionError, SessionOwner, SessionTicket, Sessions};
use crate::subscriptions::{Subscription, SubscriptionEvent, SubscriptionHub};
use crate::tasks::Tasks;

/// What a server is called and how much it allows.
pub struct Config {
    pub name: String,
    /// The contract's version: it tells one set of tools from another.
    pub version: String,
    pub limits: Limits,
    pub platform: Arc<dyn Platform>,
}

/// What is served, and can be replaced while it is.
pub struct ProviderSet {
    /// The contract's version.
    pub version: String,
    pub providers: Vec<Arc<dyn Provider>>,
    /// How long a call may take; else what the server's limits say.
    pub call_timeout_ms: Option<u64>,
}

pub struct Server {
    pub name: String,
    pub limits: Limits,
    scan_limits: ScanLimits,
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) sealer: Sealer,
    pub(crate) subscriptions: SubscriptionHub,
    pub(crate) tasks: Tasks,
    pub(crate) counters: Counters,
    pub(crate) sessions: Sessions,
    registry: RwLock<Arc<Registry>>,
    /// One change at a time: an older catalog must not replace a newer one.
    swap_lock: Mutex<()>,
    last_reload: Mutex<Option<ReloadReport>>,
    source_health: Mutex<SourceHealth>,
    pub(crate) observer: OnceLock<Arc<dyn CallObserver>>,
    started_ms: u64,
}

/// What came of the last change of what is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadReport {
    pub at_ms: u64,
    pub outcome: ReloadOutcome,
    /// For whoever runs the server.
    pub message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// It is served.
    Applied,
    /// It comes to the same as what is served.
    Unchanged,
    /// It cannot be served, or must not; the last good one still is.
    Rejected,
}

impl ReloadOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "served",
            Self::Unchanged => "unchanged",
            Self::Rejected => "kept",
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
    pub(crate) calls_total: AtomicU64,
    pub(crate) calls_active: AtomicUsize,
    pub(crate) subscriptions: AtomicUsize,
}

/// Whose request it is and where it came from.
#[derive(Debug, Clone, Default)]
pub struct CallerIdentity {
    pub principal: Principal,
    pub address: Option<IpAddr>,
}

/// What `/status` tells.
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
    pub fn new(config: Config, providers: Vec<Arc<dyn Provider>>) -> Result<Arc<Self>, CatalogError> {
        let version = config.version.clone();
        Self::with_provider_set(config, ProviderSet { version, providers, call_timeout_ms: None })
    }

    /// The version is that of what is served.
    pub fn with_provider_set(config: Config, served: ProviderSet) -> Result<Arc<Self>, CatalogError> {
        let Config { name, version: _, limits, platform: world } = config;
        let terms = registry::RegistryConfig {
            name: name.clone(),
            version: served.version,
            call_timeout_ms: served.call_timeout_ms.unwrap_or(limits.call_timeout_ms),
            page_items_max: limits.page_items_max,
            generation: 0,
        };
        let registry = Registry::new(served.providers, terms, None)?;
        let server = Arc::new(Self {
            scan_limits: ScanLimits { depth_max: limits.json_depth_max, slots_max: limits.json_slots_max },
            sealer: Sealer::new(&*world),
            subscriptions: SubscriptionHub::default(),
            tasks: Tasks::default(),
            counters: Counters::default(),
            sessions: Sessions::default(),
            registry: RwLock::new(Arc::new(registry)),
            swap_lock: Mutex::default(),
            last_reload: Mutex::default(),
            source_health: Mutex::default(),
            observer: OnceLock::new(),
            started_ms: world.now_ms(),
            name,
            limits,
            platform: world,
        });
        server.attach(&server.registry());
        Ok(server)
    }

    fn attach(self: &Arc<Self>, registry: &Registry) {
        let generation = registry.config.generation;
        for provider in &registry.providers {
            provider.set_change_listener(Arc::new(ServerChangeListener {
                server: Arc::downgrade(self),
                generation,
            }));
        }
    }

    /// Serves something else from now on. Calls under way finish on what they started with; whoever listens is
    /// told of each list that reads differently, once. If it cannot be served, nothing changes.
    pub fn swap(self: &Arc<Self>, served: ProviderSet) -> Result<(), CatalogError> {
        let alone = self.swap_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.registry();
        let terms = registry::RegistryConfig {
            version: served.version,
            call_timeout_ms: served.call_timeout_ms.unwrap_or(self.limits.call_timeout_ms),
            generation: old.config.generation + 1,
            ..old.config.clone()
        };
        let new = Arc::new(Registry::new(served.providers, terms, Some(&old))?);
        *self.registry.write().unwrap_or_else(PoisonError::into_inner) = new.clone();
        self.attach(&new);
        drop(alone);
        // Before anybody hears of it, and asks.
        self.record_reload(ReloadOutcome::Applied, None);
        for (lists, change) in [
            (&[ListKind::Tools][..], CatalogChange::Tools),
            (&[ListKind::Prompts], CatalogChange::Prompts),
            (&[ListKind::Resources, ListKind::Templates], CatalogChange::Resources),
        ] {
            if lists.iter().any(|list| !old.has_same_list(&new, *list)) {
                self.subscriptions.notify(&change);
            }
        }
        Ok(())
    }

    /// Remembers what came of a change, for [`Server::status`].
    pub fn record_reload(&self, outcome: ReloadOutcome, why: Option<String>) {
        let reload = ReloadReport { at_ms: self.platform.now_ms(), outcome, message: why };
        *self.last_reload.lock().unwrap_or_else(PoisonError::into_inner) = Some(reload);
    }

    /// Records which sources are unavailable, for [`Server::status`].
    pub fn set_source_health(&self, health: SourceHealth) {
        *self.source_health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }

    pub fn source_health(&self) -> SourceHealth {
        self.source_health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells `observer` of every call from now on. There can be one.
    pub fn set_observer(&self, observer: Arc<dyn CallObserver>) {
        if self.observer.set(observer).is_err() {
            tracing::warn!("somebody observes the calls already");
        }
    }

    /// Sets an observer unless there is one already.
    pub fn set_observer_if_none(&self, observer: Arc<dyn CallObserver>) {
        self.observer.get_or_init(|| observer);
    }

    #[inline]
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn serves(&self, method: Method) -> bool {
        self.with_registry(|registry| registry.capabilities.supports_method(method))
    }

    /// A short look, without taking hold of it.
    #[inline]
    pub(crate) fn with_registry<T>(&self, look: impl FnOnce(&Registry) -> T) -> T {
        look(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads one message.
    #[inline]
    pub fn decode(&self, bytes: Vec<u8>, bare: Defaults<'_>) -> Decoded {
        let terms = DecodeOptions {
            scan_limits: self.scan_limits,
            batch_items_max: self.limits.batch_items_max,
            supports_method: &|method| self.serves(method),
        };
        let decoded = wire::decode(bytes, &terms, bare);
        if let Decoded::Rejected(response) = &decoded {
            observer::log_rejected_message(response);
        }
        decoded
    }

    /// What a message over a new pipe will be judged by.
    pub fn open_pipe(&self) -> Arc<ConnectionState> {
        let watch = Arc::new(Subscription::for_all_lists());
        self.subscriptions.add(&watch);
        let mut key = [0; 16];
        self.platform.fill_random(&mut key);
        Arc::new(ConnectionState::with_key(watch, key, self.platform.now_ms()))
    }

    /// A line that is one stream, and the messages that are posted to it: HTTP+SSE of 2024-11-05.
    pub fn open_sse(self: &Arc<Self>, who: &CallerIdentity) -> Result<SseConnection, CallError> {
        let mut key = [0; 16];
        self.platform.fill_random(&mut key);
        let owner = SessionOwner::new(&who.principal, who.address);
        let live =
            self.sessions.open_sse(key, owner, &self.limits, &self.subscriptions, self.platform.now_ms());
        let live = live.map_err(|full| session_limit_error(&full))?;
        Ok(SseConnection { server: self.clone(), connection: live, key })
    }

    /// The line of this name, if it is this caller's and its stream is still there.
    pub fn sse_connection(&self, name: &str, who: &CallerIdentity) -> Option<Arc<ConnectionState>> {
        self.sessions.sse_connection(&parse_connection_key(name)?, &who.principal)
    }

    /// Reads a session id.
    pub fn verify_session(&self, id: &str, who: &CallerIdentity) -> Option<SessionTicket> {
        let now_ms = self.platform.now_ms();
        self.sessions.verify(&self.sealer, id, &who.principal, now_ms, self.limits.session_age_ms)
    }

    /// What a session has open, made now if need be.
    pub fn ensure_session_state(
        &self,
        ticket: &SessionTicket,
        who: &CallerIdentity,
    ) -> Result<Arc<ConnectionState>, CallError> {
        let owner = SessionOwner::new(&who.principal, who.address);
        let live = self.sessions.get_or_create(
            ticket,
            owner,
            &self.limits,
            &self.subscriptions,
            self.platform.now_ms(),
        );
        live.map_err(|full| session_limit_error(&full))
    }

    /// What a session has open, if anything.
    pub fn session_state(&self, ticket: &SessionTicket) -> Option<Arc<ConnectionState>> {
        self.sessions.get(ticket)
    }

    pub fn end_session(&self, ticket: &SessionTicket) {
        self.sessions.end(ticket, self.platform.now_ms(), self.limits.session_age_ms);
    }

    /// Something changed: the registry is made anew, and whoever wanted to know is told. A provider that was
    /// replaced meanwhile has nothing to say any more.
    fn apply_change(&self, change: &CatalogChange, generation: u64) {
        if !matches!(change, CatalogChange::Resource(_)) {
            let _alone = self.swap_lock.lock().unwrap_or_else(PoisonError::into_inner);
            let old = self.registry();
            if old.config.generation != generation {
                return;
            }
            match Registry::new(old.providers.clone(), old.config.clone(), Some(&old)) {
                Ok(registry) => {
                    *self.registry.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
                }
                Err(why) => {
                    tracing::error!(%why, "a changed catalog cannot be served; the last good one stays");
                    return;
                }
            }
        }
        self.subscriptions.notify(change);
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
            calls: self.counters.calls_total.load(Ordering::Relaxed),
            calls_active: self.counters.calls_active.load(Ordering::Relaxed),
            uptime_ms: self.platform.now_ms().saturating_sub(self.started_ms),
        }
    }

    /// Ends what would go on for ever: subscriptions, streams, tasks. Calls under way are not touched.
    pub fn close(&self) {
        self.subscriptions.close();
        self.sessions.close();
        self.tasks.close();
    }
}

fn session_limit_error(full: &SessionError) -> CallError {
    if *full == SessionError::TotalLimit {
        tracing::warn!("no room for another session");
    }
    CallError::Busy { retry_after_ms: 1000 }
}

/// The stream's end of a line. Dropping it hangs up: whatever is under way is stopped.
pub struct SseConnection {
    server: Arc<Server>,
    pub connection: Arc<ConnectionState>,
    key: [u8; 16],
}

impl SseConnection {
    /// What nobody can guess: whoever posts names the line by it.
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
                // Without a handshake there is nobody to tell.
                Some(SubscriptionEvent::Change(change)) if self.connection.peer().is_some() => {
                    return Poll::Ready(Some(encode::change_notification(&change, None)));
                }
                Some(SubscriptionEvent::Change(_) | SubscriptionEvent::Task(_)) => {}
                // We are going; calls under way are answered first, and the last of them wakes us.
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

fn parse_connection_key(name: &str) -> Option<[u8; 16]> {
    let digits = Some(name.as_bytes()).filter(|name| name.len() == 32)?;
    let mut key = [0; 16];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16).filter(|_| !c.is_ascii_uppercase());
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(key)
}

/// How a provider reaches the server that took it in, without keeping it alive.
struct ServerChangeListener {
    server: Weak<Server>,
    generation: u64,
}

impl ChangeListener for ServerChangeListener {
    fn catalog_changed(&self, change: CatalogChange) {
        if let Some(server) = self.server.upgrade() {
            server.apply_change(&change, self.generation);
        }
    }
}

/// Shown by a refusal at the door, where no request has been read.
pub fn early_error_response(told: &RpcError, id: Option<&RequestId>) -> ErrorResponse {
    ErrorResponse::new(told, id, wire::Version::NEWEST)
}

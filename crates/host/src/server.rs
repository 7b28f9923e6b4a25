//! One MCP server: what it serves, and everything it keeps while it does.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::task::{Context, Poll, ready};

use call::text::hex;
use call::{Change, Fault, Limits, Listener, Principal, Provider, World};
use json::ScanLimits;
use wire::code::Told;
use wire::method::Method;
use wire::shape;
use wire::{Bare, Id, List, Opened, Refusal, Terms};

use crate::events::{Hub, News, Watch};
use crate::live::Live;
use crate::observe::Observer;
use crate::registry::{self, BadCatalog, Registry};
use crate::seal::Sealer;
use crate::sessions::{Full, Owner, Sessions, Ticket};
use crate::tasks::Tasks;

/// What a server is called and how much it allows.
pub struct Config {
    pub name: String,
    /// The contract's version: it tells one set of tools from another.
    pub version: String,
    pub limits: Limits,
    pub world: Arc<dyn World>,
}

/// What is served, and can be replaced while it is.
pub struct Served {
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
    pub(crate) world: Arc<dyn World>,
    pub(crate) sealer: Sealer,
    pub(crate) hub: Hub,
    pub(crate) tasks: Tasks,
    pub(crate) counts: Counts,
    pub(crate) sessions: Sessions,
    registry: RwLock<Arc<Registry>>,
    /// One change at a time: an older catalog must not replace a newer one.
    changing: Mutex<()>,
    reload: Mutex<Option<Reload>>,
    pub(crate) observer: OnceLock<Arc<dyn Observer>>,
    started_ms: u64,
}

/// What came of the last change of what is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reload {
    pub at_ms: u64,
    pub outcome: Reloaded,
    /// For whoever runs the server.
    pub why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reloaded {
    /// It is served.
    Served,
    /// It comes to the same as what is served.
    Unchanged,
    /// It cannot be served, or must not; the last good one still is.
    Kept,
}

impl Reloaded {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Unchanged => "unchanged",
            Self::Kept => "kept",
        }
    }
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) calls: AtomicU64,
    pub(crate) active: AtomicUsize,
    pub(crate) listening: AtomicUsize,
}

/// Whose request it is and where it came from.
#[derive(Debug, Clone, Default)]
pub struct Who {
    pub principal: Principal,
    pub address: Option<IpAddr>,
}

/// What `/status` tells.
#[derive(Debug, Clone)]
pub struct Status {
    pub version: String,
    pub reload: Option<Reload>,
    pub tools: usize,
    pub resources: usize,
    pub prompts: usize,
    pub sessions: usize,
    pub listening: usize,
    pub calls: u64,
    pub calls_active: usize,
    pub uptime_ms: u64,
}

impl Server {
    pub fn new(config: Config, providers: Vec<Arc<dyn Provider>>) -> Result<Arc<Self>, BadCatalog> {
        let version = config.version.clone();
        Self::serving(config, Served { version, providers, call_timeout_ms: None })
    }

    /// The version is that of what is served.
    pub fn serving(config: Config, served: Served) -> Result<Arc<Self>, BadCatalog> {
        let Config { name, version: _, limits, world } = config;
        let terms = registry::Terms {
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
            hub: Hub::default(),
            tasks: Tasks::default(),
            counts: Counts::default(),
            sessions: Sessions::default(),
            registry: RwLock::new(Arc::new(registry)),
            changing: Mutex::default(),
            reload: Mutex::default(),
            observer: OnceLock::new(),
            started_ms: world.now_ms(),
            name,
            limits,
            world,
        });
        server.attach(&server.registry());
        Ok(server)
    }

    fn attach(self: &Arc<Self>, registry: &Registry) {
        let generation = registry.terms.generation;
        for provider in &registry.providers {
            provider.attach(Arc::new(Ear { server: Arc::downgrade(self), generation }));
        }
    }

    /// Serves something else from now on. Calls under way finish on what they started with; whoever listens is
    /// told of each list that reads differently, once. If it cannot be served, nothing changes.
    pub fn swap(self: &Arc<Self>, served: Served) -> Result<(), BadCatalog> {
        let alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.registry();
        let terms = registry::Terms {
            version: served.version,
            call_timeout_ms: served.call_timeout_ms.unwrap_or(self.limits.call_timeout_ms),
            generation: old.terms.generation + 1,
            ..old.terms.clone()
        };
        let new = Arc::new(Registry::new(served.providers, terms, Some(&old))?);
        *self.registry.write().unwrap_or_else(PoisonError::into_inner) = new.clone();
        self.attach(&new);
        drop(alone);
        // Before anybody hears of it, and asks.
        self.reloaded(Reloaded::Served, None);
        for (lists, change) in [
            (&[List::Tools][..], Change::Tools),
            (&[List::Prompts], Change::Prompts),
            (&[List::Resources, List::Templates], Change::Resources),
        ] {
            if lists.iter().any(|list| !old.lists_as(&new, *list)) {
                self.hub.tell(&change);
            }
        }
        Ok(())
    }

    /// Remembers what came of a change, for [`Server::status`].
    pub fn reloaded(&self, outcome: Reloaded, why: Option<String>) {
        let reload = Reload { at_ms: self.world.now_ms(), outcome, why };
        *self.reload.lock().unwrap_or_else(PoisonError::into_inner) = Some(reload);
    }

    /// Tells `observer` of every call from now on. There can be one.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        if self.observer.set(observer).is_err() {
            tracing::warn!("somebody observes the calls already");
        }
    }

    #[inline]
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn serves(&self, method: Method) -> bool {
        self.with_registry(|registry| registry.offer.serves(method))
    }

    /// A short look, without taking hold of it.
    #[inline]
    pub(crate) fn with_registry<T>(&self, look: impl FnOnce(&Registry) -> T) -> T {
        look(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads one message.
    #[inline]
    pub fn open(&self, bytes: Vec<u8>, bare: Bare<'_>) -> Opened {
        let terms = Terms {
            scan: self.scan_limits,
            batch_items_max: self.limits.batch_items_max,
            serves: &|method| self.serves(method),
        };
        wire::open(bytes, &terms, bare)
    }

    /// What a message over a new pipe will be judged by.
    pub fn pipe(&self) -> Arc<Live> {
        let watch = Arc::new(Watch::of_lists());
        self.hub.add(&watch);
        let mut key = [0; 16];
        self.world.fill(&mut key);
        Arc::new(Live::keyed(watch, key, self.world.now_ms()))
    }

    /// A line that is one stream, and the messages that are posted to it: HTTP+SSE of 2024-11-05.
    pub fn pick_up(self: &Arc<Self>, who: &Who) -> Result<Posted, Fault> {
        let mut key = [0; 16];
        self.world.fill(&mut key);
        let owner = Owner::new(&who.principal, who.address);
        let live = self.sessions.pick_up(key, owner, &self.limits, &self.hub, self.world.now_ms());
        let live = live.map_err(|full| no_room(&full))?;
        Ok(Posted { server: self.clone(), live, key })
    }

    /// The line of this name, if it is this caller's and its stream is still there.
    pub fn line(&self, name: &str, who: &Who) -> Option<Arc<Live>> {
        self.sessions.line(&read_key(name)?, &who.principal)
    }

    /// Reads a session id.
    pub fn session(&self, id: &str, who: &Who) -> Option<Ticket> {
        let now_ms = self.world.now_ms();
        self.sessions.read(&self.sealer, id, &who.principal, now_ms, self.limits.session_age_ms)
    }

    /// What a session has open, made now if need be.
    pub fn live(&self, ticket: &Ticket, who: &Who) -> Result<Arc<Live>, Fault> {
        let owner = Owner::new(&who.principal, who.address);
        let live = self.sessions.live(ticket, owner, &self.limits, &self.hub, self.world.now_ms());
        live.map_err(|full| no_room(&full))
    }

    /// What a session has open, if anything.
    pub fn peek(&self, ticket: &Ticket) -> Option<Arc<Live>> {
        self.sessions.peek(ticket)
    }

    pub fn end_session(&self, ticket: &Ticket) {
        self.sessions.end(ticket, self.world.now_ms(), self.limits.session_age_ms);
    }

    /// Something changed: the registry is made anew, and whoever wanted to know is told. A provider that was
    /// replaced meanwhile has nothing to say any more.
    fn changed(&self, change: &Change, generation: u64) {
        if !matches!(change, Change::Resource(_)) {
            let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let old = self.registry();
            if old.terms.generation != generation {
                return;
            }
            match Registry::new(old.providers.clone(), old.terms.clone(), Some(&old)) {
                Ok(registry) => {
                    *self.registry.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
                }
                Err(why) => {
                    tracing::error!(%why, "a changed catalog cannot be served; the last good one stays");
                    return;
                }
            }
        }
        self.hub.tell(change);
    }

    pub fn status(&self) -> Status {
        let registry = self.registry();
        let (tools, resources, prompts) = registry.counts();
        Status {
            version: registry.terms.version.clone(),
            reload: self.reload.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            tools,
            resources,
            prompts,
            sessions: self.sessions.count(),
            listening: self.counts.listening.load(Ordering::Relaxed),
            calls: self.counts.calls.load(Ordering::Relaxed),
            calls_active: self.counts.active.load(Ordering::Relaxed),
            uptime_ms: self.world.now_ms().saturating_sub(self.started_ms),
        }
    }

    /// Ends what would go on for ever: subscriptions, streams, tasks. Calls under way are not touched.
    pub fn close(&self) {
        self.hub.close();
        self.sessions.close();
        self.tasks.close();
    }
}

fn no_room(full: &Full) -> Fault {
    if *full == Full::All {
        tracing::warn!("no room for another session");
    }
    Fault::Busy { retry_after_ms: 1000 }
}

/// The stream's end of a line. Dropping it hangs up: whatever is under way is stopped.
pub struct Posted {
    server: Arc<Server>,
    pub live: Arc<Live>,
    key: [u8; 16],
}

impl Posted {
    /// What nobody can guess: whoever posts names the line by it.
    pub fn name(&self) -> String {
        hex(&self.key)
    }

    /// The next message; `None` at the end.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        if let Poll::Ready(message) = self.live.mail.poll_next(cx) {
            return Poll::Ready(message);
        }
        loop {
            match ready!(self.live.watch.poll_next(cx)) {
                // Without a handshake there is nobody to tell.
                Some(News::Change(change)) if self.live.peer().is_some() => {
                    return Poll::Ready(Some(shape::change(&change, None)));
                }
                Some(News::Change(_) | News::Task(_)) => {}
                // We are going; calls under way are answered first, and the last of them wakes us.
                None if self.live.calls() > 0 => return Poll::Pending,
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        self.server.sessions.hang_up(&self.key);
    }
}

fn read_key(name: &str) -> Option<[u8; 16]> {
    let digits = Some(name.as_bytes()).filter(|name| name.len() == 32)?;
    let mut key = [0; 16];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16).filter(|_| !c.is_ascii_uppercase());
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(key)
}

/// How a provider reaches the server that took it in, without keeping it alive.
struct Ear {
    server: Weak<Server>,
    generation: u64,
}

impl Listener for Ear {
    fn changed(&self, change: Change) {
        if let Some(server) = self.server.upgrade() {
            server.changed(&change, self.generation);
        }
    }
}

/// Shown by a refusal at the door, where no request has been read.
pub fn refusal(told: &Told, id: Option<&Id>) -> Refusal {
    Refusal::new(told, id, wire::Version::NEWEST)
}

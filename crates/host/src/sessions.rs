//! Sessions of the handshake era that cost nothing until they are used.
//!
//! A session id is a sealed ticket: it carries what was negotiated, so `initialize` leaves nothing behind
//! and cannot be used to fill our memory. A [`Live`] is made when a session first needs one, is bounded in
//! number, and is dropped when it holds nothing. Ended sessions are remembered until they would expire.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spile_core::{ClientCapabilities, Limits, Platform, Principal};
use wire::{Peer, Version};

use crate::connection_state::ConnectionState;
use crate::outgoing_queue::OutgoingQueue;
use crate::seal::{Purpose, Sealer};
use crate::session_streams::SessionStreams;
use crate::subscriptions::{Subscription, SubscriptionHub};

/// An opened session id.
#[derive(Debug, Clone, Copy)]
pub struct SessionTicket {
    pub peer: Peer,
    key: [u8; 16],
    issued_ms: u64,
}

impl SessionTicket {
    /// What tells this session from others.
    pub(crate) fn key(&self) -> [u8; 16] {
        self.key
    }
}

const TICKET_BYTES: usize = 1 + 2 + 8 + 16;

/// Whose session it is, for counting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SessionOwner {
    Named(Principal),
    Anonymous(Option<IpAddr>),
}

impl SessionOwner {
    pub(crate) fn new(principal: &Principal, address: Option<IpAddr>) -> Self {
        match principal {
            Principal::Named(_) => Self::Named(principal.clone()),
            Principal::Anonymous => Self::Anonymous(address),
        }
    }

    fn sessions_max(&self, limits: &Limits) -> usize {
        match self {
            // Whoever reaches a loopback address is on this machine: one address stands for many programs.
            Self::Anonymous(Some(address)) if !address.is_loopback() => limits.sessions_per_anonymous_max,
            Self::Named(_) | Self::Anonymous(_) => limits.sessions_per_principal_max,
        }
    }
}

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionError {
    /// This caller has too many.
    OwnerLimit,
    /// Everybody together has too many.
    TotalLimit,
    /// Never again: it was ended while this caller was on the way.
    Ended,
}

#[derive(Default)]
pub(crate) struct Sessions(Mutex<SessionTable>);

#[derive(Default)]
struct SessionTable {
    active: HashMap<[u8; 16], (SessionOwner, Arc<ConnectionState>)>,
    counts_by_owner: HashMap<SessionOwner, usize>,
    ended: HashMap<[u8; 16], u64>,
    /// Everything issued up to here counts as ended: what is left of an `ended` that grew too large.
    ended_before_ms: u64,
    last_sweep_ms: u64,
}

impl Sessions {
    pub(crate) fn issue(
        &self,
        sealer: &Sealer,
        peer: Peer,
        principal: &Principal,
        world: &dyn Platform,
    ) -> String {
        let mut plain = Vec::with_capacity(TICKET_BYTES + 16);
        plain.push(peer.version.index() as u8);
        plain.extend_from_slice(&peer.capabilities.bits().to_be_bytes());
        plain.extend_from_slice(&world.now_ms().to_be_bytes());
        let mut key = [0; 16];
        world.fill_random(&mut key);
        plain.extend_from_slice(&key);
        sealer.seal(Purpose::Session, principal.as_str().as_bytes(), plain, world)
    }

    /// Reads a session id; `None` if it is not ours, not this caller's, ended or too old.
    pub(crate) fn verify(
        &self,
        sealer: &Sealer,
        id: &str,
        who: &Principal,
        now_ms: u64,
        age_ms: u64,
    ) -> Option<SessionTicket> {
        let plain = sealer.open(Purpose::Session, who.as_str().as_bytes(), id).ok()?;
        let plain: &[u8; TICKET_BYTES] = plain.as_slice().try_into().ok()?;
        let (version, _) = Version::ALL.get(usize::from(plain[0]))?;
        let caps = ClientCapabilities::from_bits(u16::from_be_bytes([plain[1], plain[2]]));
        let issued_ms = u64::from_be_bytes(plain[3..11].try_into().ok()?);
        let key: [u8; 16] = plain[11..].try_into().ok()?;
        if now_ms >= issued_ms.saturating_add(age_ms) {
            return None;
        }
        let inner = self.lock();
        if let Some((_, live)) = inner.active.get(&key) {
            live.touch(now_ms);
        }
        if inner.ended.contains_key(&key)
            || (issued_ms <= inner.ended_before_ms && !inner.active.contains_key(&key))
        {
            return None;
        }
        Some(SessionTicket { peer: Peer::negotiated(*version, caps), key, issued_ms })
    }

    /// What the session holds, if it holds anything.
    pub(crate) fn get(&self, ticket: &SessionTicket) -> Option<Arc<ConnectionState>> {
        self.lock().active.get(&ticket.key).map(|(_, live)| live.clone())
    }

    /// What the session holds; made now if need be.
    pub(crate) fn get_or_create(
        &self,
        ticket: &SessionTicket,
        owner: SessionOwner,
        limits: &Limits,
        hub: &SubscriptionHub,
        now_ms: u64,
    ) -> Result<Arc<ConnectionState>, SessionError> {
        let mut inner = self.lock();
        if let Some((_, live)) = inner.active.get(&ticket.key) {
            live.touch(now_ms);
            return Ok(live.clone());
        }
        if inner.ended.contains_key(&ticket.key) {
            return Err(SessionError::Ended);
        }
        inner.make_room(&owner, limits, now_ms)?;
        let watch = Arc::new(Subscription::for_all_lists());
        hub.add(&watch);
        // 2025-11-25, Resumability: an event id MUST be unique in its session, which may have held something
        // before and lost it. Its age is a number that none of those streams came near.
        let before = now_ms.saturating_sub(ticket.issued_ms) as u32;
        let streams = SessionStreams::new(before, limits.stream_events_max, limits.stream_bytes_max);
        let live = Arc::new(ConnectionState::new(watch, streams, now_ms));
        inner.insert(ticket.key, owner, live.clone());
        Ok(live)
    }

    /// A line that is one stream and the messages posted to it. It counts among the sessions that hold
    /// something, and is forgotten by [`Sessions::hang_up`] alone.
    pub(crate) fn open_sse(
        &self,
        key: [u8; 16],
        owner: SessionOwner,
        limits: &Limits,
        hub: &SubscriptionHub,
        now_ms: u64,
    ) -> Result<Arc<ConnectionState>, SessionError> {
        let mut inner = self.lock();
        inner.make_room(&owner, limits, now_ms)?;
        let watch = Arc::new(Subscription::for_all_lists());
        hub.add(&watch);
        let mail = OutgoingQueue::new(limits.stream_events_max, limits.stream_bytes_max);
        let live = Arc::new(ConnectionState::with_outgoing_queue(watch, mail, key, now_ms));
        inner.insert(key, owner, live.clone());
        Ok(live)
    }

    /// The line of this key, for whoever picked it up and for nobody else.
    pub(crate) fn sse_connection(&self, key: &[u8; 16], who: &Principal) -> Option<Arc<ConnectionState>> {
        let inner = self.lock();
        let (owner, live) = inner.active.get(key)?;
        let theirs = match owner {
            SessionOwner::Named(principal) => principal == who,
            SessionOwner::Anonymous(_) => *who == Principal::Anonymous,
        };
        // Sessions with a ticket are in the same table, and are not to be had by their key.
        (theirs && live.key().is_some() && !live.outgoing.is_closed()).then(|| live.clone())
    }

    pub(crate) fn close_sse(&self, key: &[u8; 16]) {
        let gone = self.lock().remove(key);
        if let Some(live) = gone {
            live.close();
        }
    }

    /// Ends a session for good.
    pub(crate) fn end(&self, ticket: &SessionTicket, now_ms: u64, age_ms: u64) {
        let mut inner = self.lock();
        inner.mark_ended(ticket.key, now_ms, ticket.issued_ms.saturating_add(age_ms));
        if let Some(live) = inner.remove(&ticket.key) {
            live.close();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().active.len()
    }

    pub(crate) fn close(&self) {
        let live: Vec<Arc<ConnectionState>> =
            self.lock().active.values().map(|(_, live)| live.clone()).collect();
        for live in live {
            live.streams.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, SessionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What nobody would miss is dropped at least this often, as long as sessions come.
const SWEEP_INTERVAL_MS: u64 = 10_000;

/// About 3 MiB.
const ENDED_SESSIONS_MAX: usize = 65_536;

impl SessionTable {
    /// Room for one more of this owner's, if need be where others were.
    fn make_room(&mut self, owner: &SessionOwner, limits: &Limits, now_ms: u64) -> Result<(), SessionError> {
        if self.last_sweep_ms.saturating_add(SWEEP_INTERVAL_MS) <= now_ms {
            self.last_sweep_ms = now_ms;
            self.sweep(now_ms, limits, None);
        }
        let owner_max = owner.sessions_max(limits);
        if self.counts_by_owner.get(owner).copied().unwrap_or(0) >= owner_max {
            self.sweep(now_ms, limits, Some(owner));
        }
        if self.counts_by_owner.get(owner).copied().unwrap_or(0) >= owner_max {
            return Err(SessionError::OwnerLimit);
        }
        if self.active.len() >= limits.sessions_max {
            self.sweep(now_ms, limits, None);
        }
        if self.active.len() >= limits.sessions_max {
            return Err(SessionError::TotalLimit);
        }
        Ok(())
    }

    fn insert(&mut self, key: [u8; 16], owner: SessionOwner, live: Arc<ConnectionState>) {
        *self.counts_by_owner.entry(owner.clone()).or_default() += 1;
        self.active.insert(key, (owner, live));
    }

    /// Drops what nobody would miss: what holds nothing, and what has been idle for long. A session that loses
    /// something by it is over: its client is told so (404) and can make a new one, instead of waiting for
    /// news that will never come.
    fn sweep(&mut self, now_ms: u64, limits: &Limits, owner: Option<&SessionOwner>) {
        self.remove_where(owner, ConnectionState::is_unused);
        let idle = |live: &ConnectionState| !live.is_busy() && live.idle_ms(now_ms) >= limits.session_idle_ms;
        for key in self.remove_where(owner, idle) {
            self.mark_ended(key, now_ms, now_ms.saturating_add(limits.session_age_ms));
        }
    }

    fn mark_ended(&mut self, key: [u8; 16], now_ms: u64, expires_ms: u64) {
        if self.ended.len() >= ENDED_SESSIONS_MAX {
            self.ended.retain(|_, expires_ms| *expires_ms > now_ms);
        }
        if self.ended.len() >= ENDED_SESSIONS_MAX {
            // Rather end sessions that are not in use (their clients initialize again) than revive one.
            self.ended_before_ms = self.ended_before_ms.max(now_ms);
            self.ended.clear();
        }
        self.ended.insert(key, expires_ms);
    }

    fn remove_where(
        &mut self,
        owner: Option<&SessionOwner>,
        test: impl Fn(&ConnectionState) -> bool,
    ) -> Vec<[u8; 16]> {
        let gone: Vec<[u8; 16]> = self
            .active
            .iter()
            .filter(|(_, (whose, live))| owner.is_none_or(|o| o == whose) && test(live))
            // Whoever holds it is about to use it.
            .filter(|(_, (_, live))| Arc::strong_count(live) == 1)
            .map(|(key, _)| *key)
            .collect();
        for key in &gone {
            self.remove(key);
        }
        gone
    }

    fn remove(&mut self, key: &[u8; 16]) -> Option<Arc<ConnectionState>> {
        let (owner, live) = self.active.remove(key)?;
        if let Some(count) = self.counts_by_owner.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.counts_by_owner.remove(&owner);
            }
        }
        Some(live)
    }
}

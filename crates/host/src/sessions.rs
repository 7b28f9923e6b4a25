//! Sessions of the handshake era. They use no memory until they need state.
//!
//! A session id is a sealed ticket that carries what was negotiated, so a flood of `initialize` requests leaves nothing
//! behind. A [`ConnectionState`] is created when a session first needs one. The number of states is bounded, and an
//! unused one is dropped. Ended sessions are remembered until they would expire.
//!
//! A message of a session that its connection remembers takes no lock that all threads share: states are found in one of
//! several shards, and each shard counts its changes, so that what was true before is known to be true still.

mod shards;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spile_core::{ClientCapabilities, Limits, Platform, Principal};
use state::keyring::{Keyring, OpenError, Purpose};
use wire::{Peer, SessionError, Version};

use crate::caller_key::CallerKey;
use crate::connection_state::ConnectionState;
use crate::outgoing_queue::OutgoingQueue;
use crate::session_streams::SessionStreams;
use crate::subscriptions::SubscriptionHub;
use shards::Shards;

/// An opened session id.
#[derive(Debug, Clone, Copy)]
pub struct SessionTicket {
    pub peer: Peer,
    key: [u8; 16],
    issued_ms: u64,
}

impl SessionTicket {
    fn parse(payload: &[u8]) -> Option<Self> {
        let payload: &[u8; TICKET_BYTES] = payload.try_into().ok()?;
        // A replica with a newer program may know more versions.
        let (version, _) = Version::ALL.get(usize::from(payload[0]))?;
        let capabilities = ClientCapabilities::from_bits(u16::from_be_bytes([payload[1], payload[2]]));
        let issued_ms = u64::from_be_bytes(payload[3..11].try_into().ok()?);
        let key: [u8; 16] = payload[11..].try_into().ok()?;
        Some(Self { peer: Peer::negotiated(*version, capabilities), key, issued_ms })
    }

    /// Whether the session has expired: its time to live is counted from `initialize`.
    fn is_expired(&self, now_ms: u64, ttl_ms: u64) -> bool {
        now_ms >= self.issued_ms.saturating_add(ttl_ms)
    }

    /// Identifies the session.
    pub(crate) fn key(&self) -> [u8; 16] {
        self.key
    }
}

const TICKET_BYTES: usize = 1 + 2 + 8 + 16;

/// Remembers the ticket of one session id of one caller at one server, so that a connection that sends it again and again
/// has it decrypted once. Whether the session has expired is checked each time, and whether it has ended, as soon as
/// anything has changed that may end it.
#[derive(Debug, Default)]
pub struct TicketMemo(RefCell<Option<RememberedTicket>>);

#[derive(Debug)]
struct RememberedTicket {
    ticket: SessionTicket,
    key_generation: u64,
    key_accept_until_ms: Option<u64>,
    lasting: Option<LastingSession>,
}

/// A session that had not ended when its shard had changed this often.
#[derive(Debug)]
struct LastingSession {
    changes: u64,
    /// Of its state, if it had any.
    last_used_ms: Option<Arc<AtomicU64>>,
}

impl TicketMemo {
    /// The ticket, if opening its id again would give the same.
    #[inline]
    fn get(&self, keyring: &Keyring, now_ms: u64) -> Option<SessionTicket> {
        let remembered = self.0.borrow();
        let remembered = remembered.as_ref()?;
        let is_current = remembered.key_generation == keyring.generation()
            && remembered.key_accept_until_ms.is_none_or(|until_ms| now_ms < until_ms);
        is_current.then_some(remembered.ticket)
    }

    /// Whether its session is known to last. If so, it counts as used now.
    #[inline]
    fn touch_if_lasting(&self, shards: &Shards, now_ms: u64) -> bool {
        let remembered = self.0.borrow();
        let Some(RememberedTicket { ticket, lasting: Some(lasting), .. }) = &*remembered else {
            return false;
        };
        if lasting.changes != shards.changes(&ticket.key) {
            return false;
        }
        if let Some(last_used_ms) = &lasting.last_used_ms {
            last_used_ms.store(now_ms, Relaxed);
        }
        true
    }

    fn set_lasting(&self, lasting: LastingSession) {
        if let Some(remembered) = &mut *self.0.borrow_mut() {
            remembered.lasting = Some(lasting);
        }
    }
}

fn sessions_max(owner: &CallerKey, limits: &Limits) -> usize {
    match owner {
        // A loopback address stands for all programs on this machine.
        CallerKey::Anonymous(Some(address)) if !address.is_loopback() => limits.sessions_per_anonymous_max,
        CallerKey::Named(_) | CallerKey::Anonymous(_) => limits.sessions_per_principal_max,
    }
}

/// Why a session gets no state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionStateError {
    /// The caller has too many sessions with state.
    OwnerLimit,
    /// The server has too many sessions with state.
    TotalLimit,
    /// The session was ended while this request was on its way.
    Ended,
}

#[derive(Default)]
pub(crate) struct Sessions {
    table: Mutex<SessionTable>,
    /// The states of sessions. Changed only while the table is locked.
    shards: Shards,
}

#[derive(Default)]
struct SessionTable {
    /// Whose the sessions with state are.
    owners: HashMap<[u8; 16], CallerKey>,
    counts_by_owner: HashMap<CallerKey, usize>,
    ended: HashMap<[u8; 16], u64>,
    /// Sessions issued before this time count as ended unless they are active. Replaces `ended` when that grew too
    /// large.
    ended_before_ms: u64,
    last_sweep_ms: u64,
}

impl Sessions {
    pub(crate) fn issue(
        &self,
        keyring: &Keyring,
        peer: Peer,
        principal: &Principal,
        platform: &dyn Platform,
    ) -> String {
        let mut payload = Vec::with_capacity(TICKET_BYTES + 16);
        payload.push(peer.version.index() as u8);
        payload.extend_from_slice(&peer.capabilities.bits().to_be_bytes());
        payload.extend_from_slice(&platform.now_ms().to_be_bytes());
        let mut key = [0; 16];
        platform.fill_random(&mut key);
        payload.extend_from_slice(&key);
        keyring.seal(Purpose::Session, principal.id().as_bytes(), &payload, platform)
    }

    /// Opens a session id, unless `memo` has its ticket, and checks that the session lasts. Session expiry by age is here;
    /// idle sessions expire in the sweep of `SessionTable`.
    pub(crate) fn verify(
        &self,
        keyring: &Keyring,
        id: &[u8],
        principal: &Principal,
        memo: &TicketMemo,
        now_ms: u64,
        ttl_ms: u64,
    ) -> Result<SessionTicket, SessionError> {
        let ticket = match memo.get(keyring, now_ms) {
            Some(ticket) => ticket,
            None => open_ticket(keyring, id, principal, memo, now_ms)?,
        };
        if ticket.is_expired(now_ms, ttl_ms) {
            return Err(SessionError::Expired);
        }
        if memo.touch_if_lasting(&self.shards, now_ms) {
            return Ok(ticket);
        }
        let table = self.lock();
        let changes = self.shards.changes(&ticket.key);
        let state = self.shards.get(&ticket.key);
        if let Some(state) = &state {
            state.touch(now_ms);
        }
        if table.ended.contains_key(&ticket.key)
            || (ticket.issued_ms <= table.ended_before_ms && state.is_none())
        {
            return Err(SessionError::Ended);
        }
        memo.set_lasting(LastingSession { changes, last_used_ms: state.map(|state| state.last_used_ms()) });
        Ok(ticket)
    }

    /// The state of a session, if it has any.
    pub(crate) fn get(&self, ticket: &SessionTicket) -> Option<Arc<ConnectionState>> {
        self.get_by_key(&ticket.key)
    }

    pub(crate) fn get_by_key(&self, key: &[u8; 16]) -> Option<Arc<ConnectionState>> {
        self.shards.get(key)
    }

    /// The state of a session, created now if it has none.
    pub(crate) fn get_or_create(
        &self,
        ticket: &SessionTicket,
        owner: CallerKey,
        limits: &Limits,
        hub: &SubscriptionHub,
        platform: &dyn Platform,
    ) -> Result<Arc<ConnectionState>, SessionStateError> {
        let now_ms = platform.now_ms();
        let mut table = self.lock();
        if let Some(connection) = self.shards.get(&ticket.key) {
            connection.touch(now_ms);
            return Ok(connection);
        }
        if table.ended.contains_key(&ticket.key) {
            return Err(SessionStateError::Ended);
        }
        table.evict_idle(&self.shards, &owner, limits, now_ms)?;
        let subscription = hub.subscribe_to_lists();
        // 2025-11-25, Resumability: an event id MUST be unique in its session. The session may have had state before
        // and lost it. Its age in milliseconds is larger than any stream number used until then.
        let first_number = now_ms.saturating_sub(ticket.issued_ms) as u32;
        let streams = SessionStreams::new(first_number, limits.stream_events_max, limits.stream_bytes_max);
        let first_request_id = first_request_id(platform);
        let connection =
            Arc::new(ConnectionState::for_session(subscription, streams, first_request_id, now_ms));
        table.insert(&self.shards, ticket.key, owner, connection.clone());
        Ok(connection)
    }

    /// Opens an HTTP+SSE connection. It counts as a session with state, and only [`Sessions::close_sse`] removes it.
    pub(crate) fn open_sse(
        &self,
        key: [u8; 16],
        owner: CallerKey,
        limits: &Limits,
        hub: &SubscriptionHub,
        now_ms: u64,
    ) -> Result<Arc<ConnectionState>, SessionStateError> {
        let mut table = self.lock();
        table.evict_idle(&self.shards, &owner, limits, now_ms)?;
        let subscription = hub.subscribe_to_lists();
        let queue = OutgoingQueue::new(limits.stream_events_max, limits.stream_bytes_max);
        let connection = Arc::new(ConnectionState::with_outgoing_queue(subscription, queue, key, now_ms));
        table.insert(&self.shards, key, owner, connection.clone());
        Ok(connection)
    }

    /// The HTTP+SSE connection with this key, if it belongs to `caller`.
    pub(crate) fn sse_connection(&self, key: &[u8; 16], caller: &Principal) -> Option<Arc<ConnectionState>> {
        let table = self.lock();
        let owner = table.owners.get(key)?;
        let connection = self.shards.get(key)?;
        let is_owner = match owner {
            CallerKey::Named(principal) => principal == caller,
            CallerKey::Anonymous(_) => *caller == Principal::Anonymous,
        };
        // Sessions with a ticket are in the same table; their key alone gives no access.
        (is_owner && connection.key().is_some() && !connection.outgoing.is_closed()).then_some(connection)
    }

    pub(crate) fn close_sse(&self, key: &[u8; 16]) {
        let removed = self.lock().remove(&self.shards, key);
        if let Some(connection) = removed {
            connection.close();
        }
    }

    /// Ends a session for good.
    pub(crate) fn end(&self, ticket: &SessionTicket, now_ms: u64, ttl_ms: u64) {
        let mut table = self.lock();
        table.mark_ended(&self.shards, ticket.key, now_ms, ticket.issued_ms.saturating_add(ttl_ms));
        if let Some(connection) = table.remove(&self.shards, &ticket.key) {
            connection.close();
        }
    }

    /// A session ended at another process.
    pub(crate) fn end_elsewhere(&self, key: [u8; 16], now_ms: u64, expires_ms: u64) {
        let mut table = self.lock();
        if table.ended.contains_key(&key) {
            return;
        }
        table.mark_ended(&self.shards, key, now_ms, expires_ms);
        if let Some(connection) = table.remove(&self.shards, &key) {
            connection.close();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().owners.len()
    }

    pub(crate) fn close(&self) {
        for connection in self.shards.all() {
            connection.streams.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, SessionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_ticket(
    keyring: &Keyring,
    id: &[u8],
    principal: &Principal,
    memo: &TicketMemo,
    now_ms: u64,
) -> Result<SessionTicket, SessionError> {
    let id = std::str::from_utf8(id).map_err(|_| SessionError::Malformed)?;
    // Before it is opened, so that a change while that happens is noticed.
    let key_generation = keyring.generation();
    let opened = keyring.open_to_remember(Purpose::Session, principal.id().as_bytes(), id, now_ms);
    let opened = opened.map_err(|error| match error {
        OpenError::Malformed => SessionError::Malformed,
        OpenError::UnknownKey(_) | OpenError::KeyExpired(_) => SessionError::KeyChanged,
        OpenError::Mismatch => SessionError::OtherCaller,
    })?;
    let ticket = SessionTicket::parse(&opened.payload).ok_or(SessionError::Malformed)?;
    let key_accept_until_ms = opened.key_accept_until_ms;
    let remembered = RememberedTicket { ticket, key_generation, key_accept_until_ms, lasting: None };
    *memo.0.borrow_mut() = Some(remembered);
    Ok(ticket)
}

/// The id of the first request to the client of a session. MCP: a request id MUST NOT have been used before in the same
/// session. The session may have had state before, and may have some in another process now, whose requests have ids of
/// their own: otherwise an answer could count for a question that nobody was asked. Below 2^53, which every client reads
/// exactly, and with room for a million requests.
fn first_request_id(platform: &dyn Platform) -> u64 {
    let mut random = [0; 8];
    platform.fill_random(&mut random);
    let range = u64::from_be_bytes(random) >> (64 - REQUEST_ID_RANGE_BITS);
    (range << REQUESTS_PER_RANGE_BITS) + 1
}

const REQUEST_ID_RANGE_BITS: u32 = 33;
const REQUESTS_PER_RANGE_BITS: u32 = 20;

/// Unused and idle state is dropped at least this often while new sessions arrive.
const SWEEP_INTERVAL_MS: u64 = 10_000;

/// About 3 MiB.
const ENDED_SESSIONS_MAX: usize = 65_536;

// What these methods change of a session, its shard counts as a change.
impl SessionTable {
    /// Makes room for one more session of this owner, by dropping unused and idle ones where necessary.
    fn evict_idle(
        &mut self,
        shards: &Shards,
        owner: &CallerKey,
        limits: &Limits,
        now_ms: u64,
    ) -> Result<(), SessionStateError> {
        if self.last_sweep_ms.saturating_add(SWEEP_INTERVAL_MS) <= now_ms {
            self.last_sweep_ms = now_ms;
            self.sweep(shards, now_ms, limits, None);
        }
        let owner_max = sessions_max(owner, limits);
        if self.counts_by_owner.get(owner).copied().unwrap_or(0) >= owner_max {
            self.sweep(shards, now_ms, limits, Some(owner));
        }
        if self.counts_by_owner.get(owner).copied().unwrap_or(0) >= owner_max {
            return Err(SessionStateError::OwnerLimit);
        }
        if self.owners.len() >= limits.sessions_max {
            self.sweep(shards, now_ms, limits, None);
        }
        if self.owners.len() >= limits.sessions_max {
            return Err(SessionStateError::TotalLimit);
        }
        Ok(())
    }

    fn insert(&mut self, shards: &Shards, key: [u8; 16], owner: CallerKey, state: Arc<ConnectionState>) {
        *self.counts_by_owner.entry(owner.clone()).or_default() += 1;
        self.owners.insert(key, owner);
        shards.insert(key, state);
    }

    /// Drops unused state, and state that has been idle for long. A session that loses something by it has ended: its
    /// client gets 404 and initializes again, instead of waiting for notifications that never come.
    fn sweep(&mut self, shards: &Shards, now_ms: u64, limits: &Limits, owner: Option<&CallerKey>) {
        self.remove_where(shards, owner, ConnectionState::is_unused);
        let idle = |connection: &ConnectionState| {
            !connection.is_busy() && connection.idle_ms(now_ms) >= limits.session_idle_timeout_ms
        };
        for key in self.remove_where(shards, owner, idle) {
            self.mark_ended(shards, key, now_ms, now_ms.saturating_add(limits.session_ttl_ms));
        }
    }

    fn mark_ended(&mut self, shards: &Shards, key: [u8; 16], now_ms: u64, expires_ms: u64) {
        if self.ended.len() >= ENDED_SESSIONS_MAX {
            self.ended.retain(|_, expires_ms| *expires_ms > now_ms);
        }
        if self.ended.len() >= ENDED_SESSIONS_MAX {
            // Better to end inactive sessions (their clients initialize again) than to revive an ended one.
            self.ended_before_ms = self.ended_before_ms.max(now_ms);
            self.ended.clear();
            shards.count_change_of_all();
        }
        self.ended.insert(key, expires_ms);
        shards.count_change(&key);
    }

    fn remove_where(
        &mut self,
        shards: &Shards,
        owner: Option<&CallerKey>,
        test: impl Fn(&ConnectionState) -> bool,
    ) -> Vec<[u8; 16]> {
        let keys = self.owners.iter().filter(|(_, of)| owner.is_none_or(|owner| owner == *of));
        let removed: Vec<[u8; 16]> =
            keys.map(|(key, _)| *key).filter(|key| shards.remove_unreferenced(key, &test)).collect();
        for key in &removed {
            self.forget_owner(key);
        }
        removed
    }

    fn remove(&mut self, shards: &Shards, key: &[u8; 16]) -> Option<Arc<ConnectionState>> {
        self.forget_owner(key);
        shards.remove(key)
    }

    fn forget_owner(&mut self, key: &[u8; 16]) {
        let Some(owner) = self.owners.remove(key) else { return };
        if let Some(count) = self.counts_by_owner.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.counts_by_owner.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemPlatform;

    const NOW_MS: u64 = 1_000_000;
    const TTL_MS: u64 = 500_000;

    /// A server's sessions, and one session with what its connection remembers of it.
    struct Fixture {
        sessions: Sessions,
        keyring: Keyring,
        hub: SubscriptionHub,
        id: String,
        memo: TicketMemo,
        limits: Limits,
    }

    impl Fixture {
        fn new() -> Self {
            let platform = SystemPlatform::default();
            let (sessions, keyring) = (Sessions::default(), Keyring::for_this_run(&platform));
            let peer = Peer::negotiated(Version::ALL[0].0, ClientCapabilities::NONE);
            let id = sessions.issue(&keyring, peer, &Principal::Anonymous, &platform);
            let (hub, limits) = (SubscriptionHub::default(), Limits::default());
            Self { sessions, keyring, hub, id, memo: TicketMemo::default(), limits }
        }

        fn verify_at(&self, memo: &TicketMemo, now_ms: u64) -> Result<SessionTicket, SessionError> {
            let (id, principal) = (self.id.as_bytes(), &Principal::Anonymous);
            self.sessions.verify(&self.keyring, id, principal, memo, now_ms, u64::MAX)
        }

        /// What a connection that remembers the session is told, and one that does not.
        fn verify(&self) -> Result<SessionTicket, SessionError> {
            let remembered = self.verify_at(&self.memo, NOW_MS);
            let fresh = self.verify_at(&TicketMemo::default(), NOW_MS);
            let outcome = |verified: &Result<SessionTicket, SessionError>| match verified {
                Ok(ticket) => Ok(ticket.key),
                Err(error) => Err(format!("{error:?}")),
            };
            assert_eq!(outcome(&remembered), outcome(&fresh));
            remembered
        }

        fn ticket(&self) -> SessionTicket {
            self.verify().expect("the session lasts")
        }

        fn create_state(&self) -> Arc<ConnectionState> {
            let (owner, platform) = (CallerKey::Anonymous(None), SystemPlatform::default());
            let state =
                self.sessions.get_or_create(&self.ticket(), owner, &self.limits, &self.hub, &platform);
            state.expect("there is room")
        }
    }

    #[test]
    fn a_session_that_a_connection_remembers_needs_no_lock_of_all_threads() {
        let fixture = Fixture::new();
        fixture.ticket();
        // With the table locked, anything that needs it waits forever.
        let table = fixture.sessions.lock();
        let ticket = fixture.verify_at(&fixture.memo, NOW_MS).expect("the session lasts");
        assert!(fixture.sessions.get(&ticket).is_none());
        drop(table);

        let state = fixture.create_state();
        fixture.ticket();
        let table = fixture.sessions.lock();
        fixture.verify_at(&fixture.memo, NOW_MS + 7).expect("the session lasts");
        assert!(fixture.sessions.get(&ticket).is_some());
        // It counts as used, and is not swept as idle.
        assert_eq!(state.idle_ms(NOW_MS + 10), 3);
        drop(table);
    }

    #[test]
    fn a_session_that_a_connection_remembers_ends_when_it_ends_anywhere() {
        type End = fn(&Sessions, &SessionTicket);
        let ends: [(&str, End); 4] = [
            ("here", |sessions, ticket| sessions.end(ticket, NOW_MS, TTL_MS)),
            ("at another process", |sessions, ticket| {
                sessions.end_elsewhere(ticket.key, NOW_MS, NOW_MS + TTL_MS);
            }),
            ("because too many have ended", |sessions, ticket| {
                let until = ticket.issued_ms + 1;
                for number in 0..=ENDED_SESSIONS_MAX as u128 {
                    sessions.end_elsewhere(number.to_be_bytes(), until, until + TTL_MS);
                }
            }),
            ("because it was idle", |sessions, ticket| {
                let limits = Limits { session_idle_timeout_ms: 0, ..Limits::default() };
                let Some(state) = sessions.get(ticket) else {
                    return sessions.end(ticket, NOW_MS, TTL_MS);
                };
                // Used, so that to lose it matters.
                state.set_level(spile_core::LogLevel::Debug);
                drop(state);
                sessions.lock().sweep(&sessions.shards, u64::MAX, &limits, None);
            }),
        ];
        for (how, end) in ends {
            for has_state in [false, true] {
                let fixture = Fixture::new();
                if has_state {
                    fixture.create_state();
                }
                let ticket = fixture.ticket();
                end(&fixture.sessions, &ticket);
                // A session with state outlives the memory of those that have ended.
                let lasts = has_state && how == "because too many have ended";
                assert_eq!(fixture.verify().is_ok(), lasts, "{how}, with state: {has_state}");
                assert_eq!(fixture.sessions.count(), usize::from(lasts), "{how}, with state: {has_state}");
            }
        }
    }

    #[test]
    fn state_that_a_request_is_about_to_use_is_not_dropped() {
        let fixture = Fixture::new();
        let state = fixture.create_state();
        let sweep = || {
            fixture.sessions.lock().sweep(&fixture.sessions.shards, NOW_MS, &fixture.limits, None);
            fixture.sessions.count()
        };
        assert_eq!(sweep(), 1);
        drop(state);
        assert_eq!(sweep(), 0);
        // It had nothing to lose.
        fixture.ticket();
    }
}

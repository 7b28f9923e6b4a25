//! Sessions of the handshake era. They use no memory until they need state.
//!
//! A session id is a sealed ticket that carries what was negotiated, so a flood of `initialize` requests leaves nothing
//! behind. A [`ConnectionState`] is created when a session first needs one. The number of states is bounded, and an
//! unused one is dropped. Ended sessions are remembered until they would expire.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spile_core::{ClientCapabilities, Limits, Platform, Principal};
use state::keyring::{Keyring, OpenError, Purpose};
use wire::{Peer, SessionError, Version};

use crate::caller_key::CallerKey;
use crate::connection_state::ConnectionState;
use crate::outgoing_queue::OutgoingQueue;
use crate::session_streams::SessionStreams;
use crate::subscriptions::SubscriptionHub;

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
/// has it decrypted once. Whether the session has ended or expired is checked each time.
#[derive(Debug, Default)]
pub struct TicketMemo(Cell<Option<RememberedTicket>>);

#[derive(Debug, Clone, Copy)]
struct RememberedTicket {
    ticket: SessionTicket,
    key_generation: u64,
    key_accept_until_ms: Option<u64>,
}

impl TicketMemo {
    /// The ticket, if opening its id again would give the same.
    #[inline]
    fn get(&self, keyring: &Keyring, now_ms: u64) -> Option<SessionTicket> {
        let remembered = self.0.get()?;
        let is_current = remembered.key_generation == keyring.generation()
            && remembered.key_accept_until_ms.is_none_or(|until_ms| now_ms < until_ms);
        is_current.then_some(remembered.ticket)
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
pub(crate) struct Sessions(Mutex<SessionTable>);

#[derive(Default)]
struct SessionTable {
    active: HashMap<[u8; 16], (CallerKey, Arc<ConnectionState>)>,
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
        let table = self.lock();
        if let Some((_, connection)) = table.active.get(&ticket.key) {
            connection.touch(now_ms);
        }
        if table.ended.contains_key(&ticket.key)
            || (ticket.issued_ms <= table.ended_before_ms && !table.active.contains_key(&ticket.key))
        {
            return Err(SessionError::Ended);
        }
        Ok(ticket)
    }

    /// The state of a session, if it has any.
    pub(crate) fn get(&self, ticket: &SessionTicket) -> Option<Arc<ConnectionState>> {
        self.get_by_key(&ticket.key)
    }

    pub(crate) fn get_by_key(&self, key: &[u8; 16]) -> Option<Arc<ConnectionState>> {
        self.lock().active.get(key).map(|(_, connection)| connection.clone())
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
        if let Some((_, connection)) = table.active.get(&ticket.key) {
            connection.touch(now_ms);
            return Ok(connection.clone());
        }
        if table.ended.contains_key(&ticket.key) {
            return Err(SessionStateError::Ended);
        }
        table.evict_idle(&owner, limits, now_ms)?;
        let subscription = hub.subscribe_to_lists();
        // 2025-11-25, Resumability: an event id MUST be unique in its session. The session may have had state before
        // and lost it. Its age in milliseconds is larger than any stream number used until then.
        let first_number = now_ms.saturating_sub(ticket.issued_ms) as u32;
        let streams = SessionStreams::new(first_number, limits.stream_events_max, limits.stream_bytes_max);
        let first_request_id = first_request_id(platform);
        let connection =
            Arc::new(ConnectionState::for_session(subscription, streams, first_request_id, now_ms));
        table.insert(ticket.key, owner, connection.clone());
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
        table.evict_idle(&owner, limits, now_ms)?;
        let subscription = hub.subscribe_to_lists();
        let queue = OutgoingQueue::new(limits.stream_events_max, limits.stream_bytes_max);
        let connection = Arc::new(ConnectionState::with_outgoing_queue(subscription, queue, key, now_ms));
        table.insert(key, owner, connection.clone());
        Ok(connection)
    }

    /// The HTTP+SSE connection with this key, if it belongs to `caller`.
    pub(crate) fn sse_connection(&self, key: &[u8; 16], caller: &Principal) -> Option<Arc<ConnectionState>> {
        let table = self.lock();
        let (owner, connection) = table.active.get(key)?;
        let is_owner = match owner {
            CallerKey::Named(principal) => principal == caller,
            CallerKey::Anonymous(_) => *caller == Principal::Anonymous,
        };
        // Sessions with a ticket are in the same table; their key alone gives no access.
        (is_owner && connection.key().is_some() && !connection.outgoing.is_closed())
            .then(|| connection.clone())
    }

    pub(crate) fn close_sse(&self, key: &[u8; 16]) {
        let removed = self.lock().remove(key);
        if let Some(connection) = removed {
            connection.close();
        }
    }

    /// Ends a session for good.
    pub(crate) fn end(&self, ticket: &SessionTicket, now_ms: u64, ttl_ms: u64) {
        let mut table = self.lock();
        table.mark_ended(ticket.key, now_ms, ticket.issued_ms.saturating_add(ttl_ms));
        if let Some(connection) = table.remove(&ticket.key) {
            connection.close();
        }
    }

    /// A session ended at another process.
    pub(crate) fn end_elsewhere(&self, key: [u8; 16], now_ms: u64, expires_ms: u64) {
        let mut table = self.lock();
        if table.ended.contains_key(&key) {
            return;
        }
        table.mark_ended(key, now_ms, expires_ms);
        if let Some(connection) = table.remove(&key) {
            connection.close();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().active.len()
    }

    pub(crate) fn close(&self) {
        let connection: Vec<Arc<ConnectionState>> =
            self.lock().active.values().map(|(_, connection)| connection.clone()).collect();
        for connection in connection {
            connection.streams.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, SessionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    memo.0.set(Some(RememberedTicket { ticket, key_generation, key_accept_until_ms }));
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

impl SessionTable {
    /// Makes room for one more session of this owner, by dropping unused and idle ones where necessary.
    fn evict_idle(
        &mut self,
        owner: &CallerKey,
        limits: &Limits,
        now_ms: u64,
    ) -> Result<(), SessionStateError> {
        if self.last_sweep_ms.saturating_add(SWEEP_INTERVAL_MS) <= now_ms {
            self.last_sweep_ms = now_ms;
            self.sweep(now_ms, limits, None);
        }
        let owner_max = sessions_max(owner, limits);
        if self.counts_by_owner.get(owner).copied().unwrap_or(0) >= owner_max {
            self.sweep(now_ms, limits, Some(owner));
        }
        if self.counts_by_owner.get(owner).copied().unwrap_or(0) >= owner_max {
            return Err(SessionStateError::OwnerLimit);
        }
        if self.active.len() >= limits.sessions_max {
            self.sweep(now_ms, limits, None);
        }
        if self.active.len() >= limits.sessions_max {
            return Err(SessionStateError::TotalLimit);
        }
        Ok(())
    }

    fn insert(&mut self, key: [u8; 16], owner: CallerKey, connection: Arc<ConnectionState>) {
        *self.counts_by_owner.entry(owner.clone()).or_default() += 1;
        self.active.insert(key, (owner, connection));
    }

    /// Drops unused state, and state that has been idle for long. A session that loses something by it has ended: its
    /// client gets 404 and initializes again, instead of waiting for notifications that never come.
    fn sweep(&mut self, now_ms: u64, limits: &Limits, owner: Option<&CallerKey>) {
        self.remove_where(owner, ConnectionState::is_unused);
        let idle = |connection: &ConnectionState| {
            !connection.is_busy() && connection.idle_ms(now_ms) >= limits.session_idle_timeout_ms
        };
        for key in self.remove_where(owner, idle) {
            self.mark_ended(key, now_ms, now_ms.saturating_add(limits.session_ttl_ms));
        }
    }

    fn mark_ended(&mut self, key: [u8; 16], now_ms: u64, expires_ms: u64) {
        if self.ended.len() >= ENDED_SESSIONS_MAX {
            self.ended.retain(|_, expires_ms| *expires_ms > now_ms);
        }
        if self.ended.len() >= ENDED_SESSIONS_MAX {
            // Better to end inactive sessions (their clients initialize again) than to revive an ended one.
            self.ended_before_ms = self.ended_before_ms.max(now_ms);
            self.ended.clear();
        }
        self.ended.insert(key, expires_ms);
    }

    fn remove_where(
        &mut self,
        owner: Option<&CallerKey>,
        test: impl Fn(&ConnectionState) -> bool,
    ) -> Vec<[u8; 16]> {
        let removed: Vec<[u8; 16]> = self
            .active
            .iter()
            .filter(|(_, (session_owner, connection))| {
                owner.is_none_or(|o| o == session_owner) && test(connection)
            })
            // A second reference means that a request is about to use it.
            .filter(|(_, (_, connection))| Arc::strong_count(connection) == 1)
            .map(|(key, _)| *key)
            .collect();
        for key in &removed {
            self.remove(key);
        }
        removed
    }

    fn remove(&mut self, key: &[u8; 16]) -> Option<Arc<ConnectionState>> {
        let (owner, connection) = self.active.remove(key)?;
        if let Some(count) = self.counts_by_owner.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.counts_by_owner.remove(&owner);
            }
        }
        Some(connection)
    }
}

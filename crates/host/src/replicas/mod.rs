//! What processes with the same store tell each other: which sessions have ended, and that a message came for something
//! another one runs.
//!
//! A process appends to a stream; every process follows it in the background. So a request costs nothing more, and the
//! others know about a second later (ADR 0193, ADR 0290). A notice is small: what a client sent is an entry of its own,
//! which counts for that client.
//!
//! ```text
//! mod.rs       the streams, and what goes through them
//! outbox.rs    what waits to be told, and how much of it there may be
//! ```

mod outbox;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use json::Json;
use spile_core::text::hex;
use state::keyring::digest_parts;
use state::store::{Namespace, Sequence, Store, StoreKey, Ttl};

use crate::byte_fields::{FieldReader, FieldWriter};
use crate::connection_state::ClientResponse;
use crate::input_requests::store_owner;
use crate::server::{CallerIdentity, Server};
use crate::sessions::SessionTicket;
use outbox::{AnswerPlace, EndedSession, OutboxProblem};

pub(crate) use outbox::ReplicaOutbox;

/// How soon other processes refuse a session that has ended, or get a message.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Below what a store holds for one owner: a stream that cannot grow must drop its oldest entry, not refuse the newest. The
/// processes that run have read that one long ago.
const ENTRIES_MAX: usize = 8192;
const PAGE_ENTRIES: usize = 1000;
/// How long a message waits for the process that needs it.
const MESSAGE_TTL: Ttl = Ttl { ms: 60_000 };

/// The streams that every process follows.
#[derive(Debug, Clone, Copy)]
enum ReplicaStream {
    EndedSessions,
    Notices,
}

impl ReplicaStream {
    /// Part of what is stored: must not change.
    fn name(self) -> &'static [u8] {
        match self {
            Self::EndedSessions => b"ended",
            Self::Notices => b"notices",
        }
    }
}

/// That something is in the store for whoever knows what to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notice {
    /// The inbox of a task has a message.
    Task { id: [u8; 16] },
    /// A client answered a request that this process did not send.
    Response { session: [u8; 16], request_id: u64, owner: [u8; 32] },
}

impl Server {
    fn replicas_owner(&self) -> [u8; 32] {
        digest_parts(&[b"ended sessions", self.store_scope.as_bytes()])
    }

    /// Exchanges ended sessions and messages with other processes that have the same store, for as long as the server
    /// exists. Only for a store that several processes share.
    pub async fn follow_replicas(self: Arc<Self>) {
        self.has_replicas.store(true, Ordering::Relaxed);
        let (owner, server) = (self.replicas_owner(), Arc::downgrade(&self));
        drop(self);
        let streams = [ReplicaStream::EndedSessions, ReplicaStream::Notices];
        let mut places = streams.map(|stream| (stream, Sequence::START));
        let mut is_failing = false;
        loop {
            let Some(server) = server.upgrade() else { return };
            let (mut is_behind, mut has_failed) = (false, false);
            for (stream, after) in &mut places {
                match server.follow(&owner, *stream, after).await {
                    Ok(is_full) => is_behind |= is_full,
                    Err(error) => {
                        // It is asked every second, and may be gone for good.
                        if !is_failing && !has_failed {
                            tracing::warn!(%error, "cannot learn what happens at other processes");
                        }
                        has_failed = true;
                    }
                }
            }
            is_failing = has_failed;
            drop(server);
            if !is_behind {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Reads the next page of a stream. Returns whether there may be more.
    async fn follow(
        self: &Arc<Self>,
        owner: &[u8; 32],
        stream: ReplicaStream,
        after: &mut Sequence,
    ) -> Result<bool, state::store::StoreError> {
        let now_ms = self.platform.now_ms();
        let key = StoreKey { namespace: Namespace::EndedSessions, owner, name: stream.name() };
        let Some(page) = self.store.read_after(key, *after, PAGE_ENTRIES, now_ms).await? else {
            return Ok(false);
        };
        for (sequence, entry) in &page.entries {
            *after = *sequence;
            match stream {
                ReplicaStream::EndedSessions => {
                    for (key, expires_ms) in read_ended_sessions(entry) {
                        self.sessions.end_elsewhere(key, now_ms, expires_ms);
                    }
                }
                ReplicaStream::Notices => match Notice::read(entry) {
                    Some(Notice::Task { id }) => self.tasks.read_inbox_of(&hex(&id)),
                    Some(Notice::Response { session, request_id, owner }) => {
                        self.fetch_response(session, request_id, owner).await;
                    }
                    // Of a newer program.
                    None => {}
                },
            }
        }
        Ok(page.entries.len() == PAGE_ENTRIES)
    }

    /// Called when a session ended here.
    pub(crate) fn publish_ended_session(self: &Arc<Self>, ticket: &SessionTicket) {
        if !self.has_replicas.load(Ordering::Relaxed) {
            return;
        }
        let expires_ms = self.platform.now_ms().saturating_add(self.limits.session_ttl_ms);
        if self.replica_outbox.push_ended((ticket.key(), expires_ms)) {
            tokio::spawn(publish_ended_sessions(Arc::downgrade(self)));
        }
    }

    /// Tells the process that runs a task to read its inbox. One that does not follow does so when it renews its lease.
    pub(crate) async fn publish_task_message(&self, id: [u8; 16]) {
        if let Err(error) = self.publish_notice(Notice::Task { id }).await {
            tracing::warn!(%error, "the process that runs a task learns of a message later");
        }
    }

    /// Delivers what a client answered to a request in its session, here or at the process that sent the request.
    pub(crate) fn deliver_session_response(
        self: &Arc<Self>,
        ticket: &SessionTicket,
        identity: &CallerIdentity,
        id: Option<u64>,
        response: ClientResponse,
    ) {
        let connection = self.sessions.get(ticket);
        let is_from_here = |id: u64| connection.as_ref().is_some_and(|state| state.has_sent_request(id));
        let Some(id) = id.filter(|id| !is_from_here(*id)) else {
            return connection.map_or((), |connection| connection.deliver_response(id, response));
        };
        if !self.has_replicas.load(Ordering::Relaxed) {
            if self.may_warn(OutboxProblem::NoSharedStore) {
                tracing::warn!(
                    "a client answered a request that this process did not send; without a shared store, all requests of a \
                     session must reach the same process"
                );
            }
            return;
        }
        let (session, owner) = (ticket.key(), store_owner(self, identity));
        let Some(place) = AnswerPlace::acquire(self, owner) else {
            if self.may_warn(OutboxProblem::TooManyAnswers) {
                tracing::warn!(
                    caller = %identity,
                    "too many answers to requests that this process did not send; some do not reach the process that asked"
                );
            }
            return;
        };
        tokio::spawn(async move {
            let server = &place.server;
            let passed_on = server.pass_response_on(session, id, owner, &response).await;
            if let Err(error) = passed_on
                && server.may_warn(OutboxProblem::AnswerNotPassedOn)
            {
                tracing::warn!(%error, "an answer of a client does not reach the process that asked for it");
            }
        });
    }

    fn may_warn(&self, problem: OutboxProblem) -> bool {
        self.replica_outbox.may_warn(problem, self.platform.now_ms())
    }

    async fn pass_response_on(
        &self,
        session: [u8; 16],
        request_id: u64,
        owner: [u8; 32],
        response: &ClientResponse,
    ) -> Result<(), state::store::StoreError> {
        let name = response_name(&session, request_id);
        let key = StoreKey { namespace: Namespace::Messages, owner: &owner, name: &name };
        let mut fields = FieldWriter::default();
        match response {
            Ok(result) => {
                fields.u8(0);
                fields.text(result.as_str());
            }
            Err(message) => {
                fields.u8(1);
                fields.text(message);
            }
        }
        self.store.put_once(key, &fields.into_bytes(), MESSAGE_TTL, self.platform.now_ms()).await?;
        self.publish_notice(Notice::Response { session, request_id, owner }).await
    }

    /// Takes a response that another process got, if a call waits for it here.
    async fn fetch_response(&self, session: [u8; 16], request_id: u64, owner: [u8; 32]) {
        let Some(connection) = self.sessions.get_by_key(&session) else { return };
        if !connection.awaits_response(request_id) {
            return;
        }
        let name = response_name(&session, request_id);
        let key = StoreKey { namespace: Namespace::Messages, owner: &owner, name: &name };
        match self.store.take(key, self.platform.now_ms()).await {
            Ok(Some(bytes)) => match read_response(&bytes) {
                Some(response) => connection.deliver_response(Some(request_id), response),
                None => tracing::warn!("cannot read an answer that another process passed on"),
            },
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot read an answer that another process passed on"),
        }
    }

    async fn publish_notice(&self, notice: Notice) -> Result<(), state::store::StoreError> {
        self.publish(ReplicaStream::Notices, notice.to_fields(), MESSAGE_TTL).await
    }

    async fn publish(
        &self,
        stream: ReplicaStream,
        entry: FieldWriter,
        ttl: Ttl,
    ) -> Result<(), state::store::StoreError> {
        let owner = self.replicas_owner();
        let key = StoreKey { namespace: Namespace::EndedSessions, owner: &owner, name: stream.name() };
        let now_ms = self.platform.now_ms();
        self.store.append(key, &entry.into_bytes(), ENTRIES_MAX, ttl, now_ms).await.map(drop)
    }
}

fn response_name(session: &[u8; 16], request_id: u64) -> [u8; 24] {
    let mut name = [0; 24];
    name[..16].copy_from_slice(session);
    name[16..].copy_from_slice(&request_id.to_be_bytes());
    name
}

fn read_response(bytes: &[u8]) -> Option<ClientResponse> {
    let mut fields = FieldReader(bytes);
    Some(match fields.u8()? {
        0 => Ok(Json::parse(fields.text()?).ok()?),
        _ => Err(fields.text()?.to_owned()),
    })
}

/// Tells the others of all sessions that ended here, until there is none left or the server is gone. While the store cannot
/// take them, they wait.
async fn publish_ended_sessions(server: Weak<Server>) {
    while let Some(server) = server.upgrade() {
        let sessions = server.replica_outbox.take_ended();
        if sessions.is_empty() {
            return;
        }
        let mut entry = FieldWriter::default();
        for (key, expires_ms) in &sessions {
            entry.fixed(key);
            entry.u64(*expires_ms);
        }
        let ttl = Ttl { ms: server.limits.session_ttl_ms };
        if let Err(error) = server.publish(ReplicaStream::EndedSessions, entry, ttl).await {
            if server.may_warn(OutboxProblem::EndNotPublished) {
                tracing::warn!(%error, "other processes do not learn yet that a session has ended");
            }
            server.replica_outbox.put_back_ended(sessions);
            drop(server);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

fn read_ended_sessions(entry: &[u8]) -> impl Iterator<Item = EndedSession> {
    let mut fields = FieldReader(entry);
    std::iter::from_fn(move || Some((fields.fixed()?, fields.u64()?)))
}

impl Notice {
    fn to_fields(self) -> FieldWriter {
        let mut fields = FieldWriter::default();
        match self {
            Self::Task { id } => {
                fields.u8(0);
                fields.fixed(&id);
            }
            Self::Response { session, request_id, owner } => {
                fields.u8(1);
                fields.fixed(&session);
                fields.u64(request_id);
                fields.fixed(&owner);
            }
        }
        fields
    }

    fn read(entry: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(entry);
        Some(match fields.u8()? {
            0 => Self::Task { id: fields.fixed()? },
            1 => {
                Self::Response { session: fields.fixed()?, request_id: fields.u64()?, owner: fields.fixed()? }
            }
            _ => return None,
        })
    }
}

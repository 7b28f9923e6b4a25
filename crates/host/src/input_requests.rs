//! Input requests to the client (elicitation, sampling, roots), and where the journal lives meanwhile.
//!
//! In the stateless era the journal travels to the client sealed, as `requestState`, and the call comes back as a new
//! request. In the handshake era the server sends requests of its own and the call waits here. Either way the
//! handler runs again with the responses and cannot tell the difference. In a task the responses come with
//! `tasks/update`.

use std::time::Duration;

use spile_core::{
    Call, CallError, CallId, CallTarget, InputRequests, Journal, Outcome, Principal, ToolError,
};
use state::keyring::{OpenError, Purpose, digest_parts};
use state::store::{LimitName, Namespace, PutOutcome, Store as _, StoreError, StoreKey, Ttl};
use tokio::time::Instant;
use wire::{Feature, Resume};

use crate::byte_fields::{FieldReader, FieldWriter};
use crate::caller_key::network_of;
use crate::connection_state::{ConnectionState, ReplyChannel};
use crate::input_responses::{ExpectedResponse, RequestStateId, ResponseChecks, ResumedState};
use crate::open_requests::{ClientGone, WaitingRound};
use crate::pipeline::{CallJob, CallStage, input_refused_error, invalid_response_error};
use crate::registry::{CallRoute, Registry};
use crate::server::{CallerIdentity, Server};

/// The outcome of one round of input requests.
pub(crate) enum InputOutcome {
    /// Run the handler again: the journal has all responses, or a timer of the handler is due.
    RunAgain,
    /// The client must answer these requests and repeat the call with this `requestState`.
    Sealed { requests: InputRequests, state: String },
    /// The call ends: the client answered with an error, or too often with an invalid response.
    Refused(ToolError),
}

/// A larger journal is too much to send back and forth: it goes to the store, and the client gets a reference.
const CARRIED_JOURNAL_BYTES_MAX: usize = 32 << 10;

/// What the store accepts as one entry, less what encryption adds.
const STORED_JOURNAL_BYTES_MAX: usize = (1 << 20) - 1024;

/// Sends the input requests to the calling client, wherever the call runs.
pub(crate) async fn request_input(
    server: &Server,
    registry: &Registry,
    job: &mut CallJob,
    mut requests: InputRequests,
) -> Result<InputOutcome, CallError> {
    match job.stage {
        // The calling tool decides what to do about them, and has the note of the policy when it continues this call.
        CallStage::Nested { is_decided, .. } => {
            if !is_decided {
                requests.set_policy_note(job.journal.policy_note().cloned());
            }
            return Ok(InputOutcome::Sealed { requests, state: String::new() });
        }
        CallStage::Request | CallStage::Task(_) => {
            if let Some(note) = requests.take_policy_note() {
                job.journal.record_passed_on_note(note);
            }
        }
    }
    if job.checks.as_mut().is_some_and(|checks| checks.accept_offered(&mut job.journal, &requests)) {
        job.journal.set_memo(requests.take_memo());
        return Ok(InputOutcome::RunAgain);
    }
    let missing = job.caller.capabilities.missing(requests.required_capabilities());
    if !missing.is_empty() {
        return Err(CallError::MissingCapability(missing));
    }
    if requests.is_empty() {
        return Err(CallError::Internal { detail: "a handler needs input but has no input requests".into() });
    }
    let attempts = job.checks.as_ref().and_then(|checks| checks.repeated_attempts());
    match attempts.is_some() || is_waiting_for(job, &requests) {
        true => job.journal.repeat_round(&mut requests),
        false => job.journal.next_round(&mut requests),
    }
    let wake_at_ms = requests.wake_at_ms();
    job.journal.call_id(&*server.platform);
    if job.journal.round.saturating_add(attempts.unwrap_or(0)) > server.limits.input_rounds_max {
        if let Some(reason) = job.checks.as_ref().and_then(|checks| checks.first_rejection()) {
            return Ok(InputOutcome::Refused(invalid_response_error(reason)));
        }
        let limit = server.limits.input_rounds_max;
        let reason = format!("too many rounds of input requests; the limit is {limit}");
        return Err(CallError::InvalidParams { path: "params".into(), reason });
    }
    let requests = match &mut job.checks {
        Some(checks) => checks.explain(requests),
        None => requests,
    };
    if let CallStage::Task(task) = &job.stage {
        return match task.request_input(server, &job.journal, &requests, wake_at_ms).await {
            Ok(journal) => {
                job.journal = journal;
                Ok(InputOutcome::RunAgain)
            }
            Err(error) => Ok(InputOutcome::Refused(error)),
        };
    }
    if job.peer.version.has(Feature::InputRequired) {
        let state = seal_journal(server, registry, job, &requests, attempts.unwrap_or(0)).await?;
        return Ok(InputOutcome::Sealed { requests, state });
    }
    // 2025-06-18 forms have strings, numbers, booleans and single choices; a multi-select cannot be shown.
    if !job.peer.version.has(Feature::ElicitationMode)
        && requests.iter().any(|(_, request)| request.has_multi_select())
    {
        return Err(CallError::MissingCapability(requests.required_capabilities()));
    }
    match connection_state(server, job)? {
        Some(connection) => request_over_connection(server, job, &connection, &requests, wake_at_ms).await,
        None => Err(CallError::MissingCapability(requests.required_capabilities())),
    }
}

/// Whether the client was asked this before a timer of the handler was due, and has not answered yet.
fn is_waiting_for(job: &CallJob, requests: &InputRequests) -> bool {
    match &job.stage {
        CallStage::Task(task) => task.is_waiting_for(requests),
        CallStage::Request | CallStage::Nested { .. } => {
            job.checks.as_ref().is_some_and(|checks| checks.is_waiting_for(requests))
        }
    }
}

fn connection_state(
    server: &Server,
    job: &CallJob,
) -> Result<Option<std::sync::Arc<ConnectionState>>, CallError> {
    match &job.reply_channel {
        ReplyChannel::NoSession => Ok(None),
        ReplyChannel::Pipe(connection) => Ok(Some(connection.clone())),
        ReplyChannel::Session(ticket) => server.ensure_session_state(ticket, &job.identity).map(Some),
    }
}

/// Sends all requests together and waits until each is answered, or until the provider has something to do. Requests of an
/// earlier round that are still needed stay open.
async fn request_over_connection(
    server: &Server,
    job: &mut CallJob,
    connection: &ConnectionState,
    requests: &InputRequests,
    wake_at_ms: Option<u64>,
) -> Result<InputOutcome, CallError> {
    let checks = job.checks.get_or_insert_default();
    let mut waiting = checks.take_waiting().unwrap_or_else(|| WaitingRound::new(job.events.clone()).into());
    waiting.open.retain(|key| requests.contains_key(key));
    waiting.answers.retain(|(key, _)| requests.contains_key(key));
    for (key, request) in requests.iter() {
        if !waiting.has_asked(key) {
            waiting.open.send(connection, key, request, None);
        }
    }
    let wake_at = wake_at(server, wake_at_ms);
    // Whatever ends the wait, what is dropped with `waiting` is cancelled.
    while let Some(first_sent) = waiting.open.first_sent() {
        let after_ms = server.limits.input_timeout_ms;
        tokio::select! {
            biased;
            (key, response) = waiting.open.next_response() => match response {
                Ok(Ok(response)) => waiting.answers.push((key, response)),
                Ok(Err(message)) => return Ok(InputOutcome::Refused(input_refused_error(&message))),
                Err(ClientGone) => return Err(CallError::Cancelled),
            },
            () = sleep_until_or_forever(wake_at) => {
                checks.keep_waiting(waiting);
                return Ok(InputOutcome::RunAgain);
            }
            // 2025-11-25, Timeouts: the sender SHOULD issue a cancellation notification.
            () = tokio::time::sleep_until(first_sent + Duration::from_millis(after_ms)) => {
                return Err(CallError::Timeout { after_ms });
            }
        }
    }
    for (key, request) in requests.iter() {
        if let Some(index) = waiting.answers.iter().position(|(answered, _)| answered == key) {
            let (_, response) = waiting.answers.swap_remove(index);
            // The handler finds no invalid response in its journal, and requests the input again.
            checks.accept(&mut job.journal, key, &ExpectedResponse::new(request), response);
        }
    }
    Ok(InputOutcome::RunAgain)
}

/// A handler with a fast timer does not keep its thread busy while its client thinks.
const WAKE_AFTER_MS_MIN: u64 = 10;

/// When the handler runs again without answers: `at_ms` is of the platform's clock.
pub(crate) fn wake_at(server: &Server, at_ms: Option<u64>) -> Option<Instant> {
    let after_ms = at_ms?.saturating_sub(server.platform.now_ms()).max(WAKE_AFTER_MS_MIN);
    Instant::now().checked_add(Duration::from_millis(after_ms))
}

pub(crate) async fn sleep_until_or_forever(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What a seal is bound to: the server, the caller, and the call with its arguments.
fn seal_binding(server: &Server, principal: &Principal, call: &Call) -> [u8; 32] {
    let target: &[u8] = match call.target {
        CallTarget::Tool => b"tool",
        CallTarget::Prompt => b"prompt",
        CallTarget::Resource => b"resource",
        CallTarget::Completion { .. } => b"completion",
    };
    let mut arguments = Vec::new();
    if let Some(node) = call.arguments() {
        node.write_canonical(&mut arguments);
    }
    digest_parts(&[
        server.store_scope.as_bytes(),
        principal.id().as_bytes(),
        target,
        call.name().as_bytes(),
        &arguments,
    ])
}

/// A `requestState`: a header, and the journal itself or the promise that it is in the store.
async fn seal_journal(
    server: &Server,
    registry: &Registry,
    job: &CallJob,
    requests: &InputRequests,
    attempts: u32,
) -> Result<String, CallError> {
    let now_ms = server.platform.now_ms();
    let expires_ms = now_ms.saturating_add(server.limits.input_timeout_ms);
    let call_id = job.journal.call_id(&*server.platform);
    let mut fields = FieldWriter::default();
    fields.option(job.journal.memo(), FieldWriter::bytes);
    write_pairs(&mut fields, job.journal.entries().map(|(key, response)| (key, response.as_str())));
    let expected: Vec<_> =
        requests.iter().map(|(key, request)| (key, ExpectedResponse::new(request))).collect();
    write_pairs(&mut fields, expected.iter().map(|(key, expected)| (*key, expected.as_sealed())));
    let body = fields.into_bytes();

    let is_stored = body.len() > CARRIED_JOURNAL_BYTES_MAX;
    let mut plain = Vec::with_capacity(HEADER_BYTES + if is_stored { 0 } else { body.len() });
    let owner = store_owner(server, &job.identity);
    plain.push(u8::from(is_stored));
    plain.extend_from_slice(&expires_ms.to_be_bytes());
    plain.extend_from_slice(&job.journal.round.to_be_bytes());
    plain.extend_from_slice(&attempts.to_be_bytes());
    plain.extend_from_slice(&call_id);
    plain.extend_from_slice(&owner);
    plain.extend_from_slice(&server.store.run_id().unwrap_or_default());
    plain.extend_from_slice(&registry.contract_digest(&job.call));
    if is_stored {
        let id = state_id(&call_id, job.journal.round, attempts);
        store_journal(server, &owner, &id, &body, expires_ms - now_ms).await?;
    } else {
        plain.extend_from_slice(&body);
    }
    let binding = seal_binding(server, &job.caller.principal, &job.call);
    Ok(server.keyring.seal(Purpose::RequestState, &binding, &plain, &*server.platform))
}

/// Whose records a call leaves in the store. A limit for each owner keeps one caller from filling it for all, so callers
/// without a name are told apart by their addresses. The address may change before the client comes back, so the state
/// says which owner it was.
pub(crate) fn store_owner(server: &Server, identity: &CallerIdentity) -> [u8; 32] {
    let address = match identity.principal {
        Principal::Anonymous => identity.address.map(|address| network_of(address).to_string()),
        Principal::Named(_) => None,
    };
    let (scope, principal) = (server.store_scope.as_bytes(), identity.principal.id());
    digest_parts(&[b"caller", scope, principal.as_bytes(), address.unwrap_or_default().as_bytes()])
}

async fn store_journal(
    server: &Server,
    owner: &[u8; 32],
    id: &RequestStateId,
    body: &[u8],
    ttl_ms: u64,
) -> Result<(), CallError> {
    if body.len() > STORED_JOURNAL_BYTES_MAX {
        let reason = format!("the responses so far exceed the limit of {STORED_JOURNAL_BYTES_MAX} bytes");
        return Err(CallError::InvalidParams { path: "params.inputResponses".into(), reason });
    }
    let key = StoreKey { namespace: Namespace::Journals, owner, name: id };
    let now_ms = server.platform.now_ms();
    // A request that is repeated makes the same state again, perhaps with other questions.
    server.store.delete(key, now_ms).await.map_err(store_failure)?;
    let stored = server.store.put_once(key, body, Ttl { ms: ttl_ms }, now_ms).await;
    stored.map(drop).map_err(store_failure)
}

/// Uses a `requestState` for the round that begins now: a second request with it is refused. If the provider makes sure
/// itself that a repeated round changes nothing more, a request without an answer, or with the same one, is accepted again,
/// for a client that lost the response; one with another answer is not. `admit` is asked before the state
/// counts as used.
pub(crate) async fn use_state(
    server: &Server,
    route: &CallRoute<'_>,
    job: &mut CallJob,
    mut state: ResumedState,
    admit: impl FnOnce(&CallJob) -> Result<(), Box<Outcome>>,
) -> Result<(), Box<Outcome>> {
    let failed = |error| Box::new(Outcome::Failed(error));
    read_state(server, job, &mut state).await.map_err(failed)?;
    admit(job)?;
    mark_state(server, route, job, &state).await.map_err(failed)
}

/// Reads the journal of a state that is in the store.
async fn read_state(server: &Server, job: &mut CallJob, state: &mut ResumedState) -> Result<(), CallError> {
    let Some(responses) = state.unread.take() else {
        job.checks.get_or_insert_default();
        return Ok(());
    };
    let now_ms = server.platform.now_ms();
    let key = |namespace, name| StoreKey { namespace, owner: &state.owner, name };
    let Some(body) =
        server.store.get(key(Namespace::Journals, &state.id), now_ms).await.map_err(store_failure)?
    else {
        let used = server.store.get(key(Namespace::UsedRequestStates, &state.id), now_ms).await;
        return Err(CallError::InvalidRequestState(match used.map_err(store_failure)? {
            Some(_) => ALREADY_USED,
            None => "the server no longer has it; repeat the call without it",
        }));
    };
    state.is_stored = true;
    let (journal, expected) = decode_body(job.journal.clone(), &body)?;
    job.journal = journal;
    job.checks.get_or_insert_default().accept_all(&mut job.journal, &expected, responses);
    Ok(())
}

async fn mark_state(
    server: &Server,
    route: &CallRoute<'_>,
    job: &CallJob,
    state: &ResumedState,
) -> Result<(), CallError> {
    let now_ms = server.platform.now_ms();
    let repeats_safely = match route {
        CallRoute::Tool(tool) => tool.provider.repeats_rounds_safely(),
        CallRoute::Provider(provider) => provider.repeats_rounds_safely(),
        CallRoute::ResourceProviders(_) => false,
    };
    // Without a new answer the round repeats, with all that it does while it waits.
    if repeats_safely && !job.checks.as_ref().is_some_and(|checks| checks.has_accepted()) {
        return Ok(());
    }
    let mark = used_mark(&state.id, repeats_safely);
    let used = StoreKey { namespace: Namespace::UsedRequestStates, owner: &state.owner, name: &mark };
    let answer = responses_digest(&job.journal);
    let ttl = Ttl { ms: state.expires_ms.saturating_sub(now_ms).max(1) };
    match server.store.put_once(used, &answer, ttl, now_ms).await.map_err(store_failure)? {
        PutOutcome::Stored => {
            // Nobody needs it again, and it counts against the limits of its owner.
            if state.is_stored && !repeats_safely {
                let stored =
                    StoreKey { namespace: Namespace::Journals, owner: &state.owner, name: &state.id };
                server.store.delete(stored, now_ms).await.map_err(store_failure)?;
            }
            return Ok(());
        }
        PutOutcome::AlreadyThere if repeats_safely => {
            let first = server.store.get(used, now_ms).await.map_err(store_failure)?;
            if first.is_some_and(|first| first == answer) {
                return Ok(());
            }
        }
        PutOutcome::AlreadyThere => {}
    }
    Err(CallError::InvalidRequestState(ALREADY_USED))
}

const ALREADY_USED: &str = "already used; repeat the call without it";

/// Tells two answers to the same input requests apart.
fn responses_digest(journal: &Journal) -> [u8; 32] {
    let mut bytes = Vec::new();
    for (key, response) in journal.entries() {
        json::write::string(&mut bytes, key);
        response.to_doc().root().write_canonical(&mut bytes);
    }
    digest_parts(&[&bytes])
}

/// The store's own messages say what happened without naming its engine.
pub(crate) fn store_failure(error: StoreError) -> CallError {
    tracing::warn!(%error, "cannot use the store");
    match error {
        StoreError::Full { limit: LimitName::OwnerRecords | LimitName::OwnerBytes } => {
            CallError::TooMuchState
        }
        // What is too large is refused before, with its own reason.
        StoreError::Unavailable | StoreError::Full { .. } | StoreError::TooLarge { .. } => {
            CallError::StoreUnavailable
        }
        StoreError::Corrupt | StoreError::KeyGone => {
            CallError::InvalidRequestState("the server cannot read it any more; repeat the call without it")
        }
    }
}

fn state_id(call_id: &CallId, round: u32, attempts: u32) -> RequestStateId {
    let mut id = RequestStateId::default();
    id[..16].copy_from_slice(call_id);
    id[16..20].copy_from_slice(&round.to_be_bytes());
    id[20..].copy_from_slice(&attempts.to_be_bytes());
    id
}

/// The name of the mark that a state was used. Where a round may be repeated, all its attempts share one: of two different
/// answers one counts.
fn used_mark(id: &RequestStateId, repeats_safely: bool) -> RequestStateId {
    let mut mark = *id;
    if repeats_safely {
        mark[20..].fill(0);
    }
    mark
}

fn write_pairs<'a>(fields: &mut FieldWriter, pairs: impl Iterator<Item = (&'a str, &'a str)>) {
    let pairs: Vec<_> = pairs.collect();
    fields.list(pairs.into_iter(), |fields, (key, text)| {
        fields.text(key);
        fields.text(text);
    });
}

/// The journal that a client sends back, with its new responses. A bad seal is an error. A response that does not match
/// its request is left out, so that the handler requests it again.
pub(crate) fn resume_journal(
    server: &Server,
    registry: &Registry,
    principal: &Principal,
    call: &Call,
    resume: Resume,
) -> Result<(Journal, Option<Box<ResponseChecks>>), CallError> {
    let (mut journal, mut checks, expected) = match resume.request_state {
        None => (Journal::default(), ResponseChecks::default(), Vec::new()),
        Some(state) => {
            let binding = seal_binding(server, principal, call);
            let now_ms = server.platform.now_ms();
            let plain = server.keyring.open(Purpose::RequestState, &binding, &state, now_ms);
            let plain = plain.map_err(|error| CallError::InvalidRequestState(open_error_text(error)))?;
            let run_id = server.store.run_id().unwrap_or_default();
            let (header, body) =
                StateHeader::decode(&plain, now_ms, &run_id, &registry.contract_digest(call))?;
            let StateHeader { is_stored, expires_ms, round, attempts, call_id, owner } = header;
            let journal = Journal::for_round(round, call_id, None);
            let mut state = ResumedState {
                id: state_id(&call_id, round, attempts),
                owner,
                expires_ms,
                unread: None,
                is_stored: false,
            };
            if is_stored {
                state.unread = Some(resume.input_responses);
                return Ok((journal, Some(Box::new(ResponseChecks::for_state(state, attempts)))));
            }
            let (journal, expected) = decode_body(journal, body)?;
            (journal, ResponseChecks::for_state(state, attempts), expected)
        }
    };
    checks.accept_all(&mut journal, &expected, resume.input_responses);
    Ok((journal, Some(Box::new(checks))))
}

/// Why a `requestState` is refused, for the client.
fn open_error_text(error: OpenError) -> &'static str {
    match error {
        OpenError::Malformed => "not issued by this server",
        OpenError::UnknownKey(_) => {
            "issued by another server, or the server's keys have changed since; repeat the call without it"
        }
        OpenError::KeyExpired(_) => "the server's keys have changed since; repeat the call without it",
        OpenError::Mismatch => {
            "it was changed, or issued by another server, for another call, other arguments or another caller; repeat the call without it"
        }
    }
}

/// What a `requestState` says besides the journal.
struct StateHeader {
    is_stored: bool,
    expires_ms: u64,
    round: u32,
    /// How often the client came back without an answer that was accepted.
    attempts: u32,
    call_id: CallId,
    /// Whose records in the store belong to it.
    owner: [u8; 32],
}

const HEADER_BYTES: usize = 1 + 8 + 4 + 4 + 16 + 32 + 16 + 32;

/// The seal opened, so this server wrote it; still, nothing here may panic.
fn corrupt() -> CallError {
    CallError::InvalidRequestState("corrupt")
}

impl StateHeader {
    /// Returns the rest, too.
    fn decode<'p>(
        plain: &'p [u8],
        now_ms: u64,
        run_id: &[u8; 16],
        contract_digest: &[u8; 32],
    ) -> Result<(Self, &'p [u8]), CallError> {
        let (is_stored, rest) = plain.split_first().ok_or_else(corrupt)?;
        let (expires, rest) = rest.split_first_chunk().ok_or_else(corrupt)?;
        let expires_ms = u64::from_be_bytes(*expires);
        if now_ms >= expires_ms {
            return Err(CallError::InvalidRequestState("expired; repeat the call without it"));
        }
        let (round, rest) = rest.split_first_chunk().ok_or_else(corrupt)?;
        let (attempts, rest) = rest.split_first_chunk().ok_or_else(corrupt)?;
        let (call_id, rest) = rest.split_first_chunk().ok_or_else(corrupt)?;
        let (owner, rest) = rest.split_first_chunk().ok_or_else(corrupt)?;
        let (sealed_run_id, rest) = rest.split_first_chunk::<16>().ok_or_else(corrupt)?;
        // If the store that knows which states were used ends with its process, so do the states.
        if sealed_run_id != run_id {
            return Err(CallError::InvalidRequestState(
                "it ended with the process that issued it, which had no store; repeat the call without it",
            ));
        }
        let (digest, rest) = rest.split_first_chunk::<32>().ok_or_else(corrupt)?;
        if digest != contract_digest {
            return Err(CallError::ChangedWhileWaiting);
        }
        let (is_stored, round) = (*is_stored == 1, u32::from_be_bytes(*round));
        let attempts = u32::from_be_bytes(*attempts);
        Ok((Self { is_stored, expires_ms, round, attempts, call_id: *call_id, owner: *owner }, rest))
    }
}

type ExpectedResponses = Vec<(String, ExpectedResponse)>;

/// Adds memo and responses to the journal of a header.
fn decode_body(mut journal: Journal, body: &[u8]) -> Result<(Journal, ExpectedResponses), CallError> {
    let mut fields = FieldReader(body);
    let memo = fields.option(FieldReader::bytes).ok_or_else(corrupt)?;
    journal.set_memo(memo.map(Into::into));
    let pair = |fields: &mut FieldReader<'_>| Some((fields.text()?.to_owned(), fields.json()?));
    for (key, response) in fields.list(pair).ok_or_else(corrupt)? {
        journal.record(&key, response);
    }
    let pair = |fields: &mut FieldReader<'_>| {
        Some((fields.text()?.to_owned(), ExpectedResponse::from_sealed(fields.text()?)?))
    };
    let expected = fields.list(pair).ok_or_else(corrupt)?;
    Ok((journal, expected))
}

//! Input requests to the client (elicitation, sampling, roots), and where the journal lives meanwhile.
//!
//! In the modern era the journal travels to the client sealed, as `requestState`, and the call comes back as a new
//! request. In the handshake era the server sends requests of its own and the call waits here. Either way the
//! handler runs again with the responses and cannot tell the difference.

use std::collections::VecDeque;
use std::time::Duration;

use json::Json;
use spile_core::{Call, CallError, CallTarget, InputRequests, Journal, Principal};
use wire::{Feature, Resume};

use crate::connection_state::{ConnectionState, ReplyChannel};
use crate::pipeline::CallJob;
use crate::registry::Registry;
use crate::seal::{Purpose, digest_parts};
use crate::server::Server;

/// The outcome of one round of input requests.
pub(crate) enum InputOutcome {
    /// The journal has all responses: run the handler again.
    Answered,
    /// The client must repeat the call with this `requestState`.
    Sealed(String),
    /// The client answered with an error; its message.
    Refused(String),
}

/// Responses are small; a larger journal is too much to send back and forth.
const REQUEST_STATE_BYTES_MAX: usize = 256 << 10;

/// Sends the input requests to the calling client.
pub(crate) async fn request_input(
    server: &Server,
    registry: &Registry,
    job: &mut CallJob,
    requests: &InputRequests,
) -> Result<InputOutcome, CallError> {
    let missing = job.caller.capabilities.missing(requests.required_capabilities());
    if !missing.is_empty() {
        return Err(CallError::MissingCapability(missing));
    }
    if requests.is_empty() {
        return Err(CallError::Internal { detail: "a handler needs input but has no input requests".into() });
    }
    job.journal.remove_all(requests);
    job.journal.round += 1;
    job.journal.call_id.get_or_insert_with(|| {
        let mut random = [0; 16];
        server.platform.fill_random(&mut random);
        random
    });
    if job.journal.round > server.limits.input_rounds_max {
        return Err(CallError::InvalidParams {
            path: "params".into(),
            reason: format!(
                "too many rounds of input requests; the limit is {}",
                server.limits.input_rounds_max
            ),
        });
    }
    if job.peer.version.has(Feature::InputRequired) {
        return seal_journal(server, registry, job).map(InputOutcome::Sealed);
    }
    // 2025-06-18 forms have strings, numbers, booleans and single choices; a multi-select cannot be shown.
    if !job.peer.version.has(Feature::ElicitationMode)
        && requests.iter().any(|(_, request)| request.has_multi_select())
    {
        return Err(CallError::MissingCapability(requests.required_capabilities()));
    }
    match connection_state(server, job)? {
        Some(connection) => request_over_connection(server, job, &connection, requests).await,
        None => Err(CallError::MissingCapability(requests.required_capabilities())),
    }
}

fn connection_state(
    server: &Server,
    job: &CallJob,
) -> Result<Option<std::sync::Arc<ConnectionState>>, CallError> {
    match &job.reply_channel {
        ReplyChannel::Stateless => Ok(None),
        ReplyChannel::Pipe(connection) => Ok(Some(connection.clone())),
        ReplyChannel::Session(ticket) => server.ensure_session_state(ticket, &job.identity).map(Some),
    }
}

/// Sends all requests together and waits until each is answered.
async fn request_over_connection(
    server: &Server,
    job: &mut CallJob,
    connection: &ConnectionState,
    requests: &InputRequests,
) -> Result<InputOutcome, CallError> {
    let mut pending = VecDeque::with_capacity(requests.len());
    for (key, request) in requests.iter() {
        let (id, response) = connection.new_request();
        job.events.request_input(id, request.clone(), None);
        pending.push_back((key, id, response));
    }
    let after_ms = server.limits.input_timeout_ms;
    let responses = async {
        while let Some((key, _, response)) = pending.front_mut() {
            match response.await {
                Ok(Ok(response)) => job.journal.record(key, response),
                Ok(Err(message)) => return Ok(InputOutcome::Refused(message)),
                Err(_) => return Err(CallError::Cancelled),
            }
            pending.pop_front();
        }
        Ok(InputOutcome::Answered)
    };
    let outcome = match tokio::time::timeout(Duration::from_millis(after_ms), responses).await {
        Ok(outcome) => outcome,
        Err(_) => Err(CallError::Timeout { after_ms }),
    };
    // 2025-11-25, Timeouts: the sender SHOULD issue a cancellation notification.
    let answered = usize::from(matches!(outcome, Ok(InputOutcome::Refused(_))));
    for (_, id, _) in pending.iter().skip(answered) {
        job.events.cancel_input_request(*id);
    }
    outcome
}

/// What a seal is bound to: the caller, the call with its arguments, and the tool's contract.
fn seal_binding(registry: &Registry, principal: &Principal, call: &Call) -> [u8; 32] {
    let target: &[u8] = match call.target {
        CallTarget::Tool => b"tool",
        CallTarget::Prompt => b"prompt",
        CallTarget::Resource => b"resource",
        CallTarget::Completion { .. } => b"completion",
    };
    let mut arguments = Vec::new();
    if let Some(node) = call.arguments() {
        node.write_compact(&mut arguments);
    }
    let name = call.name();
    let fingerprint = match call.target {
        CallTarget::Tool => registry.tool_fingerprint(&name).map(u64::to_be_bytes),
        CallTarget::Prompt | CallTarget::Resource | CallTarget::Completion { .. } => None,
    };
    let contract = fingerprint.as_ref().map_or(registry.config.version.as_bytes(), |bytes| bytes);
    digest_parts(&[principal.as_str().as_bytes(), contract, target, name.as_bytes(), &arguments])
}

fn seal_journal(server: &Server, registry: &Registry, job: &CallJob) -> Result<String, CallError> {
    let expires_ms = server.platform.now_ms().saturating_add(server.limits.input_timeout_ms);
    let mut plain = Vec::with_capacity(64);
    plain.extend_from_slice(&expires_ms.to_be_bytes());
    plain.extend_from_slice(&job.journal.round.to_be_bytes());
    plain.extend_from_slice(&job.journal.call_id.unwrap_or_default());
    for (key, response) in job.journal.entries() {
        for part in [key, response.as_str()] {
            plain.extend_from_slice(&(part.len() as u32).to_be_bytes());
            plain.extend_from_slice(part.as_bytes());
        }
    }
    if plain.len() > REQUEST_STATE_BYTES_MAX {
        let reason = format!("the responses so far exceed the limit of {REQUEST_STATE_BYTES_MAX} bytes");
        return Err(CallError::InvalidParams { path: "params.inputResponses".into(), reason });
    }
    let binding = seal_binding(registry, &job.caller.principal, &job.call);
    Ok(server.sealer.seal(Purpose::RequestState, &binding, plain, &*server.platform))
}

/// The journal that a client sends back. A bad seal is an error; the handler requests a missing response again.
pub(crate) fn resume_journal(
    server: &Server,
    registry: &Registry,
    principal: &Principal,
    call: &Call,
    resume: Resume,
) -> Result<Journal, CallError> {
    let mut journal = match resume.request_state {
        None => Journal::default(),
        Some(state) => {
            let binding = seal_binding(registry, principal, call);
            let plain = server.sealer.open(Purpose::RequestState, &binding, &state);
            let plain = plain.map_err(|_| CallError::InvalidRequestState("not issued for this request"))?;
            decode_journal(&plain, server.platform.now_ms())?
        }
    };
    for (key, response) in resume.input_responses {
        journal.record(&key, response);
    }
    Ok(journal)
}

fn decode_journal(plain: &[u8], now_ms: u64) -> Result<Journal, CallError> {
    // The seal opened, so this server wrote it; still, nothing here may panic.
    let corrupt = || CallError::InvalidRequestState("corrupt");
    let (expires, rest) = plain.split_first_chunk().ok_or_else(corrupt)?;
    if now_ms >= u64::from_be_bytes(*expires) {
        return Err(CallError::InvalidRequestState("expired; repeat the call without it"));
    }
    let (round, rest) = rest.split_first_chunk().ok_or_else(corrupt)?;
    let (call, mut rest) = rest.split_first_chunk().ok_or_else(corrupt)?;
    let mut journal = Journal::for_round(u32::from_be_bytes(*round), *call);
    let mut next_part = || -> Option<&str> {
        let (len, after) = rest.split_first_chunk()?;
        let (text, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        rest = after;
        std::str::from_utf8(text).ok()
    };
    while let Some(key) = next_part() {
        let response = next_part().and_then(|json| Json::parse(json).ok()).ok_or_else(corrupt)?;
        journal.record(key, response);
    }
    Ok(journal)
}

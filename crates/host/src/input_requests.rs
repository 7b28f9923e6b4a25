//! Input requests to the client (elicitation, sampling, roots), and where the journal lives meanwhile.
//!
//! In the stateless era the journal travels to the client sealed, as `requestState`, and the call comes back as a new
//! request. In the handshake era the server sends requests of its own and the call waits here. Either way the
//! handler runs again with the responses and cannot tell the difference. In a task the responses come with
//! `tasks/update`.

use std::collections::VecDeque;
use std::time::Duration;

use json::Json;
use spile_core::{Call, CallError, CallTarget, InputRequests, Journal, Principal, ToolError};
use state::keyring::{OpenError, Purpose, digest_parts};
use wire::{Feature, Resume};

use crate::connection_state::{ConnectionState, ReplyChannel};
use crate::input_responses::{ExpectedResponse, ResponseChecks};
use crate::pipeline::{CONTRACT_CHANGED, CallJob, CallStage, input_refused_error, invalid_response_error};
use crate::registry::Registry;
use crate::server::Server;

/// The outcome of one round of input requests.
pub(crate) enum InputOutcome {
    /// The journal has all responses: run the handler again.
    Answered,
    /// The client must answer these requests and repeat the call with this `requestState`.
    Sealed { requests: InputRequests, state: String },
    /// The call ends: the client answered with an error, or too often with an invalid response.
    Refused(ToolError),
}

/// Responses are small; a larger journal is too much to send back and forth.
const REQUEST_STATE_BYTES_MAX: usize = 256 << 10;

/// Sends the input requests to the calling client, wherever the call runs.
pub(crate) async fn request_input(
    server: &Server,
    registry: &Registry,
    job: &mut CallJob,
    mut requests: InputRequests,
) -> Result<InputOutcome, CallError> {
    if let CallStage::Nested { .. } = job.stage {
        // The calling tool decides what to do about them.
        return Ok(InputOutcome::Sealed { requests, state: String::new() });
    }
    if job.checks.as_mut().is_some_and(|checks| checks.accept_offered(&mut job.journal, &requests)) {
        job.journal.set_memo(requests.take_memo());
        return Ok(InputOutcome::Answered);
    }
    let missing = job.caller.capabilities.missing(requests.required_capabilities());
    if !missing.is_empty() {
        return Err(CallError::MissingCapability(missing));
    }
    if requests.is_empty() {
        return Err(CallError::Internal { detail: "a handler needs input but has no input requests".into() });
    }
    job.journal.next_round(&mut requests);
    job.journal.call_id(&*server.platform);
    if job.journal.round > server.limits.input_rounds_max {
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
        return match task.request_input(server, &requests).await {
            Ok(responses) => {
                for (key, response) in responses {
                    job.journal.record(&key, response);
                }
                Ok(InputOutcome::Answered)
            }
            Err(error) => Ok(InputOutcome::Refused(error)),
        };
    }
    if job.peer.version.has(Feature::InputRequired) {
        let state = seal_journal(server, registry, job, &requests)?;
        return Ok(InputOutcome::Sealed { requests, state });
    }
    // 2025-06-18 forms have strings, numbers, booleans and single choices; a multi-select cannot be shown.
    if !job.peer.version.has(Feature::ElicitationMode)
        && requests.iter().any(|(_, request)| request.has_multi_select())
    {
        return Err(CallError::MissingCapability(requests.required_capabilities()));
    }
    match connection_state(server, job)? {
        Some(connection) => request_over_connection(server, job, &connection, &requests).await,
        None => Err(CallError::MissingCapability(requests.required_capabilities())),
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
        pending.push_back((key, id, response, ExpectedResponse::new(request)));
    }
    let after_ms = server.limits.input_timeout_ms;
    let responses = async {
        while let Some((key, _, response, expected)) = pending.front_mut() {
            match response.await {
                // The handler finds no invalid response in its journal, and requests the input again.
                Ok(Ok(response)) => {
                    let checks = job.checks.get_or_insert_default();
                    checks.accept(&mut job.journal, key, expected, response);
                }
                Ok(Err(message)) => return Ok(InputOutcome::Refused(input_refused_error(&message))),
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
    for (_, id, ..) in pending.iter().skip(answered) {
        job.events.cancel_input_request(*id);
    }
    outcome
}

/// What a seal is bound to: the caller, and the call with its arguments.
fn seal_binding(principal: &Principal, call: &Call) -> [u8; 32] {
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
    digest_parts(&[principal.id().as_bytes(), target, call.name().as_bytes(), &arguments])
}

fn seal_journal(
    server: &Server,
    registry: &Registry,
    job: &CallJob,
    requests: &InputRequests,
) -> Result<String, CallError> {
    let expires_ms = server.platform.now_ms().saturating_add(server.limits.input_timeout_ms);
    let mut plain = Vec::with_capacity(128);
    plain.extend_from_slice(&expires_ms.to_be_bytes());
    plain.extend_from_slice(&job.journal.round.to_be_bytes());
    plain.extend_from_slice(&job.journal.call_id(&*server.platform));
    plain.extend_from_slice(&registry.contract_digest(&job.call));
    plain.push(u8::from(job.journal.memo().is_some()));
    seal_bytes(&mut plain, job.journal.memo().unwrap_or_default());
    let entries = job.journal.entries().map(|(key, response)| (key, response.as_str()));
    seal_pairs(&mut plain, entries);
    let expected: Vec<_> =
        requests.iter().map(|(key, request)| (key, ExpectedResponse::new(request))).collect();
    let expected = expected.iter().filter_map(|(key, expected)| Some((*key, expected.as_sealed()?)));
    seal_pairs(&mut plain, expected);
    if plain.len() > REQUEST_STATE_BYTES_MAX {
        let reason = format!("the responses so far exceed the limit of {REQUEST_STATE_BYTES_MAX} bytes");
        return Err(CallError::InvalidParams { path: "params.inputResponses".into(), reason });
    }
    let binding = seal_binding(&job.caller.principal, &job.call);
    Ok(server.keyring.seal(Purpose::RequestState, &binding, &plain, &*server.platform))
}

fn seal_bytes(plain: &mut Vec<u8>, bytes: &[u8]) {
    plain.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    plain.extend_from_slice(bytes);
}

/// Writes the number of pairs, then each text with its length.
fn seal_pairs<'a>(plain: &mut Vec<u8>, pairs: impl Iterator<Item = (&'a str, &'a str)>) {
    let at = plain.len();
    plain.extend_from_slice(&[0; 4]);
    let mut count: u32 = 0;
    for (key, text) in pairs {
        count += 1;
        for part in [key, text] {
            seal_bytes(plain, part.as_bytes());
        }
    }
    plain[at..at + 4].copy_from_slice(&count.to_be_bytes());
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
    let (mut journal, expected) = match resume.request_state {
        None => (Journal::default(), Vec::new()),
        Some(state) => {
            let binding = seal_binding(principal, call);
            let now_ms = server.platform.now_ms();
            let plain = server.keyring.open(Purpose::RequestState, &binding, &state, now_ms);
            let plain = plain.map_err(|error| CallError::InvalidRequestState(open_error_text(error)))?;
            decode_journal(&plain, now_ms, &registry.contract_digest(call))?
        }
    };
    let mut checks = ResponseChecks::default();
    for (key, response) in resume.input_responses {
        match expected.iter().find(|(requested, _)| *requested == key) {
            Some((_, expected)) => checks.accept(&mut journal, &key, expected, response),
            // A response that was accepted in an earlier round stays.
            None if journal.response(&key).is_some() => {}
            None => checks.offer(key, response),
        }
    }
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
        OpenError::Mismatch => "not issued for this request",
    }
}

type ExpectedResponses = Vec<(String, ExpectedResponse)>;

fn decode_journal(
    plain: &[u8],
    now_ms: u64,
    contract_digest: &[u8; 32],
) -> Result<(Journal, ExpectedResponses), CallError> {
    // The seal opened, so this server wrote it; still, nothing here may panic.
    let corrupt = || CallError::InvalidRequestState("corrupt");
    let (expires, rest) = plain.split_first_chunk().ok_or_else(corrupt)?;
    if now_ms >= u64::from_be_bytes(*expires) {
        return Err(CallError::InvalidRequestState("expired; repeat the call without it"));
    }
    let (round, rest) = rest.split_first_chunk().ok_or_else(corrupt)?;
    let (call, rest) = rest.split_first_chunk().ok_or_else(corrupt)?;
    let (digest, rest) = rest.split_first_chunk::<32>().ok_or_else(corrupt)?;
    if digest != contract_digest {
        return Err(CallError::InvalidRequestState(CONTRACT_CHANGED));
    }
    let (has_memo, mut rest) = rest.split_first().ok_or_else(corrupt)?;
    let memo = take_bytes(&mut rest).ok_or_else(corrupt)?;
    let memo = (*has_memo == 1).then(|| memo.into());
    let mut journal = Journal::for_round(u32::from_be_bytes(*round), *call, memo);
    for (key, response) in decode_pairs(&mut rest).ok_or_else(corrupt)? {
        journal.record(key, Json::parse(response).map_err(|_| corrupt())?);
    }
    let mut expected = Vec::new();
    for (key, text) in decode_pairs(&mut rest).ok_or_else(corrupt)? {
        expected.push((key.to_owned(), ExpectedResponse::from_sealed(text).ok_or_else(corrupt)?));
    }
    Ok((journal, expected))
}

fn decode_pairs<'a>(rest: &mut &'a [u8]) -> Option<Vec<(&'a str, &'a str)>> {
    fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(take_bytes(rest)?).ok()
    }
    (0..take_u32(rest)?).map(|_| Some((take_text(rest)?, take_text(rest)?))).collect()
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_u32(rest)? as usize;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_be_bytes(*bytes))
}

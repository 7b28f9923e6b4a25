//! Questions to the user: one journal, and where it lives while nobody is working.
//!
//! To a client of the newest era the journal travels sealed, as `requestState`, and the call comes back as a
//! new request. To an older client the questions go out as requests, and the call waits here. Either way the
//! handler is entered again with what was answered; it cannot tell the difference.

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

/// What became of a batch of questions.
pub(crate) enum InputOutcome {
    /// The journal has the answers: go on.
    Answered,
    /// The client must come back with this.
    Sealed(String),
    /// The client would not or could not answer; what it said.
    Refused(String),
}

/// Answers are small; a journal beyond this would not travel well.
const REQUEST_STATE_BYTES_MAX: usize = 256 << 10;

/// Puts the questions to whoever called.
pub(crate) async fn request_input(
    server: &Server,
    registry: &Registry,
    job: &mut CallJob,
    asks: &InputRequests,
) -> Result<InputOutcome, CallError> {
    let lacking = job.caller.capabilities.missing(asks.required_capabilities());
    if !lacking.is_empty() {
        return Err(CallError::MissingCapability(lacking));
    }
    if asks.is_empty() {
        return Err(CallError::Internal { detail: "a handler needs input but asks nothing".into() });
    }
    job.journal.remove_all(asks);
    job.journal.round += 1;
    job.journal.call_id.get_or_insert_with(|| {
        let mut random = [0; 16];
        server.platform.fill_random(&mut random);
        random
    });
    if job.journal.round > server.limits.input_rounds_max {
        return Err(CallError::InvalidParams {
            path: "params".into(),
            reason: "too many rounds of questions".into(),
        });
    }
    if job.peer.version.has(Feature::InputRequired) {
        return seal_journal(server, registry, job).map(InputOutcome::Sealed);
    }
    // 2025-06-18 knows texts, numbers, yes or no, and one choice of many; a form that needs more cannot be shown.
    if !job.peer.version.has(Feature::ElicitationMode) && asks.iter().any(|(_, ask)| ask.has_multi_select()) {
        return Err(CallError::MissingCapability(asks.required_capabilities()));
    }
    match connection_state(server, job)? {
        Some(live) => request_over_connection(server, job, &live, asks).await,
        None => Err(CallError::MissingCapability(asks.required_capabilities())),
    }
}

fn connection_state(
    server: &Server,
    job: &CallJob,
) -> Result<Option<std::sync::Arc<ConnectionState>>, CallError> {
    match &job.reply_channel {
        ReplyChannel::Stateless => Ok(None),
        ReplyChannel::Pipe(live) => Ok(Some(live.clone())),
        ReplyChannel::Session(ticket) => server.ensure_session_state(ticket, &job.identity).map(Some),
    }
}

/// All questions go out together; the call waits until each is answered.
async fn request_over_connection(
    server: &Server,
    job: &mut CallJob,
    live: &ConnectionState,
    asks: &InputRequests,
) -> Result<InputOutcome, CallError> {
    let mut waiting = VecDeque::with_capacity(asks.len());
    for (key, ask) in asks.iter() {
        let (id, answer) = live.new_request();
        job.events.request_input(id, ask.clone(), None);
        waiting.push_back((key, id, answer));
    }
    let after_ms = server.limits.input_timeout_ms;
    let all = async {
        while let Some((key, _, answer)) = waiting.front_mut() {
            match answer.await {
                Ok(Ok(answer)) => job.journal.record(key, answer),
                Ok(Err(message)) => return Ok(InputOutcome::Refused(message)),
                Err(_) => return Err(CallError::Cancelled),
            }
            waiting.pop_front();
        }
        Ok(InputOutcome::Answered)
    };
    let asked = match tokio::time::timeout(Duration::from_millis(after_ms), all).await {
        Ok(asked) => asked,
        Err(_) => Err(CallError::Timeout { after_ms }),
    };
    // 2025-11-25, Timeouts: the sender SHOULD issue a cancellation notification.
    let answered = usize::from(matches!(asked, Ok(InputOutcome::Refused(_))));
    for (_, id, _) in waiting.iter().skip(answered) {
        job.events.cancel_input_request(*id);
    }
    asked
}

/// What a seal is bound to: it opens for the same caller and the same call only, as long as what is called
/// promises the same.
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
    let tool = registry.tool(&name).filter(|_| call.target == CallTarget::Tool);
    let tool = tool.map(|tool| tool.fingerprint.to_be_bytes());
    let contract = tool.as_ref().map_or(registry.config.version.as_bytes(), |tool| tool);
    digest_parts(&[principal.as_str().as_bytes(), contract, target, name.as_bytes(), &arguments])
}

fn seal_journal(server: &Server, registry: &Registry, job: &CallJob) -> Result<String, CallError> {
    let expires_ms = server.platform.now_ms().saturating_add(server.limits.input_timeout_ms);
    let mut plain = Vec::with_capacity(64);
    plain.extend_from_slice(&expires_ms.to_be_bytes());
    plain.extend_from_slice(&job.journal.round.to_be_bytes());
    plain.extend_from_slice(&job.journal.call_id.unwrap_or_default());
    for (key, answer) in job.journal.entries() {
        for piece in [key, answer.as_str()] {
            plain.extend_from_slice(&(piece.len() as u32).to_be_bytes());
            plain.extend_from_slice(piece.as_bytes());
        }
    }
    if plain.len() > REQUEST_STATE_BYTES_MAX {
        let why = format!("the answers so far exceed {REQUEST_STATE_BYTES_MAX} bytes");
        return Err(CallError::InvalidParams { path: "params.inputResponses".into(), reason: why });
    }
    let bound = seal_binding(registry, &job.caller.principal, &job.call);
    Ok(server.sealer.seal(Purpose::RequestState, &bound, plain, &*server.platform))
}

/// The journal that a client brings back. A bad seal is an error; a missing answer is asked for again.
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
            let bound = seal_binding(registry, principal, call);
            let plain = server.sealer.open(Purpose::RequestState, &bound, &state);
            let plain = plain
                .map_err(|_| CallError::InvalidRequestState("not one that was given for this request"))?;
            decode_journal(&plain, server.platform.now_ms())?
        }
    };
    for (key, answer) in resume.input_responses {
        journal.record(&key, answer);
    }
    Ok(journal)
}

fn decode_journal(plain: &[u8], now_ms: u64) -> Result<Journal, CallError> {
    // It opened, so we wrote it; still nothing here may panic.
    let broken = || CallError::InvalidRequestState("not readable");
    let (expires, rest) = plain.split_first_chunk().ok_or_else(broken)?;
    if now_ms >= u64::from_be_bytes(*expires) {
        return Err(CallError::InvalidRequestState("expired; call again without it"));
    }
    let (round, rest) = rest.split_first_chunk().ok_or_else(broken)?;
    let (call, mut rest) = rest.split_first_chunk().ok_or_else(broken)?;
    let mut journal = Journal::for_round(u32::from_be_bytes(*round), *call);
    let mut piece = || -> Option<&str> {
        let (len, after) = rest.split_first_chunk()?;
        let (text, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        rest = after;
        std::str::from_utf8(text).ok()
    };
    while let Some(key) = piece() {
        let answer = piece().and_then(|json| Json::parse(json).ok()).ok_or_else(broken)?;
        journal.record(key, answer);
    }
    Ok(journal)
}

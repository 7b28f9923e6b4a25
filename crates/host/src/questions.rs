//! Questions to the user: one journal, and where it lives while nobody is working.
//!
//! To a client of the newest era the journal travels sealed, as `requestState`, and the call comes back as a
//! new request. To an older client the questions go out as requests, and the call waits here. Either way the
//! handler is entered again with what was answered; it cannot tell the difference.

use std::collections::VecDeque;
use std::time::Duration;

use call::{Asks, Call, Fault, Journal, Principal, Target};
use json::Json;
use wire::{Feature, Resume};

use crate::live::{Line, Live};
use crate::path::Job;
use crate::registry::Registry;
use crate::seal::{Purpose, digest_of};
use crate::server::Server;

/// What became of a batch of questions.
pub(crate) enum Asked {
    /// The journal has the answers: go on.
    Answered,
    /// The client must come back with this.
    Sealed(String),
    /// The client would not or could not answer; what it said.
    Refused(String),
}

/// Answers are small; a journal beyond this would not travel well.
const STATE_BYTES_MAX: usize = 256 << 10;

/// Puts the questions to whoever called.
pub(crate) async fn ask(
    server: &Server,
    registry: &Registry,
    job: &mut Job,
    asks: &Asks,
) -> Result<Asked, Fault> {
    let lacking = job.caller.caps.lacks(asks.needs());
    if !lacking.is_empty() {
        return Err(Fault::MissingCapability(lacking));
    }
    if asks.is_empty() {
        return Err(Fault::Bug { log: "a handler needs input but asks nothing".into() });
    }
    job.journal.forget(asks);
    job.journal.round += 1;
    job.journal.call.get_or_insert_with(|| {
        let mut random = [0; 16];
        server.world.fill(&mut random);
        random
    });
    if job.journal.round > server.limits.rounds_max {
        return Err(Fault::BadParams { at: "params".into(), why: "too many rounds of questions".into() });
    }
    if job.peer.version.has(Feature::InputRequired) {
        return seal(server, registry, job).map(Asked::Sealed);
    }
    // 2025-06-18 knows texts, numbers, yes or no, and one choice of many; a form that needs more cannot be shown.
    if !job.peer.version.has(Feature::ElicitationMode) && asks.iter().any(|(_, ask)| ask.has_lists()) {
        return Err(Fault::MissingCapability(asks.needs()));
    }
    match live(server, job)? {
        Some(live) => ask_live(server, job, &live, asks).await,
        None => Err(Fault::MissingCapability(asks.needs())),
    }
}

fn live(server: &Server, job: &Job) -> Result<Option<std::sync::Arc<Live>>, Fault> {
    match &job.line {
        Line::Alone => Ok(None),
        Line::Pipe(live) => Ok(Some(live.clone())),
        Line::Session(ticket) => server.live(ticket, &job.who).map(Some),
    }
}

/// All questions go out together; the call waits until each is answered.
async fn ask_live(server: &Server, job: &mut Job, live: &Live, asks: &Asks) -> Result<Asked, Fault> {
    let mut waiting = VecDeque::with_capacity(asks.len());
    for (key, ask) in asks.iter() {
        let (id, answer) = live.ask();
        job.emit.ask(id, ask.clone(), None);
        waiting.push_back((key, id, answer));
    }
    let after_ms = server.limits.ask_timeout_ms;
    let all = async {
        while let Some((key, _, answer)) = waiting.front_mut() {
            match answer.await {
                Ok(Ok(answer)) => job.journal.record(key, answer),
                Ok(Err(message)) => return Ok(Asked::Refused(message)),
                Err(_) => return Err(Fault::Cancelled),
            }
            waiting.pop_front();
        }
        Ok(Asked::Answered)
    };
    let asked = match tokio::time::timeout(Duration::from_millis(after_ms), all).await {
        Ok(asked) => asked,
        Err(_) => Err(Fault::Timeout { after_ms }),
    };
    // 2025-11-25, Timeouts: the sender SHOULD issue a cancellation notification.
    let answered = usize::from(matches!(asked, Ok(Asked::Refused(_))));
    for (_, id, _) in waiting.iter().skip(answered) {
        job.emit.withdraw(*id);
    }
    asked
}

/// What a seal is bound to: it opens for the same caller and the same call only, as long as what is called
/// promises the same.
fn bound(registry: &Registry, principal: &Principal, call: &Call) -> [u8; 32] {
    let target: &[u8] = match call.target {
        Target::Tool => b"tool",
        Target::Prompt => b"prompt",
        Target::Resource => b"resource",
        Target::Completion { .. } => b"completion",
    };
    let mut arguments = Vec::new();
    if let Some(node) = call.arguments() {
        node.compact_into(&mut arguments);
    }
    let name = call.name();
    let tool = registry.tool(&name).filter(|_| call.target == Target::Tool);
    let tool = tool.map(|tool| tool.fingerprint.to_be_bytes());
    let contract = tool.as_ref().map_or(registry.terms.version.as_bytes(), |tool| tool);
    digest_of(&[principal.as_str().as_bytes(), contract, target, name.as_bytes(), &arguments])
}

fn seal(server: &Server, registry: &Registry, job: &Job) -> Result<String, Fault> {
    let expires_ms = server.world.now_ms().saturating_add(server.limits.ask_timeout_ms);
    let mut plain = Vec::with_capacity(64);
    plain.extend_from_slice(&expires_ms.to_be_bytes());
    plain.extend_from_slice(&job.journal.round.to_be_bytes());
    plain.extend_from_slice(&job.journal.call.unwrap_or_default());
    for (key, answer) in job.journal.entries() {
        for piece in [key, answer.as_str()] {
            plain.extend_from_slice(&(piece.len() as u32).to_be_bytes());
            plain.extend_from_slice(piece.as_bytes());
        }
    }
    if plain.len() > STATE_BYTES_MAX {
        let why = format!("the answers so far exceed {STATE_BYTES_MAX} bytes");
        return Err(Fault::BadParams { at: "params.inputResponses".into(), why });
    }
    let bound = bound(registry, &job.caller.principal, &job.call);
    Ok(server.sealer.seal(Purpose::RequestState, &bound, plain, &*server.world))
}

/// The journal that a client brings back. A bad seal is an error; a missing answer is asked for again.
pub(crate) fn resume(
    server: &Server,
    registry: &Registry,
    principal: &Principal,
    call: &Call,
    resume: Resume,
) -> Result<Journal, Fault> {
    let mut journal = match resume.state {
        None => Journal::default(),
        Some(state) => {
            let bound = bound(registry, principal, call);
            let plain = server.sealer.open(Purpose::RequestState, &bound, &state);
            let plain = plain.map_err(|_| Fault::BadState("not one that was given for this request"))?;
            read_journal(&plain, server.world.now_ms())?
        }
    };
    for (key, answer) in resume.answers {
        journal.record(&key, answer);
    }
    Ok(journal)
}

fn read_journal(plain: &[u8], now_ms: u64) -> Result<Journal, Fault> {
    // It opened, so we wrote it; still nothing here may panic.
    let broken = || Fault::BadState("not readable");
    let (expires, rest) = plain.split_first_chunk().ok_or_else(broken)?;
    if now_ms >= u64::from_be_bytes(*expires) {
        return Err(Fault::BadState("expired; call again without it"));
    }
    let (round, rest) = rest.split_first_chunk().ok_or_else(broken)?;
    let (call, mut rest) = rest.split_first_chunk().ok_or_else(broken)?;
    let mut journal = Journal::at(u32::from_be_bytes(*round), *call);
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

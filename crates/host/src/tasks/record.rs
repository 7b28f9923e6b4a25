//! A task as bytes for the store.

use json::Json;
use spile_core::{
    Call, CallError, CallResult, Caller, ClientCapabilities, Identity, InputRequest, InputRequests, Journal,
    Principal,
};
use state::store::Sequence;
use wire::encode::{self, TaskStatus};
use wire::error::RpcError;
use wire::{Peer, Version};

use super::{TaskInputRequest, TaskState};
use crate::byte_fields::{FieldReader, FieldWriter};
use crate::connection_state::ReplyChannel;
use crate::pipeline::{CallJob, CallStage};
use crate::registry::Registry;
use crate::server::CallerIdentity;

/// The form of the bytes. A record of another form is not read.
const FORMAT: u8 = 1;

/// A task as the store has it.
pub(super) struct TaskRecord {
    /// Its place in the stream of the task: every record has another one.
    pub(super) sequence: Sequence,
    pub(super) created_ms: u64,
    pub(super) ttl_ms: u64,
    /// `None` once it has ended.
    pub(super) call: Option<TaskCall>,
    pub(super) state: TaskState,
}

/// What a task runs, and for whom.
pub(super) struct TaskCall {
    tool: String,
    /// A JSON text.
    arguments: String,
    /// A tool that means something else by now is not continued.
    pub(super) contract_digest: [u8; 32],
    peer: Peer,
    pub(super) principal: Principal,
}

impl TaskCall {
    pub(super) fn new(registry: &Registry, job: &CallJob) -> Self {
        Self {
            tool: job.call.name().into_owned(),
            arguments: job.call.arguments().map_or_else(|| "{}".to_owned(), |node| node.raw().to_owned()),
            contract_digest: registry.contract_digest(&job.call),
            peer: job.peer,
            principal: job.caller.principal.clone(),
        }
    }

    pub(super) fn call(&self) -> Call {
        // The text was part of a message that parsed.
        Call::tool(&self.tool, &Json::parse(&self.arguments).unwrap_or_else(|_| Json::object(|_| ())))
    }

    /// The call, to be run again. Its client is gone: whoever asks for the task sees what happens.
    pub(super) fn to_job(&self, journal: Journal) -> CallJob {
        CallJob {
            call: self.call(),
            replaced_call: None,
            peer: self.peer,
            caller: Caller { principal: self.principal.clone(), capabilities: self.peer.capabilities },
            identity: CallerIdentity { principal: self.principal.clone(), address: None, request_head: None },
            reply_channel: ReplyChannel::NoSession,
            events: spile_core::EventSink::disabled(),
            journal,
            checks: None,
            task_metadata: None,
            stage: CallStage::Request,
            observation: None,
        }
    }

    fn write(&self, fields: &mut FieldWriter) {
        fields.text(&self.tool);
        fields.text(&self.arguments);
        fields.fixed(&self.contract_digest);
        fields.text(self.peer.version.as_str());
        fields.u32(u32::from(self.peer.capabilities.bits()));
        let identity = match &self.principal {
            Principal::Anonymous => None,
            Principal::Named(identity) => Some(identity),
        };
        fields.option(identity, |fields, identity| {
            fields.text(identity.issuer());
            fields.text(identity.subject());
            let scopes: Vec<&str> = identity.scopes().collect();
            fields.list(scopes.into_iter(), FieldWriter::text);
            fields.option(identity.claims(), |fields, claims| fields.text(claims.as_str()));
            fields.option(identity.expires_ms(), FieldWriter::u64);
        });
    }

    fn read(fields: &mut FieldReader<'_>) -> Option<Self> {
        let (tool, arguments) = (fields.text()?.to_owned(), fields.text()?.to_owned());
        let contract_digest = fields.fixed()?;
        let version = Version::parse(fields.text()?)?;
        let capabilities = ClientCapabilities::from_bits(u16::try_from(fields.u32()?).ok()?);
        let principal = fields.option(|fields| {
            let identity = Identity::new(fields.text()?, fields.text()?).ok()?;
            let scopes = fields.list(|fields| fields.text().map(str::to_owned))?;
            let identity = identity.with_scopes(scopes.iter().map(String::as_str)).ok()?;
            let claims = fields.option(FieldReader::json)?;
            let identity = match claims {
                Some(claims) => identity.with_claims(claims).ok()?,
                None => identity,
            };
            let expires_ms = fields.option(FieldReader::u64)?;
            Some(Principal::Named(identity.with_expiry(expires_ms).into()))
        })?;
        let peer = Peer { version, capabilities, log_level: None };
        Some(Self {
            tool,
            arguments,
            contract_digest,
            peer,
            principal: principal.unwrap_or(Principal::Anonymous),
        })
    }
}

/// The bytes of a task. `status` may be one that the task has not got yet.
pub(super) fn encode(
    created_ms: u64,
    ttl_ms: u64,
    call: Option<&TaskCall>,
    state: &TaskState,
    status: &TaskStatus,
) -> Vec<u8> {
    let mut fields = FieldWriter::default();
    fields.u8(FORMAT);
    fields.u64(created_ms);
    fields.u64(ttl_ms);
    fields.u64(state.updated_ms);
    match status {
        TaskStatus::Working | TaskStatus::InputRequired(_) => {
            fields.u8(0);
            fields.option(call, |fields, call| call.write(fields));
            write_progress(&mut fields, state);
        }
        TaskStatus::Completed(result) => {
            fields.u8(1);
            fields.text(encode::stored_result(result).as_str());
        }
        TaskStatus::Failed(error) => {
            fields.u8(2);
            let error = RpcError::from_call_error(error, Version::NEWEST);
            fields.u64(error.code as u64);
            fields.text(&error.message);
            fields.option(error.data.as_ref(), |fields, data| fields.text(data.as_str()));
        }
        TaskStatus::Cancelled => fields.u8(3),
    }
    fields.into_bytes()
}

fn write_progress(fields: &mut FieldWriter, state: &TaskState) {
    fields.u8(u8::from(state.is_unresumable));
    let journal = &state.journal;
    fields.u32(journal.round);
    // Chosen when the task started.
    fields.fixed(&journal.known_call_id().unwrap_or_default());
    fields.option(journal.memo(), FieldWriter::bytes);
    let entries: Vec<_> = journal.entries().collect();
    fields.list(entries.into_iter(), |fields, (key, answer)| {
        fields.text(key);
        fields.text(answer.as_str());
    });
    fields.list(state.input_requests.iter(), |fields, request| {
        fields.text(&request.wire_key);
        fields.text(&request.journal_key);
        write_request(fields, &request.request);
        fields.option(request.response.as_ref(), |fields, response| fields.text(response.as_str()));
    });
    fields.u32(state.rejections);
    fields.list(state.used_keys.iter(), |fields, key| fields.text(key));
}

/// `None` if it is damaged, or of another form.
pub(super) fn decode(bytes: &[u8]) -> Option<TaskRecord> {
    let mut fields = FieldReader(bytes);
    if fields.u8()? != FORMAT {
        return None;
    }
    let (created_ms, ttl_ms, updated_ms) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let ended = |status| TaskState::new(status, Journal::default(), updated_ms);
    let (call, state) = match fields.u8()? {
        0 => {
            let call = fields.option(TaskCall::read)?;
            (call, read_progress(&mut fields, updated_ms)?)
        }
        1 => (None, ended(TaskStatus::Completed(CallResult::Relayed(fields.json()?)))),
        2 => {
            let (code, message) = (fields.u64()? as i64, fields.text()?.to_owned());
            let data = fields.option(FieldReader::json)?;
            (None, ended(TaskStatus::Failed(CallError::Provider { code, message, data })))
        }
        _ => (None, ended(TaskStatus::Cancelled)),
    };
    Some(TaskRecord { sequence: Sequence::START, created_ms, ttl_ms, call, state })
}

fn read_progress(fields: &mut FieldReader<'_>, updated_ms: u64) -> Option<TaskState> {
    let is_unresumable = fields.u8()? != 0;
    let round = fields.u32()?;
    let call_id = fields.fixed()?;
    let memo = fields.option(FieldReader::bytes)?;
    let mut journal = Journal::for_round(round, call_id, memo.map(Into::into));
    for (key, answer) in fields.list(|fields| Some((fields.text()?.to_owned(), fields.json()?)))? {
        journal.record(&key, answer);
    }
    let input_requests = fields.list(|fields| {
        Some(TaskInputRequest {
            wire_key: fields.text()?.to_owned(),
            journal_key: fields.text()?.to_owned(),
            request: read_request(fields)?,
            response: fields.option(FieldReader::json)?,
        })
    })?;
    let rejections = fields.u32()?;
    let used_keys = fields.list(|fields| fields.text().map(str::to_owned))?;
    let open = input_requests.iter().filter(|request| request.response.is_none());
    let open = open.fold(InputRequests::default(), |all, request| {
        all.with(request.wire_key.clone(), request.request.clone())
    });
    let status = if open.is_empty() { TaskStatus::Working } else { TaskStatus::InputRequired(open) };
    let state = TaskState::new(status, journal, updated_ms);
    Some(TaskState { is_unresumable, input_requests, rejections, used_keys, ..state })
}

fn write_request(fields: &mut FieldWriter, request: &InputRequest) {
    let mut write = |kind: u8, message: &str, detail: &str| {
        fields.u8(kind);
        fields.text(message);
        fields.text(detail);
    };
    match request {
        InputRequest::Form { message, schema } => write(0, message, schema.as_str()),
        InputRequest::Url { message, url } => write(1, message, url),
        InputRequest::Sampling { params } => write(2, "", params.as_str()),
        InputRequest::Roots => write(3, "", ""),
    }
}

fn read_request(fields: &mut FieldReader<'_>) -> Option<InputRequest> {
    let (kind, message, detail) = (fields.u8()?, fields.text()?.to_owned(), fields.text()?);
    Some(match kind {
        0 => InputRequest::Form { message, schema: Json::parse(detail).ok()? },
        1 => InputRequest::Url { message, url: detail.to_owned() },
        2 => InputRequest::Sampling { params: Json::parse(detail).ok()? },
        _ => InputRequest::Roots,
    })
}

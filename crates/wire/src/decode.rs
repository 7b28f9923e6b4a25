//! One message in, one meaning out: the era test and everything that can be refused without knowing what
//! is served here.
//!
//! The era is chosen per message. A message whose `_meta` names a protocol version stands alone; a bare one
//! means what its handshake, session or header says. 2026-07-28, Versioning: a server MAY serve both eras
//! concurrently on the same endpoint or process.

use std::borrow::Cow;

use json::{Doc, Json, Node, NodeKind, ScanError, ScanLimits, scan};
use spile_core::{Call, CallTarget, ClientCapabilities, CompletionRef, LogLevel};

use crate::error::{ErrorCode, RpcError};
use crate::headers::{HeaderField, Headers, check_matches_body};
use crate::id::RequestId;
use crate::method::{Method, NameParam, normalize_method_name};
use crate::params::{ListKind, MessageFields, Meta, NotificationFilter, Params, TaskRequest};
use crate::peer::{Peer, read_capabilities};
use crate::version::{Feature, Version};

/// What a message without an envelope means.
pub enum Defaults<'a> {
    /// On a pipe: what was negotiated, if anything was.
    Pipe(Option<Peer>),
    /// Over HTTP: what its session or its headers say.
    Http(HttpDefaults<'a>),
    /// Inside a batch.
    Batched(Peer),
}

pub struct HttpDefaults<'a> {
    pub headers: Headers<'a>,
    /// Looks up the session that the request names. Asked only for bare messages.
    pub lookup_session: &'a dyn Fn() -> SessionLookup,
}

/// What is known of the session that a request names.
#[derive(Debug, Clone, Copy)]
pub enum SessionLookup {
    NotNamed,
    Found(Peer),
    NotFound,
}

pub enum Decoded {
    Request(Request),
    Notification(Notification),
    /// A client of the handshake era answers a question of ours. `None`: no id that we could have given.
    Response {
        id: Option<u64>,
        result: Result<Json, String>,
    },
    Batch(Batch),
    Rejected(ErrorResponse),
}

/// A request that is well formed and belongs to a known version.
pub struct Request {
    pub id: RequestId,
    pub peer: Peer,
    pub progress_token: Option<RequestId>,
    pub kind: RequestKind,
}

pub enum RequestKind {
    Initialize { requested_version: Version, capabilities: ClientCapabilities },
    Ping,
    Discover,
    List(ListKind, Option<String>),
    Call { call: Call, resume: Option<Box<Resume>>, task: Option<TaskMetadata> },
    Subscribe(String),
    Unsubscribe(String),
    SetLevel(LogLevel),
    Listen(NotificationFilter),
    Task(TaskRequest),
}

/// What a client of the newest era brings back to go on with a call.
#[derive(Debug, Default)]
pub struct Resume {
    pub request_state: Option<String>,
    pub input_responses: Vec<(String, Json)>,
}

/// A client of 2025-11-25 wants the call to be a task.
#[derive(Debug, Clone, Copy)]
pub struct TaskMetadata {
    pub ttl_ms: Option<u64>,
}

#[derive(Debug)]
pub enum Notification {
    Initialized,
    Cancelled(RequestId),
    /// Anything else, known or not: nothing is to be done.
    Other,
}

/// Several messages in one, in their order. Never empty.
pub struct Batch {
    pub version: Version,
    pub items: Vec<Decoded>,
}

/// A message that is answered without being carried out. On a pipe the status means nothing.
#[derive(Debug)]
pub struct ErrorResponse {
    pub http_status: u16,
    pub body: Vec<u8>,
    pub retry_after_ms: Option<u64>,
    /// Whether it answers a request, and not something of which not even that is known.
    pub has_request_id: bool,
}

impl ErrorResponse {
    pub fn new(told: &RpcError, id: Option<&RequestId>, version: Version) -> Self {
        let body = told.to_response(id, version);
        Self { http_status: told.http_status, body, retry_after_ms: None, has_request_id: id.is_some() }
    }
}

/// What a server takes.
pub struct DecodeOptions<'a> {
    pub scan_limits: ScanLimits,
    pub batch_items_max: usize,
    /// Whether there is anything here that a method is for. One for which there is nothing does not exist,
    /// whatever its parameters.
    pub supports_method: &'a dyn Fn(Method) -> bool,
}

/// Reads one message.
pub fn decode(bytes: Vec<u8>, terms: &DecodeOptions<'_>, bare: Defaults<'_>) -> Decoded {
    match scan(bytes, &terms.scan_limits) {
        Ok(doc) if doc.root().kind() == NodeKind::Array => decode_batch(&doc, terms, bare),
        Ok(doc) => decode_message(doc, terms, bare).unwrap_or_else(Decoded::Rejected),
        Err(bad) => Decoded::Rejected(parse_error(&bad, &bare)),
    }
}

fn parse_error(bad: &ScanError, bare: &Defaults<'_>) -> ErrorResponse {
    let version = match bare {
        Defaults::Pipe(peer) => peer.map(|p| p.version),
        Defaults::Http(http) => match http.headers.version {
            HeaderField::Single(date) => Version::parse_bytes(date),
            HeaderField::Absent | HeaderField::Repeated => None,
        },
        Defaults::Batched(peer) => Some(peer.version),
    };
    let told = RpcError::new(ErrorCode::ParseError, 400, format!("parse error: {bad}"));
    ErrorResponse::new(&told, None, version.unwrap_or(Version::UNSPECIFIED))
}

fn decode_batch(doc: &Doc, terms: &DecodeOptions<'_>, bare: Defaults<'_>) -> Decoded {
    let refuse = |version, why: &str| {
        Decoded::Rejected(ErrorResponse::new(
            &RpcError::new(ErrorCode::InvalidRequest, 400, why),
            None,
            version,
        ))
    };
    let peer = match bare.peer() {
        Ok(peer) => peer,
        Err(why) => return Decoded::Rejected(ErrorResponse::new(&why, None, bare.assumed_version())),
    };
    let items = doc.root();
    // 2025-03-26, Batching: MUST support receiving batches. Removed in 2025-06-18.
    if !peer.version.has(Feature::Batches) {
        return refuse(peer.version, "this protocol version has no batches; send one message at a time");
    }
    if items.is_empty() {
        return refuse(peer.version, "an empty batch");
    }
    if items.len() > terms.batch_items_max {
        return refuse(peer.version, &format!("more than {} messages in one batch", terms.batch_items_max));
    }
    let items = items.elements().map(|item| match scan(item.raw().as_bytes().to_vec(), &terms.scan_limits) {
        Ok(doc) => decode_message(doc, terms, Defaults::Batched(peer)).unwrap_or_else(Decoded::Rejected),
        Err(bad) => Decoded::Rejected(parse_error(&bad, &Defaults::Batched(peer))),
    });
    Decoded::Batch(Batch { version: peer.version, items: items.collect() })
}

impl Defaults<'_> {
    /// Who sent a message that does not say so itself.
    fn peer(&self) -> Result<Peer, RpcError> {
        match self {
            Self::Pipe(Some(peer)) | Self::Batched(peer) => Ok(*peer),
            Self::Pipe(None) => Err(RpcError::invalid_params(
                "not initialized: send `initialize` first, or name the protocol version in `params._meta`",
            )),
            Self::Http(http) => match (http.lookup_session)() {
                SessionLookup::Found(peer) => http.header_version().map(|_| peer),
                SessionLookup::NotFound => Err(RpcError::new(
                    ErrorCode::SessionNotFound,
                    404,
                    "no such session: it ended or expired; initialize again",
                )),
                SessionLookup::NotNamed => {
                    Ok(Peer::from_version(http.header_version()?.unwrap_or(Version::UNSPECIFIED)))
                }
            },
        }
    }
}

impl HttpDefaults<'_> {
    /// The version that the header names, if there is one.
    fn header_version(&self) -> Result<Option<Version>, RpcError> {
        match self.headers.version {
            HeaderField::Absent => Ok(None),
            HeaderField::Repeated => {
                Err(RpcError::new(ErrorCode::HeaderMismatch, 400, "MCP-Protocol-Version was sent twice"))
            }
            HeaderField::Single(date) => match Version::parse_bytes(date) {
                Some(version) => Ok(Some(version)),
                None => Err(unsupported_version(&String::from_utf8_lossy(date), Version::UNSPECIFIED)),
            },
        }
    }
}

/// `supported` names what would work in the same shape of request.
fn unsupported_version(requested: &str, asked_like: Version) -> RpcError {
    let told = RpcError::new(
        ErrorCode::UnsupportedVersion,
        400,
        format!("unsupported protocol version `{requested}`"),
    );
    let like = asked_like.has(Feature::Envelope);
    told.with_data(Json::object(|o| {
        let versions = Version::ALL.iter().rev().filter(|(v, _)| !like || v.has(Feature::Envelope));
        o.array("supported", versions, |out, (_, date)| json::write::string(out, date));
        o.str("requested", requested);
    }))
}

fn decode_message(doc: Doc, terms: &DecodeOptions<'_>, bare: Defaults<'_>) -> Result<Decoded, ErrorResponse> {
    let parts = MessageFields::read(Some(doc.root()));
    let id = parts.id.and_then(RequestId::read);
    let params = Params::read(parts.params);
    let meta = Meta::read(params.meta);
    let stands_alone =
        meta.version.is_some() || bare.header_requires_envelope() || bare.is_discover_request(&parts);
    // Until the version is settled, a refusal is shaped as the message looks.
    let looks_like = if stands_alone { Version::NEWEST } else { bare.assumed_version() };
    let refuse = |told: &RpcError| ErrorResponse::new(told, id.as_ref(), looks_like);
    let invalid = |why: &str| refuse(&RpcError::new(ErrorCode::InvalidRequest, 400, why));

    if !doc.root().is_object() {
        return Err(invalid("a message is an object"));
    }
    if !parts.jsonrpc.is_some_and(|version| version.eq_str("2.0")) {
        return Err(invalid("`jsonrpc`: expected \"2.0\""));
    }
    let Some(method) = parts.method else { return decode_response(&parts, id.as_ref(), stands_alone, bare) };
    let Some(method) = method.str() else { return Err(invalid("`method`: expected a string")) };
    if parts.params.is_some_and(|p| !p.is_object()) {
        return Err(refuse(&RpcError::invalid_params("`params`: expected an object")));
    }
    if parts.id.is_some() && id.is_none() {
        return Err(invalid("`id`: expected a string or an integer"));
    }

    let Some(id) = id else {
        let method = if stands_alone { method } else { normalize_method_name(method) };
        // A notification is acted on or ignored; only a dead session is worth telling.
        if let (false, Defaults::Http(_)) = (stands_alone, &bare) {
            bare.peer().map_err(|told| ErrorResponse::new(&told, None, looks_like))?;
        }
        return Ok(Decoded::Notification(decode_notification(&method, &params)));
    };
    let initialize = method == "initialize" && meta.version.is_none();
    let asked = method.clone();
    let (peer, method) = if stands_alone && !initialize {
        let peer = decode_envelope(&meta, &method, &bare);
        (peer.map_err(|told| ErrorResponse::new(&told, Some(&id), looks_like))?, method)
    } else {
        let method = normalize_method_name(method);
        // `initialize` settles what bare messages mean, and `ping` may come before it.
        let peer = match (&*method, &bare) {
            ("initialize", Defaults::Batched(_)) => {
                let told =
                    RpcError::new(ErrorCode::InvalidRequest, 400, "`initialize` must not be part of a batch");
                return Err(ErrorResponse::new(&told, Some(&id), looks_like));
            }
            ("initialize", _) | ("ping", Defaults::Pipe(None)) => {
                Peer::from_version(Version::NEWEST_WITH_HANDSHAKE)
            }
            _ => bare.peer().map_err(|told| ErrorResponse::new(&told, Some(&id), looks_like))?,
        };
        (peer, method)
    };

    let refuse = |told: &RpcError| ErrorResponse::new(told, Some(&id), peer.version);
    let method = match Method::find(&method, peer.version) {
        Some(method) if (terms.supports_method)(method) => method,
        Some(_) | None => return Err(refuse(&RpcError::method_not_found(&asked, peer.version))),
    };
    if params.meta.is_some_and(|meta| !meta.is_object()) {
        return Err(refuse(&invalid_param("_meta", "expected an object")));
    }
    if let (Defaults::Http(http), true) = (&bare, peer.version.has(Feature::MirrorHeaders)) {
        check_name_header(method, &params, &http.headers).map_err(|told| refuse(&told))?;
    }
    let progress = match meta.progress_token {
        None => None,
        Some(node) => match RequestId::read(node) {
            Some(token) => Some(token),
            None => {
                return Err(refuse(&invalid_param("_meta.progressToken", "expected a string or an integer")));
            }
        },
    };
    let what = match decode_params(method, &params, peer) {
        Ok(what) => what,
        Err(told) => return Err(refuse(&told)),
    };
    let what = what.into_kind(doc);
    Ok(Decoded::Request(Request { id, peer, progress_token: progress, kind: what }))
}

impl Defaults<'_> {
    /// Whether a header says that the message stands alone although its body does not.
    fn header_requires_envelope(&self) -> bool {
        match self {
            Self::Http(HttpDefaults {
                headers: Headers { version: HeaderField::Single(date), .. }, ..
            }) => Version::parse_bytes(date).is_some_and(|v| v.has(Feature::Envelope)),
            Self::Http(_) | Self::Pipe(_) | Self::Batched(_) => false,
        }
    }

    /// `server/discover` exists in the newest era only, so it needs no envelope to tell its era.
    fn is_discover_request(&self, parts: &MessageFields<'_>) -> bool {
        !matches!(self, Self::Batched(_)) && parts.method.is_some_and(|m| m.eq_str("server/discover"))
    }

    fn assumed_version(&self) -> Version {
        match self {
            Self::Pipe(Some(peer)) | Self::Batched(peer) => peer.version,
            Self::Pipe(None) => Version::UNSPECIFIED,
            Self::Http(http) => http.header_version().ok().flatten().unwrap_or(Version::UNSPECIFIED),
        }
    }
}

/// A message that carries its own version: everything about it must be in it.
fn decode_envelope(meta: &Meta<'_>, method: &str, bare: &Defaults<'_>) -> Result<Peer, RpcError> {
    let malformed = |told: RpcError| RpcError { http_status: 400, ..told };
    if matches!(bare, Defaults::Batched(_)) {
        return Err(RpcError::new(
            ErrorCode::InvalidRequest,
            400,
            "a message with its own version cannot be batched",
        ));
    }
    let Some(named) = meta.version else {
        let at = "_meta.io.modelcontextprotocol/protocolVersion";
        return Err(malformed(invalid_param(at, "missing")));
    };
    let Some(date) = named.str() else {
        let at = "_meta.io.modelcontextprotocol/protocolVersion";
        return Err(malformed(invalid_param(at, "expected a string")));
    };
    if let Defaults::Http(http) = bare {
        check_header("MCP-Protocol-Version", http.headers.version, &date)?;
    }
    let caps = match meta.capabilities {
        Some(caps) if caps.is_object() => caps,
        Some(_) => {
            let at = "_meta.io.modelcontextprotocol/clientCapabilities";
            return Err(malformed(invalid_param(at, "expected an object")));
        }
        None => {
            let at = "_meta.io.modelcontextprotocol/clientCapabilities";
            return Err(malformed(invalid_param(at, "missing")));
        }
    };
    let version = match Version::parse(&date) {
        Some(version) if version.has(Feature::Envelope) => version,
        _ => return Err(unsupported_version(&date, Version::NEWEST)),
    };
    if let Defaults::Http(http) = bare {
        check_header("Mcp-Method", http.headers.method, method)?;
    }
    let level = match meta.log_level {
        None => None,
        Some(node) => match node.str().as_deref().and_then(LogLevel::parse) {
            Some(level) => Some(level),
            None => {
                return Err(malformed(invalid_param(
                    "_meta.io.modelcontextprotocol/logLevel",
                    "unknown log level",
                )));
            }
        },
    };
    Ok(Peer { version, capabilities: read_capabilities(caps, version), log_level: level })
}

fn check_header(name: &str, head: HeaderField<'_>, body: &str) -> Result<(), RpcError> {
    check_matches_body(head, body)
        .map_err(|why| RpcError::new(ErrorCode::HeaderMismatch, 400, format!("header {name} {why}")))
}

/// 2026-07-28, Standard Request Headers: `Mcp-Name` is required where a request names something.
fn check_name_header(method: Method, params: &Params<'_>, heads: &Headers<'_>) -> Result<(), RpcError> {
    let named = match method.name_param() {
        Some(NameParam::Name) => params.name,
        Some(NameParam::Uri) => params.uri,
        Some(NameParam::TaskId) => params.task_id,
        None => return Ok(()),
    };
    match named.and_then(|node| node.str()) {
        Some(body) => check_header("Mcp-Name", heads.name, &body),
        // The missing parameter is the better thing to complain about.
        None => Ok(()),
    }
}

fn decode_response(
    parts: &MessageFields<'_>,
    id: Option<&RequestId>,
    stands_alone: bool,
    bare: Defaults<'_>,
) -> Result<Decoded, ErrorResponse> {
    let version = bare.assumed_version();
    let invalid =
        |why: &str| ErrorResponse::new(&RpcError::new(ErrorCode::InvalidRequest, 400, why), None, version);
    let answer = match (parts.result, parts.error) {
        (Some(result), None) => Ok(Json::from(result)),
        (None, Some(error)) => {
            Err(error.get("message").and_then(|m| m.str()).unwrap_or_default().into_owned())
        }
        (None, None) => {
            let told = RpcError::new(ErrorCode::InvalidRequest, 400, "neither a request nor a response");
            return Err(ErrorResponse::new(&told, id, version));
        }
        (Some(_), Some(_)) => return Err(invalid("a response has a result or an error, not both")),
    };
    if parts.id.is_none() {
        return Err(invalid("a response needs an `id`"));
    }
    // 2026-07-28, Sending Messages: the client MUST NOT send JSON-RPC responses.
    if stands_alone {
        return Err(invalid("a response answers nothing here; questions are answered by calling again"));
    }
    // On a pipe without a handshake nothing was asked; an answer is never answered.
    if !matches!(bare, Defaults::Pipe(_)) {
        bare.peer().map_err(|told| ErrorResponse::new(&told, None, version))?;
    }
    Ok(Decoded::Response { id: parts.id.and_then(|id| id.u64()), result: answer })
}

fn decode_notification(method: &str, params: &Params<'_>) -> Notification {
    match method {
        "notifications/initialized" => Notification::Initialized,
        "notifications/cancelled" => match params.request_id.and_then(RequestId::read) {
            Some(id) => Notification::Cancelled(id),
            None => Notification::Other,
        },
        _ => Notification::Other,
    }
}

fn invalid_param(at: &str, why: &str) -> RpcError {
    RpcError::invalid_params(format!("`params.{at}`: {why}"))
}

/// A [`What`] whose call has not taken the document yet.
enum DecodedParams {
    Complete(RequestKind),
    Call {
        target: CallTarget,
        name: u32,
        arguments: Option<u32>,
        resume: Option<Box<Resume>>,
        task: Option<TaskMetadata>,
    },
}

impl DecodedParams {
    fn into_kind(self, doc: Doc) -> RequestKind {
        match self {
            Self::Complete(what) => what,
            Self::Call { target, name, arguments, resume, task } => {
                RequestKind::Call { call: Call::new(target, doc, name, arguments), resume, task }
            }
        }
    }
}

fn decode_params(method: Method, params: &Params<'_>, peer: Peer) -> Result<DecodedParams, RpcError> {
    Ok(DecodedParams::Complete(match method {
        Method::ToolsCall => return decode_call(CallTarget::Tool, "name", params.name, params, peer),
        Method::PromptsGet => return decode_call(CallTarget::Prompt, "name", params.name, params, peer),
        Method::ResourcesRead => return decode_call(CallTarget::Resource, "uri", params.uri, params, peer),
        Method::Complete => return decode_completion(params, peer),
        Method::Initialize => {
            let requested = params.required_str(params.protocol_version, "protocolVersion")?;
            // "If the server supports the requested protocol version, it MUST respond with the same version.
            // Otherwise … another protocol version it supports": the newest that has a handshake.
            let requested = Version::parse(&requested).filter(|v| v.has(Feature::Handshake));
            let requested = requested.unwrap_or(Version::NEWEST_WITH_HANDSHAKE);
            let caps = params
                .capabilities
                .map_or(ClientCapabilities::NONE, |caps| read_capabilities(caps, requested));
            RequestKind::Initialize { requested_version: requested, capabilities: caps }
        }
        Method::Ping => RequestKind::Ping,
        Method::Discover => RequestKind::Discover,
        Method::ToolsList => RequestKind::List(ListKind::Tools, params.optional_cursor()?),
        Method::ResourcesList => RequestKind::List(ListKind::Resources, params.optional_cursor()?),
        Method::ResourceTemplatesList => RequestKind::List(ListKind::Templates, params.optional_cursor()?),
        Method::PromptsList => RequestKind::List(ListKind::Prompts, params.optional_cursor()?),
        Method::Subscribe => RequestKind::Subscribe(params.required_str(params.uri, "uri")?.into_owned()),
        Method::Unsubscribe => RequestKind::Unsubscribe(params.required_str(params.uri, "uri")?.into_owned()),
        Method::SetLevel => match LogLevel::parse(&params.required_str(params.level, "level")?) {
            Some(level) => RequestKind::SetLevel(level),
            None => return Err(invalid_param("level", "unknown log level")),
        },
        Method::Listen => RequestKind::Listen(NotificationFilter::read(params.notifications)?),
        Method::TaskGet => RequestKind::Task(TaskRequest::Get(params.required_task_id()?)),
        Method::TaskCancel => RequestKind::Task(TaskRequest::Cancel(params.required_task_id()?)),
        Method::TaskResult => RequestKind::Task(TaskRequest::Result(params.required_task_id()?)),
        Method::TaskList => RequestKind::Task(TaskRequest::List(params.optional_cursor()?)),
        Method::TaskUpdate => {
            let Some(answers) = params.input_responses else {
                return Err(invalid_param("inputResponses", "missing"));
            };
            RequestKind::Task(TaskRequest::Update(params.required_task_id()?, read_input_responses(answers)?))
        }
    }))
}

fn decode_call(
    target: CallTarget,
    at: &str,
    name: Option<Node<'_>>,
    params: &Params<'_>,
    peer: Peer,
) -> Result<DecodedParams, RpcError> {
    let name = match name {
        Some(name) if name.kind() == NodeKind::String => name.index(),
        Some(_) => return Err(invalid_param(at, "expected a string")),
        None => return Err(invalid_param(at, "missing")),
    };
    let arguments = match params.arguments {
        None => None,
        // `null` for "no arguments" is what several clients send.
        Some(node) if node.kind() == NodeKind::Null => None,
        Some(node) if node.is_object() => Some(node.index()),
        Some(_) => return Err(invalid_param("arguments", "expected an object")),
    };
    if target == CallTarget::Prompt
        && let Some(node) = params.arguments
        && let Some((key, _)) = node.members().find(|(_, value)| value.kind() != NodeKind::String)
    {
        let key = key.str().unwrap_or_default();
        return Err(invalid_param(&format!("arguments.{key}"), "expected a string"));
    }
    let resume = if peer.version.has(Feature::InputRequired) { decode_resume(params)? } else { None };
    let task = match params.task {
        Some(task) if peer.version.has(Feature::TaskParameter) && target == CallTarget::Tool => {
            if !task.is_object() {
                return Err(invalid_param("task", "expected an object"));
            }
            Some(TaskMetadata { ttl_ms: task.get("ttl").map(read_ttl).transpose()? })
        }
        _ => None,
    };
    Ok(DecodedParams::Call { target, name, arguments, resume, task })
}

/// Any number of milliseconds that can pass; how many there may be is the host's business.
fn read_ttl(ttl: Node<'_>) -> Result<u64, RpcError> {
    match ttl.raw().parse::<f64>() {
        Ok(ms) if ttl.kind() == NodeKind::Number && ms >= 0.0 => Ok(ms as u64),
        _ => Err(invalid_param("task.ttl", "expected a number of milliseconds")),
    }
}

fn decode_resume(params: &Params<'_>) -> Result<Option<Box<Resume>>, RpcError> {
    if params.input_responses.is_none() && params.request_state.is_none() {
        return Ok(None);
    }
    let state = match params.request_state {
        None => None,
        Some(node) => match node.str() {
            Some(state) => Some(state.into_owned()),
            None => return Err(invalid_param("requestState", "expected a string")),
        },
    };
    let answers = params.input_responses.map_or(Ok(Vec::new()), read_input_responses)?;
    Ok(Some(Box::new(Resume { request_state: state, input_responses: answers })))
}

/// Answers to questions, by key. One that is no object answers nothing, so it is left out and asked again.
fn read_input_responses(node: Node<'_>) -> Result<Vec<(String, Json)>, RpcError> {
    if !node.is_object() {
        return Err(invalid_param("inputResponses", "expected an object"));
    }
    let answers = node.members().filter(|(_, value)| value.is_object());
    Ok(answers.map(|(key, value)| (key.str().unwrap_or_default().into_owned(), Json::from(value))).collect())
}

fn decode_completion(params: &Params<'_>, peer: Peer) -> Result<DecodedParams, RpcError> {
    let reference = params.required_object(params.reference, "ref")?;
    let kind = params.required_str(reference.get("type"), "ref.type")?;
    let (of, name, at) = match &*kind {
        "ref/prompt" => (CompletionRef::Prompt, reference.get("name"), "ref.name"),
        "ref/resource" => (CompletionRef::ResourceTemplate, reference.get("uri"), "ref.uri"),
        other => return Err(invalid_param("ref.type", &format!("unknown reference `{other}`"))),
    };
    params.required_str(name, at)?;
    let argument = params.required_object(params.argument, "argument")?;
    let (key, value) = (argument.get("name"), argument.get("value"));
    params.required_str(key, "argument.name")?;
    params.required_str(value, "argument.value")?;
    let context = params.context.filter(|_| peer.version.has(Feature::CompletionContext));
    let context = context.and_then(|c| c.get("arguments")).filter(Node::is_object);
    let (Some(name), Some(key), Some(value)) = (name, key, value) else {
        return Err(invalid_param("ref", "incomplete"));
    };
    let target = CallTarget::Completion {
        reference: of,
        argument_index: key.index(),
        value_index: value.index(),
        context_index: context.map(|c| c.index()),
    };
    Ok(DecodedParams::Call { target, name: name.index(), arguments: None, resume: None, task: None })
}

impl<'d> Params<'d> {
    fn required_str(&self, node: Option<Node<'d>>, at: &str) -> Result<Cow<'d, str>, RpcError> {
        match node {
            None => Err(invalid_param(at, "missing")),
            Some(node) => node.str().ok_or_else(|| invalid_param(at, "expected a string")),
        }
    }

    fn required_object(&self, node: Option<Node<'d>>, at: &str) -> Result<Node<'d>, RpcError> {
        match node {
            None => Err(invalid_param(at, "missing")),
            Some(node) if node.is_object() => Ok(node),
            Some(_) => Err(invalid_param(at, "expected an object")),
        }
    }

    fn required_task_id(&self) -> Result<String, RpcError> {
        Ok(self.required_str(self.task_id, "taskId")?.into_owned())
    }

    fn optional_cursor(&self) -> Result<Option<String>, RpcError> {
        match self.cursor {
            None => Ok(None),
            // Some clients send `null` for "from the start".
            Some(node) if node.kind() == NodeKind::Null => Ok(None),
            Some(node) => match node.str() {
                Some(cursor) => Ok(Some(cursor.into_owned())),
                None => Err(invalid_param("cursor", "expected a string")),
            },
        }
    }
}

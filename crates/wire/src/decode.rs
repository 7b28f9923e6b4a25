//! Decodes one message: determines its era and version, and rejects what is invalid for every server.
//!
//! The era is chosen per message. A message whose `_meta` names a protocol version is self-contained. For any
//! other message the handshake, session or header determines the version. 2026-07-28, Versioning: a server MAY
//! serve both eras concurrently on the same endpoint or process.

use std::borrow::Cow;

use json::{Doc, Json, JsonError, Node, NodeKind, ParseLimits, parse};
use spile_core::{Call, CallTarget, ClientCapabilities, CompletionRef, LogLevel};

use crate::error::{ErrorCode, RpcError};
use crate::headers::{HeaderField, Headers, check_matches_body};
use crate::id::RequestId;
use crate::method::{Method, NameParam, normalize_method_name};
use crate::params::{ListKind, MessageFields, Meta, NotificationFilter, Params, TaskRequest};
use crate::peer::{Peer, negotiate_version, read_capabilities};
use crate::version::{Feature, Version};

/// The context of a message that has no envelope.
pub enum MessageContext<'a> {
    /// On a pipe: the negotiated peer; `None` before the handshake.
    Pipe(Option<Peer>),
    /// Over HTTP: the session and the headers.
    Http(HttpDefaults<'a>),
    /// Inside a batch: the peer of the batch.
    Batched(Peer),
}

pub struct HttpDefaults<'a> {
    pub headers: Headers<'a>,
    /// Looks up the session that the request names. Called only for messages without an envelope.
    pub lookup_session: &'a dyn Fn() -> SessionLookup,
}

/// The result of looking up the session that a request names.
#[derive(Debug, Clone, Copy)]
pub enum SessionLookup {
    NotNamed,
    Found(Peer),
    NotFound(SessionError),
}

/// Why a session id is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionError {
    /// Not an id that this server issues.
    Malformed,
    /// Changed, or issued to another caller.
    OtherCaller,
    /// Issued with a key that the server does not have, or no longer accepts.
    KeyChanged,
    Expired,
    /// The client or the server ended it.
    Ended,
}

impl SessionError {
    pub const ALL: [Self; 5] =
        [Self::Malformed, Self::OtherCaller, Self::KeyChanged, Self::Expired, Self::Ended];

    pub fn message(self) -> &'static str {
        match self {
            Self::Malformed => {
                "session not found: this server did not issue the id; send `initialize` for a new session"
            }
            Self::OtherCaller => {
                "session not found: the id was issued to another caller, or it was changed; send `initialize` for a new session"
            }
            Self::KeyChanged => {
                "session not found: the server's keys have changed since it was issued, or another server issued it; send `initialize` for a new session"
            }
            Self::Expired => "session not found: it has expired; send `initialize` for a new session",
            Self::Ended => "session not found: it has ended; send `initialize` for a new session",
        }
    }
}

pub enum Decoded {
    Request(Request),
    Notification(Notification),
    /// A client of the handshake era answers an input request. The id is `None` if it cannot be one of ours.
    Response {
        id: Option<u64>,
        result: Result<Json, String>,
    },
    Batch(Batch),
    Rejected(ErrorResponse),
}

/// A well-formed request of a known version.
pub struct Request {
    pub id: RequestId,
    pub peer: Peer,
    pub progress_token: Option<RequestId>,
    pub kind: RequestKind,
}

pub enum RequestKind {
    Initialize { negotiated_version: Version, capabilities: ClientCapabilities },
    Ping,
    Discover,
    List(ListKind, Option<String>),
    Call { call: Call, resume: Option<Box<Resume>>, task: Option<TaskMetadata> },
    Subscribe(String),
    Unsubscribe(String),
    SetLevel(LogLevel),
    Listen(NotificationFilter),
    Task(TaskRequest),
    GetSkill(String),
    ReadDirectory { uri: String, cursor: Option<String> },
}

/// What a client of the stateless era sends to continue a call.
#[derive(Debug, Default)]
pub struct Resume {
    pub request_state: Option<String>,
    pub input_responses: Vec<(String, Json)>,
}

/// The `task` parameter of 2025-11-25: run the call as a task.
#[derive(Debug, Clone, Copy)]
pub struct TaskMetadata {
    pub ttl_ms: Option<u64>,
}

#[derive(Debug)]
pub enum Notification {
    Initialized,
    Cancelled(RequestId),
    RootsListChanged,
    /// Any other notification, known or not. It needs no action.
    Other,
}

/// The messages of an accepted JSON-RPC batch, in order. Never empty.
pub struct Batch {
    pub version: Version,
    pub items: Vec<Decoded>,
}

/// The response to a message that was rejected. The HTTP status has no meaning on a pipe.
#[derive(Debug)]
pub struct ErrorResponse {
    pub http_status: u16,
    pub body: Vec<u8>,
    pub retry_after_ms: Option<u64>,
    /// Whether it answers a request, as opposed to a message without a usable id.
    pub has_request_id: bool,
}

impl ErrorResponse {
    pub fn new(error: &RpcError, id: Option<&RequestId>, version: Version) -> Self {
        let body = error.to_response(id, version);
        Self { http_status: error.http_status, body, retry_after_ms: None, has_request_id: id.is_some() }
    }
}

/// The server's limits and methods.
pub struct DecodeOptions<'a> {
    pub scan_limits: ParseLimits,
    pub batch_items_max: usize,
    /// Whether the server has the capability that a method needs. Otherwise the method does not exist, whatever
    /// its parameters.
    pub supports_method: &'a dyn Fn(Method) -> bool,
}

/// Decodes one message, or one JSON-RPC batch: accepted in the versions that have batches, refused in all others.
pub fn decode(bytes: Vec<u8>, options: &DecodeOptions<'_>, defaults: MessageContext<'_>) -> Decoded {
    match parse(bytes, &options.scan_limits) {
        Ok(doc) if doc.root().kind() == NodeKind::Array => decode_batch(&doc, options, defaults),
        Ok(doc) => decode_message(doc, options, defaults).unwrap_or_else(Decoded::Rejected),
        Err(error) => Decoded::Rejected(parse_error(&error, &defaults)),
    }
}

fn parse_error(error: &JsonError, defaults: &MessageContext<'_>) -> ErrorResponse {
    let version = match defaults {
        MessageContext::Pipe(peer) => peer.map(|p| p.version),
        MessageContext::Http(http) => match http.headers.version {
            HeaderField::Single(date) => Version::parse_bytes(date),
            HeaderField::Absent | HeaderField::Repeated => None,
        },
        MessageContext::Batched(peer) => Some(peer.version),
    };
    let error = RpcError::new(ErrorCode::ParseError, 400, format!("parse error: {error}"));
    ErrorResponse::new(&error, None, version.unwrap_or(Version::UNSPECIFIED))
}

fn decode_batch(doc: &Doc, options: &DecodeOptions<'_>, defaults: MessageContext<'_>) -> Decoded {
    let reject = |version, reason: &str| {
        Decoded::Rejected(ErrorResponse::new(
            &RpcError::new(ErrorCode::InvalidRequest, 400, reason),
            None,
            version,
        ))
    };
    let peer = match defaults.peer() {
        Ok(peer) => peer,
        Err(error) => return Decoded::Rejected(ErrorResponse::new(&error, None, defaults.assumed_version())),
    };
    let items = doc.root();
    // 2025-03-26, Batching: MUST support receiving batches. Removed in 2025-06-18.
    if !peer.version.has(Feature::Batches) {
        return reject(peer.version, "this protocol version has no batches; send one message at a time");
    }
    if items.is_empty() {
        return reject(peer.version, "the batch is empty");
    }
    if items.len() > options.batch_items_max {
        return reject(
            peer.version,
            &format!("the batch exceeds the limit of {} messages", options.batch_items_max),
        );
    }
    let items =
        items.elements().map(|item| match parse(item.raw().as_bytes().to_vec(), &options.scan_limits) {
            Ok(doc) => {
                decode_message(doc, options, MessageContext::Batched(peer)).unwrap_or_else(Decoded::Rejected)
            }
            Err(error) => Decoded::Rejected(parse_error(&error, &MessageContext::Batched(peer))),
        });
    Decoded::Batch(Batch { version: peer.version, items: items.collect() })
}

impl MessageContext<'_> {
    /// The sender of a message without an envelope.
    fn peer(&self) -> Result<Peer, RpcError> {
        match self {
            Self::Pipe(Some(peer)) | Self::Batched(peer) => Ok(*peer),
            Self::Pipe(None) => Err(RpcError::invalid_params(
                "not initialized: send `initialize` first, or name the protocol version in `params._meta`",
            )),
            Self::Http(http) => match (http.lookup_session)() {
                SessionLookup::Found(peer) => http.header_version().map(|_| peer),
                SessionLookup::NotFound(error) => {
                    Err(RpcError::new(ErrorCode::SessionNotFound, 404, error.message()))
                }
                SessionLookup::NotNamed => {
                    Ok(Peer::from_version(http.header_version()?.unwrap_or(Version::UNSPECIFIED)))
                }
            },
        }
    }
}

impl HttpDefaults<'_> {
    /// The version in the `MCP-Protocol-Version` header, if there is one.
    fn header_version(&self) -> Result<Option<Version>, RpcError> {
        match self.headers.version {
            HeaderField::Absent => Ok(None),
            HeaderField::Repeated => Err(RpcError::new(
                ErrorCode::HeaderMismatch,
                400,
                "header MCP-Protocol-Version was sent more than once",
            )),
            HeaderField::Single(date) => match Version::parse_bytes(date) {
                Some(version) => Ok(Some(version)),
                None => Err(unsupported_version(&String::from_utf8_lossy(date), Version::UNSPECIFIED)),
            },
        }
    }
}

/// `data.supported` lists the versions that work for a request of the same era as `version`.
fn unsupported_version(requested: &str, version: Version) -> RpcError {
    let error = RpcError::new(
        ErrorCode::UnsupportedVersion,
        400,
        format!("unsupported protocol version `{requested}`"),
    );
    let has_envelope = version.has(Feature::RequestMeta);
    error.with_data(Json::object(|o| {
        let versions =
            Version::ALL.iter().rev().filter(|(v, _)| !has_envelope || v.has(Feature::RequestMeta));
        o.array("supported", versions, |out, (_, date)| json::write::string(out, date));
        o.str("requested", requested);
    }))
}

fn decode_message(
    doc: Doc,
    options: &DecodeOptions<'_>,
    defaults: MessageContext<'_>,
) -> Result<Decoded, ErrorResponse> {
    let fields = MessageFields::read(Some(doc.root()));
    let id = fields.id.and_then(RequestId::read);
    let params = Params::read(fields.params);
    let meta = Meta::read(params.meta);
    let is_self_contained = meta.version.is_some()
        || defaults.header_requires_envelope()
        || defaults.is_discover_request(&fields);
    // Until the version is known, an error response has the form of the era that the message looks like.
    let apparent_version = if is_self_contained { Version::NEWEST } else { defaults.assumed_version() };
    let reject = |error: &RpcError| ErrorResponse::new(error, id.as_ref(), apparent_version);
    let invalid = |reason: &str| reject(&RpcError::new(ErrorCode::InvalidRequest, 400, reason));

    if !doc.root().is_object() {
        return Err(invalid("a message must be an object"));
    }
    if !fields.jsonrpc.is_some_and(|version| version.eq_str("2.0")) {
        return Err(invalid("`jsonrpc`: expected \"2.0\""));
    }
    let Some(method) = fields.method else {
        return decode_response(&fields, id.as_ref(), is_self_contained, defaults);
    };
    let Some(method) = method.str() else { return Err(invalid("`method`: expected a string")) };
    if fields.params.is_some_and(|p| !p.is_object()) {
        return Err(reject(&RpcError::invalid_params("`params`: expected an object")));
    }
    if fields.id.is_some() && id.is_none() {
        return Err(invalid("`id`: expected a string or an integer"));
    }

    let Some(id) = id else {
        let method = if is_self_contained { method } else { normalize_method_name(method) };
        // Notifications get no response, except that an unknown session is an HTTP error.
        if let (false, MessageContext::Http(_)) = (is_self_contained, &defaults) {
            defaults.peer().map_err(|error| ErrorResponse::new(&error, None, apparent_version))?;
        }
        return Ok(Decoded::Notification(decode_notification(&method, &params)));
    };
    let initialize = method == "initialize" && meta.version.is_none();
    let requested_method = method.clone();
    let (peer, method) = if is_self_contained && !initialize {
        let peer = decode_envelope(&meta, &method, &defaults);
        (peer.map_err(|error| ErrorResponse::new(&error, Some(&id), apparent_version))?, method)
    } else {
        let method = normalize_method_name(method);
        // `initialize` itself starts the handshake, and `ping` may come before it.
        let peer = match (&*method, &defaults) {
            ("initialize", MessageContext::Batched(_)) => {
                let error =
                    RpcError::new(ErrorCode::InvalidRequest, 400, "`initialize` must not be part of a batch");
                return Err(ErrorResponse::new(&error, Some(&id), apparent_version));
            }
            ("initialize", _) | ("ping", MessageContext::Pipe(None)) => {
                Peer::from_version(Version::NEWEST_WITH_HANDSHAKE)
            }
            _ => defaults.peer().map_err(|error| ErrorResponse::new(&error, Some(&id), apparent_version))?,
        };
        (peer, method)
    };

    let reject = |error: &RpcError| ErrorResponse::new(error, Some(&id), peer.version);
    let method = match Method::find(&method, peer.version) {
        Some(method) if (options.supports_method)(method) => method,
        Some(_) | None => return Err(reject(&RpcError::method_not_found(&requested_method, peer.version))),
    };
    if params.meta.is_some_and(|meta| !meta.is_object()) {
        return Err(reject(&invalid_param("_meta", "expected an object")));
    }
    if let (MessageContext::Http(http), true) = (&defaults, peer.version.has(Feature::StandardHeaders)) {
        check_name_header(method, &params, &http.headers).map_err(|error| reject(&error))?;
    }
    let progress_token = match meta.progress_token {
        None => None,
        Some(node) => match RequestId::read(node) {
            Some(token) => Some(token),
            None => {
                return Err(reject(&invalid_param("_meta.progressToken", "expected a string or an integer")));
            }
        },
    };
    let decoded = match decode_params(method, &params, peer) {
        Ok(decoded) => decoded,
        Err(error) => return Err(reject(&error)),
    };
    let kind = decoded.into_kind(doc);
    Ok(Decoded::Request(Request { id, peer, progress_token, kind }))
}

impl MessageContext<'_> {
    /// Whether the version header says that the message must have an envelope.
    fn header_requires_envelope(&self) -> bool {
        match self {
            Self::Http(HttpDefaults {
                headers: Headers { version: HeaderField::Single(date), .. }, ..
            }) => Version::parse_bytes(date).is_some_and(|v| v.has(Feature::RequestMeta)),
            Self::Http(_) | Self::Pipe(_) | Self::Batched(_) => false,
        }
    }

    /// `server/discover` exists only in the stateless era, so it needs no envelope to show its era.
    fn is_discover_request(&self, fields: &MessageFields<'_>) -> bool {
        !matches!(self, Self::Batched(_)) && fields.method.is_some_and(|m| m.eq_str("server/discover"))
    }

    fn assumed_version(&self) -> Version {
        match self {
            Self::Pipe(Some(peer)) | Self::Batched(peer) => peer.version,
            Self::Pipe(None) => Version::UNSPECIFIED,
            Self::Http(http) => http.header_version().ok().flatten().unwrap_or(Version::UNSPECIFIED),
        }
    }
}

/// Decodes the envelope of a self-contained message and compares the headers with it.
fn decode_envelope(meta: &Meta<'_>, method: &str, defaults: &MessageContext<'_>) -> Result<Peer, RpcError> {
    let malformed = |error: RpcError| RpcError { http_status: 400, ..error };
    if matches!(defaults, MessageContext::Batched(_)) {
        return Err(RpcError::new(
            ErrorCode::InvalidRequest,
            400,
            "a message with its own protocol version must not be part of a batch",
        ));
    }
    let Some(named) = meta.version else {
        let path = "_meta.io.modelcontextprotocol/protocolVersion";
        return Err(malformed(invalid_param(path, "missing")));
    };
    let Some(date) = named.str() else {
        let path = "_meta.io.modelcontextprotocol/protocolVersion";
        return Err(malformed(invalid_param(path, "expected a string")));
    };
    if let MessageContext::Http(http) = defaults {
        check_header("MCP-Protocol-Version", http.headers.version, &date)?;
    }
    let capabilities = match meta.capabilities {
        Some(capabilities) if capabilities.is_object() => capabilities,
        Some(_) => {
            let path = "_meta.io.modelcontextprotocol/clientCapabilities";
            return Err(malformed(invalid_param(path, "expected an object")));
        }
        None => {
            let path = "_meta.io.modelcontextprotocol/clientCapabilities";
            return Err(malformed(invalid_param(path, "missing")));
        }
    };
    let version = match Version::parse(&date) {
        Some(version) if version.has(Feature::RequestMeta) => version,
        _ => return Err(unsupported_version(&date, Version::NEWEST)),
    };
    if let MessageContext::Http(http) = defaults {
        check_header("Mcp-Method", http.headers.method, method)?;
    }
    let level = match meta.log_level {
        None => None,
        Some(node) => match node.str().as_deref().and_then(LogLevel::parse) {
            Some(level) => Some(level),
            None => {
                return Err(malformed(invalid_param(
                    "_meta.io.modelcontextprotocol/logLevel",
                    UNKNOWN_LOG_LEVEL,
                )));
            }
        },
    };
    Ok(Peer { version, capabilities: read_capabilities(capabilities, version), log_level: level })
}

const UNKNOWN_LOG_LEVEL: &str = "expected debug, info, notice, warning, error, critical, alert or emergency";

fn check_header(name: &str, header: HeaderField<'_>, body: &str) -> Result<(), RpcError> {
    check_matches_body(header, body)
        .map_err(|reason| RpcError::new(ErrorCode::HeaderMismatch, 400, format!("header {name} {reason}")))
}

/// 2026-07-28, Standard Request Headers: `Mcp-Name` is required where a request names something.
fn check_name_header(method: Method, params: &Params<'_>, headers: &Headers<'_>) -> Result<(), RpcError> {
    let named = match method.name_param() {
        Some(NameParam::Name) => params.name,
        Some(NameParam::Uri) => params.uri,
        Some(NameParam::TaskId) => params.task_id,
        None => return Ok(()),
    };
    match named.and_then(|node| node.str()) {
        Some(body) => check_header("Mcp-Name", headers.name, &body),
        // Decoding the parameters reports the missing one.
        None => Ok(()),
    }
}

fn decode_response(
    fields: &MessageFields<'_>,
    id: Option<&RequestId>,
    is_self_contained: bool,
    defaults: MessageContext<'_>,
) -> Result<Decoded, ErrorResponse> {
    let version = defaults.assumed_version();
    let invalid = |reason: &str| {
        ErrorResponse::new(&RpcError::new(ErrorCode::InvalidRequest, 400, reason), None, version)
    };
    let result = match (fields.result, fields.error) {
        (Some(result), None) => Ok(Json::from(result)),
        (None, Some(error)) => {
            Err(error.get("message").and_then(|m| m.str()).unwrap_or_default().into_owned())
        }
        (None, None) => {
            let error = RpcError::new(
                ErrorCode::InvalidRequest,
                400,
                "the message has no `method`, `result` or `error`",
            );
            return Err(ErrorResponse::new(&error, id, version));
        }
        (Some(_), Some(_)) => return Err(invalid("a response must not have both `result` and `error`")),
    };
    if fields.id.is_none() {
        return Err(invalid("a response must have an `id`"));
    }
    // 2026-07-28, Sending Messages: the client MUST NOT send JSON-RPC responses.
    if is_self_contained {
        return Err(invalid(
            "this protocol version has no responses from the client; repeat the call with `inputResponses`",
        ));
    }
    // On a pipe without a handshake there were no input requests. A response never gets a response.
    if !matches!(defaults, MessageContext::Pipe(_)) {
        defaults.peer().map_err(|error| ErrorResponse::new(&error, None, version))?;
    }
    Ok(Decoded::Response { id: fields.id.and_then(|id| id.u64()), result })
}

fn decode_notification(method: &str, params: &Params<'_>) -> Notification {
    match method {
        "notifications/initialized" => Notification::Initialized,
        "notifications/cancelled" => match params.request_id.and_then(RequestId::read) {
            Some(id) => Notification::Cancelled(id),
            None => Notification::Other,
        },
        "notifications/roots/list_changed" => Notification::RootsListChanged,
        _ => Notification::Other,
    }
}

fn invalid_param(path: &str, reason: &str) -> RpcError {
    RpcError::invalid_params(format!("`params.{path}`: {reason}"))
}

/// A [`RequestKind`] whose call does not own the document yet.
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
            Self::Complete(kind) => kind,
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
            let negotiated_version = negotiate_version(&requested);
            let capabilities = params.capabilities.map_or(ClientCapabilities::NONE, |capabilities| {
                read_capabilities(capabilities, negotiated_version)
            });
            RequestKind::Initialize { negotiated_version, capabilities }
        }
        Method::Ping => RequestKind::Ping,
        Method::Discover => RequestKind::Discover,
        Method::ToolsList => RequestKind::List(ListKind::Tools, params.optional_cursor()?),
        Method::ResourcesList => RequestKind::List(ListKind::Resources, params.optional_cursor()?),
        Method::ResourceTemplatesList => RequestKind::List(ListKind::Templates, params.optional_cursor()?),
        Method::PromptsList => RequestKind::List(ListKind::Prompts, params.optional_cursor()?),
        Method::SkillsList => RequestKind::List(ListKind::Skills, params.optional_cursor()?),
        Method::SkillsGet => RequestKind::GetSkill(params.required_str(params.uri, "uri")?.into_owned()),
        Method::DirectoryRead => RequestKind::ReadDirectory {
            uri: params.required_str(params.uri, "uri")?.into_owned(),
            cursor: params.optional_cursor()?,
        },
        Method::Subscribe => RequestKind::Subscribe(params.required_str(params.uri, "uri")?.into_owned()),
        Method::Unsubscribe => RequestKind::Unsubscribe(params.required_str(params.uri, "uri")?.into_owned()),
        Method::SetLevel => match LogLevel::parse(&params.required_str(params.level, "level")?) {
            Some(level) => RequestKind::SetLevel(level),
            None => return Err(invalid_param("level", UNKNOWN_LOG_LEVEL)),
        },
        Method::Listen => RequestKind::Listen(NotificationFilter::read(params.notifications)?),
        Method::TaskGet => RequestKind::Task(TaskRequest::Get(params.required_task_id()?)),
        Method::TaskCancel => RequestKind::Task(TaskRequest::Cancel(params.required_task_id()?)),
        Method::TaskResult => RequestKind::Task(TaskRequest::Result(params.required_task_id()?)),
        Method::TaskList => RequestKind::Task(TaskRequest::List(params.optional_cursor()?)),
        Method::TaskUpdate => {
            let Some(responses) = params.input_responses else {
                return Err(invalid_param("inputResponses", "missing"));
            };
            RequestKind::Task(TaskRequest::Update(
                params.required_task_id()?,
                read_input_responses(responses)?,
            ))
        }
    }))
}

fn decode_call(
    target: CallTarget,
    path: &str,
    name: Option<Node<'_>>,
    params: &Params<'_>,
    peer: Peer,
) -> Result<DecodedParams, RpcError> {
    let name = match name {
        Some(name) if name.kind() == NodeKind::String => name.index(),
        Some(_) => return Err(invalid_param(path, "expected a string")),
        None => return Err(invalid_param(path, "missing")),
    };
    let arguments = match params.arguments {
        None => None,
        // Several clients send `null` for "no arguments".
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

/// Any non-negative number of milliseconds. The host applies its own maximum.
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
    let responses = params.input_responses.map_or(Ok(Vec::new()), read_input_responses)?;
    Ok(Some(Box::new(Resume { request_state: state, input_responses: responses })))
}

/// Input responses, by key. A value that is not an object is ignored, so the host requests it again.
fn read_input_responses(node: Node<'_>) -> Result<Vec<(String, Json)>, RpcError> {
    if !node.is_object() {
        return Err(invalid_param("inputResponses", "expected an object"));
    }
    let responses = node.members().filter(|(_, value)| value.is_object());
    Ok(responses
        .map(|(key, value)| (key.str().unwrap_or_default().into_owned(), Json::from(value)))
        .collect())
}

fn decode_completion(params: &Params<'_>, peer: Peer) -> Result<DecodedParams, RpcError> {
    let reference = params.required_object(params.reference, "ref")?;
    let kind = params.required_str(reference.get("type"), "ref.type")?;
    let (reference_kind, name, path) = match &*kind {
        "ref/prompt" => (CompletionRef::Prompt, reference.get("name"), "ref.name"),
        "ref/resource" => (CompletionRef::ResourceTemplate, reference.get("uri"), "ref.uri"),
        other => {
            return Err(invalid_param(
                "ref.type",
                &format!("unknown reference type `{other}`; expected ref/prompt or ref/resource"),
            ));
        }
    };
    params.required_str(name, path)?;
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
        reference: reference_kind,
        argument_index: key.index(),
        value_index: value.index(),
        context_index: context.map(|c| c.index()),
    };
    Ok(DecodedParams::Call { target, name: name.index(), arguments: None, resume: None, task: None })
}

impl<'d> Params<'d> {
    fn required_str(&self, node: Option<Node<'d>>, path: &str) -> Result<Cow<'d, str>, RpcError> {
        match node {
            None => Err(invalid_param(path, "missing")),
            Some(node) => node.str().ok_or_else(|| invalid_param(path, "expected a string")),
        }
    }

    fn required_object(&self, node: Option<Node<'d>>, path: &str) -> Result<Node<'d>, RpcError> {
        match node {
            None => Err(invalid_param(path, "missing")),
            Some(node) if node.is_object() => Ok(node),
            Some(_) => Err(invalid_param(path, "expected an object")),
        }
    }

    fn required_task_id(&self) -> Result<String, RpcError> {
        Ok(self.required_str(self.task_id, "taskId")?.into_owned())
    }

    fn optional_cursor(&self) -> Result<Option<String>, RpcError> {
        match self.cursor {
            None => Ok(None),
            // Some clients send `null` for the first page.
            Some(node) if node.kind() == NodeKind::Null => Ok(None),
            Some(node) => match node.str() {
                Some(cursor) => Ok(Some(cursor.into_owned())),
                None => Err(invalid_param("cursor", "expected a string")),
            },
        }
    }
}

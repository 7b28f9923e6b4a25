//! The envelope: any message is either rejected properly, or means what `serde_json` reads in it.
//!
//! Every rejection is a JSON-RPC error that echoes the id byte for byte. An accepted request has the id, method
//! and parameters of the text. Over HTTP, where headers must match the body, they do.

use std::borrow::Cow;

use json::{Json, Node, ParseLimits};
use serde_json::Value;
use spile_core::{CallTarget, ClientCapabilities, CompletionRef};
use wire::headers::decode_header_value;
use wire::method::{Method, normalize_method_name};
use wire::{
    DecodeOptions, Decoded, ErrorResponse, Feature, HeaderField, Headers, HttpDefaults, ListKind,
    MessageContext, Notification, Peer, Request, RequestId, RequestKind, SessionError, SessionLookup,
    TaskRequest, Version,
};

use super::headers::encode_header;
use super::{FuzzInput, sample_messages};

const BATCH_ITEMS_MAX: usize = 3;

/// Takes headers and sessions from `data`; the message is generated from the rest, or is the rest.
pub fn decode_message(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let raw = input.one_in(4);
    let http = HttpInput::from_input(&mut input);
    let message = if raw { input.rest().to_vec() } else { sample_messages::message(&mut input).into_bytes() };

    let terms = DecodeOptions {
        scan_limits: ParseLimits::default(),
        batch_items_max: BATCH_ITEMS_MAX,
        supports_method: &|method| method != Method::Complete,
    };
    let open = |defaults: MessageContext<'_>| wire::decode(message.clone(), &terms, defaults);
    let expected = ExpectedMessage::new(&message);
    expected.check(&open(MessageContext::Pipe(None)), None);
    for version in handshake_versions() {
        expected.check(&open(MessageContext::Pipe(Some(Peer::from_version(version)))), None);
    }
    expected.check(&open(MessageContext::Batched(Peer::from_version(Version::UNSPECIFIED))), None);
    for headers in [&http.headers, &expected.mirrored_headers()] {
        let headers_map = to_headers(headers);
        let defaults = HttpDefaults { headers: headers_map, lookup_session: &|| http.session };
        expected.check(&open(MessageContext::Http(defaults)), Some(&headers_map));
    }
}

/// The versions that a handshake can negotiate.
fn handshake_versions() -> impl Iterator<Item = Version> {
    Version::ALL.into_iter().map(|(version, _)| version).filter(|v| v.has(Feature::Handshake))
}

/// What HTTP carries beside the body: version, method and name, and a session.
struct HttpInput<'a> {
    headers: [HeaderInput<'a>; 3],
    session: SessionLookup,
}

enum HeaderInput<'a> {
    Absent,
    Value(Cow<'a, [u8]>),
    Repeated,
}

impl HeaderInput<'_> {
    fn to_header_value(&self) -> HeaderField<'_> {
        match self {
            Self::Absent => HeaderField::Absent,
            Self::Value(value) => HeaderField::Single(value),
            Self::Repeated => HeaderField::Repeated,
        }
    }
}

fn to_headers<'h>([version, method, name]: &'h [HeaderInput<'_>; 3]) -> Headers<'h> {
    Headers {
        version: version.to_header_value(),
        method: method.to_header_value(),
        name: name.to_header_value(),
    }
}

impl<'a> HttpInput<'a> {
    fn from_input(input: &mut FuzzInput<'a>) -> Self {
        let mut headers = || match input.below(8) {
            0 => HeaderInput::Repeated,
            // HTTP libraries reject control characters.
            1 => match input.bytes() {
                value if value.iter().any(|c| c.is_ascii_control()) => HeaderInput::Absent,
                value => HeaderInput::Value(value.into()),
            },
            2 => HeaderInput::Value(input.choose(&Method::TABLE).1.as_bytes().into()),
            3..6 => HeaderInput::Value(input.choose(&Version::ALL).1.as_bytes().into()),
            _ => HeaderInput::Absent,
        };
        let headers = [headers(), headers(), headers()];
        let session = match input.below(4) {
            0 => SessionLookup::NotFound(input.choose(&SessionError::ALL)),
            1 => {
                let version = input.choose(&[Version::UNSPECIFIED, Version::NEWEST_WITH_HANDSHAKE]);
                SessionLookup::Found(Peer {
                    capabilities: ClientCapabilities::ROOTS,
                    ..Peer::from_version(version)
                })
            }
            _ => SessionLookup::NotNamed,
        };
        Self { headers, session }
    }
}

/// The content of the text, as another parser reads it.
struct ExpectedMessage {
    document: Option<Json>,
    raw_id: Option<String>,
    has_method: bool,
    /// `None` if it is not JSON, or has a number that serde cannot hold.
    value: Option<Value>,
}

impl ExpectedMessage {
    fn new(text: &[u8]) -> Self {
        let doc = json::parse(text.to_vec(), &ParseLimits::default()).ok();
        let root = doc.as_ref().map(|doc| doc.root());
        let id = root.and_then(|root| root.get("id"));
        Self {
            raw_id: id.filter(|id| RequestId::read(*id).is_some()).map(|id| id.raw().to_owned()),
            has_method: root.is_some_and(|root| root.get("method").is_some()),
            document: root.map(Json::from),
            value: root.and_then(|_| serde_json::from_slice(text).ok()),
        }
    }

    /// Headers that a correct client sends with this message.
    fn mirrored_headers(&self) -> [HeaderInput<'static>; 3] {
        let Some(value) = &self.value else {
            return [HeaderInput::Absent, HeaderInput::Absent, HeaderInput::Absent];
        };
        let params = &value["params"];
        let name =
            ["name", "uri", "taskId"].into_iter().map(|key| &params[key]).find(|name| name.is_string());
        let version = &params["_meta"]["io.modelcontextprotocol/protocolVersion"];
        [version, &value["method"], name.unwrap_or(&Value::Null)].map(|value| match value.as_str() {
            Some(text) => HeaderInput::Value(encode_header(text).into_bytes().into()),
            None => HeaderInput::Absent,
        })
    }

    fn check(&self, opened: &Decoded, http: Option<&Headers<'_>>) {
        match opened {
            Decoded::Rejected(refusal) => self.check_refusal(refusal),
            Decoded::Request(request) => self.check_request(request, http),
            Decoded::Notification(notice) => {
                let value = self.document.as_ref().expect("read, so JSON").to_doc();
                assert!(self.has_method && value.root().get("id").is_none());
                if let Notification::Cancelled(id) = notice {
                    let named = value.root().get("params").and_then(|p| p.get("requestId")).expect("named");
                    assert_eq!(id.as_bytes(), named.raw().as_bytes());
                }
            }
            Decoded::Response { id, .. } => {
                let value = self.document.as_ref().expect("read, so JSON").to_doc();
                assert!(!self.has_method);
                let named = value.root().get("id").expect("an answer names its question");
                assert!(id.is_none() || named.u64() == *id);
            }
            Decoded::Batch(batch) => {
                let doc = self.document.as_ref().expect("read, so JSON").to_doc();
                assert!(batch.version.has(Feature::Batches));
                assert!((1..=BATCH_ITEMS_MAX).contains(&batch.items.len()));
                assert_eq!(batch.items.len(), doc.root().len());
                for (item, element) in batch.items.iter().zip(doc.root().elements()) {
                    ExpectedMessage::new(element.raw().as_bytes()).check(item, None);
                }
            }
        }
    }

    fn check_refusal(&self, refusal: &ErrorResponse) {
        assert!((200..600).contains(&refusal.http_status));
        let body = json::parse(refusal.body.clone(), &ParseLimits::default()).expect("a refusal is JSON");
        let root = body.root();
        assert!(root.get("jsonrpc").is_some_and(|v| v.eq_str("2.0")));
        let error = root.get("error").expect("an error");
        assert!(error.get("code").is_some_and(|code| code.is_plain_integer()));
        assert!(error.get("message").is_some_and(|text| text.str().is_some()));
        assert!(root.get("result").is_none() && root.get("method").is_none());
        let echoed = root.get("id").map(|id| id.raw());
        match (&self.raw_id, self.has_method) {
            (Some(id), true) => assert_eq!(echoed, Some(id.as_str()), "the id as it was sent"),
            (Some(id), false) => assert!(echoed.is_none_or(|echoed| echoed == "null" || echoed == id)),
            (None, _) => assert!(echoed.is_none_or(|echoed| echoed == "null")),
        }
    }

    fn check_request(&self, request: &Request, http: Option<&Headers<'_>>) {
        assert_eq!(Some(request.id.as_bytes()), self.raw_id.as_ref().map(|id| id.as_bytes()));
        let version = request.peer.version;
        let Some(value) = &self.value else { return };
        assert_eq!(value["jsonrpc"], "2.0");
        let params = &value["params"];
        assert!(params.is_object() || params.is_null());

        let method = value["method"].as_str().expect("a request has a method").to_owned();
        let method = if version.has(Feature::Handshake) {
            normalize_method_name(method.into())
        } else {
            method.into()
        };
        assert_eq!(method, method_for(&request.kind).as_str());
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let named = match &request.kind {
            RequestKind::Call { call, resume, .. } => {
                let name = match call.target {
                    CallTarget::Tool | CallTarget::Prompt => &params["name"],
                    CallTarget::Resource => &params["uri"],
                    CallTarget::Completion { reference: CompletionRef::Prompt, .. } => &params["ref"]["name"],
                    CallTarget::Completion { reference: CompletionRef::ResourceTemplate, .. } => {
                        &params["ref"]["uri"]
                    }
                };
                assert_eq!(Some(call.name().into_owned()), text(name));
                let arguments = call.arguments().map_or(Value::Null, to_serde_value);
                if !matches!(call.target, CallTarget::Completion { .. }) {
                    assert_eq!(arguments, params["arguments"]);
                }
                if let Some(resume) = resume {
                    assert!(version.has(Feature::InputRequired));
                    assert_eq!(resume.request_state, text(&params["requestState"]));
                    for (key, answer) in &resume.input_responses {
                        assert_eq!(to_serde_value(answer.to_doc().root()), params["inputResponses"][key]);
                    }
                }
                text(name).filter(|_| !matches!(call.target, CallTarget::Completion { .. }))
            }
            RequestKind::List(_, cursor) | RequestKind::Task(TaskRequest::List(cursor)) => {
                assert_eq!(*cursor, text(&params["cursor"]));
                None
            }
            RequestKind::ReadDirectory { uri, cursor } => {
                assert_eq!(Some(uri.clone()), text(&params["uri"]));
                assert_eq!(*cursor, text(&params["cursor"]));
                None
            }
            RequestKind::Subscribe(uri) | RequestKind::Unsubscribe(uri) | RequestKind::GetSkill(uri) => {
                assert_eq!(Some(uri.clone()), text(&params["uri"]));
                None
            }
            RequestKind::SetLevel(level) => {
                assert_eq!(level.as_str(), params["level"]);
                None
            }
            RequestKind::Task(
                TaskRequest::Get(id)
                | TaskRequest::Update(id, _)
                | TaskRequest::Cancel(id)
                | TaskRequest::Result(id),
            ) => {
                assert_eq!(Some(id.clone()), text(&params["taskId"]));
                Some(id.clone())
            }
            RequestKind::Initialize { negotiated_version: requested, .. } => {
                let in_text = params["protocolVersion"].as_str().expect("a requested version");
                let same = Version::parse(in_text).filter(|v| v.has(Feature::Handshake));
                assert_eq!(*requested, same.unwrap_or(Version::NEWEST_WITH_HANDSHAKE));
                None
            }
            RequestKind::Listen(filter) => {
                assert_eq!(
                    filter.resource_uris.len(),
                    params["notifications"]["resourceSubscriptions"].as_array().map_or(0, Vec::len)
                );
                None
            }
            RequestKind::Ping | RequestKind::Discover => None,
        };
        if let (true, Some(headers_map)) = (version.has(Feature::StandardHeaders), http) {
            assert_eq!(decode_header(headers_map.version), Some(version.as_str().to_owned()));
            assert_eq!(decode_header(headers_map.method), Some(method.into_owned()));
            if named.is_some() {
                assert_eq!(decode_header(headers_map.name), named);
            }
        }
    }
}

fn to_serde_value(node: Node<'_>) -> Value {
    serde_json::from_str(node.raw()).expect("part of what serde read")
}

fn decode_header(head: HeaderField<'_>) -> Option<String> {
    match head {
        HeaderField::Single(value) => String::from_utf8(decode_header_value(value)?.into_owned()).ok(),
        HeaderField::Absent | HeaderField::Repeated => None,
    }
}

fn method_for(what: &RequestKind) -> Method {
    match what {
        RequestKind::Initialize { .. } => Method::Initialize,
        RequestKind::Ping => Method::Ping,
        RequestKind::Discover => Method::Discover,
        RequestKind::List(ListKind::Tools, _) => Method::ToolsList,
        RequestKind::List(ListKind::Resources, _) => Method::ResourcesList,
        RequestKind::List(ListKind::Templates, _) => Method::ResourceTemplatesList,
        RequestKind::List(ListKind::Prompts, _) => Method::PromptsList,
        RequestKind::List(ListKind::Skills, _) => Method::SkillsList,
        RequestKind::GetSkill(_) => Method::SkillsGet,
        RequestKind::ReadDirectory { .. } => Method::DirectoryRead,
        RequestKind::Call { call, .. } => match call.target {
            CallTarget::Tool => Method::ToolsCall,
            CallTarget::Prompt => Method::PromptsGet,
            CallTarget::Resource => Method::ResourcesRead,
            CallTarget::Completion { .. } => Method::Complete,
        },
        RequestKind::Subscribe(_) => Method::Subscribe,
        RequestKind::Unsubscribe(_) => Method::Unsubscribe,
        RequestKind::SetLevel(_) => Method::SetLevel,
        RequestKind::Listen(_) => Method::Listen,
        RequestKind::Task(TaskRequest::Get(_)) => Method::TaskGet,
        RequestKind::Task(TaskRequest::Update(..)) => Method::TaskUpdate,
        RequestKind::Task(TaskRequest::Cancel(_)) => Method::TaskCancel,
        RequestKind::Task(TaskRequest::List(_)) => Method::TaskList,
        RequestKind::Task(TaskRequest::Result(_)) => Method::TaskResult,
    }
}

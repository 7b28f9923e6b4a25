//! The envelope: whatever comes is refused in good order, or means what `serde_json` would read in it.
//!
//! Every refusal is a JSON-RPC error that echoes the id byte for byte; a request that is let in has the id,
//! method and parameters that stand in the text; and over HTTP, where headers must match the body, they do.

use std::borrow::Cow;

use call::{Caps, CompletionOf, Target};
use json::{Json, Node, ScanLimits};
use serde_json::Value;
use wire::heads::decode;
use wire::method::{Method, standard_spelling};
use wire::{
    Bare, Feature, Head, Heads, HttpBare, Id, List, Notice, Opened, Peer, Refusal, Request, Session, TaskOp,
    Terms, Version, What,
};

use super::headers::encode;
use super::{Dice, samples};

const BATCH_ITEMS_MAX: usize = 3;

/// Headers and sessions are read from `data`, then a message is made of the rest or is the rest.
pub fn open(data: &[u8]) {
    let mut dice = Dice::new(data);
    let raw = dice.once_in(4);
    let http = Http::read(&mut dice);
    let message = if raw { dice.rest().to_vec() } else { samples::message(&mut dice).into_bytes() };

    let terms = Terms {
        scan: ScanLimits::default(),
        batch_items_max: BATCH_ITEMS_MAX,
        serves: &|method| method != Method::Complete,
    };
    let open = |bare: Bare<'_>| wire::open(message.clone(), &terms, bare);
    let told = Told::new(&message);
    told.check(&open(Bare::Pipe(None)), None);
    for version in handshakes() {
        told.check(&open(Bare::Pipe(Some(Peer::bare(version)))), None);
    }
    told.check(&open(Bare::Batched(Peer::bare(Version::UNNAMED))), None);
    for said in [&http.said, &told.mirrored()] {
        let heads = heads(said);
        let bare = HttpBare { heads, session: &|| http.session };
        told.check(&open(Bare::Http(bare)), Some(&heads));
    }
}

/// The versions that a handshake can end in.
fn handshakes() -> impl Iterator<Item = Version> {
    Version::ALL.into_iter().map(|(version, _)| version).filter(|v| v.has(Feature::Handshake))
}

/// What HTTP says beside the body: version, method and name, and a session.
struct Http<'a> {
    said: [Said<'a>; 3],
    session: Session,
}

enum Said<'a> {
    Nothing,
    This(Cow<'a, [u8]>),
    Twice,
}

impl Said<'_> {
    fn head(&self) -> Head<'_> {
        match self {
            Self::Nothing => Head::Absent,
            Self::This(value) => Head::One(value),
            Self::Twice => Head::Twice,
        }
    }
}

fn heads<'h>([version, method, name]: &'h [Said<'_>; 3]) -> Heads<'h> {
    Heads { version: version.head(), method: method.head(), name: name.head() }
}

impl<'a> Http<'a> {
    fn read(dice: &mut Dice<'a>) -> Self {
        let mut said = || match dice.below(8) {
            0 => Said::Twice,
            // No HTTP library lets control characters in.
            1 => match dice.bytes() {
                value if value.iter().any(|c| c.is_ascii_control()) => Said::Nothing,
                value => Said::This(value.into()),
            },
            2 => Said::This(dice.pick(&Method::TABLE).1.as_bytes().into()),
            3..6 => Said::This(dice.pick(&Version::ALL).1.as_bytes().into()),
            _ => Said::Nothing,
        };
        let said = [said(), said(), said()];
        let session = match dice.below(4) {
            0 => Session::Dead,
            1 => {
                let version = dice.pick(&[Version::UNNAMED, Version::NEWEST_WITH_HANDSHAKE]);
                Session::Open(Peer { caps: Caps::ROOTS, ..Peer::bare(version) })
            }
            _ => Session::None,
        };
        Self { said, session }
    }
}

/// What stands in the text, as another reader sees it.
struct Told {
    ours: Option<Json>,
    raw_id: Option<String>,
    has_method: bool,
    /// `None` if it is not JSON, or holds a number that serde cannot.
    value: Option<Value>,
}

impl Told {
    fn new(text: &[u8]) -> Self {
        let doc = json::scan(text.to_vec(), &ScanLimits::default()).ok();
        let root = doc.as_ref().map(|doc| doc.root());
        let id = root.and_then(|root| root.get("id"));
        Self {
            raw_id: id.filter(|id| Id::read(*id).is_some()).map(|id| id.raw().to_owned()),
            has_method: root.is_some_and(|root| root.get("method").is_some()),
            ours: root.map(Json::from),
            value: root.and_then(|_| serde_json::from_slice(text).ok()),
        }
    }

    /// Headers as a good client would send them with this message.
    fn mirrored(&self) -> [Said<'static>; 3] {
        let Some(value) = &self.value else { return [Said::Nothing, Said::Nothing, Said::Nothing] };
        let params = &value["params"];
        let name =
            ["name", "uri", "taskId"].into_iter().map(|key| &params[key]).find(|name| name.is_string());
        let version = &params["_meta"]["io.modelcontextprotocol/protocolVersion"];
        [version, &value["method"], name.unwrap_or(&Value::Null)].map(|value| match value.as_str() {
            Some(text) => Said::This(encode(text).into_bytes().into()),
            None => Said::Nothing,
        })
    }

    fn check(&self, opened: &Opened, http: Option<&Heads<'_>>) {
        match opened {
            Opened::Refused(refusal) => self.check_refusal(refusal),
            Opened::Request(request) => self.check_request(request, http),
            Opened::Notice(notice) => {
                let value = self.ours.as_ref().expect("read, so JSON").doc();
                assert!(self.has_method && value.root().get("id").is_none());
                if let Notice::Cancelled(id) = notice {
                    let named = value.root().get("params").and_then(|p| p.get("requestId")).expect("named");
                    assert_eq!(id.as_bytes(), named.raw().as_bytes());
                }
            }
            Opened::Answer { id, .. } => {
                let value = self.ours.as_ref().expect("read, so JSON").doc();
                assert!(!self.has_method);
                let named = value.root().get("id").expect("an answer names its question");
                assert!(id.is_none() || named.u64() == *id);
            }
            Opened::Batch(batch) => {
                let doc = self.ours.as_ref().expect("read, so JSON").doc();
                assert!(batch.version.has(Feature::Batches));
                assert!((1..=BATCH_ITEMS_MAX).contains(&batch.items.len()));
                assert_eq!(batch.items.len(), doc.root().len());
                for (item, element) in batch.items.iter().zip(doc.root().elements()) {
                    Told::new(element.raw().as_bytes()).check(item, None);
                }
            }
        }
    }

    fn check_refusal(&self, refusal: &Refusal) {
        assert!((200..600).contains(&refusal.status));
        let body = json::scan(refusal.body.clone(), &ScanLimits::default()).expect("a refusal is JSON");
        let root = body.root();
        assert!(root.get("jsonrpc").is_some_and(|v| v.is("2.0")));
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

    fn check_request(&self, request: &Request, http: Option<&Heads<'_>>) {
        assert_eq!(Some(request.id.as_bytes()), self.raw_id.as_ref().map(|id| id.as_bytes()));
        let version = request.peer.version;
        let Some(value) = &self.value else { return };
        assert_eq!(value["jsonrpc"], "2.0");
        let params = &value["params"];
        assert!(params.is_object() || params.is_null());

        let method = value["method"].as_str().expect("a request has a method").to_owned();
        let method =
            if version.has(Feature::Handshake) { standard_spelling(method.into()) } else { method.into() };
        assert_eq!(method, method_of(&request.what).as_str());
        let text = |at: &Value| at.as_str().map(str::to_owned);
        let named = match &request.what {
            What::Call { call, resume, .. } => {
                let name = match call.target {
                    Target::Tool | Target::Prompt => &params["name"],
                    Target::Resource => &params["uri"],
                    Target::Completion { of: CompletionOf::Prompt, .. } => &params["ref"]["name"],
                    Target::Completion { of: CompletionOf::Template, .. } => &params["ref"]["uri"],
                };
                assert_eq!(Some(call.name().into_owned()), text(name));
                let arguments = call.arguments().map_or(Value::Null, as_value);
                if !matches!(call.target, Target::Completion { .. }) {
                    assert_eq!(arguments, params["arguments"]);
                }
                if let Some(resume) = resume {
                    assert!(version.has(Feature::InputRequired));
                    assert_eq!(resume.state, text(&params["requestState"]));
                    for (key, answer) in &resume.answers {
                        assert_eq!(as_value(answer.doc().root()), params["inputResponses"][key]);
                    }
                }
                text(name).filter(|_| !matches!(call.target, Target::Completion { .. }))
            }
            What::List(_, cursor) | What::Task(TaskOp::List(cursor)) => {
                assert_eq!(*cursor, text(&params["cursor"]));
                None
            }
            What::Subscribe(uri) | What::Unsubscribe(uri) => {
                assert_eq!(Some(uri.clone()), text(&params["uri"]));
                None
            }
            What::SetLevel(level) => {
                assert_eq!(level.as_str(), params["level"]);
                None
            }
            What::Task(TaskOp::Get(id) | TaskOp::Update(id, _) | TaskOp::Cancel(id) | TaskOp::Result(id)) => {
                assert_eq!(Some(id.clone()), text(&params["taskId"]));
                Some(id.clone())
            }
            What::Initialize { requested, .. } => {
                let asked = params["protocolVersion"].as_str().expect("a version is asked for");
                let same = Version::parse(asked).filter(|v| v.has(Feature::Handshake));
                assert_eq!(*requested, same.unwrap_or(Version::NEWEST_WITH_HANDSHAKE));
                None
            }
            What::Listen(filter) => {
                assert_eq!(
                    filter.uris.len(),
                    params["notifications"]["resourceSubscriptions"].as_array().map_or(0, Vec::len)
                );
                None
            }
            What::Ping | What::Discover => None,
        };
        if let (true, Some(heads)) = (version.has(Feature::MirrorHeaders), http) {
            assert_eq!(value_of(heads.version), Some(version.as_str().to_owned()));
            assert_eq!(value_of(heads.method), Some(method.into_owned()));
            if named.is_some() {
                assert_eq!(value_of(heads.name), named);
            }
        }
    }
}

fn as_value(node: Node<'_>) -> Value {
    serde_json::from_str(node.raw()).expect("part of what serde read")
}

fn value_of(head: Head<'_>) -> Option<String> {
    match head {
        Head::One(value) => String::from_utf8(decode(value)?.into_owned()).ok(),
        Head::Absent | Head::Twice => None,
    }
}

fn method_of(what: &What) -> Method {
    match what {
        What::Initialize { .. } => Method::Initialize,
        What::Ping => Method::Ping,
        What::Discover => Method::Discover,
        What::List(List::Tools, _) => Method::ToolsList,
        What::List(List::Resources, _) => Method::ResourcesList,
        What::List(List::Templates, _) => Method::TemplatesList,
        What::List(List::Prompts, _) => Method::PromptsList,
        What::Call { call, .. } => match call.target {
            Target::Tool => Method::ToolsCall,
            Target::Prompt => Method::PromptsGet,
            Target::Resource => Method::ResourcesRead,
            Target::Completion { .. } => Method::Complete,
        },
        What::Subscribe(_) => Method::Subscribe,
        What::Unsubscribe(_) => Method::Unsubscribe,
        What::SetLevel(_) => Method::SetLevel,
        What::Listen(_) => Method::Listen,
        What::Task(TaskOp::Get(_)) => Method::TaskGet,
        What::Task(TaskOp::Update(..)) => Method::TaskUpdate,
        What::Task(TaskOp::Cancel(_)) => Method::TaskCancel,
        What::Task(TaskOp::List(_)) => Method::TaskList,
        What::Task(TaskOp::Result(_)) => Method::TaskResult,
    }
}

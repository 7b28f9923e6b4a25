//! One message in, one meaning out: the era test and everything that can be refused without knowing what
//! is served here.
//!
//! The era is chosen per message. A message whose `_meta` names a protocol version stands alone; a bare one
//! means what its handshake, session or header says. 2026-07-28, Versioning: a server MAY serve both eras
//! concurrently on the same endpoint or process.

use std::borrow::Cow;

use call::{Call, Caps, CompletionOf, Level, Target};
use json::{Bad, Doc, Json, Kind, Node, ScanLimits, scan};

use crate::code::{Code, Told};
use crate::heads::{Head, Heads, mirrors};
use crate::id::Id;
use crate::method::{Method, Named, standard_spelling};
use crate::params::{Filter, List, Meta, Params, Parts, TaskOp};
use crate::peer::{Peer, read_caps};
use crate::version::{Feature, Version};

/// What a message without an envelope means.
pub enum Bare<'a> {
    /// On a pipe: what was negotiated, if anything was.
    Pipe(Option<Peer>),
    /// Over HTTP: what its session or its headers say.
    Http(HttpBare<'a>),
    /// Inside a batch.
    Batched(Peer),
}

pub struct HttpBare<'a> {
    pub heads: Heads<'a>,
    /// Looks up the session that the request names. Asked only for bare messages.
    pub session: &'a dyn Fn() -> Session,
}

/// What is known of the session that a request names.
#[derive(Debug, Clone, Copy)]
pub enum Session {
    None,
    Open(Peer),
    Dead,
}

pub enum Opened {
    Request(Request),
    Notice(Notice),
    /// A client of the handshake era answers a question of ours. `None`: no id that we could have given.
    Answer {
        id: Option<u64>,
        answer: Result<Json, String>,
    },
    Batch(Batch),
    Refused(Refusal),
}

/// A request that is well formed and belongs to a known version.
pub struct Request {
    pub id: Id,
    pub peer: Peer,
    pub progress: Option<Id>,
    pub what: What,
}

pub enum What {
    Initialize { requested: Version, caps: Caps },
    Ping,
    Discover,
    List(List, Option<String>),
    Call { call: Call, resume: Option<Box<Resume>>, task: Option<TaskWish> },
    Subscribe(String),
    Unsubscribe(String),
    SetLevel(Level),
    Listen(Filter),
    Task(TaskOp),
}

/// What a client of the newest era brings back to go on with a call.
#[derive(Debug, Default)]
pub struct Resume {
    pub state: Option<String>,
    pub answers: Vec<(String, Json)>,
}

/// A client of 2025-11-25 wants the call to be a task.
#[derive(Debug, Clone, Copy)]
pub struct TaskWish {
    pub ttl_ms: Option<u64>,
}

#[derive(Debug)]
pub enum Notice {
    Initialized,
    Cancelled(Id),
    /// Anything else, known or not: nothing is to be done.
    Other,
}

/// Several messages in one, in their order. Never empty.
pub struct Batch {
    pub version: Version,
    pub items: Vec<Opened>,
}

/// A message that is answered without being carried out. On a pipe the status means nothing.
#[derive(Debug)]
pub struct Refusal {
    pub status: u16,
    pub body: Vec<u8>,
    pub retry_after_ms: Option<u64>,
    /// Whether it answers a request, and not something of which not even that is known.
    pub names_request: bool,
}

impl Refusal {
    pub fn new(told: &Told, id: Option<&Id>, version: Version) -> Self {
        let body = told.response(id, version);
        Self { status: told.status, body, retry_after_ms: None, names_request: id.is_some() }
    }
}

/// What a server takes.
pub struct Terms<'a> {
    pub scan: ScanLimits,
    pub batch_items_max: usize,
    /// Whether there is anything here that a method is for. One for which there is nothing does not exist,
    /// whatever its parameters.
    pub serves: &'a dyn Fn(Method) -> bool,
}

/// Reads one message.
pub fn open(bytes: Vec<u8>, terms: &Terms<'_>, bare: Bare<'_>) -> Opened {
    match scan(bytes, &terms.scan) {
        Ok(doc) if doc.root().kind() == Kind::Array => open_batch(&doc, terms, bare),
        Ok(doc) => open_one(doc, terms, bare).unwrap_or_else(Opened::Refused),
        Err(bad) => Opened::Refused(not_json(&bad, &bare)),
    }
}

fn not_json(bad: &Bad, bare: &Bare<'_>) -> Refusal {
    let version = match bare {
        Bare::Pipe(peer) => peer.map(|p| p.version),
        Bare::Http(http) => match http.heads.version {
            Head::One(date) => Version::parse_bytes(date),
            Head::Absent | Head::Twice => None,
        },
        Bare::Batched(peer) => Some(peer.version),
    };
    let told = Told::new(Code::Parse, 400, format!("parse error: {bad}"));
    Refusal::new(&told, None, version.unwrap_or(Version::UNNAMED))
}

fn open_batch(doc: &Doc, terms: &Terms<'_>, bare: Bare<'_>) -> Opened {
    let refuse = |version, why: &str| {
        Opened::Refused(Refusal::new(&Told::new(Code::InvalidRequest, 400, why), None, version))
    };
    let peer = match bare.peer() {
        Ok(peer) => peer,
        Err(why) => return Opened::Refused(Refusal::new(&why, None, bare.looks_like())),
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
    let items = items.elements().map(|item| match scan(item.raw().as_bytes().to_vec(), &terms.scan) {
        Ok(doc) => open_one(doc, terms, Bare::Batched(peer)).unwrap_or_else(Opened::Refused),
        Err(bad) => Opened::Refused(not_json(&bad, &Bare::Batched(peer))),
    });
    Opened::Batch(Batch { version: peer.version, items: items.collect() })
}

impl Bare<'_> {
    /// Who sent a message that does not say so itself.
    fn peer(&self) -> Result<Peer, Told> {
        match self {
            Self::Pipe(Some(peer)) | Self::Batched(peer) => Ok(*peer),
            Self::Pipe(None) => Err(Told::invalid_params(
                "not initialized: send `initialize` first, or name the protocol version in `params._meta`",
            )),
            Self::Http(http) => match (http.session)() {
                Session::Open(peer) => http.version().map(|_| peer),
                Session::Dead => Err(Told::new(
                    Code::NoSession,
                    404,
                    "no such session: it ended or expired; initialize again",
                )),
                Session::None => Ok(Peer::bare(http.version()?.unwrap_or(Version::UNNAMED))),
            },
        }
    }
}

impl HttpBare<'_> {
    /// The version that the header names, if there is one.
    fn version(&self) -> Result<Option<Version>, Told> {
        match self.heads.version {
            Head::Absent => Ok(None),
            Head::Twice => Err(Told::new(Code::HeaderMismatch, 400, "MCP-Protocol-Version was sent twice")),
            Head::One(date) => match Version::parse_bytes(date) {
                Some(version) => Ok(Some(version)),
                None => Err(unsupported(&String::from_utf8_lossy(date), Version::UNNAMED)),
            },
        }
    }
}

/// `supported` names what would work in the same shape of request.
fn unsupported(requested: &str, asked_like: Version) -> Told {
    let told =
        Told::new(Code::UnsupportedVersion, 400, format!("unsupported protocol version `{requested}`"));
    let like = asked_like.has(Feature::Envelope);
    told.with(Json::object(|o| {
        let versions = Version::ALL.iter().rev().filter(|(v, _)| !like || v.has(Feature::Envelope));
        o.array("supported", versions, |out, (_, date)| json::write::string(out, date));
        o.str("requested", requested);
    }))
}

fn open_one(doc: Doc, terms: &Terms<'_>, bare: Bare<'_>) -> Result<Opened, Refusal> {
    let parts = Parts::read(Some(doc.root()));
    let id = parts.id.and_then(Id::read);
    let params = Params::read(parts.params);
    let meta = Meta::read(params.meta);
    let stands_alone =
        meta.version.is_some() || bare.header_names_envelope() || bare.is_lone_discover(&parts);
    // Until the version is settled, a refusal is shaped as the message looks.
    let looks_like = if stands_alone { Version::NEWEST } else { bare.looks_like() };
    let refuse = |told: &Told| Refusal::new(told, id.as_ref(), looks_like);
    let invalid = |why: &str| refuse(&Told::new(Code::InvalidRequest, 400, why));

    if !doc.root().is_object() {
        return Err(invalid("a message is an object"));
    }
    if !parts.jsonrpc.is_some_and(|version| version.is("2.0")) {
        return Err(invalid("`jsonrpc`: expected \"2.0\""));
    }
    let Some(method) = parts.method else { return open_answer(&parts, id.as_ref(), stands_alone, bare) };
    let Some(method) = method.str() else { return Err(invalid("`method`: expected a string")) };
    if parts.params.is_some_and(|p| !p.is_object()) {
        return Err(refuse(&Told::invalid_params("`params`: expected an object")));
    }
    if parts.id.is_some() && id.is_none() {
        return Err(invalid("`id`: expected a string or an integer"));
    }

    let Some(id) = id else {
        let method = if stands_alone { method } else { standard_spelling(method) };
        // A notification is acted on or ignored; only a dead session is worth telling.
        if let (false, Bare::Http(_)) = (stands_alone, &bare) {
            bare.peer().map_err(|told| Refusal::new(&told, None, looks_like))?;
        }
        return Ok(Opened::Notice(open_notice(&method, &params)));
    };
    let initialize = method == "initialize" && meta.version.is_none();
    let asked = method.clone();
    let (peer, method) = if stands_alone && !initialize {
        let peer = open_envelope(&meta, &method, &bare);
        (peer.map_err(|told| Refusal::new(&told, Some(&id), looks_like))?, method)
    } else {
        let method = standard_spelling(method);
        // `initialize` settles what bare messages mean, and `ping` may come before it.
        let peer = match (&*method, &bare) {
            ("initialize", Bare::Batched(_)) => {
                let told = Told::new(Code::InvalidRequest, 400, "`initialize` must not be part of a batch");
                return Err(Refusal::new(&told, Some(&id), looks_like));
            }
            ("initialize", _) | ("ping", Bare::Pipe(None)) => Peer::bare(Version::NEWEST_WITH_HANDSHAKE),
            _ => bare.peer().map_err(|told| Refusal::new(&told, Some(&id), looks_like))?,
        };
        (peer, method)
    };

    let refuse = |told: &Told| Refusal::new(told, Some(&id), peer.version);
    let method = match Method::find(&method, peer.version) {
        Some(method) if (terms.serves)(method) => method,
        Some(_) | None => return Err(refuse(&Told::method_not_found(&asked, peer.version))),
    };
    if params.meta.is_some_and(|meta| !meta.is_object()) {
        return Err(refuse(&bad("_meta", "expected an object")));
    }
    if let (Bare::Http(http), true) = (&bare, peer.version.has(Feature::MirrorHeaders)) {
        check_name_header(method, &params, &http.heads).map_err(|told| refuse(&told))?;
    }
    let progress = match meta.progress {
        None => None,
        Some(node) => match Id::read(node) {
            Some(token) => Some(token),
            None => return Err(refuse(&bad("_meta.progressToken", "expected a string or an integer"))),
        },
    };
    let what = match open_params(method, &params, peer) {
        Ok(what) => what,
        Err(told) => return Err(refuse(&told)),
    };
    let what = what.own(doc);
    Ok(Opened::Request(Request { id, peer, progress, what }))
}

impl Bare<'_> {
    /// Whether a header says that the message stands alone although its body does not.
    fn header_names_envelope(&self) -> bool {
        match self {
            Self::Http(HttpBare { heads: Heads { version: Head::One(date), .. }, .. }) => {
                Version::parse_bytes(date).is_some_and(|v| v.has(Feature::Envelope))
            }
            Self::Http(_) | Self::Pipe(_) | Self::Batched(_) => false,
        }
    }

    /// `server/discover` exists in the newest era only, so it needs no envelope to tell its era.
    fn is_lone_discover(&self, parts: &Parts<'_>) -> bool {
        !matches!(self, Self::Batched(_)) && parts.method.is_some_and(|m| m.is("server/discover"))
    }

    fn looks_like(&self) -> Version {
        match self {
            Self::Pipe(Some(peer)) | Self::Batched(peer) => peer.version,
            Self::Pipe(None) => Version::UNNAMED,
            Self::Http(http) => http.version().ok().flatten().unwrap_or(Version::UNNAMED),
        }
    }
}

/// A message that carries its own version: everything about it must be in it.
fn open_envelope(meta: &Meta<'_>, method: &str, bare: &Bare<'_>) -> Result<Peer, Told> {
    let malformed = |told: Told| Told { status: 400, ..told };
    if matches!(bare, Bare::Batched(_)) {
        return Err(Told::new(Code::InvalidRequest, 400, "a message with its own version cannot be batched"));
    }
    let Some(named) = meta.version else {
        let at = "_meta.io.modelcontextprotocol/protocolVersion";
        return Err(malformed(bad(at, "missing")));
    };
    let Some(date) = named.str() else {
        let at = "_meta.io.modelcontextprotocol/protocolVersion";
        return Err(malformed(bad(at, "expected a string")));
    };
    if let Bare::Http(http) = bare {
        header("MCP-Protocol-Version", http.heads.version, &date)?;
    }
    let caps = match meta.caps {
        Some(caps) if caps.is_object() => caps,
        Some(_) => {
            let at = "_meta.io.modelcontextprotocol/clientCapabilities";
            return Err(malformed(bad(at, "expected an object")));
        }
        None => {
            let at = "_meta.io.modelcontextprotocol/clientCapabilities";
            return Err(malformed(bad(at, "missing")));
        }
    };
    let version = match Version::parse(&date) {
        Some(version) if version.has(Feature::Envelope) => version,
        _ => return Err(unsupported(&date, Version::NEWEST)),
    };
    if let Bare::Http(http) = bare {
        header("Mcp-Method", http.heads.method, method)?;
    }
    let level = match meta.level {
        None => None,
        Some(node) => match node.str().as_deref().and_then(Level::parse) {
            Some(level) => Some(level),
            None => {
                return Err(malformed(bad("_meta.io.modelcontextprotocol/logLevel", "unknown log level")));
            }
        },
    };
    Ok(Peer { version, caps: read_caps(caps, version), level })
}

fn header(name: &str, head: Head<'_>, body: &str) -> Result<(), Told> {
    mirrors(head, body).map_err(|why| Told::new(Code::HeaderMismatch, 400, format!("header {name} {why}")))
}

/// 2026-07-28, Standard Request Headers: `Mcp-Name` is required where a request names something.
fn check_name_header(method: Method, params: &Params<'_>, heads: &Heads<'_>) -> Result<(), Told> {
    let named = match method.names() {
        Some(Named::Name) => params.name,
        Some(Named::Uri) => params.uri,
        Some(Named::Task) => params.task_id,
        None => return Ok(()),
    };
    match named.and_then(|node| node.str()) {
        Some(body) => header("Mcp-Name", heads.name, &body),
        // The missing parameter is the better thing to complain about.
        None => Ok(()),
    }
}

fn open_answer(
    parts: &Parts<'_>,
    id: Option<&Id>,
    stands_alone: bool,
    bare: Bare<'_>,
) -> Result<Opened, Refusal> {
    let version = bare.looks_like();
    let invalid = |why: &str| Refusal::new(&Told::new(Code::InvalidRequest, 400, why), None, version);
    let answer = match (parts.result, parts.error) {
        (Some(result), None) => Ok(Json::from(result)),
        (None, Some(error)) => {
            Err(error.get("message").and_then(|m| m.str()).unwrap_or_default().into_owned())
        }
        (None, None) => {
            let told = Told::new(Code::InvalidRequest, 400, "neither a request nor a response");
            return Err(Refusal::new(&told, id, version));
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
    if !matches!(bare, Bare::Pipe(_)) {
        bare.peer().map_err(|told| Refusal::new(&told, None, version))?;
    }
    Ok(Opened::Answer { id: parts.id.and_then(|id| id.u64()), answer })
}

fn open_notice(method: &str, params: &Params<'_>) -> Notice {
    match method {
        "notifications/initialized" => Notice::Initialized,
        "notifications/cancelled" => match params.request_id.and_then(Id::read) {
            Some(id) => Notice::Cancelled(id),
            None => Notice::Other,
        },
        _ => Notice::Other,
    }
}

fn bad(at: &str, why: &str) -> Told {
    Told::invalid_params(format!("`params.{at}`: {why}"))
}

/// A [`What`] whose call has not taken the document yet.
enum Sketch {
    Whole(What),
    Call {
        target: Target,
        name: u32,
        arguments: Option<u32>,
        resume: Option<Box<Resume>>,
        task: Option<TaskWish>,
    },
}

impl Sketch {
    fn own(self, doc: Doc) -> What {
        match self {
            Self::Whole(what) => what,
            Self::Call { target, name, arguments, resume, task } => {
                What::Call { call: Call::new(target, doc, name, arguments), resume, task }
            }
        }
    }
}

fn open_params(method: Method, params: &Params<'_>, peer: Peer) -> Result<Sketch, Told> {
    Ok(Sketch::Whole(match method {
        Method::ToolsCall => return open_call(Target::Tool, "name", params.name, params, peer),
        Method::PromptsGet => return open_call(Target::Prompt, "name", params.name, params, peer),
        Method::ResourcesRead => return open_call(Target::Resource, "uri", params.uri, params, peer),
        Method::Complete => return open_completion(params, peer),
        Method::Initialize => {
            let requested = params.text(params.protocol_version, "protocolVersion")?;
            // "If the server supports the requested protocol version, it MUST respond with the same version.
            // Otherwise … another protocol version it supports": the newest that has a handshake.
            let requested = Version::parse(&requested).filter(|v| v.has(Feature::Handshake));
            let requested = requested.unwrap_or(Version::NEWEST_WITH_HANDSHAKE);
            let caps = params.capabilities.map_or(Caps::NONE, |caps| read_caps(caps, requested));
            What::Initialize { requested, caps }
        }
        Method::Ping => What::Ping,
        Method::Discover => What::Discover,
        Method::ToolsList => What::List(List::Tools, params.cursor()?),
        Method::ResourcesList => What::List(List::Resources, params.cursor()?),
        Method::TemplatesList => What::List(List::Templates, params.cursor()?),
        Method::PromptsList => What::List(List::Prompts, params.cursor()?),
        Method::Subscribe => What::Subscribe(params.text(params.uri, "uri")?.into_owned()),
        Method::Unsubscribe => What::Unsubscribe(params.text(params.uri, "uri")?.into_owned()),
        Method::SetLevel => match Level::parse(&params.text(params.level, "level")?) {
            Some(level) => What::SetLevel(level),
            None => return Err(bad("level", "unknown log level")),
        },
        Method::Listen => What::Listen(Filter::read(params.notifications)?),
        Method::TaskGet => What::Task(TaskOp::Get(params.task_id()?)),
        Method::TaskCancel => What::Task(TaskOp::Cancel(params.task_id()?)),
        Method::TaskResult => What::Task(TaskOp::Result(params.task_id()?)),
        Method::TaskList => What::Task(TaskOp::List(params.cursor()?)),
        Method::TaskUpdate => {
            let Some(answers) = params.input_responses else { return Err(bad("inputResponses", "missing")) };
            What::Task(TaskOp::Update(params.task_id()?, read_answers(answers)?))
        }
    }))
}

fn open_call(
    target: Target,
    at: &str,
    name: Option<Node<'_>>,
    params: &Params<'_>,
    peer: Peer,
) -> Result<Sketch, Told> {
    let name = match name {
        Some(name) if name.kind() == Kind::String => name.at(),
        Some(_) => return Err(bad(at, "expected a string")),
        None => return Err(bad(at, "missing")),
    };
    let arguments = match params.arguments {
        None => None,
        // `null` for "no arguments" is what several clients send.
        Some(node) if node.kind() == Kind::Null => None,
        Some(node) if node.is_object() => Some(node.at()),
        Some(_) => return Err(bad("arguments", "expected an object")),
    };
    if target == Target::Prompt
        && let Some(node) = params.arguments
        && let Some((key, _)) = node.members().find(|(_, value)| value.kind() != Kind::String)
    {
        let key = key.str().unwrap_or_default();
        return Err(bad(&format!("arguments.{key}"), "expected a string"));
    }
    let resume = if peer.version.has(Feature::InputRequired) { open_resume(params)? } else { None };
    let task = match params.task {
        Some(task) if peer.version.has(Feature::TaskParameter) && target == Target::Tool => {
            if !task.is_object() {
                return Err(bad("task", "expected an object"));
            }
            Some(TaskWish { ttl_ms: task.get("ttl").map(read_ttl).transpose()? })
        }
        _ => None,
    };
    Ok(Sketch::Call { target, name, arguments, resume, task })
}

/// Any number of milliseconds that can pass; how many there may be is the host's business.
fn read_ttl(ttl: Node<'_>) -> Result<u64, Told> {
    match ttl.raw().parse::<f64>() {
        Ok(ms) if ttl.kind() == Kind::Number && ms >= 0.0 => Ok(ms as u64),
        _ => Err(bad("task.ttl", "expected a number of milliseconds")),
    }
}

fn open_resume(params: &Params<'_>) -> Result<Option<Box<Resume>>, Told> {
    if params.input_responses.is_none() && params.request_state.is_none() {
        return Ok(None);
    }
    let state = match params.request_state {
        None => None,
        Some(node) => match node.str() {
            Some(state) => Some(state.into_owned()),
            None => return Err(bad("requestState", "expected a string")),
        },
    };
    let answers = params.input_responses.map_or(Ok(Vec::new()), read_answers)?;
    Ok(Some(Box::new(Resume { state, answers })))
}

/// Answers to questions, by key. One that is no object answers nothing, so it is left out and asked again.
fn read_answers(node: Node<'_>) -> Result<Vec<(String, Json)>, Told> {
    if !node.is_object() {
        return Err(bad("inputResponses", "expected an object"));
    }
    let answers = node.members().filter(|(_, value)| value.is_object());
    Ok(answers.map(|(key, value)| (key.str().unwrap_or_default().into_owned(), Json::from(value))).collect())
}

fn open_completion(params: &Params<'_>, peer: Peer) -> Result<Sketch, Told> {
    let reference = params.object(params.reference, "ref")?;
    let kind = params.text(reference.get("type"), "ref.type")?;
    let (of, name, at) = match &*kind {
        "ref/prompt" => (CompletionOf::Prompt, reference.get("name"), "ref.name"),
        "ref/resource" => (CompletionOf::Template, reference.get("uri"), "ref.uri"),
        other => return Err(bad("ref.type", &format!("unknown reference `{other}`"))),
    };
    params.text(name, at)?;
    let argument = params.object(params.argument, "argument")?;
    let (key, value) = (argument.get("name"), argument.get("value"));
    params.text(key, "argument.name")?;
    params.text(value, "argument.value")?;
    let context = params.context.filter(|_| peer.version.has(Feature::CompletionContext));
    let context = context.and_then(|c| c.get("arguments")).filter(Node::is_object);
    let (Some(name), Some(key), Some(value)) = (name, key, value) else {
        return Err(bad("ref", "incomplete"));
    };
    let target =
        Target::Completion { of, argument: key.at(), value: value.at(), context: context.map(|c| c.at()) };
    Ok(Sketch::Call { target, name: name.at(), arguments: None, resume: None, task: None })
}

impl<'d> Params<'d> {
    fn text(&self, node: Option<Node<'d>>, at: &str) -> Result<Cow<'d, str>, Told> {
        match node {
            None => Err(bad(at, "missing")),
            Some(node) => node.str().ok_or_else(|| bad(at, "expected a string")),
        }
    }

    fn object(&self, node: Option<Node<'d>>, at: &str) -> Result<Node<'d>, Told> {
        match node {
            None => Err(bad(at, "missing")),
            Some(node) if node.is_object() => Ok(node),
            Some(_) => Err(bad(at, "expected an object")),
        }
    }

    fn task_id(&self) -> Result<String, Told> {
        Ok(self.text(self.task_id, "taskId")?.into_owned())
    }

    fn cursor(&self) -> Result<Option<String>, Told> {
        match self.cursor {
            None => Ok(None),
            // Some clients send `null` for "from the start".
            Some(node) if node.kind() == Kind::Null => Ok(None),
            Some(node) => match node.str() {
                Some(cursor) => Ok(Some(cursor.into_owned())),
                None => Err(bad("cursor", "expected a string")),
            },
        }
    }
}

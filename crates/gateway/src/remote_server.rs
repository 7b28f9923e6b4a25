//! One configured server, and how a call reaches it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use json::{Doc, Json, Node};
use servers::manager::{CallFailure, Manager, ServerCallError};
use spile_core::text::{hex, parse_hex};
use spile_core::{
    Call, CallContext, CallError, CallResult, CallTarget, ClientCapabilities, CompletionRef, EventSink,
    InputRequests, InputResponse, Journal, Outcome, Platform, Principal, TaskSupport, ToolErrorCode,
    WatchFuture,
};
use tokio::time::Instant;
use upstream::ConnectionEvent;
use wire::client::{ClientCall, ClientError, Relay};
use wire::method::Method;
use wire::{Feature, Version};

use crate::connections::{
    CallerConnections, CallerKey, ChangedLists, Link, NoConnection, RunningCalls, WATCH_TIMEOUT,
};
use crate::forwarded_call::{ForwardedCall, Step};
use crate::local_answers::LocalAnswers;
use crate::open_questions::{Answers, OpenQuestions};
use crate::parked::{ParkedCalls, ParkedId};
use crate::questions::input_requests;
use crate::remote_tasks::{RemoteTask, created_task, takes_task_parameter};
use crate::results;
use crate::samplings::SamplingCaller;

pub(crate) struct RemoteServer {
    pub(crate) name: String,
    pub(crate) manager: Arc<Manager>,
    /// Whether its entry wants all callers to use the manager's own connection, whatever the server's version.
    wants_sharing: bool,
    /// It asked something on that connection, where nobody can be asked.
    has_asked: AtomicBool,
    /// It was logged that callers whom nothing tells apart use it.
    has_warned: AtomicBool,
    connections: Arc<CallerConnections>,
    pub(crate) changed_lists: ChangedLists,
    shared_calls: Arc<RunningCalls>,
    parked: Arc<ParkedCalls>,
    pub(crate) local: Arc<LocalAnswers>,
    /// The process ends: what can go on in the next one is not cancelled.
    pub(crate) is_stopping: Arc<AtomicBool>,
}

/// A call, taken out of its request: it may outlive it.
pub(crate) struct CallToForward {
    pub(crate) target: CallTarget,
    name: String,
    method: Method,
    params: Json,
    pub(crate) capabilities: ClientCapabilities,
    key: CallerKey,
    task_support: TaskSupport,
    /// The caller asked for a task in place of the result.
    wants_task: bool,
    principal: Principal,
    address: Option<IpAddr>,
    journal: Journal,
    pub(crate) events: EventSink,
    platform: Arc<dyn Platform>,
}

/// What is kept between two rounds of a call.
pub(crate) enum Memo {
    /// The state of a server of the stateless era, and what it asked.
    RequestState { state: Option<Json>, open: OpenQuestions },
    /// A call that waits here.
    Parked(ParkedId),
    /// The server continues the call as a task.
    Task(RemoteTask),
    /// The call was sent, and this process has not seen its end.
    Started,
}

/// Why a request that may be repeated has no answer.
pub(crate) enum Unanswered {
    /// The server may answer the next one.
    Retryable(Outcome),
    Final(Outcome),
}

/// 2026-07-28: the member of `_meta` in which a client names itself.
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// A server that sends `input_required` and asks its caller nothing is called again, this often.
const EMPTY_ROUNDS_MAX: u32 = 10;

impl CallToForward {
    /// `own_name` is the server's name for the tool or prompt.
    pub(crate) fn new(call: &Call, own_name: &str, task_support: TaskSupport, cx: &CallContext<'_>) -> Self {
        let capabilities = cx.caller.capabilities;
        let declared = match cx.wants_task {
            // Whoever asks for a task accepts one.
            true => capabilities.with(ClientCapabilities::TASKS),
            false => capabilities,
        };
        Self {
            task_support,
            target: call.target,
            name: own_name.to_owned(),
            method: match call.target {
                CallTarget::Tool => Method::ToolsCall,
                CallTarget::Prompt => Method::PromptsGet,
                CallTarget::Resource => Method::ResourcesRead,
                CallTarget::Completion { .. } => Method::Complete,
            },
            params: params(call, own_name),
            capabilities: declared,
            key: CallerKey {
                principal: cx.caller.principal.id().into(),
                session: cx.session,
                client: client_of(call.doc(), cx.session, cx.address, &cx.caller.principal),
                // In the handshake era a client does not declare that it accepts tasks.
                capabilities: ClientCapabilities::TASKS.missing(capabilities).bits(),
            },
            wants_task: cx.wants_task,
            principal: cx.caller.principal.clone(),
            address: cx.address,
            journal: cx.journal.clone(),
            events: cx.events.clone(),
            platform: cx.platform.clone(),
        }
    }

    /// `as_task`: the server runs the tool as a task only, and must be told so.
    fn client_call(&self, relay: Relay, as_task: bool) -> ClientCall {
        let params = match as_task {
            false => self.params.clone(),
            true => with_task(&self.params),
        };
        ClientCall { relay: Some(Box::new(relay)), ..ClientCall::new(self.method, params) }
    }

    pub(crate) fn sampling_caller(&self) -> SamplingCaller {
        SamplingCaller {
            principal: self.principal.clone(),
            address: self.address,
            session: self.key.session,
            call_id: self.journal.known_call_id(),
        }
    }

    pub(crate) fn response(&self, key: &str) -> Option<InputResponse> {
        self.journal.response(key)
    }

    /// The caller's answers to these questions.
    pub(crate) fn responses(&self, keys: &[String]) -> Vec<(String, Json)> {
        let response = |key: &String| {
            let response = self.journal.response(key)?;
            Some((key.clone(), Json::from(response.root())))
        };
        keys.iter().filter_map(response).collect()
    }
}

/// The name of a client counts up to here.
const CLIENT_NAME_CHARS_MAX: usize = 64;

/// What tells the clients of callers without sessions apart: the name that a client gives itself, and where it is, if nobody knows
/// who calls. This keeps what a server remembers for one of them from the others; it protects nobody from a caller who lies.
fn client_of(
    message: &Doc,
    session: Option<[u8; 16]>,
    address: Option<IpAddr>,
    principal: &Principal,
) -> Box<str> {
    if session.is_some() {
        return Box::default();
    }
    let info = || message.root().get("params")?.get("_meta")?.get(CLIENT_INFO);
    let name = info().and_then(|info| info.get("name")?.str());
    let name: String = name.unwrap_or_default().chars().take(CLIENT_NAME_CHARS_MAX).collect();
    match (address, principal) {
        (Some(address), Principal::Anonymous) => format!("{address} {name}").into(),
        (Some(_) | None, _) => name.into(),
    }
}

fn with_task(params: &Json) -> Json {
    let doc = params.to_doc();
    Json::object(|out| {
        for (key, value) in doc.root().members() {
            out.raw(&key.str().unwrap_or_default(), value.raw());
        }
        out.raw("task", "{}");
    })
}

/// The parameters anew: nothing of the caller's message passes that is not named here.
fn params(call: &Call, own_name: &str) -> Json {
    Json::object(|out| {
        match call.target {
            CallTarget::Tool | CallTarget::Prompt => {
                out.str("name", own_name);
                out.maybe_raw("arguments", call.arguments().map(|arguments| arguments.raw()));
            }
            CallTarget::Resource => {
                out.str("uri", own_name);
            }
            CallTarget::Completion { reference, argument_index, value_index, context_index } => {
                let text = |index: u32| call.doc().node(index).str().unwrap_or_default();
                out.object("ref", |out| {
                    match reference {
                        CompletionRef::Prompt => out.str("type", "ref/prompt").str("name", own_name),
                        CompletionRef::ResourceTemplate => {
                            out.str("type", "ref/resource").str("uri", own_name)
                        }
                    };
                });
                out.object("argument", |out| {
                    out.str("name", &text(argument_index)).str("value", &text(value_index));
                });
                if let Some(context) = context_index {
                    out.object("context", |out| {
                        out.raw("arguments", call.doc().node(context).raw());
                    });
                }
            }
        }
        let foreign: Vec<(Node<'_>, Node<'_>)> = foreign_meta(call.doc()).collect();
        if !foreign.is_empty() {
            out.object("_meta", |out| {
                for (key, value) in foreign {
                    out.raw(&key.str().unwrap_or_default(), value.raw());
                }
            });
        }
    })
}

/// `_meta` of the protocol belongs to one hop, and so does a progress token. Other members, such as trace context, pass.
fn foreign_meta(doc: &Doc) -> impl Iterator<Item = (Node<'_>, Node<'_>)> {
    let meta = doc.root().get("params").and_then(|params| params.get("_meta")).filter(Node::is_object);
    meta.into_iter().flat_map(|meta| meta.members()).filter(|(key, _)| {
        let key = key.str().unwrap_or_default();
        key != "progressToken"
            && !key.starts_with("io.modelcontextprotocol/")
            && !key.starts_with("modelcontextprotocol.io/")
    })
}

impl Memo {
    pub(crate) fn encode(&self) -> Json {
        Json::object(|out| {
            match self {
                Self::Parked(id) => out.str("parked", &hex(id)),
                Self::Started => out.bool("started", true),
                Self::Task(RemoteTask { id, open }) => {
                    out.str("task", id);
                    open.write(out);
                    out
                }
                Self::RequestState { state, open } => {
                    out.maybe_raw("state", state.as_ref().map(Json::as_str));
                    open.write(out);
                    out
                }
            };
        })
    }

    /// The host gave us back what we gave it.
    fn decode(memo: &[u8]) -> Option<Self> {
        let doc = Json::parse(std::str::from_utf8(memo).ok()?).ok()?.to_doc();
        let root = doc.root();
        if let Some(id) = root.get("parked").and_then(|id| id.str()) {
            return Some(Self::Parked(parse_hex(id.as_bytes())?));
        }
        if root.get("started").is_some() {
            return Some(Self::Started);
        }
        let open = OpenQuestions::read(root)?;
        if let Some(id) = root.get("task").and_then(|id| id.str()) {
            return Some(Self::Task(RemoteTask { id: id.into_owned(), open }));
        }
        Some(Self::RequestState { state: root.get("state").map(Json::from), open })
    }
}

const UNKNOWN_STATE: &str = "the call no longer waits for this answer; repeat the call without it";

impl RemoteServer {
    pub(crate) fn new(
        name: String,
        manager: Arc<Manager>,
        wants_sharing: bool,
        connections: Arc<CallerConnections>,
        parked: Arc<ParkedCalls>,
        local: Arc<LocalAnswers>,
        is_stopping: Arc<AtomicBool>,
    ) -> Self {
        Self {
            name,
            manager,
            wants_sharing,
            has_asked: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
            connections,
            changed_lists: ChangedLists::default(),
            shared_calls: Arc::default(),
            parked,
            local,
            is_stopping,
        }
    }

    pub(crate) async fn run(self: &Arc<Self>, call: CallToForward) -> Outcome {
        // Where the caller may get a task, a server of the handshake era need not know. Whoever asked for one gets it, also if
        // the server chooses to make none.
        let may_detach = call.task_support != TaskSupport::Forbidden && call.journal.memo().is_none();
        let is_legacy = || self.version().is_some_and(|version| !version.has(Feature::RequestMeta));
        if may_detach && (call.wants_task || is_legacy()) {
            return self.run_detached(call);
        }
        self.run_now(call).await
    }

    pub(crate) async fn run_now(self: &Arc<Self>, call: CallToForward) -> Outcome {
        let memo = match call.journal.memo().map(Memo::decode) {
            None => None,
            Some(Some(memo)) => Some(memo),
            Some(None) => return CallError::InvalidRequestState(UNKNOWN_STATE).into(),
        };
        let (mut state, open) = match memo {
            None => (None, OpenQuestions::default()),
            Some(Memo::RequestState { state, open }) => (state, open),
            Some(Memo::Parked(id)) => return self.resume(id, call).await,
            Some(Memo::Task(task)) => return self.follow_task(call, task),
            Some(Memo::Started) => {
                let reason = "the gateway was restarted during the call, which may have been executed";
                let code = ToolErrorCode::SourceUnavailable;
                return results::unavailable(call.target, code, false, reason.to_owned());
            }
        };
        let mut input_responses = match self.collect_answers(&call, &open).await {
            Ok(responses) => responses,
            Err(outcome) => return outcome,
        };
        for _ in 0..EMPTY_ROUNDS_MAX {
            let relay = Relay {
                capabilities: self.local.capabilities(&self.name, call.capabilities),
                log_level: call.events.log_level(),
                input_responses: std::mem::take(&mut input_responses),
                request_state: state.take(),
            };
            match self.send(&call, &relay).await {
                Sent::Ended(outcome) => return *outcome,
                Sent::Asked(forwarded) => return self.park(*forwarded, &call),
                Sent::Questions(next, requests) => match self.answer_questions(&call, requests).await {
                    Ok(Answers::Complete(responses)) => {
                        state = next;
                        input_responses = responses;
                    }
                    Ok(Answers::Ask(requests, open)) => {
                        let memo = Memo::RequestState { state: next, open }.encode();
                        return Outcome::InputRequired(requests.with_memo(memo.as_str().as_bytes()));
                    }
                    Err(outcome) => return outcome,
                },
                Sent::Task(task) => return self.follow_task(call, task),
            }
        }
        let message = format!("server `{}` asks for the call again and again", self.name);
        results::unavailable(call.target, ToolErrorCode::SourceUnavailable, false, message)
    }

    /// Sends the call, and once more if the server certainly did not run it.
    async fn send(&self, call: &CallToForward, relay: &Relay) -> Sent {
        let failed =
            |error| Sent::Ended(Box::new(results::failed(&self.name, call.target, &call.name, error)));
        let mut link = match self.link(call, None).await {
            Ok(link) => link,
            Err(outcome) => return Sent::Ended(outcome),
        };
        let mut is_repeated = false;
        loop {
            let version = link.connection.protocol_version();
            let as_task = call.task_support == TaskSupport::Required && takes_task_parameter(version);
            let client_call = call.client_call(relay.clone(), as_task);
            let mut forwarded =
                ForwardedCall::start(link.clone(), call.sampling_caller(), client_call, &call.events);
            let error = match forwarded.next_step().await {
                Step::Asked => return Sent::Asked(Box::new(forwarded)),
                Step::Ended(Ok(result)) => return self.ended(result),
                Step::Ended(Err(error)) => error,
            };
            match self.call_failed(call, &link, error).await {
                CallFailure::Final(error) => return failed(error),
                CallFailure::NotSent(error) | CallFailure::TokenRefused(error) if is_repeated => {
                    return failed(error);
                }
                CallFailure::TokenRefused(_) => {}
                CallFailure::NotSent(_) => match self.link(call, Some(&link)).await {
                    Ok(another) => link = another,
                    Err(outcome) => return Sent::Ended(outcome),
                },
            }
            is_repeated = true;
        }
    }

    pub(crate) async fn link(
        &self,
        call: &CallToForward,
        broken: Option<&Arc<Link>>,
    ) -> Result<Arc<Link>, Box<Outcome>> {
        let failed = |error| Box::new(results::failed(&self.name, call.target, &call.name, error));
        let shared = match broken {
            Some(broken) => self.manager.shared_connection(&self.name, Some(&broken.connection)).await,
            None => self.manager.shared_connection(&self.name, None).await,
        };
        let shared = shared.map_err(failed)?;
        if self.is_shared() || shared.protocol_version().has(Feature::RequestMeta) {
            return Ok(Arc::new(Link::new(shared, self.shared_calls.clone())));
        }
        drop(shared);
        self.warn_of_unknown_callers(call);
        let now_ms = call.platform.now_ms();
        let link =
            self.connections.get(&self.local, &self.manager, &self.name, &call.key, broken, now_ms).await;
        let link = link.map_err(|error: NoConnection| {
            Box::new(results::no_connection(&self.name, call.target, &call.name, error))
        })?;
        if let Some(level) = call.events.log_level() {
            link.set_log_level(level);
        }
        Ok(link)
    }

    /// Behind an address of the network there may be several people, and nothing tells them apart.
    fn warn_of_unknown_callers(&self, call: &CallToForward) {
        let is_unknown = call.principal == Principal::Anonymous && call.key.session.is_none();
        let is_remote = call.address.is_some_and(|address| !address.to_canonical().is_loopback());
        if is_unknown && is_remote && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = self.name,
                "callers without a token and without a session, at one address and with one client, share what the server \
                 remembers; use --token-file to tell them apart"
            );
        }
    }

    fn ended(&self, result: Json) -> Sent {
        let doc = result.to_doc();
        if let Some(task) = created_task(doc.root()) {
            return Sent::Task(task);
        }
        if !doc.root().get("resultType").is_some_and(|kind| kind.eq_str("input_required")) {
            return Sent::Ended(Box::new(CallResult::Relayed(result).into()));
        }
        let state = doc.root().get("requestState").map(Json::from);
        let outcome = match input_requests(doc.root()) {
            Ok(requests) => return Sent::Questions(state, requests),
            Err(reason) => {
                let message = format!("server `{}` asks something that cannot be asked: {reason}", self.name);
                results::internal_error(message)
            }
        };
        Sent::Ended(Box::new(outcome))
    }

    pub(crate) fn park(&self, mut forwarded: ForwardedCall, call: &CallToForward) -> Outcome {
        let mut id = ParkedId::default();
        call.platform.fill_random(&mut id);
        let requests = forwarded.input_requests();
        let memo = Memo::Parked(id).encode();
        match self.parked.park(id, &call.key.principal, forwarded, call.platform.now_ms()) {
            Ok(()) => Outcome::InputRequired(requests.with_memo(memo.as_str().as_bytes())),
            Err(max) => {
                let message = format!("{max} calls wait for answers already; answer or cancel one of them");
                results::unavailable(call.target, ToolErrorCode::RateLimited, true, message)
            }
        }
    }

    async fn resume(&self, id: ParkedId, call: CallToForward) -> Outcome {
        let parked = self.parked.take(&id, &call.key.principal, call.platform.now_ms());
        let Some(mut forwarded) = parked else {
            return CallError::InvalidRequestState(UNKNOWN_STATE).into();
        };
        if !forwarded.answer(&call.journal, &call.events) {
            return self.park(forwarded, &call);
        }
        match forwarded.next_step().await {
            Step::Asked => self.park(forwarded, &call),
            Step::Ended(Ok(result)) => CallResult::Relayed(result).into(),
            Step::Ended(Err(error)) => self.failed_for_good(&call, &forwarded, error).await,
        }
    }

    /// Decides what a failed call means for its caller, and for the connection.
    async fn call_failed(&self, call: &CallToForward, link: &Arc<Link>, error: ClientError) -> CallFailure {
        let failure = link.connection.call_failed(error).await;
        if let CallFailure::Final(ServerCallError::Timeout { .. }) = failure {
            self.connections.suspect(&self.name, &call.key, link.clone());
        }
        failure
    }

    /// The outcome of a call that is not sent again.
    pub(crate) async fn failed_for_good(
        &self,
        call: &CallToForward,
        forwarded: &ForwardedCall,
        error: ClientError,
    ) -> Outcome {
        match self.call_failed(call, &forwarded.link, error).await {
            CallFailure::Final(error) | CallFailure::NotSent(error) | CallFailure::TokenRefused(error) => {
                results::failed(&self.name, call.target, &call.name, error)
            }
        }
    }

    /// Whether all callers use one connection although the server is of the handshake era.
    fn is_shared(&self) -> bool {
        self.wants_sharing && self.unshared_reason().is_none()
    }

    /// Why the entry's wish to share one connection is refused; `None` if it is not, or if it has no such wish. What belongs
    /// to one session would reach all callers, or nobody.
    pub(crate) fn unshared_reason(&self) -> Option<&'static str> {
        if !self.wants_sharing || self.version().is_some_and(|version| version.has(Feature::RequestMeta)) {
            return None;
        }
        if self.has_asked.load(Ordering::Relaxed) {
            return Some("`shared` is ignored: the server asks its callers questions");
        }
        let (_, info) = self.manager.offer(&self.name)?;
        let capabilities = info?.capabilities.to_doc();
        let subscribe = capabilities.root().get("resources").and_then(|one| one.get("subscribe"));
        let has_subscriptions = subscribe.and_then(|one| one.bool()).unwrap_or(false);
        has_subscriptions
            .then_some("`shared` is ignored: the server has subscriptions, which belong to one session")
    }

    /// The server asks on the connection that callers share.
    pub(crate) fn on_shared_question(&self) {
        if self.wants_sharing && !self.has_asked.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = self.name,
                "`shared` is ignored from now on: the server asks its callers questions"
            );
        }
    }

    /// The protocol version of the last connection.
    fn version(&self) -> Option<Version> {
        Some(self.manager.offer(&self.name)?.1?.protocol_version)
    }

    /// Somebody watches a resource. Servers differ in whom they tell: every session that subscribed, or the one that caused
    /// the change.
    pub(crate) fn watch(&self, uri: &str) {
        self.manager.watch_resource(&self.name, uri);
        self.connections.watch(&self.name, uri);
    }

    /// Ends when every connection of ours is told of changes, or its server did not answer for some seconds.
    pub(crate) fn watching(&self, uri: &str) -> WatchFuture {
        let (manager, connections) = (self.manager.clone(), self.connections.clone());
        let (server, uri) = (self.name.clone(), uri.to_owned());
        let deadline = Instant::now() + WATCH_TIMEOUT;
        Box::pin(async move {
            let answered = async {
                tokio::join!(manager.wait_watching(&server, &uri), connections.wait_watching(&server, &uri))
            };
            let _ = tokio::time::timeout_at(deadline, answered).await;
        })
    }

    pub(crate) fn unwatch(&self, uri: &str) {
        self.manager.unwatch_resource(&self.name, uri);
        self.connections.unwatch(&self.name, uri);
    }

    /// A client says that its roots have changed. Servers whose entries declare roots have others.
    pub(crate) fn client_roots_changed(&self, principal: &str, session: Option<[u8; 16]>) {
        if !self.manager.declares_roots(&self.name) {
            self.connections.caller_roots_changed(&self.name, principal, session);
        }
    }

    /// An event of the connection that callers share.
    pub(crate) fn on_shared_event(&self, event: &ConnectionEvent) {
        self.shared_calls.log_for_any_caller(event);
    }
}

/// What became of a call that was sent.
enum Sent {
    Ended(Box<Outcome>),
    /// A server of the handshake era asks, and waits.
    Asked(Box<ForwardedCall>),
    /// A server of the stateless era wants the call again, with this state and the answers to these questions. There may be
    /// none.
    Questions(Option<Json>, InputRequests),
    /// The server continues it as a task.
    Task(RemoteTask),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use json::Json;
    use spile_core::Principal;

    use super::{CLIENT_INFO, client_of, foreign_meta};

    #[test]
    fn trace_context_passes_and_what_belongs_to_one_hop_does_not() {
        for (meta, expected) in [
            (r#"{"progressToken":7}"#, ""),
            (
                r#"{"progressToken":"t","traceparent":"00-1","tracestate":"a=1","baggage":"b"}"#,
                "traceparent tracestate baggage",
            ),
            (
                r#"{"io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/protocolVersion":"x"}"#,
                "",
            ),
            (r#"{"io.modelcontextprotocol/relatedTask":{"taskId":"1"},"modelcontextprotocol.io/x":1}"#, ""),
            (
                r#"{"io.modelcontextprotocol/logLevel":"debug","io.modelcontextprotocol/subscriptionId":1}"#,
                "",
            ),
            (r#"{"\u0070rogressToken":7,"\u0069o.modelcontextprotocol/clientInfo":{}}"#, ""),
            (r#"{"com.example/tenant":"a","":1}"#, "com.example/tenant "),
            ("[]", ""),
            ("7", ""),
        ] {
            let message = Json::parse(&format!(r#"{{"params":{{"_meta":{meta}}}}}"#)).expect("JSON").to_doc();
            let keys = foreign_meta(&message).map(|(key, _)| key.str().unwrap_or_default().into_owned());
            assert_eq!(keys.collect::<Vec<_>>().join(" "), expected, "{meta}");
        }
        assert_eq!(foreign_meta(&Json::object(|_| {}).to_doc()).count(), 0);
    }

    #[test]
    fn clients_without_sessions_are_told_apart_by_their_name_and_anonymous_ones_by_their_address() {
        let named = Principal::local("ada").expect("a name");
        let client = |name: Option<&str>, session, address: Option<&str>, principal: &Principal| {
            let message = Json::object(|out| {
                out.object("params", |out| {
                    out.object("_meta", |out| {
                        out.object(CLIENT_INFO, |out| {
                            out.maybe_str("name", name);
                        });
                    });
                });
            });
            let address = address.map(|address| address.parse().expect("an address"));
            client_of(&message.to_doc(), session, address, principal)
        };
        let anonymous = Principal::Anonymous;
        let (here, there) = (Some("127.0.0.1"), Some("192.0.2.1"));
        let all: BTreeSet<_> = [
            client(Some("a"), None, here, &anonymous),
            client(Some("b"), None, here, &anonymous),
            client(None, None, here, &anonymous),
            client(Some("a"), None, there, &anonymous),
            client(Some("a"), None, None, &anonymous),
            client(None, None, None, &anonymous),
        ]
        .into();
        assert_eq!(all.len(), 6);
        // A session tells more than all of this.
        let session = Some([7; 16]);
        assert_eq!(
            client(Some("a"), session, here, &anonymous),
            client(Some("b"), session, there, &anonymous)
        );
        // Somebody with a name may be anywhere.
        assert_eq!(client(Some("a"), None, here, &named), client(Some("a"), None, there, &named));
        assert_ne!(client(Some("a"), None, here, &named), client(Some("b"), None, here, &named));
        let long = "x".repeat(1000);
        assert!(client(Some(&long), None, here, &anonymous).len() < 100);
    }
}

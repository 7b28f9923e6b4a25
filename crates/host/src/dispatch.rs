//! From a request to an answer or to a call under way.
//!
//! Everything that is at hand is answered here: handshakes, lists, subscriptions, tasks. Only a call goes on,
//! along [`path`](crate::path).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use json::Json;
use spile_core::{
    Call, CallError, CallResult, CallTarget, Caller, ClientCapabilities, EventFilter, EventSink, Journal,
    Principal,
};
use wire::encode::{self, ReplyTo, TaskSnapshot, TaskStatus};
use wire::error::{ErrorCode, RpcError};
use wire::method::Method;
use wire::{
    Batch, Decoded, ErrorResponse, Feature, HeaderField, ListKind, Notification, NotificationFilter, Peer,
    Request, RequestKind, Resume, TaskMetadata, TaskRequest,
};

use crate::connection_state::{AdmissionError, ConnectionState, ReplyChannel};
use crate::in_flight::{BatchInFlight, InFlight, PendingResponse, SubscriptionStream};
use crate::input_requests;
use crate::observer::CallObservation;
use crate::pipeline::{self, CallJob, CallResponse};
use crate::registry::Registry;
use crate::server::{CallerIdentity, Server};
use crate::subscriptions::Subscription;
use crate::tasks::{Task, TaskOwner};

/// What became of a request as soon as it was read.
pub enum Dispatched {
    /// The answer is at hand.
    Ready {
        status: u16,
        body: Vec<u8>,
        retry_after_ms: Option<u64>,
    },
    /// A handshake over HTTP: the answer, and the session id that goes with it.
    Initialized {
        body: Vec<u8>,
        session: String,
    },
    Call(InFlight),
    Subscription(SubscriptionStream),
}

impl Server {
    /// Whether the `Mcp-Param-*` headers of a call say what its arguments say.
    pub fn check_header_params<'h>(
        &self,
        request: &Request,
        head: impl Fn(&str) -> HeaderField<'h>,
    ) -> Result<(), ErrorResponse> {
        let RequestKind::Call { call, .. } = &request.kind else { return Ok(()) };
        if call.target != CallTarget::Tool || !request.peer.version.has(Feature::MirrorHeaders) {
            return Ok(());
        }
        self.with_registry(|registry| {
            if !registry.has_header_params {
                return Ok(());
            }
            let Some(tool) = registry.tool(&call.name()) else { return Ok(()) };
            for mirrored in &tool.header_params {
                let argument = mirrored.find(call.arguments());
                if let Err(why) = wire::headers::check_matches_argument(head(&mirrored.header), argument) {
                    let told = RpcError::new(
                        ErrorCode::HeaderMismatch,
                        400,
                        format!("header {} {why}", mirrored.header),
                    );
                    return Err(ErrorResponse::new(&told, Some(&request.id), request.peer.version));
                }
            }
            Ok(())
        })
    }

    /// Answers a request, or starts to.
    pub fn dispatch(
        self: &Arc<Self>,
        request: Request,
        who: &CallerIdentity,
        line: ReplyChannel,
    ) -> Dispatched {
        let Request { id, peer, progress_token: progress, kind: what } = request;
        let to = ReplyTo { version: peer.version, id, progress_token: progress };
        let registry = self.registry();
        match what {
            RequestKind::Call { call, resume, task } => self.dispatch_call(
                registry,
                CallRequest { call, resume, task_metadata: task },
                peer,
                to,
                who,
                line,
            ),
            RequestKind::List(list, cursor) => {
                self.dispatch_list(&registry, list, cursor.as_deref(), &to, who)
            }
            RequestKind::Ping => empty_response(&registry, &to),
            RequestKind::Discover => {
                let mut body = Vec::with_capacity(512);
                encode::discover(
                    &mut body,
                    &to,
                    &registry.server_info,
                    &registry.capabilities,
                    is_cacheable_publicly(who),
                );
                ok_response(body)
            }
            RequestKind::Initialize { requested_version: requested, capabilities: caps } => {
                self.initialize(&registry, requested, caps, to, who, &line)
            }
            RequestKind::Subscribe(uri) => self.with_connection_state(&registry, &to, who, &line, |live| {
                live.subscription.subscribe(
                    uri,
                    self.limits.subscriptions_per_peer_max,
                    self.limits.subscription_bytes_max,
                )
            }),
            RequestKind::Unsubscribe(uri) => self.with_connection_state(&registry, &to, who, &line, |live| {
                live.subscription.unsubscribe(&uri);
                true
            }),
            RequestKind::SetLevel(level) => self.with_connection_state(&registry, &to, who, &line, |live| {
                live.set_level(level);
                true
            }),
            RequestKind::Listen(filter) => self.dispatch_listen(&registry, filter, peer, to, who, &line),
            RequestKind::Task(op) => self.dispatch_task(registry, op, peer, to, who, line),
        }
    }

    /// Begins everything in a batch; `None` if nothing in it wants an answer.
    pub fn dispatch_batch(
        self: &Arc<Self>,
        batch: Batch,
        who: &CallerIdentity,
        line: &ReplyChannel,
    ) -> Option<PendingResponse> {
        let live = self.existing_connection_state(line);
        let mut several = BatchInFlight::new(batch.version);
        for item in batch.items {
            match item {
                Decoded::Request(request) if several.contains(&request.id) => {
                    several.push_response(id_in_use_error().to_response(Some(&request.id), batch.version));
                }
                Decoded::Request(request) => match self.dispatch(request, who, line.clone()) {
                    Dispatched::Ready { body, .. } | Dispatched::Initialized { body, .. } => {
                        several.push_response(body)
                    }
                    Dispatched::Call(serving) => several.push_pending(serving),
                    // No version has both batches and subscriptions of this kind.
                    Dispatched::Subscription(_) => {}
                },
                Decoded::Rejected(refusal) => several.push_response(refusal.body),
                Decoded::Notification(Notification::Cancelled(id)) => {
                    if let Some(live) = &live {
                        live.cancel(&id);
                    }
                }
                Decoded::Response { id, result: answer } => {
                    if let Some(live) = &live {
                        live.deliver_response(id, answer);
                    }
                }
                Decoded::Notification(Notification::Initialized | Notification::Other)
                | Decoded::Batch(_) => {}
            }
        }
        (!several.is_empty()).then_some(PendingResponse::Batch(several))
    }

    fn initialize(
        &self,
        registry: &Registry,
        requested: wire::Version,
        caps: ClientCapabilities,
        to: ReplyTo,
        who: &CallerIdentity,
        line: &ReplyChannel,
    ) -> Dispatched {
        let peer = Peer::negotiated(requested, caps);
        let mut body = Vec::with_capacity(512);
        encode::initialize(
            &mut body,
            &ReplyTo { version: requested, ..to },
            &registry.server_info,
            &registry.capabilities,
        );
        match line {
            ReplyChannel::Pipe(live) => {
                live.set_peer(peer);
                ok_response(body)
            }
            ReplyChannel::Stateless | ReplyChannel::Session(_) => {
                let session = self.sessions.issue(&self.sealer, peer, &who.principal, &*self.platform);
                Dispatched::Initialized { body, session }
            }
        }
    }

    fn dispatch_list(
        &self,
        registry: &Registry,
        list: ListKind,
        cursor: Option<&str>,
        to: &ReplyTo,
        who: &CallerIdentity,
    ) -> Dispatched {
        let Some(members) = registry.page(list, to.version, cursor) else {
            return error_response(
                &RpcError::invalid_params("`params.cursor`: unknown cursor; start again without one"),
                to,
            );
        };
        let mut body = Vec::with_capacity(members.len() + 256);
        encode::list_page(
            &mut body,
            to,
            &registry.server_info,
            members,
            LIST_TTL_MS,
            is_cacheable_publicly(who),
        );
        ok_response(body)
    }

    /// What is open on the line that a request came by.
    fn existing_connection_state(&self, line: &ReplyChannel) -> Option<Arc<ConnectionState>> {
        match line {
            ReplyChannel::Stateless => None,
            ReplyChannel::Pipe(live) => Some(live.clone()),
            ReplyChannel::Session(ticket) => self.session_state(ticket),
        }
    }

    /// Why a request that takes its time cannot be taken in now.
    fn check_admission(&self, live: &ConnectionState, to: &ReplyTo) -> Option<Dispatched> {
        match live.check_admission(&to.id, self.limits.calls_per_peer_max) {
            Ok(()) => None,
            Err(AdmissionError::IdInUse) => Some(error_response(&id_in_use_error(), to)),
            Err(AdmissionError::TooManyCalls) => {
                Some(busy_response(429, to, "too many calls of this client under way"))
            }
        }
    }

    fn dispatch_call(
        self: &Arc<Self>,
        registry: Arc<Registry>,
        asking: CallRequest,
        peer: Peer,
        to: ReplyTo,
        who: &CallerIdentity,
        line: ReplyChannel,
    ) -> Dispatched {
        let CallRequest { call, resume, task_metadata: task } = asking;
        if self.counters.calls_active.load(Ordering::Relaxed) >= self.limits.calls_max {
            return busy_response(503, &to, "too many calls under way; try again shortly");
        }
        let live = self.existing_connection_state(&line);
        let mut level = peer.log_level;
        if let Some(live) = &live {
            if let Some(refusal) = self.check_admission(live, &to) {
                return refusal;
            }
            if peer.version.has(Feature::SetLevel) {
                level = live.level().or(level);
            }
        }
        let journal = match resume {
            None => Journal::default(),
            Some(resume) => {
                match input_requests::resume_journal(self, &registry, &who.principal, &call, *resume) {
                    Ok(journal) => journal,
                    Err(fault) => return error_response(&RpcError::from_call_error(&fault, to.version), &to),
                }
            }
        };
        let wanted = EventFilter { progress: to.progress_token.is_some(), log_level: level };
        // A question needs a client that takes some, and a pause a stream that can be taken up again.
        let answers =
            peer.capabilities != ClientCapabilities::NONE || matches!(line, ReplyChannel::Session(_));
        let can_be_asked = peer.version.has(Feature::ServerRequests) && answers;
        let hears = wanted.progress || wanted.log_level.is_some() || can_be_asked;
        let emit = if hears { EventSink::new(wanted) } else { EventSink::disabled() };
        let caller = Caller { principal: who.principal.clone(), capabilities: peer.capabilities };
        let job = CallJob {
            call,
            peer,
            caller,
            identity: who.clone(),
            reply_channel: line,
            events: emit.clone(),
            journal,
            task_metadata: task,
        };
        let observed = CallObservation::new(self, &job.call, who);
        let work = Box::pin(pipeline::execute_call(self.clone(), registry.clone(), job));
        Dispatched::Call(InFlight::new(self.clone(), registry, to, emit, work, observed))
    }

    /// Does something to what a client of the handshake era has open, and answers with an empty result.
    fn with_connection_state(
        &self,
        registry: &Registry,
        to: &ReplyTo,
        who: &CallerIdentity,
        line: &ReplyChannel,
        act: impl FnOnce(&ConnectionState) -> bool,
    ) -> Dispatched {
        let live = match line {
            // Nothing is kept for a request that stands alone: it is accepted, and there is no effect.
            ReplyChannel::Stateless => return empty_response(registry, to),
            ReplyChannel::Pipe(live) => live.clone(),
            ReplyChannel::Session(ticket) => match self.ensure_session_state(ticket, who) {
                Ok(live) => live,
                Err(_) => {
                    return busy_response(429, to, "too many sessions hold something; end one with DELETE");
                }
            },
        };
        if act(&live) {
            empty_response(registry, to)
        } else {
            busy_response(429, to, "too many subscriptions in this session; drop some first")
        }
    }

    fn dispatch_listen(
        self: &Arc<Self>,
        registry: &Registry,
        wanted: NotificationFilter,
        peer: Peer,
        to: ReplyTo,
        who: &CallerIdentity,
        line: &ReplyChannel,
    ) -> Dispatched {
        if let Some(refusal) =
            self.existing_connection_state(line).and_then(|live| self.check_admission(&live, &to))
        {
            return refusal;
        }
        if !wanted.task_ids.is_empty() && !peer.capabilities.has(ClientCapabilities::TASKS) {
            return error_response(
                &RpcError::from_call_error(
                    &CallError::MissingCapability(ClientCapabilities::TASKS),
                    to.version,
                ),
                &to,
            );
        }
        let named = || wanted.resource_uris.iter().chain(&wanted.task_ids);
        let bytes: usize = named().map(String::len).sum();
        if named().count() > self.limits.subscriptions_per_peer_max
            || bytes > self.limits.subscription_bytes_max
        {
            return error_response(
                &RpcError::invalid_params("`params.notifications`: too many subscriptions in one"),
                &to,
            );
        }
        if self.counters.subscriptions.load(Ordering::Relaxed) >= self.limits.streams_max {
            return busy_response(503, &to, "too many subscriptions are open; try again later");
        }
        let offer = &registry.capabilities;
        let now_ms = self.platform.now_ms();
        let holder = TaskOwner::new(&who.principal, line);
        let granted = NotificationFilter {
            tools_list_changed: wanted.tools_list_changed && offer.tools && offer.list_changed,
            prompts_list_changed: wanted.prompts_list_changed && offer.prompts && offer.list_changed,
            resources_list_changed: wanted.resources_list_changed && offer.resources && offer.list_changed,
            resource_uris: if offer.resource_subscriptions { wanted.resource_uris } else { Vec::new() },
            task_ids: wanted
                .task_ids
                .into_iter()
                .filter(|id| self.tasks.find(id, &holder, now_ms).is_ok())
                .collect(),
        };
        let watch = Arc::new(Subscription::new(&granted));
        self.subscriptions.add(&watch);
        let first = encode::subscription_acknowledged(&to.id, &granted);
        Dispatched::Subscription(SubscriptionStream::new(self.clone(), to, watch, first))
    }

    fn dispatch_task(
        self: &Arc<Self>,
        registry: Arc<Registry>,
        op: TaskRequest,
        peer: Peer,
        to: ReplyTo,
        who: &CallerIdentity,
        line: ReplyChannel,
    ) -> Dispatched {
        let declares = peer.version.has(Feature::TaskExtension);
        if declares && !peer.capabilities.has(ClientCapabilities::TASKS) {
            return error_response(
                &RpcError::from_call_error(
                    &CallError::MissingCapability(ClientCapabilities::TASKS),
                    to.version,
                ),
                &to,
            );
        }
        let now_ms = self.platform.now_ms();
        let id = match &op {
            TaskRequest::Get(id)
            | TaskRequest::Update(id, _)
            | TaskRequest::Cancel(id)
            | TaskRequest::Result(id) => id,
            TaskRequest::List(cursor) => {
                return self.list_tasks(&registry, cursor.as_deref(), &to, who, &line);
            }
        };
        let task = match self.tasks.find(id, &TaskOwner::new(&who.principal, &line), now_ms) {
            Ok(task) => task,
            Err(fault) => return error_response(&RpcError::from_call_error(&fault, to.version), &to),
        };
        match op {
            TaskRequest::Get(_) => task_response(&registry, &task.view(), &to),
            TaskRequest::Update(_, answers) => {
                task.provide_input(self, answers);
                empty_response(&registry, &to)
            }
            TaskRequest::Cancel(_) if declares => {
                task.cancel(self);
                empty_response(&registry, &to)
            }
            // 2025-11-25, tasks/cancel: a task that is over MUST be refused; the answer is the task.
            TaskRequest::Cancel(_) => match task.view().status {
                TaskStatus::Working | TaskStatus::InputRequired(_) => {
                    task.cancel(self);
                    task_response(&registry, &task.view(), &to)
                }
                TaskStatus::Completed(_) | TaskStatus::Failed(_) | TaskStatus::Cancelled => {
                    error_response(&RpcError::invalid_params("the task is over already"), &to)
                }
            },
            TaskRequest::Result(_) => {
                let emit = EventSink::new(EventFilter::default());
                let live = match &line {
                    ReplyChannel::Stateless => None,
                    ReplyChannel::Pipe(live) => Some(live.clone()),
                    ReplyChannel::Session(ticket) => self.ensure_session_state(ticket, who).ok(),
                };
                if let Some(refusal) = live.as_ref().and_then(|live| self.check_admission(live, &to)) {
                    return refusal;
                }
                let work = await_task_result(self.clone(), task, live, emit.clone());
                Dispatched::Call(InFlight::new(self.clone(), registry, to, emit, Box::pin(work), None))
            }
            TaskRequest::List(_) => empty_response(&registry, &to),
        }
    }

    fn list_tasks(
        &self,
        registry: &Registry,
        cursor: Option<&str>,
        to: &ReplyTo,
        who: &CallerIdentity,
        line: &ReplyChannel,
    ) -> Dispatched {
        let holder = TaskOwner::new(&who.principal, line);
        // 2025-11-25, Task Isolation: whoever cannot be told from others MUST NOT be shown a list.
        if let (TaskOwner::Bearer, ReplyChannel::Stateless) = (&holder, line) {
            return error_response(&RpcError::method_not_found(Method::TaskList.as_str(), to.version), to);
        }
        let tasks = self.tasks.list_for(&holder, self.platform.now_ms());
        let from = match cursor {
            None | Some("") => 0,
            Some(last) => match tasks.iter().position(|task| task.id == last) {
                Some(at) => at + 1,
                None => {
                    return error_response(&RpcError::invalid_params("`params.cursor`: unknown cursor"), to);
                }
            },
        };
        let until = (from + self.limits.page_items_max).min(tasks.len());
        let next = (until < tasks.len()).then(|| tasks[until - 1].id.clone());
        let mut body = Vec::with_capacity(256);
        encode::task_list(&mut body, to, &registry.server_info, &tasks[from..until], next.as_deref());
        ok_response(body)
    }
}

fn task_response(registry: &Registry, task: &TaskSnapshot, to: &ReplyTo) -> Dispatched {
    let mut body = Vec::with_capacity(512);
    task.write_response(&mut body, to, &registry.server_info);
    ok_response(body)
}

fn empty_response(registry: &Registry, to: &ReplyTo) -> Dispatched {
    let mut body = Vec::with_capacity(192);
    encode::empty_result(&mut body, to, &registry.server_info);
    ok_response(body)
}

/// Tool lists change with a restart or a reload, and a change is announced.
const LIST_TTL_MS: u64 = 60_000;

struct CallRequest {
    call: Call,
    resume: Option<Box<Resume>>,
    task_metadata: Option<TaskMetadata>,
}

/// Waits for the result of a task of 2025-11-25; its questions reach the client while it waits.
async fn await_task_result(
    server: Arc<Server>,
    task: Arc<Task>,
    live: Option<Arc<ConnectionState>>,
    emit: EventSink,
) -> Result<CallResponse, CallError> {
    let view = match live {
        Some(live) => task.wait_until_done_relaying_input(&server, &live, &emit).await,
        None => task.wait_until_done().await,
    };
    match view.status {
        TaskStatus::Completed(CallResult::Tool(mut reply)) => {
            let own = reply.meta.take();
            reply.meta = Some(Json::object(|meta| {
                for (key, value) in own.as_ref().map(Json::to_doc).iter().flat_map(|doc| doc.root().members())
                {
                    meta.raw(&key.str().unwrap_or_default(), value.raw());
                }
                encode::write_related_task(meta, &view.id);
            }));
            Ok(CallResponse::Result(CallResult::Tool(reply)))
        }
        TaskStatus::Completed(reply) => Ok(CallResponse::Result(reply)),
        TaskStatus::Failed(fault) => Err(fault),
        TaskStatus::Working | TaskStatus::InputRequired(_) | TaskStatus::Cancelled => {
            Err(CallError::Cancelled)
        }
    }
}

fn id_in_use_error() -> RpcError {
    RpcError::new(ErrorCode::InvalidRequest, 200, "`id`: in use by a request under way")
}

fn ok_response(body: Vec<u8>) -> Dispatched {
    Dispatched::Ready { status: 200, body, retry_after_ms: None }
}

fn error_response(told: &RpcError, to: &ReplyTo) -> Dispatched {
    Dispatched::Ready {
        status: told.http_status,
        body: told.to_response(Some(&to.id), to.version),
        retry_after_ms: None,
    }
}

fn busy_response(status: u16, to: &ReplyTo, why: &str) -> Dispatched {
    let told = RpcError::busy(status, BUSY_RETRY_MS, why);
    let body = told.to_response(Some(&to.id), to.version);
    Dispatched::Ready { status, body, retry_after_ms: Some(BUSY_RETRY_MS) }
}

const BUSY_RETRY_MS: u64 = 1000;

/// What everybody reads alike may be cached for everybody; behind a token it may not.
fn is_cacheable_publicly(who: &CallerIdentity) -> bool {
    who.principal == Principal::Anonymous
}

//! Dispatches a decoded request: answers it at once, or starts a call.
//!
//! Handshakes, lists, subscriptions and task requests are answered here. Only a call goes on to the
//! [`pipeline`](crate::pipeline).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use spile_core::{
    Call, CallError, CallTarget, Caller, CatalogView, ClientCapabilities, EventFilter, EventSink, ItemKind,
    Journal, Limits, Principal, Resource,
};
use wire::encode::{self, ReplyTo, TaskAnswer};
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
use crate::pipeline::{self, CallJob, CallResponse, CallStage};
use crate::registry::Registry;
use crate::server::{CallerIdentity, RegistrySnapshot, Server};
use crate::tasks::{
    TaskOwner, answer_stored_task, answer_task, await_task_result, find_for_result, list_tasks, task_state,
};

/// What dispatching a request produced.
pub enum Dispatched {
    /// A complete response.
    Ready {
        status: u16,
        body: Vec<u8>,
        retry_after_ms: Option<u64>,
    },
    /// A handshake over HTTP: the response, and the session id for its header.
    Initialized {
        body: Vec<u8>,
        session: String,
    },
    Call(InFlight),
    Subscription(SubscriptionStream),
}

impl Server {
    /// Checks that the `Mcp-Param-*` headers of a call equal its arguments.
    pub(crate) fn check_header_params<'h>(
        &self,
        registry: &Registry,
        request: &Request,
        header: impl Fn(&str) -> HeaderField<'h>,
    ) -> Result<(), ErrorResponse> {
        let RequestKind::Call { call, .. } = &request.kind else { return Ok(()) };
        if call.target != CallTarget::Tool || !request.peer.version.has(Feature::StandardHeaders) {
            return Ok(());
        }
        if !registry.has_header_params {
            return Ok(());
        }
        let Some(tool) = registry.tool(&call.name()) else { return Ok(()) };
        for mirrored in &tool.compiled.header_params {
            let argument = mirrored.find(call.arguments());
            if let Err(reason) = wire::headers::check_matches_argument(header(&mirrored.header), argument) {
                let error = RpcError::new(
                    ErrorCode::HeaderMismatch,
                    400,
                    format!("header {} {reason}", mirrored.header),
                );
                return Err(ErrorResponse::new(&error, Some(&request.id), request.peer.version));
            }
        }
        Ok(())
    }

    /// Answers a request, or starts the call it asks for.
    pub fn dispatch(
        self: &Arc<Self>,
        request: Request,
        identity: &CallerIdentity,
        reply_channel: ReplyChannel,
        RegistrySnapshot(registry): RegistrySnapshot,
    ) -> Dispatched {
        let registry = registry.of_caller(&identity.principal);
        let Request { id, peer, progress_token, kind } = request;
        let to = ReplyTo { version: peer.version, id, progress_token };
        match kind {
            RequestKind::Call { call, resume, task } => self.dispatch_call(
                registry,
                CallRequest { call, resume, task_metadata: task },
                peer,
                to,
                identity,
                reply_channel,
            ),
            RequestKind::List(list, cursor) => {
                registry.looked_at();
                self.dispatch_list(&registry, list, cursor.as_deref(), &to, identity, peer)
            }
            RequestKind::Ping => empty_response(&registry, &to),
            RequestKind::Discover => {
                registry.looked_at();
                let mut body = Vec::with_capacity(512);
                encode::discover(
                    &mut body,
                    &to,
                    &registry.server_info,
                    &registry.capabilities,
                    is_cacheable_publicly(&registry, identity),
                );
                ok_response(body)
            }
            RequestKind::Initialize { negotiated_version, capabilities } => {
                registry.looked_at();
                self.initialize(&registry, negotiated_version, capabilities, to, identity, &reply_channel)
            }
            // As a resource that does not exist, which may come into being: its changes stay hidden, too.
            RequestKind::Subscribe(uri)
                if registry.withholds(&uri)
                    || !is_visible_resource(self.catalog_view(identity, peer).as_ref(), &uri) =>
            {
                empty_response(&registry, &to)
            }
            RequestKind::Subscribe(uri) => {
                self.dispatch_subscribe(registry, uri, to, identity, &reply_channel)
            }
            RequestKind::Unsubscribe(uri) => {
                self.with_connection_state(&registry, &to, identity, &reply_channel, |connection| {
                    connection.subscription.unsubscribe(&uri);
                    true
                })
            }
            RequestKind::SetLevel(level) => {
                self.with_connection_state(&registry, &to, identity, &reply_channel, |connection| {
                    connection.set_level(level);
                    true
                })
            }
            RequestKind::Listen(filter) => {
                self.dispatch_listen(&registry, filter, peer, to, identity, &reply_channel)
            }
            RequestKind::GetSkill(uri) => self.dispatch_get_skill(&registry, &uri, &to, identity, peer),
            RequestKind::ReadDirectory { uri, cursor } => {
                self.dispatch_read_directory(&registry, &uri, cursor.as_deref(), &to, identity, peer)
            }
            RequestKind::Task(request) => {
                self.dispatch_task(registry, request, peer, to, identity, reply_channel)
            }
        }
    }

    /// Dispatches every item of a batch; `None` if no item needs a response.
    pub fn dispatch_batch(
        self: &Arc<Self>,
        batch: Batch,
        identity: &CallerIdentity,
        reply_channel: &ReplyChannel,
        registry: &RegistrySnapshot,
    ) -> Option<PendingResponse> {
        let connection = self.existing_connection_state(reply_channel);
        let mut batch_in_flight = BatchInFlight::new(batch.version);
        for item in batch.items {
            match item {
                Decoded::Request(request) if batch_in_flight.contains(&request.id) => {
                    batch_in_flight
                        .push_response(id_in_use_error().to_response(Some(&request.id), batch.version));
                }
                Decoded::Request(request) => {
                    match self.dispatch(request, identity, reply_channel.clone(), registry.clone()) {
                        Dispatched::Ready { body, .. } | Dispatched::Initialized { body, .. } => {
                            batch_in_flight.push_response(body)
                        }
                        Dispatched::Call(in_flight) => batch_in_flight.push_pending(in_flight),
                        // No version has both batches and `subscriptions/listen`.
                        Dispatched::Subscription(_) => {}
                    }
                }
                Decoded::Rejected(response) => batch_in_flight.push_response(response.body),
                Decoded::Notification(Notification::Cancelled(id)) => {
                    if let Some(connection) = &connection {
                        connection.cancel(&id);
                    }
                }
                Decoded::Response { id, result: answer } => match (reply_channel, &connection) {
                    (ReplyChannel::Session(ticket), _) => {
                        self.deliver_session_response(ticket, identity, id, answer);
                    }
                    (_, Some(connection)) => connection.deliver_response(id, answer),
                    (_, None) => {}
                },
                Decoded::Notification(Notification::RootsListChanged) => {
                    self.client_roots_changed(identity, reply_channel);
                }
                Decoded::Notification(Notification::Initialized | Notification::Other)
                | Decoded::Batch(_) => {}
            }
        }
        (!batch_in_flight.is_empty()).then_some(PendingResponse::Batch(batch_in_flight))
    }

    fn initialize(
        &self,
        registry: &Registry,
        negotiated_version: wire::Version,
        capabilities: ClientCapabilities,
        to: ReplyTo,
        identity: &CallerIdentity,
        reply_channel: &ReplyChannel,
    ) -> Dispatched {
        let peer = Peer::negotiated(negotiated_version, capabilities);
        let mut body = Vec::with_capacity(512);
        encode::initialize(
            &mut body,
            &ReplyTo { version: negotiated_version, ..to },
            &registry.server_info,
            &registry.capabilities,
        );
        match reply_channel {
            ReplyChannel::Pipe(connection) => {
                connection.set_peer(peer);
                ok_response(body)
            }
            ReplyChannel::NoSession | ReplyChannel::Session(_) => {
                let session = self.sessions.issue(&self.keyring, peer, &identity.principal, &*self.platform);
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
        identity: &CallerIdentity,
        peer: Peer,
    ) -> Dispatched {
        let view = self.catalog_view(identity, peer);
        let page = registry.page(list, to.version, cursor, view.as_ref(), |members| {
            let mut body = Vec::with_capacity(members.len() + 256);
            let is_public = view.is_none() && is_cacheable_publicly(registry, identity);
            encode::list_page(&mut body, to, &registry.server_info, members, LIST_TTL_MS, is_public);
            body
        });
        match page {
            Some(body) => ok_response(body),
            None => error_response(&RpcError::invalid_params(registry.cursor_problem(cursor)), to),
        }
    }

    fn dispatch_get_skill(
        &self,
        registry: &Registry,
        uri: &str,
        to: &ReplyTo,
        identity: &CallerIdentity,
        peer: Peer,
    ) -> Dispatched {
        let view = self.catalog_view(identity, peer);
        let skill = registry.skill(uri).filter(|_| is_visible_resource(view.as_ref(), uri));
        let Some(skill) = skill else {
            return error_response(
                &RpcError::invalid_params("`params.uri`: not the `SKILL.md` of a skill of this server"),
                to,
            );
        };
        let mut body = Vec::with_capacity(1024);
        let is_public = view.is_none() && is_cacheable_publicly(registry, identity);
        encode::skill_response(&mut body, to, &registry.server_info, skill, LIST_TTL_MS, is_public);
        ok_response(body)
    }

    fn dispatch_read_directory(
        &self,
        registry: &Registry,
        uri: &str,
        cursor: Option<&str>,
        to: &ReplyTo,
        identity: &CallerIdentity,
        peer: Peer,
    ) -> Dispatched {
        let view = self.catalog_view(identity, peer);
        let directory = registry.directory(uri).filter(|_| is_visible_resource(view.as_ref(), uri));
        let Some(directory) = directory else {
            return error_response(
                &RpcError::invalid_params("`params.uri`: not a directory of this server"),
                to,
            );
        };
        let page = match cursor {
            None | Some("") => Some(0),
            Some(cursor) => registry.parse_cursor(cursor),
        };
        let children =
            directory.children.iter().filter(|child| is_visible_resource(view.as_ref(), &child.uri));
        let children: Vec<&Resource> = children.collect();
        let page_items_max = self.limits.page_items_max.max(1);
        let from = page.and_then(|page| page.checked_mul(page_items_max));
        let Some(from) = from.filter(|from| *from == 0 || *from < children.len()) else {
            return error_response(&RpcError::invalid_params(registry.cursor_problem(cursor)), to);
        };
        let until = (from + page_items_max).min(children.len());
        let next = (until < children.len()).then(|| registry.cursor(until / page_items_max));
        let mut body = Vec::with_capacity(1024);
        let children = children[from..until].iter().copied();
        encode::directory_page(&mut body, to, &registry.server_info, children, next.as_deref());
        ok_response(body)
    }

    /// The part of the catalog that this caller sees; `None` for all of it.
    #[inline]
    fn catalog_view(&self, identity: &CallerIdentity, peer: Peer) -> Option<CatalogView> {
        let policy = self.policy.get()?;
        policy.view(&Caller { principal: identity.principal.clone(), capabilities: peer.capabilities })
    }

    /// The connection state behind a reply channel, if it has any.
    fn existing_connection_state(&self, reply_channel: &ReplyChannel) -> Option<Arc<ConnectionState>> {
        match reply_channel {
            ReplyChannel::NoSession => None,
            ReplyChannel::Pipe(connection) => Some(connection.clone()),
            ReplyChannel::Session(ticket) => self.session_state(ticket),
        }
    }

    /// The response that refuses a call whose id is in use or whose client has too many calls in flight.
    fn check_admission(&self, connection: &ConnectionState, to: &ReplyTo) -> Option<Dispatched> {
        match connection.check_admission(&to.id, self.limits.calls_per_connection_max) {
            Ok(()) => None,
            Err(AdmissionError::IdInUse) => Some(error_response(&id_in_use_error(), to)),
            Err(AdmissionError::TooManyCalls) => Some(busy_response(
                429,
                to,
                "too many calls of this client are in progress; wait for one to finish",
            )),
        }
    }

    fn dispatch_call(
        self: &Arc<Self>,
        registry: Arc<Registry>,
        request: CallRequest,
        peer: Peer,
        to: ReplyTo,
        identity: &CallerIdentity,
        reply_channel: ReplyChannel,
    ) -> Dispatched {
        let CallRequest { call, resume, task_metadata: task } = request;
        if self.counters.calls_active.load(Ordering::Relaxed) >= self.limits.calls_max {
            let error = CallError::Busy { retry_after_ms: BUSY_RETRY_MS };
            CallObservation::report_refusal(self, &call, identity, &reply_channel, error);
            return busy_response(503, &to, "too many calls are in progress; try again shortly");
        }
        let connection = self.existing_connection_state(&reply_channel);
        let mut level = peer.log_level;
        if let Some(connection) = &connection {
            if let Some(response) = self.check_admission(connection, &to) {
                let error = CallError::Busy { retry_after_ms: BUSY_RETRY_MS };
                CallObservation::report_refusal(self, &call, identity, &reply_channel, error);
                return response;
            }
            if peer.version.has(Feature::SetLevel) {
                level = connection.level().or(level);
            }
        }
        let (journal, checks) = match resume {
            None => (Journal::default(), None),
            Some(resume) => {
                match input_requests::resume_journal(self, &registry, &identity.principal, &call, *resume) {
                    Ok(resumed) => resumed,
                    Err(error) => {
                        let response = error_response(&RpcError::from_call_error(&error, to.version), &to);
                        CallObservation::report_refusal(self, &call, identity, &reply_channel, error);
                        return response;
                    }
                }
            }
        };
        let filter = EventFilter { progress: to.progress_token.is_some(), log_level: level };
        // Input requests need a client with a capability for them; a pause needs a stream that can be resumed.
        let accepts_requests = peer.capabilities != ClientCapabilities::NONE
            || matches!(reply_channel, ReplyChannel::Session(_));
        let can_be_asked = peer.version.has(Feature::ServerRequests) && accepts_requests;
        let has_listener = filter.progress || filter.log_level.is_some() || can_be_asked;
        let events = if has_listener { EventSink::new(filter) } else { EventSink::disabled() };
        let caller = Caller { principal: identity.principal.clone(), capabilities: peer.capabilities };
        let observation = CallObservation::new(self, &call, identity, &reply_channel, &journal, 0);
        let job = CallJob {
            call,
            replaced_call: None,
            peer,
            caller,
            identity: identity.clone(),
            reply_channel,
            events: events.clone(),
            journal,
            checks,
            task_metadata: task,
            stage: CallStage::Request,
            observation: observation.clone(),
        };
        let future = Box::pin(pipeline::execute_call(self.clone(), registry.clone(), job, None));
        Dispatched::Call(InFlight::new(self.clone(), registry, to, events, future, observation))
    }

    /// Applies `act` to the connection state of a handshake-era client and answers with an empty result.
    fn with_connection_state(
        &self,
        registry: &Registry,
        to: &ReplyTo,
        identity: &CallerIdentity,
        reply_channel: &ReplyChannel,
        act: impl FnOnce(&ConnectionState) -> bool,
    ) -> Dispatched {
        let connection = match reply_channel {
            // A stateless request has no connection state: it succeeds without effect.
            ReplyChannel::NoSession => return empty_response(registry, to),
            ReplyChannel::Pipe(connection) => connection.clone(),
            ReplyChannel::Session(ticket) => match self.ensure_session_state(ticket, identity) {
                Ok(connection) => connection,
                Err(_) => {
                    return busy_response(429, to, "too many open sessions; end one with DELETE");
                }
            },
        };
        if act(&connection) {
            empty_response(registry, to)
        } else {
            busy_response(429, to, "too many subscriptions in this session; unsubscribe from some first")
        }
    }

    fn dispatch_subscribe(
        self: &Arc<Self>,
        registry: Arc<Registry>,
        uri: String,
        to: ReplyTo,
        identity: &CallerIdentity,
        reply_channel: &ReplyChannel,
    ) -> Dispatched {
        let mut watching = None;
        let response = self.with_connection_state(&registry, &to, identity, reply_channel, |connection| {
            let Limits { subscriptions_per_connection_max, subscription_bytes_max, .. } = self.limits;
            let is_subscribed = connection.subscription.subscribe(
                uri.clone(),
                subscriptions_per_connection_max,
                subscription_bytes_max,
            );
            if is_subscribed {
                watching = self.watching(&registry, [&*uri]);
            }
            is_subscribed
        });
        match watching {
            None => response,
            // A client that reads the resource after the response misses no change.
            Some(watching) => self.dispatch_future(registry, to, EventSink::disabled(), async {
                watching.await;
                Ok(CallResponse::TaskAnswer(TaskAnswer::Acknowledged))
            }),
        }
    }

    fn dispatch_listen(
        self: &Arc<Self>,
        registry: &Registry,
        filter: NotificationFilter,
        peer: Peer,
        to: ReplyTo,
        identity: &CallerIdentity,
        reply_channel: &ReplyChannel,
    ) -> Dispatched {
        if let Some(response) = self
            .existing_connection_state(reply_channel)
            .and_then(|connection| self.check_admission(&connection, &to))
        {
            return response;
        }
        if !filter.task_ids.is_empty() && !peer.capabilities.has(ClientCapabilities::TASKS) {
            return error_response(
                &RpcError::from_call_error(
                    &CallError::MissingCapability(ClientCapabilities::TASKS),
                    to.version,
                ),
                &to,
            );
        }
        let named = || filter.resource_uris.iter().chain(&filter.task_ids);
        let bytes: usize = named().map(String::len).sum();
        if named().count() > self.limits.subscriptions_per_connection_max
            || bytes > self.limits.subscription_bytes_max
        {
            return error_response(
                &RpcError::invalid_params(
                    "`params.notifications`: too many URIs and tasks in one subscription",
                ),
                &to,
            );
        }
        if self.counters.subscriptions.load(Ordering::Relaxed) >= self.limits.streams_max {
            return busy_response(503, &to, "too many subscriptions are open; try again later");
        }
        let capabilities = &registry.capabilities;
        let owner = TaskOwner::new(identity, reply_channel);
        let view = self.catalog_view(identity, peer);
        let granted = NotificationFilter {
            tools_list_changed: filter.tools_list_changed && capabilities.tools && capabilities.list_changed,
            prompts_list_changed: filter.prompts_list_changed
                && capabilities.prompts
                && capabilities.list_changed,
            resources_list_changed: filter.resources_list_changed
                && capabilities.resources
                && capabilities.list_changed,
            resource_uris: if capabilities.resource_subscriptions {
                let uris = filter.resource_uris.into_iter();
                uris.filter(|uri| !registry.withholds(uri) && is_visible_resource(view.as_ref(), uri))
                    .collect()
            } else {
                Vec::new()
            },
            task_ids: filter
                .task_ids
                .into_iter()
                .filter(|id| self.tasks.find(self, id, &owner).is_ok())
                .collect(),
        };
        let subscription = self.subscriptions.subscribe(&granted);
        let watching = self.watching(registry, granted.resource_uris.iter().map(String::as_str));
        let first = encode::subscription_acknowledged(&to.id, &granted);
        Dispatched::Subscription(SubscriptionStream::new(self.clone(), to, subscription, first, watching))
    }

    fn dispatch_task(
        self: &Arc<Self>,
        registry: Arc<Registry>,
        request: TaskRequest,
        peer: Peer,
        to: ReplyTo,
        identity: &CallerIdentity,
        reply_channel: ReplyChannel,
    ) -> Dispatched {
        let uses_task_extension = peer.version.has(Feature::TaskExtension);
        if uses_task_extension && !peer.capabilities.has(ClientCapabilities::TASKS) {
            return error_response(
                &RpcError::from_call_error(
                    &CallError::MissingCapability(ClientCapabilities::TASKS),
                    to.version,
                ),
                &to,
            );
        }
        let owner = TaskOwner::new(identity, &reply_channel);
        let id = match &request {
            TaskRequest::Get(id)
            | TaskRequest::Update(id, _)
            | TaskRequest::Cancel(id)
            | TaskRequest::Result(id) => id,
            TaskRequest::List(cursor) => {
                // 2025-11-25, Task Isolation: requestors that cannot be identified MUST NOT get a list.
                if let (TaskOwner::AnyAnonymous(_), ReplyChannel::NoSession) = (&owner, &reply_channel) {
                    let error = RpcError::method_not_found(Method::TaskList.as_str(), to.version);
                    return error_response(&error, &to);
                }
                let listed = list_tasks(self.clone(), owner, cursor.clone());
                return self.dispatch_future(registry, to, EventSink::disabled(), listed);
            }
        };
        let known = self.tasks.find(self, id, &owner);
        if let (TaskRequest::Result(id), true) = (&request, known.is_ok() || !uses_task_extension) {
            let events = EventSink::new(EventFilter::default());
            let connection = match &reply_channel {
                ReplyChannel::NoSession => None,
                ReplyChannel::Pipe(connection) => Some(connection.clone()),
                ReplyChannel::Session(ticket) => self.ensure_session_state(ticket, identity).ok(),
            };
            if let Some(response) =
                connection.as_ref().and_then(|connection| self.check_admission(connection, &to))
            {
                return response;
            }
            let (server, id, own_events) = (self.clone(), id.clone(), events.clone());
            let result = async move {
                let task = match known {
                    Ok(task) => task,
                    Err(_) => find_for_result(&server, &id, &owner).await?,
                };
                await_task_result(server, task, owner, connection, own_events).await
            };
            return self.dispatch_future(registry, to, events, result);
        }
        match known {
            Ok(task) if matches!(request, TaskRequest::Get(_)) => {
                task_response(&registry, &task_state(&task, uses_task_extension), &to)
            }
            Ok(task) => {
                let server = self.clone();
                let answered = async move {
                    let answer = answer_task(&server, &task, request, &owner, uses_task_extension).await?;
                    Ok(CallResponse::TaskAnswer(answer))
                };
                self.dispatch_future(registry, to, EventSink::disabled(), answered)
            }
            Err(_) => {
                let answered = answer_stored_task(self.clone(), request, owner, uses_task_extension);
                self.dispatch_future(registry, to, EventSink::disabled(), answered)
            }
        }
    }

    fn dispatch_future(
        self: &Arc<Self>,
        registry: Arc<Registry>,
        to: ReplyTo,
        events: EventSink,
        future: impl Future<Output = Result<CallResponse, CallError>> + Send + 'static,
    ) -> Dispatched {
        Dispatched::Call(InFlight::new(self.clone(), registry, to, events, Box::pin(future), None))
    }
}

fn task_response(registry: &Registry, answer: &TaskAnswer, to: &ReplyTo) -> Dispatched {
    let mut body = Vec::with_capacity(512);
    let response = encode::CallResponseRef::TaskAnswer(answer);
    encode::call_response(&mut body, to, &registry.server_info, &response);
    ok_response(body)
}

fn empty_response(registry: &Registry, to: &ReplyTo) -> Dispatched {
    let mut body = Vec::with_capacity(192);
    encode::empty_result(&mut body, to, &registry.server_info);
    ok_response(body)
}

/// How long a client may cache a list. A change by restart or reload is announced anyway.
const LIST_TTL_MS: u64 = 60_000;

struct CallRequest {
    call: Call,
    resume: Option<Box<Resume>>,
    task_metadata: Option<TaskMetadata>,
}

fn id_in_use_error() -> RpcError {
    RpcError::new(ErrorCode::InvalidRequest, 200, "`id`: already in use by a request in progress")
}

fn ok_response(body: Vec<u8>) -> Dispatched {
    Dispatched::Ready { status: 200, body, retry_after_ms: None }
}

fn error_response(error: &RpcError, to: &ReplyTo) -> Dispatched {
    Dispatched::Ready {
        status: error.http_status,
        body: error.to_response(Some(&to.id), to.version),
        retry_after_ms: None,
    }
}

fn busy_response(status: u16, to: &ReplyTo, reason: &str) -> Dispatched {
    let error = RpcError::busy(status, BUSY_RETRY_MS, reason);
    let body = error.to_response(Some(&to.id), to.version);
    Dispatched::Ready { status, body, retry_after_ms: Some(BUSY_RETRY_MS) }
}

fn is_visible_resource(view: Option<&CatalogView>, uri: &str) -> bool {
    view.is_none_or(|view| view.visibility.is_visible(ItemKind::Resource, uri))
}

pub(crate) const BUSY_RETRY_MS: u64 = 1000;

/// Shared caches may keep a response only if it needed no token.
fn is_cacheable_publicly(registry: &Registry, identity: &CallerIdentity) -> bool {
    identity.principal == Principal::Anonymous && registry.role.is_none()
}

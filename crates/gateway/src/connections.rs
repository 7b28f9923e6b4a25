//! The connections to servers: which one carries a call.
//!
//! A server of the stateless era learns with each request what the caller can do, so all callers share one connection. In the
//! handshake era that is said once for a connection, and a server may keep state for it: each session of a caller has
//! its own, opened at its first call and closed when it was idle for long.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use json::{Json, Node};
use servers::manager::{CallerConnection, Manager, ServerCallError};
use spile_core::{CatalogChange, ClientCapabilities, EventSink, InputRequest, LogLevel};
use tokio::sync::{Notify, oneshot};
use upstream::{ClientHandler, ConnectionEvent, Progress, Subscription};
use wire::client::{CallId, IncomingInputRequest, InputReply, InputRequestKind};

use crate::local_answers::{Answered, Answerer, LocalAnswers, is_reply_allowed};
use crate::questions::input_request;
use crate::samplings::SamplingCaller;

/// How long a client that subscribes, or the first call of a new connection, waits for the server's answer.
pub(crate) const WATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a call whose server waits for us is marked as alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// How long a question about roots waits for a call that it can be put to. The official SDKs wait no longer for the answer.
const ROOTS_TIMEOUT: Duration = Duration::from_secs(60);

/// How many connections of their own callers may have. Each is a process, where the server is a program.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionPoolLimits {
    /// Of one principal, to all servers together.
    pub per_principal_max: usize,
    /// Of all callers, to all servers together.
    pub total_max: usize,
    /// A connection without a call for this long is closed.
    pub idle_ms: u64,
}

impl Default for ConnectionPoolLimits {
    fn default() -> Self {
        Self { per_principal_max: 128, total_max: 512, idle_ms: 5 * 60_000 }
    }
}

/// Whose connection it is. One session that declares other capabilities is another client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CallerKey {
    pub(crate) principal: Box<str>,
    /// `None` for a caller without sessions: the calls of its client belong together.
    pub(crate) session: Option<[u8; 16]>,
    /// Of a caller without sessions, what tells its clients apart. Empty where there is a session.
    pub(crate) client: Box<str>,
    pub(crate) capabilities: u16,
}

/// A connection, and the calls that run on it.
pub(crate) struct Link {
    pub(crate) connection: CallerConnection,
    pub(crate) calls: Arc<RunningCalls>,
    log_level: Mutex<Option<LogLevel>>,
    /// Resources that somebody watches. Some servers tell only the session that caused a change.
    subscriptions: Mutex<HashMap<String, Arc<LinkSubscription>>>,
}

/// Made once; whoever needs it meanwhile waits. `None`: the server refused.
type LinkSubscription = tokio::sync::OnceCell<Option<Subscription>>;

impl Link {
    pub(crate) fn new(connection: CallerConnection, calls: Arc<RunningCalls>) -> Self {
        Self { connection, calls, log_level: Mutex::new(None), subscriptions: Mutex::default() }
    }

    /// Returns when the server has answered.
    async fn watch(&self, uri: &str) {
        let subscription = self.subscriptions().entry(uri.to_owned()).or_default().clone();
        subscription.get_or_init(|| self.connection.subscribe_to_resource(uri)).await;
    }

    fn unwatch(&self, uri: &str) {
        self.subscriptions().remove(uri);
    }

    fn subscriptions(&self) -> MutexGuard<'_, HashMap<String, Arc<LinkSubscription>>> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only for a connection with one caller: a server of the handshake era has one level for all of its calls. Calls that are
    /// started after this have it.
    pub(crate) fn set_log_level(&self, level: LogLevel) {
        let mut current = self.log_level.lock().unwrap_or_else(PoisonError::into_inner);
        if current.is_none_or(|current| level < current) {
            *current = Some(level);
            self.connection.set_log_level(level);
        }
    }
}

/// The connections of callers to servers of the handshake era.
pub(crate) struct CallerConnections {
    limits: ConnectionPoolLimits,
    slots: Mutex<HashMap<SlotKey, Arc<Slot>>>,
    watched: Mutex<WatchedResources>,
}

/// By server: the URIs that somebody watches, and how often. Bounded by the limits of the server that has the clients.
type WatchedResources = HashMap<Box<str>, BTreeMap<String, usize>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SlotKey {
    server: Box<str>,
    caller: CallerKey,
}

/// Calls that need a connection at the same time wait for the first one to open it.
struct Slot {
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
    /// The same, for those who must not wait: also while its first subscriptions are made.
    open_link: Mutex<Option<Arc<Link>>>,
    last_used_ms: Mutex<u64>,
}

/// Why a caller gets no connection.
pub(crate) enum NoConnection {
    TooMany { max: usize, of: &'static str },
    Server(ServerCallError),
}

impl CallerConnections {
    pub(crate) fn new(limits: ConnectionPoolLimits) -> Self {
        Self { limits, slots: Mutex::default(), watched: Mutex::default() }
    }

    /// The connection of this caller, opened now if it has none. `broken` is one that does not work.
    pub(crate) async fn get(
        &self,
        local: &Arc<LocalAnswers>,
        manager: &Arc<Manager>,
        server: &str,
        key: &CallerKey,
        broken: Option<&Arc<Link>>,
        now_ms: u64,
    ) -> Result<Arc<Link>, NoConnection> {
        let slot = self.slot(SlotKey { server: server.into(), caller: key.clone() }, now_ms)?;
        let mut link = slot.link.lock().await;
        let is_broken = |link: &Arc<Link>| broken.is_some_and(|broken| Arc::ptr_eq(broken, link));
        if let Some(link) = link.as_ref().filter(|link| !is_broken(link)) {
            return Ok(link.clone());
        }
        let calls = Arc::new(RunningCalls::default());
        let handler = Arc::new(CallerHandler {
            server: server.into(),
            calls: calls.clone(),
            manager: Arc::downgrade(manager),
            local: local.clone(),
            capabilities: ClientCapabilities::from_bits(key.capabilities),
        });
        let capabilities = local.capabilities(server, handler.capabilities);
        let opened = manager.open_connection(server, capabilities, handler).await;
        let opened = Arc::new(Link::new(opened.map_err(NoConnection::Server)?, calls));
        // From now on `watch` sees it; what was watched before is in the list.
        slot.set_open_link(opened.clone());
        // Before the call that may change something.
        let subscribed = async {
            for uri in self.watched_uris(server) {
                opened.watch(&uri).await;
            }
        };
        let _ = tokio::time::timeout(WATCH_TIMEOUT, subscribed).await;
        *link = Some(opened.clone());
        Ok(opened)
    }

    /// A call on this connection timed out: it may be the server that hangs, and not the call. Then the caller's next call gets
    /// another connection; it waits until that is known.
    pub(crate) fn suspect(&self, server: &str, key: &CallerKey, link: Arc<Link>) {
        let key = SlotKey { server: server.into(), caller: key.clone() };
        let Some(slot) = self.lock().get(&key).cloned() else { return };
        let (server, runtime) = (key.server, tokio::runtime::Handle::try_current());
        let Ok(runtime) = runtime else { return };
        runtime.spawn(async move {
            let mut current = slot.link.lock().await;
            let is_current = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &link));
            if is_current && link.connection.hangs().await {
                tracing::warn!(
                    server = &*server,
                    "a connection of a caller hangs; its next call gets another one"
                );
                *current = None;
                slot.forget_open_link();
            }
        });
    }

    fn slot(&self, key: SlotKey, now_ms: u64) -> Result<Arc<Slot>, NoConnection> {
        let mut slots = self.lock();
        if let Some(slot) = slots.get(&key) {
            *slot.last_used_ms.lock().unwrap_or_else(PoisonError::into_inner) = now_ms;
            return Ok(slot.clone());
        }
        let ConnectionPoolLimits { per_principal_max, total_max, .. } = self.limits;
        let is_own = |other: &SlotKey| other.caller.principal == key.caller.principal;
        let own = slots.keys().filter(|other| is_own(other)).count();
        if own >= per_principal_max && !remove_oldest(&mut slots, is_own) {
            return Err(NoConnection::TooMany { max: per_principal_max, of: "one caller" });
        }
        if slots.len() >= total_max && !remove_oldest(&mut slots, |_| true) {
            return Err(NoConnection::TooMany { max: total_max, of: "all callers together" });
        }
        let slot = Arc::new(Slot {
            link: tokio::sync::Mutex::default(),
            open_link: Mutex::default(),
            last_used_ms: Mutex::new(now_ms),
        });
        slots.insert(key, slot.clone());
        Ok(slot)
    }

    fn watched_uris(&self, server: &str) -> Vec<String> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.get(server).into_iter().flat_map(|uris| uris.keys().cloned()).collect()
    }

    /// Somebody watches a resource: the server tells every session of ours.
    pub(crate) fn watch(&self, server: &str, uri: &str) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let count = watched.entry(server.into()).or_default().entry(uri.to_owned()).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
        drop(watched);
        for link in self.open_links(server) {
            let uri = uri.to_owned();
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { link.watch(&uri).await });
            }
        }
    }

    /// Waits until the server has answered on every open connection, for a resource that is watched.
    pub(crate) async fn wait_watching(&self, server: &str, uri: &str) {
        for link in self.open_links(server) {
            link.watch(uri).await;
        }
    }

    pub(crate) fn unwatch(&self, server: &str, uri: &str) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(uris) = watched.get_mut(server) else { return };
        match uris.get_mut(uri) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => {
                uris.remove(uri);
                drop(watched);
                self.open_links(server).iter().for_each(|link| link.unwatch(uri));
            }
            None => {}
        }
    }

    fn open_links(&self, server: &str) -> Vec<Arc<Link>> {
        let slots = self.lock();
        let own = slots.iter().filter(|(key, _)| *key.server == *server);
        own.filter_map(|(_, slot)| slot.open_link()).collect()
    }

    /// A client says that its roots have changed: the servers that asked it are told.
    pub(crate) fn caller_roots_changed(&self, server: &str, principal: &str, session: Option<[u8; 16]>) {
        let is_theirs = |key: &SlotKey| {
            *key.server == *server && *key.caller.principal == *principal && key.caller.session == session
        };
        let links: Vec<Arc<Link>> = {
            let slots = self.lock();
            slots.iter().filter(|(key, _)| is_theirs(key)).filter_map(|(_, slot)| slot.open_link()).collect()
        };
        links.iter().for_each(|link| link.connection.roots_changed());
    }

    /// The entry of the server declares other roots.
    pub(crate) fn roots_changed(&self, server: &str) {
        self.open_links(server).iter().for_each(|link| link.connection.roots_changed());
    }

    /// Closes what was idle for long.
    pub(crate) fn close_idle(&self, now_ms: u64) {
        let idle_ms = self.limits.idle_ms;
        self.lock().retain(|_, slot| !slot.is_unused() || slot.idle_ms(now_ms) < idle_ms);
    }

    pub(crate) fn close_all(&self) {
        self.lock().clear();
    }

    /// Calls that run on them go on.
    pub(crate) fn close_server(&self, server: &str) {
        self.lock().retain(|key, _| *key.server != *server);
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SlotKey, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room by closing the connection that was unused for longest. Returns whether there was one.
fn remove_oldest(slots: &mut HashMap<SlotKey, Arc<Slot>>, may_remove: impl Fn(&SlotKey) -> bool) -> bool {
    let unused = slots.iter().filter(|(key, slot)| may_remove(key) && slot.is_unused());
    let oldest = unused.min_by_key(|(_, slot)| slot.last_used_ms()).map(|(key, _)| key.clone());
    oldest.is_some_and(|oldest| slots.remove(&oldest).is_some())
}

impl Slot {
    /// No call runs on it, and none is about to.
    fn is_unused(self: &Arc<Self>) -> bool {
        if Arc::strong_count(self) > 1 {
            return false;
        }
        match self.link.try_lock() {
            Ok(link) => link.as_ref().is_none_or(|link| link.calls.is_empty()),
            Err(_) => false,
        }
    }

    fn open_link(&self) -> Option<Arc<Link>> {
        self.open_link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_open_link(&self, link: Arc<Link>) {
        *self.open_link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link);
    }

    fn forget_open_link(&self) {
        *self.open_link.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn last_used_ms(&self) -> u64 {
        *self.last_used_ms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.last_used_ms())
    }
}

/// Lists that the server says have changed, and that were not read since.
#[derive(Default)]
pub(crate) struct ChangedLists(Mutex<Vec<CatalogChange>>);

impl ChangedLists {
    pub(crate) fn add(&self, change: &CatalogChange) {
        let mut changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !changes.contains(change) {
            changes.push(change.clone());
        }
    }

    pub(crate) fn take(&self) -> Vec<CatalogChange> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The calls that run on a connection.
#[derive(Default)]
pub(crate) struct RunningCalls {
    /// Oldest first.
    calls: Mutex<Vec<Arc<CallInbox>>>,
    /// A call was added.
    added: Notify,
}

/// What arrives for a call while it runs: questions, progress, log messages.
pub(crate) struct CallInbox {
    id: OnceLock<CallId>,
    caller: SamplingCaller,
    content: Mutex<InboxContent>,
    /// Something arrived.
    pub(crate) arrived: Notify,
}

struct InboxContent {
    questions: Vec<Question>,
    questions_total: u32,
    /// The events of the round that runs now.
    events: EventSink,
    /// The server's ids of elicitations by URL that may be completed later, and the URLs. Oldest first.
    elicitations: VecDeque<(String, String)>,
}

/// Of more elicitations by URL in one call, the oldest are forgotten.
const ELICITATIONS_MAX: usize = 64;

/// A question of the server, and where its answer goes.
pub(crate) struct Question {
    pub(crate) key: String,
    pub(crate) request: InputRequest,
    /// Whether the answer decides about something: see [`spile_core::InputRequests::as_consent`].
    pub(crate) is_consent: bool,
    pub(crate) reply: oneshot::Sender<InputReply>,
}

impl CallInbox {
    pub(crate) fn set_id(&self, id: CallId) {
        // Set once, by whoever started the call.
        let _ = self.id.set(id);
    }

    /// A later round of the call has events of its own.
    pub(crate) fn set_events(&self, events: EventSink) {
        self.lock().events = events;
    }

    pub(crate) fn take_questions(&self) -> Vec<Question> {
        std::mem::take(&mut self.lock().questions)
    }

    pub(crate) fn progress(&self, progress: &Progress) {
        let events = self.lock().events.clone();
        events.progress(progress.progress, progress.total, progress.message.as_deref());
        self.arrived.notify_one();
    }

    pub(crate) fn wants_log(&self) -> bool {
        self.lock().events.log_level().is_some()
    }

    fn log(&self, level: LogLevel, logger: Option<&str>, data: &Json) {
        let events = self.lock().events.clone();
        events.log(level, logger, data.clone());
    }

    fn ask(&self, request: InputRequest, is_consent: bool) -> oneshot::Receiver<InputReply> {
        let (reply, answer) = oneshot::channel();
        let mut content = self.lock();
        content.questions_total += 1;
        let key = format!("question_{}", content.questions_total);
        content.questions.push(Question { key, request, is_consent, reply });
        drop(content);
        self.arrived.notify_one();
        answer
    }

    /// The server may say later that what it asks for at this URL is done.
    fn remember_elicitation(&self, params: Node<'_>) {
        let text = |key: &str| Some(params.get(key)?.str()?.into_owned());
        let (Some(id), Some(url)) = (text("elicitationId"), text("url")) else { return };
        let mut content = self.lock();
        if content.elicitations.len() >= ELICITATIONS_MAX {
            content.elicitations.pop_front();
        }
        content.elicitations.push_back((id, url));
    }

    /// Returns whether the call has asked under this id.
    fn complete_elicitation(&self, id: &str) -> bool {
        let mut content = self.lock();
        let asked = content.elicitations.iter().position(|(asked, _)| asked == id);
        let Some((_, url)) = asked.and_then(|at| content.elicitations.remove(at)) else { return false };
        let events = content.events.clone();
        drop(content);
        events.complete_elicitation(&url);
        // The call does not hang: its user is busy with it.
        self.arrived.notify_one();
        true
    }

    /// Waits for work of our own that the server waits for: the call does not hang meanwhile.
    async fn keep_alive<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => self.arrived.notify_one(),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, InboxContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningCalls {
    /// Before the call is sent: the server may ask at once.
    pub(crate) fn add(self: &Arc<Self>, caller: SamplingCaller, events: EventSink) -> Arc<CallInbox> {
        let elicitations = VecDeque::new();
        let content = InboxContent { questions: Vec::new(), questions_total: 0, events, elicitations };
        let (content, arrived) = (Mutex::new(content), Notify::new());
        let inbox = Arc::new(CallInbox { id: OnceLock::new(), caller, content, arrived });
        self.lock().push(inbox.clone());
        self.added.notify_waiters();
        inbox
    }

    pub(crate) fn remove(&self, inbox: &Arc<CallInbox>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, inbox));
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The call with this id. On a pipe a server does not say which call it means: all calls on the connection of one caller
    /// are the caller's, and the newest is the likeliest.
    fn of_one_caller(&self, id: Option<CallId>) -> Option<Arc<CallInbox>> {
        let calls = self.lock();
        let named = id.and_then(|id| calls.iter().find(|call| call.id.get() == Some(&id)));
        named.or_else(|| calls.last()).cloned()
    }

    /// The call that a question about roots is put to: servers ask when they are connected and when roots have changed, and
    /// the next call may be about to start.
    async fn next_of_one_caller(&self, id: Option<CallId>) -> Option<Arc<CallInbox>> {
        let waiting = async {
            loop {
                let added = self.added.notified();
                tokio::pin!(added);
                // From here on no call is missed.
                added.as_mut().enable();
                if let Some(inbox) = self.of_one_caller(id) {
                    return inbox;
                }
                added.await;
            }
        };
        tokio::time::timeout(ROOTS_TIMEOUT, waiting).await.ok()
    }

    /// The call with this id, or the only one: where several callers share a connection, nothing is guessed.
    fn of_any_caller(&self, id: Option<CallId>) -> Option<Arc<CallInbox>> {
        let calls = self.lock();
        match id {
            Some(id) => calls.iter().find(|call| call.id.get() == Some(&id)).cloned(),
            None => calls.first().filter(|_| calls.len() == 1).cloned(),
        }
    }

    /// The server says that what it asked for at a URL is done.
    fn complete_elicitation(&self, id: &str) {
        let calls: Vec<Arc<CallInbox>> = self.lock().clone();
        let _ = calls.iter().any(|call| call.complete_elicitation(id));
    }

    /// Passes a log message of a shared connection on to the call that it belongs to.
    pub(crate) fn log_for_any_caller(&self, event: &ConnectionEvent) {
        if let ConnectionEvent::Log { call, level, logger, data } = event
            && let (Some(inbox), Some(level)) = (self.of_any_caller(*call), LogLevel::parse(level))
        {
            inbox.log(level, logger.as_deref(), data);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<CallInbox>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Our side of a connection that belongs to one caller.
struct CallerHandler {
    server: Box<str>,
    calls: Arc<RunningCalls>,
    manager: Weak<Manager>,
    local: Arc<LocalAnswers>,
    /// Of the caller's client.
    capabilities: ClientCapabilities,
}

/// The caller's answer, if it came.
fn answered(answer: Result<InputReply, oneshot::error::RecvError>) -> InputReply {
    answer.unwrap_or_else(|_| InputReply::Declined("the caller did not answer".to_owned()))
}

impl CallerHandler {
    /// The roots of the entry, or those of the caller's client, whichever of its calls runs.
    fn roots(&self, call: Option<CallId>) -> std::pin::Pin<Box<dyn Future<Output = InputReply> + Send>> {
        if let Answerer::Roots = self.local.answerer(&self.server, self.capabilities, &InputRequest::Roots) {
            return Box::pin(std::future::ready(self.local.roots(&self.server)));
        }
        let calls = self.calls.clone();
        Box::pin(async move {
            match calls.next_of_one_caller(call).await {
                Some(inbox) => answered(inbox.ask(InputRequest::Roots, false).await),
                None => InputReply::Declined("no call is running that could ask".to_owned()),
            }
        })
    }

    /// The configured model answers, if whoever must allow it does.
    fn sample(
        &self,
        inbox: Arc<CallInbox>,
        params: Json,
    ) -> std::pin::Pin<Box<dyn Future<Output = InputReply> + Send>> {
        let (local, server) = (self.local.clone(), self.server.clone());
        let capabilities = self.capabilities;
        let answer = async move {
            let answering = local.answer(&server, &inbox.caller, capabilities, &params);
            let form = match inbox.keep_alive(answering).await? {
                Answered::Result(result) => return Ok(result),
                Answered::Ask(form) => form,
            };
            let reply = inbox.ask(form, true).await;
            let allowed =
                reply.map_err(|_| "the caller did not answer").and_then(|reply| is_reply_allowed(&reply));
            let answering = local.answer_if_allowed(&server, &inbox.caller, &params, allowed);
            inbox.keep_alive(answering).await
        };
        Box::pin(async move {
            match answer.await {
                Ok(result) => InputReply::Result(result),
                Err(reason) => InputReply::Declined(reason.to_owned()),
            }
        })
    }
}

impl ClientHandler for CallerHandler {
    fn on_input_request(
        &self,
        request: IncomingInputRequest,
    ) -> std::pin::Pin<Box<dyn Future<Output = InputReply> + Send>> {
        let declined = |reason: &str| InputReply::Declined(reason.to_owned());
        if request.kind == InputRequestKind::Roots {
            return self.roots(request.call);
        }
        let Some(inbox) = self.calls.of_one_caller(request.call) else {
            return Box::pin(std::future::ready(declined("no call is running that could ask")));
        };
        let params = request.params.to_doc();
        match input_request(request.kind, params.root()) {
            Err(reason) => Box::pin(std::future::ready(declined(reason))),
            Ok(request) => match (self.local.answerer(&self.server, self.capabilities, &request), request) {
                (Answerer::Model, InputRequest::Sampling { params }) => self.sample(inbox, params),
                (Answerer::Client | Answerer::Model | Answerer::Roots, request) => {
                    inbox.remember_elicitation(params.root());
                    let answer = inbox.ask(request, false);
                    Box::pin(async move { answered(answer.await) })
                }
            },
        }
    }

    fn on_event(&self, event: ConnectionEvent) {
        match &event {
            ConnectionEvent::Log { call, level, logger, data } => {
                if let (Some(inbox), Some(level)) = (self.calls.of_one_caller(*call), LogLevel::parse(level))
                {
                    inbox.log(level, logger.as_deref(), data);
                }
            }
            ConnectionEvent::ElicitationCompleted(id) => self.calls.complete_elicitation(id),
            // A server may tell this session alone, whoever subscribed.
            ConnectionEvent::CatalogChanged(_) => {
                if let Some(manager) = self.manager.upgrade() {
                    manager.catalog_changed(&self.server, &event);
                }
            }
            ConnectionEvent::Reinitialized(_)
            | ConnectionEvent::Stderr(_)
            | ConnectionEvent::ProtocolWarning(_)
            | ConnectionEvent::Closed(_) => tracing::debug!(server = &*self.server, ?event),
        }
    }
}

//! From a request to an answer or to a call under way.
//!
//! Everything that is at hand is answered here: handshakes, lists, subscriptions, tasks. Only a call goes on,
//! along [`path`](crate::path).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use call::{Call, Caller, Caps, Emit, Fault, Journal, Principal, Reply, Target, Wanted};
use json::Json;
use wire::code::{Code, Told};
use wire::method::Method;
use wire::shape::{self, Detail, ReplyTo, TaskView};
use wire::{
    Batch, Feature, Filter, Head, List, Notice, Opened, Peer, Refusal, Request, Resume, TaskOp, TaskWish,
    What,
};

use crate::events::Watch;
use crate::live::{Line, Live, NotTaken};
use crate::observe::Observed;
use crate::path::{self, Ended, Job};
use crate::questions;
use crate::registry::Registry;
use crate::server::{Server, Who};
use crate::serving::{Flow, Listening, Serving, Several};
use crate::tasks::{Holder, Task};

/// What became of a request as soon as it was read.
pub enum Begun {
    /// The answer is at hand.
    Ready {
        status: u16,
        body: Vec<u8>,
        retry_after_ms: Option<u64>,
    },
    /// A handshake over HTTP: the answer, and the session id that goes with it.
    Welcome {
        body: Vec<u8>,
        session: String,
    },
    Call(Serving),
    Listen(Listening),
}

impl Server {
    /// Whether the `Mcp-Param-*` headers of a call say what its arguments say.
    pub fn check_params<'h>(
        &self,
        request: &Request,
        head: impl Fn(&str) -> Head<'h>,
    ) -> Result<(), Refusal> {
        let What::Call { call, .. } = &request.what else { return Ok(()) };
        if call.target != Target::Tool || !request.peer.version.has(Feature::MirrorHeaders) {
            return Ok(());
        }
        self.with_registry(|registry| {
            if !registry.mirrors {
                return Ok(());
            }
            let Some(tool) = registry.tool(&call.name()) else { return Ok(()) };
            for mirrored in &tool.mirrored {
                let argument = mirrored.find(call.arguments());
                if let Err(why) = wire::heads::param_mirrors(head(&mirrored.header), argument) {
                    let told =
                        Told::new(Code::HeaderMismatch, 400, format!("header {} {why}", mirrored.header));
                    return Err(Refusal::new(&told, Some(&request.id), request.peer.version));
                }
            }
            Ok(())
        })
    }

    /// Answers a request, or starts to.
    pub fn begin(self: &Arc<Self>, request: Request, who: &Who, line: Line) -> Begun {
        let Request { id, peer, progress, what } = request;
        let to = ReplyTo { version: peer.version, id, progress };
        let registry = self.registry();
        match what {
            What::Call { call, resume, task } => {
                self.begin_call(registry, Asking { call, resume, task }, peer, to, who, line)
            }
            What::List(list, cursor) => self.list(&registry, list, cursor.as_deref(), &to, who),
            What::Ping => empty(&registry, &to),
            What::Discover => {
                let mut body = Vec::with_capacity(512);
                shape::discover(&mut body, &to, &registry.stamp, &registry.offer, is_public(who));
                ready(body)
            }
            What::Initialize { requested, caps } => {
                self.initialize(&registry, requested, caps, to, who, &line)
            }
            What::Subscribe(uri) => self.with_live(&registry, &to, who, &line, |live| {
                live.watch.subscribe(
                    uri,
                    self.limits.subscriptions_per_peer_max,
                    self.limits.subscription_bytes_max,
                )
            }),
            What::Unsubscribe(uri) => self.with_live(&registry, &to, who, &line, |live| {
                live.watch.unsubscribe(&uri);
                true
            }),
            What::SetLevel(level) => self.with_live(&registry, &to, who, &line, |live| {
                live.set_level(level);
                true
            }),
            What::Listen(filter) => self.listen(&registry, filter, peer, to, who, &line),
            What::Task(op) => self.task(registry, op, peer, to, who, line),
        }
    }

    /// Begins everything in a batch; `None` if nothing in it wants an answer.
    pub fn begin_batch(self: &Arc<Self>, batch: Batch, who: &Who, line: &Line) -> Option<Flow> {
        let live = self.open_on(line);
        let mut several = Several::new(batch.version);
        for item in batch.items {
            match item {
                Opened::Request(request) if several.has(&request.id) => {
                    several.ready(id_in_use().response(Some(&request.id), batch.version));
                }
                Opened::Request(request) => match self.begin(request, who, line.clone()) {
                    Begun::Ready { body, .. } | Begun::Welcome { body, .. } => several.ready(body),
                    Begun::Call(serving) => several.wait_for(serving),
                    // No version has both batches and subscriptions of this kind.
                    Begun::Listen(_) => {}
                },
                Opened::Refused(refusal) => several.ready(refusal.body),
                Opened::Notice(Notice::Cancelled(id)) => {
                    if let Some(live) = &live {
                        live.cancel(&id);
                    }
                }
                Opened::Answer { id, answer } => {
                    if let Some(live) = &live {
                        live.answered(id, answer);
                    }
                }
                Opened::Notice(Notice::Initialized | Notice::Other) | Opened::Batch(_) => {}
            }
        }
        (!several.is_empty()).then_some(Flow::Several(several))
    }

    fn initialize(
        &self,
        registry: &Registry,
        requested: wire::Version,
        caps: Caps,
        to: ReplyTo,
        who: &Who,
        line: &Line,
    ) -> Begun {
        let peer = Peer::greeted(requested, caps);
        let mut body = Vec::with_capacity(512);
        shape::initialize(&mut body, &ReplyTo { version: requested, ..to }, &registry.stamp, &registry.offer);
        match line {
            Line::Pipe(live) => {
                live.set_peer(peer);
                ready(body)
            }
            Line::Alone | Line::Session(_) => {
                let session = self.sessions.issue(&self.sealer, peer, &who.principal, &*self.world);
                Begun::Welcome { body, session }
            }
        }
    }

    fn list(&self, registry: &Registry, list: List, cursor: Option<&str>, to: &ReplyTo, who: &Who) -> Begun {
        let Some(members) = registry.page(list, to.version, cursor) else {
            return told(
                &Told::invalid_params("`params.cursor`: unknown cursor; start again without one"),
                to,
            );
        };
        let mut body = Vec::with_capacity(members.len() + 256);
        shape::page(&mut body, to, &registry.stamp, members, LIST_TTL_MS, is_public(who));
        ready(body)
    }

    /// What is open on the line that a request came by.
    fn open_on(&self, line: &Line) -> Option<Arc<Live>> {
        match line {
            Line::Alone => None,
            Line::Pipe(live) => Some(live.clone()),
            Line::Session(ticket) => self.peek(ticket),
        }
    }

    /// Why a request that takes its time cannot be taken in now.
    fn not_taken(&self, live: &Live, to: &ReplyTo) -> Option<Begun> {
        match live.admits(&to.id, self.limits.calls_per_peer_max) {
            Ok(()) => None,
            Err(NotTaken::IdInUse) => Some(told(&id_in_use(), to)),
            Err(NotTaken::TooMany) => Some(busy(429, to, "too many calls of this client under way")),
        }
    }

    fn begin_call(
        self: &Arc<Self>,
        registry: Arc<Registry>,
        asking: Asking,
        peer: Peer,
        to: ReplyTo,
        who: &Who,
        line: Line,
    ) -> Begun {
        let Asking { call, resume, task } = asking;
        if self.counts.active.load(Ordering::Relaxed) >= self.limits.calls_max {
            return busy(503, &to, "too many calls under way; try again shortly");
        }
        let live = self.open_on(&line);
        let mut level = peer.level;
        if let Some(live) = &live {
            if let Some(refusal) = self.not_taken(live, &to) {
                return refusal;
            }
            if peer.version.has(Feature::SetLevel) {
                level = live.level().or(level);
            }
        }
        let journal = match resume {
            None => Journal::default(),
            Some(resume) => match questions::resume(self, &registry, &who.principal, &call, *resume) {
                Ok(journal) => journal,
                Err(fault) => return told(&Told::from_fault(&fault, to.version), &to),
            },
        };
        let wanted = Wanted { progress: to.progress.is_some(), level };
        // A question needs a client that takes some, and a pause a stream that can be taken up again.
        let answers = peer.caps != Caps::NONE || matches!(line, Line::Session(_));
        let can_be_asked = peer.version.has(Feature::ServerRequests) && answers;
        let hears = wanted.progress || wanted.level.is_some() || can_be_asked;
        let emit = if hears { Emit::new(wanted) } else { Emit::silent() };
        let caller = Caller { principal: who.principal.clone(), caps: peer.caps };
        let job = Job { call, peer, caller, who: who.clone(), line, emit: emit.clone(), journal, task };
        let observed = Observed::new(self, &job.call, who);
        let work = Box::pin(path::answer(self.clone(), registry.clone(), job));
        Begun::Call(Serving::new(self.clone(), registry, to, emit, work, observed))
    }

    /// Does something to what a client of the handshake era has open, and answers with an empty result.
    fn with_live(
        &self,
        registry: &Registry,
        to: &ReplyTo,
        who: &Who,
        line: &Line,
        act: impl FnOnce(&Live) -> bool,
    ) -> Begun {
        let live = match line {
            // Nothing is kept for a request that stands alone: it is accepted, and there is no effect.
            Line::Alone => return empty(registry, to),
            Line::Pipe(live) => live.clone(),
            Line::Session(ticket) => match self.live(ticket, who) {
                Ok(live) => live,
                Err(_) => return busy(429, to, "too many sessions hold something; end one with DELETE"),
            },
        };
        if act(&live) {
            empty(registry, to)
        } else {
            busy(429, to, "too many subscriptions in this session; drop some first")
        }
    }

    fn listen(
        self: &Arc<Self>,
        registry: &Registry,
        wanted: Filter,
        peer: Peer,
        to: ReplyTo,
        who: &Who,
        line: &Line,
    ) -> Begun {
        if let Some(refusal) = self.open_on(line).and_then(|live| self.not_taken(&live, &to)) {
            return refusal;
        }
        if !wanted.tasks.is_empty() && !peer.caps.has(Caps::TASKS) {
            return told(&Told::from_fault(&Fault::MissingCapability(Caps::TASKS), to.version), &to);
        }
        let named = || wanted.uris.iter().chain(&wanted.tasks);
        let bytes: usize = named().map(String::len).sum();
        if named().count() > self.limits.subscriptions_per_peer_max
            || bytes > self.limits.subscription_bytes_max
        {
            return told(&Told::invalid_params("`params.notifications`: too many subscriptions in one"), &to);
        }
        if self.counts.listening.load(Ordering::Relaxed) >= self.limits.streams_max {
            return busy(503, &to, "too many subscriptions are open; try again later");
        }
        let offer = &registry.offer;
        let now_ms = self.world.now_ms();
        let holder = Holder::new(&who.principal, line);
        let granted = Filter {
            tools: wanted.tools && offer.tools && offer.changes,
            prompts: wanted.prompts && offer.prompts && offer.changes,
            resources: wanted.resources && offer.resources && offer.changes,
            uris: if offer.watches { wanted.uris } else { Vec::new() },
            tasks: wanted
                .tasks
                .into_iter()
                .filter(|id| self.tasks.find(id, &holder, now_ms).is_ok())
                .collect(),
        };
        let watch = Arc::new(Watch::new(&granted));
        self.hub.add(&watch);
        let first = shape::acknowledged(&to.id, &granted);
        Begun::Listen(Listening::new(self.clone(), to, watch, first))
    }

    fn task(
        self: &Arc<Self>,
        registry: Arc<Registry>,
        op: TaskOp,
        peer: Peer,
        to: ReplyTo,
        who: &Who,
        line: Line,
    ) -> Begun {
        let declares = peer.version.has(Feature::TaskExtension);
        if declares && !peer.caps.has(Caps::TASKS) {
            return told(&Told::from_fault(&Fault::MissingCapability(Caps::TASKS), to.version), &to);
        }
        let now_ms = self.world.now_ms();
        let id = match &op {
            TaskOp::Get(id) | TaskOp::Update(id, _) | TaskOp::Cancel(id) | TaskOp::Result(id) => id,
            TaskOp::List(cursor) => return self.task_list(&registry, cursor.as_deref(), &to, who, &line),
        };
        let task = match self.tasks.find(id, &Holder::new(&who.principal, &line), now_ms) {
            Ok(task) => task,
            Err(fault) => return told(&Told::from_fault(&fault, to.version), &to),
        };
        match op {
            TaskOp::Get(_) => task_view(&registry, &task.view(), &to),
            TaskOp::Update(_, answers) => {
                task.update(self, answers);
                empty(&registry, &to)
            }
            TaskOp::Cancel(_) if declares => {
                task.cancel(self);
                empty(&registry, &to)
            }
            // 2025-11-25, tasks/cancel: a task that is over MUST be refused; the answer is the task.
            TaskOp::Cancel(_) => match task.view().detail {
                Detail::Working | Detail::Input(_) => {
                    task.cancel(self);
                    task_view(&registry, &task.view(), &to)
                }
                Detail::Completed(_) | Detail::Failed(_) | Detail::Cancelled => {
                    told(&Told::invalid_params("the task is over already"), &to)
                }
            },
            TaskOp::Result(_) => {
                let emit = Emit::new(Wanted::default());
                let live = match &line {
                    Line::Alone => None,
                    Line::Pipe(live) => Some(live.clone()),
                    Line::Session(ticket) => self.live(ticket, who).ok(),
                };
                if let Some(refusal) = live.as_ref().and_then(|live| self.not_taken(live, &to)) {
                    return refusal;
                }
                let work = task_result(self.clone(), task, live, emit.clone());
                Begun::Call(Serving::new(self.clone(), registry, to, emit, Box::pin(work), None))
            }
            TaskOp::List(_) => empty(&registry, &to),
        }
    }

    fn task_list(
        &self,
        registry: &Registry,
        cursor: Option<&str>,
        to: &ReplyTo,
        who: &Who,
        line: &Line,
    ) -> Begun {
        let holder = Holder::new(&who.principal, line);
        // 2025-11-25, Task Isolation: whoever cannot be told from others MUST NOT be shown a list.
        if let (Holder::Bearer, Line::Alone) = (&holder, line) {
            return told(&Told::method_not_found(Method::TaskList.as_str(), to.version), to);
        }
        let tasks = self.tasks.of(&holder, self.world.now_ms());
        let from = match cursor {
            None | Some("") => 0,
            Some(last) => match tasks.iter().position(|task| task.id == last) {
                Some(at) => at + 1,
                None => return told(&Told::invalid_params("`params.cursor`: unknown cursor"), to),
            },
        };
        let until = (from + self.limits.page_items_max).min(tasks.len());
        let next = (until < tasks.len()).then(|| tasks[until - 1].id.clone());
        let mut body = Vec::with_capacity(256);
        shape::task_list(&mut body, to, &registry.stamp, &tasks[from..until], next.as_deref());
        ready(body)
    }
}

fn task_view(registry: &Registry, task: &TaskView, to: &ReplyTo) -> Begun {
    let mut body = Vec::with_capacity(512);
    task.answer(&mut body, to, &registry.stamp);
    ready(body)
}

fn empty(registry: &Registry, to: &ReplyTo) -> Begun {
    let mut body = Vec::with_capacity(192);
    shape::empty(&mut body, to, &registry.stamp);
    ready(body)
}

/// Tool lists change with a restart or a reload, and a change is announced.
const LIST_TTL_MS: u64 = 60_000;

struct Asking {
    call: Call,
    resume: Option<Box<Resume>>,
    task: Option<TaskWish>,
}

/// Waits for the result of a task of 2025-11-25; its questions reach the client while it waits.
async fn task_result(
    server: Arc<Server>,
    task: Arc<Task>,
    live: Option<Arc<Live>>,
    emit: Emit,
) -> Result<Ended, Fault> {
    let view = match live {
        Some(live) => task.over_asking(&server, &live, &emit).await,
        None => task.over().await,
    };
    match view.detail {
        Detail::Completed(Reply::Tool(mut reply)) => {
            let own = reply.meta.take();
            reply.meta = Some(Json::object(|meta| {
                for (key, value) in own.as_ref().map(Json::doc).iter().flat_map(|doc| doc.root().members()) {
                    meta.raw(&key.str().unwrap_or_default(), value.raw());
                }
                shape::related_task(meta, &view.id);
            }));
            Ok(Ended::Reply(Reply::Tool(reply)))
        }
        Detail::Completed(reply) => Ok(Ended::Reply(reply)),
        Detail::Failed(fault) => Err(fault),
        Detail::Working | Detail::Input(_) | Detail::Cancelled => Err(Fault::Cancelled),
    }
}

fn id_in_use() -> Told {
    Told::new(Code::InvalidRequest, 200, "`id`: in use by a request under way")
}

fn ready(body: Vec<u8>) -> Begun {
    Begun::Ready { status: 200, body, retry_after_ms: None }
}

fn told(told: &Told, to: &ReplyTo) -> Begun {
    Begun::Ready { status: told.status, body: told.response(Some(&to.id), to.version), retry_after_ms: None }
}

fn busy(status: u16, to: &ReplyTo, why: &str) -> Begun {
    let told = Told::busy(status, BUSY_RETRY_MS, why);
    let body = told.response(Some(&to.id), to.version);
    Begun::Ready { status, body, retry_after_ms: Some(BUSY_RETRY_MS) }
}

const BUSY_RETRY_MS: u64 = 1000;

/// What everybody reads alike may be cached for everybody; behind a token it may not.
fn is_public(who: &Who) -> bool {
    who.principal == Principal::Anonymous
}

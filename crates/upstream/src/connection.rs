//! One connection as a value: calls go in, answers come out, and somebody is asked what the server asks.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use json::Json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use url::Url;
use wire::client::{
    Answer, AskId, Call, Client, Do, Event, Failure, Greeting, Link, Question, Speak, Terms, Ticket,
};
use wire::frame::Framing;
use wire::{Filter, List};

use crate::link;
use crate::masked;
use crate::process;
use crate::spawned::{End, Running};
use crate::target::Target;
use crate::trace::{Seen, Tap};

/// How a server is to be reached.
#[derive(Clone)]
pub struct Options {
    pub terms: Terms,
    /// Sent with every HTTP request, and when a WebSocket is opened.
    pub headers: Vec<(String, String)>,
    pub outbound: outbound::Options,
    pub frame_bytes_max: usize,
    /// How messages are told apart on a pipe.
    pub framing: Framing,
    pub tap: Option<Arc<dyn Tap>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            terms: Terms::default(),
            headers: Vec::new(),
            outbound: outbound::Options::default(),
            frame_bytes_max: 16 << 20,
            framing: Framing::Lines,
            tap: None,
        }
    }
}

/// Whoever answers a WebSocket runs already, and knows what it speaks.
const WEBSOCKET_PROBE_MS: u64 = 2000;

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Outbound(#[from] outbound::OutboundError),
    #[error("cannot connect to {at}: {why}")]
    Connect { at: String, why: String },
    #[error("{0}")]
    Refused(Failure),
    #[error(transparent)]
    Start(#[from] process::StartError),
    /// A program was started and is no server, or none that can be used; `said` is how it ended and its last
    /// words.
    #[error("{failure}; {said}")]
    Child { failure: Failure, said: String },
}

/// Who lives on our side of a connection: answers the server's questions, and hears what it says unasked.
pub trait Company: Send + Sync + 'static {
    /// Dropped when the server no longer wants to know.
    fn asked(&self, question: Question) -> Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn heard(&self, news: News);
}

/// What a server says without being asked.
#[derive(Debug)]
pub enum News {
    /// It forgot us and was greeted again; what it has may have changed.
    Again(Greeting),
    Log {
        level: String,
        logger: Option<String>,
        data: Json,
    },
    Changed(call::Change),
    /// A line that a process wrote to its stderr, made harmless.
    Stderr(String),
    /// Something is not as it should be, and was passed over.
    Odd(String),
    Over(Failure),
}

/// Nobody is there to be asked.
pub struct Nobody;

impl Company for Nobody {
    fn asked(&self, _: Question) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        Box::pin(async { Answer::Refused("there is nobody here to be asked".to_owned()) })
    }

    fn heard(&self, news: News) {
        tracing::debug!(?news);
    }
}

/// How far a call is.
#[derive(Debug, Clone)]
pub struct Progress {
    pub progress: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

pub type Follow = Arc<dyn Fn(Progress) + Send + Sync>;

/// A server that can be used. Dropping it ends everything that it needs.
pub struct Connection {
    pub(crate) shared: Arc<Shared>,
    tasks: JoinSet<()>,
    ending: Option<link::Ending>,
    /// The program behind it, if it was started for this.
    pub(crate) child: Option<Running>,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    /// There is something to do for whoever carries messages.
    todo: Notify,
    /// The next deadline is another one.
    clock: Notify,
    opened: watch::Sender<Opened>,
    start: Instant,
    company: Arc<dyn Company>,
    pub(crate) options: Options,
}

#[derive(Clone)]
enum Opened {
    NotYet,
    Ready,
    Over(Failure),
}

struct State {
    client: Client,
    waiting: HashMap<Ticket, Waiter>,
    asking: BTreeMap<AskId, AbortHandle>,
}

struct Waiter {
    ended: oneshot::Sender<Ended>,
    follow: Option<Follow>,
    listening: Option<oneshot::Sender<Filter>>,
}

/// Something to be passed on.
enum Word {
    News(News),
    Progress(Follow, Progress),
    Asked(Question),
}

enum Ended {
    Done(Json),
    Listed(Vec<Json>),
    Failed(Failure),
}

impl Connection {
    /// Connects, finds out what the server speaks, and shakes hands where that is needed.
    pub async fn open(
        target: &Target,
        options: Options,
        company: Arc<dyn Company>,
    ) -> Result<Self, OpenError> {
        let (options_again, company_again) = (options.clone(), company.clone());
        let failure = match Self::open_once(target, options, company).await {
            Err(OpenError::Refused(failure)) => failure,
            other => return other,
        };
        // 2026-07-28, HTTP+SSE Transport: on 400, 404 or 405 look for the `endpoint` event.
        match (target, &failure) {
            (Target::Http(url), Failure::Status { status: 400 | 404 | 405, .. }) => {
                let older = Target::Sse(url.clone());
                let found = Self::open_once(&older, options_again, company_again).await;
                found.map_err(|_| OpenError::Refused(failure))
            }
            _ => Err(OpenError::Refused(failure)),
        }
    }

    async fn open_once(
        target: &Target,
        options: Options,
        company: Arc<dyn Company>,
    ) -> Result<Self, OpenError> {
        match target {
            Target::Http(url) => {
                let client = outbound::client(url, &options.outbound)?;
                Self::over_http(client, url, options, company).await
            }
            #[cfg(unix)]
            Target::HttpUnix { socket, url } => {
                let client = outbound::client_to_socket(socket, &options.outbound)?;
                Self::over_http(client, url, options, company).await
            }
            Target::Sse(url) => {
                let client = outbound::client(url, &options.outbound)?;
                let link = link::sse::open(client, url, &options).await?;
                let options = Options { terms: greets_at_once(options.terms), ..options };
                let mut new = Self::new(options, Link::Pipe, company);
                new.tasks.spawn(link.drive(new.shared.clone()));
                new.ready().await
            }
            Target::WebSocket(url) => {
                let probe_ms = options.terms.probe_ms.min(WEBSOCKET_PROBE_MS);
                let options = Options { terms: Terms { probe_ms, ..options.terms }, ..options };
                let socket = link::socket::open(url, &options).await?;
                options.saw(Seen::Opened(&format!("connected to {}", masked::address(url.as_str()))));
                let mut new = Self::new(options, Link::Pipe, company);
                let (driver, ending) = link::socket::drive(new.shared.clone(), socket);
                new.tasks.spawn(driver);
                new.ending = Some(ending);
                new.ready().await
            }
            #[cfg(unix)]
            Target::Unix(path) => {
                let bad = |why: std::io::Error| OpenError::Connect {
                    at: path.display().to_string(),
                    why: why.to_string(),
                };
                let (input, output) = tokio::net::UnixStream::connect(path).await.map_err(bad)?.into_split();
                options.saw(Seen::Opened(&format!("connected to {}", path.display())));
                Self::over_pipe(input, output, options, company).await
            }
            #[cfg(not(unix))]
            Target::Unix(path) | Target::HttpUnix { socket: path, .. } => Err(OpenError::Connect {
                at: path.display().to_string(),
                why: "there are no such sockets on this system".to_owned(),
            }),
        }
    }

    async fn over_http(
        client: outbound::Client,
        url: &Url,
        options: Options,
        company: Arc<dyn Company>,
    ) -> Result<Self, OpenError> {
        let mut new = Self::new(options, Link::Http, company);
        let (driver, ending) = link::http::drive(new.shared.clone(), client, url.clone());
        new.tasks.spawn(driver);
        new.ending = Some(ending);
        new.ready().await
    }

    /// Speaks down a pipe that somebody else made: to a process, or to a server in this one.
    pub async fn over_pipe(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
        options: Options,
        company: Arc<dyn Company>,
    ) -> Result<Self, OpenError> {
        let mut new = Self::new(options, Link::Pipe, company);
        let ending = link::pipe::drive(&mut new.tasks, new.shared.clone(), input, output);
        new.ending = Some(ending);
        new.ready().await
    }

    fn new(options: Options, link: Link, company: Arc<dyn Company>) -> Self {
        let client = Client::new(options.terms.clone(), link);
        let state = State { client, waiting: HashMap::new(), asking: BTreeMap::new() };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            todo: Notify::new(),
            clock: Notify::new(),
            opened: watch::channel(Opened::NotYet).0,
            start: Instant::now(),
            company,
            options,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_time(shared.clone()));
        Self { shared, tasks, ending: None, child: None }
    }

    async fn ready(self) -> Result<Self, OpenError> {
        let mut opened = self.shared.opened.subscribe();
        self.shared.with(|client, now| client.start(now));
        let found = opened.wait_for(|opened| !matches!(opened, Opened::NotYet)).await;
        match found.as_deref() {
            Ok(Opened::Over(why)) => Err(OpenError::Refused(why.clone())),
            Ok(Opened::Ready | Opened::NotYet) | Err(_) => {
                drop(found);
                Ok(self)
            }
        }
    }

    /// What the server said of itself.
    pub fn greeting(&self) -> Greeting {
        let greeting = self.shared.lock().client.greeting().cloned();
        greeting.expect("a connection is handed out when the server has been greeted")
    }

    /// Whether the server declared something.
    pub fn offers(&self, capability: &str) -> bool {
        self.shared.lock().client.offers(capability)
    }

    /// Asks and waits. Giving up the future cancels the call.
    pub async fn call(&self, call: Call, follow: Option<Follow>) -> Result<Json, Failure> {
        let call = Call { progress: call.progress || follow.is_some(), ..call };
        match self.shared.wait(follow, |client, now| client.call(call, now)).await {
            Ended::Done(result) => Ok(result),
            Ended::Listed(_) => Err(Failure::NotMcp("a list where a result belongs".to_owned())),
            Ended::Failed(why) => Err(why),
        }
    }

    /// Reads a whole list.
    pub async fn list(&self, list: List, timeout_ms: Option<u64>) -> Result<Vec<Json>, Failure> {
        match self.shared.wait(None, |client, now| client.list(list, timeout_ms, now)).await {
            Ended::Listed(items) => Ok(items),
            Ended::Done(_) => Err(Failure::NotMcp("a result where a list belongs".to_owned())),
            Ended::Failed(why) => Err(why),
        }
    }

    /// Asks whether anybody is there; says how long the answer took.
    pub async fn ping(&self, timeout_ms: Option<u64>) -> Result<Duration, Failure> {
        let start = Instant::now();
        match self.shared.wait(None, |client, now| client.ping(timeout_ms, now)).await {
            Ended::Failed(why) => Err(why),
            Ended::Done(_) | Ended::Listed(_) => Ok(start.elapsed()),
        }
    }

    /// Asks to be told of changes; [`Company::heard`] gets them. Ends when it is dropped.
    pub async fn listen(&self, filter: &Filter) -> Result<Subscription, Failure> {
        let (ended, over) = oneshot::channel();
        let (granted, grant) = oneshot::channel();
        let waiter = Waiter { ended, follow: None, listening: Some(granted) };
        let ticket = self.shared.begin(waiter, |client, now| client.listen(filter, now));
        let guard = Guard { shared: self.shared.clone(), ticket: Some(ticket) };
        match grant.await {
            Ok(granted) => Ok(Subscription { granted, over, _guard: guard }),
            Err(_) => match over.await {
                Ok(Ended::Failed(why)) => Err(why),
                Ok(Ended::Done(_) | Ended::Listed(_)) | Err(_) => Err(Failure::Cancelled),
            },
        }
    }

    /// The mildest log message that is wanted from now on.
    pub fn set_level(&self, level: call::Level) {
        self.shared.with(|client, now| client.set_level(level, now));
    }

    /// Ends it in good order: the server is told, and may finish what it writes. How a program ended is told.
    pub async fn close(mut self) -> Option<End> {
        if let Some(ending) = self.ending.take() {
            ending.await;
        }
        let end = match self.child.take() {
            Some(child) => Some(child.end(&self.shared).await),
            None => None,
        };
        self.shared.with(|client, _| client.closed("the connection was closed"));
        self.tasks.shutdown().await;
        end
    }
}

fn greets_at_once(terms: Terms) -> Terms {
    match terms.speak {
        Speak::Any => Terms { speak: Speak::Handshake, ..terms },
        Speak::Only(_) | Speak::Handshake => terms,
    }
}

/// Changes are told as long as this lives.
pub struct Subscription {
    /// What the server agreed to tell.
    pub granted: Filter,
    over: oneshot::Receiver<Ended>,
    _guard: Guard,
}

impl Subscription {
    /// Waits until the server ends it.
    pub async fn ended(&mut self) -> Option<Failure> {
        match (&mut self.over).await {
            Ok(Ended::Failed(why)) => Some(why),
            Ok(Ended::Done(_) | Ended::Listed(_)) | Err(_) => None,
        }
    }
}

/// Cancels what nobody waits for any more.
struct Guard {
    shared: Arc<Shared>,
    ticket: Option<Ticket>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.shared.with(|client, _| client.cancel(ticket));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the machine do something, and passes on what came of it.
    pub(crate) fn with<T>(self: &Arc<Self>, act: impl FnOnce(&mut Client, u64) -> T) -> T {
        self.with_state(|state, now| act(&mut state.client, now))
    }

    fn with_state<T>(self: &Arc<Self>, act: impl FnOnce(&mut State, u64) -> T) -> T {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut state = self.lock();
        let before = state.client.deadline();
        let done = act(&mut state, now);
        let words = self.settle(&mut state);
        let is_other = state.client.deadline() != before;
        let is_over = state.client.is_over();
        drop(state);
        self.todo.notify_one();
        if is_other || is_over {
            self.clock.notify_one();
        }
        for word in words {
            match word {
                Word::News(news) => self.company.heard(news),
                Word::Progress(follow, progress) => follow(progress),
                Word::Asked(question) => self.ask(question),
            }
        }
        done
    }

    /// Whoever waits gets what they wait for; the rest is passed on when nothing is locked any more.
    fn settle(&self, state: &mut State) -> Vec<Word> {
        let mut words = Vec::new();
        while let Some(event) = state.client.event() {
            match event {
                Event::Ready(greeting) => {
                    let before = self.opened.send_replace(Opened::Ready);
                    if matches!(before, Opened::Ready) {
                        words.push(Word::News(News::Again(*greeting)));
                    }
                }
                Event::Done { ticket, result } => state.end(ticket, Ended::Done(result)),
                Event::Listed { ticket, items } => state.end(ticket, Ended::Listed(items)),
                Event::Failed { ticket, why } => state.end(ticket, Ended::Failed(why)),
                Event::Progress { ticket, progress, total, message } => {
                    let follow = state.waiting.get(&ticket).and_then(|waiter| waiter.follow.clone());
                    let progress = Progress { progress, total, message };
                    words.extend(follow.map(|follow| Word::Progress(follow, progress)));
                }
                Event::Listening { ticket, granted } => {
                    let waiter = state.waiting.get_mut(&ticket);
                    if let Some(listening) = waiter.and_then(|waiter| waiter.listening.take()) {
                        let _ = listening.send(granted);
                    }
                }
                Event::Asked(question) => words.push(Word::Asked(question)),
                Event::Withdrawn(id) => {
                    if let Some(task) = state.asking.remove(&id) {
                        task.abort();
                    }
                }
                Event::Log { level, logger, data } => {
                    words.push(Word::News(News::Log { level, logger, data }));
                }
                Event::Changed(change) => words.push(Word::News(News::Changed(change))),
                Event::Odd(what) => words.push(Word::News(News::Odd(what))),
                Event::Over(why) => {
                    // Whoever opens it is told; only what has begun can be over.
                    let before = self.opened.send_replace(Opened::Over(why.clone()));
                    if matches!(before, Opened::Ready) {
                        words.push(Word::News(News::Over(why)));
                    }
                }
            }
        }
        words
    }

    fn ask(self: &Arc<Self>, question: Question) {
        let (id, shared) = (question.id, self.clone());
        let answer = self.company.asked(question);
        let mut state = self.lock();
        let task = tokio::spawn(async move {
            let answer = answer.await;
            shared.lock().asking.remove(&id);
            shared.with(|client, _| client.answer(id, answer));
        });
        state.asking.insert(id, task.abort_handle());
    }

    fn begin(self: &Arc<Self>, waiter: Waiter, act: impl FnOnce(&mut Client, u64) -> Ticket) -> Ticket {
        self.with_state(|state, now| {
            let ticket = act(&mut state.client, now);
            // Before anything is settled: it may have failed at once.
            state.waiting.insert(ticket, waiter);
            ticket
        })
    }

    async fn wait(
        self: &Arc<Self>,
        follow: Option<Follow>,
        act: impl FnOnce(&mut Client, u64) -> Ticket,
    ) -> Ended {
        let (ended, over) = oneshot::channel();
        let ticket = self.begin(Waiter { ended, follow, listening: None }, act);
        let mut guard = Guard { shared: self.clone(), ticket: Some(ticket) };
        let end = over.await.unwrap_or(Ended::Failed(Failure::Cancelled));
        guard.ticket = None;
        end
    }

    /// What is to be carried next; waits for it. Nothing more comes after the end.
    pub(crate) async fn todo(&self) -> Option<Do> {
        loop {
            let notified = self.todo.notified();
            {
                let mut state = self.lock();
                if let Some(todo) = state.client.take() {
                    return Some(todo);
                }
                if state.client.is_over() {
                    return None;
                }
            }
            notified.await;
        }
    }

    /// The same, if there is something right now.
    pub(crate) fn todo_now(&self) -> Option<Do> {
        self.lock().client.take()
    }

    /// Whether everything has been taken that is to be carried.
    pub(crate) fn is_carried(&self) -> bool {
        !self.lock().client.has_todo()
    }

    /// Waits until nothing more can come.
    pub(crate) async fn is_over(&self) {
        let mut opened = self.opened.subscribe();
        let _ = opened.wait_for(|opened| matches!(opened, Opened::Over(_))).await;
    }

    pub(crate) fn saw(&self, seen: Seen<'_>) {
        self.options.saw(seen);
    }
}

impl Options {
    pub(crate) fn saw(&self, seen: Seen<'_>) {
        if let Some(tap) = &self.tap {
            tap.saw(seen);
        }
    }
}

impl State {
    fn end(&mut self, ticket: Ticket, ended: Ended) {
        if let Some(waiter) = self.waiting.remove(&ticket) {
            let _ = waiter.ended.send(ended);
        }
    }
}

/// Wakes the machine when something is due.
async fn keep_time(shared: Arc<Shared>) {
    loop {
        let (due, is_over) = {
            let state = shared.lock();
            (state.client.deadline(), state.client.is_over())
        };
        if is_over {
            return;
        }
        let changed = shared.clock.notified();
        match due {
            None => changed.await,
            Some(due) => {
                let at = tokio::time::Instant::from_std(shared.start + Duration::from_millis(due));
                tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => shared.with(|client, now| client.tick(now.max(due))),
                }
            }
        }
    }
}

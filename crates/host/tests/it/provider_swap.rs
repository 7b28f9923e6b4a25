//! What is served is replaced while it is: calls keep what they started with, and whoever listens hears of it once.
//! And how often and how long calls may be.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use host::{
    CallerIdentity, Config, ConnectionState, Dispatched, OutgoingMessage, PendingResponse, ProviderSet,
    ReplyChannel, Server, SubscriptionEvent,
};
use json::Json;
use spile_core::{
    Call, CallContext, Catalog, CatalogChange, ChangeListener, InputRequest, InputRequests, Limits, Outcome,
    Principal, Provider, RateLimit, Run, Tool, ToolResult,
};
use testkit::FakePlatform;
use tokio::sync::Notify;
use wire::{Decoded, Defaults, Peer, Version};

/// Tools that all say the same word: at once, when told to, never, or after a question.
#[derive(Default)]
struct WordProvider {
    word: &'static str,
    description: &'static str,
    rate: Option<RateLimit>,
    shared_rate: Option<RateLimit>,
    call_timeout_ms: Option<u64>,
    release: Arc<Notify>,
    listener: Mutex<Option<Arc<dyn ChangeListener>>>,
}

impl Provider for WordProvider {
    fn catalog(&self) -> Arc<Catalog> {
        let tool = |name: &str| Tool {
            rate_limit: self.rate,
            call_timeout_ms: self.call_timeout_ms,
            ..Tool::new(name, self.description, Json::parse(r#"{"type":"object"}"#).expect("JSON"))
        };
        let tools = ["say", "wait", "never", "ask"].map(tool).to_vec();
        Arc::new(Catalog { tools, list_changed: true, rate_limit: self.shared_rate, ..Catalog::default() })
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let word = self.word;
        match &*call.name() {
            "say" => Run::now(ToolResult::text(word)),
            "wait" => {
                let go = self.release.clone();
                Run::later(async move {
                    go.notified().await;
                    ToolResult::text(word).into()
                })
            }
            "never" => Run::later(std::future::pending()),
            _ => match cx.journal.response("sure") {
                Some(_) => Run::now(ToolResult::text(word)),
                None => {
                    let schema = Json::parse(r#"{"type":"object","properties":{}}"#).expect("JSON");
                    let form = InputRequest::Form { message: "sure?".into(), schema };
                    Run::Now(Outcome::InputRequired(InputRequests::single("sure", form)))
                }
            },
        }
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        *self.listener.lock().expect("no panic before") = Some(listener);
    }
}

fn word_provider(word: &'static str, description: &'static str) -> WordProvider {
    WordProvider { word, description, ..WordProvider::default() }
}

fn provider_set(version: &str, says: WordProvider) -> (ProviderSet, Arc<WordProvider>) {
    let says = Arc::new(says);
    (ProviderSet { version: version.into(), providers: vec![says.clone()], call_timeout_ms: None }, says)
}

struct TestServer {
    server: Arc<Server>,
    platform: Arc<FakePlatform>,
}

impl TestServer {
    fn new(says: WordProvider) -> (Self, Arc<WordProvider>) {
        let world = Arc::new(FakePlatform::new(1));
        let limits = Limits::default();
        let config = Config { name: "t".into(), version: String::new(), limits, platform: world.clone() };
        let (served, says) = provider_set("1.0.0", says);
        (
            Self {
                server: Server::with_provider_set(config, served).expect("a good catalog"),
                platform: world,
            },
            says,
        )
    }

    fn dispatch(&self, message: &str, who: &CallerIdentity) -> Dispatched {
        let bare = Defaults::Pipe(Some(Peer::from_version(Version::V2025_06_18)));
        let Decoded::Request(request) = self.server.decode(message.as_bytes().to_vec(), bare) else {
            panic!("a request: {message}");
        };
        self.server.dispatch(request, who, ReplyChannel::Stateless)
    }

    fn call(&self, tool: &str, era: Era, who: &CallerIdentity) -> PendingResponse {
        match self.dispatch(&call(tool, era, ""), who) {
            Dispatched::Call(serving) => PendingResponse::Single(serving),
            Dispatched::Ready { body, .. } | Dispatched::Initialized { body, .. } => {
                panic!("{}", String::from_utf8_lossy(&body))
            }
            Dispatched::Subscription(_) => panic!("a call"),
        }
    }

    async fn call_text(&self, tool: &str, who: &CallerIdentity) -> String {
        finish(self.call(tool, Era::Old, who)).await
    }
}

#[derive(Clone, Copy)]
enum Era {
    Old,
    New,
}

/// `more` are members of the parameters.
fn call(tool: &str, era: Era, more: &str) -> String {
    let meta = match era {
        Era::Old => "",
        Era::New => {
            r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}"#
        }
    };
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}"{more}{meta}}}}}"#)
}

async fn finish(mut flow: PendingResponse) -> String {
    loop {
        if let OutgoingMessage::Response { body, .. } = poll_fn(|cx| flow.poll_next(cx)).await {
            return String::from_utf8(body).expect("text");
        }
    }
}

/// What a watcher has not been told yet.
fn pending_events(live: &ConnectionState) -> Vec<SubscriptionEvent> {
    let mut cx = Context::from_waker(Waker::noop());
    std::iter::from_fn(|| match live.subscription.poll_next(&mut cx) {
        Poll::Ready(news) => news,
        Poll::Pending => None,
    })
    .collect()
}

const ANONYMOUS: CallerIdentity = CallerIdentity { principal: Principal::Anonymous, address: None };

#[tokio::test]
async fn calls_finish_on_what_they_started_with() {
    let (stand, old) = TestServer::new(word_provider("old", "a"));
    let mut flow = stand.call("wait", Era::New, &ANONYMOUS);
    assert!(flow.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
    stand.server.swap(provider_set("1.1.0", word_provider("new", "b")).0).expect("a good catalog");
    old.release.notify_one();
    let answer = finish(flow).await;
    assert!(answer.contains(r#""text":"old""#) && answer.contains(r#""version":"1.0.0""#), "{answer}");
    let answer = finish(stand.call("say", Era::New, &ANONYMOUS)).await;
    assert!(answer.contains(r#""text":"new""#) && answer.contains(r#""version":"1.1.0""#), "{answer}");
    assert_eq!(stand.server.status().version, "1.1.0");
}

#[test]
fn whoever_listens_hears_of_each_list_once_and_only_if_it_reads_differently() {
    let (stand, old) = TestServer::new(word_provider("old", "a"));
    let live = stand.server.open_pipe();
    let listen = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let Dispatched::Subscription(mut listening) = stand.dispatch(listen, &ANONYMOUS) else {
        panic!("a subscription")
    };
    let mut heard = || {
        let mut cx = Context::from_waker(Waker::noop());
        let mut all = Vec::new();
        while let Poll::Ready(Some(message)) = listening.poll_next(&mut cx) {
            all.push(String::from_utf8(message).expect("text"));
        }
        all
    };
    assert!(heard()[0].contains("acknowledged"));
    stand.server.swap(provider_set("1.0.1", word_provider("new", "b")).0).expect("a good catalog");
    stand.server.swap(provider_set("1.0.2", word_provider("new", "c")).0).expect("a good catalog");
    assert_eq!(pending_events(&live), [SubscriptionEvent::Change(CatalogChange::Tools)]);
    let told = heard();
    assert!(told.len() == 1 && told[0].contains("notifications/tools/list_changed"), "{told:?}");

    let (next, new) = provider_set("1.0.3", word_provider("other", "c"));
    stand.server.swap(next).expect("a good catalog");
    assert_eq!((pending_events(&live).len(), heard().len()), (0, 0), "the lists read the same");

    // Who was replaced has nothing to say; who is served has.
    let tell = |says: &WordProvider| {
        let listener = says.listener.lock().expect("no panic before").clone().expect("attached");
        listener.catalog_changed(CatalogChange::Tools);
    };
    tell(&old);
    assert_eq!((pending_events(&live).len(), heard().len()), (0, 0));
    tell(&new);
    assert_eq!((pending_events(&live).len(), heard().len()), (1, 1));
    assert_eq!(stand.server.status().version, "1.0.3");
}

/// Two tools of one name.
struct DuplicateTools;

impl Provider for DuplicateTools {
    fn catalog(&self) -> Arc<Catalog> {
        let tool = Tool::new("t", "", Json::parse(r#"{"type":"object"}"#).expect("JSON"));
        Arc::new(Catalog { tools: vec![tool.clone(), tool], ..Catalog::default() })
    }

    fn run(&self, _: &Call, _: &CallContext<'_>) -> Run {
        Run::now(ToolResult::text("never"))
    }
}

#[tokio::test]
async fn what_cannot_be_served_changes_nothing() {
    let (stand, _) = TestServer::new(word_provider("old", "a"));
    let live = stand.server.open_pipe();
    let bad = ProviderSet {
        version: "2.0.0".into(),
        providers: vec![Arc::new(DuplicateTools)],
        call_timeout_ms: None,
    };
    assert!(stand.server.swap(bad).is_err());
    assert_eq!((stand.server.status().version.as_str(), pending_events(&live).len()), ("1.0.0", 0));
    assert!(stand.call_text("say", &ANONYMOUS).await.contains("old"));
}

#[tokio::test]
async fn a_question_outlives_a_swap_if_its_tool_promises_the_same() {
    let (stand, _) = TestServer::new(word_provider("old", "a"));
    let asked = finish(stand.call("ask", Era::New, &ANONYMOUS)).await;
    let state = Json::parse(&asked).expect("JSON");
    let state = state
        .to_doc()
        .root()
        .get("result")
        .and_then(|result| result.get("requestState")?.str().map(String::from));
    let state = state.unwrap_or_else(|| panic!("a question: {asked}"));
    let answer = format!(
        r#","requestState":"{state}","inputResponses":{{"sure":{{"action":"accept","content":{{}}}}}}"#
    );
    let again = call("ask", Era::New, &answer);
    stand.server.swap(provider_set("1.1.0", word_provider("new", "a")).0).expect("a good catalog");
    let Dispatched::Call(serving) = stand.dispatch(&again, &ANONYMOUS) else { panic!("it opens") };
    let told = finish(PendingResponse::Single(serving)).await;
    assert!(told.contains(r#""text":"new""#), "{told}");
    stand.server.swap(provider_set("2.0.0", word_provider("new", "b")).0).expect("a good catalog");
    let Dispatched::Ready { body, .. } = stand.dispatch(&again, &ANONYMOUS) else {
        panic!("it does not open")
    };
    assert!(String::from_utf8_lossy(&body).contains("requestState"));
}

#[tokio::test]
async fn too_many_calls_are_told_when_to_come_again() {
    let rate = Some(RateLimit { calls: 2, per_ms: 60_000 });
    let (stand, _) = TestServer::new(WordProvider { rate, ..word_provider("word", "a") });
    let ada = CallerIdentity { principal: Principal::Named("ada".into()), address: None };
    for _ in 0..2 {
        assert!(stand.call_text("say", &ada).await.contains(r#""text":"word""#));
    }
    let told = stand.call_text("say", &ada).await;
    for part in [
        r#""isError":true"#,
        r#""code":"rate_limited""#,
        r#""retryable":true"#,
        r#""retry_after_ms":30000"#,
        "try again in 30000 ms",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    // Of this tool, and for this caller.
    assert!(
        stand.call("wait", Era::Old, &ada).poll_next(&mut Context::from_waker(Waker::noop())).is_pending()
    );
    assert!(stand.call_text("say", &ANONYMOUS).await.contains(r#""text":"word""#));
    stand.platform.advance_ms(30_000);
    assert!(stand.call_text("say", &ada).await.contains(r#""text":"word""#));
    assert!(stand.call_text("say", &ada).await.contains("rate_limited"));
    // A new contract with the same limit is no way around it; one with another limit begins anew.
    stand
        .server
        .swap(provider_set("1.1.0", WordProvider { rate, ..word_provider("new", "b") }).0)
        .expect("a good catalog");
    assert!(stand.call_text("say", &ada).await.contains("rate_limited"));
    stand.server.swap(provider_set("1.2.0", word_provider("new", "b")).0).expect("a good catalog");
    assert!(stand.call_text("say", &ada).await.contains(r#""text":"new""#));
}

#[tokio::test]
async fn a_limit_of_all_holds_over_tools_and_callers() {
    let rate_of_all = Some(RateLimit { calls: 2, per_ms: 10_000 });
    let (stand, says) =
        TestServer::new(WordProvider { shared_rate: rate_of_all, ..word_provider("word", "a") });
    let ada = CallerIdentity { principal: Principal::Named("ada".into()), address: None };
    says.release.notify_one();
    assert!(stand.call_text("wait", &ada).await.contains("word"));
    assert!(stand.call_text("say", &ANONYMOUS).await.contains("word"));
    for who in [&ada, &ANONYMOUS] {
        let told = stand.call_text("say", who).await;
        assert!(told.contains("rate_limited") && told.contains(r#""retry_after_ms":5000"#), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_have_a_time_of_its_own() {
    let (stand, _) =
        TestServer::new(WordProvider { call_timeout_ms: Some(50), ..word_provider("word", "a") });
    assert!(stand.call_text("never", &ANONYMOUS).await.contains("no result within 50 ms"));
    stand.server.swap(provider_set("1", word_provider("word", "a")).0).expect("a good catalog");
    assert!(stand.call_text("never", &ANONYMOUS).await.contains("no result within 30000 ms"));
    let (next, _) = provider_set("1", word_provider("word", "a"));
    stand.server.swap(ProviderSet { call_timeout_ms: Some(700), ..next }).expect("a good catalog");
    assert!(stand.call_text("never", &ANONYMOUS).await.contains("no result within 700 ms"));
    let (next, _) =
        provider_set("1", WordProvider { call_timeout_ms: Some(90_000), ..word_provider("word", "a") });
    stand.server.swap(ProviderSet { call_timeout_ms: Some(700), ..next }).expect("a good catalog");
    assert!(stand.call_text("never", &ANONYMOUS).await.contains("no result within 90000 ms"));
}

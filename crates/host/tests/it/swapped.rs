//! What is served is replaced while it is: calls keep what they started with, and whoever listens hears of it once.
//! And how often and how long calls may be.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use call::{
    Ask, Asks, Call, Catalog, Change, Cx, Limits, Listener, Outcome, Principal, Provider, Rate, Run, Tool,
    ToolReply,
};
use host::{Begun, Config, Flow, Line, Live, News, Out, Served, Server, Who};
use json::Json;
use testkit::FakeWorld;
use tokio::sync::Notify;
use wire::{Bare, Opened, Peer, Version};

/// Tools that all say the same word: at once, when told to, never, or after a question.
#[derive(Default)]
struct Says {
    word: &'static str,
    description: &'static str,
    rate: Option<Rate>,
    rate_of_all: Option<Rate>,
    call_timeout_ms: Option<u64>,
    go: Arc<Notify>,
    listener: Mutex<Option<Arc<dyn Listener>>>,
}

impl Provider for Says {
    fn catalog(&self) -> Arc<Catalog> {
        let tool = |name: &str| Tool {
            rate: self.rate,
            call_timeout_ms: self.call_timeout_ms,
            ..Tool::new(name, self.description, Json::parse(r#"{"type":"object"}"#).expect("JSON"))
        };
        let tools = ["say", "wait", "never", "ask"].map(tool).to_vec();
        Arc::new(Catalog { tools, changes: true, rate: self.rate_of_all, ..Catalog::default() })
    }

    fn run(&self, call: &Call, cx: &Cx<'_>) -> Run {
        let word = self.word;
        match &*call.name() {
            "say" => Run::now(ToolReply::text(word)),
            "wait" => {
                let go = self.go.clone();
                Run::later(async move {
                    go.notified().await;
                    ToolReply::text(word).into()
                })
            }
            "never" => Run::later(std::future::pending()),
            _ => match cx.journal.answer("sure") {
                Some(_) => Run::now(ToolReply::text(word)),
                None => {
                    let schema = Json::parse(r#"{"type":"object","properties":{}}"#).expect("JSON");
                    let form = Ask::Form { message: "sure?".into(), schema };
                    Run::Now(Outcome::NeedInput(Asks::one("sure", form)))
                }
            },
        }
    }

    fn attach(&self, listener: Arc<dyn Listener>) {
        *self.listener.lock().expect("no panic before") = Some(listener);
    }
}

fn says(word: &'static str, description: &'static str) -> Says {
    Says { word, description, ..Says::default() }
}

fn served(version: &str, says: Says) -> (Served, Arc<Says>) {
    let says = Arc::new(says);
    (Served { version: version.into(), providers: vec![says.clone()], call_timeout_ms: None }, says)
}

struct Stand {
    server: Arc<Server>,
    world: Arc<FakeWorld>,
}

impl Stand {
    fn new(says: Says) -> (Self, Arc<Says>) {
        let world = Arc::new(FakeWorld::new(1));
        let limits = Limits::default();
        let config = Config { name: "t".into(), version: String::new(), limits, world: world.clone() };
        let (served, says) = served("1.0.0", says);
        (Self { server: Server::serving(config, served).expect("a good catalog"), world }, says)
    }

    fn begin(&self, message: &str, who: &Who) -> Begun {
        let bare = Bare::Pipe(Some(Peer::bare(Version::V2025_06_18)));
        let Opened::Request(request) = self.server.open(message.as_bytes().to_vec(), bare) else {
            panic!("a request: {message}");
        };
        self.server.begin(request, who, Line::Alone)
    }

    fn call(&self, tool: &str, era: Era, who: &Who) -> Flow {
        match self.begin(&call(tool, era, ""), who) {
            Begun::Call(serving) => Flow::One(serving),
            Begun::Ready { body, .. } | Begun::Welcome { body, .. } => {
                panic!("{}", String::from_utf8_lossy(&body))
            }
            Begun::Listen(_) => panic!("a call"),
        }
    }

    async fn said(&self, tool: &str, who: &Who) -> String {
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

async fn finish(mut flow: Flow) -> String {
    loop {
        if let Out::Final { body, .. } = poll_fn(|cx| flow.poll_next(cx)).await {
            return String::from_utf8(body).expect("text");
        }
    }
}

/// What a watcher has not been told yet.
fn news(live: &Live) -> Vec<News> {
    let mut cx = Context::from_waker(Waker::noop());
    std::iter::from_fn(|| match live.watch.poll_next(&mut cx) {
        Poll::Ready(news) => news,
        Poll::Pending => None,
    })
    .collect()
}

const NOBODY: Who = Who { principal: Principal::Anonymous, address: None };

#[tokio::test]
async fn calls_finish_on_what_they_started_with() {
    let (stand, old) = Stand::new(says("old", "a"));
    let mut flow = stand.call("wait", Era::New, &NOBODY);
    assert!(flow.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
    stand.server.swap(served("1.1.0", says("new", "b")).0).expect("a good catalog");
    old.go.notify_one();
    let answer = finish(flow).await;
    assert!(answer.contains(r#""text":"old""#) && answer.contains(r#""version":"1.0.0""#), "{answer}");
    let answer = finish(stand.call("say", Era::New, &NOBODY)).await;
    assert!(answer.contains(r#""text":"new""#) && answer.contains(r#""version":"1.1.0""#), "{answer}");
    assert_eq!(stand.server.status().version, "1.1.0");
}

#[test]
fn whoever_listens_hears_of_each_list_once_and_only_if_it_reads_differently() {
    let (stand, old) = Stand::new(says("old", "a"));
    let live = stand.server.pipe();
    let listen = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let Begun::Listen(mut listening) = stand.begin(listen, &NOBODY) else { panic!("a subscription") };
    let mut heard = || {
        let mut cx = Context::from_waker(Waker::noop());
        let mut all = Vec::new();
        while let Poll::Ready(Some(message)) = listening.poll_next(&mut cx) {
            all.push(String::from_utf8(message).expect("text"));
        }
        all
    };
    assert!(heard()[0].contains("acknowledged"));
    stand.server.swap(served("1.0.1", says("new", "b")).0).expect("a good catalog");
    stand.server.swap(served("1.0.2", says("new", "c")).0).expect("a good catalog");
    assert_eq!(news(&live), [News::Change(Change::Tools)]);
    let told = heard();
    assert!(told.len() == 1 && told[0].contains("notifications/tools/list_changed"), "{told:?}");

    let (next, new) = served("1.0.3", says("other", "c"));
    stand.server.swap(next).expect("a good catalog");
    assert_eq!((news(&live).len(), heard().len()), (0, 0), "the lists read the same");

    // Who was replaced has nothing to say; who is served has.
    let tell = |says: &Says| {
        let listener = says.listener.lock().expect("no panic before").clone().expect("attached");
        listener.changed(Change::Tools);
    };
    tell(&old);
    assert_eq!((news(&live).len(), heard().len()), (0, 0));
    tell(&new);
    assert_eq!((news(&live).len(), heard().len()), (1, 1));
    assert_eq!(stand.server.status().version, "1.0.3");
}

/// Two tools of one name.
struct Twice;

impl Provider for Twice {
    fn catalog(&self) -> Arc<Catalog> {
        let tool = Tool::new("t", "", Json::parse(r#"{"type":"object"}"#).expect("JSON"));
        Arc::new(Catalog { tools: vec![tool.clone(), tool], ..Catalog::default() })
    }

    fn run(&self, _: &Call, _: &Cx<'_>) -> Run {
        Run::now(ToolReply::text("never"))
    }
}

#[tokio::test]
async fn what_cannot_be_served_changes_nothing() {
    let (stand, _) = Stand::new(says("old", "a"));
    let live = stand.server.pipe();
    let bad = Served { version: "2.0.0".into(), providers: vec![Arc::new(Twice)], call_timeout_ms: None };
    assert!(stand.server.swap(bad).is_err());
    assert_eq!((stand.server.status().version.as_str(), news(&live).len()), ("1.0.0", 0));
    assert!(stand.said("say", &NOBODY).await.contains("old"));
}

#[tokio::test]
async fn a_question_outlives_a_swap_if_its_tool_promises_the_same() {
    let (stand, _) = Stand::new(says("old", "a"));
    let asked = finish(stand.call("ask", Era::New, &NOBODY)).await;
    let state = Json::parse(&asked).expect("JSON");
    let state = state
        .doc()
        .root()
        .get("result")
        .and_then(|result| result.get("requestState")?.str().map(String::from));
    let state = state.unwrap_or_else(|| panic!("a question: {asked}"));
    let answer = format!(
        r#","requestState":"{state}","inputResponses":{{"sure":{{"action":"accept","content":{{}}}}}}"#
    );
    let again = call("ask", Era::New, &answer);
    stand.server.swap(served("1.1.0", says("new", "a")).0).expect("a good catalog");
    let Begun::Call(serving) = stand.begin(&again, &NOBODY) else { panic!("it opens") };
    let told = finish(Flow::One(serving)).await;
    assert!(told.contains(r#""text":"new""#), "{told}");
    stand.server.swap(served("2.0.0", says("new", "b")).0).expect("a good catalog");
    let Begun::Ready { body, .. } = stand.begin(&again, &NOBODY) else { panic!("it does not open") };
    assert!(String::from_utf8_lossy(&body).contains("requestState"));
}

#[tokio::test]
async fn too_many_calls_are_told_when_to_come_again() {
    let rate = Some(Rate { calls: 2, per_ms: 60_000 });
    let (stand, _) = Stand::new(Says { rate, ..says("word", "a") });
    let ada = Who { principal: Principal::Named("ada".into()), address: None };
    for _ in 0..2 {
        assert!(stand.said("say", &ada).await.contains(r#""text":"word""#));
    }
    let told = stand.said("say", &ada).await;
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
    assert!(stand.said("say", &NOBODY).await.contains(r#""text":"word""#));
    stand.world.advance_ms(30_000);
    assert!(stand.said("say", &ada).await.contains(r#""text":"word""#));
    assert!(stand.said("say", &ada).await.contains("rate_limited"));
    // A new contract with the same limit is no way around it; one with another limit begins anew.
    stand.server.swap(served("1.1.0", Says { rate, ..says("new", "b") }).0).expect("a good catalog");
    assert!(stand.said("say", &ada).await.contains("rate_limited"));
    stand.server.swap(served("1.2.0", says("new", "b")).0).expect("a good catalog");
    assert!(stand.said("say", &ada).await.contains(r#""text":"new""#));
}

#[tokio::test]
async fn a_limit_of_all_holds_over_tools_and_callers() {
    let rate_of_all = Some(Rate { calls: 2, per_ms: 10_000 });
    let (stand, says) = Stand::new(Says { rate_of_all, ..says("word", "a") });
    let ada = Who { principal: Principal::Named("ada".into()), address: None };
    says.go.notify_one();
    assert!(stand.said("wait", &ada).await.contains("word"));
    assert!(stand.said("say", &NOBODY).await.contains("word"));
    for who in [&ada, &NOBODY] {
        let told = stand.said("say", who).await;
        assert!(told.contains("rate_limited") && told.contains(r#""retry_after_ms":5000"#), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_have_a_time_of_its_own() {
    let (stand, _) = Stand::new(Says { call_timeout_ms: Some(50), ..says("word", "a") });
    assert!(stand.said("never", &NOBODY).await.contains("no answer within 50 ms"));
    stand.server.swap(served("1", says("word", "a")).0).expect("a good catalog");
    assert!(stand.said("never", &NOBODY).await.contains("no answer within 30000 ms"));
    let (next, _) = served("1", says("word", "a"));
    stand.server.swap(Served { call_timeout_ms: Some(700), ..next }).expect("a good catalog");
    assert!(stand.said("never", &NOBODY).await.contains("no answer within 700 ms"));
    let (next, _) = served("1", Says { call_timeout_ms: Some(90_000), ..says("word", "a") });
    stand.server.swap(Served { call_timeout_ms: Some(700), ..next }).expect("a good catalog");
    assert!(stand.said("never", &NOBODY).await.contains("no answer within 90000 ms"));
}

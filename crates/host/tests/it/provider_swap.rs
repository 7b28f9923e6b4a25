//! Swapping providers while serving: calls in flight keep theirs, and subscribers hear of each change once. Also rate
//! limits and time limits.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use host::{
    CallerIdentity, Config, ConnectionState, Dispatched, OutgoingMessage, PendingResponse, ProviderSet,
    ReplyChannel, Server, SubscriptionEvent,
};
use json::Json;
use spile_core::{
    Call, CallContext, Catalog, CatalogChange, ChangeListener, ClientCapabilities, InputRequest,
    InputRequests, Limits, Outcome, Principal, Provider, RateLimit, Run, Tool, ToolResult,
};
use testkit::FakePlatform;
use tokio::sync::Notify;
use wire::{Decoded, MessageContext, Peer, Version};

/// Tools that return one word: at once, when released, never, or after an elicitation.
#[derive(Default)]
struct WordProvider {
    word: &'static str,
    description: &'static str,
    /// A schema for one argument, `x`; without it the tools take any object.
    argument_schema: Option<&'static str>,
    rate: Option<RateLimit>,
    shared_rate: Option<RateLimit>,
    call_timeout_ms: Option<u64>,
    release: Arc<Notify>,
    listener: Mutex<Option<Arc<dyn ChangeListener>>>,
}

impl Provider for WordProvider {
    fn catalog(&self) -> Arc<Catalog> {
        let schema = match self.argument_schema {
            Some(argument) => format!(r#"{{"type":"object","properties":{{"x":{argument}}}}}"#),
            None => r#"{"type":"object"}"#.to_owned(),
        };
        let schema = Json::parse(&schema).expect("JSON");
        let tool = |name: &str| Tool {
            rate_limit: self.rate,
            call_timeout_ms: self.call_timeout_ms,
            ..Tool::new(name, self.description, schema.clone())
        };
        let tools = ["say", "wait", "never", "ask"].map(tool).to_vec();
        Arc::new(Catalog { tools, list_changed: true, rate_limit: self.shared_rate, ..Catalog::default() })
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let word = self.word;
        match &*call.name() {
            "say" => Run::now(ToolResult::text(word)),
            "wait" => {
                let release = self.release.clone();
                Run::later(async move {
                    release.notified().await;
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

fn provider_set(version: &str, provider: WordProvider) -> (ProviderSet, Arc<WordProvider>) {
    let provider = Arc::new(provider);
    (
        ProviderSet {
            version: version.into(),
            providers: vec![provider.clone()],
            call_timeout_ms: None,
            tool_order: Vec::new(),
        },
        provider,
    )
}

struct TestServer {
    server: Arc<Server>,
    platform: Arc<FakePlatform>,
}

impl TestServer {
    fn new(provider: WordProvider) -> (Self, Arc<WordProvider>) {
        let platform = Arc::new(FakePlatform::new(1));
        let limits = Limits::default();
        let config = Config::new("t", "", limits, platform.clone());
        let (providers, provider) = provider_set("1.0.0", provider);
        (Self { server: Server::with_provider_set(config, providers), platform }, provider)
    }

    fn dispatch(&self, message: &str, identity: &CallerIdentity) -> Dispatched {
        let defaults = MessageContext::Pipe(Some(Peer::from_version(Version::V2025_06_18)));
        let Decoded::Request(request) =
            self.server.decode(message.as_bytes().to_vec(), defaults, &self.server.snapshot())
        else {
            panic!("a request: {message}");
        };
        self.server.dispatch(request, identity, ReplyChannel::NoSession, self.server.snapshot())
    }

    fn call(&self, tool: &str, era: Era, identity: &CallerIdentity) -> PendingResponse {
        match self.dispatch(&call(tool, era, ""), identity) {
            Dispatched::Call(in_flight) => PendingResponse::Single(in_flight),
            Dispatched::Ready { body, .. } | Dispatched::Initialized { body, .. } => {
                panic!("{}", String::from_utf8_lossy(&body))
            }
            Dispatched::Subscription(_) => panic!("a call"),
        }
    }

    async fn call_text(&self, tool: &str, identity: &CallerIdentity) -> String {
        finish(self.call(tool, Era::Old, identity)).await
    }
}

#[derive(Clone, Copy)]
enum Era {
    Old,
    New,
}

/// A request; `params` are further members of its parameters.
fn call(tool: &str, era: Era, params: &str) -> String {
    let meta = match era {
        Era::Old => "",
        Era::New => {
            r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}"#
        }
    };
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}"{params}{meta}}}}}"#)
}

async fn finish(mut pending: PendingResponse) -> String {
    loop {
        if let OutgoingMessage::Response { body, .. } = poll_fn(|cx| pending.poll_next(cx)).await {
            return String::from_utf8(body).expect("text");
        }
    }
}

/// The events that a client has not received yet.
fn pending_events(connection: &ConnectionState) -> Vec<SubscriptionEvent> {
    let mut cx = Context::from_waker(Waker::noop());
    std::iter::from_fn(|| match connection.subscription.poll_next(&mut cx) {
        Poll::Ready(event) => event,
        Poll::Pending => None,
    })
    .collect()
}

const ANONYMOUS: CallerIdentity =
    CallerIdentity { principal: Principal::Anonymous, address: None, request_head: None };

#[tokio::test]
async fn a_call_in_flight_finishes_with_the_provider_it_started_with() {
    let (test, old) = TestServer::new(word_provider("old", "a"));
    let mut pending = test.call("wait", Era::New, &ANONYMOUS);
    assert!(pending.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
    test.server.swap(provider_set("1.1.0", word_provider("new", "b")).0);
    old.release.notify_one();
    let response = finish(pending).await;
    assert!(response.contains(r#""text":"old""#) && response.contains(r#""version":"1.0.0""#), "{response}");
    let response = finish(test.call("say", Era::New, &ANONYMOUS)).await;
    assert!(response.contains(r#""text":"new""#) && response.contains(r#""version":"1.1.0""#), "{response}");
    assert_eq!(test.server.status().version, "1.1.0");
}

#[test]
fn a_swap_notifies_once_for_each_list_that_differs() {
    let (test, old) = TestServer::new(word_provider("old", "a"));
    let connection = test.server.open_pipe();
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let Dispatched::Subscription(mut subscription) = test.dispatch(request, &ANONYMOUS) else {
        panic!("a subscription")
    };
    let mut read_messages = || {
        let mut cx = Context::from_waker(Waker::noop());
        let mut messages = Vec::new();
        while let Poll::Ready(Some(message)) = subscription.poll_next(&mut cx) {
            messages.push(String::from_utf8(message).expect("text"));
        }
        messages
    };
    assert!(read_messages()[0].contains("acknowledged"));
    test.server.swap(provider_set("1.0.1", word_provider("new", "b")).0);
    test.server.swap(provider_set("1.0.2", word_provider("new", "c")).0);
    assert_eq!(pending_events(&connection), [SubscriptionEvent::Change(CatalogChange::Tools)]);
    let received = read_messages();
    assert!(received.len() == 1 && received[0].contains("notifications/tools/list_changed"), "{received:?}");

    let (next, new) = provider_set("1.0.3", word_provider("other", "c"));
    test.server.swap(next);
    assert_eq!((pending_events(&connection).len(), read_messages().len()), (0, 0), "the lists are the same");

    // Changes of a replaced provider are ignored.
    let report_change = |provider: &WordProvider| {
        let listener = provider.listener.lock().expect("no panic before").clone().expect("attached");
        listener.catalog_changed(CatalogChange::Tools);
    };
    report_change(&old);
    assert_eq!((pending_events(&connection).len(), read_messages().len()), (0, 0));
    report_change(&new);
    assert_eq!((pending_events(&connection).len(), read_messages().len()), (1, 1));
    assert_eq!(test.server.status().version, "1.0.3");
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
async fn a_tool_whose_name_is_taken_is_left_out_alone() {
    let (test, _) = TestServer::new(word_provider("old", "a"));
    let bad = ProviderSet {
        version: "2.0.0".into(),
        providers: vec![Arc::new(DuplicateTools)],
        call_timeout_ms: None,
        tool_order: Vec::new(),
    };
    test.server.swap(bad);
    assert_eq!((test.server.status().version.as_str(), test.server.status().tools), ("2.0.0", 1));
    assert!(test.call_text("t", &ANONYMOUS).await.contains("never"));
    let unserved = test.server.unserved_items();
    let reasons: Vec<_> = unserved.iter().map(|item| (&*item.name, &*item.reason)).collect();
    assert_eq!(reasons, [("t", "another tool has this name")]);
}

/// A server whose tool `ask` has a pending elicitation in the stateless era, and the request that answers it.
async fn pending_elicitation() -> (TestServer, String) {
    let provider = WordProvider {
        argument_schema: Some(r#"{"type":"string","description":"Values now: a, b."}"#),
        ..word_provider("old", "3 rows")
    };
    let (test, _) = TestServer::new(provider);
    let first_response = finish(test.call("ask", Era::New, &ANONYMOUS)).await;
    let state = Json::parse(&first_response).expect("JSON");
    let state = state
        .to_doc()
        .root()
        .get("result")
        .and_then(|result| result.get("requestState")?.str().map(String::from));
    let state = state.unwrap_or_else(|| panic!("a question: {first_response}"));
    let params = format!(
        r#","requestState":"{state}","inputResponses":{{"sure":{{"action":"accept","content":{{}}}}}}"#
    );
    (test, call("ask", Era::New, &params))
}

#[tokio::test]
async fn a_pending_elicitation_survives_a_change_of_titles_and_descriptions() {
    let (test, resumed) = pending_elicitation().await;
    // Another client adds a row: descriptions that show current data change.
    let provider = WordProvider {
        argument_schema: Some(r#"{"description":"Values now: a, b, c.","title":"X","type":"string"}"#),
        ..word_provider("new", "4 rows")
    };
    test.server.swap(provider_set("1.0.1", provider).0);
    let Dispatched::Call(in_flight) = test.dispatch(&resumed, &ANONYMOUS) else {
        panic!("the state must open")
    };
    let result = finish(PendingResponse::Single(in_flight)).await;
    assert!(result.contains(r#""text":"new""#), "{result}");
}

#[tokio::test]
async fn a_pending_elicitation_ends_when_the_schema_of_its_tool_changes() {
    for argument in [r#"{"type":"integer"}"#, r#"{"type":"string","enum":["a"]}"#] {
        let (test, resumed) = pending_elicitation().await;
        let provider = WordProvider { argument_schema: Some(argument), ..word_provider("new", "3 rows") };
        test.server.swap(provider_set("2.0.0", provider).0);
        let Dispatched::Ready { body, .. } = test.dispatch(&resumed, &ANONYMOUS) else {
            panic!("the state must not open")
        };
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains("\"the tool changed while it waited for input; repeat the call"), "{body}");
    }
}

/// The same in the handshake era, where the call itself waits for the answer.
async fn answer_after_swap(next: WordProvider) -> String {
    let (test, _) = TestServer::new(word_provider("old", "3 rows"));
    let connection = test.server.open_pipe();
    let peer = Peer::negotiated(Version::V2025_06_18, ClientCapabilities::ELICITATION_FORM);
    let message = call("ask", Era::Old, "").into_bytes();
    let Decoded::Request(request) =
        test.server.decode(message, MessageContext::Pipe(Some(peer)), &test.server.snapshot())
    else {
        panic!("a request")
    };
    let reply_channel = ReplyChannel::Pipe(connection.clone());
    let Dispatched::Call(mut in_flight) =
        test.server.dispatch(request, &ANONYMOUS, reply_channel, test.server.snapshot())
    else {
        panic!("a call")
    };
    let OutgoingMessage::Request(_) = poll_fn(|cx| in_flight.poll_next(cx)).await else {
        panic!("an elicitation")
    };
    test.server.swap(provider_set("1.0.1", next).0);
    let response = Json::parse(r#"{"action":"accept","content":{}}"#).expect("JSON");
    connection.deliver_response(Some(1), Ok(response));
    finish(PendingResponse::Single(in_flight)).await
}

#[tokio::test]
async fn a_pending_elicitation_of_the_handshake_era_continues_with_the_new_provider() {
    let result = answer_after_swap(word_provider("new", "4 rows")).await;
    assert!(result.contains(r#""text":"new""#), "{result}");
}

#[tokio::test]
async fn a_pending_elicitation_of_the_handshake_era_ends_when_the_schema_of_its_tool_changes() {
    let changed =
        WordProvider { argument_schema: Some(r#"{"type":"integer"}"#), ..word_provider("new", "3 rows") };
    let result = answer_after_swap(changed).await;
    assert!(result.contains("the tool changed while it waited for input; repeat the call"), "{result}");
}

#[tokio::test]
async fn a_rate_limited_call_says_when_to_try_again() {
    let rate = Some(RateLimit { calls: 2, per_ms: 60_000 });
    let (test, _) = TestServer::new(WordProvider { rate, ..word_provider("word", "a") });
    let ada = CallerIdentity {
        principal: Principal::local("ada").expect("a short name"),
        address: None,
        request_head: None,
    };
    for _ in 0..2 {
        assert!(test.call_text("say", &ada).await.contains(r#""text":"word""#));
    }
    let result = test.call_text("say", &ada).await;
    for part in [
        r#""isError":true"#,
        r#""code":"rate_limited""#,
        r#""retryable":true"#,
        r#""retry_after_ms":30000"#,
        "rate limit exceeded; retry in 30 s",
    ] {
        assert!(result.contains(part), "{part} in {result}");
    }
    // The limit holds for this tool and this caller only.
    assert!(
        test.call("wait", Era::Old, &ada).poll_next(&mut Context::from_waker(Waker::noop())).is_pending()
    );
    assert!(test.call_text("say", &ANONYMOUS).await.contains(r#""text":"word""#));
    test.platform.advance_ms(30_000);
    assert!(test.call_text("say", &ada).await.contains(r#""text":"word""#));
    assert!(test.call_text("say", &ada).await.contains("rate_limited"));
    // A swap with the same limit does not reset it; a swap with another limit does.
    test.server.swap(provider_set("1.1.0", WordProvider { rate, ..word_provider("new", "b") }).0);
    assert!(test.call_text("say", &ada).await.contains("rate_limited"));
    test.server.swap(provider_set("1.2.0", word_provider("new", "b")).0);
    assert!(test.call_text("say", &ada).await.contains(r#""text":"new""#));
}

#[tokio::test]
async fn the_shared_limit_holds_for_all_tools_and_callers() {
    let shared_rate = Some(RateLimit { calls: 2, per_ms: 10_000 });
    let (test, provider) = TestServer::new(WordProvider { shared_rate, ..word_provider("word", "a") });
    let ada = CallerIdentity {
        principal: Principal::local("ada").expect("a short name"),
        address: None,
        request_head: None,
    };
    provider.release.notify_one();
    assert!(test.call_text("wait", &ada).await.contains("word"));
    assert!(test.call_text("say", &ANONYMOUS).await.contains("word"));
    for identity in [&ada, &ANONYMOUS] {
        let result = test.call_text("say", identity).await;
        assert!(result.contains("rate_limited") && result.contains(r#""retry_after_ms":5000"#), "{result}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_have_its_own_time_limit() {
    let (test, _) = TestServer::new(WordProvider { call_timeout_ms: Some(50), ..word_provider("word", "a") });
    assert!(test.call_text("never", &ANONYMOUS).await.contains("no result within 50 ms"));
    test.server.swap(provider_set("1", word_provider("word", "a")).0);
    assert!(test.call_text("never", &ANONYMOUS).await.contains("no result within 30000 ms"));
    let (next, _) = provider_set("1", word_provider("word", "a"));
    test.server.swap(ProviderSet { call_timeout_ms: Some(700), ..next });
    assert!(test.call_text("never", &ANONYMOUS).await.contains("no result within 700 ms"));
    let (next, _) =
        provider_set("1", WordProvider { call_timeout_ms: Some(90_000), ..word_provider("word", "a") });
    test.server.swap(ProviderSet { call_timeout_ms: Some(700), ..next });
    assert!(test.call_text("never", &ANONYMOUS).await.contains("no result within 90000 ms"));
}

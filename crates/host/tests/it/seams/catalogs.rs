//! Several providers in one server, whose catalogs change while calls run.

use std::sync::{Arc, Mutex, OnceLock};

use spile_core::{
    Call, CallContext, CallerRoles, Catalog, CatalogChange, ChangeListener, ItemKind, Principal, Provider,
    Resource, RoleView, Run, Tool, ToolResult, Visibility,
};

use super::{object_schema, provider, respond, server, stateless_call, text_of, tools};

/// A provider whose catalog can be replaced.
#[derive(Default)]
struct ChangingProvider {
    catalog: Mutex<Arc<Catalog>>,
    listener: Mutex<Option<Arc<dyn ChangeListener>>>,
    watched: Mutex<Vec<String>>,
}

impl ChangingProvider {
    fn change(&self, change: CatalogChange, edit: impl FnOnce(&mut Catalog)) {
        {
            let mut catalog = self.catalog.lock().expect("no panic before");
            let mut new = Catalog::clone(&catalog);
            edit(&mut new);
            *catalog = Arc::new(new);
        }
        let listener = self.listener.lock().expect("no panic before").clone();
        listener.expect("a listener").catalog_changed(change);
    }
}

impl Provider for ChangingProvider {
    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.lock().expect("no panic before").clone()
    }

    fn run(&self, call: &Call, _: &CallContext<'_>) -> Run {
        Run::now(ToolResult::text(call.name()))
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        *self.listener.lock().expect("no panic before") = Some(listener);
    }

    fn watch(&self, uri: &str) {
        self.watched.lock().expect("no panic before").push(format!("+{uri}"));
    }

    fn unwatch(&self, uri: &str) {
        self.watched.lock().expect("no panic before").push(format!("-{uri}"));
    }
}

#[test]
fn only_changed_tools_are_compiled() {
    const TOOLS: usize = 50;
    const CHANGES: usize = 1000;
    let changing = Arc::new(ChangingProvider::default());
    let names: Vec<String> = (0..TOOLS).map(|n| format!("t{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    *changing.catalog.lock().expect("no panic before") =
        Arc::new(Catalog { tools: tools(&names), list_changed: true, ..Catalog::default() });
    let fixed = provider(tools(&["fixed"]), |call, _| Run::now(ToolResult::text(call.name())));
    let server = server(vec![changing.clone(), fixed]);
    assert_eq!(server.tools_compiled(), TOOLS as u64 + 1);

    let changes = std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            for n in 0..CHANGES {
                changing.change(CatalogChange::Tools, |catalog| {
                    catalog.tools[n % TOOLS].description = Some(format!("change {n}"));
                });
            }
        });
        // Calls run all the while, on the changing provider and on its neighbour.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let mut calls = 0;
        while !changer.is_finished() || calls < 10 {
            for name in ["t7", "fixed"] {
                let response = runtime.block_on(respond(&server, &stateless_call(name, "")));
                assert_eq!(text_of(&response), name);
            }
            calls += 1;
        }
        changer.join()
    });
    changes.expect("no panic");
    // One compilation for each change, and none for its 49 neighbours or the other provider.
    assert_eq!(server.tools_compiled(), (TOOLS + 1 + CHANGES) as u64);
}

/// Its tools `t0` and `t1` require an argument of readers; all others are the same for them. Clerks see `t0` as it is.
#[derive(Default)]
struct RoleProvider {
    changing: ChangingProvider,
    /// Runs when a role is asked for.
    on_role_view: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct ReaderAndClerk;

impl CallerRoles for ReaderAndClerk {
    fn names(&self) -> Vec<&str> {
        vec!["reader", "clerk"]
    }

    fn role_of(&self, _: &Principal) -> Option<usize> {
        Some(0)
    }
}

struct OnlyT0;

impl Visibility for OnlyT0 {
    fn is_visible(&self, _: ItemKind, name: &str) -> bool {
        name == "t0"
    }
}

impl RoleProvider {
    fn of(tools: Vec<Tool>) -> Arc<Self> {
        let provider = Self::default();
        *provider.changing.catalog.lock().expect("no panic before") =
            Arc::new(Catalog { tools, list_changed: true, ..Catalog::default() });
        Arc::new(provider)
    }
}

impl Provider for RoleProvider {
    fn catalog(&self) -> Arc<Catalog> {
        self.changing.catalog()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        self.changing.run(call, cx)
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        self.changing.set_change_listener(listener);
    }

    /// Another value each time, as for a provider that does not keep it.
    fn roles(&self) -> Option<Arc<dyn CallerRoles>> {
        Some(Arc::new(ReaderAndClerk))
    }

    fn role_view(&self, role: &str) -> RoleView {
        if let Some(act) = self.on_role_view.get() {
            act();
        }
        if role == "clerk" {
            return RoleView::Part(Arc::new(OnlyT0));
        }
        let mut tools = self.catalog().tools.clone();
        for tool in tools.iter_mut().filter(|tool| ["t0", "t1"].contains(&&*tool.name)) {
            tool.input_schema = json::Json::parse(
                r#"{"type":"object","properties":{"who":{"type":"string"}},"required":["who"]}"#,
            )
            .expect("JSON");
        }
        RoleView::Provider(provider(tools, |call, _| {
            Run::now(ToolResult::text(format!("{} read", call.name())))
        }))
    }
}

#[tokio::test]
async fn only_changed_tools_are_compiled_for_roles() {
    let offered = || tools(&["t0", "t1", "t2", "t3", "t4"]);
    let fixed = || provider(tools(&["fixed"]), |call, _| Run::now(ToolResult::text(call.name())));
    let first = RoleProvider::of(offered());
    let server = server(vec![first.clone(), fixed()]);
    let compiled = |of: &str, expected: u64| assert_eq!(server.tools_compiled(), expected, "{of}");
    compiled("five tools, two of them again for readers, and the neighbour", 8);

    let describe = |provider: &RoleProvider, at: usize, text: &str| {
        provider.changing.change(CatalogChange::Tools, |catalog| {
            catalog.tools[at].description = Some(text.into());
        });
    };
    describe(&first, 3, "for all");
    compiled("a tool that readers see as it is", 9);
    describe(&first, 0, "for readers, too");
    compiled("a tool that is another one for readers", 11);
    server.set_provider("late", Some(fixed()));
    compiled("the neighbour of a neighbour", 12);

    // The same under another provider, as a reload has it, and then one tool of it.
    let second = RoleProvider::of(first.catalog().tools.clone());
    server.swap(host::ProviderSet {
        version: "2".into(),
        providers: vec![second.clone(), fixed()],
        call_timeout_ms: None,
        tool_order: Vec::new(),
    });
    compiled("a provider that was replaced by an equal one", 12);
    describe(&second, 1, "for readers, too");
    compiled("one tool of the new provider", 14);

    let refused = text_of(&respond(&server, &stateless_call("t1", "")).await);
    assert!(refused.contains("who"), "{refused}");
    let called = respond(&server, &stateless_call("t1", r#","arguments":{"who":"ada"}"#)).await;
    assert_eq!(text_of(&called), "t1 read");
    let hidden = respond(&server, &stateless_call("fixed", "")).await;
    assert_eq!(super::error_of(&hidden), "unknown tool `fixed`");
}

#[test]
fn tools_of_roles_are_compiled_outside_of_the_lock() {
    let roles = RoleProvider::of(tools(&["t0"]));
    let server = server(vec![roles.clone()]);
    let changed = server.clone();
    let act = move || {
        let changed = changed.clone();
        let other = provider(tools(&["other"]), |_, _| Run::now(ToolResult::text("other")));
        // Another provider changes meanwhile, on another thread: it would wait for the lock.
        std::thread::spawn(move || changed.set_provider("other", Some(other))).join().expect("no panic");
    };
    assert!(roles.on_role_view.set(Box::new(act)).is_ok());
    roles.changing.change(CatalogChange::Tools, |catalog| catalog.tools = tools(&["t0", "t1"]));
    assert_eq!(server.provider_catalog("other").map(|catalog| catalog.tools.len()), Some(1));
    let offered = server.offered_catalog(&super::ANONYMOUS);
    let names: Vec<_> = offered.tools().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["t0", "t1"]);
}

#[tokio::test]
async fn a_tool_that_cannot_be_served_does_not_take_its_neighbours_along() {
    let bad = Tool::new("bad", "", json::Json::parse(r#"{"type":"nonsense"}"#).expect("JSON"));
    let mut offered = tools(&["good", "taken"]);
    offered.insert(1, bad);
    let first = provider(tools(&["taken"]), |_, _| Run::now(ToolResult::text("first")));
    let second = provider(offered, |_, _| Run::now(ToolResult::text("second")));
    let server = server(vec![first, second]);
    assert_eq!(text_of(&respond(&server, &stateless_call("good", "")).await), "second");
    assert_eq!(text_of(&respond(&server, &stateless_call("taken", "")).await), "first");
    let unserved = server.unserved_items();
    let names: Vec<_> = unserved.iter().map(|item| (&*item.provider, &*item.name)).collect();
    assert_eq!(names, [("main-2", "bad"), ("main-2", "taken")]);
    assert!(!unserved[0].reason.is_empty());
}

#[tokio::test]
async fn providers_come_and_go_one_by_one() {
    let named = |name: &'static str| provider(tools(&[name]), move |_, _| Run::now(ToolResult::text(name)));
    let server = server(vec![named("base")]);
    server.set_provider("files", Some(named("files")));
    assert_eq!(text_of(&respond(&server, &stateless_call("files", "")).await), "files");
    // A reload of the base providers leaves the others alone.
    server.swap(host::ProviderSet {
        version: "2".into(),
        providers: vec![named("other")],
        call_timeout_ms: None,
        tool_order: Vec::new(),
    });
    assert_eq!(text_of(&respond(&server, &stateless_call("files", "")).await), "files");
    assert_eq!(text_of(&respond(&server, &stateless_call("other", "")).await), "other");
    assert_eq!(server.tools_compiled(), 3);
    server.set_provider("files", None);
    let gone = respond(&server, &stateless_call("files", "")).await;
    assert_eq!(super::error_of(&gone), "unknown tool `files`");
}

#[tokio::test]
async fn a_provider_hears_of_the_first_and_the_last_subscriber_of_a_resource() {
    let changing = Arc::new(ChangingProvider::default());
    let resource = |uri: &str| Resource { uri: uri.into(), name: uri.into(), ..Resource::default() };
    *changing.catalog.lock().expect("no panic before") = Arc::new(Catalog {
        resources: vec![resource("f:a"), resource("f:b")],
        resource_subscriptions: true,
        tools: vec![Tool::new("t", "", object_schema())],
        ..Catalog::default()
    });
    let server = server(vec![changing.clone()]);
    let clients = [super::PipeClient::new(&server), super::PipeClient::new(&server)];
    let send = |client: &super::PipeClient, method: &str, uri: &str| {
        let message =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"resources/{method}","params":{{"uri":"{uri}"}}}}"#);
        let peer = wire::Peer::from_version(wire::Version::V2025_11_25);
        let defaults = wire::MessageContext::Pipe(Some(peer));
        let wire::Decoded::Request(request) =
            server.decode(message.into_bytes(), defaults, &server.snapshot())
        else {
            panic!("a request")
        };
        let channel = host::ReplyChannel::Pipe(client.connection.clone());
        server.dispatch(request, &super::ANONYMOUS, channel, server.snapshot());
    };
    send(&clients[0], "subscribe", "f:a");
    send(&clients[1], "subscribe", "f:a");
    send(&clients[1], "subscribe", "f:b");
    send(&clients[0], "unsubscribe", "f:a");
    send(&clients[0], "unsubscribe", "f:a");
    drop(clients);
    let watched = changing.watched.lock().expect("no panic before").clone();
    assert_eq!(watched, ["+f:a", "+f:b", "-f:a", "-f:b"]);
}

/// Lets everything pass, and hides one resource.
struct HidesOne;

impl Visibility for HidesOne {
    fn is_visible(&self, _: ItemKind, name: &str) -> bool {
        name != "f:hidden"
    }
}

impl spile_core::Policy for HidesOne {
    fn before(
        &self,
        _: &Call,
        _: &spile_core::PolicyContext<'_>,
    ) -> spile_core::PolicyRun<spile_core::PolicyDecision> {
        spile_core::PolicyRun::Now(spile_core::PolicyDecision::allow())
    }

    fn view(&self, _: &spile_core::Caller) -> Option<spile_core::CatalogView> {
        Some(spile_core::CatalogView { key: 1, visibility: Arc::new(HidesOne) })
    }
}

#[tokio::test]
async fn the_changes_of_a_hidden_resource_are_hidden_too() {
    let changing = Arc::new(ChangingProvider::default());
    let resource = |uri: &str| Resource { uri: uri.into(), name: uri.into(), ..Resource::default() };
    *changing.catalog.lock().expect("no panic before") = Arc::new(Catalog {
        resources: vec![resource("f:seen"), resource("f:hidden")],
        resource_subscriptions: true,
        ..Catalog::default()
    });
    let server = server(vec![changing.clone()]);
    server.set_policy(Arc::new(HidesOne));
    let pipe = host::ReplyChannel::Pipe(server.open_pipe());
    let dispatch = |message: &str| {
        let peer = wire::Peer::from_version(wire::Version::V2025_11_25);
        let context = wire::MessageContext::Pipe(Some(peer));
        let wire::Decoded::Request(request) =
            server.decode(message.as_bytes().to_vec(), context, &server.snapshot())
        else {
            panic!("a request: {message}")
        };
        server.dispatch(request, &super::ANONYMOUS, pipe.clone(), server.snapshot())
    };
    for uri in ["f:seen", "f:hidden"] {
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{{"uri":"{uri}"}}}}"#
        );
        let host::Dispatched::Ready { body, .. } = dispatch(&message) else { panic!("an answer") };
        assert!(!String::from_utf8_lossy(&body).contains("error"), "it looks as one that does not exist");
    }
    let listen = concat!(
        r#"{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":"#,
        r#"{"resourceSubscriptions":["f:seen","f:hidden"]},"_meta":{"#,
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientCapabilities":{}}}}"#
    );
    let host::Dispatched::Subscription(_stream) = dispatch(listen) else { panic!("a subscription") };
    assert_eq!(*changing.watched.lock().expect("no panic before"), ["+f:seen"]);
}

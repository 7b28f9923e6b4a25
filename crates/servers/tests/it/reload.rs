//! What changes while a manager runs: the settings, a server that is busy, a subscription that ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use json::Json;
use outbound::Reach;
use servers::config::{ConfigScope, RegisteredServers, Registration, RegistrationRules};
use servers::decisions::{DecisionFile, Permission};
use servers::manager::state::Status;
use servers::manager::{ConfigFollower, Manager, ManagerHost, ServerCallError, ServerChange, follow};
use upstream::{Connection, ConnectionOptions, NoopClientHandler, OpenError, Target};
use wire::client::ClientError;

use crate::harness::User;
use crate::http_server::{Response, serve};
use crate::manager::{HELPER, options};

struct NoHost;

impl ManagerHost for NoHost {
    fn env(&self, _: &str) -> Option<String> {
        None
    }
}

/// A user with servers that are described in one line: name and log.
struct Setup {
    user: User,
    manager: Manager,
    follower: ConfigFollower,
}

impl Setup {
    fn new() -> Self {
        let user = User::new(&[]);
        let follower = follower(&user);
        Self { user, manager: Manager::start([], options(), Arc::new(NoHost)), follower }
    }

    fn write(&self, file: &str, servers: &[(&str, &str)]) {
        self.user.write(file, &entries(&self.user, servers));
    }

    fn apply(&mut self) -> Vec<ServerChange> {
        let Some((configuration, decisions)) = self.follower.poll() else { return Vec::new() };
        self.manager.apply(&configuration, &decisions)
    }

    async fn connected(&self, server: &str) {
        self.manager.wait_for(server, Status::Connected).await.expect("it is there");
    }

    fn servers(&self) -> String {
        let shown =
            |status: servers::manager::ServerStatus| format!("{} {}", status.name, status.status.name());
        self.manager.statuses().into_iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    async fn call(&self, tool: &str) -> Result<Json, ServerCallError> {
        self.manager.call_tool(tool, &Json::object(|_| {}), None).await
    }
}

fn follower(user: &User) -> ConfigFollower {
    ConfigFollower::new(user.places(), Vec::new(), Some(user.path("home/state/decisions.json")))
}

fn entries(user: &User, servers: &[(&str, &str)]) -> String {
    let one = |(name, log): &(&str, &str)| {
        let log = user.path(log).display().to_string();
        format!(r#""{name}": {{"command": "{HELPER}", "args": ["serve", "{log}"]}}"#)
    };
    let all: Vec<String> = servers.iter().map(one).collect();
    format!(r#"{{"mcpServers": {{{}}}}}"#, all.join(", "))
}

fn names(changes: &[ServerChange]) -> String {
    let shown = |change: &ServerChange| match change {
        ServerChange::Added(name) => format!("+{name}"),
        ServerChange::Changed(name) => format!("~{name}"),
        ServerChange::Removed(name) => format!("-{name}"),
        ServerChange::RootsChanged(name) => format!("/{name}"),
    };
    changes.iter().map(shown).collect::<Vec<_>>().join(" ")
}

const OWN: &str = "home/.config/spile/servers.json";

#[tokio::test]
async fn servers_join_change_and_leave_while_the_others_go_on() {
    let mut setup = Setup::new();
    setup.write(OWN, &[("a", "a.log"), ("b", "b.log")]);
    assert_eq!(names(&setup.apply()), "+a +b");
    setup.connected("a").await;
    setup.connected("b").await;
    assert_eq!(names(&setup.apply()), "");
    // One is changed, one removed, one added: `a` is the only one that is started again.
    setup.write(OWN, &[("a", "other.log"), ("c", "c.log")]);
    let mut registry = setup.manager.subscribe();
    assert_eq!(names(&setup.apply()), "-b ~a +c");
    setup.connected("c").await;
    let has = |registry: &servers::registry::ServerRegistry, server: &str| {
        registry.tools().any(|tool| &*tool.server == server)
    };
    registry.wait_for(|all| has(all, "a") && has(all, "c") && !has(all, "b")).await.expect("it changes");
    setup.connected("a").await;
    assert!(setup.call("mcp__a__echo").await.is_ok());
    assert!(std::fs::read_to_string(setup.user.path("other.log")).expect("started").contains("called echo"));
    assert!(matches!(setup.call("mcp__b__echo").await, Err(ServerCallError::UnknownTool(_))));
    let gone = setup.manager.retry("b").await.expect_err("it is gone").to_string();
    assert_eq!(gone, "unknown server `b`");
    assert_eq!(setup.servers(), "a connected, c connected");
    setup.manager.close().await;
}

#[tokio::test]
async fn a_file_that_is_being_edited_changes_nothing() {
    let mut setup = Setup::new();
    setup.write(OWN, &[("a", "a.log")]);
    // A lower scope has another server, and an entry of the same name.
    setup.write("home/.claude.json", &[("a", "lower.log"), ("d", "d.log")]);
    assert_eq!(names(&setup.apply()), "+a +d");
    setup.user.write(OWN, "{\"mcpServers\": {\"a\"");
    assert_eq!(names(&setup.apply()), "");
    setup.write(OWN, &[("a", "a.log")]);
    assert_eq!(names(&setup.apply()), "");
    // Without the file the lower entry counts.
    std::fs::remove_file(setup.user.path(OWN)).expect("removed");
    assert_eq!(names(&setup.apply()), "~a");
    setup.manager.close().await;
}

#[tokio::test]
async fn a_file_that_names_a_registered_server_takes_precedence_over_it() {
    let mut setup = Setup::new();
    let registered = Arc::new(RegisteredServers::default());
    setup.follower = follower(&setup.user).with_registered(registered.clone());
    let rules = RegistrationRules { allows_commands: true, reach: Reach::Public };
    let entry = entries(&setup.user, &[("a", "registered.log")]);
    let entry = Json::parse(&entry).expect("JSON").to_doc();
    let entry = entry.root().get("mcpServers").and_then(|all| all.get("a")).expect("an entry");
    registered.register("a", entry, rules).expect("it may be registered");
    assert_eq!(names(&setup.apply()), "+a");
    setup.connected("a").await;
    let scope = |setup: &Setup| setup.manager.configured("a").expect("known").source.scope;
    assert_eq!(scope(&setup), ConfigScope::Dynamic);
    // The user's file gains the name, and loses it again.
    setup.write(OWN, &[("a", "own.log")]);
    assert_eq!(names(&setup.apply()), "~a");
    setup.connected("a").await;
    assert_eq!(scope(&setup), ConfigScope::User);
    assert!(setup.user.path("own.log").exists());
    let again = registered.register("a", entry, rules).expect("it may be registered");
    assert_eq!(again, Registration::Replaced);
    assert_eq!(names(&setup.apply()), "", "what is registered stays below");
    setup.write(OWN, &[]);
    assert_eq!(names(&setup.apply()), "~a");
    assert_eq!(scope(&setup), ConfigScope::Dynamic);
    registered.remove("a");
    assert_eq!(names(&setup.apply()), "-a");
    setup.manager.close().await;
}

#[tokio::test]
async fn a_server_that_a_project_adds_waits_for_its_approval() {
    let mut setup = Setup::new();
    assert_eq!(names(&setup.apply()), "");
    setup.write("project/.mcp.json", &[("theirs", "theirs.log")]);
    assert_eq!(names(&setup.apply()), "+theirs");
    setup.manager.wait_for("theirs", Status::Disabled).await.expect("it is there");
    assert!(!setup.user.path("theirs.log").exists(), "nothing was started");
    let decisions = DecisionFile::new(setup.user.path("home/state/decisions.json"));
    let server = setup.user.load().servers.remove(0);
    decisions.update(|decisions| decisions.approve(&server)).expect("written");
    assert_eq!(names(&setup.apply()), "~theirs");
    setup.connected("theirs").await;
    // The project changes the command: it stops, and waits again.
    setup.write("project/.mcp.json", &[("theirs", "evil.log")]);
    assert_eq!(names(&setup.apply()), "~theirs");
    setup.manager.wait_for("theirs", Status::Disabled).await.expect("it is there");
    assert!(!setup.user.path("evil.log").exists(), "nothing was started");
    // A damaged file of decisions approves nothing, and ends nothing.
    setup.user.write("home/state/decisions.json", "{");
    assert_eq!(names(&setup.apply()), "");
    setup.manager.close().await;
}

#[tokio::test]
async fn files_are_followed() {
    let Setup { user, manager, follower } = Setup::new();
    let following = follow(&manager, follower, Duration::from_millis(10));
    let working = async {
        let mut registry = manager.subscribe();
        user.write(OWN, &entries(&user, &[("a", "a.log")]));
        registry.wait_for(|all| all.tools().count() == 5).await.expect("it joins");
        user.write(OWN, &entries(&user, &[]));
        registry.wait_for(|all| all.tools().count() == 0).await.expect("it leaves");
    };
    tokio::select! {
        () = following => panic!("it ends only with the manager"),
        () = working => {}
    }
    manager.close().await;
}

#[tokio::test]
async fn a_busy_server_says_when_to_come_back() {
    let origin = serve(|_| Response::status(503).header("Retry-After", "7")).await;
    let target = Target::parse(&format!("{origin}/mcp")).expect("a URL");
    let opened = Connection::open(&target, ConnectionOptions::default(), Arc::new(NoopClientHandler)).await;
    let Err(OpenError::Failed(ClientError::HttpStatus { status, retry_after_ms, .. })) = opened else {
        panic!("it is busy")
    };
    assert_eq!((status, retry_after_ms), (503, Some(7000)));
}

/// A server of 2026-07-28 over HTTP that ends each subscription at once, and has one more tool after each.
#[tokio::test]
async fn a_subscription_that_ends_is_made_again_and_the_lists_are_read_again() {
    let subscriptions = Arc::new(AtomicUsize::new(0));
    let log = Arc::new(Mutex::new(Vec::new()));
    let (counted, seen) = (subscriptions.clone(), log.clone());
    let origin = serve(move |request| {
        let Ok(message) = Json::parse(&request.body) else { return Response::status(405) };
        let doc = message.to_doc();
        let method = doc.root().get("method").and_then(|method| method.str()).unwrap_or_default().into_owned();
        seen.lock().expect("no panic").push(method.clone());
        let Some(id) = doc.root().get("id").map(Json::from) else { return Response::status(202) };
        let result = match method.as_str() {
            "server/discover" => {
                r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"1"},"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#.to_owned()
            }
            "tools/list" => {
                let count = counted.load(Ordering::SeqCst);
                let tool = |index| format!(r#"{{"name":"t{index}","inputSchema":{{"type":"object"}}}}"#);
                let tools: Vec<String> = (0..=count).map(tool).collect();
                format!(r#"{{"tools":[{}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}}"#, tools.join(","))
            }
            "subscriptions/listen" => {
                counted.fetch_add(1, Ordering::SeqCst);
                let granted = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}},"notifications":{{"toolsListChanged":true}}}}}}"#
                );
                return Response {
                    status: 200,
                    headers: vec![("Content-Type", "text/event-stream".to_owned())],
                    body: format!("data: {granted}\n\n"),
                    is_cut: false,
                };
            }
            _ => return Response::status(404),
        };
        Response::json(200, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
    })
    .await;
    let user = User::new(&[(OWN, &format!(r#"{{"mcpServers": {{"s": {{"url": "{origin}/mcp"}}}}}}"#))]);
    let server = user.load().servers.remove(0);
    let manager = Manager::start([(server, Permission::Allowed)], options(), Arc::new(NoHost));
    let mut registry = manager.subscribe();
    let grown = registry.wait_for(|all| all.tools().count() >= 4);
    let grown = tokio::time::timeout(Duration::from_secs(30), grown).await;
    assert!(grown.is_ok(), "{:?} {:?}", manager.statuses(), log.lock().expect("no panic"));
    drop(grown);
    manager.close().await;
}

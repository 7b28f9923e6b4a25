//! Connections to real processes: they heal, and one that is broken hurts no other.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use json::Json;
use servers::config::ConfiguredServer;
use servers::decisions::{Decisions, Permission};
use servers::definitions::DefinitionPins;
use servers::manager::state::{RetryPolicy, Status};
use servers::manager::{Manager, ManagerHost, ManagerOptions, ServerCallError};

use crate::harness::User;

pub const HELPER: &str = env!("CARGO_BIN_EXE_servers-helper");

/// Longer than anything takes that works.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Default)]
struct TestHost {
    pins: Option<DefinitionPins>,
}

impl ManagerHost for TestHost {
    fn env(&self, _: &str) -> Option<String> {
        None
    }

    fn definitions(&self) -> Option<DefinitionPins> {
        self.pins.clone()
    }
}

pub fn options() -> ManagerOptions {
    let mut options = ManagerOptions {
        retry: RetryPolicy {
            backoff_min_ms: 10,
            backoff_max_ms: 40,
            attempts_max: 3,
            stable_ms: 60_000,
            ..RetryPolicy::default()
        },
        wait_timeout_ms: 20_000,
        ping_timeout_ms: 200,
        ..ManagerOptions::default()
    };
    // The running binary is a test, which cannot supervise.
    options.connection.process.supervisor = Some(HELPER.into());
    options
}

/// Servers in the user's own file; `LOG` is a file of the server's own.
struct Servers {
    user: User,
    manager: Manager,
}

impl Servers {
    fn start(entries: &[(&str, &str)], options: ManagerOptions) -> Self {
        let user = User::new(&[]);
        let shown: Vec<String> = entries
            .iter()
            .map(|(name, entry)| {
                let entry = entry.replace("HELPER", HELPER).replace("LOG", &log(&user, name));
                format!("\"{name}\": {entry}")
            })
            .collect();
        let text = format!("{{\"mcpServers\": {{{}}}}}", shown.join(", "));
        user.write("home/.config/spile/servers.json", &text);
        let all: Vec<(ConfiguredServer, Permission)> = user
            .load()
            .servers
            .into_iter()
            .map(|server| {
                let permission = Decisions::default().permission(&server);
                (server, permission)
            })
            .collect();
        let manager = Manager::start(all, options, Arc::new(TestHost::default()));
        Self { user, manager }
    }

    async fn call(&self, tool: &str) -> Result<String, ServerCallError> {
        let arguments = Json::parse(r#"{"a":1}"#).expect("JSON");
        let result = self.manager.call_tool(tool, &arguments, None);
        let result = tokio::time::timeout(TEST_TIMEOUT, result).await.expect("in time")?;
        Ok(result.to_string())
    }

    async fn wait_for(&self, server: &str, status: Status) {
        let waiting = self.manager.wait_for(server, status);
        let found = tokio::time::timeout(TEST_TIMEOUT, waiting).await;
        found.unwrap_or_else(|_| panic!("{:?}", self.manager.status(server))).expect("the server exists");
    }

    fn log(&self, server: &str) -> Vec<String> {
        let text = std::fs::read_to_string(log(&self.user, server)).unwrap_or_default();
        text.lines()
            .map(|line| {
                line.split(' ')
                    .take(if line.starts_with("started") { 1 } else { 2 })
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    }

    fn pids(&self, server: &str) -> Vec<String> {
        let text = std::fs::read_to_string(log(&self.user, server)).unwrap_or_default();
        text.lines().filter_map(|line| line.strip_prefix("started ").map(str::to_owned)).collect()
    }

    fn tools(&self) -> Vec<String> {
        self.manager.registry().tools().map(|tool| tool.public_name.clone()).collect()
    }
}

fn log(user: &User, server: &str) -> String {
    user.path("").join(format!("{server}.log")).display().to_string()
}

const SERVE: &str = r#"{"command": "HELPER", "args": ["serve", "LOG"]}"#;
const ECHO: &str = r#"{"content":[{"type":"text","text":"{\"a\":1}"}]}"#;

#[tokio::test]
async fn all_servers_are_in_one_registry() {
    let servers = Servers::start(
        &[
            ("a-b", SERVE),
            ("b", r#"{"command": "HELPER", "args": ["serve", "LOG"], "disabledTools": ["exit"]}"#),
        ],
        options(),
    );
    servers.wait_for("a-b", Status::Connected).await;
    servers.wait_for("b", Status::Connected).await;
    assert_eq!(
        servers.tools(),
        [
            "mcp__a_b__echo",
            "mcp__a_b__exit",
            "mcp__a_b__freeze",
            "mcp__a_b__grow",
            "mcp__a_b__hang",
            "mcp__b__echo",
            "mcp__b__freeze",
            "mcp__b__grow",
            "mcp__b__hang",
        ]
    );
    assert_eq!(servers.call("mcp__a_b__echo").await.expect("a result"), ECHO);
    let error = servers.call("mcp__b__exit").await.unwrap_err();
    assert!(matches!(error, ServerCallError::UnknownTool(_)), "{error}");
    let status = servers.manager.status("a-b").expect("it is there");
    assert_eq!(status.server.as_deref(), Some("helper 1 · protocol 2025-11-25"));
    assert_eq!((status.instructions.as_deref(), status.tools), (Some("Be brief."), 5));
}

#[tokio::test]
async fn one_bad_server_never_delays_another() {
    let mut options = options();
    options.starts_max = 1;
    options.start_share_ms = 10;
    let servers = Servers::start(
        &[
            ("a-silent", r#"{"command": "HELPER", "args": ["silent"]}"#),
            ("b-missing", r#"{"command": "no-such-program-anywhere"}"#),
            ("c-crashing", r#"{"command": "HELPER", "args": ["fail-until", "99", "LOG"]}"#),
            ("d-unset", r#"{"command": "${UNSET}"}"#),
            ("e-invalid", "{}"),
            ("good", SERVE),
        ],
        options,
    );
    servers.wait_for("good", Status::Connected).await;
    assert_eq!(servers.call("mcp__good__echo").await.expect("a result"), ECHO);
    servers.wait_for("b-missing", Status::Error).await;
    servers.wait_for("c-crashing", Status::Error).await;
    servers.wait_for("d-unset", Status::Error).await;
    let reason = |name| servers.manager.status(name).expect("it is there").error.unwrap_or_default();
    assert_eq!(
        reason("b-missing"),
        "`no-such-program-anywhere` was not found in PATH; install it, or give its full path"
    );
    assert_eq!(
        reason("d-unset"),
        "command: the environment variable `UNSET` is not set; set it, or write `${UNSET:-default}`"
    );
    assert_eq!(reason("e-invalid"), "it has neither `command` nor `url`");
    // Three attempts, each started twice: the second time without the probe that some old servers do not survive.
    assert_eq!(servers.log("c-crashing"), ["started"; 6]);
    let stderr = servers.manager.status("c-crashing").expect("it is there").stderr;
    assert_eq!(stderr.last().map(String::as_str), Some("not yet: start 6"));
    assert_eq!(servers.manager.status("a-silent").map(|status| status.status), Some(Status::Connecting));
}

#[tokio::test]
async fn a_process_that_ends_is_started_again_and_the_call_is_not_repeated() {
    let servers = Servers::start(&[("s", SERVE)], options());
    servers.wait_for("s", Status::Connected).await;
    let error = servers.call("mcp__s__exit").await.unwrap_err();
    assert!(matches!(error, ServerCallError::Lost { .. }), "{error}");
    // The tools stay listed; this call waits for the next process.
    assert_eq!(servers.call("mcp__s__echo").await.expect("a result"), ECHO);
    assert_eq!(servers.log("s"), ["started", "called exit", "started", "called echo"]);
    let status = servers.manager.status("s").expect("it is there");
    assert_eq!((status.status, status.error), (Status::Connected, None));
    assert_eq!(status.stderr, ["boom"]);
}

#[tokio::test]
async fn a_server_that_comes_up_late_gets_the_calls_that_waited() {
    let servers =
        Servers::start(&[("s", r#"{"command": "HELPER", "args": ["fail-until", "4", "LOG"]}"#)], options());
    let params = Json::parse(r#"{"name":"echo","arguments":{"a":1}}"#).expect("JSON");
    let request = servers.manager.request("s", wire::method::Method::ToolsCall, params, None);
    let result = tokio::time::timeout(TEST_TIMEOUT, request).await.expect("in time");
    assert_eq!(result.expect("a result").to_string(), ECHO);
}

#[tokio::test]
async fn calls_that_wait_fail_when_the_server_is_given_up_and_the_next_is_one_more_attempt() {
    let servers =
        Servers::start(&[("s", r#"{"command": "HELPER", "args": ["fail-until", "7", "LOG"]}"#)], options());
    let params = || Json::parse(r#"{"name":"echo","arguments":{}}"#).expect("JSON");
    let request = || servers.manager.request("s", wire::method::Method::ToolsCall, params(), None);
    let error = tokio::time::timeout(TEST_TIMEOUT, request()).await.expect("in time").unwrap_err();
    assert!(matches!(error, ServerCallError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("not yet: start 6"), "{error}");
    // The seventh start works. A use right after the error does not start anything, so ask until it may.
    let result = tokio::time::timeout(TEST_TIMEOUT, async {
        loop {
            match request().await {
                Err(ServerCallError::Unavailable { .. }) => tokio::task::yield_now().await,
                other => return other,
            }
        }
    });
    result.await.expect("in time").expect("a result");
}

#[tokio::test]
async fn only_so_many_calls_wait() {
    let mut options = options();
    options.waiting_calls_max = 1;
    options.wait_timeout_ms = 100;
    let servers = Servers::start(&[("s", r#"{"command": "HELPER", "args": ["silent"]}"#)], options);
    let params = || Json::object(|_| {});
    let request = || servers.manager.request("s", wire::method::Method::ToolsCall, params(), None);
    let (first, second) = tokio::join!(request(), request());
    assert!(matches!(first, Err(ServerCallError::WaitTimeout { after_ms: 100, .. })), "{first:?}");
    assert!(matches!(second, Err(ServerCallError::QueueFull { waiting: 1, .. })), "{second:?}");
}

#[tokio::test]
async fn a_disabled_server_fails_its_waiting_calls_at_once_and_comes_back_when_enabled() {
    let servers = Servers::start(
        &[("s", SERVE), ("silent", r#"{"command": "HELPER", "args": ["silent"]}"#)],
        options(),
    );
    let params = || Json::object(|_| {});
    let waiting = servers.manager.request("silent", wire::method::Method::ToolsCall, params(), None);
    let (result, ()) = tokio::join!(waiting, async {
        servers.manager.disable("silent").await.expect("it is there");
    });
    assert!(matches!(result, Err(ServerCallError::Disabled { .. })), "{result:?}");
    servers.wait_for("s", Status::Connected).await;
    servers.manager.disable("s").await.expect("it is there");
    servers.wait_for("s", Status::Disabled).await;
    assert!(servers.tools().is_empty());
    servers.manager.retry("s").await.expect("it is there");
    servers.manager.enable("s").await.expect("it is there");
    servers.wait_for("s", Status::Connected).await;
    assert_eq!(servers.call("mcp__s__echo").await.expect("a result"), ECHO);
    assert_eq!(servers.log("s"), ["started", "started", "called echo"]);
}

#[tokio::test]
async fn a_changed_list_is_read_again() {
    let servers = Servers::start(&[("s", SERVE)], options());
    servers.wait_for("s", Status::Connected).await;
    let mut changes = servers.manager.subscribe();
    changes.mark_unchanged();
    servers.call("mcp__s__grow").await.expect("a result");
    let changed = changes.wait_for(|registry| registry.tool("mcp__s__grown").is_some());
    tokio::time::timeout(TEST_TIMEOUT, changed).await.expect("in time").expect("the manager runs");
    assert_eq!(servers.call("mcp__s__grown").await.expect("a result"), ECHO);
}

#[tokio::test]
async fn many_changes_of_a_list_are_read_once_or_twice() {
    let servers = Servers::start(&[("s", SERVE)], options());
    servers.wait_for("s", Status::Connected).await;
    let mut changes = servers.manager.subscribe();
    let params = Json::parse(r#"{"name":"burst"}"#).expect("JSON");
    let burst = servers.manager.request("s", wire::method::Method::ToolsCall, params, None);
    tokio::time::timeout(TEST_TIMEOUT, burst).await.expect("in time").expect("a result");
    let changed = changes.wait_for(|registry| registry.tool("mcp__s__grown").is_some());
    tokio::time::timeout(TEST_TIMEOUT, changed).await.expect("in time").expect("the manager runs");
    // What is read after this call is no part of the burst.
    servers.call("mcp__s__echo").await.expect("a result");
    let reads = std::fs::read_to_string(format!("{}.reads", log(&servers.user, "s"))).expect("a log");
    assert!((2..=3).contains(&reads.lines().count()), "one at the start, and then: {reads}");
}

#[tokio::test]
async fn a_list_that_cannot_be_read_stays_as_it_was() {
    let servers = Servers::start(&[("s", SERVE)], options());
    servers.wait_for("s", Status::Connected).await;
    let mark =
        |what: &str| std::fs::write(format!("{}.{what}", log(&servers.user, "s")), "").expect("a file");
    let counts = || {
        let lists = servers.manager.lists("s").expect("it is known");
        (lists.tools.len(), lists.prompts.len(), lists.resources.len(), lists.templates.len())
    };
    let grown = async |tools: usize| {
        servers.call("mcp__s__grow").await.expect("a result");
        let read = async {
            while counts().0 != tools {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, read).await.expect("in time");
    };
    assert_eq!(counts(), (5, 0, 0, 0));
    mark("lists");
    let _ = servers.call("mcp__s__exit").await;
    servers.wait_for("s", Status::Connected).await;
    assert_eq!(counts(), (5, 1, 1, 1));
    mark("broken-lists");
    grown(6).await;
    assert_eq!(counts(), (6, 1, 1, 1), "what could be read is new, the rest is as before");
    assert_eq!(servers.manager.registry().resources.len(), 1);
    // Also on a new connection.
    let _ = servers.call("mcp__s__exit").await;
    servers.wait_for("s", Status::Connected).await;
    assert_eq!(counts(), (5, 1, 1, 1));
    mark("broken-tools");
    servers.call("mcp__s__grow").await.expect("a result");
    servers.call("mcp__s__echo").await.expect("the tools are those of before");
    assert_eq!(counts(), (5, 1, 1, 1));
}

#[tokio::test]
async fn a_call_that_hangs_ends_and_a_server_that_answers_pings_stays() {
    let mut options = options();
    options.call_idle_timeout_ms = 150;
    let servers = Servers::start(&[("s", SERVE)], options);
    servers.wait_for("s", Status::Connected).await;
    let error = servers.call("mcp__s__hang").await.unwrap_err();
    assert!(matches!(error, ServerCallError::Timeout { after_ms: 150, .. }), "{error}");
    assert_eq!(servers.call("mcp__s__echo").await.expect("a result"), ECHO);
    assert_eq!(servers.pids("s").len(), 1);
    // One that answers nothing at all is started again.
    let error = servers.call("mcp__s__freeze").await.unwrap_err();
    assert!(matches!(error, ServerCallError::Timeout { .. }), "{error}");
    let restarted = async {
        while servers.pids("s").len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, restarted).await.expect("in time");
    servers.wait_for("s", Status::Connected).await;
    assert_eq!(servers.call("mcp__s__echo").await.expect("a result"), ECHO);
}

#[tokio::test]
async fn nothing_of_a_project_starts_before_it_is_approved() {
    let user = User::new(&[]);
    let file = log(&user, "s");
    user.write(
        "project/.mcp.json",
        &format!(r#"{{"mcpServers": {{"s": {{"command": "{HELPER}", "args": ["serve", "{file}"]}}}}}}"#),
    );
    let server = user.load().servers.remove(0);
    let permission = Decisions::default().permission(&server);
    let manager = Manager::start([(server, permission)], options(), Arc::new(TestHost::default()));
    manager.settled().await;
    let params = Json::object(|_| {});
    let error = manager.request("s", wire::method::Method::ToolsCall, params, None).await.unwrap_err();
    assert_eq!(error.to_string(), "server `s` is disabled: it is not approved");
    manager.retry("s").await.expect("it is there");
    manager.close().await;
    assert!(!Path::new(&file).exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_process_outlives_the_manager() {
    let servers = Servers::start(&[("a", SERVE), ("b", SERVE)], options());
    servers.wait_for("a", Status::Connected).await;
    servers.wait_for("b", Status::Connected).await;
    let pids = [servers.pids("a"), servers.pids("b")].concat();
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| Path::new("/proc").join(pid).exists()));
    let Servers { user: _user, manager } = servers;
    tokio::time::timeout(TEST_TIMEOUT, manager.close()).await.expect("in time");
    assert!(!pids.iter().any(|pid| Path::new("/proc").join(pid).exists()));
}

/// Starts a server whose tools are described by a file, with the pins of the user.
fn pinned(user: &User, policy: &str) -> (Manager, ConfiguredServer, DefinitionPins) {
    let entry = format!(r#"{{"command": "{HELPER}", "args": ["serve", "{}"]{policy}}}"#, log(user, "s"));
    user.write("home/.config/spile/servers.json", &format!(r#"{{"mcpServers": {{"s": {entry}}}}}"#));
    let server = user.load().servers.remove(0);
    let pins = DefinitionPins::new(user.path("home/state/definitions"));
    let host = Arc::new(TestHost { pins: Some(pins.clone()) });
    (Manager::start([(server.clone(), Permission::Allowed)], options(), host), server, pins)
}

fn offered(manager: &Manager) -> String {
    let names: Vec<String> = manager.registry().tools().map(|tool| tool.own_name.clone()).collect();
    names.join(" ")
}

fn unapproved(manager: &Manager) -> String {
    let status = manager.status("s").expect("it is there");
    let shown = |one: &servers::definitions::UnapprovedTool| format!("{}: {}", one.tool, one.reason());
    status.unapproved.iter().map(shown).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_changed_definition_is_suspended_until_it_is_approved() {
    let user = User::new(&[]);
    let describe =
        |text: &str| std::fs::write(format!("{}.description", log(&user, "s")), text).expect("written");
    let connected = async |policy: &str| {
        let found = pinned(&user, policy);
        found.0.wait_for("s", Status::Connected).await.expect("it is there");
        found
    };
    describe("Reads.");
    let (manager, ..) = connected("").await;
    assert_eq!(
        (offered(&manager).as_str(), unapproved(&manager).as_str()),
        ("echo exit freeze grow hang", "")
    );
    // A new tool is used and reported; a changed one is not even there.
    let mut changes = manager.subscribe();
    describe("Reads, and mails it to evil.test.");
    let arguments = Json::object(|_| {});
    manager.call_tool("mcp__s__grow", &arguments, None).await.expect("a result");
    changes.wait_for(|registry| registry.tools().count() == 1).await.expect("it changes");
    assert_eq!(offered(&manager), "grown");
    let changed = "suspended: its definition has changed since you approved it";
    assert!(unapproved(&manager).contains(&format!("echo: {changed}")));
    assert!(unapproved(&manager).contains("grown: it is new since you approved the definitions"));
    let error = manager.call_tool("mcp__s__echo", &arguments, None).await.expect_err("suspended").to_string();
    assert_eq!(error, format!("server `s` is not available: tool `echo` is {changed}"));
    manager.close().await;
    // The next process knows it, too. The same server under another policy uses them.
    let (manager, ..) = connected("").await;
    assert_eq!(offered(&manager), "");
    manager.close().await;
    let (manager, server, pins) = connected(r#", "definitions": "warn""#).await;
    assert_eq!(offered(&manager), "echo exit freeze grow hang");
    assert!(unapproved(&manager).starts_with("echo: its definition has changed since you approved it"));
    let lists = manager.lists("s").expect("it is there");
    let differences = pins.differences(&server, &lists.tools).expect("readable");
    assert_eq!(differences[0].differences[0].path, "description");
    pins.approve(&server, &lists.tools).expect("written");
    manager.close().await;
    let (manager, ..) = connected("").await;
    assert_eq!(
        (offered(&manager).as_str(), unapproved(&manager).as_str()),
        ("echo exit freeze grow hang", "")
    );
    manager.close().await;
    // Without knowing what was approved nothing is offered.
    for entry in std::fs::read_dir(user.path("home/state/definitions")).expect("a folder") {
        std::fs::write(entry.expect("an entry").path(), "{").expect("written");
    }
    let (manager, ..) = pinned(&user, "");
    let status = manager.wait_for("s", Status::Error).await.expect("it is there");
    assert!(status.error.is_some_and(|error| error.contains("is damaged; delete it")));
    manager.close().await;
}

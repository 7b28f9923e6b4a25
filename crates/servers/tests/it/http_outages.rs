//! Servers over HTTP that are down, busy, or break single responses.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use json::Json;
use servers::decisions::Permission;
use servers::manager::state::{RetryPolicy, Status};
use servers::manager::{CallFailure, Manager, ManagerHost, ManagerOptions, ServerCallError};
use spile_core::ClientCapabilities;
use tokio::task::JoinHandle;
use upstream::NoopClientHandler;
use wire::client::{ClientCall, ClientError};
use wire::method::Method;

use crate::harness::User;
#[cfg(unix)]
use crate::http_server::serve_on_socket;
use crate::http_server::{Request, Response, serve_at};
use crate::manager::options;

/// Longer than anything takes that works.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Answers,
    /// Every request, with `Retry-After`.
    Busy,
    BusyInCalls,
    CutsCalls,
}

/// A server of the handshake era.
struct Backend {
    mode: Mutex<Mode>,
    requests: AtomicUsize,
    calls: AtomicUsize,
}

impl Backend {
    fn new(mode: Mode) -> Arc<Self> {
        Arc::new(Self { mode: Mutex::new(mode), requests: AtomicUsize::new(0), calls: AtomicUsize::new(0) })
    }

    async fn serve(self: &Arc<Self>, address: &str) -> (SocketAddr, JoinHandle<()>) {
        let backend = self.clone();
        serve_at(address, move |request| backend.answer(&request)).await
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().expect("no panic") = mode;
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn answer(&self, request: &Request) -> Response {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mode = *self.mode.lock().expect("no panic");
        let busy = |status: u16| Response::status(status).header("Retry-After", "600");
        if mode == Mode::Busy {
            return busy(503);
        }
        let Ok(message) = Json::parse(&request.body) else { return Response::status(405) };
        let doc = message.to_doc();
        let Some(id) = doc.root().get("id").map(Json::from) else { return Response::status(202) };
        let method = doc.root().get("method").and_then(|method| method.str()).unwrap_or_default();
        let member = match &*method {
            "initialize" => {
                r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"http","version":"1"}}"#
            }
            "tools/list" => r#""result":{"tools":[{"name":"work","inputSchema":{"type":"object"}}]}"#,
            "tools/call" => {
                self.calls.fetch_add(1, Ordering::Relaxed);
                if mode == Mode::BusyInCalls {
                    return busy(429);
                }
                r#""result":{"content":[{"type":"text","text":"done"}]}"#
            }
            _ => r#""error":{"code":-32601,"message":"no"}"#,
        };
        let response = Response::json(200, format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#));
        Response { is_cut: mode == Mode::CutsCalls && &*method == "tools/call", ..response }
    }
}

struct Host;

impl ManagerHost for Host {
    fn env(&self, _: &str) -> Option<String> {
        None
    }
}

fn manage(servers: &[(&str, SocketAddr)], options: ManagerOptions) -> Manager {
    let urls: Vec<(&str, String)> =
        servers.iter().map(|(name, address)| (*name, format!("http://{address}/mcp"))).collect();
    manage_urls(&urls, options)
}

fn manage_urls(servers: &[(&str, String)], options: ManagerOptions) -> Manager {
    let user = User::new(&[]);
    let entries: Vec<String> =
        servers.iter().map(|(name, url)| format!(r#""{name}": {{"url": "{url}"}}"#)).collect();
    let text = format!(r#"{{"mcpServers": {{{}}}}}"#, entries.join(", "));
    user.write("home/.config/spile/servers.json", &text);
    let all = user.load().servers.into_iter().map(|server| (server, Permission::Allowed));
    Manager::start(all, options, Arc::new(Host))
}

/// A server that is down may be so for as long as the test needs.
fn patient() -> ManagerOptions {
    let retry = RetryPolicy { attempts_max: 10_000, ..options().retry };
    ManagerOptions { retry, ..options() }
}

async fn wait_for(manager: &Manager, server: &str, status: Status) {
    let found = tokio::time::timeout(TEST_TIMEOUT, manager.wait_for(server, status)).await;
    found.unwrap_or_else(|_| panic!("{:?}", manager.status(server))).expect("the server exists");
}

async fn call(manager: &Manager) -> Result<Json, ServerCallError> {
    let arguments = Json::object(|_| {});
    let call = manager.call_tool("mcp__s__work", &arguments, None);
    tokio::time::timeout(TEST_TIMEOUT, call).await.expect("in time")
}

#[tokio::test]
async fn a_call_waits_for_a_server_that_is_down_and_runs_once() {
    let backend = Backend::new(Mode::Answers);
    let (address, serving) = backend.serve("127.0.0.1:0").await;
    let manager = manage(&[("s", address)], patient());
    wait_for(&manager, "s", Status::Connected).await;
    serving.abort();
    let _ = serving.await;
    let (result, ()) = tokio::join!(call(&manager), async {
        wait_for(&manager, "s", Status::Reconnecting).await;
        backend.serve(&address.to_string()).await;
    });
    assert!(result.expect("a result").as_str().contains("done"));
    assert_eq!(backend.calls(), 1);
    manager.close().await;
}

/// The same for the connection of one caller, as a gateway opens it.
#[tokio::test]
async fn a_caller_that_opens_a_connection_waits_for_a_server_that_is_down() {
    let backend = Backend::new(Mode::Answers);
    let (address, serving) = backend.serve("127.0.0.1:0").await;
    let manager = manage(&[("s", address)], patient());
    wait_for(&manager, "s", Status::Connected).await;
    let open = || manager.open_connection("s", ClientCapabilities::NONE, Arc::new(NoopClientHandler));
    let own = open().await.expect("connected");
    serving.abort();
    let _ = serving.await;
    let request = || ClientCall::new(Method::ToolsCall, Json::parse(r#"{"name":"work"}"#).expect("JSON"));
    let error = own.start_call(request(), None).result().await.expect_err("nothing listens");
    assert!(matches!(own.call_failed(error).await, CallFailure::NotSent(_)));
    let (another, ()) = tokio::join!(open(), async {
        wait_for(&manager, "s", Status::Reconnecting).await;
        backend.serve(&address.to_string()).await;
    });
    let result = another.expect("connected").start_call(request(), None).result().await;
    assert!(result.expect("a result").as_str().contains("done"));
    assert_eq!(backend.calls(), 1);
    manager.close().await;
}

#[tokio::test]
async fn calls_fail_when_a_server_that_is_down_is_given_up() {
    let backend = Backend::new(Mode::Answers);
    let (address, serving) = backend.serve("127.0.0.1:0").await;
    let manager = manage(&[("s", address)], options());
    wait_for(&manager, "s", Status::Connected).await;
    serving.abort();
    let _ = serving.await;
    let error = call(&manager).await.expect_err("given up");
    assert!(matches!(error, ServerCallError::Unavailable { .. }), "{error}");
    assert_eq!(backend.calls(), 0);
    manager.close().await;
}

#[tokio::test]
async fn a_tool_that_breaks_its_responses_does_not_take_the_server_from_others() {
    let backend = Backend::new(Mode::CutsCalls);
    let (address, _serving) = backend.serve("127.0.0.1:0").await;
    let manager = manage(&[("s", address)], options());
    wait_for(&manager, "s", Status::Connected).await;
    let count = 2 * options().retry.attempts_max as usize;
    for _ in 0..count {
        let error = call(&manager).await.expect_err("the response breaks");
        assert!(matches!(error, ServerCallError::Lost { .. }), "{error}");
    }
    backend.set(Mode::Answers);
    assert!(call(&manager).await.expect("a result").as_str().contains("done"));
    assert_eq!(backend.calls(), count + 1, "no call was repeated");
    let status = manager.status("s").expect("known");
    assert_eq!((status.status, status.reconnects), (Status::Connected, 0));
    manager.close().await;
}

#[tokio::test]
async fn a_server_that_is_busy_while_it_is_connected_to_is_left_alone_for_as_long_as_it_says() {
    let (busy, down) = (Backend::new(Mode::Busy), Backend::new(Mode::Answers));
    let (address, _serving) = busy.serve("127.0.0.1:0").await;
    let (nothing, serving) = down.serve("127.0.0.1:0").await;
    serving.abort();
    let _ = serving.await;
    let manager = manage(&[("s", address), ("down", nothing)], options());
    wait_for(&manager, "s", Status::Reconnecting).await;
    let requests = busy.requests.load(Ordering::Relaxed);
    // The other one is tried three times, after the same waits.
    wait_for(&manager, "down", Status::Error).await;
    assert_eq!(busy.requests.load(Ordering::Relaxed), requests);
    assert_eq!(manager.status("s").expect("known").status, Status::Reconnecting);
    busy.set(Mode::Answers);
    manager.retry("s").await.expect("known");
    wait_for(&manager, "s", Status::Connected).await;
    manager.close().await;
}

#[tokio::test]
async fn a_call_that_the_server_is_too_busy_for_says_when_to_try_again() {
    let backend = Backend::new(Mode::BusyInCalls);
    let (address, _serving) = backend.serve("127.0.0.1:0").await;
    let manager = manage(&[("s", address)], options());
    wait_for(&manager, "s", Status::Connected).await;
    match call(&manager).await.expect_err("it is busy") {
        ServerCallError::Client(ClientError::HttpStatus { status: 429, retry_after_ms, .. }) => {
            assert_eq!(retry_after_ms, Some(600_000));
        }
        error => panic!("{error}"),
    }
    assert_eq!((backend.calls(), manager.status("s").expect("known").status), (1, Status::Connected));
    manager.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn an_entry_may_name_http_on_a_unix_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("a b.sock");
    let backend = Backend::new(Mode::Answers);
    let serving = backend.clone();
    serve_on_socket(&socket, move |request| serving.answer(&request));
    let path = socket.display().to_string();
    let urls = [
        ("s", format!("http+unix://{}/mcp", path.replace('/', "%2F").replace(' ', "%20"))),
        ("missing", format!("http+unix://{}/mcp", path.replace('/', "%2F").replace(' ', "%20") + "x")),
    ];
    let manager = manage_urls(&urls, options());
    wait_for(&manager, "s", Status::Connected).await;
    assert!(call(&manager).await.expect("a result").as_str().contains("done"));
    assert_eq!(backend.calls(), 1);
    wait_for(&manager, "missing", Status::Error).await;
    manager.close().await;
}

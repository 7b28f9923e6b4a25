//! Calls under way can be counted and stopped, whatever their ids and however they came.

use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Waker};

use host::{
    CallerIdentity, Config, ConnectionState, Dispatched, PendingResponse, ReplyChannel, Server, SessionTicket,
};
use json::Json;
use spile_core::{Call, CallContext, Catalog, Limits, Provider, Run, Tool};
use testkit::FakePlatform;
use wire::{Decoded, Defaults, Headers, HttpDefaults, Notification, Peer, SessionLookup, Version};

/// One tool that never answers.
struct NeverProvider;

impl Provider for NeverProvider {
    fn catalog(&self) -> Arc<Catalog> {
        let tool = Tool::new("never", "never answers", Json::parse(r#"{"type":"object"}"#).expect("JSON"));
        Arc::new(Catalog { tools: vec![tool], ..Catalog::default() })
    }

    fn run(&self, _: &Call, _: &CallContext<'_>) -> Run {
        Run::later(pending())
    }
}

struct Client {
    server: Arc<Server>,
    connection: Arc<ConnectionState>,
}

impl Client {
    fn new() -> Self {
        let world = Arc::new(FakePlatform::new(1));
        let config =
            Config { name: "t".into(), version: "1".into(), limits: Limits::default(), platform: world };
        let server = Server::new(config, vec![Arc::new(NeverProvider)]).expect("a good catalog");
        let connection = server.open_pipe();
        Self { server, connection }
    }

    /// Sends a message and lets everything run that can.
    async fn send(&self, message: &str) {
        let line = ReplyChannel::Pipe(self.connection.clone());
        let peer = Peer::from_version(Version::V2025_03_26);
        let flow = match self.server.decode(message.as_bytes().to_vec(), Defaults::Pipe(Some(peer))) {
            Decoded::Request(request) => {
                match self.server.dispatch(request, &CallerIdentity::default(), line) {
                    Dispatched::Call(serving) => Some(PendingResponse::Single(serving)),
                    Dispatched::Ready { .. }
                    | Dispatched::Initialized { .. }
                    | Dispatched::Subscription(_) => None,
                }
            }
            Decoded::Batch(batch) => self.server.dispatch_batch(batch, &CallerIdentity::default(), &line),
            Decoded::Notification(Notification::Cancelled(id)) => {
                self.connection.cancel(&id);
                None
            }
            Decoded::Notification(_) | Decoded::Response { .. } | Decoded::Rejected(_) => None,
        };
        if let Some(mut flow) = flow {
            assert!(flow.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
            flow.spawn_into_stream(&self.connection, None);
        }
    }

    async fn expect_calls(&self, calls: usize) {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!((self.connection.call_count(), self.server.status().calls_active), (calls, calls));
    }
}

fn call(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"never"}}}}"#)
}

fn cancel(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

#[tokio::test]
async fn an_id_that_comes_again_at_once_is_a_call_of_its_own() {
    let client = Client::new();
    // The runtime has no chance to drop the first call before the second takes its id.
    client.send(&call(1)).await;
    client.send(&cancel(1)).await;
    client.send(&call(1)).await;
    client.expect_calls(1).await;
    client.send(&call(1)).await;
    client.expect_calls(1).await;
    client.send(&cancel(1)).await;
    client.expect_calls(0).await;
}

#[tokio::test]
async fn a_batch_under_way_counts_and_ends_with_its_client() {
    let client = Client::new();
    client.send(&format!("[{},{}]", call(1), call(2))).await;
    client.expect_calls(2).await;
    // One of several cannot be stopped without the others.
    client.send(&cancel(1)).await;
    client.expect_calls(2).await;
    client.connection.close();
    client.expect_calls(0).await;
}

/// A session, as two requests that arrive at the same time both know it.
fn session(server: &Arc<Server>) -> SessionTicket {
    let message =
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let bare = HttpDefaults { headers: Headers::default(), lookup_session: &|| SessionLookup::NotNamed };
    let Decoded::Request(request) = server.decode(message.as_bytes().to_vec(), Defaults::Http(bare)) else {
        panic!("a handshake is a request");
    };
    let Dispatched::Initialized { session, .. } =
        server.dispatch(request, &CallerIdentity::default(), ReplyChannel::Stateless)
    else {
        panic!("a handshake makes a session");
    };
    server.verify_session(&session, &CallerIdentity::default()).expect("alive")
}

fn dispatch_call(server: &Arc<Server>, ticket: SessionTicket) -> PendingResponse {
    let bare = Defaults::Batched(ticket.peer);
    let Decoded::Request(request) = server.decode(call(1).into_bytes(), bare) else { panic!("a request") };
    match server.dispatch(request, &CallerIdentity::default(), ReplyChannel::Session(ticket)) {
        Dispatched::Call(serving) => PendingResponse::Single(serving),
        Dispatched::Ready { .. } | Dispatched::Initialized { .. } | Dispatched::Subscription(_) => {
            panic!("it has to wait")
        }
    }
}

#[tokio::test]
async fn a_session_that_ends_while_a_call_begins_takes_it_along() {
    let client = Client::new();
    let ticket = session(&client.server);
    let live = client.server.ensure_session_state(&ticket, &CallerIdentity::default()).expect("room");
    let flow = dispatch_call(&client.server, ticket);
    client.server.end_session(&ticket);
    flow.spawn_into_stream(&live, None);
    client.expect_calls(0).await;
}

#[tokio::test]
async fn a_session_that_has_ended_holds_nothing_again() {
    let client = Client::new();
    let ticket = session(&client.server);
    client.server.end_session(&ticket);
    assert!(client.server.ensure_session_state(&ticket, &CallerIdentity::default()).is_err());
    assert_eq!(client.server.status().sessions, 0);
}

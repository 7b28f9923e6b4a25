//! Calls in flight are counted and cancelled, whatever their ids and however they arrived.

use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Waker};

use host::{
    CallerIdentity, Config, ConnectionState, Dispatched, PendingResponse, ReplyChannel, Server, SessionTicket,
};
use json::Json;
use spile_core::{Call, CallContext, Catalog, Limits, Principal, Provider, Run, Tool};
use testkit::FakePlatform;
use wire::{Decoded, Headers, HttpDefaults, MessageContext, Notification, Peer, SessionLookup, Version};

/// One tool that never returns.
struct NeverProvider;

impl Provider for NeverProvider {
    fn catalog(&self) -> Arc<Catalog> {
        let tool = Tool::new("never", "never returns", Json::parse(r#"{"type":"object"}"#).expect("JSON"));
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
        let platform = Arc::new(FakePlatform::new(1));
        let config = Config::new("t", "1", Limits::default(), platform);
        let server = Server::new(config, vec![Arc::new(NeverProvider)]);
        let connection = server.open_pipe();
        Self { server, connection }
    }

    /// Sends a message and spawns the call it starts.
    async fn send(&self, message: &str) {
        let reply_channel = ReplyChannel::Pipe(self.connection.clone());
        let peer = Peer::from_version(Version::V2025_03_26);
        let pending = match self.server.decode(
            message.as_bytes().to_vec(),
            MessageContext::Pipe(Some(peer)),
            &self.server.snapshot(),
        ) {
            Decoded::Request(request) => {
                match self.server.dispatch(
                    request,
                    &CallerIdentity::default(),
                    reply_channel,
                    self.server.snapshot(),
                ) {
                    Dispatched::Call(in_flight) => Some(PendingResponse::Single(in_flight)),
                    Dispatched::Ready { .. }
                    | Dispatched::Initialized { .. }
                    | Dispatched::Subscription(_) => None,
                }
            }
            Decoded::Batch(batch) => self.server.dispatch_batch(
                batch,
                &CallerIdentity::default(),
                &reply_channel,
                &self.server.snapshot(),
            ),
            Decoded::Notification(Notification::Cancelled(id)) => {
                self.connection.cancel(&id);
                None
            }
            Decoded::Notification(_) | Decoded::Response { .. } | Decoded::Rejected(_) => None,
        };
        if let Some(mut pending) = pending {
            assert!(pending.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
            pending.spawn_into_stream(&self.connection, None);
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
async fn an_id_reused_right_after_its_cancellation_starts_a_new_call() {
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
async fn a_batch_counts_its_calls_and_ends_when_the_connection_closes() {
    let client = Client::new();
    client.send(&format!("[{},{}]", call(1), call(2))).await;
    client.expect_calls(2).await;
    // A call of a batch cannot be cancelled alone.
    client.send(&cancel(1)).await;
    client.expect_calls(2).await;
    client.connection.close();
    client.expect_calls(0).await;
}

/// The ticket of a new session.
fn session(server: &Arc<Server>) -> SessionTicket {
    let message =
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let defaults = HttpDefaults { headers: Headers::default(), lookup_session: &|| SessionLookup::NotNamed };
    let Decoded::Request(request) =
        server.decode(message.as_bytes().to_vec(), MessageContext::Http(defaults), &server.snapshot())
    else {
        panic!("a handshake is a request");
    };
    let Dispatched::Initialized { session, .. } =
        server.dispatch(request, &CallerIdentity::default(), ReplyChannel::NoSession, server.snapshot())
    else {
        panic!("a handshake creates a session");
    };
    server.verify_session(&session, &CallerIdentity::default()).expect("alive")
}

fn dispatch_call(server: &Arc<Server>, ticket: SessionTicket) -> PendingResponse {
    let defaults = MessageContext::Batched(ticket.peer);
    let Decoded::Request(request) = server.decode(call(1).into_bytes(), defaults, &server.snapshot()) else {
        panic!("a request")
    };
    match server.dispatch(
        request,
        &CallerIdentity::default(),
        ReplyChannel::Session(ticket),
        server.snapshot(),
    ) {
        Dispatched::Call(in_flight) => PendingResponse::Single(in_flight),
        Dispatched::Ready { .. } | Dispatched::Initialized { .. } | Dispatched::Subscription(_) => {
            panic!("expected a call in flight")
        }
    }
}

#[tokio::test]
async fn a_call_that_starts_while_its_session_ends_is_aborted() {
    let client = Client::new();
    let ticket = session(&client.server);
    let connection = client.server.ensure_session_state(&ticket, &CallerIdentity::default()).expect("room");
    let pending = dispatch_call(&client.server, ticket);
    client.server.end_session(&ticket);
    pending.spawn_into_stream(&connection, None);
    client.expect_calls(0).await;
}

#[tokio::test]
async fn an_ended_session_gets_no_new_state() {
    let client = Client::new();
    let ticket = session(&client.server);
    client.server.end_session(&ticket);
    assert!(client.server.ensure_session_state(&ticket, &CallerIdentity::default()).is_err());
    assert_eq!(client.server.status().sessions, 0);
}

#[tokio::test]
async fn an_sse_connection_is_found_only_by_its_own_principal() {
    let client = Client::new();
    let named = |name: &str| CallerIdentity {
        principal: Principal::local(name).expect("a short name"),
        address: None,
        request_head: None,
    };
    let anonymous = CallerIdentity::default();
    for (owner, others) in
        [(named("ada"), [named("eve"), anonymous.clone()]), (anonymous, [named("ada"), named("eve")])]
    {
        let sse = client.server.open_sse(&owner).expect("room");
        assert!(client.server.sse_connection(&sse.connection_id(), &owner).is_some());
        for other in others {
            assert!(
                client.server.sse_connection(&sse.connection_id(), &other).is_none(),
                "{owner:?} {other:?}"
            );
        }
    }
}

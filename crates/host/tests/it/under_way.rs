//! Calls under way can be counted and stopped, whatever their ids and however they came.

use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Waker};

use call::{Call, Catalog, Cx, Limits, Provider, Run, Tool};
use host::{Begun, Config, Flow, Line, Live, Server, Ticket, Who};
use json::Json;
use testkit::FakeWorld;
use wire::{Bare, Heads, HttpBare, Notice, Opened, Peer, Session, Version};

/// One tool that never answers.
struct Never;

impl Provider for Never {
    fn catalog(&self) -> Arc<Catalog> {
        let tool = Tool::new("never", "never answers", Json::parse(r#"{"type":"object"}"#).expect("JSON"));
        Arc::new(Catalog { tools: vec![tool], ..Catalog::default() })
    }

    fn run(&self, _: &Call, _: &Cx<'_>) -> Run {
        Run::later(pending())
    }
}

struct Client {
    server: Arc<Server>,
    live: Arc<Live>,
}

impl Client {
    fn new() -> Self {
        let world = Arc::new(FakeWorld::new(1));
        let config = Config { name: "t".into(), version: "1".into(), limits: Limits::default(), world };
        let server = Server::new(config, vec![Arc::new(Never)]).expect("a good catalog");
        let live = server.pipe();
        Self { server, live }
    }

    /// Sends a message and lets everything run that can.
    async fn send(&self, message: &str) {
        let line = Line::Pipe(self.live.clone());
        let peer = Peer::bare(Version::V2025_03_26);
        let flow = match self.server.open(message.as_bytes().to_vec(), Bare::Pipe(Some(peer))) {
            Opened::Request(request) => match self.server.begin(request, &Who::default(), line) {
                Begun::Call(serving) => Some(Flow::One(serving)),
                Begun::Ready { .. } | Begun::Welcome { .. } | Begun::Listen(_) => None,
            },
            Opened::Batch(batch) => self.server.begin_batch(batch, &Who::default(), &line),
            Opened::Notice(Notice::Cancelled(id)) => {
                self.live.cancel(&id);
                None
            }
            Opened::Notice(_) | Opened::Answer { .. } | Opened::Refused(_) => None,
        };
        if let Some(mut flow) = flow {
            assert!(flow.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
            flow.into_stream(&self.live, None);
        }
    }

    async fn expect(&self, calls: usize) {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!((self.live.calls(), self.server.status().calls_active), (calls, calls));
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
    client.expect(1).await;
    client.send(&call(1)).await;
    client.expect(1).await;
    client.send(&cancel(1)).await;
    client.expect(0).await;
}

#[tokio::test]
async fn a_batch_under_way_counts_and_ends_with_its_client() {
    let client = Client::new();
    client.send(&format!("[{},{}]", call(1), call(2))).await;
    client.expect(2).await;
    // One of several cannot be stopped without the others.
    client.send(&cancel(1)).await;
    client.expect(2).await;
    client.live.close();
    client.expect(0).await;
}

/// A session, as two requests that arrive at the same time both know it.
fn session(server: &Arc<Server>) -> Ticket {
    let message =
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let bare = HttpBare { heads: Heads::default(), session: &|| Session::None };
    let Opened::Request(request) = server.open(message.as_bytes().to_vec(), Bare::Http(bare)) else {
        panic!("a handshake is a request");
    };
    let Begun::Welcome { session, .. } = server.begin(request, &Who::default(), Line::Alone) else {
        panic!("a handshake makes a session");
    };
    server.session(&session, &Who::default()).expect("alive")
}

fn begin(server: &Arc<Server>, ticket: Ticket) -> Flow {
    let bare = Bare::Batched(ticket.peer);
    let Opened::Request(request) = server.open(call(1).into_bytes(), bare) else { panic!("a request") };
    match server.begin(request, &Who::default(), Line::Session(ticket)) {
        Begun::Call(serving) => Flow::One(serving),
        Begun::Ready { .. } | Begun::Welcome { .. } | Begun::Listen(_) => panic!("it has to wait"),
    }
}

#[tokio::test]
async fn a_session_that_ends_while_a_call_begins_takes_it_along() {
    let client = Client::new();
    let ticket = session(&client.server);
    let live = client.server.live(&ticket, &Who::default()).expect("room");
    let flow = begin(&client.server, ticket);
    client.server.end_session(&ticket);
    flow.into_stream(&live, None);
    client.expect(0).await;
}

#[tokio::test]
async fn a_session_that_has_ended_holds_nothing_again() {
    let client = Client::new();
    let ticket = session(&client.server);
    client.server.end_session(&ticket);
    assert!(client.server.live(&ticket, &Who::default()).is_err());
    assert_eq!(client.server.status().sessions, 0);
}

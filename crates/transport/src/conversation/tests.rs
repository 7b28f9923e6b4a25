//! A client that reuses a request id the moment it reads the response.

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll};

use host::{CallerIdentity, Config, Server};
use json::Json;
use spile_core::{Call, CallContext, Catalog, Limits, Provider, Run, Tool, ToolResult};
use testkit::FakePlatform;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use wire::frame::Frame;

use super::{Conversation, MessageSink};

/// One tool that waits until the test releases it.
struct WaitingProvider(Arc<Notify>);

impl Provider for WaitingProvider {
    fn catalog(&self) -> Arc<Catalog> {
        let schema = Json::parse(r#"{"type":"object"}"#).expect("JSON");
        let tools = vec![Tool::new("wait", "Waits.", schema)];
        Arc::new(Catalog { tools, ..Catalog::default() })
    }

    fn run(&self, _: &Call, _: &CallContext<'_>) -> Run {
        let release = self.0.clone();
        Run::later(async move {
            release.notified().await;
            ToolResult::text("done").into()
        })
    }
}

/// Sends the next request with the same id from within `send`: no client can be faster.
#[derive(Default)]
struct ReusingSink {
    conversation: OnceLock<Weak<Conversation<ReusingSink>>>,
    responses: Mutex<Vec<String>>,
    reuses_left: Mutex<usize>,
}

impl ReusingSink {
    fn record(&self, message: Vec<u8>) {
        self.responses.lock().expect("no panic before").push(String::from_utf8(message).expect("UTF-8"));
    }
}

impl MessageSink for ReusingSink {
    fn append(&self, _: &mut Vec<u8>, message: Vec<u8>) {
        self.record(message);
    }

    fn write_batch(self: &Arc<Self>, _: &mut Vec<u8>) {}

    fn send(self: &Arc<Self>, message: Vec<u8>) {
        self.record(message);
        let mut reuses_left = self.reuses_left.lock().expect("no panic before");
        if *reuses_left > 0 {
            *reuses_left -= 1;
            let conversation = self.conversation.get().and_then(Weak::upgrade).expect("alive");
            conversation.handle_frame(Frame::Message(call(7)), &mut Vec::new());
        }
    }

    fn send_lossy(self: &Arc<Self>, message: Vec<u8>) {
        self.record(message);
    }

    fn poll_ready(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

fn call(id: u32) -> Vec<u8> {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"wait","_meta":{meta}}}}}"#
    )
    .into_bytes()
}

#[tokio::test]
async fn an_id_can_be_reused_as_soon_as_its_response_is_written() {
    let release = Arc::new(Notify::new());
    // The limit is freed before the response as well: this client never has two calls in flight.
    let limits = Limits { calls_per_connection_max: 1, calls_max: 1, ..Limits::default() };
    let config = Config::new("t", "1", limits, Arc::new(FakePlatform::new(1)));
    let provider = Arc::new(WaitingProvider(release.clone()));
    let server = Server::new(config, vec![provider]);
    let sink = Arc::new(ReusingSink { reuses_left: Mutex::new(2), ..ReusingSink::default() });
    let conversation =
        Arc::new(Conversation::new(server, CallerIdentity::default(), sink.clone(), Handle::current()));
    sink.conversation.set(Arc::downgrade(&conversation)).expect("set once");

    conversation.handle_frame(Frame::Message(call(7)), &mut Vec::new());
    for _ in 0..3 {
        release.notify_one();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    conversation.state.wait_until_idle().await;
    let responses = sink.responses.lock().expect("no panic before");
    assert_eq!(responses.len(), 3, "{responses:?}");
    for response in responses.iter() {
        assert!(response.contains(r#""id":7"#) && response.contains(r#""text":"done""#), "{response}");
    }
}

//! What asks for nothing that must outlive a request never touches the store.

use std::sync::Arc;

use host::{Keyring, ReplyChannel, SystemPlatform};
use spile_core::{Call, CallContext, Catalog, Outcome, Run, ToolError, ToolErrorCode, ToolResult};
use state::store::{LeaseOutcome, PutOutcome, Reply, Sequence, Store, StoreKey, StreamPage, Ttl};

use super::replicas::new_session;
use super::{
    ANONYMOUS, FnProvider, PipeClient, answers, ask, respond, respond_on, server_sharing, state_of,
    stateless_call, text_of, tools,
};

/// Every verb is a mistake.
struct PanickingStore;

impl Store for PanickingStore {
    fn put_once(&self, _: StoreKey<'_>, _: &[u8], _: Ttl, _: u64) -> Reply<PutOutcome> {
        panic!("put_once")
    }

    fn get(&self, _: StoreKey<'_>, _: u64) -> Reply<Option<Vec<u8>>> {
        panic!("get")
    }

    fn take(&self, _: StoreKey<'_>, _: u64) -> Reply<Option<Vec<u8>>> {
        panic!("take")
    }

    fn delete(&self, _: StoreKey<'_>, _: u64) -> Reply<bool> {
        panic!("delete")
    }

    fn append(&self, _: StoreKey<'_>, _: &[u8], _: usize, _: Ttl, _: u64) -> Reply<Sequence> {
        panic!("append")
    }

    fn read_after(&self, _: StoreKey<'_>, _: Sequence, _: usize, _: u64) -> Reply<Option<StreamPage>> {
        panic!("read_after")
    }

    fn lease(&self, _: StoreKey<'_>, _: &[u8], _: Ttl, _: u64) -> Reply<LeaseOutcome> {
        panic!("lease")
    }

    fn renew(&self, _: StoreKey<'_>, _: &[u8], _: Ttl, _: u64) -> Reply<bool> {
        panic!("renew")
    }

    fn release(&self, _: StoreKey<'_>, _: &[u8], _: u64) -> Reply<bool> {
        panic!("release")
    }

    fn expire(&self, _: usize, _: u64) -> Reply<usize> {
        panic!("expire")
    }
}

fn run(call: &Call, cx: &CallContext<'_>) -> Run {
    match &*call.name() {
        "fails" => Run::now(ToolError::new(ToolErrorCode::Conflict, "it failed")),
        "asks" => match cx.journal.response("size").and_then(|answer| answer.text_field("value")) {
            Some(size) => Run::now(ToolResult::text(format!("size {size}"))),
            None => Run::Now(Outcome::InputRequired(ask("size"))),
        },
        name => Run::now(ToolResult::text(name)),
    }
}

#[tokio::test]
async fn a_plain_call_of_either_era_never_touches_the_store() {
    let catalog = Catalog { tools: tools(&["plain", "fails", "asks"]), ..Catalog::default() };
    let keyring = Arc::new(Keyring::for_this_run(&SystemPlatform::default()));
    let provider = Arc::new(FnProvider { catalog: Arc::new(catalog), run });
    let server = server_sharing(keyring, Arc::new(PanickingStore), vec![provider]);

    // The stateless era: also a question is sent without the store.
    assert_eq!(text_of(&respond(&server, &stateless_call("plain", "")).await), "plain");
    assert!(text_of(&respond(&server, &stateless_call("fails", "")).await).contains("it failed"));
    let list = stateless_call("x", "").replace("tools/call", "tools/list");
    assert!(respond(&server, &list).await.text().contains(r#""asks""#));
    let asked = respond(&server, &stateless_call("asks", "")).await;
    let state = state_of(&asked);

    // The handshake era, on a pipe and in a session: questions are answered in memory.
    let pipe = PipeClient::new(&server);
    assert_eq!(text_of(&pipe.call("plain", &[]).await), "plain");
    assert_eq!(text_of(&pipe.call("asks", &["large"]).await), "size large");
    let (_, ticket) = new_session(&server);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"plain"}}"#;
    let called = respond_on(&server, &ANONYMOUS, ReplyChannel::Session(ticket), call).await;
    assert_eq!(text_of(&called), "plain");
    server.end_session(&ticket);

    // This store would be noticed: an answer is marked as used.
    let resumed = stateless_call("asks", &answers(&state, "size", "large"));
    let touched = tokio::spawn(async move { respond(&server, &resumed).await }).await;
    let panic = touched.expect_err("the store panics").into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"put_once"));
}

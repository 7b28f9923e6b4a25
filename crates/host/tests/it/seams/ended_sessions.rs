//! Sessions that end at one process end at the others, however many there were before.

use std::sync::Arc;

use host::{Dispatched, Keyring, ReplyChannel, Server, SessionTicket, SystemPlatform};
use state::store::{MemoryStore, Store, StoreLimits};
use wire::{Decoded, MessageContext};

use super::{ANONYMOUS, server_sharing};

pub(super) fn new_session(server: &Arc<Server>) -> (String, SessionTicket) {
    let message = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
        r#""capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#
    );
    let snapshot = server.snapshot();
    let Decoded::Request(request) =
        server.decode(message.as_bytes().to_vec(), MessageContext::Pipe(None), &snapshot)
    else {
        panic!("a request")
    };
    let Dispatched::Initialized { session, .. } =
        server.dispatch(request, &ANONYMOUS, ReplyChannel::NoSession, snapshot)
    else {
        panic!("a handshake")
    };
    let ticket = server.verify_session(&session, &ANONYMOUS).expect("a new session");
    (session, ticket)
}

/// Anybody can begin and end sessions. That must not keep others from ending theirs.
#[tokio::test]
async fn no_number_of_ended_sessions_hides_the_next_one() {
    let keyring = Arc::new(Keyring::for_this_run(&SystemPlatform::default()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(StoreLimits::default()));
    let replica = || server_sharing(keyring.clone(), store.clone(), Vec::new());
    let one = replica();
    tokio::spawn(one.clone().share_ended_sessions());
    tokio::task::yield_now().await;
    let (_, flood) = new_session(&one);
    for _ in 0..=StoreLimits::default().owner_records_max {
        one.end_session(&flood);
        tokio::task::yield_now().await;
    }
    let (session, ticket) = new_session(&one);
    one.end_session(&ticket);
    tokio::task::yield_now().await;

    let other = replica();
    assert!(other.verify_session(&session, &ANONYMOUS).is_ok(), "nobody has told it yet");
    tokio::spawn(other.clone().share_ended_sessions());
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(other.verify_session(&session, &ANONYMOUS).is_err());
}

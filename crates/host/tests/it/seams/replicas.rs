//! What reaches one process and concerns another: sessions that end, answers to questions, requests about tasks.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use host::{
    AcceptedTypes, CallerIdentity, Dispatched, Keyring, OutgoingMessage, PendingResponse, PostMessage,
    PostSender, ReplyChannel, Server, SessionTicket, SystemPlatform,
};
use json::{Doc, Json};
use spile_core::{
    ClientCapabilities, DetachedWork, Limits, Outcome, Platform as _, Provider, Run, ToolResult,
};
use state::store::{MemoryStore, Namespace, Store, StoreKey, StoreLimits, Ttl};
use wire::{Decoded, HeaderField, MessageContext, Peer, Version};

use super::durable_tasks::{
    Cluster, asking, get, get_when, member, old_start, request, settle, start_task, task_tool, two_steps,
};
use super::{ANONYMOUS, ask, error_of, provider, respond, respond_as, server_sharing, text_of, tools};

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
    tokio::spawn(one.clone().follow_replicas());
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
    tokio::spawn(other.clone().follow_replicas());
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(other.verify_session(&session, &ANONYMOUS).is_err());
}

/// Asks one question, and says what the answer was.
fn question() -> Arc<dyn Provider> {
    provider(tools(&["ask"]), |_, cx| {
        let answer = cx.journal.response("size").and_then(|answer| answer.text_field("value"));
        Run::Now(match answer {
            Some(size) => ToolResult::text(format!("size {size}")).into(),
            None => Outcome::InputRequired(ask("size")),
        })
    })
}

/// Two processes with the same keys and store that know of each other.
async fn replicas() -> [Arc<Server>; 2] {
    let keyring = Arc::new(Keyring::for_this_run(&SystemPlatform::default()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(StoreLimits::default()));
    let servers = [(); 2].map(|()| {
        let server = server_sharing(keyring.clone(), store.clone(), vec![question()]);
        tokio::spawn(server.clone().follow_replicas());
        server
    });
    settle().await;
    servers
}

/// A call in a session that waits for an answer, and the id of the question.
async fn call_until_asked(server: &Arc<Server>, ticket: SessionTicket) -> (PendingResponse, u64) {
    let peer = Peer::negotiated(Version::V2025_11_25, ClientCapabilities::ELICITATION_FORM);
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask"}}"#;
    let snapshot = server.snapshot();
    let decoded = server.decode(message.as_bytes().to_vec(), MessageContext::Pipe(Some(peer)), &snapshot);
    let Decoded::Request(request) = decoded else { panic!("a request") };
    let dispatched = server.dispatch(request, &ANONYMOUS, ReplyChannel::Session(ticket), snapshot);
    let Dispatched::Call(in_flight) = dispatched else { panic!("a call") };
    let mut pending = PendingResponse::Single(in_flight);
    match poll_fn(|cx| pending.poll_next(cx)).await {
        OutgoingMessage::Request(body) => {
            let doc = Json::from_written_bytes(body).to_doc();
            let id = doc.root().get("id").and_then(|id| id.raw().parse().ok()).expect("an id");
            (pending, id)
        }
        _ => panic!("a question"),
    }
}

/// The client's answer arrives at this process.
fn post_answer(server: &Arc<Server>, ticket: SessionTicket, id: u64, value: &str) {
    post_answer_as(server, &ANONYMOUS, ticket, id, value);
}

fn post_answer_as(
    server: &Arc<Server>,
    identity: &CallerIdentity,
    ticket: SessionTicket,
    id: u64,
    value: &str,
) {
    let answer = format!(r#"{{"action":"accept","content":{{"value":"{value}"}}}}"#);
    let decoded = Decoded::Response { id: Some(id), result: Ok(Json::parse(&answer).expect("JSON")) };
    let message = PostMessage { decoded, ticket: Some(ticket), registry: server.snapshot() };
    let sender = PostSender { identity, accepted: AcceptedTypes::BOTH };
    let mut cx = Context::from_waker(Waker::noop());
    server.respond_to_post(message, &sender, |_| HeaderField::Absent, &mut cx);
}

async fn finish(mut pending: PendingResponse) -> Doc {
    loop {
        if let OutgoingMessage::Response { body, .. } = poll_fn(|cx| pending.poll_next(cx)).await {
            return Json::from_written_bytes(body).to_doc();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_reaches_another_process_counts_for_its_own_question_only() {
    let [one, other] = replicas().await;
    let (_, ticket) = new_session(&one);
    let (first, first_id) = call_until_asked(&one, ticket).await;
    let (second, second_id) = call_until_asked(&other, ticket).await;
    assert_ne!(first_id, second_id, "a request id is used once in a session");
    // Each answer arrives where the question did not come from.
    post_answer(&other, ticket, first_id, "large");
    assert_eq!(text_of(&finish(first).await), "size large");
    post_answer(&one, ticket, second_id, "small");
    assert_eq!(text_of(&finish(second).await), "size small");
}

/// Anybody can answer what nobody asked, as fast as the network allows.
#[tokio::test(start_paused = true)]
async fn answers_that_wait_for_the_store_are_bounded_for_each_client_and_in_all() {
    let (cluster, is_stuck) = Cluster::with_slow_store();
    let one = cluster.start(Vec::new());
    tokio::spawn(one.clone().follow_replicas());
    settle().await;
    let (_, ticket) = new_session(&one);
    is_stuck.send_replace(true);
    for (caller, expected) in [("192.0.2.1", 64), ("192.0.2.2", 128), ("192.0.2.3", 192), ("192.0.2.4", 256)]
    {
        for id in 0..1000 {
            post_answer_as(&one, &from(caller), ticket, id, "large");
        }
        settle().await;
        assert_eq!(is_stuck.receiver_count(), expected, "writes that wait");
    }
    post_answer_as(&one, &from("192.0.2.5"), ticket, 7, "large");
    settle().await;
    assert_eq!(is_stuck.receiver_count(), 256);
    is_stuck.send_replace(false);
    settle().await;
    is_stuck.send_replace(true);
    post_answer_as(&one, &from("192.0.2.1"), ticket, 5000, "large");
    settle().await;
    assert_eq!(is_stuck.receiver_count(), 1, "there is room again");
}

#[tokio::test(start_paused = true)]
async fn sessions_that_end_while_the_store_is_slow_end_everywhere_with_few_writes() {
    let (cluster, is_stuck) = Cluster::with_slow_store();
    let (one, other) = (cluster.start(Vec::new()), cluster.start(Vec::new()));
    for server in [&one, &other] {
        tokio::spawn(server.clone().follow_replicas());
    }
    settle().await;
    is_stuck.send_replace(true);
    let sessions: Vec<_> = (0..1000).map(|_| new_session(&one)).collect();
    for (_, ticket) in &sessions {
        one.end_session(ticket);
    }
    settle().await;
    assert_eq!(is_stuck.receiver_count(), 1, "one write at a time");
    is_stuck.send_replace(false);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    for (id, _) in &sessions {
        assert!(other.verify_session(id, &ANONYMOUS).is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_while_the_store_is_full_ends_everywhere_later() {
    let limits = StoreLimits { records_max: 10, ..StoreLimits::default() };
    let cluster = Cluster::with_limits(limits);
    let (one, other) = (cluster.start(Vec::new()), cluster.start(Vec::new()));
    for server in [&one, &other] {
        tokio::spawn(server.clone().follow_replicas());
    }
    settle().await;
    for name in 0..10_u8 {
        let key = StoreKey { namespace: Namespace::Journals, owner: b"somebody", name: &[name] };
        cluster.store.put_once(key, b"", Ttl { ms: 10_000 }, cluster.platform.now_ms()).await.expect("room");
    }
    let (id, ticket) = new_session(&one);
    one.end_session(&ticket);
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert!(other.verify_session(&id, &ANONYMOUS).is_ok(), "nobody can tell it yet");
    cluster.platform.advance_ms(10_000);
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert!(other.verify_session(&id, &ANONYMOUS).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_lost_its_state_does_not_use_request_ids_again() {
    let [one, _] = replicas().await;
    let (_, ticket) = new_session(&one);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..10 {
        let (pending, id) = call_until_asked(&one, ticket).await;
        drop(pending);
        assert!(id < 1 << 53, "not every client reads {id} exactly");
        assert!(seen.insert(id), "{id} a second time");
        // State without content is dropped when others need the room.
        for _ in 0..Limits::default().sessions_per_principal_max {
            let (_, neighbour) = new_session(&one);
            let (pending, _) = call_until_asked(&one, neighbour).await;
            drop(pending);
        }
    }
}

const ANSWER: &str = r#""inputResponses":{"size":{"action":"accept","content":{"value":"large"}}}"#;

fn about(method: &str, id: &str, more: &str) -> String {
    request(method, &format!(r#""taskId":"{id}"{more}"#))
}

#[tokio::test(start_paused = true)]
async fn a_task_is_answered_and_cancelled_through_a_process_that_does_not_run_it() {
    // A process that does not follow the others reads its messages when it renews its lease.
    for follows in [true, false] {
        let cluster = Cluster::new();
        let (one, other) = (cluster.start(vec![asking()]), cluster.start(vec![asking()]));
        if follows {
            tokio::spawn(one.clone().follow_replicas());
        }
        let (answered, cancelled) = (start_task(&one, "ask").await, start_task(&one, "ask").await);
        for id in [&answered, &cancelled] {
            get_when(&one, id, "input_required").await;
        }
        settle().await;
        let update = about("tasks/update", &answered, &format!(",{ANSWER}"));
        for message in [update, about("tasks/cancel", &cancelled, "")] {
            let acknowledged = respond(&other, &message).await;
            assert!(!acknowledged.text().contains("error"), "{}", acknowledged.text());
        }
        if !follows {
            tokio::time::sleep(std::time::Duration::from_secs(10)).await;
        }
        let done = get_when(&one, &answered, "completed").await;
        assert!(done.text().contains("size large"), "{}", done.text());
        get_when(&one, &cancelled, "cancelled").await;
        assert_eq!(member(&get(&other, &cancelled).await, "status"), "cancelled");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_about_a_task_is_not_lost_with_the_process_that_runs_it() {
    let (cluster, first_steps) = (Cluster::new(), Arc::new(AtomicUsize::new(0)));
    let providers = || vec![two_steps(&first_steps), asking()];
    let one = cluster.start(providers());
    let (steps, question) = (start_task(&one, "steps").await, start_task(&one, "ask").await);
    get_when(&one, &question, "input_required").await;
    settle().await;
    // As a process that is killed: the leases stay.
    one.close();
    let other = cluster.start(providers());
    for message in
        [about("tasks/cancel", &steps, ""), about("tasks/update", &question, &format!(",{ANSWER}"))]
    {
        let acknowledged = respond(&other, &message).await;
        assert!(!acknowledged.text().contains("error"), "{}", acknowledged.text());
    }
    cluster.outlive_the_lease();
    get_when(&other, &question, "completed").await;
    get_when(&other, &steps, "cancelled").await;
    assert_eq!(first_steps.load(Ordering::SeqCst), 1, "what was cancelled does not begin again");
}

/// 2025-11-25: the response to `tasks/cancel` is the cancelled task, and `tasks/result` waits.
#[tokio::test(start_paused = true)]
async fn an_older_client_cancels_and_awaits_tasks_of_another_process() {
    let cluster = Cluster::new();
    let gate = Arc::new(tokio::sync::Notify::new());
    let waiting = |gate: Arc<tokio::sync::Notify>| {
        provider(vec![task_tool("wait")], move |_, _| {
            let gate = gate.clone();
            Run::Now(Outcome::Detach(DetachedWork::from_future(async move {
                gate.notified().await;
                ToolResult::text("waited").into()
            })))
        })
    };
    let (one, other) =
        (cluster.start(vec![waiting(gate.clone())]), cluster.start(vec![waiting(gate.clone())]));
    tokio::spawn(one.clone().follow_replicas());
    let (awaited, cancelled) = (old_start(&one, "wait", 60_000).await, old_start(&one, "wait", 60_000).await);
    settle().await;
    let old = |method: &str, id: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"taskId":"{id}"}}}}"#)
    };
    let response = respond(&other, &old("tasks/cancel", &cancelled)).await;
    assert_eq!(member(&response, "status"), "cancelled");
    let result = tokio::spawn({
        let (other, message) = (other.clone(), old("tasks/result", &awaited));
        async move { respond(&other, &message).await }
    });
    settle().await;
    gate.notify_one();
    assert_eq!(text_of(&result.await.expect("no panic")), "waited");
}

fn from(address: &str) -> CallerIdentity {
    let address: IpAddr = address.parse().expect("an address");
    CallerIdentity { address: Some(address), ..ANONYMOUS }
}

/// Callers without a name are told apart by their networks, but whoever knows the id of a task may use it from anywhere.
#[tokio::test]
async fn tasks_of_one_anonymous_caller_do_not_use_up_what_others_may_have() {
    let one = Cluster::new().start(vec![asking()]);
    let (greedy, modest) = (from("192.0.2.1"), from("192.0.2.2"));
    let call = request("tools/call", r#""name":"ask","arguments":{}"#);
    let mut first = None;
    for _ in 0..Limits::default().tasks_per_principal_max {
        let created = respond_as(&one, &greedy, &call).await;
        first.get_or_insert_with(|| member(&created, "taskId"));
    }
    let refused = respond_as(&one, &greedy, &call).await;
    assert!(refused.text().contains("busy"), "{}", refused.text());
    let id = member(&respond_as(&one, &modest, &call).await, "taskId");
    for (caller, id) in [(&modest, first.as_deref().expect("a task")), (&greedy, &id)] {
        let found = respond_as(&one, caller, &about("tasks/get", id, "")).await;
        assert!(!found.text().contains("error"), "{}", found.text());
    }
    assert!(!error_of(&respond_as(&one, &modest, &about("tasks/get", &"0".repeat(32), "")).await).is_empty());
}

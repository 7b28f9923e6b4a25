//! State between rounds: a memo and a call id, in every era, in tasks, across restarts.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use host::{CallObserver, CallRecord, CallStatus, Keyring, SystemPlatform};
use spile_core::{CallId, DetachedWork, Outcome, Provider, Run, TaskSupport, Tool, ToolResult};
use state::store::{MemoryStore, Store, StoreLimits};

use super::{
    PipeClient, Records, answers, ask, error_of, object_schema, provider, respond, server, server_sharing,
    server_with, state_of, stateless_call, text_of,
};

/// A tool that asks twice. What it learned in one round is in its memo in the next; its journal keeps the answers, but it
/// reads each only once.
fn order_tool() -> Arc<dyn Provider> {
    provider(super::tools(&["order"]), |_, cx| {
        let value = |key: &str| cx.journal.response(key).and_then(|answer| answer.text_field("value"));
        let id = cx.journal.call_id(&**cx.platform);
        match cx.journal.memo() {
            None => Run::Now(Outcome::InputRequired(ask("size").with_memo(id))),
            Some(memo) if memo.len() == id.len() => {
                assert_eq!(memo, id, "the id of a call is the same in every round");
                let memo = [&id[..], value("size").expect("answered").as_bytes()].concat();
                Run::Now(Outcome::InputRequired(ask("colour").with_memo(memo)))
            }
            Some(memo) => {
                assert_eq!(memo[..id.len()], id, "the id of a call is the same in every round");
                let size = String::from_utf8_lossy(&memo[id.len()..]).into_owned();
                Run::now(ToolResult::text(format!("{size} {}", value("colour").expect("answered"))))
            }
        }
    })
}

#[tokio::test]
async fn a_memo_comes_back_with_the_answers_in_the_handshake_era() {
    let client = PipeClient::new(&server(vec![order_tool()]));
    assert_eq!(text_of(&client.call("order", &["large", "red"]).await), "large red");
}

#[tokio::test]
async fn a_memo_comes_back_with_the_answers_in_the_stateless_era_on_any_server_with_the_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys");
    let keyring = || Arc::new(Keyring::open_file(&path, &SystemPlatform::default()).expect("a key file"));
    // Each round reaches another process: the second server is a replica, the third is the first one after a restart.
    let servers = [(); 3].map(|()| server_with(Some(keyring()), vec![order_tool()]));
    let first = respond(&servers[0], &stateless_call("order", "")).await;
    let second = stateless_call("order", &answers(&state_of(&first), "size", "large"));
    let second = respond(&servers[1], &second).await;
    let third = stateless_call("order", &answers(&state_of(&second), "colour", "red"));
    assert_eq!(text_of(&respond(&servers[2], &third).await), "large red");
}

#[tokio::test]
async fn a_state_of_a_server_with_another_key_is_refused_with_the_reason() {
    let (one, other) = (server(vec![order_tool()]), {
        let keyring = Arc::new(Keyring::for_this_run(&SystemPlatform::default()));
        server_with(Some(keyring), vec![order_tool()])
    });
    let records = Arc::new(Records::default());
    other.set_observer(records.clone());
    let first = respond(&one, &stateless_call("order", "")).await;
    let resumed = stateless_call("order", &answers(&state_of(&first), "size", "large"));
    let error = error_of(&respond(&other, &resumed).await);
    assert_eq!(records.lines(), ["order depth 0 round 0"], "a refused call is recorded, too");
    assert!(error.contains("the server's keys have changed"), "{error}");
    // For another call of the same server the reason is another one.
    let elsewhere = resumed.replace(r#""name":"order""#, r#""name":"order","arguments":{"a":1}"#);
    let error = error_of(&respond(&one, &elsewhere).await);
    assert!(error.contains("for another call"), "{error}");
}

#[tokio::test]
async fn a_state_is_accepted_once_by_all_servers_with_the_store() {
    let keyring = Arc::new(Keyring::for_this_run(&SystemPlatform::default()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(StoreLimits::default()));
    let servers = [(); 2].map(|()| server_sharing(keyring.clone(), store.clone(), vec![order_tool()]));
    let first = respond(&servers[0], &stateless_call("order", "")).await;
    let second = stateless_call("order", &answers(&state_of(&first), "size", "large"));
    assert!(respond(&servers[1], &second).await.text().contains("input_required"));
    for server in &servers {
        let error = error_of(&respond(server, &second).await);
        assert!(error.contains("already used"), "{error}");
    }
    // Another caller's state with the same answers is another state.
    let other = respond(&servers[0], &stateless_call("order", "")).await;
    let other = stateless_call("order", &answers(&state_of(&other), "size", "large"));
    assert!(respond(&servers[0], &other).await.text().contains("input_required"));
}

/// The round does again what it does before it asks: a client that sends an old state could repeat that at will.
#[tokio::test]
async fn a_state_without_an_answer_is_accepted_once_too() {
    let server = server(vec![provider(super::tools(&["order"]), |_, _| {
        Run::Now(Outcome::InputRequired(ask("size").with_memo(*b"memo")))
    })]);
    let mut state = state_of(&respond(&server, &stateless_call("order", "")).await);
    let invalid = r#","inputResponses":{"size":{"action":"accept","content":{"value":7}}}"#;
    for responses in ["", r#","inputResponses":{}"#, invalid] {
        let resumed = stateless_call("order", &format!(r#","requestState":"{state}"{responses}"#));
        let newer = state_of(&respond(&server, &resumed).await);
        let error = error_of(&respond(&server, &resumed).await);
        assert!(error.contains("already used"), "{responses}: {error}");
        state = newer;
    }
}

/// A memo that a client should not have to carry.
#[tokio::test]
async fn a_large_journal_waits_in_the_store() {
    let memo = vec![7; 500 << 10];
    let expected = memo.clone();
    let tool = Tool::new("copy", "", object_schema());
    let provider = provider(vec![tool], move |_, cx| match (cx.journal.round, cx.journal.memo()) {
        (0, None) => Run::Now(Outcome::InputRequired(ask("size").with_memo(memo.clone()))),
        (1, Some(memo)) => {
            assert_eq!(memo, expected, "the whole memo comes back");
            let answer = cx.journal.response("size").and_then(|answer| answer.text_field("value"));
            Run::now(ToolResult::text(answer.expect("answered")))
        }
        other => panic!("{:?}", other.0),
    });
    let keyring = Arc::new(Keyring::for_this_run(&SystemPlatform::default()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(StoreLimits::default()));
    let servers = [(); 2].map(|()| server_sharing(keyring.clone(), store.clone(), vec![provider.clone()]));
    let first = respond(&servers[0], &stateless_call("copy", "")).await;
    let state = state_of(&first);
    assert!(state.len() < 1000, "the client carries a reference: {} bytes", state.len());
    let second = stateless_call("copy", &answers(&state, "size", "large"));
    assert_eq!(text_of(&respond(&servers[1], &second).await), "large");
    let error = error_of(&respond(&servers[0], &second).await);
    assert!(error.contains("already used"), "{error}");

    let alone = server_sharing(keyring, Arc::new(MemoryStore::new(StoreLimits::default())), vec![provider]);
    let error = error_of(&respond(&alone, &second).await);
    assert!(error.contains("no longer has it"), "{error}");
}

/// A tool whose work goes on as a task, and asks there.
#[tokio::test]
async fn a_task_asks_in_the_same_way() {
    let tool = Tool { task_support: TaskSupport::Optional, ..Tool::new("order", "", object_schema()) };
    let provider = provider(vec![tool], |_, cx| {
        let id = cx.journal.call_id(&**cx.platform);
        match (cx.journal.round, cx.journal.memo()) {
            (0, None) => Run::Now(Outcome::Detach(DetachedWork::from_future(async move {
                Outcome::InputRequired(ask("size").with_memo(id))
            }))),
            (1, Some(memo)) => {
                assert_eq!(memo, id, "the id of a call is the same in every round");
                let answer = cx.journal.response("size").and_then(|answer| answer.text_field("value"));
                Run::now(ToolResult::text(answer.expect("answered")))
            }
            other => panic!("{other:?}"),
        }
    });
    // Without a client that accepts tasks, the caller waits and is asked itself.
    let client = PipeClient::new(&server(vec![provider.clone()]));
    assert_eq!(text_of(&client.call("order", &["large"]).await), "large");

    let server = server(vec![provider]);
    let meta = concat!(
        r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"#,
        r#""extensions":{"io.modelcontextprotocol/tasks":{}}}}"#
    );
    let request = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params},{meta}}}}}"#)
    };
    let created = respond(&server, &request("tools/call", r#""name":"order""#)).await;
    let id = created
        .root()
        .get("result")
        .and_then(|result| result.get("taskId")?.str().map(String::from))
        .unwrap_or_else(|| panic!("a task: {}", created.text()));
    let get = request("tasks/get", &format!(r#""taskId":"{id}""#));
    let wait_for = async |status: &str| loop {
        let task = respond(&server, &get).await;
        if task.text().contains(&format!(r#""status":"{status}""#)) {
            return task;
        }
        tokio::task::yield_now().await;
    };
    wait_for("input_required").await;
    let answer = r#""inputResponses":{"size":{"action":"accept","content":{"value":"large"}}}"#;
    respond(&server, &request("tasks/update", &format!(r#""taskId":"{id}",{answer}"#))).await;
    let finished = wait_for("completed").await;
    assert!(finished.text().contains(r#""text":"large""#), "{}", finished.text());
}

/// Keeps how each record says that its call went, and the id of the call.
#[derive(Default)]
struct RecordedEnds(Mutex<Vec<(CallId, u32, &'static str)>>);

impl CallObserver for RecordedEnds {
    fn on_call_finished(&self, record: &CallRecord<'_>) {
        let status = match &record.status {
            CallStatus::Result(_) => "result",
            CallStatus::InputRequired => "asked",
            CallStatus::Task => "task",
            CallStatus::Error(_) => "error",
            CallStatus::Cancelled => "cancelled",
        };
        let id = record.call_id.expect("an observer that needs ids gets them");
        self.0.lock().expect("no panic before").push((id, record.round, status));
    }

    fn needs_call_id(&self) -> bool {
        true
    }
}

/// One call in any number of requests, each to another process: the id joins its records, and one says how it ended.
#[tokio::test]
async fn the_records_of_a_call_have_its_id_wherever_they_are_made() {
    let keyring = Arc::new(Keyring::for_this_run(&SystemPlatform::default()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(StoreLimits::default()));
    let records = Arc::new(RecordedEnds::default());
    let later = || {
        let tool = Tool { task_support: TaskSupport::Optional, ..Tool::new("later", "", object_schema()) };
        provider(vec![tool], |_, _| {
            Run::Now(Outcome::Detach(DetachedWork::from_future(async { ToolResult::text("late").into() })))
        })
    };
    let servers = [(); 3].map(|()| {
        let server = server_sharing(keyring.clone(), store.clone(), vec![order_tool(), later()]);
        server.set_observer(records.clone());
        server
    });
    let take = || -> (usize, Vec<(u32, &str)>) {
        let records = std::mem::take(&mut *records.0.lock().expect("no panic before"));
        let ids: HashSet<CallId> = records.iter().map(|(id, ..)| *id).collect();
        (ids.len(), records.into_iter().map(|(_, round, status)| (round, status)).collect())
    };
    let first = respond(&servers[0], &stateless_call("order", "")).await;
    let second = stateless_call("order", &answers(&state_of(&first), "size", "large"));
    let second = respond(&servers[1], &second).await;
    let third = stateless_call("order", &answers(&state_of(&second), "colour", "red"));
    assert_eq!(text_of(&respond(&servers[2], &third).await), "large red");
    assert_eq!(take(), (1, vec![(0, "asked"), (1, "asked"), (2, "result")]));

    // Where one process sees all of it, there is one record.
    PipeClient::new(&servers[0]).call("order", &["large", "red"]).await;
    assert_eq!(take(), (1, vec![(0, "result")]));

    let id = super::durable_tasks::start_task(&servers[0], "later").await;
    super::durable_tasks::get_when(&servers[0], &id, "completed").await;
    assert_eq!(take(), (1, vec![(0, "task"), (0, "result")]));
}

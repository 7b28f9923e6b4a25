//! A task changes hands while its client, its process or the store is in the middle of something.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use spile_core::{DetachedWork, Outcome, Provider, Run, ToolResult};
use tokio::sync::Notify;

use super::durable_tasks::{
    Cluster, asking, get, get_when, member, old_start, request, settle, start_task, task_tool,
};
use super::{provider, respond, text_of};

/// Saves how far it came when it may, and ends.
fn saving(gate: &Arc<Notify>) -> Arc<dyn Provider> {
    let gate = gate.clone();
    provider(vec![task_tool("save")], move |_, _| {
        let gate = gate.clone();
        Run::Now(Outcome::Detach(DetachedWork::new(move |checkpoints| {
            Box::pin(async move {
                gate.notified().await;
                checkpoints.save(b"half".to_vec()).await;
                ToolResult::text("ended where it began").into()
            })
        })))
    })
}

/// The machine sleeps just when the store has written a state, and has not said so.
#[tokio::test(start_paused = true)]
async fn a_state_on_its_way_is_not_taken_for_one_of_another_process() {
    let (cluster, is_stuck) = Cluster::with_slow_replies();
    let gate = Arc::new(Notify::new());
    let one = cluster.start(vec![saving(&gate)]);
    let id = start_task(&one, "save").await;
    settle().await;
    is_stuck.send_replace(true);
    gate.notify_one();
    settle().await;
    cluster.outlive_the_lease();
    // The lease is due.
    tokio::time::sleep(Duration::from_secs(11)).await;
    settle().await;
    is_stuck.send_replace(false);
    let done = get_when(&one, &id, "completed").await;
    assert!(done.text().contains("ended where it began"), "{}", done.text());
}

/// The process was held up, and does not know yet that another one has its task.
#[tokio::test(start_paused = true)]
async fn what_a_client_sends_to_a_process_that_lost_its_task_reaches_the_one_that_has_it() {
    let answer = r#","inputResponses":{"size":{"action":"accept","content":{"value":"large"}}}"#;
    for (method, more, end) in [("tasks/update", answer, "completed"), ("tasks/cancel", "", "cancelled")] {
        let cluster = Cluster::new();
        let (one, other) = (cluster.start(vec![asking()]), cluster.start(vec![asking()]));
        tokio::spawn(other.clone().follow_replicas());
        let id = start_task(&one, "ask").await;
        get_when(&one, &id, "input_required").await;
        settle().await;
        cluster.outlive_the_lease();
        get_when(&other, &id, "input_required").await;
        settle().await;
        let sent = respond(&one, &request(method, &format!(r#""taskId":"{id}"{more}"#))).await;
        assert!(!sent.text().contains("error"), "{method}: {}", sent.text());
        get_when(&other, &id, end).await;
        assert_eq!(member(&get(&one, &id).await, "status"), end);
    }
}

/// Clients ask for their tasks all the time, also while a process stops.
#[tokio::test]
async fn a_process_that_stops_does_not_begin_again_what_it_let_go_of() {
    let (cluster, is_stuck) = Cluster::with_slow_store();
    let counting = || {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let run = provider(vec![task_tool("run")], move |_, cx| {
            let (counted, is_resumed) = (counted.clone(), cx.journal.memo().is_some());
            Run::Now(Outcome::Detach(DetachedWork::new(move |checkpoints| {
                Box::pin(async move {
                    counted.fetch_add(1, Ordering::SeqCst);
                    if !is_resumed {
                        checkpoints.save(b"begun".to_vec()).await;
                        std::future::pending::<()>().await;
                    }
                    ToolResult::text("went on").into()
                })
            })))
        });
        (run, runs)
    };
    let ((run, here), (run_there, there)) = (counting(), counting());
    let one = cluster.start(vec![run]);
    let id = start_task(&one, "run").await;
    settle().await;
    is_stuck.send_replace(true);
    let stopped = tokio::spawn({
        let one = one.clone();
        async move { one.release_tasks().await }
    });
    settle().await;
    assert_eq!(member(&get(&one, &id).await, "status"), "working", "it is known, and goes on somewhere");
    is_stuck.send_replace(false);
    stopped.await.expect("no panic");
    assert_eq!(member(&get(&one, &id).await, "status"), "working");
    settle().await;
    assert_eq!(here.load(Ordering::SeqCst), 1, "not begun again by the process that stops");
    // Nothing keeps the next process waiting.
    let other = cluster.start(vec![run_there]);
    other.resume_tasks().await;
    get_when(&other, &id, "completed").await;
    assert_eq!(there.load(Ordering::SeqCst), 1);
}

/// A client of 2025-11-25 waits for the result at the process that loses the task.
#[tokio::test(start_paused = true)]
async fn a_result_that_is_awaited_comes_from_whichever_process_has_the_task() {
    let cluster = Cluster::new();
    let ending = |process: &'static str| {
        let gate = Arc::new(Notify::new());
        let opened = gate.clone();
        let provider = provider(vec![task_tool("end")], move |_, _| {
            let gate = gate.clone();
            Run::Now(Outcome::Detach(DetachedWork::from_future(async move {
                gate.notified().await;
                ToolResult::text(process).into()
            })))
        });
        (provider, opened)
    };
    let ((here, _never), (there, end)) = (ending("here"), ending("there"));
    let (one, other) = (cluster.start(vec![here]), cluster.start(vec![there]));
    let id = old_start(&one, "end", 3_600_000).await;
    let message =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{{"taskId":"{id}"}}}}"#);
    let awaited = tokio::spawn({
        let one = one.clone();
        async move { respond(&one, &message).await }
    });
    settle().await;
    cluster.outlive_the_lease();
    get_when(&other, &id, "working").await;
    // `one` notices that its lease is over.
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(!awaited.is_finished(), "it goes on");
    end.notify_one();
    assert_eq!(text_of(&awaited.await.expect("no panic")), "there");
}

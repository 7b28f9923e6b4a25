//! Who runs a task: one process at a time, and none whose creation nobody was told of.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use host::{CallerIdentity, Config, Server};
use spile_core::{Checkpoints, DetachedWork, Limits, Outcome, Principal, Provider, Run, ToolResult};
use testkit::FakePlatform;
use tokio::sync::Notify;

use super::durable_tasks::{Cluster, asking, get, get_when, member, request, settle, start_task, task_tool};
use super::{ANONYMOUS, error_of, provider, respond, respond_as};

/// Counts how often it runs, and waits before it says which process it ran in.
fn counted(runs: &Arc<AtomicUsize>, gate: &Arc<Notify>, process: &'static str) -> Arc<dyn Provider> {
    let (runs, gate) = (runs.clone(), gate.clone());
    provider(vec![task_tool("count")], move |_, _| {
        let (runs, gate) = (runs.clone(), gate.clone());
        Run::Now(Outcome::Detach(DetachedWork::from_future(async move {
            runs.fetch_add(1, Ordering::SeqCst);
            gate.notified().await;
            ToolResult::text(process).into()
        })))
    })
}

/// Notes whether its work was cancelled when it is dropped.
struct Dropped {
    checkpoints: Checkpoints,
    is_cancelled: Arc<Mutex<Vec<bool>>>,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        let is_cancelled = !self.checkpoints.goes_on_elsewhere();
        self.is_cancelled.lock().expect("no panic before").push(is_cancelled);
    }
}

/// Work that ends only by being dropped.
fn endless(is_cancelled: &Arc<Mutex<Vec<bool>>>) -> Arc<dyn Provider> {
    let is_cancelled = is_cancelled.clone();
    provider(vec![task_tool("endless")], move |_, _| {
        let is_cancelled = is_cancelled.clone();
        Run::Now(Outcome::Detach(DetachedWork::new(move |checkpoints| {
            Box::pin(async move {
                let _dropped = Dropped { checkpoints, is_cancelled };
                std::future::pending().await
            })
        })))
    })
}

#[tokio::test(start_paused = true)]
async fn work_that_goes_on_in_another_process_is_not_cancelled() {
    let (here, there) = (Arc::default(), Arc::default());
    let cluster = Cluster::new();
    let (one, other) = (cluster.start(vec![endless(&here)]), cluster.start(vec![endless(&there)]));
    let id = start_task(&one, "endless").await;
    settle().await;
    cluster.outlive_the_lease();
    assert_eq!(member(&get(&other, &id).await, "status"), "working");
    tokio::time::sleep(RENEWED).await;
    assert_eq!(*here.lock().expect("no panic before"), [false]);
    respond(&other, &request("tasks/cancel", &format!(r#""taskId":"{id}""#))).await;
    settle().await;
    assert_eq!(*there.lock().expect("no panic before"), [true]);
}

fn ada() -> CallerIdentity {
    CallerIdentity { principal: Principal::local("ada").expect("valid"), ..ANONYMOUS }
}

/// Longer than it takes to renew a lease.
const RENEWED: Duration = Duration::from_secs(11);

#[tokio::test(start_paused = true)]
async fn a_task_goes_on_after_the_machine_has_slept() {
    let (runs, gate) = (Arc::default(), Arc::default());
    let cluster = Cluster::new();
    let one = cluster.start(vec![counted(&runs, &gate, "one")]);
    let id = start_task(&one, "count").await;
    settle().await;
    cluster.outlive_the_lease();
    tokio::time::sleep(RENEWED).await;
    gate.notify_one();
    let done = get_when(&one, &id, "completed").await;
    assert!(done.text().contains(r#""text":"one""#), "{}", done.text());
    assert_eq!(runs.load(Ordering::SeqCst), 1, "it did not begin again");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_held_up_does_not_undo_what_another_one_did_with_its_task() {
    for is_renewed_first in [false, true] {
        let runs = Arc::default();
        let (slow, quick) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let cluster = Cluster::new();
        let one = cluster.start(vec![counted(&runs, &slow, "one")]);
        let other = cluster.start(vec![counted(&runs, &quick, "other")]);
        let id = start_task(&one, "count").await;
        settle().await;
        cluster.outlive_the_lease();
        quick.notify_one();
        get_when(&other, &id, "completed").await;
        settle().await;
        if is_renewed_first {
            tokio::time::sleep(RENEWED).await;
        }
        slow.notify_one();
        settle().await;
        let third = cluster.start(vec![asking()]);
        for server in [&one, &other, &third] {
            let done = get(server, &id).await;
            assert!(done.text().contains(r#""text":"other""#), "{}", done.text());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_a_busy_process_has_no_room_for_is_continued_later() {
    let (runs, gate) = (Arc::default(), Arc::default());
    let (cluster, ada) = (Cluster::new(), ada());
    let start = || {
        let limits = Limits { tasks_per_principal_max: 1, ..Limits::default() };
        cluster.start_with(limits, vec![counted(&runs, &gate, "done")])
    };
    let (one, other) = (start(), start());
    let call = request("tools/call", r#""name":"count","arguments":{}"#);
    for server in [&one, &other] {
        member(&respond_as(server, &ada, &call).await, "taskId");
    }
    settle().await;
    one.release_tasks().await;
    tokio::spawn({
        let other = other.clone();
        async move { other.resume_tasks().await }
    });
    settle().await;
    assert_eq!(runs.load(Ordering::SeqCst), 2, "each process runs its own");
    gate.notify_one();
    tokio::time::sleep(RENEWED).await;
    settle().await;
    assert_eq!(runs.load(Ordering::SeqCst), 3, "nobody asked for it");
}

#[tokio::test]
async fn a_task_whose_client_goes_away_while_it_is_created_is_not_left_behind() {
    let (runs, gate) = (Arc::default(), Arc::default());
    let (cluster, is_stuck) = Cluster::with_slow_store();
    let one = cluster.start(vec![counted(&runs, &gate, "one")]);
    let ada = ada();
    is_stuck.send_replace(true);
    // As many as a caller may have.
    for _ in 0..Limits::default().tasks_per_principal_max {
        let (one, ada) = (one.clone(), ada.clone());
        let call = request("tools/call", r#""name":"count","arguments":{}"#);
        let created = tokio::spawn(async move { respond_as(&one, &ada, &call).await });
        tokio::task::yield_now().await;
        created.abort();
    }
    is_stuck.send_replace(false);
    settle().await;
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/list"}"#;
    let listed = respond_as(&one, &ada, list).await;
    assert!(listed.text().contains(r#""tasks":[]"#), "{}", listed.text());
    let call = request("tools/call", r#""name":"count","arguments":{}"#);
    member(&respond_as(&one, &ada, &call).await, "taskId");
    settle().await;
    one.release_tasks().await;
    cluster.outlive_the_lease();
    cluster.start(vec![counted(&runs, &gate, "other")]).resume_tasks().await;
    settle().await;
    assert_eq!(runs.load(Ordering::SeqCst), 2, "the task that was created, in both processes");
}

#[tokio::test]
async fn the_next_page_of_tasks_begins_behind_one_that_has_expired() {
    let platform = Arc::new(FakePlatform::new(1));
    let limits = Limits { page_items_max: 2, ..Limits::default() };
    let server: Arc<Server> = Server::new(Config::new("t", "1", limits, platform.clone()), vec![asking()]);
    let ada = ada();
    let message = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#)
    };
    for ttl_ms in [60_000, 1000, 60_000, 60_000, 60_000] {
        let call = message("tools/call", &format!(r#""name":"ask","task":{{"ttl":{ttl_ms}}}"#));
        respond_as(&server, &ada, &call).await;
    }
    let page = |response: &json::Doc| -> (usize, Option<String>) {
        let result = response.root().get("result").unwrap_or_else(|| panic!("{}", response.text()));
        let cursor = result.get("nextCursor").and_then(|cursor| Some(cursor.str()?.into_owned()));
        (result.get("tasks").expect("tasks").elements().count(), cursor)
    };
    let (count, cursor) = page(&respond_as(&server, &ada, &message("tasks/list", "")).await);
    assert_eq!(count, 2);
    platform.advance_ms(2000);
    let next = message("tasks/list", &format!(r#""cursor":"{}""#, cursor.expect("a next page")));
    let (count, cursor) = page(&respond_as(&server, &ada, &next).await);
    assert_eq!(count, 2);
    let next = message("tasks/list", &format!(r#""cursor":"{}""#, cursor.expect("a next page")));
    assert_eq!(page(&respond_as(&server, &ada, &next).await), (1, None));
    let unknown = respond(&server, &message("tasks/list", r#""cursor":"x""#)).await;
    assert!(!error_of(&unknown).is_empty());
}

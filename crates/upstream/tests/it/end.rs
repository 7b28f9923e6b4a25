//! How a child ends: by itself, terminated, killed, dropped, or with its supervisor.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use upstream::process::{Child, Command, Exit, ExitCause, ProcessOptions};

use crate::{code, helper, kinds, options, signal, start};

/// Starts a server of a kind, stops it, and checks that no process is left.
async fn check(kind: &str, expected: Exit) {
    let mark = kinds::new_mark(kind);
    let mut child = start(&kinds::command(kind, helper(), &mark)).await;
    kinds::ready(&mut child).await;
    assert_eq!(child.stop().await, expected, "{kind}");
    assert_eq!(kinds::marked(&mark), [""; 0], "{kind}");
}

#[tokio::test]
async fn server_exits_when_its_stdin_closes() {
    check("plain", code(0)).await;
    check("wrapper", code(0)).await;
    check("wrapper in a pipe", code(0)).await;
    check("grandchild holds stdout", code(0)).await;
}

#[tokio::test]
async fn descendants_end_with_the_server() {
    check("daemon", code(0)).await;
    check("daemon that ignores TERM", code(0)).await;
    check("leaves at once", code(0)).await;
}

#[tokio::test]
async fn server_that_does_not_exit_gets_sigterm_then_sigkill() {
    check("ignores EOF", signal(15)).await;
    check("stops itself", signal(15)).await;
    check("ignores TERM and EOF", signal(9)).await;
}

#[tokio::test]
async fn exit_code_after_sigterm_is_reported() {
    let script = r#"trap 'echo bye >&2; exit 7' TERM; echo ready; while :; do sleep 0.01; done"#;
    let mut child = start(&kinds::shell(script, helper())).await;
    kinds::ready(&mut child).await;
    let stderr = child.stderr();
    assert_eq!(child.stop().await, code(7));
    assert_eq!(stderr.tail(1), "bye");
}

#[tokio::test]
async fn huge_grace_periods_do_not_overflow() {
    let max = u64::MAX;
    let options = ProcessOptions { exit_grace_ms: max, term_grace_ms: max, kill_grace_ms: max, ..options() };
    let mark = kinds::new_mark("patience");
    let mut child = kinds::command("daemon", helper(), &mark).start(&options).await.unwrap();
    kinds::ready(&mut child).await;
    assert_eq!(child.stop().await, code(0));
    assert_eq!(kinds::marked(&mark), [""; 0]);
}

#[tokio::test]
async fn unread_output_does_not_block_the_exit() {
    // More than a pipe holds, and stdout is not read.
    let script = "echo ready; cat >/dev/null; head -c 1000000 /dev/zero; echo done >&2";
    let mut child = kinds::shell(script, helper())
        .start(&ProcessOptions { exit_grace_ms: 20_000, ..options() })
        .await
        .unwrap();
    kinds::ready(&mut child).await;
    let stderr = child.stderr();
    assert_eq!(child.stop().await, code(0));
    assert_eq!(stderr.tail(1), "done");
}

#[tokio::test]
async fn endless_forks_are_killed() {
    // Each process lives just long enough to start the next, and ignores SIGTERM.
    let mark = kinds::new_mark("forks");
    let script = r#"trap '' TERM; f() { (f &) ; }; g() { while :; do (sleep 9 &); (setsid sleep 9 &); sleep 0.01; done; }; f & g & echo ready; wait; exec "$0" deaf"#;
    let mut child = start(&kinds::shell(script, helper()).env(kinds::MARK, &mark)).await;
    kinds::ready(&mut child).await;
    assert_eq!(child.stop().await.processes_left, 0);
    assert_eq!(kinds::marked(&mark), [""; 0]);
}

#[tokio::test]
async fn dropping_a_child_ends_its_process_tree() {
    let mark = kinds::new_mark("dropped");
    for kind in kinds::kinds() {
        let mut child = start(&kinds::command(kind, helper(), &mark)).await;
        kinds::ready(&mut child).await;
    }
    assert_no_process_left(&mark);
}

#[test]
fn runtime_shutdown_ends_its_children() {
    let mark = kinds::new_mark("shut-down");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (ready, started) = std::sync::mpsc::sync_channel(kinds::kinds().count());
    let kept = runtime.block_on(async {
        for kind in kinds::kinds() {
            let (ready, mark) = (ready.clone(), mark.clone());
            tokio::spawn(async move {
                let mut child = start(&kinds::command(kind, helper(), &mark)).await;
                kinds::ready(&mut child).await;
                ready.send(()).unwrap();
                child.wait().await;
                std::future::pending::<()>().await;
            });
        }
        start(&kinds::command("plain", helper(), &mark)).await
    });
    kinds::kinds().for_each(|_| started.recv().unwrap());
    runtime.shutdown_background();
    // A child whose runtime is already gone.
    drop(kept);
    assert_no_process_left(&mark);
}

#[tokio::test]
async fn cancelled_start_or_stop_leaves_no_process() {
    let mark = kinds::new_mark("given-up");
    // Each at another point: after a different number of polls.
    for looks in 0..12 {
        let command = kinds::command("ignores TERM and EOF", helper(), &mark);
        let options = options();
        drop_after_polls(looks, command.start(&options)).await;
        let mut child = start(&command).await;
        kinds::ready(&mut child).await;
        drop_after_polls(looks, child.stop()).await;
    }
    assert_no_process_left(&mark);
}

async fn drop_after_polls(looks: usize, future: impl Future) {
    let mut future = std::pin::pin!(future);
    for _ in 0..looks {
        let once = tokio::time::timeout(Duration::from_millis(2), &mut future);
        if once.await.is_ok() {
            return;
        }
    }
}

#[tokio::test]
async fn wait_is_cancel_safe() {
    let mut child = start(&Command::new(helper()).arg("serve")).await;
    kinds::ready(&mut child).await;
    for _ in 0..5 {
        drop_after_polls(1, child.wait()).await;
    }
    assert_eq!(child.stop().await, code(0));
}

#[tokio::test]
async fn killed_supervisor_is_noticed_and_the_group_killed() {
    let mark = kinds::new_mark("supervisor");
    for kind in ["plain", "wrapper", "ignores TERM and EOF"] {
        let mut child = start(&kinds::command(kind, helper(), &mark)).await;
        kinds::ready(&mut child).await;
        kill_process(supervisor_of(&child), Signal::KILL).unwrap();
        assert_eq!(child.wait().await, Exit { cause: ExitCause::Unknown, processes_left: 0 });
    }
    assert_no_process_left(&mark);
}

#[tokio::test]
async fn stopped_supervisor_does_not_block_stop() {
    let mark = kinds::new_mark("stopped-supervisor");
    let options = ProcessOptions { kill_grace_ms: 50, ..options() };
    let mut child = kinds::command("ignores EOF", helper(), &mark).start(&options).await.unwrap();
    kinds::ready(&mut child).await;
    kill_process(supervisor_of(&child), Signal::STOP).unwrap();
    assert_eq!(child.stop().await, Exit { cause: ExitCause::Unknown, processes_left: 0 });
    assert_no_process_left(&mark);
}

/// The parent of the program is its supervisor.
fn supervisor_of(child: &Child) -> Pid {
    let (_, parent) = kinds::stat(child.id().expect("it runs").cast_signed()).expect("it is there");
    Pid::from_raw(parent.cast_signed()).expect("a process")
}

fn assert_no_process_left(mark: &str) {
    assert_eq!(kinds::until_none(|| kinds::marked(mark)), [""; 0]);
}

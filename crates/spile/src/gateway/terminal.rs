//! Asks at the terminal that the gateway was started from, where no client can be asked.

use std::io::IsTerminal as _;
use std::sync::Arc;

use permissions::approvals::{ApprovalQueue, PendingApproval};
use tokio::sync::mpsc;

use crate::client::terminal::spawn_stdin_reader;
use crate::notice;

/// Whether somebody can read a question and answer it.
pub(super) fn is_available() -> bool {
    std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal()
        && !notice::is_json()
        && is_in_foreground()
}

/// A program in the background of a shell is stopped when it reads from the terminal. One whose terminal belongs to no
/// shell is not.
#[cfg(unix)]
fn is_in_foreground() -> bool {
    let in_front = rustix::termios::tcgetpgrp(std::io::stdin());
    in_front.map_or(true, |group| group == rustix::process::getpgrp())
}

#[cfg(not(unix))]
fn is_in_foreground() -> bool {
    true
}

/// Shows the questions of this process one after the other, until the gateway ends. Whoever answers first decides: a
/// question that is answered elsewhere is withdrawn.
pub(super) async fn ask(queue: Arc<ApprovalQueue>) {
    let mut changes = queue.changes();
    // Read only when there is a question, so that a gateway can be sent to the background before.
    let mut lines = None;
    loop {
        changes.mark_unchanged();
        match queue.waiting().into_iter().next() {
            Some(asked) => {
                let lines: &mut mpsc::Receiver<String> = lines.get_or_insert_with(spawn_stdin_reader);
                // What was typed before the question does not answer it.
                while lines.try_recv().is_ok() {}
                if ask_one(&queue, &asked, lines).await.is_none() {
                    return;
                }
            }
            None => {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

/// `None` if the terminal is closed.
async fn ask_one(
    queue: &ApprovalQueue,
    asked: &PendingApproval,
    lines: &mut mpsc::Receiver<String>,
) -> Option<()> {
    let mut changes = queue.changes();
    let caller = match &*asked.request.principal {
        "" => String::new(),
        principal => format!("\nCalled by {principal}."),
    };
    notice::info(&format!("\n{}{caller}\nAllow it? Type y or n, and press Enter.", asked.request.message()));
    loop {
        changes.mark_unchanged();
        if !queue.waiting().iter().any(|one| one.id == asked.id) {
            notice::info("The question is no longer open.");
            return Some(());
        }
        let line = tokio::select! {
            line = lines.recv() => line?,
            _ = changes.changed() => continue,
        };
        let is_allowed = match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => true,
            "n" | "no" => false,
            _ => {
                notice::info("Type y to allow the call, or n to refuse it.");
                continue;
            }
        };
        if let Err(error) = queue.answer(&asked.id, is_allowed, Some("the terminal")).await {
            notice::info(&format!("The answer was not kept: {error}."));
        }
        // Until the call has taken the answer.
        while queue.waiting().iter().any(|one| one.id == asked.id) {
            if changes.changed().await.is_err() {
                return None;
            }
        }
        return Some(());
    }
}

//! Calls that wait for somebody at the gateway: asked and answered through the store.

use std::sync::Arc;
use std::time::Duration;

use permissions::approvals::{AnswerOutcome, ApprovalQueue};
use permissions::{Approval, ApprovalRequest, Approver};
use state::keyring::Keyring;
use state::store::{EncryptedStore, MemoryStore, Store, StoreLimits};
use testkit::FakePlatform;

struct Shared {
    store: Arc<dyn Store>,
    keyring: Arc<Keyring>,
    platform: Arc<FakePlatform>,
}

impl Shared {
    fn new() -> Self {
        let platform = Arc::new(FakePlatform::new(1));
        let keyring = Arc::new(Keyring::for_this_run(&*platform));
        Self { store: Arc::new(MemoryStore::new(StoreLimits::default())), keyring, platform }
    }

    /// One process with this store.
    fn queue(&self) -> Arc<ApprovalQueue> {
        let store = EncryptedStore::new(self.store.clone(), self.keyring.clone(), self.platform.clone());
        ApprovalQueue::new(store, self.platform.clone())
    }
}

fn request(tool: &str) -> ApprovalRequest {
    ApprovalRequest {
        kind: permissions::ApprovalKind::Tool,
        call_id: "c1".into(),
        server: Some("github".into()),
        tool: tool.into(),
        rule: format!("mcp__github__{tool}"),
        arguments: vec![("repo".into(), "acme/site".into()), ("repo".into(), "again".into())],
        arguments_left_out: 2,
        reason: "the tool is destructive".into(),
        principal: "ada".into(),
        deadline_ms: FakePlatform::START_MS + 600_000,
    }
}

/// Starts a call that waits.
async fn ask(queue: &Arc<ApprovalQueue>, tool: &str) -> tokio::task::JoinHandle<Approval> {
    let asked = tokio::spawn(queue.clone().ask(request(tool)));
    while queue.pending().await.expect("the store works").iter().all(|one| one.request.tool != tool) {
        tokio::task::yield_now().await;
    }
    asked
}

#[tokio::test(start_paused = true)]
async fn an_answer_at_another_process_reaches_the_call_and_counts_once() {
    let shared = Shared::new();
    let (one, other) = (shared.queue(), shared.queue());
    for (is_allowed, expected) in [
        (true, Approval::Allowed { by: Some("grace".into()) }),
        (false, Approval::Declined { by: Some("grace".into()) }),
    ] {
        let asked = ask(&one, "delete_repo").await;
        let shown = other.pending().await.expect("the store works");
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0].request, request("delete_repo"));
        let id = &shown[0].id;
        assert_eq!(other.answer(id, is_allowed, Some("grace")).await, Ok(AnswerOutcome::Recorded));
        assert_eq!(one.answer(id, !is_allowed, None).await, Ok(AnswerOutcome::TooLate));
        assert_eq!(asked.await.expect("no panic"), expected);
        assert!(one.waiting().is_empty() && one.pending().await.expect("the store works").is_empty());
    }
    assert_eq!(one.answer("no such id", true, None).await, Ok(AnswerOutcome::Unknown));
}

#[tokio::test(start_paused = true)]
async fn questions_are_answered_in_any_order() {
    let queue = Shared::new().queue();
    let (first, second) = (ask(&queue, "first").await, ask(&queue, "second").await);
    let id = |tool: &str| {
        let waiting = queue.waiting();
        waiting.iter().find(|one| one.request.tool == tool).expect("it waits").id.clone()
    };
    let (first_id, second_id) = (id("first"), id("second"));
    queue.answer(&second_id, false, None).await.expect("the store works");
    assert_eq!(second.await.expect("no panic"), Approval::Declined { by: None });
    queue.answer(&first_id, true, None).await.expect("the store works");
    assert_eq!(first.await.expect("no panic"), Approval::Allowed { by: None });
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_takes_its_question_along() {
    let queue = Shared::new().queue();
    let asked = ask(&queue, "delete_repo").await;
    let id = queue.waiting()[0].id.clone();
    // The caller is gone.
    asked.abort();
    let _ = asked.await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(queue.waiting().is_empty() && queue.pending().await.expect("the store works").is_empty());
    assert_eq!(queue.answer(&id, true, None).await, Ok(AnswerOutcome::TooLate));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_has_expired_is_not_shown() {
    let shared = Shared::new();
    let queue = shared.queue();
    let asked = ask(&queue, "delete_repo").await;
    shared.platform.advance_ms(600_001);
    assert!(queue.pending().await.expect("the store works").is_empty());
    asked.abort();
}

#[tokio::test(start_paused = true)]
async fn beyond_the_limit_nobody_can_be_asked() {
    let queue = Shared::new().queue();
    let mut asked = Vec::new();
    while queue.is_available() {
        asked.push(queue.clone().ask(request("t")));
        assert!(asked.len() <= 256);
    }
    assert_eq!(asked.len(), 256);
}

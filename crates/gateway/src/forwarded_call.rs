//! A call that was sent to a server and has no result yet.

use std::sync::Arc;
use std::time::Duration;

use json::Json;
use spile_core::{EventSink, InputRequests, Journal};
use tokio::time::Instant;
use upstream::{Progress, ProgressCallback, RunningCall};
use wire::client::{ClientCall, ClientError, InputReply};

use crate::connections::{CallInbox, Link, Question};
use crate::samplings::SamplingCaller;

/// Dropping it cancels the call at the server.
pub(crate) struct ForwardedCall {
    pub(crate) link: Arc<Link>,
    inbox: Arc<CallInbox>,
    running: RunningCall,
    /// Asked, and not answered.
    questions: Vec<Question>,
    /// When the call has taken too long. The time that the caller takes to answer does not count.
    deadline: Instant,
    asked_at: Option<Instant>,
}

/// How long to wait for one more question. Nobody notices it: a person answers.
const QUESTION_GAP: Duration = Duration::from_millis(20);
/// After that many questions the caller is asked at once.
const QUESTIONS_MAX: usize = 16;

/// What a running call came to.
pub(crate) enum Step {
    Ended(Result<Json, ClientError>),
    /// The server asks, and waits for the answers.
    Asked,
}

impl ForwardedCall {
    pub(crate) fn start(
        link: Arc<Link>,
        caller: SamplingCaller,
        call: ClientCall,
        events: &EventSink,
    ) -> Self {
        let inbox = link.calls.add(caller, events.clone());
        // Also for a caller that wants no progress: a call that makes progress does not hang.
        let on_progress: ProgressCallback = {
            let inbox = inbox.clone();
            Arc::new(move |progress: Progress| inbox.progress(&progress))
        };
        let running = link.connection.start_call(call, Some(on_progress));
        inbox.set_id(running.id());
        let deadline = Instant::now() + Duration::from_millis(link.connection.timeouts().total_ms);
        Self { link, inbox, running, questions: Vec::new(), deadline, asked_at: None }
    }

    /// Waits until the server answers or asks, or was silent for too long.
    pub(crate) async fn next_step(&mut self) -> Step {
        let timeouts = self.link.connection.timeouts();
        loop {
            self.questions.append(&mut self.inbox.take_questions());
            if !self.questions.is_empty() {
                self.collect_questions().await;
                return Step::Asked;
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            let idle = Duration::from_millis(timeouts.idle_ms);
            tokio::select! {
                biased;
                result = self.running.result() => {
                    // A log message that the server sent before the result may arrive after it.
                    if self.inbox.wants_log() {
                        self.link.connection.catch_up().await;
                    }
                    return Step::Ended(result);
                }
                () = self.inbox.arrived.notified() => {}
                () = tokio::time::sleep(idle.min(left)) => {
                    let after_ms = if left < idle { timeouts.total_ms } else { timeouts.idle_ms };
                    return Step::Ended(Err(ClientError::Timeout { after_ms, unreadable: None }));
                }
            }
        }
    }

    /// A server that asks several things sends them one after the other; the caller should get them together.
    async fn collect_questions(&mut self) {
        while tokio::time::timeout(QUESTION_GAP, self.inbox.arrived.notified()).await.is_ok() {
            let mut more = self.inbox.take_questions();
            if more.is_empty() || self.questions.len() >= QUESTIONS_MAX {
                return;
            }
            self.questions.append(&mut more);
        }
    }

    /// The open questions, for the caller.
    pub(crate) fn input_requests(&mut self) -> InputRequests {
        self.asked_at.get_or_insert_with(Instant::now);
        let none = InputRequests::default();
        let all = self.questions.iter();
        let all = all.fold(none, |all, question| all.with(&question.key, question.request.clone()));
        if self.questions.iter().any(|question| question.is_consent) { all.as_consent() } else { all }
    }

    /// Passes the answers on. Returns whether all questions are answered.
    pub(crate) fn answer(&mut self, journal: &Journal, events: &EventSink) -> bool {
        self.inbox.set_events(events.clone());
        let (answered, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.questions)
            .into_iter()
            .map(|question| (journal.response(&question.key), question))
            .partition(|(response, _)| response.is_some());
        for (response, question) in answered {
            let Some(response) = response else { continue };
            // If the server no longer waits for it, nobody does.
            let _ = question.reply.send(InputReply::Result(Json::from(response.root())));
        }
        self.questions = open.into_iter().map(|(_, question)| question).collect();
        let is_complete = self.questions.is_empty();
        if let Some(asked_at) = self.asked_at.take_if(|_| is_complete) {
            self.deadline += asked_at.elapsed();
        }
        is_complete
    }
}

impl Drop for ForwardedCall {
    fn drop(&mut self) {
        self.link.calls.remove(&self.inbox);
    }
}

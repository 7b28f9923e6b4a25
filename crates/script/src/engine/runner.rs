//! The loop of one thread of the engine: a message in, a step out; the calls run here or in a process.

use std::sync::mpsc::Receiver;

use tokio::sync::mpsc::Sender;

use super::process::{RemoteWorker, WorkerLost};
use super::threads::SlotView;
use super::worker::{CallNumber, Message, Worker};
use super::{Input, Step};

pub(super) enum Runner {
    Here(Box<Worker>),
    Process(Box<RemoteWorker>),
}

impl Runner {
    /// Serves the thread until its engine is dropped, the thread is given up, or its process ends.
    pub(super) fn run(mut self, slot: &SlotView, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            if slot.is_given_up() {
                break;
            }
            let call = message.call;
            let prepares = match (&self, &message.input) {
                (Self::Here(_), Input::Start(start)) if start.begins_fresh => {
                    Some((start.program.clone(), start.journal.now_ms()))
                }
                _ => None,
            };
            // Before the slice: the time that a process takes to start is not its code's.
            if let Err(WorkerLost(end)) = self.start_process(slot) {
                slot.worker_lost(call, end);
                break;
            }
            slot.begin_slice(call);
            let answer = self.handle(message);
            slot.end_slice();
            let answer = match answer {
                Ok(answer) => answer,
                Err(WorkerLost(end)) => {
                    slot.worker_lost(call, end);
                    break;
                }
            };
            if !self.is_running(call) {
                // Before the answer: whoever reads it may start the next call, and this thread is free for
                // it.
                slot.call_ended(call);
            }
            if slot.is_given_up() {
                break;
            }
            if let Some((steps, step)) = answer {
                // The caller may be gone; then its cancellation follows.
                let _ = steps.try_send(step);
            }
            if let (Self::Here(worker), Some((program, now_ms))) = (&mut self, prepares) {
                worker.prepare(&program, now_ms);
            }
        }
    }

    fn start_process(&mut self, slot: &SlotView) -> Result<(), WorkerLost> {
        if let Self::Process(worker) = self
            && !worker.is_started()
        {
            slot.set_process(worker.start()?);
        }
        Ok(())
    }

    fn handle(&mut self, message: Message) -> Result<Option<(Sender<Step>, Step)>, WorkerLost> {
        match self {
            Self::Here(worker) => Ok(worker.handle(message)),
            Self::Process(worker) => worker.handle(message),
        }
    }

    fn is_running(&self, call: CallNumber) -> bool {
        match self {
            Self::Here(worker) => worker.is_running(call),
            Self::Process(worker) => worker.is_running(call),
        }
    }
}

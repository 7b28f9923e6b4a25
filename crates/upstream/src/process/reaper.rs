//! Waits for supervisors whose child was dropped, so that they leave no entry in the table of processes.
//!
//! A thread that lives as long as there is somebody to wait for: a child may be dropped when no runtime is left
//! to do it. Waits for one after the other; each ends by itself, and soon.

use std::process;
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};

pub struct SupervisorProcess {
    pub process: process::Child,
    /// The process group of the program it supervises.
    pub process_group: Option<Pid>,
}

impl SupervisorProcess {
    /// Blocks until the supervisor is gone. If it was killed, or had to give up, what is left in the program's
    /// process group is killed from here.
    pub fn wait(mut self) -> Option<process::ExitStatus> {
        let status = self.process.wait().ok();
        let ended_all = status.is_some_and(|status| status.success());
        if let Some(group) = self.process_group.filter(|_| !ended_all) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        status
    }
}

static REAP_QUEUE: Mutex<ReapQueue> = Mutex::new(ReapQueue { waiting: Vec::new(), thread_running: false });

struct ReapQueue {
    waiting: Vec<SupervisorProcess>,
    thread_running: bool,
}

pub fn reap_in_background(watched: SupervisorProcess) {
    let mut dropped = REAP_QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    dropped.waiting.push(watched);
    if !dropped.thread_running {
        // Without a thread they stay on the list until the next one is dropped.
        let thread = thread::Builder::new().name("reaper".to_owned()).stack_size(64 << 10);
        dropped.thread_running = thread.spawn(run).is_ok();
    }
}

fn run() {
    loop {
        let next = {
            let mut dropped = REAP_QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
            let next = dropped.waiting.pop();
            dropped.thread_running = next.is_some();
            next
        };
        match next {
            Some(watched) => watched.wait(),
            None => return,
        };
    }
}

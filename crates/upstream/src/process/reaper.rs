//! Waits for supervisors whose `Child` was dropped, so that they do not stay as zombies.
//!
//! Uses a thread, because a child may be dropped when no runtime is left. The thread runs while there are supervisors
//! to wait for, one after the other; each exits soon by itself.

use std::process;
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};

pub struct SupervisorProcess {
    pub process: process::Child,
    /// The process group of the supervised program.
    pub process_group: Option<Pid>,
}

impl SupervisorProcess {
    /// Blocks until the supervisor has exited. If it was killed or gave up, kills the rest of the program's process
    /// group.
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
        // If the thread cannot start, they stay on the list until the next child is dropped.
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

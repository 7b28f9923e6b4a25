//! The process tree below a supervisor: finds, terminates and kills its processes.

#[cfg(target_os = "linux")]
pub use linux::{ProcessTree, become_subreaper};
#[cfg(not(target_os = "linux"))]
pub use other::{ProcessTree, become_subreaper};

#[cfg(target_os = "linux")]
mod linux {
    //! All descendants, by walking /proc. Orphans are our children (`adopt`), so the walk reaches every process,
    //! whatever sessions and groups they created.

    use std::collections::{HashMap, HashSet};
    use std::fs;

    use rustix::io::Errno;
    use rustix::process::{
        Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal, set_child_subreaper,
    };

    /// Orphans below us become our children from now on.
    pub fn become_subreaper() {
        let _ = set_child_subreaper(Some(getpid()));
        let _ = rustix::thread::set_name(c"spile-supervise");
    }

    pub struct ProcessTree;

    impl ProcessTree {
        pub fn new(_server: Pid) -> Self {
            Self
        }

        /// Called when there are no children left; then no process is left.
        pub fn is_empty(&self) -> bool {
            true
        }

        /// Sends SIGTERM to all; continues stopped processes so that they get it.
        pub fn terminate(&self) {
            for process in descendants() {
                process.send(Signal::TERM);
                if process.is_stopped {
                    process.send(Signal::CONT);
                }
            }
        }

        /// One round. Stops all processes first, until no new one is found: a process with a pending stop cannot fork, so
        /// none escapes between the search and the kill.
        pub fn kill(&self) {
            let mut stopped = HashSet::new();
            // Each pass finds what was forked during the one before; a few are enough, and there is a next round.
            for _ in 0..FREEZE_ROUNDS_MAX {
                let found = descendants();
                let fresh: Vec<_> =
                    found.iter().filter(|process| stopped.insert(process.identity())).collect();
                if fresh.is_empty() {
                    break;
                }
                fresh.iter().for_each(|process| process.send(Signal::STOP));
            }
            descendants().iter().for_each(|process| process.send(Signal::KILL));
        }

        pub fn remaining(&self) -> u32 {
            descendants().len() as u32
        }
    }

    const FREEZE_ROUNDS_MAX: usize = 8;

    struct Process {
        pid: Pid,
        parent: i32,
        is_stopped: bool,
        is_zombie: bool,
        /// In clock ticks since boot; identifies the process together with its pid.
        started: u64,
    }

    impl Process {
        fn read(pid: Pid) -> Option<Self> {
            let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
            // The name is in parentheses and may contain any character, also parentheses.
            let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
            let mut fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
            let state = fields.next()?;
            let parent = fields.next()?.parse().ok()?;
            // proc_pid_stat(5): the state is field 3, the parent 4, the start time 22.
            let started = fields.nth(22 - 5)?.parse().ok()?;
            let (is_stopped, is_zombie) = (matches!(state, "T" | "t"), matches!(state, "Z" | "X"));
            Some(Self { pid, parent, is_stopped, is_zombie, started })
        }

        fn identity(&self) -> (Pid, u64) {
            (self.pid, self.started)
        }

        /// Signals this process, and not another one that has got its pid since.
        fn send(&self, signal: Signal) {
            match pidfd_open(self.pid, PidfdFlags::empty()) {
                Ok(pidfd) => {
                    if Self::read(self.pid).is_some_and(|now| now.started == self.started) {
                        let _ = pidfd_send_signal(pidfd, signal);
                    }
                }
                Err(Errno::SRCH) => {}
                // An old kernel, or a sandbox without this call.
                Err(_) => {
                    let _ = kill_process(self.pid, signal);
                }
            }
        }
    }

    fn descendants() -> Vec<Process> {
        let mut by_parent: HashMap<i32, Vec<Process>> = HashMap::new();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in entries
            .filter_map(|entry| Process::read(Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?))
        {
            by_parent.entry(process.parent).or_default().push(process);
        }
        let mut found = by_parent.remove(&getpid().as_raw_nonzero().get()).unwrap_or_default();
        let mut next = 0;
        while next < found.len() {
            let children = by_parent.remove(&found[next].pid.as_raw_nonzero().get());
            found.extend(children.into_iter().flatten());
            next += 1;
        }
        // Zombies get no signals.
        found.retain(|process| !process.is_zombie);
        found
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    //! The program's process group; processes that leave it escape.

    use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

    pub fn become_subreaper() {}

    pub struct ProcessTree {
        group: Pid,
    }

    impl ProcessTree {
        pub fn new(server: Pid) -> Self {
            Self { group: server }
        }

        pub fn is_empty(&self) -> bool {
            test_kill_process_group(self.group).is_err()
        }

        /// Sends SIGTERM to all; continues stopped processes so that they get it.
        pub fn terminate(&self) {
            let _ = kill_process_group(self.group, Signal::TERM);
            let _ = kill_process_group(self.group, Signal::CONT);
        }

        pub fn kill(&self) {
            let _ = kill_process_group(self.group, Signal::KILL);
        }

        pub fn remaining(&self) -> u32 {
            u32::from(!self.is_gone())
        }
    }
}

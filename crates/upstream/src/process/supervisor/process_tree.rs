//! Everybody below a supervisor: found, told to end, killed.

#[cfg(target_os = "linux")]
pub use linux::{ProcessTree, become_subreaper};
#[cfg(not(target_os = "linux"))]
pub use other::{ProcessTree, become_subreaper};

#[cfg(target_os = "linux")]
mod linux {
    //! All descendants, by walking /proc. Who was orphaned is a child of ours (`adopt`), so the walk from here
    //! reaches everybody, whatever sessions and groups they made.

    use std::collections::{HashMap, HashSet};
    use std::fs;

    use rustix::io::Errno;
    use rustix::process::{
        Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal, set_child_subreaper,
    };

    /// From now on, orphans below us become our children.
    pub fn become_subreaper() {
        let _ = set_child_subreaper(Some(getpid()));
        let _ = rustix::thread::set_name(c"spile-supervise");
    }

    pub struct ProcessTree;

    impl ProcessTree {
        pub fn new(_server: Pid) -> Self {
            Self
        }

        /// Asked when there are no children left; then there is nobody left at all.
        pub fn is_empty(&self) -> bool {
            true
        }

        /// Asks everybody to end; who is stopped is woken to hear it.
        pub fn terminate(&self) {
            for process in descendants() {
                process.send(Signal::TERM);
                if process.is_stopped {
                    process.send(Signal::CONT);
                }
            }
        }

        /// One round. Everybody is stopped first, until nobody new is found: who has a stop pending cannot
        /// fork, so nobody slips away between being looked for and being killed.
        pub fn kill(&self) {
            let mut stopped = HashSet::new();
            // Each round finds what was forked during the one before; a few are plenty, and there is a next time.
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
        /// In clock ticks since the machine started: with the pid, who it is.
        started: u64,
    }

    impl Process {
        fn read(pid: Pid) -> Option<Self> {
            let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
            // The name stands in parentheses and may have any character, parentheses too.
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

        /// To this process and to no other that got its number in between.
        fn send(&self, signal: Signal) {
            match pidfd_open(self.pid, PidfdFlags::empty()) {
                Ok(pidfd) => {
                    if Self::read(self.pid).is_some_and(|now| now.started == self.started) {
                        let _ = pidfd_send_signal(pidfd, signal);
                    }
                }
                Err(Errno::SRCH) => {}
                // An old kernel, or a sandbox that does not know it.
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
        // The dead wait for their parent and hear nothing.
        found.retain(|process| !process.is_zombie);
        found
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    //! The program's process group: who leaves it gets away.

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

        /// Asks everybody to end; who is stopped is woken to hear it.
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

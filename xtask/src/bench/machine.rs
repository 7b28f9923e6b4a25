//! Operating system facilities for the bench: pinning to cores, and the counters of a process.

use std::path::Path;

use anyhow::{Context, bail};
use rustix::process::{Pid, Resource, Rlimit, WaitId, WaitIdOptions};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// One core for the server under test and another for the driver.
pub struct Cores {
    server: usize,
    driver: usize,
    all: CpuSet,
}

impl Cores {
    /// Takes two of the cores this process may use; `None` on a machine with one.
    pub fn reserve() -> anyhow::Result<Option<Cores>> {
        let all = sched_getaffinity(None)?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core));
        Ok(match (usable.next(), usable.next()) {
            (Some(driver), Some(server)) => Some(Cores { server, driver, all }),
            _ => None,
        })
    }

    /// Runs `start` on the server's core, so that the processes it spawns stay there, and then moves the driver to its
    /// own core.
    pub fn spawn<T>(cores: Option<&Cores>, start: impl FnOnce() -> T) -> anyhow::Result<T> {
        let Some(cores) = cores else { return Ok(start()) };
        sched_setaffinity(None, &single_core(cores.server))?;
        let started = start();
        sched_setaffinity(None, &single_core(cores.driver))?;
        Ok(started)
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        // If this fails, the driver stays pinned, which only slows it down.
        let _ = sched_setaffinity(None, &self.all);
    }
}

fn single_core(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

/// CPU time of all threads of `pid`, in nanoseconds.
///
/// The scheduler's own counter: `/proc/PID/stat` counts in ticks of 10 ms.
pub fn cpu_ns(pid: u32) -> anyhow::Result<u64> {
    let mut total = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).context("the server is gone")? {
        // A thread may end between the listing and the reading.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let ran = text.split_whitespace().next().and_then(|ran| ran.parse::<u64>().ok());
        total += ran.context("`schedstat` is not what Linux writes")?;
    }
    Ok(total)
}

/// Resident memory of `pid`, in KiB.
pub fn rss_kib(pid: u32) -> anyhow::Result<u64> {
    status_kib(pid, "VmRSS:")
}

/// The most memory `pid` had resident since it started or the peak was reset, in KiB.
pub fn peak_kib(pid: u32) -> anyhow::Result<u64> {
    status_kib(pid, "VmHWM:")
}

/// Resets [`peak_kib`] to the current value; fails if the kernel does not support it.
pub fn reset_peak(pid: u32) -> std::io::Result<()> {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

fn status_kib(pid: u32, name: &str) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(Path::new(&path)).context("the server is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse().ok());
    kib.with_context(|| format!("`{path}` has no {name}"))
}

/// Sends SIGTERM to `pid`.
pub fn terminate(pid: u32) -> anyhow::Result<()> {
    Ok(rustix::process::kill_process(to_pid(pid)?, rustix::process::Signal::TERM)?)
}

/// Waits until the child `pid` has ended, and keeps its counters readable.
pub fn wait_unreaped(pid: u32) -> anyhow::Result<()> {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::Pid(to_pid(pid)?), ended)?;
    Ok(())
}

fn to_pid(pid: u32) -> anyhow::Result<Pid> {
    Pid::from_raw(i32::try_from(pid)?).context("a process id is never zero")
}

/// Raises the limit of open files of this process and its children to `files`.
pub fn allow_open_files(files: u64) -> anyhow::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < files) {
        bail!("{files} open files are needed and {:?} are allowed; raise `ulimit -Hn`", limit.maximum);
    }
    let raised = Rlimit { current: Some(files), maximum: limit.maximum };
    Ok(rustix::process::setrlimit(Resource::Nofile, raised)?)
}

//! Locked operations per request: atomic read-modify-write instructions, which make cores wait for each other.
//!
//! Callgrind counts how often each instruction runs; `objdump` tells which of them are locked. On x86 these are
//! instructions with a `lock` prefix and `xchg` with memory.

use std::collections::{HashMap, HashSet};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::sh;

/// How often locked instructions ran in each function, most first; `None` where this cannot be told: not on x86, or no
/// `objdump`. Which of them wait for other cores depends on what they write: a line of the connection costs nothing.
pub fn count(profile: &str) -> anyhow::Result<Option<Vec<(String, u64)>>> {
    if !cfg!(target_arch = "x86_64") || !sh::succeeds(Command::new("objdump").arg("--version")) {
        return Ok(None);
    }
    let mut functions: HashMap<&str, u64> = HashMap::new();
    for (object, runs) in runs_by_object(profile) {
        // The kernel's vdso is not a file, and it has no locked instruction.
        if !std::path::Path::new(object).is_file() {
            continue;
        }
        let locked = locked_addresses(object)?;
        for (address, (times, function)) in &runs {
            if locked.contains(address) {
                *functions.entry(function).or_default() += times;
            }
        }
    }
    let mut functions: Vec<(String, u64)> =
        functions.into_iter().map(|(function, times)| (function.to_owned(), times)).collect();
    functions
        .sort_unstable_by(|(name, times), (other, others)| others.cmp(times).then_with(|| name.cmp(other)));
    Ok(Some(functions))
}

/// What a locked instruction of a function waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// A line of memory that all workers write, by its name.
    Shared(&'static str),
    /// A line of the connection, of its task, or of the thread.
    Own,
    /// Not in the table. It counts as shared until somebody has looked.
    Unknown,
}

/// Functions by a part of their name, the first that fits. ADR 0210 has the same table with what each of them does.
const SHARING: &[(&str, Sharing)] = &[
    ("Server>::decode_post", Sharing::Shared("registry and its lock")),
    ("Server>::respond_to_post", Sharing::Shared("server, registry")),
    ("Server>::respond_to_request", Sharing::Shared("server, registry")),
    ("Server>::dispatch", Sharing::Shared("server, registry")),
    ("Server>::decode", Sharing::Shared("registry and its lock")),
    ("pipeline::execute_call", Sharing::Shared("server, registry")),
    ("in_flight::InFlight", Sharing::Shared("server, registry")),
    ("in_flight::PendingResponse", Sharing::Shared("server, registry")),
    ("host::server::Server", Sharing::Shared("server, registry")),
    ("host::registry", Sharing::Shared("server, registry")),
    ("host::sessions::shards", Sharing::Shared("a shard of the sessions")),
    ("host::sessions", Sharing::Shared("sessions")),
    ("transport::http::", Sharing::Own),
    ("transport::guard", Sharing::Own),
    ("tokio::", Sharing::Own),
    ("mio::", Sharing::Own),
    ("std::thread", Sharing::Own),
    ("sharded_counter", Sharing::Own),
];

/// What the locked operations of a function wait for.
pub fn sharing(function: &str) -> Sharing {
    let named = SHARING.iter().find(|(part, _)| function.contains(part));
    named.map_or(Sharing::Unknown, |(_, sharing)| *sharing)
}

/// How often each instruction ran and in which function, by the file that it is in.
///
/// A profile with `positions: instr` has a line `0x40a1 3` for three runs of an instruction in the object `ob=`. The
/// line after `calls=` has the cost of the called function instead.
fn runs_by_object(profile: &str) -> HashMap<&str, HashMap<u64, (u64, &str)>> {
    let (mut names, mut function_names) = (HashMap::new(), HashMap::new());
    let mut objects: HashMap<&str, HashMap<u64, (u64, &str)>> = HashMap::new();
    let (mut object, mut function) = ("", "");
    let mut is_cost_of_call = false;
    for line in profile.lines() {
        if let Some((key, value)) = line.split_once('=') {
            match key {
                "ob" => object = super::count::resolve_name(&mut names, value),
                // An object may be named in full here for the first time.
                "cob" => {
                    super::count::resolve_name(&mut names, value);
                }
                "fn" => function = super::count::resolve_name(&mut function_names, value),
                "cfn" => {
                    super::count::resolve_name(&mut function_names, value);
                }
                "calls" => is_cost_of_call = true,
                _ => {}
            }
            continue;
        }
        let Some(cost) = line.strip_prefix("0x") else { continue };
        if std::mem::take(&mut is_cost_of_call) {
            continue;
        }
        let mut words = cost.split_whitespace();
        let address = words.next().and_then(|address| u64::from_str_radix(address, 16).ok());
        let times = words.next().and_then(|times| times.parse::<u64>().ok());
        if let (Some(address), Some(times)) = (address, times) {
            objects.entry(object).or_default().entry(address).or_insert((0, function)).0 += times;
        }
    }
    objects
}

fn locked_addresses(object: &str) -> anyhow::Result<HashSet<u64>> {
    let output = Command::new("objdump")
        .args(["--disassemble", "--no-show-raw-insn", object])
        .output()
        .context("cannot start `objdump`")?;
    ensure!(output.status.success(), "objdump {object}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(locked_address).collect())
}

/// `  40a1:  lock cmpxchg %edx,(%rdi)`, with a tab after the colon.
fn locked_address(line: &str) -> Option<u64> {
    let (address, instruction) = line.split_once(":\t")?;
    let instruction = instruction.trim_start();
    let is_locked =
        instruction.starts_with("lock ") || (instruction.starts_with("xchg ") && instruction.contains('('));
    if is_locked { u64::from_str_radix(address.trim(), 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_from_what_callgrind_writes() {
        let profile = "\
positions: instr
ob=(1) /bin/server
fn=(1) answer
0x40a1 3
0x40a4 2
cob=(2) /lib/libc.so.6
cfn=(2) malloc
calls=3 0x9000
0x40a8 300
0x40a8 3
ob=(2)
fn=(2)
0x9000 3
ob=(1)
fn=(3) other
0x40a1 4
totals: 315
";
        let runs = runs_by_object(profile);
        let sorted = |object: &str| {
            let mut runs: Vec<(u64, u64)> =
                runs[object].iter().map(|(address, (times, _))| (*address, *times)).collect();
            runs.sort_unstable();
            runs
        };
        assert_eq!(sorted("/bin/server"), [(0x40a1, 7), (0x40a4, 2), (0x40a8, 3)]);
        assert_eq!(sorted("/lib/libc.so.6"), [(0x9000, 3)]);
        assert_eq!((runs["/bin/server"][&0x40a1].1, runs["/lib/libc.so.6"][&0x9000].1), ("answer", "malloc"));
    }

    #[test]
    fn functions_are_told_by_what_they_share() {
        for (function, expected) in [
            ("<host::server::Server>::decode_post", Sharing::Shared("registry and its lock")),
            ("<alloc::sync::Arc<host::server::Server>>::drop_slow", Sharing::Shared("server, registry")),
            ("<tokio::runtime::task::state::State>::transition_to_idle", Sharing::Own),
            ("<transport::http::fast_path::FastPath<S>>::poll", Sharing::Own),
            ("source::csv::read", Sharing::Unknown),
        ] {
            assert_eq!(sharing(function), expected, "{function}");
        }
    }

    #[test]
    fn locked_instructions_are_told_from_others() {
        for (line, expected) in [
            ("  40a1:\tlock cmpxchg %edx,(%rdi)", Some(0x40a1)),
            ("  40a1:\tlock incq 0x8(%rdi)", Some(0x40a1)),
            ("  40b2:\txchg   %al,(%rbx)", Some(0x40b2)),
            ("  40b2:\txchg   %ax,%ax", None),
            ("  40b2:\tcmpxchg %edx,(%rdi)", None),
            ("00000000000040a1 <lock>:", None),
            ("", None),
        ] {
            assert_eq!(locked_address(line), expected, "{line}");
        }
    }
}

//! Many at once, and nothing is left: no process, no entry in the table of processes, no open file.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::{helper, kinds};

/// In a process of its own, because it counts what that process has open.
fn check(count: &str, at_once: &str) {
    let output = Command::new(helper()).args(["start-and-stop", count, at_once]).output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, "left [], children [], files []\n", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn two_hundred_servers_of_all_kinds_leave_nothing() {
    check("200", "32");
}

#[test]
fn one_after_the_other_leaves_nothing() {
    check("30", "1");
}

#[test]
fn all_at_the_same_time_leaves_nothing() {
    check("60", "60");
}

#[test]
fn if_we_are_killed_nobody_is_left() {
    let mark = kinds::new_mark("killed");
    let mut ours = Command::new(helper()).args(["start-all", &mark]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(ours.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    assert!(kinds::marked(&mark).len() >= kinds::kinds().count(), "{:?}", kinds::marked(&mark));
    let supervisors = kinds::children(ours.id());
    // One has ended with its program.
    assert!(supervisors.len() >= kinds::kinds().count() - 1, "{supervisors:?}");

    ours.kill().unwrap();
    ours.wait().unwrap();

    assert_eq!(kinds::until_none(|| kinds::marked(&mark)), [""; 0]);
    let alive = || supervisors.iter().copied().filter(|pid| is_supervisor(*pid)).collect();
    assert_eq!(kinds::until_none(alive), [0; 0]);
}

#[test]
fn if_we_are_killed_while_starting_nobody_is_left() {
    let mark = kinds::new_mark("killed-early");
    for looks in 0..10 {
        let mut ours =
            Command::new(helper()).args(["start-all", &mark]).stdout(Stdio::null()).spawn().unwrap();
        // Killed when this many of its children have appeared, which is in the middle of something else each time.
        while kinds::children(ours.id()).len() < looks % kinds::kinds().count() {
            std::thread::yield_now();
        }
        ours.kill().unwrap();
        ours.wait().unwrap();
    }
    assert_eq!(kinds::until_none(|| kinds::marked(&mark)), [""; 0]);
}

fn is_supervisor(pid: i32) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|&byte| byte == 0).any(|word| word == b"__supervise")
}

//! Many servers at once leave nothing behind: no process, no zombie, no open file.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::{helper, kinds};

/// In a separate process, because it counts the open files of that process.
fn check(count: &str, at_once: &str) {
    let output = Command::new(helper()).args(["start-and-stop", count, at_once]).output().expect("it runs");
    let expected_error = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        expected_error,
        "left [], children [], files []\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn two_hundred_servers_leave_no_process() {
    check("200", "32");
}

#[test]
fn sequential_servers_leave_no_process() {
    check("30", "1");
}

#[test]
fn concurrent_servers_leave_no_process() {
    check("60", "60");
}

#[test]
fn killing_the_parent_leaves_no_process() {
    let mark = kinds::new_mark("killed");
    let mut ours = Command::new(helper()).args(["start-all", &mark]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(ours.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    assert!(kinds::marked(&mark).len() >= kinds::kinds().count(), "{:?}", kinds::marked(&mark));
    let supervisors = kinds::children(ours.id());
    // One supervisor has ended with its program.
    assert!(supervisors.len() >= kinds::kinds().count() - 1, "{supervisors:?}");

    ours.kill().unwrap();
    ours.wait().unwrap();

    assert_eq!(kinds::until_none(|| kinds::marked(&mark)), [""; 0]);
    let alive = || supervisors.iter().copied().filter(|pid| is_supervisor(*pid)).collect();
    assert_eq!(kinds::until_none(alive), [0; 0]);
}

#[test]
fn killing_the_parent_during_start_leaves_no_process() {
    let mark = kinds::new_mark("killed-early");
    for looks in 0..10 {
        let mut ours =
            Command::new(helper()).args(["start-all", &mark]).stdout(Stdio::null()).spawn().unwrap();
        // Killed after a different number of children each time, to hit different points.
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

//! Kinds of servers that are known to leave processes behind, and how to find those. Shared by the tests and their
//! helper.

use std::path::Path;
use std::time::{Duration, Instant};

use upstream::process::{Child, Command, ProcessOptions};

/// The environment variable that marks all descendants of a child.
pub const MARK: &str = "UPSTREAM_TEST_MARK";

/// `$0` is the helper. Each writes `ready` when all of it is there.
const KINDS: &[(&str, &str)] = &[
    ("plain", r#"exec "$0" serve"#),
    ("wrapper", r#"exec 3<&0; "$0" serve <&3 3<&- & exec 3<&-; wait"#),
    ("wrapper in a pipe", r#""$0" serve | cat"#),
    ("daemon", r#"(setsid "$0" deaf </dev/null >/dev/null 2>&1 &); exec "$0" serve"#),
    (
        "daemon that ignores TERM",
        r#"trap '' TERM; (setsid "$0" deaf </dev/null >/dev/null 2>&1 &); exec "$0" serve"#,
    ),
    ("ignores TERM and EOF", r#"trap '' TERM; exec "$0" deaf"#),
    ("ignores EOF", r#"exec "$0" deaf"#),
    ("grandchild holds stdout", r#""$0" deaf & exec "$0" serve"#),
    ("stops itself", r#"echo ready; kill -STOP $$; exec "$0" serve"#),
    ("leaves at once", r#"(setsid "$0" deaf </dev/null 2>&1 &); echo ready"#),
];

pub fn kinds() -> impl Iterator<Item = &'static str> + Clone {
    KINDS.iter().map(|(name, _)| *name)
}

pub fn command(kind: &str, helper: &Path, mark: &str) -> Command {
    let (_, script) = KINDS.iter().find(|(name, _)| *name == kind).expect("a kind that is listed");
    shell(script, helper).env(MARK, mark)
}

pub fn shell(script: &str, helper: &Path) -> Command {
    Command::new("sh").arg("-c").arg(script).arg(helper)
}

/// Short timeouts, so that the tests are quick.
pub fn options(supervisor: Option<&Path>) -> ProcessOptions {
    ProcessOptions {
        exit_grace_ms: 100,
        term_grace_ms: 200,
        supervisor: supervisor.map(Into::into),
        ..ProcessOptions::default()
    }
}

pub async fn ready(child: &mut Child) {
    let stdout = child.stdout.as_mut().expect("nobody took it");
    assert_eq!(line(stdout).await, "ready");
}

/// Reads one line byte by byte, and nothing after it.
pub async fn line(from: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut line = Vec::new();
    loop {
        match tokio::io::AsyncReadExt::read_u8(from).await {
            Ok(b'\n') | Err(_) => return String::from_utf8(line).expect("text"),
            Ok(byte) => line.push(byte),
        }
    }
}

/// Processes with the mark. Zombies have no environment.
pub fn marked(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let has_it = |pid: &i32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    pids().filter(has_it).map(|pid| describe(pid).unwrap_or_default()).collect()
}

/// The children of a process, including zombies.
pub fn children(parent: u32) -> Vec<i32> {
    pids().filter(|pid| stat(*pid).is_some_and(|(_, its)| its == parent)).collect()
}

/// The state and the parent.
pub fn stat(pid: i32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn describe(pid: i32) -> Option<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(format!("{pid} {:?} {}", stat(pid)?, String::from_utf8_lossy(&words).replace('\0', " ")))
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").expect("Linux").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Searches until nothing is found; returns what is left after a long time.
pub fn until_none<T>(look: impl Fn() -> Vec<T>) -> Vec<T> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let found = look();
        if found.is_empty() || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A unique mark.
pub fn new_mark(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

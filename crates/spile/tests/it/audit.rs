//! `spile audit` with logs on the disk: a table, JSON, filters, and a log that grows and is rotated meanwhile.

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

use insta::assert_snapshot;

use crate::harness::{TestProject, spawn_line_reader};

const OLD: &str = concat!(
    r#"{"time":"2026-11-15T08:00:00.120Z","id":"a1","event":"tool.call","outcome":"ok","principal":{"issuer":"local","subject":"ada"},"server":"github","target":"get_issue","decision":"allow","reason":"the tool is annotated read-only, and the mode is `default`","duration_ms":41,"request_bytes":90,"response_bytes":2048}"#,
    "\n",
    r#"{"time":"2026-11-15T09:00:00.000Z","event":"audit.lost","lines":3}"#,
    "\n",
);
const NEW: &str = concat!(
    r#"{"time":"2026-11-16T08:00:00.000Z","id":"a2","event":"tool.call","outcome":"refused","code":"forbidden","principal":{"issuer":"local","subject":"grace"},"server":"github","target":"create_issue","decision":"refuse","reason":"payroll is off limits","hook":"./check-call.sh","duration_ms":1203,"request_bytes":90,"response_bytes":300}"#,
    "\n",
    "this line was damaged\n",
    r#"{"time":"2026-11-16T08:00:01.000Z","id":"a3","event":"tool.call","outcome":"error","code":"unknown_item","target":"\u001b[2Jx\n\u202ey","duration_ms":0,"request_bytes":90,"response_bytes":80}"#,
    "\n",
    r#"{"time":"2026-11-16T08:00:02.000Z","id":"a4","event":"tool."#,
);

fn log() -> TestProject {
    TestProject::new(&[("audit.jsonl.1", OLD.as_bytes()), ("audit.jsonl", NEW.as_bytes())])
}

fn run(args: &[&str]) -> String {
    let args: Vec<&str> = ["audit", "--file", "audit.jsonl"].iter().chain(args).copied().collect();
    log().run(&args).to_string()
}

#[test]
fn the_log_is_a_table_of_all_its_files() {
    assert_snapshot!(run(&[]));
}

#[test]
fn filters_choose_calls() {
    let filters: [&[&str]; 6] = [
        &["--since", "2026-11-16"],
        &["--server", "git*", "--outcome", "ok"],
        &["--tool", "create_*"],
        &["--principal", "grace"],
        &["--principal", "nobody"],
        &["--since", "2026-11-16T09:00:01+01:00", "--json"],
    ];
    assert_snapshot!(filters.map(run).join("\n\n"));
}

#[test]
fn what_is_wrong_is_said() {
    let place = TestProject::new(&[]);
    let wrong: [&[&str]; 3] = [
        &["audit", "--file", "audit.jsonl"],
        &["audit", "--since", "yesterday"],
        &["audit", "--outcome", "bad"],
    ];
    assert_snapshot!(wrong.map(|args| place.run(args).to_string()).join("\n\n"));
}

/// Ends the process when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_log_is_followed_across_a_rotation() {
    let place = log();
    let mut command =
        place.spile(&["audit", "--file", "audit.jsonl", "--follow", "--json", "--outcome", "ok"]);
    let mut running = Running(command.stdout(Stdio::piped()).spawn().expect("the program starts"));
    let lines = spawn_line_reader(running.0.stdout.take().expect("a pipe"));
    let next = || lines.recv_timeout(Duration::from_secs(60)).expect("a line");
    assert!(next().contains("\"a1\""));
    let path = place.folder.join("audit.jsonl");
    let entry = |id: &str| {
        format!(
            "{{\"time\":\"2026-11-16T10:00:00.000Z\",\"id\":\"{id}\",\"event\":\"tool.call\",\"outcome\":\"ok\"}}\n"
        )
    };
    let append = |text: &str| {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path).expect("a log");
        file.write_all(text.as_bytes()).expect("a log can be written");
    };
    append(&format!("call\"}}\n{}", entry("b1")));
    assert!(next().contains("\"b1\""));
    append(&entry("b2"));
    for (from, to) in [("audit.jsonl.1", "audit.jsonl.2"), ("audit.jsonl", "audit.jsonl.1")] {
        std::fs::rename(place.folder.join(from), place.folder.join(to)).expect("a rotation");
    }
    append(&entry("b3"));
    assert!(next().contains("\"b2\""));
    assert!(next().contains("\"b3\""));
}

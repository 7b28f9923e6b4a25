//! What a person at a terminal sees and is asked. The terminal is a real one, without anybody at it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::harness::{TEST_TIMEOUT, TestProject, scripted_server};

struct PseudoTerminal {
    child: Child,
    keys: File,
    output: Arc<Mutex<String>>,
}

impl PseudoTerminal {
    fn open(command: &mut Command, columns: u16) -> Self {
        let ours =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it is ours");
        let size = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).expect("it has a size");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs: OwnedFd = rustix::fs::open(name, flags, Mode::empty()).expect("its other side");
        let side = || Stdio::from(theirs.try_clone().expect("it can be shared"));
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("the program starts");
        // A command keeps what it was given, and the terminal would never end.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (keys, mut screen) = (File::from(ours.try_clone().expect("it can be shared")), File::from(ours));
        let output = Arc::new(Mutex::new(String::new()));
        let shown = output.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                shown.lock().expect("nobody fails").push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        Self { child, keys, output }
    }

    fn output(&self) -> String {
        self.output.lock().expect("nobody fails").clone()
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        let start = Instant::now();
        while !self.output().contains(text) {
            assert!(start.elapsed() < TEST_TIMEOUT, "`{text}` does not come: {}", self.output());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it reads");
    }

    /// Everything that was seen, and how it ended.
    fn finish(mut self) -> (String, Option<i32>) {
        let start = Instant::now();
        let code = loop {
            match self.child.try_wait().expect("it can be waited for") {
                Some(status) => break status.code(),
                None if start.elapsed() > TEST_TIMEOUT => panic!("it does not end: {}", self.output()),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        // What was written last may still be on its way.
        std::thread::sleep(Duration::from_millis(50));
        (self.output(), code)
    }
}

impl Drop for PseudoTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn call_tool(place: &TestProject, tool: &str) -> PseudoTerminal {
    PseudoTerminal::open(&mut place.spile(&["call", tool, "--command", "/bin/sh server.sh"]), 80)
}

#[test]
fn a_form_is_filled_in_field_by_field() {
    let place = scripted_server();
    let mut terminal = call_tool(&place, "asks");
    terminal.wait_for("name: ");
    // What does not fit is asked for again.
    terminal.press("D\n");
    terminal.wait_for("at least 2 characters");
    terminal.press("Dana\n");
    terminal.wait_for("age (whole number) [30]: ");
    terminal.press("\n");
    terminal.wait_for("2) Ruby");
    terminal.wait_for("plan (one): ");
    terminal.press("ruby\n");
    terminal.wait_for("mail (email) []: ");
    terminal.press("\n");
    terminal.wait_for("send this? ");
    terminal.press("\n");
    let (seen, code) = terminal.finish();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("asks: Who are you?\\u{1b}[2J"), "{seen}");
    assert!(
        seen.contains(r#"{"action":"accept","content":{"name":"Dana","age":30,"plan":"ruby"}}"#),
        "{seen}"
    );
}

#[test]
fn a_form_is_declined_or_called_off() {
    let place = scripted_server();
    for (keys, expected) in [("!\n", r#"{"action":"decline"}"#), ("\u{4}", r#"{"action":"cancel"}"#)] {
        let mut terminal = call_tool(&place, "asks");
        terminal.wait_for("name: ");
        terminal.press(keys);
        let (seen, code) = terminal.finish();
        assert_eq!(code, Some(0), "{seen}");
        assert!(seen.contains(expected), "{seen}");
    }
}

#[test]
fn a_page_is_named_and_not_opened() {
    let place = scripted_server();
    for (keys, expected) in [
        ("y\n", r#"{"action":"accept"}"#),
        ("n\n", r#"{"action":"decline"}"#),
        ("\u{4}", r#"{"action":"cancel"}"#),
    ] {
        let mut terminal = call_tool(&place, "visits");
        terminal.wait_for("https://example.com/sign-in?x=1");
        terminal.wait_for("it belongs to example.com");
        terminal.wait_for("visited? ");
        terminal.press(keys);
        let (seen, _) = terminal.finish();
        assert!(seen.contains(expected), "{seen}");
    }
}

#[test]
fn progress_is_a_bar_that_goes_away() {
    let place = scripted_server();
    let (seen, code) = call_tool(&place, "works").finish();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("\r\u{1b}[K[################........] 2/3 step 2"), "{seen:?}");
    assert!(seen.ends_with("\r\u{1b}[Kdone\r\n"), "{seen:?}");
}

#[test]
fn a_table_is_cut_to_the_width() {
    let place = scripted_server();
    let (seen, _) = call_tool(&place, "table").finish();
    let widths: Vec<usize> = seen
        .lines()
        .map(|line| line.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "").chars().count())
        .collect();
    assert!(widths.iter().all(|width| *width <= 80) && widths.contains(&80), "{widths:?}\n{seen}");
    assert!(seen.contains("12345678901234567890123"), "{seen}");
    // Too narrow for columns: a block for each row.
    let mut narrow = place.spile(&["call", "table", "--command", "/bin/sh server.sh"]);
    let (seen, _) = PseudoTerminal::open(&mut narrow, 24).finish();
    assert!(seen.contains("\u{1b}[2mid\u{1b}[0m    12345678901234567890123\r\n"), "{seen:?}");
}

#[test]
fn nothing_hostile_reaches_a_terminal() {
    let place = scripted_server();
    for args in [
        &["call", "escapes"][..],
        &["call", "escapes", "--output", "json"],
        &["tools", "evil"],
        &["trace", "call escapes"],
        &["trace", "--raw", "call escapes"],
        &["call", "error"],
    ] {
        let args = [args, &["--command", "/bin/sh server.sh"]].concat();
        let (seen, _) = PseudoTerminal::open(&mut place.spile(&args), 80).finish();
        // Ours are colours, and nothing else.
        let mut rest = seen.clone();
        for ours in ["0m", "1m", "2m", "31m", "32m", "36m", "1;31m", "1;34m", "K"] {
            rest = rest.replace(&format!("\u{1b}[{ours}"), "");
        }
        assert!(!rest.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}']), "{args:?} {rest:?}");
        assert!(!rest.replace("\r\n", "").contains('\r'), "{args:?} {rest:?}");
    }
}

/// A project whose report does not fit into a narrow terminal without help.
fn wide_project() -> TestProject {
    let columns: Vec<String> = (1..=12).map(|number| format!("a_rather_long_column_name_{number}")).collect();
    let values: Vec<String> = (1..=12).map(|number| number.to_string()).collect();
    let text = format!("{}\n{}\n", columns.join(","), values.join(","));
    TestProject::new(&[
        ("a_rather_long_name_of_a_data_file.csv", text.as_bytes()),
        ("people.csv", b"id,name,name\n1,Ada,Lovelace\n2,Bea,\n"),
        ("broken.csv", b"id,name\n1,Ada,Rome\n"),
    ])
}

#[test]
fn a_report_never_runs_over_the_terminal() {
    let project = wide_project();
    for columns in [40, 80] {
        let (seen, code) = PseudoTerminal::open(&mut project.spile(&["check"]), columns).finish();
        assert_eq!(code, Some(0), "{seen}");
        for line in seen.lines() {
            let line = line.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
            assert!(line.trim_end().chars().count() <= usize::from(columns), "{columns}: {line}\n{seen}");
        }
        assert!(seen.contains("broken.csv"), "{seen}");
    }
}

//! The client at a terminal: prompts, progress, tables and sanitized text. The tests use a pseudo-terminal.

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
        let own_side = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("open a pseudo-terminal");
        grantpt(&own_side).and_then(|()| unlockpt(&own_side)).expect("unlock it");
        let size = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&own_side, size).expect("set its size");
        let name = ptsname(&own_side, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let child_side: OwnedFd = rustix::fs::open(name, flags, Mode::empty()).expect("open the other side");
        let side = || Stdio::from(child_side.try_clone().expect("duplicate a descriptor"));
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("the program starts");
        // The command keeps its ends of the terminal open; without this the reader below would never end.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (keys, mut screen) =
            (File::from(own_side.try_clone().expect("duplicate a descriptor")), File::from(own_side));
        let output = Arc::new(Mutex::new(String::new()));
        let shown = output.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                shown.lock().expect("not poisoned").push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        Self { child, keys, output }
    }

    fn output(&self) -> String {
        self.output.lock().expect("not poisoned").clone()
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        let start = Instant::now();
        while !self.output().contains(text) {
            assert!(start.elapsed() < TEST_TIMEOUT, "timed out waiting for `{text}`: {}", self.output());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("write keys");
    }

    /// All output, and the exit code.
    fn finish(mut self) -> (String, Option<i32>) {
        let start = Instant::now();
        let code = loop {
            match self.child.try_wait().expect("wait for spile") {
                Some(status) => break status.code(),
                None if start.elapsed() > TEST_TIMEOUT => panic!("spile does not exit: {}", self.output()),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        // The reader thread may not have read the last output yet.
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

fn call_tool(project: &TestProject, tool: &str) -> PseudoTerminal {
    PseudoTerminal::open(&mut project.spile(&["call", tool, "--yes", "--command", "/bin/sh server.sh"]), 80)
}

#[test]
fn a_form_is_filled_in_field_by_field() {
    let project = scripted_server();
    let mut terminal = call_tool(&project, "asks");
    terminal.wait_for("name: ");
    // An invalid value is asked for again.
    terminal.press("D\n");
    terminal.wait_for("must have at least 2 characters");
    terminal.press("Dana\n");
    terminal.wait_for("age (integer) [30]: ");
    terminal.press("\n");
    terminal.wait_for("2) Ruby");
    terminal.wait_for("plan (one): ");
    terminal.press("ruby\n");
    terminal.wait_for("mail (email) []: ");
    terminal.press("\n");
    terminal.wait_for("send this? ");
    terminal.press("\n");
    let (output, code) = terminal.finish();
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("asks: Who are you?\\u{1b}[2J"), "{output}");
    assert!(
        output.contains(r#"{"action":"accept","content":{"name":"Dana","age":30,"plan":"ruby"}}"#),
        "{output}"
    );
}

#[test]
fn a_form_is_declined_or_cancelled() {
    let project = scripted_server();
    for (keys, expected) in [("!\n", r#"{"action":"decline"}"#), ("\u{4}", r#"{"action":"cancel"}"#)] {
        let mut terminal = call_tool(&project, "asks");
        terminal.wait_for("name: ");
        terminal.press(keys);
        let (output, code) = terminal.finish();
        assert_eq!(code, Some(0), "{output}");
        assert!(output.contains(expected), "{output}");
    }
}

#[test]
fn a_no_to_a_confirmation_is_final() {
    let project = scripted_server();
    for (keys, expected, exit_code) in [
        ("no\n", "the user declined; nothing was deleted", 1),
        ("y\n", r#"{"action":"accept","content":{"confirm":true}}"#, 0),
    ] {
        let mut terminal = call_tool(&project, "confirms");
        terminal.wait_for("Yes, do it (yes or no): ");
        terminal.press(keys);
        let (output, code) = terminal.finish();
        assert_eq!(code, Some(exit_code), "{output}");
        assert!(output.contains(expected), "{output}");
        assert!(!output.contains("send this?"), "{output}");
    }
}

#[test]
fn the_user_allows_what_a_model_is_asked_and_what_it_answers() {
    let everything = crate::harness::examples().join("everything");
    for (keys, expected, exit_code) in [
        (&["y\n", "y\n"][..], "LLM response: Paris", 0),
        (&["y\n", "n\n"], "the user did not allow it", 1),
        (&["n\n"], "the user did not allow it", 1),
    ] {
        let project = TestProject::new(&[]);
        let server = serde_json::json!({"command": crate::harness::SPILE, "args": ["serve", everything]});
        let model = serde_json::json!({"command": "sh", "args": ["-c", "cat >/dev/null; echo Paris"]});
        let settings = serde_json::json!({"mcpServers": {"all": server}, "sampling": model});
        project.write("run.json", settings.to_string().as_bytes());
        let args = ["call", "--config", "run.json", "--server", "all", "test_sampling", "prompt=capital?"];
        let mut terminal = PseudoTerminal::open(&mut project.spile(&args), 100);
        terminal.wait_for("user: capital?");
        terminal.wait_for("Let the model answer? [y/N] ");
        for (index, key) in keys.iter().enumerate() {
            if index == 1 {
                terminal.wait_for("The model answers:\r\n\r\nParis");
                terminal.wait_for("[y/N] ");
                terminal.wait_for("Send this to everything? ");
            }
            terminal.press(key);
        }
        let (output, code) = terminal.finish();
        assert!(output.contains(expected), "{output}");
        assert_eq!(code, Some(exit_code), "{output}");
    }
}

#[test]
fn a_url_elicitation_shows_the_address_and_does_not_open_it() {
    let project = scripted_server();
    for (keys, expected) in [
        ("y\n", r#"{"action":"accept"}"#),
        ("n\n", r#"{"action":"decline"}"#),
        ("\u{4}", r#"{"action":"cancel"}"#),
    ] {
        let mut terminal = call_tool(&project, "visits");
        terminal.wait_for("https://example.com/sign-in?x=1");
        terminal.wait_for("host: example.com");
        terminal.wait_for("Did you complete the page? ");
        terminal.press(keys);
        let (output, _) = terminal.finish();
        assert!(output.contains(expected), "{output}");
    }
}

#[test]
fn progress_is_drawn_and_erased() {
    let project = scripted_server();
    let (output, code) = call_tool(&project, "works").finish();
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("\r\u{1b}[K[################........] 2/3 step 2"), "{output:?}");
    assert!(output.ends_with("\r\u{1b}[Kdone\r\n"), "{output:?}");
}

#[test]
fn a_table_fits_the_terminal() {
    let project = scripted_server();
    let (output, _) = call_tool(&project, "table").finish();
    let widths: Vec<usize> = output
        .lines()
        .map(|line| line.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "").chars().count())
        .collect();
    assert!(widths.iter().all(|width| *width <= 80) && widths.contains(&80), "{widths:?}\n{output}");
    assert!(output.contains("12345678901234567890123"), "{output}");
    // Too narrow for columns: one block per row.
    let mut narrow = project.spile(&["call", "table", "--yes", "--command", "/bin/sh server.sh"]);
    let (output, _) = PseudoTerminal::open(&mut narrow, 24).finish();
    assert!(output.contains("\u{1b}[2mid\u{1b}[0m    12345678901234567890123\r\n"), "{output:?}");
}

/// No line is wider than the terminal, whatever is printed.
#[test]
fn lists_and_descriptions_fit_80_and_40_columns() {
    let project = TestProject::customers();
    for columns in [80, 40] {
        for args in [
            &["tools"][..],
            &["tools", "list_customers"],
            &["tools", "lookup_customer"],
            &["call", "lookup_customer", "email=dana@acme.test"],
            &["call", "list_customers"],
            &["prompts"],
            &["ping"],
        ] {
            let (output, _) = PseudoTerminal::open(&mut project.spile(args), columns).finish();
            // Text content is printed as the server sent it; everything after it is laid out here.
            let text_lines = usize::from(args[0] == "call");
            for line in output.lines().skip(text_lines) {
                let line = without_colors(line);
                // A cursor stays whole, so that it can be copied.
                assert!(
                    line.chars().count() <= usize::from(columns) || line.starts_with("nextCursor"),
                    "{args:?} at {columns}: {line}\n{output}"
                );
            }
        }
    }
}

fn without_colors(line: &str) -> String {
    ["0m", "1m", "2m", "31m", "1;31m", "1;34m"]
        .iter()
        .fold(line.trim_end().to_owned(), |line, color| line.replace(&format!("\u{1b}[{color}"), ""))
}

#[test]
fn unsafe_characters_never_reach_the_terminal() {
    let project = scripted_server();
    for args in [
        &["call", "escapes"][..],
        &["call", "escapes", "--json"],
        &["tools"],
        &["tools", "evil"],
        &["tools", "p\u{200b}ay\u{e0100}"],
        &["trace", "call escapes"],
        &["trace", "--raw", "call escapes"],
        &["call", "error"],
    ] {
        let args = [args, &["--command", "/bin/sh server.sh"]].concat();
        let (output, _) = PseudoTerminal::open(&mut project.spile(&args), 80).finish();
        // Spile itself only writes colours and erases lines.
        let mut rest = output.clone();
        for own_side in ["0m", "1m", "2m", "31m", "32m", "36m", "1;31m", "1;34m", "K"] {
            rest = rest.replace(&format!("\u{1b}[{own_side}"), "");
        }
        let is_unsafe = |c: char| {
            matches!(c, '\u{1b}' | '\u{7}' | '\u{9b}' | '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{202e}')
                || matches!(c, '\u{2060}' | '\u{3164}' | '\u{e0100}'..='\u{e01ef}')
        };
        assert!(!rest.contains(is_unsafe), "{args:?} {rest:?}");
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

#[test]
fn help_and_errors_never_run_over_the_terminal() {
    let project = wide_project();
    let missing = "a_file_with_a_rather_long_name_that_does_not_exist_anywhere_on_this_machine.csv";
    for columns in [60, 80] {
        for args in [
            &["--help"][..],
            &[],
            &["serve", "--help"],
            &["call", "--help"],
            &["tools", "--help"],
            &["install", "--help"],
            &["pack", "--help"],
            &["serve", missing, "--no-such-option"],
        ] {
            let (seen, _) = PseudoTerminal::open(&mut project.spile(args), columns).finish();
            for line in seen.lines() {
                let line = without_styles(line);
                let is_one_word = line.trim().split(' ').count() == 1;
                let width = line.trim_end().chars().count();
                assert!(width <= usize::from(columns) || is_one_word, "{args:?} {columns}: {line}\n{seen}");
            }
        }
    }
}

/// The line without any colour.
fn without_styles(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| out + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
fn the_gateway_asks_at_its_terminal_for_clients_that_cannot_ask_their_user() {
    let project = TestProject::example("stock");
    let settings = r#"{"permissions": {"ask": ["mcp__stock__list_*"]}, "audit": {"path": "audit.jsonl"}}"#;
    project.write("servers.json", settings.as_bytes());
    let args = ["gateway", ".", "--config", "servers.json", "--bind", "127.0.0.1:0"];
    let mut gateway = PseudoTerminal::open(&mut project.spile(&args), 120);
    gateway.wait_for("Press Ctrl-C");
    let output = gateway.output();
    let (_, rest) = output.split_once("http://").expect("an address");
    let address = rest.split('/').next().expect("an address").to_owned();
    for (key, expected) in [("y\n", "sku"), ("n\n", "declined by the terminal")] {
        let asked = gateway.output().matches("Allow it?").count();
        let address = address.clone();
        let calling = std::thread::spawn(move || {
            let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mcp__stock__list_stock","arguments":{"limit":1}}}"#;
            let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
            let request = format!(
                "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
                 Accept: application/json, text/event-stream\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(request.as_bytes()).expect("it reads");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("text");
            answer
        });
        let start = Instant::now();
        while gateway.output().matches("Allow it?").count() == asked {
            assert!(start.elapsed() < TEST_TIMEOUT, "nobody is asked: {}", gateway.output());
            std::thread::sleep(Duration::from_millis(5));
        }
        gateway.press("perhaps\n");
        gateway.wait_for("Type y to allow the call");
        gateway.press(key);
        let answer = calling.join().expect("no panic");
        assert!(answer.contains(expected), "{answer}");
    }
    gateway.child.kill().expect("it runs");
    gateway.finish();
}

#[test]
fn call_asks_before_a_destructive_tool() {
    let project = TestProject::example("stock");
    let args = ["call", ".", "delete_stock", "sku=A-1"];
    for (key, expected) in [("n\n", "you did not allow it"), ("y\n", "error: ")] {
        let mut call = PseudoTerminal::open(&mut project.spile(&args), 120);
        call.wait_for("is destructive: it may delete or overwrite. Call it? [y/N]");
        call.press(key);
        if key == "n\n" {
            let (output, code) = call.finish();
            assert!(output.contains(expected), "{output}");
            assert_eq!(code, Some(5), "{output}");
        } else {
            // The server itself answers, or asks.
            let start = Instant::now();
            let is_answered =
                |output: &str| output.contains(expected) || output.matches("delete").count() > 2;
            while !is_answered(&call.output()) {
                assert!(start.elapsed() < TEST_TIMEOUT, "{}", call.output());
                std::thread::sleep(Duration::from_millis(5));
            }
            call.child.kill().expect("it can be stopped");
            call.finish();
        }
    }
    let refused = project.run(&args);
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(refused.stderr.contains("--yes"), "{refused}");
    let called = project.run(&["call", ".", "delete_stock", "sku=nothing-like-it", "--yes"]);
    assert_ne!(called.code, Some(5), "{called}");
}

#[test]
fn operations_of_a_document_are_picked_from_a_list() {
    let document = r#"{"openapi":"3.0.3","info":{"title":"Shop"},"servers":[{"url":"https://shop.example.com"}],"paths":{
        "/orders":{"get":{"operationId":"listOrders","summary":"List \u001b[2J orders"}},
        "/stock":{"get":{"operationId":"getStock"},"post":{"operationId":"upload","requestBody":{"required":true,"content":{"text/csv":{}}}}}}}"#;
    let project = TestProject::new(&[("openapi.json", document.as_bytes())]);
    let import = ["import", "openapi", "openapi.json", "--output", "spile.toml"];
    let mut terminal = PseudoTerminal::open(&mut project.spile(&import), 100);
    terminal.wait_for("Which operations?");
    terminal.press("7\n");
    terminal.wait_for("`7` is not in 1 to 3");
    terminal.press("1 up*\n");
    let (output, code) = terminal.finish();
    assert_eq!(code, Some(0), "{output}");
    for text in [
        "   1  listOrders (GET /orders)  List",
        "   3  upload (POST /stock)    [its body is text/csv, which is not supported]",
        "upload (POST /stock) is not imported: its body is text/csv",
        "wrote spile.toml with 1 tool",
    ] {
        assert!(output.contains(text), "{text}\n{output}");
    }
    assert!(!output.contains("\u{1b}[2J orders"), "{output}");
    let written =
        project.files().into_iter().find(|(name, _)| name.ends_with("spile.toml")).expect("a manifest").1;
    assert!(String::from_utf8_lossy(&written).contains("[tools.list_orders]"));
    // Nothing is chosen by default.
    let mut terminal = PseudoTerminal::open(&mut project.spile(&import[..3]), 100);
    terminal.wait_for("Which operations?");
    terminal.press("\n");
    let (output, code) = terminal.finish();
    assert!(code != Some(0) && output.contains("nothing was chosen"), "{code:?} {output}");
}

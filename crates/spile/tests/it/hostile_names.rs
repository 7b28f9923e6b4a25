//! File, column and table names that would move the cursor, hide or reorder text: no command prints them raw.

use crate::harness::{HttpServer, TestProject};

/// ESC [ 2 J, CSI, right-to-left override, zero width space, line separator, delete.
const HOSTILE: &str = "a\u{1b}[2J\u{9b}2J\u{202e}\u{200b}\u{2028}\u{7f}z";

fn hostile_project() -> TestProject {
    let people = format!("id,n{HOSTILE}\n1,x{HOSTILE}\n2,007\n3,5\n4,6\n5,7\n");
    TestProject::new(&[(&format!("p{HOSTILE}.csv"), people.as_bytes())])
}

#[track_caller]
fn assert_clean(text: &str, what: &str) {
    let raw: Vec<char> = text
        .chars()
        .filter(|c| matches!(c, '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}'))
        .chain(text.chars().filter(|c| matches!(c, '\u{200b}' | '\u{202e}' | '\u{2028}')))
        .collect();
    assert!(raw.is_empty(), "{what} prints {raw:?}: {text:?}");
}

#[test]
fn no_command_prints_unsafe_characters_of_names() {
    let project = hostile_project();
    let file = format!("p{HOSTILE}.csv");
    let missing = format!("q{HOSTILE}.csv");
    let check = |args: &[&str]| {
        let out = project.run(args);
        assert!(!out.stdout.is_empty() || !out.stderr.is_empty(), "{out:?}");
        assert_clean(&format!("{}{}", out.stdout, out.stderr), &args.join(" "));
    };
    for args in [
        &["check"][..],
        &["check", "--json"],
        &["check", &file],
        &["check", &missing],
        &["check", "--json", &missing],
        &["serve", &missing],
        &["serve", &file, "--bind", &missing],
        &["dev", &missing],
        &["tools", "--from", &file],
        &["call", "--from", &file, "list_x"],
        &["install", "cursor", &file, "--print"],
        &["init", &missing],
        &["init", &file],
        &["compile"],
        &["check", "--json", "--locked"],
        &["diff"],
        &["pack", ".", "--output", &missing],
    ] {
        check(args);
    }
    // The manifest has the names too, and so has what changed since.
    project.write(&file, format!("id,other{HOSTILE}\n1,2\n").as_bytes());
    for args in
        [&["check"][..], &["diff"], &["diff", "--json"], &["diff", "--against", &missing], &["compile"]]
    {
        check(args);
    }
}

#[test]
fn the_banner_and_the_notes_do_not_either() {
    for command in ["serve", "dev"] {
        for format in ["text", "json"] {
            let project = hostile_project();
            let args = [command, "--bind", "0", "-v", "--log-format", format];
            let mut server = HttpServer::start(&mut project.spile(&args));
            // `serve` only counts what it found in the data; `dev` lists it.
            server.wait_for(match (command, format) {
                ("serve", _) => "about the data",
                (_, "json") => "\"near_miss\"",
                (_, _) => "findings: ",
            });
            let (stdout, stderr, _) = server.stop();
            assert_clean(&format!("{stdout}{stderr}"), &args.join(" "));
        }
    }
}

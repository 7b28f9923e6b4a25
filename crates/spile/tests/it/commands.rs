//! `check`, `init`, `completions`, `--help`, and invalid command lines.

use crate::harness::{CommandOutput, TestProject};

const PEOPLE: (&str, &[u8]) = ("people.csv", b"id,name,joined\n1,Ada,2026-01-02\n2,Bea,2026-03-04\n");
const ORDERS: (&str, &[u8]) = ("orders.csv", b"no,person,total\n7,1,9.50\n8,2,12.00\n");

/// Snapshots the output, and asserts that no file changed.
#[track_caller]
fn check(name: &str, place: &TestProject, args: &[&str]) -> CommandOutput {
    let before = place.files();
    let output = place.run(args);
    assert_eq!(place.files(), before, "{name}: the files are as they were");
    insta::assert_snapshot!(name, output);
    output
}

#[test]
fn check_reports_what_would_be_served() {
    let customers = TestProject::customers();
    for (name, path) in
        [("check_manifest", "."), ("check_csv", "customers.csv"), ("check_db", "customers.db")]
    {
        assert_eq!(check(name, &customers, &["check", path]).code, Some(0));
    }
    let several = TestProject::new(&[PEOPLE, ORDERS, ("notes.txt", b"not data")]);
    assert_eq!(check("check_several_files", &several, &["check"]).code, Some(0));
}

/// A manifest that every lint has something to say about.
const ODD: &[u8] = br#"[server]
name = "shop"

[sources.people]
path = "people.csv"

[sources.orders]
path = "orders.db"

[collections.people]
source = "people"
key = "id"

[collections.orders]
source = "orders"

[collections.orders.fields]
total = { as = "number" }

[tools.find]
uses = "people.get"
description = "Look up a person by number."

[tools.lookup]
uses = "orders.get"
description = "Look up the person by a number."
"#;

fn odd_project() -> TestProject {
    let place = TestProject::new(&[PEOPLE, ("spile.toml", ODD)]);
    let made = rusqlite::Connection::open(place.folder.join("orders.db")).expect("it opens");
    made.execute_batch(
        "CREATE TABLE orders (no INTEGER PRIMARY KEY, total DECIMAL(20,4)); INSERT INTO orders VALUES (1, 9.5)",
    )
    .expect("it is SQL");
    place
}

#[test]
fn check_reports_lint_findings() {
    assert_eq!(check("check_worth_a_look", &odd_project(), &["check"]).code, Some(0));
}

#[test]
fn check_json_reports_the_same() {
    let output = check("check_json", &odd_project(), &["check", "--json"]);
    assert_eq!((output.code, &*output.stderr), (Some(0), ""));
    for (name, files, path) in [
        ("check_json_missing", &[][..], "people.csv"),
        (
            "check_json_bad_manifest",
            &[("spile.toml", &b"[server]\nnmae = 'x'\n[sources.a]\npath = 'a.csv'\n"[..])],
            ".",
        ),
        (
            "check_json_bad_fit",
            &[PEOPLE, ("spile.toml", b"[sources.a]\npath = 'people.csv'\n[collections.b]\nkey = 'nmae'\n")],
            ".",
        ),
        ("check_json_bad_data", &[("people.csv", b"")], "people.csv"),
    ] {
        let output = check(name, &TestProject::new(files), &["check", path, "--json"]);
        assert_eq!((output.code, &*output.stderr), (Some(1), ""), "{name}");
        let reply: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON, whatever happens");
        assert_eq!((&reply["ok"], &reply["tools"]), (&false.into(), &serde_json::json!([])), "{name}");
        assert_eq!(reply["counts"]["error"], reply["findings"].as_array().expect("an array").len(), "{name}");
    }
}

/// The example in docs/check.md has the members that `check --json` prints.
#[test]
fn the_shape_of_the_json_is_documented() {
    let docs = include_str!("../../../../docs/check.md");
    let shown = docs.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let shown: serde_json::Value = serde_json::from_str(shown).expect("JSON");
    let output = odd_project().run(&["check", "--json"]);
    let reply: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    let members = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(members(&reply), members(&shown));
    for part in ["tools", "findings"] {
        assert_eq!(members(&reply[part][0]), members(&shown[part][0]), "{part}");
    }
    for finding in reply["findings"].as_array().expect("an array") {
        let code = finding["code"].as_str().expect("a code");
        assert!(docs.contains(&format!("| `{code}` |")), "{code} is documented");
    }
}

#[test]
fn the_schema_is_printed_and_written_beside_a_new_manifest() {
    let place = TestProject::new(&[PEOPLE]);
    let output = place.run(&["schema"]);
    assert_eq!((output.code, &*output.stderr), (Some(0), ""));
    assert_eq!(
        output.stdout,
        include_str!("../../../../docs/spile.schema.json"),
        "`cargo xtask docs` prints it anew"
    );
    assert_eq!(place.run(&["init"]).code, Some(0));
    let text = std::fs::read_to_string(place.folder.join("spile.toml")).expect("written");
    let named = text.lines().next().and_then(|line| line.strip_prefix("#:schema ")).expect("the first line");
    let schema = std::fs::read_to_string(place.folder.join(named)).expect("it is where the manifest says");
    assert_eq!(schema, output.stdout);
}

/// The first line of `check`: name and version.
fn version(output: &CommandOutput) -> String {
    output.stdout.split(" · ").next().unwrap_or_default().to_owned()
}

#[test]
fn init_writes_what_serving_without_a_manifest_means() {
    for (files, path) in [
        (&[PEOPLE][..], "people.csv"),
        (&[PEOPLE, ORDERS], "."),
        (&[("customers.db", include_bytes!("../../../../examples/customers/customers.db"))], "customers.db"),
        (&[("people.tsv", b"id\tname, in full\n1\tLovelace, Ada\n2\tCurie, Marie\n")], "people.tsv"),
        (
            &[("people.json", br#"{"total":2,"data":[{"id":1,"name":"Ada"},{"id":2,"name":"Bea"}]}"#)],
            "people.json",
        ),
        (&[("odd names.csv", b"Id,Full Name,Full Name,,\"quote\"\"d\"\n1,a,b,c,d\n")], "odd names.csv"),
    ] {
        let place = TestProject::new(files);
        let (before, data) = (place.run(&["check", path]), place.files());
        let made = place.run(&["init", path]);
        assert_eq!((made.code, &*made.stdout), (Some(0), ""), "{made}");
        let mut now = place.files();
        now.retain(|(file, _)| !file.ends_with("spile.toml") && !file.ends_with(".spile/schema.json"));
        assert_eq!(now, data, "{path}: data is never touched");
        let after = place.run(&["check", "spile.toml"]);
        assert_eq!((before.code, after.code), (Some(0), Some(0)), "{before}\n{after}");
        // What was guessed is declared now.
        assert_eq!(tools(&after), tools(&before).replace(" (guessed)", ""), "{path}: the same tools");
        let (_, before) = version(&before)
            .split_once(' ')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .expect("a name and a version");
        assert!(
            version(&after).ends_with(&format!(" {before}")),
            "{path}: the same contract: {before}, {after}"
        );
    }
}

/// The tools and sources in the report. The notes differ: a written manifest has more of them.
fn tools(output: &CommandOutput) -> &str {
    let rest = output.stdout.split_once('\n').map_or("", |(_, rest)| rest);
    rest.split("\nfindings: ").next().and_then(|rest| rest.split("\nToken counts").next()).unwrap_or(rest)
}

#[test]
fn init_names_the_file_it_wrote() {
    let place = TestProject::new(&[PEOPLE, ORDERS]);
    insta::assert_snapshot!("init", place.run(&["init"]));
    let text = std::fs::read(place.folder.join("spile.toml")).expect("written");
    insta::assert_snapshot!("init_text", place.normalize(&text));
    // Now the user has edited it.
    place.write("spile.toml", b"[server]\nname = \"mine\"\n");
    assert_eq!(check("init_again", &place, &["init"]).code, Some(1));
    insta::assert_snapshot!("init_again_by_force", place.run(&["init", "--force"]));
    let again = std::fs::read(place.folder.join("spile.toml")).expect("written");
    assert_eq!(again, text);
}

/// `init` finds the delimiter, and the records inside a JSON document.
#[test]
fn init_writes_how_a_file_is_read() {
    let tsv: (&str, &[u8]) = ("people.tsv", b"id\tname, in full\n1\tLovelace, Ada\n2\tCurie, Marie\n");
    let json: (&str, &[u8]) =
        ("people.json", br#"{"next":null,"data":{"people":[{"id":1,"name":"Ada"},{"id":2,"name":"Bea"}]}}"#);
    for (file, line, field, answer) in [
        (tsv, "#delimiter = \"tab\"", "name_in_full", "Curie, Marie"),
        (json, "at = \"/data/people\"", "name", "Bea"),
    ] {
        let place = TestProject::new(&[file]);
        let call = ["call", "get_people", "id=2", "--json", "--from"];
        let bare = place.run(&[&call[..], &[file.0]].concat());
        let expected = format!("\"{field}\":\"{answer}\"");
        assert!(bare.stdout.contains(&expected), "{bare}");
        let output = place.run(&["init", file.0]);
        assert_eq!(output.code, Some(0), "{output}");
        let text = std::fs::read_to_string(place.folder.join("spile.toml")).expect("written");
        assert!(text.lines().any(|one| one == line), "{text}");
        let with_manifest = place.run(&[&call[..], &["."]].concat());
        assert_eq!(with_manifest.stdout, bare.stdout);
    }
}

#[test]
fn init_writes_nothing_for_what_cannot_be_served() {
    for (name, files, path) in [
        ("init_missing", &[][..], "people.csv"),
        ("init_empty_folder", &[], "."),
        ("init_empty_csv", &[("people.csv", &b""[..])], "people.csv"),
        ("init_one_of_two_is_bad", &[PEOPLE, ("orders.csv", b"no\n1,2\n")], "."),
        ("init_manifest_without_data", &[("spile.toml", b"")], "spile.toml"),
        (
            "init_json_of_two_lists",
            &[("shop.json", br#"{"people":[{"id":1}],"orders":[{"no":7}]}"#)],
            "shop.json",
        ),
    ] {
        assert_eq!(check(name, &TestProject::new(files), &["init", path, "--force"]).code, Some(1), "{name}");
    }
}

#[test]
fn invalid_command_lines() {
    let place = TestProject::new(&[PEOPLE]);
    for (name, args) in [
        ("no_command", &[][..]),
        ("unknown_command", &["sreve", "people.csv"]),
        ("unknown_option", &["serve", "--prot", "3333"]),
        ("unknown_shell", &["completions", "tcsh"]),
        ("bind_nowhere", &["serve", "people.csv", "--bind", "nowhere"]),
        ("bind_port_too_large", &["serve", "people.csv", "--bind", "70000"]),
        ("unknown_log_format", &["serve", "people.csv", "--log-format", "xml"]),
    ] {
        let output = check(name, &place, args);
        assert_eq!((output.code, &*output.stdout), (Some(2), ""), "{name}: {output}");
    }
}

#[test]
fn help_is_on_stdout() {
    let place = TestProject::new(&[]);
    for (name, args) in [
        ("help", &["--help"][..]),
        ("help_serve", &["serve", "--help"]),
        ("help_init", &["init", "--help"]),
        ("help_check", &["check", "--help"]),
        ("help_tools", &["tools", "--help"]),
        ("help_call", &["call", "--help"]),
        ("help_complete", &["complete", "--help"]),
        ("help_trace", &["trace", "--help"]),
    ] {
        let output = check(name, &place, args);
        assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{name}");
    }
    let output = place.run(&["--version"]);
    assert_eq!(output.stdout, format!("spile {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_are_scripts_of_their_shell() {
    let place = TestProject::new(&[]);
    for (shell, begins) in
        [("bash", "_spile() {"), ("zsh", "#compdef spile"), ("fish", "# Print an optspec for argparse")]
    {
        let output = place.run(&["completions", shell]);
        assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{shell}");
        assert!(
            output.stdout.starts_with(begins),
            "{shell}: {}",
            output.stdout.lines().next().unwrap_or_default()
        );
        for word in ["serve", "init", "check", "completions", "bind", "http", "trace", "token-file"] {
            assert!(output.stdout.contains(word), "{shell}: no `{word}`");
        }
    }
}

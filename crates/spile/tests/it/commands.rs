//! `check`, `init`, `completions`, and command lines that mean nothing.

use crate::harness::{CommandOutput, TestProject};

const PEOPLE: (&str, &[u8]) = ("people.csv", b"id,name,joined\n1,Ada,2026-01-02\n2,Bea,2026-03-04\n");
const ORDERS: (&str, &[u8]) = ("orders.csv", b"no,person,total\n7,1,9.50\n8,2,12.00\n");

/// What is read is kept in `snapshots/`; the files are as they were.
#[track_caller]
fn check(name: &str, place: &TestProject, args: &[&str]) -> CommandOutput {
    let before = place.files();
    let said = place.run(args);
    assert_eq!(place.files(), before, "{name}: the files are as they were");
    insta::assert_snapshot!(name, said);
    said
}

#[test]
fn check_says_what_would_be_served() {
    let customers = TestProject::customers();
    for (name, path) in
        [("check_manifest", "."), ("check_csv", "customers.csv"), ("check_db", "customers.db")]
    {
        assert_eq!(check(name, &customers, &["check", path]).code, Some(0));
    }
    let several = TestProject::new(&[PEOPLE, ORDERS, ("notes.txt", b"not data")]);
    assert_eq!(check("check_several_files", &several, &["check"]).code, Some(0));
}

/// A manifest with something to look at in every part of it.
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
fn check_says_what_is_worth_a_look() {
    assert_eq!(check("check_worth_a_look", &odd_project(), &["check"]).code, Some(0));
}

#[test]
fn check_tells_programs_the_same() {
    let said = check("check_json", &odd_project(), &["check", "--json"]);
    assert_eq!((said.code, &*said.stderr), (Some(0), ""));
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
        let said = check(name, &TestProject::new(files), &["check", path, "--json"]);
        assert_eq!((said.code, &*said.stderr), (Some(1), ""), "{name}");
        let told: serde_json::Value = serde_json::from_str(&said.stdout).expect("JSON, whatever happens");
        assert_eq!((&told["ok"], &told["tools"]), (&false.into(), &serde_json::json!([])), "{name}");
        assert_eq!(told["counts"]["error"], told["findings"].as_array().expect("an array").len(), "{name}");
    }
}

/// What docs/check.md shows is what there is.
#[test]
fn the_shape_of_the_json_is_documented() {
    let docs = include_str!("../../../../docs/check.md");
    let shown = docs.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let shown: serde_json::Value = serde_json::from_str(shown).expect("JSON");
    let said = odd_project().run(&["check", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&said.stdout).expect("JSON");
    let members = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(members(&told), members(&shown));
    for part in ["tools", "findings"] {
        assert_eq!(members(&told[part][0]), members(&shown[part][0]), "{part}");
    }
    for finding in told["findings"].as_array().expect("an array") {
        let code = finding["code"].as_str().expect("a code");
        assert!(docs.contains(&format!("| `{code}` |")), "{code} is documented");
    }
}

#[test]
fn the_schema_is_printed_and_written_beside_a_new_manifest() {
    let place = TestProject::new(&[PEOPLE]);
    let said = place.run(&["schema"]);
    assert_eq!((said.code, &*said.stderr), (Some(0), ""));
    assert_eq!(
        said.stdout,
        include_str!("../../../../docs/spile.schema.json"),
        "`cargo xtask docs` prints it anew"
    );
    assert_eq!(place.run(&["init"]).code, Some(0));
    let text = std::fs::read_to_string(place.folder.join("spile.toml")).expect("it was written");
    let named = text.lines().next().and_then(|line| line.strip_prefix("#:schema ")).expect("the first line");
    let schema = std::fs::read_to_string(place.folder.join(named)).expect("it is where the manifest says");
    assert_eq!(schema, said.stdout);
}

/// The first line of `check`: name and version.
fn version(said: &CommandOutput) -> String {
    said.stdout.split(" · ").next().unwrap_or_default().to_owned()
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
        assert_eq!(tools(&after), tools(&before), "{path}: the same tools");
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

/// The tools and sources that `check` names behind the first line. A manifest that somebody could have written has
/// more that is worth a look.
fn tools(said: &CommandOutput) -> &str {
    let rest = said.stdout.split_once('\n').map_or("", |(_, rest)| rest);
    rest.split("\nworth a look").next().and_then(|rest| rest.split("\nTokens are").next()).unwrap_or(rest)
}

#[test]
fn init_says_what_it_wrote() {
    let place = TestProject::new(&[PEOPLE, ORDERS]);
    insta::assert_snapshot!("init", place.run(&["init"]));
    let text = std::fs::read(place.folder.join("spile.toml")).expect("it was written");
    insta::assert_snapshot!("init_text", place.normalize(&text));
    // The second time it is somebody's work.
    place.write("spile.toml", b"[server]\nname = \"mine\"\n");
    assert_eq!(check("init_again", &place, &["init"]).code, Some(1));
    insta::assert_snapshot!("init_again_by_force", place.run(&["init", "--force"]));
    let again = std::fs::read(place.folder.join("spile.toml")).expect("it was written");
    assert_eq!(again, text);
}

/// What stands between columns is found, and where in a document the records are.
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
        let call = ["call", "get_people", "id=2", "--output", "json", "--from"];
        let bare = place.run(&[&call[..], &[file.0]].concat());
        let expected = format!("\"{field}\":\"{answer}\"");
        assert!(bare.stdout.contains(&expected), "{bare}");
        let said = place.run(&["init", file.0]);
        assert_eq!(said.code, Some(0), "{said}");
        let text = std::fs::read_to_string(place.folder.join("spile.toml")).expect("it was written");
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
fn command_lines_that_mean_nothing() {
    let place = TestProject::new(&[PEOPLE]);
    for (name, args) in [
        ("no_command", &[][..]),
        ("unknown_command", &["sreve", "people.csv"]),
        ("unknown_option", &["serve", "--prot", "3333"]),
        ("unknown_shell", &["completions", "tcsh"]),
        ("bind_nowhere", &["serve", "people.csv", "--bind", "nowhere"]),
        ("bind_port_too_large", &["serve", "people.csv", "--bind", "70000"]),
        ("bind_and_http", &["serve", "people.csv", "--bind", "0", "--http"]),
        ("unknown_log_format", &["serve", "people.csv", "--log-format", "xml"]),
    ] {
        let said = check(name, &place, args);
        assert_eq!((said.code, &*said.stdout), (Some(2), ""), "{name}: {said}");
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
        let said = check(name, &place, args);
        assert_eq!((said.code, &*said.stderr), (Some(0), ""), "{name}");
    }
    let said = place.run(&["--version"]);
    assert_eq!(said.stdout, format!("spile {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_are_scripts_of_their_shell() {
    let place = TestProject::new(&[]);
    for (shell, begins) in
        [("bash", "_spile() {"), ("zsh", "#compdef spile"), ("fish", "# Print an optspec for argparse")]
    {
        let said = place.run(&["completions", shell]);
        assert_eq!((said.code, &*said.stderr), (Some(0), ""), "{shell}");
        assert!(
            said.stdout.starts_with(begins),
            "{shell}: {}",
            said.stdout.lines().next().unwrap_or_default()
        );
        for word in ["serve", "init", "check", "completions", "bind", "http", "trace", "token-file"] {
            assert!(said.stdout.contains(word), "{shell}: no `{word}`");
        }
    }
}

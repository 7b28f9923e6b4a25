//! `spile test`, `spile new` and `spile call --save-test`: what they print, write and exit with.

use insta::assert_snapshot;

use crate::harness::TestProject;
use crate::readme;

const MANIFEST: &[u8] = b"[server]\nname = \"shop\"\n\n[sources.crm]\npath = \"customers.csv\"\n\n\
    [collections.customers]\nsource = \"crm\"\nkey = \"email\"\ndescription = \"People.\"\n\
    operations = [\"get\", \"list\", \"update\", \"delete\"]\n\n\
    [collections.customers.fields]\nphone = { sensitive = true }\n";
const CUSTOMERS: &[u8] = b"email,plan,phone\ndana@acme.test,emerald,555-1\nlee@acme.test,ruby,555-2\n";

fn shop(tests: &[(&str, &str)]) -> TestProject {
    let project = TestProject::new(&[("spile.toml", MANIFEST), ("customers.csv", CUSTOMERS)]);
    for (name, text) in tests {
        project.write(name, text.as_bytes());
    }
    project
}

/// A test that passes.
const GOOD: &str = "[[test]]\nname = \"dana\"\ncall = \"get_customers\"\narguments = { email = \"dana@acme.test\" }\nexpect = { plan = \"emerald\" }\n";

#[test]
fn passing_tests_are_listed() {
    let json = r#"{"test":[{"name":"nobody","call":"get_customers","arguments":{"email":"x@acme.test"},"error":"not_found"}]}"#;
    let more = "[[test]]\nname = \"a bad argument\"\ncall = \"get_customers\"\nerror = { code = \"invalid_arguments\", field = \"email\" }\n\n\
        [[test]]\nname = \"an unknown tool\"\ncall = \"nothing\"\nerror = -32602\ncontains = \"unknown tool\"\n\n\
        [[test]]\nname = \"all of it\"\ncall = \"get_customers\"\narguments.email = \"lee@acme.test\"\nexact = true\n\
        expect = { email = \"lee@acme.test\", plan = \"ruby\", phone = \"555-2\", _version = { is = \"text\" } }\n";
    let project = shop(&[("tests/a.toml", GOOD), ("tests/b.json", json), ("tests/c.toml", more)]);
    project.write("tests/notes.txt", b"not a test");
    assert_snapshot!(project.run(&["test"]));
    for version in ["2024-11-05", "2025-11-25", "2026-07-28"] {
        assert_eq!(project.run(&["test", "--protocol", version]).code, Some(0), "{version}");
    }
}

#[test]
fn a_failed_test_shows_every_difference() {
    let tests = "[[test]]\nname = \"wrong values\"\ncall = \"get_customers\"\narguments = { email = \"dana@acme.test\" }\n\
        expect = { plan = \"ruby\", email = { is = \"integer\" }, city = \"Oslo\" }\n\n\
        [[test]]\nname = \"too many rows\"\ncall = \"list_customers\"\nexpect = { items = [{ plan = \"free\" }] }\n\n\
        [[test]]\nname = \"a result, not an error\"\ncall = \"get_customers\"\narguments = { email = \"dana@acme.test\" }\nerror = \"not_found\"\n\n\
        [[test]]\nname = \"an error, not a result\"\ncall = \"get_customers\"\narguments = { email = \"x@acme.test\" }\nexpect = { plan = \"ruby\" }\n\n\
        [[test]]\nname = \"the wrong text\"\ncall = \"get_customers\"\narguments = { email = \"x@acme.test\" }\nerror = \"conflict\"\ncontains = [\"customers\", \"unicorn\"]\n";
    assert_snapshot!(shop(&[("tests/a.toml", tests)]).run(&["test"]));
}

/// Code that fails in several ways, with the place where each of them is reported.
const FAILING: &[(&str, &str, &str)] = &[
    (
        "bug",
        "const find = (id: string): any => undefined;\n\nexport default ({ id }: { id: string }) => {\n  const found = find(\n    id,\n  );\n  return found.name;\n};\n",
        "tools/bug.ts:7:10",
    ),
    ("loop", "/** Never ends. */\nexport default () => {\n  for (;;) {}\n};\n", "tools/loop.ts:2:1"),
    (
        "output",
        "export const schema = { output: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] } };\nexport default () => ({ n: 'seven' });\n",
        "tools/output.ts:2:1",
    ),
    (
        "rejection",
        "export default async () => {\n  Promise.reject(new Error('nobody waits'));\n  return 1;\n};\n",
        "tools/rejection.ts:2:22",
    ),
];

#[test]
fn the_author_of_code_that_fails_reads_where_and_why() {
    let project = TestProject::new(&[]);
    let mut tests = String::new();
    for (name, code, _) in FAILING {
        project.write(&format!("tools/{name}.ts"), code.as_bytes());
        let arguments = if *name == "bug" { "arguments.id = \"1\"\n" } else { "" };
        tests += &format!("[[test]]\nname = \"{name}\"\ncall = \"{name}\"\n{arguments}\n");
    }
    project.write("tests/all.toml", tests.as_bytes());
    let tested = project.run(&["test"]);
    assert_eq!(tested.code, Some(1), "{tested}");
    for (name, _, place) in FAILING {
        assert!(tested.stdout.contains(place), "{name}: {tested}");
        let arguments: &[&str] = if *name == "bug" { &["id=1"] } else { &[] };
        let called = project.run(&[&["call", name, "--from", "."], arguments].concat());
        assert!(called.stderr.contains(place), "{name}: {called}");
        assert!(called.stderr.contains(" | "), "{name}: the line of the code: {called}");
    }
}

#[test]
fn a_bad_test_file_is_explained_with_its_lines() {
    let tests = "[[test]]\nnam = \"a\"\ncall = \"get_customers\"\n\n\
        [[test]]\nname = \"b\"\ncall = \"get_customers\"\nread = \"resource://x\"\n\n\
        [[test]]\nname = \"c\"\ncall = 7\narguments = \"x\"\n\n\
        [[test]]\nname = \"d\"\ncall = \"t\"\nexpect = 1\nerror = \"conflict\"\nanswers = [{ yes = true }, \"maybe\"]\n\n\
        [[test]]\nname = \"e\"\ncall = \"t\"\nexact = true\nerror = []\n\n\
        [[test]]\nname = \"f\"\ncall = \"t\"\n\n[[test]]\nname = \"f\"\ncall = \"t\"\n";
    let project = shop(&[
        ("tests/a.toml", tests),
        ("tests/b.toml", "[[test]\nname = 1\n"),
        ("tests/c.json", "{\"test\": [,]}"),
        ("tests/d.toml", "[tests]\n"),
        ("tests/e.json", "[]"),
        ("tests/f.toml", "[[test]]\nname = \"nan\"\ncall = \"t\"\nexpect = nan\n"),
    ]);
    assert_snapshot!(project.run(&["test"]));
}

#[test]
fn without_tests_or_a_server_nothing_runs() {
    let project = shop(&[]);
    assert_snapshot!("no_tests", project.run(&["test"]));
    project.write("tests/a.toml", GOOD.as_bytes());
    assert_snapshot!("no_match", project.run(&["test", "--filter", "unicorn", "--filter", "x"]));
    assert_eq!(project.run(&["test", "--filter", "dan"]).code, Some(0));
    assert_eq!(project.run(&["test", "--filter", "a.toml"]).code, Some(0));
    assert_snapshot!("no_path", project.run(&["test", "nowhere"]));
    project.write("spile.toml", b"[server]\nnam = 1\n");
    assert_snapshot!("no_server", project.run(&["test"]));
}

/// The first test changes what the second reads; another file does not see it.
const WRITES: &str = "[[test]]\nname = \"change\"\ncall = \"update_customers\"\narguments = { email = \"dana@acme.test\", plan = \"free\" }\nexpect.record = { plan = \"free\" }\n\n\
    [[test]]\nname = \"changed\"\ncall = \"get_customers\"\narguments = { email = \"dana@acme.test\" }\nexpect = { plan = \"free\" }\n";

#[test]
fn tests_that_write_run_on_a_copy() {
    let project = shop(&[("tests/a.toml", WRITES), ("tests/b.toml", GOOD)]);
    let before = project.files();
    assert_snapshot!(project.run(&["test"]));
    assert_eq!(project.files(), before);
    let from_outside = project.run_with(&["test", "customers.csv"], &[]);
    assert_eq!(project.files(), before, "{from_outside}");

    assert_eq!(project.run(&["test", "--in-place", "--filter", "a.toml"]).code, Some(0));
    assert_ne!(project.files(), before);
}

#[test]
fn data_outside_of_the_folder_is_not_written() {
    let project = shop(&[("shop/tests/a.toml", WRITES)]);
    project.write("shop/spile.toml", &[b"", MANIFEST].concat());
    let manifest = String::from_utf8_lossy(MANIFEST).replace("customers.csv", "../customers.csv");
    project.write("shop/spile.toml", manifest.as_bytes());
    let before = project.files();
    assert_snapshot!(project.run(&["test", "shop"]));
    assert_eq!(project.files(), before);
}

#[test]
fn questions_are_answered_by_the_test() {
    let ask = |name: &str, answers: &str, expected: &str| {
        format!(
            "[[test]]\nname = \"{name}\"\ncall = \"delete_customers\"\narguments = {{ email = \"dana@acme.test\" }}\n{answers}\n{expected}\n\n"
        )
    };
    let accept = "answers = [{ question = \"dana@acme.test\", accept = { confirm = true } }]";
    let tests = [
        ask("declined", "answers = [\"decline\"]", "error = \"input_refused\""),
        ask("cancelled", "answers = [{ cancel = true }]", "error = \"input_refused\""),
        ask("no answer", "", "error = \"input_refused\""),
        ask("another question", "answers = [{ question = \"unicorn\", accept = true }]", "error = true"),
        ask("accepted", accept, ""),
        ask("gone", "", "error = \"not_found\""),
        "[[test]]\nname = \"an answer too many\"\ncall = \"get_customers\"\narguments = { email = \"lee@acme.test\" }\nanswers = [\"accept\"]\n".to_owned(),
    ];
    let project = shop(&[("tests/a.toml", &tests.concat())]);
    let manifest = format!(
        "{}\n[tools.delete_customers]\nuses = \"customers.delete\"\nconfirm = \"ask\"\n",
        String::from_utf8_lossy(MANIFEST)
    );
    project.write("spile.toml", manifest.as_bytes());
    let newest = project.run(&["test"]);
    assert_snapshot!(newest);
    let older = project.run(&["test", "--protocol", "2025-06-18"]);
    assert_eq!((older.stdout, older.code), (newest.stdout, newest.code));
}

#[test]
fn an_update_writes_what_came_back() {
    let tests = "# Customers.\n[[test]]\nname = \"dana\"\ncall = \"get_customers\"\narguments = { email = \"dana@acme.test\" }\n\
        expect = { plan = \"ruby\", phone = { is = \"text\" } } # the plan changes\n\n\
        [[test]]\nname = \"nobody\"\ncall = \"get_customers\"\narguments = { email = \"x@acme.test\" }\nexpect = { plan = \"ruby\" }\n\n\
        [[test]]\nname = \"new\"\ncall = \"list_customers\"\narguments = { plan = \"ruby\", fields = [\"email\"] }\n";
    let json = r#"{"test":[{"name":"lee","call":"get_customers","arguments":{"email":"lee@acme.test"},"error":"conflict"}]}"#;
    let project = shop(&[("tests/a.toml", tests), ("tests/b.json", json)]);
    assert_snapshot!("update", project.run(&["test", "--update"]));
    let read = |name: &str| std::fs::read_to_string(project.folder.join(name)).expect("a file");
    assert_snapshot!("updated_toml", read("tests/a.toml"));
    assert_snapshot!("updated_json", read("tests/b.json"));
    let again = project.run(&["test"]);
    assert_eq!(again.code, Some(0), "{again}");
    let before = project.files();
    project.run(&["test", "--update"]);
    assert_eq!(project.files(), before, "an update of passing tests changes nothing");
}

#[test]
fn a_recorded_call_is_a_test() {
    let project = shop(&[]);
    let record = |args: &[&str]| project.run(&[args, &["--save-test", "tests/calls.toml"]].concat());
    assert_snapshot!("recorded", record(&["call", "get_customers", "email=dana@acme.test"]));
    assert_eq!(record(&["call", "get_customers", "email=dana@acme.test"]).code, Some(0));
    assert_eq!(record(&["call", "get_customers", "email=x@acme.test"]).code, Some(1));
    assert_eq!(record(&["call", "list_customers", "plan=ruby"]).code, Some(0));
    let sensitive = record(&["call", "update_customers", "email=dana@acme.test", "phone=1", "--yes"]);
    assert!(sensitive.stderr.contains("the argument `phone` is sensitive"), "{sensitive}");
    let text = std::fs::read_to_string(project.folder.join("tests/calls.toml")).expect("a file");
    assert!(!text.contains("555-"), "sensitive values are not written:\n{text}");
    assert_snapshot!("recorded_tests", text);
    let run = project.run(&["test"]);
    assert_eq!(run.code, Some(0), "{run}");

    for (file, reason) in
        [("tests/calls.json", "is not a .toml file"), ("spile.toml", "is not a file of tests")]
    {
        if file == "spile.toml" {
            project.write("spile2.toml", b"test = 1\n");
        }
        let file = if file == "spile.toml" { "spile2.toml" } else { file };
        let refused = project.run(&["call", "get_customers", "email=dana@acme.test", "--save-test", file]);
        assert!(refused.code == Some(1) && refused.stderr.contains(reason), "{refused}");
    }
}

const GUIDE: &str = include_str!("../../../../docs/testing.md");

#[test]
fn every_example_of_the_guide_works() {
    assert!(readme::run_guide(GUIDE) >= 10, "the guide has lost its examples");
}

//! A file that is too large for memory, because the limit is set to nothing, through the real program.

use serde_json::json;

use crate::harness::TestProject;

const MANIFEST: &str = "[server]\nmemory_bytes_max = 0\n[sources.orders]\npath = 'orders.csv'\n\
                        [collections.orders]\nsource = 'orders'\nkey = 'order'\n";

fn project(manifest: &str) -> TestProject {
    let mut orders = String::from("order;customer;total;ordered on\n");
    for number in 1..=2000 {
        orders += &format!(
            "{number};Kunde {};{}.{:03},50 €;{:02}.{:02}.2026\n",
            number % 17,
            1 + number % 9,
            number % 1000,
            number % 28 + 1,
            number % 12 + 1
        );
    }
    TestProject::new(&[("orders.csv", orders.as_bytes()), ("spile.toml", manifest.as_bytes())])
}

const LINES_MANIFEST: &str = "[server]\nmemory_bytes_max = 0\n[sources.orders]\npath = 'orders.jsonl'\n\
                              [collections.orders]\nsource = 'orders'\nkey = 'order'\n";

/// Orders whose later lines have members that the first ones lack, and values of several kinds.
fn lines_project(manifest: &str) -> TestProject {
    let mut orders = String::new();
    for number in 1..=2000 {
        let rest = if number % 3 == 0 { r#", "paid": true, "tags": ["a", {"b": 1}]"# } else { "" };
        let total = format!("{}.{:02}", number % 91, number % 100);
        orders += &format!(
            r#"{{"order": {number}, "customer": "Kunde {}", "total": {total}, "ordered on": "2026-{:02}-{:02}"{rest}}}"#,
            number % 17,
            number % 12 + 1,
            number % 28 + 1
        );
        orders.push('\n');
    }
    TestProject::new(&[("orders.jsonl", orders.as_bytes()), ("spile.toml", manifest.as_bytes())])
}

/// The output of a command whose cache is in the project.
fn run(project: &TestProject, arguments: &[&str]) -> (Option<i32>, String, String) {
    let cache = project.folder.join("cache");
    let output = project.run_with(arguments, &[("XDG_CACHE_HOME", &cache.to_string_lossy())]);
    (output.code, output.stdout, output.stderr)
}

/// Asks both projects the same questions.
fn check(imported: &TestProject, in_memory: &TestProject, more: &[&[&'static str]]) {
    let questions = [
        vec!["list_orders", "total_min=9000", "sort=-total", "limit=5"],
        vec!["list_orders", "ordered_on_min=2026-12-20", "fields=order", "limit=7"],
        vec!["aggregate_orders", "group=ordered_on_month", "measures=sum_total", "measures=count"],
        vec!["aggregate_orders", "group=customer", "measures=avg_total", "sort=-avg_total", "limit=3"],
        vec!["search_orders", "query=kunde 16", "limit=2"],
        vec!["get_orders", "order=1234"],
    ];
    for question in questions.into_iter().chain(more.iter().map(|question| question.to_vec())) {
        let arguments: Vec<&str> =
            ["call"].into_iter().chain(question).chain(["--json", "--from", "."]).collect();
        let expected = run(in_memory, &arguments);
        assert_eq!(expected.0, Some(0), "{expected:?}");
        let (content, answer) = [&expected, &run(imported, &arguments)]
            .map(|(_, stdout, stderr)| {
                let json: serde_json::Value =
                    serde_json::from_str(stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
                let mut content = json["structuredContent"].clone();
                // A cursor is encrypted, and never the same twice.
                content["nextCursor"] = json!(null);
                content
            })
            .into();
        assert_eq!(answer, content, "{arguments:?}");
    }
    assert!(imported.folder.join("cache/spile/imports").is_dir());
    assert!(!in_memory.folder.join("cache").exists());
}

#[test]
fn it_answers_as_a_file_in_memory_does() {
    let in_memory = project(&MANIFEST.replace("memory_bytes_max = 0\n", ""));
    check(&project(MANIFEST), &in_memory, &[]);
}

#[test]
fn json_lines_answer_as_in_memory_too() {
    let in_memory = lines_project(&LINES_MANIFEST.replace("memory_bytes_max = 0\n", ""));
    let more: [&[&'static str]; 3] = [
        &["list_orders", "paid_null=true", "sort=-total", "limit=4"],
        &["aggregate_orders", "group=paid", "measures=count", "measures=sum_total"],
        &["list_orders", "paid=true", "total_max=3.5", "limit=3"],
    ];
    check(&lines_project(LINES_MANIFEST), &in_memory, &more);
}

#[test]
fn check_says_how_it_is_served_and_that_it_cannot_be_written() {
    let (code, stdout, _) = run(&project(MANIFEST), &["check"]);
    assert_eq!(code, Some(0), "{stdout}");
    let note = "too large for memory: served from an import in the cache folder, read-only";
    assert!(stdout.contains(note), "{stdout}");
    let writing = format!("{MANIFEST}operations = ['get', 'list', 'create']\n");
    let (code, stdout, stderr) = run(&project(&writing), &["check"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let reason = "is served read-only: it is too large for memory (`memory_bytes_max`)";
    assert!(stdout.contains(reason) && !stdout.contains("create_orders"), "{stdout}");
}

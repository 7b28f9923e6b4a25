//! `compile`, `diff` and `check --locked`.

use std::process::Command;

use serde_json::Value;

use crate::harness::TestProject;

const PEOPLE: &[u8] = b"id,name,plan\n1,Ada,free\n2,Bea,ruby\n3,Cem,free\n";
const MANIFEST: &str = r#"[server]
name = "people"
instructions = "People by number."

[sources.data]
kind = "csv"
path = "people.csv"

[collections.people]
source = "data"
key = "id"
description = "One row each."

[collections.people.fields]
plan = { enum = ["free", "ruby"] }
"#;

fn project() -> TestProject {
    TestProject::new(&[("people.csv", PEOPLE), ("spile.toml", MANIFEST.as_bytes())])
}

/// Replaces text in the manifest.
#[track_caller]
fn edit_manifest(place: &TestProject, from: &str, to: &str) {
    let file = place.folder.join("spile.toml");
    let text = std::fs::read_to_string(&file).expect("there is a manifest");
    assert!(text.contains(from), "{from} in {text}");
    place.write("spile.toml", text.replace(from, to).as_bytes());
}

/// Snapshots the output.
#[track_caller]
fn check(name: &str, place: &TestProject, args: &[&str], code: i32) {
    let output = place.run(args);
    assert_eq!(output.code, Some(code), "{name}: {output}");
    insta::assert_snapshot!(name, redact_hashes(&output.to_string()));
}

/// `ok` and the exit code agree, and there is one finding with the code `lock`.
#[track_caller]
fn check_json(place: &TestProject, args: &[&str], is_ok: bool, severity: &str) {
    let output = place.run(args);
    let reply: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!((output.code, &reply["ok"]), (Some(i32::from(!is_ok)), &Value::Bool(is_ok)), "{output}");
    let findings = reply["findings"].as_array().expect("a list");
    let of_lock: Vec<&Value> = findings.iter().filter(|one| one["code"] == "lock").collect();
    assert_eq!(of_lock.len(), 1, "{output}");
    assert_eq!(of_lock[0]["severity"], severity, "{output}");
}

/// Replaces the hashes in versions: they change with every text of the contract.
fn redact_hashes(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('+') {
        let (before, after) = rest.split_at(at + 1);
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_hexdigit()).len();
        out.push_str(before);
        rest = if digits == 8 {
            out.push_str("<hash>");
            &after[8..]
        } else {
            after
        };
    }
    out + rest
}

#[test]
fn compile_writes_a_lock_with_a_version() {
    let place = project();
    check("lock_missing", &place, &["check", "--locked"], 1);
    check_json(&place, &["check", "--locked", "--json"], false, "error");
    check("diff_without_a_lock", &place, &["diff"], 2);
    check("compile_first", &place, &["compile"], 0);
    insta::assert_snapshot!(
        "lock_file",
        std::fs::read_to_string(place.folder.join("spile.lock")).expect("written")
    );
    check("check_locked", &place, &["check", "--locked"], 0);
    let output = place.run(&["check", "--locked", "--json"]);
    assert!(output.stdout.starts_with(r#"{"ok":true,"#) && !output.stdout.contains(r#""lock""#), "{output}");
    check("diff_same", &place, &["diff", "--fail-on", "any"], 0);
    check("compile_again", &place, &["compile", "spile.toml"], 0);

    // Rows and their values are not part of the contract.
    place.write("people.csv", b"id,name,plan\n1,Ada,free\n2,Bea,ruby\n3,Cem,free\n4,Dan,free\n5,Dan,free\n6,Dan,free\n7,Dan,free\n8,Dan,free\n9,Dan,free\n");
    assert_eq!(place.run(&["check", "--locked"]).code, Some(0));
}

#[test]
fn a_changed_description_is_a_patch() {
    let place = project();
    assert_eq!(place.run(&["compile"]).code, Some(0));
    edit_manifest(&place, "One row each.", "A row for everybody.");
    check("check_unlocked", &place, &["check"], 0);
    check("check_locked_fails", &place, &["check", "--locked"], 1);
    check_json(&place, &["check", "--json"], true, "note");
    check_json(&place, &["check", "--locked", "--json"], false, "error");
    check("diff_words", &place, &["diff", "--fail-on", "breaking"], 0);
    check("compile_words", &place, &["compile"], 0);
    assert_eq!(place.run(&["check", "--locked"]).code, Some(0));
}

#[test]
fn a_new_column_is_compatible_and_a_removed_one_is_breaking() {
    let place = project();
    assert_eq!(place.run(&["compile"]).code, Some(0));
    place.write("people.csv", b"id,name,plan,phone\n1,Ada,free,1\n2,Bea,ruby,2\n3,Cem,free,\n");
    check("diff_compatible", &place, &["diff", "--fail-on", "breaking"], 0);
    check("diff_any", &place, &["diff", "--fail-on", "any"], 1);
    check("compile_compatible", &place, &["compile"], 0);
    place.write("people.csv", b"id,plan,phone\n1,free,1\n2,ruby,2\n3,free,\n");
    check("diff_breaking", &place, &["diff"], 0);
    check("diff_breaking_fails", &place, &["diff", "--fail-on", "breaking", "--json"], 1);
    check("check_breaking", &place, &["check"], 0);
    check("compile_breaking", &place, &["compile"], 0);
}

#[test]
fn a_lock_that_cannot_be_used_says_why() {
    let place = project();
    assert_eq!(place.run(&["compile"]).code, Some(0));
    let good = std::fs::read_to_string(place.folder.join("spile.lock")).expect("written");
    place.write("spile.lock", good.replacen("\"id\"", "\"no\"", 1).as_bytes());
    check("lock_altered", &place, &["check"], 0);
    check("lock_altered_must", &place, &["check", "--locked"], 1);
    check_json(&place, &["check", "--json"], true, "warning");
    check_json(&place, &["check", "--locked", "--json"], false, "error");
    check("lock_altered_diff", &place, &["diff"], 2);
    // `compile` repairs it.
    assert_eq!(place.run(&["compile"]).code, Some(0));
    assert_eq!(place.run(&["check", "--locked"]).code, Some(0));
    place.write(
        "spile.lock",
        b"<<<<<<< HEAD\nversion = \"1.0.0\"\n=======\nversion = \"1.1.0\"\n>>>>>>> other\n",
    );
    check("lock_conflict", &place, &["check", "--locked"], 1);
    check("lock_conflict_compile", &place, &["compile"], 1);
    check("lock_conflict_diff", &place, &["diff"], 2);
    place.write("spile.lock", b"\xff\xfe");
    check("lock_not_text", &place, &["check", "--locked"], 1);
}

#[test]
fn a_project_without_a_manifest_cannot_be_locked() {
    let place = TestProject::new(&[("people.csv", PEOPLE)]);
    check("compile_without_a_manifest", &place, &["compile"], 1);
    check("diff_without_a_manifest", &place, &["diff"], 2);
    check("check_without_a_manifest", &place, &["check", "people.csv", "--locked"], 1);
    let broken = TestProject::new(&[("people.csv", PEOPLE), ("spile.toml", b"[server]\nnmae = \"x\"\n")]);
    check("compile_broken", &broken, &["compile"], 1);
    assert!(!broken.folder.join("spile.lock").exists());
}

/// Creates a git repository with one commit of all files.
fn commit_all(place: &TestProject) {
    for args in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "."],
        &["-c", "user.name=t", "-c", "user.email=t@example.test", "commit", "--quiet", "--message=one"],
        &["tag", "v1"],
    ] {
        let mut git = Command::new("git");
        // Ignore the git settings of the user.
        git.current_dir(&place.folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(git.args(args).status().expect("git is there").success(), "{args:?}");
    }
}

#[test]
fn diff_compares_with_a_git_revision() {
    let place = project();
    let path = std::env::var("PATH").expect("there are programs");
    let env = [("PATH", &*path), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CEILING_DIRECTORIES", "/")];
    let check = |name: &str, args: &[&str], code: i32| {
        let mut output = place.run_with(args, &env);
        output.command_line = args.join(" ");
        assert_eq!(output.code, Some(code), "{name}: {output}");
        insta::assert_snapshot!(name, output);
    };
    assert_eq!(place.run(&["compile"]).code, Some(0));
    commit_all(&place);
    edit_manifest(&place, "\"free\", \"ruby\"", "\"free\", \"ruby\", \"emerald\"");
    assert_eq!(place.run(&["compile"]).code, Some(0));
    for revision in ["main", "v1", "HEAD", "HEAD~0"] {
        let output = place.run_with(&["diff", "--against", revision], &env);
        assert!(
            output.stdout.contains("compatible since version 1.0.0")
                || output.stdout.contains("breaking since version 1.0.0"),
            "{output}"
        );
    }
    check("diff_revision", &["diff", "--against", "main"], 0);
    check("diff_unknown_revision", &["diff", "--against", "nowhere"], 2);
    check("diff_an_option", &["diff", "--against=--output=x"], 2);
    check("diff_a_path", &["diff", "--against", "main:people.csv"], 2);
    assert!(!place.folder.join("x").exists());
    // An existing file takes precedence over a revision.
    place.write("main", &std::fs::read(place.folder.join("spile.lock")).expect("written"));
    check("diff_file", &["diff", "--against", "main"], 0);
    place.write("old/spile.lock", b"format = 7\n");
    check("diff_bad_file", &["diff", "--against", "old/spile.lock"], 2);
}

#[test]
fn without_git_a_revision_cannot_be_asked_for() {
    let place = project();
    let path = std::env::var("PATH").expect("there are programs");
    let mut output = place.run_with(&["diff", "--against", "main"], &[("PATH", &path)]);
    output.command_line = "diff --against main".into();
    assert_eq!(output.code, Some(2), "{output}");
    insta::assert_snapshot!("diff_no_repository", output);
    let output = place.run_with(&["diff", "--against", "main"], &[("PATH", "/nowhere")]);
    assert_eq!(output.code, Some(2), "{output}");
    insta::assert_snapshot!("diff_no_git", output);
}

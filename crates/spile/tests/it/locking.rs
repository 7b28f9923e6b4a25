//! `compile`, `diff` and `check --locked`: what is promised, and what a change of it means.

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

/// Changes the manifest.
#[track_caller]
fn edit_manifest(place: &TestProject, from: &str, to: &str) {
    let file = place.folder.join("spile.toml");
    let text = std::fs::read_to_string(&file).expect("there is a manifest");
    assert!(text.contains(from), "{from} in {text}");
    place.write("spile.toml", text.replace(from, to).as_bytes());
}

/// What is said is kept in `snapshots/`.
#[track_caller]
fn check(name: &str, place: &TestProject, args: &[&str], code: i32) {
    let said = place.run(args);
    assert_eq!(said.code, Some(code), "{name}: {said}");
    insta::assert_snapshot!(name, redact_hashes(&said.to_string()));
}

/// A program is told the same by `ok` and by the exit code, and finds what is the matter under `lock`.
#[track_caller]
fn check_json(place: &TestProject, args: &[&str], is_ok: bool, severity: &str) {
    let said = place.run(args);
    let told: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!((said.code, &told["ok"]), (Some(i32::from(!is_ok)), &Value::Bool(is_ok)), "{said}");
    let findings = told["findings"].as_array().expect("a list");
    let of_lock: Vec<&Value> = findings.iter().filter(|one| one["code"] == "lock").collect();
    assert_eq!(of_lock.len(), 1, "{said}");
    assert_eq!(of_lock[0]["severity"], severity, "{said}");
}

/// What a contract without a lock is called depends on all its words.
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
fn a_contract_is_locked_and_numbered() {
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
    let said = place.run(&["check", "--locked", "--json"]);
    assert!(said.stdout.starts_with(r#"{"ok":true,"#) && !said.stdout.contains(r#""lock""#), "{said}");
    check("diff_same", &place, &["diff", "--fail-on", "any"], 0);
    check("compile_again", &place, &["compile", "spile.toml"], 0);

    // Rows are no promise, nor are the values there happen to be.
    place.write("people.csv", b"id,name,plan\n1,Ada,free\n2,Bea,ruby\n3,Cem,free\n4,Dan,free\n5,Dan,free\n6,Dan,free\n7,Dan,free\n8,Dan,free\n9,Dan,free\n");
    assert_eq!(place.run(&["check", "--locked"]).code, Some(0));
}

#[test]
fn words_are_a_patch() {
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
fn a_new_column_is_compatible_and_one_less_is_breaking() {
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
    // And it is made right.
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
fn what_has_no_manifest_has_no_lock() {
    let place = TestProject::new(&[("people.csv", PEOPLE)]);
    check("compile_without_a_manifest", &place, &["compile"], 1);
    check("diff_without_a_manifest", &place, &["diff"], 2);
    check("check_without_a_manifest", &place, &["check", "people.csv", "--locked"], 1);
    let broken = TestProject::new(&[("people.csv", PEOPLE), ("spile.toml", b"[server]\nnmae = \"x\"\n")]);
    check("compile_broken", &broken, &["compile"], 1);
    assert!(!broken.folder.join("spile.lock").exists());
}

/// A repository with a commit of everything that is there.
fn commit_all(place: &TestProject) {
    for args in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "."],
        &["-c", "user.name=t", "-c", "user.email=t@example.test", "commit", "--quiet", "--message=one"],
        &["tag", "v1"],
    ] {
        let mut git = Command::new("git");
        // Nothing of whoever runs this.
        git.current_dir(&place.folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(git.args(args).status().expect("git is there").success(), "{args:?}");
    }
}

#[test]
fn a_revision_is_compared_with() {
    let place = project();
    let path = std::env::var("PATH").expect("there are programs");
    let env = [("PATH", &*path), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CEILING_DIRECTORIES", "/")];
    let check = |name: &str, args: &[&str], code: i32| {
        let mut said = place.run_with(args, &env);
        said.command_line = args.join(" ");
        assert_eq!(said.code, Some(code), "{name}: {said}");
        insta::assert_snapshot!(name, said);
    };
    assert_eq!(place.run(&["compile"]).code, Some(0));
    commit_all(&place);
    edit_manifest(&place, "\"free\", \"ruby\"", "\"free\", \"ruby\", \"emerald\"");
    assert_eq!(place.run(&["compile"]).code, Some(0));
    for revision in ["main", "v1", "HEAD", "HEAD~0"] {
        let said = place.run_with(&["diff", "--against", revision], &env);
        assert!(
            said.stdout.contains("compatible since 1.0.0") || said.stdout.contains("breaking since 1.0.0"),
            "{said}"
        );
    }
    check("diff_revision", &["diff", "--against", "main"], 0);
    check("diff_unknown_revision", &["diff", "--against", "nowhere"], 2);
    check("diff_an_option", &["diff", "--against=--output=x"], 2);
    check("diff_a_path", &["diff", "--against", "main:people.csv"], 2);
    assert!(!place.folder.join("x").exists());
    // A file that is there is meant, whatever its name.
    place.write("main", &std::fs::read(place.folder.join("spile.lock")).expect("written"));
    check("diff_file", &["diff", "--against", "main"], 0);
    place.write("old/spile.lock", b"format = 7\n");
    check("diff_bad_file", &["diff", "--against", "old/spile.lock"], 2);
}

#[test]
fn without_git_a_revision_cannot_be_asked_for() {
    let place = project();
    let path = std::env::var("PATH").expect("there are programs");
    let mut said = place.run_with(&["diff", "--against", "main"], &[("PATH", &path)]);
    said.command_line = "diff --against main".into();
    assert_eq!(said.code, Some(2), "{said}");
    insta::assert_snapshot!("diff_no_repository", said);
    let said = place.run_with(&["diff", "--against", "main"], &[("PATH", "/nowhere")]);
    assert_eq!(said.code, Some(2), "{said}");
    insta::assert_snapshot!("diff_no_git", said);
}

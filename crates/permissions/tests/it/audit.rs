//! The audit log: what a line says, and what happens to the files when things go wrong.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use permissions::audit::reader::{AuditEntry, AuditFilter, AuditReader, Field};
use permissions::audit::settings::{LoggedArguments, OnAuditError};
use permissions::audit::{AuditLog, AuditSettings};
use permissions::hooks::Hooks;
use permissions::names::{Origin, Origins};
use permissions::{PermissionPolicy, Settings};
use proptest::prelude::{prop_assert_eq, proptest};
use spile_core::ItemKind;

use crate::harness::{
    ALLOW, Client, Gateway, TestOrigins, command_environment, gateway_without_policy, settings,
};

struct AuditOrigins;

impl Origins for AuditOrigins {
    fn origin(&self, kind: ItemKind, listed: &str) -> Option<Origin> {
        TestOrigins.origin(kind, listed)
    }

    fn upstream(&self, _: &str) -> Option<String> {
        Some("stdio".to_owned())
    }
}

/// Long enough for a slow disk; reached only if something is broken.
const LONG: Duration = Duration::from_secs(60);

fn open(path: &Path, settings: &AuditSettings, gateway: &Gateway) -> Arc<AuditLog> {
    AuditLog::open(path, settings, Arc::new(AuditOrigins), gateway.platform.clone()).expect("a log")
}

/// A gateway with permissions and audit.
fn audited(path: &Path, text: &str) -> (Gateway, Arc<AuditLog>) {
    let Settings { rules, mode, hooks, audit, .. } = settings(text);
    let gateway = gateway_without_policy();
    let hooks = Hooks::new(hooks, command_environment(&std::env::temp_dir())).expect("hooks");
    let log = open(path, &audit.unwrap_or_default(), &gateway);
    let policy = PermissionPolicy::new(rules, mode, hooks, Arc::new(TestOrigins), None);
    gateway.server.set_policy(Arc::new(policy.with_gate(log.clone())));
    gateway.add_observer(log.clone());
    (gateway, log)
}

fn lines(path: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut reader = AuditReader::new(path);
    let each = |entry: &AuditEntry| {
        lines.push(entry.text().to_owned());
        Ok(())
    };
    reader.read(each).expect("a readable log");
    assert_eq!(reader.invalid_lines(), 0);
    lines
}

#[tokio::test]
async fn a_line_says_that_and_why_another_result_was_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let (gateway, log) = audited(
        &path,
        r#"{"hooks": {"PostToolUse": [{"matcher": "*read", "hooks": [{"type": "command",
            "command": "echo '{\"hookSpecificOutput\":{\"updatedToolOutput\":\"hidden\"}}'"}]}]}}"#,
    );
    for tool in ["mcp__s__read", "mcp__s__plain"] {
        gateway.call(tool, r#"{"who":"ada"}"#, Client::Answers(&[ALLOW])).await;
    }
    assert!(log.flush(LONG));
    let lines = lines(&path);
    let said: Vec<bool> = lines
        .iter()
        .map(|line| line.contains(r#""result_replaced":true,"result_reason":"a hook replaced the result""#))
        .collect();
    let replaced: Vec<bool> = lines.iter().map(|line| line.contains("result_replaced")).collect();
    let is_read = |line: &String| line.contains(r#""target":"read""#) && line.contains(r#""outcome":"ok""#);
    assert_eq!(said, lines.iter().map(is_read).collect::<Vec<_>>(), "{lines:#?}");
    assert_eq!(replaced, said);
    assert!(said.contains(&true));
}

#[tokio::test]
async fn every_call_has_a_line_that_says_who_what_and_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let (gateway, log) = audited(
        &path,
        r#"{"permissions": {"deny": ["mcp__s__write"]},
            "hooks": {"PreToolUse": [{"matcher": "*fails", "hooks": [{"type": "command", "command": "echo no >&2; exit 2"}]}]}}"#,
    );
    let name = r#"{"action":"accept","content":{"n":"Ada"}}"#;
    for (tool, client) in [
        ("mcp__s__read", Client::CannotBeAsked),
        ("mcp__s__plain", Client::CannotBeAsked),
        ("mcp__s__delete", Client::Answers(&[ALLOW])),
        ("mcp__s__delete", Client::Answers(&[r#"{"action":"decline"}"#])),
        ("mcp__s__write", Client::CannotBeAsked),
        ("mcp__s__fails", Client::CannotBeAsked),
        ("mcp__s__asks", Client::Answers(&[name])),
        ("unknown", Client::CannotBeAsked),
    ] {
        gateway.platform.advance_ms(1_234);
        gateway.call(tool, r#"{"who":"ada"}"#, client).await;
    }
    assert!(log.flush(LONG));
    insta::assert_snapshot!(lines(&path).join("\n"));
    #[cfg(unix)]
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).expect("a file").permissions()) & 0o777,
        0o600
    );
}

#[tokio::test]
async fn arguments_are_logged_as_the_settings_say_and_secrets_never() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = r#"{"who":"ada@acme.test","api_key":"s3cret","n":7,"Email":"a@b","list":[1,2],
        "nested":{"password":"s3cret","ok":true}}"#;
    let mut report = String::new();
    for arguments_logged in LoggedArguments::ALL {
        let path = folder.path().join(arguments_logged.as_str());
        let text = format!(
            r#"{{"audit": {{"arguments": "{}", "redact": ["*email*"]}}}}"#,
            arguments_logged.as_str()
        );
        let (gateway, log) = audited(&path, &text);
        gateway.call("mcp__s__read", arguments, Client::CannotBeAsked).await;
        assert!(log.flush(LONG));
        let line = lines(&path).remove(0);
        assert!(!line.contains("s3cret"), "{line}");
        let logged = line
            .split_once(r#""arguments":"#)
            .map_or("(nothing)", |(_, logged)| logged.trim_end_matches('}'));
        report.push_str(&format!("{}: {logged}\n", arguments_logged.as_str()));
    }
    insta::assert_snapshot!(report);
}

#[tokio::test]
async fn a_line_has_the_arguments_that_ran_and_those_that_were_requested() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let (gateway, log) = audited(
        &path,
        r#"{"audit": {"arguments": "all"},
            "hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command",
                "command": "echo '{\"hookSpecificOutput\":{\"updatedInput\":{\"who\":\"bob\"}}}'"}]}]}}"#,
    );
    gateway.call("mcp__s__read", r#"{"who":"ada"}"#, Client::CannotBeAsked).await;
    assert!(log.flush(LONG));
    let line = lines(&path).remove(0);
    assert!(line.contains(r#""arguments":{"who":"bob"},"requested_arguments":{"who":"ada"}"#), "{line}");
}

#[tokio::test]
async fn a_full_file_is_rotated_and_the_oldest_is_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let settings = AuditSettings { file_bytes_max: 1000, files_max: 3, ..AuditSettings::default() };
    let gateway = gateway_without_policy();
    let log = open(&path, &settings, &gateway);
    gateway.add_observer(log.clone());
    // Follows while the log is written.
    let mut reader = AuditReader::new(&path);
    let mut followed = Vec::new();
    for _ in 0..40 {
        gateway.platform.advance_ms(1000);
        gateway.call("mcp__s__read", "{}", Client::CannotBeAsked).await;
        assert!(log.flush(LONG));
        let each = |entry: &AuditEntry| {
            followed.push(entry.text().to_owned());
            Ok(())
        };
        reader.read(each).expect("a readable log");
    }
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .expect("a folder")
        .map(|one| one.expect("a file").file_name().to_string_lossy().into())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.lock"]);
    for name in &names {
        assert!(fs::metadata(folder.path().join(name)).expect("a file").len() <= 1000, "{name}");
    }
    assert_eq!(followed.len(), 40, "a follower misses nothing");
    let kept = lines(&path);
    assert_eq!(kept, followed[40 - kept.len()..], "in the order of the calls");
    assert!(kept.is_sorted());
}

#[test]
fn a_line_that_a_crash_left_incomplete_is_removed() {
    for (before, expected) in [
        ("", ""),
        ("{\"a\":1}\n", "{\"a\":1}\n"),
        ("{\"a\":1}\n{\"time\":\"20", "{\"a\":1}\n"),
        ("{\"time", ""),
        (&format!("{{}}\n{}", "x".repeat(10_000)), "{}\n"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        fs::write(&path, before).expect("a file");
        drop(open(&path, &AuditSettings::default(), &gateway_without_policy()));
        assert_eq!(fs::read_to_string(&path).expect("a file"), expected);
    }
}

#[test]
fn two_processes_do_not_write_the_same_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let gateway = gateway_without_policy();
    let first = open(&path, &AuditSettings::default(), &gateway);
    let second =
        AuditLog::open(&path, &AuditSettings::default(), Arc::new(AuditOrigins), gateway.platform.clone());
    assert!(second.is_err_and(|error| error.to_string().contains("another process")));
    drop(first);
    drop(open(&path, &AuditSettings::default(), &gateway));
    let nowhere = folder.path().join("missing").join("audit.jsonl");
    assert!(
        AuditLog::open(&nowhere, &AuditSettings::default(), Arc::new(AuditOrigins), gateway.platform.clone())
            .is_err()
    );
}

/// A disk that is full, and later is not.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_refuses_calls_or_loses_lines_as_the_settings_say() {
    for on_error in [OnAuditError::Refuse, OnAuditError::Drop] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
        let word = if on_error == OnAuditError::Refuse { "refuse" } else { "drop" };
        let (gateway, log) = audited(&path, &format!(r#"{{"audit": {{"on_error": "{word}"}}}}"#));
        let first = gateway.call("mcp__s__read", "{}", Client::CannotBeAsked).await;
        assert!(first.contains("result of"), "nothing is known yet: {first}");
        while !log.status().is_failing {
            tokio::task::yield_now().await;
        }
        let second = gateway.call("mcp__s__read", "{}", Client::CannotBeAsked).await;
        match on_error {
            OnAuditError::Refuse => assert!(second.contains("cannot write its audit log"), "{second}"),
            OnAuditError::Drop => assert!(second.contains("result of"), "{second}"),
        }
        fs::remove_file(&path).expect("a link");
        while log.status().is_failing {
            tokio::task::yield_now().await;
        }
        assert!(log.flush(LONG));
        let third = gateway.call("mcp__s__read", "{}", Client::CannotBeAsked).await;
        assert!(third.contains("result of"), "{third}");
        assert!(log.flush(LONG));
        assert_eq!(lines(&path).len(), 3, "in order, and none is lost while the queue has room");
    }
}

#[tokio::test]
async fn a_filter_accepts_patterns() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let (gateway, log) = audited(&path, "{}");
    for tool in ["mcp__s__read", "mcp__s__plain", "mcp__s__fails"] {
        gateway.platform.advance_ms(1000);
        gateway.call(tool, "{}", Client::CannotBeAsked).await;
    }
    assert!(log.flush(LONG));
    let start = testkit::FakePlatform::START_MS;
    let find = |filter: AuditFilter| {
        let mut found = Vec::new();
        let each = |entry: &AuditEntry| {
            if filter.matches(entry) {
                found.push(entry.str("target").expect("a target").into_owned());
            }
            Ok(())
        };
        AuditReader::new(&path).read(each).expect("a readable log");
        found
    };
    assert_eq!(find(AuditFilter::default()), ["read", "plain", "fails"]);
    assert_eq!(find(AuditFilter::default().with(Field::Target, "*a*")), ["read", "plain", "fails"]);
    assert_eq!(find(AuditFilter::default().with(Field::Outcome, "refused")), ["plain"]);
    assert_eq!(
        find(AuditFilter::default().with(Field::Outcome, "error").with(Field::Server, "s")),
        ["fails"]
    );
    assert_eq!(
        find(AuditFilter::default().with(Field::Principal, "ad*").since(start + 2000)),
        ["plain", "fails"]
    );
    assert!(find(AuditFilter::default().with(Field::Server, "other")).is_empty());
    assert_eq!(AuditReader::new(&folder.path().join("none")).read(|_| Ok(())).ok(), Some(false));
}

proptest! {
    /// Whatever stands in a file, reading it neither fails nor loses the lines behind it.
    #[test]
    fn a_damaged_file_does_not_hide_its_other_lines(damage in "[ -~\u{e9}\u{0}]{0,60}") {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let entry = r#"{"time":"2026-07-28T00:00:00.000Z","event":"tool.call"}"#;
        fs::write(&path, format!("{entry}\n{damage}\n{entry}\n")).expect("a file");
        let mut found = 0;
        AuditReader::new(&path).read(|_| { found += 1; Ok(()) }).expect("a readable log");
        prop_assert_eq!(found, 2);
    }
}

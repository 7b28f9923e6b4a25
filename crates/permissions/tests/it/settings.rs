//! The settings: what they mean, and every way to get them wrong.

use contract::diagnostic::render_all;
use permissions::Settings;
use permissions::audit::settings::{AuditSettings, LoggedArguments, OnAuditError};
use permissions::hooks::{Hook, HookEvent, OnHookError};
use permissions::modes::Mode;

use crate::harness::settings;

#[test]
fn a_file_without_settings_has_the_defaults() {
    for text in ["", "{}", "// nothing\n{\"mcpServers\": {}}", "{\"permissions\": null, \"audit\": null}"] {
        let settings = settings(text);
        assert_eq!(settings.mode, Mode::Default);
        assert!(settings.hooks.is_empty() && settings.audit.is_none() && !settings.rules.hides_anything());
    }
}

#[test]
fn a_whole_file() {
    let settings = settings(
        r#"{
            "mcpServers": {"github": {"command": "x"}},
            // Comments and trailing commas are fine.
            "permissions": {"defaultMode": "dontAsk", "allow": ["mcp__github__get_*"], "deny": ["mcp__jira"],},
            "hooks": {
                "matchers": "claude-code",
                "PreToolUse": [
                    {"matcher": "mcp__github__.*", "hooks": [
                        {"type": "command", "command": "./check.sh", "timeout": 5, "on_error": "allow"},
                        {"type": "http", "url": "https://hooks.test/pre", "headers": {"X-Key": "${KEY}"},
                         "allowedEnvVars": ["KEY"], "if": "mcp__github__create_issue(repo:acme/*)"}
                    ]}
                ],
                "PostToolUse": [{"hooks": [{"type": "command", "command": "log", "args": ["a b", ""]}]}]
            },
            "audit": {"path": "audit.jsonl", "arguments": "redacted", "redact": ["*email*"], "files_max": 3,
                      "file_bytes_max": 65536, "on_error": "drop"}
        }"#,
    );
    assert_eq!(settings.mode, Mode::DontAsk);
    let hooks: Vec<_> =
        settings.hooks.iter().map(|hook| (hook.event, hook.timeout_ms, hook.on_error)).collect();
    assert_eq!(
        hooks,
        [
            (HookEvent::PreToolUse, 5000, OnHookError::Allow),
            (HookEvent::PreToolUse, Hook::TIMEOUT_MS_DEFAULT, OnHookError::Deny),
            (HookEvent::PostToolUse, Hook::TIMEOUT_MS_DEFAULT, OnHookError::Allow),
        ]
    );
    let audit = AuditSettings {
        path: Some("audit.jsonl".into()),
        arguments: LoggedArguments::Redacted,
        redact: vec!["*email*".into()],
        file_bytes_max: 65536,
        files_max: 3,
        on_error: OnAuditError::Drop,
    };
    assert_eq!(settings.audit, Some(audit));
    assert_eq!(self::settings(r#"{"audit": {}}"#).audit, Some(AuditSettings::default()));
}

#[test]
fn all_problems_are_reported_at_once_with_their_places() {
    let text = r#"{
  // A comment moves nothing.
  "permissions": {
    "mode": "yolo", "defaultMode": 7,
    "allow": ["mcp__*", "mcp__a__b(x:y)", 3],
    "ask": "mcp__a",
    "deny": ["", "mcp__a b", "mcp__a__b(x"],
    "additionalDirectories": [],
    "alow": []
  },
  "hooks": {
    "matchers": "regex",
    "SessionStart": [],
    "PreToolUse": [
      {"matcher": "mcp__a(", "hooks": []},
      {"matcher": "/(/", "hooks": []},
      {"matcher": 3, "hooks": {}},
      {"matcher": "*"},
      {"matchers": "*", "hooks": [
        {"command": "x"},
        {"type": "command"},
        {"type": "http", "url": "ftp://a"},
        {"type": "http"},
        {"type": "prompt", "prompt": "?"},
        {"type": "command", "command": "x", "timeout": 0, "on_error": "ignore", "async": true},
        {"type": "command", "command": "x", "args": [1], "if": "mcp__", "headers": []},
        "x"
      ]}
    ]
  },
  "audit": {"arguments": "some", "file_bytes_max": 1, "files_max": 1, "on_error": "stop", "redact": [1], "file": "x"}
}"#;
    let problems = Settings::parse("gateway.json", text).expect_err("invalid");
    insta::assert_snapshot!(render_all(&problems, false));
}

#[test]
fn a_file_that_is_not_json_says_where() {
    let mut report = String::new();
    for text in [
        "{",
        "[]",
        "{\"a\": 1,\n \"permissions\": {,}}",
        "{\n\"a\": 1,\n\"a\": 2}",
        "{\n\n/* x",
        "{\"permissions\": []}",
    ] {
        let problems = Settings::parse("gateway.json", text).expect_err(text);
        report.push_str(&render_all(&problems, false));
        report.push('\n');
    }
    insta::assert_snapshot!(report);
}

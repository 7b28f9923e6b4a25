//! Servers of a project need an approval of exactly what they would do.

use servers::config::Configuration;
use servers::decisions::{DecisionFile, Decisions, Permission};

use crate::harness::User;

const STDIO: &str = r#"{"command": "npx", "args": ["-y", "server"], "env": {"A": "1"}}"#;

fn project(entry: &str) -> (User, Configuration) {
    let user = User::new(&[]);
    set(&user, entry);
    let configuration = user.load();
    (user, configuration)
}

fn set(user: &User, entry: &str) {
    user.write("project/.mcp.json", &format!(r#"{{"mcpServers": {{"s": {entry}}}}}"#));
}

fn permission(decisions: &Decisions, configuration: &Configuration) -> Permission {
    decisions.permission(&configuration.servers[0])
}

#[test]
fn a_server_of_a_project_needs_an_approval() {
    let (_, configuration) = project(STDIO);
    let mut decisions = Decisions::default();
    assert_eq!(permission(&decisions, &configuration), Permission::NeedsApproval);
    decisions.approve(&configuration.servers[0]);
    assert_eq!(permission(&decisions, &configuration), Permission::Allowed);
}

#[test]
fn a_file_of_the_user_needs_none_and_a_local_file_of_the_project_does() {
    let user = User::new(&[
        ("home/.config/spile/servers.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#),
        ("project/.claude/settings.local.json", r#"{"mcpServers": {"b": {"command": "x"}}}"#),
    ]);
    let configuration = user.load();
    let decisions = Decisions::default();
    let found: Vec<Permission> =
        configuration.servers.iter().map(|server| decisions.permission(server)).collect();
    assert_eq!(found, [Permission::Allowed, Permission::NeedsApproval]);
}

#[test]
fn any_change_of_what_would_happen_ends_an_approval() {
    for (before, changes) in [
        (
            STDIO,
            &[
                r#"{"command": "npm", "args": ["-y", "server"], "env": {"A": "1"}}"#,
                r#"{"command": "npx", "args": ["-y server"], "env": {"A": "1"}}"#,
                r#"{"command": "npx", "args": ["-y", "server", "x"], "env": {"A": "1"}}"#,
                r#"{"command": "npx", "args": ["-y", "server"], "env": {"A": "2"}}"#,
                r#"{"command": "npx", "args": ["-y", "server"], "env": {"B": "1"}}"#,
                r#"{"command": "npx", "args": ["-y", "server"], "env": {"A": "1", "LD_PRELOAD": "x"}}"#,
                r#"{"command": "npx", "args": ["-y", "server"], "env": {"A": "1"}, "cwd": "/"}"#,
                r#"{"command": "npx", "args": ["-y", "server", "A"], "env": {}}"#,
                r#"{"type": "http", "url": "https://a"}"#,
            ][..],
        ),
        (
            r#"{"type": "http", "url": "https://a", "headers": {"X": "1"}}"#,
            &[
                r#"{"type": "http", "url": "https://b", "headers": {"X": "1"}}"#,
                r#"{"type": "sse", "url": "https://a", "headers": {"X": "1"}}"#,
                // A secret of the user would leave the machine.
                r#"{"type": "http", "url": "https://a", "headers": {"X": "${AWS_SECRET_ACCESS_KEY}"}}"#,
                r#"{"type": "http", "url": "https://a", "headers": {"X": "1"}, "oauth": {"clientId": "x"}}"#,
            ],
        ),
    ] {
        for change in changes {
            let (user, configuration) = project(before);
            let mut decisions = Decisions::default();
            decisions.approve(&configuration.servers[0]);
            set(&user, change);
            assert_eq!(permission(&decisions, &user.load()), Permission::Changed, "{change}");
        }
    }
}

#[test]
fn layout_and_limits_do_not_end_an_approval() {
    let (user, configuration) = project(STDIO);
    let mut decisions = Decisions::default();
    decisions.approve(&configuration.servers[0]);
    set(
        &user,
        r#"{ "timeout": 5000, "args": ["-y", "server"], // faster
             "command": "npx", "type": "stdio", "env": {"A": "1"} }"#,
    );
    assert_eq!(permission(&decisions, &user.load()), Permission::Allowed);
}

#[test]
fn an_approval_is_for_one_project_and_one_name() {
    let (user, configuration) = project(STDIO);
    let mut decisions = Decisions::default();
    decisions.approve(&configuration.servers[0]);
    user.write("project/.mcp.json", &format!(r#"{{"mcpServers": {{"other": {STDIO}}}}}"#));
    assert_eq!(permission(&decisions, &user.load()), Permission::NeedsApproval);
    set(&user, STDIO);
    user.write("project/below/.mcp.json", &format!(r#"{{"mcpServers": {{"s": {STDIO}}}}}"#));
    assert_eq!(permission(&decisions, &user.load()), Permission::NeedsApproval);
}

#[test]
fn only_the_newest_approval_of_a_name_counts() {
    let (user, before) = project(STDIO);
    let mut decisions = Decisions::default();
    decisions.approve(&before.servers[0]);
    set(&user, r#"{"command": "other"}"#);
    let after = user.load();
    decisions.approve(&after.servers[0]);
    assert_eq!(permission(&decisions, &after), Permission::Allowed);
    assert_eq!(permission(&decisions, &before), Permission::Changed);
}

#[test]
fn a_disabled_server_stays_disabled_until_it_is_enabled() {
    let (_, configuration) = project(STDIO);
    let mut decisions = Decisions::default();
    decisions.approve(&configuration.servers[0]);
    decisions.disable(&configuration.servers[0]);
    assert_eq!(permission(&decisions, &configuration), Permission::Disabled);
    decisions.enable(&configuration.servers[0]);
    assert_eq!(permission(&decisions, &configuration), Permission::Allowed);
    let (_, configuration) = project(r#"{"command": "x", "disabled": true}"#);
    assert_eq!(permission(&decisions, &configuration), Permission::DisabledInFile);
    let (_, configuration) = project("{}");
    decisions.approve(&configuration.servers[0]);
    assert_eq!(permission(&decisions, &configuration), Permission::Invalid);
}

#[test]
fn decisions_are_kept_for_this_user_only() {
    let (user, configuration) = project(STDIO);
    let path = user.path("home/state/spile/server-decisions.json");
    let file = DecisionFile::new(path.clone());
    assert_eq!(file.load().expect("no file is no decision"), Decisions::default());
    file.update(|decisions| decisions.approve(&configuration.servers[0])).expect("it can be written");
    file.update(|decisions| decisions.disable(&configuration.servers[0])).expect("it can be written");
    let loaded = DecisionFile::new(path.clone()).load().expect("it can be read");
    assert_eq!(permission(&loaded, &configuration), Permission::Disabled);
    file.update(|decisions| decisions.enable(&configuration.servers[0])).expect("it can be written");
    assert_eq!(permission(&file.load().expect("readable"), &configuration), Permission::Allowed);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).expect("exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_damaged_file_approves_nothing() {
    let user = User::new(&[]);
    for text in ["{", "[]", "{}", r#"{"approved": {"x": 1}, "disabled": []}"#] {
        user.write("decisions.json", text);
        let error = DecisionFile::new(user.path("decisions.json")).load().unwrap_err();
        assert!(error.to_string().contains("is damaged; delete it"), "{text}: {error}");
    }
}

#[test]
fn concurrent_updates_are_all_kept() {
    let user = User::new(&[]);
    let entries: Vec<String> = (0..16).map(|n| format!(r#""s{n}": {STDIO}"#)).collect();
    user.write("project/.mcp.json", &format!(r#"{{"mcpServers": {{{}}}}}"#, entries.join(",")));
    let configuration = user.load();
    let path = user.path("home/decisions.json");
    std::thread::scope(|scope| {
        for server in &configuration.servers {
            let path = path.clone();
            scope.spawn(move || {
                DecisionFile::new(path).update(|decisions| decisions.approve(server)).expect("written");
            });
        }
    });
    let decisions = DecisionFile::new(path).load().expect("readable");
    let allowed = configuration
        .servers
        .iter()
        .filter(|server| decisions.permission(server) == Permission::Allowed)
        .count();
    assert_eq!(allowed, 16);
}

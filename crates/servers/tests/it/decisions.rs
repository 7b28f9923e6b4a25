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
                r#"{"command": "npx", "args": ["-y", "server"], "env": {"A": "1"}, "roots": ["/"]}"#,
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

/// A project of Cursor whose server gets its variables from a file.
fn project_with_env_file(path: &str) -> (User, Configuration) {
    let entry = format!(r#"{{"mcpServers": {{"s": {{"command": "x", "envFile": "{path}"}}}}}}"#);
    let user = User::new(&[
        ("home/.config/spile/servers.json", r#"{"import": ["cursor"]}"#),
        ("project/.cursor/mcp.json", &entry),
        ("project/.env", "LEVEL=1\n"),
    ]);
    let configuration = user.load();
    (user, configuration)
}

#[test]
fn an_approval_covers_the_content_of_the_file_with_variables() {
    for path in [".env", "${workspaceFolder}/.env"] {
        let (user, approved) = project_with_env_file(path);
        let mut decisions = Decisions::default();
        decisions.approve(&approved.servers[0]);
        assert_eq!(permission(&decisions, &user.load()), Permission::Allowed, "{path}");
        let start = |configuration: &Configuration| {
            configuration.servers[0].resolve(&|_| None, None).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(start(&approved), Ok(()), "{path}");
        user.write("project/.env", "LEVEL=1\nLD_PRELOAD=./evil.so\n");
        assert_eq!(permission(&decisions, &user.load()), Permission::Changed, "{path}");
        // The file changed after the settings were read: what was approved is not what would be started.
        let error = start(&approved).expect_err("it changed");
        assert!(error.contains("has changed"), "{error}");
        std::fs::remove_file(user.path("project/.env")).expect("it is there");
        assert_eq!(permission(&decisions, &user.load()), Permission::Changed, "{path}");
        user.write("project/.env", "LEVEL=1\n");
        assert_eq!(permission(&decisions, &user.load()), Permission::Allowed, "{path}");
    }
}

#[test]
fn a_file_with_variables_at_a_variable_place_cannot_be_approved() {
    let (_, configuration) = project_with_env_file("${env:WHERE}/.env");
    let error = configuration.servers[0].resolve(&|_| Some("/tmp".to_owned()), None).map(drop);
    let error = error.expect_err("it is refused").to_string();
    assert!(error.contains("environment variables"), "{error}");
}

#[test]
fn a_file_with_variables_of_the_user_may_change() {
    let user = User::new(&[
        (
            "home/.config/spile/servers.json",
            r#"{"mcpServers": {"s": {"command": "x", "envFile": "ROOT/home/.env"}}}"#,
        ),
        ("home/.env", "A=1\n"),
    ]);
    let configuration = user.load();
    user.write("home/.env", "A=2\n");
    assert_eq!(permission(&Decisions::default(), &configuration), Permission::Allowed);
    assert!(configuration.servers[0].resolve(&|_| None, None).is_ok());
}

#[test]
fn a_retry_is_remembered_and_decides_nothing_else() {
    let (user, configuration) = project(STDIO);
    let server = &configuration.servers[0];
    let file = DecisionFile::new(user.path("home/state/decisions.json"));
    assert_eq!(file.load().expect("no file").retries(server), 0);
    for count in 1..=2 {
        file.update(|decisions| decisions.retry(server)).expect("it is written");
        let decisions = file.load().expect("it is read");
        assert_eq!(
            (decisions.retries(server), decisions.permission(server)),
            (count, Permission::NeedsApproval)
        );
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

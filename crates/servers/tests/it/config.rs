//! Which file wins, and what its servers become when they start.

use servers::config::Trust;
use servers::decisions::{Decisions, Permission};

use crate::harness::{User, resolve};

const CLAUDE: &str = r#"{
  "mcpServers": {"both": {"command": "user"}, "user": {"command": "user"}},
  "projects": {"ROOT/project": {"mcpServers": {"both": {"command": "local"}, "local": {"command": "local"}}}}
}"#;

#[test]
fn the_whole_entry_of_the_highest_layer_wins() {
    let user = User::new(&[
        ("home/.claude.json", CLAUDE),
        (
            "project/.mcp.json",
            r#"{"mcpServers": {
              "both": {"command": "project", "args": ["never", "mixed"], "env": {"A": "1"}},
              "project": {"type": "http", "url": "https://a/mcp"}
            }}"#,
        ),
        (
            "project/.claude/settings.json",
            r#"{"mcpServers": {"settings": {"command": "s"}, "project": {"command": "x"}}}"#,
        ),
        ("project/.claude/settings.local.json", r#"{"mcpServers": {"mine": {"command": "m"}}}"#),
        (
            "home/.claude/settings.json",
            r#"{"mcpServers": {"old": {"command": "o"}, "user": {"command": "x"}}}"#,
        ),
        ("home/.config/spile/servers.json", r#"{"mcpServers": {"own": {"url": "https://b"}}}"#),
        ("run.json", r#"{"mcpServers": {"run": {"command": "r"}, "both": {"command": "run"}}}"#),
    ]);
    insta::assert_snapshot!(user.show(&user.load()));
    insta::assert_snapshot!("with_a_file_for_this_run", user.show(&user.load_with(&["run.json"])));
}

/// The servers that may not be connected to, each with the file that says so.
#[track_caller]
fn check_disabled(files: &[(&str, &str)], expected: &[(&str, &str)]) {
    let mut all = vec![
        ("project/.mcp.json", r#"{"mcpServers": {"shared": {"command": "a"}, "other": {"command": "a"}}}"#),
        (
            "home/.config/spile/servers.json",
            r#"{"mcpServers": {"own": {"command": "a"}}, "import": ["cursor"]}"#,
        ),
        ("home/.cursor/mcp.json", r#"{"mcpServers": {"cursor": {"command": "a"}}}"#),
        (
            "home/.claude/settings.json",
            r#"{"mcpServers": {"settings": {"command": "a"}}, "enableAllProjectMcpServers": true}"#,
        ),
        ("home/.claude.json", r#"{"mcpServers": {"mine": {"command": "a"}}}"#),
    ];
    all.retain(|(path, _)| files.iter().all(|(other, _)| other != path));
    all.extend(files);
    let user = User::new(&all);
    let configuration = user.load();
    assert_eq!(configuration.problems, []);
    let disabled: Vec<(String, String)> = configuration
        .servers
        .iter()
        .filter_map(|server| {
            let file = server.disabled_in.as_ref()?;
            assert_eq!(Decisions::default().permission(server), Permission::DisabledInFile);
            Some((server.name.clone(), user.normalize(&file.display().to_string())))
        })
        .collect();
    let disabled: Vec<(&str, &str)> = disabled.iter().map(|(name, file)| (&**name, &**file)).collect();
    assert_eq!(disabled, expected, "{files:?}");
    // What Claude Code enables waits for our own approval.
    let undecided = configuration.servers.iter().filter(|server| server.source.trust == Trust::Project);
    for server in undecided.filter(|server| server.disabled_in.is_none()) {
        assert_eq!(Decisions::default().permission(server), Permission::NeedsApproval, "{}", server.name);
    }
}

#[test]
fn servers_that_the_user_disabled_in_claude_code_stay_so() {
    const ALL: &str = r#"["shared", "own", "cursor", "settings", "mine", "nobody", 7]"#;
    let toggled = |folder: &str, key: &str| {
        format!(
            r#"{{"mcpServers": {{"mine": {{"command": "a"}}}}, "projects": {{"{folder}": {{"{key}": {ALL}}}}}}}"#
        )
    };
    let claude = "home/.claude.json";
    let file = "/home/.claude.json";
    check_disabled(&[], &[]);
    // The menu of Claude Code: servers of every scope of its own.
    check_disabled(
        &[(claude, &toggled("ROOT/project", "disabledMcpServers"))],
        &[("mine", file), ("settings", file), ("shared", file)],
    );
    check_disabled(&[(claude, &toggled("ROOT/elsewhere", "disabledMcpServers"))], &[]);
    check_disabled(&[(claude, &toggled("ROOT/project", "disabledMcpjsonServers"))], &[("shared", file)]);
    let rejected =
        format!(r#"{{"disabledMcpjsonServers": {ALL}, "enabledMcpjsonServers": ["shared", "other"]}}"#);
    for path in ["project/.claude/settings.json", "project/.claude/settings.local.json"] {
        check_disabled(&[(path, &rejected)], &[("shared", &format!("/{path}"))]);
    }
    check_disabled(
        &[("home/.claude/settings.json", &rejected)],
        &[("shared", "/home/.claude/settings.json")],
    );
    // A file named `.mcp.json` is none with settings.
    check_disabled(
        &[(
            "project/.mcp.json",
            r#"{"mcpServers": {"shared": {"command": "a"}}, "disabledMcpjsonServers": ["shared"]}"#,
        )],
        &[],
    );
    check_disabled(&[("project/.claude/settings.json", r#"{"disabledMcpjsonServers": "shared"}"#)], &[]);
}

#[test]
fn the_nearest_project_file_is_read() {
    let user = User::new(&[
        (".mcp.json", r#"{"mcpServers": {"far": {"command": "a"}}}"#),
        ("project/.mcp.json", r#"{"mcpServers": {"near": {"command": "a"}}}"#),
    ]);
    assert_eq!(user.show(&user.load()), "near · project /project/.mcp.json\n  stdio \"a\" []\n");
}

#[test]
fn other_clients_are_read_once_they_are_imported() {
    let files = [
        ("home/.cursor/mcp.json", r#"{"mcpServers": {"cursor": {"command": "a"}}}"#),
        ("project/.cursor/mcp.json", r#"{"mcpServers": {"cursor": {"command": "p"}}}"#),
        (
            "home/.config/Claude/claude_desktop_config.json",
            r#"{"mcpServers": {"desktop": {"command": "a"}}}"#,
        ),
        ("home/.config/Code/User/mcp.json", r#"{"servers": {"code": {"command": "a"}}}"#),
        ("project/.vscode/mcp.json", r#"{"servers": {"code-project": {"command": "a"}}}"#),
        ("home/.codex/config.toml", "[mcp_servers.codex]\ncommand = 'a'\n"),
        ("project/.codex/config.toml", "[mcp_servers.codex-project]\ncommand = 'a'\n"),
    ];
    let user = User::new(&files);
    assert_eq!(user.show(&user.load()), "");
    user.write(
        "home/.config/spile/servers.json",
        r#"{"import": ["codex", "vscode", "cursor", "claude-desktop", "unknown"]}"#,
    );
    insta::assert_snapshot!(user.show(&user.load()));
}

#[test]
fn problems_name_the_file_and_the_server() {
    let user = User::new(&[
        ("home/.claude.json", "{ not json"),
        ("project/.mcp.json", r#"{"mcpServers": {"a-b": {"command": "x"}, "bad": {"url": "https://a"}}}"#),
        (
            "home/.config/spile/servers.json",
            r#"{"mcpServers": {"a.b": {"command": "y"}, "bad": {"command": "z"}}}"#,
        ),
    ]);
    insta::assert_snapshot!(user.show(&user.load()));
}

#[test]
fn a_file_for_this_run_must_exist() {
    let user = User::new(&[]);
    let error = user.places().load(&[user.path("none.json")]).unwrap_err();
    assert_eq!(user.normalize(&error.to_string()), "`/none.json` not found");
}

#[test]
fn a_relative_file_for_this_run_is_known_by_its_whole_path() {
    let user = User::new(&[("project/below/servers.json", r#"{"mcpServers": {"s": {"command": "x"}}}"#)]);
    let configuration = user.places().load(&["servers.json".into()]);
    // The tests run elsewhere: it is found from the folder of the user.
    let configuration = configuration.expect("it is found");
    let source = &configuration.servers[0].source;
    assert_eq!(source.path, user.path("project/below/servers.json"));
    assert_eq!(source.folder, Some(user.path("project/below")));
}

#[test]
fn a_settings_folder_at_home_belongs_to_the_user() {
    let user = User::new(&[("home/.claude/settings.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#)]);
    let mut places = user.places();
    places.current_dir = user.path("home");
    let configuration = places.load(&[]).expect("no file was named");
    assert_eq!(user.show(&configuration), "a · user /home/.claude/settings.json\n  stdio \"x\" []\n");
}

#[test]
fn variables_are_replaced_when_a_server_starts() {
    let user = User::new(&[
        (
            "project/.mcp.json",
            r#"{"mcpServers": {
              "local": {"command": "${BIN:-node}", "args": ["${HERE}"], "env": {"T": "${TOKEN}"}},
              "remote": {"type": "http", "url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
              "socket": {"type": "ws", "url": "https://a/ws"},
              "wrong": {"type": "sse", "url": "ws://a"},
              "line": {"type": "http", "url": "https://a", "headers": {"X": "a\u0001b"}},
              "empty": {"command": "${EMPTY}"}
            }}"#,
        ),
        (
            "project/.cursor/mcp.json",
            r#"{"mcpServers": {
            "cursor": {"command": "${workspaceFolder}/run", "args": ["${userHome}", "${input:key}"], "envFile": ".env"},
            "no-file": {"command": "a", "envFile": "none.env"}
        }}"#,
        ),
        ("project/.env", "A=1\nexport B='two'\n"),
        ("home/.config/spile/servers.json", r#"{"import": ["cursor", "codex"]}"#),
        (
            "home/.codex/config.toml",
            "[mcp_servers.codex]\nurl = 'https://c'\nbearer_token_env_var = 'TOKEN'\n\
            env_http_headers = { A = 'HERE', B = 'UNSET' }\n[mcp_servers.inherits]\ncommand = 'x'\n\
            env_vars = ['TOKEN', 'UNSET']\n",
        ),
    ]);
    let env = [
        ("TOKEN", "s3cret\n"),
        ("HERE", "x y"),
        ("HOST", "example.com"),
        ("EMPTY", " "),
        ("SPILE_INPUT_KEY", "typed"),
    ];
    let configuration = user.load();
    let shown: Vec<String> = configuration
        .servers
        .iter()
        .map(|server| {
            let resolved = resolve(server, &env, &user.path("home"));
            format!("{}: {}", server.name, resolved.unwrap_or_else(|error| format!("error: {error}")))
        })
        .collect();
    insta::assert_snapshot!(user.normalize(&shown.join("\n")));
}

#[test]
fn a_variable_that_is_not_set_stops_the_server_and_names_the_field() {
    let user = User::new(&[(
        "project/.mcp.json",
        r#"{"mcpServers": {"a": {"command": "x", "env": {"T": "${TOKEN}"}}}}"#,
    )]);
    let configuration = user.load();
    let error = resolve(&configuration.servers[0], &[], &user.path("home")).unwrap_err();
    assert_eq!(
        error,
        "env.T: the environment variable `TOKEN` is not set; set it, or write `${TOKEN:-default}`"
    );
}

#[test]
fn roots_start_at_the_folder_of_the_project_or_of_the_named_file() {
    let user = User::new(&[("home/.config/spile/servers.json", r#"{"import": ["cursor"]}"#)]);
    let env = |name: &str| (name == "WORK").then(|| "/work".to_owned());
    let check = |file: &str, root: &str, expected: &str| {
        user.write(file, &format!(r#"{{"mcpServers": {{"s": {{"command": "x", "roots": ["{root}"]}}}}}}"#));
        let run_files = if file == "project/run.json" { &[file][..] } else { &[] };
        let server = user.load_with(run_files).servers.remove(0);
        let roots = server.entry.as_ref().expect("valid").roots.clone().expect("it has roots");
        let shown = match server.resolve_roots(&roots, &env, None) {
            Ok(roots) => roots.iter().map(|root| root.uri.clone()).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        assert_eq!(user.normalize(&shown), expected, "{file} {root}");
        std::fs::remove_file(user.path(file)).expect("it is there");
    };
    check("project/.mcp.json", "src", "file:///project/src");
    check("project/.mcp.json", "${WORK}/a b", "file:///work/a%20b");
    check("project/.mcp.json", "file:///srv/x", "file:///srv/x");
    check(
        "project/.mcp.json",
        "file://host/x",
        "roots: `file://host/x` is not an absolute path or a `file:` URI",
    );
    check(
        "project/.mcp.json",
        "${NOTHING}",
        "roots[0]: the environment variable `NOTHING` is not set; set it, or write `${NOTHING:-default}`",
    );
    check("project/.cursor/mcp.json", "${workspaceFolder}/src", "file:///project/src");
    check("project/run.json", ".", "file:///project");
    check("home/.config/spile/servers.json", "src", "roots: `src` is not an absolute path or a `file:` URI");
}

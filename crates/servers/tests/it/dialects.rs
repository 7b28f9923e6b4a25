//! Each client's settings, read by its own rules.

use servers::config::{Dialect, Section};

use crate::harness::describe;

/// Every server of a file in one line each, or why the file cannot be read.
#[track_caller]
fn check(dialect: Dialect, text: &str, expected: &str) {
    check_section(dialect, text, Section::Top, expected);
}

#[track_caller]
fn check_section(dialect: Dialect, text: &str, section: Section<'_>, expected: &str) {
    let found = match dialect.parse(text, section) {
        Err(error) => error.to_string(),
        Ok(servers) => {
            let line = |server: &servers::config::ParsedServer| match &server.entry {
                Ok(entry) => format!("{}: {}", server.name, describe(entry)),
                Err(error) => format!("{}: error: {error}", server.name),
            };
            servers.iter().map(line).collect::<Vec<_>>().join("\n")
        }
    };
    assert_eq!(found, expected, "{text}");
}

/// The entries of a file whose servers are `s`, each with its one line.
#[track_caller]
fn check_entries(dialect: Dialect, cases: &[(&str, &str)]) {
    let key = if dialect == Dialect::VsCode { "servers" } else { "mcpServers" };
    for (entry, expected) in cases {
        check(dialect, &format!("{{\"{key}\": {{\"s\": {entry}}}}}"), &format!("s: {expected}"));
    }
}

#[test]
fn the_example_of_the_documentation_is_read() {
    let text = r#"{
      "mcpServers": {
        "github": {
          "command": "npx",
          "args": ["-y", "@modelcontextprotocol/server-github"],
          "env": { "GITHUB_TOKEN": "${GITHUB_TOKEN}" }
        }
      }
    }"#;
    let expected = r#"github: stdio "npx" ["-y", "@modelcontextprotocol/server-github"] env=["GITHUB_TOKEN=${GITHUB_TOKEN}"]"#;
    for dialect in [Dialect::ClaudeCode, Dialect::ClaudeDesktop, Dialect::Cursor, Dialect::Spile] {
        check(dialect, text, expected);
    }
}

#[test]
fn claude_code_entries() {
    check_entries(
        Dialect::ClaudeCode,
        &[
            (r#"{"type": "stdio", "command": "a"}"#, r#"stdio "a" []"#),
            (
                r#"{"type": "http", "url": "https://a/mcp", "headers": {"X-Key": "${KEY:-none}"}}"#,
                r#"http https://a/mcp headers=["X-Key: ${KEY:-none}"]"#,
            ),
            (r#"{"type": "streamable-http", "url": "https://a"}"#, "http https://a"),
            (r#"{"type": "sse", "url": "https://a/sse"}"#, "sse https://a/sse"),
            (r#"{"type": "ws", "url": "ws://a"}"#, "ws ws://a"),
            (
                r#"{"type": "http", "url": "https://a", "timeout": 600000, "alwaysLoad": true}"#,
                r#"http https://a call=["600000 ms"]"#,
            ),
            (
                r#"{"type": "http", "url": "https://a", "oauth": {"clientId": "c", "callbackPort": 8080,
                    "scopes": "read write", "authServerMetadataUrl": "https://b/meta"}}"#,
                r#"http https://a client id=["c"] callback=["8080"] scopes=["read", "write"] metadata=["https://b/meta"]"#,
            ),
        ],
    );
}

#[test]
fn claude_code_entries_that_cannot_be_used() {
    check_entries(
        Dialect::ClaudeCode,
        &[
            ("7", "error: the entry is not an object"),
            ("{}", "error: it has neither `command` nor `url`"),
            (
                r#"{"comand": "a"}"#,
                "error: it has neither `command` nor `url`; did you misspell it as `comand`?",
            ),
            (
                r#"{"type": "http", "URL": "https://a"}"#,
                "error: `url` is missing; did you misspell it as `URL`?",
            ),
            (
                r#"{"url": "https://a"}"#,
                r#"error: it has a `url` and no `type`; write "type": "http" (or "sse", "ws")"#,
            ),
            (r#"{"type": "http", "url": ""}"#, "error: `url` is missing"),
            (r#"{"type": "http", "command": "a"}"#, "error: the type `http` needs a `url`, not a `command`"),
            (r#"{"type": "stdio", "url": "https://a"}"#, "error: `command` is missing"),
            (
                r#"{"type": "carrier-pigeon", "url": "https://a"}"#,
                "error: unknown type `carrier-pigeon`; supported: stdio, http, sse, ws",
            ),
            (r#"{"command": "a", "url": "https://a"}"#, "error: it has both `command` and `url`; remove one"),
            (r#"{"command": ["a", "b"]}"#, "error: `command` is not a text"),
            (r#"{"command": "a", "args": "b"}"#, "error: `args` is not a list of texts"),
            (r#"{"command": "a", "args": [1]}"#, "error: `args` is not a list of texts"),
            (r#"{"command": "a", "env": ["B=1"]}"#, "error: `env` is not an object of texts"),
            (r#"{"command": "a", "env": {"B": {}}}"#, "error: `env.B` is not a text"),
            (r#"{"command": "a", "timeout": "1 s"}"#, "error: `timeout` is not a positive number"),
            (
                r#"{"command": "a", "definitions": "ignore"}"#,
                "error: unknown value `ignore` of `definitions`; supported: suspend, warn",
            ),
            (r#"{"command": "a", "timeout": 0}"#, "error: `timeout` is not a positive number"),
            (r#"{"command": "a", "disabled": "yes"}"#, "error: `disabled` is not true or false"),
            (
                r#"{"type": "http", "url": "https://a", "headersHelper": "x.sh"}"#,
                "error: `headersHelper` is not supported; write `headers` with ${VARIABLE}, or sign in with OAuth",
            ),
            (
                r#"{"type": "http", "url": "https://a", "oauth": {"callbackPort": 70000}}"#,
                "error: `callbackPort` is not a port",
            ),
        ],
    );
}

#[test]
fn a_bad_entry_does_not_hide_the_others() {
    check(
        Dialect::ClaudeCode,
        r#"{"mcpServers": {"a": {"url": "https://a"}, "b": {"command": "b"}, "": {"command": "c"}}}"#,
        "a: error: it has a `url` and no `type`; write \"type\": \"http\" (or \"sse\", \"ws\")\n\
         b: stdio \"b\" []\n\
         : error: the name is empty",
    );
}

#[test]
fn a_file_that_cannot_be_read_says_where() {
    for (text, expected) in [
        ("", ""),
        ("{}", ""),
        ("// nothing", ""),
        ("[]", "line 1: expected an object `{…}`"),
        ("{\n  \"mcpServers\": {,}\n}", "line 2: expected a name in quotes"),
        ("{\"mcpServers\": []}", "line 1: `mcpServers` is not an object with one member for each server"),
        ("{\"a\": 1, \"a\": 2}", "line 1: a key occurs twice in one object"),
    ] {
        check(Dialect::ClaudeCode, text, expected);
    }
    check(Dialect::Codex, "[mcp_servers.a]\ncommand = ", "line 2: this is not TOML");
    check(
        Dialect::Codex,
        "mcp_servers = 3",
        "line 1: `mcp_servers` is not an object with one member for each server",
    );
}

#[test]
fn claude_code_has_servers_for_one_project() {
    let text = r#"{
      "mcpServers": {"everywhere": {"command": "a"}},
      "projects": {
        "/projects/shop": {"mcpServers": {"here": {"command": "b"}}, "history": []},
        "/projects/other": {"mcpServers": {"there": {"command": "c"}}}
      }
    }"#;
    check(Dialect::ClaudeCode, text, "everywhere: stdio \"a\" []");
    check_section(Dialect::ClaudeCode, text, Section::Project("/projects/shop"), "here: stdio \"b\" []");
    check_section(Dialect::ClaudeCode, text, Section::Project("/projects/none"), "");
}

#[test]
fn cursor_entries_are_parsed() {
    check_entries(
        Dialect::Cursor,
        &[
            (
                r#"{"command": "node", "args": ["${workspaceFolder}/a.js"], "envFile": "${workspaceFolder}/.env"}"#,
                r#"stdio "node" ["${workspaceFolder}/a.js"] envFile=["${workspaceFolder}/.env"]"#,
            ),
            // The transport follows from the fields.
            (
                r#"{"url": "https://a/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}}"#,
                r#"http https://a/mcp headers=["Authorization: Bearer ${env:TOKEN}"]"#,
            ),
            (
                r#"{"url": "https://a", "auth": {"CLIENT_ID": "c", "CLIENT_SECRET": "${env:S}", "scopes": ["r"]}}"#,
                r#"http https://a client id=["c"] client secret=["${env:S}"] scopes=["r"]"#,
            ),
            (r#"{"command": "a", "disabled": true}"#, r#"stdio "a" [] disabled"#),
        ],
    );
}

#[test]
fn vscode_entries_are_parsed() {
    check_entries(
        Dialect::VsCode,
        &[
            (
                r#"{"type": "stdio", "command": "a", "cwd": "${workspaceFolder}", "env": {"N": 1, "T": true, "U": null},
                    "dev": {"watch": "x"}}"#,
                r#"stdio "a" [] env=["N=1", "T=true"] cwd=["${workspaceFolder}"]"#,
            ),
            (
                r#"{"type": "http", "url": "https://a", "headers": {"K": "${input:key}"}}"#,
                r#"http https://a headers=["K: ${input:key}"]"#,
            ),
            (r#"{"url": "unix:///run/s.sock#/mcp"}"#, "http unix:///run/s.sock#/mcp"),
        ],
    );
    check(
        Dialect::VsCode,
        "{\n  // mine\n  \"servers\": {\"a\": {\"command\": \"b\",},},\n  \"inputs\": [],\n}",
        "a: stdio \"b\" []",
    );
    // Its key is not that of the others.
    check(Dialect::VsCode, r#"{"mcpServers": {"a": {"command": "b"}}}"#, "");
}

#[test]
fn codex_entries_are_parsed() {
    let text = r#"
model = "x"
[mcp_servers.local]
command = "npx"
args = ["-y", "server"]
env = { A = "1" }
env_vars = ["HOME_TOKEN", { name = "OTHER", source = "env" }]
cwd = "/srv"
startup_timeout_sec = 10.5
tool_timeout_sec = 60
enabled_tools = ["a", "b"]
disabled_tools = ["b"]

[mcp_servers.remote]
url = "https://a/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { "X-Team" = "shop" }
env_http_headers = { "X-Key" = "KEY" }
scopes = ["read"]
oauth_resource = "https://a"
enabled = false
[mcp_servers.remote.oauth]
client_id = "c"
callback_port = 5555

["mcp_servers"."with dots.in it"]
command = "${NOT_EXPANDED}"
"#;
    check(
        Dialect::Codex,
        text,
        "local: stdio \"npx\" [\"-y\", \"server\"] env=[\"A=1\"] inherits=[\"HOME_TOKEN\", \"OTHER\"] \
         cwd=[\"/srv\"] call=[\"60000 ms\"] start=[\"10500 ms\"] only=[\"a\", \"b\"] except=[\"b\"]\n\
         remote: http https://a/mcp headers=[\"X-Team: shop\", \"Authorization: Bearer ${TOKEN}\"] \
         env headers=[\"X-Key: $KEY\"] client id=[\"c\"] callback=[\"5555\"] scopes=[\"read\"] \
         resource=[\"https://a\"] disabled\n\
         with dots.in it: stdio \"${NOT_EXPANDED}\" []",
    );
}

#[test]
fn codex_entries_that_cannot_be_used() {
    for (entry, expected) in [
        ("x = 1", "it has neither `command` nor `url`"),
        ("command = 'a'\nurl = 'https://a'", "it has both `command` and `url`; remove one"),
        (
            "command = 'a'\nbearer_token_env_var = 'T'",
            "`bearer_token_env_var` needs a `url`; this server is a `command`",
        ),
        ("url = 'https://a'\nargs = []", "`args` needs a `command`; this server is at a `url`"),
        (
            "url = 'https://a'\nbearer_token = 's3cret'",
            "`bearer_token` would keep a secret in the file; name a variable with `bearer_token_env_var`",
        ),
        ("command = 'a'\nenv_vars = 'HOME'", "`env_vars` is not a list of variable names"),
    ] {
        check(Dialect::Codex, &format!("[mcp_servers.s]\n{entry}\n"), &format!("s: error: {expected}"));
    }
}

#[test]
fn our_own_file_infers_the_type() {
    check_entries(
        Dialect::Spile,
        &[
            (r#"{"url": "https://a"}"#, "http https://a"),
            (r#"{"url": "wss://a"}"#, "ws wss://a"),
            (
                r#"{"url": "https://a", "oauth": {"scopes": ["a", "b"], "clientSecret": "${S}"}}"#,
                r#"http https://a client secret=["${S}"] scopes=["a", "b"]"#,
            ),
            (
                r#"{"command": "a", "startupTimeout": 500, "disabledTools": ["x"]}"#,
                r#"stdio "a" [] start=["500 ms"] except=["x"]"#,
            ),
        ],
    );
}

#[test]
fn a_named_file_is_recognized() {
    for (path, text, expected) in [
        ("a.toml", "", Dialect::Codex),
        ("a.json", r#"{"servers": {}}"#, Dialect::VsCode),
        ("a.json", r#"{"servers": {}, "mcpServers": {}}"#, Dialect::Spile),
        ("a.json", r#"{"mcpServers": {}}"#, Dialect::Spile),
        ("a.json", "not json", Dialect::Spile),
    ] {
        assert_eq!(Dialect::detect(path.as_ref(), text), expected, "{path} {text}");
    }
}

#[test]
fn every_client_s_entry_may_name_roots() {
    for dialect in
        [Dialect::ClaudeCode, Dialect::ClaudeDesktop, Dialect::Cursor, Dialect::VsCode, Dialect::Spile]
    {
        check_entries(
            dialect,
            &[
                (
                    r#"{"command": "a", "roots": ["/x", "${HOME}/y"]}"#,
                    r#"stdio "a" [] roots=["/x", "${HOME}/y"]"#,
                ),
                (r#"{"type": "http", "url": "https://a", "roots": []}"#, "http https://a roots=[]"),
                (r#"{"command": "a", "roots": "/x"}"#, "error: `roots` is not a list of texts"),
                (r#"{"command": "a", "roots": [7]}"#, "error: `roots` is not a list of texts"),
            ],
        );
    }
    check(
        Dialect::Codex,
        "[mcp_servers.s]\ncommand = \"a\"\nroots = [\"/x\"]\n",
        r#"s: stdio "a" [] roots=["/x"]"#,
    );
}

//! `spile install`: the settings files of MCP clients before and after.

use crate::harness::TestProject;

const CUSTOMERS: &[u8] = b"email,plan\ndana@acme.test,ruby\n";

/// Runs `spile install` in a folder that is also HOME; returns the output and all files.
fn run_install(files: &[(&str, &str)], args: &[&str]) -> String {
    run_command("install", files, args)
}

fn run_command(command: &str, files: &[(&str, &str)], args: &[&str]) -> String {
    let project = TestProject::new(&[("customers.csv", CUSTOMERS)]);
    files.iter().for_each(|(name, text)| project.write(name, text.as_bytes()));
    let home = project.folder.to_string_lossy().into_owned();
    let args = [&[command], args].concat();
    let output = project.run_with(&args, &[("HOME", &home)]);
    let mut out = format!("{output}\n");
    for (path, bytes) in project.files() {
        if !path.ends_with("customers.csv") {
            out += &format!(
                "--- {}\n{}\n",
                project.normalize(path.to_string_lossy().as_bytes()),
                project.normalize(&bytes)
            );
        }
    }
    out
}

#[test]
fn every_client_gets_an_entry_in_its_format() {
    for client in ["claude-desktop", "claude-code", "cursor", "vscode", "codex"] {
        insta::assert_snapshot!(format!("install_{client}"), run_install(&[], &[client, "customers.csv"]));
    }
    for client in ["claude-code", "cursor", "vscode", "codex"] {
        let args = [client, "customers.csv", "--scope", "project", "--name", "crm"];
        insta::assert_snapshot!(format!("install_{client}_project"), run_install(&[], &args));
    }
}

#[test]
fn other_entries_and_comments_are_kept_and_a_backup_is_written() {
    let settings = "{\n    // mine\n    \"mcpServers\": {\n        \"git\": { \"command\": \"git-mcp\" }, // needed\n    },\n    \"theme\": 1\n}\n";
    insta::assert_snapshot!(
        "install_beside_others",
        run_install(&[(".cursor/mcp.json", settings)], &["cursor", "customers.csv", "--env", "A=1"])
    );
    let codex =
        "# mine\nmodel = \"x\"\n\n[mcp_servers.git] # needed\ncommand = \"git-mcp\"\n\n[tui]\ntheme = 1\n";
    insta::assert_snapshot!(
        "install_beside_others_toml",
        run_install(&[(".codex/config.toml", codex)], &["codex", "customers.csv", "--env", "A=1"])
    );
}

#[test]
fn print_changes_nothing() {
    insta::assert_snapshot!(
        "install_print",
        run_install(&[], &["claude-desktop", "customers.csv", "--print"])
    );
    insta::assert_snapshot!("install_print_toml", run_install(&[], &["codex", "customers.csv", "--print"]));
}

#[test]
fn invalid_installs_change_nothing() {
    let other = r#"{"mcpServers":{"customers":{"command":"something else"}}}"#;
    for (name, files, args) in [
        ("install_other", vec![(".cursor/mcp.json", other)], vec!["cursor", "customers.csv"]),
        (
            "install_broken",
            vec![(".cursor/mcp.json", "{\n  \"mcpServers\": {\n")],
            vec!["cursor", "customers.csv"],
        ),
        ("install_broken_toml", vec![(".codex/config.toml", "a = \n")], vec!["codex", "customers.csv"]),
        (
            "install_odd_toml",
            vec![(".codex/config.toml", "mcp_servers = 1\n")],
            vec!["codex", "customers.csv"],
        ),
        ("install_no_project", vec![], vec!["claude-desktop", "customers.csv", "--scope", "project"]),
        ("install_nothing_there", vec![], vec!["cursor", "nothing.csv"]),
        ("install_bad_name", vec![], vec!["cursor", "customers.csv", "--name", "my crm"]),
        ("install_unset", vec![], vec!["cursor", "customers.csv", "--env", "NOT_SET"]),
        ("install_bad_variable", vec![], vec!["cursor", "customers.csv", "--env", "A-B=1"]),
        ("install_unknown", vec![], vec!["emacs", "customers.csv"]),
    ] {
        insta::assert_snapshot!(name, run_install(&files, &args));
    }
}

#[test]
fn installing_again_changes_nothing() {
    let project = TestProject::new(&[("customers.csv", CUSTOMERS)]);
    let home = project.folder.to_string_lossy().into_owned();
    for client in ["cursor", "codex"] {
        let install = || project.run_with(&["install", client, "customers.csv"], &[("HOME", &home)]);
        assert_eq!(install().code, Some(0));
        let before = project.files();
        let again = install();
        assert!(again.stderr.contains("already") && again.code == Some(0), "{again}");
        assert_eq!(project.files(), before);
    }
}

#[test]
#[cfg(unix)]
fn a_link_to_the_settings_stays_a_link_and_modes_stay() {
    use std::os::unix::fs::PermissionsExt;
    let project =
        TestProject::new(&[("customers.csv", CUSTOMERS), ("dotfiles/mcp.json", b"{}\n"), (".cursor/x", b"")]);
    let (real, link) = (project.folder.join("dotfiles/mcp.json"), project.folder.join(".cursor/mcp.json"));
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).expect("a mode can be set");
    std::os::unix::fs::symlink(&real, &link).expect("a link can be made");
    let home = project.folder.to_string_lossy().into_owned();
    let output = project.run_with(&["install", "cursor", "customers.csv"], &[("HOME", &home)]);
    assert_eq!(output.code, Some(0), "{output}");
    assert!(link.symlink_metadata().expect("there").is_symlink());
    assert!(std::fs::read_to_string(&real).expect("there").contains("customers"));
    assert_eq!(real.metadata().expect("there").permissions().mode() & 0o777, 0o640);
}

#[test]
fn variables_of_the_manifest_are_named_in_a_note() {
    let manifest =
        "[server]\nname = \"crm\"\n[sources.c]\npath = \"${CRM_FILE:-customers.csv}\"\n[collections.c]\n";
    let files = [("spile.toml", manifest)];
    insta::assert_snapshot!("install_variables", run_install(&files, &["cursor"]));
}

/// Other people check the project out elsewhere: no path of this machine, and `spile` from PATH.
#[test]
fn project_scope_writes_entries_that_are_valid_on_other_machines() {
    for client in ["claude-code", "cursor", "vscode", "codex"] {
        let project = TestProject::new(&[("data/customers.csv", CUSTOMERS), ("bin/spile", b"")]);
        let folder = project.folder.to_string_lossy().into_owned();
        let path = format!("{folder}/bin");
        let args = ["install", client, "data/customers.csv", "--scope", "project"];
        let output = project.run_with(&args, &[("PATH", &path)]);
        assert_eq!(output.code, Some(0), "{output}");
        assert!(!output.stderr.contains("note:"), "{output}");
        let expected = match client {
            "cursor" | "vscode" => r#"["serve", "${workspaceFolder}/data/customers.csv"]"#,
            _ => r#"["serve", "data/customers.csv"]"#,
        };
        let (file, bytes) = settings_file(&project);
        let text = String::from_utf8(bytes).expect("UTF-8");
        assert!(text.contains(expected) && text.contains(r#""spile""#), "{client} {file}: {text}");
        assert!(!text.contains(&folder), "{client}: {text}");
    }
    // The whole project folder.
    let project = TestProject::new(&[("customers.csv", CUSTOMERS)]);
    let output = project.run(&["install", "cursor", "--scope", "project", "--print"]);
    assert!(output.stdout.contains(r#"["serve", "${workspaceFolder}"]"#), "{output}");
    assert!(output.stderr.contains("note: the entry starts `spile` from PATH"), "{output}");
    // A path outside the project stays absolute, with a note.
    let other = TestProject::new(&[("customers.csv", CUSTOMERS)]);
    let outside = other.folder.join("customers.csv").to_string_lossy().into_owned();
    let output = project.run(&["install", "claude-code", &outside, "--scope", "project", "--print"]);
    assert!(output.stdout.contains(&outside), "{output}");
    assert!(output.stderr.contains("is outside the project folder"), "{output}");
}

/// The one file that `install` wrote.
fn settings_file(project: &TestProject) -> (String, Vec<u8>) {
    let is_settings = |path: &std::path::Path| {
        path.file_name()
            .is_some_and(|name| [".mcp.json", "mcp.json", "config.toml"].iter().any(|one| name == *one))
    };
    let found = project.files().into_iter().find(|(path, _)| is_settings(path)).expect("a settings file");
    (found.0.to_string_lossy().into_owned(), found.1)
}

#[test]
fn url_installs_a_server_at_an_address() {
    let url = ["--url", "https://example.com/mcp", "--header", "Authorization: Bearer t0ken"];
    for client in ["claude-code", "cursor", "vscode", "codex"] {
        insta::assert_snapshot!(
            format!("install_url_{client}"),
            run_install(&[], &[&[client], &url[..]].concat())
        );
    }
    for (name, args) in [
        ("install_url_claude-desktop", &["claude-desktop", "--url", "https://example.com/mcp"][..]),
        ("install_url_bad", &["cursor", "--url", "example.com/mcp"]),
        ("install_url_bad_header", &["cursor", "--url", "https://example.com/mcp", "--header", "s3cret"]),
        ("install_url_and_path", &["cursor", "customers.csv", "--url", "https://example.com/mcp"]),
        ("install_url_named", &["cursor", "--url", "http://127.0.0.1:3333/mcp/stock"]),
    ] {
        insta::assert_snapshot!(name, run_install(&[], args));
    }
}

#[test]
fn uninstall_removes_what_install_added() {
    let others = [
        ("claude-desktop", ".config/Claude/claude_desktop_config.json", "{\n  \"theme\": 1 // dark\n}\n"),
        ("claude-code", ".claude.json", "{\n  \"mcpServers\": {\n    \"git\": {} // mine\n  }\n}\n"),
        (
            "cursor",
            ".cursor/mcp.json",
            "{\"mcpServers\":{\"git\":{\"command\":\"git-mcp\",\"args\":[\"customers.csv\"]}}}",
        ),
        ("vscode", ".config/Code/User/mcp.json", "{\n\t\"servers\": {\n\t\t\"git\": {},\n\t},\n}\n"),
        (
            "codex",
            ".codex/config.toml",
            "# mine\nmodel = \"x\"\n\n[mcp_servers.git] # needed\ncommand = \"git-mcp\"\n",
        ),
    ];
    for (client, file, before) in others {
        let project = TestProject::new(&[("customers.csv", CUSTOMERS), (file, before.as_bytes())]);
        let home = project.folder.to_string_lossy().into_owned();
        let env = [("HOME", &*home)];
        // By the name in the client, by the path, and by the path of a file that is gone.
        for server in ["crm", "customers.csv", "customers.csv"] {
            let output = project.run_with(&["install", client, "customers.csv", "--name", "crm"], &env);
            assert_eq!(output.code, Some(0), "{output}");
            if server == "customers.csv" {
                project.write("customers.csv", b"");
            }
            let output = project.run_with(&["uninstall", client, server], &env);
            assert_eq!(output.code, Some(0), "{output}");
            assert!(output.stderr.contains("removed `crm` from"), "{output}");
            project.write("customers.csv", CUSTOMERS);
            let after = std::fs::read_to_string(project.folder.join(file)).expect("the settings file");
            // An object that `install` created stays, empty.
            let expected = before.replace("1 // dark\n", "1, // dark\n  \"mcpServers\": {\n  }\n");
            assert_eq!(after, expected, "{client}");
        }
    }
}

#[test]
fn uninstall_of_an_unknown_server_changes_nothing() {
    let two =
        r#"{"mcpServers":{"a":{"command":"/bin/spile","args":["serve","/shop/customers.csv"]},"git":{}}}"#;
    for (name, files, args) in [
        ("uninstall_no_file", vec![], vec!["cursor", "customers.csv"]),
        ("uninstall_unknown", vec![(".cursor/mcp.json", two)], vec!["cursor", "customers"]),
        ("uninstall_near", vec![(".cursor/mcp.json", two)], vec!["cursor", "gti"]),
        ("uninstall_broken", vec![(".cursor/mcp.json", "{\n \"mcpServers\": {")], vec!["cursor", "a"]),
        ("uninstall_empty", vec![(".cursor/mcp.json", "{}")], vec!["cursor", "a"]),
    ] {
        insta::assert_snapshot!(name, run_command("uninstall", &files, &args));
    }
}

#[cfg(unix)]
#[test]
fn a_read_only_settings_file_is_not_changed() {
    use std::os::unix::fs::PermissionsExt;
    let project = TestProject::new(&[("customers.csv", CUSTOMERS), (".cursor/mcp.json", b"{}\n")]);
    let home = project.folder.to_string_lossy().into_owned();
    let file = project.folder.join(".cursor/mcp.json");
    let set_mode =
        |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("set a mode");
    set_mode(0o444);
    let install = ["install", "cursor", "customers.csv", "--force"];
    let before = project.files();
    let output = project.run_with(&install, &[("HOME", &home)]);
    assert_eq!(output.code, Some(1), "{output}");
    assert!(output.stderr.contains("is read-only; the file was not changed"), "{output}");
    assert_eq!(project.files(), before, "no backup either");
    set_mode(0o644);
    assert_eq!(project.run_with(&install, &[("HOME", &home)]).code, Some(0));
    set_mode(0o444);
    let before = project.files();
    let output = project.run_with(&["uninstall", "cursor", "customers.csv"], &[("HOME", &home)]);
    assert_eq!(output.code, Some(1), "{output}");
    assert_eq!(project.files(), before);
}

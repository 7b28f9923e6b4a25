//! `spile install`: the settings files of MCP clients before and after.

use crate::harness::TestProject;

const CUSTOMERS: &[u8] = b"email,plan\ndana@acme.test,ruby\n";

/// Runs `spile install` in a folder that is also HOME; returns the output and all files.
fn run_install(files: &[(&str, &str)], args: &[&str]) -> String {
    let project = TestProject::new(&[("customers.csv", CUSTOMERS)]);
    files.iter().for_each(|(name, text)| project.write(name, text.as_bytes()));
    let home = project.folder.to_string_lossy().into_owned();
    let args = [&["install"], args].concat();
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

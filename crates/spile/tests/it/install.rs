//! `spile install`: settings files of clients before and after.

use crate::harness::TestProject;

const CUSTOMERS: &[u8] = b"email,plan\ndana@acme.test,ruby\n";

/// Installs `customers.csv` of a folder that is home, too, and shows what is said and what the files are then.
fn run_install(files: &[(&str, &str)], args: &[&str]) -> String {
    let place = TestProject::new(&[("customers.csv", CUSTOMERS)]);
    files.iter().for_each(|(name, text)| place.write(name, text.as_bytes()));
    let home = place.folder.to_string_lossy().into_owned();
    let args = [&["install"], args].concat();
    let said = place.run_with(&args, &[("HOME", &home)]);
    let mut out = format!("{said}\n");
    for (path, bytes) in place.files() {
        if !path.ends_with("customers.csv") {
            out += &format!(
                "--- {}\n{}\n",
                place.normalize(path.to_string_lossy().as_bytes()),
                place.normalize(&bytes)
            );
        }
    }
    out
}

#[test]
fn every_client_gets_what_it_reads() {
    for client in ["claude-desktop", "claude-code", "cursor", "vscode", "codex"] {
        insta::assert_snapshot!(format!("install_{client}"), run_install(&[], &[client, "customers.csv"]));
    }
    for client in ["claude-code", "cursor", "vscode", "codex"] {
        let args = [client, "customers.csv", "--scope", "project", "--name", "crm"];
        insta::assert_snapshot!(format!("install_{client}_project"), run_install(&[], &args));
    }
}

#[test]
fn other_entries_and_comments_stay_and_a_copy_is_kept() {
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
fn print_only_shows() {
    insta::assert_snapshot!(
        "install_print",
        run_install(&[], &["claude-desktop", "customers.csv", "--print"])
    );
    insta::assert_snapshot!("install_print_toml", run_install(&[], &["codex", "customers.csv", "--print"]));
}

#[test]
fn what_would_do_harm_is_refused() {
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
fn the_same_again_changes_nothing() {
    let place = TestProject::new(&[("customers.csv", CUSTOMERS)]);
    let home = place.folder.to_string_lossy().into_owned();
    for client in ["cursor", "codex"] {
        let install = || place.run_with(&["install", client, "customers.csv"], &[("HOME", &home)]);
        assert_eq!(install().code, Some(0));
        let before = place.files();
        let again = install();
        assert!(again.stderr.contains("already") && again.code == Some(0), "{again}");
        assert_eq!(place.files(), before);
    }
}

#[test]
#[cfg(unix)]
fn a_link_to_the_settings_stays_a_link_and_modes_stay() {
    use std::os::unix::fs::PermissionsExt;
    let place =
        TestProject::new(&[("customers.csv", CUSTOMERS), ("dotfiles/mcp.json", b"{}\n"), (".cursor/x", b"")]);
    let (real, link) = (place.folder.join("dotfiles/mcp.json"), place.folder.join(".cursor/mcp.json"));
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).expect("a mode can be set");
    std::os::unix::fs::symlink(&real, &link).expect("a link can be made");
    let home = place.folder.to_string_lossy().into_owned();
    let said = place.run_with(&["install", "cursor", "customers.csv"], &[("HOME", &home)]);
    assert_eq!(said.code, Some(0), "{said}");
    assert!(link.symlink_metadata().expect("there").is_symlink());
    assert!(std::fs::read_to_string(&real).expect("there").contains("customers"));
    assert_eq!(real.metadata().expect("there").permissions().mode() & 0o777, 0o640);
}

#[test]
fn variables_that_the_manifest_reads_are_named() {
    let manifest =
        "[server]\nname = \"crm\"\n[sources.c]\npath = \"${CRM_FILE:-customers.csv}\"\n[collections.c]\n";
    let files = [("spile.toml", manifest)];
    insta::assert_snapshot!("install_variables", run_install(&files, &["cursor"]));
}

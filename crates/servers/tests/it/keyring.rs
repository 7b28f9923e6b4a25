//! Credentials that are encrypted with a key in the keyring of the desktop.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use os_keyring::OsKeyring;
use servers::config::OAuthSettings;

use crate::manager::HELPER;
use crate::oauth::Setup;

/// A keyring that this shell script plays.
fn scripted(folder: &Path, script: &str) -> OsKeyring {
    let program = folder.join("secret-tool");
    std::fs::create_dir_all(folder).expect("a folder");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a script");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let env = |name: &str| match name {
        "PATH" => Some(folder.into()),
        "DBUS_SESSION_BUS_ADDRESS" => Some("unix:path=/nonexistent".into()),
        _ => None,
    };
    OsKeyring::detect(env).expect("a keyring")
}

/// Keeps one secret in a file beside the script.
const WORKING: &str = r#"case "$1" in
store) /bin/cat > "$0.secret";;
lookup) test -e "$0.secret" || exit 1; /bin/cat "$0.secret";;
esac"#;
const LOCKED: &str = "echo 'secret-tool: the keyring is locked' >&2; exit 1";

/// The files with credentials, without the locks.
fn credential_files(setup: &Setup) -> String {
    let entries = std::fs::read_dir(setup.user.path("home/state/oauth")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let files = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.map(|path| std::fs::read_to_string(path).expect("a text")).collect()
}

async fn token(setup: &Setup) -> Option<String> {
    setup.store().access_token(&setup.resource(), None).await.expect("no error")
}

#[tokio::test]
async fn tokens_stay_encrypted_when_they_are_refreshed() {
    let mut setup = Setup::new().await;
    setup.keyring = Some(scripted(&setup.user.path("home/bin"), WORKING));
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    let first = token(&setup).await.expect("a token");
    assert!(!credential_files(&setup).contains(&first));
    setup.pass_time(3_600_000);
    let second = token(&setup).await.expect("a token");
    assert_ne!(first, second);
    let file = credential_files(&setup);
    assert!(file.contains("encrypted_with_keyring") && !file.contains(&second), "{file}");
}

#[tokio::test]
async fn a_keyring_that_is_gone_means_signing_in_again() {
    let mut setup = Setup::new().await;
    let folder = setup.user.path("home/bin");
    setup.keyring = Some(scripted(&folder, WORKING));
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    std::fs::write(folder.join("secret-tool.secret"), "b3RoZXI=").expect("another key");
    assert_eq!(token(&setup).await, None, "the keyring has another secret");
    setup.keyring = Some(scripted(&folder, LOCKED));
    assert_eq!(token(&setup).await, None, "the keyring is locked");
    setup.keyring = None;
    assert_eq!(token(&setup).await, None, "this process has no keyring");
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    let token = token(&setup).await.expect("a token");
    assert!(credential_files(&setup).contains(&token));
}

#[tokio::test]
async fn a_keyring_that_does_not_work_does_not_prevent_a_sign_in() {
    let mut setup = Setup::new().await;
    setup.keyring = Some(scripted(&setup.user.path("home/bin"), LOCKED));
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    let token = token(&setup).await.expect("a token");
    assert!(credential_files(&setup).contains(&token));
}

#[test]
fn gnome_keyring_keeps_the_key() {
    let home = tempfile::tempdir().expect("a folder");
    let path = |name: &str| home.path().join(name);
    for folder in ["run", "data", "oauth"] {
        std::fs::create_dir(path(folder)).expect("a folder");
        std::fs::set_permissions(path(folder), std::fs::Permissions::from_mode(0o700)).expect("a mode");
    }
    let script = format!(
        "printf 'password\\n' | gnome-keyring-daemon --unlock --components=secrets > /dev/null; \
         exec {HELPER} keyring \"$HOME/oauth\""
    );
    let mut session = Command::new("dbus-run-session");
    session.args(["--", "sh", "-c", &script]).stdin(Stdio::null());
    session.env("HOME", home.path()).env("XDG_RUNTIME_DIR", path("run")).env("XDG_DATA_HOME", path("data"));
    let done = session.output().expect("dbus-run-session, which `cargo xtask setup` installs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

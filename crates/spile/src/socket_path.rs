//! Where the unix socket is when nobody said where: a place that is this user's alone.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::settings;

/// `SPILE_SOCKET`, or a file in the user's runtime folder, or in a folder of the user's own among the
/// temporary ones.
pub(crate) fn default_path(names: &[&str]) -> anyhow::Result<PathBuf> {
    if let Some(path) = settings::env_text("SPILE_SOCKET")? {
        return Ok(path.into());
    }
    let file = socket_file_name(names);
    // The XDG Base Directory Specification: a path that is not absolute is to be ignored.
    let runtime =
        settings::env_text("XDG_RUNTIME_DIR")?.map(PathBuf::from).filter(|folder| folder.is_absolute());
    if let Some(folder) = runtime {
        return Ok(folder.join(file));
    }
    let uid = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("spile-{uid}"));
    create_private_dir(&folder, uid)?;
    Ok(folder.join(file))
}

/// One server has a socket of its name; several share one.
fn socket_file_name(names: &[&str]) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    match names {
        [only] => format!("spile-{}.sock", only.chars().map(plain).collect::<String>()),
        _ => "spile.sock".to_owned(),
    }
}

/// Makes a folder that only we can enter. One that is there already must be such a one: among temporary files
/// anybody may have put it there.
fn create_private_dir(folder: &Path, uid: u32) -> anyhow::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).with_context(|| format!("`{}` cannot be made", folder.display())),
    }
    let there = std::fs::symlink_metadata(folder)?;
    if !there.is_dir() || there.uid() != uid || there.mode() & 0o077 != 0 {
        bail!(
            "`{}` is not a folder of this user's alone; say in SPILE_SOCKET where the socket may be",
            folder.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{create_private_dir, socket_file_name};

    #[test]
    fn a_file_is_named_after_its_server() {
        for (names, expected) in [
            (&["people"][..], "spile-people.sock"),
            (&["two words"], "spile-two-words.sock"),
            (&["../../etc/x"], "spile-..-..-etc-x.sock"),
            (&["people", "orders"], "spile.sock"),
        ] {
            assert_eq!(socket_file_name(names), expected);
        }
    }

    #[test]
    fn a_folder_is_made_or_must_be_ours_alone() {
        let root = tempfile::tempdir().expect("a folder");
        let uid = rustix::process::geteuid().as_raw();
        let at = |name: &str| root.path().join(name);
        create_private_dir(&at("new"), uid).expect("it is made");
        create_private_dir(&at("new"), uid).expect("it is ours");
        assert_eq!(std::fs::metadata(at("new")).expect("it is there").permissions().mode() & 0o777, 0o700);
        std::fs::create_dir(at("open")).expect("a folder");
        std::fs::set_permissions(at("open"), PermissionsExt::from_mode(0o755)).expect("ours to open");
        std::fs::write(at("file"), "").expect("a file");
        std::os::unix::fs::symlink(at("new"), at("link")).expect("a link");
        for (name, uid) in [("open", uid), ("file", uid), ("link", uid), ("new", uid + 1)] {
            let refused = create_private_dir(&at(name), uid).expect_err(name).to_string();
            assert!(refused.contains("SPILE_SOCKET"), "{name}: {refused}");
        }
        assert!(create_private_dir(&at("no/such"), uid).is_err());
    }
}

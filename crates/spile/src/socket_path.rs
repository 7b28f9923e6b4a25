//! The default path of the unix socket, in a folder that only this user can enter.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::settings::{self, EnvNames};

/// `SPILE_SOCKET`, or a file in `XDG_RUNTIME_DIR`, or in a private folder below the temporary one. Clients of a folder with an
/// `mcp.json` look for `dzx-NAME.sock` in the temporary folder.
pub(crate) fn default_path(names: &[&str], env: EnvNames) -> anyhow::Result<PathBuf> {
    if let Some(path) = env.socket()? {
        return Ok(path.into());
    }
    let file = socket_file_name(names);
    if let (EnvNames::ServerFile, Some(rest)) = (env, file.strip_prefix("spile-")) {
        return Ok(std::env::temp_dir().join(format!("dzx-{rest}")));
    }
    // XDG Base Directory Specification: ignore a path that is not absolute.
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

/// The socket of a single server carries its name; several servers share one.
fn socket_file_name(names: &[&str]) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    match names {
        [only] => format!("spile-{}.sock", only.chars().map(plain).collect::<String>()),
        _ => "spile.sock".to_owned(),
    }
}

/// Creates a folder with mode 0700. An existing one must have that mode and owner: any user may have created it in the
/// temporary folder.
fn create_private_dir(folder: &Path, uid: u32) -> anyhow::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).with_context(|| format!("cannot create `{}`", folder.display())),
    }
    let metadata = std::fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != uid || metadata.mode() & 0o077 != 0 {
        bail!(
            "`{}` is not a private folder of this user; set SPILE_SOCKET to another path for the socket",
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
    fn the_socket_of_one_server_carries_its_name() {
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
    fn an_existing_folder_must_be_private() {
        let root = tempfile::tempdir().expect("a folder");
        let uid = rustix::process::geteuid().as_raw();
        let path = |name: &str| root.path().join(name);
        create_private_dir(&path("new"), uid).expect("created");
        create_private_dir(&path("new"), uid).expect("private already");
        assert_eq!(std::fs::metadata(path("new")).expect("exists").permissions().mode() & 0o777, 0o700);
        std::fs::create_dir(path("open")).expect("a folder");
        std::fs::set_permissions(path("open"), PermissionsExt::from_mode(0o755))
            .expect("permissions can be changed");
        std::fs::write(path("file"), "").expect("a file");
        std::os::unix::fs::symlink(path("new"), path("link")).expect("a link");
        for (name, uid) in [("open", uid), ("file", uid), ("link", uid), ("new", uid + 1)] {
            let error = create_private_dir(&path(name), uid).expect_err(name).to_string();
            assert!(error.contains("SPILE_SOCKET"), "{name}: {error}");
        }
        assert!(create_private_dir(&path("no/such"), uid).is_err());
    }
}

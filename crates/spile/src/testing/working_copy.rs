//! A copy of a project folder, for tests that write: the data of the author stays as it is.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tempfile::TempDir;

/// A larger folder is not copied.
const COPY_BYTES_MAX: u64 = 1 << 30;
const COPY_FILES_MAX: usize = 100_000;
const IN_PLACE: &str = "--in-place runs the tests on the data itself";

/// Deleted when dropped.
pub(super) struct WorkingCopy {
    _folder: TempDir,
    /// The project in the copy: a folder, or a file in it.
    pub(super) project: PathBuf,
}

impl WorkingCopy {
    /// Copies the folder of a project. The copy has the folder's name, which may be the name of the server.
    pub(super) fn of(path: &Path) -> anyhow::Result<Self> {
        let absolute = path.canonicalize().with_context(|| format!("cannot find `{}`", path.display()))?;
        let (folder, file) = match absolute.is_dir() {
            true => (absolute.as_path(), None),
            false => (absolute.parent().unwrap_or(&absolute), absolute.file_name()),
        };
        let temporary = tempfile::Builder::new()
            .prefix("spile-test-")
            .tempdir()
            .context("cannot make a folder for a copy of the project")?;
        let target = temporary.path().join(folder.file_name().unwrap_or("project".as_ref()));
        let mut budget = CopyBudget { bytes: COPY_BYTES_MAX, files: COPY_FILES_MAX };
        copy_folder(folder, &target, &mut budget)
            .with_context(|| format!("cannot copy `{}` for the tests that write", folder.display()))?;
        let project = file.map_or_else(|| target.clone(), |file| target.join(file));
        Ok(Self { _folder: temporary, project })
    }
}

struct CopyBudget {
    bytes: u64,
    files: usize,
}

fn copy_folder(from: &Path, to: &Path, budget: &mut CopyBudget) -> anyhow::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let name = entry.file_name();
        if name == ".git" {
            continue;
        }
        // Follows links, so that nothing is written through one.
        let metadata =
            std::fs::metadata(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        if metadata.is_file() {
            let left = budget.bytes.checked_sub(metadata.len()).zip(budget.files.checked_sub(1));
            let Some((bytes, files)) = left else {
                bail!("more than {COPY_FILES_MAX} files or {} MiB; {IN_PLACE}", COPY_BYTES_MAX >> 20);
            };
            *budget = CopyBudget { bytes, files };
            std::fs::copy(&path, &target).with_context(|| format!("cannot copy `{}`", path.display()))?;
        } else if metadata.is_dir() && entry.file_type()?.is_symlink() {
            bail!("`{}` is a link to a folder; {IN_PLACE}", path.display());
        } else if metadata.is_dir() {
            copy_folder(&path, &target, budget)?;
        }
        // A named pipe, a socket or a device holds no data.
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::WorkingCopy;

    #[test]
    fn a_copy_has_everything_but_the_history_and_is_deleted() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("shop");
        for (name, text) in [("spile.toml", "x"), ("data/a.csv", "y"), (".git/config", "z")] {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let copy = WorkingCopy::of(&folder).expect("a copy");
        let project = copy.project.clone();
        assert_eq!(project.file_name(), folder.file_name());
        assert!(project.join("data/a.csv").exists() && !project.join(".git").exists());
        drop(copy);
        assert!(!project.exists());
        let copy = WorkingCopy::of(&folder.join("data/a.csv")).expect("a copy");
        assert!(copy.project.ends_with("data/a.csv") && copy.project.is_file());
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_written_through_a_link() {
        let root = tempfile::tempdir().expect("a folder");
        let (folder, outside) = (root.path().join("shop"), root.path().join("outside"));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::create_dir_all(&outside).expect("a folder");
        std::fs::write(outside.join("a.csv"), "original").expect("a file");
        std::os::unix::fs::symlink(outside.join("a.csv"), folder.join("a.csv")).expect("a link");
        let copy = WorkingCopy::of(&folder).expect("a copy");
        std::fs::write(copy.project.join("a.csv"), "changed").expect("a file");
        assert_eq!(std::fs::read_to_string(outside.join("a.csv")).expect("a file"), "original");

        std::os::unix::fs::symlink(&outside, folder.join("linked")).expect("a link");
        let error = WorkingCopy::of(&folder).err().expect("refused");
        assert!(format!("{error:#}").contains("is a link to a folder; --in-place"), "{error:#}");
    }
}

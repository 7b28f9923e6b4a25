//! The folder of imported databases: private to the user, bounded in bytes and age, shared by all processes.
//!
//! A database is made under a temporary name and renamed when it is complete. Whoever uses one holds a shared lock on the
//! file beside it, so that no other process removes it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use contract::source::SourceError;
use ring::digest::{Context, SHA256};
use spile_core::text::hex;

/// Unused databases are removed, the oldest first, until the others fit.
const BYTES_MAX: u64 = 50 << 30;
/// An unused database is removed after this time.
const AGE_MAX: Duration = Duration::from_secs(14 * 24 * 3600);
/// Part of every id: another version of the import has other databases.
const FORMAT_VERSION: &[u8] = b"spile import 2";

#[derive(Debug, Clone)]
pub(crate) struct ImportCache {
    folder: PathBuf,
}

/// Identifies an import: of which file, in which state, read how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportId {
    file: String,
    import: String,
}

impl ImportId {
    /// `describe` passes everything that decides the content of the database: the state of the file, and how it is read.
    pub(crate) fn new(path: &Path, describe: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Self {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let file = digest(|part| part(path.as_os_str().as_encoded_bytes()));
        Self { file, import: digest(describe) }
    }

    fn stem(&self) -> String {
        format!("{}-{}", self.file, self.import)
    }
}

fn digest(describe: impl FnOnce(&mut dyn FnMut(&[u8]))) -> String {
    let mut context = Context::new(&SHA256);
    let mut part = |bytes: &[u8]| {
        context.update(&(bytes.len() as u64).to_be_bytes());
        context.update(bytes);
    };
    part(FORMAT_VERSION);
    describe(&mut part);
    hex(&context.finish().as_ref()[..12])
}

/// A database in use. It is not removed as long as this exists.
#[derive(Debug)]
pub(crate) struct ImportedDatabase {
    pub(crate) path: PathBuf,
    _lock: File,
}

impl ImportCache {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The database of an import. `fill` makes it at a temporary path, unless it is there.
    pub(crate) fn database(
        &self,
        id: &ImportId,
        fill: impl FnOnce(&Path) -> Result<(), SourceError>,
    ) -> Result<ImportedDatabase, SourceError> {
        let failed = |error: &io::Error| self.error(error);
        create_private_folder(&self.folder).map_err(|error| failed(&error))?;
        let stem = id.stem();
        let path = self.folder.join(format!("{stem}.sqlite"));
        let lock_path = self.folder.join(format!("{stem}.lock"));
        let lock = open_lock(&lock_path).map_err(|error| failed(&error))?;
        if !path.exists() {
            // One process imports, and the others wait for it.
            lock.lock().map_err(|error| failed(&error))?;
            if !path.exists() {
                let temporary = self.folder.join(format!("{stem}.part"));
                remove_database(&temporary);
                let filled = fill(&temporary);
                let renamed = filled.and_then(|()| {
                    File::open(&temporary)
                        .and_then(|file| file.sync_all())
                        .and_then(|()| fs::rename(&temporary, &path))
                        .map_err(|error| failed(&error))
                });
                if let Err(error) = renamed {
                    remove_database(&temporary);
                    return Err(error);
                }
            }
            lock.unlock().map_err(|error| failed(&error))?;
        }
        lock.lock_shared().map_err(|error| failed(&error))?;
        let now = SystemTime::now();
        // The time of the last use.
        let _ = lock.set_modified(now);
        if !path.exists() {
            let message = "the imported data was removed by another process; try again".to_owned();
            return Err(SourceError::Unavailable { detail: message.clone(), message });
        }
        self.clean(&id.file, &stem, now);
        Ok(ImportedDatabase { path, _lock: lock })
    }

    /// Removes databases that nobody uses: of other states of the same file, old ones, and the oldest if there are too
    /// many. What cannot be removed stays.
    fn clean(&self, file: &str, own: &str, now: SystemTime) {
        let mut kept: Vec<(SystemTime, u64, String)> = Vec::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(stem) = name.strip_suffix(".lock") else { continue };
            if stem == own {
                continue;
            }
            let used = entry.metadata().and_then(|metadata| metadata.modified()).unwrap_or(now);
            let is_old = now.duration_since(used).is_ok_and(|age| age > AGE_MAX);
            let is_other_state = stem.split_once('-').is_some_and(|(of, _)| of == file);
            if (is_old || is_other_state) && self.remove_unused(stem) {
                continue;
            }
            let bytes = fs::metadata(self.folder.join(format!("{stem}.sqlite"))).map_or(0, |one| one.len());
            kept.push((used, bytes, stem.to_owned()));
        }
        kept.sort();
        let mut bytes: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, own_bytes, stem) in kept {
            if bytes <= BYTES_MAX {
                return;
            }
            if self.remove_unused(&stem) {
                bytes -= own_bytes;
            }
        }
    }

    /// Returns whether the database was removed.
    fn remove_unused(&self, stem: &str) -> bool {
        let lock_path = self.folder.join(format!("{stem}.lock"));
        let Ok(lock) = open_lock(&lock_path) else { return false };
        if lock.try_lock().is_err() {
            return false;
        }
        remove_database(&self.folder.join(format!("{stem}.sqlite")));
        remove_database(&self.folder.join(format!("{stem}.part")));
        fs::remove_file(&lock_path).is_ok()
    }

    fn error(&self, error: &io::Error) -> SourceError {
        let detail = format!("{}: {error}", self.folder.display());
        let message = match error.kind() {
            io::ErrorKind::StorageFull => "the disk with the cache folder is full".to_owned(),
            _ => "the cache folder for large files cannot be used".to_owned(),
        };
        SourceError::Unavailable { message, detail }
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn create_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let metadata = fs::symlink_metadata(folder)?;
        if !metadata.is_dir() || metadata.uid() != rustix::process::getuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        }
    }
    Ok(())
}

/// Removes a database with its log, as far as they exist.
fn remove_database(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let _ = fs::remove_file(name);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use contract::source::SourceError;
    use tempfile::TempDir;

    use super::{ImportCache, ImportId};

    fn id(file: &str, state: &str) -> ImportId {
        ImportId::new(Path::new(file), |part| part(state.as_bytes()))
    }

    fn fill(text: &str) -> impl FnOnce(&Path) -> Result<(), SourceError> {
        move |path| {
            fs::write(path, text).expect("writable");
            Ok(())
        }
    }

    fn unexpected(_: &Path) -> Result<(), SourceError> {
        panic!("it is there already")
    }

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).expect("a folder").count()
    }

    #[test]
    fn an_import_is_made_once_in_a_private_folder() {
        let folder = TempDir::new().expect("a folder");
        let place = folder.path().join("cache/large");
        let cache = ImportCache::new(&place);
        let first = cache.database(&id("a.csv", "1"), fill("x")).expect("an import");
        assert_eq!(fs::read_to_string(&first.path).expect("a file"), "x");
        let second = cache.database(&id("a.csv", "1"), unexpected).expect("the same");
        assert_eq!(first.path, second.path);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(&place).expect("a folder").permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
    }

    #[test]
    fn an_older_state_of_a_file_is_removed_when_nobody_uses_it() {
        let folder = TempDir::new().expect("a folder");
        let cache = ImportCache::new(folder.path());
        let old = cache.database(&id("a.csv", "1"), fill("old")).expect("an import");
        let other = cache.database(&id("b.csv", "1"), fill("other")).expect("an import");
        let new = cache.database(&id("a.csv", "2"), fill("new")).expect("an import");
        assert!(old.path.exists(), "it is in use");
        let old_path = old.path.clone();
        drop(old);
        drop(other);
        let again = cache.database(&id("a.csv", "2"), unexpected).expect("the same");
        assert!(!old_path.exists());
        drop((new, again));
        assert_eq!(names(folder.path()), 4, "two databases, each with its lock");
    }

    #[test]
    fn an_import_that_fails_leaves_nothing() {
        let folder = TempDir::new().expect("a folder");
        let cache = ImportCache::new(folder.path());
        let failed = cache.database(&id("a.csv", "1"), |path| {
            fs::write(path, "half").expect("writable");
            Err(SourceError::Timeout)
        });
        assert!(matches!(failed, Err(SourceError::Timeout)));
        assert_eq!(names(folder.path()), 1, "only the lock");
        cache.database(&id("a.csv", "1"), fill("x")).expect("the next one succeeds");
    }
}

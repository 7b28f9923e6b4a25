//! Stamps of files, and what can be concluded from two of them.

use std::fs::{File, Metadata};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The longest step in which a file system of today counts time: a tick of the kernel is 1 to 10 ms long.
pub(crate) const TIME_STEP: Duration = Duration::from_millis(50);
/// FAT counts in steps of two seconds, and some older and network file systems in seconds.
const COARSE_TIME_STEP: Duration = Duration::from_secs(2);

/// Distinguishes two states of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileStamp {
    /// There is no file, or its metadata cannot be read.
    Missing,
    Present {
        bytes: u64,
        modified: Option<SystemTime>,
        /// The time of the last change of the contents or the metadata. `cp -p`, `rsync` and editors can set the
        /// modification time back, but not this one. Unix only.
        changed: Option<SystemTime>,
        /// Unix only.
        id: Option<FileId>,
    },
}

/// Which file it is, whatever its contents: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

/// What a reader keeps: the stamp of the file that it read, and whether that stamp proves anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadStamp {
    stamp: FileStamp,
    /// Whether a file that changed after the read has another stamp.
    is_certain: bool,
}

/// What the stamp of a file says about what was read of it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChange {
    Unchanged,
    Changed,
    /// The file was read so soon after a change that another one may have left no trace.
    Uncertain {
        /// Enough time has passed: what is read now is certain.
        is_settled: bool,
    },
}

impl FileStamp {
    /// The file that the path leads to now.
    pub fn of_path(path: &Path) -> Self {
        std::fs::metadata(path).map_or(Self::Missing, |metadata| Self::of_metadata(&metadata))
    }

    /// The open file, wherever its path leads now.
    pub fn of_file(file: &File) -> Self {
        file.metadata().map_or(Self::Missing, |metadata| Self::of_metadata(&metadata))
    }

    pub fn of_metadata(metadata: &Metadata) -> Self {
        let (id, changed) = platform::id_and_change_time(metadata);
        Self::Present { bytes: metadata.len(), modified: metadata.modified().ok(), changed, id }
    }

    /// The size of the file; 0 if there is none.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Missing => 0,
            Self::Present { bytes, .. } => bytes,
        }
    }

    /// Which file it is; `None` if there is none, or if the platform does not say.
    pub fn id(self) -> Option<FileId> {
        match self {
            Self::Missing => None,
            Self::Present { id, .. } => id,
        }
    }

    /// Passes what identifies the state of the file to a digest, as bytes that a later build passes, too.
    pub fn write_identity(self, part: &mut dyn FnMut(&[u8])) {
        let Self::Present { bytes, modified, changed, id } = self else { return part(b"missing") };
        part(&bytes.to_be_bytes());
        for time in [modified, changed] {
            match time {
                Some(time) => part(&time_bytes(time)),
                None => part(&[]),
            }
        }
        match id {
            Some(FileId { device, inode }) => part(&[device.to_be_bytes(), inode.to_be_bytes()].concat()),
            None => part(&[]),
        }
    }

    /// Whether a change at some time between `from` and `until` could leave this stamp as it is. Both are the same for
    /// one point in time.
    pub fn is_recent(self, from: SystemTime, until: SystemTime) -> bool {
        let Self::Present { modified, changed, .. } = self else { return false };
        let times = || [modified, changed].into_iter().flatten();
        let step = if times().all(has_whole_seconds) { COARSE_TIME_STEP } else { TIME_STEP };
        // Only the neighbourhood counts: a time in the far future, by a wrong clock, stays there.
        times().any(|time| {
            let is_after = from.checked_sub(step).is_none_or(|from| from <= time);
            let is_before = until.checked_add(step).is_none_or(|until| time <= until);
            is_after && is_before
        })
    }
}

/// Before or after 1970, and how long in seconds and nanoseconds.
fn time_bytes(time: SystemTime) -> Vec<u8> {
    let (is_before, distance) = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => (0, since),
        Err(before) => (1, before.duration()),
    };
    [&[is_before][..], &distance.as_secs().to_be_bytes(), &distance.subsec_nanos().to_be_bytes()].concat()
}

/// Whether the file system does not count smaller units, as far as one can tell.
fn has_whole_seconds(time: SystemTime) -> bool {
    time.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since.subsec_nanos() == 0)
}

impl ReadStamp {
    /// For a stamp that was taken of the open file at `now`, before it was read.
    pub fn before_read(stamp: FileStamp, now: SystemTime) -> Self {
        Self::after_read(stamp, now, now)
    }

    /// For a stamp that was taken at `now`, after a read that began at `started`: the file may have changed meanwhile.
    pub fn after_read(stamp: FileStamp, started: SystemTime, now: SystemTime) -> Self {
        Self { stamp, is_certain: !stamp.is_recent(started, now) }
    }

    /// Whether a file that changed after the read has another stamp.
    pub fn is_certain(self) -> bool {
        self.is_certain
    }

    /// What happened to the file since it was read, by its stamp at `now`.
    pub fn compare(self, current: FileStamp, now: SystemTime) -> FileChange {
        if self.stamp != current {
            FileChange::Changed
        } else if self.is_certain {
            FileChange::Unchanged
        } else {
            FileChange::Uncertain { is_settled: !current.is_recent(now, now) }
        }
    }
}

#[cfg(unix)]
mod platform {
    use std::fs::Metadata;
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, SystemTime};

    use super::FileId;

    pub(super) fn id_and_change_time(metadata: &Metadata) -> (Option<FileId>, Option<SystemTime>) {
        let id = FileId { device: metadata.dev(), inode: metadata.ino() };
        (Some(id), system_time(metadata.ctime(), metadata.ctime_nsec()))
    }

    fn system_time(seconds: i64, nanos: i64) -> Option<SystemTime> {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let seconds = if seconds < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(whole)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(whole)
        };
        seconds?.checked_add(Duration::from_nanos(u64::try_from(nanos).ok()?))
    }
}

#[cfg(not(unix))]
mod platform {
    use std::fs::Metadata;
    use std::time::SystemTime;

    use super::FileId;

    pub(super) fn id_and_change_time(_: &Metadata) -> (Option<FileId>, Option<SystemTime>) {
        (None, None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, FileTimes, OpenOptions};
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::{FileChange, FileId, FileStamp, ReadStamp};

    struct TestFile {
        folder: tempfile::TempDir,
        path: PathBuf,
    }

    impl TestFile {
        fn new(content: &str) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("data");
            fs::write(&path, content).expect("a file");
            Self { folder, path }
        }

        fn stamp(&self) -> FileStamp {
            FileStamp::of_path(&self.path)
        }

        fn other(&self, name: &str, content: &str) -> PathBuf {
            let path = self.folder.path().join(name);
            fs::write(&path, content).expect("a file");
            path
        }
    }

    /// Long after every change that a test makes.
    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_secs(3600)
    }

    /// Reads a file, does something to it, and compares: with a read long after the file was written, and with one at
    /// the very time.
    fn check(expected: FileChange, act: impl Fn(&TestFile)) {
        let file = TestFile::new("first");
        let written = fs::metadata(&file.path).and_then(|metadata| metadata.modified()).expect("known");
        let certain = ReadStamp::before_read(file.stamp(), later());
        let recent = ReadStamp::before_read(file.stamp(), written);
        act(&file);
        let current = file.stamp();
        assert_eq!(certain.compare(current, later()), expected);
        if expected == FileChange::Changed {
            assert_eq!(recent.compare(current, later()), FileChange::Changed);
        } else {
            assert_eq!(recent.compare(current, later()), FileChange::Uncertain { is_settled: true });
            assert_eq!(recent.compare(current, written), FileChange::Uncertain { is_settled: false });
        }
    }

    #[test]
    fn the_identity_of_a_state_is_written_byte_by_byte() {
        let parts = |stamp: FileStamp| {
            let mut parts = Vec::new();
            stamp.write_identity(&mut |part| parts.push(part.to_vec()));
            parts
        };
        let at = |seconds, nanos| Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos));
        let before = SystemTime::UNIX_EPOCH.checked_sub(Duration::new(1, 2));
        let id = Some(FileId { device: 3, inode: 4 });
        let stamp = FileStamp::Present { bytes: 258, modified: at(1, 2), changed: before, id };
        let expected: [&[u8]; 4] = [
            &[0, 0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2],
            &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2],
            &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4],
        ];
        assert_eq!(parts(stamp), expected);
        assert_eq!(parts(FileStamp::Missing), [b"missing"]);
        let unknown = FileStamp::Present { bytes: 258, modified: None, changed: None, id: None };
        assert_eq!(parts(unknown), [expected[0], &[], &[], &[]]);
    }

    #[test]
    fn an_untouched_file_is_unchanged() {
        check(FileChange::Unchanged, |_| {});
        check(FileChange::Unchanged, |file| drop(fs::read(&file.path).expect("readable")));
        check(FileChange::Unchanged, |file| drop(File::open(&file.path).expect("readable")));
        check(FileChange::Unchanged, |file| drop(file.other("neighbour", "x")));
    }

    #[test]
    fn every_change_that_a_file_can_undergo_is_noticed() {
        let append = |file: &TestFile| {
            let mut open = OpenOptions::new().append(true).open(&file.path).expect("writable");
            open.write_all(b"more").expect("written");
        };
        check(FileChange::Changed, append);
        check(FileChange::Changed, |file| fs::write(&file.path, "longer than before").expect("written"));
        check(FileChange::Changed, |file| fs::write(&file.path, "").expect("written"));
        check(FileChange::Changed, |file| fs::remove_file(&file.path).expect("removed"));
        // Replaced by a file of the same size: by rename, and removed and made again.
        check(FileChange::Changed, |file| {
            fs::rename(file.other("new", "other"), &file.path).expect("renamed");
        });
        #[cfg(unix)]
        check(FileChange::Changed, |file| {
            // The old file stays open, so that its inode is not used again.
            let old = File::open(&file.path).expect("readable");
            fs::remove_file(&file.path).expect("removed");
            fs::write(&file.path, "other").expect("written");
            drop(old);
        });
        check(FileChange::Changed, |file| {
            fs::remove_file(&file.path).expect("removed");
            fs::create_dir(&file.path).expect("made");
        });
    }

    #[test]
    fn a_file_that_appears_is_noticed_and_one_that_stays_away_is_not() {
        let file = TestFile::new("first");
        fs::remove_file(&file.path).expect("removed");
        let missing = ReadStamp::before_read(file.stamp(), SystemTime::now());
        assert_eq!(missing.compare(file.stamp(), SystemTime::now()), FileChange::Unchanged);
        fs::write(&file.path, "").expect("written");
        assert_eq!(missing.compare(file.stamp(), SystemTime::now()), FileChange::Changed);
    }

    #[test]
    #[cfg(unix)]
    fn a_modification_time_that_is_set_back_hides_nothing() {
        let file = TestFile::new("first");
        let modified = fs::metadata(&file.path).and_then(|metadata| metadata.modified()).expect("known");
        let read = ReadStamp::before_read(file.stamp(), later());
        // Until the clock of the file system has moved on.
        let is_noticed = (0..1_000_000).any(|_| {
            let current = file_with_time(&file.path, "other", modified);
            read.compare(current, later()) == FileChange::Changed
        });
        assert!(is_noticed);
    }

    #[cfg(unix)]
    fn file_with_time(path: &Path, content: &str, modified: SystemTime) -> FileStamp {
        fs::write(path, content).expect("written");
        let open = OpenOptions::new().write(true).open(path).expect("writable");
        open.set_times(FileTimes::new().set_modified(modified)).expect("set");
        FileStamp::of_path(path)
    }

    #[test]
    #[cfg(unix)]
    fn a_symbolic_link_that_leads_elsewhere_is_a_change() {
        let file = TestFile::new("first");
        let (link, other) = (file.folder.path().join("link"), file.other("other", "other"));
        std::os::unix::fs::symlink(&file.path, &link).expect("a link");
        let through_link = FileStamp::of_path(&link);
        assert_eq!(through_link, file.stamp(), "the target counts, not the link");
        // As Kubernetes replaces a mounted secret: a new link is renamed over the old one.
        let new_link = file.folder.path().join("new link");
        std::os::unix::fs::symlink(&other, &new_link).expect("a link");
        fs::rename(&new_link, &link).expect("renamed");
        let read = ReadStamp::before_read(through_link, later());
        assert_eq!(read.compare(FileStamp::of_path(&link), later()), FileChange::Changed);
        // A link that leads nowhere.
        fs::remove_file(&other).expect("removed");
        assert_eq!(FileStamp::of_path(&link), FileStamp::Missing);
    }

    #[test]
    #[cfg(unix)]
    fn the_id_says_whether_it_is_the_same_file() {
        let file = TestFile::new("first");
        let open = File::open(&file.path).expect("readable");
        assert!(file.stamp().id().is_some());
        fs::write(&file.path, "changed").expect("written");
        assert_eq!(FileStamp::of_file(&open).id(), file.stamp().id());
        fs::rename(file.other("new", "first"), &file.path).expect("renamed");
        assert_ne!(FileStamp::of_file(&open).id(), file.stamp().id());
        fs::remove_file(&file.path).expect("removed");
        assert_eq!(file.stamp().id(), None);
    }

    /// A writer that is as fast as it can be: a process that read the file before never takes it for unchanged.
    #[test]
    fn edits_of_the_same_size_in_the_same_moment_are_never_missed() {
        let file = TestFile::new("000000");
        for round in 0..2_000 {
            let read = ReadStamp::before_read(file.stamp(), SystemTime::now());
            let mut open = OpenOptions::new().write(true).open(&file.path).expect("writable");
            open.write_all(format!("{round:06}").as_bytes()).expect("written");
            let change = read.compare(file.stamp(), later());
            assert_ne!(change, FileChange::Unchanged, "round {round}");
        }
    }

    #[test]
    fn a_change_during_the_read_makes_the_stamp_uncertain() {
        let file = TestFile::new("first");
        let now = SystemTime::now();
        let hours = |n: u64| Duration::from_secs(3600 * n);
        // The read took two hours; the change was in the middle of it.
        assert!(!ReadStamp::after_read(file.stamp(), now - hours(1), now + hours(1)).is_certain());
        assert!(ReadStamp::after_read(file.stamp(), now + hours(1), now + hours(3)).is_certain());
        // A wrong clock dates the file into the future: it is not read for ever.
        assert!(ReadStamp::after_read(file.stamp(), now - hours(3), now - hours(1)).is_certain());
    }

    fn stamp_at(modified: Duration) -> FileStamp {
        let modified = Some(SystemTime::UNIX_EPOCH + modified);
        FileStamp::Present { bytes: 1, modified, changed: modified, id: None }
    }

    #[test]
    fn a_file_system_that_counts_whole_seconds_takes_longer_to_settle() {
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        for (modified_ms, now_ms, is_recent) in [
            (10_004, 10_004, true),
            (10_004, 10_054, true),
            (10_004, 10_055, false),
            (10_004, 9_954, true),
            (10_004, 9_953, false),
            (10_000, 11_999, true),
            (10_000, 12_000, true),
            (10_000, 12_001, false),
        ] {
            let stamp = stamp_at(Duration::from_millis(modified_ms));
            assert_eq!(stamp.is_recent(at(now_ms), at(now_ms)), is_recent, "{modified_ms} {now_ms}");
        }
        assert!(!FileStamp::Missing.is_recent(at(0), at(0)));
    }

    proptest! {
        /// A file system rounds the time of each write down to its step. A process that reads between two writes of the same
        /// size notices the second one, or knows that it may have missed it.
        #[test]
        fn no_write_is_missed_whatever_the_step(
            step_ms in prop::sample::select(vec![1_u64, 4, 10, 1_000, 2_000]),
            first_ms in 0_u64..10_000_000,
            read_after_ms in 0_u64..5_000,
            write_after_ms in 0_u64..5_000,
        ) {
            let rounded = |ms: u64| stamp_at(Duration::from_millis(ms / step_ms * step_ms));
            let (read_ms, second_ms) = (first_ms + read_after_ms, first_ms + read_after_ms + write_after_ms);
            let read_at = SystemTime::UNIX_EPOCH + Duration::from_millis(read_ms);
            // The first write may be rounded to a whole second by chance, which only makes it uncertain for longer.
            let read = ReadStamp::before_read(rounded(first_ms), read_at);
            let change = read.compare(rounded(second_ms), read_at + Duration::from_secs(3600));
            prop_assert_ne!(change, FileChange::Unchanged);
        }
    }
}

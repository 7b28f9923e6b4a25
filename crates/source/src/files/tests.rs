//! A keeper and a folder, looked at from outside and, where somebody was killed, from inside.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use contract::source::{CLAIM_AGE_MS, CLAIMS_MAX, Claim, SourceFault, WriteFault, Written};
use tempfile::TempDir;

use super::claims::{Claims, End, Found, Known, begun_line, end_line};
use super::lock::Lock;
use super::target::Target;
use super::{Edited, Keeper, Patience, Terms};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

struct Folder {
    folder: TempDir,
    path: PathBuf,
}

impl Folder {
    fn new(content: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.csv");
        std::fs::write(&path, content).unwrap();
        Self { folder, path }
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn claims(&self) -> PathBuf {
        self.folder.path().join(".data.csv.spile-claims")
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    /// A process that was killed after its claim was begun.
    fn killed(&self, number: u8, after: &[u8]) {
        let target = Target::find(&self.path).unwrap();
        let before = target.read().unwrap();
        let mut known = Known::default();
        let mut claims = Claims::open(&target, &mut known).unwrap();
        claims.begin(claim(number), &before, &edited(after), 0).unwrap();
    }
}

fn claim(number: u8) -> Claim {
    Claim { id: [number; 32], asked: [7; 32] }
}

fn terms(number: impl Into<Option<u8>>) -> Terms<'static> {
    Terms { claim: number.into().map(claim), dry_run: false, now_ms: 0, stop: None }
}

fn edited(bytes: &[u8]) -> Edited {
    Edited { bytes: bytes.to_vec(), told: told(bytes) }
}

fn told(bytes: &[u8]) -> Vec<u8> {
    [b"told\n\\n ", bytes].concat()
}

/// Adds `more` behind what is there.
fn add(keeper: &Keeper, terms: Terms<'_>, more: &[u8]) -> Result<Written, WriteFault> {
    keeper.replace(terms, &mut |bytes| Ok(edited(&[bytes, more].concat())))
}

fn said(result: Result<Written, WriteFault>) -> String {
    match result {
        Ok(Written::Done) => "done".into(),
        Ok(Written::Replayed(told)) => {
            format!("replayed {}", String::from_utf8(told).unwrap().escape_debug())
        }
        Err(fault) => fault.to_string(),
    }
}

#[test]
fn a_change_takes_the_files_place_and_leaves_nothing() {
    let folder = Folder::new(b"a");
    let keeper = Keeper::new(&folder.path);
    assert_eq!(said(add(&keeper, terms(None), b"b")), "done");
    assert_eq!(said(add(&keeper, terms(None), b"c")), "done");
    assert_eq!((folder.content(), folder.names()), (b"abc".to_vec(), vec!["data.csv".to_owned()]));
}

#[test]
fn what_is_refused_changes_nothing() {
    let folder = Folder::new(b"a");
    let keeper = Keeper::new(&folder.path);
    let result = keeper.replace(terms(1), &mut |_| Err(WriteFault::NotFound));
    assert_eq!(said(result), "nothing has this key");
    assert_eq!((folder.content(), folder.names()), (b"a".to_vec(), vec!["data.csv".to_owned()]));
}

#[test]
fn a_claim_is_made_good_once() {
    let folder = Folder::new(b"a");
    let keeper = Keeper::new(&folder.path);
    assert_eq!(said(add(&keeper, terms(1), b"b")), "done");
    // Whoever asks again, and in whichever process: what was told the first time.
    for keeper in [&keeper, &Keeper::new(&folder.path)] {
        assert_eq!(said(add(keeper, terms(1), b"b")), r"replayed told\n\\n ab");
        let other = Claim { asked: [8; 32], ..claim(1) };
        let other = add(keeper, Terms { claim: Some(other), ..terms(None) }, b"b");
        assert_eq!(said(other), "this idempotency key was used for something else");
    }
    assert_eq!(said(add(&keeper, terms(2), b"c")), "done");
    assert_eq!(folder.content(), b"abc");
    assert_eq!(folder.names(), [".data.csv.spile-claims", "data.csv"]);
}

#[test]
fn a_change_that_changes_nothing_is_a_claim_too() {
    let folder = Folder::new(b"a");
    let keeper = Keeper::new(&folder.path);
    let modified = folder.path.metadata().unwrap().modified().unwrap();
    assert_eq!(said(add(&keeper, terms(1), b"")), "done");
    assert_eq!(folder.path.metadata().unwrap().modified().unwrap(), modified);
    assert_eq!(said(add(&keeper, terms(1), b"")), r"replayed told\n\\n a");
}

#[test]
fn a_dry_run_judges_everything_and_leaves_nothing() {
    let folder = Folder::new(b"a");
    let keeper = Keeper::new(&folder.path);
    let dry = |number| Terms { dry_run: true, ..terms(number) };
    assert_eq!(said(add(&keeper, dry(1), b"b")), "done");
    assert_eq!(said(add(&keeper, dry(1), b"b")), "done");
    assert_eq!((folder.content(), folder.names()), (b"a".to_vec(), vec!["data.csv".to_owned()]));
    assert_eq!(said(add(&keeper, terms(1), b"b")), "done");
    let claims = std::fs::read(folder.claims()).unwrap();
    assert_eq!(said(add(&keeper, dry(1), b"b")), r"replayed told\n\\n ab");
    assert_eq!(said(add(&keeper, dry(2), b"c")), "done");
    assert_eq!(std::fs::read(folder.claims()).unwrap(), claims);
}

#[test]
fn who_was_killed_is_settled_by_what_the_file_holds() {
    let table: [(&[u8], &str, &[u8]); 3] = [
        // Before the new file took its place.
        (b"a", "done", b"ab"),
        // After it.
        (b"ab", r"replayed told\n\\n ab", b"ab"),
        // After it, and then somebody else was there.
        (b"xy", "whether this was done before cannot be told any more; read the record and decide", b"xy"),
    ];
    for (found, expected, left) in table {
        for dry_first in [false, true] {
            let folder = Folder::new(b"a");
            folder.killed(1, b"ab");
            std::fs::write(&folder.path, found).unwrap();
            let keeper = Keeper::new(&folder.path);
            if dry_first {
                assert_eq!(said(add(&keeper, Terms { dry_run: true, ..terms(1) }, b"b")), expected);
            }
            assert_eq!(said(add(&keeper, terms(1), b"b")), expected, "{found:?}");
            assert_eq!(folder.content(), left, "{found:?}");
            // It stays so whatever comes after, and only for this claim.
            assert_eq!(said(add(&keeper, terms(2), b"c")), "done");
            let again = if expected == "done" { r"replayed told\n\\n ab" } else { expected };
            assert_eq!(said(add(&Keeper::new(&folder.path), terms(1), b"b")), again, "{found:?}");
        }
    }
}

#[test]
fn who_comes_without_a_claim_settles_too() {
    let folder = Folder::new(b"a");
    folder.killed(1, b"ab");
    std::fs::write(&folder.path, b"ab").unwrap();
    let keeper = Keeper::new(&folder.path);
    assert_eq!(said(add(&keeper, terms(None), b"c")), "done");
    assert_eq!(said(add(&keeper, terms(1), b"b")), r"replayed told\n\\n ab");
}

#[test]
fn a_torn_end_is_cut_off_wherever_it_was_torn() {
    let folder = Folder::new(b"a");
    let keeper = Keeper::new(&folder.path);
    add(&keeper, terms(1), b"b").unwrap();
    let first = std::fs::read(folder.claims()).unwrap();
    add(&keeper, terms(2), b"c").unwrap();
    let second = std::fs::read(folder.claims()).unwrap();
    assert!(second.starts_with(&first));
    for length in (first.len()..second.len()).step_by(7).chain([second.len() - 1]) {
        std::fs::write(folder.claims(), &second[..length]).unwrap();
        std::fs::write(&folder.path, b"abc").unwrap();
        let keeper = Keeper::new(&folder.path);
        assert_eq!(said(add(&keeper, terms(1), b"b")), r"replayed told\n\\n ab", "{length}");
        // Its first line was durable before the file was replaced: this cannot be, but by a disk that lies.
        let begun = first.len() + second[first.len()..].iter().position(|byte| *byte == b'\n').unwrap();
        let expected = if length > begun { r"replayed told\n\\n abc" } else { "done" };
        assert_eq!(said(add(&keeper, terms(2), b"c")), expected, "{length}");
    }
    // Zeros, as file systems leave them.
    std::fs::write(folder.claims(), [&first[..], &[0; 40]].concat()).unwrap();
    assert_eq!(said(add(&Keeper::new(&folder.path), terms(1), b"b")), r"replayed told\n\\n ab");
    assert_eq!(std::fs::read(folder.claims()).unwrap(), first);
}

#[test]
fn claims_that_are_damaged_are_not_trusted() {
    let folder = Folder::new(b"a");
    let keeper = Keeper::new(&folder.path);
    add(&keeper, terms(1), b"b").unwrap();
    add(&keeper, terms(2), b"c").unwrap();
    let whole = std::fs::read(folder.claims()).unwrap();
    let mut flipped = whole.clone();
    flipped[100] ^= 1;
    for damaged in [flipped, b"something else\n".to_vec(), [b"\n", &whole[..]].concat()] {
        std::fs::write(folder.claims(), &damaged).unwrap();
        let keeper = Keeper::new(&folder.path);
        for number in [1, 3] {
            let fault = add(&keeper, terms(number), b"x").unwrap_err();
            assert!(matches!(&fault, WriteFault::Source(SourceFault::Changed { .. })), "{fault:?}");
            assert!(fault.to_string().contains("write without one, or let the owner remove"), "{fault}");
        }
        assert_eq!(said(add(&keeper, terms(None), b"x")), "done");
        assert_eq!(std::fs::read(folder.claims()).unwrap(), damaged);
    }
    std::fs::remove_file(folder.claims()).unwrap();
    assert_eq!(said(add(&keeper, terms(1), b"b")), "done");
}

#[test]
fn a_claim_is_kept_for_so_long_and_not_for_ever() {
    let folder = Folder::new(b"a");
    let keeper = Keeper::new(&folder.path);
    let at = |number: u8, now_ms: u64| Terms { now_ms, ..terms(number) };
    add(&keeper, at(1, 0), b"b").unwrap();
    assert_eq!(said(add(&keeper, at(1, CLAIM_AGE_MS), b"b")), r"replayed told\n\\n ab");
    assert_eq!(said(add(&keeper, at(1, CLAIM_AGE_MS + 1), b"b")), "done");
    add(&keeper, at(2, CLAIM_AGE_MS + DAY_MS), b"c").unwrap();
    let size = std::fs::metadata(folder.claims()).unwrap().len();
    // What is older than anybody remembers goes.
    add(&keeper, at(3, 3 * CLAIM_AGE_MS), b"d").unwrap();
    assert!(std::fs::metadata(folder.claims()).unwrap().len() < size);
    assert_eq!(said(add(&keeper, at(3, 3 * CLAIM_AGE_MS), b"d")), r"replayed told\n\\n abbcd");
    // A clock that was set back keeps what there is.
    assert_eq!(said(add(&keeper, at(3, 0), b"d")), r"replayed told\n\\n abbcd");
    assert_eq!(folder.names(), [".data.csv.spile-claims", "data.csv"]);
}

#[test]
fn of_too_many_claims_the_oldest_go() {
    let folder = Folder::new(b"a");
    let numbered = |number: usize| {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&number.to_le_bytes());
        Claim { id, asked: [7; 32] }
    };
    let target = Target::find(&folder.path).unwrap();
    let before = target.read().unwrap();
    let mut known = Known::default();
    let mut claims = Claims::open(&target, &mut known).unwrap();
    let most = CLAIMS_MAX + CLAIMS_MAX / 4 + 2;
    claims.record(numbered(0), &before, &edited(b"a"), 0).unwrap();
    // As many processes would have written them.
    let mut lines = Vec::new();
    for number in 1..most - 1 {
        let claim = numbered(number);
        lines.extend(begun_line(claim, [1; 32], [2; 32], &told(b"a"), 0));
        lines.extend(end_line(&claim.id, End::Done));
    }
    File::options().append(true).open(folder.claims()).unwrap().write_all(&lines).unwrap();
    let mut claims = Claims::open(&target, &mut known).unwrap();
    claims.record(numbered(most - 1), &before, &edited(b"a"), 0).unwrap();
    let mut known = Known::default();
    let mut claims = Claims::look(&target, &mut known, b"a").unwrap();
    let mut is_known = |number| claims.find(numbered(number), 0).unwrap() == Found::Done(told(b"a"));
    assert_eq!([0, most - CLAIMS_MAX - 2].map(&mut is_known), [false; 2]);
    assert_eq!([most - CLAIMS_MAX - 1, most - 1].map(&mut is_known), [true; 2]);
}

#[test]
fn what_is_told_has_a_size() {
    let folder = Folder::new(b"a");
    let keeper = Keeper::new(&folder.path);
    let large = || Edited { bytes: b"b".to_vec(), told: vec![b'x'; super::TOLD_BYTES_MAX + 1] };
    let result = keeper.replace(terms(1), &mut |_| Ok(large()));
    assert_eq!(said(result), "the record is too large to be kept with an idempotency key");
    assert_eq!((folder.content(), folder.names()), (b"a".to_vec(), vec!["data.csv".to_owned()]));
    assert_eq!(said(keeper.replace(terms(None), &mut |_| Ok(large()))), "done");
}

#[test]
fn whoever_else_writes_meanwhile_is_not_written_over() {
    type Other = fn(&Path);
    let others: [Other; 4] = [
        // In place, to the same length.
        |path| std::fs::write(path, b"x").unwrap(),
        |path| std::fs::write(path, b"longer").unwrap(),
        // By another file in its place, even with the same content.
        |path| {
            std::fs::write(path.with_extension("new"), b"a").unwrap();
            std::fs::rename(path.with_extension("new"), path).unwrap();
        },
        |path| std::fs::remove_file(path).unwrap(),
    ];
    for (at, other) in others.iter().enumerate() {
        let folder = Folder::new(b"a");
        let keeper = Keeper::new(&folder.path);
        let result = keeper.replace(terms(1), &mut |bytes| {
            other(&folder.path);
            Ok(edited(&[bytes, b"b"].concat()))
        });
        let found = std::fs::read(&folder.path).ok();
        let fault = result.unwrap_err();
        match at {
            3 => assert!(fault.to_string().contains("it is not there"), "{fault}"),
            _ => assert!(matches!(fault, WriteFault::Source(SourceFault::Busy { .. })), "{fault:?}"),
        }
        assert_eq!(found.as_deref(), [&b"x"[..], b"longer", b"a"].get(at).copied());
        assert!(folder.names().iter().all(|name| !name.ends_with(".tmp") && !name.ends_with("-lock")));
        // It was not done, so it can be.
        std::fs::write(&folder.path, b"a").unwrap();
        assert_eq!(said(add(&keeper, terms(1), b"b")), "done", "{at}");
    }
}

#[test]
fn many_write_one_file_and_each_change_is_there() {
    let folder = Folder::new(b"");
    let shared = Keeper::new(&folder.path);
    let replayed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (folder, shared, replayed) = (&folder, &shared, &replayed);
            scope.spawn(move || {
                // Some share a keeper, some have one of their own, as another process would.
                let own = Keeper::new(&folder.path);
                let keeper = if thread.is_multiple_of(2) { shared } else { &own };
                for number in 0..10 {
                    // Two threads have the same claims.
                    let id = 10 * (thread / 2) + number;
                    let line = format!("{id}\n");
                    if let Written::Replayed(_) = add(keeper, terms(id), line.as_bytes()).unwrap() {
                        replayed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let content = String::from_utf8(folder.content()).unwrap();
    let mut lines: Vec<u8> = content.lines().map(|line| line.parse().unwrap()).collect();
    lines.sort_unstable();
    assert_eq!(lines, (0..20).collect::<Vec<u8>>());
    assert_eq!(replayed.into_inner(), 20);
    assert_eq!(folder.names(), [".data.csv.spile-claims", "data.csv"]);
}

#[test]
fn who_does_not_get_the_lock_is_told_so() {
    let folder = Folder::new(b"a");
    let target = Target::find(&folder.path).unwrap();
    let at_once = || Patience { until: std::time::Instant::now(), stop: None };
    let held = Lock::take(&target, at_once()).unwrap();
    let result = Lock::take(&target, at_once());
    assert!(matches!(result.err(), Some(SourceFault::Busy { .. })));
    drop(held);
    assert_eq!(folder.names(), ["data.csv"]);
}

#[test]
fn what_nobody_waits_for_is_not_written() {
    for number in [None, Some(1)] {
        for more in [&b"b"[..], b""] {
            let folder = Folder::new(b"a");
            let keeper = Keeper::new(&folder.path);
            let stop = AtomicBool::new(true);
            let terms = Terms { stop: Some(&stop), ..terms(number) };
            // They left before it began, and when all was done but to keep it.
            for is_gone in [true, false] {
                stop.store(is_gone, Ordering::Relaxed);
                let ended = keeper.replace(terms, &mut |bytes| {
                    assert!(!is_gone, "nobody waits");
                    stop.store(true, Ordering::Relaxed);
                    Ok(edited(&[bytes, more].concat()))
                });
                assert!(matches!(ended, Err(WriteFault::Source(SourceFault::Stopped))), "{ended:?}");
                assert_eq!((folder.content(), folder.names()), (b"a".to_vec(), vec!["data.csv".to_owned()]));
            }
            stop.store(false, Ordering::Relaxed);
            assert_eq!(said(add(&keeper, terms, more)), "done");
        }
    }
}

#[test]
fn who_left_does_not_wait_for_the_lock() {
    let folder = Folder::new(b"a");
    let target = Target::find(&folder.path).unwrap();
    let held = Lock::take(&target, Patience::of(&terms(None))).unwrap();
    let keeper = Keeper::new(&folder.path);
    let stop = AtomicBool::new(false);
    let terms = Terms { stop: Some(&stop), ..terms(1) };
    let is_waited_for = || target.beside("lock").metadata().unwrap().len() > 0;
    std::thread::scope(|scope| {
        // One waits for the lock, and the other for the one.
        let both = [(); 2].map(|()| scope.spawn(|| add(&keeper, terms, b"b")));
        while !is_waited_for() {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        for one in both {
            let ended = one.join().unwrap();
            assert!(matches!(ended, Err(WriteFault::Source(SourceFault::Stopped))), "{ended:?}");
        }
    });
    drop(held);
    assert_eq!((folder.content(), folder.names()), (b"a".to_vec(), vec!["data.csv".to_owned()]));
}

#[test]
fn what_the_killed_left_is_swept() {
    let folder = Folder::new(b"a");
    let theirs = ["data.csv.tmp", ".data.csv.spile-notes", ".other.csv.spile-0123.tmp"];
    let ours =
        [".data.csv.spile-0123456789abcdef.tmp", ".data.csv.spile-claims-00.tmp", ".data.csv.spile-lock"];
    let put = |names: &[&str]| {
        names.iter().for_each(|name| std::fs::write(folder.folder.path().join(name), b"half").unwrap());
    };
    put(&theirs);
    put(&ours);
    let keeper = Keeper::new(&folder.path);
    let mut expected = theirs.map(str::to_owned).to_vec();
    expected.push("data.csv".into());
    expected.sort();
    for _ in 0..2 {
        assert_eq!(said(add(&keeper, terms(None), b"b")), "done");
        assert_eq!(folder.names(), expected);
        // Left while we run, by another process.
        put(&ours);
    }
}

#[cfg(unix)]
mod unix {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::{Folder, Keeper, add, said, terms};

    #[test]
    fn a_link_stays_a_link_and_its_file_is_written() {
        let folder = Folder::new(b"a");
        let elsewhere = tempfile::tempdir().unwrap();
        let link = elsewhere.path().join("link.csv");
        symlink(&folder.path, &link).unwrap();
        assert_eq!(said(add(&Keeper::new(&link), terms(1), b"b")), "done");
        assert_eq!(said(add(&Keeper::new(&folder.path), terms(1), b"b")), r"replayed told\n\\n ab");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(folder.content(), b"ab");
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    }

    #[test]
    fn mode_and_marks_are_kept() {
        for mode in [0o600, 0o640, 0o664, 0o755] {
            let folder = Folder::new(b"a");
            std::fs::set_permissions(&folder.path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(said(add(&Keeper::new(&folder.path), terms(1), b"b")), "done");
            assert_eq!(folder.path.metadata().unwrap().mode() & 0o7777, mode);
            // What is told of rows is nobody else's business either.
            assert_eq!(folder.claims().metadata().unwrap().mode() & 0o7777, mode);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn attributes_are_kept() {
        use rustix::fs::{XattrFlags, getxattr, setxattr};
        let folder = Folder::new(b"a");
        // Not every file system has them.
        if setxattr(&folder.path, "user.mark", b"red", XattrFlags::empty()).is_ok() {
            assert_eq!(said(add(&Keeper::new(&folder.path), terms(None), b"b")), "done");
            let mut value = [0; 8];
            let length = getxattr(&folder.path, "user.mark", &mut value[..]).unwrap();
            assert_eq!(&value[..length], b"red");
        }
    }

    #[test]
    fn what_a_new_file_would_change_is_not_written() {
        let check = |folder: &Folder, why: &str| {
            let keeper = Keeper::new(&folder.path);
            assert_eq!(keeper.read_only().as_deref(), Some(why));
            let expected = format!("`data.csv` cannot be written, nothing was changed: {why}");
            assert_eq!(said(add(&keeper, terms(1), b"b")), expected);
            assert_eq!(folder.content(), b"a");
            assert!(folder.names().iter().all(|name| !name.starts_with('.')));
        };
        let folder = Folder::new(b"a");
        assert_eq!(Keeper::new(&folder.path).read_only(), None);
        std::fs::hard_link(&folder.path, folder.folder.path().join("twin.csv")).unwrap();
        check(&folder, "it has several names (hard links), which a new file would part");
        let folder = Folder::new(b"a");
        std::fs::set_permissions(&folder.path, Permissions::from_mode(0o444)).unwrap();
        check(&folder, "it is marked read-only");
        if !rustix::process::geteuid().is_root() {
            let folder = Folder::new(b"a");
            std::fs::set_permissions(folder.folder.path(), Permissions::from_mode(0o555)).unwrap();
            check(&folder, "the server may not write its folder, where the new file is made");
            std::fs::set_permissions(folder.folder.path(), Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn what_lies_beside_is_ours_or_nothing_is_written() {
        for name in [".data.csv.spile-lock", ".data.csv.spile-claims"] {
            let folder = Folder::new(b"a");
            let victim = folder.folder.path().join("victim");
            std::fs::write(&victim, b"v").unwrap();
            symlink(&victim, folder.folder.path().join(name)).unwrap();
            let told = said(add(&Keeper::new(&folder.path), terms(1), b"b"));
            assert_eq!(told, "`data.csv` cannot be written, nothing was changed: the log says why", "{name}");
            assert_eq!((folder.content(), std::fs::read(&victim).unwrap()), (b"a".to_vec(), b"v".to_vec()));
        }
    }

    #[test]
    fn a_file_that_is_gone_is_told() {
        let folder = Folder::new(b"a");
        std::fs::remove_file(&folder.path).unwrap();
        let told = said(add(&Keeper::new(&folder.path), terms(1), b"b"));
        let expected = "`data.csv` cannot be written, nothing was changed: it is not there; check its name, or put \
                        it back";
        assert_eq!(told, expected);
        let missing = folder.folder.path().join("gone/data.csv");
        assert_eq!(said(add(&Keeper::new(&missing), terms(1), b"b")), expected);
    }

    /// `/dev/full` cannot be replaced, so the disk that is full is one of our own making.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_limit_of_the_system_leaves_the_file_alone() {
        let folder = Folder::new(b"a");
        let long = "x".repeat(240);
        let path = folder.folder.path().join(format!("{long}.csv"));
        std::fs::write(&path, b"a").unwrap();
        // The name fits, and the names beside it do not.
        let told = said(add(&Keeper::new(&path), terms(1), b"b"));
        assert!(told.ends_with("cannot be written, nothing was changed: the log says why"), "{told}");
        assert_eq!(std::fs::read(&path).unwrap(), b"a");
    }
}

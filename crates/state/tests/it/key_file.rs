//! Key files: created once, shared, rotated, and refused with a way out.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};
use spile_core::Platform;
use state::keyring::{
    FILE_BYTES_MAX, KeyFileError, KeySource, Keyring, OpenError, Purpose, Reload, default_key_file,
};
use tempfile::TempDir;

use crate::platform::TestPlatform;

/// A folder, and a path in it where no file is yet.
fn new_path() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys");
    (folder, path)
}

fn open(path: &Path) -> Keyring {
    Keyring::open_file(path, &TestPlatform::new()).expect("usable")
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).expect("exists").permissions().mode() & 0o777
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("it is ours");
}

#[test]
fn the_default_file_follows_the_xdg_specification() {
    let check = |state: Option<&str>, home: Option<&str>, expected: Option<&str>| {
        let found = default_key_file(state.map(OsStr::new), home.map(OsStr::new));
        assert_eq!(found.as_deref(), expected.map(Path::new), "{state:?} {home:?}");
    };
    check(Some("/s"), Some("/h"), Some("/s/spile/keys"));
    check(None, Some("/h"), Some("/h/.local/state/spile/keys"));
    check(Some("relative"), Some("/h"), Some("/h/.local/state/spile/keys"));
    check(Some(""), Some("/h"), Some("/h/.local/state/spile/keys"));
    check(None, Some("relative"), None);
    check(None, None, None);
}

#[test]
fn the_default_file_is_created_private_with_its_folders() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/spile/keys");
    let ring = Keyring::open_default(Some(&path), &TestPlatform::new());
    assert_eq!(ring.origin(), &KeySource::NewFile(path.clone()));
    assert_eq!(ring.warning(), None);
    #[cfg(unix)]
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(file_names(path.parent().unwrap()), ["keys"], "nothing else stays");
    let again = Keyring::open_default(Some(&path), &TestPlatform::new());
    assert_eq!(again.origin(), &KeySource::File(path));
    assert_eq!(again.keys(), ring.keys());
}

#[test]
fn without_a_usable_default_file_the_keys_are_for_this_run_and_the_user_is_warned() {
    let (folder, path) = new_path();
    std::fs::write(folder.path().join("file"), "").unwrap();
    std::fs::create_dir(&path).unwrap();
    let below_file = folder.path().join("file/spile/keys");
    for (path, reason) in
        [(None, "HOME"), (Some(&*below_file), "create the folder"), (Some(&*path), "not a regular file")]
    {
        let ring = Keyring::open_default(path, &TestPlatform::new());
        assert_eq!(ring.origin(), &KeySource::ThisRun);
        let warning = ring.warning().expect("a warning");
        for part in [reason, "--key-file", "this run only"] {
            assert!(warning.contains(part), "{part}: {warning}");
        }
        assert_eq!(ring.reload().unwrap(), Reload::Unchanged);
    }
}

#[test]
fn a_named_file_is_created_but_not_its_folder() {
    let (folder, path) = new_path();
    assert_eq!(open(&path).origin(), &KeySource::NewFile(path.clone()));
    assert_eq!(open(&path).origin(), &KeySource::File(path));
    let missing = folder.path().join("missing");
    assert!(matches!(Keyring::open_existing(&missing), Err(KeyFileError::Io { action: "open", .. })));
    assert!(!missing.exists());
    let error = Keyring::open_file(&folder.path().join("no/keys"), &TestPlatform::new()).unwrap_err();
    assert!(matches!(error, KeyFileError::Io { action: "create", .. }), "{error}");
}

#[test]
fn threads_that_start_at_once_get_the_same_keys() {
    for _ in 0..20 {
        let (folder, path) = new_path();
        let barrier = Barrier::new(8);
        let start = || {
            barrier.wait();
            open(&path)
        };
        let rings: Vec<Keyring> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(rings.iter().all(|ring| ring.keys() == rings[0].keys()));
        let creators = rings.iter().filter(|ring| matches!(ring.origin(), KeySource::NewFile(_))).count();
        assert_eq!(creators, 1);
        assert_eq!(file_names(folder.path()), ["keys"]);
    }
}

#[test]
fn threads_that_rotate_at_once_all_add_their_key() {
    let (folder, path) = new_path();
    let platform = TestPlatform::new();
    let first = open(&path).keys()[0].id;
    let barrier = Barrier::new(8);
    let rotate = || {
        let ring = open(&path);
        barrier.wait();
        ring.rotate(1000, &platform).expect("there is room")
    };
    let mut ids: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(rotate)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    ids.push(first);
    ids.sort();
    let mut found: Vec<_> = open(&path).keys().iter().map(|key| key.id).collect();
    found.sort();
    assert_eq!(found, ids);
    assert_eq!(file_names(folder.path()), ["keys"]);
    #[cfg(unix)]
    assert_eq!(mode(&path), 0o600);
}

proptest! {
    // Each rotation waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn processes_with_one_file_accept_each_other_across_rotations(rotations: [bool; 4], payload: Vec<u8>) {
        let (_folder, path) = new_path();
        let platform = TestPlatform::new();
        let rings = [open(&path), open(&path)];
        let mut sealed = Vec::new();
        for by_second in rotations {
            for ring in &rings {
                sealed.push(ring.seal(Purpose::Session, b"alice", &payload, &platform));
            }
            rings[usize::from(by_second)].rotate(1000, &platform).expect("there is room");
            // Without a reload: an unknown key makes the other server read the file.
            sealed.push(rings[usize::from(by_second)].seal(Purpose::Session, b"alice", &payload, &platform));
            for text in &sealed {
                for ring in &rings {
                    prop_assert_eq!(ring.open(Purpose::Session, b"alice", text, platform.now_ms()), Ok(payload.clone()));
                }
            }
        }
        // A restart.
        let ring = open(&path);
        for text in &sealed {
            prop_assert_eq!(ring.open(Purpose::Session, b"alice", text, platform.now_ms()), Ok(payload.clone()));
        }
    }
}

#[test]
fn reload_follows_the_file_and_keeps_the_keys_when_it_cannot_be_used() {
    let (_folder, path) = new_path();
    let platform = TestPlatform::new();
    let (ring, other) = (open(&path), open(&path));
    assert_eq!(ring.reload().unwrap(), Reload::Unchanged);
    let new = other.rotate(1000, &platform).unwrap();
    assert_eq!(ring.reload().unwrap(), Reload::Changed);
    assert_eq!(ring.keys()[0].id, new);
    assert_eq!(ring.keys(), other.keys());

    let (good, keys) = (std::fs::read(&path).unwrap(), ring.keys());
    std::fs::write(&path, "not keys").unwrap();
    assert!(matches!(ring.reload(), Err(KeyFileError::Invalid { .. })));
    assert_eq!(ring.reload().unwrap(), Reload::Unchanged, "one report for each state");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(ring.reload(), Err(KeyFileError::Io { .. })));
    assert_eq!(ring.keys(), keys);
    let sealed = other.seal(Purpose::Cursor, b"", b"x", &platform);
    assert!(ring.open(Purpose::Cursor, b"", &sealed, platform.now_ms()).is_ok());

    std::fs::write(&path, good).unwrap();
    #[cfg(unix)]
    set_mode(&path, 0o600);
    assert_eq!(ring.reload().unwrap(), Reload::Changed);
}

#[test]
fn a_text_of_other_keys_is_refused_with_that_reason() {
    let (folder, path) = new_path();
    let platform = TestPlatform::new();
    let (ours, theirs) = (open(&path), open(&folder.path().join("others")));
    let sealed = theirs.seal(Purpose::Session, b"", b"x", &platform);
    let unknown = OpenError::UnknownKey(theirs.keys()[0].id);
    assert_eq!(ours.open(Purpose::Session, b"", &sealed, platform.now_ms()), Err(unknown));
}

/// In an emergency all older keys end at once, however many there are.
#[test]
fn a_full_file_can_be_rotated_without_an_overlap() {
    let (_folder, path) = new_path();
    let (ring, platform) = (open(&path), TestPlatform::new());
    while ring.rotate(1000, &platform).is_ok() {}
    assert!(matches!(ring.rotate(1000, &platform), Err(KeyFileError::TooManyKeys { .. })));
    let sealed = ring.seal(Purpose::Session, b"", b"text", &platform);
    ring.rotate(0, &platform).expect("the others have ended");
    let opened = open(&path).open(Purpose::Session, b"", &sealed, platform.now_ms());
    assert!(opened.is_err(), "an ended key opens nothing");
}

#[test]
fn comments_and_order_survive_a_rotation() {
    let (_folder, path) = new_path();
    let platform = TestPlatform::new();
    let ring = open(&path);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("# ours\r\n\n  {text}\n\n#end")).unwrap();
    let old = ring.keys()[0].id;
    let new = ring.rotate(1000, &platform).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), ("# ours", "#end"));
    let start_ms = TestPlatform::START_MS;
    assert!(lines[4].starts_with(&format!("key 1 {new} {start_ms} - ")), "{text}");
    assert!(lines[5].starts_with(&format!("key 1 {old} {start_ms} {} ", start_ms + 1000)), "{text}");
}

#[test]
fn a_new_key_can_be_distributed_before_it_seals() {
    let (folder, path) = new_path();
    let platform = TestPlatform::new();
    let ahead = open(&path);
    ahead.rotate(1000, &platform).unwrap();
    // The same lines with the old key first, as a replica gets them that is not to use the new key yet.
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let until_ms = (TestPlatform::START_MS + 1000).to_string();
    let old = lines.pop().unwrap().replace(&until_ms, "-");
    lines.insert(2, &old);
    let copy = folder.path().join("copy");
    drop(open(&copy));
    std::fs::write(&copy, lines.join("\n")).unwrap();
    let behind = open(&copy);
    assert_eq!(behind.keys()[0].id, ahead.keys()[1].id);
    for (from, to) in [(&ahead, &behind), (&behind, &ahead)] {
        let sealed = from.seal(Purpose::Session, b"", b"x", &platform);
        assert_eq!(to.open(Purpose::Session, b"", &sealed, platform.now_ms()), Ok(b"x".to_vec()));
    }
}

/// Rewrites a good file with `change`, and expects `problem` in the error, the path, and a way out.
#[track_caller]
fn check_invalid(change: impl Fn(&str) -> Vec<u8>, problem: &str) {
    let (_folder, path) = new_path();
    let ring = open(&path);
    ring.rotate(1000, &TestPlatform::new()).expect("there is room");
    let bytes = change(&std::fs::read_to_string(&path).expect("a private file"));
    std::fs::write(&path, &bytes).expect("a private file");
    let error = Keyring::open_file(&path, &TestPlatform::new()).expect_err(problem);
    let text = error.to_string();
    for part in [problem, &*path.to_string_lossy(), "restore it from a backup, or delete it"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(ring.rotate(1000, &TestPlatform::new()).is_err(), "a file that cannot be used is not replaced");
    assert_eq!(std::fs::read(&path).expect("a private file"), bytes);
}

#[test]
fn a_damaged_file_is_refused_with_its_line() {
    check_invalid(|_| Vec::new(), "it contains no key");
    check_invalid(|_| b"# nothing\n".to_vec(), "it contains no key");
    check_invalid(|_| vec![0xff, 0xfe], "not UTF-8");
    check_invalid(|text| text.replace("names ", "# names ").into(), "no `names` line");
    check_invalid(
        |text| format!("{text}{}", text.lines().nth(1).unwrap()).into(),
        "line 5: a second `names`",
    );
    check_invalid(|text| format!("{text}{}", text.lines().nth(2).unwrap()).into(), "line 5: the same key");
    check_invalid(|text| text.replacen(" - ", " 5 ", 1).into(), "line 3: the first key must not end");
    check_invalid(|text| text.replacen(" - ", " ", 1).into(), "line 3: a field is missing");
    check_invalid(|text| text.replacen(" - ", " +5 ", 1).into(), "line 3: expected a time");
    check_invalid(|text| text.replacen("key 1", "key 2", 1).into(), "line 3: unknown version");
    check_invalid(|text| text.replacen("key 1", "kay 1", 1).into(), "line 3: expected `key`");
    check_invalid(|text| text.replacen("=\nkey", "\nkey", 1).into(), "line 2: expected 32 bytes");
    check_invalid(|text| text[..text.len() - 10].into(), "line 4: expected 32 bytes");
    check_invalid(|text| [text, &"#".repeat(FILE_BYTES_MAX as usize)].concat().into(), "64 KiB");
    check_invalid(
        |text| {
            // The id of one key before another key.
            let (first, second) = (text.lines().nth(2).unwrap(), text.lines().nth(3).unwrap());
            let id = |line: &str| line.split(' ').nth(2).unwrap().to_owned();
            text.replacen(&id(first), &id(second), 1).into()
        },
        "line 3: the id does not belong to the key",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_changed_character_of_a_key_is_noticed(at: proptest::sample::Index, to in "[A-Za-z0-9+/=]") {
        let (_folder, path) = new_path();
        drop(open(&path));
        let text = std::fs::read_to_string(&path).unwrap();
        let start = text.rfind(' ').unwrap() + 1;
        let at = start + at.index(text.len() - 1 - start);
        let changed = format!("{}{to}{}", &text[..at], &text[at + 1..]);
        std::fs::write(&path, &changed).unwrap();
        prop_assert_eq!(Keyring::open_file(&path, &TestPlatform::new()).is_ok(), changed == text);
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_others_can_use_is_refused_with_the_command_that_closes_it() {
    for open_mode in [0o604, 0o606, 0o620, 0o666, 0o777] {
        let (_folder, path) = new_path();
        let ring = open(&path);
        set_mode(&path, open_mode);
        let error = Keyring::open_file(&path, &TestPlatform::new()).unwrap_err();
        assert!(matches!(error, KeyFileError::Exposed { mode, .. } if mode == open_mode), "{error}");
        assert!(error.to_string().contains(&format!("chmod 600 {}", path.display())), "{error}");
        assert!(matches!(ring.reload(), Err(KeyFileError::Exposed { .. })), "the change of mode is noticed");
        assert!(matches!(ring.rotate(0, &TestPlatform::new()), Err(KeyFileError::Exposed { .. })));
        let fallback = Keyring::open_default(Some(&path), &TestPlatform::new());
        assert!(fallback.warning().is_some_and(|warning| warning.contains("chmod 600")));
        set_mode(&path, 0o400);
        assert_eq!(open(&path).keys(), ring.keys());
    }
}

#[cfg(unix)]
#[test]
fn only_regular_files_are_read_and_nothing_waits_for_a_pipe() {
    let (folder, path) = new_path();
    let refused = |path: &Path| {
        let error = Keyring::open_file(path, &TestPlatform::new()).unwrap_err();
        assert!(matches!(error, KeyFileError::NotAFile { .. }), "{error}");
    };
    refused(folder.path());
    refused(Path::new("/dev/null"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
    refused(&path);
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    refused(&socket);
}

#[cfg(unix)]
#[test]
fn a_link_is_followed_and_stays_one() {
    let (folder, path) = new_path();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let error = Keyring::open_file(&link, &TestPlatform::new()).unwrap_err();
    assert!(matches!(error, KeyFileError::Io { action: "open", .. }), "a link to nothing: {error}");

    let ring = open(&path);
    let linked = open(&link);
    linked.rotate(1000, &TestPlatform::new()).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(ring.reload().unwrap(), Reload::Changed);
    assert_eq!(ring.keys(), linked.keys());
    // Container platforms replace a secret by changing where a link leads.
    let other = open(&folder.path().join("other"));
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("other", &link).unwrap();
    assert_eq!(linked.reload().unwrap(), Reload::Changed);
    assert_eq!(linked.keys(), other.keys());
}

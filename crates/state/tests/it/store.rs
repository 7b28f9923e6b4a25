//! The stores under many callers, after crashes, with bad files, and with other keys.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use spile_core::Platform;
use state::keyring::Keyring;
use state::store::{
    EncryptedStore, HOLDER_BYTES_MAX, LeaseOutcome, LimitName, MemoryStore, NAME_BYTES_MAX, Namespace,
    OWNER_BYTES_MAX, OpenStoreError, PutOutcome, Sequence, SqliteStore, Store, StoreError, StoreKey,
    StoreLimits, Ttl,
};
use tempfile::TempDir;

use crate::platform::TestPlatform;
use crate::store_model::wait;

const NOW_MS: u64 = TestPlatform::START_MS;
const TTL: Ttl = Ttl { ms: 60_000 };

fn key<'a>(owner: &'a str, name: &'a str) -> StoreKey<'a> {
    StoreKey { namespace: Namespace::Approvals, owner: owner.as_bytes(), name: name.as_bytes() }
}

fn new_path() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    (folder, path)
}

pub fn sqlite(path: &Path) -> SqliteStore {
    SqliteStore::open(path, StoreLimits::default(), &TestPlatform::new()).expect("usable")
}

/// Runs `operation` at once on several threads, each with one of the stores, and counts where it returned true.
fn count_winners(stores: &[&dyn Store], operation: impl Fn(&dyn Store, usize) -> bool + Sync) -> usize {
    let barrier = Barrier::new(stores.len());
    let (barrier, operation) = (&barrier, &operation);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, store) in stores.iter().copied().enumerate() {
            threads.push(scope.spawn(move || {
                barrier.wait();
                operation(store, index)
            }));
        }
        threads.into_iter().filter_map(|thread| thread.join().expect("no panic").then_some(())).count()
    })
}

/// Single-use operations have one winner, whichever store each thread uses.
fn check_one_winner(stores: &[&dyn Store]) {
    for round in 0..10 {
        let name = format!("round {round}");
        let key = key("alice", &name);
        let put = |store: &dyn Store, index: usize| {
            wait(store.put_once(key, &[index as u8], TTL, NOW_MS)) == Ok(PutOutcome::Stored)
        };
        assert_eq!(count_winners(stores, put), 1, "put_once");
        let take = |store: &dyn Store, _| wait(store.take(key, NOW_MS)).expect("available").is_some();
        assert_eq!(count_winners(stores, take), 1, "take");
        let lease = |store: &dyn Store, index: usize| {
            wait(store.lease(key, &[index as u8], TTL, NOW_MS)) == Ok(LeaseOutcome::Held)
        };
        assert_eq!(count_winners(stores, lease), 1, "lease");
        let append = |store: &dyn Store, index: usize| {
            wait(store.append(key, &[index as u8], 100, TTL, NOW_MS)).is_ok()
        };
        assert_eq!(count_winners(stores, append), stores.len(), "append");
        let page = wait(stores[0].read_after(key, Sequence::START, 100, NOW_MS))
            .expect("available")
            .expect("a stream");
        let found: HashSet<u8> = page.entries.iter().map(|(_, value)| value[0]).collect();
        assert_eq!(found.len(), stores.len(), "every entry is there once");
        assert!(page.entries.is_sorted_by(|(a, _), (b, _)| a < b));
    }
}

#[test]
fn of_many_threads_one_wins_in_memory() {
    let store = MemoryStore::new(StoreLimits::default());
    check_one_winner(&[&store as &dyn Store; 8]);
}

#[test]
fn of_many_threads_one_wins_in_sqlite() {
    let (_folder, path) = new_path();
    let store = sqlite(&path);
    check_one_winner(&[&store as &dyn Store; 8]);
}

#[test]
fn of_many_handles_on_one_file_one_wins() {
    let (_folder, path) = new_path();
    let stores: Vec<SqliteStore> = (0..4).map(|_| sqlite(&path)).collect();
    let stores: Vec<&dyn Store> = stores.iter().map(|store| store as &dyn Store).collect();
    check_one_winner(&stores);
}

/// As many clients may answer at the same moment as a server has calls in progress.
#[tokio::test]
async fn more_callers_than_the_queue_holds_wait_for_their_turn() {
    const CALLERS: usize = 1000;
    let (_folder, path) = new_path();
    let store = sqlite(&path);
    let names: Vec<String> = (0..CALLERS).map(|n| n.to_string()).collect();
    let replies: Vec<_> =
        names.iter().map(|name| store.put_once(key("alice", name), b"", TTL, NOW_MS)).collect();
    for (name, reply) in names.iter().zip(replies) {
        assert_eq!(reply.await, Ok(PutOutcome::Stored), "{name}");
    }
    // Who still waits does not keep the store from closing.
    let waiting: Vec<_> =
        names.iter().map(|name| store.put_once(key("bob", name), b"", TTL, NOW_MS)).collect();
    drop(store);
    let mut refused = 0;
    for reply in waiting {
        refused += usize::from(reply.await == Err(StoreError::Unavailable));
    }
    assert!(refused > 0, "the last ones came too late");
}

#[test]
fn handles_that_create_the_file_at_once_share_it() {
    for _ in 0..5 {
        let (folder, path) = new_path();
        let barrier = Barrier::new(6);
        let open = || {
            barrier.wait();
            let store = sqlite(&path);
            wait(store.put_once(key("alice", "first"), b"", TTL, NOW_MS)) == Ok(PutOutcome::Stored)
        };
        let winners = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6).map(|_| scope.spawn(open)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().then_some(())).count()
        });
        assert_eq!(winners, 1);
        let hidden = std::fs::read_dir(folder.path()).unwrap();
        let hidden =
            hidden.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
        assert_eq!(hidden.count(), 0, "no temporary file stays");
    }
}

#[cfg(unix)]
#[test]
fn all_files_of_the_store_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, path) = new_path();
    let store = sqlite(&path);
    let _ = wait(store.put_once(key("alice", "x"), b"", TTL, NOW_MS)).unwrap();
    let files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 2, "the file and its log: {files:?}");
    for file in files {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file:?}");
    }
}

#[test]
fn a_burst_behind_a_locked_file_is_stored_when_the_lock_ends() {
    let (_folder, path) = new_path();
    let store = sqlite(&path);
    let locked = rusqlite::Connection::open(&path).unwrap();
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The thread waits for the lock with one batch; the queue fills behind it, and the rest waits for a place.
    let names: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    let replies: Vec<_> =
        names.iter().map(|name| store.put_once(key("alice", name), b"x", TTL, NOW_MS)).collect();
    locked.execute_batch("ROLLBACK").unwrap();
    for (name, reply) in names.iter().zip(replies) {
        assert_eq!(wait(reply), Ok(PutOutcome::Stored), "{name}");
        assert_eq!(wait(store.get(key("alice", name), NOW_MS)), Ok(Some(b"x".to_vec())), "{name}");
    }
}

#[test]
fn a_refused_verb_of_a_batch_does_not_undo_the_others() {
    let (_folder, path) = new_path();
    let limits = StoreLimits { owner_records_max: 1, ..StoreLimits::default() };
    let store = SqliteStore::open(&path, limits, &TestPlatform::new()).unwrap();
    let locked = rusqlite::Connection::open(&path).unwrap();
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let put = |owner, name| store.put_once(key(owner, name), b"x", TTL, NOW_MS);
    let replies = [put("alice", "1"), put("alice", "2"), put("bob", "1"), put("bob", "2"), put("carol", "1")];
    locked.execute_batch("ROLLBACK").unwrap();
    let full = Err(StoreError::Full { limit: LimitName::OwnerRecords });
    let stored = Ok(PutOutcome::Stored);
    assert_eq!(replies.map(wait), [stored, full, stored, full, stored]);
    assert_eq!(wait(store.get(key("bob", "1"), NOW_MS)), Ok(Some(b"x".to_vec())));
}

/// Bob's operation meets a database error in its middle, with the effect that `raise` has. Returns the answers to Alice,
/// Bob and Carol, whose operations wait together.
fn check_database_error(raise: &str) -> [Result<(), StoreError>; 3] {
    let (_folder, path) = new_path();
    let store = sqlite(&path);
    let other = rusqlite::Connection::open(&path).expect("a database");
    let trigger = format!(
        "CREATE TRIGGER broken BEFORE INSERT ON stream_entries WHEN NEW.value = x'00'
         BEGIN SELECT RAISE({raise}, 'driver text'); END;
         BEGIN IMMEDIATE;"
    );
    other.execute_batch(&trigger).expect("valid SQL");
    let append = |owner, value| store.append(key(owner, "stream"), value, 10, TTL, NOW_MS);
    let replies = [append("alice", &[1]), append("bob", &[0]), append("carol", &[1])];
    other.execute_batch("ROLLBACK").expect("valid SQL");
    let answers = replies.map(|reply| wait(reply).map(drop));
    for (owner, answer) in ["alice", "bob", "carol"].into_iter().zip(answers) {
        let page =
            wait(store.read_after(key(owner, "stream"), Sequence::START, 10, NOW_MS)).expect("available");
        assert_eq!(page.map(|page| page.entries.len()), answer.is_ok().then_some(1), "{raise}: {owner}");
    }
    answers
}

#[test]
fn a_database_error_undoes_its_verb_and_is_not_shown() {
    let failed = Err(StoreError::Unavailable);
    for raise in ["FAIL", "ABORT"] {
        assert_eq!(check_database_error(raise), [Ok(()), failed, Ok(())], "{raise}");
    }
    // It ends the transaction: the operations that share it fail too, and none of them has happened.
    assert_eq!(check_database_error("ROLLBACK")[1], failed);
}

/// A server that went on with a file that nobody else sees would accept what others have used.
#[cfg(unix)]
#[test]
fn a_store_that_was_deleted_or_replaced_is_unavailable() {
    for replacement in [None, Some("")] {
        let (_folder, path) = new_path();
        let store = sqlite(&path);
        assert_eq!(wait(store.put_once(key("alice", "one"), b"1", TTL, NOW_MS)), Ok(PutOutcome::Stored));
        std::fs::rename(&path, path.with_extension("old")).expect("renamed");
        if let Some(text) = replacement {
            std::fs::write(&path, text).expect("replaced");
        }
        let put = wait(store.put_once(key("alice", "two"), b"2", TTL, NOW_MS));
        assert_eq!(put, Err(StoreError::Unavailable), "{replacement:?}");
        std::fs::rename(path.with_extension("old"), &path).expect("renamed");
        assert_eq!(wait(store.get(key("alice", "one"), NOW_MS)), Ok(Some(b"1".to_vec())));
    }
}

#[test]
fn dropping_a_store_finishes_what_waits() {
    let (_folder, path) = new_path();
    let store = sqlite(&path);
    let reply = store.put_once(key("alice", "x"), b"v", TTL, NOW_MS);
    drop(store);
    assert_eq!(wait(reply), Ok(PutOutcome::Stored));
    assert_eq!(wait(sqlite(&path).get(key("alice", "x"), NOW_MS)), Ok(Some(b"v".to_vec())));
}

#[test]
fn names_that_are_too_long_are_refused() {
    let (_folder, path) = new_path();
    let (memory, sqlite) = (MemoryStore::new(StoreLimits::default()), sqlite(&path));
    let long = "x".repeat(1000);
    let refused = |limit, max: usize| StoreError::TooLarge { limit, max: max as u64, actual: 1000 };
    for store in [&memory as &dyn Store, &sqlite] {
        for (key, expected) in [
            (key(&long, "x"), refused(LimitName::OwnerLength, OWNER_BYTES_MAX)),
            (key("x", &long), refused(LimitName::NameLength, NAME_BYTES_MAX)),
        ] {
            assert_eq!(wait(store.put_once(key, b"", TTL, NOW_MS)), Err(expected));
            assert_eq!(wait(store.get(key, NOW_MS)), Err(expected));
            assert_eq!(wait(store.take(key, NOW_MS)), Err(expected));
            assert_eq!(wait(store.delete(key, NOW_MS)), Err(expected));
            assert_eq!(wait(store.append(key, b"", 1, TTL, NOW_MS)), Err(expected));
            assert_eq!(wait(store.read_after(key, Sequence::START, 1, NOW_MS)), Err(expected));
            assert_eq!(wait(store.lease(key, b"", TTL, NOW_MS)), Err(expected));
            assert_eq!(wait(store.renew(key, b"", TTL, NOW_MS)), Err(expected));
            assert_eq!(wait(store.release(key, b"", NOW_MS)), Err(expected));
        }
        let expected = refused(LimitName::HolderLength, HOLDER_BYTES_MAX);
        assert_eq!(wait(store.lease(key("x", "x"), long.as_bytes(), TTL, NOW_MS)), Err(expected));
    }
}

#[test]
fn errors_name_the_limit_and_no_driver() {
    let full = StoreError::Full { limit: LimitName::OwnerBytes }.to_string();
    assert!(full.contains("`owner_bytes_max`"), "{full}");
    let large = StoreError::TooLarge { limit: LimitName::EntryBytes, max: 5, actual: 6 }.to_string();
    assert_eq!(large, "6 exceeds the limit of 5 (`entry_bytes_max`); send less");
}

#[test]
fn a_file_that_is_not_a_store_is_refused_and_left_alone() {
    let (folder, path) = new_path();
    let open = |path: &Path| match SqliteStore::open(path, StoreLimits::default(), &TestPlatform::new()) {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    };
    drop(sqlite(&path));
    let good = std::fs::read(&path).unwrap();
    let rewrite = |bytes: &[u8]| std::fs::write(&path, bytes).unwrap();

    rewrite(
        b"this is not a database, and longer than the header of one is, which has one hundred bytes in all",
    );
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(open(&path), OpenStoreError::NotAStore { .. }));
    assert_eq!(std::fs::read(&path).unwrap(), before);

    rewrite(b"");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE people (name TEXT)").unwrap();
    drop(other);
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(open(&path), OpenStoreError::NotAStore { .. }));
    assert_eq!(std::fs::read(&path).unwrap(), before);

    rewrite(&good);
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(newer);
    let error = open(&path);
    assert!(matches!(error, OpenStoreError::UnknownVersion { version: 99, .. }), "{error}");

    assert!(matches!(open(folder.path()), OpenStoreError::NotAFile { .. }));
    assert!(matches!(open(&folder.path().join("no/store")), OpenStoreError::Io { .. }));
    #[cfg(unix)]
    {
        rewrite(&good);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let error = open(&path).to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }
}

struct Encrypted {
    engine: Arc<dyn Store>,
    keyring: Arc<Keyring>,
    store: EncryptedStore,
    platform: Arc<TestPlatform>,
}

impl Encrypted {
    fn new(engine: Arc<dyn Store>) -> Self {
        let platform = Arc::new(TestPlatform::new());
        let keyring = Arc::new(Keyring::for_this_run(&*platform));
        let store = EncryptedStore::new(engine.clone(), keyring.clone(), platform.clone());
        Self { engine, keyring, store, platform }
    }
}

/// A stream that is written to again and again is older than any key.
#[test]
fn entries_of_a_stream_whose_key_has_ended_do_not_hide_the_others() {
    let Encrypted { keyring, store, platform, .. } =
        Encrypted::new(Arc::new(MemoryStore::new(StoreLimits::default())));
    let (now, stream) = (|| platform.now_ms(), key("alice", "stream"));
    let append = |value: &[u8]| wait(store.append(stream, value, 10, TTL, now())).expect("available");
    let read = |after, entries_max| {
        let page = wait(store.read_after(stream, after, entries_max, now())).expect("available");
        page.expect("a stream")
    };
    for value in [b"1", b"2", b"3"] {
        append(value);
    }
    keyring.rotate(1000, &*platform).unwrap();
    assert_eq!(read(Sequence::START, 10).entries.len(), 3);
    platform.advance_ms(1000);
    let page = read(Sequence::START, 10);
    assert_eq!((page.entries, page.has_gap), (Vec::new(), true), "all are gone");

    let fourth = append(b"4");
    append(b"5");
    // A page that has room only for entries that are gone is not the end.
    for entries_max in [1, 2, 10] {
        let page = read(Sequence::START, entries_max);
        assert_eq!(page.entries[0], (fourth, b"4".to_vec()), "{entries_max} entries a page");
        assert!(page.has_gap);
    }
    let rest = read(fourth, 10);
    assert_eq!((rest.entries.len(), rest.has_gap), (1, false));
}

#[test]
fn entries_from_before_a_rotation_are_readable_until_the_overlap_ends_and_taken_once() {
    let Encrypted { keyring, store, platform, .. } =
        Encrypted::new(Arc::new(MemoryStore::new(StoreLimits::default())));
    let now = || platform.now_ms();
    let (one, two) = (key("alice", "one"), key("alice", "two"));
    for key in [one, two] {
        assert_eq!(wait(store.put_once(key, b"v", TTL, now())), Ok(PutOutcome::Stored));
    }
    assert_eq!(wait(store.lease(one, b"me", TTL, now())), Ok(LeaseOutcome::Held));

    keyring.rotate(1000, &*platform).unwrap();
    assert_eq!(wait(store.put_once(one, b"again", TTL, now())), Ok(PutOutcome::AlreadyThere));
    assert_eq!(wait(store.get(one, now())), Ok(Some(b"v".to_vec())));
    assert_eq!(wait(store.take(one, now())), Ok(Some(b"v".to_vec())));
    assert_eq!(wait(store.take(one, now())), Ok(None));
    assert!(matches!(wait(store.lease(one, b"you", TTL, now())), Ok(LeaseOutcome::HeldByOther { .. })));
    assert_eq!(wait(store.renew(one, b"me", TTL, now())), Ok(true));

    platform.advance_ms(1000);
    assert_eq!(wait(store.get(two, now())), Err(StoreError::KeyGone));
    // Its mark still holds, and it can still be removed.
    assert_eq!(wait(store.put_once(two, b"again", TTL, now())), Ok(PutOutcome::AlreadyThere));
    assert_eq!(wait(store.take(two, now())), Err(StoreError::KeyGone));
    assert_eq!(wait(store.put_once(two, b"again", TTL, now())), Ok(PutOutcome::Stored));
}

#[test]
fn a_value_that_is_moved_or_changed_in_the_engine_is_corrupt() {
    let theirs = Encrypted::new(Arc::new(MemoryStore::new(StoreLimits::default())));
    let (engine, store, keyring) = (&theirs.engine, &theirs.store, &theirs.keyring);
    let at = |key: StoreKey<'_>| {
        let owner = keyring.hide_name(&[b"owner", key.owner]);
        let namespace: &[u8] = &[3];
        (owner, keyring.hide_name(&[b"name", namespace, key.owner, key.name]))
    };
    let hidden = |(owner, name): &([u8; 32], [u8; 32])| {
        let key = StoreKey { namespace: Namespace::Approvals, owner, name };
        wait(engine.take(key, NOW_MS)).unwrap()
    };
    let put = |(owner, name): &([u8; 32], [u8; 32]), value: &[u8]| {
        let key = StoreKey { namespace: Namespace::Approvals, owner, name };
        assert_eq!(wait(engine.put_once(key, value, TTL, NOW_MS)), Ok(PutOutcome::Stored));
    };
    let (alice, bob) = (key("alice", "x"), key("bob", "x"));
    let _ = wait(store.put_once(alice, b"secret", TTL, NOW_MS)).unwrap();
    let sealed = hidden(&at(alice)).expect("the engine has it under its hidden name");
    assert!(!sealed.windows(6).any(|window| window == b"secret"));
    // Alice's value under Bob's name, and under another name of hers.
    for other in [bob, key("alice", "y")] {
        put(&at(other), &sealed);
        assert_eq!(wait(store.get(other, NOW_MS)), Err(StoreError::Corrupt));
    }
    for at_byte in [0, sealed.len() / 2, sealed.len() - 1] {
        let mut changed = sealed.clone();
        changed[at_byte] ^= 1;
        put(&at(alice), &changed);
        assert_eq!(wait(store.take(alice, NOW_MS)), Err(StoreError::Corrupt), "byte {at_byte}");
    }
    put(&at(alice), b"short");
    assert_eq!(wait(store.take(alice, NOW_MS)), Err(StoreError::Corrupt));
    put(&at(alice), &sealed);
    assert_eq!(wait(store.take(alice, NOW_MS)), Ok(Some(b"secret".to_vec())));
}

#[test]
fn the_file_contains_neither_names_nor_owners_nor_values() {
    let (folder, path) = new_path();
    let encrypted = Encrypted::new(Arc::new(sqlite(&path)));
    let store = &encrypted.store;
    let key = key("owner-in-plain", "name-in-plain");
    let _ = wait(store.put_once(key, b"value-in-plain", TTL, NOW_MS)).unwrap();
    let _ = wait(store.append(key, b"entry-in-plain", 5, TTL, NOW_MS)).unwrap();
    let _ = wait(store.lease(key, b"holder-in-plain", TTL, NOW_MS)).unwrap();
    let contains = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(9).any(|window| window == b"-in-plain")
    };
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        assert!(!contains(&path), "{path:?}");
    }
}

#[test]
fn what_has_ended_is_removed_as_other_things_are_stored() {
    let (_folder, path) = new_path();
    let stores: [Box<dyn Store>; 2] =
        [Box::new(MemoryStore::new(StoreLimits::default())), Box::new(sqlite(&path))];
    for store in stores {
        let names: Vec<String> = (0..40).map(|index| format!("{index}")).collect();
        for name in &names {
            let _ = wait(store.put_once(key("alice", name), b"v", TTL, NOW_MS)).unwrap();
        }
        let later_ms = NOW_MS + TTL.ms;
        for name in &names[..10] {
            let _ = wait(store.append(key("bob", name), b"v", 5, TTL, later_ms)).unwrap();
        }
        assert_eq!(wait(store.expire(usize::MAX, later_ms)), Ok(0));
    }
}

/// Starting again without one entry would not help.
#[test]
fn a_damaged_file_is_a_store_that_is_not_available() {
    let (_folder, path) = new_path();
    let store = sqlite(&path);
    let _ = wait(store.put_once(key("alice", "x"), &[7; 20_000], TTL, NOW_MS)).unwrap();
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    // The value is on the last pages, which refer to each other.
    let last_pages = bytes.len() - 3 * 4096;
    bytes[last_pages..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let store = sqlite(&path);
    assert_eq!(wait(store.get(key("alice", "x"), NOW_MS)), Err(StoreError::Unavailable));
}

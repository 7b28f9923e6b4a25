//! Several processes on one file. A test starts this binary again, which then runs one function and ends.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use spile_core::Platform;
use state::keyring::{Keyring, Purpose};
use state::store::{Namespace, PutOutcome, Sequence, Store, StoreKey, Ttl};

use crate::platform::TestPlatform;
use crate::store::sqlite;
use crate::store_model::wait;

const ROLE: &str = "STATE_TEST_ROLE";
const FILE: &str = "STATE_TEST_FILE";
const INPUT: &str = "STATE_TEST_INPUT";

fn start(role: &str, file: &Path, input: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "processes::child", "--nocapture"]);
    command.env(ROLE, role).env(FILE, file).env(INPUT, input).stdout(Stdio::piped());
    command.spawn().expect("a process")
}

/// What the child printed behind its marker.
fn result(child: Child) -> String {
    let Output { status, stdout, .. } = child.wait_with_output().expect("it ends");
    let text = String::from_utf8(stdout).expect("UTF-8");
    assert!(status.success(), "{text}");
    let (_, rest) = text.split_once("result=").expect("a result");
    rest.lines().next().expect("a line").to_owned()
}

/// Does nothing when the test runner runs it.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let file = std::env::var(FILE).expect("a file");
    let (file, input) = (Path::new(&file), std::env::var(INPUT).expect("an input"));
    let platform = TestPlatform::new();
    let open = || Keyring::open_file(file, &platform).expect("usable");
    let result = match &*role {
        "open" => open().keys()[0].id.to_string(),
        "rotate" => open().rotate(1000, &platform).expect("there is room").to_string(),
        "seal" => open().seal(Purpose::Session, b"alice", input.as_bytes(), &platform),
        "unseal" => {
            let opened =
                open().open(Purpose::Session, b"alice", &input, platform.now_ms()).expect("accepted");
            String::from_utf8(opened).expect("UTF-8")
        }
        "take" => match wait(sqlite(file).take(mark(b"single"), platform.now_ms())).expect("available") {
            Some(_) => "won".to_owned(),
            None => "lost".to_owned(),
        },
        "write until killed" => write_until_killed(file, &input),
        other => panic!("unknown role {other}"),
    };
    println!("\nresult={result}");
}

#[test]
fn processes_that_start_at_once_get_the_same_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    let children: Vec<Child> = (0..8).map(|_| start("open", &file, "")).collect();
    let ids: Vec<String> = children.into_iter().map(result).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn a_text_sealed_by_one_process_opens_in_the_next_also_after_a_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    let sealed = result(start("seal", &file, "hello"));
    assert_eq!(result(start("unseal", &file, &sealed)), "hello");
    let children: Vec<Child> = (0..4).map(|_| start("rotate", &file, "")).collect();
    let mut ids: Vec<String> = children.into_iter().map(result).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    let ring = Keyring::open_file(&file, &TestPlatform::new()).unwrap();
    assert_eq!(ring.keys().len(), 5, "no rotation was lost");
    assert_eq!(result(start("unseal", &file, &sealed)), "hello");
}

fn mark(name: &[u8]) -> StoreKey<'_> {
    StoreKey { namespace: Namespace::UsedRequestStates, owner: b"alice", name }
}

const TTL: Ttl = Ttl { ms: 60_000 };

#[test]
fn of_many_processes_one_takes_an_entry() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store");
    let stored = wait(sqlite(&file).put_once(mark(b"single"), b"", TTL, TestPlatform::START_MS));
    assert_eq!(stored, Ok(PutOutcome::Stored));
    let children: Vec<Child> = (0..6).map(|_| start("take", &file, "")).collect();
    let winners = children.into_iter().map(result).filter(|result| result == "won").count();
    assert_eq!(winners, 1);
}

/// On a line of its own: the test runner prints too.
fn acknowledge(verb: &str, number: u64) {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "\n{verb}={number}").and_then(|()| stdout.flush()).expect("the parent reads");
}

/// Acknowledges every verb on stdout once the store has.
fn write_until_killed(file: &Path, first: &str) -> ! {
    let (store, now_ms) = (sqlite(file), TestPlatform::START_MS);
    for number in first.parse::<u64>().expect("a number").. {
        let name = number.to_string();
        assert_eq!(wait(store.put_once(mark(name.as_bytes()), b"x", TTL, now_ms)), Ok(PutOutcome::Stored));
        acknowledge("put", number);
        let sequence =
            wait(store.append(mark(b"stream"), name.as_bytes(), 10_000, TTL, now_ms)).expect("room");
        acknowledge("appended", sequence.0);
    }
    unreachable!("the numbers do not end")
}

#[test]
fn what_a_killed_process_had_acknowledged_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store");
    let (mut put, mut appended) = (Vec::new(), Vec::new());
    for round in 0..5_u64 {
        let mut child = start("write until killed", &file, &(round * 1_000_000).to_string());
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut record = |line: &str| {
            if let Some(number) = line.strip_prefix("put=") {
                put.push(number.to_owned());
            } else if let Some(number) = line.strip_prefix("appended=") {
                appended.push(Sequence(number.parse().expect("a number")));
            }
        };
        for line in lines.by_ref().take(40 + 7 * round as usize) {
            record(&line.expect("UTF-8"));
        }
        child.kill().expect("it runs");
        // What it had written before it was killed counts too, except a line that was cut off.
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        rest[..rest.len().saturating_sub(1)].iter().for_each(|line| record(line));
        child.wait().expect("it was ours");
    }
    let (store, now_ms) = (sqlite(&file), TestPlatform::START_MS);
    assert!(put.len() > 50);
    for number in put {
        assert_eq!(wait(store.get(mark(number.as_bytes()), now_ms)), Ok(Some(b"x".to_vec())), "{number}");
    }
    let page = wait(store.read_after(mark(b"stream"), Sequence::START, 10_000, now_ms)).unwrap().unwrap();
    for sequence in appended {
        assert!(page.entries.iter().any(|(found, _)| *found == sequence), "{sequence:?}");
    }
}

//! Several processes on one file. A test starts this binary again, which then runs one function and ends.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use spile_core::Platform;
use state::keyring::{Keyring, Purpose};

use crate::platform::TestPlatform;

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

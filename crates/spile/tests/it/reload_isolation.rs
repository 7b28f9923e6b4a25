//! A project whose files do not answer delays no other project.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};

use crate::harness::{HttpServer, TEST_TIMEOUT, TestProject};

const PEOPLE: &[u8] = b"id,name\n1,Ada\n";
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

fn manifest(name: &str, description: &str) -> String {
    format!(
        "[server]\nname = \"{name}\"\n[sources.data]\npath = \"people.csv\"\n\
         [collections.people]\nkey = \"id\"\ndescription = \"{description}\"\n"
    )
}

/// Repeats `attempt` until it returns something.
fn wait_until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(started.elapsed() < TEST_TIMEOUT, "{what}");
        std::thread::yield_now();
    }
}

/// Replaces a file by a pipe, which blocks its reader until something is written.
fn replace_by_pipe(path: &Path) {
    let pipe = path.with_extension("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    std::fs::rename(&pipe, path).expect("replaced");
}

/// The other end of the pipe, once there is a reader.
fn open_when_read(path: &Path) -> File {
    wait_until("nobody reads the pipe", || {
        rustix::fs::open(path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok().map(File::from)
    })
}

#[test]
fn a_reload_that_blocks_does_not_delay_another_server() {
    let place = TestProject::new(&[
        ("slow/people.csv", PEOPLE),
        ("slow/spile.toml", manifest("slow", "One.").as_bytes()),
        ("quick/people.csv", PEOPLE),
        ("quick/spile.toml", manifest("quick", "One.").as_bytes()),
    ]);
    let served = HttpServer::start(&mut place.spile(&[
        "serve",
        "slow/spile.toml",
        "quick/spile.toml",
        "--bind",
        "127.0.0.1:0",
    ]));
    let wait_for = |server: &str, description: &str| {
        wait_until(&format!("{server} serves no `{description}`"), || {
            let (_, list) = served.post(&format!("/mcp/{server}"), "", LIST);
            list.contains(description).then_some(())
        });
    };
    let slow_manifest = place.folder.join("slow/spile.toml");
    replace_by_pipe(&slow_manifest);
    let mut pipe = open_when_read(&slow_manifest);

    // The slow project is being read from here on.
    for description in ["Two.", "Three."] {
        place.write("quick/spile.toml", manifest("quick", description).as_bytes());
        wait_for("quick", description);
    }
    wait_for("slow", "One.");

    pipe.write_all(manifest("slow", "Four.").as_bytes()).expect("it is read");
    drop(pipe);
    wait_for("slow", "Four.");
}

/// What the inspection of a source waits for is not its manifest but a database that takes connections and never says a word.
#[test]
fn a_source_that_does_not_answer_does_not_delay_another_server() {
    let place = TestProject::new(&[
        ("slow/people.csv", PEOPLE),
        ("slow/spile.toml", manifest("slow", "One.").as_bytes()),
        ("quick/people.csv", PEOPLE),
        ("quick/spile.toml", manifest("quick", "One.").as_bytes()),
    ]);
    let served = HttpServer::start(&mut place.spile(&[
        "serve",
        "slow/spile.toml",
        "quick/spile.toml",
        "--bind",
        "127.0.0.1:0",
    ]));
    let wait_for = |server: &str, description: &str| {
        wait_until(&format!("{server} serves no `{description}`"), || {
            let (_, list) = served.post(&format!("/mcp/{server}"), "", LIST);
            list.contains(description).then_some(())
        });
    };
    let database = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("postgres://ada@{}/shop", database.local_addr().expect("an address"));
    place.write(
        "slow/spile.toml",
        manifest("slow", "Two.").replace("path = \"people.csv\"", &format!("url = \"{url}\"")).as_bytes(),
    );
    let (mut inspection, _) = database.accept().expect("the source is inspected");
    let mut startup = [0; 8];
    inspection.read_exact(&mut startup).expect("a first message");

    place.write("quick/spile.toml", manifest("quick", "Two.").as_bytes());
    wait_for("quick", "Two.");
    // All of it while the inspection waits for an answer.
    inspection.set_nonblocking(true).expect("a socket");
    let mut rest = [0; 4096];
    let still_open = loop {
        match inspection.read(&mut rest) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(error) => break error.kind() == std::io::ErrorKind::WouldBlock,
        }
    };
    assert!(still_open, "the inspection had ended before the other server was reloaded");
    wait_for("slow", "One.");

    drop((inspection, database));
    place.write("slow/spile.toml", manifest("slow", "Three.").as_bytes());
    wait_for("slow", "Three.");
}

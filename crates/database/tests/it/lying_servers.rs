//! A server that lies: behind a proxy that cuts, replaces or withholds what the real server sends, from some byte on. It costs errors,
//! never a crash, a hang or a connection that stays broken.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use contract::source::{Source, SourceError, TransactionOptions, WriteError};
use database::{Database, Options};
use test_databases::{Kind, TestDatabase};

use crate::kit::{KINDS, open_with, reader, rows, shape};

/// What happens after some bytes of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum Lie {
    None,
    /// The connection ends.
    Cut,
    /// Bytes that mean nothing, and the end.
    Garbage,
    /// The length of something enormous, and then nothing.
    HugeLength,
    /// Zeros instead of what the server sends, for as long as it sends.
    Zeros,
    /// Well-formed rows of `t` with fewer values than columns.
    ShortRows,
}

const LIES: [Lie; 6] = [Lie::None, Lie::Cut, Lie::Garbage, Lie::HugeLength, Lie::Zeros, Lie::ShortRows];

/// How the next connections lie: the lie, and after how many bytes.
#[derive(Default)]
struct Script {
    lie: AtomicUsize,
    bytes: AtomicUsize,
}

impl Script {
    fn set(&self, lie: Lie, bytes: usize) {
        self.lie.store(lie as usize, Ordering::SeqCst);
        self.bytes.store(bytes, Ordering::SeqCst);
    }
}

struct Proxy {
    port: u16,
    script: Arc<Script>,
}

fn start_proxy(place: &TestDatabase) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, script) = (listener.local_addr().unwrap().port(), Arc::new(Script::default()));
    let socket = place.server.folder.join(match place.server.kind {
        Kind::Postgres => ".s.PGSQL.5432",
        Kind::MariaDb => "socket",
    });
    let (shared, kind) = (Arc::clone(&script), place.server.kind);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = UnixStream::connect(&socket) else { continue };
            let (mut to_server, mut from_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from_client, &mut to_server);
                let _ = to_server.shutdown(Shutdown::Both);
            });
            let (lie, bytes) = (LIES[shared.lie.load(Ordering::SeqCst)], shared.bytes.load(Ordering::SeqCst));
            std::thread::spawn(move || match lie {
                Lie::ShortRows => tell_short_rows(server, client, kind),
                lie => tell(server, client, lie, bytes),
            });
        }
    });
    Proxy { port, script }
}

/// Passes messages of the server on, and those with a row of `t` without their last value.
fn tell_short_rows(mut server: UnixStream, mut client: TcpStream, kind: Kind) {
    client.set_nodelay(true).unwrap();
    let mut head = vec![0; if kind == Kind::Postgres { 5 } else { 4 }];
    while server.read_exact(&mut head).is_ok() {
        let length = match kind {
            Kind::Postgres => u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4,
            Kind::MariaDb => u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize,
        };
        let mut body = vec![0; length];
        if server.read_exact(&mut body).is_err() {
            break;
        }
        if body.windows(4).any(|word| word == b"row ") {
            match kind {
                Kind::Postgres => shorten_row(&mut body),
                Kind::MariaDb => body.truncate(body.len() - 4),
            }
            match kind {
                Kind::Postgres => head[1..].copy_from_slice(&(body.len() as u32 + 4).to_be_bytes()),
                Kind::MariaDb => head[..3].copy_from_slice(&(body.len() as u32).to_le_bytes()[..3]),
            }
        }
        // At once: two small packets would wait for each other.
        if client.write_all(&[&head[..], &body[..]].concat()).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

/// Takes the last value out of a row of PostgreSQL: a number of values, and each with its length.
fn shorten_row(body: &mut Vec<u8>) {
    let count = u16::from_be_bytes([body[0], body[1]]) - 1;
    body[..2].copy_from_slice(&count.to_be_bytes());
    let mut end = 2;
    for _ in 0..count {
        let length = i32::from_be_bytes([body[end], body[end + 1], body[end + 2], body[end + 3]]);
        end += 4 + usize::try_from(length).unwrap_or(0);
    }
    body.truncate(end);
}

/// Passes bytes of the server on, until it lies.
fn tell(mut server: UnixStream, mut client: TcpStream, lie: Lie, mut honest: usize) {
    let mut buffer = [0; 4096];
    while let Ok(count) = server.read(&mut buffer) {
        if count == 0 {
            break;
        }
        let told = if lie == Lie::None { count } else { count.min(honest) };
        honest -= if lie == Lie::None { 0 } else { told };
        if client.write_all(&buffer[..told]).is_err() {
            break;
        }
        if told == count {
            continue;
        }
        let lied = match lie {
            Lie::None | Lie::Cut | Lie::ShortRows => break,
            Lie::Garbage => {
                let _ = client.write_all(&[0xA5; 64]);
                break;
            }
            Lie::Zeros => client.write_all(&vec![0; count - told]),
            Lie::HugeLength => {
                let sent = client.write_all(&[b'D', 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
                // Silent, until the other side gives up.
                while server.read(&mut buffer).is_ok_and(|count| count > 0) {}
                sent
            }
        };
        if lied.is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

fn through(place: &TestDatabase, proxy: &Proxy) -> Database {
    let url = match place.server.kind {
        Kind::Postgres => format!("postgres://postgres@127.0.0.1:{}/{}", proxy.port, place.name),
        Kind::MariaDb => format!("mysql://root@127.0.0.1:{}/{}", proxy.port, place.name),
    };
    open_with(place.server.kind, Options { call_ms_max: 1_000, connections_max: 1, ..Options::new(url) })
}

fn with_rows(kind: Kind) -> TestDatabase {
    let place = TestDatabase::new(kind);
    place.run("CREATE TABLE t (id integer PRIMARY KEY, v varchar(40), n decimal(12, 2))");
    let values: Vec<String> = (0..50).map(|id| format!("({id}, 'row {id}', {id}.25)")).collect();
    place.run(&format!("INSERT INTO t VALUES {}", values.join(", ")));
    place
}

/// Works, and returns how long it took; a result of any kind is fine.
fn must_end<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    assert!(started.elapsed() < Duration::from_secs(30), "{what} took {:?}", started.elapsed());
    result
}

#[test]
fn lies_at_every_stage_cost_errors_and_nothing_else() {
    for kind in KINDS {
        let place = with_rows(kind);
        let proxy = start_proxy(&place);
        // While connecting and while the catalog is read.
        for lie in [Lie::Cut, Lie::Garbage, Lie::Zeros] {
            for bytes in [0, 1, 3, 5, 9, 14, 40, 70, 90, 120, 200, 333, 500, 900, 1500, 4000] {
                proxy.script.set(lie, bytes);
                let what = format!("{kind:?} {lie:?} after {bytes}");
                let seen = must_end(&what, || through(&place, &proxy).introspect());
                if let (Err(error), Lie::Cut) = (&seen, lie) {
                    let is_expected =
                        matches!(error, SourceError::Unavailable { .. } | SourceError::Incompatible { .. });
                    assert!(is_expected, "{what}: {error:?}");
                }
            }
        }
        proxy.script.set(Lie::HugeLength, 10);
        assert!(must_end("a huge length", || through(&place, &proxy).introspect()).is_err(), "{kind:?}");
        // While rows are read.
        proxy.script.set(Lie::None, 0);
        let honest = through(&place, &proxy);
        let facts = honest.introspect().unwrap();
        for (lie, bytes) in [
            (Lie::Cut, 400),
            (Lie::Cut, 700),
            (Lie::Cut, 1200),
            (Lie::Garbage, 600),
            (Lie::Garbage, 1100),
            (Lie::Zeros, 800),
            (Lie::HugeLength, 900),
            (Lie::ShortRows, 0),
        ] {
            let what = format!("{kind:?} {lie:?} after {bytes} of rows");
            proxy.script.set(Lie::None, 0);
            let source = through(&place, &proxy);
            source.introspect().unwrap();
            let reader = source.reader(&shape(&facts, "t")).unwrap();
            let truth = check_honest_rows(&*reader);
            // The connection that is open tells the truth; the next one lies.
            proxy.script.set(lie, bytes);
            let lied = through(&place, &proxy);
            let outcome =
                must_end(&what, || lied.reader(&shape(&facts, "t")).and_then(|reader| rows(&*reader)));
            // An error, or what is true: never fewer rows, nor other ones.
            if let Ok(found) = &outcome {
                assert_eq!((found, lie == Lie::ShortRows), (&truth, false), "{what}");
            }
            // Afterwards the same source works.
            proxy.script.set(Lie::None, 0);
            let healed = Instant::now();
            while let Err(error) = lied.reader(&shape(&facts, "t")).and_then(|reader| rows(&*reader)) {
                assert!(
                    healed.elapsed() < Duration::from_secs(30),
                    "{what}: it does not heal: {error:?} after {outcome:?}"
                );
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn check_honest_rows(reader: &dyn contract::source::Reader) -> Vec<Vec<contract::Value>> {
    let found = rows(reader).unwrap();
    assert_eq!(found.len(), 50);
    found
}

#[test]
fn a_connection_that_ends_while_a_write_is_committed_is_never_a_success() {
    for kind in KINDS {
        let place = with_rows(kind);
        let proxy = start_proxy(&place);
        let source = through(&place, &proxy);
        let facts = source.introspect().unwrap();
        let honest = reader(&source, "t");
        check_honest_rows(&*honest);
        for bytes in (200..1_600).step_by(100) {
            proxy.script.set(Lie::Cut, bytes);
            let lied = through(&place, &proxy);
            let Ok(writer) = lied.writer(&shape(&facts, "t")) else { continue };
            let options = TransactionOptions::default();
            let key = i64::try_from(1_000 + bytes).unwrap();
            let written = must_end("a write", || {
                let transaction = writer.begin(&options)?;
                contract::source::run_transaction(transaction, &options, |transaction| {
                    let values =
                        [(0, contract::ValueRef::Integer(key)), (1, contract::ValueRef::Text("new"))];
                    transaction.apply(&contract::source::RowChange::Create { values: &values })?;
                    let result = transaction.read_back()?;
                    Ok(contract::source::Verdict::<_, ()>::Keep { response: Vec::new(), result })
                })
            });
            proxy.script.set(Lie::None, 0);
            let is_there = honest.get(&[contract::ValueRef::Integer(key)], &mut |_| {}).unwrap();
            match written {
                Ok(_) => assert!(is_there, "{kind:?} after {bytes}: a false success"),
                // It may be there, and the caller knows that nobody knows.
                Err(WriteError::OutcomeUnknown) => {}
                Err(error) => assert!(!is_there, "{kind:?} after {bytes}: {error:?}, but the row is there"),
            }
        }
    }
}

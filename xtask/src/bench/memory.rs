//! `cargo xtask bench memory`: what clients cost that only open sessions, streams and connections.
//!
//! Four kinds: unused sessions, idle listen streams, idle connections that sent large heads and got large responses, and
//! clients that never finish their headers. Each must stay within its bound while a normal client is served.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::http::{HttpLoad, LoadResult, ResponseReader};
use super::machine;
use super::peers::{Binaries, HttpPeer, Peer};
use super::request::{Operation, Protocol, RequestTemplate};

const GROWTH_MIB_MAX: f64 = 64.0;
const STREAM_KIB_MAX: f64 = 16.0;
/// What is remembered of the heads of a connection, at most 4 KiB, and the connection itself.
const CONNECTION_KIB_MAX: f64 = 12.0;
/// Shorter than the product's ten seconds, so that the bench does not take long.
const HEADER_TIMEOUT: Duration = Duration::from_secs(3);
/// The server checks its clock only now and then, and closing 800 connections takes a moment.
const EVICTION_SLACK: Duration = Duration::from_secs(2);

pub fn run(quick: bool) -> anyhow::Result<()> {
    let scale = if quick { 10 } else { 1 };
    machine::allow_open_files(12_000)?;
    let binaries = Binaries::build(&[Peer::Spile])?;
    let outcomes = [
        ("sessions", measure_idle_sessions(&binaries, 100_000 / scale)),
        ("listen streams", measure_idle_streams(&binaries, 10_000 / scale)),
        ("idle connections", measure_idle_connections(&binaries, 10_000 / scale)),
        ("slow headers", measure_slow_headers(&binaries, 800 / scale)),
    ];
    let mut missed = 0;
    for (crowd, outcome) in &outcomes {
        match outcome {
            Ok(true) => {}
            Ok(false) => missed += 1,
            Err(error) => {
                println!("MISSED  {crowd}: {error:#}");
                missed += 1;
            }
        }
    }
    if missed > 0 {
        bail!("{missed} of {} memory gates missed", outcomes.len());
    }
    Ok(())
}

/// Many `initialize` requests with unused sessions; then a normal client.
fn measure_idle_sessions(binaries: &Binaries, count: usize) -> anyhow::Result<bool> {
    let server = HttpPeer::start_fixture("bench", binaries, &[])?;
    let asks = (0..16).map(|_| RequestTemplate::initialize()).collect();
    let mut load = HttpLoad::connect(server.address, asks)?;
    HttpLoad::connect(server.address, server.request_templates(Operation::Call, Protocol::M26, 16)?)?
        .run(1_000)?;
    let before = machine::rss_kib(server.pid())?;
    let run = load.run(count as u64)?;
    let after = machine::rss_kib(server.pid())?;
    let growth_mib = after.saturating_sub(before) as f64 / 1024.0;

    let asks = server
        .request_templates(Operation::Call, Protocol::S25, 1)
        .context("no session for a legacy client afterwards")?;
    HttpLoad::connect(server.address, asks)?.run(10).context("no answers for a legacy client afterwards")?;
    Ok(print_verdict(
        growth_mib <= GROWTH_MIB_MAX,
        &format!(
            "{count} initialize requests in {:.1} s ({} refused): RSS {:.1} -> {:.1} MiB, growth {growth_mib:.1} MiB \
             (at most {GROWTH_MIB_MAX}); a legacy client is served right after",
            run.elapsed.as_secs_f64(),
            run.refused,
            before as f64 / 1024.0,
            after as f64 / 1024.0
        ),
    ))
}

/// Many streams that stay open and carry nothing.
fn measure_idle_streams(binaries: &Binaries, count: usize) -> anyhow::Result<bool> {
    let server = HttpPeer::start_fixture("conformance", binaries, &[])?;
    let _first = open_listen_streams(server.address, 100)?;
    let before = machine::rss_kib(server.pid())?;
    let start = Instant::now();
    let _open = open_listen_streams(server.address, count)?;
    let elapsed = start.elapsed();
    let after = machine::rss_kib(server.pid())?;
    let each_kib = after.saturating_sub(before) as f64 / count as f64;
    Ok(print_verdict(
        each_kib <= STREAM_KIB_MAX,
        &format!(
            "{count} idle listen streams opened in {:.1} s: RSS {:.1} -> {:.1} MiB, \
             {each_kib:.2} KiB each (at most {STREAM_KIB_MAX})",
            elapsed.as_secs_f64(),
            before as f64 / 1024.0,
            after as f64 / 1024.0
        ),
    ))
}

fn open_listen_streams(at: SocketAddr, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    let mut ask = RequestTemplate::listen();
    (0..count as u64)
        .map(|number| {
            let mut stream = TcpStream::connect(at).with_context(|| format!("stream {number}"))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(ask.bytes_for(number))?;
            // The stream is open once the acknowledgement, its first message, is there.
            let mut incoming = ResponseReader::default();
            while ask.check_response(number, 200, incoming.buffered()).is_err() {
                ensure!(
                    incoming.read(&mut stream)?,
                    "stream {number} is not acknowledged: {}",
                    String::from_utf8_lossy(incoming.buffered())
                );
            }
            Ok(stream)
        })
        .collect()
}

/// Many connections that have sent large requests with different large heads, and send nothing more.
fn measure_idle_connections(binaries: &Binaries, count: usize) -> anyhow::Result<bool> {
    let server = HttpPeer::start_fixture("bench", binaries, &[])?;
    let _first = open_idle_connections(server.address, 100)?;
    let before = machine::rss_kib(server.pid())?;
    let _open = open_idle_connections(server.address, count)?;
    let after = machine::rss_kib(server.pid())?;
    let each_kib = after.saturating_sub(before) as f64 / count as f64;
    HttpLoad::connect(server.address, server.request_templates(Operation::Call, Protocol::M26, 16)?)?
        .run(1_000)
        .context("no answers for a normal client beside idle connections")?;
    Ok(print_verdict(
        each_kib <= CONNECTION_KIB_MAX,
        &format!(
            "{count} idle connections after calls with heads of {HEAD_KIB:?} KiB: RSS {:.1} -> {:.1} MiB, \
             {each_kib:.2} KiB each (at most {CONNECTION_KIB_MAX})",
            before as f64 / 1024.0,
            after as f64 / 1024.0
        ),
    ))
}

/// The heads of each idle connection: as large as the fast path takes, and several that may be remembered.
const HEAD_KIB: [usize; 5] = [7, 3, 2, 1, 7];

fn open_idle_connections(at: SocketAddr, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    let requests = HEAD_KIB.map(|kib| RequestTemplate::with_large_head(kib * 1024 - 512));
    (0..count as u64)
        .map(|number| {
            let mut stream = TcpStream::connect(at).with_context(|| format!("connection {number}"))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            let mut incoming = ResponseReader::default();
            for mut request in requests.clone() {
                stream.write_all(request.bytes_for(number))?;
                let (status, body) = loop {
                    ensure!(incoming.read(&mut stream)?, "connection {number} is not answered");
                    if let Some(response) = incoming.response()? {
                        break (response.status, response.body.to_vec());
                    }
                };
                request.check_response(number, status, &body)?;
                incoming.clear();
            }
            Ok(stream)
        })
        .collect()
}

/// Clients that send their headers a byte at a time, while others call as usual.
fn measure_slow_headers(binaries: &Binaries, count: usize) -> anyhow::Result<bool> {
    let timeout_ms = HEADER_TIMEOUT.as_millis().to_string();
    let server = HttpPeer::start_fixture("bench", binaries, &[("SPILE_HEADER_TIMEOUT_MS", &timeout_ms)])?;
    let mut load =
        HttpLoad::connect(server.address, server.request_templates(Operation::Call, Protocol::M26, 4)?)?;
    let alone = load.run(5_000)?;
    let over = AtomicBool::new(false);
    let (eviction, beside) = std::thread::scope(|scope| {
        let normal = scope.spawn(|| keep_calling(&mut load, &over));
        let eviction = send_slow_headers(server.address, count);
        over.store(true, Ordering::Relaxed);
        let normal = normal.join().map_err(|_| anyhow::anyhow!("the calling thread failed"))?;
        anyhow::Ok((eviction?, normal.context("a normal call beside slow clients")?))
    })?;
    let bound = HEADER_TIMEOUT + EVICTION_SLACK;
    Ok(print_verdict(
        eviction.is_some_and(|last| last <= bound),
        &format!(
            "{count} slow-header clients with a limit of {HEADER_TIMEOUT:?}: {}; {} normal calls beside them, \
             p50 {:?}, p99 {:?} (alone: p50 {:?}, p99 {:?})",
            eviction.map_or("some were never evicted".into(), |last| format!(
                "the last evicted after {last:.1?}"
            )),
            beside.latencies.len(),
            beside.percentile(50),
            beside.percentile(99),
            alone.percentile(50),
            alone.percentile(99),
        ),
    ))
}

fn keep_calling(load: &mut HttpLoad, over: &AtomicBool) -> anyhow::Result<LoadResult> {
    let start = Instant::now();
    let mut latencies = Vec::new();
    while !over.load(Ordering::Relaxed) {
        latencies.extend(load.run(200)?.latencies);
        // A pause, so that the other clients get CPU time on a small machine.
        std::thread::sleep(Duration::from_millis(5));
    }
    latencies.sort_unstable();
    Ok(LoadResult { elapsed: start.elapsed(), latencies, refused: 0 })
}

/// Opens `count` connections and feeds each a header byte twice a second, until the server has closed
/// them all. Returns the longest lifetime, or `None` if a connection far outlived the bound.
fn send_slow_headers(at: SocketAddr, count: usize) -> anyhow::Result<Option<Duration>> {
    let mut alive = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(at)?;
        stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")?;
        stream.set_nonblocking(true)?;
        alive.push((stream, Instant::now()));
    }
    let mut longest = Duration::ZERO;
    let mut fed = Instant::now();
    while !alive.is_empty() {
        if fed.elapsed() > HEADER_TIMEOUT * 4 + EVICTION_SLACK {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(500));
        alive.retain_mut(|(stream, opened)| {
            let open = stream.write_all(b"a").is_ok() && is_open(stream);
            if !open {
                longest = longest.max(opened.elapsed());
                fed = Instant::now();
            }
            open
        });
    }
    Ok(Some(longest))
}

/// Whether the connection is still open. Reads and discards a final response, such as a 408.
fn is_open(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

fn print_verdict(kept: bool, text: &str) -> bool {
    println!("{:<7} {text}", if kept { "met" } else { "MISSED" });
    kept
}

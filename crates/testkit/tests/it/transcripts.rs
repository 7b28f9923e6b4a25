//! Conversations with the server, line by line, over the real transports: each protocol version, both eras on one pipe,
//! and as many error cases as successes.
//!
//! A transcript is a text file in `transcripts/`:
//! ```text
//! # What this shows.
//! serves: conformance              fixture (default), or `stage`, `bench`; several form one server
//! transports: stdio http sse       the transports it runs on (default: stdio sse, which are both pipes)
//! versions: 2025-06-18             what `<version>` stands for (default: the folder); one run for each
//! limit: page_items_max 2          limits that differ from the defaults
//! framing: content-length          on stdio, instead of lines
//! let name = text                  `<name>` stands for the text from here on
//!
//! > {"jsonrpc":"2.0",…}            the client sends a message that conforms to its version's schema
//! >! {"jsonrpc":"2.0",…}           …one that does not conform; if it does, the transcript is wrong
//! >raw text\r\n\xff                …bytes as they are
//! >h Mcp-Name: x                   headers of the next request over HTTP; `-Accept` omits a standard one
//! >get    >delete                  requests without a body
//! < {"jsonrpc":"2.0",…}            the server sends this next
//! <* {"jsonrpc":"2.0",…}           …this anywhere among the `<` lines around it
//! <s 404    <h Allow: POST         status and header of the response
//! <e id: 1-1    <e data:           a field of an SSE event that is not a message
//! <end                             the stream ends here
//! ~ 50                             50 ms pass, on every clock
//! close                            the client closes its end; otherwise the end of the file does
//! @name > …                        on a separate connection, which is read by `@name < …`
//! ```
//! In expected lines, `"<any>"`, `"<string>"` and `"<int>"` stand for varying values, `"<name=…>"` for a string or number that is
//! called `<name>` from there on, and `"…"` for further members or elements. Lines are compared as JSON, except ids:
//! those byte by byte.
//!
//! Every message is also validated with the official JSON Schema of its version ([`schema_checker`]). Time stands still
//! except for `~`, so nothing depends on the speed of the machine.

mod harness;
mod http;
mod matching;
mod pipe;
mod runner;
mod schema_checker;
mod sse;
mod stage_provider;
mod transcript;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use spile_core::Provider;
use testkit::conformance::ConformanceProvider;

/// Runs every transcript of a folder, at each version it names, and reports all differences.
#[track_caller]
fn check(folder: &str) {
    let mut failures = Vec::new();
    let (mut played, mut lines) = (0, 0);
    for file in transcripts_in(&folder_of(folder)) {
        let name = format!("{folder}/{}", file.file_name().unwrap_or_default().to_string_lossy());
        let text = std::fs::read_to_string(&file).expect("a transcript is readable");
        if std::env::var("TRANSCRIPT").is_ok_and(|only| !name.contains(&only)) {
            continue;
        }
        for script in transcript::parse(&name, folder, &text) {
            played += 1;
            lines += script.steps.len();
            failures.extend(
                runner::run_transcript(&script).err().map(|why| format!("{}\n{why}", script.title())),
            );
        }
    }
    eprintln!("{folder}: {played} transcripts, {lines} steps");
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n\n"));
}

/// A conversation is sent once for each cut, so that the work grows with its square: one that would send more than this is cut at
/// some bytes only.
const CUT_BYTES_MAX: usize = 1 << 20;

/// However the requests of a transcript are cut into pieces, the fast path answers them as hyper does: in a session where it
/// opens one, and all on one connection, where each is sent before the one before is answered.
#[track_caller]
fn check_pieces(folder: &str) {
    let provider: fn() -> Arc<dyn Provider> = || Arc::new(ConformanceProvider::default());
    let mut conversations = 0;
    for file in transcripts_in(&folder_of(folder)) {
        let text = std::fs::read_to_string(&file).expect("a transcript is readable");
        let mut scripts = transcript::parse("", folder, &text);
        scripts.retain(|script| script.transport == transcript::TransportKind::Http);
        let versions = scripts.len();
        for (version, script) in scripts.into_iter().enumerate() {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
            let runtime = runtime.expect("a runtime");
            let longest = |requests: &[Vec<u8>]| requests.iter().map(Vec::len).max().unwrap_or(0);
            let answers = |requests: &[Vec<u8>], first, step| {
                let cuts = (first..longest(requests).max(first + 1)).step_by(step);
                runtime.block_on(testkit::invariants::check_http1_conversation(requests, cuts, provider))
            };
            // The random numbers of every connection are the same, so the session is, too.
            let requests = runner::http_conversation(&script, "");
            let opened = requests.get(..1).map(|first| answers(first, 0, usize::MAX)).unwrap_or_default();
            let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
            let requests = runner::http_conversation(&script, session.unwrap_or_default());
            // At every byte; where a transcript is for several versions, each has its share of them.
            let bytes: usize = requests.iter().map(Vec::len).sum();
            let sent = longest(&requests) / versions * bytes;
            let step = versions * sent.div_ceil(CUT_BYTES_MAX).max(1);
            let all = answers(&requests, version, step);
            assert!(all.starts_with("HTTP/1.1 ") || requests.is_empty(), "{}: {all}", file.display());
            conversations += 1;
        }
    }
    assert!(conversations > 0, "no transcript of {folder} is over HTTP");
}

#[test]
fn pieces_of_requests_in_sessions() {
    check_pieces("2025-11-25");
}

#[test]
fn pieces_of_requests_in_older_sessions() {
    check_pieces("2025-03-26");
}

#[test]
fn pieces_of_requests_without_sessions() {
    check_pieces("2026-07-28");
}

#[test]
fn pieces_of_requests_of_both_eras() {
    check_pieces("eras");
}

#[test]
fn pieces_of_handshakes() {
    check_pieces("handshake");
}

fn folder_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/transcripts").join(name)
}

fn transcripts_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder is readable").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

#[test]
fn every_version_with_a_handshake() {
    check("handshake");
}

#[test]
fn version_2024_11_05() {
    check("2024-11-05");
}

#[test]
fn version_2025_03_26() {
    check("2025-03-26");
}

#[test]
fn version_2025_06_18() {
    check("2025-06-18");
}

#[test]
fn version_2025_11_25() {
    check("2025-11-25");
}

#[test]
fn version_2026_07_28() {
    check("2026-07-28");
}

#[test]
fn both_eras_and_what_belongs_to_none() {
    check("eras");
}

#[test]
fn every_folder_has_a_test() {
    let own = include_str!("transcripts.rs");
    let entries = std::fs::read_dir(folder_of("")).expect("the folder of transcripts is readable");
    for entry in entries.map(|entry| entry.expect("a folder is readable")) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let played = own.contains(&format!("check(\"{name}\")"));
        assert!(played || entry.path().is_file(), "no test plays transcripts/{name}");
    }
}

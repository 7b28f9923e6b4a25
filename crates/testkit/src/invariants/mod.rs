//! Invariants under untrusted input: one function for each part that reads it.
//!
//! Each function takes bytes and panics if its invariant is violated. Fuzz targets and property tests share them, so the
//! same bytes mean the same input in both. Structured inputs are generated from the bytes by [`FuzzInput`], so that
//! mutations stay meaningful.

mod check;
mod client;
mod decode;
mod frames;
mod fuzz_input;
mod headers;
#[cfg(unix)]
mod http1;
mod pair;
mod sample_messages;
mod scan;
mod scripted_provider;
mod seal;
mod session;
mod sheets;
mod sse;
mod websocket;

use std::path::{Path, PathBuf};

pub use check::check;
pub use client::client;
pub use decode::decode_message;
pub use frames::frames;
pub use fuzz_input::FuzzInput;
pub use headers::headers;
#[cfg(unix)]
pub use http1::{check_http1_conversation, http1};
pub use pair::{input_for_seed, pair};
pub use scan::scan;
pub use seal::seal;
pub use session::session;
pub use sheets::sheets;
pub use sse::sse;
pub use websocket::websocket;

/// Runs an invariant on all seeds of its fuzz target, which include every input that once violated it.
pub fn check_seeds(target: &str, hold: impl Fn(&[u8])) {
    for (path, seed) in seeds(target) {
        // Shown only if the test fails.
        eprintln!("{}", path.display());
        hold(&seed);
    }
}

/// The seeds of a fuzz target, and the files that they are in.
pub fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("no seeds in {}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let seed = std::fs::read(&path).expect("a seed can be read");
        (path, seed)
    };
    paths.into_iter().map(read).collect()
}

//! `cargo xtask tidy`: rules that neither the compiler nor clippy keeps, checked by reading every
//! tracked file once.

mod crates;
mod references;
mod source;
mod text;

use std::process::Command;

use anyhow::{Result, bail};

use crate::sh;

/// A tracked file that holds text.
struct File {
    /// From the top of the clone, with `/`.
    path: String,
    text: String,
}

pub fn run() -> Result<()> {
    let files = read_tracked()?;
    let mut problems = Vec::new();
    for file in &files {
        text::check(file, &mut problems);
        if file.path.ends_with(".rs") {
            source::check(file, &mut problems);
        }
    }
    text::check_long_files_table(&files, &mut problems);
    text::check_decisions_are_listed(&files, &mut problems);
    references::check(&files, &mut problems);
    crates::check(&files, &mut problems)?;

    if !problems.is_empty() {
        for problem in &problems {
            println!("{problem}");
        }
        bail!("{} untidy place(s)", problems.len());
    }
    println!("tidy: {} files", files.len());
    Ok(())
}

fn read_tracked() -> Result<Vec<File>> {
    let listed = sh::output(Command::new("git").args(["ls-files", "-z"]).current_dir(sh::repo_root()))?;
    let mut files = Vec::new();
    // A fuzzer's seeds are bytes, also where they happen to be text.
    for path in listed.split_terminator('\0').filter(|path| !path.starts_with("fuzz/seeds/")) {
        // Deleted but not yet committed: nothing to read. Not UTF-8: a picture, or a test's bad input.
        if let Ok(bytes) = std::fs::read(sh::repo_root().join(path))
            && let Ok(text) = String::from_utf8(bytes)
        {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

/// Line numbers, counted from 1, with what stands there.
fn numbered_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split('\n').enumerate().map(|(index, line)| (index + 1, line))
}

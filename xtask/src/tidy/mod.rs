//! `cargo xtask tidy`: rules that neither the compiler nor clippy checks. Reads every tracked file once.

mod crates;
mod references;
mod source;
mod text;

use std::process::Command;

use anyhow::{Result, bail};

use crate::sh;

/// A tracked text file.
struct File {
    /// Relative to the root of the clone, with `/`.
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
    // Fuzz seeds are bytes, even if they happen to be text.
    for path in listed.split_terminator('\0').filter(|path| !path.starts_with("fuzz/seeds/")) {
        // Skips files that are deleted but not committed, and files that are not UTF-8: images, bad test input.
        if let Ok(bytes) = std::fs::read(sh::repo_root().join(path))
            && let Ok(text) = String::from_utf8(bytes)
        {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

/// Lines with their numbers, counted from 1.
fn numbered_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split('\n').enumerate().map(|(index, line)| (index + 1, line))
}

//! `judge kill KIND --rounds N --seed N --spile FILE`: runs crash tests against a program that is already built.
#![allow(clippy::print_stdout, reason = "what it says is all it does")]

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use testkit::crash_test::kill::{CrashTest, StorageFormat};
use testkit::crash_test::samples;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Kills the program while it writes
    Kill {
        /// csv, xlsx, sqlite or jsonl
        kind: String,
        #[arg(long, default_value_t = 1000)]
        rounds: u32,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long)]
        spile: PathBuf,
    },
}

fn main() -> Result<()> {
    let Command::Kill { kind, rounds, seed, spile } = Cli::parse().command;
    let Some(kept) = StorageFormat::ALL.into_iter().find(|kept| kept.name() == kind) else {
        bail!("no kind `{kind}`; there are csv, xlsx, sqlite and jsonl");
    };
    let spile = spile.canonicalize().with_context(|| format!("`{}` is not there", spile.display()))?;
    let file = samples::initial_file(kept)?;
    let simulation = CrashTest {
        spile: &spile,
        format: kept,
        initial_file: &file,
        read_ids: &|path| samples::read_ids(kept, path),
        rounds,
        seed,
    };
    let tally = simulation.run()?;
    println!(
        "{kind}: {} rounds, {} records acknowledged, {} replayed, {} done again: none lost, none twice",
        tally.rounds, tally.acknowledged, tally.replayed, tally.reapplied
    );
    Ok(())
}

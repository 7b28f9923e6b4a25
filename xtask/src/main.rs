//! `cargo xtask <command>`: everything a developer or CI runs, one module per command.
//!
//! xtask links no crate of the product; it runs programs as a person would.
#![allow(clippy::print_stdout, reason = "a command-line tool: its output is its product")]

mod bench;
mod build;
mod cache;
mod ci;
mod conformance;
mod debian;
mod docs;
mod fuzz;
mod judges;
mod release;
mod setup;
mod sh;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask <command>

  ci                        everything that must pass: setup, fmt, tidy, clippy, tests,
                            doctests, docs, conformance, a sample of sqlmap
  setup                     make the development cache (Node, the official clients and suites, the
                            MCP schemas) in $SPILE_DEV_CACHE, default ~/.cache/spile-dev
  conformance [--url URL]   the official conformance suites against examples/everything, alone and behind a gateway, and
                            the fixture server, or against a server that already runs
  tidy                      rules that no compiler checks: the dependency table, protocol dates,
                            file sizes, words
  docs [--check]            write docs/protocol-matrix.md and docs/error-codes.md from the code, or
                            only compare them
  fuzz [TARGET] [--seconds N]
                            run one fuzz target, or all of them, N seconds each (default 600)
  judges [NAME] [--rounds N] [--seed N]
                            checks that take too long for CI, all or one: `kill` (kill -9 while writing), `reload`
                            (under load), `refresh` (processes that share a token), `gateway` (simulated), `tenants` (a
                            million calls), `restarts` (databases that crash), `sqlmap` (every argument of the
                            examples), `page` (in a browser), `tables` (Excel tables that grew, read by openpyxl),
                            `openapi` (real documents)
  release [--no-profile]    build the binary as it is shipped; `release sizes` says what each part of it costs
  bench …                   compare speed; see `cargo xtask bench help`
  help                      print this text
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", args),
    };
    match command {
        "ci" => sh::expect_no_arguments(rest).and_then(|()| ci::run()),
        "setup" => sh::expect_no_arguments(rest).and_then(|()| setup::run()),
        "conformance" => conformance::run(rest),
        "judges" => judges::run(rest),
        "tidy" => sh::expect_no_arguments(rest).and_then(|()| tidy::run()),
        "docs" => docs::run(rest),
        "fuzz" => fuzz::run(rest),
        "bench" => bench::run(rest),
        "release" => release::run(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        unknown => bail!("unknown command `{unknown}`; `cargo xtask help` lists the commands"),
    }
}

//! `cargo xtask ci`: everything that must be green, cheapest first, stopping at the first failure.

use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::cache::Cache;
use crate::{conformance, debian, docs, judges, setup, sh, tidy};

struct Step {
    name: &'static str,
    run: fn(&Target) -> Result<()>,
    /// What to do when it fails.
    way_out: &'static str,
}

const STEPS: &[Step] = &[
    Step {
        name: "setup",
        run: |_| setup::run(),
        way_out: "the message above names what could not be installed; `cargo xtask setup` tries again",
    },
    Step { name: "fmt", run: |t| t.cargo(&["fmt", "--all", "--check"]), way_out: "run `cargo fmt --all`" },
    Step {
        name: "tidy",
        run: |_| tidy::run(),
        way_out: "each line above names a file and the rule it breaks",
    },
    Step {
        name: "clippy",
        run: |t| t.cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        way_out: "repeat with `cargo clippy --workspace --all-targets`",
    },
    Step {
        name: "tests",
        run: tests,
        way_out: "repeat one with `cargo nextest run <name>` or `cargo test <name>`",
    },
    Step {
        name: "doctests",
        run: |t| t.cargo(&["test", "--workspace", "--doc"]),
        way_out: "repeat with `cargo test --workspace --doc`",
    },
    Step {
        name: "docs",
        run: |t| docs::check(&t.env()),
        way_out: "run `cargo xtask docs` and commit what it changes",
    },
    Step {
        name: "conformance",
        run: |t| conformance::against_fixture(&t.env()),
        way_out: "repeat with `cargo xtask conformance`",
    },
    Step {
        name: "sqlmap",
        run: |t| judges::sample(&t.env()),
        way_out: "repeat all of it with `cargo xtask judges sqlmap`",
    },
];

pub fn run() -> Result<()> {
    let begun = Instant::now();
    let target = Target::choose()?;
    for (index, step) in STEPS.iter().enumerate() {
        let step_begun = Instant::now();
        println!("\n[{}/{}] {}", index + 1, STEPS.len(), step.name);
        (step.run)(&target).with_context(|| {
            format!("`{}` failed after {}; {}", step.name, sh::seconds(step_begun), step.way_out)
        })?;
        println!("[{}/{}] {}: ok, {}", index + 1, STEPS.len(), step.name, sh::seconds(step_begun));
    }
    println!("\nci: ok, {}", sh::seconds(begun));
    Ok(())
}

/// nextest when the machine has it: it runs the tests of all crates together and times each.
fn tests(target: &Target) -> Result<()> {
    if sh::succeeds(sh::cargo().args(["nextest", "--version"])) {
        target.cargo(&["nextest", "run", "--workspace", "--no-fail-fast"])
    } else {
        println!("cargo-nextest is not installed; `cargo test` runs the same tests one crate at a time");
        target.cargo(&["test", "--workspace", "--lib", "--bins", "--examples", "--tests", "--no-fail-fast"])
    }
}

/// Where cargo's output goes.
enum Target {
    /// Wherever cargo would put it.
    AsConfigured,
    /// CI starts from a fresh clone each time; in the cache the dependencies stay built. Cargo itself
    /// decides what is out of date.
    InCache(Cache),
}

impl Target {
    fn choose() -> Result<Self> {
        if debian::is_ci() && std::env::var_os("CARGO_TARGET_DIR").is_none() {
            Ok(Self::InCache(Cache::locate()?))
        } else {
            Ok(Self::AsConfigured)
        }
    }

    fn env(&self) -> sh::Env {
        match self {
            Self::AsConfigured => sh::Env::default(),
            Self::InCache(cache) => sh::Env::from([("CARGO_TARGET_DIR", cache.target().into_os_string())]),
        }
    }

    fn cargo(&self, args: &[&str]) -> Result<()> {
        sh::show(sh::cargo().args(args).envs(self.env()))
    }
}

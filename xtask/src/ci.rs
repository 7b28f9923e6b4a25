//! `cargo xtask ci`: everything that must be green, cheapest first, stopping at the first failure.

use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::cache::Cache;
use crate::{conformance, debian, docs, judges, setup, sh, tidy};

struct Step {
    name: &'static str,
    run: fn(&TargetDir) -> Result<()>,
    /// What to do when it fails.
    hint: &'static str,
}

const STEPS: &[Step] = &[
    Step {
        name: "setup",
        run: |_| setup::run(),
        hint: "the message above names what could not be installed; `cargo xtask setup` tries again",
    },
    Step { name: "fmt", run: |t| t.cargo(&["fmt", "--all", "--check"]), hint: "run `cargo fmt --all`" },
    Step { name: "tidy", run: |_| tidy::run(), hint: "each line above names a file and the rule it breaks" },
    Step {
        name: "clippy",
        run: |t| t.cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        hint: "repeat with `cargo clippy --workspace --all-targets`",
    },
    Step {
        name: "tests",
        run: tests,
        hint: "repeat one with `cargo nextest run <name>` or `cargo test <name>`",
    },
    Step {
        name: "doctests",
        run: |t| t.cargo(&["test", "--workspace", "--doc"]),
        hint: "repeat with `cargo test --workspace --doc`",
    },
    Step {
        name: "docs",
        run: |t| docs::check(&t.env()),
        hint: "run `cargo xtask docs` and commit what it changes",
    },
    Step {
        name: "conformance",
        run: |t| conformance::against_fixture(&t.env()),
        hint: "repeat with `cargo xtask conformance`",
    },
    Step {
        name: "sqlmap",
        run: |t| judges::sqlmap_sample(&t.env()),
        hint: "repeat all of it with `cargo xtask judges sqlmap`",
    },
];

pub fn run() -> Result<()> {
    let begun = Instant::now();
    let target = TargetDir::choose()?;
    for (index, step) in STEPS.iter().enumerate() {
        let step_begun = Instant::now();
        println!("\n[{}/{}] {}", index + 1, STEPS.len(), step.name);
        (step.run)(&target).with_context(|| {
            format!("`{}` failed after {}; {}", step.name, sh::elapsed_seconds(step_begun), step.hint)
        })?;
        println!("[{}/{}] {}: ok, {}", index + 1, STEPS.len(), step.name, sh::elapsed_seconds(step_begun));
    }
    println!("\nci: ok, {}", sh::elapsed_seconds(begun));
    Ok(())
}

/// Uses nextest if it is installed: it runs the tests of all crates together and times each.
fn tests(target: &TargetDir) -> Result<()> {
    if sh::succeeds(sh::cargo().args(["nextest", "--version"])) {
        target.cargo(&["nextest", "run", "--workspace", "--no-fail-fast"])
    } else {
        println!("cargo-nextest is not installed; `cargo test` runs the same tests one crate at a time");
        target.cargo(&["test", "--workspace", "--lib", "--bins", "--examples", "--tests", "--no-fail-fast"])
    }
}

/// Where cargo's output goes.
enum TargetDir {
    /// Cargo's own choice.
    Configured,
    /// CI starts from a fresh clone each time; in the cache the dependencies stay built. Cargo decides what is
    /// out of date.
    InCache(Cache),
}

impl TargetDir {
    fn choose() -> Result<Self> {
        if debian::is_ci() && std::env::var_os("CARGO_TARGET_DIR").is_none() {
            Ok(Self::InCache(Cache::locate()?))
        } else {
            Ok(Self::Configured)
        }
    }

    fn env(&self) -> sh::Env {
        match self {
            Self::Configured => sh::Env::default(),
            Self::InCache(cache) => {
                sh::Env::from([("CARGO_TARGET_DIR", cache.target_dir().into_os_string())])
            }
        }
    }

    fn cargo(&self, args: &[&str]) -> Result<()> {
        sh::run(sh::cargo().args(args).envs(self.env()))
    }
}

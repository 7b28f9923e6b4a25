//! `cargo xtask judges`: checks that take too long for every commit. The tests also kill and reload, for a few
//! rounds each; CI runs sqlmap on one argument of each database.

mod openapi;
mod page;
mod sqlmap;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::cache::Cache;
use crate::{build, sh};
use sqlmap::Extent;

const USAGE: &str = "usage: cargo xtask judges [kill|reload|refresh|replay|gateway|tenants|restarts|sqlmap|page|tables|openapi] [--rounds N] [--seed N]; `judges sqlmap --sample`: what CI runs";
const SOURCE_KINDS: [&str; 4] = ["csv", "xlsx", "sqlite", "jsonl"];

struct JudgeArgs {
    judge: Option<String>,
    /// Rounds of `kill`, `refresh` and `replay`; `reload` and `gateway` scale their own from it.
    rounds: u32,
    seed: u64,
}

pub fn run(args: &[String]) -> Result<()> {
    if args == ["sqlmap", "--sample"] {
        return sqlmap_sample(&sh::Env::default());
    }
    let request = parse_args(args)?;
    crate::setup::run()?;
    println!("building the program and its judges (release)");
    let build = ["build", "--release", "-p", "spile", "-p", "testkit", "--bin", "spile", "--bin", "judge"];
    sh::run(sh::cargo().args(build))?;
    let begun = Instant::now();
    let wanted = |name: &str| request.judge.as_deref().is_none_or(|judge| judge == name);
    if wanted("kill") {
        for kind in SOURCE_KINDS {
            let rounds = request.rounds.to_string();
            let seed = request.seed.to_string();
            let mut judge = Command::new(release_binary("judge")?);
            judge
                .args(["kill", kind, "--rounds", &rounds, "--seed", &seed, "--spile"])
                .arg(release_binary("spile")?);
            sh::run(&mut judge)?;
        }
    }
    if wanted("reload") {
        let reloads = (request.rounds / 5).max(1).to_string();
        let mut tests = sh::cargo();
        tests.args(["test", "--release", "-p", "spile", "--test", "it", "no_call_fails"]);
        sh::run(tests.env("SPILE_RELOADS", reloads))?;
    }
    if wanted("refresh") {
        let mut tests = sh::cargo();
        tests.args(["test", "--release", "-p", "servers", "--test", "it", "three_processes"]);
        sh::run(tests.env("SPILE_REFRESHES", request.rounds.to_string()))?;
    }
    if wanted("replay") {
        let mut tests = sh::cargo();
        tests.args(["test", "--release", "-p", "script", "--test", "it", "rounds_can_be_cut"]);
        sh::run(tests.env("SPILE_REPLAYS", request.rounds.to_string()))?;
        let mut tests = sh::cargo();
        tests.args(["test", "--release", "-p", "spile", "--test", "it", "handlers_survive_a_restart"]);
        sh::run(tests.env("SPILE_REPLAYS", (request.rounds / 20).max(1).to_string()))?;
    }
    if wanted("gateway") {
        let mut tests = sh::cargo();
        tests.args(["test", "--release", "-p", "gateway", "--test", "it", "every_call_gets_one_reply"]);
        sh::run(tests.env("SPILE_GATEWAY_SEEDS", (request.rounds * 10).to_string()))?;
    }
    if wanted("tenants") {
        let mut tests = sh::cargo();
        tests.args([
            "test",
            "--release",
            "-p",
            "spile",
            "--test",
            "it",
            "no_tenant_sees",
            "--",
            "--nocapture",
        ]);
        // A step has two calls on average, and there are six kinds of sources: a million calls with 1000 rounds.
        sh::run(tests.env("SPILE_TENANT_STEPS", (request.rounds * 100).to_string()))?;
    }
    if wanted("restarts") {
        let mut tests = sh::cargo();
        tests.args(["test", "--release", "-p", "spile", "--test", "it", "every_acknowledged_write"]);
        // One after the other: each has the machine for itself.
        tests.args(["--", "--nocapture", "--test-threads", "1"]);
        // Fifty crashes of each database with 1000 rounds.
        sh::run(tests.env("SPILE_RESTARTS", (request.rounds / 20).max(1).to_string()))?;
    }
    if wanted("sqlmap") {
        sqlmap::run(&Cache::locate()?, &release_binary("spile")?, Extent::All)?;
    }
    if wanted("page") {
        page::run(&release_binary("spile")?)?;
    }
    if wanted("tables") {
        grown_tables(&Cache::locate()?, &release_binary("spile")?)?;
    }
    if wanted("openapi") {
        openapi::run(&Cache::locate()?, &release_binary("spile")?)?;
    }
    println!("judges: satisfied, {}", sh::elapsed_seconds(begun));
    Ok(())
}

/// The part that CI runs, with the binary that its tests built.
pub fn sqlmap_sample(env: &sh::Env) -> Result<()> {
    sqlmap::run(&Cache::locate()?, &build::executable(env, "spile")?, Extent::Sample)
}

/// Adds rows to Excel tables, and lets openpyxl read them.
fn grown_tables(cache: &Cache, spile: &Path) -> Result<()> {
    let root = sh::repo_root();
    let mut judge = Command::new(cache.openpyxl_python());
    judge
        .arg(root.join("xtask/src/judges/grown_tables.py"))
        .arg(spile)
        .arg(root.join("crates/source/tests/it/sheets/tables"));
    sh::run(&mut judge)
}

fn release_binary(name: &str) -> Result<PathBuf> {
    let configured = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = configured.unwrap_or_else(|| sh::repo_root().join("target"));
    let path = target.join("release").join(name);
    path.canonicalize().with_context(|| format!("{} was not built", path.display()))
}

fn parse_args(args: &[String]) -> Result<JudgeArgs> {
    let mut request = JudgeArgs { judge: None, rounds: 1000, seed: 1 };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut number = || -> Result<u64> {
            let value = rest.next().context(USAGE)?;
            value.parse().with_context(|| format!("`{value}` is no number"))
        };
        match arg.as_str() {
            "--rounds" => request.rounds = number()?.try_into().context("too many rounds")?,
            "--seed" => request.seed = number()?,
            name @ ("kill" | "reload" | "refresh" | "replay" | "gateway" | "tenants" | "restarts"
            | "sqlmap" | "page" | "tables" | "openapi")
                if request.judge.is_none() =>
            {
                request.judge = Some(name.to_owned());
            }
            other => bail!("unexpected `{other}`; {USAGE}"),
        }
    }
    Ok(request)
}

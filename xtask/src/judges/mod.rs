//! `cargo xtask judges`: checks that take too long for every commit. The tests also kill and reload, for a few
//! rounds each; CI runs sqlmap on one place of each kind for each database.

mod attacks;
mod openapi;
mod page;
mod sqlmap;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::cache::Cache;
use crate::{build, sh};
use sqlmap::Extent;

const USAGE: &str = "usage: cargo xtask judges [kill|reload|refresh|replay|gateway|tenants|restarts|sqlmap|page|tables|openapi] [--rounds N] [--seed N] [--debug | --spile FILE]; `--debug`: with the programs that the tests build; `--spile`: judges this program (sqlmap, page, tables, openapi); `judges sqlmap --sample [--spile FILE]`: what CI runs";
const SOURCE_KINDS: [&str; 4] = ["csv", "xlsx", "sqlite", "jsonl"];

struct JudgeArgs {
    judge: Option<String>,
    /// Rounds of `kill`, `refresh` and `replay`; `reload` and `gateway` scale their own from it.
    rounds: u32,
    seed: u64,
    /// Whether the programs of the tests are judged, which are slower and already built.
    debug: bool,
    /// A program to judge instead of one that is built.
    spile: Option<PathBuf>,
}

pub fn run(args: &[String]) -> Result<()> {
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["sqlmap", "--sample"] => return sqlmap_sample(&sh::Env::default()),
        ["sqlmap", "--sample", "--spile", file] => {
            return sqlmap::run(&Cache::locate()?, &Path::new(file).canonicalize()?, Extent::Sample);
        }
        _ => {}
    }
    let request = parse_args(args)?;
    crate::setup::run()?;
    let programs = Programs::build(&request)?;
    let begun = Instant::now();
    let wanted = |name: &str| request.judge.as_deref().is_none_or(|judge| judge == name);
    if wanted("kill") {
        for kind in SOURCE_KINDS {
            let rounds = request.rounds.to_string();
            let seed = request.seed.to_string();
            let mut judge = Command::new(&programs.judge);
            judge.args(["kill", kind, "--rounds", &rounds, "--seed", &seed, "--spile"]).arg(&programs.spile);
            sh::run(&mut judge)?;
        }
    }
    if wanted("reload") {
        let reloads = (request.rounds / 5).max(1).to_string();
        let mut tests = programs.tests("spile", "no_call_fails");
        sh::run(tests.env("SPILE_RELOADS", reloads))?;
    }
    if wanted("refresh") {
        let mut tests = programs.tests("servers", "three_processes");
        sh::run(tests.env("SPILE_REFRESHES", request.rounds.to_string()))?;
    }
    if wanted("replay") {
        let mut tests = programs.tests("script", "rounds_can_be_cut");
        sh::run(tests.env("SPILE_REPLAYS", request.rounds.to_string()))?;
        let mut tests = programs.tests("spile", "handlers_survive_a_restart");
        sh::run(tests.env("SPILE_REPLAYS", (request.rounds / 20).max(1).to_string()))?;
    }
    if wanted("gateway") {
        let mut tests = programs.tests("gateway", "every_call_gets_one_reply");
        sh::run(tests.env("SPILE_GATEWAY_SEEDS", (request.rounds * 10).to_string()))?;
    }
    if wanted("tenants") {
        let mut tests = programs.tests("spile", "no_tenant_sees");
        tests.args(["--", "--nocapture"]);
        // There are six kinds of sources: a million calls with 1000 rounds.
        sh::run(tests.env("SPILE_TENANT_CALLS", (request.rounds * 167).to_string()))?;
    }
    if wanted("restarts") {
        let mut tests = programs.tests("spile", "every_acknowledged_write");
        // One after the other: each has the machine for itself.
        tests.args(["--", "--nocapture", "--test-threads", "1"]);
        // Fifty crashes of each database with 1000 rounds.
        sh::run(tests.env("SPILE_RESTARTS", (request.rounds / 20).max(1).to_string()))?;
    }
    if wanted("sqlmap") {
        sqlmap::run(&Cache::locate()?, &programs.spile, Extent::All)?;
    }
    if wanted("page") {
        page::run(&programs.spile)?;
    }
    if wanted("tables") {
        grown_tables(&Cache::locate()?, &programs.spile)?;
    }
    if wanted("openapi") {
        openapi::run(&Cache::locate()?, &programs.spile)?;
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

/// What is judged.
struct Programs {
    spile: PathBuf,
    judge: PathBuf,
    debug: bool,
}

impl Programs {
    fn build(request: &JudgeArgs) -> Result<Self> {
        let debug = request.debug;
        if let Some(spile) = &request.spile {
            return Ok(Self { spile: spile.canonicalize()?, judge: PathBuf::new(), debug });
        }
        if debug {
            let executable = |name: &str| build::executable(&sh::Env::default(), name);
            return Ok(Self { spile: executable("spile")?, judge: executable("judge")?, debug });
        }
        println!("building the program and its judges (release)");
        let build =
            ["build", "--release", "-p", "spile", "-p", "testkit", "--bin", "spile", "--bin", "judge"];
        sh::run(sh::cargo().args(build))?;
        Ok(Self { spile: release_binary("spile")?, judge: release_binary("judge")?, debug })
    }

    /// Runs tests of a package whose names have this part.
    fn tests(&self, package: &str, name: &str) -> Command {
        let mut tests = sh::cargo();
        match self.debug {
            // All packages, because the features of dependencies depend on what is built together.
            true => tests.args(["test", "--workspace", "--test", "it", name]),
            false => tests.args(["test", "--release", "-p", package, "--test", "it", name]),
        };
        tests
    }
}

fn release_binary(name: &str) -> Result<PathBuf> {
    let configured = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = configured.unwrap_or_else(|| sh::repo_root().join("target"));
    let path = target.join("release").join(name);
    path.canonicalize().with_context(|| format!("{} was not built", path.display()))
}

fn parse_args(args: &[String]) -> Result<JudgeArgs> {
    let mut request = JudgeArgs { judge: None, rounds: 1000, seed: 1, debug: false, spile: None };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let number = |value: Option<&String>| -> Result<u64> {
            let value = value.context(USAGE)?;
            value.parse().with_context(|| format!("`{value}` is no number"))
        };
        match arg.as_str() {
            "--rounds" => request.rounds = number(rest.next())?.try_into().context("too many rounds")?,
            "--seed" => request.seed = number(rest.next())?,
            "--debug" => request.debug = true,
            "--spile" => request.spile = Some(rest.next().context(USAGE)?.into()),
            name @ ("kill" | "reload" | "refresh" | "replay" | "gateway" | "tenants" | "restarts"
            | "sqlmap" | "page" | "tables" | "openapi")
                if request.judge.is_none() =>
            {
                request.judge = Some(name.to_owned());
            }
            other => bail!("unexpected `{other}`; {USAGE}"),
        }
    }
    let runs_programs = ["sqlmap", "page", "tables", "openapi"];
    ensure!(
        request.spile.is_none()
            || request.judge.as_deref().is_some_and(|judge| runs_programs.contains(&judge)),
        "`--spile` needs one of {}",
        runs_programs.join(", ")
    );
    Ok(request)
}

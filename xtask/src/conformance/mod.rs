//! `cargo xtask conformance`: the official suites judge the fixture server, and our client.
//!
//! The verdict comes from what the suites write about each scenario, and the number of scenarios is
//! asserted too: one that vanishes from a suite or is never run fails as loudly as one that is wrong.

mod baseline;
mod client;
mod fixture;
mod results;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cache::{Cache, Suite};
use crate::sh;

use self::baseline::Baseline;
use self::fixture::Fixture;
use self::results::{Check, Scenario, Verdict};

const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// One run of one suite, and how many scenarios of each group must pass in it.
struct Run {
    suite: Suite,
    select: Select,
    expect: &'static [(Group, usize)],
}

enum Select {
    /// The set frozen when this protocol version was released, over this version's wire.
    Requirements(&'static str),
    /// Whatever applies to this protocol version.
    Version(&'static str),
    All,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Required by the protocol version.
    Scored,
    /// Run but not required: added after the release, or pending.
    Unscored,
    /// The tasks extension.
    Tasks,
    /// The run makes no such difference.
    Any,
}

const RUNS: &[Run] = &[
    Run {
        suite: Suite::Alpha,
        select: Select::Requirements("2025-11-25"),
        expect: &[(Group::Scored, 30), (Group::Unscored, 3)],
    },
    Run {
        suite: Suite::Alpha,
        select: Select::Requirements("2026-07-28"),
        expect: &[(Group::Scored, 37), (Group::Unscored, 3), (Group::Tasks, 10)],
    },
    Run { suite: Suite::Alpha, select: Select::Version("2025-06-18"), expect: &[(Group::Any, 27)] },
    Run { suite: Suite::Alpha, select: Select::Version("2025-03-26"), expect: &[(Group::Any, 1)] },
    Run { suite: Suite::Stable, select: Select::All, expect: &[(Group::Any, 32)] },
];

/// Scenarios in which a suite checks nothing whatever the server does. Anywhere else a pass without
/// a single successful check counts as a failure.
const ALWAYS_HOLLOW: &[(&str, &str)] = &[(
    "tasks-status-notifications",
    "the suite skips its only check: it has no listener for task notifications",
)];

/// A server that has its URL: started by us for one run, or already there.
enum Server {
    Ours(PathBuf),
    Theirs(String),
}

pub fn run(args: &[String]) -> Result<()> {
    match args {
        [] => against_fixture(&sh::Env::default()),
        [flag, url] if flag == "--url" => judge(&Server::Theirs(url.clone())),
        _ => bail!("usage: cargo xtask conformance [--url URL]"),
    }
}

pub fn against_fixture(env: &sh::Env) -> Result<()> {
    judge(&Server::Ours(fixture::build(env, "fixture")?))?;
    client::judge(&Cache::locate()?, &fixture::build(env, "conformance-client")?)
}

fn judge(server: &Server) -> Result<()> {
    let cache = Cache::locate()?;
    if !cache.suite(Suite::Alpha).exists() || !cache.suite(Suite::Stable).exists() {
        bail!("the conformance suites are not in {}; run `cargo xtask setup` once", cache.root().display());
    }
    let mut baseline = Baseline::load()?;
    let mut table = vec!["suite            run          group        passed".to_owned()];
    let mut warnings = Vec::new();
    let mut problems = Vec::new();

    for run in RUNS {
        let scenarios = perform(&cache, run, server)?;
        for (group, expected) in run.expect {
            let members: Vec<&Scenario> = scenarios.iter().filter(|s| s.group == *group).collect();
            let passed = members.iter().filter(|scenario| problems_of(scenario).is_empty()).count();
            let (suite, title, group) = (run.suite.version(), run.title(), group.title());
            table.push(format!("{suite:16} {title:12} {group:12} {passed}/{expected}"));
            if members.len() != *expected {
                let found = members.len();
                problems
                    .push(format!("{suite} {title}: {found} scenarios are `{group}`, expected {expected}"));
            }
        }
        for scenario in &scenarios {
            let name = format!("{} {} {}", run.suite.version(), run.title(), scenario.name);
            warnings.extend(scenario.warnings.iter().map(|check| format!("{name}: {check}")));
            let unexpected = problems_of(scenario)
                .into_iter()
                .filter(|check| !baseline.expects(&scenario.name, &check.id));
            problems.extend(unexpected.map(|check| format!("{name}: {check}")));
        }
    }
    problems.extend(baseline.stale());

    println!("\n{}", table.join("\n"));
    for warning in &warnings {
        println!("warning: {warning}");
    }
    for expected in baseline.used() {
        println!("expected failure: {expected}");
    }
    if !problems.is_empty() {
        for problem in &problems {
            println!("failed: {problem}");
        }
        bail!(
            "{} conformance problem(s); what the suites saw lies in {}",
            problems.len(),
            cache.conformance_results().display()
        );
    }
    Ok(())
}

fn perform(cache: &Cache, run: &Run, server: &Server) -> Result<Vec<Scenario>> {
    let results = cache.conformance_results().join(format!("{}-{}", run.suite.version(), run.title()));
    if results.exists() {
        fs::remove_dir_all(&results)?;
    }
    let fixture;
    let url = match server {
        Server::Theirs(url) => url.as_str(),
        Server::Ours(binary) => {
            fixture = Fixture::start(binary)?;
            fixture.url()
        }
    };
    let mut suite = suite(cache, run.suite);
    suite.args(["server", "--url", url]).args(run.select.arguments()).arg("-o").arg(&results);
    let log = cache.conformance_results().join(format!("{}-{}.log", run.suite.version(), run.title()));
    let what = format!("conformance {} {}", run.suite.version(), run.title());
    // The exit status is not the verdict: it leaves out what is not scored.
    sh::watch(&what, &mut suite, &log, RUN_TIMEOUT)?;
    let scored = match run.select {
        Select::Requirements(version) => {
            let listed = sh::read(self::suite(cache, run.suite).args([
                "list",
                "--server",
                "--requirements",
                version,
            ]))?;
            Some(results::listed_server_scenarios(&listed))
        }
        Select::Version(_) | Select::All => None,
    };
    results::read(&log, &results, |name| match &scored {
        None => Group::Any,
        Some(scored) if scored.iter().any(|s| s == name) => Group::Scored,
        Some(_) if name.starts_with("tasks-") => Group::Tasks,
        Some(_) => Group::Unscored,
    })
}

fn suite(cache: &Cache, suite: Suite) -> Command {
    let mut command = Command::new(cache.node());
    command.arg(cache.suite(suite));
    command
}

/// Why a scenario does not count as passed; empty when it does.
fn problems_of(scenario: &Scenario) -> Vec<Check> {
    let of_the_whole = |message: &str| vec![Check { id: scenario.name.clone(), message: message.to_owned() }];
    match &scenario.verdict {
        Verdict::Passed => Vec::new(),
        Verdict::Hollow if is_always_hollow(&scenario.name) => Vec::new(),
        Verdict::Hollow => of_the_whole("passed without a single successful check"),
        Verdict::Unfinished => of_the_whole("was started but wrote no result"),
        Verdict::Failed(checks) => checks.clone(),
    }
}

fn is_always_hollow(name: &str) -> bool {
    ALWAYS_HOLLOW.iter().any(|(hollow, _reason)| *hollow == name)
}

impl Run {
    fn title(&self) -> &'static str {
        match self.select {
            Select::Requirements(version) | Select::Version(version) => version,
            Select::All => "all",
        }
    }
}

impl Select {
    fn arguments(&self) -> Vec<&'static str> {
        match self {
            Self::Requirements(version) => vec!["--requirements", version],
            Self::Version(version) => vec!["--suite", "all", "--spec-version", version],
            Self::All => vec!["--suite", "all"],
        }
    }
}

impl Group {
    fn title(self) -> &'static str {
        match self {
            Self::Scored => "scored",
            Self::Unscored => "not scored",
            Self::Tasks => "tasks",
            Self::Any => "all",
        }
    }
}

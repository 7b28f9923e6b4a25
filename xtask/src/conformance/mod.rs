//! `cargo xtask conformance`: runs the official suites against `examples/everything`, the fixture server and our client.
//!
//! The verdict comes from the result of each scenario, and the number of scenarios is asserted too: a scenario that
//! disappears from a suite or never runs is a failure.

mod baseline;
mod client;
mod fixture;
mod results;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cache::{Cache, Suite};
use crate::{build, sh};

use self::baseline::Baseline;
use self::fixture::Fixture;
use self::results::{Check, Scenario, Verdict};

const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// One run of one suite, and how many scenarios of each group must pass in it.
struct SuiteRun {
    suite: Suite,
    selection: ScenarioSelection,
    expected: &'static [(Group, usize)],
    /// Whether the server must have skills, which the fixture has not.
    needs_skills: bool,
}

enum ScenarioSelection {
    /// The set that was frozen when this protocol version was released, in this version.
    Requirements(&'static str),
    /// Everything that applies to this protocol version.
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
    /// The run does not distinguish groups.
    Any,
}

const RUNS: &[SuiteRun] = &[
    SuiteRun {
        suite: Suite::Alpha,
        selection: ScenarioSelection::Requirements("2025-11-25"),
        expected: &[(Group::Scored, 30), (Group::Unscored, 3)],
        needs_skills: false,
    },
    SuiteRun {
        suite: Suite::Alpha,
        selection: ScenarioSelection::Requirements("2026-07-28"),
        expected: &[(Group::Scored, 37), (Group::Unscored, 3), (Group::Tasks, 10)],
        needs_skills: false,
    },
    SuiteRun {
        suite: Suite::Alpha,
        selection: ScenarioSelection::Version("2025-06-18"),
        expected: &[(Group::Any, 27)],
        needs_skills: false,
    },
    SuiteRun {
        suite: Suite::Alpha,
        selection: ScenarioSelection::Version("2025-03-26"),
        expected: &[(Group::Any, 1)],
        needs_skills: false,
    },
    SuiteRun {
        suite: Suite::Alpha,
        selection: ScenarioSelection::All,
        expected: &[(Group::Any, 65)],
        needs_skills: true,
    },
    SuiteRun {
        suite: Suite::Stable,
        selection: ScenarioSelection::All,
        expected: &[(Group::Any, 32)],
        needs_skills: false,
    },
];

/// Scenarios in which a suite never checks anything. In all others, a pass without a single successful check counts
/// as a failure.
const ALWAYS_VACUOUS: &[(&str, &str)] = &[(
    "tasks-status-notifications",
    "the suite skips its only check: it has no listener for task notifications",
)];

/// A server with its URL: started for one run, or already running.
enum ServerUnderTest {
    Fixture(PathBuf),
    /// `spile serve examples/everything`.
    Folder(PathBuf),
    /// `spile gateway`, and `examples/everything` behind it.
    Gateway {
        binary: PathBuf,
        upstream: UpstreamEra,
    },
    External(String),
}

/// The protocol between the gateway and the server behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UpstreamEra {
    Newest,
    Handshake,
}

/// What cannot pass through a gateway to a server of the handshake era: scenario, check and reason.
const HANDSHAKE_GATEWAY_EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "input-required-result-basic-elicitation",
        "sep-2322-elicitation-incomplete",
        "a question of an older server has no key, so the gateway chooses one",
    ),
    (
        "input-required-result-ignore-extra-params",
        "sep-2322-ignore-unexpected-params",
        "a question of an older server has no key, so the gateway chooses one, and the suite answers another",
    ),
    (
        "tasks-mrtr-composition",
        "sep-2663-mrtr-synchronous-before-task-creation",
        "a tool of an older server that may become a task is one before it can ask",
    ),
    (
        "server-stateless",
        "sep-2575-missing-capability-http-400",
        "the first call with other capabilities starts a process; a slow start makes the response a stream, with status 200",
    ),
    (
        "server-stateless",
        "sep-2575-http-server-no-independent-requests-on-stream",
        "the first call with other capabilities starts a process, and the suite waits 600 ms for its progress",
    ),
];

/// Scenarios in which a suite checks nothing behind a gateway.
const VACUOUS_BEHIND_GATEWAY: &[(&str, &str)] = &[(
    "server-sse-polling",
    "a server's wish to have a stream closed and resumed is between two neighbours, so the gateway closes none",
)];

/// What a gateway does not pass on, whatever the server behind it speaks.
const GATEWAY_EXCEPTIONS: &[(&str, &str, &str)] = &[];

impl ServerUnderTest {
    fn title(&self) -> &'static str {
        match self {
            Self::Fixture(_) => "the fixture",
            Self::Folder(_) => "examples/everything",
            Self::Gateway { upstream: UpstreamEra::Newest, .. } => "examples/everything behind a gateway",
            Self::Gateway { upstream: UpstreamEra::Handshake, .. } => {
                "examples/everything behind a gateway that uses the handshake"
            }
            Self::External(_) => "the server",
        }
    }

    fn runs(&self, run: &SuiteRun) -> bool {
        match self {
            // It has no skills.
            Self::Fixture(_) => !run.needs_skills,
            Self::Gateway { upstream: UpstreamEra::Handshake, .. } => {
                matches!(run.selection, ScenarioSelection::Requirements(_))
            }
            Self::Gateway { upstream: UpstreamEra::Newest, .. } | Self::Folder(_) | Self::External(_) => true,
        }
    }

    /// Why this check is not expected to pass here.
    fn exception(&self, scenario: &str, check: &str) -> Option<&'static str> {
        let Self::Gateway { upstream, .. } = self else { return None };
        let of_era = match upstream {
            UpstreamEra::Newest => &[][..],
            UpstreamEra::Handshake => HANDSHAKE_GATEWAY_EXCEPTIONS,
        };
        let mut all = GATEWAY_EXCEPTIONS.iter().chain(of_era);
        all.find(|(name, id, _)| *name == scenario && *id == check).map(|(_, _, reason)| *reason)
    }
}

pub fn run(args: &[String]) -> Result<()> {
    match args {
        [] => against_fixture(&sh::Env::default()),
        [flag] if flag == "--handshake-gateway" => {
            let binary = build::executable(&sh::Env::default(), "spile")?;
            run_suites(&ServerUnderTest::Gateway { binary, upstream: UpstreamEra::Handshake })
        }
        [flag, url] if flag == "--url" => run_suites(&ServerUnderTest::External(url.clone())),
        _ => bail!("usage: cargo xtask conformance [--url URL | --handshake-gateway]"),
    }
}

pub fn against_fixture(env: &sh::Env) -> Result<()> {
    let binary = build::executable(env, "spile")?;
    run_suites(&ServerUnderTest::Folder(binary.clone()))?;
    run_suites(&ServerUnderTest::Gateway { binary: binary.clone(), upstream: UpstreamEra::Newest })?;
    run_suites(&ServerUnderTest::Gateway { binary, upstream: UpstreamEra::Handshake })?;
    run_suites(&ServerUnderTest::Fixture(build::executable(env, "fixture")?))?;
    client::run_client_suites(&Cache::locate()?, &build::executable(env, "conformance-client")?)
}

fn run_suites(server: &ServerUnderTest) -> Result<()> {
    let cache = Cache::locate()?;
    if !cache.suite(Suite::Alpha).exists() || !cache.suite(Suite::Stable).exists() {
        bail!("the conformance suites are not in {}; run `cargo xtask setup` once", cache.root().display());
    }
    let mut baseline = Baseline::load()?;
    let mut table = vec!["suite            run          group        passed".to_owned()];
    let mut warnings = Vec::new();
    let mut problems = Vec::new();
    let mut exceptions = Vec::new();

    for run in RUNS {
        if !server.runs(run) {
            continue;
        }
        let scenarios = run_suite(&cache, run, server)?;
        for (group, expected) in run.expected {
            let members: Vec<&Scenario> = scenarios.iter().filter(|s| s.group == *group).collect();
            let passed = members.iter().filter(|scenario| failed_checks(server, scenario).is_empty()).count();
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
            for check in &scenario.warnings {
                match server.exception(&scenario.name, &check.id) {
                    Some(reason) => exceptions.push(format!("{name}: warning: {} ({reason})", check.id)),
                    None => warnings.push(format!("{name}: warning: {check}")),
                }
            }
            for check in failed_checks(server, scenario) {
                match server.exception(&scenario.name, &check.id) {
                    Some(reason) => exceptions.push(format!("{name}: {} ({reason})", check.id)),
                    None if baseline.expects(&scenario.name, &check.id) => {}
                    None => problems.push(format!("{name}: {check}")),
                }
            }
        }
    }
    problems.extend(baseline.stale_entries());
    // No warning either: what the suite only recommends, we do.
    problems.extend(warnings);

    println!("\n{}\n{}", server.title(), table.join("\n"));
    for exception in &exceptions {
        println!("exception: {exception}");
    }
    for expected in baseline.used_entries() {
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

fn run_suite(cache: &Cache, run: &SuiteRun, server: &ServerUnderTest) -> Result<Vec<Scenario>> {
    let results = cache.conformance_results().join(format!("{}-{}", run.suite.version(), run.title()));
    if results.exists() {
        fs::remove_dir_all(&results)?;
    }
    // What tools say they do depends on the era, and whoever changes it has to approve them again.
    let state = cache.conformance_results().join(match server {
        ServerUnderTest::Gateway { upstream: UpstreamEra::Handshake, .. } => "state-handshake",
        ServerUnderTest::Gateway { upstream: UpstreamEra::Newest, .. } => "state-gateway",
        ServerUnderTest::Fixture(_) | ServerUnderTest::Folder(_) | ServerUnderTest::External(_) => "state",
    });
    let (fixture, own_url);
    let url = match server {
        ServerUnderTest::External(url) => url.as_str(),
        ServerUnderTest::Gateway { binary, upstream } => {
            let config = cache.conformance_results().join("gateway.json");
            fs::create_dir_all(cache.conformance_results())?;
            fs::write(&config, gateway_settings(binary, &state))?;
            let config = config.to_string_lossy().into_owned();
            let mut args = vec!["gateway", "--config", &config, "--wait", "20"];
            args.extend((*upstream == UpstreamEra::Handshake).then_some("--handshake-only"));
            fixture = Fixture::start(binary, &args, &state)?;
            own_url = format!("{}/{BEHIND}", fixture.url());
            &own_url
        }
        ServerUnderTest::Fixture(binary) => {
            fixture = Fixture::start(binary, &["conformance"], &state)?;
            fixture.url()
        }
        ServerUnderTest::Folder(binary) => {
            let folder = sh::repo_root().join("examples/everything");
            fixture = Fixture::start(binary, &["serve", &folder.to_string_lossy()], &state)?;
            fixture.url()
        }
    };
    let mut suite = suite_command(cache, run.suite);
    suite.args(["server", "--url", url]).args(run.selection.arguments()).arg("-o").arg(&results);
    let log = cache.conformance_results().join(format!("{}-{}.log", run.suite.version(), run.title()));
    let what = format!("conformance {} {}", run.suite.version(), run.title());
    // The exit status is not the verdict: it ignores scenarios that are not scored.
    sh::run_with_timeout(&what, &mut suite, &log, RUN_TIMEOUT)?;
    let scored = match run.selection {
        ScenarioSelection::Requirements(version) => {
            let listed = sh::output(suite_command(cache, run.suite).args([
                "list",
                "--server",
                "--requirements",
                version,
            ]))?;
            Some(results::listed_server_scenarios(&listed))
        }
        ScenarioSelection::Version(_) | ScenarioSelection::All => None,
    };
    results::read(&log, &results, |name| match &scored {
        None => Group::Any,
        Some(scored) if scored.iter().any(|s| s == name) => Group::Scored,
        Some(_) if name.starts_with("tasks-") => Group::Tasks,
        Some(_) => Group::Unscored,
    })
}

/// The name of the server behind the gateway.
const BEHIND: &str = "everything";

/// Its tools have no annotations, and the suites cannot be asked about each of them.
fn gateway_settings(binary: &Path, state: &Path) -> String {
    let folder = sh::repo_root().join("examples/everything");
    serde_json::json!({
        "mcpServers": { BEHIND: { "command": binary, "args": ["serve", folder] } },
        "permissions": { "mode": "permissive" },
        "audit": { "path": state.join("audit.jsonl"), "on_error": "drop" },
    })
    .to_string()
}

fn suite_command(cache: &Cache, suite: Suite) -> Command {
    let mut command = Command::new(cache.node());
    command.arg(cache.suite(suite));
    command
}

/// Why a scenario does not count as passed; empty if it passed.
fn failed_checks(server: &ServerUnderTest, scenario: &Scenario) -> Vec<Check> {
    let of_the_whole = |message: &str| vec![Check { id: scenario.name.clone(), message: message.to_owned() }];
    match &scenario.verdict {
        Verdict::Passed => Vec::new(),
        Verdict::Vacuous if is_vacuous(server, &scenario.name) => Vec::new(),
        Verdict::Vacuous => of_the_whole("passed without a single successful check"),
        Verdict::Unfinished => of_the_whole("was started but wrote no result"),
        Verdict::Failed(checks) => checks.clone(),
    }
}

fn is_vacuous(server: &ServerUnderTest, name: &str) -> bool {
    let behind_gateway = match server {
        ServerUnderTest::Gateway { .. } => VACUOUS_BEHIND_GATEWAY,
        ServerUnderTest::Fixture(_) | ServerUnderTest::Folder(_) | ServerUnderTest::External(_) => &[],
    };
    ALWAYS_VACUOUS.iter().chain(behind_gateway).any(|(hollow, _reason)| *hollow == name)
}

impl SuiteRun {
    fn title(&self) -> &'static str {
        match self.selection {
            ScenarioSelection::Requirements(version) | ScenarioSelection::Version(version) => version,
            ScenarioSelection::All => "all",
        }
    }
}

impl ScenarioSelection {
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

//! Runs our client against the servers of the suites, one scenario at a time, because some measure time.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::suite_command;
use crate::cache::{Cache, Suite};
use crate::sh;

const RUN_TIMEOUT: Duration = Duration::from_secs(120);

/// Which scenarios of a suite are run.
#[derive(Clone, Copy)]
enum Selection {
    Version(&'static str),
    /// Those that belong to no version.
    Extensions,
    All,
}

impl Selection {
    fn title(self) -> &'static str {
        match self {
            Self::Version(version) => version,
            Self::Extensions => "extensions",
            Self::All => "all",
        }
    }

    fn args(self) -> Vec<&'static str> {
        match self {
            Self::Version(version) => vec!["--spec-version", version],
            Self::Extensions | Self::All => Vec::new(),
        }
    }

    /// `tags` are those of a listing: `[2025-06-18,2025-11-25]`.
    fn selects(self, tags: &str) -> bool {
        !matches!(self, Self::Extensions) || tags == "[extension]"
    }
}

/// What is run, and how many scenarios that is.
const RUNS: &[(Suite, Selection, usize)] = &[
    (Suite::Alpha, Selection::Version("2025-03-26"), 2),
    (Suite::Alpha, Selection::Version("2025-06-18"), 5),
    (Suite::Alpha, Selection::Version("2025-11-25"), 19),
    (Suite::Alpha, Selection::Version("2026-07-28"), 33),
    (Suite::Alpha, Selection::Extensions, 10),
    (Suite::Stable, Selection::All, 25),
];

/// The sets of scenarios that were frozen when a protocol version was released, and how many are for clients. Each of them is a
/// part of the run of its version.
const REQUIREMENTS: &[(&str, usize)] = &[("2025-11-25", 18), ("2026-07-28", 32)];

/// All scenarios of a suite for clients, whatever they belong to, with those that it cannot judge.
const TOTALS: &[(Suite, usize)] = &[(Suite::Alpha, 48), (Suite::Stable, 26)];

/// A scenario that a right client cannot pass: its metadata names another issuer than the one that it is found at, which
/// RFC 8414, 3.3 forbids. `auth/metadata-issuer-mismatch` of the newer suite demands that clients refuse it.
fn is_defective(suite: Suite, scenario: &str) -> bool {
    suite == Suite::Stable && scenario == "auth/2025-03-26-oauth-metadata-backcompat"
}

pub(super) fn run_client_suites(cache: &Cache, client: &Path) -> Result<()> {
    let mut table = vec!["suite            client       passed".to_owned()];
    let mut problems = Vec::new();
    // By the version of the suite and the title of the run.
    let mut all_passed: BTreeSet<(&str, &str, String)> = BTreeSet::new();
    for (which, selection, expected) in RUNS {
        let title = selection.title();
        let args = selection.args();
        let listed = sh::output(suite_command(cache, *which).args(["list", "--client"]).args(&args))?;
        let selected = listed_scenarios(&listed).filter(|(_, tags)| selection.selects(tags));
        let scenarios: Vec<&str> =
            selected.map(|(name, _)| name).filter(|name| !is_defective(*which, name)).collect();
        if scenarios.len() != *expected {
            problems.push(format!(
                "{} {title}: {} scenarios for a client, expected {expected}",
                which.version(),
                scenarios.len()
            ));
        }
        let mut passed = 0;
        for scenario in &scenarios {
            match run_scenario(cache, *which, *selection, scenario, client)? {
                None => {
                    passed += 1;
                    all_passed.insert((which.version(), title, (*scenario).to_owned()));
                }
                Some(why) => problems.push(format!("{} {title} {scenario}: {why}", which.version())),
            }
        }
        table.push(format!("{:16} {title:12} {passed}/{expected}", which.version()));
    }
    let alpha = Suite::Alpha.version();
    for (revision, expected) in REQUIREMENTS {
        let listed =
            sh::output(suite_command(cache, Suite::Alpha).args(["list", "--requirements", revision]))?;
        let has_passed = |name: &str| all_passed.contains(&(alpha, *revision, name.to_owned()));
        let required: Vec<&str> = required_of_clients(&listed).collect();
        let title = format!("required by {revision}");
        table.push(total(alpha, &title, &required, *expected, has_passed, &mut problems));
    }
    for (which, expected) in TOTALS {
        let version = which.version();
        let listed = sh::output(suite_command(cache, *which).args(["list", "--client"]))?;
        let names: Vec<&str> = listed_scenarios(&listed).map(|(name, _)| name).collect();
        let has_passed = |name: &str| {
            is_defective(*which, name)
                || all_passed.iter().any(|(suite, _, passed)| *suite == version && passed == name)
        };
        let defective = names.iter().filter(|name| is_defective(*which, name)).count();
        let title = match defective {
            0 => "the whole suite".to_owned(),
            count => format!("the whole suite, with {count} that it cannot judge"),
        };
        table.push(total(version, &title, &names, *expected, has_passed, &mut problems));
    }
    println!("\n{}", table.join("\n"));
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &problems {
        println!("failed: {problem}");
    }
    let folder = cache.conformance_results();
    bail!(
        "{} conformance problem(s) of the client; what the suites saw lies in {}",
        problems.len(),
        folder.display()
    )
}

/// A line of the table: how many of these scenarios have passed in the runs above.
fn total(
    suite: &str,
    title: &str,
    scenarios: &[&str],
    expected: usize,
    has_passed: impl Fn(&str) -> bool,
    problems: &mut Vec<String>,
) -> String {
    if scenarios.len() != expected {
        problems.push(format!("{suite} {title}: {} scenarios, expected {expected}", scenarios.len()));
    }
    let missing: Vec<&str> = scenarios.iter().copied().filter(|name| !has_passed(name)).collect();
    problems.extend(missing.iter().map(|name| format!("{suite} {title}: {name} has not passed")));
    format!("{suite:16} {title:12} {}/{expected}", scenarios.len() - missing.len())
}

/// `None` if it passed. A warning counts as a failure, as it does for the suites.
fn run_scenario(
    cache: &Cache,
    which: Suite,
    selection: Selection,
    scenario: &str,
    client: &Path,
) -> Result<Option<String>> {
    let title = format!("client-{}-{}-{}", which.version(), selection.title(), scenario.replace('/', "-"));
    let folder = cache.conformance_results();
    let log = folder.join(format!("{title}.log"));
    let mut run = suite_command(cache, which);
    run.args(["client", "--scenario", scenario]).args(selection.args());
    run.arg("--command").arg(client).arg("-o").arg(folder.join("client"));
    let status = sh::run_with_timeout(&format!("conformance {title}"), &mut run, &log, RUN_TIMEOUT)?;
    let output = fs::read_to_string(&log)?;
    let has_checked = output
        .lines()
        .any(|line| line.strip_prefix("Passed: ").is_some_and(|counts| !counts.starts_with("0/")));
    Ok(match (status.success() && output.contains("OVERALL: PASSED"), has_checked) {
        (true, true) => None,
        (true, false) => Some("passed without a single successful check".to_owned()),
        (false, _) => Some(sh::last_lines(&output, 12)),
    })
}

/// Lines like `  - tools_call [2025-06-18,2025-11-25]`.
fn listed_scenarios(listed: &str) -> impl Iterator<Item = (&str, &str)> {
    let entries = listed.lines().filter_map(|line| line.trim().strip_prefix("- "));
    entries.map(|entry| entry.split_once(' ').unwrap_or((entry, "")))
}

/// The scenarios for clients in a listing of requirements. Below them is what is run and not scored.
fn required_of_clients(listed: &str) -> impl Iterator<Item = &str> {
    let below = listed.lines().skip_while(|line| !line.starts_with("Client scenarios"));
    below.skip(1).map_while(|line| line.trim().strip_prefix("- "))
}

#[cfg(test)]
mod tests {
    use super::{Selection, listed_scenarios, required_of_clients};

    #[test]
    fn requirements_for_clients_are_found_in_a_listing() {
        let listed = "Server scenarios (test against a server):\n  - a\n\nClient scenarios (test against a client):\n  - \
                      initialize\n  - auth/x\n\nRun and reported, but never scored:\n  extension (1):\n    - auth/dpop [client]\n";
        assert_eq!(required_of_clients(listed).collect::<Vec<_>>(), ["initialize", "auth/x"]);
        assert_eq!(required_of_clients("Server scenarios:\n  - a\n").count(), 0);
    }

    #[test]
    fn scenarios_are_found_in_a_listing() {
        let listed = "Client scenarios (test against a client):\n  - tools_call [2025-06-18]\n  - auth/x [extension]\n";
        let all: Vec<(&str, &str)> = listed_scenarios(listed).collect();
        assert_eq!(all, [("tools_call", "[2025-06-18]"), ("auth/x", "[extension]")]);
        assert!(
            Selection::Extensions.selects("[extension]") && !Selection::Extensions.selects("[2025-06-18]")
        );
        assert!(
            Selection::All.selects("[extension]") && Selection::Version("2025-06-18").selects("[2025-06-18]")
        );
    }
}

//! Runs our client against the servers of the suites, one scenario at a time, because some measure time.

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

/// A scenario that a right client cannot pass: its metadata names another issuer than the one that it is found at, which
/// RFC 8414, 3.3 forbids. `auth/metadata-issuer-mismatch` of the newer suite demands that clients refuse it.
fn is_defective(suite: Suite, scenario: &str) -> bool {
    suite == Suite::Stable && scenario == "auth/2025-03-26-oauth-metadata-backcompat"
}

pub(super) fn run_client_suites(cache: &Cache, client: &Path) -> Result<()> {
    let mut table = vec!["suite            client       passed".to_owned()];
    let mut problems = Vec::new();
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
                None => passed += 1,
                Some(why) => problems.push(format!("{} {title} {scenario}: {why}", which.version())),
            }
        }
        table.push(format!("{:16} {title:12} {passed}/{expected}", which.version()));
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

#[cfg(test)]
mod tests {
    use super::{Selection, listed_scenarios};

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

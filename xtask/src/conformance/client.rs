//! Runs our client against the servers of the suites, one scenario at a time, because some measure time.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::suite_command;
use crate::cache::{Cache, Suite};
use crate::sh;

const RUN_TIMEOUT: Duration = Duration::from_secs(120);

/// The scenarios that a suite lists for a version, and how many of them are not extensions.
const RUNS: &[(Suite, Option<&str>, usize)] = &[
    (Suite::Alpha, Some("2025-03-26"), 2),
    (Suite::Alpha, Some("2025-06-18"), 5),
    (Suite::Alpha, Some("2025-11-25"), 19),
    (Suite::Alpha, Some("2026-07-28"), 33),
    (Suite::Stable, None, 26),
];

/// Extensions that this client does not support.
const EXTENSIONS: [&str; 2] = ["auth/dpop", "sep-2640-"];

fn is_out_of_scope(scenario: &str) -> bool {
    EXTENSIONS.iter().any(|prefix| scenario.starts_with(prefix))
}

pub(super) fn run_client_suites(cache: &Cache, client: &Path) -> Result<()> {
    let mut table = vec!["suite            client       passed".to_owned()];
    let mut problems = Vec::new();
    for (which, version, expected) in RUNS {
        let title = version.unwrap_or("all");
        let selection: Vec<&str> = version.iter().flat_map(|version| ["--spec-version", version]).collect();
        let listed = sh::output(suite_command(cache, *which).args(["list", "--client"]).args(&selection))?;
        let scenarios: Vec<&str> = listed_scenarios(&listed).filter(|name| !is_out_of_scope(name)).collect();
        if scenarios.len() != *expected {
            problems.push(format!(
                "{} {title}: {} scenarios for a client, expected {expected}",
                which.version(),
                scenarios.len()
            ));
        }
        let mut passed = 0;
        for scenario in &scenarios {
            match run_scenario(cache, *which, &selection, scenario, client)? {
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
    selection: &[&str],
    scenario: &str,
    client: &Path,
) -> Result<Option<String>> {
    let title = format!("client-{}-{}-{scenario}", which.version(), selection.last().unwrap_or(&"all"));
    let folder = cache.conformance_results();
    let log = folder.join(format!("{title}.log"));
    let mut run = suite_command(cache, which);
    run.args(["client", "--scenario", scenario]).args(selection);
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
fn listed_scenarios(listed: &str) -> impl Iterator<Item = &str> {
    let entries = listed.lines().filter_map(|line| line.trim().strip_prefix("- "));
    entries.filter_map(|entry| entry.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::{is_out_of_scope, listed_scenarios};

    #[test]
    fn scenarios_are_found_in_a_listing() {
        let listed = "Client scenarios (test against a client):\n  - tools_call [2025-06-18]\n  - auth/x [2026-07-28]\n";
        let all: Vec<&str> = listed_scenarios(listed).collect();
        assert_eq!(all, ["tools_call", "auth/x"]);
        assert!(
            !is_out_of_scope("tools_call")
                && !is_out_of_scope("auth/basic-cimd")
                && is_out_of_scope("auth/dpop-nonce")
                && is_out_of_scope("sep-2640-client-no-prefetch")
        );
    }
}

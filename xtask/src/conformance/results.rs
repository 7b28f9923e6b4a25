//! Reads the results of a suite: one folder with a `checks.json` per scenario, and a log.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::Group;
use crate::sh;

pub struct Scenario {
    pub name: String,
    pub group: Group,
    pub verdict: Verdict,
    pub warnings: Vec<Check>,
}

pub enum Verdict {
    Passed,
    Failed(Vec<Check>),
    /// Nothing failed, but nothing succeeded either.
    Vacuous,
    /// Started, but wrote no result.
    Unfinished,
}

#[derive(Clone)]
pub struct Check {
    pub id: String,
    pub message: String,
}

impl fmt::Display for Check {
    /// The start of the suite's message; `checks.json` has all of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARS_MAX: usize = 300;
        let first_line = self.message.lines().next().unwrap_or_default();
        let start: String = first_line.chars().take(CHARS_MAX).collect();
        let more = if start.len() < self.message.len() { " …" } else { "" };
        write!(f, "{}: {start}{more}", self.id)
    }
}

/// Every scenario that the log lists as started, with its verdict.
pub fn read(log: &Path, results: &Path, group: impl Fn(&str) -> Group) -> Result<Vec<Scenario>> {
    let output = fs::read_to_string(log)?;
    if !output.contains("=== SUMMARY ===") {
        bail!("the suite did not finish:\n{}", sh::last_lines(&output, 40));
    }
    let started =
        output.lines().filter_map(|line| line.strip_prefix("=== Running scenario: ")?.strip_suffix(" ==="));
    started.map(|name| read_scenario(name, results, group(name))).collect()
}

/// The names under "Server scenarios" in the output of `list --requirements`.
pub fn listed_server_scenarios(listed: &str) -> Vec<String> {
    let section = listed.lines().skip_while(|line| !line.starts_with("Server scenarios")).skip(1);
    section.map_while(|line| line.trim().strip_prefix("- ")).map(str::to_owned).collect()
}

fn read_scenario(name: &str, results: &Path, group: Group) -> Result<Scenario> {
    let Some(checks) = read_checks(name, results)? else {
        return Ok(Scenario {
            name: name.to_owned(),
            group,
            verdict: Verdict::Unfinished,
            warnings: Vec::new(),
        });
    };
    let with = |status: &str| {
        checks.iter().filter(|c| c["status"] == status).map(parse_check).collect::<Vec<Check>>()
    };
    let failed = with("FAILURE");
    let verdict = if !failed.is_empty() {
        Verdict::Failed(failed)
    } else if with("SUCCESS").is_empty() {
        Verdict::Vacuous
    } else {
        Verdict::Passed
    };
    Ok(Scenario { name: name.to_owned(), group, verdict, warnings: with("WARNING") })
}

fn read_checks(name: &str, results: &Path) -> Result<Option<Vec<Value>>> {
    // Folders are named `server-<name>-<time>`. One name may be the prefix of another; a time starts with a year.
    let prefix = format!("server-{name}-");
    for folder in fs::read_dir(results).with_context(|| format!("no results in {}", results.display()))? {
        let folder = folder?;
        let folder_name = folder.file_name().to_string_lossy().into_owned();
        let Some(time) = folder_name.strip_prefix(&prefix) else { continue };
        let file = folder.path().join("checks.json");
        if time.starts_with(|c: char| c.is_ascii_digit()) && time.ends_with('Z') && file.exists() {
            let text = fs::read_to_string(&file)?;
            let checks =
                serde_json::from_str(&text).with_context(|| format!("cannot read {}", file.display()))?;
            return Ok(Some(checks));
        }
    }
    Ok(None)
}

fn parse_check(check: &Value) -> Check {
    let text = |field: &str| check[field].as_str().map(str::to_owned);
    Check {
        id: text("id").unwrap_or_default(),
        message: text("errorMessage").or_else(|| text("description")).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::listed_server_scenarios;

    #[test]
    fn only_the_server_section_of_a_listing_counts() {
        let listed = "\
Required for 2025-11-25 (3 scenarios, frozen):

Server scenarios (test against a server):
  - server-initialize
  - ping

Client scenarios (test against a client):
  - initialize
";
        assert_eq!(listed_server_scenarios(listed), ["server-initialize", "ping"]);
    }
}

//! Expected failures, each with its reason: `crates/testkit/conformance-baseline.yml`.
//!
//! The file has the format of the suites. This module reads the subset that we use: a list under `server:`, one
//! entry per line.

use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::sh;

const FILE: &str = "crates/testkit/conformance-baseline.yml";

pub struct Baseline {
    entries: Vec<ExpectedFailure>,
}

#[derive(Debug, PartialEq, Eq)]
struct ExpectedFailure {
    scenario: String,
    /// `None` allows every check of the scenario to fail.
    check: Option<String>,
    reason: String,
    is_used: bool,
}

impl Baseline {
    pub fn load() -> Result<Self> {
        let text =
            fs::read_to_string(sh::repo_root().join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
        Ok(Self { entries: parse(&text)? })
    }

    /// Whether this check is expected to fail. Marks the entry as used, so that unused entries can be reported as
    /// stale.
    pub fn expects(&mut self, scenario: &str, check: &str) -> bool {
        let mut expected = false;
        for entry in self.entries.iter_mut().filter(|entry| entry.covers(scenario, check)) {
            entry.is_used = true;
            expected = true;
        }
        expected
    }

    pub fn used_entries(&self) -> impl Iterator<Item = String> {
        self.entries
            .iter()
            .filter(|entry| entry.is_used)
            .map(|entry| format!("{} ({})", entry.name(), entry.reason))
    }

    pub fn stale_entries(&self) -> impl Iterator<Item = String> {
        let stale = self.entries.iter().filter(|entry| !entry.is_used);
        stale.map(|entry| format!("`{}` no longer fails; delete it from {FILE}", entry.name()))
    }
}

impl ExpectedFailure {
    fn covers(&self, scenario: &str, check: &str) -> bool {
        self.scenario == scenario && self.check.as_deref().is_none_or(|only| only == check)
    }

    fn name(&self) -> String {
        match &self.check {
            None => self.scenario.clone(),
            Some(check) => format!("{}:{check}", self.scenario),
        }
    }
}

fn parse(text: &str) -> Result<Vec<ExpectedFailure>> {
    let mut entries = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') || line == "server:" || line == "server: []" {
            continue;
        }
        let Some(entry) = line.strip_prefix("- ") else {
            bail!("{FILE}: cannot read `{line}`; an entry is `- <scenario>[:<check id>]  # <reason>`");
        };
        let (name, reason) =
            entry.split_once('#').map(|(n, r)| (n.trim(), r.trim())).unwrap_or((entry.trim(), ""));
        if reason.is_empty() {
            bail!("{FILE}: `{name}` has no reason; write it behind the entry as `# <reason>`");
        }
        let (scenario, check) = match name.split_once(':') {
            None => (name, None),
            Some((scenario, check)) => (scenario, Some(check.to_owned())),
        };
        entries.push(ExpectedFailure {
            scenario: scenario.to_owned(),
            check,
            reason: reason.to_owned(),
            is_used: false,
        });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn an_empty_list_expects_nothing() {
        assert!(parse("# why\nserver: []\n").unwrap().is_empty());
    }

    #[test]
    fn an_entry_names_a_scenario_and_maybe_a_check() {
        let entries = parse("server:\n  - ping  # not yet\n  - caching:ttl  # half\n").unwrap();
        assert!(entries[0].covers("ping", "any") && !entries[0].covers("pong", "any"));
        assert!(entries[1].covers("caching", "ttl") && !entries[1].covers("caching", "scope"));
    }

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        assert!(parse("server:\n  - ping\n").is_err());
    }

    #[test]
    fn a_line_of_another_shape_is_refused() {
        assert!(parse("server:\n  ping: 1\n").is_err());
    }
}

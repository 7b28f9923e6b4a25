//! Compares the table of crates in ARCHITECTURE.md with Cargo: each crate depends on exactly what its row says.
//! Dev-dependencies are free.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::File;
use crate::sh;

const DOCUMENT: &str = "ARCHITECTURE.md";

#[derive(Debug, PartialEq, Eq)]
enum Allowed {
    Exactly(BTreeSet<String>),
    /// The binary that wires everything, and crates that only tests and developers use.
    Anything,
}

pub fn check(files: &[File], problems: &mut Vec<String>) -> Result<()> {
    let Some(document) = files.iter().find(|file| file.path == DOCUMENT) else {
        problems.push(format!("{DOCUMENT}: missing, and with it the table of crates and their dependencies"));
        return Ok(());
    };
    let table = match parse_table(&document.text) {
        Ok(table) => table,
        Err(error) => {
            problems.push(format!("{DOCUMENT}: {error:#}"));
            return Ok(());
        }
    };
    let metadata =
        sh::output(sh::cargo().args(["metadata", "--no-deps", "--offline", "--format-version", "1"]))?;
    let metadata: Value =
        serde_json::from_str(&metadata).context("cannot read what `cargo metadata` prints")?;
    compare(&table, &dependencies(&metadata), problems);
    Ok(())
}

fn compare(
    table: &BTreeMap<String, Allowed>,
    actual: &BTreeMap<String, BTreeSet<String>>,
    problems: &mut Vec<String>,
) {
    // A row without a crate is one that does not exist yet.
    for (name, dependencies) in actual {
        match table.get(name) {
            None => problems.push(format!("{DOCUMENT}: crate `{name}` has no row in the table")),
            Some(Allowed::Anything) => {}
            Some(Allowed::Exactly(allowed)) => {
                for extra in dependencies.difference(allowed) {
                    problems.push(format!(
                        "crates/{name}/Cargo.toml: depends on `{extra}`, which the table in {DOCUMENT} does not allow"
                    ));
                }
                for unused in allowed.difference(dependencies) {
                    problems.push(format!(
                        "{DOCUMENT}: says that `{name}` depends on `{unused}`, but it does not; delete it from the row"
                    ));
                }
            }
        }
    }
}

fn dependencies(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    packages
        .iter()
        .map(|package| {
            let normal =
                list(&package["dependencies"]).into_iter().filter(|dependency| dependency["kind"].is_null());
            (text(&package["name"]), normal.map(|dependency| text(&dependency["name"])).collect())
        })
        .collect()
}

/// The first table whose header begins with `| crate`: crate, sentence, dependencies.
fn parse_table(document: &str) -> Result<BTreeMap<String, Allowed>> {
    let mut lines = document.lines().skip_while(|line| !line.starts_with("| crate"));
    lines.next().context("no table whose header begins with `| crate`")?;
    let mut table = BTreeMap::new();
    for row in lines.take_while(|line| line.starts_with('|')).filter(|line| !line.starts_with("|-")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [crates, _sentence, dependencies] = cells[..] else {
            bail!("a row of the crate table has {} columns instead of 3: {row}", cells.len());
        };
        for name in parse_names(crates) {
            table.insert(name, parse_allowed(dependencies));
        }
    }
    Ok(table)
}

fn parse_allowed(cell: &str) -> Allowed {
    match without_parentheses(cell).trim() {
        "all" | "anything" | "development only" => Allowed::Anything,
        "" | "nothing" | "-" | "—" => Allowed::Exactly(BTreeSet::new()),
        listed => Allowed::Exactly(parse_names(listed).into_iter().collect()),
    }
}

/// Comma-separated names, in backticks or plain, with notes in parentheses.
fn parse_names(cell: &str) -> Vec<String> {
    let plain = without_parentheses(cell).replace('`', "");
    plain.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

fn without_parentheses(cell: &str) -> String {
    let mut depth = 0_u32;
    cell.chars()
        .filter(|c| {
            let outside = depth == 0 && *c != '(';
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            outside
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::{compare, dependencies, parse_table};

    const DOCUMENT: &str = "\
# House

| crate (folder under `crates/`) | one sentence | may depend on |
|---|---|---|
| `json` | Reads. | bytes, `memchr` |
| `contract` | Compiles. | json, jsonschema (default features off, they fetch `$ref`) |
| `spile` (bin) | Wires. | all |
| `testkit`, `xtask` | Tests. | development only |
| `later` | Not built yet. | json |

More text.
";

    fn problems(packages: &[(&str, &[&str])]) -> Vec<String> {
        let packages: Vec<_> = packages
            .iter()
            .map(|(name, deps)| {
                let mut deps: Vec<_> = deps.iter().map(|dep| json!({ "name": dep, "kind": null })).collect();
                deps.push(json!({ "name": "proptest", "kind": "dev" }));
                json!({ "name": name, "dependencies": deps })
            })
            .collect();
        let mut problems = Vec::new();
        let actual: BTreeMap<_, _> = dependencies(&json!({ "packages": packages }));
        compare(&parse_table(DOCUMENT).unwrap(), &actual, &mut problems);
        problems
    }

    #[test]
    fn crates_as_the_table_says_pass() {
        let packages: &[(&str, &[&str])] = &[
            ("json", &["bytes", "memchr"]),
            ("contract", &["json", "jsonschema"]),
            ("spile", &["json", "whatever"]),
            ("xtask", &["anyhow"]),
        ];
        assert_eq!(problems(packages), [""; 0]);
    }

    #[test]
    fn a_dependency_beyond_the_table_is_found() {
        let found = problems(&[("json", &["bytes", "memchr", "tokio"])]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("`tokio`"), "{found:?}");
    }

    #[test]
    fn a_row_that_promises_too_much_is_found() {
        let found = problems(&[("json", &["bytes"])]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("`memchr`"), "{found:?}");
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(problems(&[("stranger", &[])]).len(), 1);
    }

    #[test]
    fn a_document_without_the_table_is_refused() {
        assert!(parse_table("# House\n").is_err());
        assert!(parse_table("| crate | x |\n|---|---|\n| a | b |\n").is_err());
    }
}

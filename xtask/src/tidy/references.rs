//! Names of code in the documents: every type in the glossary and every source file that a document
//! names must exist, so that a rename cannot leave them behind.

use std::collections::BTreeSet;

use super::{File, numbered_lines};

const GLOSSARY: &str = "docs/glossary.md";

/// Documents that name source files as `crate/path.rs`, relative to `crates/<crate>/src`.
fn names_source_files(path: &str) -> bool {
    matches!(path, "ARCHITECTURE.md" | "CONTRIBUTING.md" | "STYLE.md" | GLOSSARY)
        || path.starts_with("docs/adr/")
}

pub fn check(files: &[File], problems: &mut Vec<String>) {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let definitions = definitions(files);
    for file in files.iter().filter(|file| names_source_files(&file.path)) {
        for (number, line) in numbered_lines(&file.text) {
            for code in code_spans(line) {
                if let Some(missing) = missing_file(code, &paths) {
                    problems.push(format!(
                        "{}:{number}: no source file `{missing}`; name the file that has it now",
                        file.path
                    ));
                }
                if file.path == GLOSSARY
                    && let Some(missing) = missing_type(code, &definitions)
                {
                    problems.push(format!("{GLOSSARY}:{number}: nothing is called `{missing}` any more"));
                }
            }
        }
    }
}

/// The texts between backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// A path with a folder and `.rs` at its end that no tracked file ends in.
fn missing_file<'a>(code: &'a str, paths: &BTreeSet<&str>) -> Option<&'a str> {
    let is_path = code.ends_with(".rs")
        && code.contains('/')
        && code.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    if !is_path {
        return None;
    }
    // `wire/src/decode.rs`, `wire/decode.rs` and `crates/wire/src/decode.rs` all name one file.
    let parts: Vec<&str> = code.split('/').filter(|part| *part != "src").collect();
    let exists = paths.iter().any(|path| {
        let path: Vec<&str> = path.split('/').filter(|part| *part != "src").collect();
        path.ends_with(&parts)
    });
    (!exists).then_some(code)
}

/// The last part of `crate::module::Type` or of `crate::{A, B}`, if nothing is defined under that name.
fn missing_type<'a>(code: &'a str, definitions: &BTreeSet<&str>) -> Option<&'a str> {
    let path = code.trim_end_matches("()");
    let last = path.rsplit("::").next().unwrap_or(path);
    let names = last.trim_start_matches('{').trim_end_matches('}').split(',').map(str::trim);
    let is_type = |name: &&str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric())
            && name.chars().any(|c| c.is_ascii_lowercase())
    };
    // Protocol words such as `Host` are capitalised too; only what stands alone or behind `::` is a type.
    names.filter(is_type).find(|name| !definitions.contains(name) && !HEADERS.contains(name))
}

const HEADERS: &[&str] = &["Host", "Origin"];

fn definitions(files: &[File]) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for file in files.iter().filter(|file| file.path.starts_with("crates/") && file.path.ends_with(".rs")) {
        for line in file.text.lines() {
            for keyword in ["struct ", "enum ", "trait ", "type "] {
                if let Some(at) = line.find(keyword) {
                    let rest = &line[at + keyword.len()..];
                    let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
                    names.insert(&rest[..end]);
                }
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{File, check};

    fn problems(document: &str, text: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file("crates/wire/src/decode.rs", "pub enum Decoded {\n"),
            file("crates/source/tests/it/parity/fixtures.rs", ""),
            file(document, text),
        ];
        let mut problems = Vec::new();
        check(&files, &mut problems);
        problems
    }

    #[test]
    fn files_and_types_that_exist_pass() {
        assert!(problems("ARCHITECTURE.md", "`wire/decode.rs`, `crates/wire/src/decode.rs`\n").is_empty());
        assert!(problems("CONTRIBUTING.md", "`crates/source/tests/it/parity/fixtures.rs`\n").is_empty());
        assert!(problems("docs/glossary.md", "| `wire::Decoded` | `Host` | `spile.toml` |\n").is_empty());
    }

    #[test]
    fn a_file_that_is_gone_is_found_with_its_line() {
        assert_eq!(
            problems("docs/adr/0001-a.md", "\nsee `wire/open.rs`\n"),
            ["docs/adr/0001-a.md:2: no source file `wire/open.rs`; name the file that has it now"]
        );
        assert!(problems("README.md", "`wire/open.rs`\n").is_empty(), "other documents are free");
    }

    #[test]
    fn a_type_that_is_gone_is_found_in_the_glossary() {
        assert_eq!(
            problems("docs/glossary.md", "| `wire::{Decoded, Opened}` |\n"),
            ["docs/glossary.md:1: nothing is called `Opened` any more"]
        );
        assert!(problems("STYLE.md", "`Opened`\n").is_empty());
    }
}

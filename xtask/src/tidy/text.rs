//! Rules for every text file: trailing blanks, length, words and addresses that do not belong in the repository;
//! and that the index lists every decision record.

use super::{File, numbered_lines};

const LINES_MAX: usize = 800;

/// Files that may be longer, and why. A file is one idea; a table with one shape may be long.
const LONG_FILES: &[(&str, &str)] =
    &[("crates/testkit/exports/make.py", "one function for each file of the corpus, all of one shape")];

/// File types that people read and edit; data and lock files may be long.
const EDITED_EXTENSIONS: &[&str] = &[".rs", ".md", ".py", ".mjs", ".toml", ".yml"];

/// File types in which a trailing blank is content.
const TRAILING_BLANKS_ALLOWED: &[&str] = &[".snap", ".patch", ".csv", ".tsv"];

// Split in two, so that this file passes its own rules.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("registry.", "npmjs"),
    concat!("registry.", "yarnpkg"),
    concat!("files.", "pythonhosted"),
    concat!("pypi.", "org/simple"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("deb.", "debian.org"),
];
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/home/", "runner/"),
    concat!("/tmp/", "target"),
];
const ATTRIBUTION_PHRASES: &[&str] = &[
    concat!("session transcript", " of an agent"),
    concat!("claude", " wrote"),
    concat!("written by", " claude"),
    concat!("generated with", " claude"),
    concat!("llm", "-generated"),
    concat!("ai", "-generated"),
    concat!("as an ai", " language model"),
];

pub fn check(file: &File, problems: &mut Vec<String>) {
    let path = &file.path;
    let blanks_allowed = TRAILING_BLANKS_ALLOWED.iter().any(|kind| path.ends_with(kind));
    for (number, line) in numbered_lines(&file.text) {
        let mut say = |what: String| problems.push(format!("{path}:{number}: {what}"));
        if !blanks_allowed && line.ends_with([' ', '\t', '\r']) {
            say("blank at the end of the line; delete it".to_owned());
        }
        if let Some(host) = REGISTRY_HOSTS.iter().find(|host| line.contains(*host)) {
            say(format!("names the package registry `{host}`; the configured one is used, so none is named"));
        }
        if let Some(found) = MACHINE_PATHS.iter().find(|found| has_path(line, found)) {
            say(format!("`{found}` is a path of one machine; make it relative or a variable"));
        }
        let lower = line.to_lowercase();
        if let Some(words) = ATTRIBUTION_PHRASES.iter().find(|words| lower.contains(*words)) {
            say(format!("`{words}`: say what the code does, not who wrote it"));
        }
        if path == "Cargo.lock"
            && line.starts_with("source = ")
            && !line.contains("github.com/rust-lang/crates.io-index")
        {
            say("a dependency from elsewhere than crates.io".to_owned());
        }
    }
    let lines = file.text.lines().count();
    if is_long(file) && !LONG_FILES.iter().any(|(listed, _why)| listed == path) {
        problems.push(format!("{path}: {lines} lines, {LINES_MAX} at most; split it, or list it with a reason in xtask/src/tidy/text.rs"));
    }
}

/// Entries of [`LONG_FILES`] that are no longer needed.
pub fn check_long_files_table(files: &[File], problems: &mut Vec<String>) {
    for (listed, _why) in LONG_FILES {
        if !files.iter().any(|file| file.path == *listed && is_long(file)) {
            problems.push(format!(
                "{listed}: listed as long in xtask/src/tidy/text.rs, but it is not; delete the entry"
            ));
        }
    }
}

/// Checks that the README in `docs/adr` names every file there.
pub fn check_decisions_are_listed(files: &[File], problems: &mut Vec<String>) {
    const INDEX: &str = "docs/adr/README.md";
    let index = files.iter().find(|file| file.path == INDEX).map_or("", |file| file.text.as_str());
    for file in files {
        if let Some(name) = file.path.strip_prefix("docs/adr/")
            && name != "README.md"
            && !index.contains(name)
        {
            problems.push(format!("{}: not listed in {INDEX}", file.path));
        }
    }
}

fn is_long(file: &File) -> bool {
    EDITED_EXTENSIONS.iter().any(|kind| file.path.ends_with(kind)) && file.text.lines().count() > LINES_MAX
}

/// Whether `line` contains `path` as the start of an absolute path, not within a longer path or a URL.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~}/".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::{File, LINES_MAX, check, check_decisions_are_listed, has_path};

    fn problems(path: &str, text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        check(&File { path: path.to_owned(), text: text.to_owned() }, &mut problems);
        problems
    }

    #[test]
    fn clean_text_passes() {
        assert!(problems("README.md", "# Title\n\nA line.\n").is_empty());
    }

    #[test]
    fn a_blank_at_a_line_end_is_found_with_its_line() {
        assert_eq!(problems("a.md", "one\ntwo \n"), ["a.md:2: blank at the end of the line; delete it"]);
        assert!(problems("a.snap", "two \n").is_empty());
    }

    #[test]
    fn a_long_file_is_found_and_data_is_not() {
        let long = "line\n".repeat(LINES_MAX + 1);
        assert_eq!(problems("a.rs", &long).len(), 1);
        assert!(problems("a.json", &long).is_empty());
        assert!(problems("a.rs", &"line\n".repeat(LINES_MAX)).is_empty());
    }

    #[test]
    fn registries_and_authors_are_found() {
        assert_eq!(problems("a.md", concat!("https://registry.", "npmjs.example\n")).len(), 1);
        assert_eq!(problems("a.rs", concat!("// Claude", " wrote this\n")).len(), 1);
        assert_eq!(problems("Cargo.lock", "source = \"registry+https://example.com/index\"\n").len(), 1);
    }

    #[test]
    fn only_absolute_paths_are_machine_paths() {
        let path = concat!("/ro", "ot/");
        assert!(has_path(concat!("cd /ro", "ot/x"), path));
        assert!(has_path(concat!("PATH=/ro", "ot/x"), path));
        assert!(!has_path(concat!("https://example.com/ro", "ot/x"), path));
        assert!(!has_path(concat!("sub/ro", "ot/x"), path));
    }

    #[test]
    fn a_decision_that_is_not_listed_is_found() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file("docs/adr/README.md", "- [1](0001-a.md)\n"),
            file("docs/adr/0001-a.md", ""),
            file("docs/adr/0002-b.md", ""),
        ];
        let mut problems = Vec::new();
        check_decisions_are_listed(&files, &mut problems);
        assert_eq!(problems, ["docs/adr/0002-b.md: not listed in docs/adr/README.md"]);
    }
}

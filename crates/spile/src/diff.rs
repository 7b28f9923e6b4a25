//! `spile diff`: compares the contract with a locked one.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, ValueEnum};
use contract::compatibility::{
    Compatibility, ContractInterface, Difference, compare_interfaces, overall_compatibility,
};
use contract::diagnostic::Diagnostic;
use contract::lock::{Lock, TEXT_BYTES_MAX};
use json::Json;

use crate::author_folder::Author;
use crate::lock::{check_intact, difference_lines, lock_path, parse_lock, read_lock};
use crate::project::{Project, Scan};
use crate::report::{print, print_diagnostics};
use crate::sanitize;

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A manifest, or a folder with one
    #[arg(default_value = ".")]
    path: PathBuf,

    /// Compare with this lock file, or with spile.lock at this git revision, e.g. main or v1.2; default: spile.lock next to the manifest
    #[arg(long, value_name = "FILE|REV")]
    against: Option<String>,

    /// Exit with 1 if there is a breaking change, or any change
    #[arg(long, value_name = "VERDICT")]
    fail_on: Option<FailOn>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Breaking,
    Any,
}

/// Exit codes: 0 whatever changed, 1 if `--fail-on` matches it, 2 if the contracts could not be compared.
pub fn diff(args: &DiffArgs) -> ExitCode {
    let comparison =
        compare(args).unwrap_or_else(|error| Err(vec![Diagnostic::error(crate::error_text(&error))]));
    let LockComparison { name, against, baseline, differences } = match comparison {
        Ok(comparison) => comparison,
        Err(errors) => {
            print_diagnostics(&errors);
            return ExitCode::from(2);
        }
    };
    let compatibility = overall_compatibility(&differences);
    let output = if args.json {
        as_json(&against, &baseline, &differences) + "\n"
    } else {
        let (version, next) = (baseline.version, baseline.version.bump(compatibility));
        match compatibility {
            Compatibility::Same => format!("{name}: same as version {version} ({against})\n"),
            Compatibility::TextOnly => format!(
                "{name}: only texts changed since version {version} ({against}); next version {next}\n\n{}",
                difference_lines(&differences)
            ),
            Compatibility::Compatible | Compatibility::Breaking => format!(
                "{name}: {} since version {version} ({against}); next version {next}\n\n{}",
                compatibility.as_str(),
                difference_lines(&differences)
            ),
        }
    };
    // The exit code is right even if the output cannot be written.
    let _ = print(&output);
    let fails = match args.fail_on {
        None => false,
        Some(FailOn::Breaking) => compatibility == Compatibility::Breaking,
        Some(FailOn::Any) => compatibility != Compatibility::Same,
    };
    if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

struct LockComparison {
    name: String,
    /// The name of the lock file that it is compared with.
    against: String,
    baseline: Lock,
    differences: Vec<Difference>,
}

fn compare(args: &DiffArgs) -> anyhow::Result<Result<LockComparison, Vec<Diagnostic>>> {
    let project = Project::find(&args.path)?;
    let Some(own) = lock_path(&project) else {
        let path = crate::project::shown_path(&args.path);
        anyhow::bail!("`spile diff` needs a manifest; `spile init {path}` writes one");
    };
    let lock = match &args.against {
        None => read_own_lock(&own),
        Some(against) => read_named_lock(against, &own),
    };
    let lock = lock.and_then(|(name, lock)| Ok((name.clone(), check_intact(&name, lock)?)));
    let (against, baseline) = match lock {
        Ok(lock) => lock,
        Err(error) => return Ok(Err(vec![error])),
    };
    let Scan { compiled, author, diagnostics, .. } = project.scan()?;
    let Some(compiled) = compiled else { return Ok(Err(diagnostics)) };
    let author_tools = author.iter().flat_map(Author::tools);
    let interface = ContractInterface::from_contract(&compiled.contract).with_tools(author_tools);
    let differences = compare_interfaces(&baseline.interface, &interface);
    Ok(Ok(LockComparison { name: compiled.contract.name, against, baseline, differences }))
}

fn read_own_lock(own: &Path) -> Result<(String, Lock), Diagnostic> {
    let missing = || {
        let message = format!("`{}` not found", own.display());
        Diagnostic::error(message)
            .help("run `spile compile` to write it, or name another lock file with --against")
    };
    Ok((file_name(own), read_lock(own)?.ok_or_else(missing)?))
}

/// An existing file takes precedence over a revision of the same name.
fn read_named_lock(against: &str, own: &Path) -> Result<(String, Lock), Diagnostic> {
    let file = Path::new(against);
    if file.is_file() {
        let missing = || Diagnostic::error(format!("`{against}` not found"));
        return Ok((against.to_owned(), read_lock(file)?.ok_or_else(missing)?));
    }
    let Some(revision) = Revision::parse(against) else {
        let message = format!("`{against}` is neither a file nor a valid name of a git revision");
        return Err(
            Diagnostic::error(message).help("name a lock file, or a branch, tag or commit such as main")
        );
    };
    let name = format!("{against}:{}", file_name(own));
    let bytes = revision.show(own)?;
    Ok((name.clone(), parse_lock(&name, bytes)?))
}

fn file_name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Text that git can only read as a revision: not an option, a path or a search.
struct Revision<'a>(&'a str);

impl<'a> Revision<'a> {
    const CHARS_MAX: usize = 200;

    fn parse(text: &'a str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/@{}^~+-".contains(c);
        let fits = !text.is_empty() && text.len() <= Self::CHARS_MAX && text.chars().all(is_plain);
        (fits && !text.starts_with(['-', '^'])).then_some(Self(text))
    }

    /// The content of the file at this revision.
    fn show(&self, own: &Path) -> Result<Vec<u8>, Diagnostic> {
        let folder = own.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = file_name(own);
        let mut git = Command::new("git");
        git.arg("-C").arg(folder).args(["cat-file", "blob"]).arg(format!("{}:./{file}", self.0));
        // git must neither ask for a password nor fetch anything.
        git.env("GIT_TERMINAL_PROMPT", "0").env("GIT_NO_LAZY_FETCH", "1").env("LC_ALL", "C");
        let started = git.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                let message = format!(
                    "`{}` is not a file, and git, which could find a revision, is not installed",
                    self.0
                );
                Diagnostic::error(message).help("install git, or name a lock file with --against FILE")
            }
            _ => Diagnostic::error(format!("cannot start git: {error}")),
        })?;
        let mut bytes = Vec::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        let read = stdout.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
        let ended = child.wait_with_output();
        let failed = |error| Diagnostic::error(format!("cannot read the output of git: {error}"));
        read.map_err(failed)?;
        let ended = ended.map_err(failed)?;
        if ended.status.success() || bytes.len() > TEXT_BYTES_MAX {
            return Ok(bytes);
        }
        // LC_ALL=C fixes the language of this message.
        if String::from_utf8_lossy(&ended.stderr).contains("not a git repository") {
            let message = format!("`{}` is not a file, and this folder is not in a git repository", self.0);
            return Err(Diagnostic::error(message).help("name a lock file with --against FILE"));
        }
        let message = format!("git has no `{file}` at revision `{}`", self.0);
        Err(Diagnostic::error(message)
            .help("name a revision that has the file; `git log -- spile.lock` lists them"))
    }
}

fn as_json(against: &str, baseline: &Lock, differences: &[Difference]) -> String {
    let compatibility = overall_compatibility(differences);
    let json = Json::object(|out| {
        out.str("compatibility", compatibility.as_str()).str("against", against);
        out.str("version", &baseline.version.to_string());
        out.str("next", &baseline.version.bump(compatibility).to_string());
        out.array("changes", differences, |out, one| {
            let change = Json::object(|out| {
                out.str("compatibility", one.compatibility.as_str()).str("tool", &one.tool);
                out.str("path", &one.path).str("reason", &one.reason);
            });
            out.extend_from_slice(change.as_str().as_bytes());
        });
    });
    sanitize::json(json.as_str()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::Revision;

    #[test]
    fn a_revision_is_not_an_option_a_path_or_a_search() {
        for good in ["main", "v1.2.0", "HEAD", "HEAD~3", "HEAD^", "main@{1}", "feature/x-y", "0a1b2c3d", "@"]
        {
            assert!(Revision::parse(good).is_some(), "{good}");
        }
        let long = "a".repeat(201);
        for bad in [
            "",
            "-",
            "--output=/etc/passwd",
            "-h",
            "^main",
            "main:other",
            ":/fix",
            "a b",
            "a\nb",
            "a\0b",
            "a;b",
            "$(x)",
            "a*",
            "é",
            "a\\b",
            "HEAD^{/fix this}",
            &long,
        ] {
            assert!(Revision::parse(bad).is_none(), "{bad}");
        }
    }
}

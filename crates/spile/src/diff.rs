//! `spile diff`: what a change means to those who know an older contract.

use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, ValueEnum};
use contract::compatibility::{
    Compatibility, ContractInterface, Difference, compare_interfaces, overall_compatibility,
};
use contract::diagnostic::Diagnostic;
use contract::lock::{Lock, TEXT_BYTES_MAX};
use json::Json;

use crate::lock::{check_intact, difference_lines, lock_path, parse_lock, read_lock};
use crate::project::{Project, Scan};
use crate::report::print_diagnostics;

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A manifest, or the folder of one
    #[arg(default_value = ".")]
    path: PathBuf,

    /// Compare with this lock file, or with the one of this revision of git, e.g. main or v1.2; else with the one
    /// beside the manifest
    #[arg(long, value_name = "FILE|REV")]
    against: Option<String>,

    /// Exit with 1 if the change is breaking, or if there is any
    #[arg(long, value_name = "VERDICT")]
    fail_on: Option<FailOn>,

    /// Say it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Breaking,
    Any,
}

/// Exit codes: 0 whatever the verdict, 1 if `--fail-on` says so, 2 if there is none.
pub fn diff(args: &DiffArgs) -> ExitCode {
    let judged = compare(args).unwrap_or_else(|error| Err(vec![Diagnostic::error(format!("{error:#}"))]));
    let LockComparison { name, against, baseline: old, differences } = match judged {
        Ok(judged) => judged,
        Err(why) => {
            print_diagnostics(&why);
            return ExitCode::from(2);
        }
    };
    let verdict = overall_compatibility(&differences);
    let said = if args.json {
        as_json(&against, &old, &differences) + "\n"
    } else {
        let (version, next) = (old.version, old.version.bump(verdict));
        match verdict {
            Compatibility::Same => format!("{name}: the same as {version} ({against})\n"),
            Compatibility::TextOnly | Compatibility::Compatible | Compatibility::Breaking => format!(
                "{name}: {} since {version} ({against}); the next version is {next}\n\n{}",
                verdict.as_str(),
                difference_lines(&differences)
            ),
        }
    };
    // Whoever reads may have seen enough; the verdict stands all the same.
    let _ = std::io::stdout().write_all(said.as_bytes());
    let fails = match args.fail_on {
        None => false,
        Some(FailOn::Breaking) => verdict == Compatibility::Breaking,
        Some(FailOn::Any) => verdict != Compatibility::Same,
    };
    if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

struct LockComparison {
    name: String,
    /// What it is compared with, as people know it.
    against: String,
    baseline: Lock,
    differences: Vec<Difference>,
}

fn compare(args: &DiffArgs) -> anyhow::Result<Result<LockComparison, Vec<Diagnostic>>> {
    let project = Project::find(&args.path)?;
    let Some(own) = lock_path(&project) else {
        anyhow::bail!("only a manifest has a contract that is locked; `spile init` writes one");
    };
    let old = match &args.against {
        None => read_own_lock(&own),
        Some(against) => read_named_lock(against, &own),
    };
    let old = old.and_then(|(name, lock)| Ok((name.clone(), check_intact(&name, lock)?)));
    let (against, old) = match old {
        Ok(old) => old,
        Err(why) => return Ok(Err(vec![why])),
    };
    let Scan { compiled: ready, diagnostics: found, .. } = project.scan()?;
    let Some(ready) = ready else { return Ok(Err(found)) };
    let differences = compare_interfaces(&old.interface, &ContractInterface::from_contract(&ready.contract));
    Ok(Ok(LockComparison { name: ready.contract.name, against, baseline: old, differences }))
}

fn read_own_lock(own: &Path) -> Result<(String, Lock), Diagnostic> {
    let missing = || {
        let message = format!("there is no `{}` to compare with", own.display());
        Diagnostic::error(message).help("`spile compile` writes it; or name another with --against")
    };
    Ok((file_name(own), read_lock(own)?.ok_or_else(missing)?))
}

/// A file that is there is meant; else a revision.
fn read_named_lock(against: &str, own: &Path) -> Result<(String, Lock), Diagnostic> {
    let file = Path::new(against);
    if file.is_file() {
        let missing = || Diagnostic::error(format!("there is no `{against}` any more"));
        return Ok((against.to_owned(), read_lock(file)?.ok_or_else(missing)?));
    }
    let Some(revision) = Revision::parse(against) else {
        let message = format!("`{against}` is neither a file nor a name that a revision can have");
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

/// What git takes for a revision and for nothing else: no option, no path, no search.
struct Revision<'a>(&'a str);

impl<'a> Revision<'a> {
    const CHARS_MAX: usize = 200;

    fn parse(text: &'a str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/@{}^~+-".contains(c);
        let fits = !text.is_empty() && text.len() <= Self::CHARS_MAX && text.chars().all(is_plain);
        (fits && !text.starts_with(['-', '^'])).then_some(Self(text))
    }

    /// The file as it was then.
    fn show(&self, own: &Path) -> Result<Vec<u8>, Diagnostic> {
        let folder = own.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = file_name(own);
        let mut git = Command::new("git");
        git.arg("-C").arg(folder).args(["cat-file", "blob"]).arg(format!("{}:./{file}", self.0));
        // Nobody is there to be asked, and nothing is to be fetched.
        git.env("GIT_TERMINAL_PROMPT", "0").env("GIT_NO_LAZY_FETCH", "1").env("LC_ALL", "C");
        let started = git.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                let message = format!("`{}` is no file, and there is no git to ask for a revision", self.0);
                Diagnostic::error(message).help("install git, or name a lock file with --against FILE")
            }
            _ => Diagnostic::error(format!("git cannot be started: {error}")),
        })?;
        let mut bytes = Vec::new();
        let stdout = child.stdout.take().expect("it was asked for");
        let read = stdout.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
        let ended = child.wait_with_output();
        let failed = |error| Diagnostic::error(format!("git cannot be understood: {error}"));
        read.map_err(failed)?;
        let ended = ended.map_err(failed)?;
        if ended.status.success() || bytes.len() > TEXT_BYTES_MAX {
            return Ok(bytes);
        }
        // In whatever words: LC_ALL says which.
        if String::from_utf8_lossy(&ended.stderr).contains("not a git repository") {
            let message = format!("`{}` is no file, and this is no git repository", self.0);
            return Err(Diagnostic::error(message).help("name a lock file with --against FILE"));
        }
        let message = format!("git has no `{file}` of `{}`", self.0);
        Err(Diagnostic::error(message)
            .help("name a revision that has one; `git log -- spile.lock` lists them"))
    }
}

fn as_json(against: &str, old: &Lock, differences: &[Difference]) -> String {
    let verdict = overall_compatibility(differences);
    let whole = Json::object(|out| {
        out.str("verdict", verdict.as_str()).str("against", against);
        out.str("version", &old.version.to_string());
        out.str("next", &old.version.bump(verdict).to_string());
        out.array("changes", differences, |out, one| {
            let change = Json::object(|out| {
                out.str("verdict", one.compatibility.as_str()).str("tool", &one.tool);
                out.str("at", &one.path).str("why", &one.reason);
            });
            out.extend_from_slice(change.as_str().as_bytes());
        });
    });
    whole.as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::Revision;

    #[test]
    fn a_revision_is_a_name_and_nothing_else() {
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

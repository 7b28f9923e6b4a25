//! `spile.lock`, beside its manifest: read with every look at a project, written by `spile compile`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use contract::Contract;
use contract::diagnostic::{Diagnostic, Severity};
use contract::judge::{Difference, Promises, Verdict, judge, worst};
use contract::lock::{Lock, Number};
use contract::words::counted;

use crate::project::{Looked, Plan, Project};
use crate::replace::{self, Mode};
use crate::report::tell;

/// How what would be served stands to what is locked.
#[derive(Debug, Default)]
pub enum Locked {
    /// Nothing is locked.
    #[default]
    No,
    /// What it differs in, if anything.
    Yes { lock: Lock, differences: Vec<Difference> },
    /// There is a file, and it cannot be used.
    Unreadable(Diagnostic),
}

/// Where a project's lock file is. Without a manifest there is nothing to lock: a data file says for itself what it
/// is.
pub(crate) fn file_of(project: &Project) -> Option<PathBuf> {
    match &project.plan {
        Plan::Manifest(file) => Some(file.with_extension("lock")),
        Plan::Files(_) => None,
    }
}

pub(crate) fn read(file: &Path) -> Result<Option<Lock>, Diagnostic> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Diagnostic::error(format!("`{}` cannot be read: {error}", file.display())));
        }
    };
    parse(&file.display().to_string(), bytes).map(Some)
}

/// Reads what was written, wherever it lay.
pub(crate) fn parse(name: &str, bytes: Vec<u8>) -> Result<Lock, Diagnostic> {
    let not_text = |_| Diagnostic::error(format!("`{name}` is not text in UTF-8"));
    Lock::read(name, &String::from_utf8(bytes).map_err(not_text)?)
}

/// As it was written.
pub(crate) fn intact(name: &str, lock: Lock) -> Result<Lock, Diagnostic> {
    match lock.altered.first() {
        None => Ok(lock),
        Some(tool) => {
            let message = format!("`{name}` was changed by hand or by a merge: `{tool}` is not what it was");
            Err(Diagnostic::error(message).help("`spile compile` makes it right"))
        }
    }
}

impl Locked {
    /// Gives the contract its number: the locked one, and behind it what it is really made of where that differs.
    pub(crate) fn number(project: &Project, contract: &mut Contract) -> Self {
        let Some(file) = file_of(project) else { return Self::No };
        let lock = match read(&file) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Self::No,
            Err(why) => return Self::Unreadable(why),
        };
        let lock = match intact(&file.display().to_string(), lock) {
            Ok(lock) => lock,
            Err(why) => return Self::Unreadable(why),
        };
        let differences = judge(&lock.promises, &Promises::of(contract));
        let hash = contract.version.rsplit('+').next().unwrap_or_default();
        contract.version = match worst(&differences) {
            Verdict::Same => lock.version.to_string(),
            Verdict::Words | Verdict::Compatible | Verdict::Breaking => format!("{}+{hash}", lock.version),
        };
        Self::Yes { lock, differences }
    }

    /// What `spile check` says of it: `must` makes an error of what is not locked.
    pub fn told(&self, must: bool) -> Option<Diagnostic> {
        let found = match self {
            Self::No if must => {
                let help = "`spile compile` writes the lock file of a manifest";
                Diagnostic::error("nothing is locked: there is no lock file").help(help)
            }
            Self::No => return None,
            Self::Unreadable(why) if must => why.clone(),
            Self::Unreadable(why) => Diagnostic { severity: Severity::Warning, ..why.clone() },
            Self::Yes { differences, .. } if differences.is_empty() => return None,
            Self::Yes { lock, differences } => {
                let verdict = worst(differences);
                let changes = counted(differences.len() as u64, "change");
                let first = differences.iter().find(|one| one.verdict == verdict);
                let first = first.map(ToString::to_string).unwrap_or_default();
                let message = match verdict {
                    Verdict::Breaking => format!(
                        "{changes} since {} not locked, breaking: {first}; a server that runs keeps what it serves",
                        lock.version
                    ),
                    Verdict::Same | Verdict::Words | Verdict::Compatible => {
                        format!("{changes} since {} not locked, compatible: {first}", lock.version)
                    }
                };
                let found = match verdict {
                    _ if must => Diagnostic::error(message),
                    Verdict::Breaking => Diagnostic::warning(message),
                    Verdict::Same | Verdict::Words | Verdict::Compatible => Diagnostic::note(message),
                };
                found.help("`spile diff` says all of it, `spile compile` locks it")
            }
        };
        Some(found.code("lock"))
    }
}

/// `spile compile`: writes down what is promised now, and gives it a number.
pub fn compile(path: &Path) -> anyhow::Result<ExitCode> {
    let project = Project::find(path)?;
    let Some(file) = file_of(&project) else {
        bail!("a lock file belongs to a manifest, and there is none; `spile init` writes one");
    };
    let Looked { ready, found, .. } = project.look()?;
    tell(&found);
    let Some(ready) = ready else { return Ok(ExitCode::FAILURE) };
    let old = match read(&file) {
        Ok(old) => old,
        Err(why) => {
            tell(&[why]);
            return Ok(ExitCode::FAILURE);
        }
    };
    let promises = Promises::of(&ready.contract);
    let name = &ready.contract.name;
    let (lock, said) = match old {
        None => {
            let tools = counted(promises.tools.len() as u64, "tool");
            (Lock::new(Number::FIRST, promises), format!("{name} {} · {tools}\n", Number::FIRST))
        }
        Some(old) => {
            let differences = judge(&old.promises, &promises);
            let verdict = worst(&differences);
            let version = old.version.after(verdict);
            let said = match verdict {
                Verdict::Same => format!("{name} {version} · nothing changed\n"),
                Verdict::Words | Verdict::Compatible | Verdict::Breaking => {
                    format!(
                        "{name} {version}, was {} · {}\n\n{}",
                        old.version,
                        verdict.as_str(),
                        lines(&differences)
                    )
                }
            };
            (Lock::new(version, promises), said)
        }
    };
    replace::file(&file, lock.write().as_bytes(), Mode::AsItWasOrUsual)?;
    std::io::stdout().write_all(said.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Each difference in a line of its own, the worst first.
pub(crate) fn lines(differences: &[Difference]) -> String {
    let mut all: Vec<&Difference> = differences.iter().collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.verdict));
    all.iter().map(|one| format!("  {:10}  {one}\n", one.verdict.as_str())).collect()
}

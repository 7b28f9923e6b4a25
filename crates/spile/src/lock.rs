//! `spile.lock`, beside its manifest: read with every look at a project, written by `spile compile`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use contract::Contract;
use contract::compatibility::{
    Compatibility, ContractInterface, Difference, compare_interfaces, overall_compatibility,
};
use contract::diagnostic::{Diagnostic, Severity};
use contract::humanize::pluralize;
use contract::lock::{ContractVersion, Lock};

use crate::atomic_file::{self, FileMode};
use crate::project::{Project, ProjectInput, Scan};
use crate::report::print_diagnostics;

/// How what would be served stands to what is locked.
#[derive(Debug, Default)]
pub enum LockState {
    /// Nothing is locked.
    #[default]
    Unlocked,
    /// What it differs in, if anything.
    Locked { lock: Lock, differences: Vec<Difference> },
    /// There is a file, and it cannot be used.
    Unreadable(Diagnostic),
}

/// Where a project's lock file is. Without a manifest there is nothing to lock: a data file says for itself what it
/// is.
pub(crate) fn lock_path(project: &Project) -> Option<PathBuf> {
    match &project.input {
        ProjectInput::Manifest(file) => Some(file.with_extension("lock")),
        ProjectInput::Files(_) => None,
    }
}

pub(crate) fn read_lock(file: &Path) -> Result<Option<Lock>, Diagnostic> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Diagnostic::error(format!("`{}` cannot be read: {error}", file.display())));
        }
    };
    parse_lock(&file.display().to_string(), bytes).map(Some)
}

/// Reads what was written, wherever it lay.
pub(crate) fn parse_lock(name: &str, bytes: Vec<u8>) -> Result<Lock, Diagnostic> {
    let not_text = |_| Diagnostic::error(format!("`{name}` is not text in UTF-8"));
    Lock::parse(name, &String::from_utf8(bytes).map_err(not_text)?)
}

/// As it was written.
pub(crate) fn check_intact(name: &str, lock: Lock) -> Result<Lock, Diagnostic> {
    match lock.hash_mismatches.first() {
        None => Ok(lock),
        Some(tool) => {
            let message = format!("`{name}` was changed by hand or by a merge: `{tool}` is not what it was");
            Err(Diagnostic::error(message).help("`spile compile` makes it right"))
        }
    }
}

impl LockState {
    /// Gives the contract its number: the locked one, and behind it what it is really made of where that differs.
    pub(crate) fn apply_version(project: &Project, contract: &mut Contract) -> Self {
        let Some(file) = lock_path(project) else { return Self::Unlocked };
        let lock = match read_lock(&file) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Self::Unlocked,
            Err(why) => return Self::Unreadable(why),
        };
        let lock = match check_intact(&file.display().to_string(), lock) {
            Ok(lock) => lock,
            Err(why) => return Self::Unreadable(why),
        };
        let differences = compare_interfaces(&lock.interface, &ContractInterface::from_contract(contract));
        let hash = contract.version.rsplit('+').next().unwrap_or_default();
        contract.version = match overall_compatibility(&differences) {
            Compatibility::Same => lock.version.to_string(),
            Compatibility::TextOnly | Compatibility::Compatible | Compatibility::Breaking => {
                format!("{}+{hash}", lock.version)
            }
        };
        Self::Locked { lock, differences }
    }

    /// What `spile check` says of it: `must` makes an error of what is not locked.
    pub fn diagnostic(&self, must: bool) -> Option<Diagnostic> {
        let found = match self {
            Self::Unlocked if must => {
                let help = "`spile compile` writes the lock file of a manifest";
                Diagnostic::error("nothing is locked: there is no lock file").help(help)
            }
            Self::Unlocked => return None,
            Self::Unreadable(why) if must => why.clone(),
            Self::Unreadable(why) => Diagnostic { severity: Severity::Warning, ..why.clone() },
            Self::Locked { differences, .. } if differences.is_empty() => return None,
            Self::Locked { lock, differences } => {
                let verdict = overall_compatibility(differences);
                let changes = pluralize(differences.len() as u64, "change");
                let first = differences.iter().find(|one| one.compatibility == verdict);
                let first = first.map(ToString::to_string).unwrap_or_default();
                let message = match verdict {
                    Compatibility::Breaking => format!(
                        "{changes} since {} not locked, breaking: {first}; a server that runs keeps what it serves",
                        lock.version
                    ),
                    Compatibility::Same | Compatibility::TextOnly | Compatibility::Compatible => {
                        format!("{changes} since {} not locked, compatible: {first}", lock.version)
                    }
                };
                let found = match verdict {
                    _ if must => Diagnostic::error(message),
                    Compatibility::Breaking => Diagnostic::warning(message),
                    Compatibility::Same | Compatibility::TextOnly | Compatibility::Compatible => {
                        Diagnostic::note(message)
                    }
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
    let Some(file) = lock_path(&project) else {
        bail!("a lock file belongs to a manifest, and there is none; `spile init` writes one");
    };
    let Scan { compiled: ready, diagnostics: found, .. } = project.scan()?;
    print_diagnostics(&found);
    let Some(ready) = ready else { return Ok(ExitCode::FAILURE) };
    let old = match read_lock(&file) {
        Ok(old) => old,
        Err(why) => {
            print_diagnostics(&[why]);
            return Ok(ExitCode::FAILURE);
        }
    };
    let promises = ContractInterface::from_contract(&ready.contract);
    let name = &ready.contract.name;
    let (lock, said) = match old {
        None => {
            let tools = pluralize(promises.tools.len() as u64, "tool");
            (
                Lock::new(ContractVersion::FIRST, promises),
                format!("{name} {} · {tools}\n", ContractVersion::FIRST),
            )
        }
        Some(old) => {
            let differences = compare_interfaces(&old.interface, &promises);
            let verdict = overall_compatibility(&differences);
            let version = old.version.bump(verdict);
            let said = match verdict {
                Compatibility::Same => format!("{name} {version} · nothing changed\n"),
                Compatibility::TextOnly | Compatibility::Compatible | Compatibility::Breaking => {
                    format!(
                        "{name} {version}, was {} · {}\n\n{}",
                        old.version,
                        verdict.as_str(),
                        difference_lines(&differences)
                    )
                }
            };
            (Lock::new(version, promises), said)
        }
    };
    atomic_file::write(&file, lock.to_toml().as_bytes(), FileMode::PreserveOrUmask)?;
    std::io::stdout().write_all(said.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Each difference in a line of its own, the worst first.
pub(crate) fn difference_lines(differences: &[Difference]) -> String {
    let mut all: Vec<&Difference> = differences.iter().collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.compatibility));
    all.iter().map(|one| format!("  {:10}  {one}\n", one.compatibility.as_str())).collect()
}

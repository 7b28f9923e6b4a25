//! `spile.lock`, next to its manifest: read with every scan of a project, written by `spile compile`.

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
use spile_core::Tool;

use crate::atomic_file::{self, FileMode};
use crate::author_folder::Author;
use crate::project::{Project, ProjectInput, Scan};
use crate::report::{print, print_diagnostics};

/// How the contract compares with the lock file.
#[derive(Debug, Default)]
pub enum LockState {
    /// There is no lock file.
    #[default]
    Unlocked,
    /// The lock file, and how the contract differs from it.
    Locked { lock: Lock, differences: Vec<Difference> },
    /// The lock file cannot be used.
    Unreadable(Diagnostic),
}

/// The path of the lock file. A project without a manifest has none.
pub(crate) fn lock_path(project: &Project) -> Option<PathBuf> {
    match &project.input {
        ProjectInput::Manifest(file) => Some(file.with_extension("lock")),
        ProjectInput::Files(_) | ProjectInput::Database(_) => None,
    }
}

pub(crate) fn read_lock(file: &Path) -> Result<Option<Lock>, Diagnostic> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Diagnostic::error(format!("cannot read `{}`: {error}", file.display())));
        }
    };
    parse_lock(&file.display().to_string(), bytes).map(Some)
}

/// Parses a lock file, from the file system or from git.
pub(crate) fn parse_lock(name: &str, bytes: Vec<u8>) -> Result<Lock, Diagnostic> {
    let not_text = |_| Diagnostic::error(format!("`{name}` is not UTF-8 text"));
    Lock::parse(name, &String::from_utf8(bytes).map_err(not_text)?)
}

/// Refuses a lock file that was edited after `spile compile` wrote it.
pub(crate) fn check_intact(name: &str, lock: Lock) -> Result<Lock, Diagnostic> {
    match lock.hash_mismatches.first() {
        None => Ok(lock),
        Some(tool) => {
            let message =
                format!("`{name}` was edited by hand or by a merge: the hash of `{tool}` does not match");
            Err(Diagnostic::error(message).help("run `spile compile` to write it again"))
        }
    }
}

impl LockState {
    /// Compares what is offered with the lock file, and sets the version of the contract: the locked version, with the
    /// hash of the contract appended where something differs. `author_tools` are the tools of the project's code.
    pub(crate) fn apply_version<'t>(
        project: &Project,
        contract: &mut Contract,
        author_tools: impl IntoIterator<Item = &'t Tool> + Clone,
    ) -> Self {
        contract.version = contract::compile::unlocked_version(contract, author_tools.clone());
        let Some(file) = lock_path(project) else { return Self::Unlocked };
        let lock = match read_lock(&file) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Self::Unlocked,
            Err(error) => return Self::Unreadable(error),
        };
        let lock = match check_intact(&file.display().to_string(), lock) {
            Ok(lock) => lock,
            Err(error) => return Self::Unreadable(error),
        };
        let interface = ContractInterface::from_contract(contract).with_tools(author_tools);
        let differences = compare_interfaces(&lock.interface, &interface);
        let hash = contract.version.rsplit('+').next().unwrap_or_default();
        contract.version = match overall_compatibility(&differences) {
            Compatibility::Same => lock.version.to_string(),
            Compatibility::TextOnly | Compatibility::Compatible | Compatibility::Breaking => {
                format!("{}+{hash}", lock.version)
            }
        };
        Self::Locked { lock, differences }
    }

    pub(crate) fn lock(&self) -> Option<&Lock> {
        match self {
            Self::Locked { lock, .. } => Some(lock),
            Self::Unlocked | Self::Unreadable(_) => None,
        }
    }

    /// What commands report about the lock file. With `must_match`, a difference is an error.
    pub fn diagnostic(&self, must_match: bool) -> Option<Diagnostic> {
        let found = match self {
            Self::Unlocked if must_match => {
                Diagnostic::error("there is no lock file").help("run `spile compile` to write one")
            }
            Self::Unlocked => return None,
            Self::Unreadable(error) if must_match => error.clone(),
            Self::Unreadable(error) => Diagnostic { severity: Severity::Warning, ..error.clone() },
            Self::Locked { differences, .. } if differences.is_empty() => return None,
            Self::Locked { lock, differences } => {
                let compatibility = overall_compatibility(differences);
                let changes = pluralize(differences.len() as u64, "change");
                let first = differences.iter().find(|one| one.compatibility == compatibility);
                let first = first.map(ToString::to_string).unwrap_or_default();
                let message = match compatibility {
                    Compatibility::Breaking => format!(
                        "{changes} since version {}, breaking: {first}; a running server keeps its old contract",
                        lock.version
                    ),
                    Compatibility::Same | Compatibility::TextOnly | Compatibility::Compatible => {
                        format!("{changes} since version {}, compatible: {first}", lock.version)
                    }
                };
                let found = match compatibility {
                    _ if must_match => Diagnostic::error(message),
                    Compatibility::Breaking => Diagnostic::warning(message),
                    Compatibility::Same | Compatibility::TextOnly | Compatibility::Compatible => {
                        Diagnostic::note(message)
                    }
                };
                found.help("`spile diff` lists all changes, `spile compile` locks them")
            }
        };
        Some(found.code("lock"))
    }
}

/// `spile compile`: writes the lock file with the current contract and its version.
pub fn compile(path: &Path) -> anyhow::Result<ExitCode> {
    let project = Project::find(path)?;
    let Some(file) = lock_path(&project) else {
        let path = crate::project::shown_path(path);
        bail!("`spile compile` needs a manifest; run `spile init {path}`, then `spile compile`");
    };
    let Scan { compiled, author, diagnostics, manifest, .. } = project.scan()?;
    print_diagnostics(&diagnostics);
    let Some(compiled) = compiled else { return Ok(ExitCode::FAILURE) };
    let old = match read_lock(&file) {
        Ok(old) => old,
        Err(error) => {
            print_diagnostics(&[error]);
            return Ok(ExitCode::FAILURE);
        }
    };
    let author_tools = author.iter().flat_map(Author::tools);
    let interface = ContractInterface::from_contract(&compiled.contract).with_tools(author_tools);
    let name = &compiled.contract.name;
    let (mut lock, summary) = match old {
        None => {
            let tools = pluralize(interface.tools.len() as u64, "tool");
            (
                Lock::new(ContractVersion::FIRST, interface),
                format!("wrote {}: {name} {}, {tools}\n", file.display(), ContractVersion::FIRST),
            )
        }
        Some(old) => {
            let differences = compare_interfaces(&old.interface, &interface);
            let compatibility = overall_compatibility(&differences);
            let version = old.version.bump(compatibility);
            let summary = match compatibility {
                Compatibility::Same => format!("{}: {name} {version}, no changes\n", file.display()),
                Compatibility::TextOnly | Compatibility::Compatible | Compatibility::Breaking => {
                    format!(
                        "wrote {}: {name} {version}, was {}, {}\n\n{}",
                        file.display(),
                        old.version,
                        compatibility.as_str(),
                        difference_lines(&differences)
                    )
                }
            };
            (Lock::new(version, interface), summary)
        }
    };
    lock.databases = manifest.map(|manifest| compiled.sources.facts_to_lock(&manifest)).unwrap_or_default();
    atomic_file::write(&file, lock.to_toml().as_bytes(), FileMode::PreserveOrUmask)?;
    print(&summary)?;
    Ok(ExitCode::SUCCESS)
}

/// One line for each difference, the worst first.
pub(crate) fn difference_lines(differences: &[Difference]) -> String {
    let mut all: Vec<&Difference> = differences.iter().collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.compatibility));
    all.iter().map(|one| format!("  {:10}  {one}\n", one.compatibility.as_str())).collect()
}

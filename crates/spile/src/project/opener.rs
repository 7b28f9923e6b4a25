//! Opens the sources of a project, or keeps what is known about one that cannot be read.

use std::path::PathBuf;

use contract::diagnostic::Diagnostic;
use contract::manifest::SourceKind;

use super::SourceFailurePolicy;
use super::assumed::{self, AssumedTable};
use super::sources::{self, LoadedSource, SourceSpec, Sources};
use super::unavailable::SourceFailure;
use crate::lock;

/// Opens the sources of a project one after the other.
pub(super) struct SourceOpener<'s> {
    reusable: &'s Sources,
    pub(super) sources: Sources,
    pub(super) loaded: Vec<LoadedSource>,
    pub(super) failures: Vec<SourceFailure>,
    /// Says what databases look like that cannot be reached.
    lock_file: Option<PathBuf>,
}

impl<'s> SourceOpener<'s> {
    pub(super) fn reusing(reusable: &'s Sources, lock_file: Option<PathBuf>) -> Self {
        Self { reusable, sources: Sources::default(), loaded: Vec::new(), failures: Vec::new(), lock_file }
    }

    /// What the lock file says about a database.
    fn locked_facts(&self, source: &str) -> Option<serde_json::Value> {
        let lock = lock::read_lock(self.lock_file.as_ref()?).ok()??;
        lock.databases.get(source).cloned()
    }

    /// Opens a source. While it is served, a source that has become unreadable keeps its last known facts, unless the
    /// policy is to fail: its calls report the error, and everything else follows its files.
    pub(super) fn open(
        &mut self,
        spec: &SourceSpec<'_>,
        policy: SourceFailurePolicy,
    ) -> Result<(), Diagnostic> {
        let loaded = match self.sources.open(self.reusable, spec) {
            Err(error) if policy == SourceFailurePolicy::Skip => {
                let failure = SourceFailure::of_source(spec, error.clone());
                let stale = self.sources.open_stale(self.reusable, spec, failure.clone());
                let locked = self.locked_facts(spec.name);
                let known = || {
                    let is_unreachable = error.code == Some(sources::UNREACHABLE);
                    is_unreachable.then(|| self.sources.open_known(spec, locked, failure)).flatten()
                };
                match stale {
                    Some(stale) => stale,
                    None => known().ok_or(error)?,
                }
            }
            result => result?,
        };
        self.loaded.push(loaded);
        Ok(())
    }

    /// What the source that was opened last would better be read with.
    pub(super) fn assumed_of_last(&self, kind: SourceKind) -> Vec<AssumedTable> {
        let last = self.loaded.last().filter(|last| last.stale.is_none());
        last.map(|last| assumed::assumed_tables(kind, &last.facts)).unwrap_or_default()
    }

    /// Notes what the source that was opened last is read with.
    pub(super) fn note_assumed(&mut self, assumed: Vec<AssumedTable>) {
        if let Some(last) = self.loaded.last_mut() {
            assumed::add_notes(&mut last.facts, assumed);
        }
    }

    /// Forgets the source that was opened before the last one: it is the same file, read in another way.
    pub(super) fn forget_last_but_one(&mut self) {
        if let Some(at) = self.loaded.len().checked_sub(2) {
            self.loaded.remove(at);
            self.sources.forget_last_but_one();
        }
    }
}

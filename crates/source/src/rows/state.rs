//! One state of a file: its tables, and what tells it from another state.

use std::hash::BuildHasher;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use contract::source::{Facts, LeftOut, SourceFault, TableFacts};
use foldhash::quality::{FixedState, RandomState};

use super::column::Column;
use super::index::Index;
use super::table::Table;
use super::trouble::Trouble;
use super::{Format, Loaded};
use crate::index::first_key;
use crate::watch::Content;

/// Places in a file are kept in 32 bits.
const FILE_BYTES_MAX: u64 = u32::MAX as u64 - 1;

pub(super) struct State {
    pub(super) tables: Vec<Arc<Table>>,
    notes: Vec<String>,
    left_out: Vec<LeftOut>,
    keys: OnceLock<Vec<Option<usize>>>,
    stamp: Stamp,
    number: i64,
}

/// Which bytes it was made of, as far as 64 bits tell that nobody can foresee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    bytes: usize,
    hash: u64,
}

/// Files of one format, and how they are read.
pub(super) struct Kept {
    pub(super) format: Box<dyn Format>,
    hasher: RandomState,
}

impl Kept {
    pub(super) fn new(format: Box<dyn Format>) -> Self {
        Self { format, hasher: RandomState::default() }
    }

    fn stamp(&self, bytes: &[u8]) -> Stamp {
        Stamp { bytes: bytes.len(), hash: self.hasher.hash_one(bytes) }
    }

    pub(super) fn state(&self, bytes: &[u8]) -> Result<State, Trouble> {
        let loaded = self.format.load(bytes).map_err(Trouble::Unreadable)?;
        let Loaded { mut tables, notes, left_out } = loaded;
        if tables.iter().any(Table::is_full) {
            return Err(Trouble::Full);
        }
        tables.iter_mut().for_each(Table::settle);
        Ok(State {
            tables: tables.into_iter().map(Arc::new).collect(),
            notes,
            left_out,
            keys: OnceLock::new(),
            stamp: self.stamp(bytes),
            // The same for the same content, so that cursors outlive a restart.
            number: FixedState::default().hash_one(bytes).cast_signed(),
        })
    }
}

impl Content for Kept {
    type Loaded = State;
    type Trouble = Trouble;

    fn file_bytes_max(&self) -> u64 {
        FILE_BYTES_MAX
    }

    fn load(&self, bytes: Vec<u8>) -> Result<State, Trouble> {
        self.state(&bytes)
    }

    fn is_of(&self, loaded: &State, bytes: &[u8]) -> bool {
        loaded.stamp == self.stamp(bytes)
    }

    fn fault(&self, trouble: &Trouble, file: &str, path: &Path) -> SourceFault {
        trouble.fault(file, path, self.format.name())
    }
}

impl State {
    pub(super) fn find(&self, table: &str) -> Option<usize> {
        self.tables.iter().position(|one| one.name == table)
    }

    /// A number that another content does not have, as far as 64 bits tell.
    pub(super) fn number(&self) -> i64 {
        self.number
    }

    /// Itself, if a contract can be made of it alone: of rows that name their columns there must be one.
    pub(super) fn with_columns(self: Arc<Self>) -> Result<Arc<Self>, Trouble> {
        let is_bare = |table: &Arc<Table>| table.is_loose && table.header.is_empty();
        if !self.tables.is_empty() && self.tables.iter().all(is_bare) { Err(Trouble::Bare) } else { Ok(self) }
    }

    pub(super) fn facts(&self) -> Facts {
        let keys = self.keys.get_or_init(|| self.tables.iter().map(|table| find_key(table)).collect());
        let tables = self.tables.iter().zip(keys).map(|(table, key)| TableFacts {
            key: key.iter().copied().collect(),
            rows: Some(u64::from(table.len())),
            read_only: table.read_only.clone(),
            ..TableFacts::new(&table.name, table.column_facts())
        });
        let (notes, left_out) = (self.notes.clone(), self.left_out.clone());
        Facts { tables: tables.collect(), notes, left_out, ..Facts::default() }
    }
}

/// The first column that tells rows apart, if there is one.
fn find_key(table: &Table) -> Option<usize> {
    let candidates = (0..table.header.len()).filter(|place| table.seen(*place).may_be_key(table.len()));
    first_key(candidates, table.len(), |place, rows| {
        let column = Column {
            name: String::new(),
            field: Some(place),
            kind: table.seen(place).kind().0,
            mixed: false,
            null: None,
            nests: table.nests,
        };
        Index::build(table, &[&column], rows).is_ok()
    })
}

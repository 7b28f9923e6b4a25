//! A CSV or TSV file as one table.
//!
//! The file is kept as it is, with where its rows begin; a field is taken apart when it is read. Keys are
//! found through an index of row numbers, orders are made when first asked for. When the file changes it is
//! read again: what still has the shape that was compiled is served, what has not is told with its line.
//!
//! A row is written by changing as few bytes as there can be, and only if what was changed reads back as it was meant,
//! and everything else as it was: see [`pen`].
//!
//! Deliberately absent: guessing what a ragged row meant.

mod decode;
mod encode;
mod fit;
mod index;
mod load;
mod pen;
mod read;
mod render;
mod sniff;
mod splice;
mod split;
mod table;
mod trouble;

use std::path::Path;
use std::sync::Arc;

use contract::diagnostic::Diagnostic;
use contract::manifest::Formulas;
use contract::source::{ColumnFacts, Facts, Reader, Shape, Source, SourceFault, TableFacts, Writer};

use crate::live::{Live, fitted};
use crate::spot;
use crate::watch::Watch;
use load::{Delimited, Loaded};
use pen::Pen;

/// Places in a file are kept in 32 bits.
const FILE_BYTES_MAX: u64 = u32::MAX as u64 - 1;
const COLUMNS_MAX: usize = 1024;

/// How a file is read, where it does not say so itself.
#[derive(Debug, Clone)]
pub struct Options {
    /// What separates fields; found out if not given.
    pub delimiter: Option<u8>,
    /// Text that means "no value" in every column.
    pub null: Option<String>,
    /// How long to trust that the file is what it was. 0: not beyond one call.
    pub look_every_ms: u64,
    /// Whether a text that a spreadsheet would take for a formula may be written.
    pub formulas: Formulas,
}

impl Default for Options {
    fn default() -> Self {
        Self { delimiter: None, null: None, look_every_ms: 20, formulas: Formulas::default() }
    }
}

pub struct Csv(Arc<Watch<Delimited>>);

impl Csv {
    /// Nothing is read yet.
    pub fn open(path: &Path, options: Options) -> Self {
        let look_every_ms = options.look_every_ms;
        Self(Arc::new(Watch::new(path, Delimited::new(path, options), look_every_ms)))
    }

    /// Waits until a file that is being read again in the background has been read.
    #[doc(hidden)]
    pub fn wait(&self) {
        self.0.wait();
    }
}

impl Source for Csv {
    fn facts(&self) -> Result<Facts, SourceFault> {
        let loaded = self.0.fresh().map_err(|trouble| self.0.fault(&trouble))?;
        let name = self.0.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(facts(name, &loaded, self.0.keeper.read_only()))
    }

    fn reader(&self, shape: &Shape) -> Result<Arc<dyn Reader>, SourceFault> {
        let live = Live::open(&self.0, shape)?;
        Ok(live)
    }

    fn writer(&self, shape: &Shape) -> Result<Arc<dyn Writer>, SourceFault> {
        let fitted = fitted(&self.0, shape, self.0.fresh());
        let (plan, _) = fitted.map_err(|trouble| self.0.fault(&trouble))?;
        Ok(Arc::new(Pen::new(self.0.clone(), plan)))
    }

    fn explain(&self, shape: Option<&Shape>) -> Option<Diagnostic> {
        let trouble = match shape {
            Some(shape) => fitted(&self.0, shape, self.0.fresh()).err()?,
            None => self.0.fresh().err()?,
        };
        Some(trouble.shown(&self.0.file, &self.0.path))
    }
}

fn facts(name: String, loaded: &Loaded, read_only: Option<String>) -> Facts {
    let table = &loaded.table;
    let columns = table.header.iter().zip(&table.columns).map(|(name, seen)| ColumnFacts {
        nullable: seen.has_null || (seen.has_empty && seen.empty_is_null()),
        values: seen.values.clone(),
        // An empty text is one of its values.
        has_default: seen.has_empty && !seen.empty_is_null(),
        ..ColumnFacts::new(name, seen.kind)
    });
    let table = TableFacts {
        key: loaded.key(),
        rows: Some(u64::from(table.len())),
        read_only,
        ..TableFacts::new(name, columns.collect())
    };
    let (notes, delimiter) = (loaded.table.notes.clone(), Some(loaded.table.split.delimiter));
    Facts { tables: vec![table], notes, delimiter, ..Facts::default() }
}

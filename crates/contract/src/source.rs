//! The seam between a contract and where its data lives.
//!
//! A [`Source`] is a file or a database. It says what it has ([`Facts`]); the compiler chooses from that; and
//! [`Source::reader`] prepares, once, what calls will ask. A [`Reader`] answers from then on, or says why not.

use std::fmt;
use std::sync::Arc;

use crate::cell::{Cell, Value};
use crate::diagnostic::Diagnostic;
use crate::kind::Kind;

/// Somewhere data lives.
pub trait Source: Send + Sync {
    /// What is there now. May take as long as reading everything once.
    fn facts(&self) -> Result<Facts, SourceFault>;

    /// Prepares reading one table in the shape that was compiled. What the source holds later must keep to
    /// it; rows that do not are a [`SourceFault::Changed`].
    fn reader(&self, shape: &Shape) -> Result<Arc<dyn Reader>, SourceFault>;

    /// What is wrong with the data right now, for whoever owns it: with its place and a way out, where the
    /// source knows more than a fault tells callers. With a shape, what keeps a reader of it from being made.
    fn explain(&self, _shape: Option<&Shape>) -> Option<Diagnostic> {
        None
    }
}

/// All tables of a source, in their own order.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub tables: Vec<TableFacts>,
    /// What a person should know about how it was read: the encoding, the delimiter.
    pub notes: Vec<String>,
    /// What is there too, and is not served.
    pub left_out: Vec<LeftOut>,
}

/// A table that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub table: String,
    /// Half a sentence for whoever owns it.
    pub why: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is left out: {}", self.table, self.why)
    }
}

#[derive(Debug, Clone)]
pub struct TableFacts {
    /// As the source calls it: a table's name, or a file's without its ending.
    pub name: String,
    pub columns: Vec<ColumnFacts>,
    /// The columns that tell rows apart: the primary key, else the first column that happens to; else none.
    pub key: Vec<usize>,
    /// Whether the key is declared by the source, and not only found in its rows.
    pub key_is_declared: bool,
    pub rows: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct ColumnFacts {
    /// As the source calls it; may be blank, odd, or there twice.
    pub name: String,
    pub kind: Kind,
    /// Whether there are rows without a value, or may be.
    pub nullable: bool,
    /// Whether there are values of another shape too, or may be: those are told as text.
    pub mixed: bool,
    /// All the different values there are, where they are few texts.
    pub values: Vec<String>,
}

/// One table as a contract reads it. Columns are named as the source names them, by place in [`Facts`].
#[derive(Debug, Clone)]
pub struct Shape {
    pub table: String,
    pub columns: Vec<ShapeColumn>,
    /// Places in `columns`.
    pub key: Vec<usize>,
}

#[derive(Debug, Clone)]
pub struct ShapeColumn {
    /// The place in [`TableFacts::columns`].
    pub at: usize,
    pub name: String,
    pub kind: Kind,
    pub nullable: bool,
    pub mixed: bool,
    /// Text that means "no value".
    pub null: Option<String>,
}

/// Reads one table. Cells come in the order of the shape's columns.
pub trait Reader: Send + Sync {
    /// Whether such a read is short enough to be done where it arrives.
    fn is_short(&self, read: &Read<'_>) -> bool;

    /// Hands the row with this key to `row`; `false` if there is none.
    fn get(&self, key: &[Cell<'_>], row: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool, SourceFault>;

    /// Hands rows to `row` in order, each with its [`Place`], until `row` has enough. Returns how many pass the
    /// filters in all (whatever [`Query::after`] says), where that is known without more work.
    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[Cell<'_>], Place) -> More,
    ) -> Result<Option<u64>, SourceFault>;
}

/// Where a row of a table without a key lies: the order there is, and which state of the table it counts in.
/// Means nothing where there is a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    pub row: i64,
    pub state: i64,
}

/// What is about to be read.
#[derive(Debug)]
pub enum Read<'a> {
    Get,
    List(&'a Query<'a>),
}

/// Which rows, and in which order. The key decides between rows that the sort leaves equal; rows without a
/// value in the sorted column come last either way.
#[derive(Debug, Default)]
pub struct Query<'a> {
    pub filters: Vec<Filter<'a>>,
    pub sort: Option<Sort>,
    /// Rows up to and including this one have been seen.
    pub after: Option<&'a Position>,
    /// More rows than this will not be taken.
    pub rows_max: usize,
    /// Rings when nobody waits any more.
    pub stop: Option<&'a std::sync::atomic::AtomicBool>,
}

#[derive(Debug, Clone, Copy)]
pub struct Filter<'a> {
    /// The place in the shape's columns.
    pub column: usize,
    pub test: Test,
    pub value: Cell<'a>,
}

/// How a row's value stands to the filter's. A row without a value passes none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Test {
    Equals,
    AtLeast,
    AtMost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sort {
    pub column: usize,
    pub descending: bool,
}

/// Where a page ended: the last row's sorted value, if there is a sort, and its key. Without a key its
/// [`Place`], as two integers: a place in another state of the table is [`SourceFault::Moved`].
#[derive(Debug, Clone, PartialEq)]
pub struct Position {
    pub sorted: Option<Value>,
    pub key: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum More {
    Yes,
    No,
}

/// Why a source has no answer. What the caller may read is `told`; what the driver said is for the log.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SourceFault {
    /// It cannot be read now: missing, forbidden, out of reach. The same may work later.
    #[error("{told}")]
    Unavailable { told: String, log: String },
    /// It can be read, and is not what the contract was made from, or nothing that could be. The same will not
    /// work until somebody changes it.
    #[error("{told}")]
    Changed { told: String, log: String },
    /// Somebody else writes; the same will work in a moment.
    #[error("the source is busy; try again")]
    Busy { log: String },
    #[error("this takes too long; narrow it with filters")]
    TooSlow,
    /// A cursor of a table without a key, from before the table changed.
    #[error("the data changed since this cursor was given; start again without it")]
    Moved,
    #[error("stopped")]
    Stopped,
}

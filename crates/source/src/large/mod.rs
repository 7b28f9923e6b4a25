//! Files that are too large for memory: their rows are imported once into a private SQLite database, and read from it by
//! the code that reads databases.
//!
//! [`cache`] keeps the databases, [`import`] fills one, [`reader`] follows a file that changes.

mod cache;
mod import;
mod reader;

pub(crate) use cache::{ImportCache, ImportId, ImportedDatabase};
pub(crate) use import::{
    ImportColumn, ImportValue, TABLE, TableImport, column_name, detected_key, ensure_key, stored_value,
};
pub(crate) use reader::{LargeReader, OpenImport, ReaderSet};

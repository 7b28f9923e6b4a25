//! Files that are too large for memory: their rows are imported once into a private SQLite database, and read from it by
//! the code that reads databases.
//!
//! [`file`] follows a file and imports it, [`cache`] keeps the databases, [`import`] fills one, [`plan`] says how, [`reader`] reads the
//! current one.

mod cache;
mod file;
mod import;
mod plan;
mod reader;

pub(crate) use file::{ImportPlan, LargeFile, LargeFormat, NOTE, READ_ONLY_REASON, open_file};
pub(crate) use import::{ImportAffinity, ImportColumn, ImportValue, TableImport, stored_value};
pub(crate) use plan::PlanIdentity;

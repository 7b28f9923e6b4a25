//! Sources of data: CSV and JSON files, workbooks and SQLite databases, behind the trait
//! [`contract::source::Source`].

mod atomic_file;
pub mod backups;
pub mod csv;
mod error_text;
pub mod json;
mod key_index;
mod large;
mod layout;
mod location;
mod memory;
pub mod parquet;
mod progress;
pub mod sheets;
mod snapshot_reader;
pub mod sqlite;
mod tables;
#[cfg(test)]
mod test_write;
mod text_search;
mod watch;

pub use memory::MemoryRows;
pub use tables::{LargeTableFile, TableFile, TablesOptions};

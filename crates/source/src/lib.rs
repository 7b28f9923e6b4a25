//! Where data lives: CSV and JSON files, workbooks and SQLite databases, read through one seam, [`contract::source::Source`].

pub mod csv;
mod files;
mod hunt;
mod index;
pub mod json;
mod live;
mod pace;
mod rows;
pub mod sheets;
mod spot;
pub mod sqlite;
mod watch;
mod words;

pub use rows::Rows;

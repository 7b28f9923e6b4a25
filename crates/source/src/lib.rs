//! Where data lives: CSV files and SQLite databases, read through one seam, [`contract::source::Source`].

pub mod csv;
mod files;
mod hunt;
pub mod json;
mod rows;
mod spot;
pub mod sqlite;
mod watch;

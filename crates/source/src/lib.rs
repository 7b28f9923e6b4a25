//! Where data lives: CSV files and SQLite databases, read through one seam, [`contract::source::Source`].

pub mod csv;
mod files;
pub mod json;
mod rows;
mod spot;
pub mod sqlite;
mod watch;

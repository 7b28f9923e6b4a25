//! Real files and real databases.

mod csv;
mod sqlite;

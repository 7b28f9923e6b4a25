//! An SQLite database, read only.

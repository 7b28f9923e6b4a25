//! Real files and real databases.

mod csv;
mod json;
mod same;
mod sheets;
mod sqlite;

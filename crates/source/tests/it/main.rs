//! Real files and real databases.

mod clerk;
mod csv;
#[cfg(unix)]
mod full;
mod json;
#[cfg(unix)]
mod killed;
mod same;
mod shape;
mod sheets;
mod sqlite;
mod survive;

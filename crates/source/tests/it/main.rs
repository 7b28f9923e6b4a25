//! Real files and real databases.

mod clerk;
mod csv;
#[cfg(unix)]
mod full;
#[cfg(unix)]
mod killed;
mod json;
mod same;
mod sheets;
mod sqlite;

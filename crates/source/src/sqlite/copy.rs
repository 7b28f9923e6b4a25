//! Copies a database, including what is still in its write-ahead log, into one file.

use std::path::Path;
use std::time::Duration;

use contract::source::SourceError;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

const PAGES_PER_STEP: i32 = 1024;
/// After this many attempts the copy fails with `Busy`.
const TRIES_MAX: u32 = 100;
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Copies a database to a path that does not exist yet.
pub fn copy(from: &Path, to: &Path) -> Result<(), SourceError> {
    let failed = |error: rusqlite::Error| SourceError::Unavailable {
        message: "the database cannot be copied".into(),
        detail: error.to_string(),
    };
    let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    let mut target = Connection::open(to).map_err(failed)?;
    let backup = Backup::new(&source, &mut target).map_err(failed)?;
    let mut tries = 0;
    loop {
        match backup.step(PAGES_PER_STEP).map_err(failed)? {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            _ if tries == TRIES_MAX => {
                return Err(SourceError::Busy { detail: "locked by another program for too long".into() });
            }
            _ => {
                tries += 1;
                std::thread::sleep(RETRY_DELAY);
            }
        }
    }
}

//! How much of a file is read before enough is enough.
//!
//! Whoever made a workbook decides what its bytes say, so no number in them is believed: what is unpacked, kept
//! and walked is counted as it happens, and the time it takes too.

use std::time::{Duration, Instant};

use crate::tables::ParseError;

/// A file that is longer is not looked at.
pub(super) const FILE_BYTES_MAX: usize = 128 << 20;
/// Parts of a package.
pub(super) const ENTRIES_MAX: usize = 10_000;
/// One part, unpacked.
pub(super) const PART_BYTES_MAX: u64 = 512 << 20;
/// All parts that are read, unpacked.
pub(super) const INFLATED_BYTES_MAX: u64 = 1 << 30;
/// A part that unpacks to more than so many times its size is a bomb. Sheets of one repeated row reach about 100.
pub(super) const COMPRESSION_RATIO_MAX: u64 = 400;
/// Below this nobody asks for the ratio.
pub(super) const RATIO_EXEMPT_BYTES_MAX: u64 = 4 << 20;
/// Cells that have something in them, over all sheets; and cells of all tables, blank ones too.
pub(super) const CELLS_MAX: usize = 10_000_000;
/// As in a CSV file.
pub(super) const COLUMNS_MAX: usize = 1024;
pub(super) const DEPTH_MAX: usize = 128;
/// All sheets of a workbook, hidden ones too.
pub(super) const SHEETS_MAX: usize = 1000;
/// All texts of a workbook.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 30;
/// Reading takes no longer.
pub(super) const LOAD_MS_MAX: u64 = 60_000;

/// So many small steps are taken between two looks at the clock.
const STEPS_PER_CLOCK_CHECK: u32 = 4096;

/// What is left of all that.
pub(super) struct Budget {
    deadline: Instant,
    steps_until_check: u32,
    inflated_left: u64,
    cells_left: usize,
    text_left: usize,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self::with_time_limit(Duration::from_millis(LOAD_MS_MAX))
    }

    pub(super) fn with_time_limit(time: Duration) -> Self {
        Self {
            deadline: Instant::now() + time,
            steps_until_check: 0,
            inflated_left: INFLATED_BYTES_MAX,
            cells_left: CELLS_MAX,
            text_left: TEXT_BYTES_MAX,
        }
    }

    /// One small step.
    #[inline]
    pub(super) fn step(&mut self) -> Result<(), ParseError> {
        if self.steps_until_check == 0 {
            self.steps_until_check = STEPS_PER_CLOCK_CHECK;
            self.check_deadline()?;
        }
        self.steps_until_check -= 1;
        Ok(())
    }

    /// A large one.
    pub(super) fn check_deadline(&self) -> Result<(), ParseError> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        let seconds = LOAD_MS_MAX / 1000;
        Err(too_large_error(format!("the workbook takes longer than {seconds} seconds to read")))
    }

    pub(super) fn charge_inflated(&mut self, bytes: u64) -> Result<(), ParseError> {
        self.inflated_left = self.inflated_left.checked_sub(bytes).ok_or_else(|| {
            let mebibytes = INFLATED_BYTES_MAX >> 20;
            too_large_error(format!("the workbook unpacks to more than {mebibytes} MiB"))
        })?;
        self.check_deadline()
    }

    pub(super) fn charge_cells(&mut self, count: usize) -> Result<(), ParseError> {
        self.cells_left = self
            .cells_left
            .checked_sub(count)
            .ok_or_else(|| too_large_error(format!("the workbook has more than {CELLS_MAX} cells")))?;
        self.step()
    }

    pub(super) fn charge_text(&mut self, bytes: usize) -> Result<(), ParseError> {
        self.text_left = self.text_left.checked_sub(bytes).ok_or_else(|| {
            let mebibytes = TEXT_BYTES_MAX >> 20;
            too_large_error(format!("the workbook has more than {mebibytes} MiB of text"))
        })?;
        Ok(())
    }
}

/// It may be fine, and there is too much of it.
pub(super) fn too_large_error(why: impl Into<String>) -> ParseError {
    error_with_help(why, "keep what is served in a workbook of its own, or in a SQLite database")
}

/// It is not what its name says, or damaged.
pub(super) fn invalid_file_error(why: impl Into<String>) -> ParseError {
    error_with_help(why, "open it in a spreadsheet program and save it again")
}

pub(super) fn error_with_help(why: impl Into<String>, help: &str) -> ParseError {
    // It stands behind the name of the file.
    ParseError {
        message: format!("cannot be read: {}", why.into()),
        help: Some(help.to_owned()),
        location: None,
    }
}

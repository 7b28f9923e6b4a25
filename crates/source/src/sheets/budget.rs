//! Limits on what a workbook may cost to read.
//!
//! A workbook may be hostile, so no number in it is trusted: what is inflated, stored and walked is counted as it
//! happens, and so is the time.

use std::time::{Duration, Instant};

use crate::tables::ParseError;

/// A larger file is not opened.
pub(super) const FILE_BYTES_MAX: usize = 128 << 20;
/// Parts of a package.
pub(super) const ENTRIES_MAX: usize = 10_000;
/// One part, inflated.
pub(super) const PART_BYTES_MAX: u64 = 512 << 20;
/// All parts that are read, inflated.
pub(super) const INFLATED_BYTES_MAX: u64 = 1 << 30;
/// A part that inflates to more than this many times its size is a ZIP bomb. Sheets of one repeated row reach about
/// 100.
pub(super) const COMPRESSION_RATIO_MAX: u64 = 400;
/// The ratio of smaller parts does not matter.
pub(super) const RATIO_EXEMPT_BYTES_MAX: u64 = 4 << 20;
/// Cells with a value, over all sheets; and cells of all tables, empty ones too.
pub(super) const CELLS_MAX: usize = 10_000_000;
/// The same as for a CSV file.
pub(super) const COLUMNS_MAX: usize = 1024;
pub(super) const DEPTH_MAX: usize = 128;
/// Sheets of a workbook, hidden ones too.
pub(super) const SHEETS_MAX: usize = 1000;
/// All texts of a workbook.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 30;
/// Memory that reading may take, as a multiple of the file's size. Styled but empty cells inflate to about 100 times
/// their compressed size.
const MEMORY_PER_FILE_BYTE: usize = 128;
const MEMORY_BYTES_MIN: usize = 128 << 20;
const MEMORY_BYTES_MAX: usize = 1 << 30;
/// What a cell takes in the grid and in its table, about.
pub(super) const CELL_BYTES: usize = 48;
/// What a row takes in the grid, about.
pub(super) const ROW_BYTES: usize = 64;
/// The longest time that reading may take.
pub(super) const LOAD_MS_MAX: u64 = 60_000;

/// How many small steps to take between two looks at the clock.
const STEPS_PER_CLOCK_CHECK: u32 = 4096;

/// What is left of these limits.
pub(super) struct Budget {
    deadline: Instant,
    steps_until_check: u32,
    inflated_left: u64,
    cells_left: usize,
    text_left: usize,
    memory_max: usize,
    memory_left: usize,
    /// The largest part so far. Parts are inflated one after another, so only the largest counts.
    largest_part: usize,
}

impl Budget {
    #[cfg(test)]
    pub(super) fn new() -> Self {
        Self::for_file(usize::MAX)
    }

    /// For a file of this size.
    pub(super) fn for_file(bytes: usize) -> Self {
        let memory = bytes.saturating_mul(MEMORY_PER_FILE_BYTE).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX);
        let time = Duration::from_millis(LOAD_MS_MAX);
        Self { memory_max: memory, memory_left: memory, ..Self::with_time_limit(time) }
    }

    pub(super) fn with_time_limit(time: Duration) -> Self {
        Self {
            deadline: Instant::now() + time,
            steps_until_check: 0,
            inflated_left: INFLATED_BYTES_MAX,
            cells_left: CELLS_MAX,
            text_left: TEXT_BYTES_MAX,
            memory_max: MEMORY_BYTES_MAX,
            memory_left: MEMORY_BYTES_MAX,
            largest_part: 0,
        }
    }

    /// Counts one small step.
    #[inline]
    pub(super) fn step(&mut self) -> Result<(), ParseError> {
        if self.steps_until_check == 0 {
            self.steps_until_check = STEPS_PER_CLOCK_CHECK;
            self.check_deadline()?;
        }
        self.steps_until_check -= 1;
        Ok(())
    }

    /// Checks the clock, for a large step.
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

    /// Charges the memory for a part that is about to be inflated.
    pub(super) fn charge_part(&mut self, bytes: u64) -> Result<(), ParseError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.charge_memory(bytes.saturating_sub(self.largest_part))?;
        self.largest_part = self.largest_part.max(bytes);
        Ok(())
    }

    pub(super) fn charge_memory(&mut self, bytes: usize) -> Result<(), ParseError> {
        self.memory_left = self.memory_left.checked_sub(bytes).ok_or_else(|| self.memory_error())?;
        Ok(())
    }

    pub(super) fn memory_left(&self) -> usize {
        self.memory_left
    }

    pub(super) fn memory_error(&self) -> ParseError {
        let mebibytes = self.memory_max >> 20;
        too_large_error(format!("the workbook takes more than {mebibytes} MiB of memory to read"))
    }

    pub(super) fn charge_cells(&mut self, count: usize) -> Result<(), ParseError> {
        self.cells_left = self
            .cells_left
            .checked_sub(count)
            .ok_or_else(|| too_large_error(format!("the workbook has more than {CELLS_MAX} cells")))?;
        self.charge_memory(count.saturating_mul(CELL_BYTES))?;
        self.step()
    }

    pub(super) fn charge_text(&mut self, bytes: usize) -> Result<(), ParseError> {
        self.text_left = self.text_left.checked_sub(bytes).ok_or_else(|| {
            let mebibytes = TEXT_BYTES_MAX >> 20;
            too_large_error(format!("the workbook has more than {mebibytes} MiB of text"))
        })?;
        self.charge_memory(bytes)
    }
}

/// The workbook may be valid, but is too large.
pub(super) fn too_large_error(reason: impl Into<String>) -> ParseError {
    error_with_help(reason, "move the data to a smaller workbook, or to a SQLite database")
}

/// The file is not what its name says, or is damaged.
pub(super) fn invalid_file_error(reason: impl Into<String>) -> ParseError {
    error_with_help(reason, "open it in a spreadsheet program and save it again")
}

pub(super) fn error_with_help(reason: impl Into<String>, help: &str) -> ParseError {
    // The message follows the name of the file.
    ParseError {
        message: format!("cannot be read: {}", reason.into()),
        help: Some(help.to_owned()),
        location: None,
    }
}

//! The work budget of one validation.
//!
//! Schemas may come from untrusted servers, and arguments from untrusted callers. A schema with recursive
//! alternatives can take exponential time even for a small value, so each validation has a budget. When it is used
//! up, the budgeted keywords fail at once and the validation ends with an error.
//!
//! The library passes no context to custom keywords, so the budget is thread-local. A validation runs on one thread
//! and never starts another one.

use std::cell::Cell;

/// Enough for any reasonable schema and a small value.
const WORK_BASE: u64 = 1_000_000;
/// The additional budget for each value of the instance.
const WORK_PER_VALUE: u64 = 64;

thread_local! {
    static REMAINING: Cell<u64> = const { Cell::new(0) };
}

/// Starts a validation of an instance with this many values.
#[inline]
pub(crate) fn start(values: usize) {
    REMAINING.set(WORK_BASE + WORK_PER_VALUE * values as u64);
}

/// Uses up a part of the budget. Returns `false` once nothing is left.
#[inline]
pub(crate) fn charge(units: u64) -> bool {
    let remaining = REMAINING.get().saturating_sub(units);
    REMAINING.set(remaining);
    remaining > 0
}

/// Whether the budget was used up.
#[inline]
pub(crate) fn is_exhausted() -> bool {
    REMAINING.get() == 0
}

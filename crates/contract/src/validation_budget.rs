//! The work budget of one validation.
//!
//! Schemas may come from untrusted servers, and arguments from untrusted callers. With alternatives in a recursive
//! schema, a small value can take exponential time. So each validation has a budget: every time the validator
//! descends into an array or object, it uses up a unit. When nothing is left, the validator sees no more arrays and
//! objects, ends quickly, and the result is an error.
//!
//! The library passes no context to the nodes it reads, so the budget is thread-local. A validation runs on one
//! thread and never starts another one.

use std::cell::Cell;

/// Enough for any reasonable schema and a small value.
const BASE: u64 = 1_000_000;
/// The limit of values times subschemas per value.
const LINEAR_MAX: u64 = 50_000_000;
/// How often a subschema may look into the same value, on average.
const LOOKS: u64 = 8;

thread_local! {
    static REMAINING: Cell<u64> = const { Cell::new(0) };
}

/// Starts a validation. `subschemas` is the number of subschemas that apply to one value. Returns `false` if even
/// one pass over all values is too much work.
#[inline]
pub(crate) fn start(values: usize, subschemas: u64) -> bool {
    let linear = (values as u64).saturating_mul(subschemas);
    let is_feasible = linear <= LINEAR_MAX;
    REMAINING.set(if is_feasible { BASE + LOOKS * linear } else { 0 });
    is_feasible
}

/// Starts a search for the errors of an invalid instance. It needs more time for each unit than validation does.
pub(crate) fn start_explaining() {
    REMAINING.set(BASE / 20);
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

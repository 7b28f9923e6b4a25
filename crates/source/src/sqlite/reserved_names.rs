//! Names that Spile gives to its own objects in a database or on a connection.
//!
//! They share the prefix `_spile_`, so that they do not collide with the owner's names.

/// The table of idempotency records.
pub(super) const IDEMPOTENCY_TABLE: &str = "_spile_idempotency";
/// The SQL function that the capture triggers call. The authorizer allows no other caller.
pub(super) const CAPTURE_FUNCTION: &str = "_spile_saw";
/// The SQL functions that compare texts in lower case.
pub(super) const CONTAINS_FUNCTION: &str = "spile_contains";
pub(super) const STARTS_WITH_FUNCTION: &str = "spile_starts_with";
/// The SQL function that looks a value up in a set of keys.
pub(super) const IN_KEYS_FUNCTION: &str = "spile_in_keys";
/// The SQL aggregate function that adds up integers.
pub(super) const INTEGER_TOTALS_FUNCTION: &str = "spile_integer_totals";
/// The prefix of the capture triggers' names.
pub(super) const TRIGGER_PREFIX: &str = "_spile_";
/// The savepoint that a trial run rolls back to.
pub(super) const TRIAL_SAVEPOINT: &str = "_spile_trial";

/// Whether a table belongs to Spile and is hidden from collections and statements.
pub(super) fn is_own_table(name: &str) -> bool {
    name.eq_ignore_ascii_case(IDEMPOTENCY_TABLE)
}

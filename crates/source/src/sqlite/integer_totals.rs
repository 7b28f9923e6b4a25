//! An SQL aggregate function over a column of integers: exact sum, least and greatest value, number of values.
//!
//! SQLite's own `sum` stops at 64 bits, and does not say whether it met a number with a fraction or a text.

use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::ValueRef as SqlValueRef;
use rusqlite::{Connection, Result};

use crate::sqlite::reserved_names::INTEGER_TOTALS_FUNCTION;

/// What is known of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IntegerTotals {
    pub(super) sum: i128,
    /// How many integers there are.
    pub(super) count: u64,
    pub(super) nulls: u64,
    /// How many values are neither integers nor NULL.
    pub(super) others: u64,
    /// [`i64::MAX`] without any integer.
    pub(super) min: i64,
    /// [`i64::MIN`] without any integer.
    pub(super) max: i64,
}

impl Default for IntegerTotals {
    fn default() -> Self {
        Self { sum: 0, count: 0, nulls: 0, others: 0, min: i64::MAX, max: i64::MIN }
    }
}

impl IntegerTotals {
    #[inline]
    fn push(&mut self, value: SqlValueRef<'_>) {
        match value {
            SqlValueRef::Integer(n) => {
                self.sum += i128::from(n);
                self.count += 1;
                self.min = self.min.min(n);
                self.max = self.max.max(n);
            }
            SqlValueRef::Null => self.nulls += 1,
            SqlValueRef::Real(_) | SqlValueRef::Text(_) | SqlValueRef::Blob(_) => self.others += 1,
        }
    }

    /// Adds the totals of other rows.
    pub(super) fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
        self.count += other.count;
        self.nulls += other.nulls;
        self.others += other.others;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    fn encode(&self) -> Vec<u8> {
        let counts =
            [self.count, self.nulls, self.others, self.min.cast_unsigned(), self.max.cast_unsigned()];
        let mut bytes = self.sum.to_le_bytes().to_vec();
        bytes.extend(counts.iter().flat_map(|one| one.to_le_bytes()));
        bytes
    }

    /// What the function returned.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (sum, mut rest) = bytes.split_first_chunk()?;
        let mut next = || {
            let (one, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u64::from_le_bytes(*one))
        };
        Some(Self {
            sum: i128::from_le_bytes(*sum),
            count: next()?,
            nulls: next()?,
            others: next()?,
            min: next()?.cast_signed(),
            max: next()?.cast_signed(),
        })
    }
}

struct IntegerTotalsFunction;

impl Aggregate<IntegerTotals, Vec<u8>> for IntegerTotalsFunction {
    fn init(&self, _: &mut Context<'_>) -> Result<IntegerTotals> {
        Ok(IntegerTotals::default())
    }

    fn step(&self, context: &mut Context<'_>, totals: &mut IntegerTotals) -> Result<()> {
        totals.push(context.get_raw(0));
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, totals: Option<IntegerTotals>) -> Result<Vec<u8>> {
        Ok(totals.unwrap_or_default().encode())
    }
}

pub(super) fn register(connection: &Connection) -> Result<()> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_aggregate_function(INTEGER_TOTALS_FUNCTION, 1, flags, IntegerTotalsFunction)
}

#[cfg(test)]
mod tests {
    use super::{IntegerTotals, register};
    use rusqlite::Connection;

    fn totals(values: &str) -> IntegerTotals {
        let connection = Connection::open_in_memory().expect("memory");
        register(&connection).expect("a function");
        let sql = format!("SELECT spile_integer_totals(column1) FROM (VALUES {values})");
        let bytes: Vec<u8> = connection.query_row(&sql, [], |row| row.get(0)).expect("totals");
        IntegerTotals::decode(&bytes).expect("all of it")
    }

    #[test]
    fn sums_are_exact_beyond_64_bits() {
        let found = totals("(9223372036854775807), (9223372036854775807), (-1), (NULL)");
        let expected = IntegerTotals {
            sum: 2 * i128::from(i64::MAX) - 1,
            count: 3,
            nulls: 1,
            others: 0,
            min: -1,
            max: i64::MAX,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn values_of_other_types_are_counted() {
        let found = totals("(1), (2.0), ('3'), (x'34'), (NULL)");
        assert_eq!((found.sum, found.count, found.nulls, found.others), (1, 1, 1, 3));
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let mut parts = totals("(5), (NULL)");
        parts.merge(&totals("(-7), ('x')"));
        parts.merge(&IntegerTotals::default());
        assert_eq!(parts, totals("(5), (NULL), (-7), ('x')"));
    }

    #[test]
    fn bytes_that_are_cut_are_not_totals() {
        let bytes = totals("(1)").encode();
        assert!((0..bytes.len()).all(|length| IntegerTotals::decode(&bytes[..length]).is_none()));
    }
}

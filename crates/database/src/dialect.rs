//! How an engine spells what `contract` defines.

use contract::source::{DateUnit, KeySet};

use crate::column::{Column, Storage};
use crate::connection::{Param, ResultColumn, Sql};
use crate::lowercase::Lowering;
use crate::schema::{ColumnInfo, TextIndexKind};
use crate::statement::Syntax;

/// The alias of the table in every statement.
pub(crate) const TABLE_ALIAS: &str = "t";

/// An engine's spelling. Expressions are written to an [`SqlWriter`], because their parameters have an order.
pub(crate) trait Dialect: Send + Sync {
    fn quote(&self, name: &str) -> String;

    /// The placeholder of the parameter with this number, counted from 1.
    fn placeholder(&self, number: usize) -> String;

    /// The column in a select list.
    fn select(&self, column: &Column) -> String;

    /// An expression with the order that `contract` gives to the column's values.
    fn sort_expression(&self, column: &Column) -> String;

    /// An expression for tests of equality: as [`Dialect::sort_expression`], or one that an index serves.
    fn equality_expression(&self, column: &Column) -> String;

    /// Writes a test for equality with a value of the column's type.
    fn write_equals(&self, out: &mut SqlWriter<'_>, column: &Column, param: Param) {
        out.push(&self.equality_expression(column));
        out.push(" = ");
        out.typed_param(column.storage(), param);
    }

    /// The column as text that is compared by its bytes.
    fn text_expression(&self, column: &Column) -> String;

    /// The column as rows are grouped by it: equal for equal values in the sense of `contract`, and only for them. `None` if that
    /// cannot be said.
    fn group_expression(&self, column: &Column) -> Option<Expression>;

    /// The first day of the year, quarter, month or week of a date or time, or its day.
    fn truncated(&self, column: &Column, unit: DateUnit) -> Expression;

    /// The beginning of the quarter of an hour of a time, or the time itself if it is before `since`, a placeholder.
    fn quarter_hour(&self, column: &Column, since: &str) -> Expression;

    /// The exact sum of the column. `None` if it would be rounded or may not fit.
    fn sum(&self, column: &Column) -> Option<Expression>;

    /// The least or greatest value in the order of `contract`; `function` is `min` or `max`.
    fn extreme(&self, function: &str, column: &Column) -> Option<Expression>;

    /// Converts a placeholder to the type that the column is compared as.
    fn typed(&self, storage: Storage, placeholder: &str) -> String;

    /// Converts a placeholder with digits to a decimal.
    fn typed_decimal(&self, placeholder: &str, digits: &str) -> String;

    /// A date or time of responses that is not one of the years 1 to 9999, as the engine reads it: `0044-03-15 BC`. `None` if it
    /// has no such value.
    fn exceptional_time(&self, text: &str) -> Option<String>;

    /// A condition that a value of the column is one of its type in the contract: neither `NaN` nor `infinity` nor `0000-00-00`.
    /// `None` if all are.
    fn ordinary_values(&self, column: &Column) -> Option<String>;

    /// Whether rows without a value come last when this is sorted upwards or downwards.
    fn order_by(&self, expression: &str, descending: bool) -> String;

    /// Writes a text expression with characters replaced.
    fn write_lowered(&self, out: &mut SqlWriter<'_>, text: &str, lowering: &Lowering);

    /// Writes `contains` after an expression: the pieces around the expression and the placeholder.
    fn write_contains(
        &self,
        out: &mut SqlWriter<'_>,
        write_text: &dyn Fn(&mut SqlWriter<'_>),
        operand: &str,
        prefix: bool,
    );

    /// Whether a full-text index can find all rows with these terms. Each is in lower case.
    fn can_match_words(&self, terms: &[String]) -> bool;

    /// Writes a condition that a full-text index answers: a row has these terms.
    fn write_word_match(
        &self,
        out: &mut SqlWriter<'_>,
        index: &TextIndexKind,
        columns: &[&Column],
        terms: &[String],
    );

    /// Writes a condition that an expression is in a set.
    fn write_in_keys(&self, out: &mut SqlWriter<'_>, column: &Column, keys: &KeySet);

    /// Writes a join with pairs of a key and its rank, as a table with the columns `k` and `r`.
    fn write_ranks(&self, out: &mut SqlWriter<'_>, alias: &str, column: &Column, ranks: &[(Param, i64)]);

    /// An aggregate over the column that is 1 if it has values that its usual type cannot hold, 2 if they do not fit 64 bits with a
    /// sign either. `None` if it never has.
    fn special_values(&self, column: &ColumnInfo) -> Option<String>;

    /// The columns that identify a row of a table without a key, also in its partitions and heirs; none if there are none.
    fn row_id(&self) -> &'static [&'static str];

    /// Converts a placeholder to what the column stores.
    fn stored(&self, column: &Column, placeholder: &str) -> String;

    /// How the key of a new row is found out.
    fn new_key(&self) -> NewKey;

    /// What follows the name of the table in an `INSERT` without values.
    fn default_values(&self) -> &'static str;

    /// `DELETE FROM` with the alias.
    fn delete_from(&self, table: &str) -> String;

    /// What stands before and after an `INSERT` that does nothing if the key exists.
    fn insert_ignore(&self) -> (&'static str, &'static str);

    /// The statement that creates the table of idempotency records, unless it exists.
    fn create_idempotency_table(&self, quoted: &str) -> String;

    /// How authors write statements.
    fn syntax(&self) -> Syntax;

    /// Whether a parameter that is used twice is bound twice.
    fn repeats_parameters(&self) -> bool;

    /// What stands before and after a statement that reads, to read columns of some types as text or JSON. `None` if it is not
    /// needed.
    fn wrap_statement(&self, columns: &[ColumnInfo]) -> Option<(String, String)>;

    /// Returns how many rows the transaction has changed, in all tables. `None` if only the statement itself can say.
    fn changed_rows(&self) -> Option<&'static str>;

    /// An expression over all rows that changes when the table changes, for a table without a key.
    fn version_expression(&self, columns: &[Column], is_view: bool) -> String;
}

/// What a statement selects, and how its values are read.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) text: String,
    pub(crate) result: ResultColumn,
}

/// How the key of a new row is found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewKey {
    /// The statement returns it.
    Returning,
    /// It was sent, or this statement returns what the database assigned.
    Ask(&'static str),
}

/// Writes a statement and collects its parameters.
pub(crate) struct SqlWriter<'d> {
    pub(crate) dialect: &'d dyn Dialect,
    pub(crate) sql: Sql,
}

impl<'d> SqlWriter<'d> {
    pub(crate) fn new(dialect: &'d dyn Dialect) -> Self {
        Self { dialect, sql: Sql::default() }
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.sql.text.push_str(text);
    }

    /// Binds a value and returns its placeholder.
    pub(crate) fn bind(&mut self, param: Param) -> String {
        self.sql.params.push(param);
        self.dialect.placeholder(self.sql.params.len())
    }

    /// Writes the placeholder of a value.
    pub(crate) fn param(&mut self, param: Param) {
        let placeholder = self.bind(param);
        self.push(&placeholder);
    }

    /// Writes the placeholder of a value as the type that a column is compared as.
    pub(crate) fn typed_param(&mut self, storage: Storage, param: Param) {
        let placeholder = self.bind(param);
        let typed = self.dialect.typed(storage, &placeholder);
        self.push(&typed);
    }
}

//! How MySQL and MariaDB spell comparisons and orders.
//!
//! Texts are compared as binary strings: a collation such as `utf8mb4_bin` ignores blanks at the end.

use contract::ValueRef;
use contract::infer::SAFE_INTEGER_MAX;
use contract::order::{decimal_parts, timestamp_sort_key};
use contract::source::{DateUnit, KeySet};
use json::write;

use super::full_text;
use crate::column::{Column, Storage};
use crate::connection::Param;
use crate::dialect::{Dialect, Expression, NewKey, SqlWriter, TABLE_ALIAS};
use crate::lowercase::{DOTTED_I, Lowering};
use crate::operand::is_date;
use crate::schema::{Collation, ColumnInfo, TextIndexKind};
use crate::statement::Syntax;

pub(crate) struct MySqlDialect;

/// So many keys are listed in a statement; more are one parameter, as JSON.
const LISTED_KEYS_MAX: usize = 1024;
/// The most digits of a decimal, and of its fraction.
const DECIMAL_DIGITS: usize = 65;
const FRACTION_DIGITS: usize = 30;
/// The session sorts texts by so many bytes.
const SORTED_BYTES_MAX: usize = 65_535;
/// A sum has so many digits more than its values; with more rows than that, it would be cut.
const SUM_DIGITS: usize = 22;

impl Dialect for MySqlDialect {
    fn quote(&self, name: &str) -> String {
        format!("`{}`", name.replace('`', "``"))
    }

    fn placeholder(&self, _number: usize) -> String {
        "?".into()
    }

    fn select(&self, column: &Column) -> String {
        match column.storage() {
            Storage::Printed | Storage::PrintedJson | Storage::Uuid => {
                format!("CAST({} AS CHAR)", column.quoted)
            }
            _ => column.quoted.clone(),
        }
    }

    fn sort_expression(&self, column: &Column) -> String {
        match column.storage() {
            Storage::Text | Storage::PaddedText | Storage::Printed | Storage::Uuid => {
                self.text_expression(column)
            }
            _ => column.quoted.clone(),
        }
    }

    fn equality_expression(&self, column: &Column) -> String {
        self.sort_expression(column)
    }

    fn write_equals(&self, out: &mut SqlWriter<'_>, column: &Column, param: Param) {
        // An index finds what the collation takes for equal; comparing bytes then decides.
        if column.storage() == Storage::Text && column.info.collation != Collation::Other {
            out.push(&format!("({} = ", column.quoted));
            out.param(param.clone());
            out.push(" AND ");
            out.push(&self.text_expression(column));
            out.push(" = CAST(");
            out.param(param);
            return out.push(" AS BINARY))");
        }
        out.push(&self.equality_expression(column));
        out.push(" = ");
        out.typed_param(column.storage(), param);
    }

    fn text_expression(&self, column: &Column) -> String {
        match (column.storage(), column.info.collation) {
            (Storage::Text, Collation::Bytes | Collation::Deterministic) => {
                format!("CAST({} AS BINARY)", column.quoted)
            }
            (Storage::Text, Collation::Other) => {
                format!("CAST(CONVERT({} USING utf8mb4) AS BINARY)", column.quoted)
            }
            _ => format!("CAST(CONVERT(CAST({} AS CHAR) USING utf8mb4) AS BINARY)", column.quoted),
        }
    }

    /// Grouping changes the types of results, so that they are checked when they are read.
    fn group_expression(&self, column: &Column) -> Option<Expression> {
        let storage = column.storage();
        Some(match storage {
            // Long texts are sorted by their beginning only.
            Storage::Text if text_bytes_max(&column.info.type_name) > SORTED_BYTES_MAX => return None,
            Storage::Text | Storage::PaddedText | Storage::Printed | Storage::Uuid => {
                Expression::computed(self.text_expression(column), Storage::Text)
            }
            Storage::Boolean => Expression::integer(&format!("{} + 0", column.quoted)),
            Storage::Bytes | Storage::Json | Storage::PrintedJson | Storage::Float32 => return None,
            Storage::Integer
            | Storage::Unsigned
            | Storage::Float64
            | Storage::Decimal
            | Storage::Date
            | Storage::Timestamp
            | Storage::LocalTimestamp => Expression::computed(column.quoted.clone(), storage),
        })
    }

    fn truncated(&self, column: &Column, unit: DateUnit) -> Expression {
        let name = &column.quoted;
        let month = format!("DATE({name}) - INTERVAL DAYOFMONTH({name}) - 1 DAY");
        let text = match unit {
            DateUnit::Year => format!("DATE({name}) - INTERVAL DAYOFYEAR({name}) - 1 DAY"),
            DateUnit::Quarter => format!("{month} - INTERVAL (MONTH({name}) - 1) MOD 3 MONTH"),
            DateUnit::Month => month,
            DateUnit::Week => format!("DATE({name}) - INTERVAL WEEKDAY({name}) DAY"),
            DateUnit::Day => format!("DATE({name})"),
        };
        Expression::computed(text, Storage::Date)
    }

    fn quarter_hour(&self, column: &Column, since: &str) -> Expression {
        let name = &column.quoted;
        let text = format!(
            "CASE WHEN {name} < CAST({since} AS DATETIME(6)) THEN {name} \
             ELSE FROM_UNIXTIME(FLOOR(UNIX_TIMESTAMP({name}) / 900) * 900) END"
        );
        Expression::computed(text, Storage::Timestamp)
    }

    fn sum(&self, column: &Column) -> Option<Expression> {
        let fits = match column.storage() {
            Storage::Integer | Storage::Unsigned => true,
            Storage::Decimal => declared_digits(&column.info.type_name) <= DECIMAL_DIGITS - SUM_DIGITS,
            _ => false,
        };
        fits.then(|| Expression::computed(format!("SUM({})", column.quoted), Storage::Decimal))
    }

    fn extreme(&self, function: &str, column: &Column) -> Option<Expression> {
        let storage = column.storage();
        Some(match storage {
            Storage::Text | Storage::PaddedText | Storage::Printed | Storage::Uuid => {
                Expression::computed(format!("{function}({})", self.text_expression(column)), Storage::Text)
            }
            Storage::Boolean => Expression::integer(&format!("{function}({} + 0)", column.quoted)),
            Storage::Bytes | Storage::Json | Storage::PrintedJson | Storage::Float32 => return None,
            Storage::Integer
            | Storage::Unsigned
            | Storage::Float64
            | Storage::Decimal
            | Storage::Date
            | Storage::Timestamp
            | Storage::LocalTimestamp => {
                Expression::computed(format!("{function}({})", column.quoted), storage)
            }
        })
    }

    fn typed(&self, storage: Storage, placeholder: &str) -> String {
        match storage {
            Storage::Text | Storage::PaddedText | Storage::Printed | Storage::Uuid => {
                format!("CAST({placeholder} AS BINARY)")
            }
            Storage::Date => format!("CAST({placeholder} AS DATE)"),
            Storage::Timestamp | Storage::LocalTimestamp => format!("CAST({placeholder} AS DATETIME(6))"),
            _ => placeholder.to_owned(),
        }
    }

    fn typed_decimal(&self, placeholder: &str, digits: &str) -> String {
        let fraction =
            decimal_parts(digits).map_or(0, |(_, _, fraction)| fraction.len()).min(FRACTION_DIGITS);
        format!("CAST({placeholder} AS DECIMAL({DECIMAL_DIGITS}, {fraction}))")
    }

    /// Months and days may be 0, and years, too.
    fn exceptional_time(&self, text: &str) -> Option<String> {
        let (date, time) = text.split_once('T').unwrap_or((text, "00:00:00"));
        let time = time.strip_suffix('Z').unwrap_or(time);
        // As on a day that exists, so that the rest is checked.
        let is_time = timestamp_sort_key(&format!("2000-01-01T{time}")).is_some();
        let is_date = date.len() == 10
            && date.bytes().enumerate().all(|(at, byte)| match at {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        (is_date && is_time).then(|| if text.contains('T') { format!("{date} {time}") } else { date.into() })
    }

    fn ordinary_values(&self, column: &Column) -> Option<String> {
        let name = &column.quoted;
        let is_time =
            matches!(column.storage(), Storage::Date | Storage::Timestamp | Storage::LocalTimestamp);
        is_time.then(|| format!("DAYOFMONTH({name}) > 0 AND MONTH({name}) > 0"))
    }

    fn order_by(&self, expression: &str, descending: bool) -> String {
        let direction = if descending { "DESC" } else { "ASC" };
        format!("{expression} IS NULL, {expression} {direction}")
    }

    fn write_lowered(&self, out: &mut SqlWriter<'_>, text: &str, lowering: &Lowering) {
        let mut all: Vec<(String, String)> = Vec::new();
        if lowering.dotted_i {
            all.push((DOTTED_I.0.into(), DOTTED_I.1.into()));
        }
        all.extend(lowering.pairs.iter().map(|(from, to)| (from.to_string(), to.to_string())));
        out.push(&"REPLACE(".repeat(all.len()));
        out.push(text);
        for (from, to) in all {
            out.push(", CAST(");
            out.param(Param::Text(from));
            out.push(" AS BINARY), CAST(");
            out.param(Param::Text(to));
            out.push(" AS BINARY))");
        }
    }

    fn write_contains(
        &self,
        out: &mut SqlWriter<'_>,
        write_text: &dyn Fn(&mut SqlWriter<'_>),
        operand: &str,
        prefix: bool,
    ) {
        if prefix {
            out.push("LEFT(");
            write_text(out);
            out.push(&format!(", {}) = CAST(", operand.len()));
            out.param(Param::Text(operand.into()));
            return out.push(" AS BINARY)");
        }
        out.push("LOCATE(CAST(");
        out.param(Param::Text(operand.into()));
        out.push(" AS BINARY), ");
        write_text(out);
        out.push(") > 0");
    }

    fn can_match_words(&self, terms: &[String]) -> bool {
        terms.iter().any(|term| full_text::is_indexed(term))
    }

    fn write_word_match(
        &self,
        out: &mut SqlWriter<'_>,
        _index: &TextIndexKind,
        columns: &[&Column],
        terms: &[String],
    ) {
        let names: Vec<&str> = columns.iter().map(|column| column.quoted.as_str()).collect();
        out.push(&format!("MATCH({}) AGAINST(", names.join(", ")));
        out.param(Param::Text(full_text::boolean_query(terms)));
        out.push(" IN BOOLEAN MODE)");
        // The collation of the index equates more letters than `contract` does, and not every term is in the index.
        for term in terms {
            out.push(" AND (FALSE");
            for column in columns {
                out.push(" OR ");
                out.contains(column, term, false);
            }
            out.push(")");
        }
    }

    fn write_in_keys(&self, out: &mut SqlWriter<'_>, column: &Column, keys: &KeySet) {
        let storage = column.storage();
        let is_number = matches!(storage, Storage::Integer | Storage::Unsigned | Storage::Decimal);
        let params: Vec<Param> = keys.values().filter_map(|key| key_param(storage, is_number, key)).collect();
        if params.is_empty() {
            return out.push("FALSE");
        }
        out.push(&self.equality_expression(column));
        if params.len() > LISTED_KEYS_MAX {
            let kind = match storage {
                _ if is_number => "BIGINT",
                Storage::Date => "DATE",
                _ => "LONGTEXT CHARACTER SET utf8mb4",
            };
            let value = if kind.starts_with("LONG") { "CAST(keys_.v AS BINARY)" } else { "keys_.v" };
            out.push(&format!(" IN (SELECT {value} FROM JSON_TABLE("));
            out.param(Param::Text(json_array(params.iter())));
            return out.push(&format!(", '$[*]' COLUMNS (v {kind} PATH '$')) AS keys_)"));
        }
        out.push(" IN (");
        // Few different statements for many sets: the last key is repeated.
        let count = params.len().next_power_of_two();
        let last = params.last().cloned();
        let repeated = params.into_iter().chain(last.into_iter().cycle()).take(count);
        for (at, param) in repeated.enumerate() {
            if at > 0 {
                out.push(", ");
            }
            out.typed_param(storage, param);
        }
        out.push(")");
    }

    fn write_ranks(&self, out: &mut SqlWriter<'_>, alias: &str, column: &Column, ranks: &[(Param, i64)]) {
        let is_integer = column.storage() == Storage::Integer;
        let is_key = |key: &Param| matches!(key, Param::Integer(_)) == is_integer;
        let rows: Vec<String> = ranks
            .iter()
            .filter(|(key, _)| is_key(key))
            .map(|(key, rank)| json_array([key, &Param::Integer(*rank)].into_iter()))
            .collect();
        let (kind, key, wanted) = match is_integer {
            true => ("BIGINT", format!("{alias}.k"), column.quoted.clone()),
            false => (
                "LONGTEXT CHARACTER SET utf8mb4",
                format!("CAST({alias}.k AS BINARY)"),
                self.text_expression(column),
            ),
        };
        out.push(" LEFT JOIN JSON_TABLE(");
        out.param(Param::Text(format!("[{}]", rows.join(","))));
        out.push(&format!(
            ", '$[*]' COLUMNS (k {kind} PATH '$[0]', r BIGINT PATH '$[1]')) AS {alias} ON {wanted} = {key}"
        ));
    }

    fn special_values(&self, column: &ColumnInfo) -> Option<String> {
        let name = format!("{TABLE_ALIAS}.{}", self.quote(&column.name));
        let test = match column.storage {
            Storage::Integer if column.is_wide => {
                format!("{name} NOT BETWEEN -{SAFE_INTEGER_MAX} AND {SAFE_INTEGER_MAX}")
            }
            Storage::Integer if column.is_boolean => format!("{name} NOT IN (0, 1)"),
            Storage::Unsigned => {
                format!("({name} > {SAFE_INTEGER_MAX}) + ({name} > {})", i64::MAX)
            }
            Storage::Date | Storage::Timestamp | Storage::LocalTimestamp => {
                format!("DAYOFMONTH({name}) = 0 OR MONTH({name}) = 0")
            }
            _ => return None,
        };
        Some(format!("COALESCE(MAX({test}), 0)"))
    }

    /// The number that InnoDB gives to rows of a table without a key is not shown.
    fn row_id(&self) -> &'static [&'static str] {
        &[]
    }

    fn stored(&self, column: &Column, placeholder: &str) -> String {
        match column.storage() {
            Storage::Date | Storage::Timestamp | Storage::LocalTimestamp => {
                self.typed(column.storage(), placeholder)
            }
            _ => placeholder.to_owned(),
        }
    }

    fn new_key(&self) -> NewKey {
        NewKey::Ask("SELECT LAST_INSERT_ID()")
    }

    fn default_values(&self) -> &'static str {
        "() VALUES ()"
    }

    fn delete_from(&self, table: &str) -> String {
        format!("DELETE {TABLE_ALIAS} FROM {table} AS {TABLE_ALIAS}")
    }

    fn insert_ignore(&self) -> (&'static str, &'static str) {
        ("INSERT IGNORE", "")
    }

    fn create_idempotency_table(&self, quoted: &str) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {quoted} (seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, \
             key_digest BINARY(32) NOT NULL UNIQUE, request_digest BINARY(32) NOT NULL, response LONGBLOB NOT NULL, \
             created_ms BIGINT NOT NULL) ENGINE = InnoDB"
        )
    }

    fn syntax(&self) -> Syntax {
        Syntax::MySql
    }

    fn repeats_parameters(&self) -> bool {
        true
    }

    /// Its results are read as they are.
    fn wrap_statement(&self, _columns: &[ColumnInfo]) -> Option<(String, String)> {
        None
    }

    fn changed_rows(&self) -> Option<&'static str> {
        None
    }

    fn version_expression(&self, columns: &[Column], _is_view: bool) -> String {
        let names: Vec<&str> = columns.iter().map(|column| column.quoted.as_str()).collect();
        format!(
            "CAST(COALESCE(SUM(CRC32(CONCAT_WS(CHAR(31), {}))), 0) AS SIGNED) + COUNT(*)",
            names.join(", ")
        )
    }
}

/// How many bytes a text of a column may have in UTF-8: `varchar(80)`.
fn text_bytes_max(type_name: &str) -> usize {
    let length = type_name.split(['(', ')']).nth(1).and_then(|length| length.parse::<usize>().ok());
    length.map_or(usize::MAX, |chars| chars.saturating_mul(4))
}

/// How many digits a decimal column has: `decimal(10,2)`.
fn declared_digits(type_name: &str) -> usize {
    let digits = type_name.split(['(', ',', ')']).nth(1);
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(DECIMAL_DIGITS)
}

fn key_param(storage: Storage, is_number: bool, key: ValueRef<'_>) -> Option<Param> {
    match key {
        ValueRef::Integer(n) if is_number => Some(Param::Integer(n)),
        ValueRef::Text(text) if storage == Storage::Date => is_date(text).then(|| Param::Text(text.into())),
        ValueRef::Text(text) if !is_number => Some(Param::Text(text.into())),
        _ => None,
    }
}

fn json_array<'p>(params: impl Iterator<Item = &'p Param>) -> String {
    let mut out = Vec::from(*b"[");
    for param in params {
        if out.len() > 1 {
            out.push(b',');
        }
        match param {
            Param::Integer(n) => out.extend(n.to_string().bytes()),
            Param::Text(text) => write::string(&mut out, text),
            _ => out.extend(b"null"),
        }
    }
    out.push(b']');
    String::from_utf8(out).unwrap_or_default()
}

//! How PostgreSQL spells comparisons and orders.

use contract::ValueRef;
use contract::infer::SAFE_INTEGER_MAX;
use contract::order::timestamp_sort_key;
use contract::source::{DateUnit, KeySet};

use crate::column::{Column, Storage};
use crate::connection::Param;
use crate::dialect::{Dialect, Expression, NewKey, SqlWriter, TABLE_ALIAS};
use crate::lowercase::{DOTTED_I, Lowering};
use crate::operand::{is_date, is_uuid};
use crate::schema::{Collation, ColumnInfo, TextIndexKind};
use crate::statement::Syntax;

pub(crate) struct PostgresDialect;

impl PostgresDialect {
    /// The type that values of a storage are compared as.
    fn type_of(storage: Storage) -> &'static str {
        match storage {
            Storage::Integer => "int8",
            Storage::Unsigned | Storage::Decimal => "numeric",
            Storage::Float32 | Storage::Float64 => "float8",
            Storage::Boolean => "bool",
            Storage::Date => "date",
            Storage::Timestamp => "timestamptz",
            Storage::LocalTimestamp => "timestamp",
            Storage::Uuid => "uuid",
            Storage::Bytes => "bytea",
            Storage::Text | Storage::PaddedText | Storage::Printed | Storage::Json | Storage::PrintedJson => {
                "text"
            }
        }
    }
}

impl Dialect for PostgresDialect {
    fn quote(&self, name: &str) -> String {
        format!("\"{}\"", name.replace('"', "\"\""))
    }

    fn placeholder(&self, number: usize) -> String {
        format!("${number}")
    }

    fn select(&self, column: &Column) -> String {
        match column.storage() {
            Storage::Printed => format!("{}::text", column.quoted),
            Storage::PrintedJson => format!("to_json({})::text", column.quoted),
            _ => column.quoted.clone(),
        }
    }

    fn sort_expression(&self, column: &Column) -> String {
        match (column.storage(), column.info.collation) {
            (Storage::Text, Collation::Bytes) => column.quoted.clone(),
            (Storage::Text, _) => format!("{} COLLATE \"C\"", column.quoted),
            (Storage::PaddedText | Storage::Printed, _) => format!("{}::text COLLATE \"C\"", column.quoted),
            _ => column.quoted.clone(),
        }
    }

    fn equality_expression(&self, column: &Column) -> String {
        match (column.storage(), column.info.collation) {
            // An index of any deterministic collation finds equal texts.
            (Storage::Text, Collation::Deterministic) => column.quoted.clone(),
            _ => self.sort_expression(column),
        }
    }

    fn text_expression(&self, column: &Column) -> String {
        format!("({}::text COLLATE \"C\")", column.quoted)
    }

    fn group_expression(&self, column: &Column) -> Option<Expression> {
        Some(match (column.storage(), column.info.collation) {
            (Storage::Text, Collation::Other) | (Storage::PaddedText | Storage::Printed, _) => {
                Expression::computed(self.text_expression(column), Storage::Text)
            }
            (Storage::Bytes | Storage::Json | Storage::PrintedJson, _) => return None,
            _ => Expression { text: column.quoted.clone(), result: column.result() },
        })
    }

    fn truncated(&self, column: &Column, unit: DateUnit) -> Expression {
        let (name, unit) = (&column.quoted, unit.as_str());
        match column.storage() {
            Storage::Date => {
                Expression::computed(format!("date_trunc('{unit}', {name}::timestamp)::date"), Storage::Date)
            }
            // In UTC, as the session is.
            _ => Expression { text: format!("date_trunc('{unit}', {name})"), result: column.result() },
        }
    }

    fn quarter_hour(&self, column: &Column, since: &str) -> Expression {
        let name = &column.quoted;
        let text = format!(
            "CASE WHEN {name} < {since}::timestamptz THEN {name} ELSE date_trunc('hour', {name}) \
             + floor(extract(minute FROM {name}) / 15) * interval '15 minutes' END"
        );
        Expression { text, result: column.result() }
    }

    fn sum(&self, column: &Column) -> Option<Expression> {
        let is_exact = matches!(column.storage(), Storage::Integer | Storage::Decimal);
        is_exact.then(|| Expression::computed(format!("sum({})::numeric", column.quoted), Storage::Decimal))
    }

    fn extreme(&self, function: &str, column: &Column) -> Option<Expression> {
        Some(match column.storage() {
            Storage::Text | Storage::PaddedText | Storage::Printed | Storage::Uuid => {
                Expression::computed(format!("{function}({})", self.text_expression(column)), Storage::Text)
            }
            Storage::Boolean => {
                Expression::computed(format!("{function}({}::int)", column.quoted), Storage::Integer)
            }
            Storage::Bytes | Storage::Json | Storage::PrintedJson => return None,
            Storage::Integer
            | Storage::Unsigned
            | Storage::Float32
            | Storage::Float64
            | Storage::Decimal
            | Storage::Date
            | Storage::Timestamp
            | Storage::LocalTimestamp => {
                Expression { text: format!("{function}({})", column.quoted), result: column.result() }
            }
        })
    }

    fn typed(&self, storage: Storage, placeholder: &str) -> String {
        match storage {
            Storage::Boolean => format!("({placeholder} <> 0)"),
            Storage::Decimal
            | Storage::Date
            | Storage::Timestamp
            | Storage::LocalTimestamp
            | Storage::Uuid => {
                format!("{placeholder}::{}", Self::type_of(storage))
            }
            _ => placeholder.to_owned(),
        }
    }

    fn typed_decimal(&self, placeholder: &str, _digits: &str) -> String {
        format!("{placeholder}::numeric")
    }

    /// Years before the year 1 are counted backwards from it, and written with `BC`.
    fn exceptional_time(&self, text: &str) -> Option<String> {
        if matches!(text, "infinity" | "-infinity") {
            return Some(text.to_owned());
        }
        let (is_negative, unsigned) = match text.as_bytes().first()? {
            b'+' => (false, &text[1..]),
            b'-' => (true, &text[1..]),
            _ => (false, text),
        };
        let (year, rest) = unsigned.split_once('-')?;
        let year: i64 = year.parse().ok().filter(|_| year.bytes().all(|byte| byte.is_ascii_digit()))?;
        let year = if is_negative { -year } else { year };
        // The same day of a year that every parser knows, because the calendar repeats.
        let known = format!("{:04}-{rest}", 2000 + year.rem_euclid(400));
        let years = if rest.contains('T') { -4711..=294_275 } else { -4711..=5_874_896 };
        if !years.contains(&year) || timestamp_sort_key(&known).is_none() {
            return None;
        }
        let rest = rest.trim_end_matches('Z').replace('T', " ");
        Some(match year {
            1.. => format!("{year:04}-{rest}"),
            _ => format!("{:04}-{rest} BC", 1 - year),
        })
    }

    fn ordinary_values(&self, column: &Column) -> Option<String> {
        let name = &column.quoted;
        match column.storage() {
            // `NaN` for itself and for the infinities, in every version of the server.
            Storage::Float32 | Storage::Float64 | Storage::Decimal => Some(format!("{name} - {name} = 0")),
            Storage::Date | Storage::Timestamp | Storage::LocalTimestamp => {
                Some(format!("{name} >= '0001-01-01 BC' AND {name} < '10000-01-01'"))
            }
            _ => None,
        }
    }

    fn order_by(&self, expression: &str, descending: bool) -> String {
        let direction = if descending { "DESC" } else { "ASC" };
        format!("{expression} {direction} NULLS LAST")
    }

    fn write_lowered(&self, out: &mut SqlWriter<'_>, text: &str, lowering: &Lowering) {
        let replaced = match lowering.dotted_i {
            true => format!("replace({text}, '{}', '{}')", DOTTED_I.0, DOTTED_I.1),
            false => text.to_owned(),
        };
        if lowering.pairs.is_empty() {
            return out.push(&replaced);
        }
        let (from, to): (String, String) = lowering.pairs.iter().copied().unzip();
        let (from, to) = (out.bind(Param::Text(from)), out.bind(Param::Text(to)));
        out.push(&format!("translate({replaced}, {from}, {to})"));
    }

    fn write_contains(
        &self,
        out: &mut SqlWriter<'_>,
        write_text: &dyn Fn(&mut SqlWriter<'_>),
        operand: &str,
        prefix: bool,
    ) {
        out.push(if prefix { "starts_with(" } else { "strpos(" });
        write_text(out);
        out.push(", ");
        out.param(Param::Text(operand.into()));
        out.push(if prefix { ")" } else { ") > 0" });
    }

    fn can_match_words(&self, terms: &[String]) -> bool {
        !terms.iter().any(|term| term.contains('\0'))
    }

    fn write_word_match(
        &self,
        out: &mut SqlWriter<'_>,
        index: &TextIndexKind,
        _columns: &[&Column],
        terms: &[String],
    ) {
        let TextIndexKind::Vector { vector, dictionary } = index else { return out.push("FALSE") };
        out.push(&format!("({vector}) @@ plainto_tsquery({dictionary}, "));
        out.param(Param::Text(terms.join(" ")));
        out.push(")");
    }

    fn write_in_keys(&self, out: &mut SqlWriter<'_>, column: &Column, keys: &KeySet) {
        let expression = self.equality_expression(column);
        out.push(&expression);
        out.push(" = ANY(");
        let storage = column.storage();
        let placeholder = match storage {
            Storage::Integer => out.bind(Param::Integers(integers(keys))),
            Storage::Date | Storage::Uuid => {
                let mut texts = texts(keys);
                // The database would refuse the whole set because of one text.
                texts.retain(|text| if storage == Storage::Date { is_date(text) } else { is_uuid(text) });
                let placeholder = out.bind(Param::Texts(texts));
                format!("{placeholder}::{}[]", Self::type_of(storage))
            }
            Storage::Decimal => {
                let digits = integers(keys).iter().map(i64::to_string).collect();
                let placeholder = out.bind(Param::Texts(digits));
                format!("{placeholder}::numeric[]")
            }
            _ => out.bind(Param::Texts(texts(keys))),
        };
        out.push(&placeholder);
        out.push(")");
    }

    fn write_ranks(&self, out: &mut SqlWriter<'_>, alias: &str, column: &Column, ranks: &[(Param, i64)]) {
        let is_integer = column.storage() == Storage::Integer;
        let (mut integers, mut texts, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (key, rank) in ranks {
            match key {
                Param::Integer(n) if is_integer => integers.push(*n),
                Param::Text(text) if !is_integer => texts.push(text.clone()),
                _ => continue,
            }
            places.push(*rank);
        }
        let keys = out.bind(if is_integer { Param::Integers(integers) } else { Param::Texts(texts) });
        let places = out.bind(Param::Integers(places));
        let key = if is_integer { column.quoted.clone() } else { self.text_expression(column) };
        out.push(&format!(" LEFT JOIN unnest({keys}, {places}) AS {alias}(k, r) ON {key} = {alias}.k"));
    }

    fn special_values(&self, column: &ColumnInfo) -> Option<String> {
        let name = format!("{TABLE_ALIAS}.{}", self.quote(&column.name));
        let test = match column.storage {
            Storage::Integer if column.is_wide => {
                format!("{name} NOT BETWEEN -{SAFE_INTEGER_MAX} AND {SAFE_INTEGER_MAX}")
            }
            Storage::Float32 | Storage::Float64 | Storage::Decimal => {
                format!("{name}::text IN ('NaN', 'Infinity', '-Infinity')")
            }
            Storage::Date | Storage::Timestamp | Storage::LocalTimestamp => {
                format!("{name} >= '10000-01-01' OR {name} < '0001-01-01 BC'")
            }
            _ => return None,
        };
        Some(format!("coalesce(bool_or({test}), FALSE)::int"))
    }

    /// Each partition counts the places of its rows by itself.
    fn row_id(&self) -> &'static [&'static str] {
        &["tableoid", "ctid"]
    }

    fn stored(&self, column: &Column, placeholder: &str) -> String {
        match column.storage() {
            Storage::Printed | Storage::Json | Storage::PrintedJson => {
                format!("{placeholder}::{}", column.info.type_name)
            }
            storage => self.typed(storage, placeholder),
        }
    }

    fn new_key(&self) -> NewKey {
        NewKey::Returning
    }

    fn default_values(&self) -> &'static str {
        "DEFAULT VALUES"
    }

    fn delete_from(&self, table: &str) -> String {
        format!("DELETE FROM {table} AS {TABLE_ALIAS}")
    }

    fn insert_ignore(&self) -> (&'static str, &'static str) {
        ("INSERT", " ON CONFLICT DO NOTHING")
    }

    fn create_idempotency_table(&self, quoted: &str) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {quoted} (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
             key_digest bytea NOT NULL UNIQUE, request_digest bytea NOT NULL, response bytea NOT NULL, \
             created_ms bigint NOT NULL)"
        )
    }

    fn syntax(&self) -> Syntax {
        Syntax::Postgres
    }

    fn repeats_parameters(&self) -> bool {
        false
    }

    fn wrap_statement(&self, columns: &[ColumnInfo]) -> Option<(String, String)> {
        if !columns.iter().any(|column| column.storage.is_printed()) {
            return None;
        }
        let names: Vec<String> = (1..=columns.len()).map(|number| format!("c{number}")).collect();
        let selected = columns.iter().zip(&names).map(|(column, name)| match column.storage {
            Storage::Printed => format!("s.{name}::text"),
            Storage::PrintedJson => format!("to_json(s.{name})::text"),
            _ => format!("s.{name}"),
        });
        let selected: Vec<String> = selected.collect();
        Some((format!("SELECT {} FROM (", selected.join(", ")), format!("\n) AS s({})", names.join(", "))))
    }

    fn changed_rows(&self) -> Option<&'static str> {
        Some(
            "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::int8 FROM pg_catalog.pg_stat_xact_user_tables",
        )
    }

    fn version_expression(&self, columns: &[Column], is_view: bool) -> String {
        if is_view {
            let texts = columns.iter().map(|column| format!("{}::text", column.quoted)).collect::<Vec<_>>();
            return format!(
                "coalesce(sum(hashtextextended(concat_ws(chr(31), {}), 0) % 1000000007), 0)::int8",
                texts.join(", ")
            );
        }
        // Every change of a row is a new version of it, with the number of another transaction, at another place.
        format!(
            "coalesce(sum((({TABLE_ALIAS}.xmin::text::int8 * 1000003) + hashtext({TABLE_ALIAS}.tableoid::text || {TABLE_ALIAS}.ctid::text)) % 1000000007), 0)::int8 + count(*)"
        )
    }
}

fn integers(keys: &KeySet) -> Vec<i64> {
    let integer = |value| if let ValueRef::Integer(n) = value { Some(n) } else { None };
    keys.values().filter_map(integer).collect()
}

fn texts(keys: &KeySet) -> Vec<String> {
    let text = |value| match value {
        ValueRef::Text(text) if !text.contains('\0') => Some(text.to_owned()),
        _ => None,
    };
    keys.values().filter_map(text).collect()
}

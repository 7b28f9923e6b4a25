//! Finds the arguments that a statement stores in a column unchanged: `VALUES (:a)`, `SET c = :a`,
//! `coalesce(:a, c)`; and the arguments of `LIMIT` and `OFFSET`.
//!
//! SQLite converts a value to the column's affinity without an error. For these arguments that can be checked
//! before the statement runs. A value whose origin cannot be followed (`value_flow`) is reported, and the statement is
//! rejected. Numbers that the statement computes are checked after it ran (`read_back`).

use std::ops::Range;

use contract::source::AcceptedValues;
use contract::{Value, ValueRef};

use crate::sqlite::column::ExpectedType;
use crate::sqlite::lexer::{Token, TokenKind, TokenSlice};
use crate::sqlite::read::served_tables::ServedTables;
use crate::sqlite::schema::{Affinity, ColumnDef, RowLocator, Schema, Table};
use crate::sqlite::statement::value_flow;
use crate::sqlite::write::roundtrip;

/// An argument that is stored in a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirectParam {
    pub(crate) parameter: String,
    pub(crate) table: String,
    pub(crate) column: String,
    /// The column's type as the table declares it.
    pub(crate) declared_type: String,
    pub(crate) affinity: Affinity,
    /// Whether the statement uses the argument only for columns of text: then a boolean can be stored there
    /// as a collection stores it.
    pub(crate) is_text_only: bool,
}

impl DirectParam {
    /// Which values the column stores unchanged, if not all.
    pub(crate) fn accepted_values(&self) -> Option<AcceptedValues> {
        match self.affinity {
            _ if self.accepts_numbers_only() => Some(AcceptedValues::Numbers),
            affinity if affinity.is_numeric() => Some(AcceptedValues::NumbersAndTexts),
            Affinity::Text if !self.is_text_only => Some(AcceptedValues::Texts),
            _ => None,
        }
    }

    /// SQLite would store any text in a column of numbers, and the table could not be listed any more.
    /// Columns declared DATE or DECIMAL may hold texts too, and some type names only contain the name of a
    /// number type.
    fn accepts_numbers_only(&self) -> bool {
        let is_other = ["POINT", "INTERVAL"].iter().any(|word| self.declared_type.contains(word));
        matches!(self.affinity, Affinity::Integer | Affinity::Real) && !is_other
    }

    /// Why the column would store another value, or one that a collection could not return; `None` if it would not.
    pub(crate) fn rejection(
        &self,
        data_type: contract::DataType,
        sent: ValueRef<'_>,
        served: &ServedTables,
    ) -> rusqlite::Result<Option<String>> {
        let stored = roundtrip::apply_affinity(self.affinity, sent)?;
        let is_same = stored.as_ref().is_none_or(|stored| {
            roundtrip::is_equivalent_for_statement(data_type, sent, stored.as_value_ref())
        });
        let kept_value = stored.as_ref().map_or(sent, Value::as_value_ref);
        if self.accepts_numbers_only() && matches!(kept_value, ValueRef::Text(_) | ValueRef::Blob(_)) {
            let reason = format!(
                "it is not a number, but the column `{}`, declared as `{}`, holds numbers",
                self.column, self.declared_type
            );
            return Ok(Some(reason));
        }
        if !is_same {
            let help = roundtrip::precision_help(sent);
            return Ok(Some(format!(
                "the column `{}` is declared as `{}` and would not store it exactly{help}",
                self.column, self.declared_type
            )));
        }
        let expected = served.expected_instead(&self.table, &self.column, kept_value);
        Ok(expected.map(|ExpectedType(expected)| {
            format!("the column `{}` holds {expected}, and this is not one", self.column)
        }))
    }
}

/// The values that a statement stores in columns.
#[derive(Debug, Default)]
pub(crate) struct StoredParams {
    /// The arguments that are stored unchanged, each once for each column.
    pub(crate) direct: Vec<DirectParam>,
    /// The numeric columns for which that cannot be proven.
    pub(crate) untraced: Vec<UntracedColumn>,
}

/// A column that may store an argument in a way that cannot be followed, and would convert it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UntracedColumn {
    pub(crate) column: String,
    pub(crate) declared_type: String,
    /// The expression's bytes in the statement.
    pub(crate) span: Range<usize>,
}

pub(crate) fn find_all(sql: &str, tokens: &[Token], schema: &Schema) -> StoredParams {
    let mut found = StoredParams::default();
    let Some((table, values)) = value_flow::stored_values(sql, tokens, schema) else { return found };
    // Offsets of the parameters that are stored in columns of text, and of those that go elsewhere too.
    let (mut into_text, mut elsewhere) = (Vec::new(), Vec::new());
    for value in values {
        let known = table.columns.iter().find(|known| known.name.eq_ignore_ascii_case(&value.column));
        let (declared_type, affinity) = match known {
            Some(ColumnDef { declared_type, affinity, .. }) => (declared_type.as_str(), *affinity),
            None if is_rowid(table, &value.column) => ("INTEGER", Affinity::Integer),
            None => continue,
        };
        let column = known.map_or(value.column.as_str(), |known| &known.name).to_owned();
        for param in &value.flow.params {
            let is_text = affinity == Affinity::Text && !param.is_through_query;
            if is_text { &mut into_text } else { &mut elsewhere }.push(param.offset);
            let param = DirectParam {
                parameter: param.name.to_owned(),
                table: table.name.clone(),
                column: column.clone(),
                declared_type: declared_type.to_owned(),
                affinity,
                is_text_only: false,
            };
            if !found.direct.contains(&param) {
                found.direct.push(param);
            }
        }
        if value.flow.is_untraced && affinity.is_numeric() {
            let declared_type = declared_type.to_owned();
            found.untraced.push(UntracedColumn { column, declared_type, span: value.span });
        }
    }
    for param in &mut found.direct {
        let is_it = |token: &&Token| {
            token.kind == TokenKind::Parameter && token.text(sql).trim_start_matches(':') == param.parameter
        };
        param.is_text_only = tokens.iter().filter(is_it).all(|token| {
            let offset = token.span.start;
            into_text.contains(&offset) && !elsewhere.contains(&offset)
        });
    }
    found
}

/// The table that a statement stores values in, and the columns that it sets; `None` if it stores none.
pub(crate) fn assigned_columns(
    sql: &str,
    tokens: &[Token],
    schema: &Schema,
) -> Option<(String, Vec<String>)> {
    let (table, values) = value_flow::stored_values(sql, tokens, schema)?;
    Some((table.name.clone(), values.into_iter().map(|value| value.column).collect()))
}

/// Whether a name denotes the rowid, where no column has that name.
fn is_rowid(table: &Table, name: &str) -> bool {
    matches!(table.locator, RowLocator::Rowid(_))
        && ["rowid", "oid", "_rowid_"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a writing statement only inserts rows: it contains neither `UPDATE` nor `DELETE`.
pub(crate) fn only_inserts(sql: &str, tokens: &[Token]) -> bool {
    !tokens.iter().any(|token| token.is_word(sql, "UPDATE") || token.is_word(sql, "DELETE"))
}

/// The parameters that are arguments of a JSON function, or stand before `->`, each once.
pub(crate) fn json_parameters(sql: &str, tokens: &[Token]) -> Vec<String> {
    let words = TokenSlice { sql, tokens };
    let mut found: Vec<String> = Vec::new();
    let mut add = |token: &Token| {
        let name = token.text(sql).trim_start_matches(':');
        if token.kind == TokenKind::Parameter && !found.iter().any(|known| known == name) {
            found.push(name.to_owned());
        }
    };
    for (index, token) in tokens.iter().enumerate() {
        let name = words.name_at(index).unwrap_or_default().to_ascii_lowercase();
        if name.starts_with("json") && words.is_symbol(index + 1, "(") {
            let close = words.closing_paren(index + 1).unwrap_or(tokens.len());
            words
                .part(index + 2, close)
                .split_at_commas()
                .iter()
                .flat_map(|part| part.tokens)
                .for_each(&mut add);
        }
        if words.is_symbol(index + 1, "-") && words.is_symbol(index + 2, ">") {
            add(token);
        }
    }
    found
}

/// The parameters after `LIMIT` or `OFFSET`, each once.
pub(crate) fn limit_parameters(sql: &str, tokens: &[Token]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let words = TokenSlice { sql, tokens };
    for (index, token) in tokens.iter().enumerate().skip(1) {
        let is_behind = |index: usize| words.is_any_word(index, &["LIMIT", "OFFSET"]);
        // `LIMIT :from, :rows`
        let is_second = || words.is_symbol(index - 1, ",") && index > 2 && words.is_word(index - 3, "LIMIT");
        if token.kind == TokenKind::Parameter && (is_behind(index - 1) || is_second()) {
            let name = token.text(sql).trim_start_matches(':');
            if !found.iter().any(|known| known == name) {
                found.push(name.to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{find_all, limit_parameters};
    use crate::sqlite::lexer;
    use crate::sqlite::schema;

    /// Checks the direct parameters, as `argument>column`.
    fn check(sql: &str, expected: &[&str]) {
        let connection = rusqlite::Connection::open_in_memory().expect("memory");
        let tables = "CREATE TABLE t(a INTEGER, b TEXT, c AS (a + 1), \"d e\" REAL); CREATE VIEW v AS SELECT a FROM t;";
        connection.execute_batch(tables).expect("tables");
        connection.prepare(sql).expect("SQL");
        let schema = schema::read(&connection).expect("a schema");
        let tokens = lexer::tokenize(sql).expect("tokens");
        let found = find_all(sql, &tokens, &schema);
        let direct = found.direct.iter().map(|param| format!("{}>{}", param.parameter, param.column));
        let untraced = found.untraced.iter().map(|value| format!("?>{}", value.column));
        let found: Vec<String> = direct.chain(untraced).collect();
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn direct_parameters_are_found() {
        check("INSERT INTO t(a, b) VALUES(:x, :y)", &["x>a", "y>b"]);
        check("insert into main.t values(:x, :y, :z), (1, :w, 2)", &["x>a", "y>b", "w>b", "z>d e"]);
        check("REPLACE INTO \"t\" (\"d e\", [b]) VALUES(:x, (:y))", &["x>d e", "y>b"]);
        check("INSERT OR IGNORE INTO t AS u(b) SELECT :x AS n FROM t WHERE a = :y", &["x>b"]);
        check("INSERT INTO t(a, b) SELECT :x, b FROM t UNION ALL SELECT 1, :y", &["x>a", "y>b"]);
        check(
            "INSERT INTO t(a) VALUES(:x) ON CONFLICT DO UPDATE SET a = :y, b = :z WHERE a > :w RETURNING :q",
            &["x>a", "y>a", "z>b"],
        );
        check("UPDATE t SET a = :x, b = coalesce(:y, b) WHERE a = :z", &["x>a", "y>b"]);
        check("UPDATE OR IGNORE t AS u SET (a, b) = (:x, :y)", &["x>a", "y>b"]);
        check("UPDATE t SET a = a IS DISTINCT FROM 1, b = :y FROM (SELECT 1) WHERE a = :z", &["y>b"]);
        check(
            "WITH n AS (SELECT :q) UPDATE t SET a = ifnull(nullif(:x, :no), iif(:no, :y, :z))",
            &["x>a", "y>a", "z>a"],
        );
        check(
            "UPDATE t SET a = CASE WHEN :no THEN :x WHEN CASE :no WHEN 1 THEN 2 END THEN (:y) ELSE :z END",
            &["x>a", "y>a", "z>a"],
        );
        check("UPDATE t SET a = :x, a = :x", &["x>a"]);
        check(
            "UPDATE t SET a = (SELECT :x), b = ((select distinct :y FROM t WHERE a = :z))",
            &["x>a", "y>b"],
        );
        check("INSERT INTO t(rowid, b) VALUES(:x, (SELECT :y AS n))", &["x>rowid", "y>b"]);
        check("UPDATE t SET OID = :x, b = (SELECT coalesce(:y, b))", &["x>OID", "y>b"]);
    }

    #[test]
    fn parameters_are_traced_through_subqueries() {
        check("INSERT INTO t(a) SELECT x FROM (SELECT :x AS x)", &["x>a"]);
        check("INSERT INTO t(a, b) SELECT * FROM (SELECT :x, :y)", &["x>a", "y>b"]);
        check("INSERT INTO t(a, b) SELECT n.*, t.b FROM (SELECT :x AS a) AS n, t", &["x>a"]);
        check(
            "WITH n(p, q) AS (VALUES(:x, :y), (1, :z)) INSERT INTO t(b, a) SELECT p, q FROM n",
            &["x>b", "y>a", "z>a"],
        );
        check(
            "INSERT INTO t(a) WITH n AS (SELECT :x AS x), m AS (SELECT x AS y FROM n) SELECT m.y FROM m",
            &["x>a"],
        );
        check("UPDATE t SET a = n.x FROM (SELECT :x AS x, :y AS y) AS n WHERE b = n.y", &["x>a"]);
        check("UPDATE t SET a = (SELECT max(x) FROM (SELECT :x x UNION ALL SELECT a FROM t))", &["x>a"]);
        check("UPDATE t SET (a, b) = (SELECT :x, :y)", &["x>a", "y>b"]);
        check("WITH n AS (SELECT :x AS x) UPDATE t SET a = (SELECT x FROM n WHERE n.x <> :y)", &["x>a"]);
        check(
            "WITH RECURSIVE n(i) AS (SELECT :x UNION ALL SELECT i + 1 FROM n WHERE i < :y) INSERT INTO t(a) SELECT i FROM n",
            &["x>a"],
        );
        check(
            "INSERT INTO t(a, b) VALUES(1, :y) ON CONFLICT DO UPDATE SET a = excluded.b, b = b",
            &["y>b", "y>a"],
        );
        check("INSERT INTO t(a) VALUES(+:x), (:y COLLATE NOCASE), (max(:z, 1))", &["x>a", "y>a", "z>a"]);
        check("INSERT INTO t(a) SELECT x FROM t JOIN (SELECT :x AS x) ON t.b = x", &["x>a"]);
    }

    #[test]
    fn parameters_that_cannot_be_traced_are_reported_for_numeric_columns() {
        check("INSERT INTO t(a, b) SELECT value, key FROM json_each(:x)", &["?>a"]);
        check("UPDATE t SET a = (SELECT value FROM json_each(:x) LIMIT 1)", &["?>a"]);
        check("UPDATE t SET a = j.value FROM json_each(:x) AS j WHERE t.b = j.key", &["?>a"]);
        check(
            "INSERT INTO t(a) SELECT j.value FROM (SELECT :x AS doc) AS n, json_each(n.doc) AS j",
            &["?>a"],
        );
        check("INSERT INTO t(a) SELECT * FROM (SELECT j.value FROM json_each(:x) AS j)", &["?>a"]);
        for text in ["trim(:x)", "(:x) || 1", "substr(:x, 1)", "json_extract(:x, '$')", "printf('%s', :x)"] {
            check(&format!("UPDATE t SET a = {text}, b = {text}"), &["?>a"]);
        }
        check("UPDATE t SET a = (SELECT group_concat(x) FROM (SELECT :x AS x))", &["?>a"]);
        check("WITH n AS (SELECT :x AS x) UPDATE t SET a = lower((SELECT x FROM n))", &["?>a"]);
        check("UPDATE t SET a = trim(b), \"d e\" = b || '' WHERE b = :x", &[]);
    }

    #[test]
    fn subqueries_that_convert_or_only_compare_their_parameters_are_accepted() {
        for sql in [
            "INSERT INTO t(a) SELECT cast(value AS INTEGER) FROM json_each(:x)",
            "INSERT INTO t(b) SELECT value FROM json_each(:x)",
            "INSERT INTO t(a) SELECT a FROM t WHERE b IN (SELECT value FROM json_each(:x))",
            "INSERT INTO t(a) SELECT n.a FROM (SELECT a FROM t WHERE b = :x) AS n",
            "UPDATE t SET a = a + 1 FROM json_each(:x) AS j WHERE t.b = j.value",
            "INSERT INTO t(a) SELECT x + 1 FROM (SELECT :x AS x)",
            "INSERT INTO t(a) SELECT count(*) FROM json_each(:x)",
            "UPDATE t SET a = (SELECT v.a FROM v WHERE v.a = :x)",
        ] {
            check(sql, &[]);
        }
    }

    #[test]
    fn computed_and_compared_parameters_are_not_direct() {
        for sql in [
            "SELECT a FROM t WHERE a = :x",
            "DELETE FROM t WHERE a = :x",
            "INSERT INTO t(a) VALUES(:x + 1)",
            "INSERT INTO t(a) VALUES(cast(:x AS INTEGER))",
            "INSERT INTO t(a) VALUES((SELECT a FROM t WHERE b = :x))",
            "INSERT INTO t(a) VALUES(-:x), (abs(:x))",
            "INSERT INTO t DEFAULT VALUES",
            "INSERT INTO t(a, b) SELECT t.a, t.b FROM t WHERE a = :x",
            "UPDATE t SET b = lower(:x), b = a = :x, \"d e\" = (:x IN (1, :x))",
            "UPDATE t SET a = nullif(1, :x), b = iif(:x, 1, 2)",
            "UPDATE t SET b = 'SET a = :x' WHERE b = :x",
        ] {
            check(sql, &[]);
        }
    }

    #[test]
    fn limit_parameters_are_found() {
        for (sql, expected) in [
            ("SELECT 1 LIMIT :n", &["n"][..]),
            ("SELECT :a FROM (SELECT 1 LIMIT :n) LIMIT :m OFFSET :n", &["n", "m"]),
            ("SELECT 1 LIMIT :from, :n", &["from", "n"]),
            ("SELECT 1 WHERE :n > 1 LIMIT 5", &[]),
            ("SELECT 1 LIMIT min(:n, 5)", &[]),
        ] {
            assert_eq!(limit_parameters(sql, &lexer::tokenize(sql).expect("tokens")), expected, "{sql}");
        }
    }
}

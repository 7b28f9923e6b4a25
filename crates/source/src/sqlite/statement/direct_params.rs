//! Finds the arguments that a statement stores in a column unchanged: `VALUES (:a)`, `SET c = :a`,
//! `coalesce(:a, c)`; and the arguments of `LIMIT` and `OFFSET`.
//!
//! SQLite converts a value to the column's affinity without an error. For these arguments that can be checked
//! in advance; values that the statement computes are the author's responsibility. This works on tokens, not
//! on parsed SQL: where it is not sure that an argument is stored unchanged, it reports nothing.

use contract::source::AcceptedValues;
use contract::{Value, ValueRef};

use crate::sqlite::lexer::{Token, TokenKind};
use crate::sqlite::schema::{Affinity, RowLocator, Schema, Table, TableKind};
use crate::sqlite::write::roundtrip;

/// An argument that is stored in a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirectParam {
    pub(crate) parameter: String,
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

    /// Why the column would store another value, or `None`.
    pub(crate) fn describe_difference(
        &self,
        kind: contract::DataType,
        said: ValueRef<'_>,
    ) -> rusqlite::Result<Option<String>> {
        let stored = roundtrip::apply_affinity(self.affinity, said)?;
        let is_same = stored
            .as_ref()
            .is_none_or(|stored| roundtrip::is_equivalent_for_statement(kind, said, stored.as_value_ref()));
        let kept = stored.as_ref().map_or(said, Value::as_value_ref);
        if self.accepts_numbers_only() && matches!(kept, ValueRef::Text(_) | ValueRef::Blob(_)) {
            let why = format!(
                "it is not a number, but the column `{}`, declared as `{}`, holds numbers",
                self.column, self.declared_type
            );
            return Ok(Some(why));
        }
        Ok((!is_same).then(|| {
            format!(
                "the column `{}` is declared as `{}` and would not store it exactly",
                self.column, self.declared_type
            )
        }))
    }
}

/// Functions that return one of their arguments unchanged: the first and last index of those arguments.
const PASS_THROUGH_FUNCTIONS: [(&str, usize, usize); 5] = [
    ("coalesce", 0, usize::MAX),
    ("ifnull", 0, usize::MAX),
    ("nullif", 0, 0),
    ("iif", 1, usize::MAX),
    ("if", 1, usize::MAX),
];
/// Keywords that end a list of assignments or of result columns.
const LIST_END_KEYWORDS: [&str; 13] = [
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "WINDOW",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "RETURNING",
    "ON",
    "SET",
];

/// All of them, each once.
pub(crate) fn find_all(sql: &str, tokens: &[Token], schema: &Schema) -> Vec<DirectParam> {
    let words = TokenSlice { sql, tokens };
    let (mut found, mut into_text): (Vec<DirectParam>, Vec<String>) = (Vec::new(), Vec::new());
    let Some((table, begin)) = words.target_table(schema) else { return found };
    let mut put = |column: &str, item: &[Token]| {
        let known = table.columns.iter().find(|known| known.name.eq_ignore_ascii_case(column));
        let (declared, affinity) = match known {
            Some(known) => (known.declared_type.as_str(), known.affinity),
            None if is_rowid(table, column) => ("INTEGER", Affinity::Integer),
            None => return,
        };
        for parameter in words.passed_params(item) {
            let one = DirectParam {
                parameter: parameter.to_owned(),
                column: known.map_or(column, |known| &known.name).to_owned(),
                declared_type: declared.to_owned(),
                affinity,
                is_text_only: false,
            };
            if one.affinity == Affinity::Text {
                into_text.push(one.parameter.clone());
            }
            if !found.contains(&one) {
                found.push(one);
            }
        }
    };
    words.visit_inserted(table, begin, &mut put);
    words.visit_assigned(begin, &mut put);
    let is_it = |token: &&Token, name: &str| {
        token.kind == TokenKind::Parameter && token.text(sql).trim_start_matches(':') == name
    };
    for one in &mut found {
        let places = tokens.iter().filter(|token| is_it(token, &one.parameter)).count();
        let texts = into_text.iter().filter(|name| **name == one.parameter).count();
        one.is_text_only = places == texts;
    }
    found
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

/// The parameters after `LIMIT` or `OFFSET`, each once.
pub(crate) fn limit_parameters(sql: &str, tokens: &[Token]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let words = TokenSlice { sql, tokens };
    for (at, token) in tokens.iter().enumerate().skip(1) {
        let is_behind = |at: usize| words.is_word(at, "LIMIT") || words.is_word(at, "OFFSET");
        // `LIMIT :from, :rows`
        let is_second = || words.is_symbol(at - 1, ",") && at > 2 && words.is_word(at - 3, "LIMIT");
        if token.kind == TokenKind::Parameter && (is_behind(at - 1) || is_second()) {
            let name = token.text(sql).trim_start_matches(':');
            if !found.iter().any(|known| known == name) {
                found.push(name.to_owned());
            }
        }
    }
    found
}

#[derive(Clone, Copy)]
struct TokenSlice<'s> {
    sql: &'s str,
    tokens: &'s [Token],
}

impl<'s> TokenSlice<'s> {
    fn is_word(&self, at: usize, word: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is_word(self.sql, word))
    }

    fn is_symbol(&self, at: usize, sign: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is_symbol(self.sql, sign))
    }

    /// A name without its quotes.
    fn unquoted_name(&self, token: &Token) -> Option<String> {
        let text = token.text(self.sql);
        match token.kind {
            TokenKind::Word => Some(text.to_owned()),
            TokenKind::QuotedName => {
                let inner = text.get(1..text.len() - 1)?;
                let quote = &text[..1];
                Some(if quote == "[" { inner.to_owned() } else { inner.replace(&quote.repeat(2), quote) })
            }
            TokenKind::Literal | TokenKind::Number | TokenKind::Parameter | TokenKind::Symbol => None,
        }
    }

    /// The index of the parenthesis that closes this one.
    fn closing_paren(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        (open..self.tokens.len()).find(|at| {
            depth += usize::from(self.is_symbol(*at, "("));
            depth -= usize::from(self.is_symbol(*at, ")"));
            depth == 0
        })
    }

    /// The table that is written to, and the index of the token after its name.
    fn target_table<'t>(&self, schema: &'t Schema) -> Option<(&'t Table, usize)> {
        let mut at = 0;
        // Before the verb there can only be `WITH`, whose queries are in parentheses.
        while !["INSERT", "REPLACE", "UPDATE"].iter().any(|verb| self.is_word(at, verb)) {
            at = if self.is_symbol(at, "(") { self.closing_paren(at)? + 1 } else { at + 1 };
            if at >= self.tokens.len() {
                return None;
            }
        }
        at += if self.is_word(at + 1, "OR") { 3 } else { 1 };
        at += usize::from(self.is_word(at, "INTO"));
        let mut name = self.unquoted_name(self.tokens.get(at)?)?;
        if self.is_symbol(at + 1, ".") {
            at += 2;
            name = self.unquoted_name(self.tokens.get(at)?)?;
        }
        let table = schema.tables.iter().find(|table| table.name.eq_ignore_ascii_case(&name))?;
        (table.kind == TableKind::Ordinary).then_some((table, at + 1))
    }

    /// Items between commas, up to a keyword or a closing parenthesis; and the index of that end.
    fn split_items(&self, from: usize) -> (Vec<&'s [Token]>, usize) {
        let (mut items, mut begin, mut at) = (Vec::new(), from, from);
        while at < self.tokens.len() {
            if self.is_symbol(at, "(") {
                at = self.closing_paren(at).map_or(self.tokens.len(), |end| end + 1);
                continue;
            }
            // `IS DISTINCT FROM` is a comparison.
            let is_comparison = at > 0 && self.is_word(at - 1, "DISTINCT") && self.is_word(at, "FROM");
            let is_end = self.is_symbol(at, ")")
                || self.is_symbol(at, ";")
                || (!is_comparison && LIST_END_KEYWORDS.iter().any(|word| self.is_word(at, word)));
            if is_end {
                break;
            }
            if self.is_symbol(at, ",") {
                items.push(&self.tokens[begin..at]);
                begin = at + 1;
            }
            at += 1;
        }
        let at = at.min(self.tokens.len());
        items.push(&self.tokens[begin.min(at)..at]);
        (items, at)
    }

    /// Which expression an `INSERT` stores in which column.
    fn visit_inserted(&self, table: &Table, begin: usize, put: &mut impl FnMut(&str, &[Token])) {
        let mut at = begin;
        at += if self.is_word(at, "AS") { 2 } else { 0 };
        let columns: Vec<String> = if self.is_symbol(at, "(") {
            let (items, end) = self.split_items(at + 1);
            at = end + 1;
            items
                .iter()
                .map(|item| item.first().and_then(|token| self.unquoted_name(token)).unwrap_or_default())
                .collect()
        } else {
            let set = table.columns.iter().filter(|column| !column.is_generated);
            set.map(|column| column.name.clone()).collect()
        };
        let mut put_all = |items: &[&[Token]]| {
            for (column, item) in columns.iter().zip(items) {
                // `*` stands for any number of columns.
                if item.last().is_some_and(|token| token.is_symbol(self.sql, "*")) {
                    break;
                }
                put(column, item);
            }
        };
        if self.is_word(at, "VALUES") {
            at += 1;
            while self.is_symbol(at, "(") {
                let (items, end) = self.split_items(at + 1);
                put_all(&items);
                at = end + 1;
                at += usize::from(self.is_symbol(at, ","));
            }
            return;
        }
        // One or more `SELECT`s, outside parentheses.
        while at < self.tokens.len() {
            if self.is_word(at, "SELECT") {
                at += 1;
                at += usize::from(self.is_word(at, "ALL") || self.is_word(at, "DISTINCT"));
                let (items, end) = self.split_items(at);
                put_all(&items);
                at = end;
            } else if self.is_symbol(at, "(") {
                at = self.closing_paren(at).map_or(self.tokens.len(), |end| end + 1);
            } else {
                at += 1;
            }
        }
    }

    /// Which expression a `SET` stores in which column, in an `UPDATE` or after `ON CONFLICT`.
    fn visit_assigned(&self, begin: usize, put: &mut impl FnMut(&str, &[Token])) {
        let mut at = begin;
        while at < self.tokens.len() {
            if self.is_symbol(at, "(") {
                at = self.closing_paren(at).map_or(self.tokens.len(), |end| end + 1);
                continue;
            }
            if !self.is_word(at, "SET") {
                at += 1;
                continue;
            }
            let (items, end) = self.split_items(at + 1);
            at = end;
            for item in items {
                let Some(equals) = item.iter().position(|token| token.is_symbol(self.sql, "=")) else {
                    continue;
                };
                let (left, right) = (&item[..equals], &item[equals + 1..]);
                match left {
                    [name] => {
                        put(&self.unquoted_name(name).unwrap_or_default(), right);
                    }
                    // `(a, b) = (:a, :b)`
                    [open, .., _] if open.is_symbol(self.sql, "(") => {
                        let (left, right) =
                            (TokenSlice { tokens: left, ..*self }, TokenSlice { tokens: right, ..*self });
                        if !right.is_symbol(0, "(") {
                            continue;
                        }
                        let ((names, _), (values, _)) = (left.split_items(1), right.split_items(1));
                        for (name, value) in names.iter().zip(values) {
                            let name = name.first().and_then(|token| self.unquoted_name(token));
                            put(&name.unwrap_or_default(), value);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// The parameters that an expression may return unchanged.
    fn passed_params(&self, item: &'s [Token]) -> Vec<&'s str> {
        let words = TokenSlice { sql: self.sql, tokens: item };
        let is_name = |at: usize| item.get(at).is_some_and(|token| token.kind == TokenKind::Word);
        match item {
            [value] if value.kind == TokenKind::Parameter => {
                vec![value.text(self.sql).trim_start_matches(':')]
            }
            [expression @ .., word, _] if !expression.is_empty() && word.is_word(self.sql, "AS") => {
                self.passed_params(expression)
            }
            [first, .., last] if first.is_word(self.sql, "CASE") && last.is_word(self.sql, "END") => {
                words.case_branches().into_iter().flat_map(|branch| self.passed_params(branch)).collect()
            }
            _ if words.is_symbol(0, "(") && words.closing_paren(0) == Some(item.len() - 1) => {
                // `(SELECT :a)` returns what `(:a)` does, or NULL.
                let is_word = |word| words.is_word(1, "SELECT") && words.is_word(2, word);
                let begin = 1 + usize::from(words.is_word(1, "SELECT"));
                let begin = begin + usize::from(is_word("ALL") || is_word("DISTINCT"));
                let (items, _) = words.split_items(begin);
                if let [only] = items[..] { self.passed_params(only) } else { Vec::new() }
            }
            _ if is_name(0) && words.is_symbol(1, "(") && words.closing_paren(1) == Some(item.len() - 1) => {
                let known = PASS_THROUGH_FUNCTIONS.iter().find(|(name, ..)| words.is_word(0, name));
                let Some((_, first, last)) = known else { return Vec::new() };
                let (items, _) = words.split_items(2);
                let parts = items.into_iter().enumerate().filter(|(at, _)| (first..=last).contains(&at));
                parts.flat_map(|(_, part)| self.passed_params(part)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The expressions after `THEN` and `ELSE` of a `CASE` that is the whole expression.
    fn case_branches(&self) -> Vec<&'s [Token]> {
        let (mut branches, mut begin, mut depth, mut at) = (Vec::new(), None, 0_usize, 0);
        while at < self.tokens.len() {
            if self.is_symbol(at, "(") {
                at = self.closing_paren(at).map_or(self.tokens.len(), |end| end + 1);
                continue;
            }
            if depth == 1 && ["WHEN", "ELSE", "END"].iter().any(|word| self.is_word(at, word)) {
                branches.extend(begin.take().map(|begin: usize| &self.tokens[begin..at]));
            }
            if depth == 1 && (self.is_word(at, "THEN") || self.is_word(at, "ELSE")) {
                begin = Some(at + 1);
            }
            depth += usize::from(self.is_word(at, "CASE"));
            depth = depth.saturating_sub(usize::from(self.is_word(at, "END")));
            at += 1;
        }
        branches
    }
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
        let found: Vec<String> =
            found.iter().map(|one| format!("{}>{}", one.parameter, one.column)).collect();
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn direct_parameters_are_found() {
        check("INSERT INTO t(a, b) VALUES(:x, :y)", &["x>a", "y>b"]);
        check("insert into main.t values(:x, :y, :z), (1, :w, 2)", &["x>a", "y>b", "z>d e", "w>b"]);
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
    fn computed_and_compared_parameters_are_not_direct() {
        for sql in [
            "SELECT a FROM t WHERE a = :x",
            "DELETE FROM t WHERE a = :x",
            "INSERT INTO t(a) VALUES(:x + 1)",
            "INSERT INTO t(a) VALUES(cast(:x AS INTEGER))",
            "INSERT INTO t(a) VALUES((SELECT a FROM t WHERE b = :x))",
            "INSERT INTO t(a) VALUES(-:x), ((:x) || 1), (abs(:x))",
            "INSERT INTO t DEFAULT VALUES",
            "INSERT INTO t(a, b) SELECT t.a, t.b FROM t WHERE a = :x",
            "UPDATE t SET a = lower(:x), b = a = :x, \"d e\" = (:x IN (1, :x))",
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

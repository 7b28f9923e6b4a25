//! What an author's statement takes and gives, without running it.
//!
//! SQLite prepares it on a connection that cannot write and says what it reads, calls and writes (`gate`); what it is
//! not allowed, or what is not there, is told with its place. A column that comes straight from a table's is what that
//! column was found to be. All else is of no kind that could be known before: whatever comes is told.

use std::ops::Range;

use contract::source::{ColumnAssignment, ColumnFacts, SourceFacts, StatementError, StatementFacts};
use contract::{DataType, nearest};
use rusqlite::{Error, Statement};

use super::authorizer::{AccessLog, AccessMode};
use super::connection::DbConnection;
use super::direct_params;
use super::error::DbError;
use super::lexer::{self, Token, TokenKind};
use super::pool::ConnectionPool;
use super::schema::Schema;
use super::schema::TableKind::View;

/// What a statement may begin with.
const STATEMENT_KEYWORDS: [&str; 7] = ["SELECT", "WITH", "VALUES", "INSERT", "REPLACE", "UPDATE", "DELETE"];
/// Where there are no rows they give one, in which a table's own columns are NULL.
const AGGREGATES: [&str; 13] = [
    "avg",
    "count",
    "group_concat",
    "json_group_array",
    "json_group_object",
    "jsonb_group_array",
    "jsonb_group_object",
    "max",
    "median",
    "min",
    "string_agg",
    "sum",
    "total",
];
const BYTES_MAX: usize = 64 << 10;

/// A statement and its words.
struct StatementText<'s> {
    sql: &'s str,
    tokens: Vec<Token>,
}

pub(super) fn describe(
    pool: &ConnectionPool,
    schema: &Schema,
    facts: &SourceFacts,
    sql: &str,
) -> Result<StatementFacts, StatementError> {
    let text = StatementText::parse(sql)?;
    let parameters = text.parameters()?;
    let looked = pool.with_dedicated_connection(&AccessMode::Describe, |session| {
        Ok(describe_on(session, schema, facts, &text))
    });
    let mut statement = looked.map_err(|fail| source_unavailable(pool, fail))??;
    statement.parameters = parameters;
    Ok(statement)
}

fn source_unavailable(pool: &ConnectionPool, fail: DbError) -> StatementError {
    statement_error(pool.source_error(fail).to_string(), None, None)
}

fn statement_error(
    message: impl Into<String>,
    help: Option<String>,
    at: Option<Range<usize>>,
) -> StatementError {
    StatementError { message: message.into(), help, span: at }
}

fn describe_on(
    session: &DbConnection,
    schema: &Schema,
    facts: &SourceFacts,
    text: &StatementText<'_>,
) -> Result<StatementFacts, StatementError> {
    let prepared = session.inner.prepare(text.sql);
    let noted = session.authorizer.access_log();
    if let Some(refusal) = &noted.denial {
        let at = text.find(&refusal.subject).or_else(|| text.tokens.first().map(|token| token.span.clone()));
        return Err(statement_error(refusal.reason.clone(), None, at));
    }
    let statement = prepared.map_err(|error| text.explain_sqlite_error(&error, schema, &noted))?;
    if statement.is_explain() != 0 {
        return Err(statement_error("a plan is not an answer", Some("leave out `EXPLAIN`".into()), None));
    }
    let straight = direct_params::find_all(text.sql, &text.tokens, schema);
    let kept = straight.into_iter().filter_map(|one| {
        let keeps = one.accepted_values()?;
        Some(ColumnAssignment {
            parameter: one.parameter,
            column: one.column,
            declared_type: one.declared_type,
            accepts: keeps,
        })
    });
    let is_known = |name: &&String| schema.tables.iter().any(|table| table.name == **name);
    Ok(StatementFacts {
        parameters: Vec::new(),
        columns: column_facts(&statement, schema, facts, &noted, text),
        writes: !statement.readonly(),
        tables: noted.tables.iter().filter(is_known).cloned().collect(),
        assignments: kept.collect(),
        limit_parameters: direct_params::limit_parameters(text.sql, &text.tokens),
    })
}

/// What each column holds, as far as it can be known.
fn column_facts(
    statement: &Statement<'_>,
    schema: &Schema,
    facts: &SourceFacts,
    noted: &AccessLog,
    text: &StatementText<'_>,
) -> Vec<ColumnFacts> {
    let counts = text.count_call_columns(statement.column_count());
    // What follows `UNION` may be of another kind, and a view may have one inside.
    let is_view = |name: &String| {
        let mut tables = schema.tables.iter();
        tables.any(|table| table.kind == View && table.name.eq_ignore_ascii_case(name))
    };
    let is_single =
        !noted.accessors.iter().any(is_view) && !text.contains_any_word(&["UNION", "INTERSECT", "EXCEPT"]);
    let may_be_empty = text.contains_any_word(&["LEFT", "RIGHT", "FULL", "OUTER"])
        || text.tokens.iter().filter(|token| token.is_word(text.sql, "SELECT")).count() > 1
        || (noted.functions.iter().any(|name| AGGREGATES.contains(&name.as_str()))
            && !text.contains_any_word(&["GROUP"]));
    let of = |at: usize, column: rusqlite::ColumnMetadata<'_>| {
        if counts.contains(&at) {
            return ColumnFacts::new(column.name(), DataType::Integer);
        }
        let origin = column.table_name().zip(column.origin_name()).filter(|_| is_single);
        let origin = origin.and_then(|(table, name)| {
            let table = facts.tables.iter().find(|known| known.name.eq_ignore_ascii_case(table))?;
            table.columns.iter().find(|known| known.name.eq_ignore_ascii_case(name))
        });
        match origin {
            Some(origin) => ColumnFacts {
                nullable: origin.nullable || may_be_empty,
                mixed: origin.mixed,
                distinct_values: origin.distinct_values.clone(),
                possible_types: origin.possible_types.clone(),
                ..ColumnFacts::new(column.name(), origin.data_type)
            },
            None => ColumnFacts {
                nullable: true,
                mixed: true,
                ..ColumnFacts::new(column.name(), DataType::Number)
            },
        }
    };
    statement.columns_with_metadata().enumerate().map(|(at, column)| of(at, column)).collect()
}

impl<'s> StatementText<'s> {
    /// One statement of a kind that is allowed.
    fn parse(sql: &'s str) -> Result<Self, StatementError> {
        if sql.len() > BYTES_MAX {
            return Err(statement_error(format!("a statement has at most {BYTES_MAX} bytes"), None, None));
        }
        if let Some(at) = sql.find('\0') {
            return Err(statement_error("there is a NUL in the statement", None, Some(at..at + 1)));
        }
        let tokens = lexer::tokenize(sql)
            .map_err(|endless| statement_error(endless.message, None, Some(endless.span)))?;
        let text = Self { sql, tokens };
        let Some(first) = text.tokens.first() else {
            return Err(statement_error("the statement is empty", Some("write a `SELECT`".into()), None));
        };
        let is_end = |token: &Token| token.is_symbol(sql, ";");
        if !STATEMENT_KEYWORDS.iter().any(|word| first.is_word(sql, word)) {
            let help = "begin with `SELECT`, `WITH`, `VALUES`, `INSERT`, `REPLACE`, `UPDATE` or `DELETE`";
            return Err(statement_error(
                "a statement reads or writes rows",
                Some(help.into()),
                Some(first.span.clone()),
            ));
        }
        let mut rest = text.tokens.iter().skip_while(|token| !is_end(token)).filter(|token| !is_end(token));
        if let Some(second) = rest.next() {
            let help = "a tool has one statement; make a tool of each, or one statement of both";
            return Err(statement_error(
                "a second statement begins here",
                Some(help.into()),
                Some(second.span.clone()),
            ));
        }
        Ok(text)
    }

    /// The names of what callers give, each once.
    fn parameters(&self) -> Result<Vec<String>, StatementError> {
        let mut names: Vec<String> = Vec::new();
        for token in self.tokens.iter().filter(|token| token.kind == TokenKind::Parameter) {
            let text = token.text(self.sql);
            let at = Some(token.span.clone());
            let Some(name) = text.strip_prefix(':') else {
                let name = text.trim_start_matches(['@', '$', '?']);
                let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                let name = if is_name { name } else { "name" };
                let help = Some(format!("write `:{name}`, and declare `{name}` as an argument"));
                return Err(statement_error(
                    format!("`{text}` has no name that callers could use"),
                    help,
                    at,
                ));
            };
            let is_plain = |name: &str| {
                let mut chars = name.chars();
                chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                    && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
            };
            if !is_plain(name) {
                let help = Some("a name has letters, digits and `_`, and begins with a letter".into());
                return Err(statement_error(
                    format!("`:{name}` cannot be the name of an argument"),
                    help,
                    at,
                ));
            }
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn contains_any_word(&self, words: &[&str]) -> bool {
        self.tokens.iter().any(|token| words.iter().any(|word| token.is_word(self.sql, word)))
    }

    /// Where a name stands first.
    fn find(&self, name: &str) -> Option<Range<usize>> {
        let last = name.rsplit('.').next().unwrap_or(name);
        let is_it = |token: &&Token| {
            let text = token.text(self.sql);
            let inner = match token.kind {
                TokenKind::QuotedName => text.get(1..text.len() - 1).unwrap_or(text),
                TokenKind::Word | TokenKind::Parameter | TokenKind::Symbol | TokenKind::Number => text,
                TokenKind::Literal => return false,
            };
            inner.eq_ignore_ascii_case(last)
        };
        self.tokens.iter().find(is_it).map(|token| token.span.clone())
    }

    /// Which columns of a plain `SELECT` count rows, and so are integers whatever the rows hold.
    fn count_call_columns(&self, columns: usize) -> Vec<usize> {
        let is_select = self.tokens.first().is_some_and(|token| token.is_word(self.sql, "SELECT"));
        if !is_select || self.contains_any_word(&["UNION", "INTERSECT", "EXCEPT"]) {
            return Vec::new();
        }
        let ends = ["FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "WINDOW"];
        let (mut items, mut depth) = (vec![Vec::new()], 0_u32);
        for token in &self.tokens[1..] {
            let is = |sign| token.is_symbol(self.sql, sign);
            if depth == 0 && (is(";") || ends.iter().any(|word| token.is_word(self.sql, word))) {
                break;
            }
            if depth == 0 && is(",") {
                items.push(Vec::new());
                continue;
            }
            if is("(") {
                depth += 1;
            } else if is(")") {
                depth = depth.saturating_sub(1);
            }
            items.last_mut().expect("there is one from the beginning").push(token);
        }
        // `*` stands for columns that are not written here.
        let is_star = |item: &Vec<&Token>| item.last().is_some_and(|token| token.is_symbol(self.sql, "*"));
        if items.len() != columns || items.iter().any(is_star) {
            return Vec::new();
        }
        let places = items.iter().enumerate().filter(|(_, item)| self.is_count(item));
        places.map(|(at, _)| at).collect()
    }

    /// `count(…)`, with or without a name.
    fn is_count(&self, item: &[&Token]) -> bool {
        let is = |at: usize, sign| item.get(at).is_some_and(|token| token.is_symbol(self.sql, sign));
        if !item.first().is_some_and(|token| token.is_word(self.sql, "count")) || !is(1, "(") {
            return false;
        }
        let mut depth = 0_u32;
        let end = (1..item.len()).find(|at| {
            depth += u32::from(is(*at, "("));
            depth -= u32::from(is(*at, ")"));
            depth == 0
        });
        let rest = end.map_or(item, |end| &item[end + 1..]);
        let is_name = |token: &Token| matches!(token.kind, TokenKind::Word | TokenKind::QuotedName);
        match rest {
            [] => true,
            [name] => is_name(name),
            [word, name] => word.is_word(self.sql, "AS") && is_name(name),
            _ => false,
        }
    }

    /// What SQLite has against it, in our words.
    fn explain_sqlite_error(&self, error: &Error, schema: &Schema, noted: &AccessLog) -> StatementError {
        let (said, offset) = match error {
            Error::SqlInputError { msg, offset, .. } => (msg.as_str(), usize::try_from(*offset).ok()),
            Error::SqliteFailure(_, Some(said)) => (said.as_str(), None),
            _ => ("", None),
        };
        let token = offset.and_then(|offset| self.tokens.iter().find(|token| token.span.contains(&offset)));
        let place = |name: &str| token.map(|token| token.span.clone()).or_else(|| self.find(name));
        let meant = |name: &str, known: Vec<&str>| {
            let name = name.rsplit('.').next().unwrap_or(name);
            nearest(name, known).map(|meant| format!("did you mean `{meant}`?"))
        };
        let tables = || schema.tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>();
        let columns = || {
            let read = schema.tables.iter().filter(|table| noted.tables.contains(&table.name));
            let read: Vec<_> = read.collect();
            let some = if read.is_empty() { schema.tables.iter().collect() } else { read };
            some.into_iter().flat_map(|table| &table.columns).map(|column| column.name.as_str()).collect()
        };
        if let Some(name) = said.strip_prefix("no such table: ") {
            let name = name.strip_prefix("main.").unwrap_or(name);
            return statement_error(
                format!("there is no table `{name}`"),
                meant(name, tables()),
                place(name),
            );
        }
        if let Some(name) = said.strip_prefix("no such column: ") {
            // Advice follows where a name in quotes could have been meant for a text.
            let name = name.split(" - ").next().unwrap_or(name).trim_matches('"');
            let at = place(name);
            let is_quoted = at.clone().is_some_and(|at| self.sql[at].starts_with('"'));
            let as_text = || is_quoted.then(|| format!("a text in SQL has single quotes: `'{name}'`"));
            let help = meant(name, columns()).or_else(as_text);
            return statement_error(format!("there is no column `{name}`"), help, at);
        }
        if let Some((table, name)) =
            said.strip_prefix("table ").and_then(|rest| rest.split_once(" has no column named "))
        {
            return statement_error(
                format!("the table `{table}` has no column `{name}`"),
                meant(name, columns()),
                place(name),
            );
        }
        if let Some(name) = said.strip_prefix("no such function: ") {
            return statement_error(format!("there is no function `{name}`"), None, place(name));
        }
        if let Some(name) = said.strip_prefix("ambiguous column name: ") {
            let help = Some(format!("write the table's name in front: `table.{name}`"));
            return statement_error(format!("`{name}` is in more than one table"), help, place(name));
        }
        if let Some(rest) = said.strip_prefix("near \"") {
            let word = rest.rsplit_once("\": ").map_or(rest, |(word, _)| word);
            return statement_error(format!("SQLite does not understand `{word}` here"), None, place(word));
        }
        if said == "incomplete input" {
            let end = self.tokens.last().map(|token| token.span.clone());
            return statement_error("the statement ends too early", None, end);
        }
        statement_error(
            format!("SQLite does not accept this: {said}"),
            None,
            token.map(|token| token.span.clone()),
        )
    }
}

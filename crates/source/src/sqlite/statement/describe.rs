//! Describes an author's statement without running it: its parameters, its columns, and whether it writes.
//!
//! SQLite prepares it on a connection that cannot write, and the authorizer records what it reads, calls and
//! writes. An access that is denied, and a name that does not exist, is reported with its position. A column
//! that comes directly from a table has that column's type. The type of any other column cannot be known in
//! advance: it is mixed.

use std::ops::Range;

use contract::humanize::join_truncated;
use contract::source::{
    ColumnAssignment, ColumnFacts, SourceFacts, StatementError, StatementFacts, WriteCapabilities,
};
use contract::{DataType, nearest};
use rusqlite::{Error, Statement};

use crate::sqlite::connection::DbConnection;
use crate::sqlite::connection::authorizer::{AccessLog, AccessMode};
use crate::sqlite::connection::pool::ConnectionPool;
use crate::sqlite::error::DbError;
use crate::sqlite::lexer::{self, Token, TokenKind};
use crate::sqlite::schema::TableKind::View;
use crate::sqlite::schema::{Schema, Table};
use crate::sqlite::statement::direct_params::{self, UntracedColumn};

/// The keywords that a statement may begin with.
const STATEMENT_KEYWORDS: [&str; 7] = ["SELECT", "WITH", "VALUES", "INSERT", "REPLACE", "UPDATE", "DELETE"];
/// Over no rows they return one row, in which a table's own columns are NULL.
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
/// An error lists no more tables or columns than this.
const NAMES_MAX: usize = 12;

/// A statement and its tokens.
struct StatementText<'s> {
    sql: &'s str,
    tokens: Vec<Token>,
}

pub(crate) fn describe(
    pool: &ConnectionPool,
    schema: &Schema,
    facts: &SourceFacts,
    sql: &str,
) -> Result<StatementFacts, StatementError> {
    let text = StatementText::parse(sql)?;
    let parameters = text.parameters()?;
    let described = pool.with_dedicated_connection(&AccessMode::Describe, |connection| {
        Ok(describe_on(connection, schema, facts, &text))
    });
    let mut statement = described.map_err(|error| source_unavailable(pool, error))??;
    statement.parameters = parameters;
    Ok(statement)
}

fn source_unavailable(pool: &ConnectionPool, error: DbError) -> StatementError {
    statement_error(pool.source_error(error).to_string(), None, None)
}

fn statement_error(
    message: impl Into<String>,
    help: Option<String>,
    span: Option<Range<usize>>,
) -> StatementError {
    StatementError { message: message.into(), help, span }
}

fn describe_on(
    connection: &DbConnection,
    schema: &Schema,
    facts: &SourceFacts,
    text: &StatementText<'_>,
) -> Result<StatementFacts, StatementError> {
    let prepared = connection.inner.prepare(text.sql);
    let access_log = connection.authorizer.access_log();
    if let Some(denial) = &access_log.denial {
        let span = text.find(&denial.subject).or_else(|| text.tokens.first().map(|token| token.span.clone()));
        return Err(statement_error(denial.reason.clone(), None, span));
    }
    let statement = prepared.map_err(|error| text.explain_sqlite_error(&error, schema, &access_log))?;
    if statement.is_explain() != 0 {
        return Err(statement_error("`EXPLAIN` is not supported", Some("remove `EXPLAIN`".into()), None));
    }
    let stored = direct_params::find_all(text.sql, &text.tokens, schema);
    if let Some(value) = stored.untraced.first() {
        return Err(untraced_error(value));
    }
    let assignments = stored.direct.into_iter().filter_map(|param| {
        let accepts = param.accepted_values()?;
        Some(ColumnAssignment {
            parameter: param.parameter,
            column: param.column,
            declared_type: param.declared_type,
            accepts,
        })
    });
    let is_known = |name: &&String| schema.tables.iter().any(|table| table.name == **name);
    Ok(StatementFacts {
        parameters: Vec::new(),
        columns: column_facts(&statement, schema, facts, &access_log, text),
        writes: (!statement.readonly()).then_some(WriteCapabilities::ALL),
        tables: access_log.tables.iter().filter(is_known).cloned().collect(),
        assignments: assignments.collect(),
        limit_parameters: direct_params::limit_parameters(text.sql, &text.tokens),
    })
}

/// A numeric column stores `007` as 7, and SQLite does not say so.
fn untraced_error(value: &UntracedColumn) -> StatementError {
    let UntracedColumn { column, declared_type, span } = value;
    statement_error(
        format!(
            "cannot prove that the column `{column}`, declared as `{declared_type}`, stores what a caller sends: the \
             value comes from an argument through a subquery, a function or an operator"
        ),
        Some(
            "store the argument directly, as in `VALUES (:a)`, or convert it: `CAST(value AS INTEGER)`"
                .into(),
        ),
        Some(span.clone()),
    )
}

/// The type of each column, as far as it can be known.
fn column_facts(
    statement: &Statement<'_>,
    schema: &Schema,
    facts: &SourceFacts,
    access_log: &AccessLog,
    text: &StatementText<'_>,
) -> Vec<ColumnFacts> {
    let counts = text.count_call_columns(statement.column_count());
    // The other half of a `UNION` may have another type, and a view may contain one.
    let is_view = |name: &String| {
        let mut tables = schema.tables.iter();
        tables.any(|table| table.kind == View && table.name.eq_ignore_ascii_case(name))
    };
    let is_single = !access_log.accessors.iter().any(is_view)
        && !text.contains_any_word(&["UNION", "INTERSECT", "EXCEPT"]);
    let may_be_empty = text.contains_any_word(&["LEFT", "RIGHT", "FULL", "OUTER"])
        || text.tokens.iter().filter(|token| token.is_word(text.sql, "SELECT")).count() > 1
        || (access_log.functions.iter().any(|name| AGGREGATES.contains(&name.as_str()))
            && !text.contains_any_word(&["GROUP"]));
    let of = |index: usize, column: rusqlite::ColumnMetadata<'_>| {
        if counts.contains(&index) {
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
    statement.columns_with_metadata().enumerate().map(|(index, column)| of(index, column)).collect()
}

impl<'s> StatementText<'s> {
    /// Checks that there is one statement, of an allowed kind.
    fn parse(sql: &'s str) -> Result<Self, StatementError> {
        if sql.len() > BYTES_MAX {
            return Err(statement_error(
                format!("the statement exceeds the limit of {BYTES_MAX} bytes"),
                None,
                None,
            ));
        }
        if let Some(offset) = sql.find('\0') {
            return Err(statement_error(
                "the statement contains a NUL character",
                None,
                Some(offset..offset + 1),
            ));
        }
        let tokens = lexer::tokenize(sql)
            .map_err(|unterminated| statement_error(unterminated.message, None, Some(unterminated.span)))?;
        let text = Self { sql, tokens };
        let Some(first) = text.tokens.first() else {
            return Err(statement_error("the statement is empty", Some("write a `SELECT`".into()), None));
        };
        let is_end = |token: &Token| token.is_symbol(sql, ";");
        if !STATEMENT_KEYWORDS.iter().any(|word| first.is_word(sql, word)) {
            let message = format!(
                "`{}` is not supported; a tool can run SELECT, WITH, VALUES, INSERT, REPLACE, UPDATE or DELETE",
                first.text(sql).to_uppercase()
            );
            return Err(statement_error(message, None, Some(first.span.clone())));
        }
        let mut rest = text.tokens.iter().skip_while(|token| !is_end(token)).filter(|token| !is_end(token));
        if let Some(second) = rest.next() {
            let help = "a tool has one statement; declare a tool for each, or combine them";
            return Err(statement_error(
                "a second statement begins here",
                Some(help.into()),
                Some(second.span.clone()),
            ));
        }
        Ok(text)
    }

    /// The names of the parameters, each once.
    fn parameters(&self) -> Result<Vec<String>, StatementError> {
        let mut names: Vec<String> = Vec::new();
        for token in self.tokens.iter().filter(|token| token.kind == TokenKind::Parameter) {
            let text = token.text(self.sql);
            let span = Some(token.span.clone());
            let Some(name) = text.strip_prefix(':') else {
                let name = text.trim_start_matches(['@', '$', '?']);
                let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                let name = if is_name { name } else { "name" };
                let help = Some(format!("write `:{name}`, and declare `{name}` as an argument"));
                return Err(statement_error(
                    format!("`{text}` has no name that callers can use"),
                    help,
                    span,
                ));
            };
            let is_plain = |name: &str| {
                let mut chars = name.chars();
                chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                    && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
            };
            if !is_plain(name) {
                let help = Some("use letters, digits and `_`, starting with a letter or `_`".into());
                return Err(statement_error(format!("`:{name}` is not a valid argument name"), help, span));
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

    /// Where a name occurs first.
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

    /// The columns of a plain `SELECT` that count rows, and so are integers whatever the rows hold.
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
        // `*` stands for any number of columns.
        let is_star = |item: &Vec<&Token>| item.last().is_some_and(|token| token.is_symbol(self.sql, "*"));
        if items.len() != columns || items.iter().any(is_star) {
            return Vec::new();
        }
        let indexes = items.iter().enumerate().filter(|(_, item)| self.is_count(item));
        indexes.map(|(index, _)| index).collect()
    }

    /// `count(…)`, with or without an alias.
    fn is_count(&self, item: &[&Token]) -> bool {
        let is = |index: usize, sign| item.get(index).is_some_and(|token| token.is_symbol(self.sql, sign));
        if !item.first().is_some_and(|token| token.is_word(self.sql, "count")) || !is(1, "(") {
            return false;
        }
        let mut depth = 0_u32;
        let end = (1..item.len()).find(|index| {
            depth += u32::from(is(*index, "("));
            depth -= u32::from(is(*index, ")"));
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

    /// Whether the statement reads or writes a table. SQLite may not have got far enough to say so.
    fn uses(&self, table: &Table, access_log: &AccessLog) -> bool {
        let is_named = || {
            let tables = self.tokens.windows(2).filter(|pair| {
                ["FROM", "JOIN", "INTO", "UPDATE"].iter().any(|word| pair[0].is_word(self.sql, word))
            });
            let mut names = tables.map(|pair| pair[1].text(self.sql).trim_matches(['"', '`', '[', ']']));
            names.any(|name| name.eq_ignore_ascii_case(&table.name))
        };
        access_log.tables.contains(&table.name) || is_named()
    }

    /// SQLite's error in plain words, with its position.
    fn explain_sqlite_error(&self, error: &Error, schema: &Schema, access_log: &AccessLog) -> StatementError {
        let (message, offset) = match error {
            Error::SqlInputError { msg, offset, .. } => (msg.as_str(), usize::try_from(*offset).ok()),
            Error::SqliteFailure(_, Some(message)) => (message.as_str(), None),
            _ => ("", None),
        };
        let token = offset.and_then(|offset| self.tokens.iter().find(|token| token.span.contains(&offset)));
        let place = |name: &str| token.map(|token| token.span.clone()).or_else(|| self.find(name));
        let suggestion = |name: &str, known: Vec<&str>| {
            let name = name.rsplit('.').next().unwrap_or(name);
            nearest(name, known).map(|suggestion| format!("did you mean `{suggestion}`?"))
        };
        let tables = || schema.tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>();
        let read: Vec<&Table> = schema.tables.iter().filter(|table| self.uses(table, access_log)).collect();
        let columns = || -> Vec<&str> {
            let all = || schema.tables.iter().collect();
            let some: Vec<&Table> = if read.is_empty() { all() } else { read.clone() };
            some.into_iter().flat_map(|table| &table.columns).map(|column| column.name.as_str()).collect()
        };
        let known_columns = || match &read[..] {
            [] => None,
            [table] => {
                Some(format!("columns of `{}`: {}", table.name, join_truncated(&columns(), NAMES_MAX)))
            }
            _ => Some(format!("columns: {}", join_truncated(&columns(), NAMES_MAX))),
        };
        if let Some(name) = message.strip_prefix("no such table: ") {
            let name = name.strip_prefix("main.").unwrap_or(name);
            return statement_error(
                format!("unknown table `{name}`"),
                suggestion(name, tables())
                    .or_else(|| Some(format!("tables: {}", join_truncated(&tables(), NAMES_MAX)))),
                place(name),
            );
        }
        if let Some(name) = message.strip_prefix("no such column: ") {
            // SQLite adds advice where a name in double quotes may have been meant as a string.
            let name = name.split(" - ").next().unwrap_or(name).trim_matches('"');
            let span = place(name);
            let is_quoted = span.clone().is_some_and(|span| self.sql[span].starts_with('"'));
            let as_text = || is_quoted.then(|| format!("a string in SQL has single quotes: `'{name}'`"));
            let help = suggestion(name, columns()).or_else(as_text).or_else(known_columns);
            return statement_error(format!("unknown column `{name}`"), help, span);
        }
        if let Some((table, name)) =
            message.strip_prefix("table ").and_then(|rest| rest.split_once(" has no column named "))
        {
            return statement_error(
                format!("the table `{table}` has no column `{name}`"),
                suggestion(name, columns()).or_else(known_columns),
                place(name),
            );
        }
        if let Some(name) = message.strip_prefix("no such function: ") {
            return statement_error(format!("unknown function `{name}`"), None, place(name));
        }
        if let Some(name) = message.strip_prefix("ambiguous column name: ") {
            let help = Some(format!("write the table's name before it: `table.{name}`"));
            return statement_error(
                format!("`{name}` is ambiguous: more than one table has this column"),
                help,
                place(name),
            );
        }
        if let Some(rest) = message.strip_prefix("near \"") {
            let word = rest.rsplit_once("\": ").map_or(rest, |(word, _)| word);
            return statement_error(format!("syntax error at `{word}`"), None, place(word));
        }
        if message == "incomplete input" {
            let end = self.tokens.last().map(|token| token.span.clone());
            return statement_error("the statement is incomplete", None, end);
        }
        statement_error(
            format!("SQLite rejects the statement: {message}"),
            None,
            token.map(|token| token.span.clone()),
        )
    }
}

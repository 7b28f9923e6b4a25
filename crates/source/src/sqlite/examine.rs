//! What an author's statement takes and gives, without running it.
//!
//! SQLite prepares it on a connection that cannot write and says what it reads, calls and writes (`gate`); what it is
//! not allowed, or what is not there, is told with its place. A column that comes straight from a table's is what that
//! column was found to be. All else is of no kind that could be known before: whatever comes is told.

use std::ops::Range;

use contract::source::{BadStatement, ColumnFacts, Facts, Kept, StatementFacts};
use contract::{Kind, nearest};
use rusqlite::{Error, Statement};

use super::fault::Fail;
use super::gate::{Noted, Permit};
use super::lex::{self, Class, Token};
use super::pool::Pool;
use super::schema::Class::View;
use super::schema::Schema;
use super::session::Session;
use super::straight;

/// What a statement may begin with.
const BEGINNINGS: [&str; 7] = ["SELECT", "WITH", "VALUES", "INSERT", "REPLACE", "UPDATE", "DELETE"];
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
struct Text<'s> {
    sql: &'s str,
    tokens: Vec<Token>,
}

pub(super) fn examine(
    pool: &Pool,
    schema: &Schema,
    facts: &Facts,
    sql: &str,
) -> Result<StatementFacts, BadStatement> {
    let text = Text::read(sql)?;
    let parameters = text.parameters()?;
    let looked = pool.aside(&Permit::Examine, |session| Ok(look(session, schema, facts, &text)));
    let mut statement = looked.map_err(|fail| broken(pool, fail))??;
    statement.parameters = parameters;
    Ok(statement)
}

fn broken(pool: &Pool, fail: Fail) -> BadStatement {
    bad(pool.fault(fail).to_string(), None, None)
}

fn bad(message: impl Into<String>, help: Option<String>, at: Option<Range<usize>>) -> BadStatement {
    BadStatement { message: message.into(), help, at }
}

fn look(
    session: &Session,
    schema: &Schema,
    facts: &Facts,
    text: &Text<'_>,
) -> Result<StatementFacts, BadStatement> {
    let prepared = session.connection.prepare(text.sql);
    let noted = session.gate.noted();
    if let Some(refusal) = &noted.refused {
        let at = text.find(&refusal.word).or_else(|| text.tokens.first().map(|token| token.at.clone()));
        return Err(bad(refusal.why.clone(), None, at));
    }
    let statement = prepared.map_err(|error| text.trouble(&error, schema, &noted))?;
    if statement.is_explain() != 0 {
        return Err(bad("a plan is not an answer", Some("leave out `EXPLAIN`".into()), None));
    }
    let straight = straight::all(text.sql, &text.tokens, schema);
    let kept = straight.into_iter().filter_map(|one| {
        let keeps = one.keeps()?;
        Some(Kept { parameter: one.parameter, column: one.column, declared: one.declared, keeps })
    });
    let is_known = |name: &&String| schema.tables.iter().any(|table| table.name == **name);
    Ok(StatementFacts {
        parameters: Vec::new(),
        columns: columns(&statement, schema, facts, &noted, text),
        writes: !statement.readonly(),
        tables: noted.tables.iter().filter(is_known).cloned().collect(),
        kept: kept.collect(),
        limits: straight::limits(text.sql, &text.tokens),
    })
}

/// What each column holds, as far as it can be known.
fn columns(
    statement: &Statement<'_>,
    schema: &Schema,
    facts: &Facts,
    noted: &Noted,
    text: &Text<'_>,
) -> Vec<ColumnFacts> {
    let counts = text.counts(statement.column_count());
    // What follows `UNION` may be of another kind, and a view may have one inside.
    let is_view = |name: &String| {
        let mut tables = schema.tables.iter();
        tables.any(|table| table.class == View && table.name.eq_ignore_ascii_case(name))
    };
    let is_single = !noted.through.iter().any(is_view) && !text.has_any(&["UNION", "INTERSECT", "EXCEPT"]);
    let may_be_empty = text.has_any(&["LEFT", "RIGHT", "FULL", "OUTER"])
        || text.tokens.iter().filter(|token| token.is_word(text.sql, "SELECT")).count() > 1
        || (noted.functions.iter().any(|name| AGGREGATES.contains(&name.as_str()))
            && !text.has_any(&["GROUP"]));
    let of = |at: usize, column: rusqlite::ColumnMetadata<'_>| {
        if counts.contains(&at) {
            return ColumnFacts::new(column.name(), Kind::Integer);
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
                values: origin.values.clone(),
                fits: origin.fits.clone(),
                ..ColumnFacts::new(column.name(), origin.kind)
            },
            None => {
                ColumnFacts { nullable: true, mixed: true, ..ColumnFacts::new(column.name(), Kind::Number) }
            }
        }
    };
    statement.columns_with_metadata().enumerate().map(|(at, column)| of(at, column)).collect()
}

impl<'s> Text<'s> {
    /// One statement of a kind that is allowed.
    fn read(sql: &'s str) -> Result<Self, BadStatement> {
        if sql.len() > BYTES_MAX {
            return Err(bad(format!("a statement has at most {BYTES_MAX} bytes"), None, None));
        }
        if let Some(at) = sql.find('\0') {
            return Err(bad("there is a NUL in the statement", None, Some(at..at + 1)));
        }
        let tokens = lex::tokens(sql).map_err(|endless| bad(endless.what, None, Some(endless.at)))?;
        let text = Self { sql, tokens };
        let Some(first) = text.tokens.first() else {
            return Err(bad("the statement is empty", Some("write a `SELECT`".into()), None));
        };
        let is_end = |token: &Token| token.is_sign(sql, ";");
        if !BEGINNINGS.iter().any(|word| first.is_word(sql, word)) {
            let help = "begin with `SELECT`, `WITH`, `VALUES`, `INSERT`, `REPLACE`, `UPDATE` or `DELETE`";
            return Err(bad("a statement reads or writes rows", Some(help.into()), Some(first.at.clone())));
        }
        let mut rest = text.tokens.iter().skip_while(|token| !is_end(token)).filter(|token| !is_end(token));
        if let Some(second) = rest.next() {
            let help = "a tool has one statement; make a tool of each, or one statement of both";
            return Err(bad("a second statement begins here", Some(help.into()), Some(second.at.clone())));
        }
        Ok(text)
    }

    /// The names of what callers give, each once.
    fn parameters(&self) -> Result<Vec<String>, BadStatement> {
        let mut names: Vec<String> = Vec::new();
        for token in self.tokens.iter().filter(|token| token.class == Class::Value) {
            let text = token.text(self.sql);
            let at = Some(token.at.clone());
            let Some(name) = text.strip_prefix(':') else {
                let name = text.trim_start_matches(['@', '$', '?']);
                let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                let name = if is_name { name } else { "name" };
                let help = Some(format!("write `:{name}`, and declare `{name}` as an argument"));
                return Err(bad(format!("`{text}` has no name that callers could use"), help, at));
            };
            let is_plain = |name: &str| {
                let mut chars = name.chars();
                chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                    && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
            };
            if !is_plain(name) {
                let help = Some("a name has letters, digits and `_`, and begins with a letter".into());
                return Err(bad(format!("`:{name}` cannot be the name of an argument"), help, at));
            }
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn has_any(&self, words: &[&str]) -> bool {
        self.tokens.iter().any(|token| words.iter().any(|word| token.is_word(self.sql, word)))
    }

    /// Where a name stands first.
    fn find(&self, name: &str) -> Option<Range<usize>> {
        let last = name.rsplit('.').next().unwrap_or(name);
        let is_it = |token: &&Token| {
            let text = token.text(self.sql);
            let inner = match token.class {
                Class::Name => text.get(1..text.len() - 1).unwrap_or(text),
                Class::Word | Class::Value | Class::Sign | Class::Number => text,
                Class::Text => return false,
            };
            inner.eq_ignore_ascii_case(last)
        };
        self.tokens.iter().find(is_it).map(|token| token.at.clone())
    }

    /// Which columns of a plain `SELECT` count rows, and so are integers whatever the rows hold.
    fn counts(&self, columns: usize) -> Vec<usize> {
        let is_select = self.tokens.first().is_some_and(|token| token.is_word(self.sql, "SELECT"));
        if !is_select || self.has_any(&["UNION", "INTERSECT", "EXCEPT"]) {
            return Vec::new();
        }
        let ends = ["FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "WINDOW"];
        let (mut items, mut depth) = (vec![Vec::new()], 0_u32);
        for token in &self.tokens[1..] {
            let is = |sign| token.is_sign(self.sql, sign);
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
        let is_star = |item: &Vec<&Token>| item.last().is_some_and(|token| token.is_sign(self.sql, "*"));
        if items.len() != columns || items.iter().any(is_star) {
            return Vec::new();
        }
        let places = items.iter().enumerate().filter(|(_, item)| self.is_count(item));
        places.map(|(at, _)| at).collect()
    }

    /// `count(…)`, with or without a name.
    fn is_count(&self, item: &[&Token]) -> bool {
        let is = |at: usize, sign| item.get(at).is_some_and(|token| token.is_sign(self.sql, sign));
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
        let is_name = |token: &Token| matches!(token.class, Class::Word | Class::Name);
        match rest {
            [] => true,
            [name] => is_name(name),
            [word, name] => word.is_word(self.sql, "AS") && is_name(name),
            _ => false,
        }
    }

    /// What SQLite has against it, in our words.
    fn trouble(&self, error: &Error, schema: &Schema, noted: &Noted) -> BadStatement {
        let (said, offset) = match error {
            Error::SqlInputError { msg, offset, .. } => (msg.as_str(), usize::try_from(*offset).ok()),
            Error::SqliteFailure(_, Some(said)) => (said.as_str(), None),
            _ => ("", None),
        };
        let token = offset.and_then(|offset| self.tokens.iter().find(|token| token.at.contains(&offset)));
        let place = |name: &str| token.map(|token| token.at.clone()).or_else(|| self.find(name));
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
            return bad(format!("there is no table `{name}`"), meant(name, tables()), place(name));
        }
        if let Some(name) = said.strip_prefix("no such column: ") {
            // Advice follows where a name in quotes could have been meant for a text.
            let name = name.split(" - ").next().unwrap_or(name).trim_matches('"');
            let at = place(name);
            let is_quoted = at.clone().is_some_and(|at| self.sql[at].starts_with('"'));
            let as_text = || is_quoted.then(|| format!("a text in SQL has single quotes: `'{name}'`"));
            let help = meant(name, columns()).or_else(as_text);
            return bad(format!("there is no column `{name}`"), help, at);
        }
        if let Some((table, name)) =
            said.strip_prefix("table ").and_then(|rest| rest.split_once(" has no column named "))
        {
            return bad(
                format!("the table `{table}` has no column `{name}`"),
                meant(name, columns()),
                place(name),
            );
        }
        if let Some(name) = said.strip_prefix("no such function: ") {
            return bad(format!("there is no function `{name}`"), None, place(name));
        }
        if let Some(name) = said.strip_prefix("ambiguous column name: ") {
            let help = Some(format!("write the table's name in front: `table.{name}`"));
            return bad(format!("`{name}` is in more than one table"), help, place(name));
        }
        if let Some(rest) = said.strip_prefix("near \"") {
            let word = rest.rsplit_once("\": ").map_or(rest, |(word, _)| word);
            return bad(format!("SQLite does not understand `{word}` here"), None, place(word));
        }
        if said == "incomplete input" {
            let end = self.tokens.last().map(|token| token.at.clone());
            return bad("the statement ends too early", None, end);
        }
        bad(format!("SQLite does not accept this: {said}"), None, token.map(|token| token.at.clone()))
    }
}

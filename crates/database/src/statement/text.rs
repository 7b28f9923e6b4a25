//! The text of an author's statement: one statement of a known kind, with named parameters.
//!
//! The database decides what a statement means. The tokens say where its parameters are, whether it changes rows, and what is
//! refused before the database sees it. Whatever is misread here is still one prepared statement, which reads in a read-only
//! transaction.

use std::ops::Range;

use contract::source::StatementError;

/// Which strings, names and comments an engine knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    Postgres,
    MySql,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    /// A keyword or an unquoted name.
    Word,
    /// A string, a quoted name or a number.
    Other,
    /// `:name`
    Parameter,
    Symbol,
}

#[derive(Debug, Clone)]
struct Token {
    kind: TokenKind,
    span: Range<usize>,
}

/// A statement that may be prepared.
#[derive(Debug, Clone)]
pub(crate) struct StatementText {
    sql: String,
    /// Each parameter once, in the order of first use.
    pub(crate) parameters: Vec<String>,
    /// Where parameters are, and which.
    uses: Vec<(Range<usize>, usize)>,
    /// Whether it is meant to change rows.
    pub(crate) writes: bool,
}

const BYTES_MAX: usize = 64 << 10;
const READS: [&str; 3] = ["SELECT", "WITH", "VALUES"];
const WRITES: [&str; 4] = ["INSERT", "UPDATE", "DELETE", "REPLACE"];
const CHANGES: [&str; 4] = ["INSERT", "UPDATE", "DELETE", "MERGE"];

impl StatementText {
    pub(crate) fn parse(sql: &str, syntax: Syntax) -> Result<Self, StatementError> {
        if sql.len() > BYTES_MAX {
            return Err(error(format!("the statement exceeds the limit of {BYTES_MAX} bytes"), None, None));
        }
        if let Some(at) = sql.find('\0') {
            return Err(error("the statement contains a NUL character", None, Some(at..at + 1)));
        }
        let tokens = tokenize(sql, syntax)?;
        let is_end = |token: &Token| &sql[token.span.clone()] == ";";
        let end = tokens.iter().position(is_end).unwrap_or(tokens.len());
        if let Some(second) = tokens[end..].iter().find(|token| !is_end(token)) {
            let help = "a tool has one statement; declare a tool for each, or combine them";
            return Err(error("a second statement begins here", Some(help), Some(second.span.clone())));
        }
        let tokens = &tokens[..end];
        let writes = check_kind(sql, tokens, syntax)?;
        let mut made = Self {
            // Without the semicolon and what follows it, because the statement may become part of another one.
            sql: sql[..tokens.last().map_or(0, |token| token.span.end)].to_owned(),
            parameters: Vec::new(),
            uses: Vec::new(),
            writes,
        };
        for token in tokens.iter().filter(|token| token.kind == TokenKind::Parameter) {
            let name = &sql[token.span.start + 1..token.span.end];
            let known = made.parameters.iter().position(|one| one == name);
            let index = known.unwrap_or_else(|| {
                made.parameters.push(name.to_owned());
                made.parameters.len() - 1
            });
            made.uses.push((token.span.clone(), index));
        }
        Ok(made)
    }

    /// The statement with what `placeholder` returns for each use of a parameter, by its index.
    pub(crate) fn render(&self, mut placeholder: impl FnMut(usize) -> String) -> String {
        let (mut out, mut from) = (String::with_capacity(self.sql.len() + 16), 0);
        for (span, parameter) in &self.uses {
            out += &self.sql[from..span.start];
            out += &placeholder(*parameter);
            from = span.end;
        }
        out + &self.sql[from..]
    }

    /// Where in the author's text something is that the database reports at a character of the rendered one, counted from 1.
    pub(crate) fn span_at(&self, rendered: &str, position: usize) -> Option<Range<usize>> {
        let at = rendered.char_indices().nth(position.checked_sub(1)?)?.0;
        let (mut shift, mut placeholders) = (0_isize, self.uses.iter());
        let mut start = at;
        for (span, parameter) in placeholders.by_ref() {
            let placeholder = format!("${}", parameter + 1);
            let rendered_start = span.start.checked_add_signed(shift)?;
            if at < rendered_start {
                break;
            }
            if at < rendered_start + placeholder.len() {
                return Some(span.clone());
            }
            shift += placeholder.len().cast_signed() - span.len().cast_signed();
        }
        start = start.checked_add_signed(-shift)?;
        let rest = self.sql.get(start..)?;
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len()).max(1);
        let end = start + rest.char_indices().map(|(at, c)| at + c.len_utf8()).find(|end| *end >= word)?;
        Some(start..end)
    }
}

pub(crate) fn error(
    message: impl Into<String>,
    help: Option<&str>,
    span: Option<Range<usize>>,
) -> StatementError {
    StatementError { message: message.into(), help: help.map(str::to_owned), span }
}

/// Fails for a statement that no tool can run. Returns whether it changes rows.
fn check_kind(sql: &str, tokens: &[Token], syntax: Syntax) -> Result<bool, StatementError> {
    let is = |at: usize, word: &str| {
        let token = tokens.get(at);
        token.is_some_and(|token| {
            sql[token.span.clone()].eq_ignore_ascii_case(word) && token.kind != TokenKind::Other
        })
    };
    let Some(first) = tokens.first() else {
        return Err(error("the statement is empty", Some("write a `SELECT`"), None));
    };
    let is_write = WRITES.iter().any(|word| is(0, word)) && !(syntax == Syntax::Postgres && is(0, "REPLACE"));
    if !is_write && !READS.iter().any(|word| is(0, word)) {
        let message = format!(
            "`{}` is not supported; a tool can run SELECT, WITH, VALUES, INSERT, UPDATE or DELETE{}",
            sql[first.span.clone()].to_uppercase(),
            if syntax == Syntax::MySql { ", and REPLACE" } else { "" }
        );
        return Err(error(message, None, Some(first.span.clone())));
    }
    if is_write {
        return Ok(true);
    }
    // `WITH d AS (DELETE …) SELECT …`, and `WITH a AS (…) DELETE …`.
    let (mut depth, mut changes) = (0_u32, false);
    for (at, token) in tokens.iter().enumerate() {
        if is(at, "(") {
            let is_body = at > 0 && (is(at - 1, "AS") || is(at - 1, "MATERIALIZED"));
            changes |= is(0, "WITH") && is_body && CHANGES.iter().any(|word| is(at + 1, word));
            depth += 1;
        } else if is(at, ")") {
            depth = depth.saturating_sub(1);
        } else if depth == 0 && at > 0 && is(at - 1, ")") && is(0, "WITH") {
            changes |= CHANGES.iter().any(|word| is(at, word));
        }
        if is(at, "INTO") && !changes {
            let message = "`SELECT … INTO` is not supported: it writes to a table, a file or a variable";
            return Err(error(message, Some("remove `INTO`"), Some(token.span.clone())));
        }
    }
    Ok(changes)
}

/// Leaves out whitespace and comments.
fn tokenize(sql: &str, syntax: Syntax) -> Result<Vec<Token>, StatementError> {
    let is_mysql = syntax == Syntax::MySql;
    let mut tokens: Vec<Token> = Vec::new();
    let mut at = 0;
    while let Some(first) = sql[at..].chars().next() {
        let rest = &sql[at..];
        let unterminated =
            |what: &str| error(format!("this {what} is not closed"), None, Some(at..sql.len()));
        let follows_name = tokens.last().is_some_and(|token| {
            token.span.end == at && matches!(token.kind, TokenKind::Word | TokenKind::Other)
        });
        let (kind, length) = match first {
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            // MySQL wants a blank after it, but refusing is safer than guessing.
            '-' if rest.starts_with("--") => {
                if is_mysql && rest[2..].starts_with(|c: char| !c.is_whitespace()) {
                    let help = "write `- -` for two signs, and a blank after `--` for a comment";
                    return Err(error(
                        "`--` without a blank means different things",
                        Some(help),
                        Some(at..at + 2),
                    ));
                }
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '#' if is_mysql => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '/' if rest.starts_with("/*") => {
                if is_mysql && (rest.starts_with("/*!") || rest.starts_with("/*M!")) {
                    let message = "a comment that some servers execute is not supported";
                    return Err(error(message, Some("remove `/*! … */`"), Some(at..at + 3)));
                }
                at += comment_len(rest, !is_mysql).ok_or_else(|| unterminated("comment"))?;
                continue;
            }
            '\'' => {
                let has_escapes = is_mysql || (follows_name && is_escape_prefix(sql, &tokens));
                let length = quoted_len(rest, '\'', has_escapes).ok_or_else(|| unterminated("string"))?;
                (TokenKind::Other, length)
            }
            '"' => (
                TokenKind::Other,
                quoted_len(rest, '"', is_mysql).ok_or_else(|| unterminated("quoted name"))?,
            ),
            '`' if is_mysql => {
                (TokenKind::Other, quoted_len(rest, '`', false).ok_or_else(|| unterminated("quoted name"))?)
            }
            '$' if !is_mysql && !follows_name => match dollar_quoted_len(rest) {
                DollarQuote::Text(length) => (TokenKind::Other, length),
                DollarQuote::Unterminated => return Err(unterminated("string")),
                DollarQuote::Parameter => return Err(unnamed(at..at + 2, sql)),
            },
            '?' if is_mysql => return Err(unnamed(at..at + 1, sql)),
            ':' if rest.starts_with("::") || rest.starts_with(":=") => (TokenKind::Symbol, 2),
            ':' if rest[1..].starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') => {
                let end = rest[1..].find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                (TokenKind::Parameter, end.map_or(rest.len(), |end| end + 1))
            }
            c if c.is_ascii_digit() => {
                let end = |c: char| !(is_name_char(c) || c == '.');
                (TokenKind::Other, rest.find(end).unwrap_or(rest.len()))
            }
            c if is_name_char(c) => (TokenKind::Word, rest.find(|c| !is_name_char(c)).unwrap_or(rest.len())),
            c => (TokenKind::Symbol, c.len_utf8()),
        };
        tokens.push(Token { kind, span: at..at + length });
        at += length;
    }
    Ok(tokens)
}

fn unnamed(span: Range<usize>, sql: &str) -> StatementError {
    let text = sql.get(span.clone()).unwrap_or("$");
    let help = "write `:name`, and declare `name` as an argument";
    error(format!("`{text}` has no name that callers can use"), Some(help), Some(span))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

/// `E'…'`, in which a backslash escapes.
fn is_escape_prefix(sql: &str, tokens: &[Token]) -> bool {
    tokens.last().is_some_and(|token| sql[token.span.clone()].eq_ignore_ascii_case("e"))
}

/// The length of a quoted text, in which the quote is written twice.
fn quoted_len(text: &str, quote: char, has_escapes: bool) -> Option<usize> {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if has_escapes && c == '\\' {
            chars.next();
        } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return Some(at + 1);
        }
    }
    None
}

/// The length of a comment. PostgreSQL nests them.
fn comment_len(text: &str, is_nested: bool) -> Option<usize> {
    let (mut depth, mut at) = (0_u32, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") && (is_nested || depth == 0) {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    None
}

enum DollarQuote {
    Text(usize),
    Unterminated,
    /// `$1`
    Parameter,
}

/// `$$…$$` and `$tag$…$tag$`
fn dollar_quoted_len(text: &str) -> DollarQuote {
    let tag = text[1..].find('$').map(|end| &text[..end + 2]).filter(|tag| {
        let inner = &tag[1..tag.len() - 1];
        inner.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii())
            && !inner.starts_with(|c: char| c.is_ascii_digit())
    });
    match tag {
        None => DollarQuote::Parameter,
        Some(tag) => match text[tag.len()..].find(tag) {
            Some(end) => DollarQuote::Text(end + 2 * tag.len()),
            None => DollarQuote::Unterminated,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{StatementText, Syntax};

    fn check(syntax: Syntax, sql: &str, expected: Result<(&str, &[&str], bool), &str>) {
        let found = StatementText::parse(sql, syntax)
            .map(|text| (text.render(|at| format!("<{at}>")), text.parameters, text.writes))
            .map_err(|error| error.message);
        match (found, expected) {
            (Ok((rendered, parameters, writes)), Ok((sql_expected, names, expected_writes))) => {
                assert_eq!((rendered.as_str(), writes), (sql_expected, expected_writes), "{sql}");
                assert_eq!(parameters, names, "{sql}");
            }
            (Err(message), Err(part)) => assert!(message.contains(part), "{sql}: {message}"),
            (found, expected) => panic!("{sql}: {found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn parameters_are_found_outside_of_strings_names_and_comments() {
        use Syntax::{MySql, Postgres};
        for syntax in [Postgres, MySql] {
            check(syntax, "SELECT :a, :b, :a", Ok(("SELECT <0>, <1>, <0>", &["a", "b"], false)));
            check(
                syntax,
                "select ':no', ':it''s' /* :no */ -- :no\n, :yes ;",
                Ok(("select ':no', ':it''s' /* :no */ -- :no\n, <0>", &["yes"], false)),
            );
        }
        check(
            Postgres,
            "SELECT :a::int, b[1:2], \"x:no\", $$:no$$, $q$ ' :no $q$, E'\\':no', x ? 'k'",
            Ok((
                "SELECT <0>::int, b[1:2], \"x:no\", $$:no$$, $q$ ' :no $q$, E'\\':no', x ? 'k'",
                &["a"],
                false,
            )),
        );
        check(Postgres, "SELECT '\\', :a /* /* :no */ :no */", Ok(("SELECT '\\', <0>", &["a"], false)));
        check(
            MySql,
            "SELECT '\\':no', \"\\\":no\", `:no`, @v := :a # :no",
            Ok(("SELECT '\\':no', \"\\\":no\", `:no`, @v := <0>", &["a"], false)),
        );
    }

    #[test]
    fn a_statement_that_changes_rows_is_recognized_wherever_it_says_so() {
        for (sql, writes) in [
            ("SELECT 1", false),
            ("VALUES (1)", false),
            ("INSERT INTO t VALUES (1)", true),
            ("update t set a = 1", true),
            ("WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d", true),
            ("WITH d AS MATERIALIZED (INSERT INTO t VALUES (1) RETURNING *) SELECT 1", true),
            ("WITH a AS (SELECT 1) DELETE FROM t", true),
            ("WITH a AS (SELECT 1), b AS (SELECT 2) SELECT * FROM a", false),
            ("WITH a AS (SELECT 'DELETE') SELECT * FROM a", false),
            ("SELECT \"update\" FROM t", false),
            ("SELECT (delete) FROM t", false),
        ] {
            let found = StatementText::parse(sql, Syntax::Postgres).map(|text| text.writes);
            assert_eq!(found.map_err(|error| error.message), Ok(writes), "{sql}");
        }
    }

    #[test]
    fn what_no_tool_may_run_is_refused() {
        use Syntax::{MySql, Postgres};
        for syntax in [Postgres, MySql] {
            for (sql, message) in [
                ("", "empty"),
                (" -- nothing", "empty"),
                ("SELECT 1; DELETE FROM t", "a second statement"),
                ("DROP TABLE t", "`DROP` is not supported"),
                ("CALL p()", "`CALL` is not supported"),
                ("SET x = 1", "`SET` is not supported"),
                ("COPY t TO PROGRAM 'x'", "`COPY` is not supported"),
                ("LOAD DATA INFILE 'x' INTO TABLE t", "`LOAD` is not supported"),
                ("SELECT * INTO x FROM t", "`SELECT … INTO` is not supported"),
                ("SELECT 1 INTO OUTFILE '/tmp/x'", "`SELECT … INTO` is not supported"),
                ("WITH a AS (SELECT 1) SELECT * INTO x FROM a", "`SELECT … INTO` is not supported"),
                ("SELECT 'a", "not closed"),
                ("SELECT \"a", "not closed"),
                ("SELECT 1 /* a", "not closed"),
                ("SELECT 1\0", "NUL"),
            ] {
                check(syntax, sql, Err(message));
            }
        }
        check(Postgres, "SELECT $1", Err("`$1` has no name"));
        check(Postgres, "SELECT $$a", Err("not closed"));
        check(Postgres, "REPLACE INTO t VALUES (1)", Err("`REPLACE` is not supported"));
        check(MySql, "SELECT ?", Err("`?` has no name"));
        check(MySql, "SELECT 1 /*!50000 INTO OUTFILE '/tmp/x' */", Err("some servers execute"));
        check(MySql, "SELECT 1 /*M! + 1 */", Err("some servers execute"));
        check(MySql, "SELECT 1 --1", Err("without a blank"));
    }

    #[test]
    fn a_position_of_the_database_is_found_in_the_text_of_the_author() {
        let sql = "SELECT :customer, näme FROM t WHERE id = :customer";
        let text = StatementText::parse(sql, Syntax::Postgres).expect("a statement");
        let rendered = text.render(|at| format!("${}", at + 1));
        for (found, expected) in [("näme", "näme"), ("$1", ":customer"), ("t ", "t"), ("= $1", "=")] {
            let position = rendered[..rendered.find(found).expect("it is there")].chars().count() + 1;
            let span = text.span_at(&rendered, position).expect("a place");
            assert_eq!(&sql[span], expected, "{found}");
        }
        assert_eq!(text.span_at(&rendered, 1000), None);
        assert_eq!(text.span_at(&rendered, 0), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(sql in "[SELCT a'\"`$;:?@#/*!é(\\\\)-]{0,24}", is_mysql: bool) {
            let syntax = if is_mysql { Syntax::MySql } else { Syntax::Postgres };
            if let Ok(text) = StatementText::parse(&sql, syntax) {
                let rendered = text.render(|at| format!("${}", at + 1));
                for position in 0..rendered.chars().count() + 2 {
                    let _ = text.span_at(&rendered, position);
                }
            }
        }
    }
}

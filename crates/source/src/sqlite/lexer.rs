//! The words of a statement and where they are. SQLite decides what a statement means; this says where to look when
//! it is wrong, and which names stand for values.

use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    /// Bytes of the statement.
    pub(super) span: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A keyword or a name without quotes.
    Word,
    /// A name in quotes.
    QuotedName,
    /// A text or a blob.
    Literal,
    Number,
    /// `:name`, `@name`, `$name`, `?`, `?1`.
    Parameter,
    Symbol,
}

/// What does not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnterminatedToken {
    pub(super) message: &'static str,
    pub(super) span: Range<usize>,
}

/// Blanks and comments are left out.
pub(super) fn tokenize(sql: &str) -> Result<Vec<Token>, UnterminatedToken> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = sql[at..].chars().next() {
        let rest = &sql[at..];
        let (class, length) = match first {
            // SQLite takes a byte order mark for a blank.
            c if c.is_ascii_whitespace() || c == '\u{feff}' => {
                at += c.len_utf8();
                continue;
            }
            '-' if rest.starts_with("--") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '/' if rest.starts_with("/*") => {
                // One that does not end ends with the statement.
                at += rest[2..].find("*/").map_or(rest.len(), |end| end + 4);
                continue;
            }
            '\'' => (TokenKind::Literal, quoted_len(rest, '\'', "this text has no end", at)?),
            'x' | 'X' if rest[1..].starts_with('\'') => {
                let length = quoted_len(&rest[1..], '\'', "these bytes have no end", at + 1);
                (TokenKind::Literal, 1 + length?)
            }
            '"' => (TokenKind::QuotedName, quoted_len(rest, '"', "this name has no end", at)?),
            '`' => (TokenKind::QuotedName, quoted_len(rest, '`', "this name has no end", at)?),
            '[' => match rest.find(']') {
                Some(end) => (TokenKind::QuotedName, end + 1),
                None => {
                    return Err(UnterminatedToken { message: "this name has no end", span: at..sql.len() });
                }
            },
            ':' | '@' | '$' if rest[1..].starts_with(is_identifier_char) => {
                (TokenKind::Parameter, 1 + identifier_len(&rest[1..]))
            }
            '?' => (
                TokenKind::Parameter,
                1 + rest[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - 1),
            ),
            c if c.is_ascii_digit() => {
                let end = |c: char| !(is_identifier_char(c) || c == '.');
                (TokenKind::Number, rest.find(end).unwrap_or(rest.len()))
            }
            c if is_identifier_char(c) => (TokenKind::Word, identifier_len(rest)),
            c => (TokenKind::Symbol, c.len_utf8()),
        };
        tokens.push(Token { kind: class, span: at..at + length });
        at += length;
    }
    Ok(tokens)
}

fn is_identifier_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

fn identifier_len(text: &str) -> usize {
    text.find(|c| !is_identifier_char(c)).unwrap_or(text.len())
}

/// How long what stands in quotes is; a quote inside stands twice.
fn quoted_len(text: &str, quote: char, what: &'static str, at: usize) -> Result<usize, UnterminatedToken> {
    let mut from = 1;
    loop {
        let Some(end) = text[from..].find(quote) else {
            return Err(UnterminatedToken { message: what, span: at..at + text.len() });
        };
        from += end + 1;
        if !text[from..].starts_with(quote) {
            return Ok(from);
        }
        from += 1;
    }
}

impl Token {
    pub(super) fn text<'s>(&self, sql: &'s str) -> &'s str {
        &sql[self.span.clone()]
    }

    pub(super) fn is_word(&self, sql: &str, word: &str) -> bool {
        self.kind == TokenKind::Word && self.text(sql).eq_ignore_ascii_case(word)
    }

    pub(super) fn is_symbol(&self, sql: &str, sign: &str) -> bool {
        self.kind == TokenKind::Symbol && self.text(sql) == sign
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{TokenKind, tokenize};

    fn check(sql: &str, expected: &[(TokenKind, &str)]) {
        let tokens = tokenize(sql).expect("tokens");
        let found: Vec<(TokenKind, &str)> =
            tokens.iter().map(|token| (token.kind, token.text(sql))).collect();
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn words_are_told_apart() {
        use TokenKind::{Literal, Number, Parameter, QuotedName, Symbol, Word};
        check(
            "SELECT a -- b\n, 'it''s'",
            &[(Word, "SELECT"), (Word, "a"), (Symbol, ","), (Literal, "'it''s'")],
        );
        check(
            "/* a ; */ x'00' \"a\"\"b\" [c d] `e`",
            &[(Literal, "x'00'"), (QuotedName, "\"a\"\"b\""), (QuotedName, "[c d]"), (QuotedName, "`e`")],
        );
        check(
            ":a = ?1+@b $c ?",
            &[
                (Parameter, ":a"),
                (Symbol, "="),
                (Parameter, "?1"),
                (Symbol, "+"),
                (Parameter, "@b"),
                (Parameter, "$c"),
                (Parameter, "?"),
            ],
        );
        check("1.5e3 größe ':no'", &[(Number, "1.5e3"), (Word, "größe"), (Literal, "':no'")]);
        check("\u{feff}SELECT", &[(Word, "SELECT")]);
        check("a /* never closed", &[(Word, "a")]);
        check("", &[]);
    }

    #[test]
    fn what_does_not_end_has_a_place() {
        for (sql, at) in [("SELECT 'a", 7..9), ("x'0", 1..3), ("a \"b", 2..4), ("[a", 0..2)] {
            assert_eq!(tokenize(sql).expect_err("no end").span, at, "{sql}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_tokens_or_an_end_that_is_missing(sql in "[ a'\"\\[\\];:?@/*é-]{0,12}") {
            let _ = tokenize(&sql);
        }
    }
}

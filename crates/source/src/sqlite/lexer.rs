//! Splits a statement into tokens with their positions. SQLite decides what a statement means; the tokens say
//! where an error is and which names are parameters.

use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    /// Byte offsets in the statement.
    pub(super) span: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A keyword or an unquoted name.
    Word,
    /// A quoted name.
    QuotedName,
    /// A string or a blob.
    Literal,
    Number,
    /// `:name`, `@name`, `$name`, `?`, `?1`.
    Parameter,
    Symbol,
}

/// A quote that is not closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnterminatedToken {
    pub(super) message: &'static str,
    pub(super) span: Range<usize>,
}

/// Leaves out whitespace and comments.
pub(super) fn tokenize(sql: &str) -> Result<Vec<Token>, UnterminatedToken> {
    let mut tokens = Vec::new();
    let mut position = 0;
    while let Some(first) = sql[position..].chars().next() {
        let rest = &sql[position..];
        let (kind, length) = match first {
            // SQLite treats a byte order mark as whitespace.
            c if c.is_ascii_whitespace() || c == '\u{feff}' => {
                position += c.len_utf8();
                continue;
            }
            '-' if rest.starts_with("--") => {
                position += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '/' if rest.starts_with("/*") => {
                // An unclosed comment extends to the end of the statement.
                position += rest[2..].find("*/").map_or(rest.len(), |end| end + 4);
                continue;
            }
            '\'' => (TokenKind::Literal, quoted_len(rest, '\'', "this string is not closed", position)?),
            'x' | 'X' if rest[1..].starts_with('\'') => {
                let length = quoted_len(&rest[1..], '\'', "this blob is not closed", position + 1);
                (TokenKind::Literal, 1 + length?)
            }
            '"' => {
                (TokenKind::QuotedName, quoted_len(rest, '"', "this quoted name is not closed", position)?)
            }
            '`' => {
                (TokenKind::QuotedName, quoted_len(rest, '`', "this quoted name is not closed", position)?)
            }
            '[' => match rest.find(']') {
                Some(end) => (TokenKind::QuotedName, end + 1),
                None => {
                    return Err(UnterminatedToken {
                        message: "this quoted name is not closed",
                        span: position..sql.len(),
                    });
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
        tokens.push(Token { kind, span: position..position + length });
        position += length;
    }
    Ok(tokens)
}

fn is_identifier_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

fn identifier_len(text: &str) -> usize {
    text.find(|c| !is_identifier_char(c)).unwrap_or(text.len())
}

/// The length of a quoted token. A quote inside is written twice.
fn quoted_len(
    text: &str,
    quote: char,
    message: &'static str,
    position: usize,
) -> Result<usize, UnterminatedToken> {
    let mut from = 1;
    loop {
        let Some(end) = text[from..].find(quote) else {
            return Err(UnterminatedToken { message, span: position..position + text.len() });
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

    pub(super) fn is_symbol(&self, sql: &str, symbol: &str) -> bool {
        self.kind == TokenKind::Symbol && self.text(sql) == symbol
    }
}

/// A part of a statement's tokens, with the questions that several readers ask of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenSlice<'s> {
    pub(super) sql: &'s str,
    pub(super) tokens: &'s [Token],
}

impl<'s> TokenSlice<'s> {
    pub(super) fn is_word(&self, index: usize, word: &str) -> bool {
        self.tokens.get(index).is_some_and(|token| token.is_word(self.sql, word))
    }

    pub(super) fn is_any_word(&self, index: usize, words: &[&str]) -> bool {
        words.iter().any(|word| self.is_word(index, word))
    }

    pub(super) fn is_symbol(&self, index: usize, symbol: &str) -> bool {
        self.tokens.get(index).is_some_and(|token| token.is_symbol(self.sql, symbol))
    }

    /// The name at this index, without its quotes.
    pub(super) fn name_at(&self, index: usize) -> Option<String> {
        let token = self.tokens.get(index)?;
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
    pub(super) fn closing_paren(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        (open..self.tokens.len()).find(|index| {
            depth += usize::from(self.is_symbol(*index, "("));
            depth -= usize::from(self.is_symbol(*index, ")"));
            depth == 0
        })
    }

    /// The index after this token, or after the parenthesis that closes it.
    pub(super) fn skip(&self, index: usize) -> usize {
        if self.is_symbol(index, "(") {
            self.closing_paren(index).map_or(self.tokens.len(), |end| end + 1)
        } else {
            index + 1
        }
    }

    /// The first index from here, outside parentheses, for which `is_end` holds; else the end.
    pub(super) fn find_outside_parens(&self, from: usize, is_end: impl Fn(usize) -> bool) -> usize {
        let mut index = from;
        while index < self.tokens.len() && !is_end(index) {
            index = self.skip(index);
        }
        index.min(self.tokens.len())
    }

    pub(super) fn part(&self, from: usize, to: usize) -> Self {
        let to = to.min(self.tokens.len());
        Self { sql: self.sql, tokens: &self.tokens[from.min(to)..to] }
    }

    /// Splits at commas outside parentheses.
    pub(super) fn split_at_commas(&self) -> Vec<Self> {
        let (mut items, mut start) = (Vec::new(), 0);
        loop {
            let end = self.find_outside_parens(start, |index| self.is_symbol(index, ","));
            items.push(self.part(start, end));
            if end == self.tokens.len() {
                return items;
            }
            start = end + 1;
        }
    }

    pub(super) fn has_parameter(&self) -> bool {
        self.tokens.iter().any(|token| token.kind == TokenKind::Parameter)
    }
}

/// Whether the text asks for `REPLACE`, which deletes rows without counting them.
pub(super) fn may_replace(sql: &str, tokens: &[Token]) -> bool {
    let is_call = |position: usize| tokens.get(position + 1).is_some_and(|next| next.is_symbol(sql, "("));
    (0..tokens.len()).any(|position| tokens[position].is_word(sql, "REPLACE") && !is_call(position))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{TokenKind, may_replace, tokenize};

    fn check(sql: &str, expected: &[(TokenKind, &str)]) {
        let tokens = tokenize(sql).expect("tokens");
        let found: Vec<(TokenKind, &str)> =
            tokens.iter().map(|token| (token.kind, token.text(sql))).collect();
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn statements_are_split_into_tokens() {
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
    fn unterminated_tokens_have_a_position() {
        for (sql, position) in [("SELECT 'a", 7..9), ("x'0", 1..3), ("a \"b", 2..4), ("[a", 0..2)] {
            assert_eq!(tokenize(sql).expect_err("no end").span, position, "{sql}");
        }
    }

    #[test]
    fn the_replace_keyword_is_not_the_replace_function() {
        for (sql, expected) in [
            ("REPLACE INTO t(a) VALUES(1)", true),
            ("INSERT OR replace INTO t(a) VALUES(1)", true),
            ("UPDATE OR REPLACE t SET a = 1", true),
            ("CREATE TABLE t(a UNIQUE ON CONFLICT REPLACE)", true),
            ("UPDATE t SET b = replace(b, 'a', 'REPLACE')", false),
            ("UPDATE t SET b = \"REPLACE\" -- REPLACE", false),
        ] {
            assert_eq!(may_replace(sql, &tokenize(sql).expect("tokens")), expected, "{sql}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_tokenized_or_is_unterminated(sql in "[ a'\"\\[\\];:?@/*é-]{0,12}") {
            let _ = tokenize(&sql);
        }
    }
}

//! The words of a statement and where they are. SQLite decides what a statement means; this says where to look when
//! it is wrong, and which names stand for values.

use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) class: Class,
    /// Bytes of the statement.
    pub(super) at: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A keyword or a name without quotes.
    Word,
    /// A name in quotes.
    Name,
    /// A text or a blob.
    Text,
    Number,
    /// `:name`, `@name`, `$name`, `?`, `?1`.
    Value,
    Sign,
}

/// What does not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endless {
    pub(super) what: &'static str,
    pub(super) at: Range<usize>,
}

/// Blanks and comments are left out.
pub(super) fn tokens(sql: &str) -> Result<Vec<Token>, Endless> {
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
            '\'' => (Class::Text, quoted(rest, '\'', "this text has no end", at)?),
            'x' | 'X' if rest[1..].starts_with('\'') => {
                let length = quoted(&rest[1..], '\'', "these bytes have no end", at + 1);
                (Class::Text, 1 + length?)
            }
            '"' => (Class::Name, quoted(rest, '"', "this name has no end", at)?),
            '`' => (Class::Name, quoted(rest, '`', "this name has no end", at)?),
            '[' => match rest.find(']') {
                Some(end) => (Class::Name, end + 1),
                None => return Err(Endless { what: "this name has no end", at: at..sql.len() }),
            },
            ':' | '@' | '$' if rest[1..].starts_with(is_part) => (Class::Value, 1 + part(&rest[1..])),
            '?' => {
                (Class::Value, 1 + rest[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - 1))
            }
            c if c.is_ascii_digit() => {
                let end = |c: char| !(is_part(c) || c == '.');
                (Class::Number, rest.find(end).unwrap_or(rest.len()))
            }
            c if is_part(c) => (Class::Word, part(rest)),
            c => (Class::Sign, c.len_utf8()),
        };
        tokens.push(Token { class, at: at..at + length });
        at += length;
    }
    Ok(tokens)
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

fn part(text: &str) -> usize {
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

/// How long what stands in quotes is; a quote inside stands twice.
fn quoted(text: &str, quote: char, what: &'static str, at: usize) -> Result<usize, Endless> {
    let mut from = 1;
    loop {
        let Some(end) = text[from..].find(quote) else {
            return Err(Endless { what, at: at..at + text.len() });
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
        &sql[self.at.clone()]
    }

    pub(super) fn is_word(&self, sql: &str, word: &str) -> bool {
        self.class == Class::Word && self.text(sql).eq_ignore_ascii_case(word)
    }

    pub(super) fn is_sign(&self, sql: &str, sign: &str) -> bool {
        self.class == Class::Sign && self.text(sql) == sign
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Class, tokens};

    fn check(sql: &str, expected: &[(Class, &str)]) {
        let tokens = tokens(sql).expect("tokens");
        let found: Vec<(Class, &str)> = tokens.iter().map(|token| (token.class, token.text(sql))).collect();
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn words_are_told_apart() {
        use Class::{Name, Number, Sign, Text, Value, Word};
        check("SELECT a -- b\n, 'it''s'", &[(Word, "SELECT"), (Word, "a"), (Sign, ","), (Text, "'it''s'")]);
        check(
            "/* a ; */ x'00' \"a\"\"b\" [c d] `e`",
            &[(Text, "x'00'"), (Name, "\"a\"\"b\""), (Name, "[c d]"), (Name, "`e`")],
        );
        check(
            ":a = ?1+@b $c ?",
            &[
                (Value, ":a"),
                (Sign, "="),
                (Value, "?1"),
                (Sign, "+"),
                (Value, "@b"),
                (Value, "$c"),
                (Value, "?"),
            ],
        );
        check("1.5e3 größe ':no'", &[(Number, "1.5e3"), (Word, "größe"), (Text, "':no'")]);
        check("\u{feff}SELECT", &[(Word, "SELECT")]);
        check("a /* never closed", &[(Word, "a")]);
        check("", &[]);
    }

    #[test]
    fn what_does_not_end_has_a_place() {
        for (sql, at) in [("SELECT 'a", 7..9), ("x'0", 1..3), ("a \"b", 2..4), ("[a", 0..2)] {
            assert_eq!(tokens(sql).expect_err("no end").at, at, "{sql}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_tokens_or_an_end_that_is_missing(sql in "[ a'\"\\[\\];:?@/*é-]{0,12}") {
            let _ = tokens(&sql);
        }
    }
}

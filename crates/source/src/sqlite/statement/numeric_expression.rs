//! Decides whether an SQL expression can only return values that a numeric column stores as they are: numbers, or
//! texts that no column takes for a number.
//!
//! `trim(:a)`, `:a || ''` and `json_extract(:a, '$.b')` return text, and a numeric column stores the text `007` as 7.
//! Works on tokens. What is not recognized counts as text.

use crate::sqlite::lexer::{TokenKind, TokenSlice};

/// Functions that return a number or NULL.
const NUMERIC_FUNCTIONS: [&str; 48] = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "avg",
    "ceil",
    "ceiling",
    "changes",
    "cos",
    "cosh",
    "count",
    "cume_dist",
    "degrees",
    "dense_rank",
    "exp",
    "floor",
    "instr",
    "json_array_length",
    "json_valid",
    "julianday",
    "last_insert_rowid",
    "length",
    "ln",
    "log",
    "log10",
    "log2",
    "mod",
    "ntile",
    "octet_length",
    "percent_rank",
    "pi",
    "pow",
    "power",
    "radians",
    "random",
    "rank",
    "round",
    "row_number",
    "sign",
    "sqrt",
    "sum",
    "total",
    "unicode",
    "unixepoch",
];
/// Functions that return text which does not look like a number: `2026-02-11`, `10:00:00`, `text`.
const NON_NUMERIC_TEXT_FUNCTIONS: [&str; 4] = ["date", "datetime", "time", "typeof"];
/// Operators whose result is true or false.
const LOGICAL_WORDS: [&str; 12] =
    ["AND", "OR", "NOT", "IS", "IN", "LIKE", "GLOB", "REGEXP", "MATCH", "BETWEEN", "ISNULL", "NOTNULL"];

pub(super) fn is_numeric(item: TokenSlice<'_>) -> bool {
    let count = item.tokens.len();
    if item.is_word(0, "CAST") && item.closing_paren(1) == Some(count - 1) {
        return is_numeric_cast(item.part(2, count - 1));
    }
    if let (Some(name), true) = (item.name_at(0), item.is_symbol(1, "(")) {
        let close = item.closing_paren(1).unwrap_or(count);
        if close == count - 1 || item.is_any_word(close + 1, &["OVER", "FILTER"]) {
            let is_one_of = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
            return is_one_of(&NUMERIC_FUNCTIONS)
                || is_one_of(&NON_NUMERIC_TEXT_FUNCTIONS)
                || is_one_of(&["exists", "not"]);
        }
    }
    has_numeric_operator(item)
}

/// `… AS INTEGER`: the author converts the value.
fn is_numeric_cast(inner: TokenSlice<'_>) -> bool {
    let last_as = (0..inner.tokens.len()).rev().find(|index| inner.is_word(*index, "AS"));
    let Some(start) = last_as else { return false };
    let declared: String =
        inner.part(start + 1, inner.tokens.len()).tokens.iter().fold(String::new(), |mut declared, token| {
            declared += &token.text(inner.sql).to_ascii_uppercase();
            declared
        });
    let contains = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    // https://sqlite.org/datatype3.html#determination_of_column_affinity, in its order.
    contains(&["INT"])
        || !contains(&["CHAR", "CLOB", "TEXT", "BLOB"])
            && contains(&["REAL", "FLOA", "DOUB", "NUM", "DEC", "BOOL"])
}

/// Whether an operator outside parentheses returns a number. `||`, `->` and `->>` bind tighter than those, so one of
/// them decides the type of the whole expression.
fn has_numeric_operator(item: TokenSlice<'_>) -> bool {
    let (mut index, mut case_depth) = (0, 0_usize);
    let mut after_operand = false;
    let (mut has_prefix, mut has_text_operator) = (false, false);
    while index < item.tokens.len() {
        let token = &item.tokens[index];
        if item.is_word(index, "CASE") {
            case_depth += 1;
        } else if item.is_word(index, "END") {
            case_depth = case_depth.saturating_sub(1);
            after_operand = true;
            index += 1;
            continue;
        }
        if case_depth > 0 || item.is_symbol(index, "(") {
            let next = item.skip(index);
            after_operand = true;
            index = next.max(index + 1);
            continue;
        }
        if item.is_any_word(index, &LOGICAL_WORDS) {
            return true;
        }
        let is_joined = |index: usize, symbol: &str| {
            item.is_symbol(index, symbol) && item.tokens[index - 1].span.end == item.tokens[index].span.start
        };
        if token.kind != TokenKind::Symbol {
            after_operand = true;
            index += 1;
            continue;
        }
        let text = token.text(item.sql);
        let is_concat = text == "|" && is_joined_next(item, index, "|");
        let is_arrow = text == "-" && is_joined_next(item, index, ">");
        if is_concat || is_arrow {
            has_text_operator = true;
            after_operand = false;
            index += 2;
            index += usize::from(is_arrow && index < item.tokens.len() && is_joined(index, ">"));
            continue;
        }
        match text {
            "." => {}
            "-" | "~" if !after_operand => has_prefix = true,
            "+" if !after_operand => {}
            "+" | "-" | "*" | "/" | "%" | "&" | "|" | "<" | ">" | "=" | "!" => return true,
            _ => return false,
        }
        after_operand = false;
        index += 1;
    }
    has_prefix && !has_text_operator
}

fn is_joined_next(item: TokenSlice<'_>, index: usize, symbol: &str) -> bool {
    item.is_symbol(index + 1, symbol) && item.tokens[index].span.end == item.tokens[index + 1].span.start
}

#[cfg(test)]
mod tests {
    use super::is_numeric;
    use crate::sqlite::lexer::{self, TokenSlice};

    fn check(sql: &str) -> bool {
        let tokens = lexer::tokenize(sql).expect("tokens");
        is_numeric(TokenSlice { sql, tokens: &tokens })
    }

    #[test]
    fn numbers_are_recognized() {
        for sql in [
            "n + :a",
            "n-:a",
            "-:a",
            "~ :a",
            "t.n * (:a || '')",
            ":a || '' = 'x'",
            ":a IS NULL",
            "NOT :a",
            ":a IN (1, 2)",
            ":a | 1",
            "abs(:a)",
            "ABS ( :a )",
            "count(:a) OVER (ORDER BY n)",
            "cast(:a AS INTEGER)",
            "CAST(trim(:a) AS double precision)",
            "cast(:a as decimal(10, 2))",
            "length(:a) + 1",
            "date(:a)",
            "datetime(:a, '+1 day')",
            "CASE WHEN 1 THEN :a END + 1",
            ":a ->> '$.b' + 1",
        ] {
            assert!(check(sql), "{sql}");
        }
    }

    #[test]
    fn texts_are_not_numbers() {
        for sql in [
            ":a || ''",
            "'0' || -:a",
            "-:a || ''",
            "'' || +:a",
            "trim(:a)",
            "lower(:a)",
            "substr(:a, 1)",
            "replace(:a, 'z', 'y')",
            "printf('%s', :a)",
            "json_extract(:a, '$.b')",
            ":a -> '$'",
            ":a->>'$.b'",
            "group_concat(:a)",
            "strftime('%s', :a)",
            "hex(:a)",
            "cast(:a AS TEXT)",
            "cast(:a AS varchar(20))",
            "cast(:a AS BLOB)",
            "CASE WHEN n = 1 THEN :a END || ''",
            "quote(:a)",
            "unknown(:a)",
        ] {
            assert!(!check(sql), "{sql}");
        }
    }
}

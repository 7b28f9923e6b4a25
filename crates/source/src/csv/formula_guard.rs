//! Texts that a spreadsheet would run as a formula when it opens the file.
//!
//! A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, and so a caller could make the
//! owner's computer run one ("CSV injection"). But phone numbers begin with `+`, user names with `@`, and lists with
//! `-`. So a text with one of these three signs is allowed in a column that already has such texts, if nothing in it
//! can call a function or another program. A text with `=` is never allowed.

/// A sign that some columns have in front of harmless texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LeadingSigns(u8);

impl LeadingSigns {
    fn of(sign: char) -> Self {
        Self(match sign {
            '+' => 1,
            '-' => 2,
            '@' => 4,
            _ => 0,
        })
    }

    fn contains(self, other: Self) -> bool {
        other.0 != 0 && self.0 & other.0 == other.0
    }

    /// Takes a text of the column into account.
    #[inline]
    pub(super) fn observe(&mut self, text: &str) {
        if let Some(b'+' | b'-' | b'@') = text.as_bytes().first() {
            self.observe_sign(text);
        }
    }

    #[cold]
    fn observe_sign(&mut self, text: &str) {
        let is_new = |sign: &char| !self.contains(Self::of(*sign));
        if let Some(sign) = text.chars().next().filter(is_new)
            && !is_dangerous(text)
        {
            self.0 |= Self::of(sign).0;
        }
    }
}

/// Why a text must not be written, or nothing. `signs` are those that the column has already, and `delimiter` is the
/// file's.
pub(super) fn check(text: &str, signs: LeadingSigns, delimiter: u8) -> Result<(), String> {
    let allow = "the server's owner can allow it with `formulas = \"keep\"` for the source";
    let Some(first) = text.chars().next() else { return Ok(()) };
    let is_control = matches!(first, '\t' | '\r' | '\n');
    let sign = formula_sign(first);
    let is_usual = signs.contains(LeadingSigns::of(first)) && !is_dangerous(text);
    if is_control || (sign.is_some() && !is_usual) {
        let first = first.escape_debug();
        return Err(format!("a text that begins with `{first}` is a formula to spreadsheets; {allow}"));
    }
    // A program that expects another delimiter splits the text there, and does not see the quotes around it.
    let is_split = |c: char| matches!(c, ',' | ';' | '\t' | '\n' | '\r') && c != char::from(delimiter);
    for (at, separator) in text.match_indices(is_split) {
        let cell = &text[at + separator.len()..];
        let end = cell.find(is_split).unwrap_or(cell.len());
        if cell.chars().next().and_then(formula_sign).is_some() && is_dangerous(&cell[..end]) {
            let separator = separator.escape_debug();
            return Err(format!(
                "a spreadsheet may split the text at `{separator}` and run what follows as a formula; {allow}"
            ));
        }
    }
    Ok(())
}

/// The sign with which a formula begins. Spreadsheets take the full-width forms of East Asian keyboards for the same.
fn formula_sign(c: char) -> Option<char> {
    match c {
        '=' | '＝' => Some('='),
        '+' | '＋' => Some('+'),
        '-' | '－' => Some('-'),
        '@' | '＠' => Some('@'),
        _ => None,
    }
}

/// Whether a text that begins with a sign could do more than show an error: whether it begins with `=`, calls a
/// function, or refers to another sheet, workbook or program.
fn is_dangerous(text: &str) -> bool {
    let mut before = None;
    for c in text.chars() {
        match c {
            '=' | '＝' | '|' | '!' | '[' | '"' => return true,
            '(' | '（' if before.is_some_and(|c: char| c.is_alphabetic() || c == '_' || c == '.') => {
                return true;
            }
            c if c.is_whitespace() => continue,
            _ => {}
        }
        before = Some(c);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{LeadingSigns, check};

    fn is_allowed(text: &str, column: &[&str], delimiter: u8) -> bool {
        let mut signs = LeadingSigns::default();
        column.iter().for_each(|text| signs.observe(text));
        check(text, signs, delimiter).is_ok()
    }

    #[test]
    fn a_sign_is_allowed_in_a_column_that_has_it() {
        let (phones, users) = (["0151", "+49 30 123"], ["anna", "@bob"]);
        for text in ["+49 151", "+1 (555) 010-99", "+49 (0)151/123.4", "+44 20 ext. 7"] {
            assert!(is_allowed(text, &phones, b','), "{text}");
            assert!(!is_allowed(text, &users, b','), "{text}");
            assert!(!is_allowed(text, &["0151"], b','), "{text}");
        }
        assert!(is_allowed("@anna", &users, b','));
        assert!(is_allowed("- milk", &["- eggs"], b','));
        for text in [
            "+1+cmd|' /C calc'!A0",
            "+HYPERLINK(\"http://x\")",
            "+SUM (1)",
            "+49 =1",
            "@SUM(A1)",
            "+Sheet2!A1",
            "+[book.xlsx]Sheet1",
        ] {
            assert!(!is_allowed(text, &["+49", "@bob"], b','), "{text}");
        }
        // What is dangerous sets no example, and `=` has none.
        assert!(!is_allowed("+1", &["+SUM(A1)"], b','));
        assert!(!is_allowed("=1+1", &["=1+1"], b','));
    }

    #[test]
    fn formulas_are_found_in_every_disguise() {
        for text in
            ["=1", "+1 555", "-x", "@x", "\tx", "\rx", "\nx", "\n=1", "＝1+1", "＋1", "－x", "＠SUM(A1)"]
        {
            assert!(!is_allowed(text, &[], b','), "{text:?}");
        }
        for text in ["", "x", "1-2", "a+b", "x@y.test", " =1", "x=1"] {
            assert!(is_allowed(text, &[], b','), "{text:?}");
        }
    }

    #[test]
    fn formulas_are_found_where_a_spreadsheet_would_split() {
        for text in ["x;=1+1", "x\t=1+1", "x\n=1+1", "x\r\n@SUM(A1)", "a;b;+cmd|x!y", "x;＝1"] {
            assert!(!is_allowed(text, &[], b','), "{text:?}");
        }
        // The file's own delimiter is quoted, and every program that expects it sees the quotes.
        assert!(is_allowed("x,=1+1", &[], b','));
        assert!(!is_allowed("x,=1+1", &[], b';'));
        for text in ["milk\n- eggs\n- bread", "a; -5 %", "a;-b", "Anna;@anna", "x;+49 151", "a;b=c"] {
            assert!(is_allowed(text, &[], b','), "{text:?}");
        }
    }
}

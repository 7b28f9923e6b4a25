//! Cell addresses and ranges (`B7`, `A1:C9`), and the references in a formula.

use std::fmt;

pub(super) const ROWS_MAX: u32 = 1_048_576;
pub(super) const COLUMNS_MAX: u32 = 16_384;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CellAddress {
    /// Counts from 1.
    pub(super) row: u32,
    /// Counts from 0.
    pub(super) column: u32,
}

/// A rectangle of cells, corners included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CellRange {
    pub(super) first: CellAddress,
    pub(super) last: CellAddress,
}

impl CellAddress {
    /// `B7`, with or without `$`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match (RangeCorner::parse(text)?, text.is_empty()) {
            (RangeCorner { row: Some(row), column: Some(column) }, false) => Some(Self { row, column }),
            _ => None,
        }
    }
}

impl fmt::Display for CellAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", column_letters(self.column), self.row)
    }
}

impl fmt::Display for CellRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { self.first.fmt(f) } else { write!(f, "{}:{}", self.first, self.last) }
    }
}

impl CellRange {
    /// `B7`, `A1:C9`, `A:C`, `2:5`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once(':').unwrap_or((text, text));
        let is_one = !text.contains(':');
        let (first, last) = (RangeCorner::parse(first)?, RangeCorner::parse(last)?);
        let whole = first.row.is_none() || first.column.is_none();
        if (is_one && whole) || first.row.is_none() != last.row.is_none() {
            return None;
        }
        if first.column.is_none() != last.column.is_none() {
            return None;
        }
        let corner = |half: RangeCorner, row, column| CellAddress {
            row: half.row.unwrap_or(row),
            column: half.column.unwrap_or(column),
        };
        let (a, b) = (corner(first, 1, 0), corner(last, ROWS_MAX, COLUMNS_MAX - 1));
        let first = CellAddress { row: a.row.min(b.row), column: a.column.min(b.column) };
        let last = CellAddress { row: a.row.max(b.row), column: a.column.max(b.column) };
        Some(Self { first, last })
    }

    pub(super) fn contains(&self, place: CellAddress) -> bool {
        (self.first.row..=self.last.row).contains(&place.row)
            && (self.first.column..=self.last.column).contains(&place.column)
    }

    pub(super) fn intersects(&self, other: &Self) -> bool {
        self.first.row <= other.last.row
            && other.first.row <= self.last.row
            && self.first.column <= other.last.column
            && other.first.column <= self.last.column
    }

    /// Whether it covers whole columns, so that adding or removing a row does not change it.
    pub(super) fn spans_all_rows(&self) -> bool {
        self.first.row == 1 && self.last.row == ROWS_MAX
    }
}

/// One corner of a range: `A1`, `A`, `1`.
#[derive(Clone, Copy)]
struct RangeCorner {
    row: Option<u32>,
    column: Option<u32>,
}

impl RangeCorner {
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('$').unwrap_or(text);
        let letters = text.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (letters, rest) = text.split_at(letters);
        let digits = if letters.is_empty() { rest } else { rest.strip_prefix('$').unwrap_or(rest) };
        if letters.len() > 3 || digits.len() > 7 || (letters.is_empty() && digits.is_empty()) {
            return None;
        }
        let of = |n: u32, c: u8| n * 26 + u32::from(c.to_ascii_uppercase() - b'A') + 1;
        let column = letters.bytes().fold(0, of).checked_sub(1);
        let row = match digits {
            "" => None,
            _ if !digits.bytes().all(|c| c.is_ascii_digit()) => return None,
            _ => Some(digits.parse().ok().filter(|row| (1..=ROWS_MAX).contains(row))?),
        };
        (column.is_none_or(|column| column < COLUMNS_MAX)).then_some(Self { row, column })
    }
}

pub(super) fn column_letters(column: u32) -> String {
    let mut out = Vec::new();
    let mut rest = column + 1;
    while rest > 0 {
        out.push(b'A' + ((rest - 1) % 26) as u8);
        rest = (rest - 1) / 26;
    }
    out.reverse();
    String::from_utf8(out).expect("letters are ASCII")
}

/// What a formula refers to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// Cells of the named sheet, or of the formula's own sheet.
    Cells(Option<String>, CellRange),
    /// A name, which the workbook may define.
    Name(String),
    /// Something that only a spreadsheet program can resolve: a table's column, a computed address.
    Unknown,
}

/// All references in a formula. What this does not understand becomes [`Reference::Unknown`]; nothing is left out.
pub(super) fn formula_references(formula: &str) -> Vec<Reference> {
    let mut found = Vec::new();
    let mut rest = formula;
    let mut sheet: Option<String> = None;
    while let Some(c) = rest.chars().next() {
        match c {
            '"' => rest = split_quoted(rest, '"').1,
            '\'' => {
                let (name, rest_after) = split_quoted(rest, '\'');
                match rest_after.strip_prefix('!') {
                    Some(rest_after) => (sheet, rest) = (Some(name), rest_after),
                    None => {
                        found.push(Reference::Unknown);
                        rest = rest_after;
                    }
                }
            }
            // A table's column, or another workbook.
            '[' | '{' if c == '[' => {
                found.push(Reference::Unknown);
                rest = &rest[1..];
            }
            // `#REF!`, `#N/A`
            '#' => rest = rest[1..].trim_start_matches(|c: char| c.is_alphanumeric() || "/!?".contains(c)),
            _ if is_word_char(c) => {
                let end = rest.find(|c| !is_word_char(c) && c != ':').unwrap_or(rest.len());
                let (word, rest_after) = rest.split_at(end);
                if let Some(rest_after) = rest_after.strip_prefix('!') {
                    // `Jan:Dec!A1` spans several sheets.
                    if word.contains(':') {
                        found.push(Reference::Unknown);
                    }
                    (sheet, rest) = (Some(word.to_owned()), rest_after);
                    continue;
                }
                rest = rest_after;
                if rest_after.trim_start().starts_with('(') {
                    if is_dynamic_reference(word) {
                        found.push(Reference::Unknown);
                    }
                    sheet = None;
                    continue;
                }
                let of = sheet.take();
                let is_plain = word.parse::<f64>().is_ok()
                    || matches!(word.to_ascii_uppercase().as_str(), "TRUE" | "FALSE");
                match CellRange::parse(word) {
                    Some(range) => found.push(Reference::Cells(of, range)),
                    None if is_plain => {}
                    None => found.push(Reference::Name(word.to_owned())),
                }
            }
            _ => rest = &rest[c.len_utf8()..],
        }
    }
    found
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || "_.$\\".contains(c)
}

/// Functions that read cells which no reference in the formula names.
fn is_dynamic_reference(name: &str) -> bool {
    matches!(name.to_ascii_uppercase().as_str(), "INDIRECT" | "OFFSET" | "INDEX" | "CELL" | "GETPIVOTDATA")
        || name.contains(':')
}

/// The text between quotes, with doubled quotes undone, and the rest after it.
fn split_quoted(text: &str, quote: char) -> (String, &str) {
    let mut name = String::new();
    let mut rest = &text[1..];
    loop {
        let Some(at) = rest.find(quote) else {
            name.push_str(rest);
            return (name, "");
        };
        name.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.strip_prefix(quote) {
            Some(more) => {
                name.push(quote);
                rest = more;
            }
            None => return (name, rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CellAddress, CellRange, Reference, column_letters, formula_references};

    #[test]
    fn addresses_and_ranges_parse_and_format() {
        for (text, expected) in [
            ("A1", Some((1, 0))),
            ("$B$7", Some((7, 1))),
            ("XFD1048576", Some((1_048_576, 16_383))),
            ("aa10", Some((10, 26))),
            ("XFE1", None),
            ("A1048577", None),
            ("A0", None),
            ("A", None),
            ("1", None),
            ("", None),
            ("A1B", None),
            ("ÄA1", None),
            ("AAAA1", None),
            ("A99999999999", None),
        ] {
            let place = CellAddress::parse(text);
            assert_eq!(place.map(|place| (place.row, place.column)), expected, "{text}");
        }
        for column in [0, 25, 26, 701, 702, 16_383] {
            let text = format!("{}1", column_letters(column));
            assert_eq!(CellAddress::parse(&text), Some(CellAddress { row: 1, column }), "{text}");
        }
        assert_eq!(CellRange::parse("C9:A1").unwrap().to_string(), "A1:C9");
        assert!(CellRange::parse("B:B").unwrap().spans_all_rows());
        assert_eq!(CellRange::parse("2:5").unwrap().to_string(), "A2:XFD5");
        assert_eq!(CellRange::parse("B"), None);
        assert_eq!(CellRange::parse("B2:C"), None);
    }

    #[test]
    fn references_of_a_formula_are_found() {
        for (formula, expected) in [
            ("B2*C2", "B2 C2"),
            ("SUM(B2:B100)+1.5", "B2:B100"),
            ("SUM(B:B)", "B1:B1048576"),
            ("$A$1&\"B2\"", "A1"),
            ("'My Sheet'!A1+Other!B2", "My Sheet!A1 Other!B2"),
            ("'It''s'!A1", "It's!A1"),
            ("LOG10(5)", ""),
            ("IF(TRUE,1,2)", ""),
            ("Total*2", "?Total"),
            ("Table1[Qty]", "?Table1 ? ?Qty"),
            ("[1]Book!A1", "? Book!A1 "),
            ("INDIRECT(\"A\"&1)", "?"),
            ("Jan:Dec!A1", "? Jan:Dec!A1"),
            ("#REF!+A1", "A1"),
            ("1E5+2", ""),
            ("", ""),
            ("\"unclosed", ""),
            ("'unclosed", "?"),
        ] {
            let result = formula_references(formula).into_iter().map(|one| match one {
                Reference::Cells(Some(sheet), range) => format!("{sheet}!{range}"),
                Reference::Cells(None, range) => range.to_string(),
                Reference::Name(name) => format!("?{name}"),
                Reference::Unknown => "?".to_owned(),
            });
            let result = result.collect::<Vec<_>>().join(" ");
            assert_eq!(result, expected.trim(), "{formula}");
        }
    }
}

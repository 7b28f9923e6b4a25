//! Cell addresses and ranges: `B7`, `A1:C9`.

use std::fmt;

pub(super) const ROWS_MAX: u32 = 1_048_576;
pub(super) const COLUMNS_MAX: u32 = 16_384;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

    /// Every cell of a sheet.
    pub(super) const ALL: Self = Self {
        first: CellAddress { row: 1, column: 0 },
        last: CellAddress { row: ROWS_MAX, column: COLUMNS_MAX - 1 },
    };

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

#[cfg(test)]
mod tests {
    use super::{CellAddress, CellRange, column_letters};

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
}

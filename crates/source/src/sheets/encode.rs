//! Encodes a value as a cell of a sheet's XML, or says why a workbook cannot hold it exactly.

use contract::infer::SAFE_INTEGER_MAX;

use super::serial_date::{NumberFormat, parse_serial};
use super::workbook::Styles;
use super::xml::escape_text;
use crate::tables::StoredValue;

/// Excel's limit.
pub(super) const TEXT_UNITS_MAX: usize = 32_767;
/// Excel's limit.
const NUMBER_MAX: f64 = 9.999_999_999_999_99e307;

/// A cell's type, its content with the tags around it, and its style.
#[derive(Debug, PartialEq)]
pub(super) struct EncodedCell {
    pub(super) cell_type: Option<&'static str>,
    pub(super) content: String,
    pub(super) style: u32,
}

/// `column_styles` are the date styles used in the column, nearest first. `prefix` precedes tag names.
pub(super) fn encode_cell(
    stored: StoredValue<'_>,
    style: u32,
    column_styles: &mut dyn Iterator<Item = u32>,
    styles: &Styles,
    prefix: &str,
) -> Result<EncodedCell, String> {
    let number = |n: f64| {
        if styles.number_format(style) != NumberFormat::Number {
            return Err("the cell is formatted to show a date, and this is a number".to_owned());
        }
        Ok(EncodedCell { cell_type: None, content: value_element(prefix, &shortest_digits(n)), style })
    };
    match stored {
        StoredValue::Null => Ok(EncodedCell { cell_type: None, content: String::new(), style }),
        StoredValue::Boolean(value) => Ok(EncodedCell {
            cell_type: Some("b"),
            content: value_element(prefix, if value { "1" } else { "0" }),
            style,
        }),
        StoredValue::Integer(n) if (-SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX).contains(&n) => number(n as f64),
        StoredValue::Integer(_) => {
            Err("a workbook stores only 53 bits of an integer; store such numbers as text".into())
        }
        StoredValue::Real(n) if !n.is_finite() => Err("a workbook cannot hold infinite numbers".into()),
        StoredValue::Real(n) if n.abs() > NUMBER_MAX || n.is_subnormal() => {
            Err("the number is too large or too small for a workbook".into())
        }
        StoredValue::Real(n) => number(n),
        StoredValue::NumberText(text) => match parse_exact(text) {
            Some(n) => number(n),
            None => Err("a workbook stores about 15 digits of a number, and this one has more".into()),
        },
        StoredValue::Text(text) | StoredValue::Json(text) => string_cell(text, style, prefix),
        StoredValue::DateTime(text) => {
            let mut all = vec![style];
            for style in column_styles {
                if !all.contains(&style) {
                    all.push(style);
                }
            }
            let find = |text: &str| {
                let number = |style: &u32| {
                    Some((*style, parse_serial(text, styles.number_format(*style), styles.epoch)?))
                };
                all.iter().find_map(number)
            };
            let (style, n) = find(text).ok_or_else(|| {
                let (with_t, with_seconds) = (text.replacen(' ', "T", 1), format!("{text}:00"));
                if find(&with_t).is_some() {
                    return format!("write it with a T between day and time: `{with_t}`");
                }
                if find(&with_seconds).is_some() {
                    return format!("write it with its seconds: `{with_seconds}`");
                }
                "the column holds dates or times, and no cell of this column has a format that shows this one \
                 exactly; days go from 1900-01-01 to 9999-12-31, times are written as 09:30:00, to the \
                 millisecond and without a zone"
                    .to_owned()
            })?;
            Ok(EncodedCell { cell_type: None, content: value_element(prefix, &shortest_digits(n)), style })
        }
        StoredValue::Blob(_) => Err("a workbook cannot hold bytes".into()),
    }
}

fn value_element(prefix: &str, text: &str) -> String {
    format!("<{prefix}v>{text}</{prefix}v>")
}

/// A text stays a text, even if it looks like a formula.
fn string_cell(text: &str, style: u32, prefix: &str) -> Result<EncodedCell, String> {
    let units = text.encode_utf16().count();
    if units > TEXT_UNITS_MAX {
        return Err(format!(
            "a cell of a workbook holds at most {TEXT_UNITS_MAX} characters, and this text has {units}"
        ));
    }
    if text.contains('\0') {
        return Err("a workbook cannot hold a NUL character".into());
    }
    let text = escape_text(text);
    let content = format!("<{prefix}is><{prefix}t xml:space=\"preserve\">{text}</{prefix}t></{prefix}is>");
    Ok(EncodedCell { cell_type: Some("inlineStr"), content, style })
}

/// The shortest digits that read back as this number.
fn shortest_digits(n: f64) -> String {
    let text = format!("{n:?}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// The float whose shortest spelling has exactly these digits, if a workbook can hold it.
fn parse_exact(text: &str) -> Option<f64> {
    json::exact_f64(text).filter(|n| n.abs() <= NUMBER_MAX && !n.is_subnormal())
}

#[cfg(test)]
mod tests {
    use super::{StoredValue, Styles, encode_cell, parse_exact};

    fn check(stored: StoredValue<'_>, expected: Result<&str, &str>) {
        let result = encode_cell(stored, 0, &mut std::iter::empty(), &Styles::default(), "");
        match (result, expected) {
            (Ok(cell), Ok(expected)) => assert_eq!(cell.content, expected, "{stored:?}"),
            (Err(reason), Err(expected)) => assert!(reason.contains(expected), "{stored:?}: {reason}"),
            (result, expected) => panic!("{stored:?}: {result:?}, not {expected:?}"),
        }
    }

    #[test]
    fn values_are_encoded_to_read_back() {
        check(StoredValue::Integer(-7), Ok("<v>-7</v>"));
        check(StoredValue::Integer(9_007_199_254_740_991), Ok("<v>9007199254740991</v>"));
        check(StoredValue::Real(0.1), Ok("<v>0.1</v>"));
        check(StoredValue::Real(-0.0), Ok("<v>-0</v>"));
        check(StoredValue::Real(1e300), Ok("<v>1e300</v>"));
        check(StoredValue::Real(12.0), Ok("<v>12</v>"));
        check(StoredValue::NumberText("1.50"), Ok("<v>1.5</v>"));
        check(StoredValue::Boolean(true), Ok("<v>1</v>"));
        check(StoredValue::Null, Ok(""));
        check(StoredValue::Text("=1+1"), Ok("<is><t xml:space=\"preserve\">=1+1</t></is>"));
        check(
            StoredValue::Text("a<b & \u{1}"),
            Ok("<is><t xml:space=\"preserve\">a&lt;b &amp; _x0001_</t></is>"),
        );
        check(StoredValue::Text(""), Ok("<is><t xml:space=\"preserve\"></t></is>"));
    }

    #[test]
    fn values_that_a_workbook_cannot_hold_are_rejected() {
        let long = "é".repeat(32_768);
        check(StoredValue::Integer(9_007_199_254_740_992), Err("53 bits"));
        check(StoredValue::Integer(i64::MIN), Err("53 bits"));
        check(StoredValue::Real(f64::INFINITY), Err("infinite"));
        check(StoredValue::Real(f64::NAN), Err("infinite"));
        check(StoredValue::Real(1.1e308), Err("too large"));
        check(StoredValue::Real(5e-324), Err("too small"));
        check(StoredValue::NumberText("12345678901234567.8901"), Err("15 digits"));
        check(StoredValue::NumberText("1e999"), Err("15 digits"));
        check(StoredValue::Text(&long), Err("32767 characters, and this text has 32768"));
        check(StoredValue::Text("a\0b"), Err("NUL"));
        check(StoredValue::Blob(b"x"), Err("bytes"));
        check(StoredValue::DateTime("2026-02-11"), Err("format"));
    }

    #[test]
    fn digits_parse_only_if_exact() {
        for (text, expected) in [
            ("0.10", Some(0.1)),
            ("100", Some(100.0)),
            ("1e2", Some(100.0)),
            ("-0.00", Some(-0.0)),
            ("0.1000000000000000055511151231257827", None),
            ("123456789012345678", None),
            ("9007199254740993", None),
            ("12345678901234.5678", None),
            ("123456789.125", Some(123_456_789.125)),
            ("", None),
            ("-", None),
            (".", None),
            ("inf", None),
        ] {
            assert_eq!(parse_exact(text), expected, "{text}");
        }
    }
}

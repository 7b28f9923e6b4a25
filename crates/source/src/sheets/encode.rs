//! A value as a cell of a sheet's part, or why a workbook cannot hold it exactly.

use contract::infer::EXACT_MAX;

use super::book::Styles;
use super::moment::{Shown, serial};
use super::xml::escaped;
use crate::rows::Held;

/// Excel's own.
pub(super) const TEXT_UNITS_MAX: usize = 32_767;
/// Excel takes nothing larger.
const NUMBER_MAX: f64 = 9.999_999_999_999_99e307;

/// What stands in a cell: its type, and its content with the tags around it.
#[derive(Debug, PartialEq)]
pub(super) struct Encoded {
    pub(super) kind: Option<&'static str>,
    pub(super) content: String,
    pub(super) style: u32,
}

/// `styles_like` are those that the column's moments have, the nearest first. `prefix` goes before tags.
pub(super) fn encoded(
    held: Held<'_>,
    style: u32,
    styles_like: &mut dyn Iterator<Item = u32>,
    styles: &Styles,
    prefix: &str,
) -> Result<Encoded, String> {
    let number = |n: f64| {
        if styles.shown(style) != Shown::Number {
            return Err("the cell is formatted to show a date, and this is a number".to_owned());
        }
        Ok(Encoded { kind: None, content: value(prefix, &digits(n)), style })
    };
    match held {
        Held::Null => Ok(Encoded { kind: None, content: String::new(), style }),
        Held::Boolean(yes) => {
            Ok(Encoded { kind: Some("b"), content: value(prefix, if yes { "1" } else { "0" }), style })
        }
        Held::Integer(n) if (-EXACT_MAX..=EXACT_MAX).contains(&n) => number(n as f64),
        Held::Integer(_) => {
            Err("a workbook keeps no more than 53 bits of a whole number; keep such numbers as text".into())
        }
        Held::Real(n) if !n.is_finite() => Err("a workbook has no infinite numbers".into()),
        Held::Real(n) if n.abs() > NUMBER_MAX || n.is_subnormal() => {
            Err("the number is too large or too small for a workbook".into())
        }
        Held::Real(n) => number(n),
        Held::Digits(text) => match exact(text) {
            Some(n) => number(n),
            None => Err("a workbook keeps about 15 digits of a number, and these are more".into()),
        },
        Held::Text(text) | Held::Json(text) => string(text, style, prefix),
        Held::Moment(text) => {
            let mut all = vec![style];
            for style in styles_like {
                if !all.contains(&style) {
                    all.push(style);
                }
            }
            let find = |text: &str| {
                let number = |style: &u32| Some((*style, serial(text, styles.shown(*style), styles.epoch)?));
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
            Ok(Encoded { kind: None, content: value(prefix, &digits(n)), style })
        }
        Held::Blob(_) => Err("a workbook has no place for bytes".into()),
    }
}

fn value(prefix: &str, text: &str) -> String {
    format!("<{prefix}v>{text}</{prefix}v>")
}

/// A text is always a text, however much it looks like a formula.
fn string(text: &str, style: u32, prefix: &str) -> Result<Encoded, String> {
    let units = text.encode_utf16().count();
    if units > TEXT_UNITS_MAX {
        return Err(format!(
            "a cell of a workbook holds {TEXT_UNITS_MAX} characters, and this text has {units}"
        ));
    }
    if text.contains('\0') {
        return Err("a workbook has no NUL characters".into());
    }
    let text = escaped(text);
    let content = format!("<{prefix}is><{prefix}t xml:space=\"preserve\">{text}</{prefix}t></{prefix}is>");
    Ok(Encoded { kind: Some("inlineStr"), content, style })
}

/// The shortest digits that read back as this number.
fn digits(n: f64) -> String {
    let text = format!("{n:?}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// The binary fraction that has exactly these digits when it is written as short as can be.
fn exact(text: &str) -> Option<f64> {
    let n =
        text.parse::<f64>().ok().filter(|n| n.is_finite() && n.abs() <= NUMBER_MAX && !n.is_subnormal())?;
    (plain(&digits(n))? == plain(text)?).then_some(n)
}

/// Sign, digits without zeros at either end, and where the point stands.
fn plain(text: &str) -> Option<(bool, String, i64)> {
    let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let point = exponent.parse::<i64>().ok()?.checked_add(whole.len() as i64)?;
    let lead = all.len() - all.trim_start_matches('0').len();
    let digits = all.trim_matches('0').to_owned();
    Some(if digits.is_empty() {
        (is_negative, digits, 0)
    } else {
        (is_negative, digits, point - lead as i64)
    })
}

#[cfg(test)]
mod tests {
    use super::{Held, Styles, encoded, exact};

    fn check(held: Held<'_>, expected: Result<&str, &str>) {
        let told = encoded(held, 0, &mut std::iter::empty(), &Styles::default(), "");
        match (told, expected) {
            (Ok(cell), Ok(expected)) => assert_eq!(cell.content, expected, "{held:?}"),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{held:?}: {why}"),
            (told, expected) => panic!("{held:?}: {told:?}, not {expected:?}"),
        }
    }

    #[test]
    fn values_are_written_so_that_they_read_back() {
        check(Held::Integer(-7), Ok("<v>-7</v>"));
        check(Held::Integer(9_007_199_254_740_991), Ok("<v>9007199254740991</v>"));
        check(Held::Real(0.1), Ok("<v>0.1</v>"));
        check(Held::Real(-0.0), Ok("<v>-0</v>"));
        check(Held::Real(1e300), Ok("<v>1e300</v>"));
        check(Held::Real(12.0), Ok("<v>12</v>"));
        check(Held::Digits("1.50"), Ok("<v>1.5</v>"));
        check(Held::Boolean(true), Ok("<v>1</v>"));
        check(Held::Null, Ok(""));
        check(Held::Text("=1+1"), Ok("<is><t xml:space=\"preserve\">=1+1</t></is>"));
        check(Held::Text("a<b & \u{1}"), Ok("<is><t xml:space=\"preserve\">a&lt;b &amp; _x0001_</t></is>"));
        check(Held::Text(""), Ok("<is><t xml:space=\"preserve\"></t></is>"));
    }

    #[test]
    fn what_a_workbook_cannot_hold_is_refused_by_name() {
        let long = "é".repeat(32_768);
        check(Held::Integer(9_007_199_254_740_992), Err("53 bits"));
        check(Held::Integer(i64::MIN), Err("53 bits"));
        check(Held::Real(f64::INFINITY), Err("infinite"));
        check(Held::Real(f64::NAN), Err("infinite"));
        check(Held::Real(1.1e308), Err("too large"));
        check(Held::Real(5e-324), Err("too small"));
        check(Held::Digits("12345678901234567.8901"), Err("15 digits"));
        check(Held::Digits("1e999"), Err("15 digits"));
        check(Held::Text(&long), Err("32767 characters, and this text has 32768"));
        check(Held::Text("a\0b"), Err("NUL"));
        check(Held::Blob(b"x"), Err("bytes"));
        check(Held::Moment("2026-02-11"), Err("format"));
    }

    #[test]
    fn digits_are_exact_or_not() {
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
            assert_eq!(exact(text), expected, "{text}");
        }
    }
}

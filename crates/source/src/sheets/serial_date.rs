//! Serial dates: numbers of days, as workbooks store dates, and the number formats that show them.
//!
//! A date is a number with a number format. The number counts days, from 1 on 1900-01-01 or from 0 on 1904-01-01. The
//! format decides whether the cell shows a date, a time, both, or a plain number.

use spile_core::calendar::{CivilDate, CivilTime, Temporal};

/// How a number format shows a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberFormat {
    Number,
    Date,
    Time,
    DateTime,
    /// Hours that count beyond a day.
    Duration,
}

/// The day from which days are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Epoch {
    /// 1900 was not a leap year, but day 60 is its February 29: a bug of Lotus 1-2-3 that every program copied.
    #[default]
    Date1900,
    Date1904,
}

const DAY_MS: i64 = 86_400_000;
/// From the day before the first one to 1970-01-01.
const DAYS_TO_1900: i64 = 25_569;
const DAYS_TO_1904: i64 = 24_107;

/// The built-in formats, which have a number instead of a code. ECMA-376 part 1, 18.8.30. Those from 27 on depend on
/// the language, but are dates or times in all languages.
pub(super) fn builtin_format(id: u32) -> NumberFormat {
    match id {
        14..=17 | 27..=31 | 36 | 50..=54 | 57 | 58 => NumberFormat::Date,
        18..=21 | 32..=35 | 45 | 47 | 55 | 56 => NumberFormat::Time,
        22 => NumberFormat::DateTime,
        46 => NumberFormat::Duration,
        _ => NumberFormat::Number,
    }
}

/// How a format code shows a number: `yyyy-mm-dd`, `[h]:mm`, `0.00 "days"`.
pub(super) fn format_of_code(code: &str) -> NumberFormat {
    let tokens = format_tokens(code);
    let is_minute = |at: usize| {
        let after_hour = at > 0 && tokens[at - 1] == 'h';
        after_hour || tokens.get(at + 1) == Some(&'s')
    };
    let is_day = |(at, c): (usize, &char)| matches!(c, 'y' | 'd') || (*c == 'm' && !is_minute(at));
    let has_date = tokens.iter().enumerate().any(is_day);
    let has_time = tokens.iter().any(|c| matches!(c, 'h' | 's'));
    match (tokens.contains(&'['), has_date, has_time) {
        (true, _, _) => NumberFormat::Duration,
        (false, true, true) => NumberFormat::DateTime,
        (false, true, false) => NumberFormat::Date,
        (false, false, true) => NumberFormat::Time,
        (false, false, false) => NumberFormat::Number,
    }
}

/// The letters for years, months, days, hours and seconds, each run of one letter once; `[` for elapsed hours,
/// minutes or seconds. Reads only the section for positive numbers.
fn format_tokens(code: &str) -> Vec<char> {
    let mut tokens = Vec::new();
    let mut chars = code.chars().peekable();
    let mut last = ' ';
    while let Some(c) = chars.next() {
        let c = c.to_ascii_lowercase();
        match c {
            ';' => break,
            '"' => while chars.next().is_some_and(|c| c != '"') {},
            '\\' | '_' | '*' => _ = chars.next(),
            '[' => {
                let inside: String = chars.by_ref().take_while(|c| *c != ']').collect();
                let inside = inside.to_ascii_lowercase();
                let runs_on = ['h', 'm', 's'].into_iter().find(|one| inside.chars().all(|c| c == *one));
                if let Some(c) = runs_on.filter(|_| !inside.is_empty()) {
                    tokens.extend(['[', c]);
                }
            }
            // `AM/PM` and `A/P`.
            'a' => {
                let mut rest = chars.clone();
                let ahead: String = rest.by_ref().take(4).collect();
                let len = if ahead.eq_ignore_ascii_case("m/pm") { 4 } else { 2 };
                if ahead.to_ascii_lowercase().starts_with("m/pm")
                    || ahead.to_ascii_lowercase().starts_with("/p")
                {
                    chars.by_ref().take(len).for_each(drop);
                }
            }
            'y' | 'm' | 'd' | 'h' | 's' if c != last => tokens.push(c),
            _ => {}
        }
        last = c;
    }
    tokens
}

/// The number as the format shows it, in ISO 8601. `None` if there is no such day, or if the format shows a plain
/// number.
pub(super) fn format_serial(serial: f64, shown: NumberFormat, epoch: Epoch) -> Option<String> {
    if shown == NumberFormat::Number || !(0.0..2_958_466.0).contains(&serial) {
        return None;
    }
    // Rounds to milliseconds: noon plus 1e-12 days is noon.
    let ms = (serial * DAY_MS as f64).round() as i64;
    let (days, of_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    match shown {
        NumberFormat::Number => None,
        NumberFormat::Duration => Some(format_duration(ms)),
        NumberFormat::Time if days == 0 => Some(time_of_day(of_day)?.to_string()),
        NumberFormat::Date if of_day == 0 => Some(date_of_day(days, epoch)?.to_string()),
        NumberFormat::Date | NumberFormat::Time | NumberFormat::DateTime => {
            Some(format!("{}T{}", date_of_day(days, epoch)?, time_of_day(of_day)?))
        }
    }
}

/// The number that [`format_serial`] formats as this text; `None` if there is none.
pub(super) fn parse_serial(text: &str, shown: NumberFormat, epoch: Epoch) -> Option<f64> {
    let ms = match shown {
        NumberFormat::Number => return None,
        NumberFormat::Time | NumberFormat::Duration if !text.contains('-') => parse_time_ms(text)?,
        NumberFormat::Date | NumberFormat::Time | NumberFormat::Duration | NumberFormat::DateTime => {
            let moment = Temporal::parse(text.as_bytes())?.local()?;
            let day = moment.date.days();
            let days = match epoch {
                Epoch::Date1904 => day + DAYS_TO_1904,
                Epoch::Date1900 if day + DAYS_TO_1900 <= 60 => day + DAYS_TO_1900 - 1,
                Epoch::Date1900 => day + DAYS_TO_1900,
            };
            days * DAY_MS
                + i64::from(moment.time.seconds()) * 1000
                + i64::from(moment.time.nanos() / 1_000_000)
        }
    };
    let serial = ms as f64 / DAY_MS as f64;
    (format_serial(serial, shown, epoch).as_deref() == Some(text)).then_some(serial)
}

fn date_of_day(days: i64, epoch: Epoch) -> Option<CivilDate> {
    CivilDate::from_days(match epoch {
        Epoch::Date1904 => days - DAYS_TO_1904,
        // Day 0 is January 0, and day 60 never existed.
        Epoch::Date1900 if days == 0 || days == 60 => return None,
        Epoch::Date1900 if days < 60 => days - DAYS_TO_1900 + 1,
        Epoch::Date1900 => days - DAYS_TO_1900,
    })
}

fn time_of_day(ms: i64) -> Option<CivilTime> {
    CivilTime::from_ms(u32::try_from(ms).ok()?)
}

/// Hours count beyond a day: `36:00:00`.
fn format_duration(ms: i64) -> String {
    let seconds = ms / 1000;
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if ms % 1000 == 0 { clock } else { format!("{clock}.{:03}", ms % 1000).trim_end_matches('0').to_owned() }
}

fn parse_time_ms(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = clock
        .split(':')
        .map(|sheet_xml| sheet_xml.parse::<i64>().ok().filter(|n| (0..1_000_000).contains(n)));
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let is_short = fraction.len() <= 3 && fraction.bytes().all(|c| c.is_ascii_digit());
    let fraction = format!("{fraction:0<3}").parse::<i64>().ok().filter(|_| is_short)?;
    Some(((hours * 60 + minutes) * 60 + seconds) * 1000 + fraction)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Epoch, NumberFormat, format_of_code, format_serial, parse_serial};

    #[test]
    fn format_codes_are_classified() {
        for (code, expected) in [
            ("General", NumberFormat::Number),
            ("0.00", NumberFormat::Number),
            ("0.00E+00", NumberFormat::Number),
            ("#,##0 \"days\"", NumberFormat::Number),
            ("[Red]-0;[Blue]0", NumberFormat::Number),
            ("0;yyyy", NumberFormat::Number),
            ("\\d0", NumberFormat::Number),
            ("_d0", NumberFormat::Number),
            ("@", NumberFormat::Number),
            ("[$-409]d-mmm-yy;@", NumberFormat::Date),
            ("yyyy\\-mm\\-dd", NumberFormat::Date),
            ("mmmm", NumberFormat::Date),
            ("DD/MM/YYYY", NumberFormat::Date),
            ("h:mm AM/PM", NumberFormat::Time),
            ("mm:ss.0", NumberFormat::Time),
            ("hh:mm", NumberFormat::Time),
            ("yyyy-mm-dd hh:mm:ss", NumberFormat::DateTime),
            ("m/d/yy h:mm", NumberFormat::DateTime),
            ("[h]:mm:ss", NumberFormat::Duration),
            ("[mm]:ss", NumberFormat::Duration),
            ("\"unclosed", NumberFormat::Number),
            ("[unclosed", NumberFormat::Number),
            ("\\", NumberFormat::Number),
            ("", NumberFormat::Number),
        ] {
            assert_eq!(format_of_code(code), expected, "{code}");
        }
    }

    #[test]
    fn serial_numbers_format_as_spreadsheets_show_them() {
        use Epoch::{Date1900, Date1904};
        for (number, shown, epoch, expected) in [
            (1.0, NumberFormat::Date, Date1900, Some("1900-01-01")),
            (59.0, NumberFormat::Date, Date1900, Some("1900-02-28")),
            (60.0, NumberFormat::Date, Date1900, None),
            (61.0, NumberFormat::Date, Date1900, Some("1900-03-01")),
            (0.0, NumberFormat::Date, Date1900, None),
            (-1.0, NumberFormat::Date, Date1900, None),
            (46_064.0, NumberFormat::Date, Date1900, Some("2026-02-11")),
            (46_064.0, NumberFormat::DateTime, Date1900, Some("2026-02-11T00:00:00")),
            (46_064.5, NumberFormat::Date, Date1900, Some("2026-02-11T12:00:00")),
            (46_064.999_999_999_99, NumberFormat::DateTime, Date1900, Some("2026-02-12T00:00:00")),
            (2_958_465.0, NumberFormat::Date, Date1900, Some("9999-12-31")),
            (2_958_466.0, NumberFormat::Date, Date1900, None),
            (2_958_465.0, NumberFormat::Date, Date1904, None),
            (0.0, NumberFormat::Date, Date1904, Some("1904-01-01")),
            (60.0, NumberFormat::Date, Date1904, Some("1904-03-01")),
            (0.5, NumberFormat::Time, Date1900, Some("12:00:00")),
            (0.000_001, NumberFormat::Time, Date1900, Some("00:00:00.086")),
            (1.5, NumberFormat::Time, Date1900, Some("1900-01-01T12:00:00")),
            (1.5, NumberFormat::Duration, Date1900, Some("36:00:00")),
            (f64::NAN, NumberFormat::Date, Date1900, None),
            (f64::INFINITY, NumberFormat::Date, Date1900, None),
            (5.0, NumberFormat::Number, Date1900, None),
        ] {
            assert_eq!(
                format_serial(number, shown, epoch).as_deref(),
                expected,
                "{number} {shown:?} {epoch:?}"
            );
        }
    }

    #[test]
    fn dates_that_a_cell_cannot_hold_have_no_serial_number() {
        for (text, shown) in [
            ("1899-12-31", NumberFormat::Date),
            ("1900-02-29", NumberFormat::Date),
            ("10000-01-01", NumberFormat::Date),
            ("2026-02-30", NumberFormat::Date),
            ("2026-02-11", NumberFormat::DateTime),
            ("2026-02-11T10:00:00Z", NumberFormat::DateTime),
            ("2026-02-11T10:00:00.1234", NumberFormat::DateTime),
            ("2026-02-11 10:00:00", NumberFormat::DateTime),
            ("24:00:00", NumberFormat::Time),
            ("1:2:3", NumberFormat::Time),
            ("99999999999999999999:00:00", NumberFormat::Duration),
            ("10:00", NumberFormat::Time),
            ("today", NumberFormat::Date),
            ("", NumberFormat::Date),
            ("2026-02-11", NumberFormat::Number),
        ] {
            assert_eq!(parse_serial(text, shown, Epoch::Date1900), None, "{text} {shown:?}");
        }
    }

    proptest! {
        #[test]
        fn serial_dates_round_trip(ms in 61 * super::DAY_MS..2_957_003 * super::DAY_MS, both: bool, of_1904: bool) {
            let (shown, epoch) = (
                if both { NumberFormat::DateTime } else { NumberFormat::Date },
                if of_1904 { Epoch::Date1904 } else { Epoch::Date1900 },
            );
            let text = format_serial(ms as f64 / super::DAY_MS as f64, shown, epoch).unwrap();
            let back = parse_serial(&text, shown, epoch).unwrap();
            prop_assert_eq!(format_serial(back, shown, epoch).unwrap(), text);
        }
    }
}

//! Values as PostgreSQL sends them in its binary format.

use contract::ValueRef;
use spile_core::calendar::{CivilDate, CivilTime};

use crate::column::Storage;
use crate::decoded::{Cell, Malformed, float};

/// Days from 1970 to 2000, from which PostgreSQL counts.
const EPOCH_DAYS: i64 = 10_957;
const DAY_MICROS: i64 = 86_400_000_000;
/// The days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

pub(super) fn decode(storage: Storage, bytes: &[u8]) -> Result<Cell<'_>, Malformed> {
    let borrowed = |value| Ok(Cell::Borrowed(value));
    match storage {
        Storage::Integer => borrowed(ValueRef::Integer(integer(bytes)?)),
        Storage::Boolean => borrowed(ValueRef::Integer(integer(bytes)?)),
        Storage::Float64 => float(f64::from_be_bytes(bytes.try_into().map_err(|_| Malformed)?)),
        Storage::Float32 => {
            let narrow = f32::from_be_bytes(bytes.try_into().map_err(|_| Malformed)?);
            // The digits that the database shows, not those of the wider type.
            float(narrow.to_string().parse().unwrap_or_else(|_| f64::from(narrow)))
        }
        Storage::Unsigned | Storage::Decimal => numeric(bytes),
        Storage::Date => match integer(bytes)? {
            days if days == i64::from(i32::MAX) => borrowed(ValueRef::Text("infinity")),
            days if days == i64::from(i32::MIN) => borrowed(ValueRef::Text("-infinity")),
            days => Ok(Cell::Text(date_text(days + EPOCH_DAYS))),
        },
        Storage::Timestamp | Storage::LocalTimestamp => match integer(bytes)? {
            i64::MAX => borrowed(ValueRef::Text("infinity")),
            i64::MIN => borrowed(ValueRef::Text("-infinity")),
            micros => {
                let zone = if storage == Storage::Timestamp { "Z" } else { "" };
                let (days, of_day) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
                let time = time_of_day(of_day).ok_or(Malformed)?;
                Ok(Cell::Text(format!("{}T{time}{zone}", date_text(days + EPOCH_DAYS))))
            }
        },
        Storage::Uuid => uuid(bytes),
        Storage::Bytes => borrowed(ValueRef::Blob(bytes)),
        // The binary form of `jsonb` has its version before the text.
        Storage::Json => text(bytes.strip_prefix(&[1]).unwrap_or(bytes)),
        // Blanks at the end are only how it is stored.
        Storage::PaddedText => match text(bytes)? {
            Cell::Borrowed(ValueRef::Text(padded)) => borrowed(ValueRef::Text(padded.trim_end_matches(' '))),
            cell => Ok(cell),
        },
        Storage::Text | Storage::Printed | Storage::PrintedJson => text(bytes),
    }
}

fn text(bytes: &[u8]) -> Result<Cell<'_>, Malformed> {
    std::str::from_utf8(bytes).map(|text| Cell::Borrowed(ValueRef::Text(text))).map_err(|_| Malformed)
}

fn integer(bytes: &[u8]) -> Result<i64, Malformed> {
    Ok(match *bytes {
        [a] => i64::from(a),
        [a, b] => i64::from(i16::from_be_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => i64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => return Err(Malformed),
    })
}

/// ISO 8601, also for years of more than four digits and before the year 0: `+12026-01-01`, `-0043-03-15`.
fn date_text(days: i64) -> String {
    if let Some(date) = CivilDate::from_days(days) {
        return date.to_string();
    }
    let eras = (days - CivilDate::MIN.days()).div_euclid(ERA_DAYS);
    let Some(date) = CivilDate::from_days(days - eras * ERA_DAYS) else { return String::new() };
    let year = i64::from(date.year()) + eras * 400;
    let sign = if year < 0 { '-' } else { '+' };
    format!("{sign}{:04}-{:02}-{:02}", year.abs(), date.month(), date.day())
}

fn time_of_day(micros: i64) -> Option<CivilTime> {
    let seconds = micros / 1_000_000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    CivilTime::new(hour as u8, minute as u8, second as u8, (micros % 1_000_000) as u32 * 1000)
}

fn uuid<'r>(bytes: &[u8]) -> Result<Cell<'r>, Malformed> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| Malformed)?;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    Ok(Cell::Text(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])))
}

/// Groups of four digits, the number of the first group before the decimal point, and how many digits follow the point.
fn numeric<'r>(bytes: &[u8]) -> Result<Cell<'r>, Malformed> {
    const GROUP_DIGITS: usize = 4;
    let mut words = bytes.chunks_exact(2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let mut word = || words.next().ok_or(Malformed);
    let (count, weight, sign, scale) = (word()?, word()?.cast_signed(), word()?, word()?);
    let digits: Vec<u16> = words.collect();
    let is_negative = match sign {
        0xC000 => return Ok(Cell::Borrowed(ValueRef::Text("NaN"))),
        0xD000 => return Ok(Cell::Borrowed(ValueRef::Real(f64::INFINITY))),
        0xF000 => return Ok(Cell::Borrowed(ValueRef::Real(f64::NEG_INFINITY))),
        sign => sign == 0x4000,
    };
    if digits.len() != usize::from(count) || digits.iter().any(|group| *group > 9999) {
        return Err(Malformed);
    }
    let group = |at: i32| usize::try_from(at).ok().and_then(|at| digits.get(at)).copied().unwrap_or(0);
    let weight = i32::from(weight);
    let mut out = String::from(if is_negative { "-" } else { "" });
    match weight {
        ..0 => out.push('0'),
        _ => {
            out += &group(0).to_string();
            (1..=weight).for_each(|at| out += &format!("{:04}", group(at)));
        }
    }
    if scale > 0 {
        out.push('.');
        let end = out.len() + usize::from(scale);
        let groups = usize::from(scale).div_ceil(GROUP_DIGITS) as i32;
        (1..=groups).for_each(|at| out += &format!("{:04}", group(weight + at)));
        out.truncate(end);
    }
    Ok(Cell::Text(out))
}

#[cfg(test)]
mod tests {
    use super::{Cell, Malformed, Storage, ValueRef, decode};

    fn check(storage: Storage, bytes: &[u8], expected: Result<&str, Malformed>) {
        let shown = decode(storage, bytes).map(|cell| match cell.as_value_ref() {
            ValueRef::Text(text) => text.to_owned(),
            ValueRef::Integer(n) => n.to_string(),
            ValueRef::Real(n) => format!("{n:?}"),
            other => format!("{other:?}"),
        });
        assert_eq!(shown, expected.map(str::to_owned), "{storage:?} {bytes:?}");
    }

    fn words(words: &[u16]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn values_keep_every_digit() {
        for (numeric, expected) in [
            (words(&[0, 0, 0, 0]), "0"),
            (words(&[0, 0, 0, 2]), "0.00"),
            (words(&[1, 0, 0, 0, 7]), "7"),
            (words(&[2, 0, 0, 2, 1, 5000]), "1.50"),
            (words(&[2, 1, 0x4000, 0, 12, 3]), "-120003"),
            (words(&[1, 0xFFFF, 0, 4, 5]), "0.0005"),
            (words(&[1, 0xFFFE, 0, 6, 1200]), "0.000012"),
            (words(&[1, 2, 0, 1, 3]), "300000000.0"),
            (words(&[0, 0, 0xC000, 0]), "NaN"),
            (words(&[0, 0, 0xD000, 0]), "inf"),
            (words(&[0, 0, 0xF000, 0]), "-inf"),
        ] {
            check(Storage::Decimal, &numeric, Ok(expected));
        }
        check(Storage::Integer, &i64::MIN.to_be_bytes(), Ok("-9223372036854775808"));
        check(Storage::Float32, &0.1_f32.to_be_bytes(), Ok("0.1"));
        check(Storage::Float64, &f64::NAN.to_be_bytes(), Ok("NaN"));
        check(Storage::Uuid, &[0xAB; 16], Ok("abababab-abab-abab-abab-abababababab"));
        check(Storage::PaddedText, b"ab  ", Ok("ab"));
        check(Storage::Json, b"\x01{\"a\":1}", Ok("{\"a\":1}"));
        let days = |days: i32| days.to_be_bytes();
        check(Storage::Date, &days(0), Ok("2000-01-01"));
        check(Storage::Date, &days(i32::MAX), Ok("infinity"));
        check(Storage::Date, &days(2_921_940), Ok("+10000-01-01"));
        check(Storage::Date, &days(-730_486), Ok("-0001-12-31"));
        check(Storage::Timestamp, &1_500_000_i64.to_be_bytes(), Ok("2000-01-01T00:00:01.5Z"));
        check(Storage::LocalTimestamp, &(-1_i64).to_be_bytes(), Ok("1999-12-31T23:59:59.999999"));
        check(Storage::Timestamp, &i64::MIN.to_be_bytes(), Ok("-infinity"));
    }

    #[test]
    fn bytes_of_a_lying_server_are_an_error() {
        for storage in [
            Storage::Integer,
            Storage::Float32,
            Storage::Float64,
            Storage::Date,
            Storage::Uuid,
            Storage::Timestamp,
        ] {
            check(storage, &[0; 3], Err(Malformed));
        }
        check(Storage::Decimal, &[0; 5], Err(Malformed));
        check(Storage::Decimal, &words(&[9, 0, 0, 0, 1]), Err(Malformed));
        check(Storage::Decimal, &words(&[1, 0, 0, 0, 60_000]), Err(Malformed));
        check(Storage::Text, b"\xFF", Err(Malformed));
        assert_eq!(decode(Storage::Text, b""), Ok(Cell::Borrowed(ValueRef::Text(""))));
    }
}

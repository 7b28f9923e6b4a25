//! Parses ISO 8601 dates and times strictly.

/// A date, perhaps with a time, perhaps with a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateTime {
    /// Local seconds since 1970-01-01.
    pub seconds: i64,
    pub nanos: u32,
    pub has_time: bool,
    /// The offset of the local time from UTC.
    pub offset_minutes: Option<i16>,
}

impl DateTime {
    /// In UTC if there is a time zone.
    pub fn sort_key(&self) -> (i64, u32) {
        (self.seconds - i64::from(self.offset_minutes.unwrap_or(0)) * 60, self.nanos)
    }
}

/// `2026-02-11` or `2026-02-11T10:00:00`, with a fraction of at most nine digits, with `Z` or `+01:00`. Without a time
/// zone, a blank may replace the `T`.
pub fn parse(text: &[u8]) -> Option<DateTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let seconds = days_since_epoch(date)? * 86_400;
    let Some((separator, rest)) = rest.split_first() else {
        return Some(DateTime { seconds, nanos: 0, has_time: false, offset_minutes: None });
    };
    let (clock, rest) = rest.split_at_checked(8)?;
    let [hour, minute, second] = [&clock[..2], &clock[3..5], &clock[6..]].map(two_digits);
    if clock[2] != b':' || clock[5] != b':' {
        return None;
    }
    let (hour, minute, second) = (hour?, minute?, second?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (nanos, rest) = parse_fraction(rest)?;
    let offset_min = parse_offset(rest)?;
    if *separator != b'T' && (*separator != b' ' || offset_min.is_some()) {
        return None;
    }
    let seconds = seconds + i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
    Some(DateTime { seconds, nanos, has_time: true, offset_minutes: offset_min })
}

/// Days since 1970-01-01, if the date exists.
fn days_since_epoch(date: &[u8]) -> Option<i64> {
    if date[4] != b'-' || date[7] != b'-' {
        return None;
    }
    let year = i64::from(two_digits(&date[..2])?) * 100 + i64::from(two_digits(&date[2..4])?);
    let (month, day) = (two_digits(&date[5..7])?, two_digits(&date[8..])?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + u8::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if day == 0 || day > length {
        return None;
    }
    // Years start in March here, so that the leap day comes last.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let of_era = shifted.rem_euclid(400);
    let of_year = (153 * (i64::from(month) + if month > 2 { -3 } else { 9 }) + 2) / 5 + i64::from(day) - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

fn two_digits(digits: &[u8]) -> Option<u8> {
    match digits {
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => Some((a - b'0') * 10 + (b - b'0')),
        _ => None,
    }
}

fn parse_fraction(rest: &[u8]) -> Option<(u32, &[u8])> {
    let Some(digits) = rest.strip_prefix(b".") else { return Some((0, rest)) };
    let count = digits.iter().take_while(|c| c.is_ascii_digit()).count();
    if count == 0 || count > 9 {
        return None;
    }
    let read = digits[..count].iter().fold(0_u32, |n, c| n * 10 + u32::from(c - b'0'));
    Some((read * 10_u32.pow(9 - count as u32), &digits[count..]))
}

fn parse_offset(rest: &[u8]) -> Option<Option<i16>> {
    match rest {
        [] => Some(None),
        b"Z" => Some(Some(0)),
        [sign @ (b'+' | b'-'), rest @ ..] if rest.len() == 5 && rest[2] == b':' => {
            let (hours, minutes) = (two_digits(&rest[..2])?, two_digits(&rest[3..])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let minutes = i16::from(hours) * 60 + i16::from(minutes);
            Some(Some(if *sign == b'-' { -minutes } else { minutes }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sort_keys_are_seconds_since_1970() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("1969-12-31T23:59:59Z", -1),
            ("2000-02-29", 951_782_400),
            ("2026-07-28T12:30:15+02:00", 1_785_234_615),
            ("0000-01-01", -62_167_219_200),
            ("9999-12-31T23:59:59", 253_402_300_799),
        ] {
            assert_eq!(parse(text.as_bytes()).map(|m| m.sort_key().0), Some(seconds), "{text}");
        }
    }
}

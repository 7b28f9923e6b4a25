//! `60/min`: so many calls in so long a time.

use super::RateLimit;
use crate::nearest::nearest;

/// Beyond this a limit is none.
pub const CALLS_LIMIT: u32 = 1_000_000;

/// Each with its length in milliseconds. The first of a length is how it is written.
const UNITS: [(&str, u64); 12] = [
    ("s", 1000),
    ("sec", 1000),
    ("second", 1000),
    ("min", 60_000),
    ("minute", 60_000),
    ("h", 3_600_000),
    ("hr", 3_600_000),
    ("hour", 3_600_000),
    ("day", 86_400_000),
    ("d", 86_400_000),
    ("seconds", 1000),
    ("minutes", 60_000),
];

pub(super) const PATTERN: &str = "^[0-9]{1,7} ?/ ?(s|sec|second|min|minute|h|hr|hour|day|d|seconds|minutes)$";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct RateError {
    /// Half a sentence.
    pub(super) reason: String,
    pub(super) help: String,
}

pub(super) fn parse(text: &str) -> Result<RateLimit, RateError> {
    let bad = |why: &str, help: String| Err(RateError { reason: why.into(), help });
    let Some((calls, unit)) = text.split_once('/') else {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        let calls = if digits.is_empty() { "60" } else { &digits };
        return bad("there is no `/`", format!("write it as `{calls}/min`; also `s`, `h` and `day`"));
    };
    let (calls, unit) = (calls.strip_suffix(' ').unwrap_or(calls), unit.strip_prefix(' ').unwrap_or(unit));
    let Some((_, per_ms)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        let help = match nearest(unit, UNITS.iter().map(|(name, _)| *name)) {
            Some(meant) if unit.len() > 1 => format!("did you mean `{calls}/{meant}`?"),
            _ => "write `s`, `min`, `h` or `day` behind the `/`".into(),
        };
        return bad(&format!("`{unit}` is no time"), help);
    };
    let is_digits = !calls.is_empty() && calls.bytes().all(|b| b.is_ascii_digit());
    match calls.parse::<u32>() {
        Ok(0) => bad("no call at all would be let through", "leave the tool out with `hidden = true`".into()),
        Ok(calls) if calls <= CALLS_LIMIT => Ok(RateLimit { calls, per_ms: *per_ms }),
        _ if is_digits => bad(
            "more calls than any server answers",
            format!("{CALLS_LIMIT} are the most; leave it out for no limit"),
        ),
        _ => bad(
            &format!("`{calls}` is no number of calls"),
            "write a whole number of calls, in a longer time if need be: `60/h`".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{RateLimit, parse};

    fn check(text: &str, expected: Result<(u32, u64), &str>) {
        let got = parse(text).map(|RateLimit { calls, per_ms }| (calls, per_ms)).map_err(|bad| bad.help);
        assert_eq!(got, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn calls_and_a_time() {
        check("60/min", Ok((60, 60_000)));
        check("1/s", Ok((1, 1000)));
        check("5/sec", Ok((5, 1000)));
        check("100/h", Ok((100, 3_600_000)));
        check("100 / hour", Ok((100, 3_600_000)));
        check("1000000/day", Ok((1_000_000, 86_400_000)));
    }

    #[test]
    fn whatever_else_has_a_way_out() {
        check("60", Err("write it as `60/min`; also `s`, `h` and `day`"));
        check("60 per minute", Err("write it as `60/min`; also `s`, `h` and `day`"));
        check("often", Err("write it as `60/min`; also `s`, `h` and `day`"));
        check("60/m", Err("write `s`, `min`, `h` or `day` behind the `/`"));
        check("60/mins", Err("did you mean `60/min`?"));
        check("60/", Err("write `s`, `min`, `h` or `day` behind the `/`"));
        check("0/min", Err("leave the tool out with `hidden = true`"));
        check("-1/min", Err("write a whole number of calls, in a longer time if need be: `60/h`"));
        check("1.5/s", Err("write a whole number of calls, in a longer time if need be: `60/h`"));
        check("/s", Err("write a whole number of calls, in a longer time if need be: `60/h`"));
        check("1000001/day", Err("1000000 are the most; leave it out for no limit"));
        check("99999999999999999999/s", Err("1000000 are the most; leave it out for no limit"));
    }
}

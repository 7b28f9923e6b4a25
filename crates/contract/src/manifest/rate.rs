//! Parses a rate limit: `60/min`.

use super::RateLimit;
use crate::nearest::nearest;

/// The maximum number of calls.
pub const CALLS_LIMIT: u32 = 1_000_000;

/// Units with their length in milliseconds. The first name of a unit is the canonical one.
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
    /// A clause.
    pub(super) reason: String,
    pub(super) help: String,
}

pub(super) fn parse(text: &str) -> Result<RateLimit, RateError> {
    let error = |reason: &str, help: String| Err(RateError { reason: reason.into(), help });
    let Some((calls, unit)) = text.split_once('/') else {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        let calls = if digits.is_empty() { "60" } else { &digits };
        return error("it has no `/`", format!("write `{calls}/min`; other units are `s`, `h` and `day`"));
    };
    let (calls, unit) = (calls.strip_suffix(' ').unwrap_or(calls), unit.strip_prefix(' ').unwrap_or(unit));
    let Some((_, per_ms)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        let help = match nearest(unit, UNITS.iter().map(|(name, _)| *name)) {
            Some(meant) if unit.len() > 1 => format!("did you mean `{calls}/{meant}`?"),
            _ => "write `s`, `min`, `h` or `day` after the `/`".into(),
        };
        return error(&format!("unknown unit `{unit}`"), help);
    };
    let is_digits = !calls.is_empty() && calls.bytes().all(|b| b.is_ascii_digit());
    match calls.parse::<u32>() {
        Ok(0) => error("it would refuse every call", "remove the tool with `hidden = true`".into()),
        Ok(calls) if calls <= CALLS_LIMIT => Ok(RateLimit { calls, per_ms: *per_ms }),
        _ if is_digits => error(
            "it has too many calls",
            format!("the limit is {CALLS_LIMIT} calls; remove the key for no limit"),
        ),
        _ => error(
            &format!("`{calls}` is not a number of calls"),
            "write an integer, with a longer unit if necessary: `60/h`".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{RateLimit, parse};

    fn check(text: &str, expected: Result<(u32, u64), &str>) {
        let got = parse(text).map(|RateLimit { calls, per_ms }| (calls, per_ms)).map_err(|error| error.help);
        assert_eq!(got, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn parse_accepts_calls_and_a_unit() {
        check("60/min", Ok((60, 60_000)));
        check("1/s", Ok((1, 1000)));
        check("5/sec", Ok((5, 1000)));
        check("100/h", Ok((100, 3_600_000)));
        check("100 / hour", Ok((100, 3_600_000)));
        check("1000000/day", Ok((1_000_000, 86_400_000)));
    }

    #[test]
    fn parse_errors_suggest_a_fix() {
        check("60", Err("write `60/min`; other units are `s`, `h` and `day`"));
        check("60 per minute", Err("write `60/min`; other units are `s`, `h` and `day`"));
        check("often", Err("write `60/min`; other units are `s`, `h` and `day`"));
        check("60/m", Err("write `s`, `min`, `h` or `day` after the `/`"));
        check("60/mins", Err("did you mean `60/min`?"));
        check("60/", Err("write `s`, `min`, `h` or `day` after the `/`"));
        check("0/min", Err("remove the tool with `hidden = true`"));
        check("-1/min", Err("write an integer, with a longer unit if necessary: `60/h`"));
        check("1.5/s", Err("write an integer, with a longer unit if necessary: `60/h`"));
        check("/s", Err("write an integer, with a longer unit if necessary: `60/h`"));
        check("1000001/day", Err("the limit is 1000000 calls; remove the key for no limit"));
        check("99999999999999999999/s", Err("the limit is 1000000 calls; remove the key for no limit"));
    }
}

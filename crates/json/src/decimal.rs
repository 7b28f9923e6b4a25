//! Numbers by their digits, without floating point.

use std::cmp::Ordering;

/// The exact value of a JSON number, borrowed from its text.
///
/// `1`, `1.0` and `10e-1` are equal, `-0` is `0`, and `8.99999999999999999999` is not `9`. No operation allocates or
/// rounds. An exponent beyond ±2^60 counts as ±2^60.
#[derive(Debug, Clone, Copy)]
pub struct Decimal<'a> {
    negative: bool,
    /// The significant digits: `whole`, then `fraction`. No leading and no trailing zeros; empty for zero.
    whole: &'a [u8],
    fraction: &'a [u8],
    /// The value is `0.DIGITS` times ten to this power.
    point: i64,
}

const EXPONENT_MAX: i64 = 1 << 60;

impl<'a> Decimal<'a> {
    /// Reads the text of a JSON number; `None` if the text is not one.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (negative, mantissa, exponent) = split_parts(text)?;
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) => (whole.as_bytes(), digits(fraction)?),
            None => (mantissa.as_bytes(), &[][..]),
        };
        match whole {
            [b'0'] => {}
            [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {}
            _ => return None,
        }
        Some(Self::normalize(negative, whole, fraction, exponent))
    }

    /// Reads any digits with a point and an exponent, such as `007`, `1.` and `.5e3`; `None` for everything else.
    pub fn parse_lenient(text: &'a str) -> Option<Self> {
        let (negative, mantissa, exponent) = split_parts(text)?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_digits = |part: &str| part.bytes().all(|c| c.is_ascii_digit());
        let is_number = whole.len() + fraction.len() > 0 && is_digits(whole) && is_digits(fraction);
        is_number.then(|| Self::normalize(negative, whole.as_bytes(), fraction.as_bytes(), exponent))
    }

    fn normalize(negative: bool, whole: &'a [u8], fraction: &'a [u8], exponent: i64) -> Self {
        let is_zero = |digit: &&u8| **digit == b'0';
        let leading = whole.iter().take_while(is_zero).count();
        let point = whole.len() as i64 + exponent;
        let (whole, fraction, point) = if leading < whole.len() {
            (&whole[leading..], fraction, point - leading as i64)
        } else {
            let more = fraction.iter().take_while(is_zero).count();
            (&[][..], &fraction[more..], point - leading as i64 - more as i64)
        };
        let fraction = &fraction[..fraction.len() - fraction.iter().rev().take_while(is_zero).count()];
        let whole = if fraction.is_empty() {
            &whole[..whole.len() - whole.iter().rev().take_while(is_zero).count()]
        } else {
            whole
        };
        if whole.is_empty() && fraction.is_empty() {
            return Self { negative: false, whole, fraction, point: 0 };
        }
        Self { negative, whole, fraction, point }
    }

    fn digits(&self) -> impl Iterator<Item = u8> + 'a {
        self.whole.iter().chain(self.fraction).copied()
    }

    fn digit_count(&self) -> i64 {
        (self.whole.len() + self.fraction.len()) as i64
    }

    /// The power of ten of the first significant digit, and of the last. Zero has none.
    pub fn powers(&self) -> Option<(i64, i64)> {
        (!self.is_zero()).then(|| (self.point - 1, self.point - self.digit_count()))
    }

    /// The digit that counts so many times ten to this power.
    pub fn digit_at(&self, power: i64) -> u8 {
        let at = usize::try_from(self.point - 1 - power).ok();
        at.and_then(|at| self.whole.get(at).or_else(|| self.fraction.get(at - self.whole.len())))
            .map_or(0, |digit| digit - b'0')
    }

    pub fn is_zero(&self) -> bool {
        self.digit_count() == 0
    }

    pub fn is_negative(&self) -> bool {
        self.negative
    }

    /// Whether the value has no fraction.
    pub fn is_integer(&self) -> bool {
        self.point >= self.digit_count()
    }

    /// The value, if it is an integer that fits.
    pub fn to_i64(&self) -> Option<i64> {
        // 2^63 has 19 digits.
        if !self.is_integer() || self.point > 19 {
            return None;
        }
        let zeros = (self.point - self.digit_count()) as usize;
        let digits = self.digits().chain(std::iter::repeat_n(b'0', zeros));
        let magnitude = digits.fold(0i128, |value, digit| value * 10 + i128::from(digit - b'0'));
        i64::try_from(if self.negative { -magnitude } else { magnitude }).ok()
    }

    /// Whether the value is an integer multiple of `divisor`.
    ///
    /// `None` if the divisor is zero or has more than 18 significant digits.
    pub fn is_multiple_of(&self, divisor: &Decimal<'_>) -> Option<bool> {
        if divisor.is_zero() || divisor.digit_count() > 18 {
            return None;
        }
        if self.is_zero() {
            return Some(true);
        }
        let modulus = divisor.digits().fold(0u64, |value, digit| value * 10 + u64::from(digit - b'0'));
        // Both are an integer without trailing zeros, times a power of ten.
        let shift = (self.point - self.digit_count()) - (divisor.point - divisor.digit_count());
        if shift < 0 {
            // The divisor would have to divide an integer that is not a multiple of ten, times 10^shift.
            return Some(false);
        }
        let modulus = u128::from(modulus);
        let remainder =
            self.digits().fold(0u128, |value, digit| (value * 10 + u128::from(digit - b'0')) % modulus);
        Some((remainder * power_of_ten_modulo(shift as u64, modulus)).is_multiple_of(modulus))
    }

    /// Writes a canonical form: equal values give equal text, and the text is a JSON number.
    pub fn write_canonical(&self, out: &mut Vec<u8>) {
        if self.is_zero() {
            return out.push(b'0');
        }
        if self.negative {
            out.push(b'-');
        }
        out.extend(self.digits());
        out.push(b'e');
        crate::write::integer(out, self.point - self.digit_count());
    }
}

/// The float whose shortest spelling has exactly the digits of this JSON number. A number with more digits would lose
/// some. Where two spellings are equally short and close, either will do: languages differ in which they write.
pub fn exact_f64(text: &str) -> Option<f64> {
    let n: f64 = text.parse().ok().filter(|n: &f64| n.is_finite())?;
    let number = Decimal::parse(text)?;
    let is_written = |digits: &str| Decimal::parse(digits).is_some_and(|written| written == number);
    let mut even = Vec::new();
    (is_written(&format!("{n:e}")) || {
        crate::write::number(&mut even, n);
        is_written(std::str::from_utf8(&even).unwrap_or_default())
    })
    .then_some(n)
}

fn digits(text: &str) -> Option<&[u8]> {
    let is_valid = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    is_valid.then_some(text.as_bytes())
}

/// Whether the number is negative, its mantissa, and its exponent (0 if there is none).
#[inline]
fn split_parts(text: &str) -> Option<(bool, &str, i64)> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    Some(match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (negative, mantissa, parse_exponent(exponent)?),
        None => (negative, rest, 0),
    })
}

fn parse_exponent(text: &str) -> Option<i64> {
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let magnitude = digits(text)?
        .iter()
        .fold(0i64, |value, digit| value.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    let magnitude = magnitude.min(EXPONENT_MAX);
    Some(if negative { -magnitude } else { magnitude })
}

/// 10^`exponent` mod `modulus`. The modulus is below 2^64, so the products fit.
fn power_of_ten_modulo(mut exponent: u64, modulus: u128) -> u128 {
    let (mut result, mut base) = (1 % modulus, 10 % modulus);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * base % modulus;
        }
        base = base * base % modulus;
        exponent >>= 1;
    }
    result
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal<'_> {}

impl PartialOrd for Decimal<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let magnitude = || match (self.is_zero(), other.is_zero()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // Without trailing zeros, the digits after the point compare like text.
            (false, false) => self.point.cmp(&other.point).then_with(|| self.digits().cmp(other.digits())),
        };
        match (self.negative, other.negative) {
            (false, false) => magnitude(),
            (true, true) => magnitude().reverse(),
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering::{Equal, Greater, Less};

    use super::{Decimal, exact_f64};

    fn decimal(text: &str) -> Decimal<'_> {
        Decimal::parse(text).expect(text)
    }

    #[test]
    fn numbers_compare_by_their_digits() {
        for (a, b, expected) in [
            ("1", "1.0", Equal),
            ("10e-1", "1", Equal),
            ("-0.0", "0e5", Equal),
            ("100", "1e2", Equal),
            ("0.00120", "12e-4", Equal),
            ("8.99999999999999999999", "9", Less),
            ("4503599627370497.5", "4503599627370498", Less),
            ("9007199254740993", "9007199254740992.0", Greater),
            ("18446744073709551616", "18446744073709551615", Greater),
            ("1e-400", "0", Greater),
            ("-1e-400", "0", Less),
            ("1e400", "1e399", Greater),
            ("-1e400", "-1e399", Less),
            ("12", "2", Greater),
            ("-12", "2", Less),
            ("1.5", "1.25", Greater),
            ("1e99999999999999999999", "1e300", Greater),
            ("1e-99999999999999999999", "0", Greater),
        ] {
            assert_eq!(decimal(a).cmp(&decimal(b)), expected, "{a} {b}");
            assert_eq!(decimal(b).cmp(&decimal(a)), expected.reverse(), "{b} {a}");
            let canonical = |text| {
                let mut out = Vec::new();
                decimal(text).write_canonical(&mut out);
                String::from_utf8(out).expect("ASCII")
            };
            assert_eq!(canonical(a) == canonical(b), expected == Equal, "{a} {b}");
            assert_eq!(decimal(&canonical(a)), decimal(a));
        }
    }

    #[test]
    fn integers_are_recognized_by_their_digits() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-0.0", Some(0)),
            ("42.0", Some(42)),
            ("4.2e1", Some(42)),
            ("-420e-1", Some(-42)),
            ("0e999", Some(0)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("1e19", None),
            ("1e400", None),
            ("4503599627370497.5", None),
            ("8.99999999999999999999", None),
            ("1e-400", None),
        ] {
            assert_eq!(decimal(text).to_i64(), expected, "{text}");
        }
        assert!(decimal("1e400").is_integer());
        assert!(!decimal("1e-400").is_integer());
    }

    #[test]
    fn multiples_are_exact() {
        for (value, divisor, expected) in [
            ("0.3", "0.1", true),
            ("4.35", "0.01", true),
            ("1.1", "0.01", true),
            ("1e300", "7", false),
            ("7e300", "7", true),
            ("1e300", "1e-300", true),
            ("9007199254740993", "2", false),
            ("9007199254740994", "2", true),
            ("0.075", "0.01", false),
            ("-4.5", "1.5", true),
            ("0", "0.7", true),
            ("5", "10", false),
            ("1e1000000000", "3", false),
        ] {
            assert_eq!(decimal(value).is_multiple_of(&decimal(divisor)), Some(expected), "{value} {divisor}");
        }
        assert_eq!(decimal("1").is_multiple_of(&decimal("0")), None);
        assert_eq!(decimal("1").is_multiple_of(&decimal("1234567890123456789")), None);
    }

    #[test]
    fn exact_f64_rejects_a_number_that_would_lose_digits() {
        for good in [
            "0",
            "-0.0",
            "0.1",
            "1E+2",
            "100",
            "1.50",
            "5e-324",
            "1.7976931348623157e308",
            "0e999",
            // Exactly in the middle of two shortest spellings: JavaScript writes the first, Rust the second.
            "1658206780088562.2",
            "1658206780088562.3",
            "-13271210409342.312",
            "-13271210409342.313",
        ] {
            let n: f64 = good.parse().expect("a number");
            assert_eq!(exact_f64(good).map(f64::to_bits), Some(n.to_bits()), "{good}");
        }
        for bad in [
            "1e400",
            "-1e400",
            "1e-400",
            "9007199254740993",
            "1658206780088562.4",
            "0.12345678901234567890",
            "1.5e99999999999",
        ] {
            assert_eq!(exact_f64(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_digit_is_found_by_its_power_of_ten() {
        for (text, powers, digits) in [
            ("0", None, [0, 0, 0]),
            ("120.5", Some((2, -1)), [2, 0, 5]),
            ("1205e-1", Some((2, -1)), [2, 0, 5]),
            ("1.3e1", Some((1, 0)), [1, 3, 0]),
            ("3e-1", Some((-1, -1)), [0, 0, 3]),
            ("0.012", Some((-2, -3)), [0, 0, 0]),
            ("-7e400", Some((400, 400)), [0, 0, 0]),
        ] {
            let number = decimal(text);
            assert_eq!(number.powers(), powers, "{text}");
            assert_eq!([1, 0, -1].map(|power| number.digit_at(power)), digits, "{text}");
        }
    }

    #[test]
    fn lenient_parsing_reads_digits_in_any_spelling() {
        for (text, same) in [("007", "7"), ("1.", "1"), (".5e3", "500"), ("-00.10", "-0.1"), ("1E+2", "100")]
        {
            assert_eq!(Decimal::parse_lenient(text), Some(decimal(same)), "{text}");
        }
        for text in ["", "-", ".", "e5", "1e", "1.2.3", "+1", "1,5", "--1", " 1", "inf"] {
            assert!(Decimal::parse_lenient(text).is_none(), "{text}");
        }
    }

    #[test]
    fn only_json_numbers_are_parsed() {
        for text in
            ["", "-", "+1", "01", ".5", "1.", "1e", "1e+", "1e+-1", "1.e1", "0x1", "NaN", " 1", "1 ", "--1"]
        {
            assert!(Decimal::parse(text).is_none(), "{text}");
        }
    }
}

//! An exact sum of decimals of any length.
//!
//! Almost every sum fits into 128 bits, scaled by a power of ten. Beyond that the digits go to a [`BigSum`].

use std::cmp::Ordering;

use crate::order::decimal_parts;

/// The sum of the decimals added so far.
#[derive(Debug, Clone, Default)]
pub struct DecimalSum {
    mantissa: i128,
    scale: u32,
    big: Option<Box<BigSum>>,
}

/// A decimal with more digits after the point than this is added to the [`BigSum`].
const SCALE_MAX: u32 = 18;
/// So many digits always fit into 128 bits.
const DIGITS_MAX: usize = 36;

/// The digits of a decimal that fits into 128 bits, and how many of them come after the point.
pub fn scaled_decimal(text: &str) -> Option<(i128, u32)> {
    let (negative, whole, fraction) = decimal_parts(text)?;
    if whole.len() + fraction.len() > DIGITS_MAX || fraction.len() > SCALE_MAX as usize {
        return None;
    }
    let digits = |n: i128, digits: &str| digits.bytes().fold(n, |n, c| n * 10 + i128::from(c - b'0'));
    let size = digits(digits(0, whole), fraction);
    Some((if negative { -size } else { size }, fraction.len() as u32))
}

impl DecimalSum {
    /// Adds a decimal; returns `false` if the text is not one.
    pub fn add_text(&mut self, text: &str) -> bool {
        match scaled_decimal(text) {
            Some((mantissa, scale)) => self.add_scaled(mantissa, scale),
            None => match decimal_parts(text) {
                Some((negative, whole, fraction)) => {
                    self.big.get_or_insert_default().add(negative, whole, fraction)
                }
                None => return false,
            },
        }
        true
    }

    /// Adds `mantissa / 10^scale`, where `scale` is at most 18.
    #[inline]
    pub fn add_scaled(&mut self, mantissa: i128, scale: u32) {
        if scale == self.scale
            && let Some(sum) = self.mantissa.checked_add(mantissa)
        {
            self.mantissa = sum;
            return;
        }
        self.add_unaligned(mantissa, scale);
    }

    fn add_unaligned(&mut self, mantissa: i128, scale: u32) {
        let aligned = self.scale.max(scale);
        let align = |mantissa: i128, scale: u32| mantissa.checked_mul(10_i128.checked_pow(aligned - scale)?);
        let sum = align(self.mantissa, self.scale)
            .zip(align(mantissa, scale))
            .and_then(|(sum, other)| sum.checked_add(other));
        match sum {
            Some(sum) => (self.mantissa, self.scale) = (sum, aligned),
            None => {
                let big = self.big.get_or_insert_default();
                big.add_scaled(self.mantissa, self.scale);
                (self.mantissa, self.scale) = (mantissa, scale);
            }
        }
    }

    /// The sum without leading and trailing zeros: sign, digits before the point, digits after it.
    fn parts(&self) -> (bool, String, String) {
        match &self.big {
            None => scaled_parts(self.mantissa, self.scale),
            Some(big) => {
                let mut big = big.clone();
                big.add_scaled(self.mantissa, self.scale);
                big.parts()
            }
        }
    }

    /// The sum in its shortest form: `-12.5`, `0`.
    pub fn to_text(&self) -> String {
        let (negative, whole, fraction) = self.parts();
        format_decimal(negative, &whole, &fraction)
    }

    /// The sum divided by `count`, rounded half to even, to six digits more than the sum has.
    pub fn average(&self, count: u64) -> String {
        const MORE_DIGITS: usize = 6;
        let (negative, whole, fraction) = self.parts();
        let digits = whole.bytes().chain(fraction.bytes()).chain([b'0'; MORE_DIGITS]);
        let count = u128::from(count.max(1));
        let (mut quotient, mut rest) = (Vec::new(), 0_u128);
        for digit in digits {
            rest = rest * 10 + u128::from(digit - b'0');
            quotient.push((rest / count) as u8);
            rest %= count;
        }
        let is_odd = quotient.last().is_some_and(|digit| digit % 2 == 1);
        let rounds_up = match (rest * 2).cmp(&count) {
            Ordering::Less => false,
            Ordering::Equal => is_odd,
            Ordering::Greater => true,
        };
        if rounds_up {
            let nines = quotient.iter().rev().take_while(|digit| **digit == 9).count();
            let kept = quotient.len() - nines;
            quotient[kept..].fill(0);
            match kept.checked_sub(1) {
                Some(last) => quotient[last] += 1,
                None => quotient.insert(0, 1),
            }
        }
        let text: String = quotient.iter().map(|digit| char::from(b'0' + digit)).collect();
        let (whole, fraction) = text.split_at(text.len() - fraction.len() - MORE_DIGITS);
        format_decimal(negative, whole, fraction)
    }
}

/// A decimal in its shortest form.
pub(super) fn format_decimal(negative: bool, whole: &str, fraction: &str) -> String {
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let sign = if negative && !(whole.is_empty() && fraction.is_empty()) { "-" } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

fn scaled_parts(mantissa: i128, scale: u32) -> (bool, String, String) {
    let digits = format!("{:0>width$}", mantissa.unsigned_abs(), width = scale as usize + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale as usize);
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    (mantissa < 0, whole.to_owned(), fraction.to_owned())
}

/// Positive and negative decimals of any length, added up separately.
#[derive(Debug, Clone, Default)]
struct BigSum {
    positive: BigDecimal,
    negative: BigDecimal,
}

/// Limbs of nine digits, the least significant first; the first `fraction_limbs` come after the point.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct BigDecimal {
    limbs: Vec<u32>,
    fraction_limbs: usize,
}

const LIMB: u32 = 1_000_000_000;
const LIMB_DIGITS: usize = 9;

impl BigSum {
    fn add(&mut self, negative: bool, whole: &str, fraction: &str) {
        let side = if negative { &mut self.negative } else { &mut self.positive };
        side.add(whole, fraction);
    }

    fn add_scaled(&mut self, mantissa: i128, scale: u32) {
        let (negative, whole, fraction) = scaled_parts(mantissa, scale);
        self.add(negative, &whole, &fraction);
    }

    fn parts(mut self) -> (bool, String, String) {
        let fraction_limbs = self.positive.fraction_limbs.max(self.negative.fraction_limbs);
        self.positive.align(fraction_limbs);
        self.negative.align(fraction_limbs);
        let length = self.positive.limbs.len().max(self.negative.limbs.len());
        self.positive.limbs.resize(length, 0);
        self.negative.limbs.resize(length, 0);
        let is_negative = self.positive.limbs.iter().rev().lt(self.negative.limbs.iter().rev());
        let (larger, smaller) =
            if is_negative { (self.negative, self.positive) } else { (self.positive, self.negative) };
        let (whole, fraction) = larger.minus(&smaller).digits();
        (is_negative, whole, fraction)
    }
}

impl BigDecimal {
    /// Makes room for more digits after the point.
    fn align(&mut self, fraction_limbs: usize) {
        let missing = fraction_limbs.saturating_sub(self.fraction_limbs);
        self.limbs.splice(0..0, std::iter::repeat_n(0, missing));
        self.fraction_limbs += missing;
    }

    fn add(&mut self, whole: &str, fraction: &str) {
        self.align(fraction.len().div_ceil(LIMB_DIGITS));
        let padding = self.fraction_limbs * LIMB_DIGITS - fraction.len();
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        // The digits are followed by `padding` zeros that are not written out.
        let start = padding / LIMB_DIGITS;
        let shift = padding % LIMB_DIGITS;
        let shifted: Vec<u8> = digits.into_iter().chain(std::iter::repeat_n(b'0', shift)).collect();
        let mut carry = 0;
        let mut at = start;
        for chunk in shifted.rchunks(LIMB_DIGITS) {
            let limb = chunk.iter().fold(0_u32, |n, c| n * 10 + u32::from(c - b'0'));
            carry = self.add_limb(at, limb + carry);
            at += 1;
        }
        while carry > 0 {
            carry = self.add_limb(at, carry);
            at += 1;
        }
    }

    /// Adds to one limb, and returns the carry.
    fn add_limb(&mut self, at: usize, value: u32) -> u32 {
        if self.limbs.len() <= at {
            self.limbs.resize(at + 1, 0);
        }
        let sum = u64::from(self.limbs[at]) + u64::from(value);
        self.limbs[at] = (sum % u64::from(LIMB)) as u32;
        (sum / u64::from(LIMB)) as u32
    }

    /// The difference of two numbers of the same length, of which `other` is not larger.
    fn minus(mut self, other: &Self) -> Self {
        let mut borrow = 0;
        for (limb, other) in self.limbs.iter_mut().zip(&other.limbs) {
            let take = other + borrow;
            borrow = u32::from(*limb < take);
            *limb = *limb + borrow * LIMB - take;
        }
        self
    }

    fn digits(&self) -> (String, String) {
        let text: String = self.limbs.iter().rev().map(|limb| format!("{limb:09}")).collect();
        let (whole, fraction) = text.split_at(text.len() - self.fraction_limbs * LIMB_DIGITS);
        (whole.trim_start_matches('0').to_owned(), fraction.trim_end_matches('0').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::DecimalSum;

    fn sum(texts: &[&str]) -> DecimalSum {
        let mut sum = DecimalSum::default();
        for text in texts {
            assert!(sum.add_text(text), "{text}");
        }
        sum
    }

    #[test]
    fn sums_are_exact() {
        let nines = "9".repeat(40);
        let tiny = format!("0.{}1", "0".repeat(40));
        for (texts, expected) in [
            (&[][..], "0"),
            (&["0.1", "0.2"], "0.3"),
            (&["1.50", "1.5"], "3"),
            (&["-0.00"], "0"),
            (&["1", "-1.25"], "-0.25"),
            (&["12345678901234567890.12", "0.88"], "12345678901234567891"),
            (&[&nines, "1"], &format!("1{}", "0".repeat(40))),
            (&[&nines, &format!("-{nines}"), "0.5"], "0.5"),
            (&[&tiny, "-1"], &format!("-0.{}", "9".repeat(41))),
            (
                &["170141183460469231731687303715884", "170141183460469231731687303715884.5"],
                "340282366920938463463374607431768.5",
            ),
        ] {
            assert_eq!(sum(texts).to_text(), expected, "{texts:?}");
        }
        assert!(!DecimalSum::default().add_text("1e5"));
        assert!(!DecimalSum::default().add_text(""));
    }

    #[test]
    fn averages_are_rounded_half_to_even() {
        for (texts, expected) in [
            (&["1", "2"][..], "1.5"),
            (&["0.1", "0.2", "0.1"], "0.1333333"),
            (&["1", "1", "0"], "0.666667"),
            (&["-1", "-1", "0"], "-0.666667"),
            (&["0.000001", "0", "0", "0"], "0.00000025"),
            (&["0.1"], "0.1"),
            (&["99.9999999", "99.9999999", "99.9999999"], "99.9999999"),
            (&["0", "0"], "0"),
        ] {
            assert_eq!(sum(texts).average(texts.len() as u64), expected, "{texts:?}");
        }
        // 1 / 128 = 0.0078125, between 0.007812 and 0.007813.
        assert_eq!(sum(&["1"]).average(128), "0.007812");
        assert_eq!(sum(&["3"]).average(128), "0.023438");
    }

    proptest! {
        /// The oracle adds digit strings by hand.
        #[test]
        fn sums_do_not_depend_on_the_order_or_the_path(
            values in prop::collection::vec("-?[0-9]{1,45}(\\.[0-9]{1,25})?", 1..20),
        ) {
            let texts: Vec<&str> = values.iter().map(String::as_str).collect();
            let forward = sum(&texts).to_text();
            let backward: Vec<&str> = texts.iter().rev().copied().collect();
            prop_assert_eq!(&forward, &sum(&backward).to_text());
            prop_assert_eq!(forward, oracle(&texts));
        }
    }

    fn oracle(texts: &[&str]) -> String {
        const PLACES: usize = 60;
        let mut totals = [[0_u64; 2 * PLACES]; 2];
        for text in texts {
            let (negative, digits) = text.strip_prefix('-').map_or((0, *text), |digits| (1, digits));
            let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
            for (at, c) in whole.bytes().rev().enumerate() {
                totals[negative][PLACES + at] += u64::from(c - b'0');
            }
            for (at, c) in fraction.bytes().enumerate() {
                totals[negative][PLACES - 1 - at] += u64::from(c - b'0');
            }
        }
        for total in &mut totals {
            for at in 0..total.len() - 1 {
                total[at + 1] += total[at] / 10;
                total[at] %= 10;
            }
        }
        let [positive, negative] = totals;
        let is_negative = positive.iter().rev().lt(negative.iter().rev());
        let (large, small) = if is_negative { (negative, positive) } else { (positive, negative) };
        let mut borrow = 0;
        let digits: Vec<u8> = large
            .iter()
            .zip(small)
            .map(|(a, b)| {
                let digit = 10 + a - b - borrow;
                borrow = u64::from(digit < 10);
                b'0' + (digit % 10) as u8
            })
            .collect();
        let text: String = digits.iter().rev().map(|c| char::from(*c)).collect();
        super::format_decimal(is_negative, &text[..PLACES], &text[PLACES..])
    }
}

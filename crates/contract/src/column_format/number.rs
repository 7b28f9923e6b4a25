//! Numbers as people write them: separators, currency signs, percent, negative numbers in parentheses.

use std::fmt;
use std::net::Ipv4Addr;

/// The notation of a column's numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NumberFormat {
    /// `.` or `,`
    pub(crate) decimal: char,
    /// Between groups of digits.
    pub(crate) group: Option<char>,
    pub(crate) grouping: Grouping,
    /// A rendered number has at least this many digits after the decimal separator.
    pub(crate) decimals_min: usize,
    /// Before the digits, with the blank: `€ `.
    pub(crate) prefix: String,
    /// After the digits, with the blank: ` %`.
    pub(crate) suffix: String,
    pub(crate) negative: NegativeStyle,
    /// Whether positive numbers have a `+`.
    pub(crate) has_plus: bool,
    /// Whether a number below one has no digit before the decimal separator: `.5`. Not with groups.
    pub(crate) omits_zero: bool,
}

/// How many digits stand between two group separators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Grouping {
    /// `1,234,567`
    #[default]
    Thousands,
    /// `12,34,567`: two digits, and three before the decimal point, as in India.
    Lakhs,
}

/// How a negative number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum NegativeStyle {
    /// `-5`, `-$5`
    #[default]
    Minus,
    /// `$-5`
    MinusAfterPrefix,
    /// `−5`, with the minus sign of typography.
    UnicodeMinus,
    /// `5-`
    TrailingMinus,
    /// `(5)`, `($5)`
    Parentheses,
    /// `$(5)`, `(5) €`
    ParenthesesInside,
}

const GROUPS: [char; 7] = ['.', ',', ' ', '\u{a0}', '\u{202f}', '\'', '’'];
const UNITS: [&str; 42] = [
    "$", "€", "£", "¥", "₹", "₽", "₩", "₺", "₴", "₪", "%", "US$", "A$", "C$", "R$", "kr", "kr.", "zł", "Kč",
    "Ft", "Fr.", "SFr.", "USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "SEK", "NOK", "DKK", "PLN", "CZK",
    "HUF", "CAD", "AUD", "BRL", "MXN", "TRY", "RUB", "‰",
];
/// A unit in a manifest is at most this long.
const UNIT_CHARS_MAX: usize = 12;
const DECIMALS_MAX: usize = 30;
const NUMBER_BYTES_MAX: usize = 120;

/// The parts of a number as it is written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NumberSpelling<'a> {
    /// Digits and separators.
    pub(crate) body: &'a str,
    pub(crate) prefix: &'a str,
    pub(crate) suffix: &'a str,
    pub(crate) negative: Option<NegativeStyle>,
    pub(crate) has_plus: bool,
}

/// A number, if its digits are read with one of the two decimal separators.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NumberReading {
    /// Without a sign, with `.` as the decimal separator, perhaps with an exponent.
    pub(crate) digits: String,
    /// The separator between groups, if there is one.
    pub(crate) group: Option<char>,
    /// The only grouping that the digits have; `None` if they have either, as `1,234` has.
    pub(crate) grouping: Option<Grouping>,
    pub(crate) decimals: usize,
}

impl<'a> NumberSpelling<'a> {
    /// Finds the digits in a text. Anything may be around them; a caller checks the unit.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        let text = text.trim();
        if text.len() > NUMBER_BYTES_MAX {
            return None;
        }
        let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
        let mut negative = inner.map(|_| NegativeStyle::Parentheses);
        let text = inner.unwrap_or(text).trim();
        let first_digit = text.find(|c: char| c.is_ascii_digit())?;
        // `.5`
        let starts_with_separator = text[..first_digit].ends_with(['.', ','])
            && !text[..first_digit - 1].ends_with(|c: char| c.is_alphanumeric());
        let start = if starts_with_separator { first_digit - 1 } else { first_digit };
        let end = text.rfind(|c: char| c.is_ascii_digit())? + 1;
        let (mut prefix, body, mut suffix) = (&text[..start], &text[start..end], &text[end..]);
        let mut has_plus = false;
        let mut set_negative = |style| negative.replace(style).is_none();
        if let Some(rest) = prefix.strip_prefix('-') {
            (prefix, _) = (rest, set_negative(NegativeStyle::Minus).then_some(())?);
        } else if let Some(rest) = prefix.strip_prefix('−') {
            (prefix, _) = (rest, set_negative(NegativeStyle::UnicodeMinus).then_some(())?);
        } else if let Some(rest) = prefix.strip_suffix('-') {
            (prefix, _) = (rest, set_negative(NegativeStyle::MinusAfterPrefix).then_some(())?);
        } else if let Some(rest) = prefix.strip_prefix('+') {
            (prefix, has_plus) = (rest, true);
        }
        if let (Some(before), Some(behind)) = (prefix.strip_suffix('('), suffix.strip_prefix(')')) {
            set_negative(NegativeStyle::ParenthesesInside).then_some(())?;
            (prefix, suffix) = (before, behind);
        }
        if let Some(rest) = suffix.strip_suffix('-') {
            (suffix, _) = (rest, set_negative(NegativeStyle::TrailingMinus).then_some(())?);
        }
        if has_plus && negative.is_some() {
            return None;
        }
        Some(Self { body, prefix, suffix, negative, has_plus })
    }

    /// Whether what is around the digits is a known unit on one side, or nothing.
    pub(crate) fn has_known_unit(&self) -> bool {
        let is_unit = |affix: &str| UNITS.contains(&affix.trim());
        match (self.prefix, self.suffix) {
            ("", "") => true,
            (prefix, "") => is_unit(prefix),
            ("", suffix) => is_unit(suffix),
            (_, _) => false,
        }
    }

    /// The digits, with `.` or `,` as the decimal separator.
    pub(crate) fn read(&self, decimal: char) -> Option<NumberReading> {
        // `192.168.100.101` would be twelve digits with three separators.
        if self.body.parse::<Ipv4Addr>().is_ok() {
            return None;
        }
        let (mantissa, exponent) = match self.body.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (self.body, None),
        };
        let (whole, fraction) = match mantissa.split_once(decimal) {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (mantissa, None),
        };
        // Programs write `1e-07` and `1.5E+3`. `12E4` may as well be a code.
        let is_exponent = |exponent: &str| {
            let digits = exponent.strip_prefix(['-', '+']);
            (digits.is_some() || fraction.is_some()) && is_digits(digits.unwrap_or(exponent))
        };
        if exponent.is_some_and(|exponent| !is_exponent(exponent)) {
            return None;
        }
        if fraction.is_some_and(|digits| digits.is_empty() || !is_digits(digits)) {
            return None;
        }
        let group = whole.chars().find(|c| !c.is_ascii_digit());
        if group.is_some_and(|group| group == decimal || !GROUPS.contains(&group) || exponent.is_some()) {
            return None;
        }
        let mut digits = String::with_capacity(self.body.len());
        let mut grouping = None;
        let is_grouped = match group {
            None => {
                digits.push_str(whole);
                is_digits(whole) || (whole.is_empty() && fraction.is_some())
            }
            Some(separator) => {
                let groups: Vec<&str> = whole.split(separator).collect();
                groups.iter().for_each(|group| digits.push_str(group));
                grouping = only_grouping(&groups, separator)?;
                groups.iter().all(|group| is_digits(group)) && !digits.starts_with('0')
            }
        };
        // A code such as `007` is not a number.
        if !is_grouped || (digits.len() > 1 && digits.starts_with('0')) {
            return None;
        }
        if digits.is_empty() {
            digits.push('0');
        }
        if let Some(fraction) = fraction {
            digits.push('.');
            digits.push_str(fraction);
        }
        let decimals = match exponent {
            Some(exponent) => {
                digits.push('e');
                digits.push_str(exponent);
                0
            }
            None => fraction.map_or(0, str::len),
        };
        // Not above what a float holds.
        let is_finite = exponent.is_none() || digits.parse().is_ok_and(f64::is_finite);
        is_finite.then_some(NumberReading { digits, group, grouping, decimals })
    }

    /// The sign of the canonical text.
    pub(crate) fn sign(&self) -> &'static str {
        if self.negative.is_some() { "-" } else { "" }
    }
}

impl NumberFormat {
    /// Parses an example: `1234`, with a group separator or without, and `5` and zeros after the decimal separator.
    /// At least two digits after it are the fewest that a rendered number has. `.5` stands for numbers without a zero
    /// before the separator.
    pub fn from_example(example: &str) -> Option<Self> {
        let spelling = NumberSpelling::of(example)?;
        let omits_zero = spelling.body.starts_with(['.', ',']);
        let mut rest = spelling.body;
        let (mut group, mut grouping) = (None, Grouping::Thousands);
        if !omits_zero {
            rest = rest.strip_prefix('1')?;
            group = rest.chars().next().filter(|c| !c.is_ascii_digit());
            if let Some(group) = group {
                rest = &rest[group.len_utf8()..];
            }
            rest = match rest.strip_prefix(LAKHS_EXAMPLE).filter(|_| group == Some(LAKHS_SEPARATOR)) {
                Some(rest) => {
                    grouping = Grouping::Lakhs;
                    rest
                }
                None => rest.strip_prefix("234")?,
            };
        }
        let (decimal, decimals) = match rest.chars().next() {
            None => (if group == Some('.') { ',' } else { '.' }, 0),
            Some(decimal @ ('.' | ',')) => {
                let digits = &rest[1..];
                let is_example = digits.starts_with('5') && digits[1..].bytes().all(|byte| byte == b'0');
                (decimal, is_example.then_some(digits.len())?)
            }
            Some(_) => return None,
        };
        let is_group = group.is_none_or(|group| GROUPS.contains(&group) && group != decimal);
        let is_affix = |affix: &str| {
            affix.chars().count() <= UNIT_CHARS_MAX
                && !affix.contains(|c: char| c.is_control() || "()+-−".contains(c))
        };
        let is_valid = is_group
            && decimals <= DECIMALS_MAX
            && is_affix(spelling.prefix)
            && is_affix(spelling.suffix)
            && (spelling.prefix.is_empty() || !spelling.prefix.trim().is_empty())
            && (spelling.suffix.is_empty() || !spelling.suffix.trim().is_empty());
        is_valid.then(|| Self {
            decimal,
            group,
            grouping,
            decimals_min: if decimals < 2 { 0 } else { decimals },
            prefix: spelling.prefix.to_owned(),
            suffix: spelling.suffix.to_owned(),
            negative: spelling.negative.unwrap_or_default(),
            has_plus: spelling.has_plus,
            omits_zero,
        })
    }

    /// `€`, `%`
    pub(super) fn unit(&self) -> Option<&str> {
        [self.prefix.trim(), self.suffix.trim()].into_iter().find(|unit| !unit.is_empty())
    }

    pub(super) fn parse(&self, text: &str) -> Option<String> {
        let spelling = NumberSpelling::of(text)?;
        let has_unit = spelling.prefix == self.prefix && spelling.suffix == self.suffix;
        // People leave out a currency in some cells. A percent sign changes the number.
        let lacks_currency =
            || (spelling.prefix, spelling.suffix) == ("", "") && self.unit().is_some_and(is_currency);
        let is_ours = (has_unit || lacks_currency())
            && spelling.negative.is_none_or(|style| style == self.negative)
            && (self.has_plus || !spelling.has_plus);
        let reading = spelling.read(self.decimal).filter(|_| is_ours)?;
        let has_other_groups =
            reading.group != self.group || reading.grouping.is_some_and(|grouping| grouping != self.grouping);
        if reading.group.is_some() && has_other_groups {
            return None;
        }
        Some(format!("{}{}", spelling.sign(), reading.digits))
    }

    pub(super) fn render(&self, canonical: &str) -> Option<String> {
        let (is_negative, digits) = match canonical.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, canonical),
        };
        let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (digits, None),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if !is_digits(whole) || !(fraction.is_empty() || is_digits(fraction)) {
            return None;
        }
        let mut body = String::with_capacity(canonical.len() + 8);
        if let Some(exponent) = exponent {
            // Nobody writes an amount of money with an exponent.
            let is_plain = self.group.is_none() && self.decimals_min <= 1 && self.unit().is_none();
            if !is_plain {
                return None;
            }
            let (sign, power) = match exponent.strip_prefix('-') {
                Some(power) => ('-', power),
                None => ('+', exponent.strip_prefix('+').unwrap_or(exponent)),
            };
            if !is_digits(power) {
                return None;
            }
            body.push_str(whole);
            if !fraction.is_empty() {
                body.push(self.decimal);
                body.push_str(fraction);
            }
            body.push('e');
            body.push(sign);
            body.push_str(power);
            return Some(self.decorate(&body, is_negative));
        }
        let decimals = fraction.len().max(self.decimals_min);
        let whole = if self.omits_zero && whole == "0" && decimals > 0 { "" } else { whole };
        for (at, digit) in whole.char_indices() {
            if let Some(group) = self.group.filter(|_| at > 0 && self.grouping.is_start(whole.len() - at)) {
                body.push(group);
            }
            body.push(digit);
        }
        if decimals > 0 {
            body.push(self.decimal);
            body.push_str(fraction);
            body.extend(std::iter::repeat_n('0', decimals - fraction.len()));
        }
        Some(self.decorate(&body, is_negative))
    }

    /// Adds the sign and the unit.
    fn decorate(&self, body: &str, is_negative: bool) -> String {
        let (prefix, suffix) = (&self.prefix, &self.suffix);
        match (is_negative, self.negative) {
            (false, _) if self.has_plus => format!("+{prefix}{body}{suffix}"),
            (false, _) => format!("{prefix}{body}{suffix}"),
            (true, NegativeStyle::Minus) => format!("-{prefix}{body}{suffix}"),
            (true, NegativeStyle::MinusAfterPrefix) => format!("{prefix}-{body}{suffix}"),
            (true, NegativeStyle::UnicodeMinus) => format!("−{prefix}{body}{suffix}"),
            (true, NegativeStyle::TrailingMinus) => format!("{prefix}{body}{suffix}-"),
            (true, NegativeStyle::Parentheses) => format!("({prefix}{body}{suffix})"),
            (true, NegativeStyle::ParenthesesInside) => format!("{prefix}({body}){suffix}"),
        }
    }
}

/// The example that [`NumberFormat::from_example`] reads as this format.
impl fmt::Display for NumberFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut body = String::new();
        if !self.omits_zero {
            body.push('1');
            body.extend(self.group);
            body.push_str(match self.grouping {
                Grouping::Thousands => "234",
                Grouping::Lakhs => LAKHS_EXAMPLE,
            });
        }
        // Without a fraction, the example would not show that the decimal separator is a comma.
        let is_clear = !self.omits_zero
            && self.decimals_min == 0
            && self.decimal == if self.group == Some('.') { ',' } else { '.' };
        if !is_clear {
            body.push(self.decimal);
            body.push('5');
            body.extend(std::iter::repeat_n('0', self.decimals_min.saturating_sub(1)));
        }
        f.write_str(&self.decorate(&body, self.negative != NegativeStyle::Minus && !self.has_plus))
    }
}

/// Only this separator stands between lakhs.
const LAKHS_SEPARATOR: char = ',';
/// What follows `1,` in the example of a format with lakhs: `1,23,456.50`.
const LAKHS_EXAMPLE: &str = "23,456";

impl Grouping {
    /// Whether a group starts where so many digits are left.
    fn is_start(self, digits_left: usize) -> bool {
        match self {
            Self::Thousands => digits_left.is_multiple_of(3),
            Self::Lakhs => digits_left == 3 || (digits_left > 3 && digits_left % 2 == 1),
        }
    }
}

/// The grouping of groups of digits: `Some(None)` if it may be either, `None` if it is neither.
fn only_grouping(groups: &[&str], separator: char) -> Option<Option<Grouping>> {
    let [first, middle @ .., last] = groups else { return None };
    let are = |length: usize, first_max: usize| {
        last.len() == 3
            && (1..=first_max).contains(&first.len())
            && middle.iter().all(|group| group.len() == length)
    };
    match (are(3, 3), separator == LAKHS_SEPARATOR && are(2, 2)) {
        (true, true) => Some(None),
        (true, false) => Some(Some(Grouping::Thousands)),
        (false, true) => Some(Some(Grouping::Lakhs)),
        (false, false) => None,
    }
}

/// Whether a unit is a currency, and not `%`.
pub(crate) fn is_currency(unit: &str) -> bool {
    !matches!(unit, "%" | "‰") && UNITS.contains(&unit)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

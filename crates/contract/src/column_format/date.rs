//! Dates as people write them: the order of day, month and year, names of months, times of day.

use std::fmt;

use spile_core::calendar::{CivilDate, CivilTime, Temporal, UtcOffset};

use super::month_names::{Language, LetterCase, NameLength, NameStyle, month_name, month_number, styles_of};
use crate::data_type::DataType;

/// The notation of a column's dates, or of its dates with a time of day.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DateFormat(Vec<DatePart>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum DatePart {
    Day(Padding),
    Month(Padding),
    MonthName(NameStyle, LetterCase),
    Year4,
    /// In the hundred years from this one on.
    Year2(u16),
    Hour24(Padding),
    Hour12(Padding),
    Minute,
    Second(Fraction),
    /// `AM`
    Noon(LetterCase),
    Offset(OffsetStyle),
    Literal(String),
}

/// Whether a number below ten has a leading zero. Both are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Padding {
    Zero,
    None,
}

/// Whether seconds are written with a fraction, if they have one. It is read either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Fraction {
    None,
    Written,
}

/// How an offset from UTC is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OffsetStyle {
    /// `+01:00`
    Colon,
    /// `+0100`
    Plain,
    /// `+01`, as PostgreSQL writes it
    Hours,
    /// `GMT+1`
    Gmt,
    /// `UTC`
    Utc,
}

/// Two-digit years are 1969 to 2068, as POSIX has it, unless the author says otherwise.
const YEAR_FROM: u16 = 1969;
/// After the seconds of a pattern.
const FRACTION: &str = ".fff";
const PARTS_MAX: usize = 24;
const TEXT_BYTES_MAX: usize = 80;
const NANO_DIGITS: usize = 9;
/// Texts that separate two parts, apart from a point, a comma, a slash, a dash or a blank.
const JOINING_WORDS: [&str; 4] = ["de", "del", "of", "le"];

/// A date and time while its parts are read.
#[derive(Default)]
struct DateFields {
    year: Option<u16>,
    month: Option<u8>,
    day: Option<u8>,
    hour: Option<u8>,
    minute: Option<u8>,
    second: Option<u8>,
    nanos: u32,
    is_afternoon: Option<bool>,
    offset_minutes: Option<i16>,
}

/// A run of digits, of letters or of anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run<'a> {
    Digits(&'a str),
    Letters(&'a str),
    Other(&'a str),
}

impl DateFormat {
    /// Parses `dd/mm/yyyy`, `d. mmmm yyyy (de)`, `mm/dd/yyyy h:mm AM`. `mm` after an hour is minutes. The letters of
    /// `mmm` show the case of the names: `Mmm` is `Feb`. `dd/mm/yy (from 1920)` has two-digit years from 1920 to 2019.
    pub fn from_pattern(pattern: &str) -> Option<Self> {
        let (pattern, year_from) = match pattern
            .strip_suffix(')')
            .and_then(|rest| rest.rsplit_once(" (from "))
        {
            Some((pattern, from)) => (pattern, from.parse().ok().filter(|from| (1000..3000).contains(from))?),
            None => (pattern, YEAR_FROM),
        };
        let (pattern, language) = match pattern.strip_suffix(')').and_then(|rest| rest.split_once(" (")) {
            Some((pattern, code)) => (pattern, Language::ALL.into_iter().find(|one| one.code() == code)?),
            None => (pattern, Language::English),
        };
        if pattern.len() > TEXT_BYTES_MAX {
            return None;
        }
        let is_afternoon_used = pattern.contains("AM") || pattern.contains("am");
        let (mut parts, mut has_hour) = (Vec::new(), false);
        let mut rest = pattern;
        while let Some(first) = rest.chars().next() {
            let same = rest.chars().take_while(|c| c.eq_ignore_ascii_case(&first)).count();
            let (part, length) = match (first.to_ascii_lowercase(), same) {
                ('d', 2) => (DatePart::Day(Padding::Zero), 2),
                ('d', 1) if !rest.starts_with("de ") => (DatePart::Day(Padding::None), 1),
                ('m', 2) if has_hour => (DatePart::Minute, 2),
                ('m', 2) => (DatePart::Month(Padding::Zero), 2),
                ('m', 1) => (DatePart::Month(Padding::None), 1),
                ('m', 3 | 4) => {
                    let has_dot = same == 3 && rest[3..].starts_with('.');
                    let length = match (same, has_dot) {
                        (4, _) => NameLength::Full,
                        (_, true) => NameLength::ShortDot,
                        (_, false) => NameLength::Short,
                    };
                    let case = LetterCase::of(&rest[..same]);
                    (DatePart::MonthName(NameStyle { language, length }, case), same + usize::from(has_dot))
                }
                ('y', 4) => (DatePart::Year4, 4),
                ('y', 2) => (DatePart::Year2(year_from), 2),
                ('h', 1 | 2) => {
                    has_hour = true;
                    let padding = if same == 2 { Padding::Zero } else { Padding::None };
                    let is_12 = is_afternoon_used;
                    (if is_12 { DatePart::Hour12(padding) } else { DatePart::Hour24(padding) }, same)
                }
                ('s', 2) if rest[2..].starts_with(FRACTION) => {
                    (DatePart::Second(Fraction::Written), 2 + FRACTION.len())
                }
                ('s', 2) => (DatePart::Second(Fraction::None), 2),
                ('a', 1) if rest.starts_with("AM") => (DatePart::Noon(LetterCase::Upper), 2),
                ('a', 1) if rest.starts_with("am") => (DatePart::Noon(LetterCase::Lower), 2),
                ('z', 1) => (DatePart::Offset(OffsetStyle::Plain), 1),
                ('z', 2) => (DatePart::Offset(OffsetStyle::Colon), 2),
                ('z', 3) => (DatePart::Offset(OffsetStyle::Hours), 3),
                ('g', 1) if rest.starts_with("GMTz") => (DatePart::Offset(OffsetStyle::Gmt), 4),
                ('u', 1) if rest.starts_with("UTC") => (DatePart::Offset(OffsetStyle::Utc), 3),
                _ => {
                    let word = JOINING_WORDS.iter().find(|word| rest.starts_with(&format!("{word} ")));
                    let literal = match (word, first) {
                        (Some(word), _) => *word,
                        (None, 'T' | ' ' | '/' | '.' | '-' | ',' | ':') => &rest[..1],
                        (None, _) => return None,
                    };
                    (DatePart::Literal(literal.to_owned()), literal.len())
                }
            };
            rest = &rest[length..];
            push_part(&mut parts, part);
        }
        let format = Self(parts);
        format.is_complete().then_some(format)
    }

    /// The same format with two-digit years from another year on; `None` if its years have four digits.
    pub fn with_years_from(mut self, year: u16) -> Option<Self> {
        let years = self.0.iter_mut().find_map(|part| match part {
            DatePart::Year2(from) => Some(from),
            _ => None,
        });
        *years? = year;
        Some(self)
    }

    /// Whether the parts are those of one date, with or without a time, and each comes once.
    fn is_complete(&self) -> bool {
        let count = |is_it: fn(&DatePart) -> bool| self.0.iter().filter(|part| is_it(part)).count();
        let days = count(|part| matches!(part, DatePart::Day(_)));
        let months = count(|part| matches!(part, DatePart::Month(_) | DatePart::MonthName(..)));
        let years = count(|part| matches!(part, DatePart::Year4 | DatePart::Year2(_)));
        let hours = count(|part| matches!(part, DatePart::Hour24(_) | DatePart::Hour12(_)));
        let minutes = count(|part| matches!(part, DatePart::Minute));
        let seconds = count(|part| matches!(part, DatePart::Second(_)));
        let offsets = count(|part| matches!(part, DatePart::Offset(_)));
        let noons = count(|part| matches!(part, DatePart::Noon(_)));
        let is_12 = count(|part| matches!(part, DatePart::Hour12(_)));
        (days, months, years) == (1, 1, 1)
            && hours == minutes
            && hours <= 1
            && seconds <= minutes
            && offsets <= hours
            && noons == is_12
            && self.0.len() <= PARTS_MAX
    }

    pub(super) fn data_type(&self) -> DataType {
        let has = |is_it: fn(&DatePart) -> bool| self.0.iter().any(is_it);
        if has(|part| matches!(part, DatePart::Offset(_))) {
            DataType::Timestamp
        } else if has(|part| matches!(part, DatePart::Minute)) {
            DataType::LocalTimestamp
        } else {
            DataType::Date
        }
    }

    pub(super) fn parse(&self, text: &str) -> Option<String> {
        self.read(text)?.canonical()
    }

    fn read(&self, text: &str) -> Option<DateFields> {
        let mut rest = text.trim();
        if rest.len() > TEXT_BYTES_MAX {
            return None;
        }
        let mut fields = DateFields::default();
        for (at, part) in self.0.iter().enumerate() {
            // Without a separator, only the width tells where a number ends.
            let is_next_to_number =
                |at: Option<usize>| at.and_then(|at| self.0.get(at)).is_some_and(DatePart::is_number);
            let is_fixed = is_next_to_number(at.checked_add(1)) || is_next_to_number(at.checked_sub(1));
            let mut number = |digits_min: usize, digits_max: usize| -> Option<u16> {
                let digits = rest.bytes().take(digits_max).take_while(u8::is_ascii_digit).count();
                let wanted = if is_fixed { digits_max } else { digits_min };
                let (number, behind) = rest.split_at_checked(digits).filter(|_| digits >= wanted)?;
                rest = behind;
                number.parse().ok()
            };
            match part {
                DatePart::Day(_) => fields.day = Some(number(1, 2)? as u8),
                DatePart::Month(_) => fields.month = Some(number(1, 2)? as u8),
                DatePart::Year4 => fields.year = Some(number(4, 4)?),
                DatePart::Year2(from) => {
                    let year = number(2, 2)?;
                    fields.year = Some(from + (year + 100 - from % 100) % 100);
                }
                DatePart::Hour24(_) | DatePart::Hour12(_) => fields.hour = Some(number(1, 2)? as u8),
                DatePart::Minute => fields.minute = Some(number(2, 2)? as u8),
                DatePart::Second(_) => {
                    fields.second = Some(number(2, 2)? as u8);
                    let digits = rest.strip_prefix('.').unwrap_or_default();
                    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
                    if (1..=NANO_DIGITS).contains(&length) {
                        fields.nanos = format!("{:0<NANO_DIGITS$}", &digits[..length]).parse().ok()?;
                        rest = &digits[length..];
                    }
                }
                DatePart::MonthName(..) => {
                    let name = leading_name(rest);
                    fields.month = Some(month_number(name)?);
                    rest = &rest[name.len()..];
                }
                DatePart::Noon(_) => {
                    let word = rest.get(..2)?;
                    fields.is_afternoon = Some(match word.to_ascii_lowercase().as_str() {
                        "am" => false,
                        "pm" => true,
                        _ => return None,
                    });
                    rest = &rest[2..];
                }
                DatePart::Offset(style) => {
                    let (minutes, length) = read_offset(rest, *style)?;
                    fields.offset_minutes = Some(minutes);
                    rest = &rest[length..];
                }
                DatePart::Literal(literal) => rest = rest.strip_prefix(literal.as_str())?,
            }
        }
        rest.is_empty().then_some(fields)
    }

    pub(super) fn render(&self, canonical: &str) -> Option<String> {
        let (date, time, offset) = match Temporal::parse(canonical.as_bytes())? {
            Temporal::Date(date) => (date, None, None),
            Temporal::DateTime(at) => (at.date, Some(at.time), at.offset),
        };
        let has = |is_it: fn(&DatePart) -> bool| self.0.iter().any(is_it);
        let has_time = has(|part| matches!(part, DatePart::Minute));
        let has_offset = has(|part| matches!(part, DatePart::Offset(_)));
        let time = match time {
            Some(time) => time,
            None if has_time => return None,
            None => CivilTime::MIDNIGHT,
        };
        let has_second = has(|part| matches!(part, DatePart::Second(_)));
        let has_fraction = has(|part| matches!(part, DatePart::Second(Fraction::Written)));
        let is_lost = (!has_time && time != CivilTime::MIDNIGHT)
            || (!has_second && time.second() > 0)
            || (!has_fraction && time.nanos() > 0)
            || has_offset != offset.is_some();
        if is_lost {
            return None;
        }
        let mut out = String::with_capacity(canonical.len() + 8);
        for part in &self.0 {
            let mut number = |value: u8, padding: Padding| match padding {
                Padding::Zero => out.push_str(&format!("{value:02}")),
                Padding::None => out.push_str(&value.to_string()),
            };
            match part {
                DatePart::Day(padding) => number(date.day(), *padding),
                DatePart::Month(padding) => number(date.month(), *padding),
                DatePart::MonthName(style, case) => out.push_str(&month_name(date.month(), *style, *case)?),
                DatePart::Year4 => out.push_str(&format!("{:04}", date.year())),
                DatePart::Year2(from) => {
                    // A year that would be read in another century cannot be written.
                    let year = Some(date.year()).filter(|year| (*from..*from + 100).contains(year))?;
                    out.push_str(&format!("{:02}", year % 100));
                }
                DatePart::Hour24(padding) => number(time.hour(), *padding),
                DatePart::Hour12(padding) => number((time.hour() + 11) % 12 + 1, *padding),
                DatePart::Minute => number(time.minute(), Padding::Zero),
                DatePart::Second(_) => {
                    number(time.second(), Padding::Zero);
                    if time.nanos() > 0 {
                        let fraction = format!(".{:0NANO_DIGITS$}", time.nanos());
                        out.push_str(fraction.trim_end_matches('0'));
                    }
                }
                DatePart::Noon(case) => {
                    let word = if time.hour() < 12 { "am" } else { "pm" };
                    out.push_str(&if *case == LetterCase::Lower {
                        word.to_owned()
                    } else {
                        word.to_uppercase()
                    });
                }
                DatePart::Offset(style) => out.push_str(&render_offset(offset?, *style)?),
                DatePart::Literal(literal) => out.push_str(literal),
            }
        }
        Some(out)
    }

    /// The formats that a text may be in. More than one if day and month could be either.
    pub(crate) fn candidates(text: &str) -> Vec<Self> {
        let text = text.trim();
        if text.len() > TEXT_BYTES_MAX || !text.bytes().any(|byte| byte.is_ascii_digit()) {
            return Vec::new();
        }
        let runs = split_runs(text);
        let Some((components, separators, time)) = split_date(&runs) else { return Vec::new() };
        let Some(time) = time_parts(time) else { return Vec::new() };
        let orders: Vec<[DatePart; 3]> = date_orders(components, &separators);
        let with_time = |[a, b, c]: [DatePart; 3]| {
            let mut parts = vec![a];
            push_literal(&mut parts, &separators[0]);
            push_part(&mut parts, b);
            push_literal(&mut parts, &separators[1]);
            push_part(&mut parts, c);
            time.iter().cloned().for_each(|part| push_part(&mut parts, part));
            Self(parts)
        };
        let is_candidate = |format: &Self| format.is_complete() && format.parse(text).is_some();
        orders.into_iter().map(with_time).filter(is_candidate).collect()
    }

    /// Whether a text names a month and a year, and no day: `Jan 2026`, `Mrz. 26`.
    pub(crate) fn is_month_and_year(text: &str) -> bool {
        let text = text.trim();
        let name = leading_name(text);
        let year = text[name.len()..].trim_start_matches([' ', '-', '/', '\'']);
        !name.is_empty()
            && month_number(name).is_some()
            && matches!(year.len(), 2 | 4)
            && year.len() < text.len() - name.len()
            && year.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Adapts what does not change the meaning to another text in this format: leading zeros, and which language and
    /// length the names of months have. `None` if the text is not in this format.
    pub(crate) fn adapted_to(mut self, text: &str) -> Option<Self> {
        let text = text.trim();
        let fields = self.read(text)?;
        fields.canonical()?;
        // Also `.000`: what comes after it is not a number of this format.
        let has_fraction = fields.nanos > 0;
        let runs = split_runs(text);
        let mut numbers = runs.iter().filter_map(|run| match run {
            Run::Digits(digits) => Some(*digits),
            Run::Letters(_) | Run::Other(_) => None,
        });
        let name = runs.iter().enumerate().find_map(|(at, _)| name_at(&runs, at));
        for part in &mut self.0 {
            match part {
                DatePart::Day(padding)
                | DatePart::Month(padding)
                | DatePart::Hour24(padding)
                | DatePart::Hour12(padding) => {
                    if numbers.next().is_some_and(|digits| digits.len() == 1) {
                        *padding = Padding::None;
                    }
                }
                DatePart::Year4 | DatePart::Year2(_) | DatePart::Minute => {
                    let _ = numbers.next();
                }
                DatePart::Second(fraction) => {
                    let _ = numbers.next();
                    if has_fraction {
                        *fraction = Fraction::Written;
                        let _ = numbers.next();
                    }
                }
                DatePart::MonthName(style, _) => {
                    let styles = name.as_deref().map(styles_of).unwrap_or_default();
                    // A name that no style has is read, and does not decide.
                    if !styles.is_empty() && !styles.contains(style) {
                        *style = styles[0];
                    }
                }
                DatePart::Noon(_) | DatePart::Offset(_) | DatePart::Literal(_) => {}
            }
        }
        Some(self)
    }

    /// The month's name in a text, for choosing a style that has all names of a column.
    pub(crate) fn month_name_in(text: &str) -> Option<String> {
        let runs = split_runs(text.trim());
        (0..runs.len()).find_map(|at| name_at(&runs, at))
    }

    /// The same format with the first style of month names that has all of these names.
    pub(crate) fn with_names(mut self, names: &[String]) -> Self {
        let first = names.first().map(|name| styles_of(name)).unwrap_or_default();
        let common = first.into_iter().find(|style| names.iter().all(|name| styles_of(name).contains(style)));
        for part in &mut self.0 {
            if let (DatePart::MonthName(style, _), Some(common)) = (part, common) {
                *style = common;
            }
        }
        self
    }
}

impl DatePart {
    fn is_number(&self) -> bool {
        match self {
            Self::Day(_)
            | Self::Month(_)
            | Self::Year4
            | Self::Year2(_)
            | Self::Hour24(_)
            | Self::Hour12(_)
            | Self::Minute
            | Self::Second(_) => true,
            Self::MonthName(..) | Self::Noon(_) | Self::Offset(_) | Self::Literal(_) => false,
        }
    }
}

impl DateFields {
    fn canonical(&self) -> Option<String> {
        let date = CivilDate::new(self.year?, self.month?, self.day?)?;
        let Some(minute) = self.minute else { return Some(date.to_string()) };
        let hour = match (self.hour?, self.is_afternoon) {
            (hour, None) => hour,
            (hour @ 1..=12, Some(is_afternoon)) => hour % 12 + if is_afternoon { 12 } else { 0 },
            (_, Some(_)) => return None,
        };
        let time = CivilTime::new(hour, minute, self.second.unwrap_or(0), self.nanos)?;
        let mut local = format!("{date}T{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second());
        if time.nanos() > 0 {
            local += format!(".{:0NANO_DIGITS$}", time.nanos()).trim_end_matches('0');
        }
        match self.offset_minutes {
            None => Some(local),
            Some(0) => Some(local + "Z"),
            Some(minutes) => {
                UtcOffset::from_minutes(minutes)?;
                let (sign, size) = (if minutes < 0 { '-' } else { '+' }, minutes.unsigned_abs());
                Some(format!("{local}{sign}{:02}:{:02}", size / 60, size % 60))
            }
        }
    }
}

impl fmt::Display for DateFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut language, mut year_from) = (None, None);
        for part in &self.0 {
            match part {
                DatePart::Day(Padding::Zero) => f.write_str("dd")?,
                DatePart::Day(Padding::None) => f.write_str("d")?,
                DatePart::Month(Padding::Zero) => f.write_str("mm")?,
                DatePart::Month(Padding::None) => f.write_str("m")?,
                DatePart::MonthName(style, case) => {
                    language = Some(style.language).filter(|language| *language != Language::English);
                    let (letters, dot) = match style.length {
                        NameLength::Full => ("mmmm", ""),
                        NameLength::Short => ("mmm", ""),
                        NameLength::ShortDot => ("mmm", "."),
                    };
                    match case {
                        LetterCase::Lower => f.write_str(letters)?,
                        LetterCase::Upper => f.write_str(&letters.to_uppercase())?,
                        LetterCase::Capital => write!(f, "M{}", &letters[1..])?,
                    }
                    f.write_str(dot)?;
                }
                DatePart::Year4 => f.write_str("yyyy")?,
                DatePart::Year2(from) => {
                    year_from = Some(*from).filter(|from| *from != YEAR_FROM);
                    f.write_str("yy")?;
                }
                DatePart::Hour24(Padding::Zero) | DatePart::Hour12(Padding::Zero) => f.write_str("hh")?,
                DatePart::Hour24(Padding::None) | DatePart::Hour12(Padding::None) => f.write_str("h")?,
                DatePart::Minute => f.write_str("mm")?,
                DatePart::Second(Fraction::None) => f.write_str("ss")?,
                DatePart::Second(Fraction::Written) => write!(f, "ss{FRACTION}")?,
                DatePart::Noon(LetterCase::Lower) => f.write_str("am")?,
                DatePart::Noon(_) => f.write_str("AM")?,
                DatePart::Offset(OffsetStyle::Plain) => f.write_str("z")?,
                DatePart::Offset(OffsetStyle::Colon) => f.write_str("zz")?,
                DatePart::Offset(OffsetStyle::Hours) => f.write_str("zzz")?,
                DatePart::Offset(OffsetStyle::Gmt) => f.write_str("GMTz")?,
                DatePart::Offset(OffsetStyle::Utc) => f.write_str("UTC")?,
                DatePart::Literal(literal) => f.write_str(literal)?,
            }
        }
        language.map_or(Ok(()), |language| write!(f, " ({})", language.code()))?;
        year_from.map_or(Ok(()), |from| write!(f, " (from {from})"))
    }
}

/// Adds a part; literals that follow each other become one.
fn push_part(parts: &mut Vec<DatePart>, part: DatePart) {
    match (parts.last_mut(), part) {
        (Some(DatePart::Literal(last)), DatePart::Literal(next)) => last.push_str(&next),
        (_, part) => parts.push(part),
    }
}

fn push_literal(parts: &mut Vec<DatePart>, literal: &str) {
    if !literal.is_empty() {
        push_part(parts, DatePart::Literal(literal.to_owned()));
    }
}

fn split_runs(text: &str) -> Vec<Run<'_>> {
    let class = |c: char| (c.is_ascii_digit(), c.is_alphabetic());
    let mut runs = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c: char| class(c) != class(first)).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        runs.push(match class(first) {
            (true, _) => Run::Digits(run),
            (false, true) => Run::Letters(run),
            (false, false) => Run::Other(run),
        });
        rest = behind;
    }
    runs
}

/// The name of a month that starts at a run, with its point if it has one.
fn name_at(runs: &[Run<'_>], at: usize) -> Option<String> {
    let Run::Letters(name) = runs.get(at)? else { return None };
    let dotted = format!("{name}.");
    let has_dot = matches!(runs.get(at + 1), Some(Run::Other(after)) if after.starts_with('.'));
    if has_dot && month_number(&dotted).is_some() {
        return Some(dotted);
    }
    month_number(name).map(|_| (*name).to_owned())
}

/// The letters at the start of a text, with a point if that makes it an abbreviation.
fn leading_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphabetic()).unwrap_or(text.len());
    let dotted = text.get(..end + 1).filter(|name| name.ends_with('.') && month_number(name).is_some());
    dotted.unwrap_or(&text[..end])
}

/// A component of a date: digits, or the name of a month.
#[derive(Debug, Clone)]
enum Component {
    Digits(usize),
    Name(String),
}

type DateSplit<'a, 'r> = ([Component; 3], [String; 2], &'r [Run<'a>]);

/// The three components of a date, the texts between them, and what follows.
fn split_date<'a, 'r>(runs: &'r [Run<'a>]) -> Option<DateSplit<'a, 'r>> {
    let mut components = Vec::with_capacity(3);
    let mut separators = [String::new(), String::new()];
    for (at, run) in runs.iter().enumerate() {
        let mut is_separator = |text: &str| match components.len() {
            count @ (1 | 2) => {
                separators[count - 1].push_str(text);
                true
            }
            _ => false,
        };
        match run {
            Run::Digits(digits) => components.push(Component::Digits(digits.len())),
            Run::Letters(word) => match name_at(runs, at) {
                Some(name) => components.push(Component::Name(name)),
                None if JOINING_WORDS.contains(word) && is_separator(word) => {}
                None => return None,
            },
            Run::Other(text) => {
                let is_dotted =
                    matches!(components.last(), Some(Component::Name(name)) if name.ends_with('.'));
                let follows_name = at > 0 && matches!(runs[at - 1], Run::Letters(_));
                let text = if is_dotted && follows_name { &text[1..] } else { text };
                if !is_separator(text) {
                    return None;
                }
            }
        }
        if components.len() == 3 {
            let components: [Component; 3] = components.try_into().ok()?;
            let is_dotted = matches!(&components[2], Component::Name(name) if name.ends_with('.'));
            return (!is_dotted).then(|| (components, separators, &runs[at + 1..]));
        }
    }
    None
}

/// The possible meanings of the three components.
fn date_orders(components: [Component; 3], separators: &[String; 2]) -> Vec<[DatePart; 3]> {
    let is_short = |digits: usize| digits == 1 || digits == 2;
    let day = || DatePart::Day(Padding::Zero);
    let month = || DatePart::Month(Padding::Zero);
    let year = |digits: usize| if digits == 4 { DatePart::Year4 } else { DatePart::Year2(YEAR_FROM) };
    let name = |name: &str| {
        let style = styles_of(name).first().copied();
        let style = style.unwrap_or(NameStyle { language: Language::English, length: NameLength::Short });
        DatePart::MonthName(style, LetterCase::of(name))
    };
    let is_plain = |separator: &String| matches!(separator.as_str(), "/" | "." | "-" | ". " | " ");
    let are_plain = separators[0] == separators[1] && is_plain(&separators[0]);
    match &components {
        [Component::Digits(4), Component::Digits(b), Component::Digits(c)]
            if is_short(*b) && is_short(*c) && are_plain =>
        {
            vec![[DatePart::Year4, month(), day()]]
        }
        [Component::Digits(a), Component::Digits(b), Component::Digits(c @ (4 | 2))]
            if is_short(*a) && is_short(*b) && are_plain && separators[0] != " " =>
        {
            // No country writes the month first with points.
            let day_first = [day(), month(), year(*c)];
            if separators[0].starts_with('.') {
                vec![day_first]
            } else {
                vec![day_first, [month(), day(), year(*c)]]
            }
        }
        [Component::Digits(a), Component::Name(b), Component::Digits(c @ (4 | 2))] if is_short(*a) => {
            vec![[day(), name(b), year(*c)]]
        }
        [Component::Name(a), Component::Digits(b), Component::Digits(c @ (4 | 2))] if is_short(*b) => {
            vec![[name(a), day(), year(*c)]]
        }
        [Component::Digits(4), Component::Name(b), Component::Digits(c)] if is_short(*c) => {
            vec![[DatePart::Year4, name(b), day()]]
        }
        _ => Vec::new(),
    }
}

/// The parts of what follows a date: nothing, or a time of day.
fn time_parts(runs: &[Run<'_>]) -> Option<Vec<DatePart>> {
    let (separator, rest) = match runs {
        [] => return Some(Vec::new()),
        [Run::Other(separator @ (" " | ", ")), rest @ ..] => (*separator, rest),
        [Run::Letters("T"), rest @ ..] => ("T", rest),
        _ => return None,
    };
    let [Run::Digits(hour), Run::Other(":"), Run::Digits(minute), rest @ ..] = rest else { return None };
    if !(1..=2).contains(&hour.len()) || minute.len() != 2 {
        return None;
    }
    let (second, rest) = match rest {
        [Run::Other(":"), Run::Digits(second), rest @ ..] if second.len() == 2 => (true, rest),
        rest => (false, rest),
    };
    let (has_fraction, rest) = match rest {
        [Run::Other("."), Run::Digits(digits), rest @ ..] if second && digits.len() <= NANO_DIGITS => {
            (true, rest)
        }
        rest => (false, rest),
    };
    let mut tail = Vec::new();
    let mut is_12 = false;
    let rest = match rest {
        [Run::Other(" "), Run::Letters(word), rest @ ..] if is_noon(word) => {
            is_12 = true;
            push_literal(&mut tail, " ");
            tail.push(DatePart::Noon(LetterCase::of(word)));
            rest
        }
        [Run::Letters(word), rest @ ..] if is_noon(word) => {
            is_12 = true;
            tail.push(DatePart::Noon(LetterCase::of(word)));
            rest
        }
        rest => rest,
    };
    match rest {
        [] => {}
        [Run::Other(" "), Run::Letters("UTC")] => {
            push_literal(&mut tail, " ");
            tail.push(DatePart::Offset(OffsetStyle::Utc));
        }
        [Run::Other(" "), Run::Letters("GMT")]
        | [Run::Other(" "), Run::Letters("GMT"), Run::Other("+" | "-"), Run::Digits(_), ..] => {
            push_literal(&mut tail, " ");
            tail.push(DatePart::Offset(OffsetStyle::Gmt));
        }
        [Run::Other(sign), Run::Digits(digits), rest @ ..] if matches!(sign.trim_start(), "+" | "-") => {
            let style = match (digits.len(), rest) {
                (2, []) => OffsetStyle::Hours,
                (4, []) => OffsetStyle::Plain,
                (2, [Run::Other(":"), Run::Digits(minutes)]) if minutes.len() == 2 => OffsetStyle::Colon,
                _ => return None,
            };
            push_literal(&mut tail, &sign[..sign.len() - 1]);
            tail.push(DatePart::Offset(style));
        }
        _ => return None,
    }
    let mut parts = vec![DatePart::Literal(separator.to_owned())];
    parts.push(if is_12 { DatePart::Hour12(Padding::Zero) } else { DatePart::Hour24(Padding::Zero) });
    push_literal(&mut parts, ":");
    parts.push(DatePart::Minute);
    if second {
        push_literal(&mut parts, ":");
        parts.push(DatePart::Second(if has_fraction { Fraction::Written } else { Fraction::None }));
    }
    parts.extend(tail);
    Some(parts)
}

fn is_noon(word: &str) -> bool {
    matches!(word, "AM" | "PM" | "am" | "pm")
}

/// Minutes, and the length of the text.
fn read_offset(text: &str, style: OffsetStyle) -> Option<(i16, usize)> {
    let (sign, hours, minutes, length) = match (style, text.as_bytes()) {
        (OffsetStyle::Utc, _) => return text.starts_with("UTC").then_some((0, 3)),
        (OffsetStyle::Gmt, _) => return read_gmt(text),
        (OffsetStyle::Hours, [sign @ (b'+' | b'-'), ..]) => (sign, text.get(1..3)?, "00", 3),
        (OffsetStyle::Colon, [sign @ (b'+' | b'-'), _, _, b':', ..]) => {
            (sign, text.get(1..3)?, text.get(4..6)?, 6)
        }
        (OffsetStyle::Plain, [sign @ (b'+' | b'-'), ..]) => (sign, text.get(1..3)?, text.get(3..5)?, 5),
        (OffsetStyle::Colon | OffsetStyle::Plain | OffsetStyle::Hours, _) => return None,
    };
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hours) || !is_number(minutes) {
        return None;
    }
    let (hours, minutes): (i16, i16) = (hours.parse().ok()?, minutes.parse().ok()?);
    let size = (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)?;
    Some((if *sign == b'-' { -size } else { size }, length))
}

/// `GMT`, `GMT+1`, `GMT-3:30`: minutes, and the length of the text.
fn read_gmt(text: &str) -> Option<(i16, usize)> {
    let behind = text.strip_prefix("GMT")?;
    let Some(sign) = behind.chars().next().filter(|sign| matches!(sign, '+' | '-')) else {
        return Some((0, 3));
    };
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let hours = &behind[1..1 + digits(&behind[1..])];
    let rest = &behind[1 + hours.len()..];
    let minutes = rest.strip_prefix(':').map(|rest| &rest[..digits(rest)]);
    let is_valid = matches!(hours.len(), 1 | 2) && minutes.is_none_or(|minutes| minutes.len() == 2);
    let (hour, minute): (i16, i16) =
        (hours.parse().ok().filter(|_| is_valid)?, minutes.map_or(Some(0), |minutes| minutes.parse().ok())?);
    let size = (hour < 24 && minute < 60).then_some(hour * 60 + minute)?;
    let length = 4 + hours.len() + minutes.map_or(0, |minutes| 1 + minutes.len());
    Some((if sign == '-' { -size } else { size }, length))
}

fn render_offset(offset: UtcOffset, style: OffsetStyle) -> Option<String> {
    let minutes = offset.minutes();
    let (sign, size) = (if minutes < 0 { '-' } else { '+' }, minutes.unsigned_abs());
    match style {
        OffsetStyle::Utc => (minutes == 0).then(|| "UTC".to_owned()),
        OffsetStyle::Hours => (size % 60 == 0).then(|| format!("{sign}{:02}", size / 60)),
        OffsetStyle::Gmt if size == 0 => Some("GMT".to_owned()),
        OffsetStyle::Gmt if size % 60 == 0 => Some(format!("GMT{sign}{}", size / 60)),
        OffsetStyle::Gmt => Some(format!("GMT{sign}{}:{:02}", size / 60, size % 60)),
        OffsetStyle::Plain => Some(format!("{sign}{:02}{:02}", size / 60, size % 60)),
        OffsetStyle::Colon => Some(format!("{sign}{:02}:{:02}", size / 60, size % 60)),
    }
}

//! Infers how the values of a column are written, if they are not in the notation of their type.
//!
//! A format is inferred only if every text fits it and no other reading does: `01/02/2026` alone may be January or
//! February, and `1,234` may be a thousand or a little more than one. Such a column stays text, and
//! [`FormatOutcome::Ambiguous`] names the possible formats.

use super::{DECIMAL, INT64, INTEGER, TYPES_BY_PREFERENCE, candidate_types};
use crate::column_format::{
    BooleanFormat, ColumnFormat, DateFormat, Grouping, NegativeStyle, NumberFormat, NumberReading,
    NumberSpelling, is_currency,
};
use crate::data_type::DataType;

/// What the texts of a column have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormatOutcome {
    Inferred(ColumnFormat, DataType),
    /// Every text fits each of these, and they mean different values. A single one is doubtful: letters that may be codes,
    /// or numbers of which only some have a currency.
    Ambiguous(Vec<ColumnFormat>),
    None,
}

/// The formats that an author declares for a column or for all columns of a table. They are tried first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeclaredFormats {
    pub number: Option<NumberFormat>,
    pub date: Option<DateFormat>,
    pub boolean: Option<BooleanFormat>,
}

impl DeclaredFormats {
    /// In the order in which they are tried.
    pub fn iter(&self) -> impl Iterator<Item = ColumnFormat> {
        let number = self.number.clone().map(ColumnFormat::Number);
        let date = self.date.clone().map(ColumnFormat::Date);
        let boolean = self.boolean.clone().map(ColumnFormat::Boolean);
        number.into_iter().chain(date).chain(boolean)
    }

    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// Observes the texts of one column.
#[derive(Debug, Clone)]
pub struct FormatInference {
    declared: Vec<(ColumnFormat, u8)>,
    numbers: Option<NumberInference>,
    dates: DateInference,
    /// The distinct texts, as long as there are at most two in lower case.
    words: Option<Vec<String>>,
    has_values: bool,
    /// Whether some text is not in the notation of a type: otherwise no format is needed.
    has_other_notation: bool,
}

#[derive(Debug, Clone, Default)]
struct NumberInference {
    /// With `.` and with `,` as the decimal separator.
    readings: [Option<ReadingSoFar>; 2],
    affixes: Option<(String, String)>,
    /// Whether some text has a currency and another has none.
    lacks_currency: bool,
    negative: Option<NegativeStyle>,
    has_plus: bool,
    has_bare_positive: bool,
    /// Whether some number below one is written with a zero before the decimal separator, or without.
    has_zero: bool,
    lacks_zero: bool,
    /// Whether some text has two meanings.
    is_ambiguous: bool,
}

#[derive(Debug, Clone)]
struct ReadingSoFar {
    group: Option<char>,
    grouping: Option<Grouping>,
    decimals_min: Option<usize>,
    types: u8,
}

#[derive(Debug, Clone)]
enum DateInference {
    Unseen,
    /// The formats that every text fits so far, and the names of months in them.
    Candidates(Vec<DateFormat>, Vec<String>),
}

/// `ja`, `Ja` and `JA` are three spellings of one word.
const WORD_SPELLINGS_MAX: usize = 6;

fn count_in_lower_case(words: &[String]) -> usize {
    let mut lower: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
    lower.sort_unstable();
    lower.dedup();
    lower.len()
}

const DECIMAL_SEPARATORS: [char; 2] = ['.', ','];

impl FormatInference {
    pub fn new(declared: &DeclaredFormats) -> Self {
        Self {
            declared: declared.iter().map(|format| (format, u8::MAX)).collect(),
            numbers: Some(NumberInference::default()),
            dates: DateInference::Unseen,
            words: Some(Vec::new()),
            has_values: false,
            has_other_notation: false,
        }
    }

    /// Observes a text of blanks, which means NULL in a column with a format.
    pub fn observe_blanks(&mut self) {
        self.has_other_notation = true;
    }

    /// Observes a text. Texts that mean NULL must not be passed.
    pub fn observe(&mut self, text: &str) {
        self.has_values = true;
        self.has_other_notation |= candidate_types(text.as_bytes()) == 0;
        self.declared.retain_mut(|(format, types)| match format.parse(text) {
            Some(canonical) => {
                *types &= candidate_types(canonical.as_bytes());
                true
            }
            None => false,
        });
        if let Some(numbers) = &mut self.numbers
            && !numbers.observe(text)
        {
            self.numbers = None;
        }
        self.dates.observe(text);
        if let Some(words) = &mut self.words {
            let word = text.trim();
            if !words.iter().any(|one| one == word) {
                words.push(word.to_owned());
                if words.len() > WORD_SPELLINGS_MAX || count_in_lower_case(words) > 2 {
                    self.words = None;
                }
            }
        }
    }

    /// Whether the format is a number with a decimal comma.
    pub fn is_decimal_comma(format: &ColumnFormat) -> bool {
        matches!(format, ColumnFormat::Number(number) if number.decimal == ',')
    }

    /// Whether nothing that could be observed would make it a format.
    pub fn is_hopeless(&self) -> bool {
        let has_dates = match &self.dates {
            DateInference::Unseen => true,
            DateInference::Candidates(formats, _) => !formats.is_empty(),
        };
        self.declared.is_empty() && self.numbers.is_none() && !has_dates && self.words.is_none()
    }

    pub fn finish(self) -> FormatOutcome {
        if !self.has_values {
            return FormatOutcome::None;
        }
        if let Some((format, types)) = self.declared.into_iter().next() {
            let data_type = match &format {
                ColumnFormat::Number(_) => number_type(types),
                ColumnFormat::Date(_) | ColumnFormat::Boolean(_) => format.default_type(),
            };
            return FormatOutcome::Inferred(format, data_type);
        }
        if let Some(format) = self.words.as_deref().and_then(BooleanFormat::infer) {
            let is_doubtful = format.is_doubtful();
            let format = ColumnFormat::Boolean(format);
            return match is_doubtful {
                true => FormatOutcome::Ambiguous(vec![format]),
                false => FormatOutcome::Inferred(format, DataType::Boolean),
            };
        }
        let found = match self.numbers.map_or(FormatOutcome::None, NumberInference::finish) {
            FormatOutcome::None => self.dates.finish(),
            found => found,
        };
        match found {
            FormatOutcome::Inferred(..) if !self.has_other_notation => FormatOutcome::None,
            found => found,
        }
    }
}

impl NumberInference {
    /// Returns whether the text may be a number.
    fn observe(&mut self, text: &str) -> bool {
        let Some(spelling) = NumberSpelling::of(text).filter(NumberSpelling::has_known_unit) else {
            return false;
        };
        let is_same_unit = match &mut self.affixes {
            Some((prefix, suffix)) if prefix == spelling.prefix && suffix == spelling.suffix => true,
            Some(so_far) => {
                let own = (spelling.prefix, spelling.suffix);
                let unit = |(prefix, suffix): (&str, &str)| format!("{prefix}{suffix}").trim().to_owned();
                let (one, other) = (unit((&so_far.0, &so_far.1)), unit(own));
                let is_left_out =
                    one.is_empty() && is_currency(&other) || other.is_empty() && is_currency(&one);
                if one.is_empty() && is_left_out {
                    *so_far = (own.0.to_owned(), own.1.to_owned());
                }
                self.lacks_currency |= is_left_out;
                is_left_out
            }
            None => {
                self.affixes = Some((spelling.prefix.to_owned(), spelling.suffix.to_owned()));
                true
            }
        };
        let is_same_sign = match (self.negative, spelling.negative) {
            (Some(so_far), Some(style)) => so_far == style,
            (so_far, style) => {
                self.negative = so_far.or(style);
                true
            }
        };
        if !is_same_unit || !is_same_sign {
            return false;
        }
        self.has_plus |= spelling.has_plus;
        self.lacks_zero |= spelling.body.starts_with(DECIMAL_SEPARATORS);
        self.has_zero |=
            spelling.body.strip_prefix('0').is_some_and(|rest| rest.starts_with(DECIMAL_SEPARATORS));
        let is_first =
            self.readings.iter().all(Option::is_none) && !self.has_bare_positive && !self.is_ambiguous;
        let readings = DECIMAL_SEPARATORS.map(|decimal| spelling.read(decimal));
        if let [Some(point), Some(comma)] = &readings {
            self.is_ambiguous |= point.digits != comma.digits;
        }
        for (so_far, reading) in self.readings.iter_mut().zip(readings) {
            *so_far = match (so_far.take(), reading) {
                (None, Some(reading)) if is_first => Some(ReadingSoFar::new(&reading, &spelling)),
                (Some(so_far), Some(reading)) => so_far.with(&reading, &spelling),
                _ => None,
            };
        }
        self.has_bare_positive |= !spelling.has_plus && spelling.negative.is_none();
        self.readings.iter().any(Option::is_some)
    }

    fn finish(self) -> FormatOutcome {
        // `+4915112345678` is a telephone number, unless others are negative.
        if self.has_plus && self.negative.is_none() {
            return FormatOutcome::None;
        }
        let (prefix, suffix) = self.affixes.unwrap_or_default();
        let format = |decimal: char, reading: &ReadingSoFar| {
            let decimals = reading.decimals_min.unwrap_or(0);
            ColumnFormat::Number(NumberFormat {
                decimal,
                group: reading.group,
                grouping: reading.grouping.unwrap_or_default(),
                decimals_min: if decimals < 2 { 0 } else { decimals },
                prefix: prefix.clone(),
                suffix: suffix.clone(),
                negative: self.negative.unwrap_or_default(),
                has_plus: self.has_plus,
                omits_zero: self.lacks_zero && !self.has_zero && reading.group.is_none(),
            })
        };
        let [point, comma] = &self.readings;
        match (point, comma) {
            (Some(point), None) if self.lacks_currency => FormatOutcome::Ambiguous(vec![format('.', point)]),
            (None, Some(comma)) if self.lacks_currency => FormatOutcome::Ambiguous(vec![format(',', comma)]),
            (Some(point), Some(_)) if self.lacks_currency && !self.is_ambiguous => {
                FormatOutcome::Ambiguous(vec![format('.', point)])
            }
            (Some(point), Some(comma)) if self.is_ambiguous => {
                FormatOutcome::Ambiguous(vec![format('.', point), format(',', comma)])
            }
            (Some(point), _) => FormatOutcome::Inferred(format('.', point), number_type(point.types)),
            (None, Some(comma)) => FormatOutcome::Inferred(format(',', comma), number_type(comma.types)),
            (None, None) => FormatOutcome::None,
        }
    }
}

impl ReadingSoFar {
    fn new(reading: &NumberReading, spelling: &NumberSpelling<'_>) -> Self {
        Self {
            group: reading.group,
            grouping: reading.grouping,
            decimals_min: Some(reading.decimals),
            types: types_of(reading, spelling),
        }
    }

    fn with(self, reading: &NumberReading, spelling: &NumberSpelling<'_>) -> Option<Self> {
        if let (Some(a), Some(b)) = (self.group, reading.group)
            && a != b
        {
            return None;
        }
        if let (Some(a), Some(b)) = (self.grouping, reading.grouping)
            && a != b
        {
            return None;
        }
        Some(Self {
            group: self.group.or(reading.group),
            grouping: self.grouping.or(reading.grouping),
            decimals_min: self.decimals_min.map(|decimals| decimals.min(reading.decimals)),
            types: self.types & types_of(reading, spelling),
        })
    }
}

fn types_of(reading: &NumberReading, spelling: &NumberSpelling<'_>) -> u8 {
    candidate_types(format!("{}{}", spelling.sign(), reading.digits).as_bytes())
}

/// The preferred type of numbers that all fit these types. A number with an exponent fits none of them.
fn number_type(types: u8) -> DataType {
    let types = types & (INTEGER | INT64 | DECIMAL);
    let best = TYPES_BY_PREFERENCE.iter().find(|(bit, _)| types & bit != 0);
    best.map_or(DataType::Number, |(_, data_type)| *data_type)
}

impl DateInference {
    fn observe(&mut self, text: &str) {
        let formats = match self {
            Self::Unseen => {
                *self = Self::Candidates(DateFormat::candidates(text), Vec::new());
                let Self::Candidates(formats, _) = self else { return };
                std::mem::take(formats)
            }
            Self::Candidates(formats, _) => std::mem::take(formats),
        };
        if formats.is_empty() {
            return;
        }
        let adapted = formats.into_iter().filter_map(|format| format.adapted_to(text)).collect();
        let Self::Candidates(formats, names) = self else { return };
        *formats = adapted;
        if let Some(name) = DateFormat::month_name_in(text)
            && !names.contains(&name)
        {
            names.push(name);
        }
    }

    fn finish(self) -> FormatOutcome {
        let Self::Candidates(formats, names) = self else { return FormatOutcome::None };
        let date = |format: DateFormat| ColumnFormat::Date(format.with_names(&names));
        let mut formats: Vec<ColumnFormat> = formats.into_iter().map(date).collect();
        match formats.len() {
            0 => FormatOutcome::None,
            1 => {
                let format = formats.remove(0);
                let data_type = format.default_type();
                FormatOutcome::Inferred(format, data_type)
            }
            _ => FormatOutcome::Ambiguous(formats),
        }
    }
}

//! What the values of a column are, from all of them.

use contract::Kind;
use contract::cursor::KEY_BYTES_MAX;
use contract::infer::{self, EXACT_MAX, Guess};
use contract::source::ColumnFacts;

use super::column::bytes;
use super::table::Held;

/// What one column has shown so far, by how the file holds its values.
#[derive(Clone, Default)]
pub(super) struct Seen {
    values: u64,
    texts: u64,
    /// Texts without a character.
    empty: u64,
    /// Whether one of them is no base64.
    is_no_base64: bool,
    /// Too long for a key.
    long: u64,
    /// Of the texts, those that the file holds as times.
    moments: u64,
    integers: u64,
    /// Beyond what every reader of JSON keeps.
    large: u64,
    reals: u64,
    infinite: u64,
    /// Numbers that only their digits tell.
    digits: u64,
    /// Of those, what is no decimal fraction: too large for anything.
    boundless: u64,
    booleans: u64,
    pub(super) nested: u64,
    blobs: u64,
    guess: Guess,
}

/// What a column holds, where it is all of one sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    Texts,
    Numbers,
    Booleans,
    #[default]
    Others,
}

/// How much of a column the file holds as dates or times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Moments {
    #[default]
    None,
    Some,
    Only,
}

impl Seen {
    #[inline]
    pub(super) fn see(&mut self, held: Held<'_>) {
        self.values += u64::from(held != Held::Null);
        match held {
            Held::Null => {}
            Held::Text(text) => self.text(text),
            Held::Moment(text) => {
                self.moments += 1;
                self.text(text);
            }
            Held::Integer(n) => {
                self.integers += 1;
                self.large += u64::from(!(-EXACT_MAX..=EXACT_MAX).contains(&n));
            }
            Held::Real(n) => {
                self.reals += 1;
                self.infinite += u64::from(!n.is_finite());
            }
            // As many writers write a binary fraction that happens to be whole.
            Held::Digits(digits) if is_whole_fraction(digits) => self.reals += 1,
            Held::Digits(digits) => {
                self.digits += 1;
                self.boundless += u64::from(!infer::is(Kind::Decimal, digits));
            }
            Held::Boolean(_) => self.booleans += 1,
            Held::Json(_) => self.nested += 1,
            Held::Blob(_) => self.blobs += 1,
        }
    }

    fn text(&mut self, text: &str) {
        self.texts += 1;
        self.empty += u64::from(text.is_empty());
        self.is_no_base64 = self.is_no_base64 || bytes(text).is_none();
        self.long += u64::from(text.len() > KEY_BYTES_MAX);
        self.guess.see(text);
    }

    pub(super) fn facts(&self, name: &str, rows: u64) -> ColumnFacts {
        let (kind, mixed) = self.kind();
        let is_text = kind == Kind::Text && !mixed;
        let values = if is_text { self.guess.clone().values() } else { Vec::new() };
        ColumnFacts { nullable: self.values < rows, mixed, values, ..ColumnFacts::new(name, kind) }
    }

    pub(super) fn sort(&self) -> Sort {
        let numbers = self.integers + self.reals + self.digits;
        match self.values {
            0 => Sort::Others,
            all if all == self.texts => Sort::Texts,
            all if all == numbers => Sort::Numbers,
            all if all == self.booleans => Sort::Booleans,
            _ => Sort::Others,
        }
    }

    pub(super) fn is_base64(&self) -> bool {
        self.texts == self.values && !self.is_no_base64
    }

    pub(super) fn moments(&self) -> Moments {
        match self.moments {
            0 => Moments::None,
            all if all == self.values => Moments::Only,
            _ => Moments::Some,
        }
    }

    pub(super) fn has_nulls(&self, rows: u32) -> bool {
        self.values < u64::from(rows)
    }

    /// Whether there is a value that cannot be a key.
    pub(super) fn may_be_no_key(&self) -> bool {
        self.empty + self.nested + self.blobs > 0
    }

    /// Whether it may tell rows apart, as far as can be told without comparing them.
    pub(super) fn may_be_key(&self, rows: u32) -> bool {
        let (kind, mixed) = self.kind();
        let is_plain = matches!(kind, Kind::Text | Kind::Integer | Kind::Int64) && !mixed;
        is_plain && !self.has_nulls(rows) && self.empty == 0 && self.long == 0
    }

    /// The kind of most values, and whether there are others. Among nested values everything is told as JSON.
    pub(super) fn kind(&self) -> (Kind, bool) {
        if self.nested > 0 {
            return (Kind::Json, self.blobs > 0);
        }
        let numbers = self.integers + self.reals + self.digits;
        let most = numbers.max(self.texts).max(self.booleans).max(self.blobs);
        let kind = match most {
            0 => Kind::Text,
            _ if numbers == most => self.number_kind(),
            _ if self.texts == most => self.text_kind(),
            _ if self.booleans == most => Kind::Boolean,
            _ => Kind::Blob,
        };
        (kind, most < self.values || (numbers == most && self.infinite + self.boundless > 0))
    }

    fn number_kind(&self) -> Kind {
        let has_fractions = self.reals > 0;
        if self.digits > self.boundless || (has_fractions && self.large > 0) {
            Kind::Decimal
        } else if has_fractions || self.boundless > 0 {
            Kind::Number
        } else if self.large > 0 {
            Kind::Int64
        } else {
            Kind::Integer
        }
    }

    fn text_kind(&self) -> Kind {
        match self.guess.kind() {
            kind @ (Kind::Date | Kind::Timestamp | Kind::LocalTimestamp) => kind,
            // Digits that somebody keeps as text are a code, not a number.
            _ => Kind::Text,
        }
    }
}

/// `12.0`, and not `12.00`: where somebody counts zeros they mean something.
fn is_whole_fraction(digits: &str) -> bool {
    let whole = digits.strip_suffix(".0").and_then(|whole| whole.parse::<i64>().ok());
    whole.is_some_and(|n| (-EXACT_MAX..=EXACT_MAX).contains(&n))
}

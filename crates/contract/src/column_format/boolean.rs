//! Booleans as words: `ja` and `nein`, `Y` and `N`.

use std::fmt;

/// The two words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BooleanFormat {
    true_text: String,
    false_text: String,
}

/// Words for yes and no in lower case, in English, German, French and Spanish.
const WORD_PAIRS: [(&str, &str); 15] = [
    ("true", "false"),
    ("yes", "no"),
    ("y", "n"),
    // PostgreSQL.
    ("t", "f"),
    ("ja", "nein"),
    ("j", "n"),
    ("wahr", "falsch"),
    ("oui", "non"),
    ("o", "n"),
    ("vrai", "faux"),
    ("sí", "no"),
    ("si", "no"),
    ("s", "n"),
    ("verdadero", "falso"),
    ("on", "off"),
];

/// Longer words are not booleans.
const WORD_BYTES_MAX: usize = 40;

impl BooleanFormat {
    /// `true_text` and `false_text` must differ, also without the blanks around them.
    pub fn new(true_text: &str, false_text: &str) -> Option<Self> {
        let is_word = |text: &str| !text.is_empty() && text.trim() == text && text.len() <= WORD_BYTES_MAX;
        let is_valid = is_word(true_text) && is_word(false_text) && true_text != false_text;
        is_valid.then(|| Self { true_text: true_text.into(), false_text: false_text.into() })
    }

    /// Parses `ja/nein`: the word for true first.
    pub fn from_pattern(pattern: &str) -> Option<Self> {
        let (true_text, false_text) = pattern.split_once('/')?;
        Self::new(true_text, false_text)
    }

    /// The format of a column whose only texts are these, in any case, if one word means yes and the other no. Rendered
    /// is the first spelling of each.
    pub(crate) fn infer(texts: &[String]) -> Option<Self> {
        let first = texts.first()?;
        let second = texts.iter().find(|text| text.to_lowercase() != first.to_lowercase())?;
        let (a, b) = (first.to_lowercase(), second.to_lowercase());
        let is_pair = |x: &str, y: &str| WORD_PAIRS.iter().any(|(yes, no)| *yes == x && *no == y);
        let format = match (is_pair(&a, &b), is_pair(&b, &a)) {
            (true, _) => Self::new(first, second),
            (_, true) => Self::new(second, first),
            (false, false) => None,
        }?;
        texts.iter().all(|text| format.parse(text).is_some()).then_some(format)
    }

    /// Whether its words are single letters other than `y` and `n`, which may as well be codes: `N` and `S` are also
    /// directions.
    pub(crate) fn is_doubtful(&self) -> bool {
        let is_letter = |word: &str| word.chars().count() == 1;
        let is_plain = self.true_text.eq_ignore_ascii_case("y") && self.false_text.eq_ignore_ascii_case("n");
        is_letter(&self.true_text) && is_letter(&self.false_text) && !is_plain
    }

    /// The words for true and for false.
    pub fn words(&self) -> (&str, &str) {
        (&self.true_text, &self.false_text)
    }

    /// In any case, unless only that tells the words apart.
    pub(super) fn parse(&self, text: &str) -> Option<bool> {
        let text = text.trim();
        if text == self.true_text || text == self.false_text {
            return Some(text == self.true_text);
        }
        let lower = text.to_lowercase();
        match (lower == self.true_text.to_lowercase(), lower == self.false_text.to_lowercase()) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            (true, true) | (false, false) => None,
        }
    }

    pub(super) fn render(&self, canonical: &str) -> Option<&str> {
        match canonical {
            "true" | "1" => Some(&self.true_text),
            "false" | "0" => Some(&self.false_text),
            _ => None,
        }
    }
}

impl fmt::Display for BooleanFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.true_text, self.false_text)
    }
}

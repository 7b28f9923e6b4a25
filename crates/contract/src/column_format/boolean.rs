//! Booleans as words: `ja` and `nein`, `Y` and `N`.

use std::fmt;

/// The two words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BooleanFormat {
    true_text: String,
    false_text: String,
}

/// Words for yes and no in lower case, in English, German, French and Spanish.
const WORD_PAIRS: [(&str, &str); 14] = [
    ("true", "false"),
    ("yes", "no"),
    ("y", "n"),
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

    /// The format of a column whose only texts are these two, if one means yes and the other no.
    pub(crate) fn infer(a: &str, b: &str) -> Option<Self> {
        let (lower_a, lower_b) = (a.to_lowercase(), b.to_lowercase());
        let is_pair = |x: &str, y: &str| WORD_PAIRS.iter().any(|(yes, no)| *yes == x && *no == y);
        if is_pair(&lower_a, &lower_b) {
            Self::new(a, b)
        } else if is_pair(&lower_b, &lower_a) {
            Self::new(b, a)
        } else {
            None
        }
    }

    /// The words for true and for false.
    pub fn words(&self) -> (&str, &str) {
        (&self.true_text, &self.false_text)
    }

    pub(super) fn parse(&self, text: &str) -> Option<bool> {
        match text.trim() {
            text if text == self.true_text => Some(true),
            text if text == self.false_text => Some(false),
            _ => None,
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

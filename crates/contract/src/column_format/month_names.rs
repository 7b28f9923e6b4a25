//! The names of months in English, German, French and Spanish.
//!
//! No name means two different months in two of these languages, so a text is read without knowing its language.

/// A language of month names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Language {
    English,
    German,
    French,
    Spanish,
}

/// How long a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NameLength {
    Full,
    Short,
    /// Short, with a point where the name is abbreviated.
    ShortDot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NameStyle {
    pub(super) language: Language,
    pub(super) length: NameLength,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum LetterCase {
    Lower,
    Capital,
    Upper,
}

const STYLES: [(NameStyle, [&str; 12]); 12] = [
    (
        NameStyle { language: Language::English, length: NameLength::Full },
        [
            "january",
            "february",
            "march",
            "april",
            "may",
            "june",
            "july",
            "august",
            "september",
            "october",
            "november",
            "december",
        ],
    ),
    (
        NameStyle { language: Language::English, length: NameLength::Short },
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    ),
    (
        NameStyle { language: Language::English, length: NameLength::ShortDot },
        ["jan.", "feb.", "mar.", "apr.", "may", "jun.", "jul.", "aug.", "sep.", "oct.", "nov.", "dec."],
    ),
    (
        NameStyle { language: Language::German, length: NameLength::Full },
        [
            "januar",
            "februar",
            "märz",
            "april",
            "mai",
            "juni",
            "juli",
            "august",
            "september",
            "oktober",
            "november",
            "dezember",
        ],
    ),
    (
        NameStyle { language: Language::German, length: NameLength::Short },
        ["jan", "feb", "mär", "apr", "mai", "jun", "jul", "aug", "sep", "okt", "nov", "dez"],
    ),
    (
        NameStyle { language: Language::German, length: NameLength::ShortDot },
        ["jan.", "feb.", "märz", "apr.", "mai", "juni", "juli", "aug.", "sept.", "okt.", "nov.", "dez."],
    ),
    (
        NameStyle { language: Language::French, length: NameLength::Full },
        [
            "janvier",
            "février",
            "mars",
            "avril",
            "mai",
            "juin",
            "juillet",
            "août",
            "septembre",
            "octobre",
            "novembre",
            "décembre",
        ],
    ),
    (
        NameStyle { language: Language::French, length: NameLength::Short },
        ["janv", "févr", "mars", "avr", "mai", "juin", "juil", "août", "sept", "oct", "nov", "déc"],
    ),
    (
        NameStyle { language: Language::French, length: NameLength::ShortDot },
        ["janv.", "févr.", "mars", "avr.", "mai", "juin", "juil.", "août", "sept.", "oct.", "nov.", "déc."],
    ),
    (
        NameStyle { language: Language::Spanish, length: NameLength::Full },
        [
            "enero",
            "febrero",
            "marzo",
            "abril",
            "mayo",
            "junio",
            "julio",
            "agosto",
            "septiembre",
            "octubre",
            "noviembre",
            "diciembre",
        ],
    ),
    (
        NameStyle { language: Language::Spanish, length: NameLength::Short },
        ["ene", "feb", "mar", "abr", "may", "jun", "jul", "ago", "sep", "oct", "nov", "dic"],
    ),
    (
        NameStyle { language: Language::Spanish, length: NameLength::ShortDot },
        ["ene.", "feb.", "mar.", "abr.", "may.", "jun.", "jul.", "ago.", "sep.", "oct.", "nov.", "dic."],
    ),
];

/// Other names that people use. They are read, and not written.
const OTHER_NAMES: [(&str, u8); 14] = [
    ("mrz", 3),
    ("jän", 1),
    ("jänner", 1),
    ("sept", 9),
    ("sept.", 9),
    ("fév", 2),
    ("fév.", 2),
    ("fev", 2),
    ("maerz", 3),
    ("aout", 8),
    ("dec.", 12),
    ("setiembre", 9),
    ("decembre", 12),
    ("fevrier", 2),
];

/// The month with this name, ignoring case.
pub(super) fn month_number(name: &str) -> Option<u8> {
    let name = name.to_lowercase();
    let named = STYLES.iter().find_map(|(_, names)| names.iter().position(|one| *one == name));
    let other = || OTHER_NAMES.iter().find(|(one, _)| *one == name).map(|(_, month)| *month);
    named.map(|at| at as u8 + 1).or_else(other)
}

/// The styles that have this name, in order of preference.
pub(super) fn styles_of(name: &str) -> Vec<NameStyle> {
    let name = name.to_lowercase();
    STYLES.iter().filter(|(_, names)| names.contains(&name.as_str())).map(|(style, _)| *style).collect()
}

pub(super) fn month_name(month: u8, style: NameStyle, case: LetterCase) -> Option<String> {
    let (_, names) = STYLES.iter().find(|(one, _)| *one == style)?;
    let name = names.get(usize::from(month).checked_sub(1)?)?;
    Some(match case {
        LetterCase::Lower => (*name).to_owned(),
        LetterCase::Upper => name.to_uppercase(),
        LetterCase::Capital => {
            let mut letters = name.chars();
            letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
        }
    })
}

impl Language {
    pub(super) const ALL: [Self; 4] = [Self::English, Self::German, Self::French, Self::Spanish];

    pub(super) fn code(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::German => "de",
            Self::French => "fr",
            Self::Spanish => "es",
        }
    }
}

impl LetterCase {
    pub(super) fn of(name: &str) -> Self {
        let mut letters = name.chars().filter(|c| c.is_alphabetic());
        match (letters.next(), letters.next()) {
            (Some(first), Some(second)) if first.is_uppercase() && second.is_uppercase() => Self::Upper,
            (Some(first), _) if first.is_uppercase() => Self::Capital,
            _ => Self::Lower,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::STYLES;

    #[test]
    fn no_name_means_two_months() {
        let names = || STYLES.iter().flat_map(|(_, names)| names.iter().enumerate());
        for (month, name) in names() {
            assert!(names().all(|(other, same)| same != name || other == month), "{name}");
        }
    }
}

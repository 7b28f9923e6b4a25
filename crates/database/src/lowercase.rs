//! Which characters of a text become part of a lower-case operand.
//!
//! Databases lower texts by rules of their own: by a locale, or only ASCII. `contract` lowers each character as Unicode does.
//! To find out whether a lowered text contains an operand, only those characters need to be lowered that become a character
//! of the operand, and those are few.

use std::sync::OnceLock;

/// `İ`, the only character that becomes two.
pub(crate) const DOTTED_I: (&str, &str) = ("\u{130}", "i\u{307}");

/// What to replace in a text before an operand is looked for in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lowering {
    /// Characters and what each becomes, in pairs.
    pub(crate) pairs: Vec<(char, char)>,
    /// Whether [`DOTTED_I`] matters.
    pub(crate) dotted_i: bool,
}

impl Lowering {
    /// `operand` is in lower case.
    pub(crate) fn for_operand(operand: &str) -> Self {
        let pairs = table().iter().filter(|(_, lower)| operand.contains(*lower)).copied();
        Self { pairs: pairs.collect(), dotted_i: operand.contains(['i', '\u{307}']) }
    }
}

/// Every character that is one other character in lower case.
fn table() -> &'static [(char, char)] {
    static TABLE: OnceLock<Vec<(char, char)>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let lowered = |c: char| {
            let mut lower = c.to_lowercase();
            let first = lower.next()?;
            (lower.next().is_none() && first != c).then_some((c, first))
        };
        ('\0'..=char::MAX).filter_map(lowered).collect()
    })
}

#[cfg(test)]
mod tests {
    use contract::order::to_lowercase;
    use proptest::prelude::*;

    use super::{DOTTED_I, Lowering};

    fn lower(text: &str, lowering: &Lowering) -> String {
        let text = if lowering.dotted_i { text.replace(DOTTED_I.0, DOTTED_I.1) } else { text.to_owned() };
        let one = |c| lowering.pairs.iter().find(|(from, _)| *from == c).map_or(c, |(_, to)| *to);
        text.chars().map(one).collect()
    }

    #[test]
    fn only_one_character_becomes_two() {
        let becomes_two = |c: &char| c.to_lowercase().count() > 1;
        let all: String = ('\0'..=char::MAX).filter(becomes_two).collect();
        assert_eq!((all.as_str(), to_lowercase(&all).as_str()), DOTTED_I);
    }

    proptest! {
        #[test]
        fn a_text_contains_an_operand_exactly_if_its_lower_case_does(
            text in "[A-Za-zÄäßẞİıIiΣσςKkÅå\u{307} ]{0,12}",
            operand in "[A-Za-zÄäßẞİıIiΣσςKkÅå\u{307} ]{0,3}",
        ) {
            let operand = to_lowercase(&operand);
            let found = lower(&text, &Lowering::for_operand(&operand)).contains(&operand);
            prop_assert_eq!(found, to_lowercase(&text).contains(&operand));
        }
    }
}

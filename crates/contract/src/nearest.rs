//! The known name that somebody probably meant.

/// The closest of `known` by edit distance, if it is close enough to be a slip.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let length = name.chars().count();
    let slack = (length / 3).max(1);
    known
        .into_iter()
        // So different in length that it cannot be a slip; a name of a megabyte must not cost a second.
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= slack)
        .map(|candidate| (edit_distance(name, candidate), candidate))
        .filter(|(d, _)| *d <= slack)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The way out for whoever slipped.
pub(crate) fn did_you_mean<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    nearest(name, known).map(|meant| format!("did you mean `{meant}`?"))
}

/// Insertions, deletions, replacements and swaps of neighbours; case does not count.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().flat_map(char::to_lowercase).collect();
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    let (mut before_last, mut last) = (vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<_>>());
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_name_of_a_megabyte_is_no_slip() {
        // Compared letter by letter with each, this would take minutes.
        let known: Vec<String> = (0..200).map(|i| format!("a_rather_long_name_of_an_argument_{i}")).collect();
        assert_eq!(nearest(&"a".repeat(4 << 20), known.iter().map(String::as_str)), None);
    }

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let known = ["email", "plan", "signup_date"];
        for (typed, meant) in [
            ("emial", Some("email")),
            ("Email", Some("email")),
            ("pln", Some("plan")),
            ("signupdate", Some("signup_date")),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }
}

//! Finds the known name that a misspelled one probably means.

/// The closest of `known` by edit distance, if it is close enough to be a typo.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let length = name.chars().count();
    let slack = (length / 3).max(1);
    known
        .into_iter()
        // A very different length cannot be a typo. Skipping it keeps a name of a megabyte from taking a second.
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= slack)
        .map(|candidate| (edit_distance(name, candidate), candidate))
        .filter(|(d, _)| *d <= slack)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The suggestion for a misspelled name.
pub(crate) fn did_you_mean<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    nearest(name, known).map(|meant| format!("did you mean `{meant}`?"))
}

/// The number of insertions, deletions, replacements and swaps of neighbours, ignoring case.
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
    fn nearest_is_fast_for_a_very_long_name() {
        // Computing every edit distance would take minutes.
        let known: Vec<String> = (0..200).map(|i| format!("a_rather_long_name_of_an_argument_{i}")).collect();
        assert_eq!(nearest(&"a".repeat(4 << 20), known.iter().map(String::as_str)), None);
    }

    #[test]
    fn nearest_finds_typos_and_rejects_unrelated_names() {
        let known = ["email", "plan", "signup_date"];
        for (typed, expected) in [
            ("emial", Some("email")),
            ("Email", Some("email")),
            ("pln", Some("plan")),
            ("signupdate", Some("signup_date")),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), expected, "{typed}");
        }
    }
}

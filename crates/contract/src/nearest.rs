//! Finds the known name that a misspelled one probably means.

/// The closest of `known` by edit distance, if it is close enough to be a typo.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    known
        .into_iter()
        .filter_map(|candidate| Some((typo_distance(name, candidate)?, candidate)))
        .min()
        .map(|(_, candidate)| candidate)
}

/// The edit distance, if it is small enough for a typo. Only the words that differ count: `aggregate_stock` is as far
/// from `create_stock` as `aggregate` is from `create`.
fn typo_distance(name: &str, candidate: &str) -> Option<usize> {
    let (name, candidate) = without_common_words(name, candidate);
    let length = name.chars().count();
    // One letter is not enough to tell what was meant.
    let slack = if length <= 1 { 0 } else { (length / 3).max(1) };
    // A very different length cannot be a typo. Skipping it keeps a name of a megabyte from taking a second.
    if candidate.chars().count().abs_diff(length) > slack {
        return None;
    }
    Some(edit_distance(name, candidate)).filter(|distance| *distance <= slack)
}

/// Both without the words at their beginnings and ends that are equal, as long as a word is left of each.
fn without_common_words<'n>(mut a: &'n str, mut b: &'n str) -> (&'n str, &'n str) {
    while let (Some((first, a_rest)), Some((other, b_rest))) = (a.split_once('_'), b.split_once('_'))
        && first == other
        && !a_rest.is_empty()
        && !b_rest.is_empty()
    {
        (a, b) = (a_rest, b_rest);
    }
    while let (Some((a_rest, last)), Some((b_rest, other))) = (a.rsplit_once('_'), b.rsplit_once('_'))
        && last == other
        && !a_rest.is_empty()
        && !b_rest.is_empty()
    {
        (a, b) = (a_rest, b_rest);
    }
    (a, b)
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
        let tools = ["create_stock", "list_stock", "get_stock", "a"];
        for (typed, expected) in [
            // The shared word says nothing about the other one.
            ("aggregate_stock", None),
            ("delete_stock", None),
            ("lst_stock", Some("list_stock")),
            ("list_stok", Some("list_stock")),
            ("creat_stock", Some("create_stock")),
            ("c", None),
            ("A", Some("a")),
        ] {
            assert_eq!(nearest(typed, tools), expected, "{typed}");
        }
    }
}

//! Collections with so many columns that a page of whole rows would be mostly names: callers choose columns, by name or
//! by group.

use std::collections::HashMap;

use crate::contract::Collection;
use crate::humanize::join_truncated;

/// A row whose column names take more bytes than this is never returned whole in a list.
const ROW_NAMES_BYTES_MAX: usize = 2 << 10;
/// A JSON object has two quotes, a colon and a comma for each name.
const NAME_OVERHEAD_BYTES: usize = 4;
/// Fewer columns than this are not worth a group.
const GROUP_COLUMNS_MIN: usize = 3;
const GROUPS_NAMED_MAX: usize = 12;

impl Collection {
    /// Whether a list needs `fields`.
    pub fn is_wide(&self) -> bool {
        let names = self.fields.iter().map(|field| field.name.len() + NAME_OVERHEAD_BYTES);
        names.sum::<usize>() > ROW_NAMES_BYTES_MAX
    }

    /// The columns that `income_*` stands for, and all columns for `*`; `None` if the name is not a pattern.
    pub(crate) fn columns_in_group(&self, pattern: &str) -> Option<Vec<usize>> {
        let prefix = pattern.strip_suffix('*')?;
        let fields = self.fields.iter().enumerate();
        Some(fields.filter(|(_, field)| field.name.starts_with(prefix)).map(|(at, _)| at).collect())
    }
}

/// `some of the 400 columns to return, or groups: income_* (20), q1_* (12); all: *`
pub(crate) fn fields_description(collection: &Collection) -> String {
    let groups: Vec<String> =
        column_groups(collection).into_iter().map(|(prefix, count)| format!("{prefix}* ({count})")).collect();
    let count = collection.fields.len();
    if groups.is_empty() {
        return format!("some of the {count} columns to return, or * for all");
    }
    let groups = join_truncated(&groups, GROUPS_NAMED_MAX);
    format!("some of the {count} columns to return, or groups: {groups}; all: *")
}

/// Prefixes that several columns share, and how many: the largest first.
fn column_groups(collection: &Collection) -> Vec<(&str, usize)> {
    let names: Vec<&str> = collection.fields.iter().map(|field| field.name.as_str()).collect();
    let mut groups = groups_of(&names, 1);
    // A prefix of most columns says nothing: `c_` of `c_2000_01`.
    while let Some(at) = groups.iter().position(|(_, count)| count * 2 > names.len()) {
        let (prefix, _) = groups.remove(at);
        let inside: Vec<&str> = names.iter().copied().filter(|name| name.starts_with(prefix)).collect();
        let parts = prefix.matches('_').count() + 1;
        groups
            .extend(groups_of(&inside, parts).into_iter().filter(|(longer, _)| longer.len() > prefix.len()));
    }
    groups.sort_by(|(a, count_a), (b, count_b)| count_b.cmp(count_a).then(a.cmp(b)));
    groups
}

/// The groups of columns that share so many parts of their names.
fn groups_of<'n>(names: &[&'n str], parts: usize) -> Vec<(&'n str, usize)> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for prefix in names.iter().filter_map(|name| group_prefix(name, parts)) {
        *counts.entry(prefix).or_default() += 1;
    }
    counts
        .into_iter()
        .filter(|(_, count)| *count >= GROUP_COLUMNS_MIN)
        // `x*` is also the start of `xylitol`.
        .map(|(prefix, _)| (prefix, names.iter().filter(|name| name.starts_with(prefix)).count()))
        .collect()
}

/// `income_` of `income_2019`, `q` of `q17`; with two parts, `c_2000_` of `c_2000_01`.
fn group_prefix(name: &str, parts: usize) -> Option<&str> {
    if let Some((end, _)) = name.match_indices('_').nth(parts - 1).filter(|(end, _)| *end > 0) {
        return Some(&name[..=end]);
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem.len() < name.len() && !stem.is_empty()).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::{group_prefix, groups_of};

    #[test]
    fn a_group_is_what_stands_before_a_number_or_an_underscore() {
        for (name, parts, expected) in [
            ("income_2019", 1, Some("income_")),
            ("q12_1_other", 1, Some("q12_")),
            ("q12_1_other", 2, Some("q12_1_")),
            ("c_2000_01", 2, Some("c_2000_")),
            ("q17", 1, Some("q")),
            ("name", 1, None),
            ("2019", 1, None),
            ("_hidden", 1, None),
        ] {
            assert_eq!(group_prefix(name, parts), expected, "{name} {parts}");
        }
    }

    #[test]
    fn a_group_counts_all_columns_that_its_pattern_means() {
        assert_eq!(groups_of(&["x1", "x2", "x3", "xylitol", "y1"], 1), [("x", 4)]);
        assert_eq!(groups_of(&["x1", "x2"], 1), [], "two are not worth a group");
    }
}

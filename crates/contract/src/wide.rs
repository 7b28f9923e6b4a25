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
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for field in &collection.fields {
        if let Some(prefix) = group_prefix(&field.name) {
            *counts.entry(prefix).or_default() += 1;
        }
    }
    let mut groups: Vec<(&str, usize)> = counts
        .into_iter()
        .filter(|(_, count)| *count >= GROUP_COLUMNS_MIN)
        // `x*` is also the start of `xylitol`.
        .map(|(prefix, _)| {
            (prefix, collection.fields.iter().filter(|one| one.name.starts_with(prefix)).count())
        })
        .collect();
    groups.sort_by(|(a, count_a), (b, count_b)| count_b.cmp(count_a).then(a.cmp(b)));
    groups
}

/// `income_` of `income_2019`, `q` of `q17`.
fn group_prefix(name: &str) -> Option<&str> {
    if let Some(end) = name.find('_').filter(|end| *end > 0) {
        return Some(&name[..=end]);
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem.len() < name.len() && !stem.is_empty()).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::group_prefix;

    #[test]
    fn a_group_is_what_stands_before_a_number_or_an_underscore() {
        for (name, expected) in [
            ("income_2019", Some("income_")),
            ("q12_1_other", Some("q12_")),
            ("q17", Some("q")),
            ("name", None),
            ("2019", None),
            ("_hidden", None),
        ] {
            assert_eq!(group_prefix(name), expected, "{name}");
        }
    }
}

//! Numbers, names and lists as people read them.

/// `1 row`, `1,234 rows`
pub fn pluralize(n: u64, what: &str) -> String {
    format!("{} {what}{}", group_digits(n), if n == 1 { "" } else { "s" })
}

/// `1,234,567`
pub fn group_digits(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The first few names, and how many more there are.
pub fn join_truncated(names: &[impl AsRef<str>], shown_max: usize) -> String {
    let more = names.len().saturating_sub(shown_max);
    let shown: Vec<&str> = names[..names.len() - more].iter().map(AsRef::as_ref).collect();
    let shown = shown.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// `a, b or c`; the first few names, and how many more there are.
pub fn join_or_truncated(names: &[impl AsRef<str>], shown_max: usize) -> String {
    match names {
        [all @ .., last] if !all.is_empty() && names.len() <= shown_max => {
            format!("{} or {}", join_truncated(all, shown_max), last.as_ref())
        }
        names => join_truncated(names, shown_max),
    }
}

/// The text with its first letter in upper case.
pub fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

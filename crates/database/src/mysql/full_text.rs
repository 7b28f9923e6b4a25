//! Which terms a FULLTEXT index of InnoDB finds, and how it is asked for them.

/// Shorter words are not in the index (`innodb_ft_min_token_size`).
const TOKEN_CHARS_MIN: usize = 3;
/// A term from here on may be part of a sentence that is written without blanks, which the index takes for one word.
const FIRST_OTHER_SCRIPT: char = '\u{590}';

/// The words that InnoDB does not index, `INNODB_FT_DEFAULT_STOPWORD`.
const STOPWORDS: [&str; 35] = [
    "a", "about", "an", "are", "as", "at", "be", "by", "com", "de", "en", "for", "from", "how", "i", "in",
    "is", "it", "la", "of", "on", "or", "that", "the", "this", "to", "was", "what", "when", "where", "who",
    "will", "with", "und", "www",
];

/// Whether the index has every word that begins with this term, which is in lower case.
pub(super) fn is_indexed(term: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() && c < FIRST_OTHER_SCRIPT;
    term.chars().all(is_letter)
        && term.chars().count() >= TOKEN_CHARS_MIN
        && !STOPWORDS.iter().any(|word| word.starts_with(term))
}

/// Asks for words that begin with each term. Only letters and digits, so no term is an operator.
pub(super) fn boolean_query(terms: &[String]) -> String {
    let words = terms.iter().filter(|term| is_indexed(term)).map(|term| format!("+{term}*"));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::boolean_query;

    #[test]
    fn only_plain_words_that_are_in_the_index_are_asked_for() {
        for (terms, query) in [
            (vec!["fresh", "coffee"], "+fresh* +coffee*"),
            (vec!["käse", "2026"], "+käse* +2026*"),
            (vec!["ab", "the", "abo", "fresh"], "+fresh*"),
            (vec!["-fresh", "fre*", "\"fresh\"", "a@b", "o'neil", "x(y)", "@3", "咖啡豆"], ""),
            (vec![], ""),
        ] {
            let terms: Vec<String> = terms.into_iter().map(str::to_owned).collect();
            assert_eq!(boolean_query(&terms), query, "{terms:?}");
        }
    }
}

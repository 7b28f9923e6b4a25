//! Case-insensitive search for terms in texts.

use memchr::memmem::Finder;

/// Matches one row after another against a list of terms.
pub(crate) struct TermMatcher {
    terms: Vec<Term>,
    unmatched: usize,
    lowercase: String,
}

struct Term {
    finder: Finder<'static>,
    is_found: bool,
}

impl TermMatcher {
    pub(crate) fn new(terms: &[&str]) -> Self {
        let term = |term: &&str| {
            let mut lowercase = String::new();
            push_lowercase(term, &mut lowercase);
            Term { finder: Finder::new(lowercase.as_bytes()).into_owned(), is_found: false }
        };
        Self { terms: terms.iter().map(term).collect(), unmatched: terms.len(), lowercase: String::new() }
    }

    /// Forgets the matches of the previous row.
    pub(crate) fn start_row(&mut self) {
        self.unmatched = self.terms.len();
        self.terms.iter_mut().for_each(|term| term.is_found = false);
    }

    /// Searches one text of the row. Returns whether every term has now been found in some text of the row.
    pub(crate) fn match_text(&mut self, text: &str) -> bool {
        if self.unmatched > 0 {
            self.lowercase.clear();
            push_lowercase(text, &mut self.lowercase);
            for term in self.terms.iter_mut().filter(|term| !term.is_found) {
                if term.finder.find(self.lowercase.as_bytes()).is_some() {
                    term.is_found = true;
                    self.unmatched -= 1;
                }
            }
        }
        self.unmatched == 0
    }
}

/// Lowers one character at a time, so that a substring stays a substring: `Σ` becomes `σ` at the end of a word too.
fn push_lowercase(text: &str, out: &mut String) {
    if text.is_ascii() {
        out.push_str(text);
        out.make_ascii_lowercase();
    } else {
        out.extend(text.chars().flat_map(char::to_lowercase));
    }
}

#[cfg(test)]
mod tests {
    use super::TermMatcher;

    fn check(terms: &[&str], texts: &[&str], expected: bool) {
        let mut matcher = TermMatcher::new(terms);
        for _ in 0..2 {
            matcher.start_row();
            let found = texts.iter().fold(false, |_, text| matcher.match_text(text));
            assert_eq!(found, expected, "{terms:?} in {texts:?}");
        }
    }

    #[test]
    fn terms_match_parts_of_texts_ignoring_case() {
        check(&["ann"], &["Joanna"], true);
        check(&["ann", "smith"], &["Anna", "SMITHSON"], true);
        check(&["ann", "smith"], &["Anna Smith"], true);
        check(&["ann", "an"], &["ann"], true);
        check(&["ÉCOLE"], &["l'école"], true);
        check(&["straße"], &["STRASSE"], false);
        check(&["σ"], &["ΟΔΟΣ"], true);
        check(&["k"], &["\u{212a}"], true);
        check(&["Łódź", "🦀"], &["łÓDŹ 🦀"], true);
        check(&["a b"], &["a", "b"], false);
        check(&["ann", "smith"], &["Anna", "Smyth"], false);
        check(&["ann"], &[], false);
        check(&["ann"], &[""], false);
    }
}

//! Looks for words in texts, in any case of their letters.

use memchr::memmem::Finder;

/// Looks for all of some words in one row after the other.
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
    pub(crate) fn new(words: &[&str]) -> Self {
        let word = |word: &&str| {
            let mut lowered = String::new();
            push_lowercase(word, &mut lowered);
            Term { finder: Finder::new(lowered.as_bytes()).into_owned(), is_found: false }
        };
        Self { terms: words.iter().map(word).collect(), unmatched: words.len(), lowercase: String::new() }
    }

    /// Another row.
    pub(crate) fn start_row(&mut self) {
        self.unmatched = self.terms.len();
        self.terms.iter_mut().for_each(|word| word.is_found = false);
    }

    /// Looks into one of the row's texts. Whether each word has been part of one of them by now.
    pub(crate) fn match_text(&mut self, text: &str) -> bool {
        if self.unmatched > 0 {
            self.lowercase.clear();
            push_lowercase(text, &mut self.lowercase);
            for word in self.terms.iter_mut().filter(|word| !word.is_found) {
                if word.finder.find(self.lowercase.as_bytes()).is_some() {
                    word.is_found = true;
                    self.unmatched -= 1;
                }
            }
        }
        self.unmatched == 0
    }
}

/// One letter at a time, so that a part of a text becomes a part of what the text becomes: `Σ` is `σ` at the end too.
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

    fn check(words: &[&str], texts: &[&str], expected: bool) {
        let mut hunt = TermMatcher::new(words);
        for _ in 0..2 {
            hunt.start_row();
            let found = texts.iter().fold(false, |_, text| hunt.match_text(text));
            assert_eq!(found, expected, "{words:?} in {texts:?}");
        }
    }

    #[test]
    fn every_word_is_part_of_a_text() {
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

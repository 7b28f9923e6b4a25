//! Looks for words in texts, in any case of their letters.

use memchr::memmem::Finder;

/// Looks for all of some words in one row after the other.
pub(crate) struct Hunt {
    words: Vec<Word>,
    left: usize,
    lowered: String,
}

struct Word {
    finder: Finder<'static>,
    is_found: bool,
}

impl Hunt {
    pub(crate) fn new(words: &[&str]) -> Self {
        let word = |word: &&str| {
            let mut lowered = String::new();
            lower(word, &mut lowered);
            Word { finder: Finder::new(lowered.as_bytes()).into_owned(), is_found: false }
        };
        Self { words: words.iter().map(word).collect(), left: words.len(), lowered: String::new() }
    }

    /// Another row.
    pub(crate) fn begin(&mut self) {
        self.left = self.words.len();
        self.words.iter_mut().for_each(|word| word.is_found = false);
    }

    /// Looks into one of the row's texts. Whether each word has been part of one of them by now.
    pub(crate) fn see(&mut self, text: &str) -> bool {
        if self.left > 0 {
            self.lowered.clear();
            lower(text, &mut self.lowered);
            for word in self.words.iter_mut().filter(|word| !word.is_found) {
                if word.finder.find(self.lowered.as_bytes()).is_some() {
                    word.is_found = true;
                    self.left -= 1;
                }
            }
        }
        self.left == 0
    }
}

/// One letter at a time, so that a part of a text becomes a part of what the text becomes: `Σ` is `σ` at the end too.
fn lower(text: &str, out: &mut String) {
    if text.is_ascii() {
        out.push_str(text);
        out.make_ascii_lowercase();
    } else {
        out.extend(text.chars().flat_map(char::to_lowercase));
    }
}

#[cfg(test)]
mod tests {
    use super::Hunt;

    fn check(words: &[&str], texts: &[&str], expected: bool) {
        let mut hunt = Hunt::new(words);
        for _ in 0..2 {
            hunt.begin();
            let found = texts.iter().fold(false, |_, text| hunt.see(text));
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

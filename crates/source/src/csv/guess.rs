//! Guesses the encoding of a file that is not Unicode. A guess is for an error message: the owner of the file decides.

use encoding_rs::{
    BIG5, EUC_JP, EUC_KR, Encoding, GB18030, IBM866, KOI8_R, SHIFT_JIS, WINDOWS_874, WINDOWS_1250,
    WINDOWS_1251, WINDOWS_1252, WINDOWS_1253, WINDOWS_1255, WINDOWS_1256,
};

/// More bytes than this tell nothing new.
const SAMPLE_BYTES_MAX: usize = 64 << 10;
const SAMPLE_LINE_CHARS_MAX: usize = 40;
const GUESSES_MAX: usize = 2;
/// A guess that is so much worse than the best one is left out.
const SCORE_GAP_MAX: f64 = 0.5;
/// Text of a language that uses the encoding has a higher score.
const CLEAR_SCORE_MIN: f64 = 1.0;

/// Among equals the first is preferred.
const CANDIDATES: [&Encoding; 13] = [
    SHIFT_JIS,
    EUC_JP,
    GB18030,
    BIG5,
    EUC_KR,
    WINDOWS_1251,
    KOI8_R,
    IBM866,
    WINDOWS_1253,
    WINDOWS_1255,
    WINDOWS_1256,
    WINDOWS_874,
    WINDOWS_1250,
];

/// The most frequent letters of Russian, Greek, Hebrew, Arabic and Thai.
const FREQUENT_LETTERS: &str = "оеаинтсрвлαοιετσνηυρיוהלאמרתاليمونرتานรกอเงม";

/// Bytes that Windows-1252 does not define.
const UNDEFINED: [u8; 5] = [0x81, 0x8d, 0x8f, 0x90, 0x9d];

/// An encoding in which a file may be, and how its first line with such characters then reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncodingGuess {
    pub(super) label: String,
    pub(super) line: String,
}

impl EncodingGuess {
    fn new(encoding: &'static Encoding, text: &str) -> Self {
        let line = text.lines().find(|line| !line.is_ascii()).unwrap_or_default();
        let is_shown = |c: &char| !c.is_control();
        let line = line.chars().filter(is_shown).take(SAMPLE_LINE_CHARS_MAX).collect();
        Self { label: encoding.name().to_lowercase(), line }
    }
}

/// Where a text is found not to be Windows-1252.
pub(super) fn contradicts_windows_1252(bytes: &[u8]) -> Option<usize> {
    let undefined = bytes.iter().position(|byte| UNDEFINED.contains(byte));
    undefined.or_else(|| find_foreign_words(bytes))
}

/// Words of Western European languages have a letter with an accent here and there, but few words consist of them.
/// Returns the first of such words if most are.
fn find_foreign_words(bytes: &[u8]) -> Option<usize> {
    const WORD_BYTES_MIN: usize = 3;
    const DISTINCT_MIN: usize = 8;
    // Without the non-breaking space.
    let is_high = |byte: &u8| *byte > 0xa0;
    let (mut in_words, mut all, mut first) = (0, 0, None);
    let mut distinct = [false; 256];
    let mut at = 0;
    while at < bytes.len() {
        let len = bytes[at..].iter().take_while(|byte| is_high(byte)).count();
        all += len;
        if len >= WORD_BYTES_MIN {
            in_words += len;
            first = first.or(Some(at));
            bytes[at..at + len].iter().for_each(|byte| distinct[usize::from(*byte)] = true);
        }
        at += len.max(1);
    }
    let is_foreign =
        in_words * 2 > all && distinct.iter().filter(|is_there| **is_there).count() >= DISTINCT_MIN;
    first.filter(|_| is_foreign)
}

/// The likely encodings, the best first.
pub(super) fn guess_encodings(bytes: &[u8]) -> Vec<EncodingGuess> {
    let mut sample = &bytes[..bytes.len().min(SAMPLE_BYTES_MAX)];
    if sample.len() < bytes.len() {
        // Not in the middle of a character.
        let end = sample.iter().rposition(|byte| *byte == b'\n').map_or(sample.len(), |at| at + 1);
        sample = &sample[..end];
    }
    let mut guesses: Vec<(f64, EncodingGuess)> = Vec::new();
    for encoding in CANDIDATES {
        let Some(text) = encoding.decode_without_bom_handling_and_without_replacement(sample) else {
            continue;
        };
        let score = score(encoding, &text);
        if score > 0.0 {
            guesses.push((score, EncodingGuess::new(encoding, &text)));
        }
    }
    guesses.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    if guesses.first().is_none_or(|(score, _)| *score < CLEAR_SCORE_MIN) {
        // Most probably Western European with some characters that were damaged before: it reads every byte.
        guesses.truncate(GUESSES_MAX - 1);
        let (text, _) = WINDOWS_1252.decode_without_bom_handling(sample);
        let mut all = vec![EncodingGuess::new(WINDOWS_1252, &text)];
        all.extend(guesses.into_iter().map(|(_, guess)| guess));
        return all;
    }
    let best = guesses.first().map_or(0.0, |(score, _)| *score);
    let near = guesses.into_iter().take_while(|(score, _)| best - score <= SCORE_GAP_MAX);
    near.map(|(_, guess)| guess).take(GUESSES_MAX).collect()
}

/// How much a text reads as one of the languages that use this encoding: an average over its characters beyond ASCII.
fn score(encoding: &'static Encoding, text: &str) -> f64 {
    let (mut sum, mut count, mut hangul) = (0.0, 0_u32, 0_u32);
    let mut before = ' ';
    for c in text.chars() {
        let mixes_scripts = |ascii: char, other: char| ascii.is_ascii_alphabetic() && is_other_script(other);
        if mixes_scripts(c, before) || mixes_scripts(before, c) {
            sum -= 2.0;
        }
        if !c.is_ascii() {
            count += 1;
            let char_score = score_char(encoding, c);
            hangul += u32::from(char_score == HANGUL_SCORE);
            sum += char_score;
            if before.is_lowercase() && c.is_uppercase() || is_misplaced(before, c) {
                sum -= 3.0;
            }
        }
        before = c;
    }
    // Chinese text has many byte pairs that are Korean syllables.
    if encoding == EUC_KR && f64::from(hangul) < 0.8 * f64::from(count) {
        return 0.3;
    }
    sum / f64::from(count.max(1))
}

/// Whether a letter stands where its language has none: a final form within a word, or a letter that begins no word.
fn is_misplaced(before: char, c: char) -> bool {
    let is_final_form = matches!(before, 'ς' | 'ך' | 'ם' | 'ן' | 'ף' | 'ץ');
    let begins_no_word = matches!(c, 'ъ' | 'Ъ' | 'ь' | 'Ь' | 'ы' | 'Ы');
    is_final_form && is_other_script(c) || begins_no_word && !before.is_alphabetic()
}

/// A letter that is not Latin.
fn is_other_script(c: char) -> bool {
    c >= '\u{250}' && c.is_alphabetic()
}

fn score_char(encoding: &'static Encoding, c: char) -> f64 {
    let is_japanese = encoding == SHIFT_JIS || encoding == EUC_JP;
    match c {
        '\u{3041}'..='\u{30ff}' if is_japanese => 3.0,
        '\u{3041}'..='\u{30ff}' => 0.0,
        '가'..='힣' | '\u{4e00}'..='\u{9fff}' => score_pair(encoding, c),
        // Half-width kana, which are one byte in Shift_JIS.
        '\u{ff61}'..='\u{ff9f}' => -1.0,
        _ if is_other_script(c) => {
            let is_frequent = c.to_lowercase().any(|c| FREQUENT_LETTERS.contains(c));
            if is_frequent { 2.0 } else { 1.0 }
        }
        _ if c.is_alphabetic() => 0.5,
        // Accents and vowel signs, punctuation.
        '\u{300}'..='\u{36f}' | '\u{590}'..='\u{6ff}' | '\u{e00}'..='\u{e7f}' => 0.5,
        '\u{2010}'..='\u{203f}' | '\u{3000}'..='\u{303f}' | '\u{ff00}'..='\u{ff60}' => 0.5,
        _ => -2.0,
    }
}

/// What a frequent Korean syllable counts.
const HANGUL_SCORE: f64 = 1.9;

/// An ideograph or a Korean syllable. Standards list the frequent ones first.
fn score_pair(encoding: &'static Encoding, c: char) -> f64 {
    let mut buffer = [0; 4];
    let (bytes, _, _) = encoding.encode(c.encode_utf8(&mut buffer));
    let (is_frequent, score) = match *bytes {
        [lead, trail] if encoding == GB18030 => (lead >= 0xb0 && trail >= 0xa1, 1.2),
        [lead, _] if encoding == BIG5 => ((0xa4..=0xc6).contains(&lead), 1.15),
        [lead, _] if encoding == EUC_JP => ((0xb0..=0xcf).contains(&lead), 1.1),
        [lead, _] if encoding == SHIFT_JIS => (lead >= 0x88, 1.1),
        [lead, trail] if encoding == EUC_KR && matches!(c, '가'..='힣') => {
            ((0xb0..=0xc8).contains(&lead) && trail >= 0xa1, HANGUL_SCORE)
        }
        _ => (false, 0.0),
    };
    if is_frequent { score } else { -0.5 }
}

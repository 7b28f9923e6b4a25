//! Generates names of fields, collections and tools from headers, tables and files.
//!
//! A generated name is `[a-z_][a-z0-9_]*`: lower case, words joined by `_`, German umlauts spelled out, other
//! Latin letters without their marks, other alphabets in Latin letters: `Цена` is `tsena`. A header in a script without
//! an alphabet gets a digest, `column_3f9a1c`, and one without any letter or digit its position, `column_3`. Descriptions
//! show the header wherever the name differs.
//!
//! Names depend on the headers alone: the same headers give the same names, and a generated name maps to itself.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use ring::digest;
use spile_core::text::hex;

/// The maximum length of an argument name. Some clients refuse longer ones.
pub const ARGUMENT_CHARS_MAX: usize = 64;
/// The maximum length of a field name: `_min` and `_max` are appended to it.
pub const FIELD_CHARS_MAX: usize = ARGUMENT_CHARS_MAX - 4;
pub const COLLECTION_CHARS_MAX: usize = 40;
/// `aggregate_` and the longest name of a collection.
pub const TOOL_CHARS_MAX: usize = COLLECTION_CHARS_MAX + 10;
pub const SERVER_CHARS_MAX: usize = 128;

/// Names of arguments and result members that are not fields. A field of such a name gets a `_` appended, even if
/// its collection does not have the operation: its name must not change when the operation is added.
pub const RESERVED_NAMES: [&str; 11] = [
    "cursor",
    "limit",
    "sort",
    "fields",
    "query",
    "include",
    "idempotency_key",
    "dry_run",
    "expected_version",
    "_version",
    "_notices",
];

/// The suffixes of the range arguments of a list tool.
pub const RANGE_SUFFIXES: [&str; 2] = ["_min", "_max"];

/// A unique name for each header, in the same order.
///
/// - A header that is a valid name keeps it; the others follow in the order of the columns.
/// - A duplicate becomes `name_2`, `name_3` and so on, skipping names that are taken.
/// - A name that is in [`RESERVED_NAMES`], or that is another field's name plus `_min` or `_max`, gets a `_`
///   appended: `limit_`, `price_min_`. Otherwise it would clash with an argument of the list tool.
pub fn argument_names(headers: &[&str]) -> Vec<String> {
    let wanted =
        headers.iter().enumerate().map(|(at, header)| field_name(header, at + 1)).collect::<Vec<_>>();
    make_unique(headers, &wanted, NameScope::Fields)
}

/// The same for the columns of a statement's result, which are not arguments of any tool.
pub fn result_names(headers: &[&str]) -> Vec<String> {
    let wanted =
        headers.iter().enumerate().map(|(at, header)| field_name(header, at + 1)).collect::<Vec<_>>();
    make_unique(headers, &wanted, NameScope::Results)
}

/// Whether this is a valid argument name: `[A-Za-z0-9_]{1,64}`.
pub fn is_argument_name(name: &str) -> bool {
    is_identifier(name, ARGUMENT_CHARS_MAX)
}

/// A server name from the name of a folder or file: one line, not blank.
pub fn server_name(name: &str) -> String {
    let line: String = name.chars().filter(|c| !c.is_control()).take(SERVER_CHARS_MAX).collect();
    let line = line.trim();
    if line.is_empty() { "data".to_owned() } else { line.to_owned() }
}

/// The name of a generated tool: `get_customers`.
pub fn tool_name(operation: &str, collection: &str) -> String {
    truncate_ascii(&format!("{operation}_{collection}"), TOOL_CHARS_MAX).to_owned()
}

/// A collection name from the name of a file or table: `My Customers (2026)` is `my_customers_2026`.
pub fn collection_name(name: &str) -> String {
    collection_names(&[name]).remove(0)
}

/// A unique name for each, in the same order.
pub fn collection_names(names: &[&str]) -> Vec<String> {
    let wanted = names.iter().map(|name| {
        let latin = to_snake_case(name, COLLECTION_CHARS_MAX);
        match latin.is_empty() {
            _ if lost_all_letters(name, &latin) => format!("data_{}", digest_suffix(name)),
            false => latin,
            true if has_text(name) => format!("data_{}", digest_suffix(name)),
            true => "data".to_owned(),
        }
    });
    make_unique(names, &wanted.collect::<Vec<_>>(), NameScope::Collections)
}

/// Whether this is a valid field name: `[A-Za-z0-9_]{1,60}`, and not reserved.
pub fn is_field_name(name: &str) -> bool {
    is_identifier(name, FIELD_CHARS_MAX) && !RESERVED_NAMES.contains(&name)
}

/// Whether this is a valid name of a collection or source: `[A-Za-z0-9_]{1,40}`.
pub fn is_collection_name(name: &str) -> bool {
    is_identifier(name, COLLECTION_CHARS_MAX)
}

/// Whether this is a valid tool name: `[A-Za-z0-9_-]{1,48}`.
pub fn is_tool_name(name: &str) -> bool {
    is_identifier(&name.replace('-', "_"), TOOL_CHARS_MAX)
}

fn is_identifier(name: &str, chars_max: usize) -> bool {
    (1..=chars_max).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// What the names are for, which decides their length and what they may clash with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameScope {
    Fields,
    Results,
    Collections,
}

/// Makes the wanted names unique. Originals that are their own wanted name come first.
fn make_unique(originals: &[&str], wanted: &[String], scope: NameScope) -> Vec<String> {
    let all: HashSet<&str> = wanted.iter().map(String::as_str).collect();
    let mut names =
        NameAllocator { scope, wanted: all, taken: HashSet::new(), next_suffixes: HashMap::new() };
    let mut out = vec![None; wanted.len()];
    for is_name in [true, false] {
        for (at, want) in wanted.iter().enumerate() {
            if (originals[at] == want) == is_name && !names.clashes(want) && names.taken.insert(want.clone())
            {
                out[at] = Some(want.clone());
            }
        }
    }
    let rest = out.into_iter().zip(wanted).map(|(name, want)| name.unwrap_or_else(|| names.allocate(want)));
    rest.collect()
}

/// The names that are wanted and those that are taken.
struct NameAllocator<'a> {
    scope: NameScope,
    wanted: HashSet<&'a str>,
    taken: HashSet<String>,
    /// The number to try next, by name, so that a thousand equal headers do not take quadratic time.
    next_suffixes: HashMap<String, usize>,
}

impl NameAllocator<'_> {
    /// Whether a list tool has an argument of this name for something else.
    fn clashes(&self, name: &str) -> bool {
        let is_range = |end| name.strip_suffix(end).is_some_and(|field| self.wanted.contains(field));
        match self.scope {
            NameScope::Fields => RESERVED_NAMES.contains(&name) || RANGE_SUFFIXES.into_iter().any(is_range),
            NameScope::Results | NameScope::Collections => false,
        }
    }

    fn allocate(&mut self, want: &str) -> String {
        let chars_max = match self.scope {
            NameScope::Fields | NameScope::Results => FIELD_CHARS_MAX,
            NameScope::Collections => COLLECTION_CHARS_MAX,
        };
        let base = if self.clashes(want) {
            format!("{}_", truncate_ascii(want, chars_max - 1))
        } else {
            want.to_owned()
        };
        let mut number = self.next_suffixes.get(&base).copied().unwrap_or(1);
        let name = loop {
            let end = if number == 1 { String::new() } else { format!("_{number}") };
            let name = format!("{}{end}", truncate_ascii(&base, chars_max - end.len()));
            number += 1;
            if self.is_available(&name) {
                break name;
            }
        };
        self.next_suffixes.insert(base, number);
        self.taken.insert(name.clone());
        name
    }

    /// Whether the name is neither taken nor wanted, and its range arguments clash with no wanted name.
    fn is_available(&self, name: &str) -> bool {
        let makes = |end| self.wanted.contains(format!("{name}{end}").as_str());
        let is_new = !self.taken.contains(name) && !self.wanted.contains(name);
        is_new && (self.scope != NameScope::Fields || !RANGE_SUFFIXES.into_iter().any(makes))
    }
}

fn field_name(header: &str, position: usize) -> String {
    let latin = to_snake_case(header, FIELD_CHARS_MAX);
    match latin.bytes().next() {
        _ if lost_all_letters(header, &latin) => format!("column_{}", digest_suffix(header)),
        None if has_text(header) => format!("column_{}", digest_suffix(header)),
        None => format!("column_{position}"),
        // Most languages do not allow an identifier to start with a digit.
        Some(b'0'..=b'9') => truncate_ascii(&format!("c_{latin}"), FIELD_CHARS_MAX).to_owned(),
        Some(_) => latin,
    }
}

/// Whether there is something to derive a stable name from: letters of another script, an emoji, a symbol.
fn has_text(text: &str) -> bool {
    text.chars().any(|c| !c.is_whitespace() && !c.is_control() && !matches!(c, '_' | '-' | '.'))
}

/// Whether a name has letters, and none that this file can transliterate: only its digits are left.
fn lost_all_letters(name: &str, latin: &str) -> bool {
    let has_letters = |text: &str| text.chars().any(char::is_alphabetic);
    has_letters(name) && !has_letters(latin)
}

/// The letters and digits of a name in snake case; empty if there are none.
fn to_snake_case(name: &str, chars_max: usize) -> String {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if name.bytes().all(is_plain) && name.bytes().any(|b| b != b'_') {
        return truncate_ascii(name, chars_max).to_owned();
    }
    let mut words = SnakeCaseWriter::default();
    for c in name.chars() {
        words.push(c);
        if words.out.len() > chars_max {
            break;
        }
    }
    truncate_ascii(&words.out, chars_max).trim_end_matches('_').to_owned()
}

/// The first characters of a text that is ASCII.
fn truncate_ascii(ascii: &str, chars_max: usize) -> &str {
    ascii.get(..chars_max).unwrap_or(ascii)
}

/// Writes a name letter by letter, with `_` where a new word starts.
#[derive(Default)]
struct SnakeCaseWriter {
    out: String,
    /// The case of the last letter, or that a word has ended.
    last: LetterCase,
    /// The number of consecutive capitals.
    capitals: usize,
    /// The length of the last letter in Latin letters.
    last_len: usize,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum LetterCase {
    #[default]
    Separator,
    Lower,
    Upper,
}

impl SnakeCaseWriter {
    fn push(&mut self, c: char) {
        // `Customer's` is one word, with any kind of apostrophe.
        if matches!(c, '\'' | '’' | '`') {
            return;
        }
        // Combining marks follow their letter: macOS file names have umlauts as two characters.
        if matches!(c, '\u{300}'..='\u{36f}' | '\u{591}'..='\u{5c7}' | '\u{64b}'..='\u{652}' | '\u{200c}') {
            if c == '\u{308}' && self.out.ends_with(['a', 'o', 'u']) {
                self.out.push('e');
            }
            return;
        }
        let Some(latin) = transliterate(c) else {
            (self.last, self.capitals) = (LetterCase::Separator, 0);
            return;
        };
        let case = if c.is_uppercase() { LetterCase::Upper } else { LetterCase::Lower };
        // A soft sign is part of its word.
        if latin.is_empty() {
            return;
        }
        self.begin_word(case, &latin);
        self.out.push_str(&latin);
        self.last_len = latin.len();
        self.capitals = if case == LetterCase::Upper { self.capitals + 1 } else { 0 };
        self.last = case;
    }

    /// `signupDate` and `HTTPServer` are two words each, `PLAN` and `IDs` are one.
    fn begin_word(&mut self, case: LetterCase, latin: &str) {
        let starts_word = match (self.last, case) {
            (LetterCase::Separator, _) | (LetterCase::Lower, LetterCase::Upper) => true,
            (LetterCase::Upper, LetterCase::Lower)
                if self.capitals > 1
                    && latin.starts_with(|c: char| c.is_ascii_lowercase())
                    && latin != "s" =>
            {
                // The last capital belongs to the next word.
                let at = self.out.len() - self.last_len;
                if !self.out[..at].ends_with('_') {
                    self.out.insert(at, '_');
                }
                false
            }
            (LetterCase::Upper | LetterCase::Lower, _) => false,
        };
        if starts_word && !self.out.is_empty() && !self.out.ends_with('_') {
            self.out.push('_');
        }
    }
}

/// Letters with marks, and their replacements. Vietnamese letters with two marks have their own rows.
const TRANSLITERATIONS: [(&str, &str); 39] = [
    ("ä", "ae"),
    ("ö", "oe"),
    ("ü", "ue"),
    ("ßẞ", "ss"),
    ("æǽ", "ae"),
    ("œ", "oe"),
    ("þ", "th"),
    ("ĳ", "ij"),
    ("àáâãåāăąǎǟǡǻȁȃȧª", "a"),
    ("ạảấầẩẫậắằẳẵặ", "a"),
    ("ḃḅḇɓ", "b"),
    ("çćĉċčƈḉ", "c"),
    ("ðďđḋḍḏḑ", "d"),
    ("èéêëēĕėęěȅȇȩ", "e"),
    ("ẹẻẽếềểễệ", "e"),
    ("ƒḟ", "f"),
    ("ĝğġģǥǧǵ", "g"),
    ("ĥħȟḣḥḧ", "h"),
    ("ìíîïĩīĭįıǐȉȋ", "i"),
    ("ịỉ", "i"),
    ("ĵǰ", "j"),
    ("ķĸǩḱḳ", "k"),
    ("ĺļľŀłḷḹ", "l"),
    ("ḿṁṃ", "m"),
    ("ñńņňŉŋǹṅṇ", "n"),
    ("òóôõøōŏőǒǫǭǿȍȏȫȭȯȱº", "o"),
    ("ọỏốồổỗộớờởỡợơ", "o"),
    ("ṕṗ", "p"),
    ("ŕŗřȑȓṙṛ", "r"),
    ("śŝşšșſṡṣ", "s"),
    ("ţťŧțṫṭ", "t"),
    ("ùúûũūŭůűųǔȕȗ", "u"),
    ("ụủứừửữựư", "u"),
    ("ṽṿ", "v"),
    ("ŵẁẃẅẇẉ", "w"),
    ("ẋẍ", "x"),
    ("ýÿŷȳẏỳỵỷỹ", "y"),
    ("źżžƶẑẓẕ", "z"),
    ("µ", "u"),
];

/// Letters of other alphabets, each with its usual Latin spelling; `-` is a letter without a sound of its own.
const ALPHABETS: [(&str, &str); 8] = [
    // Russian, Ukrainian, Belarusian, Serbian, Macedonian, Kazakh
    (
        "абвгдеёжзийклмнопрстуфхцчшщъыьэюяіїєґўђјљњћџќѓѕқғңөұүһә",
        "a b v g d e e zh z i y k l m n o p r s t u f kh ts ch sh shch - y - e yu ya i yi ye g u dj j lj nj c dz k g dz \
         q gh ng o u u h a",
    ),
    (
        "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ",
        "a v g d e z i th i k l m n x o p r s s t y f ch ps o a e i i o y o i y i y",
    ),
    ("אבגדהוזחטיכךלמםנןסעפףצץקרשת", "a b g d h v z ch t y k k l m m n n s a p f ts ts q r sh t"),
    // Arabic and Persian
    (
        "ابتثجحخدذرزسشصضطظعغفقكلمنهويىةءأإآؤئپچژگکی",
        "a b t th j h kh d dh r z s sh s d t z a gh f q k l m n h w y a a - a i a w y p ch zh g k y",
    ),
    (
        "აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰ",
        "a b g d e v z t i k l m n o p zh r s t u p k gh q sh ch ts dz ts ch kh j h",
    ),
    (
        "աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ",
        "a b g d e z e e t zh i l kh ts k h dz gh ch m y n sh o ch p j r s v t r ts w p k o f",
    ),
    (
        "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらりるれろわをん",
        "a i u e o ka ki ku ke ko sa shi su se so ta chi tsu te to na ni nu ne no ha hi fu he ho ma mi mu me mo ya yu yo \
         ra ri ru re ro wa o n",
    ),
    (
        "がぎぐげござじずぜぞだぢづでどばびぶべぼぱぴぷぺぽぁぃぅぇぉゃゅょっー",
        "ga gi gu ge go za ji zu ze zo da ji zu de do ba bi bu be bo pa pi pu pe po a i u e o ya yu yo - -",
    ),
];

/// A character in Latin letters or digits. Empty for a letter without a sound; `None` for what separates words, and for
/// letters of scripts without an alphabet.
fn transliterate(c: char) -> Option<Cow<'static, str>> {
    let c = match c {
        // Full-width letters, as Japanese keyboards write them.
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        // Katakana as hiragana.
        'ァ'..='ヶ' => char::from_u32(u32::from(c) - 0x60).unwrap_or(c),
        'ς' => 'σ',
        _ => c,
    };
    if c.is_ascii_alphanumeric() {
        return Some(c.to_ascii_lowercase().to_string().into());
    }
    if let '가'..='힣' = c {
        return Some(romanize_hangul(u32::from(c) - 0xac00).into());
    }
    let lower = c.to_lowercase().next().filter(|lower| !lower.is_ascii() || c == 'İ')?;
    if lower == 'i' {
        return Some("i".into());
    }
    if let Some((_, letters)) = TRANSLITERATIONS.into_iter().find(|(from, _)| from.contains(lower)) {
        return Some(letters.into());
    }
    ALPHABETS.into_iter().find_map(|(alphabet, spellings)| {
        let index = alphabet.chars().position(|letter| letter == lower)?;
        let spelling = spellings.split_whitespace().nth(index)?;
        Some(if spelling == "-" { "".into() } else { spelling.into() })
    })
}

/// A Korean syllable in Revised Romanization, letter by letter. Syllables are numbered by their three letters.
fn romanize_hangul(syllable: u32) -> String {
    const INITIALS: [&str; 19] =
        ["g", "kk", "n", "d", "tt", "r", "m", "b", "pp", "s", "ss", "", "j", "jj", "ch", "k", "t", "p", "h"];
    const VOWELS: [&str; 21] = [
        "a", "ae", "ya", "yae", "eo", "e", "yeo", "ye", "o", "wa", "wae", "oe", "yo", "u", "wo", "we", "wi",
        "yu", "eu", "ui", "i",
    ];
    const FINALS: [&str; 28] = [
        "", "k", "k", "k", "n", "n", "n", "t", "l", "k", "m", "l", "l", "l", "p", "l", "m", "p", "p", "t",
        "t", "ng", "t", "t", "k", "t", "p", "t",
    ];
    let (initial, vowel, last) = (syllable / 588, syllable % 588 / 28, syllable % 28);
    [INITIALS[initial as usize], VOWELS[vowel as usize], FINALS[last as usize]].concat()
}

/// A short name for a header whose script has no alphabet: the same wherever its column is.
fn digest_suffix(header: &str) -> String {
    hex(&digest::digest(&digest::SHA256, header.trim().as_bytes()).as_ref()[..3])
}

#[cfg(test)]
mod tests {
    use super::{
        ARGUMENT_CHARS_MAX, RANGE_SUFFIXES, RESERVED_NAMES, TOOL_CHARS_MAX, argument_names, collection_name,
        collection_names, is_collection_name, is_field_name, is_tool_name, server_name, tool_name,
    };
    use proptest::prelude::*;

    fn check(headers: &[&str], expected: &[&str]) {
        assert_eq!(argument_names(headers), expected, "{headers:?}");
    }

    #[test]
    fn headers_become_snake_case() {
        for (header, name) in [
            ("email", "email"),
            ("Plan", "plan"),
            ("EMAIL", "email"),
            ("Signup Date", "signup_date"),
            ("signupDate", "signup_date"),
            ("customerID", "customer_id"),
            ("HTTPServer", "http_server"),
            ("ID", "id"),
            ("IDs", "ids"),
            ("CustomerIDs", "customer_ids"),
            ("Q1 Revenue", "q1_revenue"),
            ("Q1Revenue", "q1_revenue"),
            ("  padded  ", "padded"),
            ("a__b", "a__b"),
            ("_id", "_id"),
            ("Price (€)", "price"),
            ("Customer's name", "customers_name"),
            ("e-mail", "e_mail"),
            ("first\nname", "first_name"),
            ("A", "a"),
            ("2026", "c_2026"),
            ("1st Place", "c_1st_place"),
        ] {
            check(&[header], &[name]);
        }
    }

    #[test]
    fn latin_letters_lose_their_marks() {
        for (header, name) in [
            ("Größe", "groesse"),
            ("GRÖSSE", "groesse"),
            ("GRÖẞE", "groesse"),
            ("Gro\u{308}ße", "groesse"),
            ("Übergröße", "uebergroesse"),
            ("Année", "annee"),
            ("Anne\u{301}e", "annee"),
            ("Straße/Nr.", "strasse_nr"),
            ("Łódź", "lodz"),
            ("İstanbul", "istanbul"),
            ("Điện thoại", "dien_thoai"),
            ("Ærø", "aero"),
            ("Ｎａｍｅ", "name"),
        ] {
            check(&[header], &[name]);
        }
    }

    #[test]
    fn headers_without_text_are_named_by_position() {
        check(&["a", "", "_", "--"], &["a", "column_2", "column_3", "column_4"]);
        check(&["价格 price"], &["price"]);
        check(&["", "column_1"], &["column_1_2", "column_1"]);
    }

    #[test]
    fn headers_and_files_of_symbols_have_names_that_do_not_depend_on_their_position() {
        let names = |headers: &[&str]| argument_names(headers);
        let alone = [names(&["🦀"]), names(&["%"]), names(&["😀"])].concat();
        assert_eq!(names(&["🦀", "%", "😀"]), alone);
        assert_eq!(names(&["", "😀", "🦀"])[1..], [alone[2].clone(), alone[0].clone()]);
        assert!(alone.iter().all(|name| is_field_name(name) && name.starts_with("column_")), "{alone:?}");
        assert!(collection_name("😀").starts_with("data_"));
        assert_ne!(collection_name("😀"), collection_name("🦀"));
    }

    #[test]
    fn other_alphabets_are_written_in_latin_letters() {
        for (header, name) in [
            ("Цена", "tsena"),
            ("Дата заказа", "data_zakaza"),
            ("Площадь", "ploshchad"),
            ("ОбъёмПоставки", "obem_postavki"),
            ("Кількість", "kilkist"),
            ("Τιμή", "timi"),
            ("ΑΡΙΘΜΟΣ", "arithmos"),
            ("מחיר", "mchyr"),
            ("السعر", "alsar"),
            ("ფასი", "pasi"),
            ("Գին", "gin"),
            ("カタカナ", "katakana"),
            ("ひらがな", "hiragana"),
            ("가격", "gagyeok"),
            ("고객 번호", "gogaek_beonho"),
        ] {
            check(&[header], &[name]);
        }
        for (alphabet, spellings) in super::ALPHABETS {
            assert_eq!(alphabet.chars().count(), spellings.split_whitespace().count(), "{alphabet}");
        }
    }

    #[test]
    fn headers_in_scripts_without_an_alphabet_have_the_same_name_at_every_position() {
        let names = argument_names(&["顧客", "価格", "数量"]);
        assert!(names.iter().all(|name| name.starts_with("column_") && name.len() == 13), "{names:?}");
        let moved = argument_names(&["数量", "新しい列", "顧客"]);
        assert_eq!((&moved[0], &moved[2]), (&names[2], &names[0]));
    }

    #[test]
    fn duplicates_are_numbered_past_existing_names() {
        check(&["a", "a", "a"], &["a", "a_2", "a_3"]);
        check(&["a", "a", "a_2"], &["a", "a_3", "a_2"]);
        check(&["Plan", "plan", "PLAN"], &["plan_2", "plan", "plan_3"]);
        check(&["a_2", "A", "a"], &["a_2", "a_3", "a"]);
    }

    #[test]
    fn names_that_clash_with_list_arguments_get_an_underscore() {
        check(&["limit", "Sort", "cursor", "fields"], &["limit_", "sort_", "cursor_", "fields_"]);
        check(&["limit", "limit_"], &["limit__2", "limit_"]);
        check(&["price", "price_min", "Price Max"], &["price", "price_min_", "price_max_"]);
        check(&["price_min", "price_max"], &["price_min", "price_max"]);
        check(&["a_min", "A", "a"], &["a_min_", "a_2", "a"]);
        // `a_2` is free, but its range argument `a_2_min` is not.
        check(&["a", "a", "a_2_min"], &["a", "a_3", "a_2_min"]);
    }

    #[test]
    fn long_names_are_truncated_and_stay_unique() {
        let long = "x".repeat(200);
        let names = argument_names(&[&long, &long, "Long Long"]);
        assert_eq!(names[0].len(), 60);
        assert_eq!(names[1], format!("{}_2", "x".repeat(58)));
        assert_eq!(collection_name(&"Wide ".repeat(20)).len(), 39);
    }

    #[test]
    fn files_and_tables_become_collections_and_tools() {
        for (file, name) in [
            ("customers", "customers"),
            ("Customers", "customers"),
            ("My Customers (2026)", "my_customers_2026"),
            ("2026 sales", "2026_sales"),
            ("Заказы 2026", "zakazy_2026"),
            ("顧客", "data_40b3e4"),
            ("顧客1", "data_bf20c8"),
            ("", "data"),
            ("--", "data"),
        ] {
            assert_eq!(collection_name(file), name, "{file}");
        }
        assert_eq!(collection_names(&["a b", "a_b", "A B", "a_b_2"]), ["a_b_3", "a_b", "a_b_4", "a_b_2"]);
        for (folder, name) in
            [("My data", "My data"), (" a\n", "a"), ("\t", "data"), ("", "data"), ("顧客", "顧客")]
        {
            assert_eq!(server_name(folder), name, "{folder}");
        }
        assert_eq!(tool_name("get", "customers"), "get_customers");
        assert_eq!(tool_name("list", &"x".repeat(90)).len(), TOOL_CHARS_MAX);
    }

    proptest! {
        #[test]
        fn names_are_valid_unique_and_idempotent(
            headers in prop::collection::vec("(a|b|limit|A|_min|_max|_2|_|1|ö| |x{30}|\\PC){0,6}", 0..12),
        ) {
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            let names = argument_names(&headers);
            let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
            prop_assert_eq!(names.len(), headers.len());
            prop_assert_eq!(&argument_names(&borrowed), &names);
            // All possible arguments of a list tool are distinct.
            let mut arguments: Vec<String> = RESERVED_NAMES.map(str::to_owned).to_vec();
            for name in &names {
                prop_assert!(is_field_name(name) && !name.starts_with(|c: char| c.is_ascii_digit()), "{}", name);
                arguments.push(name.clone());
                arguments.extend(RANGE_SUFFIXES.map(|end| format!("{name}{end}")));
            }
            prop_assert!(arguments.iter().all(|argument| argument.len() <= ARGUMENT_CHARS_MAX));
            arguments.sort();
            arguments.dedup();
            prop_assert_eq!(arguments.len(), RESERVED_NAMES.len() + 3 * names.len(), "{:?}", names);
        }

        #[test]
        fn collection_names_are_valid_unique_and_idempotent(
            tables in prop::collection::vec("(a|B|_2|_|1|ö| |x{30}|\\PC){0,4}", 0..12),
        ) {
            let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
            let names = collection_names(&tables);
            let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
            prop_assert!(names.iter().all(|name| is_collection_name(name)), "{:?}", names);
            prop_assert!(names.iter().all(|name| is_tool_name(&tool_name("list", name))));
            prop_assert_eq!(collection_names(&borrowed), names.clone());
            let mut sorted = names.clone();
            sorted.sort();
            sorted.dedup();
            prop_assert_eq!(sorted.len(), names.len());
        }
    }
}

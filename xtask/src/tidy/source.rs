//! Rules for Rust code: words that are banned except in certain files. Comments and tests may use them.

use super::{File, numbered_lines};

struct BannedWords {
    words: &'static [&'static str],
    /// The files in which the words are banned.
    applies_to: fn(&str) -> bool,
    hint: &'static str,
}

const BANS: &[BannedWords] = &[
    BannedWords {
        // With quotes: as a value. A message may mention a date.
        words: &["\"2024-11-05", "\"2025-03-26", "\"2025-06-18", "\"2025-11-25", "\"2026-07-28"],
        applies_to: |path| is_product(path) && path != "crates/wire/src/version.rs",
        hint: "protocol dates live in crates/wire/src/version.rs; use its `Version`",
    },
    BannedWords {
        words: &["if modern", "is_modern"],
        applies_to: |path| is_product(path) && !path.starts_with("crates/wire/"),
        hint: "only crates/wire distinguishes eras; add a `Feature` there and test for it",
    },
    BannedWords {
        words: &["println!", "print!"],
        applies_to: |path| is_product(path) && !path.contains("/examples/"),
        hint: "stdout belongs to the stdio transport; log with `tracing`",
    },
    BannedWords {
        // std's `channel` is unbounded; tokio's takes a bound, and a oneshot carries one value.
        words: &["unbounded_channel", "UnboundedSender", "unbounded()", "mpsc::channel()", "= channel()"],
        applies_to: |path| path.starts_with("crates/"),
        hint: "every queue has a bound; use a channel with a capacity and say what happens when it is full",
    },
    BannedWords {
        words: &["SystemTime::now", "Instant::now"],
        applies_to: |path| ["json", "core", "wire", "contract"].iter().any(|room| is_in_crate(path, room)),
        hint: "this room reads no clock; take the time as an argument",
    },
];

/// Words of a file that identifies things by their bytes.
const IDENTITY_WORDS: &[&str] =
    &["digest::", "digest_parts", "SHA256", "hmac::", "ImportId", "write_identity", "fingerprint"];
const DEBUG_TEXT_HINT: &str = "a name in this file would become part of an identity (ADR 0053): write bytes, names of your own, or a \
                               type that is compared; for people, `Display`";

pub fn check(file: &File, problems: &mut Vec<String>) {
    check_identities(file, problems);
    let bans: Vec<&BannedWords> = BANS.iter().filter(|ban| (ban.applies_to)(&file.path)).collect();
    if bans.is_empty() || is_test(&file.path) {
        return;
    }
    for (number, line) in code_lines(&file.text) {
        for ban in &bans {
            if let Some(word) = ban.words.iter().find(|word| has_word(line, word)) {
                problems.push(format!("{}:{number}: `{word}`: {}", file.path, ban.hint));
            }
        }
    }
}

/// Finds debug text in files that compute digests: it changes with a rename and with the compiler, and what it identified is not found
/// any more. Whole files, because a text is often made some lines before it is digested.
fn check_identities(file: &File, problems: &mut Vec<String>) {
    if !is_product(&file.path) || is_test(&file.path) || !file.path.ends_with(".rs") {
        return;
    }
    let lines = || code_lines(&file.text);
    if !lines().any(|(_, line)| IDENTITY_WORDS.iter().any(|word| has_word(line, word))) {
        return;
    }
    for (number, line) in lines().filter(|(_, line)| line.contains(":?}") || line.contains(":#?}")) {
        // What ends the program is read by people alone.
        if !line.contains("panic!(") {
            problems.push(format!("{}:{number}: `{}`: {DEBUG_TEXT_HINT}", file.path, line.trim()));
        }
    }
}

/// Product code, as opposed to tests and benches.
fn is_product(path: &str) -> bool {
    path.starts_with("crates/") && !is_in_crate(path, "testkit") && !is_in_crate(path, "bench-peers")
}

fn is_in_crate(path: &str, name: &str) -> bool {
    path.strip_prefix("crates/")
        .and_then(|rest| rest.strip_prefix(name))
        .is_some_and(|rest| rest.starts_with('/'))
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/")
        || path.contains("/benches/")
        || path.ends_with("_tests.rs")
        || path.ends_with("/tests.rs")
}

/// The lines outside `#[cfg(test)]` modules, without their comments.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut test_item_next = false;
    // The line that closes the current test module: a brace with the indentation of the module.
    let mut test_ends_at: Option<String> = None;
    numbered_lines(text).filter_map(move |(number, line)| {
        if let Some(end) = &test_ends_at {
            if line == end {
                test_ends_at = None;
            }
            return None;
        }
        if std::mem::take(&mut test_item_next) {
            let attribute = line.trim_start().starts_with("#[");
            if line.ends_with('{') {
                test_ends_at = Some(format!("{}}}", &line[..line.len() - line.trim_start().len()]));
            }
            test_item_next = attribute;
            return None;
        }
        if line.trim() == "#[cfg(test)]" {
            test_item_next = true;
            return None;
        }
        Some((number, without_comment(line)))
    })
}

/// Removes a `//` comment, unless the slashes are within a string.
fn without_comment(line: &str) -> &str {
    let comment = line.match_indices("//").find(|(at, _)| line[..*at].matches('"').count().is_multiple_of(2));
    comment.map_or(line, |(at, _)| &line[..at])
}

/// Whether `line` contains `word`, not as the end of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let in_name = |c: char| c.is_alphanumeric() || c == '_';
        !(word.starts_with(in_name) && line[..at].ends_with(in_name))
    })
}

#[cfg(test)]
mod tests {
    use super::{File, check};

    fn problems(path: &str, text: &str) -> usize {
        let mut problems = Vec::new();
        check(&File { path: path.to_owned(), text: text.to_owned() }, &mut problems);
        problems.len()
    }

    #[test]
    fn a_protocol_date_lives_in_one_file() {
        let code = "const V: &str = \"2025-11-25\";\n";
        assert_eq!(problems("crates/host/src/lib.rs", code), 1);
        assert_eq!(problems("crates/wire/src/decode.rs", code), 1);
        assert_eq!(problems("crates/wire/src/version.rs", code), 0);
        assert_eq!(problems("crates/testkit/src/lib.rs", code), 0);
        assert_eq!(problems("crates/wire/tests/it/main.rs", code), 0);
    }

    #[test]
    fn comments_may_quote_a_date() {
        assert_eq!(
            problems("crates/host/src/lib.rs", "//! Since 2025-11-25.\nlet x = 1; // 2025-03-26, Batching\n"),
            0
        );
        assert_eq!(problems("crates/host/src/lib.rs", "let x = \"http://a\"; let y = b\"2025-11-25\";\n"), 1);
    }

    #[test]
    fn a_sentence_for_people_may_mention_a_date() {
        assert_eq!(
            problems("crates/wire/src/error.rs", "(Self::Gone, \"up to 2025-11-25; see `data`\"),\n"),
            0
        );
    }

    #[test]
    fn test_modules_may_use_anything_and_what_follows_may_not() {
        let text =
            "#[cfg(test)]\nmod tests {\n    fn a() {\n        println!();\n    }\n}\nfn b() { println!() }\n";
        assert_eq!(problems("crates/host/src/lib.rs", text), 1);
        assert_eq!(
            problems("crates/host/src/lib.rs", "#[cfg(test)]\nmod tests;\nfn b() { println!() }\n"),
            1
        );
    }

    #[test]
    fn stderr_is_not_stdout() {
        assert_eq!(problems("crates/transport/src/lib.rs", "eprintln!(\"x\");\n"), 0);
        assert_eq!(problems("crates/transport/src/lib.rs", "print!(\"x\");\n"), 1);
        assert_eq!(problems("xtask/src/main.rs", "print!(\"x\");\n"), 0);
    }

    #[test]
    fn eras_are_told_apart_in_wire() {
        assert_eq!(problems("crates/host/src/pipeline.rs", "if modern {\n"), 1);
        assert_eq!(problems("crates/wire/src/era.rs", "if modern {\n"), 0);
    }

    #[test]
    fn queues_have_bounds() {
        assert_eq!(problems("crates/transport/src/sse.rs", "let (a, b) = mpsc::unbounded_channel();\n"), 1);
        assert_eq!(problems("crates/transport/src/sse.rs", "let (a, b) = std::sync::mpsc::channel();\n"), 1);
        assert_eq!(problems("crates/transport/src/sse.rs", "let (a, b) = mpsc::channel(16);\n"), 0);
        assert_eq!(problems("crates/transport/src/sse.rs", "let (a, b) = oneshot::channel();\n"), 0);
    }

    #[test]
    fn debug_text_is_no_identity() {
        let (path, digest) = ("crates/host/src/key.rs", "use ring::digest::{SHA256, digest};\n");
        let text = "let key = format!(\"{location}\\0{kind:?}\");\n";
        assert_eq!(problems(path, &format!("{digest}{text}")), 1);
        assert_eq!(problems(path, &format!("{digest}let x = format!(\"{{:#?}}\", y);\n")), 1);
        assert_eq!(problems(path, &format!("fn fingerprint() {{}}\n{text}")), 1);
        assert_eq!(problems(path, text), 0, "it identifies nothing");
        assert_eq!(problems("crates/host/tests/it/key.rs", &format!("{digest}{text}")), 0);
        let tests = format!("{digest}#[cfg(test)]\nmod tests {{\n    {text}}}\n");
        assert_eq!(problems(path, &tests), 0);
    }

    #[test]
    fn pure_rooms_read_no_clock() {
        assert_eq!(problems("crates/wire/src/decode.rs", "let now = Instant::now();\n"), 1);
        assert_eq!(problems("crates/transport/src/http.rs", "let now = Instant::now();\n"), 0);
    }
}

//! Explanations of TOML syntax errors.

use contract::manifest::parse;
use insta::assert_snapshot;
use proptest::prelude::*;

use crate::manifest::env;

/// One line per diagnostic: location, message, help.
fn render_diagnostics(text: &str) -> String {
    let told = parse("spile.toml", text, &env).expect_err(text);
    let lines = told.iter().map(|one| {
        let place =
            one.location.as_ref().map_or_else(String::new, |at| format!("{}:{} ", at.line(), at.column()));
        format!("{place}{} → {}", one.message, one.help.as_deref().unwrap_or("NO WAY OUT"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The diagnostics of several texts of one line each.
fn render_each(lines: &[&str]) -> String {
    let is_unseen = |c: char| c.is_control() && c != '\n' || c == '\u{feff}';
    lines
        .iter()
        .map(|line| format!("{}\n{}\n\n", line.replace(is_unseen, "·"), render_diagnostics(line)))
        .collect()
}

#[test]
fn explains_string_errors() {
    let texts = [
        r#"path = "C:\users\x.csv""#,
        r#"path = "C:\temp\new\Users\x.csv""#,
        r#"path = "\\server\x.csv""#,
        r#"sql = "select * from t where plan = "free"""#,
        r#"sql = "select "a" from t""#,
        "title = 'it's'",
        "name = “crm”",
        "name = ‘crm’",
        "name = `crm`",
        "name = crm",
        "name = \"a\tb\u{1}c\"",
        "name = 'a\u{1}c'",
        "name = \"\"\"abc",
        "name = '''abc",
        "# a \u{1} comment",
        "name = \"a\" \"b\"",
        "name = \"a\" + \"b\"",
        "name = \"a\";",
        "name = \"a\",",
        "name = \"a\" // why",
        "// why",
        "-- why",
        "name = f\"a\"",
    ];
    assert_snapshot!(render_each(&texts), @r#"
    path = "C:\users\x.csv"
    1:13 a `\` in double quotes starts an escape, and this one is invalid → write the string in single quotes, as in `'C:\data'`, or double each `\`

    path = "C:\temp\new\Users\x.csv"
    1:22 a `\` in double quotes starts an escape, and this one is invalid → write the string in single quotes, as in `'C:\data'`, or double each `\`

    path = "\\server\x.csv"
    1:19 a `\` in double quotes starts an escape, and this one is invalid → write the string in single quotes, as in `'C:\data'`, or double each `\`

    sql = "select * from t where plan = "free""
    1:38 the string ends at this `"`, but more text follows → write a string that contains quotes between `'''` and `'''`; SQL strings have single quotes

    sql = "select "a" from t"
    1:16 the string ends at this `"`, but more text follows → write a string that contains quotes between `'''` and `'''`; SQL strings have single quotes

    title = 'it's'
    1:13 the string ends at this `'`, but more text follows → write a string that contains a `'` in double quotes: `"it's"`

    name = “crm”
    1:8 `“` is not a quotation mark in TOML → use plain quotes: `"…"`

    name = ‘crm’
    1:8 `‘` is not a quotation mark in TOML → use plain quotes: `"…"`

    name = `crm`
    1:8 a backtick is not a quotation mark in TOML → use plain quotes: `"…"`

    name = crm
    1:8 a string needs quotes → add quotes: `"…"`

    name = "a·b·c"
    1:12 control character (U+0001) → remove it; in double quotes, write it as `\u0001`

    name = 'a·c'
    1:10 control character (U+0001) → remove it; in double quotes, write it as `\u0001`

    name = """abc
    1:14 this string is not closed → end it with `"""`

    name = '''abc
    1:14 this string is not closed → end it with `'''`

    # a · comment
    1:5 control character (U+0001) → remove it; in double quotes, write it as `\u0001`

    name = "a" "b"
    1:12 the string ends at this `"`, but more text follows → write a string that contains quotes between `'''` and `'''`; SQL strings have single quotes

    name = "a" + "b"
    1:12 the string ends at this `"`, but more text follows → write a string that contains quotes between `'''` and `'''`; SQL strings have single quotes

    name = "a";
    1:11 unexpected `;` at the end of the line → remove it

    name = "a",
    1:11 unexpected `,` at the end of the line → remove it

    name = "a" // why
    1:12 a comment starts with `#` → write `# …`

    // why
    1:1 a comment starts with `#` → write `# …`

    -- why
    1:4 a comment starts with `#` → write `# …`

    name = f"a"
    1:8 a string needs quotes → add quotes: `"…"`
    "#);
}

#[test]
fn explains_other_errors() {
    let values = [
        "key = null",
        "key = None",
        "hidden = True",
        "hidden = FALSE",
        "hidden = yes",
        "rows_max = 0100",
        "rows_max = 1,000",
        "rows_max = 1 000",
        "rows_max = 10k",
        "rows_max = +-1",
        "rows_max = 1__0",
        "rows_max = 0X1F",
        "rows_max = 1.",
        "rows_max = .5",
        "rows_max = 99999999999999999999",
        "rate = 600/min",
        "since = 2026-13-45",
        "since = 2026-1-5",
        "name == \"x\"",
        "name := \"x\"",
        "name: \"x\"",
        "name \"x\"",
        "= 3",
        "name =",
        "name",
        "filters = [\"a\" \"b\"]",
        "filters = [\"a\",, \"b\"]",
        "filters = [\"a\"",
        "filters = (\"a\")",
        "filters = \"a\", \"b\"",
        "x = { a = 1 b = 2 }",
        "x = { a: 1 }",
        "x = { \"a\": 1 }",
        "x = { a = 1",
        "filters = [a = 1]",
        "[server",
        "[[server",
        "[server]]",
        "[ser ver]",
        "[]",
        "[server] name = \"x\"",
        "<server>",
        "server:\n  name: x",
        "a.b c = 1",
        "\u{feff}\u{feff}name = 1",
        "Größe = 1",
        "a = 1 b = 2",
        "name = \"x\r\"",
    ];
    assert_snapshot!(render_each(&values), @r#"
    key = null
    1:7 TOML has no null → remove the line

    key = None
    1:7 TOML has no null → remove the line

    hidden = True
    1:10 `True` must be in lower case → write `true`

    hidden = FALSE
    1:10 `FALSE` must be in lower case → write `false`

    hidden = yes
    1:10 `yes` is not a TOML value → write `true`, or add quotes if it is a string

    rows_max = 0100
    1:12 a number cannot start with `0` → remove the `0`; a string such as a postal code needs quotes

    rows_max = 1,000
    1:13 a number cannot have a `,` between its digits → write `1000` or `1_000`

    rows_max = 1 000
    1:12 this is not a number, and a string needs quotes → write digits only, or add quotes: `"…"`

    rows_max = 10k
    1:12 this is not a number, and a string needs quotes → write digits only, or add quotes: `"…"`

    rows_max = +-1
    1:13 this is not a number → write digits, as in `100` or `0.5`; a string needs quotes

    rows_max = 1__0
    1:13 this is not a number → write digits, as in `100` or `0.5`; a string needs quotes

    rows_max = 0X1F
    1:12 this is not a number → write digits, as in `100` or `0.5`; a string needs quotes

    rows_max = 1.
    1:14 this is not a number → write digits, as in `100` or `0.5`; a string needs quotes

    rows_max = .5
    1:12 this is not a number → write digits, as in `100` or `0.5`; a string needs quotes

    rows_max = 99999999999999999999
    1:1 unknown key `rows_max` → it belongs in `[collections.NAME]`, `[collections.NAME.related.NAME]` or `[tools.NAME]`

    rate = 600/min
    1:8 this is not a number, and a string needs quotes → write digits only, or add quotes: `"…"`

    since = 2026-13-45
    1:9 this is not a date or time → write it like `2026-01-31`; a string needs quotes

    since = 2026-1-5
    1:9 this is not a date or time → write it like `2026-01-31`; a string needs quotes

    name == "x"
    1:7 there is an extra `=` → write `key = value`

    name := "x"
    1:6 found `:` where `=` is expected → write `key = value`

    name: "x"
    1:5 found `:` where `=` is expected → write `key = value`

    name "x"
    1:6 the key has no value → write `key = value`

    = 3
    1:1 the key is missing → write `key = value`

    name =
    1:7 the value is missing → write one after the `=`

    name
    1:5 the key has no value → write `key = value`

    filters = ["a" "b"]
    1:16 a `,` is missing in an array → add it, or the `]` of the line before

    filters = ["a",, "b"]
    1:16 there is an extra `,` → remove it

    filters = ["a"
    1:15 this array is not closed → add `]` after its last value

    filters = ("a")
    1:11 an array goes between `[` and `]` → write `["a", "b"]`

    filters = "a", "b"
    1:14 several values need an array → write `[` before the first and `]` after the last

    x = { a = 1 b = 2 }
    1:11 this is not a number, and a string needs quotes → write digits only, or add quotes: `"…"`

    x = { a: 1 }
    1:8 found `:` where `=` is expected → write `key = value`

    x = { "a": 1 }
    1:10 found `:` where `=` is expected → write `key = value`

    x = { a = 1
    1:12 a `{` has no `}` → add `}` after the last value

    filters = [a = 1]
    1:12 a string needs quotes → add quotes: `"…"`

    [server
    1:8 this header is not closed → add `]` after its name

    [[server
    1:9 this header is not closed → add `]` after its name

    [server]]
    1:9 unexpected text after a header → move it to its own line

    [ser ver]
    1:5 a name with a space needs quotes → write it in `"…"`, or replace the space by `_`

    []
    1:2 the header has no name → write one, as in `[sources.crm]`

    [server] name = "x"
    1:10 unexpected text after a header → move it to its own line

    <server>
    1:1 this looks like XML, but a manifest is TOML → write `[sources.NAME]` and `path = "…"` below it; `spile init` writes a manifest for your data

    server:
      name: x
    1:7 this looks like YAML, but a manifest is TOML → write `[sources.NAME]` and `path = "…"` below it; `spile init` writes a manifest for your data

    a.b c = 1
    1:5 the key has no value → write `key = value`

    ··name = 1
    1:1 invisible character (U+FEFF) → remove it; retype the line if you cannot find it

    Größe = 1
    1:3 invalid character in a key → write `key = value`; a key with characters other than letters, digits, `-` and `_` needs quotes

    a = 1 b = 2
    1:5 this is not a number, and a string needs quotes → write digits only, or add quotes: `"…"`

    name = "x·"
    1:10 this string is not closed on its line → end it with `"`; write a string of several lines in `"""`
    "#);
}

#[test]
fn recognizes_other_formats() {
    let texts = [
        "{\n  \"sources\": {\n    \"crm\": { \"path\": \"crm.db\" }\n  }\n}\n",
        "[{\"a\": 1}]",
        "sources:\n  crm:\n    path: crm.db\n",
        "---\nsources:\n  crm: 1\n",
        "<sources/>",
    ];
    assert_snapshot!(render_each(&texts), @r#"
    {
      "sources": {
        "crm": { "path": "crm.db" }
      }
    }

    1:1 this looks like JSON, but a manifest is TOML → write `[sources.NAME]` and `path = "…"` below it; `spile init` writes a manifest for your data

    [{"a": 1}]
    1:2 this looks like JSON, but a manifest is TOML → write `[sources.NAME]` and `path = "…"` below it; `spile init` writes a manifest for your data

    sources:
      crm:
        path: crm.db

    1:8 this looks like YAML, but a manifest is TOML → write `[sources.NAME]` and `path = "…"` below it; `spile init` writes a manifest for your data

    ---
    sources:
      crm: 1

    1:4 this looks like YAML, but a manifest is TOML → write `[sources.NAME]` and `path = "…"` below it; `spile init` writes a manifest for your data

    <sources/>
    1:1 this looks like XML, but a manifest is TOML → write `[sources.NAME]` and `path = "…"` below it; `spile init` writes a manifest for your data
    "#);
}

proptest! {
    /// The parser's own messages are never shown.
    #[test]
    fn every_syntax_error_has_help(text in "[a-c\\[\\]{}=,.:\"'\\\\0-9 \n#-]{0,30}") {
        if let Err(told) = parse("spile.toml", &text, &env) {
            for one in told {
                prop_assert!(one.help.is_some(), "{text:?}: {}", one.message);
            }
        }
    }
}

//! Slips of people who do not know TOML: each is told in our words and has a way out.

use contract::manifest::parse;
use insta::assert_snapshot;
use proptest::prelude::*;

use crate::manifest::env;

/// One line for each thing that is told: where, what, and the way out.
fn render_diagnostics(text: &str) -> String {
    let told = parse("spile.toml", text, &env).expect_err(text);
    let lines = told.iter().map(|one| {
        let place =
            one.location.as_ref().map_or_else(String::new, |at| format!("{}:{} ", at.line(), at.column()));
        format!("{place}{} → {}", one.message, one.help.as_deref().unwrap_or("NO WAY OUT"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What is told of lines that are each a text of their own.
fn render_each(lines: &[&str]) -> String {
    let is_unseen = |c: char| c.is_control() && c != '\n' || c == '\u{feff}';
    lines
        .iter()
        .map(|line| format!("{}\n{}\n\n", line.replace(is_unseen, "·"), render_diagnostics(line)))
        .collect()
}

#[test]
fn texts() {
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
    1:13 a `\` in double quotes must be followed by one of its letters → write the text in single quotes, as in `'C:\data'`, or each `\` twice

    path = "C:\temp\new\Users\x.csv"
    1:22 a `\` in double quotes must be followed by one of its letters → write the text in single quotes, as in `'C:\data'`, or each `\` twice

    path = "\\server\x.csv"
    1:19 a `\` in double quotes must be followed by one of its letters → write the text in single quotes, as in `'C:\data'`, or each `\` twice

    sql = "select * from t where plan = "free""
    1:38 a text ends at its next `"`, and here it goes on → write a text that has quotes in it between `'''` and `'''`; a text in SQL has single quotes

    sql = "select "a" from t"
    1:16 a text ends at its next `"`, and here it goes on → write a text that has quotes in it between `'''` and `'''`; a text in SQL has single quotes

    title = 'it's'
    1:13 a text ends at its next `'`, and here it goes on → write a text that has a `'` in it in double quotes: `"it's"`

    name = “crm”
    1:8 `“` is no quote of TOML → write plain quotes: `"…"`

    name = ‘crm’
    1:8 `‘` is no quote of TOML → write plain quotes: `"…"`

    name = `crm`
    1:8 a backtick is no quote of TOML → write plain quotes: `"…"`

    name = crm
    1:8 a text needs quotes → write it in quotes: `"…"`

    name = "a·b·c"
    1:12 there is a control character here (U+0001) → take it out; a text in double quotes has it as `\u0001`

    name = 'a·c'
    1:10 there is a control character here (U+0001) → take it out; a text in double quotes has it as `\u0001`

    name = """abc
    1:14 this text has no end → end it with `"""`

    name = '''abc
    1:14 this text has no end → end it with `'''`

    # a · comment
    1:5 there is a control character here (U+0001) → take it out; a text in double quotes has it as `\u0001`

    name = "a" "b"
    1:12 a text ends at its next `"`, and here it goes on → write a text that has quotes in it between `'''` and `'''`; a text in SQL has single quotes

    name = "a" + "b"
    1:12 a text ends at its next `"`, and here it goes on → write a text that has quotes in it between `'''` and `'''`; a text in SQL has single quotes

    name = "a";
    1:11 a line needs no sign at its end → leave it out

    name = "a",
    1:11 a line needs no sign at its end → leave it out

    name = "a" // why
    1:12 a remark begins with `#` → write `# …`

    // why
    1:1 a remark begins with `#` → write `# …`

    -- why
    1:4 a remark begins with `#` → write `# …`

    name = f"a"
    1:8 a text needs quotes → write it in quotes: `"…"`
    "#);
}

#[test]
fn other_values() {
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
    1:7 TOML has no null → leave the line out

    key = None
    1:7 TOML has no null → leave the line out

    hidden = True
    1:10 `True` is written in small letters → write `true`

    hidden = FALSE
    1:10 `FALSE` is written in small letters → write `false`

    hidden = yes
    1:10 `yes` is no value of TOML → write `true`, or quotes if it is a text

    rows_max = 0100
    1:12 a number does not begin with `0` → leave the `0` out; a text such as a postal code needs quotes

    rows_max = 1,000
    1:13 a number has no `,` between its digits → write `1000`, or `1_000`

    rows_max = 1 000
    1:12 this is no number, and a text needs quotes → write digits alone, or quotes: `"…"`

    rows_max = 10k
    1:12 this is no number, and a text needs quotes → write digits alone, or quotes: `"…"`

    rows_max = +-1
    1:13 this is no number → write digits, as in `100` or `0.5`; a text needs quotes

    rows_max = 1__0
    1:13 this is no number → write digits, as in `100` or `0.5`; a text needs quotes

    rows_max = 0X1F
    1:12 this is no number → write digits, as in `100` or `0.5`; a text needs quotes

    rows_max = 1.
    1:14 this is no number → write digits, as in `100` or `0.5`; a text needs quotes

    rows_max = .5
    1:12 this is no number → write digits, as in `100` or `0.5`; a text needs quotes

    rows_max = 99999999999999999999
    1:1 unknown key `rows_max` → it belongs in `[collections.NAME]` or `[tools.NAME]`

    rate = 600/min
    1:8 this is no number, and a text needs quotes → write digits alone, or quotes: `"…"`

    since = 2026-13-45
    1:9 this is no date or time → write it as in `2026-01-31`; a text needs quotes

    since = 2026-1-5
    1:9 this is no date or time → write it as in `2026-01-31`; a text needs quotes

    name == "x"
    1:7 a `=` too many → write `key = value`

    name := "x"
    1:6 a `:` where a `=` belongs → write `key = value`

    name: "x"
    1:5 a `:` where a `=` belongs → write `key = value`

    name "x"
    1:6 a key without a value → write `key = value`

    = 3
    1:1 a value without a key → write `key = value`

    name =
    1:7 there is no value → write one behind the `=`

    name
    1:5 a key without a value → write `key = value`

    filters = ["a" "b"]
    1:16 a `,` is missing in an array → or is it the `]` of the line before?

    filters = ["a",, "b"]
    1:16 a `,` too many → leave it out

    filters = ["a"
    1:15 an array has no `]` → write `]` behind its last value

    filters = ("a")
    1:11 an array stands between `[` and `]` → write `["a", "b"]`

    filters = "a", "b"
    1:14 several values are an array → write `[` before the first and `]` behind the last

    x = { a = 1 b = 2 }
    1:11 this is no number, and a text needs quotes → write digits alone, or quotes: `"…"`

    x = { a: 1 }
    1:8 a `:` where a `=` belongs → write `key = value`

    x = { "a": 1 }
    1:10 a `:` where a `=` belongs → write `key = value`

    x = { a = 1
    1:12 a `{` has no `}` → write `}` behind the last value

    filters = [a = 1]
    1:12 a text needs quotes → write it in quotes: `"…"`

    [server
    1:8 a header has no `]` → write `]` behind its name

    [[server
    1:9 a header has no `]` → write `]` behind its name

    [server]]
    1:9 something stands behind a header → write it on a line of its own

    [ser ver]
    1:5 a name with a blank in it needs quotes → write it in `"…"`, or `_` in place of the blank

    []
    1:2 a header without a name → write one, as in `[sources.crm]`

    [server] name = "x"
    1:10 something stands behind a header → write it on a line of its own

    <server>
    1:1 this looks like XML, and a manifest is TOML → write `[sources.NAME]` and below it `path = "…"`; `spile init` writes one for your data

    server:
      name: x
    1:7 this looks like YAML, and a manifest is TOML → write `[sources.NAME]` and below it `path = "…"`; `spile init` writes one for your data

    a.b c = 1
    1:5 a key without a value → write `key = value`

    ··name = 1
    1:1 there is an invisible character here (U+FEFF) → take it out, and write the line again if you do not find it

    Größe = 1
    1:3 this cannot stand in a key → write `key = value`; a key with other characters than letters, digits, `-` and `_` needs quotes

    a = 1 b = 2
    1:5 this is no number, and a text needs quotes → write digits alone, or quotes: `"…"`

    name = "x·"
    1:10 this text does not end on its line → end it with `"`; a text of several lines stands in `"""`
    "#);
}

#[test]
fn another_format() {
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

    1:1 this looks like JSON, and a manifest is TOML → write `[sources.NAME]` and below it `path = "…"`; `spile init` writes one for your data

    [{"a": 1}]
    1:2 this looks like JSON, and a manifest is TOML → write `[sources.NAME]` and below it `path = "…"`; `spile init` writes one for your data

    sources:
      crm:
        path: crm.db

    1:8 this looks like YAML, and a manifest is TOML → write `[sources.NAME]` and below it `path = "…"`; `spile init` writes one for your data

    ---
    sources:
      crm: 1

    1:4 this looks like YAML, and a manifest is TOML → write `[sources.NAME]` and below it `path = "…"`; `spile init` writes one for your data

    <sources/>
    1:1 this looks like XML, and a manifest is TOML → write `[sources.NAME]` and below it `path = "…"`; `spile init` writes one for your data
    "#);
}

proptest! {
    /// What the parser calls things is for those who know the grammar of TOML.
    #[test]
    fn nothing_is_told_without_a_way_out(text in "[a-c\\[\\]{}=,.:\"'\\\\0-9 \n#-]{0,30}") {
        if let Err(told) = parse("spile.toml", &text, &env) {
            for one in told {
                prop_assert!(one.help.is_some(), "{text:?}: {}", one.message);
            }
        }
    }
}

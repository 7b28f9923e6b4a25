//! Diagnostics for manifests that do not parse: syntax, variables, keys, types, limits.

use contract::diagnostic::{Severity, render_all};
use contract::manifest::{DIAGNOSTICS_MAX, TEXT_BYTES_MAX, parse};
use insta::assert_snapshot;
use proptest::prelude::*;

use crate::manifest::env;

/// All diagnostics for an invalid manifest.
pub fn render_diagnostics(text: &str) -> String {
    let told = parse("spile.toml", text, &env).expect_err(text);
    render_all(&told, false)
}

#[test]
fn an_unknown_key_suggests_the_nearest_one() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers]
filter = ["plan"]
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: unknown key `filter`
     --> spile.toml:4:1
      |
    4 | filter = ["plan"]
      | ^^^^^^
      = help: did you mean `filters`?
    "#);
}

#[test]
fn an_unknown_key_without_a_near_one_lists_known_keys() {
    let text = r#"
[server]
colour = "green"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: unknown key `colour`
     --> spile.toml:2:1
      |
    2 | colour = "green"
      | ^^^^^^
      = help: known keys: `name`, `title`, `instructions`, `call_timeout_ms`, `rate_limit`, `backups`, `memory_bytes_max`, `time_zone`, `tool_order` and `isolation`
    "#);
}

#[test]
fn rejects_an_unknown_section() {
    let text = r#"
[source.crm]
path = "crm.db"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: unknown key `source`
     --> spile.toml:1:2
      |
    1 | [source.crm]
      |  ^^^^^^
      = help: did you mean `sources`?
    ");
}

#[test]
fn rejects_a_key_of_another_table() {
    let text = r#"
[sources.crm]
path = "crm.db"
table = "customers"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: unknown key `table`
     --> spile.toml:3:1
      |
    3 | table = "customers"
      | ^^^^^
      = help: it belongs in `[collections.NAME]`
    "#);
}

#[test]
fn rejects_an_unset_variable() {
    let text = r#"
[sources.crm]
path = "data/${CRM_FOLDER}/crm.db"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: the variable `CRM_FOLDER` is not set
     --> spile.toml:2:14
      |
    2 | path = "data/${CRM_FOLDER}/crm.db"
      |              ^^^^^^^^^^^^^
      = help: set it, or add a default: `${CRM_FOLDER:-…}`
    "#);
}

#[test]
fn rejects_two_variables_in_a_text_with_escapes() {
    let text = r#"
[server]
name = "a\t${ONE}${TWO}"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: the variable `ONE` is not set
     --> spile.toml:2:8
      |
    2 | name = "a\t${ONE}${TWO}"
      |        ^^^^^^^^^^^^^^^^^
      = help: set it, or add a default: `${ONE:-…}`

    error: the variable `TWO` is not set
     --> spile.toml:2:8
      |
    2 | name = "a\t${ONE}${TWO}"
      |        ^^^^^^^^^^^^^^^^^
      = help: set it, or add a default: `${TWO:-…}`
    "#);
}

#[test]
fn rejects_an_unclosed_variable() {
    let text = r#"
[server]
name = "${DATA"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `${` has no `}`
     --> spile.toml:2:9
      |
    2 | name = "${DATA"
      |         ^^^^^^
      = help: write `$${` for a literal `${`
    "#);
}

#[test]
fn rejects_an_invalid_variable_name() {
    let text = r#"
[server]
name = "${not a name}"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `not a name` is not a valid variable name
     --> spile.toml:2:9
      |
    2 | name = "${not a name}"
      |         ^^^^^^^^^^^^^
      = help: write `${NAME}` or `${NAME:-default}`, or `$${` for a literal `${`
    "#);
}

#[test]
fn diagnostics_do_not_show_values_of_variables() {
    let text = r#"
[sources.crm]
kind = "${SECRET}"
path = "crm.db"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: unknown kind `${SECRET}`
     --> spile.toml:2:8
      |
    2 | kind = "${SECRET}"
      |        ^^^^^^^^^^^
      = help: known kinds: `sqlite`, `csv`, `xlsx`, `xls`, `ods`, `json`, `jsonl`, `parquet`, `postgres`, `mysql` and `rest`
    "#);
}

#[test]
fn rejects_a_number_for_a_text() {
    let text = r#"
[server]
name = 2026
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `name`: expected a string, found an integer
     --> spile.toml:2:8
      |
    2 | name = 2026
      |        ^^^^
      = help: write it in quotes: `"2026"`
    "#);
}

#[test]
fn rejects_a_text_for_a_number() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers]
rows_max = "200"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `rows_max`: expected an integer from 1 to 1000, found a string
     --> spile.toml:4:12
      |
    4 | rows_max = "200"
      |            ^^^^^
      = help: write `200` without quotes
    "#);
}

#[test]
fn rejects_a_number_that_is_too_large() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers]
rows_max = 5000
bytes_max = 12
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: `rows_max` must be from 1 to 1000
     --> spile.toml:4:12
      |
    4 | rows_max = 5000
      |            ^^^^
      = help: for more rows, callers use `cursor`

    error: `bytes_max` must be from 1024 to 1048576
     --> spile.toml:5:13
      |
    5 | bytes_max = 12
      |             ^^
    ");
}

#[test]
fn rejects_an_integer_with_too_many_digits() {
    let text = r#"
[server]
call_timeout_ms = 99999999999999999999
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: `call_timeout_ms` must be from 1 to 86400000
     --> spile.toml:2:19
      |
    2 | call_timeout_ms = 99999999999999999999
      |                   ^^^^^^^^^^^^^^^^^^^^
    ");
}

#[test]
fn rejects_a_timeout_of_zero() {
    let text = r#"
[server]
call_timeout_ms = 0
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: `call_timeout_ms` must be from 1 to 86400000
     --> spile.toml:2:19
      |
    2 | call_timeout_ms = 0
      |                   ^
    ");
}

#[test]
fn rejects_a_fraction_for_an_integer() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers]
rows_max = 1.5
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: `rows_max`: expected an integer from 1 to 1000, found a fraction
     --> spile.toml:4:12
      |
    4 | rows_max = 1.5
      |            ^^^
    ");
}

#[test]
fn rejects_a_boolean_in_quotes() {
    let text = r#"
[tools.lookup]
uses = "customers.get"
hidden = "true"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `hidden`: expected `true` or `false`, found a string
     --> spile.toml:3:10
      |
    3 | hidden = "true"
      |          ^^^^^^
      = help: write `true` without quotes
    "#);
}

#[test]
fn rejects_a_filter_without_brackets() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers]
filters = "plan"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `filters`: expected an array of field names, `true` or `false`, found a string
     --> spile.toml:4:11
      |
    4 | filters = "plan"
      |           ^^^^^^
      = help: write `["plan"]`
    "#);
}

#[test]
fn rejects_a_number_among_filters() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers]
filters = ["plan", 7, "plan"]
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `filters`: expected a string, found an integer
     --> spile.toml:4:20
      |
    4 | filters = ["plan", 7, "plan"]
      |                    ^
      = help: write it in quotes: `"7"`

    error: listed twice
     --> spile.toml:4:23
      |
    4 | filters = ["plan", 7, "plan"]
      |                       ^^^^^^
      = help: keep one of them
    "#);
}

#[test]
fn rejects_an_empty_key() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers]
key = []
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: `key` is empty
     --> spile.toml:4:7
      |
    4 | key = []
      |       ^^
      = help: list at least one, or remove the key
    ");
}

#[test]
fn rejects_an_array_of_tables() {
    let text = r#"
[[collections]]
name = "customers"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: `collections` is an array of tables
     --> spile.toml:1:3
      |
    1 | [[collections]]
      |   ^^^^^^^^^^^
      = help: use single brackets: `[collections.customers]`
    ");
}

#[test]
fn rejects_a_section_that_is_not_a_table() {
    let text = r#"
sources = "crm.db"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `sources`: expected a table such as `[sources.crm]`, found a string
     --> spile.toml:1:11
      |
    1 | sources = "crm.db"
      |           ^^^^^^^^
    "#);
}

#[test]
fn rejects_a_duplicate_key() {
    let text = r#"
[server]
name = "a"
nam = "b"
name = "c"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: unknown key `nam`
     --> spile.toml:3:1
      |
    3 | nam = "b"
      | ^^^
      = help: did you mean `name`?

    error: `name` is defined twice
     --> spile.toml:4:1
      |
    4 | name = "c"
      | ^^^^
      = help: keep one of them
    "#);
}

#[test]
fn rejects_a_duplicate_table() {
    let text = r#"
[sources.crm]
path = "crm.db"
[sources.crm]
path = "shop.db"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: `crm` is defined twice
     --> spile.toml:3:10
      |
    3 | [sources.crm]
      |          ^^^
      = help: keep one of them
    ");
}

#[test]
fn rejects_a_text_without_quotes() {
    let text = r#"
[server]
name = customers
title = also this
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: a string needs quotes
     --> spile.toml:2:8
      |
    2 | name = customers
      |        ^^^^^^^^^
      = help: add quotes: `"…"`

    error: a string needs quotes
     --> spile.toml:3:9
      |
    3 | title = also this
      |         ^^^^^^^^^
      = help: add quotes: `"…"`
    "#);
}

#[test]
fn rejects_an_unclosed_string() {
    let text = r#"
[server]
name = "customers
title = "Customers"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: this string is not closed on its line
     --> spile.toml:2:18
      |
    2 | name = "customers
      |                  ^
      = help: end it with `"`; write a string of several lines in `"""`
    "#);
}

#[test]
fn rejects_a_path_with_single_backslashes() {
    let text = r#"
[sources.crm]
path = "C:\data\crm.db"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: a `\` in double quotes starts an escape, and this one is invalid
     --> spile.toml:2:12
      |
    2 | path = "C:\data\crm.db"
      |            ^
      = help: write the string in single quotes, as in `'C:\data'`, or double each `\`
    "#);
}

#[test]
fn rejects_an_unclosed_array() {
    let text = r#"
[collections.customers]
filters = ["plan", "email"
rows_max = 10
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: a `,` is missing in an array
     --> spile.toml:3:1
      |
    3 | rows_max = 10
      | ^
      = help: add it, or the `]` of the line before
    ");
}

#[test]
fn rejects_a_key_without_a_value() {
    let text = r#"
[server]
name
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: the key has no value
     --> spile.toml:2:5
      |
    2 | name
      |     ^
      = help: write `key = value`
    ");
}

#[test]
fn rejects_an_unclosed_header() {
    let text = r#"
[server
name = "a"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: this header is not closed
     --> spile.toml:1:8
      |
    1 | [server
      |        ^
      = help: add `]` after its name
    ");
}

#[test]
fn rejects_a_line_of_another_format() {
    let text = r#"
name: customers
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: found `:` where `=` is expected
     --> spile.toml:1:5
      |
    1 | name: customers
      |     ^
      = help: write `key = value`
    ");
}

#[test]
fn diagnostics_beyond_the_limit_are_counted() {
    let text: String = (0..DIAGNOSTICS_MAX + 7).map(|i| format!("mistake_{i} = 1\n")).collect();
    let told = render_diagnostics(&text);
    assert_eq!(told.matches("error: unknown key").count(), DIAGNOSTICS_MAX);
    assert!(told.ends_with("note: and 7 more\n"), "{told}");
}

#[test]
fn an_error_is_reported_before_warnings() {
    let tool = |i| format!("[tools.t{i}]\nuses = 'a.get'\nhidden = true\ntitle = 'x'\n");
    let text: String = (0..DIAGNOSTICS_MAX + 7).map(tool).collect();
    assert!(parse("spile.toml", &text, &env).is_ok());
    assert!(render_diagnostics(&format!("{text}mistake = 1")).starts_with("error: unknown key `mistake`"));
}

#[test]
fn rejects_a_manifest_that_is_too_large() {
    let text = "#".repeat(TEXT_BYTES_MAX);
    assert!(parse("spile.toml", &text, &env).is_ok());
    assert_snapshot!(render_diagnostics(&format!("{text}#")), @"error: `spile.toml` exceeds the limit of 4 MiB");
}

proptest! {
    #[test]
    fn parse_never_panics_and_every_error_has_help(
        text in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..40),
    ) {
        let text = text.concat();
        match parse("spile.toml", &text, &env) {
            Ok((_, told)) => prop_assert!(told.iter().all(|one| one.severity != Severity::Error)),
            Err(told) => {
                prop_assert!(told.iter().any(|one| one.severity == Severity::Error));
                prop_assert!(!render_all(&told, true).is_empty());
            }
        }
    }
}

const PIECES: [&str; 44] = [
    "\n",
    "\r\n",
    " ",
    "\t",
    "[",
    "]",
    "{",
    "}",
    "=",
    ".",
    ",",
    "\"",
    "'",
    "\"\"\"",
    "#",
    "\\",
    "\n[",
    "]\n",
    " = ",
    "server",
    "sources",
    "collections",
    "tools",
    "fields",
    "name",
    "path",
    "kind",
    "key",
    "uses",
    "filters",
    "enum",
    "rows_max",
    "hidden",
    "\"a.csv\"",
    "\"${DATA}\"",
    "${",
    "$${",
    "a",
    "ö",
    "顧",
    "\u{feff}",
    "7",
    "true",
    "2026-01-01",
];

/// A diagnostic counts once, whatever names are in it.
#[test]
fn at_least_a_hundred_distinct_diagnostics_are_tested() {
    let files = [
        include_str!("bad_manifests.rs"),
        include_str!("bad_sections.rs"),
        include_str!("bad_sources.rs"),
        include_str!("bad_collections.rs"),
        include_str!("bad_tools.rs"),
        include_str!("bad_contracts.rs"),
        include_str!("bad_operations.rs"),
    ];
    let lines = files.iter().flat_map(|file| file.lines()).map(str::trim_start);
    let told = lines.filter(|line| line.starts_with("error: ") || line.starts_with("warning: "));
    let without_names = told.map(|line| {
        let outside = line.split('`').step_by(2).collect::<String>();
        outside.replace(|c: char| c.is_ascii_digit(), "")
    });
    let different: std::collections::BTreeSet<String> = without_names.collect();
    assert!(different.len() >= 100, "{} are left: {different:#?}", different.len());
}

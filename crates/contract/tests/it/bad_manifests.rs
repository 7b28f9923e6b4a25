//! Manifests that cannot be read, and what their author is told: syntax, variables, keys, types, limits.

use contract::diagnostic::{Severity, render_all};
use contract::manifest::{DIAGNOSTICS_MAX, TEXT_BYTES_MAX, parse};
use insta::assert_snapshot;
use proptest::prelude::*;

use crate::manifest::env;

/// Everything that is told about a text that is no manifest.
pub fn render_diagnostics(text: &str) -> String {
    let told = parse("spile.toml", text, &env).expect_err(text);
    render_all(&told, false)
}

#[test]
fn an_unknown_key_names_the_nearest_one() {
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
fn an_unknown_key_without_a_near_one_lists_what_there_is() {
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
      = help: known here: `name`, `title`, `instructions`, `call_timeout_ms` and `rate_limit`
    "#);
}

#[test]
fn an_unknown_section() {
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
fn a_key_of_another_table() {
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
fn an_unset_variable() {
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
      = help: set it, or give it a default: `${CRM_FOLDER:-…}`
    "#);
}

#[test]
fn two_variables_in_a_text_with_escapes() {
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
      = help: set it, or give it a default: `${ONE:-…}`

    error: the variable `TWO` is not set
     --> spile.toml:2:8
      |
    2 | name = "a\t${ONE}${TWO}"
      |        ^^^^^^^^^^^^^^^^^
      = help: set it, or give it a default: `${TWO:-…}`
    "#);
}

#[test]
fn a_variable_without_its_end() {
    let text = r#"
[server]
name = "${DATA"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `${` without its `}`
     --> spile.toml:2:9
      |
    2 | name = "${DATA"
      |         ^^^^^^
      = help: write `$${` for a literal `${`
    "#);
}

#[test]
fn something_that_is_no_variable() {
    let text = r#"
[server]
name = "${not a name}"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `not a name` is not the name of a variable
     --> spile.toml:2:9
      |
    2 | name = "${not a name}"
      |         ^^^^^^^^^^^^^
      = help: write `${NAME}` or `${NAME:-default}`, or `$${` for a literal `${`
    "#);
}

#[test]
fn a_secret_is_not_told() {
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
      = help: known here: `sqlite`, `csv`, `xlsx`, `xls`, `ods`, `json` and `jsonl`
    "#);
}

#[test]
fn a_number_where_a_text_belongs() {
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
fn a_text_where_a_number_belongs() {
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
fn a_number_that_is_too_large() {
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

    error: `bytes_max` must be from 1024 to 1048576
     --> spile.toml:5:13
      |
    5 | bytes_max = 12
      |             ^^
    ");
}

#[test]
fn a_number_of_too_many_digits() {
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
fn no_time_at_all() {
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
fn a_fraction_of_a_row() {
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
fn a_flag_in_quotes() {
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
fn one_filter_without_brackets() {
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
fn a_number_among_filters() {
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
      = help: keep one of the two
    "#);
}

#[test]
fn an_empty_key() {
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
      = help: name at least one, or leave the key out
    ");
}

#[test]
fn tables_in_an_array() {
    let text = r#"
[[collections]]
name = "customers"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: `collections` is there as a list
     --> spile.toml:1:3
      |
    1 | [[collections]]
      |   ^^^^^^^^^^^
      = help: write it with single brackets: `[collections.customers]`
    ");
}

#[test]
fn a_section_that_is_no_table() {
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
fn a_key_that_is_there_twice() {
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

    error: `name` is there twice
     --> spile.toml:4:1
      |
    4 | name = "c"
      | ^^^^
      = help: keep one of the two
    "#);
}

#[test]
fn a_table_that_is_there_twice() {
    let text = r#"
[sources.crm]
path = "crm.db"
[sources.crm]
path = "shop.db"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: `crm` is there twice
     --> spile.toml:3:10
      |
    3 | [sources.crm]
      |          ^^^
      = help: keep one of the two
    ");
}

#[test]
fn a_text_without_quotes() {
    let text = r#"
[server]
name = customers
title = also this
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: a text needs quotes
     --> spile.toml:2:8
      |
    2 | name = customers
      |        ^^^^^^^^^
      = help: write it in quotes: `"…"`

    error: a text needs quotes
     --> spile.toml:3:9
      |
    3 | title = also this
      |         ^^^^^^^^^
      = help: write it in quotes: `"…"`
    "#);
}

#[test]
fn a_text_that_does_not_end() {
    let text = r#"
[server]
name = "customers
title = "Customers"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: this text does not end on its line
     --> spile.toml:2:18
      |
    2 | name = "customers
      |                  ^
      = help: end it with `"`; a text of several lines stands in `"""`
    "#);
}

#[test]
fn a_path_with_single_backslashes() {
    let text = r#"
[sources.crm]
path = "C:\data\crm.db"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: a `\` in double quotes must be followed by one of its letters
     --> spile.toml:2:12
      |
    2 | path = "C:\data\crm.db"
      |            ^
      = help: write the text in single quotes, as in `'C:\data'`, or each `\` twice
    "#);
}

#[test]
fn an_array_that_does_not_end() {
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
      = help: or is it the `]` of the line before?
    ");
}

#[test]
fn a_key_without_a_value() {
    let text = r#"
[server]
name
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: a key without a value
     --> spile.toml:2:5
      |
    2 | name
      |     ^
      = help: write `key = value`
    ");
}

#[test]
fn a_header_that_does_not_end() {
    let text = r#"
[server
name = "a"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: a header has no `]`
     --> spile.toml:1:8
      |
    1 | [server
      |        ^
      = help: write `]` behind its name
    ");
}

#[test]
fn a_line_in_another_language() {
    let text = r#"
name: customers
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @"
    error: a `:` where a `=` belongs
     --> spile.toml:1:5
      |
    1 | name: customers
      |     ^
      = help: write `key = value`
    ");
}

#[test]
fn many_mistakes_are_counted() {
    let text: String = (0..DIAGNOSTICS_MAX + 7).map(|i| format!("mistake_{i} = 1\n")).collect();
    let told = render_diagnostics(&text);
    assert_eq!(told.matches("error: unknown key").count(), DIAGNOSTICS_MAX);
    assert!(told.ends_with("note: and 7 more\n"), "{told}");
}

#[test]
fn an_error_is_not_lost_behind_warnings() {
    let tool = |i| format!("[tools.t{i}]\nuses = 'a.get'\nhidden = true\ntitle = 'x'\n");
    let text: String = (0..DIAGNOSTICS_MAX + 7).map(tool).collect();
    assert!(parse("spile.toml", &text, &env).is_ok());
    assert!(render_diagnostics(&format!("{text}mistake = 1")).starts_with("error: unknown key `mistake`"));
}

#[test]
fn a_manifest_has_a_largest_size() {
    let text = "#".repeat(TEXT_BYTES_MAX);
    assert!(parse("spile.toml", &text, &env).is_ok());
    assert_snapshot!(render_diagnostics(&format!("{text}#")), @r"
    error: `spile.toml` is longer than 4 MiB
    ");
}

proptest! {
    #[test]
    fn whatever_is_written_is_told_and_nothing_breaks(
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

/// What is told counts once, whatever names are in it.
#[test]
fn there_are_at_least_a_hundred_different_things_to_be_told() {
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

//! Sources and servers that make no sense, and what their author is told.

use insta::assert_snapshot;

use crate::bad_manifests::render_diagnostics;

fn diagnostics_of(text: &str) -> String {
    render_diagnostics(text.trim_start())
}

#[test]
fn what_is_for_csv_on_a_workbook() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.xlsx"
delimiter = ";"
null = "-"
formulas = "keep"
"#), @r#"
    error: `delimiter` is for sources of the kind `csv`, and this one is `xlsx`
     --> spile.toml:3:1
      |
    3 | delimiter = ";"
      | ^^^^^^^^^
      = help: leave it out

    error: `null` is for sources of the kind `csv`, and this one is `xlsx`
     --> spile.toml:4:1
      |
    4 | null = "-"
      | ^^^^
      = help: write it for the collection, or for one of its fields

    error: `formulas` is for sources of the kind `csv`, and this one is `xlsx`
     --> spile.toml:5:1
      |
    5 | formulas = "keep"
      | ^^^^^^^^
      = help: leave it out
    "#);
}

#[test]
fn a_pointer_for_json_lines() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.jsonl"
at = "/items"
"#), @r#"
    error: `at` is for sources of the kind `json`, and this one is `jsonl`
     --> spile.toml:3:1
      |
    3 | at = "/items"
      | ^^
      = help: leave it out: each line is a record
    "#);
}

#[test]
fn a_pointer_for_a_database() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.db"
at = "/items"
"#), @r#"
    error: `at` is for sources of the kind `json`, and this one is `sqlite`
     --> spile.toml:3:1
      |
    3 | at = "/items"
      | ^^
      = help: leave it out
    "#);
}

#[test]
fn a_path_of_jsonpath_is_no_pointer() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.json"
at = "$.data.items[*]"
"#), @r#"
    error: `$.data.items[*]` is not a JSON pointer
     --> spile.toml:3:6
      |
    3 | at = "$.data.items[*]"
      |      ^^^^^^^^^^^^^^^^^
      = help: write a `/` before each name: `/data/items`
    "#);
}

#[test]
fn a_pointer_without_its_slash() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.json"
at = "data.items"
"#), @r#"
    error: `data.items` is not a JSON pointer
     --> spile.toml:3:6
      |
    3 | at = "data.items"
      |      ^^^^^^^^^^^^
      = help: write a `/` before each name: `/data/items`
    "#);
}

#[test]
fn a_pointer_with_a_lone_tilde() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.json"
at = "/a~b"
"#), @r#"
    error: `/a~b` is not a JSON pointer
     --> spile.toml:3:6
      |
    3 | at = "/a~b"
      |      ^^^^^^
      = help: `~` is written `~0`, and a `/` in a name `~1`
    "#);
}

#[test]
fn formulas_are_kept_or_refused() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.csv"
formulas = "allow"
"#), @r#"
    error: `formulas` cannot be `allow`
     --> spile.toml:3:12
      |
    3 | formulas = "allow"
      |            ^^^^^^^
      = help: write `refuse` or `keep`
    "#);
}

#[test]
fn formulas_are_no_boolean() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.csv"
formulas = true
"#), @r"
    error: `formulas`: expected `refuse` or `keep`, found a boolean
     --> spile.toml:3:12
      |
    3 | formulas = true
      |            ^^^^
      = help: write it in quotes
    ");
}

#[test]
fn a_kind_by_the_name_of_its_program() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
kind = "excel"
path = "crm.xlsx"
"#), @r#"
    error: unknown kind `excel`
     --> spile.toml:2:8
      |
    2 | kind = "excel"
      |        ^^^^^^^
      = help: did you mean `xlsx`?
    "#);
}

#[test]
fn a_kind_by_another_ending() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
kind = "tsv"
path = "crm.tsv"
"#), @r#"
    error: unknown kind `tsv`
     --> spile.toml:2:8
      |
    2 | kind = "tsv"
      |        ^^^^^
      = help: did you mean `csv`?
    "#);
}

#[test]
fn a_source_that_says_type() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
type = "csv"
path = "crm.csv"
"#), @r#"
    error: unknown key `type`
     --> spile.toml:2:1
      |
    2 | type = "csv"
      | ^^^^
      = help: did you mean `kind`, as in `kind = "sqlite"`?
    "#);
}

#[test]
fn a_source_that_says_file() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
kind = "csv"
file = "crm.csv"
"#), @r#"
    error: `crm` has no `path`
     --> spile.toml:1:10
      |
    1 | [sources.crm]
      |          ^^^
      = help: add a line such as `path = "customers.csv"`

    error: unknown key `file`
     --> spile.toml:3:1
      |
    3 | file = "crm.csv"
      | ^^^^
      = help: did you mean `path`, as in `path = "data/crm.db"`?
    "#);
}

#[test]
fn sources_as_a_list() {
    assert_snapshot!(diagnostics_of(r#"
[[sources]]
name = "crm"
path = "crm.csv"
"#), @r"
    error: `sources` is there as a list
     --> spile.toml:1:3
      |
    1 | [[sources]]
      |   ^^^^^^^
      = help: write it with single brackets: `[sources.crm]`
    ");
}

#[test]
fn what_is_known_elsewhere() {
    assert_snapshot!(diagnostics_of(r#"
rows_max = 10
[server]
key = "email"
"#), @r#"
    error: unknown key `rows_max`
     --> spile.toml:1:1
      |
    1 | rows_max = 10
      | ^^^^^^^^
      = help: it belongs in `[collections.NAME]` or `[tools.NAME]`

    error: unknown key `key`
     --> spile.toml:3:1
      |
    3 | key = "email"
      | ^^^
      = help: it belongs in `[collections.NAME]`
    "#);
}

#[test]
fn a_key_in_another_case() {
    assert_snapshot!(diagnostics_of(r#"
[server]
Name = "crm"
Rate-Limit = "60/min"
"#), @r#"
    error: unknown key `Name`
     --> spile.toml:2:1
      |
    2 | Name = "crm"
      | ^^^^
      = help: did you mean `name`?

    error: unknown key `Rate-Limit`
     --> spile.toml:3:1
      |
    3 | Rate-Limit = "60/min"
      | ^^^^^^^^^^
      = help: did you mean `rate_limit`?
    "#);
}

#[test]
fn a_rate_that_is_a_number() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = 60
"#), @r#"
    error: `rate_limit`: expected a text such as `"60/min"`, found an integer
     --> spile.toml:2:14
      |
    2 | rate_limit = 60
      |              ^^
      = help: write calls and a time: `"60/min"`
    "#);
}

#[test]
fn a_rate_without_a_time() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = "60"
"#), @r#"
    error: `60` is not so many calls in so long a time: there is no `/`
     --> spile.toml:2:14
      |
    2 | rate_limit = "60"
      |              ^^^^
      = help: write it as `60/min`; also `s`, `h` and `day`
    "#);
}

#[test]
fn a_rate_of_an_unknown_time() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = "60/fortnight"
"#), @r#"
    error: `60/fortnight` is not so many calls in so long a time: `fortnight` is no time
     --> spile.toml:2:14
      |
    2 | rate_limit = "60/fortnight"
      |              ^^^^^^^^^^^^^^
      = help: write `s`, `min`, `h` or `day` behind the `/`
    "#);
}

#[test]
fn a_rate_with_a_slip() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = "60/mintue"
"#), @r#"
    error: `60/mintue` is not so many calls in so long a time: `mintue` is no time
     --> spile.toml:2:14
      |
    2 | rate_limit = "60/mintue"
      |              ^^^^^^^^^^^
      = help: did you mean `60/minute`?
    "#);
}

#[test]
fn a_rate_of_nothing() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = "0/min"
"#), @r#"
    error: `0/min` is not so many calls in so long a time: no call at all would be let through
     --> spile.toml:2:14
      |
    2 | rate_limit = "0/min"
      |              ^^^^^^^
      = help: leave the tool out with `hidden = true`
    "#);
}

#[test]
fn a_rate_of_a_fraction() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = "0.5/s"
"#), @r#"
    error: `0.5/s` is not so many calls in so long a time: `0.5` is no number of calls
     --> spile.toml:2:14
      |
    2 | rate_limit = "0.5/s"
      |              ^^^^^^^
      = help: write a whole number of calls, in a longer time if need be: `60/h`
    "#);
}

#[test]
fn a_rate_beyond_all() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = "5000000/s"
"#), @r#"
    error: `5000000/s` is not so many calls in so long a time: more calls than any server answers
     --> spile.toml:2:14
      |
    2 | rate_limit = "5000000/s"
      |              ^^^^^^^^^^^
      = help: 1000000 are the most; leave it out for no limit
    "#);
}

#[test]
fn a_server_that_says_description() {
    assert_snapshot!(diagnostics_of(r#"
[server]
description = "Customers by email."
timeout = 30
"#), @r#"
    error: unknown key `description`
     --> spile.toml:2:1
      |
    2 | description = "Customers by email."
      | ^^^^^^^^^^^
      = help: did you mean `instructions`, as in `instructions = "Customer records by email. Plans: free, emerald, ruby."`?

    error: unknown key `timeout`
     --> spile.toml:3:1
      |
    3 | timeout = 30
      | ^^^^^^^
      = help: did you mean `call_timeout_ms`, as in `call_timeout_ms = 30000`?
    "#);
}

#[test]
fn a_file_of_one_table() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.csv"
[collections.customers]
table = "customers"
"#), @r#"
    error: `table` is for sources of the kind `sqlite`, and this one is `csv`
     --> spile.toml:4:1
      |
    4 | table = "customers"
      | ^^^^^
      = help: leave it out: such a file is one table
    "#);
}

//! Diagnostics for invalid sources and servers.

use insta::assert_snapshot;

use crate::bad_manifests::render_diagnostics;

fn diagnostics_of(text: &str) -> String {
    render_diagnostics(text.trim_start())
}

#[test]
fn rejects_csv_settings_of_a_workbook() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.xlsx"
delimiter = ";"
null = "-"
formulas = "keep"
"#), @r#"
    error: `delimiter` is only for sources of the kind `csv`, and this one is `xlsx`
     --> spile.toml:3:1
      |
    3 | delimiter = ";"
      | ^^^^^^^^^
      = help: remove it

    error: `null` is only for sources of the kind `csv`, and this one is `xlsx`
     --> spile.toml:4:1
      |
    4 | null = "-"
      | ^^^^
      = help: move it to the collection, or to one of its fields

    error: `formulas` is only for sources of the kind `csv`, and this one is `xlsx`
     --> spile.toml:5:1
      |
    5 | formulas = "keep"
      | ^^^^^^^^
      = help: remove it
    "#);
}

#[test]
fn rejects_roles_and_settings_that_claims_must_not_choose() {
    assert_snapshot!(diagnostics_of(r#"
[sources.a]
url = "postgres://gateway@db.example.com/shop"
role_from = "db_role"
settings = { role = { claim = "/role" }, "row_security" = "off", "App.tenant" = "x", "request.jwt.claims" = "{}", "app.x" = { claim = "tenant" } }
[sources.b]
url = "mysql://gateway@db.example.com/shop"
role_from = "/db_role"
settings = { "app.tenant" = { claim = "/tenant" } }
"#), @r#"
    error: `db_role` is not a JSON pointer into the claims
     --> spile.toml:3:13
      |
    3 | role_from = "db_role"
      |             ^^^^^^^^^
      = help: write `"/db_role"`

    error: `role` is not the name of a setting of your own
     --> spile.toml:4:14
      |
    4 | settings = { role = { claim = "/role" }, "row_security" = "off", "App.tenant" = "x", "request.jwt.c…
      |              ^^^^
      = help: write a name with a dot, in lower case: `app.tenant`; `request.jwt.claims` is always set

    error: `row_security` is not the name of a setting of your own
     --> spile.toml:4:42
      |
    4 | … role = { claim = "/role" }, "row_security" = "off", "App.tenant" = "x", "request.jwt.claims" = "{…
      |                               ^^^^^^^^^^^^^^
      = help: write a name with a dot, in lower case: `app.tenant`; `request.jwt.claims` is always set

    error: `App.tenant` is not the name of a setting of your own
     --> spile.toml:4:66
      |
    4 | …" }, "row_security" = "off", "App.tenant" = "x", "request.jwt.claims" = "{}", "app.x" = { claim = …
      |                               ^^^^^^^^^^^^
      = help: write a name with a dot, in lower case: `app.tenant`; `request.jwt.claims` is always set

    error: `request.jwt.claims` is not the name of a setting of your own
     --> spile.toml:4:86
      |
    4 | …= "off", "App.tenant" = "x", "request.jwt.claims" = "{}", "app.x" = { claim = "tenant" } }
      |                               ^^^^^^^^^^^^^^^^^^^^
      = help: write a name with a dot, in lower case: `app.tenant`; `request.jwt.claims` is always set

    error: `tenant` is not a JSON pointer into the claims
     --> spile.toml:4:125
      |
    4 | …wt.claims" = "{}", "app.x" = { claim = "tenant" } }
      |                               ^^^^^^^^^^^^^^^^^^^^
      = help: write `"/tenant"`

    error: `role_from` is only for sources of the kind `postgres`, and this one is `mysql`
     --> spile.toml:7:1
      |
    7 | role_from = "/db_role"
      | ^^^^^^^^^
      = help: remove it

    error: `settings` is only for sources of the kind `postgres`, and this one is `mysql`
     --> spile.toml:8:1
      |
    8 | settings = { "app.tenant" = { claim = "/tenant" } }
      | ^^^^^^^^
      = help: remove it
    "#);
}

#[test]
fn rejects_urls() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "postgres://eve:secret@db.example.com/crm"
[sources.web]
path = "https://example.com/people.csv"
[sources.local]
kind = "sqlite"
path = "file:///srv/crm.db"
[sources.rest]
kind = "rest"
path = "https://example.com/people"
"#), @r#"
    error: `path` is for files, and this is the URL of a database
     --> spile.toml:2:8
      |
    2 | path = "postgres://eve:secret@db.example.com/crm"
      |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: write `url` instead of `path`

    error: `https://example.com/people.csv` is a URL, but the path of a source must be a file
     --> spile.toml:4:8
      |
    4 | path = "https://example.com/people.csv"
      |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: data on the web is a source of the kind `rest`: write `kind = "rest"` and `url`

    error: `file:///srv/crm.db` is a URL, but the path of a source must be a file
     --> spile.toml:7:8
      |
    7 | path = "file:///srv/crm.db"
      |        ^^^^^^^^^^^^^^^^^^^^
      = help: write the path without `file://`: `/srv/crm.db`

    error: `rest` has no `url`
     --> spile.toml:8:10
      |
    8 | [sources.rest]
      |          ^^^^
      = help: add a line such as `url = "https://api.example.com/v2"`

    error: `path` is only for sources of the kind `sqlite`, `csv`, `xlsx`, `xls`, `ods`, `json`, `jsonl` or `parquet`, and this one is `rest`
      --> spile.toml:10:1
       |
    10 | path = "https://example.com/people"
       | ^^^^
       = help: write `url` instead
    "#);
}

#[test]
fn rejects_a_pointer_for_json_lines() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.jsonl"
at = "/items"
"#), @r#"
    error: `at` is only for sources of the kind `json`, and this one is `jsonl`
     --> spile.toml:3:1
      |
    3 | at = "/items"
      | ^^
      = help: remove it: each line is a row
    "#);
}

#[test]
fn rejects_a_pointer_for_a_database() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.db"
at = "/items"
"#), @r#"
    error: `at` is only for sources of the kind `json`, and this one is `sqlite`
     --> spile.toml:3:1
      |
    3 | at = "/items"
      | ^^
      = help: remove it
    "#);
}

#[test]
fn suggests_a_pointer_for_a_jsonpath() {
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
fn rejects_a_pointer_without_a_slash() {
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
fn rejects_a_pointer_with_a_lone_tilde() {
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
      = help: write `~0` for `~`, and `~1` for a `/` in a name
    "#);
}

#[test]
fn rejects_an_unknown_value_of_formulas() {
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
fn rejects_a_boolean_for_formulas() {
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
fn suggests_a_kind_for_the_name_of_a_program() {
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
fn suggests_a_kind_for_an_extension() {
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
fn suggests_kind_for_type() {
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
fn suggests_path_for_file() {
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
fn rejects_sources_as_a_list() {
    assert_snapshot!(diagnostics_of(r#"
[[sources]]
name = "crm"
path = "crm.csv"
"#), @r"
    error: `sources` is an array of tables
     --> spile.toml:1:3
      |
    1 | [[sources]]
      |   ^^^^^^^
      = help: use single brackets: `[sources.crm]`
    ");
}

#[test]
fn names_the_section_that_has_an_unknown_key() {
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
      = help: it belongs in `[collections.NAME]`, `[collections.NAME.related.NAME]` or `[tools.NAME]`

    error: unknown key `key`
     --> spile.toml:3:1
      |
    3 | key = "email"
      | ^^^
      = help: it belongs in `[collections.NAME]`
    "#);
}

#[test]
fn suggests_a_key_in_another_case() {
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
fn rejects_a_rate_that_is_a_number() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = 60
"#), @r#"
    error: `rate_limit`: expected a text such as `"60/min"`, found an integer
     --> spile.toml:2:14
      |
    2 | rate_limit = 60
      |              ^^
      = help: write a number of calls and a unit: `"60/min"`
    "#);
}

#[test]
fn rejects_a_rate_without_a_unit() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = "60"
"#), @r#"
    error: `60` is not a rate limit: it has no `/`
     --> spile.toml:2:14
      |
    2 | rate_limit = "60"
      |              ^^^^
      = help: write `60/min`; other units are `s`, `h` and `day`
    "#);
}

#[test]
fn rejects_a_rate_with_an_unknown_unit() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = "60/fortnight"
"#), @r#"
    error: `60/fortnight` is not a rate limit: unknown unit `fortnight`
     --> spile.toml:2:14
      |
    2 | rate_limit = "60/fortnight"
      |              ^^^^^^^^^^^^^^
      = help: write `s`, `min`, `h` or `day` after the `/`
    "#);
}

#[test]
fn suggests_a_unit_for_a_typo() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = "60/mintue"
"#), @r#"
    error: `60/mintue` is not a rate limit: unknown unit `mintue`
     --> spile.toml:2:14
      |
    2 | rate_limit = "60/mintue"
      |              ^^^^^^^^^^^
      = help: did you mean `60/minute`?
    "#);
}

#[test]
fn rejects_a_rate_of_zero() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = "0/min"
"#), @r#"
    error: `0/min` is not a rate limit: it would refuse every call
     --> spile.toml:2:14
      |
    2 | rate_limit = "0/min"
      |              ^^^^^^^
      = help: remove the tool with `hidden = true`
    "#);
}

#[test]
fn rejects_a_rate_of_a_fraction() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = "0.5/s"
"#), @r#"
    error: `0.5/s` is not a rate limit: `0.5` is not a number of calls
     --> spile.toml:2:14
      |
    2 | rate_limit = "0.5/s"
      |              ^^^^^^^
      = help: write an integer, with a longer unit if necessary: `60/h`
    "#);
}

#[test]
fn rejects_a_rate_beyond_the_limit() {
    assert_snapshot!(diagnostics_of(r#"
[server]
rate_limit = "5000000/s"
"#), @r#"
    error: `5000000/s` is not a rate limit: it has too many calls
     --> spile.toml:2:14
      |
    2 | rate_limit = "5000000/s"
      |              ^^^^^^^^^^^
      = help: the limit is 1000000 calls; remove the key for no limit
    "#);
}

#[test]
fn suggests_instructions_for_description() {
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
fn rejects_a_table_of_a_single_table_file() {
    assert_snapshot!(diagnostics_of(r#"
[sources.crm]
path = "crm.csv"
[collections.customers]
table = "customers"
"#), @r#"
    error: `table` is only for sources of the kind `sqlite`, `postgres` or `mysql`, and this one is `csv`
     --> spile.toml:4:1
      |
    4 | table = "customers"
      | ^^^^^
      = help: remove it: such a file is one table
    "#);
}

//! Manifests that can be read and make no sense, table by table, and what their author is told.

use contract::diagnostic::render_all;
use contract::manifest::parse;
use insta::assert_snapshot;

use crate::bad_manifests::render_diagnostics;
use crate::manifest::env;

#[test]
fn an_unknown_kind() {
    let text = r#"
[sources.crm]
kind = "sqllite"
path = "crm"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: unknown kind `sqllite`
     --> spile.toml:2:8
      |
    2 | kind = "sqllite"
      |        ^^^^^^^^^
      = help: did you mean `sqlite`?
    "#);
}

#[test]
fn a_kind_of_a_later_version() {
    let text = r#"
[sources.crm]
kind = "postgres"
url = "postgres://localhost/crm"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: sources of the kind `postgres` are not in this version yet
     --> spile.toml:2:8
      |
    2 | kind = "postgres"
      |        ^^^^^^^^^^
      = help: this version reads `sqlite`, `csv`, `xlsx`, `xls`, `ods`, `json` and `jsonl`
    "#);
}

#[test]
fn an_ending_that_tells_nothing() {
    let text = r#"
[sources.crm]
path = "data/export.bin"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: the ending of `data/export.bin` does not tell what it is
     --> spile.toml:2:8
      |
    2 | path = "data/export.bin"
      |        ^^^^^^^^^^^^^^^^^
      = help: add `kind = "…"` with one of `sqlite`, `csv`, `xlsx`, `xls`, `ods`, `json` and `jsonl`
    "#);
}

#[test]
fn a_source_without_a_path() {
    let text = r#"
[sources.crm]
kind = "csv"
[sources.other]
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `crm` has no `path`
     --> spile.toml:1:10
      |
    1 | [sources.crm]
      |          ^^^
      = help: add a line such as `path = "customers.csv"`

    error: `other` has no `path`
     --> spile.toml:3:10
      |
    3 | [sources.other]
      |          ^^^^^
      = help: add a line such as `path = "customers.csv"`
    "#);
}

#[test]
fn a_delimiter_for_a_database() {
    let text = r#"
[sources.crm]
path = "crm.db"
delimiter = ";"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `delimiter` is for sources of the kind `csv`, and this one is `sqlite`
     --> spile.toml:3:1
      |
    3 | delimiter = ";"
      | ^^^^^^^^^
      = help: leave it out
    "#);
}

#[test]
fn a_delimiter_of_two_characters() {
    let text = r#"
[sources.crm]
path = "crm.csv"
delimiter = "::"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `::` cannot stand between columns
     --> spile.toml:3:13
      |
    3 | delimiter = "::"
      |             ^^^^
      = help: write one of `,` `;` `|` or `tab`, or leave it out to have it found
    "#);
}

#[test]
fn a_collection_without_any_source() {
    let text = r#"
[collections.customers]
key = "email"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: there is no source to read from
     --> spile.toml:1:14
      |
    1 | [collections.customers]
      |              ^^^^^^^^^
      = help: add `[sources.NAME]` with a `path`
    ");
}

#[test]
fn a_collection_that_could_be_of_two_sources() {
    let text = r#"
[sources.crm]
path = "crm.db"
[sources.shop]
path = "shop.db"
[collections.customers]
key = "email"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `customers` has no `source`
     --> spile.toml:5:14
      |
    5 | [collections.customers]
      |              ^^^^^^^^^
      = help: add a line such as `source = "crm"`
    "#);
}

#[test]
fn a_source_that_is_not_there() {
    let text = r#"
[sources.customers]
path = "customers.csv"
[collections.people]
source = "custommers"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: unknown source `custommers`
     --> spile.toml:4:10
      |
    4 | source = "custommers"
      |          ^^^^^^^^^^^^
      = help: did you mean `customers`?
    "#);
}

#[test]
fn a_table_in_a_file() {
    let text = r#"
[sources.crm]
path = "customers.csv"
[collections.customers]
table = "Sheet1"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `table` is for sources of the kind `sqlite`, and this one is `csv`
     --> spile.toml:4:1
      |
    4 | table = "Sheet1"
      | ^^^^^
      = help: leave it out: such a file is one table
    "#);
}

#[test]
fn a_name_with_blanks() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections."My Customers (2026)"]
key = "email"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `My Customers (2026)` cannot be the name of a collection
     --> spile.toml:3:14
      |
    3 | [collections."My Customers (2026)"]
      |              ^^^^^^^^^^^^^^^^^^^^^
      = help: use letters without marks, digits and `_`, at most 40: `my_customers_2026`
    "#);
}

#[test]
fn names_of_tools() {
    let text = r#"
[tools."find customer"]
uses = "customers.get"
[tools.find_the_customer_who_bought_most_in_the_whole_of_last_year]
uses = "customers.get"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `find customer` cannot be the name of a tool
     --> spile.toml:1:8
      |
    1 | [tools."find customer"]
      |        ^^^^^^^^^^^^^^^
      = help: use letters without marks, digits, `_` and `-`, at most 48

    error: `find_the_customer_who_bought_most_in_the_whole_of_last_year` cannot be the name of a tool
     --> spile.toml:3:8
      |
    3 | [tools.find_the_customer_who_bought_most_in_the_whole_of_last_year]
      |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: use letters without marks, digits, `_` and `-`, at most 48
    "#);
}

#[test]
fn writing() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers]
operations = ["get", "delete", "lst"]
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: unknown operation `lst`
     --> spile.toml:4:32
      |
    4 | operations = ["get", "delete", "lst"]
      |                                ^^^^^
      = help: did you mean `list`?
    "#);
}

#[test]
fn an_unknown_type_and_an_unknown_format() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers.fields]
amount = { as = "string" }
rate = { as = "decimel" }
mail = { format = "e-mail" }
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: unknown type `string`
     --> spile.toml:4:17
      |
    4 | amount = { as = "string" }
      |                 ^^^^^^^^
      = help: did you mean `text`?

    error: unknown type `decimel`
     --> spile.toml:5:15
      |
    5 | rate = { as = "decimel" }
      |               ^^^^^^^^^
      = help: did you mean `decimal`?

    error: unknown format `e-mail`
     --> spile.toml:6:19
      |
    6 | mail = { format = "e-mail" }
      |                   ^^^^^^^^
      = help: did you mean `email`?
    "#);
}

#[test]
fn a_field_under_a_name_that_is_taken() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers.fields]
max = { name = "limit" }
size = { name = "Größe" }
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `limit` cannot be the name of a field
     --> spile.toml:4:16
      |
    4 | max = { name = "limit" }
      |                ^^^^^^^
      = help: tools have an argument `limit` of their own; choose another

    error: `Größe` cannot be the name of a field
     --> spile.toml:5:17
      |
    5 | size = { name = "Größe" }
      |                 ^^^^^^^
      = help: use letters without marks, digits and `_`, at most 60
    "#);
}

#[test]
fn an_enum_of_two_sorts() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers.fields]
plan = { enum = ["free", 2] }
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `enum`: expected a string, like the first, found an integer
     --> spile.toml:4:26
      |
    4 | plan = { enum = ["free", 2] }
      |                          ^
      = help: a list of values is for texts, dates and whole numbers, all of one sort
    "#);
}

#[test]
fn a_tool_that_uses_nothing() {
    let text = r#"
[tools.lookup]
description = "Return the record."
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `lookup` has neither `uses` nor `sql`
     --> spile.toml:1:8
      |
    1 | [tools.lookup]
      |        ^^^^^^
      = help: add a line such as `uses = "customers.get"` or `sql = "select …"`
    "#);
}

#[test]
fn tools_that_use_what_there_is_not() {
    let text = r#"
[tools.a]
uses = "customers"
[tools.b]
uses = "customers.gett"
[tools.c]
uses = "customers.update"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `customers` is not a collection and what to do with it
     --> spile.toml:2:8
      |
    2 | uses = "customers"
      |        ^^^^^^^^^^^
      = help: write a collection, a dot and an operation: `customers.get`

    error: unknown operation `gett`
     --> spile.toml:4:19
      |
    4 | uses = "customers.gett"
      |                   ^^^^
      = help: did you mean `get`?
    "#);
}

#[test]
fn a_text_of_two_lines() {
    let text = r#"
[tools.lookup]
uses = "customers.get"
text = """{email}
{plan}"""
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `text` is one line for each row
     --> spile.toml:3:8
      |
    3 | text = """{email}
      |        ^^^^^^^^^^
      = help: leave line breaks and tabs out
    "#);
}

#[test]
fn an_empty_description() {
    let text = r#"
[tools.lookup]
uses = "customers.get"
description = "  "
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `description` is empty
     --> spile.toml:3:15
      |
    3 | description = "  "
      |               ^^^^
      = help: say something, or leave the key out
    "#);
}

#[test]
fn what_nobody_will_read_is_a_warning() {
    let text = "[tools.a]\nuses = 'a.get'\nhidden = true\ndescription = 'Long and fine.'\n";
    let (manifest, warnings) = parse("spile.toml", text, &env).expect("no error");
    assert!(manifest.tools[0].hidden);
    assert_snapshot!(render_all(&warnings, false), @r"
    warning: nobody will read this: the tool is hidden
     --> spile.toml:4:15
      |
    4 | description = 'Long and fine.'
      |               ^^^^^^^^^^^^^^^^
      = help: leave it or `hidden` out
    ");
}

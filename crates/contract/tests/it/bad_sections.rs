//! Diagnostics for invalid sections of a manifest.

use contract::diagnostic::render_all;
use contract::manifest::parse;
use insta::assert_snapshot;

use crate::bad_manifests::render_diagnostics;
use crate::manifest::env;

#[test]
fn rejects_an_unknown_kind() {
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
fn rejects_a_kind_of_a_later_version() {
    let text = r#"
[sources.crm]
kind = "openapi"
path = "people.json"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: sources of the kind `openapi` are not supported in this version
     --> spile.toml:2:8
      |
    2 | kind = "openapi"
      |        ^^^^^^^^^
      = help: this version supports `sqlite`, `csv`, `xlsx`, `xls`, `ods`, `json`, `jsonl`, `parquet`, `postgres`, `mysql` and `rest`
    "#);
}

#[test]
fn rejects_an_unknown_extension() {
    let text = r#"
[sources.crm]
path = "data/export.bin"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: the extension of `data/export.bin` is not known
     --> spile.toml:2:8
      |
    2 | path = "data/export.bin"
      |        ^^^^^^^^^^^^^^^^^
      = help: add `kind = "…"` with one of `sqlite`, `csv`, `xlsx`, `xls`, `ods`, `json`, `jsonl`, `parquet`, `postgres`, `mysql` and `rest`
    "#);
}

#[test]
fn rejects_a_source_without_a_path() {
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
fn rejects_a_delimiter_for_an_api() {
    let text = r#"
[sources.s]
url = "https://acme.test/s.csv"
delimiter = ";"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `delimiter` is only for sources of the kind `csv`, and this one is `rest`
     --> spile.toml:3:1
      |
    3 | delimiter = ";"
      | ^^^^^^^^^
      = help: remove it
    "#);
}

#[test]
fn rejects_a_delimiter_for_a_database() {
    let text = r#"
[sources.crm]
path = "crm.db"
delimiter = ";"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `delimiter` is only for sources of the kind `csv`, and this one is `sqlite`
     --> spile.toml:3:1
      |
    3 | delimiter = ";"
      | ^^^^^^^^^
      = help: remove it
    "#);
}

#[test]
fn rejects_a_delimiter_of_two_characters() {
    let text = r#"
[sources.crm]
path = "crm.csv"
delimiter = "::"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `::` cannot be a delimiter
     --> spile.toml:3:13
      |
    3 | delimiter = "::"
      |             ^^^^
      = help: use one of `,` `;` `|` or `tab`, or remove it to detect the delimiter
    "#);
}

#[test]
fn rejects_an_encoding_that_is_unknown_or_has_a_state() {
    for label in ["utf-7", "iso-2022-jp", ""] {
        let text = format!("[sources.crm]\npath = \"crm.csv\"\nencoding = \"{label}\"\n");
        let rendered = render_diagnostics(&text);
        assert!(rendered.starts_with("error: ") && rendered.contains("spile.toml:3:12"), "{rendered}");
        assert!(rendered.contains("is not a supported encoding"), "{rendered}");
        assert!(rendered.contains("use a name such as `windows-1252`"), "{rendered}");
    }
}

#[test]
fn rejects_a_collection_without_any_source() {
    let text = r#"
[collections.customers]
key = "email"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r"
    error: the manifest declares no source
     --> spile.toml:1:14
      |
    1 | [collections.customers]
      |              ^^^^^^^^^
      = help: add `[sources.NAME]` with a `path`
    ");
}

#[test]
fn rejects_a_collection_without_source_if_there_are_two() {
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
fn rejects_an_unknown_source() {
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
fn rejects_a_table_in_a_file() {
    let text = r#"
[sources.crm]
path = "customers.csv"
[collections.customers]
table = "Sheet1"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `table` is only for sources of the kind `sqlite`, `postgres` or `mysql`, and this one is `csv`
     --> spile.toml:4:1
      |
    4 | table = "Sheet1"
      | ^^^^^
      = help: remove it: such a file is one table
    "#);
}

#[test]
fn rejects_a_name_with_blanks() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections."My Customers (2026)"]
key = "email"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `My Customers (2026)` is not a valid name for a collection
     --> spile.toml:3:14
      |
    3 | [collections."My Customers (2026)"]
      |              ^^^^^^^^^^^^^^^^^^^^^
      = help: use at most 40 ASCII letters, digits and `_`, such as `my_customers_2026`
    "#);
}

#[test]
fn rejects_invalid_tool_names() {
    let text = r#"
[tools."find customer"]
uses = "customers.get"
[tools.find_the_customer_who_bought_most_in_the_whole_of_last_year]
uses = "customers.get"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `find customer` is not a valid name for a tool
     --> spile.toml:1:8
      |
    1 | [tools."find customer"]
      |        ^^^^^^^^^^^^^^^
      = help: use at most 50 ASCII letters, digits, `_` and `-`

    error: `find_the_customer_who_bought_most_in_the_whole_of_last_year` is not a valid name for a tool
     --> spile.toml:3:8
      |
    3 | [tools.find_the_customer_who_bought_most_in_the_whole_of_last_year]
      |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: use at most 50 ASCII letters, digits, `_` and `-`
    "#);
}

#[test]
fn rejects_writing_operations_of_a_read_only_file() {
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
fn rejects_an_unknown_type_and_an_unknown_format() {
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
fn rejects_a_reserved_field_name() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers.fields]
max = { name = "limit" }
size = { name = "Größe" }
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `limit` is not a valid name for a field
     --> spile.toml:4:16
      |
    4 | max = { name = "limit" }
      |                ^^^^^^^
      = help: `limit` is the name of another argument; choose a different one

    error: `Größe` is not a valid name for a field
     --> spile.toml:5:17
      |
    5 | size = { name = "Größe" }
      |                 ^^^^^^^
      = help: use at most 60 ASCII letters, digits and `_`
    "#);
}

#[test]
fn rejects_an_enum_of_two_types() {
    let text = r#"
[sources.crm]
path = "crm.db"
[collections.customers.fields]
plan = { enum = ["free", 2] }
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `enum`: expected a string like the first value, found an integer
     --> spile.toml:4:26
      |
    4 | plan = { enum = ["free", 2] }
      |                          ^
      = help: the values must be all strings or all integers
    "#);
}

#[test]
fn rejects_a_tool_without_uses() {
    let text = r#"
[tools.lookup]
description = "Return the record."
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `lookup` has neither `uses` nor `sql` nor `request`
     --> spile.toml:1:8
      |
    1 | [tools.lookup]
      |        ^^^^^^
      = help: add a line such as `uses = "customers.get"`, `sql = "select …"` or `request = { path = "/orders" }`
    "#);
}

#[test]
fn rejects_tools_that_use_unknown_operations() {
    let text = r#"
[tools.a]
uses = "customers"
[tools.b]
uses = "customers.gett"
[tools.c]
uses = "customers.update"
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `uses` must be COLLECTION.OPERATION, such as `customers.get`
     --> spile.toml:2:8
      |
    2 | uses = "customers"
      |        ^^^^^^^^^^^
      = help: the operations are `get`, `list`, `search`, `aggregate`, `create`, `update` and `delete`

    error: unknown operation `gett`
     --> spile.toml:4:19
      |
    4 | uses = "customers.gett"
      |                   ^^^^
      = help: did you mean `get`?
    "#);
}

#[test]
fn rejects_a_template_of_two_lines() {
    let text = r#"
[tools.lookup]
uses = "customers.get"
text = """{email}
{plan}"""
"#;
    assert_snapshot!(render_diagnostics(text.trim_start()), @r#"
    error: `text` must be one line
     --> spile.toml:3:8
      |
    3 | text = """{email}
      |        ^^^^^^^^^^
      = help: remove line breaks and tabs
    "#);
}

#[test]
fn rejects_an_empty_description() {
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
      = help: write a value, or remove the key
    "#);
}

#[test]
fn warns_about_settings_of_hidden_tools_and_fields() {
    let text = "[tools.a]\nuses = 'a.get'\nhidden = true\ndescription = 'Long and fine.'\n";
    let (manifest, warnings) = parse("spile.toml", text, &env).expect("no error");
    assert!(manifest.tools[0].hidden);
    assert_snapshot!(render_all(&warnings, false), @r"
    warning: this has no effect: the tool is hidden
     --> spile.toml:4:15
      |
    4 | description = 'Long and fine.'
      |               ^^^^^^^^^^^^^^^^
      = help: remove it or `hidden`
    ");
}

#[test]
fn rejects_sections_of_a_later_version() {
    assert_snapshot!(
        render_diagnostics("[sources.crm]\npath = \"crm.db\"\n[skills.handbook]\nfile = \"a.md\"\n[prompts.greet]\ntext = \"hi\"\n"),
        @r#"
    error: `[skills]` is not supported in this version
     --> spile.toml:3:2
      |
    3 | [skills.handbook]
      |  ^^^^^^
      = help: remove it; this version has `[server]`, `[sources]`, `[collections]`, `[tools]`, `[resources]`, `[prompts]`, `[roles]` and `[permissions]`; prompts and skills are files of the folder

    error: unknown key `text`
     --> spile.toml:6:1
      |
    6 | text = "hi"
      | ^^^^
      = help: it belongs in `[tools.NAME]`
    "#
    );
}

#[test]
fn rejects_backups_that_are_neither_on_nor_off() {
    assert_snapshot!(render_diagnostics("[server]\nbackups = \"no\"\n"), @r#"
    error: `backups`: expected `true` or `false`, found a string
     --> spile.toml:2:11
      |
    2 | backups = "no"
      |           ^^^^
      = help: write `false`
    "#);
}

#[test]
fn rejects_a_resource_without_exactly_one_origin() {
    assert_snapshot!(render_diagnostics("[resources.order]\nuri = 'a://b'\n"), @r#"
    error: `order` has no `file`, `collection` or `script`
     --> spile.toml:1:12
      |
    1 | [resources.order]
      |            ^^^^^
      = help: write one of `file = "…"`, `collection = "…"` and `script = "…"`
    "#);
    assert_snapshot!(
        render_diagnostics("[resources.order]\nuri = 'a://b'\nfile = 'a.md'\nscript = 'a.ts'\n"),
        @r#"
    error: `order` has `file` and `script`
     --> spile.toml:4:10
      |
    4 | script = 'a.ts'
      |          ^^^^^^
      = help: write one of `file = "…"`, `collection = "…"` and `script = "…"`
    "#
    );
}

#[test]
fn rejects_a_resource_that_leaves_the_folder_or_has_no_uri() {
    assert_snapshot!(render_diagnostics("[resources.order]\nscript = '../a.ts'\n"), @r#"
    error: `script` is not a path inside the folder
     --> spile.toml:2:10
      |
    2 | script = '../a.ts'
      |          ^^^^^^^^^
      = help: write a path without `..` that does not start with `/` or `./`
    "#);
    assert_snapshot!(render_diagnostics("[resources.order]\ncollection = 'orders'\n"), @r#"
    error: `order` has no `uri`
     --> spile.toml:1:12
      |
    1 | [resources.order]
      |            ^^^^^
      = help: add a line such as `uri = "orders://{id}"`
    "#);
    assert_snapshot!(render_diagnostics("[resources.order]\nfile = '/etc/passwd'\npriority = 2\n"), @r#"
    error: `file` is not a path inside the folder
     --> spile.toml:2:8
      |
    2 | file = '/etc/passwd'
      |        ^^^^^^^^^^^^^
      = help: write a path without `..` that does not start with `/` or `./`

    error: `priority`: expected a number from 0 to 1
     --> spile.toml:3:12
      |
    3 | priority = 2
      |            ^
      = help: write `0.5`
    "#);
}

#[test]
fn rejects_suggestions_with_several_origins() {
    let start = "[resources.order]\nscript = 'a.ts'\nuri = 'a://{id}'\n[resources.order.complete]\n";
    assert_snapshot!(render_diagnostics(&format!("{start}id = {{ values = ['1'], files = '.' }}\n")), @r#"
    error: the suggestions for `id` need one origin
     --> spile.toml:5:1
      |
    5 | id = { values = ['1'], files = '.' }
      | ^^
      = help: write `values = […]`, `collection = "…"` with `field = "…"`, or `files = "…"`
    "#);
    assert_snapshot!(render_diagnostics(&format!("{start}id = {{ collection = 'orders' }}\n")), @r#"
    error: the suggestions for `id` need one origin
     --> spile.toml:5:1
      |
    5 | id = { collection = 'orders' }
      | ^^
      = help: write `values = […]`, `collection = "…"` with `field = "…"`, or `files = "…"`
    "#);
}

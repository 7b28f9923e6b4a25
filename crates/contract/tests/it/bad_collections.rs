//! Diagnostics for invalid collections and fields.

use insta::assert_snapshot;

use crate::bad_manifests::render_diagnostics;

/// The diagnostics for a collection with these lines, in a file of this name.
fn diagnostics_of(path: &str, more: &str) -> String {
    render_diagnostics(&format!(
        "[sources.crm]\npath = \"{path}\"\n[collections.customers]\n{}",
        more.trim_start()
    ))
}

#[test]
fn rejects_a_sheet_of_a_database() {
    assert_snapshot!(diagnostics_of("crm.db", r#"sheet = "Customers""#), @r#"
    error: `sheet` is only for sources of the kind `xlsx`, `xls` or `ods`, and this one is `sqlite`
     --> spile.toml:4:1
      |
    4 | sheet = "Customers"
      | ^^^^^
      = help: write `table` instead
    "#);
}

#[test]
fn rejects_a_table_of_a_workbook() {
    assert_snapshot!(diagnostics_of("crm.xlsx", r#"table = "Customers""#), @r#"
    error: `table` is only for sources of the kind `sqlite`, `postgres` or `mysql`, and this one is `xlsx`
     --> spile.toml:4:1
      |
    4 | table = "Customers"
      | ^^^^^
      = help: write `sheet` instead
    "#);
}

#[test]
fn rejects_a_sheet_of_a_json_lines_file() {
    assert_snapshot!(diagnostics_of("crm.jsonl", r#"sheet = "Customers""#), @r#"
    error: `sheet` is only for sources of the kind `xlsx`, `xls` or `ods`, and this one is `jsonl`
     --> spile.toml:4:1
      |
    4 | sheet = "Customers"
      | ^^^^^
      = help: remove it: such a file is one table
    "#);
}

#[test]
fn rejects_a_header_row_of_a_json_file() {
    assert_snapshot!(diagnostics_of("crm.json", "header_row = 2"), @r"
    error: `header_row` is only for sources of the kind `csv`, `xlsx`, `xls` or `ods`, and this one is `json`
     --> spile.toml:4:1
      |
    4 | header_row = 2
      | ^^^^^^^^^^
      = help: remove it
    ");
}

#[test]
fn rejects_formats_that_nothing_could_be_read_with() {
    assert_snapshot!(diagnostics_of("crm.csv", "number_format = '12,34'\ndate_format = 'dd.mm.jjjj'\nboolean_format = 'ja'"), @r"
    error: `12,34` is not a number format
     --> spile.toml:4:17
      |
    4 | number_format = '12,34'
      |                 ^^^^^^^
      = help: write 1234 or 1234.50 as the file would: `1.234,50`, `1 234,5 €`, `$1,234.50`, `(1,234.50)`, `1234,5 %`

    error: `dd.mm.jjjj` is not a date format
     --> spile.toml:5:15
      |
    5 | date_format = 'dd.mm.jjjj'
      |               ^^^^^^^^^^^^
      = help: use `dd`, `mm` or `mmm`, `yyyy` or `yy`, and `hh:mm:ss`: `dd/mm/yyyy`, `d. mmmm yyyy (de)`, `m/d/yyyy h:mm AM`

    error: `ja` is not a boolean format
     --> spile.toml:6:18
      |
    6 | boolean_format = 'ja'
      |                  ^^^^
      = help: write the two words with a `/` between them, the one for true first: `ja/nein`
    ");
}

#[test]
fn rejects_formats_of_a_database() {
    assert_snapshot!(diagnostics_of("crm.db", "number_format = '1.234,50'\nstop_at = 'Total'"), @r"
    error: `number_format` is only for sources of the kind `csv`, `xlsx`, `xls`, `ods`, `json`, `jsonl`, `parquet` or `rest`, and this one is `sqlite`
     --> spile.toml:4:1
      |
    4 | number_format = '1.234,50'
      | ^^^^^^^^^^^^^
      = help: remove it

    error: `stop_at` is only for sources of the kind `csv`, `xlsx`, `xls` or `ods`, and this one is `sqlite`
     --> spile.toml:5:1
      |
    5 | stop_at = 'Total'
      | ^^^^^^^
      = help: remove it
    ");
}

#[test]
fn rejects_a_header_row_before_the_first() {
    assert_snapshot!(diagnostics_of("crm.xlsx", "header_row = 0"), @r"
    error: `header_row` must be from 1 to 1048576
     --> spile.toml:4:14
      |
    4 | header_row = 0
      |              ^
    ");
}

#[test]
fn rejects_a_header_row_that_is_a_text() {
    assert_snapshot!(diagnostics_of("crm.xlsx", r#"header_row = "3""#), @r#"
    error: `header_row`: expected an integer from 1 to 1048576, found a string
     --> spile.toml:4:14
      |
    4 | header_row = "3"
      |              ^^^
      = help: write `3` without quotes
    "#);
}

#[test]
fn rejects_writing_to_an_xls_file() {
    assert_snapshot!(diagnostics_of("crm.xls", r#"operations = ["get", "create"]"#), @r#"
    error: `create` is not possible: files of the kind `xls` are read-only
     --> spile.toml:4:22
      |
    4 | operations = ["get", "create"]
      |                      ^^^^^^^^
      = help: save the file as xlsx, or remove the operation; `get`, `list`, `search` and `aggregate` work
    "#);
}

#[test]
fn rejects_writing_to_an_ods_file() {
    assert_snapshot!(diagnostics_of("crm.ods", r#"operations = ["delete"]"#), @r#"
    error: `delete` is not possible: files of the kind `ods` are read-only
     --> spile.toml:4:15
      |
    4 | operations = ["delete"]
      |               ^^^^^^^^
      = help: save the file as xlsx, or remove the operation; `get`, `list`, `search` and `aggregate` work
    "#);
}

#[test]
fn suggests_an_operation_for_another_name() {
    assert_snapshot!(diagnostics_of("crm.db", r#"operations = ["read", "insert", "remove"]"#), @r#"
    error: unknown operation `read`
     --> spile.toml:4:15
      |
    4 | operations = ["read", "insert", "remove"]
      |               ^^^^^^
      = help: did you mean `get` and `list`?

    error: unknown operation `insert`
     --> spile.toml:4:23
      |
    4 | operations = ["read", "insert", "remove"]
      |                       ^^^^^^^^
      = help: did you mean `create`?

    error: unknown operation `remove`
     --> spile.toml:4:33
      |
    4 | operations = ["read", "insert", "remove"]
      |                                 ^^^^^^^^
      = help: did you mean `delete`?
    "#);
}

#[test]
fn suggests_an_operation_for_a_typo() {
    assert_snapshot!(diagnostics_of("crm.db", r#"operations = ["get", "udpate"]"#), @r#"
    error: unknown operation `udpate`
     --> spile.toml:4:22
      |
    4 | operations = ["get", "udpate"]
      |                      ^^^^^^^^
      = help: did you mean `update`?
    "#);
}

#[test]
fn suggests_all_operations_for_a_star() {
    assert_snapshot!(diagnostics_of("crm.db", r#"operations = ["*"]"#), @r#"
    error: unknown operation `*`
     --> spile.toml:4:15
      |
    4 | operations = ["*"]
      |               ^^^
      = help: write all of them: `get`, `list`, `search`, `aggregate`, `create`, `update` and `delete`
    "#);
}

#[test]
fn rejects_an_operation_that_is_not_in_an_array() {
    assert_snapshot!(diagnostics_of("crm.db", r#"operations = "list""#), @r#"
    error: `operations`: expected an array of strings, found a string
     --> spile.toml:4:14
      |
    4 | operations = "list"
      |              ^^^^^^
      = help: write `["list"]`
    "#);
}

#[test]
fn rejects_an_empty_list_of_operations() {
    assert_snapshot!(diagnostics_of("crm.db", "operations = []"), @r"
    error: `operations` is empty
     --> spile.toml:4:14
      |
    4 | operations = []
      |              ^^
      = help: list at least one, or remove the key
    ");
}

#[test]
fn rejects_search_keys_without_the_operation() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
search = ["name"]
search_rows_max = 100
operations = ["get", "list"]
"#), @r#"
    error: `search` needs the operation `search`
     --> spile.toml:4:1
      |
    4 | search = ["name"]
      | ^^^^^^
      = help: write `operations = ["get", "list", "search"]`, or remove the key

    error: `search_rows_max` needs the operation `search`
     --> spile.toml:5:1
      |
    5 | search_rows_max = 100
      | ^^^^^^^^^^^^^^^
      = help: write `operations = ["get", "list", "search"]`, or remove the key
    "#);
}

#[test]
fn rejects_a_search_of_too_many_rows() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
operations = ["search"]
search_rows_max = 100_000_000
"#), @r"
    error: `search_rows_max` must be from 1 to 10000000
     --> spile.toml:5:19
      |
    5 | search_rows_max = 100_000_000
      |                   ^^^^^^^^^^^
    ");
}

#[test]
fn rejects_a_search_in_one_field() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
operations = ["search"]
search = "name"
"#), @r#"
    error: `search`: expected an array of field names, `true` or `false`, found a string
     --> spile.toml:5:10
      |
    5 | search = "name"
      |          ^^^^^^
      = help: write `["name"]`
    "#);
}

#[test]
fn rejects_filters_without_a_list() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
operations = ["get"]
filters = ["plan"]
sort = true
group = ["plan"]
measures = false
"#), @r#"
    error: `filters` needs the operation `list`, `search` or `aggregate`
     --> spile.toml:5:1
      |
    5 | filters = ["plan"]
      | ^^^^^^^
      = help: write `operations = ["get", "list"]`, or remove the key

    error: `sort` needs the operation `list`
     --> spile.toml:6:1
      |
    6 | sort = true
      | ^^^^
      = help: write `operations = ["get", "list"]`, or remove the key

    error: `group` needs the operation `aggregate`
     --> spile.toml:7:1
      |
    7 | group = ["plan"]
      | ^^^^^
      = help: write `operations = ["get", "aggregate"]`, or remove the key

    error: `measures` needs the operation `aggregate`
     --> spile.toml:8:1
      |
    8 | measures = false
      | ^^^^^^^^
      = help: write `operations = ["get", "aggregate"]`, or remove the key
    "#);
}

#[test]
fn rejects_a_version_without_update_or_delete() {
    assert_snapshot!(diagnostics_of("crm.db", r#"version = "rev""#), @r#"
    error: `version` needs the operation `update` or `delete`
     --> spile.toml:4:1
      |
    4 | version = "rev"
      | ^^^^^^^
      = help: write `operations = ["get", "list", "search", "aggregate", "update"]`, or remove the key
    "#);
}

#[test]
fn rejects_a_version_with_create_only() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
operations = ["create"]
version_required = true
"#), @r#"
    error: `version_required` needs the operation `update` or `delete`
     --> spile.toml:5:1
      |
    5 | version_required = true
      | ^^^^^^^^^^^^^^^^
      = help: write `operations = ["create", "update"]`, or remove the key
    "#);
}

#[test]
fn rejects_confirm_for_reading() {
    assert_snapshot!(diagnostics_of("crm.db", r#"confirm = "ask""#), @r#"
    error: `confirm` needs the operation `update` or `delete`
     --> spile.toml:4:1
      |
    4 | confirm = "ask"
      | ^^^^^^^
      = help: write `operations = ["get", "list", "search", "aggregate", "update"]`, or remove the key
    "#);
}

#[test]
fn rejects_a_version_that_is_the_key() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
key = "id"
operations = ["update"]
version = "id"
"#), @r#"
    error: `id` cannot be both key and version
     --> spile.toml:6:11
      |
    6 | version = "id"
      |           ^^^^
      = help: a key cannot change, and a version changes with every update; choose another column
    "#);
}

#[test]
fn rejects_a_version_that_is_hidden() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
operations = ["update"]
version = "rev"
fields.rev = { hidden = true }
"#), @r#"
    error: the version `rev` is hidden
     --> spile.toml:5:11
      |
    5 | version = "rev"
      |           ^^^^^
      = help: callers need it for `expected_version`; remove `hidden`
    "#);
}

#[test]
fn rejects_a_version_that_is_not_an_integer() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
operations = ["update"]
version = "rev"
fields.rev = { as = "text" }
"#), @r#"
    error: the version `rev` is declared text
     --> spile.toml:6:21
      |
    6 | fields.rev = { as = "text" }
      |                     ^^^^^^
      = help: a version must be an integer: write `as = "integer"`
    "#);
}

#[test]
fn rejects_a_version_of_type_number() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
operations = ["update"]
version = 2
"#), @r#"
    error: `version`: expected a string, found an integer
     --> spile.toml:5:11
      |
    5 | version = 2
      |           ^
      = help: write it in quotes: `"2"`
    "#);
}

#[test]
fn rejects_an_unknown_value_of_confirm() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
operations = ["update"]
confirm = "yes"
"#), @r#"
    error: `confirm` cannot be `yes`
     --> spile.toml:5:11
      |
    5 | confirm = "yes"
      |           ^^^^^
      = help: write `ask` or `never`
    "#);
}

#[test]
fn rejects_a_confirm_that_is_a_boolean() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
operations = ["update"]
confirm = true
"#), @r#"
    error: `confirm`: expected `ask` or `never`, found a boolean
     --> spile.toml:5:11
      |
    5 | confirm = true
      |           ^^^^
      = help: write `confirm = "ask"`
    "#);
}

#[test]
fn rejects_a_key_that_is_sensitive() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
key = "ssn"
fields.ssn = { sensitive = true }
"#), @r#"
    error: the key `ssn` is sensitive
     --> spile.toml:4:7
      |
    4 | key = "ssn"
      |       ^^^^^
      = help: a key appears in calls, cursors and confirmations, so it cannot be sensitive; choose another key, or remove `sensitive`
    "#);
}

#[test]
fn suggests_as_for_type() {
    assert_snapshot!(diagnostics_of("crm.db", r#"fields.joined = { type = "date" }"#), @r#"
    error: a field has no `type`; its type is `as`
     --> spile.toml:4:19
      |
    4 | fields.joined = { type = "date" }
      |                   ^^^^
      = help: write `as = "date"`
    "#);
}

#[test]
fn suggests_a_type_for_a_database_type() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
fields.price = { as = "money" }
fields.n = { as = "int" }
"#), @r#"
    error: unknown type `money`
     --> spile.toml:4:23
      |
    4 | fields.price = { as = "money" }
      |                       ^^^^^^^
      = help: did you mean `decimal`?

    error: unknown type `int`
     --> spile.toml:5:19
      |
    5 | fields.n = { as = "int" }
      |                   ^^^^^
      = help: did you mean `integer`?
    "#);
}

#[test]
fn suggests_a_format_for_another_name() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
fields.site = { format = "url" }
fields.at = { format = "datetime" }
"#), @r#"
    error: unknown format `url`
     --> spile.toml:4:26
      |
    4 | fields.site = { format = "url" }
      |                          ^^^^^
      = help: did you mean `uri`?

    error: unknown format `datetime`
     --> spile.toml:5:24
      |
    5 | fields.at = { format = "datetime" }
      |                        ^^^^^^^^^^
      = help: did you mean `date-time`?
    "#);
}

#[test]
fn rejects_a_field_that_is_a_text() {
    assert_snapshot!(diagnostics_of("crm.db", r#"fields.email = "email""#), @r#"
    error: `email`: expected a table such as `{ format = "email" }`, found a string
     --> spile.toml:4:16
      |
    4 | fields.email = "email"
      |                ^^^^^^^
    "#);
}

#[test]
fn suggests_enum_for_values() {
    assert_snapshot!(diagnostics_of("crm.db", r#"fields.plan = { values = ["free"] }"#), @r#"
    error: unknown key `values`
     --> spile.toml:4:17
      |
    4 | fields.plan = { values = ["free"] }
      |                 ^^^^^^
      = help: did you mean `enum`, as in `enum = ["free", "emerald", "ruby"]`?
    "#);
}

#[test]
fn rejects_an_enum_of_texts_and_integers() {
    assert_snapshot!(diagnostics_of("crm.db", r#"fields.plan = { enum = ["free", 2] }"#), @r#"
    error: `enum`: expected a string like the first value, found an integer
     --> spile.toml:4:33
      |
    4 | fields.plan = { enum = ["free", 2] }
      |                                 ^
      = help: the values must be all strings or all integers
    "#);
}

#[test]
fn rejects_an_enum_of_fractions() {
    assert_snapshot!(diagnostics_of("crm.db", "fields.plan = { enum = [0.5] }"), @r"
    error: `enum`: expected a string or an integer, found a fraction
     --> spile.toml:4:25
      |
    4 | fields.plan = { enum = [0.5] }
      |                         ^^^
      = help: the values must be all strings or all integers
    ");
}

#[test]
fn rejects_an_integer_beyond_64_bits() {
    assert_snapshot!(diagnostics_of("crm.db", "fields.plan = { enum = [99999999999999999999] }"), @r#"
    error: this integer exceeds 64 bits
     --> spile.toml:4:25
      |
    4 | fields.plan = { enum = [99999999999999999999] }
      |                         ^^^^^^^^^^^^^^^^^^^^
      = help: write it in quotes, with `as = "decimal"`
    "#);
}

#[test]
fn suggests_key_for_another_name() {
    assert_snapshot!(diagnostics_of("crm.db", r#"primary_key = "id""#), @r#"
    error: unknown key `primary_key`
     --> spile.toml:4:1
      |
    4 | primary_key = "id"
      | ^^^^^^^^^^^
      = help: did you mean `key`, as in `key = "email"`?
    "#);
}

#[test]
fn suggests_fields_for_columns() {
    assert_snapshot!(diagnostics_of("crm.db", r#"
[collections.customers.columns]
email = { format = "email" }
"#), @r"
    error: unknown key `columns`
     --> spile.toml:4:24
      |
    4 | [collections.customers.columns]
      |                        ^^^^^^^
      = help: did you mean `fields`, as in `[collections.NAME.fields]`?
    ");
}

#[test]
fn suggests_rows_max_for_another_name() {
    assert_snapshot!(diagnostics_of("crm.db", "page_size = 50"), @r"
    error: unknown key `page_size`
     --> spile.toml:4:1
      |
    4 | page_size = 50
      | ^^^^^^^^^
      = help: did you mean `rows_max`, as in `rows_max = 200`?
    ");
}

//! Diagnostics for invalid tools and statements.

use insta::assert_snapshot;

use crate::bad_manifests::render_diagnostics;

/// The diagnostics for a tool with these lines.
fn diagnostics_of(more: &str) -> String {
    let source = "[sources.crm]\npath = \"crm.db\"\n[collections.customers]\n";
    render_diagnostics(&format!("{source}[tools.find]\n{}", more.trim_start()))
}

#[test]
fn rejects_a_tool_with_uses_and_sql() {
    assert_snapshot!(diagnostics_of(r#"
uses = "customers.get"
sql = "select 1"
"#), @r#"
    error: `find` has both `uses` and `sql`
     --> spile.toml:6:1
      |
    6 | sql = "select 1"
      | ^^^
      = help: keep one of them
    "#);
}

#[test]
fn rejects_a_tool_without_uses_and_sql() {
    assert_snapshot!(diagnostics_of(r#"description = "Finds a customer.""#), @r#"
    error: `find` has neither `uses` nor `sql` nor `request`
     --> spile.toml:4:8
      |
    4 | [tools.find]
      |        ^^^^
      = help: add a line such as `uses = "customers.get"`, `sql = "select …"` or `request = { path = "/orders" }`
    "#);
}

#[test]
fn rejects_statement_keys_of_a_tool_with_uses() {
    assert_snapshot!(diagnostics_of(r#"
uses = "customers.get"
writes = true
rows_max = 5
source = "crm"
arguments.a = { type = "date" }
"#), @r#"
    error: `writes` is only for tools with `sql` or `request`, and this one has `uses`
     --> spile.toml:6:1
      |
    6 | writes = true
      | ^^^^^^
      = help: remove it: the operation decides whether the tool writes

    error: `rows_max` is only for tools with `sql` or `request`, and this one has `uses`
     --> spile.toml:7:1
      |
    7 | rows_max = 5
      | ^^^^^^^^
      = help: move it to the collection

    error: `source` is only for tools with `sql` or `request`, and this one has `uses`
     --> spile.toml:8:1
      |
    8 | source = "crm"
      | ^^^^^^
      = help: remove it: the collection has a source

    error: `arguments` is only for tools with `sql` or `request`, and this one has `uses`
     --> spile.toml:9:1
      |
    9 | arguments.a = { type = "date" }
      | ^^^^^^^^^
      = help: remove it
    "#);
}

#[test]
fn rejects_confirm_for_a_reading_tool() {
    assert_snapshot!(diagnostics_of(r#"
uses = "customers.list"
confirm = "ask"
"#), @r#"
    error: `confirm` asks before something is written, and this tool only reads
     --> spile.toml:6:11
      |
    6 | confirm = "ask"
      |           ^^^^^
      = help: remove it; it is for `create`, `update` and `delete`
    "#);
}

#[test]
fn rejects_confirm_for_a_reading_statement() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select 1"
confirm = "ask"
"#), @r#"
    error: `confirm` asks before something is written, and this tool only reads
     --> spile.toml:6:11
      |
    6 | confirm = "ask"
      |           ^^^^^
      = help: remove it, or add `writes = true`
    "#);
}

#[test]
fn rejects_a_variable_in_a_statement() {
    assert_snapshot!(diagnostics_of(r#"sql = "select * from customers where email = '${email}'""#), @r#"
    error: variables are not replaced in a statement
     --> spile.toml:5:47
      |
    5 | sql = "select * from customers where email = '${email}'"
      |                                               ^^^^^^^^
      = help: write `:name` for the value, and declare it in `arguments`
    "#);
}

#[test]
fn rejects_an_empty_statement() {
    assert_snapshot!(diagnostics_of(r#"sql = " ""#), @r#"
    error: `sql` is empty
     --> spile.toml:5:7
      |
    5 | sql = " "
      |       ^^^
      = help: write a value, or remove the key
    "#);
}

#[test]
fn rejects_a_statement_that_is_a_list() {
    assert_snapshot!(diagnostics_of(r#"sql = ["select 1", "select 2"]"#), @r#"
    error: `sql`: expected a string, found an array
     --> spile.toml:5:7
      |
    5 | sql = ["select 1", "select 2"]
      |       ^^^^^^^^^^^^^^^^^^^^^^^^
      = help: a tool runs one statement; write one tool for each
    "#);
}

#[test]
fn rejects_changes_max_without_writes() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select 1"
changes_max = 5
"#), @r"
    error: `changes_max` is only for statements that write
     --> spile.toml:6:1
      |
    6 | changes_max = 5
      | ^^^^^^^^^^^
      = help: add `writes = true`, or remove it
    ");
}

#[test]
fn rejects_changes_max_of_zero() {
    assert_snapshot!(diagnostics_of(r#"
sql = "delete from customers"
writes = true
changes_max = 0
"#), @r"
    error: `changes_max` must be from 1 to 100000
     --> spile.toml:7:15
      |
    7 | changes_max = 0
      |               ^
    ");
}

#[test]
fn rejects_a_word_for_writes() {
    assert_snapshot!(diagnostics_of(r#"
sql = "delete from customers"
writes = "yes"
"#), @r#"
    error: `writes`: expected `true` or `false`, found a string
     --> spile.toml:6:10
      |
    6 | writes = "yes"
      |          ^^^^^
      = help: write `true`
    "#);
}

#[test]
fn rejects_an_unknown_value_of_returns() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select 1"
returns = "first"
"#), @r#"
    error: `returns` cannot be `first`
     --> spile.toml:6:11
      |
    6 | returns = "first"
      |           ^^^^^^^
      = help: write `many` or `one`
    "#);
}

#[test]
fn rejects_rows_of_a_tool_that_returns_one() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select 1"
returns = "one"
rows_max = 5
"#), @r"
    error: `rows_max` has no effect: this tool returns one row
     --> spile.toml:7:1
      |
    7 | rows_max = 5
      | ^^^^^^^^
      = help: remove it or `returns`
    ");
}

#[test]
fn rejects_an_argument_with_its_colon() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :since"
arguments.":since" = { type = "date" }
"#), @r#"
    error: `:since` is not a valid name for an argument
     --> spile.toml:6:11
      |
    6 | arguments.":since" = { type = "date" }
      |           ^^^^^^^^
      = help: the sign belongs in the statement only: write `since` here
    "#);
}

#[test]
fn rejects_an_argument_that_begins_with_a_digit() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select ?1"
arguments.1 = { type = "date" }
"#), @r#"
    error: `1` is not a valid name for an argument
     --> spile.toml:6:11
      |
    6 | arguments.1 = { type = "date" }
      |           ^
      = help: use at most 64 ASCII letters, digits and `_`, starting with a letter
    "#);
}

#[test]
fn rejects_an_argument_with_an_umlaut() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select 1"
arguments."größe" = { type = "integer" }
"#), @r#"
    error: `größe` is not a valid name for an argument
     --> spile.toml:6:11
      |
    6 | arguments."größe" = { type = "integer" }
      |           ^^^^^^^
      = help: use at most 64 ASCII letters, digits and `_`, starting with a letter
    "#);
}

#[test]
fn rejects_an_argument_that_every_writing_tool_has() {
    assert_snapshot!(diagnostics_of(r#"
sql = "delete from customers where id = :dry_run"
writes = true
arguments.dry_run = { type = "boolean" }
"#), @r#"
    error: `dry_run` is a reserved argument
     --> spile.toml:7:11
      |
    7 | arguments.dry_run = { type = "boolean" }
      |           ^^^^^^^
      = help: every tool that writes has `idempotency_key` and `dry_run`; choose another name
    "#);
}

#[test]
fn rejects_an_argument_that_is_a_text() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :since"
arguments.since = "date"
"#), @r#"
    error: `since`: expected a table such as `{ type = "date" }`, found a string
     --> spile.toml:6:19
      |
    6 | arguments.since = "date"
      |                   ^^^^^^
    "#);
}

#[test]
fn rejects_arguments_as_a_list() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :since"
arguments = ["since"]
"#), @r#"
    error: `arguments`: expected a table such as `since = { type = "date" }`, found an array
     --> spile.toml:6:13
      |
    6 | arguments = ["since"]
      |             ^^^^^^^^^
    "#);
}

#[test]
fn rejects_an_argument_of_an_unknown_type() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a, :b"
arguments.a = { type = "datetime" }
arguments.b = { type = "strnig" }
"#), @r#"
    error: unknown type `datetime`
     --> spile.toml:6:24
      |
    6 | arguments.a = { type = "datetime" }
      |                        ^^^^^^^^^^
      = help: did you mean `timestamp`?

    error: unknown type `strnig`
     --> spile.toml:7:24
      |
    7 | arguments.b = { type = "strnig" }
      |                        ^^^^^^^^
      = help: did you mean `string`?
    "#);
}

#[test]
fn rejects_an_argument_that_is_a_structure() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { type = "json" }
"#), @r#"
    error: an argument cannot be `json`
     --> spile.toml:6:24
      |
    6 | arguments.a = { type = "json" }
      |                        ^^^^^^
      = help: write `string`, and describe the content in `description`
    "#);
}

#[test]
fn rejects_an_argument_of_two_types() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { type = "string", as = "date" }
"#), @r#"
    error: `as` and `type` mean the same
     --> spile.toml:6:34
      |
    6 | arguments.a = { type = "string", as = "date" }
      |                                  ^^
      = help: keep one of them
    "#);
}

#[test]
fn rejects_a_format_of_a_number() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { type = "integer", format = "email" }
"#), @r#"
    error: `a` is `integer`, which has no format
     --> spile.toml:6:44
      |
    6 | arguments.a = { type = "integer", format = "email" }
      |                                            ^^^^^^^
      = help: only text has a format; remove it, or write `type = "string"`
    "#);
}

#[test]
fn rejects_values_that_are_not_of_the_type() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { type = "integer", enum = ["1", "2"] }
"#), @r#"
    error: `a` is `integer`, and this value is not
     --> spile.toml:6:43
      |
    6 | arguments.a = { type = "integer", enum = ["1", "2"] }
      |                                           ^^^
      = help: write an integer without quotes, or remove `enum`
    "#);
}

#[test]
fn rejects_an_enum_for_a_type_without_one() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { type = "boolean", enum = ["yes", "no"] }
"#), @r#"
    error: `a` is `boolean`, and this value is not
     --> spile.toml:6:43
      |
    6 | arguments.a = { type = "boolean", enum = ["yes", "no"] }
      |                                           ^^^^^
      = help: remove `enum`: it is for texts, dates and integers
    "#);
}

#[test]
fn rejects_invalid_dates() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { type = "date", enum = ["31.1.2026"] }
"#), @r#"
    error: `31.1.2026` is not of the type `date`
     --> spile.toml:6:40
      |
    6 | arguments.a = { type = "date", enum = ["31.1.2026"] }
      |                                        ^^^^^^^^^^^
      = help: write it like `2026-01-31`
    "#);
}

#[test]
fn rejects_a_default_of_another_type() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { type = "integer", default = "10" }
"#), @r#"
    error: the default of `a` is not an integer
     --> spile.toml:6:45
      |
    6 | arguments.a = { type = "integer", default = "10" }
      |                                             ^^^^
      = help: write an integer without quotes
    "#);
}

#[test]
fn rejects_a_default_that_is_not_a_boolean() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { type = "boolean", default = 1 }
"#), @r#"
    error: the default of `a` is not a boolean
     --> spile.toml:6:45
      |
    6 | arguments.a = { type = "boolean", default = 1 }
      |                                             ^
      = help: write `true` or `false`, without quotes
    "#);
}

#[test]
fn rejects_a_default_that_is_not_a_date() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { type = "date", default = "yesterday" }
"#), @r#"
    error: `yesterday` is not of the type `date`
     --> spile.toml:6:42
      |
    6 | arguments.a = { type = "date", default = "yesterday" }
      |                                          ^^^^^^^^^^^
      = help: write it like `2026-01-31`
    "#);
}

#[test]
fn rejects_a_default_without_quotes() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { type = "date", default = 2026-01-31 }
"#), @r#"
    error: `default`: expected a string, a number, `true` or `false`, found a date or time
     --> spile.toml:6:42
      |
    6 | arguments.a = { type = "date", default = 2026-01-31 }
      |                                          ^^^^^^^^^^
      = help: write it in quotes: `"2026-01-31"`
    "#);
}

#[test]
fn rejects_a_default_that_is_a_list() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { default = ["x"] }
"#), @r#"
    error: `default`: expected a string, a number, `true` or `false`, found an array
     --> spile.toml:6:27
      |
    6 | arguments.a = { default = ["x"] }
      |                           ^^^^^
    "#);
}

#[test]
fn rejects_a_default_that_is_not_allowed() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { enum = ["x", "y"], default = "z" }
"#), @r#"
    error: the default of `a` is not in its `enum`
     --> spile.toml:6:46
      |
    6 | arguments.a = { enum = ["x", "y"], default = "z" }
      |                                              ^^^
      = help: add it to `enum`, or choose one of the values
    "#);
}

#[test]
fn rejects_a_default_that_is_never_used() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
arguments.a = { default = "x", required = true }
"#), @r#"
    error: `a` is required, so its default has no effect
     --> spile.toml:6:32
      |
    6 | arguments.a = { default = "x", required = true }
      |                                ^^^^^^^^
      = help: remove `required` or `default`
    "#);
}

#[test]
fn suggests_arguments_for_parameters() {
    assert_snapshot!(diagnostics_of(r#"
sql = "select :a"
parameters.a = { type = "date" }
"#), @r#"
    error: unknown key `parameters`
     --> spile.toml:6:1
      |
    6 | parameters.a = { type = "date" }
      | ^^^^^^^^^^
      = help: did you mean `arguments`, as in `[tools.NAME.arguments]`?
    "#);
}

#[test]
fn rejects_a_rate_of_a_tool() {
    assert_snapshot!(diagnostics_of(r#"
uses = "customers.get"
rate_limit = "often"
"#), @r#"
    error: `often` is not a rate limit: it has no `/`
     --> spile.toml:6:14
      |
    6 | rate_limit = "often"
      |              ^^^^^^^
      = help: write `60/min`; other units are `s`, `h` and `day`
    "#);
}

#[test]
fn rejects_a_timeout_of_a_tool() {
    assert_snapshot!(diagnostics_of(r#"
uses = "customers.get"
call_timeout_ms = 0
"#), @r"
    error: `call_timeout_ms` must be from 1 to 86400000
     --> spile.toml:6:19
      |
    6 | call_timeout_ms = 0
      |                   ^
    ");
}

#[test]
fn rejects_a_word_for_long_running() {
    assert_snapshot!(diagnostics_of(r#"
uses = "customers.get"
long_running = "true"
"#), @r#"
    error: `long_running`: expected `true` or `false`, found a string
     --> spile.toml:6:16
      |
    6 | long_running = "true"
      |                ^^^^^^
      = help: write `true` without quotes
    "#);
}

#[test]
fn rejects_an_unknown_operation() {
    assert_snapshot!(diagnostics_of(r#"uses = "customers.remove""#), @r#"
    error: unknown operation `remove`
     --> spile.toml:5:19
      |
    5 | uses = "customers.remove"
      |                   ^^^^^^
      = help: did you mean `delete`?
    "#);
}

#[test]
fn rejects_uses_without_an_operation() {
    assert_snapshot!(diagnostics_of(r#"uses = "customers""#), @r#"
    error: `uses` must be COLLECTION.OPERATION, such as `customers.get`
     --> spile.toml:5:8
      |
    5 | uses = "customers"
      |        ^^^^^^^^^^^
      = help: the operations are `get`, `list`, `search`, `aggregate`, `create`, `update` and `delete`
    "#);
}

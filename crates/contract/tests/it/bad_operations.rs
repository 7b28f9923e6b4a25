//! Diagnostics for invalid operations and statements.

use contract::DataType;
use contract::diagnostic::render_all;
use contract::manifest::Operation;
use contract::source::{
    AcceptedValues, ColumnAssignment, ColumnFacts, StatementError, StatementFacts, TableFacts,
    WriteCapabilities, WriteSupport,
};
use insta::assert_snapshot;

use crate::operations::{compile_table, people_table, top_statement};

fn diagnostics_of_table(table: TableFacts, more: &str) -> String {
    let (_, found) =
        compile_table(table, Ok(top_statement()), &format!("[collections.people]\n{}", more.trim_start()));
    render_all(&found, false)
}

fn diagnostics_of(more: &str) -> String {
    diagnostics_of_table(people_table(), more)
}

fn diagnostics_of_statement(facts: Result<StatementFacts, StatementError>, more: &str) -> String {
    let (_, found) = compile_table(people_table(), facts, &format!("[tools.top]\n{}", more.trim_start()));
    render_all(&found, false)
}

#[test]
fn rejects_writing_to_a_read_only_table() {
    let table = TableFacts { write_support: WriteSupport::read_only("it is a view"), ..people_table() };
    assert_snapshot!(diagnostics_of_table(table, "operations = [\"get\", \"create\", \"delete\"]"), @r#"
    error: cannot write to `people`: it is a view
     --> spile.toml:4:22
      |
    4 | operations = ["get", "create", "delete"]
      |                      ^^^^^^^^
      = help: remove "create", "delete" from its operations
    "#);
}

#[test]
fn rejects_an_operation_that_can_never_succeed() {
    let refused = vec![(Operation::Delete, "rows would move, and D9 has a formula".to_owned())];
    let table = TableFacts { refused_operations: refused, ..people_table() };
    assert_snapshot!(diagnostics_of_table(table, "operations = [\"get\", \"create\", \"delete\"]"), @r#"
    error: the operation `delete` of `people` can never succeed: rows would move, and D9 has a formula
     --> spile.toml:4:32
      |
    4 | operations = ["get", "create", "delete"]
      |                                ^^^^^^^^
      = help: remove the operation `delete`
    "#);
}

#[test]
fn rejects_demands_that_the_source_cannot_meet() {
    let table =
        TableFacts { write_support: WriteSupport::Supported(WriteCapabilities::DRY_RUN), ..people_table() };
    let more = "operations = [\"create\", \"update\"]\nversion = \"rev\"\nconfirm = \"ask\"";
    assert_snapshot!(diagnostics_of_table(table.clone(), more), @r#"
    error: `version` needs row versions, which the source `s` does not support
     --> spile.toml:5:11
      |
    5 | version = "rev"
      |           ^^^^^
      = help: remove `version`

    error: `confirm` needs idempotency keys, which the source `s` does not support
     --> spile.toml:4:15
      |
    4 | operations = ["create", "update"]
      |               ^^^^^^^^
      = help: remove `confirm`
    "#);
    let more = "operations = [\"update\"]\nversion_required = true";
    assert_snapshot!(diagnostics_of_table(table.clone(), more), @r#"
    error: `version_required` needs row versions, which the source `s` does not support
     --> spile.toml:4:15
      |
    4 | operations = ["update"]
      |               ^^^^^^^^
      = help: remove `version_required`
    "#);
    let more = "operations = [\"create\"]\n[tools.add]\nuses = \"people.create\"\nconfirm = \"ask\"";
    assert_snapshot!(diagnostics_of_table(table, more), @r#"
    error: `confirm` needs idempotency keys, which the source `s` does not support
     --> spile.toml:5:8
      |
    5 | [tools.add]
      |        ^^^
      = help: remove `confirm`
    "#);
    let facts = StatementFacts { writes: Some(WriteCapabilities::ROLLBACK), ..top_statement() };
    let more = "sql = \"update people set name = :plan where born > :since returning plan\"\nwrites = true\n\
                confirm = \"ask\"\narguments = { plan = {}, since = {} }";
    assert_snapshot!(diagnostics_of_statement(Ok(facts), more), @r#"
    error: `confirm` needs idempotency keys, which the source `s` does not support
     --> spile.toml:3:8
      |
    3 | [tools.top]
      |        ^^^
      = help: remove `confirm`
    "#);
}

#[test]
fn rejects_update_and_delete_without_a_key() {
    let table = TableFacts { key: vec![], ..people_table() };
    assert_snapshot!(diagnostics_of_table(table, "operations = [\"list\", \"update\", \"delete\"]"), @r#"
    error: `people` has no key: no column of texts, integers or plain dates has a unique value in every row
     --> spile.toml:4:23
      |
    4 | operations = ["list", "update", "delete"]
      |                       ^^^^^^^^
      = help: name the key column with `key = "…"`, or several with `key = ["…", "…"]`

    error: `people` has no key: no column of texts, integers or plain dates has a unique value in every row
     --> spile.toml:4:33
      |
    4 | operations = ["list", "update", "delete"]
      |                                 ^^^^^^^^
      = help: name the key column with `key = "…"`, or several with `key = ["…", "…"]`
    "#);
}

#[test]
fn rejects_create_without_a_required_column() {
    let more = "operations = [\"create\"]\nfields = { name = { hidden = true } }";
    assert_snapshot!(diagnostics_of(more), @r#"
    error: a new row of `people` needs a value for `name`, which is hidden
     --> spile.toml:4:15
      |
    4 | operations = ["create"]
      |               ^^^^^^^^
      = help: remove `hidden`, give the column a default in the source, or remove the operation `create`
    "#);
}

#[test]
fn rejects_writes_without_a_writable_field() {
    let only = TableFacts { columns: people_table().columns[..1].to_vec(), ..people_table() };
    assert_snapshot!(diagnostics_of_table(only, "operations = [\"update\"]"), @r#"
    error: `people` has no field that can be updated: the key cannot change
     --> spile.toml:4:15
      |
    4 | operations = ["update"]
      |               ^^^^^^^^
      = help: remove the operation `update`
    "#);
    let computed = ColumnFacts {
        read_only_reason: Some("it is computed".into()),
        ..ColumnFacts::new("id", DataType::Text)
    };
    let others = ColumnFacts { name: "total".into(), ..computed.clone() };
    let others = TableFacts { columns: vec![people_table().columns.remove(0), others], ..people_table() };
    let text = diagnostics_of_table(others, "operations = [\"update\"]");
    let expected =
        "the key cannot change, and the other fields cannot be set: `total`, because it is computed";
    assert!(text.contains(expected), "{text}");
    let computed = TableFacts { columns: vec![computed], ..people_table() };
    assert_snapshot!(diagnostics_of_table(computed, "operations = [\"create\"]"), @r#"
    error: `people` has no field that a caller can set
     --> spile.toml:4:15
      |
    4 | operations = ["create"]
      |               ^^^^^^^^
      = help: remove the operation `create`
    "#);
}

#[test]
fn rejects_a_version_that_is_not_an_integer_column() {
    assert_snapshot!(diagnostics_of("operations = [\"update\"]\nversion = \"name\""), @r#"
    error: the version column `name` is text, not an integer
     --> spile.toml:5:11
      |
    5 | version = "name"
      |           ^^^^^^
      = help: choose an integer column, or remove `version` to compare the contents of the row
    "#);
    assert_snapshot!(diagnostics_of("operations = [\"update\"]\nversion = \"rve\""), @r#"
    error: unknown field `rve`
     --> spile.toml:5:11
      |
    5 | version = "rve"
      |           ^^^^^
      = help: did you mean `rev`?
    "#);
    assert_snapshot!(diagnostics_of("operations = [\"update\"]\nversion = \"id\""), @r#"
    error: the version column `id` is part of the key, which cannot change
     --> spile.toml:5:11
      |
    5 | version = "id"
      |           ^^^^
      = help: choose an integer column, or remove `version` to compare the contents of the row
    "#);
    let mut table = people_table();
    table.columns[5].mixed = true;
    assert_snapshot!(diagnostics_of_table(table.clone(), "operations = [\"update\"]\nversion = \"rev\""), @r#"
    error: the version column `rev` is not an integer in every row
     --> spile.toml:5:11
      |
    5 | version = "rev"
      |           ^^^^^
      = help: choose an integer column, or remove `version` to compare the contents of the row
    "#);
    table.columns[5] =
        ColumnFacts { read_only_reason: Some("it is computed".into()), ..people_table().columns[5].clone() };
    assert_snapshot!(diagnostics_of_table(table, "operations = [\"update\"]\nversion = \"rev\""), @r#"
    error: the version column `rev` cannot be set: it is computed
     --> spile.toml:5:11
      |
    5 | version = "rev"
      |           ^^^^^
      = help: choose an integer column, or remove `version` to compare the contents of the row
    "#);
}

#[test]
fn rejects_a_sensitive_key() {
    assert_snapshot!(diagnostics_of("fields = { id = { sensitive = true } }"), @r"
    error: the key `id` is sensitive
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: a key appears in calls, cursors and confirmations; choose another with `key`, or remove `sensitive`
    ");
}

#[test]
fn rejects_a_tool_that_uses_an_undeclared_operation() {
    assert_snapshot!(diagnostics_of("[tools.add]\nuses = \"people.create\""), @r#"
    error: `people` does not have the operation `create`
     --> spile.toml:5:8
      |
    5 | uses = "people.create"
      |        ^^^^^^^^^^^^^^^
      = help: add it to the collection's `operations`
    "#);
}

#[test]
fn rejects_a_search_without_text_fields() {
    assert_snapshot!(diagnostics_of("operations = [\"search\"]\nsearch = [\"balance\", \"nmae\"]"), @r#"
    error: `balance` is decimal, and only text fields can be searched
     --> spile.toml:5:11
      |
    5 | search = ["balance", "nmae"]
      |           ^^^^^^^^^
      = help: remove it; a list can filter by it

    error: unknown field `nmae`
     --> spile.toml:5:22
      |
    5 | search = ["balance", "nmae"]
      |                      ^^^^^^
      = help: did you mean `name`?
    "#);
    assert_snapshot!(diagnostics_of("operations = [\"search\"]\nsearch = false"), @r#"
    error: `people` has the operation `search` and `search = false`
     --> spile.toml:4:15
      |
    4 | operations = ["search"]
      |               ^^^^^^^^
      = help: choose fields with `search = ["…"]`, or remove the operation
    "#);
    let numbers = TableFacts { columns: people_table().columns[..1].to_vec(), ..people_table() };
    assert_snapshot!(diagnostics_of_table(numbers, "operations = [\"search\"]"), @r#"
    error: `people` has no text field to search
     --> spile.toml:4:15
      |
    4 | operations = ["search"]
      |               ^^^^^^^^
      = help: remove the operation `search`, or declare a field with `as = "text"`
    "#);
}

#[test]
fn rejects_a_type_that_does_not_fit_the_column() {
    assert_snapshot!(diagnostics_of("fields = { balance = { as = \"date\" }, photo = { as = \"text\" } }"), @r#"
    error: `balance` is decimal and cannot be date
     --> spile.toml:4:29
      |
    4 | fields = { balance = { as = "date" }, photo = { as = "text" } }
      |                             ^^^^^^
      = help: remove `as`, or write `as = "text"`

    error: `photo` is blob and cannot be text
     --> spile.toml:4:54
      |
    4 | fields = { balance = { as = "date" }, photo = { as = "text" } }
      |                                                      ^^^^^^
      = help: remove `as`, or write `as = "blob"`
    "#);
    assert_snapshot!(diagnostics_of("fields = { name = { as = \"blob\" } }"), @r#"
    error: `name` is text and cannot be blob
     --> spile.toml:4:26
      |
    4 | fields = { name = { as = "blob" } }
      |                          ^^^^^^
      = help: remove `as`, or write `as = "text"`; only binary columns, and JSON columns in which every text is base64, can be blobs
    "#);
    let mut base64 = people_table();
    base64.columns.iter_mut().for_each(|column| column.is_base64 = column.name == "name");
    assert_eq!(diagnostics_of_table(base64, "fields = { name = { as = \"blob\" } }"), "");
    // These types fit.
    assert_eq!(
        diagnostics_of(
            "fields = { id = { as = \"int64\" }, rev = { as = \"boolean\" }, extra = { as = \"text\" } }"
        ),
        ""
    );
}

#[test]
fn reports_errors_of_the_source_in_a_statement() {
    let bad = StatementError {
        message: "no such column: plna".into(),
        help: Some("did you mean `plan`?".into()),
        span: Some(7..11),
    };
    assert_snapshot!(diagnostics_of_statement(Err(bad), "sql = \"select plna from people\""), @r#"
    error: no such column: plna
     --> spile.toml:4:15
      |
    4 | sql = "select plna from people"
      |               ^^^^
      = help: did you mean `plan`?
    "#);
    let bad = StatementError { message: "this is two statements".into(), help: None, span: None };
    assert_snapshot!(diagnostics_of_statement(Err(bad), "sql = \"select 1; select 2\""), @r#"
    error: this is two statements
     --> spile.toml:4:7
      |
    4 | sql = "select 1; select 2"
      |       ^^^^^^^^^^^^^^^^^^^^
    "#);
}

#[test]
fn rejects_arguments_without_a_parameter_and_parameters_without_an_argument() {
    assert_snapshot!(diagnostics_of_statement(Ok(top_statement()), r#"
sql = "select plan, count(*) as n from people where since >= :since and plan = :plan"
arguments.sinec = { type = "date" }
arguments.zebra = { type = "date" }
"#), @r#"
    error: the statement has no parameter `:sinec`
     --> spile.toml:5:11
      |
    5 | arguments.sinec = { type = "date" }
      |           ^^^^^
      = help: did you mean `since`?

    error: the statement has no parameter `:zebra`
     --> spile.toml:6:11
      |
    6 | arguments.zebra = { type = "date" }
      |           ^^^^^
      = help: use `:zebra` in the statement, or remove the argument

    error: the parameter `:since` is not declared
     --> spile.toml:4:62
      |
    4 | sql = "select plan, count(*) as n from people where since >= :since and plan = :plan"
      |                                                              ^^^^^^
      = help: did you mean `sinec`?

    error: the parameter `:plan` is not declared
     --> spile.toml:4:80
      |
    4 | sql = "select plan, count(*) as n from people where since >= :since and plan = :plan"
      |                                                                                ^^^^^
      = help: add `arguments.plan = { type = "string" }`
    "#);
}

#[test]
fn warns_about_arguments_that_a_column_does_not_accept() {
    let kept = |name: &str, declared: &str, keeps: AcceptedValues| ColumnAssignment {
        parameter: name.into(),
        column: name.to_uppercase(),
        declared_type: declared.into(),
        accepts: keeps,
    };
    let kept = [
        kept("code", "NUMERIC", AcceptedValues::NumbersAndTexts),
        kept("total", "NUMERIC", AcceptedValues::NumbersAndTexts),
        kept("n", "NUMERIC", AcceptedValues::NumbersAndTexts),
        kept("day", "DATE", AcceptedValues::NumbersAndTexts),
        kept("code", "INTEGER", AcceptedValues::Numbers),
        kept("day", "INTEGER", AcceptedValues::Numbers),
        kept("on", "TEXT", AcceptedValues::Texts),
    ];
    let parameters = ["code", "total", "n", "day", "on"];
    let facts = StatementFacts {
        writes: Some(WriteCapabilities::ALL),
        parameters: parameters.map(str::to_owned).to_vec(),
        assignments: kept.to_vec(),
        ..StatementFacts::default()
    };
    let text = "sql = \"insert into t values(:code, :total, :n, :day, :on)\"\nwrites = true\narguments.code = {}\n\
                arguments.total = { type = \"decimal\" }\narguments.n = { type = \"integer\" }\n\
                arguments.day = { type = \"date\" }\narguments.on = { type = \"boolean\" }";
    assert_snapshot!(diagnostics_of_statement(Ok(facts), text), @r#"
    warning: `:code` is a text, but the column `CODE`, declared as `NUMERIC`, stores numbers
     --> spile.toml:6:11
      |
    6 | arguments.code = {}
      |           ^^^^
      = help: the column rejects texts such as `007`; declare a numeric `type`, or use `cast`

    warning: `:total` is a decimal, but the column `TOTAL`, declared as `NUMERIC`, stores numbers
     --> spile.toml:7:11
      |
    7 | arguments.total = { type = "decimal" }
      |           ^^^^^
      = help: the column rejects more than 15 digits; for exact digits declare the column as TEXT

    warning: `:code` is a text, but the column `CODE`, declared as `INTEGER`, stores numbers
     --> spile.toml:6:11
      |
    6 | arguments.code = {}
      |           ^^^^
      = help: the column rejects texts that are not numbers, and texts such as `007`; declare a numeric `type`, or use `cast`

    warning: `:day` is a date, but the column `DAY`, declared as `INTEGER`, stores numbers
     --> spile.toml:9:11
      |
    9 | arguments.day = { type = "date" }
      |           ^^^
      = help: the column rejects it; declare the column as DATE or TEXT

    warning: `:on` is true or false, but the column `ON`, declared as `TEXT`, stores texts
      --> spile.toml:10:11
       |
    10 | arguments.on = { type = "boolean" }
       |           ^^
       = help: the column rejects it, because the statement also uses the parameter elsewhere; write `iif(:…, 'true', 'false')`
    "#);
}

#[test]
fn warns_about_limits_that_are_not_integers() {
    let facts = StatementFacts {
        parameters: vec!["n".into(), "from".into(), "all".into()],
        limit_parameters: vec!["n".into(), "from".into(), "all".into()],
        ..top_statement()
    };
    let text = "sql = \"select plan from (select 1 limit :n) limit :all offset :from\"\narguments.n = {}\n\
                arguments.from = { type = \"integer\", required = false }\n\
                arguments.all = { type = \"integer\", default = -1 }";
    assert_snapshot!(diagnostics_of_statement(Ok(facts), text), @r#"
    warning: `:n` is text, but a limit must be an integer
     --> spile.toml:5:11
      |
    5 | arguments.n = {}
      |           ^
      = help: declare it with `type = "integer"`

    warning: `:from` is optional, but a limit that is NULL is an error
     --> spile.toml:6:11
      |
    6 | arguments.from = { type = "integer", required = false }
      |           ^^^^
      = help: give it a `default`; -1 means no limit
    "#);
}

#[test]
fn rejects_an_undeclared_writing_statement() {
    let nothing = StatementFacts { writes: Some(WriteCapabilities::ALL), ..StatementFacts::default() };
    assert_snapshot!(diagnostics_of_statement(Ok(nothing.clone()), "sql = \"delete from people\""), @r#"
    error: this statement writes, and the tool does not have `writes = true`
     --> spile.toml:4:7
      |
    4 | sql = "delete from people"
      |       ^^^^^^^^^^^^^^^^^^^^
      = help: add `writes = true` to allow it, or use a statement that only reads
    "#);
    let text = "sql = \"delete from people\"\nwrites = true\nreturns = \"one\"";
    assert_snapshot!(diagnostics_of_statement(Ok(nothing), text), @r#"
    error: this statement returns no columns
     --> spile.toml:4:7
      |
    4 | sql = "delete from people"
      |       ^^^^^^^^^^^^^^^^^^^^
      = help: add `returning …`, or leave `returns = "one"` out
    "#);
    let reads = StatementFacts { parameters: vec![], ..top_statement() };
    assert_snapshot!(diagnostics_of_statement(Ok(reads), "sql = \"select 1\"\nwrites = true"), @r#"
    warning: this statement only reads
     --> spile.toml:3:8
      |
    3 | [tools.top]
      |        ^^^
      = help: leave `writes = true` out
    "#);
    assert_snapshot!(diagnostics_of_statement(Ok(StatementFacts::default()), "sql = \"pragma x\""), @r#"
    error: this statement returns no columns
     --> spile.toml:4:7
      |
    4 | sql = "pragma x"
      |       ^^^^^^^^^^
      = help: use a `select` statement
    "#);
}

#[test]
fn rejects_duplicate_and_unknown_result_columns() {
    let columns = vec![ColumnFacts::new("plan", DataType::Text), ColumnFacts::new("plan", DataType::Text)];
    let facts = StatementFacts { columns, ..StatementFacts::default() };
    let text = "sql = \"select a.plan, b.plan from a, b\"\nfields = { paln = { hidden = true } }";
    assert_snapshot!(diagnostics_of_statement(Ok(facts), text), @r#"
    error: two columns of the result have the name `plan`
     --> spile.toml:4:7
      |
    4 | sql = "select a.plan, b.plan from a, b"
      |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: rename one of them with `as`

    error: the statement returns no column `paln`
     --> spile.toml:5:12
      |
    5 | fields = { paln = { hidden = true } }
      |            ^^^^
      = help: did you mean `plan`?
    "#);
    let facts = StatementFacts {
        columns: vec![ColumnFacts::new("plan", DataType::Text)],
        ..StatementFacts::default()
    };
    let text = "sql = \"select plan from a\"\nfields = { plan = { hidden = true } }";
    assert_snapshot!(diagnostics_of_statement(Ok(facts), text), @r"
    error: `top` has no visible field
     --> spile.toml:3:8
      |
    3 | [tools.top]
      |        ^^^
      = help: remove `hidden = true` from one of its columns
    ");
}

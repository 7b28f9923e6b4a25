//! Operations and statements that cannot be had, and what their author is told.

use contract::DataType;
use contract::diagnostic::render_all;
use contract::source::{
    AcceptedValues, ColumnAssignment, ColumnFacts, StatementError, StatementFacts, TableFacts,
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
fn writing_to_what_is_read_only() {
    let table = TableFacts { read_only_reason: Some("it is a view".into()), ..people_table() };
    assert_snapshot!(diagnostics_of_table(table, "operations = [\"get\", \"create\", \"delete\"]"), @r#"
    error: `people` cannot be written to: it is a view
     --> spile.toml:4:22
      |
    4 | operations = ["get", "create", "delete"]
      |                      ^^^^^^^^
      = help: leave "create", "delete" out of its operations
    "#);
}

#[test]
fn changing_what_has_no_key() {
    let table = TableFacts { key: vec![], ..people_table() };
    assert_snapshot!(diagnostics_of_table(table, "operations = [\"list\", \"update\", \"delete\"]"), @r#"
    error: `people` has no key: no column of text or whole numbers has a value in every row and none twice
     --> spile.toml:4:23
      |
    4 | operations = ["list", "update", "delete"]
      |                       ^^^^^^^^
      = help: say which with key = "…", or key = ["…", "…"]

    error: `people` has no key: no column of text or whole numbers has a value in every row and none twice
     --> spile.toml:4:33
      |
    4 | operations = ["list", "update", "delete"]
      |                                 ^^^^^^^^
      = help: say which with key = "…", or key = ["…", "…"]
    "#);
}

#[test]
fn a_new_record_without_what_it_needs() {
    let more = "operations = [\"create\"]\nfields = { name = { hidden = true } }";
    assert_snapshot!(diagnostics_of(more), @r#"
    error: a new record of `people` needs `name`, which is hidden
     --> spile.toml:4:15
      |
    4 | operations = ["create"]
      |               ^^^^^^^^
      = help: show it, give it a default in the source, or leave "create" out
    "#);
}

#[test]
fn nothing_that_could_be_changed() {
    let only = TableFacts { columns: people_table().columns[..1].to_vec(), ..people_table() };
    assert_snapshot!(diagnostics_of_table(only, "operations = [\"update\"]"), @r#"
    error: nothing of `people` can be changed but its key, and that stays
     --> spile.toml:4:15
      |
    4 | operations = ["update"]
      |               ^^^^^^^^
      = help: leave "update" out
    "#);
    let computed = ColumnFacts {
        read_only_reason: Some("it is computed".into()),
        ..ColumnFacts::new("id", DataType::Text)
    };
    let computed = TableFacts { columns: vec![computed], ..people_table() };
    assert_snapshot!(diagnostics_of_table(computed, "operations = [\"create\"]"), @r#"
    error: no field of `people` can be set by a caller
     --> spile.toml:4:15
      |
    4 | operations = ["create"]
      |               ^^^^^^^^
      = help: leave "create" out
    "#);
}

#[test]
fn a_version_that_is_none() {
    assert_snapshot!(diagnostics_of("operations = [\"update\"]\nversion = \"name\""), @r#"
    error: the version `name` is text, and no whole number
     --> spile.toml:5:11
      |
    5 | version = "name"
      |           ^^^^^^
      = help: choose a column of whole numbers, or leave `version` out: then contents are compared
    "#);
    assert_snapshot!(diagnostics_of("operations = [\"update\"]\nversion = \"rve\""), @r#"
    error: no field `rve`
     --> spile.toml:5:11
      |
    5 | version = "rve"
      |           ^^^^^
      = help: did you mean `rev`?
    "#);
    assert_snapshot!(diagnostics_of("operations = [\"update\"]\nversion = \"id\""), @r#"
    error: the version `id` is part of the key, which stays
     --> spile.toml:5:11
      |
    5 | version = "id"
      |           ^^^^
      = help: choose a column of whole numbers, or leave `version` out: then contents are compared
    "#);
    let mut table = people_table();
    table.columns[5].mixed = true;
    assert_snapshot!(diagnostics_of_table(table.clone(), "operations = [\"update\"]\nversion = \"rev\""), @r#"
    error: the version `rev` is not a whole number in every row
     --> spile.toml:5:11
      |
    5 | version = "rev"
      |           ^^^^^
      = help: choose a column of whole numbers, or leave `version` out: then contents are compared
    "#);
    table.columns[5] =
        ColumnFacts { read_only_reason: Some("it is computed".into()), ..people_table().columns[5].clone() };
    assert_snapshot!(diagnostics_of_table(table, "operations = [\"update\"]\nversion = \"rev\""), @r#"
    error: the version `rev` cannot be set: it is computed
     --> spile.toml:5:11
      |
    5 | version = "rev"
      |           ^^^^^
      = help: choose a column of whole numbers, or leave `version` out: then contents are compared
    "#);
}

#[test]
fn a_key_that_nobody_may_see() {
    assert_snapshot!(diagnostics_of("fields = { id = { sensitive = true } }"), @r#"
    error: the key `id` is sensitive
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: a key is in every call, cursor and question; choose another with `key`, or leave `sensitive` out
    "#);
}

#[test]
fn an_operation_that_is_not_named() {
    assert_snapshot!(diagnostics_of("[tools.add]\nuses = \"people.create\""), @r#"
    error: `people` does not have `create`
     --> spile.toml:5:8
      |
    5 | uses = "people.create"
      |        ^^^^^^^^^^^^^^^
      = help: add it to the collection's operations
    "#);
}

#[test]
fn a_search_that_finds_nothing() {
    assert_snapshot!(diagnostics_of("operations = [\"search\"]\nsearch = [\"balance\", \"nmae\"]"), @r#"
    error: `balance` is decimal, and words are looked for in text
     --> spile.toml:5:11
      |
    5 | search = ["balance", "nmae"]
      |           ^^^^^^^^^
      = help: leave it out; a list can filter by it

    error: no field `nmae`
     --> spile.toml:5:22
      |
    5 | search = ["balance", "nmae"]
      |                      ^^^^^^
      = help: did you mean `name`?
    "#);
    assert_snapshot!(diagnostics_of("operations = [\"search\"]\nsearch = false"), @r#"
    error: `people` is to be searched, and nothing in it may be
     --> spile.toml:4:15
      |
    4 | operations = ["search"]
      |               ^^^^^^^^
      = help: choose fields with search = ["…"], or leave the operation out
    "#);
    let numbers = TableFacts { columns: people_table().columns[..1].to_vec(), ..people_table() };
    assert_snapshot!(diagnostics_of_table(numbers, "operations = [\"search\"]"), @r#"
    error: `people` has no text to be searched
     --> spile.toml:4:15
      |
    4 | operations = ["search"]
      |               ^^^^^^^^
      = help: leave "search" out, or say `as = "text"` for one of its fields
    "#);
}

#[test]
fn a_type_that_the_column_has_not() {
    assert_snapshot!(diagnostics_of("fields = { balance = { as = \"date\" }, photo = { as = \"text\" } }"), @r#"
    error: `balance` is decimal, and cannot be date
     --> spile.toml:4:29
      |
    4 | fields = { balance = { as = "date" }, photo = { as = "text" } }
      |                             ^^^^^^
      = help: leave the type out, or say `as = "text"`

    error: `photo` is blob, and cannot be text
     --> spile.toml:4:54
      |
    4 | fields = { balance = { as = "date" }, photo = { as = "text" } }
      |                                                      ^^^^^^
      = help: leave the type out, or say `as = "blob"`
    "#);
    assert_snapshot!(diagnostics_of("fields = { name = { as = \"blob\" } }"), @r#"
    error: `name` is text, and cannot be blob
     --> spile.toml:4:26
      |
    4 | fields = { name = { as = "blob" } }
      |                          ^^^^^^
      = help: leave the type out, or say `as = "text"`; only columns of bytes are blobs, and columns of a JSON file that are all base64
    "#);
    let mut base64 = people_table();
    base64.columns.iter_mut().for_each(|column| column.is_base64 = column.name == "name");
    assert_eq!(diagnostics_of_table(base64, "fields = { name = { as = \"blob\" } }"), "");
    // These can be.
    assert_eq!(
        diagnostics_of(
            "fields = { id = { as = \"int64\" }, rev = { as = \"boolean\" }, extra = { as = \"text\" } }"
        ),
        ""
    );
}

#[test]
fn a_statement_that_its_source_does_not_take() {
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
      = help: correct the statement
    "#);
}

#[test]
fn arguments_and_parameters_that_do_not_meet() {
    assert_snapshot!(diagnostics_of_statement(Ok(top_statement()), r#"
sql = "select plan, count(*) as n from people where since >= :since and plan = :plan"
arguments.sinec = { type = "date" }
arguments.zebra = { type = "date" }
"#), @r#"
    error: the statement has no `:sinec`
     --> spile.toml:5:11
      |
    5 | arguments.sinec = { type = "date" }
      |           ^^^^^
      = help: did you mean `since`?

    error: the statement has no `:zebra`
     --> spile.toml:6:11
      |
    6 | arguments.zebra = { type = "date" }
      |           ^^^^^
      = help: write `:zebra` where it belongs, or leave it out

    error: nothing says what `:since` is
     --> spile.toml:4:62
      |
    4 | sql = "select plan, count(*) as n from people where since >= :since and plan = :plan"
      |                                                              ^^^^^^
      = help: did you mean `sinec`?

    error: nothing says what `:plan` is
     --> spile.toml:4:80
      |
    4 | sql = "select plan, count(*) as n from people where since >= :since and plan = :plan"
      |                                                                                ^^^^^
      = help: add `arguments.plan = { type = "string" }`
    "#);
}

#[test]
fn texts_and_decimals_on_their_way_into_columns_of_numbers() {
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
        writes: true,
        parameters: parameters.map(str::to_owned).to_vec(),
        assignments: kept.to_vec(),
        ..StatementFacts::default()
    };
    let text = "sql = \"insert into t values(:code, :total, :n, :day, :on)\"\nwrites = true\narguments.code = {}\n\
                arguments.total = { type = \"decimal\" }\narguments.n = { type = \"integer\" }\n\
                arguments.day = { type = \"date\" }\narguments.on = { type = \"boolean\" }";
    assert_snapshot!(diagnostics_of_statement(Ok(facts), text), @r#"
    warning: `:code` is a text, and the column `CODE`, declared as `NUMERIC`, keeps numbers
     --> spile.toml:6:11
      |
    6 | arguments.code = {}
      |           ^^^^
      = help: a text such as `007` is refused there; say what it is with `type`, or `cast` it

    warning: `:total` is a decimal, and the column `TOTAL`, declared as `NUMERIC`, keeps numbers
     --> spile.toml:7:11
      |
    7 | arguments.total = { type = "decimal" }
      |           ^^^^^
      = help: more than 15 digits are refused there; for exact digits declare the column TEXT

    warning: `:code` is a text, and the column `CODE`, declared as `INTEGER`, keeps numbers
     --> spile.toml:6:11
      |
    6 | arguments.code = {}
      |           ^^^^
      = help: a text that is no number, and one such as `007`, is refused there; say what it is with `type`, or `cast` it

    warning: `:day` is a date, and the column `DAY`, declared as `INTEGER`, keeps numbers
     --> spile.toml:9:11
      |
    9 | arguments.day = { type = "date" }
      |           ^^^
      = help: it is refused there; declare the column DATE or TEXT

    warning: `:on` is true or false, and the column `ON`, declared as `TEXT`, keeps texts
      --> spile.toml:10:11
       |
    10 | arguments.on = { type = "boolean" }
       |           ^^
       = help: it is refused there, because the statement has it elsewhere too; write `iif(:…, 'true', 'false')`
    "#);
}

#[test]
fn limits_that_are_no_integers() {
    let facts = StatementFacts {
        parameters: vec!["n".into(), "from".into(), "all".into()],
        limit_parameters: vec!["n".into(), "from".into(), "all".into()],
        ..top_statement()
    };
    let text = "sql = \"select plan from (select 1 limit :n) limit :all offset :from\"\narguments.n = {}\n\
                arguments.from = { type = \"integer\", required = false }\n\
                arguments.all = { type = \"integer\", default = -1 }";
    assert_snapshot!(diagnostics_of_statement(Ok(facts), text), @r#"
    warning: `:n` is text, and a limit has to be an integer
     --> spile.toml:5:11
      |
    5 | arguments.n = {}
      |           ^
      = help: say `type = "integer"`

    warning: `:from` may be left out, and a limit that is NULL is an error
     --> spile.toml:6:11
      |
    6 | arguments.from = { type = "integer", required = false }
      |           ^^^^
      = help: give it a `default`: -1 is no limit
    "#);
}

#[test]
fn a_statement_that_writes_and_does_not_say_so() {
    let nothing = StatementFacts { writes: true, ..StatementFacts::default() };
    assert_snapshot!(diagnostics_of_statement(Ok(nothing.clone()), "sql = \"delete from people\""), @r#"
    error: this statement writes
     --> spile.toml:4:7
      |
    4 | sql = "delete from people"
      |       ^^^^^^^^^^^^^^^^^^^^
      = help: say `writes = true` if that is what you want, or let it only read
    "#);
    let text = "sql = \"delete from people\"\nwrites = true\nreturns = \"one\"";
    assert_snapshot!(diagnostics_of_statement(Ok(nothing), text), @r#"
    error: this statement gives no columns
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
    error: this statement gives no columns
     --> spile.toml:4:7
      |
    4 | sql = "pragma x"
      |       ^^^^^^^^^^
      = help: a statement that reads is a `select`
    "#);
}

#[test]
fn columns_of_a_result_that_are_twice_there_or_not_at_all() {
    let columns = vec![ColumnFacts::new("plan", DataType::Text), ColumnFacts::new("plan", DataType::Text)];
    let facts = StatementFacts { columns, ..StatementFacts::default() };
    let text = "sql = \"select a.plan, b.plan from a, b\"\nfields = { paln = { hidden = true } }";
    assert_snapshot!(diagnostics_of_statement(Ok(facts), text), @r#"
    error: two columns of the result are called `plan`
     --> spile.toml:4:7
      |
    4 | sql = "select a.plan, b.plan from a, b"
      |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: name one of them with `as`

    error: the statement gives no column `paln`
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
    assert_snapshot!(diagnostics_of_statement(Ok(facts), text), @r#"
    error: `top` has no field to show
     --> spile.toml:3:8
      |
    3 | [tools.top]
      |        ^^^
      = help: leave `hidden = true` out for one of its columns
    "#);
}

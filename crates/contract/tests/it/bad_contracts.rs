//! Diagnostics for manifests that parse but do not fit the data.

use contract::DataType;
use contract::compile::{IntrospectedSource, compile};
use contract::diagnostic::render_all;
use contract::manifest;
use contract::source::{ColumnFacts, SkippedTable, SourceFacts, TableFacts};
use insta::assert_snapshot;

fn column(name: &str, kind: DataType) -> ColumnFacts {
    ColumnFacts::new(name, kind)
}

fn table(key: Vec<usize>, rows: Option<u64>) -> TableFacts {
    let columns = vec![
        column("name", DataType::Text),
        column("age", DataType::Integer),
        column("extra", DataType::Json),
    ];
    TableFacts { key, row_count: rows, ..TableFacts::new("people", columns) }
}

/// The diagnostics for a collection of people with these lines.
fn diagnostics_of_table(table: TableFacts, more: &str) -> String {
    let text = format!("[sources.s]\npath = \"s.db\"\n[collections.people]\n{more}");
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None).expect("a manifest");
    let why = "it has a value of more than 64 MiB".into();
    let left_out = vec![SkippedTable { table: "films".into(), reason: why }];
    let facts = SourceFacts { tables: vec![table], skipped_tables: left_out, ..SourceFacts::default() };
    let (_, found) = compile(&manifest, &[IntrospectedSource::new("s", &facts)], "people");
    render_all(&found, false)
}

fn diagnostics_of(more: &str) -> String {
    diagnostics_of_table(table(vec![0], Some(9)), more)
}

#[test]
fn template_errors_mark_the_wrong_part() {
    assert_snapshot!(diagnostics_of("[tools.find]\nuses = \"people.get\"\ntext = \"Found {nmae} here.\"\n"), @r#"
    error: `people` has no field `nmae`
     --> spile.toml:6:15
      |
    6 | text = "Found {nmae} here."
      |               ^^^^^^
      = help: did you mean `name`?
    "#);
    assert_snapshot!(diagnostics_of("[tools.find]\nuses = \"people.get\"\ntext = \"{zebra}\"\n"), @r#"
    error: `people` has no field `zebra`
     --> spile.toml:6:9
      |
    6 | text = "{zebra}"
      |         ^^^^^^^
      = help: known fields: `name`, `age`, `extra`
    "#);
    assert_snapshot!(diagnostics_of("[tools.find]\nuses = \"people.get\"\ntext = \"Found {name\"\n"), @r#"
    error: a `{` has no `}`
     --> spile.toml:6:15
      |
    6 | text = "Found {name"
      |               ^^^^^
      = help: write `{{` for a literal brace
    "#);
}

#[test]
fn rejects_a_tool_that_uses_an_unknown_collection() {
    assert_snapshot!(diagnostics_of("[tools.find]\nuses = \"zebras.get\"\n"), @r#"
    error: unknown collection `zebras`
     --> spile.toml:5:9
      |
    5 | uses = "zebras.get"
      |         ^^^^^^
      = help: known collections: `people`
    "#);
}

#[test]
fn rejects_unknown_names() {
    assert_snapshot!(diagnostics_of("filters = [\"zebra\"]\nsort = [\"extra\"]\n"), @r#"
    error: unknown field `zebra`
     --> spile.toml:4:12
      |
    4 | filters = ["zebra"]
      |            ^^^^^^^
      = help: known fields: `name`, `age`, `extra`

    error: `extra` cannot be in `sort`: its type is json
     --> spile.toml:5:9
      |
    5 | sort = ["extra"]
      |         ^^^^^^^
      = help: remove it
    "#);
    assert_snapshot!(diagnostics_of("key = \"extra\"\n[collections.people.fields]\nage = { name = \"name\" }\n"), @r#"
    error: two fields would have the name `name`
     --> spile.toml:6:16
      |
    6 | age = { name = "name" }
      |                ^^^^^^
      = help: rename one of them

    error: `extra` cannot be a key: its type is json
     --> spile.toml:4:7
      |
    4 | key = "extra"
      |       ^^^^^^^
      = help: choose a column of texts, numbers or dates
    "#);
    assert_snapshot!(diagnostics_of("[collections.people.fields]\nage = { enum = [\"7\"] }\n"), @r#"
    error: `age` is integer, and this value is not
     --> spile.toml:5:17
      |
    5 | age = { enum = ["7"] }
      |                 ^^^
      = help: write an integer without quotes, or remove `enum`
    "#);
}

#[test]
fn a_skipped_table_is_reported_with_its_reason() {
    assert_snapshot!(diagnostics_of("table = \"films\"\n"), @r#"
    error: cannot serve the table `films`: it has a value of more than 64 MiB
     --> spile.toml:4:9
      |
    4 | table = "films"
      |         ^^^^^^^
      = help: remove the collection, or change the table so that it can be read
    "#);
}

#[test]
fn a_missing_key_is_reported_with_its_reason() {
    assert_snapshot!(diagnostics_of_table(table(vec![], Some(9)), ""), @r#"
    note: `people` has no key: no column of texts, integers or plain dates has a unique value in every row; it has no `get`
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: name the key column with `key = "…"`, or several with `key = ["…", "…"]`
    "#);
    assert_snapshot!(diagnostics_of_table(table(vec![], Some(0)), ""), @r#"
    note: `people` has no key: it has no rows, so none could be detected; it has no `get`
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: name the key column with `key = "…"`, or several with `key = ["…", "…"]`
    "#);
    assert_snapshot!(diagnostics_of_table(table(vec![], None), ""), @r#"
    note: `people` has no key: none is declared, and not all rows were scanned; it has no `get`
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: name the key column with `key = "…"`, or several with `key = ["…", "…"]`
    "#);
    assert_snapshot!(diagnostics_of_table(table(vec![0], Some(9)), "[collections.people.fields]\nname = { hidden = true }\n"), @r#"
    note: `people` has no key: its key `name` is hidden; it has no `get`
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: name the key column with `key = "…"`, or several with `key = ["…", "…"]`
    "#);
}

//! Manifests that read well and do not fit the data: what their author is told, and the way out.

use contract::DataType;
use contract::compile::{KnownSource, compile};
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

/// What is told about a collection of people with these lines more.
fn diagnostics_of_table(table: TableFacts, more: &str) -> String {
    let text = format!("[sources.s]\npath = \"s.db\"\n[collections.people]\n{more}");
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None).expect("a manifest");
    let why = "it has a value of more than 64 MiB".into();
    let left_out = vec![SkippedTable { table: "films".into(), reason: why }];
    let facts = SourceFacts { tables: vec![table], skipped_tables: left_out, ..SourceFacts::default() };
    let (_, found) = compile(&manifest, &[KnownSource::new("s", &facts)], "people");
    render_all(&found, false)
}

fn diagnostics_of(more: &str) -> String {
    diagnostics_of_table(table(vec![0], Some(9)), more)
}

#[test]
fn a_text_marks_the_place_that_is_wrong() {
    assert_snapshot!(diagnostics_of("[tools.find]\nuses = \"people.get\"\ntext = \"Found {nmae} here.\"\n"), @r#"
    error: no field `nmae` in `people`
     --> spile.toml:6:15
      |
    6 | text = "Found {nmae} here."
      |               ^^^^^^
      = help: did you mean `name`?
    "#);
    assert_snapshot!(diagnostics_of("[tools.find]\nuses = \"people.get\"\ntext = \"{zebra}\"\n"), @r#"
    error: no field `zebra` in `people`
     --> spile.toml:6:9
      |
    6 | text = "{zebra}"
      |         ^^^^^^^
      = help: there are: name, age, extra
    "#);
    assert_snapshot!(diagnostics_of("[tools.find]\nuses = \"people.get\"\ntext = \"Found {name\"\n"), @r#"
    error: a `{` without its `}`
     --> spile.toml:6:15
      |
    6 | text = "Found {name"
      |               ^^^^^
      = help: a brace itself is `{{`
    "#);
}

#[test]
fn a_tool_that_uses_nothing_there_is() {
    assert_snapshot!(diagnostics_of("[tools.find]\nuses = \"zebras.get\"\n"), @r#"
    error: no collection `zebras`
     --> spile.toml:5:9
      |
    5 | uses = "zebras.get"
      |         ^^^^^^
      = help: there are: people
    "#);
}

#[test]
fn names_that_are_none() {
    assert_snapshot!(diagnostics_of("filters = [\"zebra\"]\nsort = [\"extra\"]\n"), @r#"
    error: no field `zebra`
     --> spile.toml:4:12
      |
    4 | filters = ["zebra"]
      |            ^^^^^^^
      = help: there are: name, age, extra

    error: `extra` is json: no use in sort
     --> spile.toml:5:9
      |
    5 | sort = ["extra"]
      |         ^^^^^^^
      = help: leave it out
    "#);
    assert_snapshot!(diagnostics_of("key = \"extra\"\n[collections.people.fields]\nage = { name = \"name\" }\n"), @r#"
    error: two fields would be called `name`
     --> spile.toml:6:16
      |
    6 | age = { name = "name" }
      |                ^^^^^^
      = help: give one of them another name

    error: `extra` cannot be a key: it is json
     --> spile.toml:4:7
      |
    4 | key = "extra"
      |       ^^^^^^^
      = help: choose a column that callers can write down
    "#);
    assert_snapshot!(diagnostics_of("[collections.people.fields]\nage = { enum = [\"7\"] }\n"), @r#"
    error: `age` is integer here, and this value is not
     --> spile.toml:5:17
      |
    5 | age = { enum = ["7"] }
      |                 ^^^
      = help: write a whole number without quotes, or leave the list out
    "#);
}

#[test]
fn a_table_that_is_left_out_says_why() {
    assert_snapshot!(diagnostics_of("table = \"films\"\n"), @r#"
    error: the table `films` cannot be served: it has a value of more than 64 MiB
     --> spile.toml:4:9
      |
    4 | table = "films"
      |         ^^^^^^^
      = help: leave the collection out, or make a table that can be read
    "#);
}

#[test]
fn a_collection_without_a_key_says_why() {
    assert_snapshot!(diagnostics_of_table(table(vec![], Some(9)), ""), @r#"
    note: `people` has no key: no column of text or whole numbers has a value in every row and none twice; it can be listed only
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: say which with key = "…", or key = ["…", "…"]
    "#);
    assert_snapshot!(diagnostics_of_table(table(vec![], Some(0)), ""), @r#"
    note: `people` has no key: it has no rows in which one could be found; it can be listed only
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: say which with key = "…", or key = ["…", "…"]
    "#);
    assert_snapshot!(diagnostics_of_table(table(vec![], None), ""), @r#"
    note: `people` has no key: none is declared, and not all rows were seen; it can be listed only
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: say which with key = "…", or key = ["…", "…"]
    "#);
    assert_snapshot!(diagnostics_of_table(table(vec![0], Some(9)), "[collections.people.fields]\nname = { hidden = true }\n"), @r#"
    note: `people` has no key: its key `name` is hidden; it can be listed only
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: say which with key = "…", or key = ["…", "…"]
    "#);
}

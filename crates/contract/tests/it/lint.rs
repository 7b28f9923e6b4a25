//! Findings about valid contracts.

use contract::compile::{IntrospectedSource, compile};
use contract::diagnostic::{Diagnostic, render_all};
use contract::lint::lint;
use contract::manifest::{self, Manifest};
use contract::source::{ColumnFacts, SourceFacts, StatementFacts, TableFacts};
use contract::{Contract, DataType};
use insta::assert_snapshot;
use json::Json;

fn facts(columns: Vec<ColumnFacts>) -> SourceFacts {
    let table = |name: &str| TableFacts {
        key: vec![0],
        row_count: Some(9),
        ..TableFacts::new(name, columns.clone())
    };
    SourceFacts { tables: vec![table("people"), table("orders")], ..SourceFacts::default() }
}

fn columns() -> Vec<ColumnFacts> {
    vec![ColumnFacts::new("id", DataType::Integer), ColumnFacts::new("name", DataType::Text)]
}

fn compiled(facts: &SourceFacts, text: &str) -> (Contract, Manifest) {
    let text = format!("[sources.s]\npath = \"s.db\"\n{text}");
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None).expect("a manifest");
    let (contract, told) = compile(&manifest, &[IntrospectedSource::new("s", facts)], "people");
    (contract.unwrap_or_else(|| panic!("{}", render_all(&told, false))), manifest)
}

fn lint_diagnostics(facts: &SourceFacts, text: &str) -> Vec<Diagnostic> {
    let (contract, manifest) = compiled(facts, text);
    lint(&contract, &manifest, &[IntrospectedSource::new("s", facts)])
}

/// Each as `severity code: message`.
fn codes(found: &[Diagnostic]) -> Vec<String> {
    let line = |one: &Diagnostic| {
        let code = one.code.expect("a finding has a code");
        assert!(one.help.is_some(), "{code} has a way out");
        format!("{} {code}", one.severity.as_str())
    };
    found.iter().map(line).collect()
}

fn render_lints(facts: &SourceFacts, text: &str) -> String {
    render_all(&lint_diagnostics(facts, text), false)
}

const GOOD: &str = "[collections.people]\ndescription = 'People who work here.'\n";

#[test]
fn a_good_contract_has_no_findings() {
    assert_eq!(codes(&lint_diagnostics(&facts(columns()), GOOD)), [] as [&str; 0]);
    // A tool's own description is enough.
    let own = "[collections.people]\noperations = ['get']\n[tools.find]\nuses = 'people.get'\ndescription = 'Find.'";
    assert_eq!(codes(&lint_diagnostics(&facts(columns()), own)), [] as [&str; 0]);
}

#[test]
fn collections_without_a_description_are_one_note() {
    assert_snapshot!(render_lints(&facts(columns()), "[collections.people]\n[collections.orders]\n"), @r"
    note: 2 collections have no description: `people`, `orders`
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: describe what one row is, in one sentence; models choose their tools by it
    ");
    assert_snapshot!(render_lints(&facts(columns()), &format!("{GOOD}[collections.orders]\n")), @r"
    note: 1 collection has no description: `orders`
     --> spile.toml:5:14
      |
    5 | [collections.orders]
      |              ^^^^^^
      = help: describe what one row is, in one sentence; models choose their tools by it
    ");
}

#[test]
fn warns_about_tools_with_similar_descriptions() {
    let tools = |a: &str, b: &str| {
        format!(
            "{GOOD}[tools.find]\nuses = 'people.get'\ndescription = '{a}'\n[tools.all]\nuses = 'people.list'\ndescription = '{b}'\n"
        )
    };
    let facts = facts(columns());
    assert_snapshot!(render_lints(&facts, &tools("Look up people.", "Look up people.")), @r"
    warning: the tools `find` and `all` have the same description
     --> spile.toml:8:8
      |
    8 | [tools.all]
      |        ^^^
      = help: models cannot tell which to use; describe in each what the other does not do
    ");
    assert_snapshot!(
        render_lints(&facts, &tools("Return the people who work in an office.", "Return people that work in the office.")),
        @r"
    warning: the tools `find` and `all` have almost the same description
     --> spile.toml:8:8
      |
    8 | [tools.all]
      |        ^^^
      = help: models cannot tell which to use; describe in each what the other does not do
    "
    );
    for (a, b) in [
        ("One person by number.", "All persons, in pages."),
        ("Count the orders of a day.", "Count the orders of a customer."),
        ("的", "人"),
    ] {
        assert_eq!(codes(&lint_diagnostics(&facts, &tools(a, b))), [] as [&str; 0], "{a} {b}");
    }
}

#[test]
fn warns_about_collections_with_similar_descriptions() {
    let text = "[collections.people]\ndescription = 'Rows of the shop.'\n[collections.orders]\ndescription = 'Rows of the shop.'\n";
    assert_snapshot!(render_lints(&facts(columns()), text), @r"
    warning: the collections `people` and `orders` have the same description
     --> spile.toml:5:14
      |
    5 | [collections.orders]
      |              ^^^^^^
      = help: models cannot tell which to use; describe in each what the other does not do
    ");
}

#[test]
fn warns_about_schemas_that_clients_refuse() {
    let facts = facts(columns());
    let (contract, manifest) = compiled(&facts, GOOD);
    for (schema, expected) in [
        (r#"{"type":"object","anyOf":[{"required":["a"]}]}"#, &["warning schema_union"][..]),
        (r#"{"oneOf":[],"allOf":[]}"#, &["warning schema_union", "warning schema_union"]),
        (r#"{"type":"object","properties":{"a":{"anyOf":[{"type":"string"}]}}}"#, &[]),
        (r#"{"properties":{"a":{"$ref":"https://acme.test/a.json"}}}"#, &["warning schema_remote_ref"]),
        (
            r#"{"properties":{"a":{"type":"array","items":[{"$ref":"other.json#/a"}]}}}"#,
            &["warning schema_remote_ref"],
        ),
        (r##"{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{}}}"##, &[]),
        (
            r#"{"properties":{"größe":{"type":"string"},"a-b":{"type":"string"},"a.b":{"type":"string"}}}"#,
            &["warning argument_name"],
        ),
        (r#"{"properties":{"":{"type":"string"}}}"#, &["warning argument_name"]),
        (r#"{"properties":{"a":{},"b":{"description":"any value"}}}"#, &["warning schema_untyped"]),
        (r#"{"properties":{"a":{"enum":["x"]}}}"#, &["warning schema_untyped"]),
        (
            r#"{"properties":{"a":{"type":"object","properties":{"b":{"items":{"type":"string"}}}}}}"#,
            &["warning schema_untyped"],
        ),
        (r#"{"properties":{"a":{"type":"array","items":{}}}}"#, &[]),
        (r#"{"properties":{"a":{"type":"array","prefixItems":[{"type":"string"}]}}}"#, &[]),
        (r#"{"properties":{"a":{"type":"array"}}}"#, &["warning schema_items"]),
        (r#"{"properties":{"a":{"type":["string","array"]}}}"#, &["warning schema_items"]),
        (r#"{"properties":{"a":{"anyOf":[{"type":"array"},{"type":"null"}]}}}"#, &["warning schema_items"]),
        (r#"{"properties":{"a":{"type":"array","items":{"type":"array"}}}}"#, &["warning schema_items"]),
    ] {
        let mut odd = contract.clone();
        odd.tools[0].input_schema = Json::parse(schema).expect("JSON");
        let found = lint(&odd, &manifest, &[IntrospectedSource::new("s", &facts)]);
        assert_eq!(codes(&found), expected, "{schema}");
        assert!(found.iter().all(|one| one.location.is_some()), "{schema}");
    }
    let mut odd = contract;
    odd.tools[1].input_schema =
        Json::parse(r#"{"anyOf":[],"properties":{"a-b":{},"tags":{"type":"array"}}}"#).expect("JSON");
    let found = lint(&odd, &manifest, &[IntrospectedSource::new("s", &facts)]);
    assert_snapshot!(render_all(&found, false), @r#"
    warning: the arguments of `list_people` are an `anyOf` at the top, which some clients refuse
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: split it into two tools

    warning: the arguments of `list_people` have names that some clients refuse: `a-b`
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: use ASCII letters, digits and `_`; rename a field with `name = "…"`

    warning: the arguments of `list_people` have no type: `a-b`
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: give each a `type`; Gemini CLI leaves out tools with untyped arguments

    warning: the arguments of `list_people` have arrays without `items`: `tags`
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: say what the elements are, `items = {}` if they may be anything; VS Code and OpenAI models refuse the tool
    "#);
}

#[test]
fn warns_about_long_texts_and_many_tools() {
    let facts = facts(columns());
    let (contract, manifest) = compiled(&facts, GOOD);
    let known = [IntrospectedSource::new("s", &facts)];
    let with = |change: &dyn Fn(&mut Contract)| {
        let mut odd = contract.clone();
        change(&mut odd);
        codes(&lint(&odd, &manifest, &known))
    };
    assert_eq!(with(&|odd| odd.instructions = Some("x".repeat(2048))), [] as [&str; 0]);
    assert_eq!(with(&|odd| odd.instructions = Some("x".repeat(2049))), ["warning instructions_long"]);
    assert_eq!(with(&|odd| odd.tools[0].name = "x".repeat(50)), [] as [&str; 0]);
    assert_eq!(with(&|odd| odd.tools[0].name = "x".repeat(51)), ["warning tool_name_long"]);
    assert_eq!(with(&|odd| odd.tools[0].description = "é".repeat(1024)), [] as [&str; 0]);
    assert_eq!(with(&|odd| odd.tools[0].description = "é".repeat(1025)), ["warning description_long"]);
    let many = |n: usize| move |odd: &mut Contract| odd.tools = vec![odd.tools[0].clone(); n];
    assert_eq!(with(&many(128)), [] as [&str; 0]);
    assert_eq!(with(&many(129)), ["warning tools_many"]);
}

#[test]
fn notes_a_declared_type_that_loses_digits() {
    let check = |kind: DataType, declared: DataType, expected: &[&str]| {
        // Types that do not fit are errors elsewhere, not findings.
        let mixed = ColumnFacts { mixed: true, ..ColumnFacts::new("x", kind) };
        let facts = facts(vec![ColumnFacts::new("id", DataType::Integer), mixed]);
        let text = format!("{GOOD}fields.x = {{ as = '{}' }}", declared.as_str());
        assert_eq!(codes(&lint_diagnostics(&facts, &text)), expected, "{kind:?} as {declared:?}");
    };
    for kind in DataType::ALL {
        check(kind, kind, &[]);
    }
    check(DataType::Integer, DataType::Text, &[]);
    check(DataType::Integer, DataType::Decimal, &[]);
    check(DataType::Timestamp, DataType::Text, &[]);
    check(DataType::Text, DataType::Date, &[]);
    check(DataType::Text, DataType::Decimal, &[]);
    check(DataType::Decimal, DataType::Number, &["note type_differs"]);
    check(DataType::Int64, DataType::Number, &["note type_differs"]);
    let facts =
        facts(vec![ColumnFacts::new("id", DataType::Integer), ColumnFacts::new("price", DataType::Decimal)]);
    assert_snapshot!(render_lints(&facts, &format!("{GOOD}fields.price = {{ as = 'number' }}")), @r#"
    note: `price` is declared `number`, but its values are `decimal`: digits may be lost
     --> spile.toml:5:23
      |
    5 | fields.price = { as = 'number' }
      |                       ^^^^^^^^
      = help: remove `as`, or write `as = "decimal"`
    "#);
}

#[test]
fn an_empty_table_may_have_any_declared_type() {
    let mut facts =
        facts(vec![ColumnFacts::new("id", DataType::Integer), ColumnFacts::new("x", DataType::Text)]);
    facts.tables.iter_mut().for_each(|table| table.row_count = Some(0));
    assert_eq!(
        codes(&lint_diagnostics(&facts, &format!("{GOOD}fields.x = {{ as = 'date' }}"))),
        [] as [&str; 0]
    );
}

#[test]
fn reports_columns_that_round() {
    let price = ColumnFacts {
        precision_loss: Some(
            "keeps 15 digits of a decimal, because SQLite itself rounds what is beyond".into(),
        ),
        ..ColumnFacts::new("price", DataType::Decimal)
    };
    let facts = facts(vec![ColumnFacts::new("id", DataType::Integer), price]);
    assert_snapshot!(render_lints(&facts, GOOD), @r"
    note: `people`: `price` keeps 15 digits of a decimal, because SQLite itself rounds what is beyond
     --> spile.toml:3:14
      |
    3 | [collections.people]
      |              ^^^^^^
      = help: stored values are returned as they are; for exact digits declare the column as TEXT in the database
    ");
    let hidden = format!("{GOOD}fields.price = {{ hidden = true }}");
    assert_eq!(codes(&lint_diagnostics(&facts, &hidden)), [] as [&str; 0]);
    let written = format!("{GOOD}operations = ['get', 'list', 'update']\n");
    assert_eq!(codes(&lint_diagnostics(&facts, &written)), ["warning column_rounds"]);
}

#[test]
fn warns_about_a_statement_without_a_description() {
    let facts = facts(columns());
    let text = format!(
        "[sources.s]\npath = \"s.db\"\n{GOOD}[tools.count]\nsql = 'select 1 as n'\n[tools.most]\nsql = 'select 2 as n'\n\
         [tools.told]\nsql = 'select 3 as n'\ndescription = 'The number three.'\n"
    );
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None).expect("a manifest");
    let gives = || {
        Ok(StatementFacts {
            columns: vec![ColumnFacts::new("n", DataType::Integer)],
            ..StatementFacts::default()
        })
    };
    let statements = ["count", "most", "told"].map(|name| (name, gives()));
    let known = [IntrospectedSource { statements: &statements, ..IntrospectedSource::new("s", &facts) }];
    let (contract, told) = compile(&manifest, &known, "people");
    let contract = contract.unwrap_or_else(|| panic!("{}", render_all(&told, false)));
    assert_snapshot!(render_all(&lint(&contract, &manifest, &known), false), @r"
    warning: 2 tools have no description: `count`, `most`
     --> spile.toml:5:8
      |
    5 | [tools.count]
      |        ^^^^^
      = help: describe what it returns and when to use it; models see neither the SQL nor the request
    ");
}

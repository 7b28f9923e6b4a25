//! Collections with hundreds of columns, and databases with hundreds of tables: what a model sees of them stays small, and
//! every column can be used.

use contract::bind::{self, Scope};
use contract::diagnostic::render_all;
use contract::init::{DiscoveredSource, TABLES_SERVED_MAX, render_manifest};
use contract::manifest::SourceKind;
use contract::source::{ColumnFacts, ForeignKey, SourceFacts, TableFacts};
use contract::{CompiledSchema, Contract, DataType, Tool, ToolOperation, tokens};
use json::{ParseLimits, parse};

use super::descriptions::{compiled, try_compile};

/// A survey: an id, 300 answers, incomes of 40 years, and 59 others.
fn survey() -> SourceFacts {
    let integer = |name: String| ColumnFacts::new(name, DataType::Integer);
    let mut columns =
        vec![integer("respondent_id".into()), ColumnFacts::new("Interviewed On", DataType::Date)];
    columns.extend((1..=300).map(|number| integer(format!("Q{}_{}", number / 10, number % 10))));
    columns.extend((1980..2020).map(|year| ColumnFacts::new(format!("income_{year}"), DataType::Decimal)));
    columns.extend((0..58).map(|number| ColumnFacts::new(format!("Remark{number}"), DataType::Text)));
    let table = TableFacts { key: vec![0], row_count: Some(5000), ..TableFacts::new("survey", columns) };
    SourceFacts { tables: vec![table], ..SourceFacts::default() }
}

fn contract() -> Contract {
    compiled(&survey(), "survey.csv", "[collections.survey]\nfields.Remark7 = { sensitive = true }\n")
}

fn tool<'c>(contract: &'c Contract, name: &str) -> &'c Tool {
    contract.tools.iter().find(|tool| tool.name == name).unwrap_or_else(|| panic!("no tool {name}"))
}

#[test]
fn four_hundred_columns_cost_little_more_than_twenty() {
    let contract = contract();
    let cost = |tool: &Tool| {
        [&*tool.name, &*tool.description, tool.input_schema.as_str()]
            .into_iter()
            .map(tokens::estimate)
            .sum::<usize>()
    };
    let total: usize = contract.tools.iter().map(cost).sum();
    assert!(total <= 1750, "{total}");
    let bytes: usize = contract.tools.iter().map(|tool| tool.output_schema.as_str().len()).sum();
    assert!(bytes <= 8 << 10, "{bytes} bytes of output schemas");
}

/// Validates and binds the arguments of the list: the names of the fields that it returns, how many filters and sorts it
/// has; or the error.
fn list(arguments: &str) -> Result<String, String> {
    let contract = contract();
    let tool = tool(&contract, "list_survey");
    let ToolOperation::List { filters, sorts, .. } = &tool.operation else { panic!("a list") };
    let doc = parse(arguments.into(), &ParseLimits::default()).expect("JSON");
    let schema = CompiledSchema::compile(&tool.input_schema).expect("a schema");
    schema.validate(Some(doc.root())).map_err(|error| error.message)?;
    let scope = Scope::new(&contract.collections, 0);
    let bound = bind::list(scope, filters, sorts, Some(doc.root())).map_err(|error| error.message)?;
    let fields = &contract.collections[0].fields;
    let columns = bound.projection.expect("`fields` is required").fields;
    let shown: Vec<&str> = columns.iter().take(3).map(|at| fields[*at].name.as_str()).collect();
    Ok(format!(
        "{} of {} columns, {} filters, {} sorts",
        shown.join(" "),
        columns.len(),
        bound.filters.filters().len(),
        bound.sort.len()
    ))
}

#[test]
fn callers_choose_columns_by_name_or_group_and_filter_by_any_of_them() {
    for (arguments, expected) in [
        (r#"{"fields":["respondent_id"]}"#, Ok("respondent_id of 1 columns, 0 filters, 0 sorts")),
        (
            r#"{"fields":["income_*","q12_3","q12_*"]}"#,
            Ok("q12_0 q12_1 q12_2 of 50 columns, 0 filters, 0 sorts"),
        ),
        (r#"{"fields":["*"]}"#, Ok("respondent_id interviewed_on q0_1 of 400 columns, 0 filters, 0 sorts")),
        (
            r#"{"fields":["q0_1"],"income_2003":12.5,"income_2004_min":1,"remark50_contains":"x","sort":"-income_2010"}"#,
            Ok("q0_1 of 1 columns, 3 filters, 1 sorts"),
        ),
        (r#"{"income_2003":12.5}"#, Err("`fields` is required")),
        (
            r#"{"fields":["wage_*"]}"#,
            Err(
                "unknown field `wage_*` in `fields`; expected one of respondent_id, interviewed_on, q0_1, q0_2, q0_3, q0_4, q0_5, q0_6, q0_7, q0_8, q0_9, q1_0 and 388 more",
            ),
        ),
        (
            r#"{"fields":["*"],"incom_2003":12.5}"#,
            Err("unknown argument `incom_2003`; did you mean `income_2003`?"),
        ),
        (
            r#"{"fields":["*"],"income_2003":"much"}"#,
            Err("`income_2003` must be a decimal, such as `-12.50`"),
        ),
    ] {
        assert_eq!(list(arguments).as_deref().map_err(String::as_str), expected, "{arguments}");
    }
}

#[test]
fn a_column_that_must_not_be_logged_is_listed_wherever_it_is() {
    let contract = contract();
    for name in ["list_survey", "search_survey", "aggregate_survey"] {
        let schema = tool(&contract, name).input_schema.as_str().to_owned();
        assert!(schema.contains(r#""remark7":{"#) && schema.contains(r#""x-sensitive":true"#), "{schema}");
        assert!(!schema.contains("remark8"), "{schema}");
    }
}

#[test]
fn groups_of_columns_are_named() {
    let contract = contract();
    let schema = tool(&contract, "list_survey").input_schema.as_str().to_owned();
    let expected = "some of the 400 columns to return, or groups: remark* (58), income_* (40), ";
    assert!(schema.contains(expected), "{schema}");
    assert!(schema.contains(r#""required":["fields"]"#), "{schema}");
}

#[test]
fn check_names_what_the_tools_do_not_list() {
    let (_, found) = try_compile(&survey(), "survey.csv", "[collections.survey]\n");
    insta::assert_snapshot!(render_all(&found, false), @r##"
    note: the tools of `survey` do not list 380 columns as filters: `q1_9`, `q2_0`, `q2_1`, `q2_2`, `q2_3`, `q2_4`, `q2_5`, `q2_6` and 372 more
     --> spile.toml:3:14
      |
    3 | [collections.survey]
      |              ^^^^^^
      = help: rows can be filtered by them all the same; to choose what is listed: `filters = ["…"]`
    "##);
    let (_, found) =
        try_compile(&survey(), "survey.csv", "[collections.survey]\nfilters = ['income_2003']\n");
    assert_eq!(render_all(&found, false), "", "the author chose");
}

#[test]
fn the_filters_that_an_author_chooses_are_all_there_are() {
    let contract = compiled(&survey(), "survey.csv", "[collections.survey]\nfilters = ['income_2003']\n");
    let schema = CompiledSchema::compile(&tool(&contract, "list_survey").input_schema).expect("a schema");
    let doc = parse(br#"{"fields":["*"],"income_2004":1}"#.to_vec(), &ParseLimits::default()).expect("JSON");
    let error = schema.validate(Some(doc.root())).expect_err("not a filter");
    assert!(error.message.starts_with("unknown argument `income_2004`"), "{}", error.message);
}

/// A database of an application: few tables that people ask about, and many others.
fn application() -> SourceFacts {
    let table = |name: &str, rows: Option<u64>, refers_to: &[&str]| {
        let mut columns = vec![ColumnFacts::new("id", DataType::Integer)];
        columns.extend(refers_to.iter().map(|to| ColumnFacts::new(format!("{to}_id"), DataType::Integer)));
        let foreign_keys = refers_to.iter().enumerate().map(|(at, to)| ForeignKey {
            columns: vec![at + 1],
            table: (*to).to_owned(),
            target_columns: vec!["id".into()],
        });
        TableFacts {
            key: vec![0],
            key_is_declared: true,
            row_count: rows,
            foreign_keys: foreign_keys.collect(),
            ..TableFacts::new(name, columns)
        }
    };
    let mut tables = vec![
        table("customers", Some(5_000), &[]),
        table("orders", Some(80_000), &["customers"]),
        table("order_lines", None, &["orders", "products"]),
        table("products", Some(900), &[]),
        table("audit_log", Some(9_000_000), &["customers"]),
        table("django_session", Some(70_000), &[]),
        table("orders_backup", Some(79_000), &["customers"]),
    ];
    tables.extend((0..193).map(|number| table(&format!("lookup_{number}"), Some(number % 3), &[])));
    SourceFacts { tables, ..SourceFacts::default() }
}

#[test]
fn of_two_hundred_tables_those_are_served_that_people_ask_about() {
    let facts = application();
    let found = DiscoveredSource {
        name: "app",
        path: "app.db",
        kind: SourceKind::Sqlite,
        pointer: None,
        facts: &facts,
    };
    let text = render_manifest(&[found], "app");
    let (manifest, _) = contract::manifest::parse("spile.toml", &text, &|_| None).expect("valid");
    let names: Vec<&str> = manifest.collections.iter().map(|one| one.name.value.as_str()).collect();
    assert_eq!(names.len(), TABLES_SERVED_MAX);
    assert_eq!(names[..4], ["customers", "orders", "order_lines", "products"]);
    for name in ["audit_log", "django_session", "orders_backup", "lookup_0"] {
        assert!(!names.contains(&name), "{name}");
        assert!(
            text.contains(&format!("#[collections.{name}]\n#source = \"app\"\n#table = \"{name}\"\n")),
            "{text}"
        );
    }
    assert!(names.contains(&"lookup_2"), "a table with rows: {names:?}");
}

#[test]
fn up_to_the_limit_all_tables_are_served() {
    let mut facts = application();
    facts.tables.truncate(TABLES_SERVED_MAX);
    let found = DiscoveredSource {
        name: "app",
        path: "app.db",
        kind: SourceKind::Sqlite,
        pointer: None,
        facts: &facts,
    };
    let text = render_manifest(&[found], "app");
    let (manifest, _) = contract::manifest::parse("spile.toml", &text, &|_| None).expect("valid");
    assert_eq!(manifest.collections.len(), TABLES_SERVED_MAX);
    assert!(!text.contains("more table"), "{text}");
}

//! Truncated results match their output schema, whatever the limits and rows.

use contract::bind::Projection;
use contract::compile::{IntrospectedSource, compile};
use contract::results::{Page, RecordError, RowList};
use contract::source::{
    ColumnFacts, RowFlow, RowPosition, SearchCoverage, SearchCursor, SearchOutcome, SourceFacts,
    StatementFacts, TableFacts, Total,
};
use contract::{CompiledSchema, Contract, DataType, Value, ValueRef, manifest};
use json::Json;
use proptest::prelude::*;

/// A table with a column of each type, nullable or mixed as the bits of `strays` say.
fn columns(strays: u32) -> Vec<ColumnFacts> {
    let mut columns = vec![ColumnFacts::new("key", DataType::Int64)];
    for (at, kind) in DataType::ALL.into_iter().enumerate() {
        let is = |bit: usize| strays >> (2 * at + bit) & 1 == 1;
        let facts = ColumnFacts::new(format!("the_{}", kind.as_str()), kind);
        columns.push(ColumnFacts { nullable: is(0), mixed: is(1), ..facts });
    }
    columns
}

fn contract(strays: u32, rows_max: usize) -> Contract {
    let text = format!(
        "[sources.s]\npath = \"s.db\"\n[collections.t]\nsource = \"s\"\nrows_max = {rows_max}\nbytes_max = 1024\n\
         operations = [\"list\", \"search\", \"create\"]\n\
         [tools.top]\nsource = \"s\"\ndescription = \"All.\"\nrows_max = {rows_max}\nsql = \"select * from t\"\n"
    );
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None)
        .unwrap_or_else(|found| panic!("{}", contract::diagnostic::render_all(&found, false)));
    let table = TableFacts { key: vec![0], key_is_declared: true, ..TableFacts::new("t", columns(strays)) };
    let facts = SourceFacts { tables: vec![table], ..SourceFacts::default() };
    let statement = StatementFacts { columns: columns(strays), ..StatementFacts::default() };
    let statements = [("top", Ok(statement))];
    let (contract, found) =
        compile(&manifest, &[IntrospectedSource { name: "s", facts: &facts, statements: &statements }], "t");
    contract.unwrap_or_else(|| panic!("{}", contract::diagnostic::render_all(&found, false)))
}

/// A value of a type, or of another type.
fn value(kind: DataType) -> BoxedStrategy<Value> {
    let text = |pattern: &'static str| pattern.prop_map(Value::Text).boxed();
    let good = match kind {
        DataType::Text => any::<String>().prop_map(Value::Text).boxed(),
        DataType::Integer => (-1000_i64..1000).prop_map(Value::Integer).boxed(),
        DataType::Int64 => any::<i64>().prop_map(Value::Integer).boxed(),
        DataType::Decimal => text("-?[1-9][0-9]{0,20}\\.[0-9]{1,9}"),
        DataType::Number => any::<f64>().prop_map(Value::Real).boxed(),
        DataType::Boolean => (0..2_i64).prop_map(Value::Integer).boxed(),
        DataType::Date => text("20[0-9]{2}-0[1-9]-1[0-9]"),
        DataType::Timestamp => text("20[0-9]{2}-0[1-9]-1[0-9]T1[0-9]:[0-5][0-9]:[0-5][0-9](Z|\\+02:00)"),
        DataType::LocalTimestamp => text("20[0-9]{2}-0[1-9]-1[0-9][T ]1[0-9]:[0-5][0-9]:[0-5][0-9]"),
        DataType::Json => text("(\\[1,2\\.50\\]|\\{\"a\":\\{\\}\\}|\"x\"|null|-0)"),
        DataType::Blob => prop::collection::vec(any::<u8>(), 0..400).prop_map(Value::Blob).boxed(),
    };
    let stray = prop_oneof![
        Just(Value::Null),
        any::<String>().prop_map(Value::Text),
        Just(Value::Real(f64::INFINITY)),
        any::<i64>().prop_map(Value::Integer),
        Just(Value::Blob(vec![0xFF; 70_000])),
    ];
    prop_oneof![20 => good, 1 => stray].boxed()
}

fn row() -> impl Strategy<Value = Vec<Value>> {
    DataType::ALL.map(value).to_vec()
}

fn assert_matches_output_schema(contract: &Contract, tool: &str, result: &Json) -> Result<(), TestCaseError> {
    let tool = contract.tools.iter().find(|one| one.name == tool).expect("the tool");
    let schema = CompiledSchema::compile(&tool.output_schema).expect("a schema");
    prop_assert!(schema.is_valid(result), "{}: {} by {}", tool.name, result, tool.output_schema);
    Ok(())
}

/// Asserts that a result is valid and has the right `truncated` flag.
fn assert_result(
    contract: &Contract,
    tool: &str,
    reply: Result<spile_core::ToolResult, RecordError>,
    is_cut: bool,
) -> Result<(), TestCaseError> {
    // A row with a value of the wrong type is an error.
    let Ok(reply) = reply else { return Ok(()) };
    let result = reply.structured.expect("typed");
    let truncated = result.as_str().contains(r#","truncated":true"#);
    prop_assert_eq!(truncated, is_cut, "{}", result);
    assert_matches_output_schema(contract, tool, &result)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn a_truncated_result_matches_its_schema(
        strays in any::<u32>(),
        rows_max in 1..4_usize,
        rows in prop::collection::vec(row(), 0..6),
        shown in prop::option::of((prop::sample::subsequence((0..12_usize).collect::<Vec<_>>(), 1..12), any::<bool>())),
    ) {
        let contract = contract(strays, rows_max);
        let collection = &contract.collections[0];
        let shown = shown.map(|(fields, version)| Projection { fields, include_version: version });
        let mut page = Page::new(collection, None, shown.clone(), Vec::new(), rows_max);
        let mut found = Page::new(collection, None, shown, Vec::new(), rows_max);
        let result = &contract.statements[0].result;
        let mut given = RowList::new(result, None, None, rows_max);
        let mut cut = [false; 3];
        for (key, row) in (0..).zip(&rows) {
            let key = Value::Integer(key);
            let cells: Vec<ValueRef<'_>> = std::iter::once(&key).chain(row).map(Value::as_value_ref).collect();
            // A reader stops when the page does.
            let takes: [&mut dyn FnMut() -> RowFlow; 3] = [
                &mut || page.push(&cells, RowPosition::default()),
                &mut || found.push(&cells, RowPosition::default()),
                &mut || given.push(&cells),
            ];
            for (cut, take) in cut.iter_mut().zip(takes) {
                *cut = *cut || take() == RowFlow::Stop;
            }
        }
        let [page_is_cut, found_is_cut, given_is_cut] = cut;
        assert_result(&contract, "list_t", page.finish(Some(Total::Exact(rows.len() as u64)), |_| "cursor".into()), page_is_cut)?;
        let searched = if rows.len() % 2 == 0 { SearchCoverage::Complete } else { SearchCoverage::Truncated };
        let is_cut = found_is_cut || searched == SearchCoverage::Truncated;
        let outcome = SearchOutcome {
            coverage: searched,
            total: Total::AtLeast(rows.len() as u64),
            cursor: SearchCursor::Position,
        };
        let found = found.finish_search(outcome, 1000, |_| "cursor".into());
        if let Ok(found) = &found {
            let structured = found.structured.as_ref().expect("a structured result").as_str();
            let is_all = searched == SearchCoverage::Complete;
            prop_assert_eq!(structured.contains("\"searched\":\"all\""), is_all, "{}", structured);
        }
        assert_result(&contract, "search_t", found, is_cut)?;
        assert_result(&contract, "top", given.into_statement_result(), given_is_cut)?;
    }
}

//! However few rows and bytes a result may have, and whatever is in the rows: it is what its tool promises.

use contract::bind::Shown;
use contract::compile::{Known, compile};
use contract::shape::{Page, Rows, Unfit};
use contract::source::{ColumnFacts, Facts, More, Place, Searched, StatementFacts, TableFacts};
use contract::{Cell, Check, Contract, Kind, Value, manifest};
use json::Json;
use proptest::prelude::*;

/// A table with a column of each kind, nullable or mixed where `strays` says so.
fn columns(strays: u32) -> Vec<ColumnFacts> {
    let mut columns = vec![ColumnFacts::new("key", Kind::Int64)];
    for (at, kind) in Kind::ALL.into_iter().enumerate() {
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
    let facts = Facts { tables: vec![table], ..Facts::default() };
    let statement = StatementFacts { columns: columns(strays), ..StatementFacts::default() };
    let statements = [("top", Ok(statement))];
    let (contract, found) =
        compile(&manifest, &[Known { name: "s", facts: &facts, statements: &statements }], "t");
    contract.unwrap_or_else(|| panic!("{}", contract::diagnostic::render_all(&found, false)))
}

/// A value of a kind, or a stray.
fn value(kind: Kind) -> BoxedStrategy<Value> {
    let text = |pattern: &'static str| pattern.prop_map(Value::Text).boxed();
    let good = match kind {
        Kind::Text => any::<String>().prop_map(Value::Text).boxed(),
        Kind::Integer => (-1000_i64..1000).prop_map(Value::Integer).boxed(),
        Kind::Int64 => any::<i64>().prop_map(Value::Integer).boxed(),
        Kind::Decimal => text("-?[1-9][0-9]{0,20}\\.[0-9]{1,9}"),
        Kind::Number => any::<f64>().prop_map(Value::Real).boxed(),
        Kind::Boolean => (0..2_i64).prop_map(Value::Integer).boxed(),
        Kind::Date => text("20[0-9]{2}-0[1-9]-1[0-9]"),
        Kind::Timestamp => text("20[0-9]{2}-0[1-9]-1[0-9]T1[0-9]:[0-5][0-9]:[0-5][0-9](Z|\\+02:00)"),
        Kind::LocalTimestamp => text("20[0-9]{2}-0[1-9]-1[0-9][T ]1[0-9]:[0-5][0-9]:[0-5][0-9]"),
        Kind::Json => text("(\\[1,2\\.50\\]|\\{\"a\":\\{\\}\\}|\"x\"|null|-0)"),
        Kind::Blob => prop::collection::vec(any::<u8>(), 0..400).prop_map(Value::Blob).boxed(),
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
    Kind::ALL.map(value).to_vec()
}

fn admits(contract: &Contract, tool: &str, result: &Json) -> Result<(), TestCaseError> {
    let tool = contract.tools.iter().find(|one| one.name == tool).expect("the tool");
    let schema = Check::compile(&tool.output).expect("a schema");
    prop_assert!(schema.admits(result), "{}: {} by {}", tool.name, result, tool.output);
    Ok(())
}

/// Whether there is a result, and that it says whether there are more.
fn told(
    contract: &Contract,
    tool: &str,
    reply: Result<call::ToolReply, Unfit>,
    is_cut: bool,
) -> Result<(), TestCaseError> {
    // A row that is not what its column promises is told to nobody.
    let Ok(reply) = reply else { return Ok(()) };
    let result = reply.structured.expect("typed");
    let truncated = result.as_str().contains(r#","truncated":true"#);
    prop_assert_eq!(truncated, is_cut, "{}", result);
    admits(contract, tool, &result)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn a_cut_result_is_what_its_tool_promises(
        strays in any::<u32>(),
        rows_max in 1..4_usize,
        rows in prop::collection::vec(row(), 0..6),
        shown in prop::option::of((prop::sample::subsequence((0..12_usize).collect::<Vec<_>>(), 1..12), any::<bool>())),
    ) {
        let contract = contract(strays, rows_max);
        let collection = &contract.collections[0];
        let shown = shown.map(|(fields, version)| Shown { fields, version });
        let mut page = Page::new(collection, None, shown.clone(), None, rows_max);
        let mut found = Rows::new(collection, None, shown, rows_max);
        let result = &contract.statements[0].result;
        let mut given = Rows::new(result, None, None, rows_max);
        let mut cut = [false; 3];
        for (key, row) in (0..).zip(&rows) {
            let key = Value::Integer(key);
            let cells: Vec<Cell<'_>> = std::iter::once(&key).chain(row).map(Value::as_cell).collect();
            // Who wants no more is asked no more.
            let takes: [&mut dyn FnMut() -> More; 3] = [
                &mut || page.take(&cells, Place::default()),
                &mut || found.take(&cells),
                &mut || given.take(&cells),
            ];
            for (cut, take) in cut.iter_mut().zip(takes) {
                *cut = *cut || take() == More::No;
            }
        }
        let [page_is_cut, found_is_cut, given_is_cut] = cut;
        told(&contract, "list_t", page.finish(Some(rows.len() as u64), |_| "cursor".into()), page_is_cut)?;
        let searched = if rows.len() % 2 == 0 { Searched::All } else { Searched::Cut };
        told(&contract, "search_t", found.found(searched, 1000), found_is_cut)?;
        told(&contract, "top", given.given(), given_is_cut)?;
    }
}

//! Compiled tools, and pages that match their schemas.

use contract::compile::{IntrospectedSource, compile};
use contract::cursor::CURSOR_BYTES_MAX;
use contract::results::{Page, RECORD_BYTES_MAX, RecordError, record};
use contract::source::{ColumnFacts, RowFlow, RowPosition, Sort, SourceFacts, TableFacts, Total};
use contract::{CompiledSchema, Contract, DataType, Tool, ValueRef, manifest};
use json::Json;

fn column(name: &str, kind: DataType) -> ColumnFacts {
    ColumnFacts::new(name, kind)
}

fn facts(columns: Vec<ColumnFacts>) -> SourceFacts {
    let table = TableFacts {
        key: vec![0],
        key_is_declared: true,
        row_count: Some(9),
        ..TableFacts::new("people", columns)
    };
    SourceFacts { tables: vec![table], ..SourceFacts::default() }
}

fn compile_table(more: &str, columns: Vec<ColumnFacts>) -> Contract {
    let text = format!("[sources.s]\npath = \"people.csv\"\n[collections.people]\nsource = \"s\"\n{more}");
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None).expect("a manifest");
    let facts = facts(columns);
    let (contract, found) = compile(&manifest, &[IntrospectedSource::new("s", &facts)], "people");
    contract.unwrap_or_else(|| panic!("{found:?}"))
}

fn tool<'c>(contract: &'c Contract, name: &str) -> &'c Tool {
    contract.tools.iter().find(|tool| tool.name == name).expect("the tool")
}

fn compile_people(more: &str) -> Contract {
    compile_table(more, vec![column("name", DataType::Text), column("age", DataType::Integer)])
}

/// Fills a page with rows of these sizes in bytes.
fn filled_page(contract: &Contract, rows: &[(&str, i64)], rows_max: usize) -> Result<String, RecordError> {
    let collection = &contract.collections[0];
    let sort = Some(Sort { column: 1, descending: false });
    let mut page = Page::new(collection, None, None, sort.into_iter().map(Into::into).collect(), rows_max);
    for (name, age) in rows {
        if page.push(&[ValueRef::Text(name), ValueRef::Integer(*age)], RowPosition::default())
            == RowFlow::Stop
        {
            break;
        }
    }
    let reply = page.finish(None, |position| format!("{position:?}"))?;
    let json = reply.structured.expect("typed");
    let schema = CompiledSchema::compile(&tool(contract, "list_people").output_schema).expect("a schema");
    assert!(schema.is_valid(&json), "{json}");
    Ok(json.to_string())
}

#[test]
fn a_total_that_was_not_counted_to_its_end_is_a_lower_bound() {
    let contract = compile_people("");
    let page = |total| {
        let page = Page::new(&contract.collections[0], None, None, Vec::new(), 5);
        let reply = page.finish(Some(total), |_| String::new()).expect("fits");
        let json = reply.structured.expect("typed");
        let schema =
            CompiledSchema::compile(&tool(&contract, "list_people").output_schema).expect("a schema");
        assert!(schema.is_valid(&json), "{json}");
        json.to_string()
    };
    assert_eq!(page(Total::Exact(7)), r#"{"items":[],"truncated":false,"total":7}"#);
    assert_eq!(page(Total::AtLeast(7)), r#"{"items":[],"truncated":false,"total_at_least":7}"#);
}

#[test]
fn a_page_stops_at_its_limits_and_matches_its_schema() {
    let contract = compile_people("");
    let two = [("Ada", 36), ("Bob", 41)];
    assert_eq!(
        filled_page(&contract, &two, 5).expect("fits"),
        r#"{"items":[{"name":"Ada","age":36},{"name":"Bob","age":41}],"truncated":false}"#
    );
    let cut = filled_page(&contract, &two, 1).expect("fits");
    assert!(cut.starts_with(r#"{"items":[{"name":"Ada","age":36}],"nextCursor":"#), "{cut}");
    assert!(cut.ends_with(r#""truncated":true}"#), "{cut}");
    assert_eq!(filled_page(&contract, &[], 5).expect("fits"), r#"{"items":[],"truncated":false}"#);

    let narrow = compile_people("bytes_max = 1024\n");
    let long = "x".repeat(600);
    let cut = filled_page(&narrow, &[(&long, 1), (&long, 2)], 5).expect("fits");
    assert!(cut.contains(r#""age":1}],"#) && cut.contains(r#""truncated":true"#), "{cut}");
    // The first row is always returned, or paging would never get past it.
    let longer = "x".repeat(3000);
    let cut = filled_page(&narrow, &[(&longer, 1), ("y", 2)], 5).expect("fits");
    assert!(cut.contains(&longer) && cut.contains(r#""truncated":true"#));
}

#[test]
fn a_row_that_is_too_large_is_an_error() {
    let contract = compile_people("");
    let huge = "x".repeat(RECORD_BYTES_MAX);
    assert!(matches!(filled_page(&contract, &[(&huge, 1)], 5), Err(RecordError::TooLarge { .. })));
    let cells = [ValueRef::Text(&huge), ValueRef::Integer(1)];
    assert!(matches!(record(&contract.collections[0], None, &cells), Err(RecordError::TooLarge { .. })));
}

#[test]
fn a_page_cannot_end_at_a_blob_in_the_key() {
    let contract = compile_table(
        "",
        vec![column("name", DataType::Text), ColumnFacts { mixed: true, ..column("age", DataType::Integer) }],
    );
    let collection = &contract.collections[0];
    let sort = Some(Sort { column: 1, descending: false });
    let mut page = Page::new(collection, None, None, sort.into_iter().map(Into::into).collect(), 1);
    for name in ["Ada", "Bob"] {
        page.push(&[ValueRef::Text(name), ValueRef::Blob(&[0xFF])], RowPosition::default());
    }
    let ended = page.finish(None, |_| String::new()).map(|_| ());
    assert_eq!(ended, Err(RecordError::InvalidCursorValue { field: "age".into() }));
}

#[test]
fn a_page_does_not_end_at_a_value_too_long_for_a_cursor() {
    let contract = compile_people("");
    let long = "x".repeat(CURSOR_BYTES_MAX);
    let nameless = Err(RecordError::InvalidCursorValue { field: "name".into() });
    assert_eq!(filled_page(&contract, &[(&long, 1), ("y", 2)], 1), nameless);
    // A page that ends at another row is fine.
    assert!(filled_page(&contract, &[(&long, 1), ("y", 2), ("z", 3)], 2).is_ok());
    assert!(filled_page(&contract, &[(&long, 1)], 1).is_ok());
}

#[test]
fn headers_are_described_in_one_plain_line() {
    let header = format!("Full\nName\u{202e}{}", "x".repeat(500));
    let contract = compile_table("", vec![column(&header, DataType::Text), column("age", DataType::Integer)]);
    let input = Json::parse(tool(&contract, "list_people").input_schema.as_str()).expect("JSON").to_string();
    assert!(input.len() < 2000 && input.contains("Full Name "), "{input}");
    assert!(!input.contains(['\u{202e}', '\n']) && !input.contains("\\n"));
}

#[test]
fn a_value_returned_as_text_can_be_filtered_as_text() {
    let strays =
        vec![ColumnFacts { mixed: true, ..column("age", DataType::Integer) }, column("name", DataType::Text)];
    let contract = compile_table("", strays);
    let input = CompiledSchema::compile(&tool(&contract, "get_people").input_schema).expect("a schema");
    for (arguments, good) in [(r#"{"age":7}"#, true), (r#"{"age":"n/a"}"#, true), (r#"{"age":true}"#, false)]
    {
        assert_eq!(input.is_valid(&Json::parse(arguments).expect("JSON")), good, "{arguments}");
    }
}

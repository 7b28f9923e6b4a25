//! From manifest and facts to tools, and from rows to pages that match what the tools promise.

use contract::compile::{Known, compile};
use contract::cursor::POSITION_BYTES_MAX;
use contract::shape::{Page, RECORD_BYTES_MAX, Unfit, record};
use contract::source::{ColumnFacts, Facts, More, Place, Sort, TableFacts};
use contract::{Cell, Check, Contract, Kind, Tool, manifest};
use json::Json;

fn column(name: &str, kind: Kind) -> ColumnFacts {
    ColumnFacts::new(name, kind)
}

fn facts(columns: Vec<ColumnFacts>) -> Facts {
    let table = TableFacts {
        key: vec![0],
        key_is_declared: true,
        rows: Some(9),
        ..TableFacts::new("people", columns)
    };
    Facts { tables: vec![table], ..Facts::default() }
}

fn compiled(more: &str, columns: Vec<ColumnFacts>) -> Contract {
    let text = format!("[sources.s]\npath = \"people.csv\"\n[collections.people]\nsource = \"s\"\n{more}");
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None).expect("a manifest");
    let facts = facts(columns);
    let (contract, found) = compile(&manifest, &[Known::new("s", &facts)], "people");
    contract.unwrap_or_else(|| panic!("{found:?}"))
}

fn tool<'c>(contract: &'c Contract, name: &str) -> &'c Tool {
    contract.tools.iter().find(|tool| tool.name == name).expect("the tool")
}

fn people(more: &str) -> Contract {
    compiled(more, vec![column("name", Kind::Text), column("age", Kind::Integer)])
}

/// Fills a page with people of this many bytes each.
fn filled(contract: &Contract, rows: &[(&str, i64)], rows_max: usize) -> Result<String, Unfit> {
    let collection = &contract.collections[0];
    let sort = Some(Sort { column: 1, descending: false });
    let mut page = Page::new(collection, None, None, sort, rows_max);
    for (name, age) in rows {
        if page.take(&[Cell::Text(name), Cell::Integer(*age)], Place::default()) == More::No {
            break;
        }
    }
    let reply = page.finish(None, |position| format!("{position:?}"))?;
    let json = reply.structured.expect("typed");
    let schema = Check::compile(&tool(contract, "list_people").output).expect("a schema");
    assert!(schema.admits(&json), "{json}");
    Ok(json.to_string())
}

#[test]
fn a_page_ends_at_its_bounds_and_matches_its_schema() {
    let contract = people("");
    let two = [("Ada", 36), ("Bob", 41)];
    assert_eq!(
        filled(&contract, &two, 5).expect("fits"),
        r#"{"items":[{"name":"Ada","age":36},{"name":"Bob","age":41}],"truncated":false}"#
    );
    let cut = filled(&contract, &two, 1).expect("fits");
    assert!(cut.starts_with(r#"{"items":[{"name":"Ada","age":36}],"nextCursor":"#), "{cut}");
    assert!(cut.ends_with(r#""truncated":true}"#), "{cut}");
    assert_eq!(filled(&contract, &[], 5).expect("fits"), r#"{"items":[],"truncated":false}"#);

    let narrow = people("bytes_max = 1024\n");
    let long = "x".repeat(600);
    let cut = filled(&narrow, &[(&long, 1), (&long, 2)], 5).expect("fits");
    assert!(cut.contains(r#""age":1}],"#) && cut.contains(r#""truncated":true"#), "{cut}");
    // Without its first row no page would ever get further.
    let longer = "x".repeat(3000);
    let cut = filled(&narrow, &[(&longer, 1), ("y", 2)], 5).expect("fits");
    assert!(cut.contains(&longer) && cut.contains(r#""truncated":true"#));
}

#[test]
fn what_is_too_large_is_not_told() {
    let contract = people("");
    let huge = "x".repeat(RECORD_BYTES_MAX);
    assert!(matches!(filled(&contract, &[(&huge, 1)], 5), Err(Unfit::TooLarge { .. })));
    let cells = [Cell::Text(&huge), Cell::Integer(1)];
    assert!(matches!(record(&contract.collections[0], None, &cells), Err(Unfit::TooLarge { .. })));
}

#[test]
fn a_page_does_not_end_where_no_cursor_can_name_the_place() {
    let contract = compiled(
        "",
        vec![column("name", Kind::Text), ColumnFacts { mixed: true, ..column("age", Kind::Integer) }],
    );
    let collection = &contract.collections[0];
    let sort = Some(Sort { column: 1, descending: false });
    let mut page = Page::new(collection, None, None, sort, 1);
    for name in ["Ada", "Bob"] {
        page.take(&[Cell::Text(name), Cell::Blob(&[0xFF])], Place::default());
    }
    let ended = page.finish(None, |_| String::new()).map(|_| ());
    assert_eq!(ended, Err(Unfit::Nameless { field: "age".into() }));
}

#[test]
fn a_page_does_not_end_at_a_value_too_long_for_a_cursor() {
    let contract = people("");
    let long = "x".repeat(POSITION_BYTES_MAX);
    let nameless = Err(Unfit::Nameless { field: "name".into() });
    assert_eq!(filled(&contract, &[(&long, 1), ("y", 2)], 1), nameless);
    // Where the page ends elsewhere, it is a value like any other.
    assert!(filled(&contract, &[(&long, 1), ("y", 2), ("z", 3)], 2).is_ok());
    assert!(filled(&contract, &[(&long, 1)], 1).is_ok());
}

#[test]
fn headers_are_told_in_one_plain_line() {
    let header = format!("Full\nName\u{202e}{}", "x".repeat(500));
    let contract = compiled("", vec![column(&header, Kind::Text), column("age", Kind::Integer)]);
    let input = Json::parse(tool(&contract, "list_people").input.as_str()).expect("JSON").to_string();
    assert!(input.len() < 2000 && input.contains("Full Name "), "{input}");
    assert!(!input.contains(['\u{202e}', '\n']) && !input.contains("\\n"));
}

#[test]
fn what_is_told_as_text_can_be_asked_for_as_text() {
    let strays =
        vec![ColumnFacts { mixed: true, ..column("age", Kind::Integer) }, column("name", Kind::Text)];
    let contract = compiled("", strays);
    let input = Check::compile(&tool(&contract, "get_people").input).expect("a schema");
    for (arguments, good) in [(r#"{"age":7}"#, true), (r#"{"age":"n/a"}"#, true), (r#"{"age":true}"#, false)]
    {
        assert_eq!(input.admits(&Json::parse(arguments).expect("JSON")), good, "{arguments}");
    }
}

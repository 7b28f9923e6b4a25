//! Compiled tools that search, write and run statements: schemas, descriptions, settings.

use contract::compile::{IntrospectedSource, compile};
use contract::source::{
    ColumnFacts, SearchFacts, SourceFacts, StatementError, StatementFacts, TableFacts, WordIndex,
    WordMatching, WriteCapabilities, WriteSupport,
};
use contract::{
    CompiledSchema, Confirm, Contract, DataType, Tool, ToolOperation, ValueRef, Versioning, manifest, results,
};
use insta::assert_snapshot;
use json::Json;

/// `people` as in a database: a generated id, a computed column, a required column.
pub fn people_table() -> TableFacts {
    let column = ColumnFacts::new;
    let nullable = |name: &str, kind| ColumnFacts { nullable: true, ..ColumnFacts::new(name, kind) };
    let columns = vec![
        ColumnFacts { has_default: true, ..column("id", DataType::Integer) },
        column("name", DataType::Text),
        nullable("balance", DataType::Decimal),
        nullable("photo", DataType::Blob),
        nullable("extra", DataType::Json),
        ColumnFacts { has_default: true, ..column("rev", DataType::Integer) },
        ColumnFacts { read_only_reason: Some("it is computed".into()), ..column("initial", DataType::Text) },
    ];
    TableFacts {
        key: vec![0],
        key_is_declared: true,
        row_count: Some(9),
        ..TableFacts::new("people", columns)
    }
}

/// A described statement with two parameters and two columns.
pub fn top_statement() -> StatementFacts {
    StatementFacts {
        parameters: vec!["since".into(), "plan".into()],
        columns: vec![
            ColumnFacts::new("plan", DataType::Text),
            ColumnFacts { nullable: true, mixed: true, ..ColumnFacts::new("count(*)", DataType::Number) },
        ],
        ..StatementFacts::default()
    }
}

pub fn compile_table(
    table: TableFacts,
    statement: Result<StatementFacts, StatementError>,
    more: &str,
) -> (Option<Contract>, Vec<contract::diagnostic::Diagnostic>) {
    let text = format!("[sources.s]\npath = \"s.db\"\n{more}");
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None)
        .unwrap_or_else(|found| panic!("{}", contract::diagnostic::render_all(&found, false)));
    let facts = SourceFacts { tables: vec![table], ..SourceFacts::default() };
    let statements = [("top", statement)];
    compile(&manifest, &[IntrospectedSource { name: "s", facts: &facts, statements: &statements }], "people")
}

fn compile_people(more: &str) -> Contract {
    let (contract, found) = compile_table(people_table(), Ok(top_statement()), more);
    contract.unwrap_or_else(|| panic!("{}", contract::diagnostic::render_all(&found, false)))
}

fn tool<'c>(contract: &'c Contract, name: &str) -> &'c Tool {
    contract.tools.iter().find(|tool| tool.name == name).expect("the tool")
}

const ALL: &str = "[collections.people]\noperations = [\"get\", \"list\", \"search\", \"create\", \"update\", \"delete\"]\n";

#[test]
fn tools_of_every_operation_snapshot() {
    let contract = compile_people(&format!("{ALL}description = \"All of them.\"\n"));
    let names: Vec<&str> = contract.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(
        names,
        ["get_people", "list_people", "search_people", "create_people", "update_people", "delete_people"]
    );
    let told: Vec<&str> = contract.tools[2..].iter().map(|tool| tool.description.as_str()).collect();
    assert_snapshot!(told.join("\n"), @r#"
    Search "people" (s.db): rows that contain every word of `query` in name or initial. Filters are as in list_people. All of them.
    Add one row to "people" (s.db). All of them.
    Update one row of "people" (s.db), found by id. Columns that are not given keep their values. All of them.
    Delete one row of "people" (s.db), found by id. All of them.
    "#);
    assert_snapshot!(tool(&contract, "search_people").input_schema, @r#"{"type":"object","properties":{"query":{"type":"string","pattern":"\\S","maxLength":1000},"fields":{"type":"array","items":{"type":"string"},"description":"columns to return; default: all"},"limit":{"type":"integer","minimum":1,"maximum":100},"cursor":{"type":"string","description":"`nextCursor` of the previous page"}},"required":["query"],"patternProperties":{"^.":{}},"additionalProperties":false}"#);
    assert_snapshot!(tool(&contract, "search_people").output_schema, @r#"{"type":"object","anyOf":[{"properties":{"items":{"type":"array","maxItems":100,"description":"at most 65536 bytes in total","items":{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},"balance":{"type":["string","null"],"format":"decimal"},"photo":{"anyOf":[{"type":"string","contentEncoding":"base64"},{"type":"object","properties":{"omitted":{"const":true},"bytes":{"type":"integer"}},"required":["omitted","bytes"]},{"type":"null"}]},"extra":{},"rev":{"type":"integer"},"initial":{"type":"string"},"_version":{"type":"string","description":"version of this row; pass it as expected_version"}},"additionalProperties":false}},"nextCursor":{"type":"string","description":"pass as `cursor` to get the next page; absent on the last page"},"truncated":{"type":"boolean","description":"true if more rows match"},"total":{"type":"integer","description":"number of matching rows"},"total_at_least":{"type":"integer","description":"at least this many rows match; replaces `total` when counting stopped early"},"searched":{"type":"string","description":"`all`, or the part that was searched: `first 100000 rows`"}},"required":["items","truncated","searched"],"additionalProperties":false},{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}]}"#);
    assert_snapshot!(tool(&contract, "create_people").input_schema, @r#"{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},"balance":{"type":["string","null"],"format":"decimal","pattern":"^-?(0|[1-9][0-9]*)(\\.[0-9]+)?$"},"photo":{"type":["string","null"],"contentEncoding":"base64"},"extra":{"type":["object","array","string","number","boolean","null"],"items":{}},"rev":{"type":"integer"},"idempotency_key":{"type":"string","minLength":1,"maxLength":200,"description":"client-chosen key for this write; repeating the call with the same key and arguments has no further effect"},"dry_run":{"type":"boolean","description":"preview the change without writing it"}},"required":["name"],"additionalProperties":false}"#);
    assert_snapshot!(tool(&contract, "create_people").output_schema, @r#"{"type":"object","anyOf":[{"properties":{"outcome":{"enum":["created"]},"record":{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},"balance":{"type":["string","null"],"format":"decimal"},"photo":{"anyOf":[{"type":"string","contentEncoding":"base64"},{"type":"object","properties":{"omitted":{"const":true},"bytes":{"type":"integer"}},"required":["omitted","bytes"]},{"type":"null"}]},"extra":{},"rev":{"type":"integer"},"initial":{"type":"string"},"_version":{"type":"string","description":"version of this row; pass it as expected_version"}},"required":["id","name","balance","photo","extra","rev","initial","_version"],"additionalProperties":false},"dry_run":{"const":true,"description":"`true`: preview only; the other members show what the call would do"},"replayed":{"const":true,"description":"already applied by an earlier call with this idempotency_key; this call wrote nothing"}},"required":["outcome","record"],"additionalProperties":false},{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}]}"#);
    assert_snapshot!(tool(&contract, "update_people").input_schema, @r#"{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},"balance":{"type":["string","null"],"format":"decimal","pattern":"^-?(0|[1-9][0-9]*)(\\.[0-9]+)?$"},"photo":{"type":["string","null"],"contentEncoding":"base64"},"extra":{"type":["object","array","string","number","boolean","null"],"items":{}},"rev":{"type":"integer"},"expected_version":{"type":"string","description":"`_version` of the row you read; fails with `conflict` if it has changed"},"idempotency_key":{"type":"string","minLength":1,"maxLength":200,"description":"client-chosen key for this write; repeating the call with the same key and arguments has no further effect"},"dry_run":{"type":"boolean","description":"preview the change without writing it"}},"required":["id"],"additionalProperties":false}"#);
    assert_snapshot!(tool(&contract, "delete_people").input_schema, @r#"{"type":"object","properties":{"id":{"type":"integer"},"expected_version":{"type":"string","description":"`_version` of the row you read; fails with `conflict` if it has changed"},"idempotency_key":{"type":"string","minLength":1,"maxLength":200,"description":"client-chosen key for this write; repeating the call with the same key and arguments has no further effect"},"dry_run":{"type":"boolean","description":"preview the change without writing it"}},"required":["id"],"additionalProperties":false}"#);
}

#[test]
fn a_version_field_is_only_an_expected_version() {
    let contract = compile_people(&format!("{ALL}version = \"rev\"\nversion_required = true\n"));
    assert_eq!(
        contract.collections[0].write_policy.as_ref().map(|writes| writes.versioning),
        Some(Versioning::Field(5))
    );
    assert_snapshot!(tool(&contract, "delete_people").input_schema, @r#"{"type":"object","properties":{"id":{"type":"integer"},"expected_version":{"type":"integer","description":"`rev` of the row you read; fails with `conflict` if it has changed"},"idempotency_key":{"type":"string","minLength":1,"maxLength":200,"description":"client-chosen key for this write; repeating the call with the same key and arguments has no further effect"},"dry_run":{"type":"boolean","description":"preview the change without writing it"}},"required":["id","expected_version"],"additionalProperties":false}"#);
    let update = tool(&contract, "update_people").input_schema.as_str();
    assert!(!update.contains("\"rev\":"), "{update}");
    assert!(!tool(&contract, "get_people").output_schema.as_str().contains("_version"));
}

#[test]
fn a_read_only_collection_has_no_version() {
    let contract = compile_people("[collections.people]\n");
    assert!(contract.collections[0].write_policy.is_none());
    for tool in &contract.tools {
        assert!(!tool.output_schema.as_str().contains("_version"), "{}", tool.output_schema);
    }
    let names: Vec<&str> = contract.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["get_people", "list_people", "search_people", "aggregate_people"]);
}

/// Clients refuse a root that is not a plain object, and unusual property names.
#[test]
fn every_input_is_a_plain_object() {
    let contract = compile_people(&format!("{ALL}{TOP}"));
    for tool in &contract.tools {
        let doc = tool.input_schema.to_doc();
        let root = doc.root();
        assert!(root.get("type").is_some_and(|kind| kind.eq_str("object")), "{}", tool.input_schema);
        for odd in ["anyOf", "oneOf", "allOf", "$ref", "not", "if"] {
            assert!(root.get(odd).is_none(), "{}", tool.input_schema);
        }
        for (name, _) in root.get("properties").expect("properties").members() {
            assert!(contract::names::is_argument_name(&name.str().expect("a name")), "{}", tool.input_schema);
        }
        CompiledSchema::compile(&tool.input_schema).expect("a schema");
        CompiledSchema::compile(&tool.output_schema).expect("a schema");
    }
}

const TOP: &str = r#"
[tools.top]
sql = "select plan, count(*) from people where since >= :since and plan = :plan"
arguments.plan = { enum = ["free", "ruby"], default = "free" }
arguments.since = { type = "date", description = "First day." }
fields = { "count(*)" = { name = "people", as = "integer" } }
"#;

#[test]
fn statement_schema_snapshot() {
    let contract = compile_people(TOP);
    let top = tool(&contract, "top");
    assert_eq!(top.description, "Run the SQL statement top on s and return plan, people.");
    assert_snapshot!(top.input_schema, @r#"{"type":"object","properties":{"plan":{"type":["string","null"],"enum":["free","ruby",null],"default":"free"},"since":{"type":"string","format":"date","description":"First day."}},"required":["since"],"additionalProperties":false}"#);
    assert_snapshot!(top.output_schema, @r#"{"type":"object","anyOf":[{"properties":{"items":{"type":"array","maxItems":100,"description":"at most 65536 bytes in total","items":{"type":"object","properties":{"plan":{"type":"string"},"people":{"type":["integer","null"],"description":"count(*)"}},"required":["plan","people"],"additionalProperties":false}},"truncated":{"type":"boolean","description":"true if more rows match"}},"required":["items","truncated"],"additionalProperties":false},{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}]}"#);
    let one = compile_people(&format!("{TOP}returns = \"one\"\n"));
    assert_snapshot!(tool(&one, "top").output_schema, @r#"{"type":"object","anyOf":[{"properties":{"plan":{"type":"string"},"people":{"type":["integer","null"],"description":"count(*)"}},"required":["plan","people"],"additionalProperties":false},{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}]}"#);
}

fn writing_statement(columns: Vec<ColumnFacts>) -> StatementFacts {
    StatementFacts { writes: Some(WriteCapabilities::ALL), columns, ..top_statement() }
}

#[test]
fn writing_statement_schema_snapshot() {
    let text = TOP.replace("fields = ", "writes = true\nfields = ");
    let (contract, _) = compile_table(people_table(), Ok(writing_statement(top_statement().columns)), &text);
    let contract = contract.expect("a contract");
    assert_snapshot!(tool(&contract, "top").input_schema, @r#"{"type":"object","properties":{"plan":{"type":["string","null"],"enum":["free","ruby",null],"default":"free"},"since":{"type":"string","format":"date","description":"First day."},"idempotency_key":{"type":"string","minLength":1,"maxLength":200,"description":"client-chosen key for this write; repeating the call with the same key and arguments has no further effect"},"dry_run":{"type":"boolean","description":"preview the change without writing it"}},"required":["since"],"additionalProperties":false}"#);
    assert_snapshot!(tool(&contract, "top").output_schema, @r#"{"type":"object","anyOf":[{"properties":{"changed":{"type":"integer","description":"number of rows changed"},"items":{"type":"array","maxItems":100,"description":"at most 65536 bytes in total","items":{"type":"object","properties":{"plan":{"type":"string"},"people":{"type":["integer","null"],"description":"count(*)"}},"required":["plan","people"],"additionalProperties":false}},"truncated":{"type":"boolean","description":"true if more rows match"},"dry_run":{"const":true,"description":"`true`: preview only; the other members show what the call would do"},"replayed":{"const":true,"description":"already applied by an earlier call with this idempotency_key; this call wrote nothing"}},"required":["changed","items","truncated"],"additionalProperties":false},{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}]}"#);
    let text = text.split("fields").next().expect("a part");
    let (contract, _) = compile_table(people_table(), Ok(writing_statement(Vec::new())), text);
    let contract = contract.expect("a contract");
    assert_snapshot!(tool(&contract, "top").output_schema, @r#"{"type":"object","anyOf":[{"properties":{"changed":{"type":"integer","description":"number of rows changed"},"dry_run":{"const":true,"description":"`true`: preview only; the other members show what the call would do"},"replayed":{"const":true,"description":"already applied by an earlier call with this idempotency_key; this call wrote nothing"}},"required":["changed"],"additionalProperties":false},{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}]}"#);
    assert_eq!(
        tool(&contract, "top").description,
        "Run the SQL statement top on s and return the number of rows changed."
    );
}

#[test]
fn tools_have_arguments_only_for_what_the_source_can_do() {
    use WriteCapabilities as Set;
    let (versions, key, dry_run) = ("expected_version", "idempotency_key", "dry_run");
    for (capabilities, arguments, flags) in [
        (Set::ALL, vec![versions, key, dry_run], vec!["_version", "dry_run", "replayed"]),
        (Set::NONE, vec![], vec![]),
        (Set::ROLLBACK, vec![], vec![]),
        (Set::DRY_RUN, vec![dry_run], vec!["dry_run"]),
        (Set::IDEMPOTENCY, vec![key], vec!["replayed"]),
        (Set::ROW_VERSIONS, vec![versions], vec!["_version"]),
    ] {
        let table = TableFacts { write_support: WriteSupport::Supported(capabilities), ..people_table() };
        let statement = StatementFacts { writes: Some(capabilities), ..top_statement() };
        let text = format!("{ALL}{}", TOP.replace("fields = ", "writes = true\nfields = "));
        let (contract, _) = compile_table(table, Ok(statement), &text);
        let contract = contract.expect("a contract");
        let has = |schema: &Json, name: &&str| schema.as_str().contains(&format!("\"{name}\":{{"));
        let has_of = |tool_name: &str, input: bool, names: [&'static str; 3]| {
            let tool = tool(&contract, tool_name);
            let schema = if input { &tool.input_schema } else { &tool.output_schema };
            names.into_iter().filter(|name| has(schema, name)).collect::<Vec<&str>>()
        };
        assert_eq!(has_of("update_people", true, [versions, key, dry_run]), arguments, "{capabilities}");
        assert_eq!(
            has_of("update_people", false, ["_version", "dry_run", "replayed"]),
            flags,
            "{capabilities}"
        );
        // A statement has no version.
        let rest = |names: &[&'static str]| {
            names.iter().copied().filter(|name| !name.contains("version")).collect::<Vec<&str>>()
        };
        assert_eq!(has_of("top", true, [versions, key, dry_run]), rest(&arguments), "{capabilities}");
        assert_eq!(has_of("top", false, ["_version", "dry_run", "replayed"]), rest(&flags), "{capabilities}");
    }
}

#[test]
fn tool_settings_are_applied() {
    let text = format!(
        "{ALL}confirm = \"ask\"\n[tools.add]\nuses = \"people.create\"\nconfirm = \"ask\"\nrate_limit = \"5/min\"\n\
         [tools.change]\nuses = \"people.update\"\nconfirm = \"never\"\ncall_timeout_ms = 7\n\
         [tools.all]\nuses = \"people.list\"\nlong_running = true\n"
    );
    let contract = compile_people(&text);
    let said = |name: &str| {
        let tool = tool(&contract, name);
        let rate = tool.rate_limit.map(|rate| (rate.calls, rate.per_ms));
        (tool.confirm, rate, tool.call_timeout_ms, tool.long_running)
    };
    assert_eq!(said("add"), (Confirm::Ask, Some((5, 60_000)), None, false));
    assert_eq!(said("change"), (Confirm::Never, None, Some(7), false));
    assert_eq!(said("all"), (Confirm::Never, None, None, true));
    assert_eq!(said("delete_people"), (Confirm::Ask, None, None, false));
    let hints: Vec<_> = contract
        .tools
        .iter()
        .map(|tool| tool.to_catalog_tool(&contract).annotations)
        .map(|hints| (hints.read_only, hints.destructive, hints.idempotent, hints.open_world))
        .collect();
    let reads = (Some(true), None, None, Some(false));
    let writes = |destructive, idempotent| (Some(false), Some(destructive), Some(idempotent), Some(false));
    assert_eq!(hints, [reads, reads, reads, writes(false, false), writes(true, true), writes(true, true)]);
}

#[test]
fn a_search_uses_indexed_or_text_fields() {
    let searched = |table: TableFacts, more: &str| {
        let text = format!("[collections.people]\noperations = [\"search\"]\n{more}");
        let (contract, found) = compile_table(table, Ok(top_statement()), &text);
        let contract = contract.unwrap_or_else(|| panic!("{found:?}"));
        match &contract.tools[0].operation {
            ToolOperation::Search { fields, scan_rows_max, .. } => (fields.clone(), *scan_rows_max),
            other => panic!("{other:?}"),
        }
    };
    let indexed = TableFacts { search: SearchFacts::Indexed(vec![1]), ..people_table() };
    let useless = TableFacts { search: SearchFacts::Indexed(vec![0]), ..people_table() };
    assert_eq!(searched(people_table(), ""), (vec![1, 6], 100_000));
    assert_eq!(searched(people_table(), "search = true\nsearch_rows_max = 5\n"), (vec![1, 6], 5));
    assert_eq!(searched(people_table(), "search = [\"initial\"]\n").0, [6]);
    assert_eq!(searched(indexed.clone(), "").0, [1]);
    assert_eq!(searched(indexed, "search = true\n").0, [1, 6]);
    assert_eq!(searched(useless, "").0, [1, 6]);
}

#[test]
fn the_description_of_a_search_says_how_an_index_matches_words() {
    let words = |columns: &[usize], matching| WordIndex { columns: columns.to_vec(), matching };
    let english = || WordMatching::Dictionary("english".into());
    for (indexes, more, fields, part) in [
        (vec![words(&[1], english())], "", &[1][..], "as a whole word in name. Forms of a word match"),
        (vec![words(&[1], WordMatching::Beginnings)], "", &[1], "words of name begin with every word"),
        // An index over other columns answers nothing.
        (vec![words(&[1], english())], "search = true\n", &[1, 6], "contain every word of `query` in name"),
        (
            vec![words(&[1, 6], english())],
            "search = [\"name\"]\n",
            &[1],
            "contain every word of `query` in name",
        ),
        (vec![words(&[1, 0], english())], "", &[1], "contain every word of `query` in name"),
        (vec![], "", &[1, 6], "contain every word"),
    ] {
        let table = TableFacts { search: SearchFacts::Words(indexes), ..people_table() };
        let text = format!("[collections.people]\noperations = [\"search\"]\n{more}");
        let contract = compile_table(table, Ok(top_statement()), &text).0.expect("a contract");
        let tool = &contract.tools[0];
        let ToolOperation::Search { fields: searched, .. } = &tool.operation else { panic!("{tool:?}") };
        assert_eq!(searched, fields, "{more}");
        assert!(tool.description.contains(part), "{}", tool.description);
    }
}

#[test]
fn a_sensitive_field_is_marked_in_input_and_output() {
    let contract = compile_people(&format!("{ALL}fields = {{ name = {{ sensitive = true }} }}\n"));
    assert!(contract.collections[0].fields[1].sensitive);
    for name in ["get_people", "list_people"] {
        let output = tool(&contract, name).output_schema.as_str();
        assert!(output.contains(r#""name":{"type":"string","x-sensitive":true}"#), "{output}");
    }
    let input = tool(&contract, "create_people").input_schema.as_str();
    assert!(input.contains(r#""name":{"type":"string","x-sensitive":true}"#), "{input}");
}

/// A field with a reserved name is renamed, whatever operations its collection has.
#[test]
fn fields_with_reserved_names_are_renamed() {
    let columns = ["query", "idempotency_key", "dry_run", "expected_version", "_version"];
    let columns = columns.map(|name| ColumnFacts::new(name, DataType::Text));
    let table =
        TableFacts { key: vec![0], row_count: Some(9), ..TableFacts::new("people", columns.to_vec()) };
    let (contract, _) = compile_table(table, Ok(top_statement()), "[collections.people]\n");
    let contract = contract.expect("a contract");
    let names: Vec<&str> = contract.collections[0].fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["query_", "idempotency_key_", "dry_run_", "expected_version_", "_version_"]);
}

#[test]
fn null_is_accepted_for_nullable_fields_only() {
    let contract = compile_people(ALL);
    let update = CompiledSchema::compile(&tool(&contract, "update_people").input_schema).expect("a schema");
    for (arguments, good) in [
        (r#"{"id":1,"balance":null}"#, true),
        (r#"{"id":1,"photo":null}"#, true),
        (r#"{"id":1,"extra":null}"#, true),
        (r#"{"id":1,"name":null}"#, false),
        (r#"{"id":1,"balance":"-0.50"}"#, true),
        (r#"{"id":1,"balance":0.5}"#, false),
        (r#"{"id":1,"balance":".5"}"#, false),
        (r#"{"id":1,"extra":{"any":[1,"thing"]}}"#, true),
        (r#"{"id":1,"initial":"X"}"#, false),
        (r#"{"id":null,"name":"X"}"#, false),
        // A plain object schema cannot say "at least one of these": `bind` does.
        (r#"{"id":1}"#, true),
        (r#"{"name":"X","rev":1}"#, false),
    ] {
        assert_eq!(update.is_valid(&Json::parse(arguments).expect("JSON")), good, "{arguments}");
    }
}

/// Only results that can have notices declare the member, so that other contracts do not change.
#[test]
fn notices_are_in_the_output_schema_where_values_may_be_outdated() {
    let plain = compile_people(ALL);
    for tool in &plain.tools {
        assert!(!tool.output_schema.as_str().contains("notices"), "{}", tool.output_schema);
    }
    let may_be_outdated = TableFacts { may_be_outdated: true, ..people_table() };
    let (contract, _) = compile_table(may_be_outdated, Ok(top_statement()), ALL);
    let contract = contract.expect("a contract");
    let notices = r#""type":"array","items":{"type":"string"},"description":"why values are missing"}"#;
    for (name, member) in [
        ("get_people", "_notices"),
        ("list_people", "notices"),
        ("search_people", "notices"),
        ("create_people", "notices"),
        ("update_people", "notices"),
        ("delete_people", "notices"),
    ] {
        let schema = tool(&contract, name).output_schema.as_str();
        assert_eq!(schema.matches(&format!("\"{member}\":{{{notices}")).count(), 1, "{schema}");
        assert_eq!(schema.matches("notices\"").count(), 1, "{schema}");
    }
}

#[test]
fn a_result_with_notices_fits_its_output_schema() {
    let may_be_outdated = TableFacts { may_be_outdated: true, ..people_table() };
    let (contract, _) = compile_table(may_be_outdated, Ok(top_statement()), ALL);
    let contract = contract.expect("a contract");
    let collection = &contract.collections[0];
    let text = ValueRef::Text;
    let row = [
        ValueRef::Integer(1),
        text("Ann"),
        ValueRef::Null,
        ValueRef::Null,
        ValueRef::Null,
        ValueRef::Integer(1),
        text("A"),
    ];
    let get = || results::record(collection, None, &row).expect("a row");
    let create = results::WriteResult::record(collection, None, "created", &row).expect("a row");
    let create = results::write_tool_result(create, true);
    for (name, member, result) in
        [("get_people", contract::NOTICES_FIELD, get()), ("create_people", contract::NOTICES_MEMBER, create)]
    {
        let schema = CompiledSchema::compile(&tool(&contract, name).output_schema).expect("a schema");
        let result = results::with_notices(result, &["one \"value\"", "two"], Some(member));
        let json = result.structured.expect("structured content");
        assert!(json.as_str().ends_with(&format!(r#","{member}":["one \"value\"","two"]}}"#)), "{json}");
        assert!(schema.is_valid(&json), "{json}");
    }
    // A contract without the member has the notice as text only.
    let result = results::with_notices(get(), &["one"], None);
    let structured = get().structured.map(|json| json.to_string());
    assert_eq!(result.structured.map(|json| json.to_string()), structured);
}

/// A workbook without any text cell has no table that a manifest could declare.
#[test]
fn nothing_to_serve_is_explained_by_the_first_table_that_was_skipped() {
    let (manifest, _) =
        manifest::parse("spile.toml", "[sources.s]\npath = \"s.xlsx\"\n", &|_| None).expect("a manifest");
    let skipped =
        contract::source::SkippedTable { table: "Sheet1".into(), reason: "it has no header row".into() };
    let facts = SourceFacts { skipped_tables: vec![skipped], ..SourceFacts::default() };
    let (contract, found) =
        compile(&manifest, &[IntrospectedSource { name: "s", facts: &facts, statements: &[] }], "s");
    assert!(contract.is_none());
    assert_eq!(found[0].message, "nothing to serve: `Sheet1` is not served: it has no header row");
    assert_eq!(found[0].help.as_deref(), Some("a table needs a row of column names: texts, above its rows"));
}

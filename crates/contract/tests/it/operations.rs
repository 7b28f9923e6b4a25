//! From manifest and facts to tools that search, write and run statements: what callers may say, and what they are
//! told.

use contract::compile::{Known, compile};
use contract::source::{BadStatement, ColumnFacts, Facts, SearchFacts, StatementFacts, TableFacts};
use contract::{Check, Confirm, Contract, Kind, Operation, Tool, Versioning, manifest};
use insta::assert_snapshot;
use json::Json;

/// `people` as a database would have them: a number that it gives out itself, a column that it computes, one that
/// must be there.
pub fn people() -> TableFacts {
    let column = ColumnFacts::new;
    let nullable = |name: &str, kind| ColumnFacts { nullable: true, ..ColumnFacts::new(name, kind) };
    let columns = vec![
        ColumnFacts { has_default: true, ..column("id", Kind::Integer) },
        column("name", Kind::Text),
        nullable("balance", Kind::Decimal),
        nullable("photo", Kind::Blob),
        nullable("extra", Kind::Json),
        ColumnFacts { has_default: true, ..column("rev", Kind::Integer) },
        ColumnFacts { read_only: Some("it is computed".into()), ..column("initial", Kind::Text) },
    ];
    TableFacts { key: vec![0], key_is_declared: true, rows: Some(9), ..TableFacts::new("people", columns) }
}

/// What a database says of `sql`: two parameters, two columns.
pub fn top() -> StatementFacts {
    StatementFacts {
        parameters: vec!["since".into(), "plan".into()],
        columns: vec![
            ColumnFacts::new("plan", Kind::Text),
            ColumnFacts { nullable: true, mixed: true, ..ColumnFacts::new("count(*)", Kind::Number) },
        ],
        ..StatementFacts::default()
    }
}

pub fn compiled_of(
    table: TableFacts,
    statement: Result<StatementFacts, BadStatement>,
    more: &str,
) -> (Option<Contract>, Vec<contract::diagnostic::Diagnostic>) {
    let text = format!("[sources.s]\npath = \"s.db\"\n{more}");
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None)
        .unwrap_or_else(|found| panic!("{}", contract::diagnostic::render_all(&found, false)));
    let facts = Facts { tables: vec![table], ..Facts::default() };
    let statements = [("top", statement)];
    compile(&manifest, &[Known { name: "s", facts: &facts, statements: &statements }], "people")
}

fn compiled(more: &str) -> Contract {
    let (contract, found) = compiled_of(people(), Ok(top()), more);
    contract.unwrap_or_else(|| panic!("{}", contract::diagnostic::render_all(&found, false)))
}

fn tool<'c>(contract: &'c Contract, name: &str) -> &'c Tool {
    contract.tools.iter().find(|tool| tool.name == name).expect("the tool")
}

const ALL: &str = "[collections.people]\noperations = [\"get\", \"list\", \"search\", \"create\", \"update\", \"delete\"]\n";

#[test]
fn what_each_operation_takes_and_tells() {
    let contract = compiled(&format!("{ALL}description = \"All of them.\"\n"));
    let names: Vec<&str> = contract.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(
        names,
        ["get_people", "list_people", "search_people", "create_people", "update_people", "delete_people"]
    );
    let told: Vec<&str> = contract.tools[2..].iter().map(|tool| tool.description.as_str()).collect();
    assert_snapshot!(told.join("\n"), @r#"
    Records of people that have every word of a query in name, initial. All of them.
    Adds a record to people. All of them.
    Changes fields of the record of people with this id. All of them.
    Deletes the record of people with this id. All of them.
    "#);
    assert_snapshot!(tool(&contract, "search_people").input, @r#"{"type":"object","properties":{"query":{"type":"string","pattern":"\\S","maxLength":1000,"description":"words, all of which a record must have"},"fields":{"type":"array","items":{"enum":["id","name","balance","photo","extra","rev","initial","_version"]},"minItems":1,"uniqueItems":true,"description":"only these fields; default all"},"limit":{"type":"integer","minimum":1,"maximum":100,"default":100}},"required":["query"],"additionalProperties":false}"#);
    assert_snapshot!(tool(&contract, "search_people").output, @r#"{"type":"object","anyOf":[{"properties":{"items":{"type":"array","maxItems":100,"description":"at most 65536 bytes together","items":{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},"balance":{"type":["string","null"],"format":"decimal"},"photo":{"anyOf":[{"type":"string","contentEncoding":"base64"},{"type":"object","properties":{"omitted":{"const":true},"bytes":{"type":"integer"}},"required":["omitted","bytes"]},{"type":"null"}]},"extra":{},"rev":{"type":"integer"},"initial":{"type":"string"},"_version":{"type":"string","description":"of its state; see expected_version"}},"additionalProperties":false}},"truncated":{"type":"boolean","description":"whether there are more"},"searched":{"type":"string","description":"`all`, or how many rows were looked at"}},"required":["items","truncated","searched"],"additionalProperties":false},{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}]}"#);
    assert_snapshot!(tool(&contract, "create_people").input, @r#"{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},"balance":{"type":["string","null"],"format":"decimal","pattern":"^-?(0|[1-9][0-9]*)(\\.[0-9]+)?$"},"photo":{"type":["string","null"],"contentEncoding":"base64"},"extra":{},"rev":{"type":"integer"},"idempotency_key":{"type":"string","minLength":1,"maxLength":200,"description":"any text of your own; the same again does nothing twice"},"dry_run":{"type":"boolean","description":"say what would be, and write nothing"}},"required":["name"],"additionalProperties":false}"#);
    assert_snapshot!(tool(&contract, "create_people").output, @r#"{"type":"object","anyOf":[{"properties":{"outcome":{"enum":["created"]},"record":{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},"balance":{"type":["string","null"],"format":"decimal"},"photo":{"anyOf":[{"type":"string","contentEncoding":"base64"},{"type":"object","properties":{"omitted":{"const":true},"bytes":{"type":"integer"}},"required":["omitted","bytes"]},{"type":"null"}]},"extra":{},"rev":{"type":"integer"},"initial":{"type":"string"},"_version":{"type":"string","description":"of its state; see expected_version"}},"required":["id","name","balance","photo","extra","rev","initial","_version"],"additionalProperties":false},"dry_run":{"const":true,"description":"nothing was written"},"replayed":{"const":true,"description":"it was done before, with this idempotency_key"}},"required":["outcome","record"],"additionalProperties":false},{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}]}"#);
    assert_snapshot!(tool(&contract, "update_people").input, @r#"{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},"balance":{"type":["string","null"],"format":"decimal","pattern":"^-?(0|[1-9][0-9]*)(\\.[0-9]+)?$"},"photo":{"type":["string","null"],"contentEncoding":"base64"},"extra":{},"rev":{"type":"integer"},"expected_version":{"type":"string","description":"_version of the record as you know it; another is a conflict"},"idempotency_key":{"type":"string","minLength":1,"maxLength":200,"description":"any text of your own; the same again does nothing twice"},"dry_run":{"type":"boolean","description":"say what would be, and write nothing"}},"required":["id"],"minProperties":2,"additionalProperties":false}"#);
    assert_snapshot!(tool(&contract, "delete_people").input, @r#"{"type":"object","properties":{"id":{"type":"integer"},"expected_version":{"type":"string","description":"_version of the record as you know it; another is a conflict"},"idempotency_key":{"type":"string","minLength":1,"maxLength":200,"description":"any text of your own; the same again does nothing twice"},"dry_run":{"type":"boolean","description":"say what would be, and write nothing"}},"required":["id"],"additionalProperties":false}"#);
}

#[test]
fn a_version_of_its_own_is_no_argument_but_that_which_is_expected() {
    let contract = compiled(&format!("{ALL}version = \"rev\"\nversion_required = true\n"));
    assert_eq!(
        contract.collections[0].writes.as_ref().map(|writes| writes.version),
        Some(Versioning::Field(5))
    );
    assert_snapshot!(tool(&contract, "delete_people").input, @r#"{"type":"object","properties":{"id":{"type":"integer"},"expected_version":{"type":"integer","description":"rev of the record as you know it; another is a conflict"},"idempotency_key":{"type":"string","minLength":1,"maxLength":200,"description":"any text of your own; the same again does nothing twice"},"dry_run":{"type":"boolean","description":"say what would be, and write nothing"}},"required":["id","expected_version"],"additionalProperties":false}"#);
    let update = tool(&contract, "update_people").input.as_str();
    assert!(!update.contains("\"rev\":") && update.contains("\"minProperties\":3"), "{update}");
    assert!(!tool(&contract, "get_people").output.as_str().contains("_version"));
}

#[test]
fn what_is_only_read_has_no_version() {
    let contract = compiled("[collections.people]\n");
    assert!(contract.collections[0].writes.is_none());
    for tool in &contract.tools {
        assert!(!tool.output.as_str().contains("_version"), "{}", tool.output);
    }
    let names: Vec<&str> = contract.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["get_people", "list_people"]);
}

/// What clients refuse: anything but a plain object at the root, and names that are no words.
#[test]
fn every_input_is_a_plain_object() {
    let contract = compiled(&format!("{ALL}{TOP}"));
    for tool in &contract.tools {
        let doc = tool.input.doc();
        let root = doc.root();
        assert!(root.get("type").is_some_and(|kind| kind.is("object")), "{}", tool.input);
        for odd in ["anyOf", "oneOf", "allOf", "$ref", "not", "if"] {
            assert!(root.get(odd).is_none(), "{}", tool.input);
        }
        for (name, _) in root.get("properties").expect("properties").members() {
            assert!(contract::names::is_argument_name(&name.str().expect("a name")), "{}", tool.input);
        }
        Check::compile(&tool.input).expect("a schema");
        Check::compile(&tool.output).expect("a schema");
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
fn what_a_statement_takes_and_tells() {
    let contract = compiled(TOP);
    let top = tool(&contract, "top");
    assert_eq!(top.description, "Gives plan, people.");
    assert_snapshot!(top.input, @r#"{"type":"object","properties":{"since":{"type":"string","format":"date","description":"First day."},"plan":{"type":["string","null"],"enum":["free","ruby",null],"default":"free"}},"required":["since"],"additionalProperties":false}"#);
    assert_snapshot!(top.output, @r#"{"type":"object","anyOf":[{"properties":{"items":{"type":"array","maxItems":100,"description":"at most 65536 bytes together","items":{"type":"object","properties":{"plan":{"type":"string"},"people":{"type":["integer","null"],"description":"count(*)"}},"required":["plan","people"],"additionalProperties":false}},"truncated":{"type":"boolean","description":"whether there are more"}},"required":["items","truncated"],"additionalProperties":false},{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}]}"#);
    let one = compiled(&format!("{TOP}returns = \"one\"\n"));
    assert_snapshot!(tool(&one, "top").output, @r#"{"type":"object","anyOf":[{"properties":{"plan":{"type":"string"},"people":{"type":["integer","null"],"description":"count(*)"}},"required":["plan","people"],"additionalProperties":false},{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}]}"#);
}

fn writing(columns: Vec<ColumnFacts>) -> StatementFacts {
    StatementFacts { writes: true, columns, ..top() }
}

#[test]
fn what_a_statement_that_writes_takes_and_tells() {
    let text = TOP.replace("fields = ", "writes = true\nfields = ");
    let (contract, _) = compiled_of(people(), Ok(writing(top().columns)), &text);
    let contract = contract.expect("a contract");
    assert_snapshot!(tool(&contract, "top").input, @r#"{"type":"object","properties":{"since":{"type":"string","format":"date","description":"First day."},"plan":{"type":["string","null"],"enum":["free","ruby",null],"default":"free"},"idempotency_key":{"type":"string","minLength":1,"maxLength":200,"description":"any text of your own; the same again does nothing twice"},"dry_run":{"type":"boolean","description":"say what would be, and write nothing"}},"required":["since"],"additionalProperties":false}"#);
    assert_snapshot!(tool(&contract, "top").output, @r#"{"type":"object","anyOf":[{"properties":{"changed":{"type":"integer","description":"how many rows were changed"},"items":{"type":"array","maxItems":100,"description":"at most 65536 bytes together","items":{"type":"object","properties":{"plan":{"type":"string"},"people":{"type":["integer","null"],"description":"count(*)"}},"required":["plan","people"],"additionalProperties":false}},"truncated":{"type":"boolean","description":"whether there are more"},"dry_run":{"const":true,"description":"nothing was written"},"replayed":{"const":true,"description":"it was done before, with this idempotency_key"}},"required":["changed","items","truncated"],"additionalProperties":false},{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}]}"#);
    let text = text.split("fields").next().expect("a part");
    let (contract, _) = compiled_of(people(), Ok(writing(Vec::new())), text);
    let contract = contract.expect("a contract");
    assert_snapshot!(tool(&contract, "top").output, @r#"{"type":"object","anyOf":[{"properties":{"changed":{"type":"integer","description":"how many rows were changed"},"dry_run":{"const":true,"description":"nothing was written"},"replayed":{"const":true,"description":"it was done before, with this idempotency_key"}},"required":["changed"],"additionalProperties":false},{"properties":{"code":{"type":"string"},"message":{"type":"string"},"field":{"type":"string"},"reason":{"type":"string"},"retryable":{"type":"boolean"},"ref":{"type":"string"}},"required":["code","message","retryable"]}]}"#);
    assert_eq!(
        tool(&contract, "top").description,
        "Changes what its statement says, and tells how many rows."
    );
}

#[test]
fn what_is_said_of_a_tool_is_kept() {
    let text = format!(
        "{ALL}confirm = \"ask\"\n[tools.add]\nuses = \"people.create\"\nconfirm = \"ask\"\nrate_limit = \"5/min\"\n\
         [tools.change]\nuses = \"people.update\"\nconfirm = \"never\"\ncall_timeout_ms = 7\n\
         [tools.all]\nuses = \"people.list\"\nlong_running = true\n"
    );
    let contract = compiled(&text);
    let said = |name: &str| {
        let tool = tool(&contract, name);
        let rate = tool.rate.map(|rate| (rate.calls, rate.per_ms));
        (tool.confirm, rate, tool.call_timeout_ms, tool.long_running)
    };
    assert_eq!(said("add"), (Confirm::Ask, Some((5, 60_000)), None, false));
    assert_eq!(said("change"), (Confirm::Never, None, Some(7), false));
    assert_eq!(said("all"), (Confirm::Never, None, None, true));
    assert_eq!(said("delete_people"), (Confirm::Ask, None, None, false));
    let hints: Vec<_> = contract
        .tools
        .iter()
        .map(|tool| tool.offered(&contract).annotations)
        .map(|hints| (hints.read_only, hints.destructive, hints.idempotent, hints.open_world))
        .collect();
    let reads = (Some(true), None, None, Some(false));
    let writes = |destructive, idempotent| (Some(false), Some(destructive), Some(idempotent), Some(false));
    assert_eq!(hints, [reads, reads, reads, writes(false, false), writes(true, true), writes(true, true)]);
}

#[test]
fn a_search_looks_into_texts_or_what_there_is_an_index_for() {
    let searched = |table: TableFacts, more: &str| {
        let text = format!("[collections.people]\noperations = [\"search\"]\n{more}");
        let (contract, found) = compiled_of(table, Ok(top()), &text);
        let contract = contract.unwrap_or_else(|| panic!("{found:?}"));
        match &contract.tools[0].operation {
            Operation::Search { fields, scan_rows_max, .. } => (fields.clone(), *scan_rows_max),
            other => panic!("{other:?}"),
        }
    };
    let indexed = TableFacts { search: SearchFacts::Indexed(vec![1]), ..people() };
    let useless = TableFacts { search: SearchFacts::Indexed(vec![0]), ..people() };
    assert_eq!(searched(people(), ""), (vec![1, 6], 100_000));
    assert_eq!(searched(people(), "search = true\nsearch_rows_max = 5\n"), (vec![1, 6], 5));
    assert_eq!(searched(people(), "search = [\"initial\"]\n").0, [6]);
    assert_eq!(searched(indexed.clone(), "").0, [1]);
    assert_eq!(searched(indexed, "search = true\n").0, [1, 6]);
    assert_eq!(searched(useless, "").0, [1, 6]);
}

#[test]
fn a_sensitive_field_is_marked_where_it_is_told_and_taken() {
    let contract = compiled(&format!("{ALL}fields = {{ name = {{ sensitive = true }} }}\n"));
    assert!(contract.collections[0].fields[1].sensitive);
    for name in ["get_people", "list_people"] {
        let output = tool(&contract, name).output.as_str();
        assert!(output.contains(r#""name":{"type":"string","x-sensitive":true}"#), "{output}");
    }
    let input = tool(&contract, "create_people").input.as_str();
    assert!(input.contains(r#""name":{"type":"string","x-sensitive":true}"#), "{input}");
}

/// A field of a name that tools have for something else gets another, whatever its collection can do.
#[test]
fn names_that_tools_have_are_left_to_them() {
    let columns = ["query", "idempotency_key", "dry_run", "expected_version", "_version"];
    let columns = columns.map(|name| ColumnFacts::new(name, Kind::Text));
    let table = TableFacts { key: vec![0], rows: Some(9), ..TableFacts::new("people", columns.to_vec()) };
    let (contract, _) = compiled_of(table, Ok(top()), "[collections.people]\n");
    let contract = contract.expect("a contract");
    let names: Vec<&str> = contract.collections[0].fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["query_", "idempotency_key_", "dry_run_", "expected_version_", "_version_"]);
}

#[test]
fn null_clears_what_can_be_without_a_value_and_nothing_else() {
    let contract = compiled(ALL);
    let update = Check::compile(&tool(&contract, "update_people").input).expect("a schema");
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
        (r#"{"id":1}"#, false),
        (r#"{"name":"X","rev":1}"#, false),
    ] {
        assert_eq!(update.admits(&Json::parse(arguments).expect("JSON")), good, "{arguments}");
    }
}

//! Valid manifests, and what they parse to.

use contract::DataType;
use contract::diagnostic::Located;
use contract::manifest::{
    Confirm, EXAMPLE, FieldSelection, FormulaPolicy, Literal, Manifest, Operation, RateLimit, Returns,
    SourceKind, SourceSettings, Statement, Tool, ToolBody, WorkbookFormat, parse,
};

/// Parses a manifest that must have no diagnostics.
pub fn parse_manifest(text: &str) -> Manifest {
    match parse("spile.toml", text, &env) {
        Ok((manifest, warnings)) => {
            assert_eq!(warnings, [], "{text}");
            manifest
        }
        Err(told) => panic!("{text}\n{}", contract::diagnostic::render_all(&told, false)),
    }
}

pub fn env(name: &str) -> Option<String> {
    match name {
        "DATA" => Some("/var/data".into()),
        "EMPTY" => Some(String::new()),
        "SECRET" => Some("hunter2".into()),
        _ => None,
    }
}

pub const FULL_MANIFEST: &str = r#"
[server]
name = "customers-lookup"
title = "Customers"
instructions = "Customer records by email."
call_timeout_ms = 5_000

[sources.crm]
kind = "sqlite"
path = "${DATA}/crm.db"

[sources.sheet]
path = "plans.TSV"
delimiter = "tab"
null = "n/a"

[collections.customers]
source = "crm"
table = "Customers"
key = "email"
description = "People who bought something, one row each."
operations = ["get", "list"]
filters = ["plan", "Signup Date"]
sort = true
rows_max = 200
bytes_max = 0x1000
null = ""

[collections.customers.fields]
email = { format = "email", description = "Lowercase." }
plan = { enum = ["free", "emerald"], null = "-" }
level = { enum = [1, 2] }
"Signup Date" = { as = "date", name = "signup" }
notes.hidden = true

[collections.plans]
source = "sheet"
key = ["plan", "year"]
filters = false

[tools.lookup-customer]
uses = "customers.get"
title = "Look up"
description = "Return the record."
text = "{email} is on {plan}"

[tools.hide]
uses = "plans.list"
hidden = true
"#;

#[test]
fn every_key_is_parsed() {
    let manifest = parse_manifest(FULL_MANIFEST);
    let server = &manifest.server;
    assert_eq!(server.name.as_deref(), Some("customers-lookup"));
    assert_eq!((server.title.as_deref(), server.call_timeout_ms), (Some("Customers"), Some(5000)));
    let [crm, sheet] = manifest.sources.as_slice() else { panic!("two sources") };
    assert_eq!(
        (crm.location.value.to_string().as_str(), &crm.settings),
        ("/var/data/crm.db", &SourceSettings::Sqlite)
    );
    assert_eq!(
        sheet.settings,
        SourceSettings::Csv {
            delimiter: Some(b'\t'),
            encoding: None,
            null_texts: vec!["n/a".into()],
            formulas: FormulaPolicy::Refuse
        }
    );

    let [customers, plans] = manifest.collections.as_slice() else { panic!("two collections") };
    let names = |placed: &[Located<String>]| placed.iter().map(|one| one.value.clone()).collect::<Vec<_>>();
    assert_eq!(customers.table.as_ref().map(|table| table.value.as_str()), Some("Customers"));
    assert_eq!(names(&customers.key), ["email"]);
    let operations = customers.operations.as_ref().expect("said").iter().map(|one| one.value);
    assert_eq!(operations.collect::<Vec<_>>(), [Operation::Get, Operation::List]);
    let FieldSelection::Only(filters) = &customers.filters else { panic!("{:?}", customers.filters) };
    assert_eq!(names(filters), ["plan", "Signup Date"]);
    assert_eq!(format!("{:?}", filters[1].location), "spile.toml:23:20");
    assert_eq!(
        (&customers.sort, &plans.sort, &plans.filters),
        (&FieldSelection::All, &FieldSelection::Default, &FieldSelection::None)
    );
    assert_eq!((customers.rows_max, customers.bytes_max), (200, 4096));
    assert_eq!((plans.rows_max, plans.bytes_max, &plans.operations), (100, 65_536, &None));
    assert_eq!(names(&plans.key), ["plan", "year"]);

    let [email, plan, level, date, notes] = customers.fields.as_slice() else { panic!("five fields") };
    assert_eq!(email.format.as_ref().map(|format| format.value), Some("email"));
    assert_eq!(plan.allowed[1].value, Literal::Text("emerald".into()));
    assert_eq!(plan.null_texts.as_deref(), Some(&["-".to_owned()][..]));
    assert_eq!(customers.null_texts, [""]);
    assert_eq!(level.allowed[0].value, Literal::Integer(1));
    assert_eq!(date.data_type.as_ref().map(|kind| kind.value), Some(DataType::Date));
    assert_eq!(date.name.as_ref().map(|name| name.value.as_str()), Some("signup"));
    assert_eq!((notes.column.value.as_str(), notes.hidden, email.hidden), ("notes", true, false));

    let [lookup, hide] = manifest.tools.as_slice() else { panic!("two tools") };
    assert_eq!(tool_operation(lookup), ("customers", Operation::Get));
    assert_eq!(tool_operation(hide).1, Operation::List);
    assert_eq!(lookup.text_template.as_ref().map(|text| text.value.as_str()), Some("{email} is on {plan}"));
    assert_eq!((lookup.hidden, hide.hidden), (false, true));
}

#[test]
fn optional_keys_have_defaults() {
    assert!(parse_manifest("").sources.is_empty());
    assert!(parse_manifest("# nothing yet\r\n[server]\r\n").server.name.is_none());
    for (path, kind) in [
        ("a.csv", SourceKind::Csv),
        ("A.CSV", SourceKind::Csv),
        ("x.y/a.tsv", SourceKind::Csv),
        ("a.db", SourceKind::Sqlite),
        ("a.b.sqlite3", SourceKind::Sqlite),
        (r"C:\data\a.sqlite", SourceKind::Sqlite),
    ] {
        let manifest = parse_manifest(&format!("[sources.a]\npath = '{path}'\n[collections.b]"));
        assert_eq!(manifest.sources[0].settings.kind(), kind, "{path}");
        assert_eq!(manifest.collections[0].source.value, "a", "{path}");
    }
}

#[test]
fn a_declared_kind_overrides_the_extension() {
    let manifest = parse_manifest("sources.a = { kind = 'csv', path = 'export.db' }");
    assert_eq!(manifest.sources[0].settings.kind(), SourceKind::Csv);
}

#[test]
fn variables_are_replaced_in_every_text() {
    let manifest = parse_manifest(
        "[server]\nname = '${NONE:-a}${DATA}'\ninstructions = '$${DATA}'\n[sources.a]\npath = '${EMPTY:-x}.csv'",
    );
    assert_eq!(manifest.server.name.as_deref(), Some("a/var/data"));
    assert_eq!(manifest.server.instructions.as_deref(), Some("${DATA}"));
    assert_eq!(manifest.sources[0].location.value.to_string(), "x.csv");
}

#[test]
fn order_is_the_order_of_the_text() {
    let manifest =
        parse_manifest("[sources.z]\npath='z.csv'\n[sources.a]\npath='a.csv'\n[sources.m]\npath='m.csv'");
    assert_eq!(
        manifest.sources.iter().map(|one| one.name.value.as_str()).collect::<Vec<_>>(),
        ["z", "a", "m"]
    );
}

fn tool_operation(tool: &Tool) -> (&str, Operation) {
    match &tool.body {
        ToolBody::Uses(uses) => (&uses.value.collection, uses.value.operation),
        ToolBody::Statement(_) | ToolBody::Request(_) => panic!("not a collection"),
    }
}

/// A manifest with a writable collection and these lines.
fn shop(more: &str) -> Manifest {
    let text = "[sources.crm]\npath = 'crm.db'\n[collections.customers]\noperations = ['list', 'search', 'update']\n";
    parse_manifest(&format!("{text}{more}"))
}

#[test]
fn the_example_of_the_reference_parses() {
    let manifest = parse_manifest(EXAMPLE);
    assert_eq!(manifest.server.rate_limit, Some(RateLimit { calls: 600, per_ms: 60_000 }));
    let [customers] = manifest.collections.as_slice() else { panic!("one collection") };
    assert_eq!(customers.version.as_ref().map(|version| version.value.as_str()), Some("rev"));
    assert_eq!((customers.confirm, customers.version_required), (Confirm::Ask, false));
    let phone = customers.fields.iter().find(|field| field.column.value == "phone").expect("a phone");
    assert!(phone.sensitive);
    let top = statement(&manifest.tools[1]);
    assert_eq!((top.source.value.as_str(), top.writes, top.changes_max), ("crm", false, 1));
    let [since] = top.arguments.as_slice() else { panic!("one argument") };
    // A string with the format `date` is a date.
    assert_eq!((since.name.value.as_str(), since.data_type, since.required), ("since", DataType::Date, true));
    assert_eq!(since.format, None);
}

#[test]
fn every_kind_of_source_has_its_own_settings() {
    for (lines, settings) in [
        ("path = 'a.xlsx'", SourceSettings::Workbook(WorkbookFormat::Xlsx)),
        ("path = 'A.XLSM'", SourceSettings::Workbook(WorkbookFormat::Xlsx)),
        ("path = 'a.xls'", SourceSettings::Workbook(WorkbookFormat::Xls)),
        ("path = 'a.ods'", SourceSettings::Workbook(WorkbookFormat::Ods)),
        ("path = 'a.json'", SourceSettings::Json { pointer: None }),
        ("path = 'a.json'\nat = ''", SourceSettings::Json { pointer: None }),
        ("path = 'a.json'\nat = '/a~1b/0'", SourceSettings::Json { pointer: Some("/a~1b/0".into()) }),
        ("path = 'a.ndjson'", SourceSettings::JsonLines),
        ("kind = 'jsonl'\npath = 'a.log'", SourceSettings::JsonLines),
        (
            "path = 'a.csv'\nformulas = 'keep'",
            SourceSettings::Csv {
                delimiter: None,
                encoding: None,
                null_texts: Vec::new(),
                formulas: FormulaPolicy::Keep,
            },
        ),
        (
            "path = 'a.csv'\nformulas = 'refuse'",
            SourceSettings::Csv {
                delimiter: None,
                encoding: None,
                null_texts: Vec::new(),
                formulas: FormulaPolicy::Refuse,
            },
        ),
    ] {
        assert_eq!(parse_manifest(&format!("[sources.a]\n{lines}")).sources[0].settings, settings, "{lines}");
    }
}

#[test]
fn an_encoding_has_any_of_its_names() {
    for (label, expected) in [
        ("shift_jis", "Shift_JIS"),
        ("SJIS", "Shift_JIS"),
        ("cp1251", "windows-1251"),
        ("latin1", "windows-1252"),
    ] {
        let manifest = parse_manifest(&format!("[sources.a]\npath = 'a.csv'\nencoding = '{label}'"));
        let SourceSettings::Csv { encoding, .. } = &manifest.sources[0].settings else {
            panic!("a csv file")
        };
        assert_eq!(encoding.map(|encoding| encoding.name()), Some(expected), "{label}");
    }
}

#[test]
fn sheet_is_an_alias_of_table() {
    let text = "[sources.a]\npath = 'a.xlsx'\n[collections.b]\nsheet = 'Q1 2026'\nheader_row = 3";
    let manifest = parse_manifest(text);
    let [b] = manifest.collections.as_slice() else { panic!("one") };
    assert_eq!(b.table.as_ref().map(|table| table.value.as_str()), Some("Q1 2026"));
    assert_eq!(b.layout.header_row, Some(3));
}

#[test]
fn write_and_search_settings_are_parsed() {
    let manifest = shop(
        "search = ['name']\nsearch_rows_max = 5\nversion = 'rev'\nversion_required = true\nconfirm = 'ask'\n\
         fields.rev = { as = 'integer' }\n[tools.change]\nuses = 'customers.update'\nconfirm = 'never'\n\
         rate_limit = '5/s'\ncall_timeout_ms = 9\nlong_running = true",
    );
    let (customers, change) = (&manifest.collections[0], &manifest.tools[0]);
    let FieldSelection::Only(columns) = &customers.search else { panic!("{:?}", customers.search) };
    assert_eq!((columns[0].value.as_str(), customers.search_rows_max), ("name", 5));
    assert!(customers.version_required);
    assert_eq!(change.rate_limit, Some(RateLimit { calls: 5, per_ms: 1000 }));
    assert_eq!((change.call_timeout_ms, change.long_running), (Some(9), true));
    assert_eq!((customers.confirm, change.confirm), (Confirm::Ask, Some(Confirm::Never)));
    let unsaid = shop("[tools.change]\nuses = 'customers.update'");
    assert_eq!((unsaid.collections[0].search_rows_max, unsaid.tools[0].confirm), (100_000, None));
    assert_eq!(unsaid.collections[0].confirm, Confirm::Never);
}

#[test]
fn statements_are_parsed() {
    let manifest = shop(
        "[tools.close]\nsql = 'update a set b = :b where c = :c'\nwrites = true\nchanges_max = 7\nreturns = 'one'\n\
         confirm = 'ask'\nbytes_max = 2048\nfields.b = { as = 'decimal' }\n[tools.close.arguments]\n\
         b = { as = 'decimal', default = '0.10' }\nc = { enum = [1, 2] }\nd = { type = 'string', required = false }\n\
         e = { type = 'boolean', default = false }\nf = { type = 'number', default = 1_0.5 }\n\
         g = { type = 'string', format = 'date-time' }\nh = { type = 'integer', default = 10, enum = [10, 20] }",
    );
    let close = statement(&manifest.tools[0]);
    assert_eq!((close.source.value.as_str(), close.writes, close.changes_max), ("crm", true, 7));
    assert_eq!((close.returns, close.rows_max, close.bytes_max), (Returns::One, 100, 2048));
    assert_eq!(close.fields[0].data_type.as_ref().map(|kind| kind.value), Some(DataType::Decimal));
    let arguments: Vec<_> = close
        .arguments
        .iter()
        .map(|one| (one.name.value.as_str(), one.data_type, one.required, one.default.clone()))
        .collect();
    assert_eq!(
        arguments,
        [
            ("b", DataType::Decimal, false, Some(Literal::Text("0.10".into()))),
            ("c", DataType::Integer, true, None),
            ("d", DataType::Text, false, None),
            ("e", DataType::Boolean, false, Some(Literal::Boolean(false))),
            ("f", DataType::Number, false, Some(Literal::Number("10.5".into()))),
            ("g", DataType::Text, true, None),
            ("h", DataType::Integer, false, Some(Literal::Integer(10))),
        ]
    );
    assert_eq!(close.arguments[5].format.as_ref().map(|format| format.value), Some("date-time"));
    let plain = shop("[tools.count]\nsql = 'select count(*) from a'");
    let plain = statement(&plain.tools[0]);
    assert_eq!((plain.returns, plain.writes, plain.changes_max), (Returns::Many, false, 1));
}

#[test]
fn values_keep_their_locations() {
    let manifest = shop("version = 'rev'\n[tools.t]\nsql = 'select 1'");
    let version: &Located<String> = manifest.collections[0].version.as_ref().expect("said");
    assert_eq!(format!("{:?}", version.location), "spile.toml:5:11");
    assert_eq!(format!("{:?}", statement(&manifest.tools[0]).sql.location), "spile.toml:7:7");
}

fn statement(tool: &Tool) -> &Statement {
    match &tool.body {
        ToolBody::Statement(statement) => statement,
        ToolBody::Uses(_) | ToolBody::Request(_) => panic!("no statement"),
    }
}

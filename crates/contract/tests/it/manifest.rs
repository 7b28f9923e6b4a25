//! Manifests that are right, and what they mean.

use contract::Kind;
use contract::manifest::{
    Body, Choice, Formulas, Literal, Manifest, Operation, Settings, SourceKind, Tool, parse,
};

/// What a manifest means; it must not have anything to be told about.
pub fn read(text: &str) -> Manifest {
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

const WHOLE: &str = r#"
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
"Signup Date" = { type = "date", name = "signup" }
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
fn everything_there_is_to_say_is_understood() {
    let manifest = read(WHOLE);
    let server = &manifest.server;
    assert_eq!(server.name.as_deref(), Some("customers-lookup"));
    assert_eq!((server.title.as_deref(), server.call_timeout_ms), (Some("Customers"), Some(5000)));
    let [crm, sheet] = manifest.sources.as_slice() else { panic!("two sources") };
    assert_eq!((crm.path.value.as_str(), &crm.settings), ("/var/data/crm.db", &Settings::Sqlite));
    assert_eq!(
        sheet.settings,
        Settings::Csv { delimiter: Some(b'\t'), null: Some("n/a".into()), formulas: Formulas::Refuse }
    );

    let [customers, plans] = manifest.collections.as_slice() else { panic!("two collections") };
    let names = |placed: &[contract::diagnostic::Placed<String>]| {
        placed.iter().map(|one| one.value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(customers.table.as_ref().map(|table| table.value.as_str()), Some("Customers"));
    assert_eq!(names(&customers.key), ["email"]);
    let operations = customers.operations.as_ref().expect("said").iter().map(|one| one.value);
    assert_eq!(operations.collect::<Vec<_>>(), [Operation::Get, Operation::List]);
    let Choice::Only(filters) = &customers.filters else { panic!("{:?}", customers.filters) };
    assert_eq!(names(filters), ["plan", "Signup Date"]);
    assert_eq!(format!("{:?}", filters[1].at), "spile.toml:23:20");
    assert_eq!(
        (&customers.sort, &plans.sort, &plans.filters),
        (&Choice::All, &Choice::Unsaid, &Choice::None)
    );
    assert_eq!((customers.rows_max, customers.bytes_max), (200, 4096));
    assert_eq!((plans.rows_max, plans.bytes_max, &plans.operations), (100, 65_536, &None));
    assert_eq!(names(&plans.key), ["plan", "year"]);

    let [email, plan, level, date, notes] = customers.fields.as_slice() else { panic!("five fields") };
    assert_eq!(email.format.as_ref().map(|format| format.value), Some("email"));
    assert_eq!(plan.allowed[1].value, Literal::Text("emerald".into()));
    assert_eq!((plan.null.as_deref(), customers.null.as_deref()), (Some("-"), Some("")));
    assert_eq!(level.allowed[0].value, Literal::Integer(1));
    assert_eq!(date.kind.as_ref().map(|kind| kind.value), Some(Kind::Date));
    assert_eq!(date.name.as_ref().map(|name| name.value.as_str()), Some("signup"));
    assert_eq!((notes.column.value.as_str(), notes.hidden, email.hidden), ("notes", true, false));

    let [lookup, hide] = manifest.tools.as_slice() else { panic!("two tools") };
    assert_eq!(used(lookup), ("customers", Operation::Get));
    assert_eq!(used(hide).1, Operation::List);
    assert_eq!(lookup.text.as_ref().map(|text| text.value.as_str()), Some("{email} is on {plan}"));
    assert_eq!((lookup.hidden, hide.hidden), (false, true));
}

#[test]
fn what_can_be_left_out_may_be() {
    assert!(read("").sources.is_empty());
    assert!(read("# nothing yet\r\n[server]\r\n").server.name.is_none());
    for (path, kind) in [
        ("a.csv", SourceKind::Csv),
        ("A.CSV", SourceKind::Csv),
        ("x.y/a.tsv", SourceKind::Csv),
        ("a.db", SourceKind::Sqlite),
        ("a.b.sqlite3", SourceKind::Sqlite),
        (r"C:\data\a.sqlite", SourceKind::Sqlite),
    ] {
        let manifest = read(&format!("[sources.a]\npath = '{path}'\n[collections.b]"));
        assert_eq!(manifest.sources[0].settings.kind(), kind, "{path}");
        assert_eq!(manifest.collections[0].source.value, "a", "{path}");
    }
}

#[test]
fn a_kind_that_is_said_counts_more_than_an_ending() {
    let manifest = read("sources.a = { kind = 'csv', path = 'export.db' }");
    assert_eq!(manifest.sources[0].settings.kind(), SourceKind::Csv);
}

#[test]
fn variables_are_replaced_in_every_text() {
    let manifest = read(
        "[server]\nname = '${NONE:-a}${DATA}'\ninstructions = '$${DATA}'\n[sources.a]\npath = '${EMPTY:-x}.csv'",
    );
    assert_eq!(manifest.server.name.as_deref(), Some("a/var/data"));
    assert_eq!(manifest.server.instructions.as_deref(), Some("${DATA}"));
    assert_eq!(manifest.sources[0].path.value, "x.csv");
}

#[test]
fn order_is_that_of_the_text() {
    let manifest = read("[sources.z]\npath='z.csv'\n[sources.a]\npath='a.csv'\n[sources.m]\npath='m.csv'");
    assert_eq!(
        manifest.sources.iter().map(|one| one.name.value.as_str()).collect::<Vec<_>>(),
        ["z", "a", "m"]
    );
}

fn used(tool: &Tool) -> (&str, Operation) {
    match &tool.body {
        Body::Uses(uses) => (&uses.value.collection, uses.value.operation),
        Body::Statement(_) => panic!("a statement"),
    }
}

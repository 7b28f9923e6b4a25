//! What an author may declare a column to be: what is said at the start is what calls do, and what was written is
//! taken again at the next start.

use contract::compile::{KnownSource, compile};
use contract::diagnostic::{Diagnostic, Severity, render_all};
use contract::field::Field;
use contract::lint::lint;
use contract::manifest;
use contract::source::{
    Comparison, Filter, Query, Reader, RowChange, RowFlow, TableShape, WriteError, WriteOutcome,
};
use contract::{Contract, DataType, Value, ValueRef};

use super::fixtures::{self, ColumnVariant, Store, StoredCell};
use super::{StoreFixture, values};
use crate::write_checks::{RecordingChecks, plain_write};

/// What a start with a declared kind comes to, as `spile check` and `spile serve` do it: the contract, or why not.
fn compile_contract(kept: &StoreFixture<'_>, kind: DataType) -> Result<Contract, String> {
    let null = kept.variant.null.map_or_else(String::new, |null| format!(", null = '{null}'"));
    let text = format!(
        "[sources.s]\npath = '{}'\n[collections.t]\ndescription = 'Rows.'\nkey = 'k'\nfields.v = {{ as = '{}'{null} }}\n",
        kept.store.file(),
        kind.as_str()
    );
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None).unwrap();
    let source = kept.open();
    let facts = source.introspect().map_err(|fault| fault.to_string())?;
    let known = [KnownSource::new("s", &facts)];
    let (contract, found) = compile(&manifest, &known, "t");
    let contract = contract.ok_or_else(|| render_all(&found, false))?;
    source.reader(&contract.collections[0].shape).map_err(|fault| fault.to_string())?;
    let is_worse = |one: &&Diagnostic| one.severity != Severity::Note;
    let linted = lint(&contract, &manifest, &known);
    let warnings: Vec<&Diagnostic> = found.iter().chain(&linted).filter(is_worse).collect();
    assert!(warnings.is_empty(), "{} as {kind:?}: {warnings:?}", kept.store.name());
    Ok(contract)
}

/// What a call tells of a row's value.
fn get_json(reader: &dyn Reader, field: &Field, key: &str) -> Result<String, String> {
    let mut told = None;
    let got = reader.get(&[ValueRef::Text(key)], &mut |cells| {
        let mut out = Vec::new();
        told = Some(field.write_value(&mut out, cells[1]).map(|()| String::from_utf8(out).unwrap()));
    });
    got.map_err(|fault| fault.to_string())?;
    told.expect("the row").map_err(|_| format!("not `{}`", field.data_type.as_str()))
}

/// How many rows have a text.
fn search_count(reader: &dyn Reader, text: &str) -> usize {
    let filters = vec![Filter { column: 1, comparison: Comparison::Equals, value: ValueRef::Text(text) }];
    let mut rows = 0;
    let query = Query { filters, rows_max: 9, ..Query::default() };
    let list = reader.list(&query, &mut |_, _| {
        rows += 1;
        RowFlow::Continue
    });
    list.unwrap();
    rows
}

/// What is said of a column at the start is what a call does, for every kind that it may be declared as. Returns those
/// that it can be.
fn check(store: Store, way: &ColumnVariant) -> String {
    let kept = StoreFixture::new(store, way);
    let mut can_be = Vec::new();
    for kind in DataType::ALL {
        let what = || format!("{} {} {:?} as {kind:?}", store.name(), way.column, way.stored);
        match compile_contract(&kept, kind) {
            Ok(contract) => {
                let collection = &contract.collections[0];
                let reader = kept.open().reader(&collection.shape).unwrap();
                let told = get_json(&*reader, &collection.fields[1], "old");
                let told = told.unwrap_or_else(|why| panic!("{}: taken, and a call fails: {why}", what()));
                // Infinity is told and cannot be asked for.
                if kind == DataType::Text && !["null", "\"Infinity\""].contains(&told.as_str()) {
                    let text = told[1..told.len() - 1].replace("\\\"", "\"");
                    assert_eq!(search_count(&*reader, &text), 1, "{}: {text} is not found", what());
                }
                can_be.push(kind.as_str());
            }
            // A workbook has no bytes, whatever its texts look like.
            Err(_) if (store, kind) == (Store::Xlsx, DataType::Blob) => {}
            Err(why) => {
                let shape: TableShape = kept.declared(kind);
                let mut field = Field::new("v", "v", kind);
                field.nullable = true;
                let told = kept.open().reader(&shape).map_err(|fault| fault.to_string());
                let told = told.and_then(|reader| get_json(&*reader, &field, "old"));
                assert!(told.is_err(), "{}: a call would tell {told:?}, and it is refused: {why}", what());
            }
        }
    }
    can_be.join(" ")
}

const TEXTS: [&str; 14] = [
    "abc",
    "007",
    "5",
    "0",
    "9007199254740993",
    "1.50",
    "1e3",
    "true",
    "2026-01-01",
    "2026-01-01T10:00:00Z",
    "2026-01-01 10:00:00",
    r#"{"a":[1,2.50]}"#,
    r#""x""#,
    "AP8QCg==",
];

fn column_variant(column: &'static str, there: StoredCell) -> ColumnVariant {
    ColumnVariant { column, stored: there, null: None, keeps_formulas: false, expected_text: "" }
}

fn raw(column: &'static str, there: &str) -> ColumnVariant {
    column_variant(column, StoredCell::Raw(there.to_owned()))
}

/// How the same texts, and numbers, are stored.
fn stored_variants(store: Store) -> Vec<ColumnVariant> {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let string = |text: &str| {
        let mut out = Vec::new();
        json::write::string(&mut out, text);
        String::from_utf8(out).unwrap()
    };
    let natives = ["0", "5", "1.5", "9007199254740993", "1e400", "true", "null", "[1]"];
    match store {
        Store::Csv => TEXTS.iter().map(|text| raw("", &quoted(text))).collect(),
        Store::Lines | Store::Document => {
            let texts = TEXTS.iter().map(|text| raw("", &string(text)));
            texts.chain(natives.iter().map(|native| raw("", native))).collect()
        }
        Store::Xlsx => {
            let texts = TEXTS.iter().map(|text| column_variant("", StoredCell::Text((*text).to_owned())));
            let numbers = [0.0, 5.0, 1.5].map(|n| column_variant("", StoredCell::Number(n)));
            texts
                .chain(numbers)
                .chain([column_variant("", StoredCell::Boolean(true)), column_variant("", StoredCell::Empty)])
                .collect()
        }
        Store::Sqlite => {
            let declared =
                ["`TEXT`", "no type", "`INTEGER`", "`DECIMAL(9,2)`", "`BOOLEAN`", "`JSON`", "`BLOB`"];
            let texts = declared
                .iter()
                .flat_map(|declared| TEXTS.iter().map(|text| raw(declared, &format!("'{text}'"))));
            let natives = ["0", "5", "1.5", "9007199254740993", "9e999", "NULL", "x'00ff'"];
            let natives = natives.iter().map(|native| raw("no type", native));
            texts.chain(natives).collect()
        }
    }
}

#[test]
fn what_is_said_of_a_declared_kind_is_what_calls_do() {
    for store in Store::ALL {
        for way in stored_variants(store) {
            check(store, &way);
        }
    }
}

#[test]
fn a_text_can_be_declared_to_be_what_it_says() {
    let csv = |text: &str| check(Store::Csv, &raw("", text));
    assert_eq!(csv("abc"), "text");
    assert_eq!(csv("1e3"), "text number json");
    assert_eq!(csv(r#""{""a"":0}""#), "text json");
    assert_eq!(csv(r#""{""a"":0""#), "text");
    assert_eq!(csv("5"), "text integer int64 decimal number json");
    let xlsx = |text: &str| check(Store::Xlsx, &column_variant("", StoredCell::Text(text.to_owned())));
    assert_eq!(xlsx("1e3"), "text number json");
    assert_eq!(xlsx("[1]"), "text json");
    assert_eq!(xlsx("[1"), "text");
    // In a JSON file every value is JSON already, and a string is one.
    let lines = |json: &str| check(Store::Lines, &raw("", json));
    assert_eq!(lines(r#""hello""#), "text json");
    assert_eq!(lines(r#""1e3""#), "text number json");
    assert_eq!(lines(r#""2026-01-01""#), "text date json");
    let sqlite = |column: &'static str, sql: &str| check(Store::Sqlite, &raw(column, sql));
    assert_eq!(sqlite("`TEXT`", "'{\"x\":1}'"), "text json");
    assert_eq!(sqlite("`TEXT`", "'{'"), "text");
    // SQLite keeps numbers as numbers, and what is a text there is none; decimals are told as texts anyway.
    assert_eq!(sqlite("`TEXT`", "'5'"), "text decimal json");
    assert_eq!(sqlite("`INTEGER`", "5"), "text integer int64 decimal number");
    assert_eq!(sqlite("`BLOB`", "x'00ff'"), "blob");
}

#[test]
fn what_means_no_value_is_of_every_kind() {
    for (store, there) in [(Store::Csv, "-"), (Store::Lines, "\"-\""), (Store::Sqlite, "'-'")] {
        let way = ColumnVariant { null: Some("-"), ..raw("`TEXT`", there) };
        let kept = StoreFixture::new(store, &way);
        for kind in [DataType::Decimal, DataType::Json, DataType::Date] {
            if let Err(why) = compile_contract(&kept, kind) {
                panic!("{} {kind:?}: {why}", store.name());
            }
        }
    }
}

/// Values of each kind that callers may give.
fn values() -> Vec<(DataType, Value)> {
    let text = |text: &str| Value::Text(text.to_owned());
    let json = ["5", "-1.5e-9", "\"hello\"", "\"2026-01-01\"", "\"5\"", "true", "[]", r#"{"x":1}"#];
    let reals = [1e3, 1e300, -2.5e-9, 5.0, 0.1].map(|n| (DataType::Number, Value::Real(n)));
    let integers = [(DataType::Integer, Value::Integer(-17)), (DataType::Int64, Value::Integer(5))];
    let texts = ["5", "true", "2026-01-01", "{}", "AAAA", "1e3"].map(|one| (DataType::Text, text(one)));
    let decimals = ["5", "0.10", "-1"].map(|one| (DataType::Decimal, text(one)));
    let known = values::all().into_iter().map(|case| (case.kind, case.value));
    let json = json.map(|one| (DataType::Json, text(one)));
    known.chain(json).chain(reals).chain(integers).chain(texts).chain(decimals).collect()
}

#[test]
fn what_was_written_is_taken_at_the_next_start() {
    let mut written = 0;
    for store in Store::ALL {
        let nothing = match store {
            Store::Sqlite => vec![raw("`TEXT`", "NULL"), raw("no type", "NULL")],
            Store::Csv => vec![raw("", "")],
            Store::Xlsx => vec![column_variant("", StoredCell::Empty)],
            Store::Lines | Store::Document => vec![raw("", "null")],
        };
        for (kind, value) in values() {
            for way in fixtures::variants_for_kind(store, kind).iter().chain(&nothing) {
                written += u32::from(check_written(store, way, kind, &value));
            }
        }
    }
    assert!(written > 200, "{written}");
}

/// Writes a value into the only row and into a new one, and starts again after each. Whether it was taken.
fn check_written(store: Store, way: &ColumnVariant, kind: DataType, value: &Value) -> bool {
    let kept = StoreFixture::new(store, way);
    let what = || format!("{} {} {:?}: {kind:?} {value:?}", store.name(), way.column, way.stored);
    // What cannot be declared so is another test's.
    let Ok(contract) = compile_contract(&kept, kind) else { return false };
    let (shape, field) = (&contract.collections[0].shape, &contract.collections[0].fields[1]);
    let mut said = Vec::new();
    let cells = [(0, ValueRef::Text("new")), (1, value.as_value_ref())];
    let update = RowChange::Update { key: &[ValueRef::Text("old")], values: &cells[1..] };
    for (change, key) in [(update, "old"), (RowChange::Create { values: &cells }, "new")] {
        let writer = kept.open().writer(shape).unwrap();
        match writer.write(&plain_write(change), &mut RecordingChecks::default()) {
            Ok(WriteOutcome::Done) => {}
            Ok(WriteOutcome::Replayed(_)) => panic!("{}: there was no claim", what()),
            Err(WriteError::Rejected { .. }) => return false,
            Err(fault) => panic!("{}: {fault}", what()),
        }
        let contract =
            compile_contract(&kept, kind).unwrap_or_else(|why| panic!("{}: written, then {why}", what()));
        let again = &contract.collections[0];
        let reader = kept.open().reader(&again.shape).unwrap();
        let told =
            get_json(&*reader, &again.fields[1], key).unwrap_or_else(|why| panic!("{}: {why}", what()));
        said.clear();
        let mut nullable = field.clone();
        nullable.nullable = true;
        nullable.write_value(&mut said, value.as_value_ref()).unwrap();
        let said = std::str::from_utf8(&said).unwrap();
        // A number has many ways of being written, and is the same.
        let number = |json: &str| json.trim_matches('"').parse::<f64>().ok();
        let is_number = matches!(kind, DataType::Number | DataType::Decimal) && number(said).is_some();
        assert!(
            told == said || is_number && number(&told) == number(said),
            "{}: {told} instead of {said}",
            what()
        );
    }
    true
}

//! Declared column types: what the start accepts, calls can read; and what was written is accepted at the
//! next start.

use contract::compile::{IntrospectedSource, compile};
use contract::diagnostic::{Diagnostic, Severity, render_all};
use contract::field::Field;
use contract::lint::lint;
use contract::manifest;
use contract::source::{Comparison, Filter, Query, Reader, RowChange, RowFlow, TableShape, WriteError};
use contract::{Contract, DataType, Value, ValueRef};

use super::fixtures::{self, ColumnVariant, Store, StoredCell};
use super::{StoreFixture, values};
use crate::driver::{WriteOutcome, WriteRow};
use crate::write_checks::{RecordingChecks, plain_write};

/// Compiles a contract with a declared type, as `spile check` and `spile serve` do; or the error.
fn compile_contract(fixture: &StoreFixture<'_>, kind: DataType) -> Result<Contract, String> {
    let null = fixture.variant.null.map_or_else(String::new, |null| format!(", null = '{null}'"));
    let text = format!(
        "[sources.s]\npath = '{}'\n[collections.t]\ndescription = 'Rows.'\nkey = 'k'\nfields.v = {{ as = '{}'{null} }}\n",
        fixture.store.file(),
        kind.as_str()
    );
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None).unwrap();
    let source = fixture.open();
    let facts = source.introspect().map_err(|error| error.to_string())?;
    let known = [IntrospectedSource::new("s", &facts)];
    let (contract, found) = compile(&manifest, &known, "t");
    let contract = contract.ok_or_else(|| render_all(&found, false))?;
    source.reader(&contract.collections[0].shape).map_err(|error| error.to_string())?;
    let is_worse = |one: &&Diagnostic| one.severity != Severity::Note;
    let linted = lint(&contract, &manifest, &known);
    let warnings: Vec<&Diagnostic> = found.iter().chain(&linted).filter(is_worse).collect();
    assert!(warnings.is_empty(), "{} as {kind:?}: {warnings:?}", fixture.store.name());
    Ok(contract)
}

/// The JSON that a call returns for a row's value.
fn get_json(reader: &dyn Reader, field: &Field, key: &str) -> Result<String, String> {
    let mut message = None;
    let got = reader.get(&[ValueRef::Text(key)], &mut |cells| {
        let mut out = Vec::new();
        message = Some(field.write_value(&mut out, cells[1]).map(|()| String::from_utf8(out).unwrap()));
    });
    got.map_err(|error| error.to_string())?;
    message.expect("the row").map_err(|_| format!("not `{}`", field.data_type.as_str()))
}

/// The number of rows that contain a text.
fn search_count(reader: &dyn Reader, text: &str) -> usize {
    let filters = vec![Filter::new(1, Comparison::Equals, ValueRef::Text(text))];
    let mut rows = 0;
    let query = Query { filters, rows_max: 9, ..Query::default() };
    let list = reader.list(&query, &mut |_, _| {
        rows += 1;
        RowFlow::Continue
    });
    list.unwrap();
    rows
}

/// Checks for every type that what the start says of a column is what a call does. Returns the types it
/// accepts.
fn check(store: Store, variant: &ColumnVariant) -> String {
    let fixture = StoreFixture::new(store, variant);
    let mut can_be = Vec::new();
    for kind in DataType::ALL {
        let what = || format!("{} {} {:?} as {kind:?}", store.name(), variant.column, variant.stored);
        match compile_contract(&fixture, kind) {
            Ok(contract) => {
                let collection = &contract.collections[0];
                let reader = fixture.open().reader(&collection.shape).unwrap();
                let message = get_json(&*reader, &collection.fields[1], "old");
                let message =
                    message.unwrap_or_else(|reason| panic!("{}: taken, and a call fails: {reason}", what()));
                // Infinity can be read, but not passed as an argument.
                if kind == DataType::Text && !["null", "\"Infinity\""].contains(&message.as_str()) {
                    let text = message[1..message.len() - 1].replace("\\\"", "\"");
                    assert_eq!(search_count(&*reader, &text), 1, "{}: {text} is not found", what());
                }
                can_be.push(kind.as_str());
            }
            // A workbook has no byte strings, whatever its texts look like.
            Err(_) if (store, kind) == (Store::Xlsx, DataType::Blob) => {}
            Err(reason) => {
                let shape: TableShape = fixture.declared(kind);
                let mut field = Field::new("v", "v", kind);
                field.nullable = true;
                let message = fixture.open().reader(&shape).map_err(|error| error.to_string());
                let message = message.and_then(|reader| get_json(&*reader, &field, "old"));
                assert!(
                    message.is_err(),
                    "{}: a call would tell {message:?}, and it is refused: {reason}",
                    what()
                );
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

/// The ways to store the same texts and numbers.
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
fn declared_types_behave_as_the_start_says() {
    for store in Store::ALL {
        for variant in stored_variants(store) {
            check(store, &variant);
        }
    }
}

#[test]
fn a_text_can_be_declared_as_the_type_it_spells() {
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
    // In a JSON file every value is JSON already, strings too.
    let lines = |json: &str| check(Store::Lines, &raw("", json));
    assert_eq!(lines(r#""hello""#), "text json");
    assert_eq!(lines(r#""1e3""#), "text number json");
    assert_eq!(lines(r#""2026-01-01""#), "text date json");
    let sqlite = |column: &'static str, sql: &str| check(Store::Sqlite, &raw(column, sql));
    assert_eq!(sqlite("`TEXT`", "'{\"x\":1}'"), "text json");
    assert_eq!(sqlite("`TEXT`", "'{'"), "text");
    // SQLite stores numbers as numbers, and a text column has none; decimals are returned as texts anyway.
    assert_eq!(sqlite("`TEXT`", "'5'"), "text decimal json");
    assert_eq!(sqlite("`INTEGER`", "5"), "text integer int64 decimal number");
    assert_eq!(sqlite("`BLOB`", "x'00ff'"), "blob");
}

#[test]
fn the_null_text_fits_every_type() {
    for (store, there) in [(Store::Csv, "-"), (Store::Lines, "\"-\""), (Store::Sqlite, "'-'")] {
        let variant = ColumnVariant { null: Some("-"), ..raw("`TEXT`", there) };
        let fixture = StoreFixture::new(store, &variant);
        for kind in [DataType::Decimal, DataType::Json, DataType::Date] {
            if let Err(reason) = compile_contract(&fixture, kind) {
                panic!("{} {kind:?}: {reason}", store.name());
            }
        }
    }
}

/// Values of each type that callers may pass.
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
fn written_values_are_accepted_at_the_next_start() {
    let mut written = 0;
    for store in Store::ALL {
        let nothing = match store {
            Store::Sqlite => vec![raw("`TEXT`", "NULL"), raw("no type", "NULL")],
            Store::Csv => vec![raw("", "")],
            Store::Xlsx => vec![column_variant("", StoredCell::Empty)],
            Store::Lines | Store::Document => vec![raw("", "null")],
        };
        for (kind, value) in values() {
            for variant in fixtures::variants_for_kind(store, kind).iter().chain(&nothing) {
                written += u32::from(check_written(store, variant, kind, &value));
            }
        }
    }
    assert!(written > 200, "{written}");
}

/// Writes a value into the only row and into a new one, and compiles again after each. Returns whether it was
/// accepted.
fn check_written(store: Store, variant: &ColumnVariant, kind: DataType, value: &Value) -> bool {
    let fixture = StoreFixture::new(store, variant);
    let what = || format!("{} {} {:?}: {kind:?} {value:?}", store.name(), variant.column, variant.stored);
    // Types that cannot be declared are another test.
    let Ok(contract) = compile_contract(&fixture, kind) else { return false };
    let (shape, field) = (&contract.collections[0].shape, &contract.collections[0].fields[1]);
    let mut answer = Vec::new();
    let cells = [(0, ValueRef::Text("new")), (1, value.as_value_ref())];
    let update = RowChange::Update { key: &[ValueRef::Text("old")], values: &cells[1..] };
    for (change, key) in [(update, "old"), (RowChange::Create { values: &cells }, "new")] {
        let writer = fixture.open().writer(shape).unwrap();
        match writer.write(&plain_write(change), &mut RecordingChecks::default()) {
            Ok(WriteOutcome::Done) => {}
            Ok(WriteOutcome::Replayed(_)) => panic!("{}: there was no claim", what()),
            Err(WriteError::Rejected { .. }) => return false,
            Err(error) => panic!("{}: {error}", what()),
        }
        let contract = compile_contract(&fixture, kind)
            .unwrap_or_else(|reason| panic!("{}: written, then {reason}", what()));
        let again = &contract.collections[0];
        let reader = fixture.open().reader(&again.shape).unwrap();
        let message =
            get_json(&*reader, &again.fields[1], key).unwrap_or_else(|reason| panic!("{}: {reason}", what()));
        answer.clear();
        let mut nullable = field.clone();
        nullable.nullable = true;
        nullable.write_value(&mut answer, value.as_value_ref()).unwrap();
        let answer = std::str::from_utf8(&answer).unwrap();
        // The same number may be spelled differently.
        let number = |json: &str| json.trim_matches('"').parse::<f64>().ok();
        let is_number = matches!(kind, DataType::Number | DataType::Decimal) && number(answer).is_some();
        assert!(
            message == answer || is_number && number(&message) == number(answer),
            "{}: {message} instead of {answer}",
            what()
        );
    }
    true
}

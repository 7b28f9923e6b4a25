//! A write changes one record, and no byte of any other.

use std::sync::Arc;

use contract::source::{IdempotencyKey, Query, RowChange, Source, SourceError, WriteError};
use contract::{DataType, Value, ValueRef};
use source::json::JsonLayout;

use super::kit::{
    TestFile, document, document_at, get, list, plain_write, query_all, reader, recording_checks, shape,
    write,
};
use crate::driver::{WriteOutcome, WriteRequest, WriteRow};

const KEY: [ValueRef<'static>; 1] = [ValueRef::Integer(2)];

fn set<'a>(cells: &'a [(usize, ValueRef<'a>)]) -> RowChange<'a> {
    RowChange::Update { key: &KEY, values: cells }
}

/// Compares the file after a change.
fn check(form: JsonLayout, content: &str, change: RowChange<'_>, expected: &str) {
    let disk = TestFile::new(form, content);
    let json = disk.json();
    let shape = shape(&json);
    assert_eq!(shape.key, [0], "{content}");
    let shown = format!("{change:?} on {content}");
    let (written, _) = write(&json, &shape, change).unwrap_or_else(|error| panic!("{shown}: {error:?}"));
    assert_eq!(written, WriteOutcome::Done);
    assert_eq!(disk.text(), expected, "{shown}");
}

#[test]
fn an_update_changes_the_members_it_names_and_no_other_byte() {
    let bob = [(1, ValueRef::Text("Bob"))];
    for (content, expected) in [
        (
            "{ \"id\" : 2,\"n\":\"a\" ,  \"x\":1.0}\n\n{\"id\":3, \"n\":\"b\"}",
            "{ \"id\" : 2,\"n\":\"Bob\" ,  \"x\":1.0}\n\n{\"id\":3, \"n\":\"b\"}",
        ),
        (
            "\u{feff}{\"id\":2,\"n\":\"a\"}\r\n{\"id\":3}\r\n",
            "\u{feff}{\"id\":2,\"n\":\"Bob\"}\r\n{\"id\":3}\r\n",
        ),
        ("{\"id\":1,\"n\":\"x\"}\n{\"id\":2}\n", "{\"id\":1,\"n\":\"x\"}\n{\"id\":2,\"n\":\"Bob\"}\n"),
        (
            "{\"id\":1,\"n\":\"x\"}\n{ \"id\": 2 }\n",
            "{\"id\":1,\"n\":\"x\"}\n{ \"id\": 2, \"n\": \"Bob\" }\n",
        ),
        ("{\"id\":2,\"\\u006e\":\"a\"}", "{\"id\":2,\"\\u006e\":\"Bob\"}"),
        // Equal values leave every byte as it is, however they are spelled.
        ("{\"id\":2,\"n\":\"\\u0042ob\"}", "{\"id\":2,\"n\":\"\\u0042ob\"}"),
    ] {
        check(JsonLayout::Lines, content, set(&bob), expected);
    }
    let pretty = "[\n  {\n    \"id\": 1,\n    \"n\": \"x\"\n  },\n  {\n    \"id\": 2\n  }\n]\n";
    let expected =
        "[\n  {\n    \"id\": 1,\n    \"n\": \"x\"\n  },\n  {\n    \"id\": 2,\n    \"n\": \"Bob\"\n  }\n]\n";
    check(document(), pretty, set(&bob), expected);
    check(
        document_at("/d/0"),
        r#"{"v":1.0,"d":[ [{"id":1,"n":"]"},{"id":2,"n":"}"}] ],"w":1e400}"#,
        set(&bob),
        r#"{"v":1.0,"d":[ [{"id":1,"n":"]"},{"id":2,"n":"Bob"}] ],"w":1e400}"#,
    );
    check(
        JsonLayout::Lines,
        "{\"id\":2,\"n\":\"a\"}\n{\"id\":3}",
        set(&[(1, ValueRef::Null)]),
        "{\"id\":2,\"n\":null}\n{\"id\":3}",
    );
    check(
        JsonLayout::Lines,
        "{\"id\":2}\n{\"id\":3,\"n\":1}",
        set(&[(1, ValueRef::Null)]),
        "{\"id\":2}\n{\"id\":3,\"n\":1}",
    );
    check(JsonLayout::Lines, "{\"id\":2,\"n\":1}", set(&[]), "{\"id\":2,\"n\":1}");
}

/// A change that no reader could notice is not written.
#[test]
fn a_value_that_reads_the_same_is_not_written() {
    for (cell, content) in [
        (ValueRef::Text("true"), "{\"id\":2,\"a\":true}\n{\"id\":3,\"a\":\"x\"}"),
        (ValueRef::Text("7"), "{\"id\":2,\"a\":7}\n{\"id\":3,\"a\":\"x\"}\n{\"id\":4,\"a\":\"y\"}"),
        (ValueRef::Text("1.50"), "{\"id\":2,\"a\":1.50}\n{\"id\":3,\"a\":\"x\"}\n{\"id\":4,\"a\":\"y\"}"),
        (ValueRef::Real(1.0), "{\"id\":2,\"a\":1.0}\n{\"id\":3,\"a\":2.5}"),
        (ValueRef::Text("{\"b\":1}"), "{\"id\":2,\"a\":{ \"b\" : 1 }}"),
        (ValueRef::Null, "{\"id\":2}\n{\"id\":3,\"a\":\"x\"}"),
    ] {
        check(JsonLayout::Lines, content, set(&[(1, cell)]), content);
    }
    let zero = "{\"id\":2,\"a\":-0.0}\n{\"id\":3,\"a\":2.5}";
    check(
        JsonLayout::Lines,
        zero,
        set(&[(1, ValueRef::Real(0.0))]),
        "{\"id\":2,\"a\":0}\n{\"id\":3,\"a\":2.5}",
    );
}

#[test]
fn a_new_record_looks_like_the_last_one() {
    let cells = [(1, ValueRef::Text("Cid")), (0, ValueRef::Integer(3))];
    let create = || RowChange::Create { values: &cells };
    for (form, content, expected) in [
        (JsonLayout::Lines, "{\"id\":2,\"n\":\"a\"}\n", "{\"id\":2,\"n\":\"a\"}\n{\"id\":3,\"n\":\"Cid\"}\n"),
        (JsonLayout::Lines, "{\"id\":2,\"n\":\"a\"}", "{\"id\":2,\"n\":\"a\"}\n{\"id\":3,\"n\":\"Cid\"}"),
        (
            JsonLayout::Lines,
            "{\"id\": 2, \"n\": \"a\"}\r\n",
            "{\"id\": 2, \"n\": \"a\"}\r\n{\"id\": 3, \"n\": \"Cid\"}\r\n",
        ),
        (
            JsonLayout::Lines,
            "{ \"id\" :2 ,\"n\" :\"a\" }\n\n",
            "{ \"id\" :2 ,\"n\" :\"a\" }\n\n{ \"id\" :3 ,\"n\" :\"Cid\" }\n",
        ),
        (document(), r#"[{"id":2,"n":"a"}]"#, r#"[{"id":2,"n":"a"},{"id":3,"n":"Cid"}]"#),
        (
            document(),
            r#"[{"id":1,"n":"a"}, {"id":2,"n":"a"} ]"#,
            r#"[{"id":1,"n":"a"}, {"id":2,"n":"a"}, {"id":3,"n":"Cid"} ]"#,
        ),
        (
            document(),
            "[\n  {\n    \"id\": 2,\n    \"n\": \"a\"\n  }\n]\n",
            "[\n  {\n    \"id\": 2,\n    \"n\": \"a\"\n  },\n  {\n    \"id\": 3,\n    \"n\": \"Cid\"\n  }\n]\n",
        ),
        (
            document_at("/d"),
            "{\"d\": [\n\t{\"id\": 2, \"n\": \"a\"}\n], \"e\": [{\"id\": 9}]}",
            "{\"d\": [\n\t{\"id\": 2, \"n\": \"a\"},\n\t{\"id\": 3, \"n\": \"Cid\"}\n], \"e\": [{\"id\": 9}]}",
        ),
    ] {
        check(form, content, create(), expected);
    }
}

#[test]
fn a_deleted_record_takes_its_line_or_comma() {
    let delete = || RowChange::Delete { key: &KEY };
    for (form, content, expected) in [
        (JsonLayout::Lines, "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n", "{\"id\":1}\n{\"id\":3}\n"),
        (
            JsonLayout::Lines,
            "{\"id\":1}\r\n\r\n  {\"id\":2}\r\n\r\n{\"id\":3}",
            "{\"id\":1}\r\n\r\n\r\n{\"id\":3}",
        ),
        (JsonLayout::Lines, "{\"id\":1}\n{\"id\":2}", "{\"id\":1}\n"),
        (JsonLayout::Lines, "\u{feff}{\"id\":2}\n{\"id\":3}\n", "\u{feff}{\"id\":3}\n"),
        (JsonLayout::Lines, "{\"id\":2}\n", ""),
        (document(), r#"[{"id":1}, {"id":2}, {"id":3}]"#, r#"[{"id":1}, {"id":3}]"#),
        (document(), "[\n  {\"id\":1},\n  {\"id\":2}\n]", "[\n  {\"id\":1}\n]"),
        (document(), "[\n  {\"id\":2},\n  {\"id\":1}\n]", "[\n  {\"id\":1}\n]"),
        (document(), "[ {\"id\":2} ]", "[  ]"),
    ] {
        check(form, content, delete(), expected);
    }
}

#[test]
fn the_last_record_may_be_deleted_and_another_created() {
    for (form, content) in
        [(JsonLayout::Lines, "{\"id\":2,\"n\":\"a\"}\n"), (document(), "[{\"id\":2,\"n\":\"a\"}]")]
    {
        let disk = TestFile::new(form, content);
        let json = disk.json();
        let shape = shape(&json);
        let reader = reader(&json, &shape);
        write(&json, &shape, RowChange::Delete { key: &KEY }).unwrap();
        assert_eq!(list(reader.as_ref(), &shape, &query_all()).unwrap(), (Vec::new(), Some(0)));
        let cells = [(0, ValueRef::Integer(5)), (1, ValueRef::Text("b"))];
        // The file has no columns now; the contract still has them.
        let mut checks = recording_checks(&shape);
        let writer = json.writer(&shape).unwrap();
        writer.write(&plain_write(RowChange::Create { values: &cells }), &mut checks).unwrap();
        assert_eq!(checks.after.as_deref(), Some(r#"{"id":5,"n":"b"}"#));
        assert_eq!(list(reader.as_ref(), &shape, &query_all()).unwrap().0, [r#"{"id":5,"n":"b"}"#]);
        assert_eq!(
            disk.text().trim_end(),
            if disk.text().starts_with('[') { r#"[{"id":5,"n":"b"}]"# } else { r#"{"id":5,"n":"b"}"# }
        );
    }
}

#[test]
fn values_are_stored_in_the_columns_storage_class() {
    for (there, kind, cell, expected) in [
        ("1", DataType::Integer, ValueRef::Integer(-5), "-5"),
        ("9007199254740993", DataType::Int64, ValueRef::Integer(i64::MIN), "-9223372036854775808"),
        ("1.5", DataType::Number, ValueRef::Real(0.1 + 0.2), "0.30000000000000004"),
        ("1.5", DataType::Number, ValueRef::Real(-0.0), "-0.0"),
        ("1.5", DataType::Number, ValueRef::Real(1e300), "1e300"),
        ("1.5", DataType::Number, ValueRef::Integer(2), "2"),
        ("12.50", DataType::Decimal, ValueRef::Text("3.10"), "3.10"),
        ("12.50", DataType::Decimal, ValueRef::Text("12345678901234567890.10"), "12345678901234567890.10"),
        ("12.50", DataType::Decimal, ValueRef::Text("-0"), "-0"),
        (r#""12.50""#, DataType::Decimal, ValueRef::Text("3.10"), r#""3.10""#),
        (r#""12""#, DataType::Integer, ValueRef::Integer(3), r#""3""#),
        ("true", DataType::Boolean, ValueRef::Integer(0), "false"),
        (r#""true""#, DataType::Boolean, ValueRef::Integer(0), r#""false""#),
        ("1", DataType::Boolean, ValueRef::Integer(0), "0"),
        ("42", DataType::Text, ValueRef::Text("43"), "43"),
        ("42", DataType::Text, ValueRef::Text("x"), r#""x""#),
        ("true", DataType::Text, ValueRef::Text("false"), "false"),
        (r#""2026-02-28""#, DataType::Date, ValueRef::Text("2026-03-01"), r#""2026-03-01""#),
        (r#""a""#, DataType::Text, ValueRef::Text("\u{0}\n\"\\é🦀"), "\"\\u0000\\n\\\"\\\\é🦀\""),
        ("[1]", DataType::Json, ValueRef::Text("{ \"a\": [1.50,\n null] }"), r#"{"a":[1.50,null]}"#),
        ("[1]", DataType::Json, ValueRef::Text("\"text\""), r#""text""#),
        (r#""AP8Q""#, DataType::Blob, ValueRef::Blob(&[1, 2]), r#""AQI=""#),
        (r#""AP8Q""#, DataType::Blob, ValueRef::Text("AQI="), r#""AQI=""#),
    ] {
        let disk = TestFile::new(
            JsonLayout::Lines,
            format!("{{\"id\":1,\"v\":{there}}}\n{{\"id\":2,\"v\":{there}}}\n"),
        );
        let json = disk.json();
        let mut shape = shape(&json);
        shape.columns[1].data_type = kind;
        write(&json, &shape, set(&[(1, cell)])).unwrap_or_else(|error| panic!("{there} {cell:?}: {error:?}"));
        let expected = format!("{{\"id\":1,\"v\":{there}}}\n{{\"id\":2,\"v\":{expected}}}\n");
        assert_eq!(disk.text(), expected, "{there} {kind:?}");
    }
}

#[test]
fn a_value_that_would_not_read_back_is_rejected() {
    let refused = |column: usize, cause: &str| (Some(column), cause.to_owned());
    for (there, kind, cell, (column, cause)) in [
        ("1", DataType::Integer, ValueRef::Text("007"), refused(1, "JSON cannot represent this number")),
        ("1.50", DataType::Decimal, ValueRef::Text("007"), refused(1, "the value is not of type `decimal`")),
        (
            "1.5",
            DataType::Number,
            ValueRef::Real(f64::INFINITY),
            refused(1, "JSON cannot represent this number"),
        ),
        ("1.5", DataType::Number, ValueRef::Real(f64::NAN), refused(1, "JSON cannot represent this number")),
        (
            "1",
            DataType::Integer,
            ValueRef::Integer(1 << 53),
            refused(1, "the value is not of type `integer`"),
        ),
        ("1", DataType::Integer, ValueRef::Real(0.5), refused(1, "the value is not of type `integer`")),
        ("1", DataType::Integer, ValueRef::Null, refused(1, "a value is required")),
        (
            r#""2026-02-28""#,
            DataType::Date,
            ValueRef::Text("soon"),
            refused(1, "the value is not of type `date`"),
        ),
        (
            r#""2026-02-28""#,
            DataType::Date,
            ValueRef::Integer(1),
            refused(1, "the value is not of the column's type"),
        ),
        ("[1]", DataType::Json, ValueRef::Text("{"), refused(1, "the value is not valid JSON")),
        (r#""AP8Q""#, DataType::Blob, ValueRef::Text("AP8"), refused(1, "the value is not base64")),
        (r#""a""#, DataType::Text, ValueRef::Blob(&[1]), refused(1, "this column cannot hold bytes")),
        (
            "true",
            DataType::Boolean,
            ValueRef::Integer(2),
            refused(1, "the value is not of the column's type"),
        ),
    ] {
        let content = format!("{{\"id\":1,\"v\":{there}}}\n{{\"id\":2,\"v\":{there}}}\n");
        let disk = TestFile::new(JsonLayout::Lines, &content);
        let json = disk.json();
        let mut shape = shape(&json);
        shape.columns[1].data_type = kind;
        match write(&json, &shape, set(&[(1, cell)])) {
            Err(WriteError::Rejected { column: got_column, reason: got }) => {
                assert_eq!((got_column, got), (column, cause), "{there} {cell:?}");
            }
            other => panic!("{there} {cell:?}: {:?}", other.map(|(written, _)| written)),
        }
        assert_eq!(disk.text(), content);
    }
}

#[test]
fn the_null_text_cannot_be_written_as_a_value() {
    let disk = TestFile::new(JsonLayout::Lines, "{\"id\":2,\"v\":\"x\"}\n");
    let json = disk.json();
    let mut shape = shape(&json);
    shape.columns[1].null_texts = vec!["n/a".to_owned()];
    let error = write(&json, &shape, set(&[(1, ValueRef::Text("n/a"))])).err().unwrap();
    assert_eq!(error.to_string(), "the value would not read back unchanged");
}

#[test]
fn keys_stay_unique() {
    let content = "{\"id\":1,\"n\":\"a\"}\n{\"id\":2,\"n\":\"b\"}\n";
    let (one, two) = ([(0, ValueRef::Integer(1))], [(0, ValueRef::Integer(1)), (1, ValueRef::Text("x"))]);
    let none = [(1, ValueRef::Text("x"))];
    let null = [(0, ValueRef::Null)];
    let missing = [ValueRef::Integer(9)];
    for (change, expected) in [
        (RowChange::Create { values: &two }, "a row with this key already exists"),
        (RowChange::Create { values: &none }, "a key must have a value"),
        (RowChange::Create { values: &null }, "a key must have a value"),
        (set(&one), "a row with this key already exists"),
        (set(&null), "a key must have a value"),
        (RowChange::Update { key: &missing, values: &none }, "no row has this key"),
        (RowChange::Delete { key: &missing }, "no row has this key"),
        (RowChange::Delete { key: &[] }, "no row has this key"),
    ] {
        let disk = TestFile::new(JsonLayout::Lines, content);
        let json = disk.json();
        let shown = format!("{change:?}");
        let error = write(&json, &shape(&json), change).err().unwrap();
        assert_eq!(error.to_string(), expected, "{shown}");
        assert_eq!(disk.text(), content);
    }
    // A key may change to one that is free.
    check(
        JsonLayout::Lines,
        content,
        set(&[(0, ValueRef::Integer(3))]),
        &content.replace("\"id\":2", "\"id\":3"),
    );
}

#[test]
fn write_checks_see_the_record_before_and_after_and_may_object() {
    let disk = TestFile::new(JsonLayout::Lines, "{\"id\":2,\"n\":\"a\",\"rev\":7}\n");
    let json = disk.json();
    let shape = shape(&json);
    let writer = json.writer(&shape).unwrap();
    let cells = [(1, ValueRef::Text("b")), (2, ValueRef::Integer(99))];
    let mut checks = recording_checks(&shape);
    checks.extra_values = vec![(2, Value::Integer(8))];
    writer.write(&plain_write(set(&cells)), &mut checks).unwrap();
    assert_eq!(checks.before.as_deref(), Some(r#"{"id":2,"n":"a","rev":7}"#));
    assert_eq!(checks.after.as_deref(), Some(r#"{"id":2,"n":"b","rev":8}"#));
    let now = disk.text();
    for (is_stale, is_unwritable, expected) in [
        (true, false, "the row has changed since it was read"),
        (false, true, "the new row would not match the schema of this collection"),
    ] {
        for change in [set(&cells), RowChange::Delete { key: &KEY }] {
            let mut checks = recording_checks(&shape);
            (checks.is_stale, checks.is_unwritable) = (is_stale, is_unwritable);
            let error = writer.write(&plain_write(change), &mut checks).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert_eq!(disk.text(), now);
        }
    }
    let mut checks = recording_checks(&shape);
    writer.write(&plain_write(RowChange::Delete { key: &KEY }), &mut checks).unwrap();
    assert_eq!(checks.before, checks.after);
}

#[test]
fn a_dry_run_writes_nothing_and_a_key_applies_once() {
    let content = "{\"id\":2,\"n\":\"a\"}\n";
    let disk = TestFile::new(JsonLayout::Lines, content);
    let json = disk.json();
    let shape = shape(&json);
    let writer = json.writer(&shape).unwrap();
    let cells = [(1, ValueRef::Text("b"))];
    let mut checks = recording_checks(&shape);
    let repeat_key = IdempotencyKey { key_digest: [1; 32], request_digest: [2; 32] };
    let dry = WriteRequest { dry_run: true, idempotency_key: Some(repeat_key), ..plain_write(set(&cells)) };
    assert_eq!(writer.write(&dry, &mut checks).unwrap(), WriteOutcome::Done);
    assert_eq!((checks.after.as_deref(), disk.text().as_str()), (Some(r#"{"id":2,"n":"b"}"#), content));
    let claimed = || WriteRequest { idempotency_key: Some(repeat_key), ..plain_write(set(&cells)) };
    assert_eq!(writer.write(&claimed(), &mut recording_checks(&shape)).unwrap(), WriteOutcome::Done);
    disk.write(content);
    let expected_message = br#"{"id":2,"n":"b"}"#.to_vec();
    // Another program changed the record since; the repeated write still gets its first response.
    assert_eq!(
        writer.write(&claimed(), &mut recording_checks(&shape)).unwrap(),
        WriteOutcome::Replayed(expected_message)
    );
    assert_eq!(disk.text(), content);
    let other = WriteRequest {
        idempotency_key: Some(IdempotencyKey { request_digest: [3; 32], ..repeat_key }),
        ..plain_write(set(&cells))
    };
    assert!(matches!(
        writer.write(&other, &mut recording_checks(&shape)),
        Err(WriteError::IdempotencyKeyReused)
    ));
}

#[test]
fn a_write_is_visible_at_once_whatever_the_poll_interval() {
    for lines in [1, 60_000] {
        let content: String =
            (2..lines + 2).map(|i| format!("{{\"id\":{i},\"n\":\"{}\"}}\n", "x".repeat(40))).collect();
        let disk = TestFile::new(JsonLayout::Lines, content);
        let json = disk.json_with_poll_interval(u64::MAX);
        let shape = shape(&json);
        let reader = reader(&json, &shape);
        assert!(get(reader.as_ref(), &shape, &KEY).unwrap().unwrap().contains("xxx"));
        write(&json, &shape, set(&[(1, ValueRef::Text("new"))])).unwrap();
        assert_eq!(get(reader.as_ref(), &shape, &KEY).unwrap().as_deref(), Some(r#"{"id":2,"n":"new"}"#));
        write(&json, &shape, RowChange::Delete { key: &KEY }).unwrap();
        assert_eq!(get(reader.as_ref(), &shape, &KEY).unwrap(), None);
    }
}

#[test]
fn a_failed_write_still_reloads_the_file() {
    let disk = TestFile::new(JsonLayout::Lines, "{\"id\":2,\"n\":\"a\"}\n");
    let json = disk.json_with_poll_interval(u64::MAX);
    let shape = shape(&json);
    let (reader, writer) = (reader(&json, &shape), json.writer(&shape).unwrap());
    disk.write("{\"id\":2,\"n\":\"b\"}\n");
    let nobody = RowChange::Delete { key: &[ValueRef::Integer(9)] };
    let written = writer.write(&plain_write(nobody), &mut recording_checks(&shape));
    assert!(matches!(written, Err(WriteError::NotFound)), "{written:?}");
    assert_eq!(get(reader.as_ref(), &shape, &KEY).unwrap().as_deref(), Some(r#"{"id":2,"n":"b"}"#));
}

#[test]
fn a_file_that_violates_the_contract_is_not_written() {
    let disk = TestFile::new(JsonLayout::Lines, "{\"id\":2,\"n\":\"a\"}\n");
    let json = disk.json();
    let shape = shape(&json);
    let writer = json.writer(&shape).unwrap();
    for (content, expected) in [
        (
            "{\"id\":\"x\",\"n\":\"a\"}\n",
            "`people.jsonl` line 1, column `id`: expected an integer, such as `42`; the server's owner can correct the value, or declare another type with `as` in the manifest",
        ),
        (
            "{\"id\":",
            "`people.jsonl` line 1 is not valid JSON; the server's owner can correct the syntax at this position",
        ),
    ] {
        disk.write(content);
        match writer.write(&plain_write(set(&[(1, ValueRef::Text("b"))])), &mut recording_checks(&shape)) {
            Err(WriteError::Source(SourceError::Incompatible { message: expected_message, .. })) => {
                assert_eq!(expected_message, expected)
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(disk.text(), content);
    }
    std::fs::remove_file(&disk.path).unwrap();
    let gone = writer.write(&plain_write(set(&[])), &mut recording_checks(&shape));
    assert!(matches!(gone, Err(WriteError::Source(SourceError::Unavailable { .. }))), "{gone:?}");
}

#[test]
fn concurrent_json_writers_lose_nothing() {
    const WRITERS: i64 = 4;
    const EACH: i64 = 10;
    let content: String = (0..WRITERS).map(|i| format!("{{\"id\":{i},\"n\":0}}\n")).collect();
    let disk = TestFile::new(JsonLayout::Lines, content);
    let json = Arc::new(disk.json());
    let shape = shape(json.as_ref());
    std::thread::scope(|scope| {
        for id in 0..WRITERS {
            let (json, shape) = (json.clone(), shape.clone());
            scope.spawn(move || {
                let writer = json.writer(&shape).unwrap();
                for n in 1..=EACH {
                    let (key, cells) = ([ValueRef::Integer(id)], [(1, ValueRef::Integer(n))]);
                    let change = RowChange::Update { key: &key, values: &cells };
                    writer.write(&plain_write(change), &mut recording_checks(&shape)).unwrap();
                    let new = [(0, ValueRef::Integer(1000 + id * 100 + n)), (1, ValueRef::Integer(-1))];
                    writer
                        .write(
                            &plain_write(RowChange::Create { values: &new }),
                            &mut recording_checks(&shape),
                        )
                        .unwrap();
                }
            });
        }
    });
    let reader = reader(json.as_ref(), &shape);
    let (rows, total) = list(reader.as_ref(), &shape, &Query { ..query_all() }).unwrap();
    assert_eq!(total, Some((WRITERS * (EACH + 1)) as u64));
    for id in 0..WRITERS {
        assert_eq!(rows[id as usize], format!("{{\"id\":{id},\"n\":{EACH}}}"));
    }
}

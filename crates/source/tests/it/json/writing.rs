//! One record at a time is changed, and no byte of any other.

use std::sync::Arc;

use contract::source::{Change, Claim, Query, Source, SourceFault, Write, WriteFault, Written};
use contract::{Cell, Kind, Value};
use source::json::Form;

use super::kit::{Disk, at, document, everything, get, list, notes, plainly, reader, shape, write};

const KEY: [Cell<'static>; 1] = [Cell::Integer(2)];

fn set<'a>(cells: &'a [(usize, Cell<'a>)]) -> Change<'a> {
    Change::Update { key: &KEY, cells }
}

/// The file as it is after a change.
fn check(form: Form, content: &str, change: Change<'_>, expected: &str) {
    let disk = Disk::new(form, content);
    let json = disk.json();
    let shape = shape(&json);
    assert_eq!(shape.key, [0], "{content}");
    let shown = format!("{change:?} on {content}");
    let (written, _) = write(&json, &shape, change).unwrap_or_else(|fault| panic!("{shown}: {fault:?}"));
    assert_eq!(written, Written::Done);
    assert_eq!(disk.text(), expected, "{shown}");
}

#[test]
fn an_update_changes_the_members_it_names_and_no_other_byte() {
    let bob = [(1, Cell::Text("Bob"))];
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
        // Said already: not a byte changes, however it is written.
        ("{\"id\":2,\"n\":\"\\u0042ob\"}", "{\"id\":2,\"n\":\"\\u0042ob\"}"),
    ] {
        check(Form::Lines, content, set(&bob), expected);
    }
    let pretty = "[\n  {\n    \"id\": 1,\n    \"n\": \"x\"\n  },\n  {\n    \"id\": 2\n  }\n]\n";
    let expected =
        "[\n  {\n    \"id\": 1,\n    \"n\": \"x\"\n  },\n  {\n    \"id\": 2,\n    \"n\": \"Bob\"\n  }\n]\n";
    check(document(), pretty, set(&bob), expected);
    check(
        at("/d/0"),
        r#"{"v":1.0,"d":[ [{"id":1,"n":"]"},{"id":2,"n":"}"}] ],"w":1e400}"#,
        set(&bob),
        r#"{"v":1.0,"d":[ [{"id":1,"n":"]"},{"id":2,"n":"Bob"}] ],"w":1e400}"#,
    );
    check(
        Form::Lines,
        "{\"id\":2,\"n\":\"a\"}\n{\"id\":3}",
        set(&[(1, Cell::Null)]),
        "{\"id\":2,\"n\":null}\n{\"id\":3}",
    );
    check(
        Form::Lines,
        "{\"id\":2}\n{\"id\":3,\"n\":1}",
        set(&[(1, Cell::Null)]),
        "{\"id\":2}\n{\"id\":3,\"n\":1}",
    );
    check(Form::Lines, "{\"id\":2,\"n\":1}", set(&[]), "{\"id\":2,\"n\":1}");
}

/// Who is told the same before and after has changed nothing.
#[test]
fn what_is_told_as_it_is_asked_for_is_not_written() {
    for (cell, content) in [
        (Cell::Text("true"), "{\"id\":2,\"a\":true}\n{\"id\":3,\"a\":\"x\"}"),
        (Cell::Text("7"), "{\"id\":2,\"a\":7}\n{\"id\":3,\"a\":\"x\"}\n{\"id\":4,\"a\":\"y\"}"),
        (Cell::Text("1.50"), "{\"id\":2,\"a\":1.50}\n{\"id\":3,\"a\":\"x\"}\n{\"id\":4,\"a\":\"y\"}"),
        (Cell::Real(1.0), "{\"id\":2,\"a\":1.0}\n{\"id\":3,\"a\":2.5}"),
        (Cell::Text("{\"b\":1}"), "{\"id\":2,\"a\":{ \"b\" : 1 }}"),
        (Cell::Null, "{\"id\":2}\n{\"id\":3,\"a\":\"x\"}"),
    ] {
        check(Form::Lines, content, set(&[(1, cell)]), content);
    }
    let zero = "{\"id\":2,\"a\":-0.0}\n{\"id\":3,\"a\":2.5}";
    check(Form::Lines, zero, set(&[(1, Cell::Real(0.0))]), "{\"id\":2,\"a\":0}\n{\"id\":3,\"a\":2.5}");
}

#[test]
fn a_new_record_looks_like_the_last_one() {
    let cells = [(1, Cell::Text("Cid")), (0, Cell::Integer(3))];
    let create = || Change::Create { cells: &cells };
    for (form, content, expected) in [
        (Form::Lines, "{\"id\":2,\"n\":\"a\"}\n", "{\"id\":2,\"n\":\"a\"}\n{\"id\":3,\"n\":\"Cid\"}\n"),
        (Form::Lines, "{\"id\":2,\"n\":\"a\"}", "{\"id\":2,\"n\":\"a\"}\n{\"id\":3,\"n\":\"Cid\"}"),
        (
            Form::Lines,
            "{\"id\": 2, \"n\": \"a\"}\r\n",
            "{\"id\": 2, \"n\": \"a\"}\r\n{\"id\": 3, \"n\": \"Cid\"}\r\n",
        ),
        (
            Form::Lines,
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
            at("/d"),
            "{\"d\": [\n\t{\"id\": 2, \"n\": \"a\"}\n], \"e\": [{\"id\": 9}]}",
            "{\"d\": [\n\t{\"id\": 2, \"n\": \"a\"},\n\t{\"id\": 3, \"n\": \"Cid\"}\n], \"e\": [{\"id\": 9}]}",
        ),
    ] {
        check(form, content, create(), expected);
    }
}

#[test]
fn a_record_goes_with_its_line_or_its_comma() {
    let delete = || Change::Delete { key: &KEY };
    for (form, content, expected) in [
        (Form::Lines, "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n", "{\"id\":1}\n{\"id\":3}\n"),
        (Form::Lines, "{\"id\":1}\r\n\r\n  {\"id\":2}\r\n\r\n{\"id\":3}", "{\"id\":1}\r\n\r\n\r\n{\"id\":3}"),
        (Form::Lines, "{\"id\":1}\n{\"id\":2}", "{\"id\":1}\n"),
        (Form::Lines, "\u{feff}{\"id\":2}\n{\"id\":3}\n", "\u{feff}{\"id\":3}\n"),
        (Form::Lines, "{\"id\":2}\n", ""),
        (document(), r#"[{"id":1}, {"id":2}, {"id":3}]"#, r#"[{"id":1}, {"id":3}]"#),
        (document(), "[\n  {\"id\":1},\n  {\"id\":2}\n]", "[\n  {\"id\":1}\n]"),
        (document(), "[\n  {\"id\":2},\n  {\"id\":1}\n]", "[\n  {\"id\":1}\n]"),
        (document(), "[ {\"id\":2} ]", "[  ]"),
    ] {
        check(form, content, delete(), expected);
    }
}

#[test]
fn the_last_record_may_go_and_another_come() {
    for (form, content) in
        [(Form::Lines, "{\"id\":2,\"n\":\"a\"}\n"), (document(), "[{\"id\":2,\"n\":\"a\"}]")]
    {
        let disk = Disk::new(form, content);
        let json = disk.json();
        let shape = shape(&json);
        let reader = reader(&json, &shape);
        write(&json, &shape, Change::Delete { key: &KEY }).unwrap();
        assert_eq!(list(reader.as_ref(), &shape, &everything()).unwrap(), (Vec::new(), Some(0)));
        let cells = [(0, Cell::Integer(5)), (1, Cell::Text("b"))];
        // The file has no columns now; those who know the contract do.
        let mut clerk = notes(&shape);
        let writer = json.writer(&shape).unwrap();
        writer.write(&plainly(Change::Create { cells: &cells }), &mut clerk).unwrap();
        assert_eq!(clerk.after.as_deref(), Some(r#"{"id":5,"n":"b"}"#));
        assert_eq!(list(reader.as_ref(), &shape, &everything()).unwrap().0, [r#"{"id":5,"n":"b"}"#]);
        assert_eq!(
            disk.text().trim_end(),
            if disk.text().starts_with('[') { r#"[{"id":5,"n":"b"}]"# } else { r#"{"id":5,"n":"b"}"# }
        );
    }
}

#[test]
fn values_are_written_as_the_sort_that_the_column_holds() {
    for (there, kind, cell, expected) in [
        ("1", Kind::Integer, Cell::Integer(-5), "-5"),
        ("9007199254740993", Kind::Int64, Cell::Integer(i64::MIN), "-9223372036854775808"),
        ("1.5", Kind::Number, Cell::Real(0.1 + 0.2), "0.30000000000000004"),
        ("1.5", Kind::Number, Cell::Real(-0.0), "-0.0"),
        ("1.5", Kind::Number, Cell::Real(1e300), "1e300"),
        ("1.5", Kind::Number, Cell::Integer(2), "2"),
        ("12.50", Kind::Decimal, Cell::Text("3.10"), "3.10"),
        ("12.50", Kind::Decimal, Cell::Text("12345678901234567890.10"), "12345678901234567890.10"),
        ("12.50", Kind::Decimal, Cell::Text("-0"), "-0"),
        (r#""12.50""#, Kind::Decimal, Cell::Text("3.10"), r#""3.10""#),
        (r#""12""#, Kind::Integer, Cell::Integer(3), r#""3""#),
        ("true", Kind::Boolean, Cell::Integer(0), "false"),
        (r#""true""#, Kind::Boolean, Cell::Integer(0), r#""false""#),
        ("1", Kind::Boolean, Cell::Integer(0), "0"),
        ("42", Kind::Text, Cell::Text("43"), "43"),
        ("42", Kind::Text, Cell::Text("x"), r#""x""#),
        ("true", Kind::Text, Cell::Text("false"), "false"),
        (r#""2026-02-28""#, Kind::Date, Cell::Text("2026-03-01"), r#""2026-03-01""#),
        (r#""a""#, Kind::Text, Cell::Text("\u{0}\n\"\\é🦀"), "\"\\u0000\\n\\\"\\\\é🦀\""),
        ("[1]", Kind::Json, Cell::Text("{ \"a\": [1.50,\n null] }"), r#"{"a":[1.50,null]}"#),
        ("[1]", Kind::Json, Cell::Text("\"text\""), r#""text""#),
        (r#""AP8Q""#, Kind::Blob, Cell::Blob(&[1, 2]), r#""AQI=""#),
        (r#""AP8Q""#, Kind::Blob, Cell::Text("AQI="), r#""AQI=""#),
    ] {
        let disk =
            Disk::new(Form::Lines, format!("{{\"id\":1,\"v\":{there}}}\n{{\"id\":2,\"v\":{there}}}\n"));
        let json = disk.json();
        let mut shape = shape(&json);
        shape.columns[1].kind = kind;
        write(&json, &shape, set(&[(1, cell)])).unwrap_or_else(|fault| panic!("{there} {cell:?}: {fault:?}"));
        let expected = format!("{{\"id\":1,\"v\":{there}}}\n{{\"id\":2,\"v\":{expected}}}\n");
        assert_eq!(disk.text(), expected, "{there} {kind:?}");
    }
}

#[test]
fn what_would_not_read_back_is_refused_and_nothing_is_changed() {
    let refused = |column: usize, why: &str| (Some(column), why.to_owned());
    for (there, kind, cell, (column, why)) in [
        ("1", Kind::Integer, Cell::Text("007"), refused(1, "JSON has no such number")),
        ("1.50", Kind::Decimal, Cell::Text("007"), refused(1, "it is not of the kind `decimal`")),
        ("1.5", Kind::Number, Cell::Real(f64::INFINITY), refused(1, "JSON has no such number")),
        ("1.5", Kind::Number, Cell::Real(f64::NAN), refused(1, "JSON has no such number")),
        ("1", Kind::Integer, Cell::Integer(1 << 53), refused(1, "it is not of the kind `integer`")),
        ("1", Kind::Integer, Cell::Real(0.5), refused(1, "it is not of the kind `integer`")),
        ("1", Kind::Integer, Cell::Null, refused(1, "there must be a value")),
        (r#""2026-02-28""#, Kind::Date, Cell::Text("soon"), refused(1, "it is not of the kind `date`")),
        (r#""2026-02-28""#, Kind::Date, Cell::Integer(1), refused(1, "it is not of the kind of this column")),
        ("[1]", Kind::Json, Cell::Text("{"), refused(1, "it is not valid JSON")),
        (r#""AP8Q""#, Kind::Blob, Cell::Text("AP8"), refused(1, "it is not base64")),
        (r#""a""#, Kind::Text, Cell::Blob(&[1]), refused(1, "bytes cannot be held here")),
        ("true", Kind::Boolean, Cell::Integer(2), refused(1, "it is not of the kind of this column")),
    ] {
        let content = format!("{{\"id\":1,\"v\":{there}}}\n{{\"id\":2,\"v\":{there}}}\n");
        let disk = Disk::new(Form::Lines, &content);
        let json = disk.json();
        let mut shape = shape(&json);
        shape.columns[1].kind = kind;
        match write(&json, &shape, set(&[(1, cell)])) {
            Err(WriteFault::Refused { column: got_column, why: got }) => {
                assert_eq!((got_column, got), (column, why), "{there} {cell:?}");
            }
            other => panic!("{there} {cell:?}: {:?}", other.map(|(written, _)| written)),
        }
        assert_eq!(disk.text(), content);
    }
}

#[test]
fn a_text_that_means_nothing_cannot_be_written_as_something() {
    let disk = Disk::new(Form::Lines, "{\"id\":2,\"v\":\"x\"}\n");
    let json = disk.json();
    let mut shape = shape(&json);
    shape.columns[1].null = Some("n/a".to_owned());
    let fault = write(&json, &shape, set(&[(1, Cell::Text("n/a"))])).err().unwrap();
    assert_eq!(fault.to_string(), "it would not read back as it is");
}

#[test]
fn keys_are_there_once() {
    let content = "{\"id\":1,\"n\":\"a\"}\n{\"id\":2,\"n\":\"b\"}\n";
    let (one, two) = ([(0, Cell::Integer(1))], [(0, Cell::Integer(1)), (1, Cell::Text("x"))]);
    let none = [(1, Cell::Text("x"))];
    let null = [(0, Cell::Null)];
    let missing = [Cell::Integer(9)];
    for (change, expected) in [
        (Change::Create { cells: &two }, "there is a record with this key already"),
        (Change::Create { cells: &none }, "a key must have a value"),
        (Change::Create { cells: &null }, "a key must have a value"),
        (set(&one), "there is a record with this key already"),
        (set(&null), "a key must have a value"),
        (Change::Update { key: &missing, cells: &none }, "nothing has this key"),
        (Change::Delete { key: &missing }, "nothing has this key"),
        (Change::Delete { key: &[] }, "nothing has this key"),
    ] {
        let disk = Disk::new(Form::Lines, content);
        let json = disk.json();
        let shown = format!("{change:?}");
        let fault = write(&json, &shape(&json), change).err().unwrap();
        assert_eq!(fault.to_string(), expected, "{shown}");
        assert_eq!(disk.text(), content);
    }
    // A key may become another that is free.
    check(Form::Lines, content, set(&[(0, Cell::Integer(3))]), &content.replace("\"id\":2", "\"id\":3"));
}

#[test]
fn the_clerk_sees_the_record_before_and_after_and_may_object() {
    let disk = Disk::new(Form::Lines, "{\"id\":2,\"n\":\"a\",\"rev\":7}\n");
    let json = disk.json();
    let shape = shape(&json);
    let writer = json.writer(&shape).unwrap();
    let cells = [(1, Cell::Text("b")), (2, Cell::Integer(99))];
    let mut clerk = notes(&shape);
    clerk.more = vec![(2, Value::Integer(8))];
    writer.write(&plainly(set(&cells)), &mut clerk).unwrap();
    assert_eq!(clerk.before.as_deref(), Some(r#"{"id":2,"n":"a","rev":7}"#));
    assert_eq!(clerk.after.as_deref(), Some(r#"{"id":2,"n":"b","rev":8}"#));
    let now = disk.text();
    for (is_stale, is_unwritable, expected) in [
        (true, false, "the record changed since it was read"),
        (false, true, "the record as it would be does not fit its contract"),
    ] {
        for change in [set(&cells), Change::Delete { key: &KEY }] {
            let mut clerk = notes(&shape);
            (clerk.is_stale, clerk.is_unwritable) = (is_stale, is_unwritable);
            let fault = writer.write(&plainly(change), &mut clerk).unwrap_err();
            assert_eq!(fault.to_string(), expected);
            assert_eq!(disk.text(), now);
        }
    }
    let mut clerk = notes(&shape);
    writer.write(&plainly(Change::Delete { key: &KEY }), &mut clerk).unwrap();
    assert_eq!(clerk.before, clerk.after);
}

#[test]
fn a_dry_run_judges_and_keeps_nothing_and_a_claim_is_made_good_once() {
    let content = "{\"id\":2,\"n\":\"a\"}\n";
    let disk = Disk::new(Form::Lines, content);
    let json = disk.json();
    let shape = shape(&json);
    let writer = json.writer(&shape).unwrap();
    let cells = [(1, Cell::Text("b"))];
    let mut clerk = notes(&shape);
    let claim = Claim { id: [1; 32], asked: [2; 32] };
    let dry = Write { dry_run: true, claim: Some(claim), ..plainly(set(&cells)) };
    assert_eq!(writer.write(&dry, &mut clerk).unwrap(), Written::Done);
    assert_eq!((clerk.after.as_deref(), disk.text().as_str()), (Some(r#"{"id":2,"n":"b"}"#), content));
    let claimed = || Write { claim: Some(claim), ..plainly(set(&cells)) };
    assert_eq!(writer.write(&claimed(), &mut notes(&shape)).unwrap(), Written::Done);
    disk.write(content);
    let told = br#"{"id":2,"n":"b"}"#.to_vec();
    // Somebody else's change is theirs; the claim still knows what it did.
    assert_eq!(writer.write(&claimed(), &mut notes(&shape)).unwrap(), Written::Replayed(told));
    assert_eq!(disk.text(), content);
    let other = Write { claim: Some(Claim { asked: [3; 32], ..claim }), ..plainly(set(&cells)) };
    assert!(matches!(writer.write(&other, &mut notes(&shape)), Err(WriteFault::ClaimedOtherwise)));
}

#[test]
fn who_writes_reads_it_at_once_however_seldom_the_file_is_looked_at() {
    for lines in [1, 60_000] {
        let content: String =
            (2..lines + 2).map(|i| format!("{{\"id\":{i},\"n\":\"{}\"}}\n", "x".repeat(40))).collect();
        let disk = Disk::new(Form::Lines, content);
        let json = disk.json_every_ms(u64::MAX);
        let shape = shape(&json);
        let reader = reader(&json, &shape);
        assert!(get(reader.as_ref(), &shape, &KEY).unwrap().unwrap().contains("xxx"));
        write(&json, &shape, set(&[(1, Cell::Text("new"))])).unwrap();
        assert_eq!(get(reader.as_ref(), &shape, &KEY).unwrap().as_deref(), Some(r#"{"id":2,"n":"new"}"#));
        write(&json, &shape, Change::Delete { key: &KEY }).unwrap();
        assert_eq!(get(reader.as_ref(), &shape, &KEY).unwrap(), None);
    }
}

#[test]
fn who_could_not_write_reads_what_others_wrote() {
    let disk = Disk::new(Form::Lines, "{\"id\":2,\"n\":\"a\"}\n");
    let json = disk.json_every_ms(u64::MAX);
    let shape = shape(&json);
    let (reader, writer) = (reader(&json, &shape), json.writer(&shape).unwrap());
    disk.write("{\"id\":2,\"n\":\"b\"}\n");
    let nobody = Change::Delete { key: &[Cell::Integer(9)] };
    let written = writer.write(&plainly(nobody), &mut notes(&shape));
    assert!(matches!(written, Err(WriteFault::NotFound)), "{written:?}");
    assert_eq!(get(reader.as_ref(), &shape, &KEY).unwrap().as_deref(), Some(r#"{"id":2,"n":"b"}"#));
}

#[test]
fn a_file_that_no_longer_fits_is_not_written() {
    let disk = Disk::new(Form::Lines, "{\"id\":2,\"n\":\"a\"}\n");
    let json = disk.json();
    let shape = shape(&json);
    let writer = json.writer(&shape).unwrap();
    for (content, expected) in [
        (
            "{\"id\":\"x\",\"n\":\"a\"}\n",
            "`people.jsonl` line 1, column `id`: expected a whole number, such as `42`; correct the value",
        ),
        ("{\"id\":", "`people.jsonl` line 1 is not valid JSON; correct it there"),
    ] {
        disk.write(content);
        match writer.write(&plainly(set(&[(1, Cell::Text("b"))])), &mut notes(&shape)) {
            Err(WriteFault::Source(SourceFault::Changed { told, .. })) => assert_eq!(told, expected),
            other => panic!("{other:?}"),
        }
        assert_eq!(disk.text(), content);
    }
    std::fs::remove_file(&disk.path).unwrap();
    let gone = writer.write(&plainly(set(&[])), &mut notes(&shape));
    assert!(matches!(gone, Err(WriteFault::Source(SourceFault::Unavailable { .. }))), "{gone:?}");
}

#[test]
fn those_who_write_at_once_lose_nothing() {
    const WRITERS: i64 = 4;
    const EACH: i64 = 10;
    let content: String = (0..WRITERS).map(|i| format!("{{\"id\":{i},\"n\":0}}\n")).collect();
    let disk = Disk::new(Form::Lines, content);
    let json = Arc::new(disk.json());
    let shape = shape(json.as_ref());
    std::thread::scope(|scope| {
        for id in 0..WRITERS {
            let (json, shape) = (json.clone(), shape.clone());
            scope.spawn(move || {
                let writer = json.writer(&shape).unwrap();
                for n in 1..=EACH {
                    let (key, cells) = ([Cell::Integer(id)], [(1, Cell::Integer(n))]);
                    let change = Change::Update { key: &key, cells: &cells };
                    writer.write(&plainly(change), &mut notes(&shape)).unwrap();
                    let new = [(0, Cell::Integer(1000 + id * 100 + n)), (1, Cell::Integer(-1))];
                    writer.write(&plainly(Change::Create { cells: &new }), &mut notes(&shape)).unwrap();
                }
            });
        }
    });
    let reader = reader(json.as_ref(), &shape);
    let (rows, total) = list(reader.as_ref(), &shape, &Query { ..everything() }).unwrap();
    assert_eq!(total, Some((WRITERS * (EACH + 1)) as u64));
    for id in 0..WRITERS {
        assert_eq!(rows[id as usize], format!("{{\"id\":{id},\"n\":{EACH}}}"));
    }
}

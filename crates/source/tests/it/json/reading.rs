//! What is read from a JSON file.

use contract::source::{RowChange, Source, SourceFacts, TableShape, WriteError};
use contract::{DataType, ValueRef};
use source::json::{self, JsonLayout};

use super::kit::{
    TestFile, all_rows, columns, document, document_at, get, list, only_table, query_all, reader, shape,
    write,
};

fn check(form: JsonLayout, content: impl AsRef<[u8]>, expected: &str, rows: &[&str]) {
    let disk = TestFile::new(form, content.as_ref());
    let json = disk.json();
    let shown = String::from_utf8_lossy(content.as_ref()).into_owned();
    assert_eq!(columns(&only_table(json.introspect().unwrap())), expected, "{shown}");
    assert_eq!(all_rows(&json), rows, "{shown}");
}

/// The same records as lines and as an array.
fn check_both(records: &[&str], expected: &str, rows: &[&str]) {
    check(JsonLayout::Lines, records.join("\n"), expected, rows);
    check(document(), format!("[{}]", records.join(", ")), expected, rows);
}

#[test]
fn columns_are_all_members_in_the_order_of_first_appearance() {
    check_both(
        &[r#"{"id":1,"name":"Ann"}"#, r#"{"name":"Bob","age":40,"id":2}"#, r#"{"id":3,"name":null}"#, "{}"],
        "id integer?, name text?, age integer?",
        &[
            r#"{"id":1,"name":"Ann","age":null}"#,
            r#"{"id":2,"name":"Bob","age":40}"#,
            r#"{"id":3,"name":null,"age":null}"#,
            r#"{"id":null,"name":null,"age":null}"#,
        ],
    );
    check_both(
        &[r#"{"":1,"a b":2,"a.b":3}"#],
        " integer, a b integer, a.b integer",
        &[r#"{"":1,"a b":2,"a.b":3}"#],
    );
    check_both(&[r#"{"\u0061":1}"#, r#"{"a":2}"#], "a integer", &[r#"{"a":1}"#, r#"{"a":2}"#]);
    check_both(&[r#"{"a":null}"#], "a text?", &[r#"{"a":null}"#]);
}

#[test]
fn column_types_follow_the_values() {
    for (values, kind, message) in [
        (&["1", "-2"][..], "integer", &["1", "-2"][..]),
        (&["9007199254740991", "0"], "integer", &["9007199254740991", "0"]),
        (&["9007199254740993", "1"], "int64", &[r#""9007199254740993""#, r#""1""#]),
        (&["9223372036854775808", "1"], "decimal", &[r#""9223372036854775808""#, r#""1""#]),
        (&["1.5", "2"], "number", &["1.5", "2"]),
        (&["1.0", "2.5", "-0.0"], "number", &["1", "2.5", "-0.0"]),
        (&["1e5", "2E-3"], "number", &["100000", "0.002"]),
        (&["12.50", "9.99", "3", "1.0"], "decimal", &[r#""12.50""#, r#""9.99""#, r#""3""#, r#""1.0""#]),
        (&["1.5", "9007199254740993"], "decimal", &[r#""1.5""#, r#""9007199254740993""#]),
        (&["-0", "1"], "decimal", &[r#""-0""#, r#""1""#]),
        (
            &["0.1000000000000000055511151231257827"],
            "decimal",
            &[r#""0.1000000000000000055511151231257827""#],
        ),
        (&["1.5", "1e400"], "number~", &["1.5", r#""1e400""#]),
        (&["true", "false"], "boolean", &["true", "false"]),
        (&[r#""true""#], "text", &[r#""true""#]),
        (&[r#""1""#, r#""2""#], "text", &[r#""1""#, r#""2""#]),
        (&[r#""2026-02-28""#, r#""2025-01-01""#], "date", &[r#""2026-02-28""#, r#""2025-01-01""#]),
        (&[r#""2026-02-28T10:00:00Z""#], "timestamp", &[r#""2026-02-28T10:00:00Z""#]),
        (&[r#""2026-02-28 10:00:00""#], "local_timestamp", &[r#""2026-02-28 10:00:00""#]),
        (&[r#""2026-02-28""#, r#""""#], "text", &[r#""2026-02-28""#, r#""""#]),
        (&[r#"{"a": [1, 2.50]}"#, "[ ]"], "json", &[r#"{"a":[1,2.50]}"#, "[]"]),
    ] {
        let records: Vec<String> = values.iter().map(|value| format!("{{\"v\":{value}}}")).collect();
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        let message: Vec<String> = message.iter().map(|value| format!("{{\"v\":{value}}}")).collect();
        let message: Vec<&str> = message.iter().map(String::as_str).collect();
        check_both(&records, &format!("v {kind}"), &message);
    }
}

#[test]
fn mixed_values_read_as_text_or_as_json_next_to_nested_ones() {
    for (values, kind, message) in [
        (&["1", "2", r#""n/a""#][..], "integer~", &["1", "2", r#""n/a""#][..]),
        (&["1", r#""7""#, "3"], "integer~", &["1", r#""7""#, "3"]),
        (&["true", "true", "1"], "boolean~", &["true", "true", r#""1""#]),
        (&["1", "2", "true"], "integer~", &["1", "2", r#""true""#]),
        (
            &[r#""a""#, r#""b""#, r#""c""#, "7", "1.50", "true"],
            "text~",
            &[r#""a""#, r#""b""#, r#""c""#, r#""7""#, r#""1.50""#, r#""true""#],
        ),
        (&["[1]", r#""[1]""#, "7", "true"], "json", &["[1]", r#""[1]""#, "7", "true"]),
    ] {
        let records: Vec<String> = values.iter().map(|value| format!("{{\"v\":{value}}}")).collect();
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        let message: Vec<String> = message.iter().map(|value| format!("{{\"v\":{value}}}")).collect();
        let message: Vec<&str> = message.iter().map(String::as_str).collect();
        check_both(&records, &format!("v {kind}"), &message);
    }
}

#[test]
fn any_line_ending_is_read_and_blank_lines_are_skipped() {
    let rows = [r#"{"a":1}"#, r#"{"a":2}"#];
    for content in [
        "{\"a\":1}\n{\"a\":2}\n",
        "{\"a\":1}\n{\"a\":2}",
        "{\"a\":1}\r\n{\"a\":2}\r\n",
        "\n\n{\"a\":1}\n \t\n{\"a\":2}\n\n\n",
        "  {\"a\" : 1}  \n\t{ \"a\":2 }",
        "\u{feff}{\"a\":1}\n{\"a\":2}\n",
    ] {
        check(JsonLayout::Lines, content, "a integer", &rows);
    }
}

#[test]
fn an_array_may_be_inside_a_document() {
    let rows = [r#"{"a":1}"#, r#"{"a":2}"#];
    for (form, content) in [
        (document(), "\u{feff} [ {\"a\":1} , {\"a\":2} ] \r\n"),
        (document_at(""), r#"[{"a":1},{"a":2}]"#),
        (document_at("/data"), r#"{"count": 2, "data": [{"a":1},{"a":2}], "next": null}"#),
        (
            document_at("/data/items"),
            r#"{"x": [1,2,{"}":"]"}], "data": {"y": "\"}", "items": [{"a":1},{"a":2}]}}"#,
        ),
        (document_at("/1"), r#"["head", [{"a":1},{"a":2}]]"#),
        (document_at("/a~1b/~0"), r#"{"a/b": {"~": [{"a":1},{"a":2}]}}"#),
        (document_at("/größe"), r#"{"gr\u00f6\u00dfe": [{"a":1},{"a":2}]}"#),
        (document_at("/"), r#"{"": [{"a":1},{"a":2}]}"#),
    ] {
        check(form, content, "a integer", &rows);
    }
}

#[test]
fn escapes_in_texts_are_decoded() {
    // NUL too: JSON can represent it.
    check_both(
        &[r#"{"t":"a\u0000b"}"#, r#"{"t":"\ud83e\udd80 \n\t\"\\\/"}"#],
        "t text",
        &[r#"{"t":"a\u0000b"}"#, "{\"t\":\"🦀 \\n\\t\\\"\\\\/\"}"],
    );
}

/// Numbers have a type of their own, so digits in a text are a code, also with blanks around them.
#[test]
fn digits_in_texts_are_not_numbers() {
    check_both(
        &[r#"{"t":"0"}"#, r#"{"t":"\t7"}"#, r#"{"t":" 12 "}"#],
        "t text",
        &[r#"{"t":"0"}"#, r#"{"t":"\t7"}"#, r#"{"t":" 12 "}"#],
    );
}

#[test]
fn the_first_unique_column_is_the_key() {
    for (records, key) in [
        (&[r#"{"n":1.5,"a":1,"b":"x"}"#, r#"{"n":2.5,"a":1,"b":"y"}"#][..], &[2_usize][..]),
        (&[r#"{"a":1}"#, r#"{"a":2}"#], &[0]),
        (&[r#"{"a":1,"b":"x"}"#, r#"{"b":"y"}"#], &[1]),
        (&[r#"{"a":1,"b":1}"#, r#"{"b":2}"#], &[]),
        (&[r#"{"a":"x"}"#, r#"{"a":"x"}"#], &[]),
        (&[r#"{"a":"x"}"#, r#"{"a":""}"#], &[]),
        (&[r#"{"a":1}"#, r#"{"a":"1"}"#], &[]),
        (&[r#"{"a":[1]}"#, r#"{"a":[2]}"#], &[]),
        (&[r#"{"a":true}"#, r#"{"a":false}"#], &[]),
    ] {
        let disk = TestFile::new(JsonLayout::Lines, records.join("\n"));
        let table = only_table(disk.json().introspect().unwrap());
        assert_eq!(table.key, key, "{records:?}");
        assert_eq!(table.row_count, Some(2));
        assert!(!table.key_is_declared && table.read_only_reason().is_none());
    }
    let long = format!("{{\"a\":\"{}\"}}\n{{\"a\":\"b\"}}", "x".repeat(3000));
    assert!(only_table(TestFile::new(JsonLayout::Lines, long).json().introspect().unwrap()).key.is_empty());
}

#[test]
fn few_distinct_texts_are_listed() {
    let disk = TestFile::new(JsonLayout::Lines, "{\"p\":\"free\"}\n{\"p\":\"ruby\"}\n{\"p\":\"free\"}");
    assert_eq!(only_table(disk.json().introspect().unwrap()).columns[0].distinct_values, ["free", "ruby"]);
}

#[test]
fn declared_types_decide_how_values_are_read() {
    for (value, kind, message) in [
        ("42", DataType::Text, r#""42""#),
        ("42", DataType::Decimal, r#""42""#),
        ("42", DataType::Number, "42"),
        ("12.50", DataType::Number, "12.5"),
        ("true", DataType::Text, r#""true""#),
        (r#""12.50""#, DataType::Decimal, r#""12.50""#),
        (r#""true""#, DataType::Boolean, "true"),
        ("1", DataType::Boolean, "true"),
        (r#""AP8Q""#, DataType::Blob, r#""AP8Q""#),
        (r#""x""#, DataType::Json, r#""x""#),
    ] {
        let disk = TestFile::new(JsonLayout::Lines, format!("{{\"v\":{value}}}"));
        let json = disk.json();
        let mut shape = TableShape { key: Vec::new(), ..shape(&json) };
        shape.columns[0].data_type = kind;
        let read = list(reader(&json, &shape).as_ref(), &shape, &query_all());
        assert_eq!(read.unwrap().0, [format!("{{\"v\":{message}}}")], "{value} as {kind:?}");
    }
    for (value, kind) in [
        (r#""x""#, DataType::Integer),
        ("1.5", DataType::Integer),
        ("2", DataType::Boolean),
        (r#""x""#, DataType::Blob),
        (r#""AP8""#, DataType::Blob),
        (r#""1/2/2026""#, DataType::Date),
    ] {
        let disk = TestFile::new(JsonLayout::Lines, format!("{{\"v\":{value}}}"));
        let json = disk.json();
        let mut shape = TableShape { key: Vec::new(), ..shape(&json) };
        shape.columns[0].data_type = kind;
        let message = json.reader(&shape).err().unwrap().to_string();
        assert!(message.starts_with("`people.jsonl` line 1, column `v`: expected"), "{message}");
    }
}

#[test]
fn a_declared_text_reads_as_null() {
    let disk = TestFile::new(JsonLayout::Lines, "{\"v\":\"2026-02-28\"}\n{\"v\":\"n/a\"}");
    let json = disk.json();
    let mut shape = TableShape { key: Vec::new(), ..shape(&json) };
    (shape.columns[0].data_type, shape.columns[0].null_texts) = (DataType::Date, vec!["n/a".to_owned()]);
    let read = list(reader(&json, &shape).as_ref(), &shape, &query_all());
    assert_eq!(read.unwrap().0, [r#"{"v":"2026-02-28"}"#, r#"{"v":null}"#]);
}

#[test]
fn a_record_is_found_by_its_key() {
    let disk = TestFile::new(JsonLayout::Lines, "{\"id\":7,\"n\":\"a\"}\n{\"id\":-3,\"n\":\"b\"}");
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    let find = |key: &[ValueRef<'_>]| get(reader.as_ref(), &shape, key).unwrap();
    assert_eq!(find(&[ValueRef::Integer(-3)]).as_deref(), Some(r#"{"id":-3,"n":"b"}"#));
    assert_eq!(find(&[ValueRef::Text("7")]).as_deref(), Some(r#"{"id":7,"n":"a"}"#));
    for key in
        [&[ValueRef::Integer(8)][..], &[ValueRef::Null], &[], &[ValueRef::Integer(7), ValueRef::Integer(7)]]
    {
        assert_eq!(find(key), None, "{key:?}");
    }
    // A text is another key than the number with the same digits.
    let disk = TestFile::new(
        JsonLayout::Lines,
        "{\"id\":7,\"n\":\"a\"}\n{\"id\":8,\"n\":\"c\"}\n{\"id\":\"7\",\"n\":\"b\"}",
    );
    let json = disk.json();
    let shape = TableShape { key: vec![0], ..super::kit::shape(&json) };
    let reader = super::kit::reader(&json, &shape);
    let find = |key: ValueRef<'_>| get(reader.as_ref(), &shape, &[key]).unwrap();
    assert_eq!(find(ValueRef::Integer(7)).as_deref(), Some(r#"{"id":7,"n":"a"}"#));
    assert_eq!(find(ValueRef::Text("7")).as_deref(), Some(r#"{"id":"7","n":"b"}"#));
}

#[test]
fn many_records_take_little_extra_memory() {
    let lines: String =
        (0..100_000).map(|i| format!("{{\"id\":{i},\"name\":\"name {i}\",\"plan\":\"free\"}}\n")).collect();
    let disk = TestFile::new(JsonLayout::Lines, lines);
    let json = disk.json();
    let SourceFacts { tables, .. } = json.introspect().unwrap();
    assert_eq!((tables[0].row_count, &tables[0].key[..]), (Some(100_000), &[0][..]));
    let shape = shape(&json);
    let found = get(reader(&json, &shape).as_ref(), &shape, &[ValueRef::Integer(99_999)]).unwrap();
    assert_eq!(found.as_deref(), Some(r#"{"id":99999,"name":"name 99999","plan":"free"}"#));
}

/// JSON has no byte strings; a column of base64 may be declared as a blob.
#[test]
fn a_column_of_base64_may_be_a_blob() {
    for (form, content, expected) in [
        (JsonLayout::Lines, "{\"id\":1,\"a\":\"AP8=\"}\n{\"id\":2,\"a\":\"\"}\n{\"id\":3}", true),
        (document(), r#"[{"id":1,"a":"AP8QCg=="}]"#, true),
        (JsonLayout::Lines, "{\"id\":1,\"a\":\"AP8=\"}\n{\"id\":2,\"a\":\"no base64\"}", false),
        // Its last bits would be lost.
        (JsonLayout::Lines, "{\"id\":1,\"a\":\"AP9=\"}", false),
        (JsonLayout::Lines, "{\"id\":1,\"a\":\"AP8=\"}\n{\"id\":2,\"a\":7}", false),
    ] {
        let table = only_table(TestFile::new(form, content).json().introspect().unwrap());
        assert_eq!(table.columns[1].is_base64, expected, "{content}");
        assert!(!table.columns[0].is_base64);
    }
}

#[test]
fn the_only_record_array_in_a_document_is_found() {
    for (content, expected) in [
        (r#"{"data":[{"id":1}]}"#, Some("/data")),
        ("\u{feff} {\"next\":null,\"a/b~\":[{\"id\":1},{}],\"ids\":[1]}", Some("/a~1b~0")),
        (r#"{"data":{"total":2,"people":[{"id":1}]}}"#, Some("/data/people")),
        (r#"{"a":{"b":{"c":{"d":[{"id":1}]}}}}"#, Some("/a/b/c/d")),
        (r#"{"a":{"b":{"c":{"d":{"e":[{"id":1}]}}}}}"#, None),
        (r#"{"people":[{"id":1}],"plans":[{"id":1}]}"#, None),
        (r#"{"ann":{"of":[{"id":1}]},"bob":{}}"#, None),
        (r#"{"data":[]}"#, None),
        (r#"{"data":[{"id":1},2]}"#, None),
        (r#"{"data":[{"id":1}"#, None),
        (r#"{"a":1}"#, None),
        (r#"[{"id":1}]"#, None),
        ("", None),
        ("7", None),
    ] {
        let disk = TestFile::new(document(), content.as_bytes());
        let found = json::find_records(&disk.path);
        assert_eq!(found.as_deref(), expected, "{content}");
        if let Some(found) = found {
            assert!(
                TestFile::new(document_at(&found), content.as_bytes()).json().introspect().is_ok(),
                "{content}"
            );
        }
    }
    assert_eq!(json::find_records("no such file".as_ref()), None);
    assert_eq!(json::find_records(env!("CARGO_MANIFEST_DIR").as_ref()), None);
}

#[test]
fn a_key_is_found_in_any_spelling() {
    let disk = TestFile::new(
        JsonLayout::Lines,
        "{\"id\":1.50,\"v\":0}\n{\"id\":1e2,\"v\":5}\n{\"id\":0.125,\"v\":7}\n",
    );
    let json = disk.json();
    let shape = TableShape { key: vec![0], ..shape(&json) };
    let reader = reader(&json, &shape);
    let check = |asked: ValueRef<'_>, v: Option<&str>| {
        let found = get(reader.as_ref(), &shape, &[asked]).unwrap();
        assert_eq!(found.is_some(), v.is_some(), "{asked:?}: {found:?}");
        assert!(found.unwrap_or_default().contains(v.unwrap_or_default()), "{asked:?}");
    };
    check(ValueRef::Text("1.50"), Some("\"v\":0"));
    check(ValueRef::Text("1.5"), Some("\"v\":0"));
    check(ValueRef::Text("100"), Some("\"v\":5"));
    check(ValueRef::Integer(100), Some("\"v\":5"));
    check(ValueRef::Text("0.1250"), Some("\"v\":7"));
    check(ValueRef::Text("0.12"), None);
    // A record with an equal key cannot be added.
    let change = RowChange::Create { values: &[(0, ValueRef::Text("1.500")), (1, ValueRef::Integer(1))] };
    assert!(matches!(write(&json, &shape, change), Err(WriteError::AlreadyExists)));
}

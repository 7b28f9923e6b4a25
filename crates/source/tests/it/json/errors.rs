//! Errors about a file name the place and how to fix it.

use contract::diagnostic::render;
use contract::source::{Source, SourceError};
use source::json::JsonLayout;

use super::kit::{TestFile, document, document_at};

/// Compares the message for callers, and what the diagnostic shows below it: the place, the line, the
/// highlight.
fn check(form: JsonLayout, content: impl AsRef<[u8]>, expected_message: &str, shown: Option<[&str; 3]>) {
    let disk = TestFile::new(form, content.as_ref());
    let json = disk.json();
    match json.introspect() {
        Err(SourceError::Incompatible { message: got, detail: log }) => {
            let got = got.replacen("; the server's owner can ", "; ", 1);
            assert_eq!(got, format!("`{}` {expected_message}", disk.path.file_name().unwrap().display()));
            assert!(log.contains(&disk.path.display().to_string()), "{log}");
        }
        other => panic!("{other:?}"),
    }
    let rendered = render(&json.diagnose(None).unwrap(), false);
    let lines: Vec<&str> = rendered.lines().collect();
    if let Some([place, line, mark]) = shown {
        let name = disk.path.display();
        assert_eq!(lines[1].trim_start(), format!("--> {name}:{place}"), "{rendered}");
        assert_eq!([lines[3], lines[4]], [line, mark], "{rendered}");
    }
}

#[test]
fn a_line_that_is_not_an_object_is_named() {
    let no_object = "is not an object; make it an object, such as `{\"id\": 1}`: each row is one";
    for (content, expected_message, shown) in [
        ("{\"a\":1}\n\n[1]\n", format!("line 3 {no_object}"), ["3:1", "3 | [1]", "  | ^"]),
        ("{\"a\":1}\n  7", format!("line 2 {no_object}"), ["2:3", "2 |   7", "  |   ^"]),
        ("{\"a\":1}\nnull\n", format!("line 2 {no_object}"), ["2:1", "2 | null", "  | ^"]),
        (
            "{\"a\":1}\r\n{\"a\":tru}\r\n",
            "line 2 is not valid JSON; correct the syntax at this position".to_owned(),
            ["2:6", "2 | {\"a\":tru}", "  |      ^"],
        ),
        (
            "{\"a\":1} {\"a\":2}\n",
            "line 1 is not valid JSON; give it a line of its own".to_owned(),
            ["1:9", "1 | {\"a\":1} {\"a\":2}", "  |         ^"],
        ),
        (
            "{\"a\":1}\n{\"a\":1,\"\\u0061\":2}\n",
            "line 2 names a member twice; remove one of the two".to_owned(),
            ["2:8", "2 | {\"a\":1,\"\\u0061\":2}", "  |        ^"],
        ),
        (
            "{\"a\":\"\\ud800\"}\n",
            "line 1 is not valid JSON; correct the syntax at this position".to_owned(),
            ["1:7", "1 | {\"a\":\"\\ud800\"}", "  |       ^"],
        ),
        (
            "{\"a\":1}\n{\"a\":1",
            "line 2 is not valid JSON; correct the syntax at this position".to_owned(),
            ["2:7", "2 | {\"a\":1", "  |       ^"],
        ),
    ] {
        check(JsonLayout::Lines, content, &expected_message, Some(shown));
    }
    check(
        JsonLayout::Lines,
        b"{\"a\":1}\n{\"a\":\"\xff\"}\n",
        "line 2 is not UTF-8; save the file as UTF-8",
        Some(["2:7", "2 | {\"a\":\"\u{fffd}\"}", "  |       ^"]),
    );
}

#[test]
fn json_and_json_lines_are_told_apart() {
    let document_help = "name it `.json`, or set `kind = \"json\"`: it looks like one JSON document";
    check(
        JsonLayout::Lines,
        "[{\"a\":1},\n{\"a\":2}]",
        &format!("line 1 is not valid JSON; {document_help}"),
        None,
    );
    check(JsonLayout::Lines, "[{\"a\":1}]", &format!("line 1 is not an object; {document_help}"), None);
    check(
        JsonLayout::Lines,
        "{\n \"a\": 1\n}\n",
        &format!("line 1 is not valid JSON; {document_help}"),
        None,
    );
    check(
        document(),
        "{\"a\":1}\n{\"a\":2}\n",
        "is not valid JSON; name it `.jsonl`, or set `kind = \"jsonl\"`: it looks like JSON Lines",
        Some(["2:1", "2 | {\"a\":2}", "  | ^"]),
    );
}

#[test]
fn a_document_that_is_not_an_array_of_objects_gets_help() {
    for (form, content, expected_message) in [
        (
            document(),
            r#"{"next":null,"a/b":[{"id":1}]}"#,
            "is an object, not an array of objects; set `at = \"/a~1b\"` in a manifest for the array in it",
        ),
        (
            document_at("/d"),
            r#"{"d":{"people":[{"id":1}]}}"#,
            "at `/d` is an object, not an array of objects; set `at = \"/d/people\"` in a manifest for the array in it",
        ),
        (
            document(),
            r#"{"page":{"of":3},"people":[{"id":1}],"plans":[{"id":1}],"ids":[1],"none":[]}"#,
            "is an object, not an array of objects; choose an array in a manifest: `at = \"/people\"` or \
             `at = \"/plans\"`",
        ),
        (
            document(),
            r#"{"data":{"total":1,"people":[{"id":1}]}}"#,
            "is an object, not an array of objects; set `at = \"/data/people\"` in a manifest for the array in it",
        ),
        (
            document(),
            r#"{"meta":{"page":1},"data":{"customers":[{"id":1}]}}"#,
            "is an object, not an array of objects; set `at = \"/data/customers\"` in a manifest for the array in it",
        ),
        (
            document(),
            r#"{"ann":{"of":[{"id":1}]},"bob":{"of":[{"id":2}]}}"#,
            "is an object, not an array of objects; make it an array, with the names as a \
             column: an object of rows is not supported",
        ),
        (
            document(),
            r#"{"ann":{"age":1},"bob":{"age":2}}"#,
            "is an object, not an array of objects; make it an array, with the names as \
             a column: an object of rows is not supported",
        ),
        (document(), r#"{"a":1}"#, "is an object, not an array of objects; make it an array of objects"),
        (document(), "7", "is not an array of objects; make it an array of objects"),
        (
            document(),
            "[1]",
            "element 1 is not an object; make it an object, such as `{\"id\": 1}`: each row is one",
        ),
        (document(), " \n", "is empty; write `[]` for an array without rows"),
        (document(), r#"[{"a":1},{"a":1]}"#, "is not valid JSON; correct the syntax at this position"),
        (document(), r#"[{"a":1},]"#, "is not valid JSON; remove the comma before it"),
        (document(), "[{\"a\":1,\n}]", "element 1 is not valid JSON; remove the comma before it"),
        (document(), "[{'a':1}]", "element 1 is not valid JSON; put the text in double quotes: `\"…\"`"),
        (document(), "[{a:1}]", "element 1 is not valid JSON; put names and texts in double quotes: `\"…\"`"),
        (document(), "// people\n[{\"a\":1}]", "is not valid JSON; remove it: JSON has no comments"),
        (document(), r#"[{"a":1 "b":2}]"#, "element 1 is not valid JSON; put a comma before it"),
        (document(), r#"[{"a":1} {"a":2}]"#, "is not valid JSON; put a comma before it"),
        (document(), r#"[{"a":1}] x"#, "is not valid JSON; correct the syntax at this position"),
        (document(), r#"[{"a":1}"#, "is not valid JSON; correct the syntax at this position"),
        (document(), r#"[{"a":01}]"#, "element 1 is not valid JSON; correct the syntax at this position"),
        (document(), r#"[{"a":1},{"a":2,"a":3}]"#, "element 2 names a member twice; remove one of the two"),
        (document_at("/x"), r#"{"x":[{"a":1}],"x":[]}"#, "names a member twice; remove one of the two"),
        (
            document_at("/x"),
            r#"{"y":1}"#,
            "has nothing at `/x`; correct `at` in the manifest, or put it back",
        ),
        (document_at("/1"), r#"[[]]"#, "has nothing at `/1`; correct `at` in the manifest, or put it back"),
        (
            document_at("/01"),
            r#"[[],[]]"#,
            "has nothing at `/01`; correct `at` in the manifest, or put it back",
        ),
        (
            document_at("x"),
            "{}",
            "cannot be read at `x`, which is not a JSON pointer; write it like `/data/customers`",
        ),
        (
            document_at("/~2"),
            "{}",
            "cannot be read at `/~2`, which is not a JSON pointer; write it like `/data/customers`",
        ),
    ] {
        check(form, content, expected_message, None);
    }
    check(
        document(),
        "[\n  {\"a\": 1},\n  {\"a\": }\n]",
        "element 2 is not valid JSON; correct the syntax at this position",
        Some(["3:9", "3 |   {\"a\": }", "  |         ^"]),
    );
}

/// Only a manifest can declare the columns of an empty file.
#[test]
fn without_records_there_are_no_columns() {
    for (form, content) in
        [(document(), "[]"), (document(), "[{}]"), (JsonLayout::Lines, ""), (JsonLayout::Lines, "\n")]
    {
        let disk = TestFile::new(form, content.as_bytes());
        let json = disk.json();
        let facts = json.introspect().expect("it can be read");
        assert!(facts.tables[0].columns.is_empty(), "{content}");
        let shown = render(&json.diagnose(None).expect("something is wrong"), false);
        assert!(shown.contains("has no rows, so its fields are unknown"), "{shown}");
        assert!(shown.contains("add one, or declare the fields with `as` in a manifest"), "{shown}");
    }
}

#[test]
fn every_part_of_a_file_is_bounded() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(64), "]".repeat(64));
    check(JsonLayout::Lines, &deep, "line 1 is nested deeper than 64 levels; flatten it", None);
    check(document(), format!("[{deep}]"), "element 1 is nested deeper than 64 levels; flatten it", None);
    check(document(), "[".repeat(100_000), "is nested deeper than 64 levels; flatten it", None);
    let wide: Vec<String> = (0..1025).map(|i| format!("\"c{i}\":1")).collect();
    check(
        JsonLayout::Lines,
        format!("{{{}}}", wide.join(",")),
        "line 1 has a member that exceeds the limit of 1024 columns; remove some, or nest what belongs together",
        None,
    );
    check(
        JsonLayout::Lines,
        format!("{{\"a\":\"{}\"}}", "x".repeat(16 << 20)),
        "line 1 has more than 16777216 bytes; make it smaller, or put the data into a SQLite database",
        None,
    );
    check(
        JsonLayout::Lines,
        format!("{{\"a\":[{}1]}}", "1,".repeat(500_001)),
        "line 1 has more than 500000 values; make it smaller",
        None,
    );
    for bytes in [b"\xff\xfe{\0}\0".as_slice(), b"{\0\"\0a\0"] {
        check(JsonLayout::Lines, bytes, "is UTF-16, and JSON is UTF-8; save it as UTF-8", None);
    }
}

#[test]
fn an_unreadable_file_is_a_transient_error() {
    let disk = TestFile::new(JsonLayout::Lines, "{\"a\":1}");
    let json = disk.json();
    std::fs::remove_file(&disk.path).unwrap();
    match json.introspect() {
        Err(SourceError::Unavailable { message: expected_message, detail: log }) => {
            assert_eq!(
                expected_message,
                "`people.jsonl` was not found; the server's owner can check its name, or put it back"
            );
            assert_eq!(log, format!("{}: `people.jsonl` was not found", disk.path.display()));
        }
        other => panic!("{other:?}"),
    }
    std::fs::create_dir(&disk.path).unwrap();
    match json.introspect() {
        Err(SourceError::Unavailable { message: expected_message, .. }) => {
            assert_eq!(
                expected_message,
                "`people.jsonl` is not a file; the server's owner can give the path of a JSON Lines file"
            );
        }
        other => panic!("{other:?}"),
    }
    std::fs::remove_dir(&disk.path).unwrap();
    disk.write("{\"a\":1}");
    assert!(json.introspect().is_ok());
}

#[test]
fn a_file_over_the_limit_is_not_read() {
    let disk = TestFile::new(JsonLayout::Lines, "");
    let file = std::fs::OpenOptions::new().write(true).open(&disk.path).unwrap();
    file.set_len(u64::from(u32::MAX)).unwrap();
    let expected_message = "has 4294967295 bytes, which exceeds the limit of 4294967294; the server's owner can put the data into a SQLite database";
    match disk.json().introspect() {
        Err(SourceError::Incompatible { message: got, .. }) => {
            assert_eq!(got, format!("`people.jsonl` {expected_message}"))
        }
        other => panic!("{other:?}"),
    }
}

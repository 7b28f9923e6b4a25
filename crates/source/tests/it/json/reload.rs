//! Files that change while they are served.

use contract::ValueRef;
use contract::diagnostic::render;
use contract::source::{Query, Source, SourceError};
use source::json::JsonLayout;

use super::kit::{TestFile, get, list, query_all, reader, shape};

const FIRST: &str = "{\"id\":1,\"name\":\"Ann\",\"age\":30}\n{\"id\":2,\"name\":\"Bob\",\"age\":40}\n";

#[test]
fn a_change_is_seen_by_the_next_call() {
    let disk = TestFile::new(JsonLayout::Lines, FIRST);
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    let ann = || get(reader.as_ref(), &shape, &[ValueRef::Integer(1)]).unwrap();
    assert!(ann().unwrap().contains("Ann"));
    // The same length, and so soon that the timestamp may be the same.
    for new in ["Eve", "Zoe", "Max"] {
        disk.write(FIRST.replace("Ann", new));
        assert!(ann().unwrap().contains(new));
    }
    disk.write("");
    assert_eq!(list(reader.as_ref(), &shape, &query_all()).unwrap(), (Vec::new(), Some(0)));
    disk.write(FIRST);
    assert!(ann().unwrap().contains("Ann"));
}

#[test]
fn a_contract_violation_is_an_error_until_it_is_fixed() {
    let disk = TestFile::new(JsonLayout::Lines, FIRST);
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    for (content, expected_message, place) in [
        (
            "{\"id\":1,\"name\":\"Ann\",\"age\":\"old\"}",
            "line 1, column `age`: expected an integer, such as `42`; the server's owner can correct the value, or declare another type with `as` in the manifest",
            Some("1:28"),
        ),
        (
            "\n{\"id\":1,\"name\":\"Ann\"}",
            "line 2, column `age`: expected a value, but there is none; the server's owner can fill it in, or update the contract",
            Some("2:1"),
        ),
        (
            "{\"name\":\"Ann\",\"age\":1}",
            "line 1 has no `id`, which is a key; the server's owner can fill it in, or choose another key",
            Some("1:1"),
        ),
        (
            "{\"id\":1,",
            "line 1 is not valid JSON; the server's owner can correct the syntax at this position",
            Some("1:9"),
        ),
    ] {
        disk.write(content);
        match list(reader.as_ref(), &shape, &query_all()) {
            Err(SourceError::Incompatible { message: got, .. }) => {
                assert_eq!(got, format!("`people.jsonl` {expected_message}"))
            }
            other => panic!("{other:?}"),
        }
        let rendered = render(&json.diagnose(Some(&shape)).unwrap(), false);
        if let Some(place) = place {
            assert!(rendered.contains(&format!("{}:{place}\n", disk.path.display())), "{rendered}");
        }
        disk.write(FIRST);
        assert_eq!(list(reader.as_ref(), &shape, &query_all()).unwrap().1, Some(2));
        assert!(json.diagnose(Some(&shape)).is_none());
    }
    // A duplicate key is an error for those who ask for it; the owner sees where it is.
    disk.write("{\"id\":1,\"name\":\"Ann\",\"age\":1}\n\n{\"id\":1,\"name\":\"Bob\",\"age\":1}");
    assert_eq!(list(reader.as_ref(), &shape, &query_all()).unwrap().0.len(), 2);
    match reader.get(&[ValueRef::Integer(1)], &mut |_| {}) {
        Err(SourceError::Incompatible { message, .. }) => assert_eq!(
            message,
            "`people.jsonl` lines 1 and 3 have the same `id`, which is the key; the server's owner can change one, or choose another key"
        ),
        other => panic!("{other:?}"),
    }
    let rendered = render(&json.diagnose(Some(&shape)).unwrap(), false);
    assert!(rendered.contains(&format!("{}:3:7\n", disk.path.display())), "{rendered}");
    // A text column takes any single value; members outside of the contract change nothing.
    disk.write("{\"x\":{},\"id\":1,\"name\":7,\"age\":1}");
    let (rows, _) = list(reader.as_ref(), &shape, &query_all()).unwrap();
    assert_eq!(rows, [r#"{"id":1,"name":"7","age":1}"#]);
}

#[test]
fn a_member_that_no_record_has_is_null() {
    let disk = TestFile::new(JsonLayout::Lines, "{\"id\":1,\"note\":\"x\"}\n{\"id\":2}");
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    disk.write("{\"id\":5}");
    let query = Query { sort: vec![contract::source::Sort { column: 1, descending: false }], ..query_all() };
    assert_eq!(list(reader.as_ref(), &shape, &query).unwrap().0, [r#"{"id":5,"note":null}"#]);
}

#[test]
fn a_large_file_reloads_in_the_background() {
    let lines = |n: usize| -> String {
        (0..n).map(|i| format!("{{\"id\":{i},\"text\":\"{}\"}}\n", "x".repeat(60))).collect()
    };
    let disk = TestFile::new(JsonLayout::Lines, lines(40_000));
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    let total = || list(reader.as_ref(), &shape, &Query { rows_max: 1, ..Query::default() }).unwrap().1;
    assert_eq!(total(), Some(40_000));
    disk.write(lines(40_001));
    total();
    json.wait_for_reload();
    assert_eq!(total(), Some(40_001));
}

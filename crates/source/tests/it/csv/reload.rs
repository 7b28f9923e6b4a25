//! Files that change while they are served.

use std::sync::Arc;

use contract::source::{
    Comparison, CursorPosition, Filter, Query, ReadRequest, Reader, RowFlow, Sort, Source, SourceError,
    TableShape,
};
use contract::{DataType, Value, ValueRef};
use source::csv::{Csv, Options};

use super::kit::{Row, TestFile, all_rows, get, list, query_all, reader, row, rows, shape};

const FIRST: &str = "id,name,age\n1,Ann,30\n2,Bob,40\n";

fn open(content: &str) -> (TestFile, Csv, Arc<dyn Reader>) {
    let disk = TestFile::new("people.csv", content);
    let csv = disk.csv();
    let reader = reader(&csv);
    (disk, csv, reader)
}

fn outcome_text(result: Result<(Vec<Row>, Option<u64>), SourceError>) -> String {
    match result {
        Err(SourceError::Incompatible { message: expected_message, detail: _ }) => expected_message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_is_seen_by_the_next_call() {
    let (disk, _csv, reader) = open(FIRST);
    let name =
        |id| get(reader.as_ref(), &[ValueRef::Integer(id)]).unwrap().map(|row| row[1].clone().unwrap());
    assert_eq!(name(1).as_deref(), Some("Ann"));
    // The same length, and so soon that the timestamp may be the same.
    for new in ["Eve", "Zoe", "Max"] {
        disk.write(FIRST.replace("Ann", new));
        assert_eq!(name(1).as_deref(), Some(new));
    }
    disk.write("id,name,age\n3,Cid,50\n");
    assert_eq!((name(1), name(3).as_deref()), (None, Some("Cid")));
    let other = disk.path.with_extension("new");
    std::fs::write(&other, "id,name,age\n4,Dan,50\n").unwrap();
    std::fs::rename(&other, &disk.path).unwrap();
    assert_eq!((name(3), name(4).as_deref()), (None, Some("Dan")));
    disk.write("id,name,age\n");
    assert_eq!(name(4), None);
    assert_eq!(list(reader.as_ref(), &query_all()).unwrap(), (Vec::new(), Some(0)));
}

#[test]
fn columns_are_found_by_name_after_a_change() {
    let table: &[(&str, &[&[&str]])] = &[
        ("name,age,id\nAnn,30,1\n", &[&["1", "Ann", "30"]]),
        ("x,id,y,name,z,age\n?,1,?,Ann,?,30\n", &[&["1", "Ann", "30"]]),
        ("id;name;age\n1;Ann, B.;30\n", &[&["1", "Ann, B.", "30"]]),
        ("id,name,age,age\n1,Ann,30,31\n", &[&["1", "Ann", "30"]]),
    ];
    let (disk, _csv, reader) = open(FIRST);
    for (content, expected) in table {
        disk.write(content);
        assert_eq!(all_rows(reader.as_ref()), rows(expected), "{content:?}");
    }
    let (disk, _csv, reader) = open("a,x,x\n1,2,3\n");
    disk.write("x,a,b,x\n20,10,?,30\n");
    assert_eq!(all_rows(reader.as_ref()), rows(&[&["10", "20", "30"]]));
    disk.write("x,a\n20,10\n");
    let expected_message = outcome_text(list(reader.as_ref(), &query_all()));
    assert_eq!(
        expected_message,
        "`people.csv` has no column `x`; the server's owner can put it back, or update the contract"
    );
}

#[test]
fn a_contract_violation_is_an_error_until_it_is_fixed() {
    let table: &[(&str, &str)] = &[
        (
            "id,name\n1,Ann\n",
            "has no column `age`; the server's owner can put it back, or update the contract",
        ),
        (
            "id,nmae,age\n1,Ann,3\n",
            "has no column `name`; the most similar is `nmae`; the server's owner can rename it back, or update the contract",
        ),
        ("", "is empty; the server's owner can name the columns in its first line"),
        (
            "id,name,age\n1,Ann,30\n2,Bob,forty\n",
            "line 3, column `age`: expected an integer, such as `42`; the server's owner can correct the value, or declare another type with `as` in the manifest",
        ),
        (
            "id,name,age\n1,Ann,\n",
            "line 2, column `age`: expected a value, but there is none; the server's owner can fill it in, or allow missing values with \
             `null = \"\"` for this column in the manifest",
        ),
        (
            "id,name,age\n1,Ann,30\n,Bob,40\n",
            "line 3 has no `id`, which is a key; the server's owner can fill it in, or choose another key",
        ),
        (
            "id,name,age\n1,Ann,30\n2,Bo",
            "line 3 has 2 fields, the header has 3; the server's owner can add what is missing, with `,` for each empty field; or set `short_rows = true` in `[collections.people]`",
        ),
        (
            "id,name,age\n1,\"Ann,30\n",
            "line 2 opens a quote that is never closed; the server's owner can close it, or write `\"\"` for a quote in a field",
        ),
        (
            "id,name,age\nx,Ann,30\n",
            "line 2, column `id`: expected an integer, such as `42`; the server's owner can correct the value, or declare another type with `as` in the manifest",
        ),
    ];
    let (disk, csv, reader) = open(FIRST);
    let expected = rows(&[&["1", "Ann", "30"], &["2", "Bob", "40"]]);
    for (content, message) in table {
        disk.write(content);
        let message = format!("`people.csv` {message}");
        assert_eq!(outcome_text(list(reader.as_ref(), &query_all())), message, "{content:?}");
        let is_about_a_value =
            message.contains("column `") && message.contains("line ") || message.contains("is a key");
        let found = get(reader.as_ref(), &[ValueRef::Integer(1)]);
        let is_met = content.contains("1,Ann,\n") || content.contains("x,Ann");
        match found {
            Ok(row) => assert!(is_about_a_value && (!is_met || row.is_none()), "{content:?}: {row:?}"),
            Err(error) => {
                assert!(!is_about_a_value || is_met, "{content:?}: {error:?}");
                assert!(
                    matches!(&error, SourceError::Incompatible { message: got, .. } if *got == message),
                    "{error:?}"
                );
            }
        }
        assert!(reader.can_run_inline(&ReadRequest::List(&query_all())), "to say no takes no time");
        disk.write(FIRST);
        assert_eq!(all_rows(reader.as_ref()), expected, "after {content:?}");
    }
    std::fs::remove_file(&disk.path).unwrap();
    let gone = "`people.csv` was not found; the server's owner can check its name, or put it back";
    for error in [list(reader.as_ref(), &query_all()).expect_err("gone"), csv.introspect().expect_err("gone")]
    {
        // The file may be unchanged when it comes back, so the error is transient.
        assert!(matches!(&error, SourceError::Unavailable { message, .. } if message == gone), "{error:?}");
    }
    disk.write(FIRST);
    assert_eq!(all_rows(reader.as_ref()), expected);
}

fn message_of<T: std::fmt::Debug>(result: Result<T, SourceError>) -> String {
    match result {
        Err(SourceError::Incompatible { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_broken_value_fails_only_the_calls_that_meet_it() {
    let (file, _csv, reader) = open(FIRST);
    let by_key = |id: i64| get(reader.as_ref(), &[ValueRef::Integer(id)]);
    let first = |rows_max: usize| list(reader.as_ref(), &Query { rows_max, ..Query::default() });
    let ann = rows(&[&["1", "Ann", "30"]]);
    for (content, message) in [
        (
            "id,name,age\n1,Ann,30\n2,Bob,forty\n",
            "`people.csv` line 3, column `age`: expected an integer, such as `42`; the server's owner can correct the value, or declare another type with `as` in the manifest",
        ),
        (
            "id,name,age\n1,Ann,30\n2,Bob,\n",
            "`people.csv` line 3, column `age`: expected a value, but there is none; the server's owner can fill it in, or allow missing values \
             with `null = \"\"` for this column in the manifest",
        ),
        (
            "id,name,age\n,Bob,40\n1,Ann,30\n",
            "`people.csv` line 2 has no `id`, which is a key; the server's owner can fill it in, or choose another key",
        ),
    ] {
        file.write(content);
        assert_eq!(by_key(1).unwrap().as_ref(), ann.first(), "{content:?}");
        assert_eq!(first(1).unwrap().0, ann, "{content:?}");
        assert_eq!(message_of(first(3)), message, "{content:?}");
        if content.contains("2,Bob") {
            assert_eq!(message_of(by_key(2)), message, "{content:?}");
        }
        let filters = vec![Filter::new(1, Comparison::Equals, ValueRef::Text("Ann"))];
        let filtered = list(reader.as_ref(), &Query { filters, rows_max: 9, ..Query::default() });
        assert_eq!(filtered.unwrap().0, ann, "{content:?}");
    }
    file.write(FIRST);
    assert_eq!(first(9).unwrap().0.len(), 2);
}

#[test]
fn a_duplicate_key_fails_only_calls_for_this_key() {
    let (file, _csv, reader) = open(FIRST);
    let by_key = |id: i64| get(reader.as_ref(), &[ValueRef::Integer(id)]);
    file.write("id,name,age\n2,Bob,40\n1,Ann,30\n2,Bill,41\n3,Cid,50\n2,Ben,42\n");
    let message = "`people.csv` lines 2 and 4 have the same `id`, which is the key; the server's owner can change one, or choose another key";
    assert_eq!(message_of(by_key(2)), message);
    assert_eq!(by_key(1).unwrap().unwrap()[1].as_deref(), Some("Ann"));
    assert_eq!(by_key(3).unwrap().unwrap()[1].as_deref(), Some("Cid"));
    let expected = ["Ann", "Bob", "Bill", "Ben", "Cid"];
    for rows_max in 1..=6 {
        for sort in
            [None, Some(Sort { column: 0, descending: true }), Some(Sort { column: 2, descending: false })]
        {
            let mut names = Vec::new();
            let mut after: Option<CursorPosition> = None;
            loop {
                let query = Query {
                    sort: sort.into_iter().collect(),
                    after: after.as_ref(),
                    rows_max,
                    ..Query::default()
                };
                let mut last = None;
                let read = reader.list(&query, &mut |cells, position| {
                    let ties = (position.ties > 0).then(|| Value::Integer(position.ties.into()));
                    let key = [cells[0].to_value()].into_iter().chain(ties).collect();
                    last = Some(CursorPosition {
                        sort_values: sort.iter().map(|sort| cells[sort.column].to_value()).collect(),
                        key,
                    });
                    names.extend(row(cells)[1].clone());
                    RowFlow::Continue
                });
                read.unwrap();
                if last.is_none() {
                    break;
                }
                after = last;
            }
            match sort {
                None => assert_eq!(names, expected, "{rows_max}"),
                Some(_) => {
                    names.sort_unstable();
                    assert_eq!(names, ["Ann", "Ben", "Bill", "Bob", "Cid"], "{rows_max} {sort:?}");
                }
            }
        }
    }
    file.write(FIRST);
    assert_eq!(by_key(2).unwrap().unwrap()[1].as_deref(), Some("Bob"));
}

#[test]
fn a_half_written_file_reads_as_rows_or_an_error() {
    let (disk, _csv, reader) = open(FIRST);
    let whole = "id,name,age\n1,\"Zoë, \"\"Z\"\"\",30\n2,Łukasz,41\n";
    for length in 0..whole.len() {
        disk.write(&whole.as_bytes()[..length]);
        // Whatever the file holds at the moment, a read returns rows of the contract or an error.
        if let Ok((rows, _)) = list(reader.as_ref(), &query_all()) {
            assert!(rows.iter().all(|row| row.len() == 3 && row[2].is_some()), "{length}");
        }
    }
    disk.write(whole);
    assert_eq!(all_rows(reader.as_ref()), rows(&[&["1", "Zoë, \"Z\"", "30"], &["2", "Łukasz", "41"]]));
}

#[test]
fn a_contract_may_accept_more_than_was_inferred() {
    let disk = TestFile::new("people.csv", "id,score,at\n1,10,NA\n2,,2026-02-28\n");
    let csv = disk.csv();
    let mut shape = shape(&csv);
    shape.columns[1].data_type = DataType::Decimal;
    shape.columns[2].data_type = DataType::Date;
    shape.columns[2].null_texts = vec!["NA".to_owned()];
    shape.columns[2].nullable = true;
    let wide = csv.reader(&shape).unwrap();
    assert_eq!(all_rows(wide.as_ref()), rows(&[&["1", "10", "-"], &["2", "-", "2026-02-28"]]));
    disk.write("id,score,at\n1,1.5,\n");
    assert_eq!(all_rows(wide.as_ref()), rows(&[&["1", "1.5", "-"]]));
    disk.write("id,score,at\n1,1.5,soon\n");
    let date = "`people.csv` line 2, column `at`: expected a date, such as `2026-02-28`; the server's owner can correct the value, or declare another type with `as` in the manifest";
    assert_eq!(outcome_text(list(wide.as_ref(), &query_all())), date);
    shape.columns[2].mixed = true;
    let mixed = csv.reader(&shape).unwrap();
    assert_eq!(all_rows(mixed.as_ref()), rows(&[&["1", "1.5", "soon"]]));
    shape.columns[2].nullable = false;
    disk.write("id,score,at\n1,1.5,NA\n");
    let Err(error) = csv.reader(&shape) else { panic!("`NA` is no value") };
    let missing = "`people.csv` line 2, column `at`: expected a value, but there is none; the server's owner can fill it in, or allow missing values with \
             `null = \"\"` for this column in the manifest";
    assert_eq!(error.to_string(), missing);
}

#[test]
fn the_null_text_applies_after_a_change() {
    let disk = TestFile::new("people.csv", "id,age\n1,NA\n2,40\n");
    let csv = disk.csv_with(None, Some("NA"));
    let reader = reader(&csv);
    assert_eq!(all_rows(reader.as_ref()), rows(&[&["1", "-"], &["2", "40"]]));
    disk.write("id,age\n1,30\n2,NA\n3,\"NA\"\n4,\n");
    assert_eq!(all_rows(reader.as_ref()), rows(&[&["1", "30"], &["2", "-"], &["3", "-"], &["4", "-"]]));
    disk.write("id,age\n1,N/A\n");
    let number = "`people.csv` line 2, column `age`: expected an integer, such as `42`; the server's owner can correct the value, or declare another type with `as` in the manifest";
    assert_eq!(outcome_text(list(reader.as_ref(), &query_all())), number);
}

#[test]
fn a_nullable_column_may_lose_values_later() {
    let disk = TestFile::new("people.csv", FIRST);
    let csv = disk.csv();
    let mut shape = shape(&csv);
    // What `null = ""` in a manifest makes of a column.
    (shape.columns[2].null_texts, shape.columns[2].nullable) = (vec![String::new()], true);
    let reader = csv.reader(&shape).unwrap();
    disk.write("id,name,age\n1,Ann,30\n2,Bob,\n");
    assert_eq!(all_rows(reader.as_ref()), rows(&[&["1", "Ann", "30"], &["2", "Bob", "-"]]));
}

#[cfg(unix)]
#[test]
fn an_edit_with_an_older_timestamp_is_seen() {
    let (disk, _csv, reader) = open(FIRST);
    // Old enough that a recent timestamp is not the reason for reading it.
    std::thread::sleep(std::time::Duration::from_millis(120));
    assert_eq!(all_rows(reader.as_ref()).len(), 2);
    let modified = disk.path.metadata().unwrap().modified().unwrap();
    disk.write(FIRST.replace("Ann", "Eve"));
    std::fs::File::options().write(true).open(&disk.path).unwrap().set_modified(modified).unwrap();
    let after = disk.path.metadata().unwrap();
    assert_eq!((after.modified().unwrap(), after.len()), (modified, FIRST.len() as u64));
    assert_eq!(all_rows(reader.as_ref())[0][1].as_deref(), Some("Eve"));
}

#[test]
fn several_readers_share_one_file() {
    let disk = TestFile::new("people.csv", FIRST);
    let csv = disk.csv();
    let whole = shape(&csv);
    let names =
        TableShape { columns: whole.columns[1..2].to_vec(), key: Vec::new(), table: whole.table.clone() };
    let (whole, names) = (csv.reader(&whole).unwrap(), csv.reader(&names).unwrap());
    disk.write("id,name,age\n1,Cid,x\n");
    assert_eq!(all_rows(names.as_ref()), rows(&[&["Cid"]]));
    assert!(list(whole.as_ref(), &query_all()).is_err());
}

#[test]
fn a_large_csv_reloads_in_the_background() {
    let large = |name: &str| {
        let many: String = (0..60_000).map(|i| format!("{i},{name} with quite a long name {i}\n")).collect();
        format!("id,name\n{many}")
    };
    let disk = TestFile::new("people.csv", large("Ann"));
    assert!(disk.path.metadata().unwrap().len() > 2 << 20);
    let csv = disk.csv();
    let reader = reader(&csv);
    let first = || get(reader.as_ref(), &[ValueRef::Text("0")]).map(|row| row.unwrap()[1].clone().unwrap());
    // A thread may still be loading the previous version; then another loads the newest.
    let settled = || {
        for _ in 0..2 {
            first().ok();
            csv.wait_for_reload();
        }
        first()
    };
    disk.write(large("Bob"));
    // The old snapshot, or the new one if the thread was fast.
    assert!(["Ann", "Bob"].contains(&&first().unwrap()[..3]));
    assert_eq!(&settled().unwrap()[..3], "Bob");
    disk.write(large("Cid") + "0,twice\n");
    assert!(
        settled().unwrap_err().to_string().starts_with("`people.csv` lines 2 and 60002 have the same `id`")
    );
    // A small file is read at once.
    csv.wait_for_reload();
    disk.write("id,name\n0,Dan\n");
    assert_eq!(first().unwrap(), "Dan");
}

#[test]
fn the_file_is_not_checked_within_the_poll_interval() {
    let disk = TestFile::new("people.csv", FIRST);
    let csv = Csv::open(&disk.path, Options { poll_interval_ms: u64::MAX, ..Options::default() });
    let reader = reader(&csv);
    disk.write("gone");
    assert_eq!(all_rows(reader.as_ref()).len(), 2);
    // `introspect` reads the current file, and from then on all readers see it.
    assert_eq!(csv.introspect().unwrap().tables[0].columns[0].name, "gone");
    assert!(list(reader.as_ref(), &Query::default()).is_err());
}

/// Checking the file may take as long as its file system does, which must not happen on a thread that others need.
#[test]
fn an_inline_read_never_checks_the_file() {
    let file = TestFile::new("people.csv", FIRST);
    let names = |reader: &dyn Reader| {
        let mut names = Vec::new();
        let listed = reader.list_inline(&query_all(), &mut |cells, _| {
            names.extend(row(cells)[1].clone());
            RowFlow::Continue
        });
        let found =
            reader.get_inline(&[ValueRef::Integer(1)], &mut |cells| names.extend(row(cells)[1].clone()));
        match (listed, found) {
            (Ok(_), Ok(true)) => Ok(names),
            (Err(SourceError::WouldBlock), Err(SourceError::WouldBlock)) => Err(names),
            other => panic!("{other:?}"),
        }
    };
    let due = Csv::open(&file.path, Options { poll_interval_ms: 0, ..Options::default() });
    let checked = Csv::open(&file.path, Options { poll_interval_ms: 3_600_000, ..Options::default() });
    let [due, checked] = [&due, &checked].map(reader);
    assert_eq!(names(due.as_ref()), Err(Vec::new()));
    assert_eq!(names(checked.as_ref()).unwrap(), ["Ann", "Bob", "Ann"]);
    file.write("id,name,age\n1,Eve,30\n");
    assert_eq!(names(checked.as_ref()).unwrap(), ["Ann", "Bob", "Ann"]);
    assert_eq!(all_rows(due.as_ref()), rows(&[&["1", "Eve", "30"]]));
}

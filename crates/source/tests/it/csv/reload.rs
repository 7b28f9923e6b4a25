//! Files that change while they are served.

use std::sync::Arc;

use contract::source::{Query, ReadRequest, Reader, Source, SourceError, TableShape};
use contract::{DataType, ValueRef};
use source::csv::{Csv, Options};

use super::kit::{Row, TestFile, all_rows, get, list, query_all, reader, rows, shape};

const FIRST: &str = "id,name,age\n1,Ann,30\n2,Bob,40\n";

fn open(content: &str) -> (TestFile, Csv, Arc<dyn Reader>) {
    let disk = TestFile::new("people.csv", content);
    let csv = disk.csv();
    let reader = reader(&csv);
    (disk, csv, reader)
}

fn outcome_text(result: Result<(Vec<Row>, Option<u64>), SourceError>) -> String {
    match result {
        Err(SourceError::Incompatible { message: told, detail: _ }) => told,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_is_seen_by_the_next_call() {
    let (disk, _csv, reader) = open(FIRST);
    let name =
        |id| get(reader.as_ref(), &[ValueRef::Integer(id)]).unwrap().map(|row| row[1].clone().unwrap());
    assert_eq!(name(1).as_deref(), Some("Ann"));
    // As long as before, and so soon that the file's time may be the same.
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
fn columns_are_known_by_their_names() {
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
    let told = outcome_text(list(reader.as_ref(), &query_all()));
    assert_eq!(told, "`people.csv` has no column `x`; put it back, or make the contract anew");
}

#[test]
fn what_breaks_the_contract_is_told_until_it_is_right_again() {
    let table: &[(&str, &str)] = &[
        ("id,name\n1,Ann\n", "has no column `age`; put it back, or make the contract anew"),
        (
            "id,nmae,age\n1,Ann,3\n",
            "has no column `name`, but `nmae`; name it as it was, or make the contract anew",
        ),
        ("", "is empty; its first line must name the columns"),
        (
            "id,name,age\n1,Ann,30\n2,Bob,forty\n",
            "line 3, column `age`: expected a whole number, such as `42`; correct the value",
        ),
        (
            "id,name,age\n1,Ann,\n",
            "line 2, column `age`: expected a value, but there is none; fill it in, or let it be missing: \
             `null = \"\"` for this column in the manifest",
        ),
        (
            "id,name,age\n1,Ann,30\n,Bob,40\n",
            "line 3 has no `id`, which is a key; fill it in, or choose another key",
        ),
        (
            "id,name,age\n1,Ann,30\n1,Bob,40\n",
            "lines 2 and 3 have the same `id`, which is the key; change one, or choose another key",
        ),
        (
            "id,name,age\n1,Ann,30\n2,Bo",
            "line 3 has 2 fields, the header has 3; add what is missing, with `,` for each empty field",
        ),
        (
            "id,name,age\n1,\"Ann,30\n",
            "line 2 opens a quote that is never closed; close it, or write `\"\"` for a quote in a field",
        ),
        (
            "id,name,age\nx,Ann,30\n",
            "line 2, column `id`: expected a whole number, such as `42`; correct the value",
        ),
    ];
    let (disk, csv, reader) = open(FIRST);
    let expected = rows(&[&["1", "Ann", "30"], &["2", "Bob", "40"]]);
    for (content, message) in table {
        disk.write(content);
        let message = format!("`people.csv` {message}");
        assert_eq!(outcome_text(list(reader.as_ref(), &query_all())), message, "{content:?}");
        let fault = get(reader.as_ref(), &[ValueRef::Integer(1)]).expect_err("the file is still wrong");
        assert!(
            matches!(&fault, SourceError::Incompatible { message: told, .. } if *told == message),
            "{fault:?}"
        );
        assert!(reader.can_run_inline(&ReadRequest::List(&query_all())), "to say no takes no time");
        disk.write(FIRST);
        assert_eq!(all_rows(reader.as_ref()), expected, "after {content:?}");
    }
    std::fs::remove_file(&disk.path).unwrap();
    let gone = "`people.csv` is not there; check its name, or put it back";
    for fault in [list(reader.as_ref(), &query_all()).expect_err("gone"), csv.introspect().expect_err("gone")]
    {
        // Nobody knows what it holds: it may be the same when it is back.
        assert!(matches!(&fault, SourceError::Unavailable { message, .. } if message == gone), "{fault:?}");
    }
    disk.write(FIRST);
    assert_eq!(all_rows(reader.as_ref()), expected);
}

#[test]
fn a_file_may_be_written_in_pieces() {
    let (disk, _csv, reader) = open(FIRST);
    let whole = "id,name,age\n1,\"Zoë, \"\"Z\"\"\",30\n2,Łukasz,41\n";
    for length in 0..whole.len() {
        disk.write(&whole.as_bytes()[..length]);
        // Whatever it is, it is rows of the contract or a fault.
        if let Ok((rows, _)) = list(reader.as_ref(), &query_all()) {
            assert!(rows.iter().all(|row| row.len() == 3 && row[2].is_some()), "{length}");
        }
    }
    disk.write(whole);
    assert_eq!(all_rows(reader.as_ref()), rows(&[&["1", "Zoë, \"Z\"", "30"], &["2", "Łukasz", "41"]]));
}

#[test]
fn a_contract_may_be_wider_than_what_is_found() {
    let disk = TestFile::new("people.csv", "id,score,at\n1,10,NA\n2,,2026-02-28\n");
    let csv = disk.csv();
    let mut shape = shape(&csv);
    shape.columns[1].data_type = DataType::Decimal;
    shape.columns[2].data_type = DataType::Date;
    shape.columns[2].null_text = Some("NA".to_owned());
    shape.columns[2].nullable = true;
    let wide = csv.reader(&shape).unwrap();
    assert_eq!(all_rows(wide.as_ref()), rows(&[&["1", "10", "-"], &["2", "-", "2026-02-28"]]));
    disk.write("id,score,at\n1,1.5,\n");
    assert_eq!(all_rows(wide.as_ref()), rows(&[&["1", "1.5", "-"]]));
    disk.write("id,score,at\n1,1.5,soon\n");
    let date = "`people.csv` line 2, column `at`: expected a date, such as `2026-02-28`; correct the value";
    assert_eq!(outcome_text(list(wide.as_ref(), &query_all())), date);
    shape.columns[2].mixed = true;
    let mixed = csv.reader(&shape).unwrap();
    assert_eq!(all_rows(mixed.as_ref()), rows(&[&["1", "1.5", "soon"]]));
    shape.columns[2].nullable = false;
    disk.write("id,score,at\n1,1.5,NA\n");
    let Err(fault) = csv.reader(&shape) else { panic!("`NA` is no value") };
    let missing = "`people.csv` line 2, column `at`: expected a value, but there is none; fill it in, or let it be \
                   missing: `null = \"\"` for this column in the manifest";
    assert_eq!(fault.to_string(), missing);
}

#[test]
fn text_that_means_no_value_counts_after_a_change_too() {
    let disk = TestFile::new("people.csv", "id,age\n1,NA\n2,40\n");
    let csv = disk.csv_with(None, Some("NA"));
    let reader = reader(&csv);
    assert_eq!(all_rows(reader.as_ref()), rows(&[&["1", "-"], &["2", "40"]]));
    disk.write("id,age\n1,30\n2,NA\n3,\"NA\"\n4,\n");
    assert_eq!(all_rows(reader.as_ref()), rows(&[&["1", "30"], &["2", "-"], &["3", "-"], &["4", "-"]]));
    disk.write("id,age\n1,N/A\n");
    let number =
        "`people.csv` line 2, column `age`: expected a whole number, such as `42`; correct the value";
    assert_eq!(outcome_text(list(reader.as_ref(), &query_all())), number);
}

#[test]
fn a_value_may_be_missing_later_where_the_author_lets_it() {
    let disk = TestFile::new("people.csv", FIRST);
    let csv = disk.csv();
    let mut shape = shape(&csv);
    // What `null = ""` in a manifest makes of a column.
    (shape.columns[2].null_text, shape.columns[2].nullable) = (Some(String::new()), true);
    let reader = csv.reader(&shape).unwrap();
    disk.write("id,name,age\n1,Ann,30\n2,Bob,\n");
    assert_eq!(all_rows(reader.as_ref()), rows(&[&["1", "Ann", "30"], &["2", "Bob", "-"]]));
}

#[cfg(unix)]
#[test]
fn an_edit_that_sets_the_time_back_is_seen() {
    let (disk, _csv, reader) = open(FIRST);
    // Old enough that nobody looks because of the time alone.
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
fn a_large_file_is_read_behind_while_the_old_state_answers() {
    let large = |name: &str| {
        let many: String = (0..60_000).map(|i| format!("{i},{name} with quite a long name {i}\n")).collect();
        format!("id,name\n{many}")
    };
    let disk = TestFile::new("people.csv", large("Ann"));
    assert!(disk.path.metadata().unwrap().len() > 2 << 20);
    let csv = disk.csv();
    let reader = reader(&csv);
    let first = || get(reader.as_ref(), &[ValueRef::Text("0")]).map(|row| row.unwrap()[1].clone().unwrap());
    // A thread may be under way for the state before: it ends, and then one reads the newest.
    let settled = || {
        for _ in 0..2 {
            first().ok();
            csv.wait_for_reload();
        }
        first()
    };
    disk.write(large("Bob"));
    // The old state, or the new one where the thread was quick.
    assert!(["Ann", "Bob"].contains(&&first().unwrap()[..3]));
    assert_eq!(&settled().unwrap()[..3], "Bob");
    disk.write(large("Cid") + "0,twice\n");
    assert!(
        settled().unwrap_err().to_string().starts_with("`people.csv` lines 2 and 60002 have the same `id`")
    );
    // A small one is read at once.
    csv.wait_for_reload();
    disk.write("id,name\n0,Dan\n");
    assert_eq!(first().unwrap(), "Dan");
}

#[test]
fn between_two_looks_the_file_is_trusted() {
    let disk = TestFile::new("people.csv", FIRST);
    let csv = Csv::open(&disk.path, Options { poll_interval_ms: u64::MAX, ..Options::default() });
    let reader = reader(&csv);
    disk.write("gone");
    assert_eq!(all_rows(reader.as_ref()).len(), 2);
    // Who asks for facts is told what is there now, and so is everybody from then on.
    assert_eq!(csv.introspect().unwrap().tables[0].columns[0].name, "gone");
    assert!(list(reader.as_ref(), &Query::default()).is_err());
}

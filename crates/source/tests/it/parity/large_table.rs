//! A larger table in each kind of file: paged while it is written, with progress.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use contract::manifest::WorkbookFormat;
use contract::source::{
    ColumnShape, Comparison, CursorPosition, Filter, Query, Reader, RowChange, RowFlow, RowPosition, Search,
    SearchCoverage, Sort, Source, SourceError, TableShape, Total, WriteError, Writer,
};
use contract::{DataType, Value, ValueRef};
use proptest::prelude::*;
use rust_xlsxwriter::Workbook as OtherBook;
use source::csv::{self, Csv};
use source::json::{self, JsonLayout};
use source::sheets;
use source::sqlite::{self, Sqlite};
use tempfile::TempDir;

use crate::driver::WriteRow;
use crate::write_checks::{RecordingChecks, plain_write};

const KINDS: [&str; 5] = ["csv", "sqlite", "jsonl", "json", "xlsx"];
const COLUMNS: [(&str, DataType); 3] =
    [("id", DataType::Integer), ("name", DataType::Text), ("n", DataType::Integer)];

/// A table whose names derive from the row ids.
struct LargeTable {
    kind: &'static str,
    path: PathBuf,
    source: Box<dyn Source>,
    _folder: TempDir,
}

fn name(id: i64) -> String {
    format!("name {}", id * 7919 % 1009)
}

fn number(id: i64) -> i64 {
    id * 31 % 7
}

impl LargeTable {
    fn new(kind: &'static str, ids: impl Iterator<Item = i64>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("t.{kind}"));
        let ids: Vec<i64> = ids.collect();
        let source: Box<dyn Source> = match kind {
            "csv" => {
                std::fs::write(&path, csv_text(&ids)).unwrap();
                Box::new(Csv::open(&path, csv::Options { poll_interval_ms: 0, ..csv::Options::default() }))
            }
            "sqlite" => {
                fill(&path, &ids);
                Box::new(Sqlite::new(&path, sqlite::Options::default()))
            }
            "jsonl" => {
                let lines: String = ids.iter().map(|id| format!("{}\n", object(*id))).collect();
                std::fs::write(&path, lines).unwrap();
                let options = json::Options { poll_interval_ms: 0, ..json::Options::new(JsonLayout::Lines) };
                Box::new(json::open(&path, options))
            }
            "json" => {
                let objects: Vec<String> = ids.iter().map(|id| object(*id)).collect();
                std::fs::write(&path, format!("[{}]", objects.join(",\n"))).unwrap();
                let form = JsonLayout::Document { pointer: None };
                Box::new(json::open(&path, json::Options { poll_interval_ms: 0, ..json::Options::new(form) }))
            }
            "xlsx" => {
                let mut book = OtherBook::new();
                let sheet = book.add_worksheet();
                sheet.set_name("t").unwrap();
                sheet.write_row(0, 0, COLUMNS.map(|(name, _)| name)).unwrap();
                for (row, id) in (1..).zip(&ids) {
                    sheet.write_number(row, 0, *id as f64).unwrap();
                    sheet.write_string(row, 1, name(*id)).unwrap();
                    sheet.write_number(row, 2, number(*id) as f64).unwrap();
                }
                book.save(&path).unwrap();
                let options =
                    sheets::Options { poll_interval_ms: 0, ..sheets::Options::new(WorkbookFormat::Xlsx) };
                Box::new(sheets::open(&path, options))
            }
            other => unreachable!("{other}"),
        };
        Self { kind, path, source, _folder: folder }
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.source.reader(&shape()).unwrap()
    }

    fn writer(&self) -> Arc<dyn Writer> {
        self.source.writer(&shape()).unwrap()
    }
}

fn csv_text(ids: &[i64]) -> String {
    let lines = ids.iter().map(|id| format!("{id},{},{}\n", name(*id), number(*id)));
    std::iter::once("id,name,n\n".to_owned()).chain(lines).collect()
}

fn fill(path: &Path, ids: &[i64]) {
    let mut connection = rusqlite::Connection::open(path).unwrap();
    let table = "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT NOT NULL, n INTEGER NOT NULL)";
    connection.execute_batch(table).unwrap();
    let all = connection.transaction().unwrap();
    for id in ids {
        let row = rusqlite::params![id, name(*id), number(*id)];
        all.execute("INSERT INTO t VALUES(?1, ?2, ?3)", row).unwrap();
    }
    all.commit().unwrap();
}

fn object(id: i64) -> String {
    format!(r#"{{"id": {id}, "name": "{}", "n": {}}}"#, name(id), number(id))
}

fn shape() -> TableShape {
    let columns = COLUMNS.iter().enumerate().map(|(at, (name, kind))| ColumnShape {
        source_index: at,
        name: (*name).to_owned(),
        data_type: *kind,
        nullable: false,
        mixed: false,
        null_texts: Vec::new(),
        format: None,
    });
    TableShape { table: "t".to_owned(), columns: columns.collect(), key: vec![0] }
}

fn integer(cell: ValueRef<'_>) -> i64 {
    match cell {
        ValueRef::Integer(n) => n,
        ValueRef::Text(text) => text.parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The ids of all rows, page by page; calls `meanwhile` between two pages.
fn paged(
    reader: &dyn Reader,
    sort: Option<Sort>,
    rows_max: usize,
    mut meanwhile: impl FnMut(usize),
) -> Vec<i64> {
    let (mut after, mut ids): (Option<CursorPosition>, Vec<i64>) = Default::default();
    for page in 0.. {
        let before = ids.len();
        let query =
            Query { sort: sort.into_iter().collect(), after: after.as_ref(), rows_max, ..Query::default() };
        let mut last = None;
        // Retries while a writer holds the lock, as the error says.
        loop {
            let listed = reader.list(&query, &mut |cells: &[ValueRef<'_>], _: RowPosition| {
                let sorted = sort.map(|sort| cells[sort.column].to_value());
                last = Some(CursorPosition {
                    sort_values: sorted.into_iter().collect(),
                    key: vec![Value::Integer(integer(cells[0]))],
                });
                ids.push(integer(cells[0]));
                if ids.len() - before == rows_max { RowFlow::Stop } else { RowFlow::Continue }
            });
            match listed {
                Err(SourceError::Busy { .. }) => ids.truncate(before),
                listed => {
                    listed.unwrap();
                    break;
                }
            }
        }
        if ids.len() == before {
            break;
        }
        after = last;
        meanwhile(page);
    }
    ids
}

/// Rows that no writer touches. The writers use ids that are not multiples of three.
fn untouched() -> impl Iterator<Item = i64> {
    (0..90).step_by(3)
}

fn is_untouched(id: i64) -> bool {
    id % 3 == 0
}

#[derive(Debug, Clone, Copy)]
enum RowOperation {
    Create(i64),
    Update(i64, i64),
    Delete(i64),
}

fn row_operation() -> impl Strategy<Value = RowOperation> {
    let id = (0..90_i64).prop_map(|id| if is_untouched(id) { id + 1 } else { id });
    (0..3_u8, id, 0..9_i64).prop_map(|(what, id, n)| match what {
        0 => RowOperation::Create(id),
        1 => RowOperation::Update(id, n),
        _ => RowOperation::Delete(id),
    })
}

/// Applies an operation with the source's own writer. A missing or existing row does not matter.
fn apply_with_writer(writer: &dyn Writer, operation: RowOperation) {
    let text;
    let (key, cells);
    let change = match operation {
        RowOperation::Create(id) => {
            text = name(id);
            cells = vec![
                (0, ValueRef::Integer(id)),
                (1, ValueRef::Text(&text)),
                (2, ValueRef::Integer(number(id))),
            ];
            RowChange::Create { values: &cells }
        }
        RowOperation::Update(id, n) => {
            (key, cells) = ([ValueRef::Integer(id)], vec![(2, ValueRef::Integer(n))]);
            RowChange::Update { key: &key, values: &cells }
        }
        RowOperation::Delete(id) => {
            key = [ValueRef::Integer(id)];
            RowChange::Delete { key: &key }
        }
    };
    match writer.write(&plain_write(change), &mut RecordingChecks::default()) {
        Ok(_) | Err(WriteError::AlreadyExists | WriteError::NotFound) => {}
        Err(error) => panic!("{operation:?}: {error}"),
    }
}

/// Applies an operation as another program would: by SQL, or in a text editor.
fn apply_externally(many: &LargeTable, operation: RowOperation) {
    if many.kind == "sqlite" {
        let connection = rusqlite::Connection::open(&many.path).unwrap();
        let (id, n) = match operation {
            RowOperation::Create(id) | RowOperation::Delete(id) => (id, number(id)),
            RowOperation::Update(id, n) => (id, n),
        };
        let sql = match operation {
            RowOperation::Create(_) => "INSERT OR REPLACE INTO t VALUES(?1, ?3, ?2)",
            RowOperation::Update(..) => "UPDATE t SET n = ?2 WHERE id = ?1 AND ?3 <> ''",
            RowOperation::Delete(_) => "DELETE FROM t WHERE id = ?1 AND ?2 > -1 AND ?3 <> ''",
        };
        connection.execute(sql, rusqlite::params![id, n, name(id)]).unwrap();
        return;
    }
    let text = std::fs::read_to_string(&many.path).unwrap();
    let is_of = |line: &&str, id: i64| line.starts_with(&format!("{id},"));
    let edited: String = match operation {
        RowOperation::Create(id) if text.lines().any(|line| is_of(&line, id)) => return,
        RowOperation::Create(id) => {
            // In the middle, so that positions in the file shift.
            let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
            lines.insert(1 + lines.len() / 2, format!("{id},{},{}\n", name(id), number(id)));
            lines.concat()
        }
        RowOperation::Update(id, n) => {
            let change = |line: &str| match is_of(&line, id) {
                true => format!("{id},{},{n}\n", name(id)),
                false => format!("{line}\n"),
            };
            text.lines().map(change).collect()
        }
        RowOperation::Delete(id) => {
            text.lines().filter(|line| !is_of(line, id)).map(|line| format!("{line}\n")).collect()
        }
    };
    std::fs::write(&many.path, edited).unwrap();
}

/// Checks that each untouched row occurs once, in order.
fn check(kind: &str, sort: Option<Sort>, ids: &[i64]) {
    let seen: Vec<i64> = ids.iter().copied().filter(|id| is_untouched(*id)).collect();
    let mut expected: Vec<i64> = untouched().collect();
    if let Some(Sort { column, descending }) = sort {
        let order = |a: &i64, b: &i64| match column {
            1 => name(*a).cmp(&name(*b)),
            _ => number(*a).cmp(&number(*b)),
        };
        expected.sort_by(|a, b| if descending { order(b, a) } else { order(a, b) });
    }
    assert_eq!(seen, expected, "{kind} {sort:?}");
}

fn sort() -> impl Strategy<Value = Option<Sort>> {
    prop::option::of((1..3_usize, any::<bool>()).prop_map(|(column, descending)| Sort { column, descending }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn pages_have_every_untouched_row_once_while_others_are_written(
        sort in sort(),
        rows_max in 1..9_usize,
        deeds in prop::collection::vec(prop::collection::vec((row_operation(), any::<bool>()), 0..3), 1..12),
    ) {
        for kind in KINDS {
            let many = LargeTable::new(kind, (0..90).filter(|id| is_untouched(*id) || id % 2 == 0));
            let (reader, writer) = (many.reader(), many.writer());
            let ids = paged(reader.as_ref(), sort, rows_max, |page| {
                for (operation, is_theirs) in deeds.get(page).into_iter().flatten() {
                    if *is_theirs && ["csv", "sqlite"].contains(&kind) {
                        apply_externally(&many, *operation);
                    } else {
                        apply_with_writer(writer.as_ref(), *operation);
                    }
                }
            });
            check(kind, sort, &ids);
        }
    }
}

#[test]
fn pages_have_every_untouched_row_once_under_constant_writes() {
    for kind in KINDS {
        let many = LargeTable::new(kind, (0..90).filter(|id| is_untouched(*id) || id % 2 == 0));
        let (reader, writer) = (many.reader(), many.writer());
        let (is_done, writes) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let ids = (0..90).filter(|id| !is_untouched(*id)).cycle();
                let deeds = ids.flat_map(|id| {
                    [RowOperation::Delete(id), RowOperation::Create(id), RowOperation::Update(id, id % 9)]
                });
                for operation in deeds {
                    if is_done.load(Ordering::Relaxed) {
                        break;
                    }
                    apply_with_writer(writer.as_ref(), operation);
                    writes.fetch_add(1, Ordering::Relaxed);
                }
            });
            let _done = SetOnDrop(&is_done);
            for (column, descending) in [(1, false), (2, true), (2, false)] {
                for sort in [None, Some(Sort { column, descending })] {
                    let before = writes.load(Ordering::Relaxed);
                    // Each page waits until something was written since the previous one.
                    let ids = paged(reader.as_ref(), sort, 7, |page| {
                        while writes.load(Ordering::Relaxed) < before + page as u64 {
                            std::thread::yield_now();
                        }
                    });
                    check(kind, sort, &ids);
                }
            }
        });
    }
}

/// Set when dropped, so that a failed test does not wait for its writer.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const ROWS: i64 = 9_000;

#[test]
fn progress_counts_scanned_rows() {
    for kind in KINDS {
        let many = LargeTable::new(kind, 0..ROWS);
        let reader = many.reader();
        let progress = AtomicU64::new(0);
        let scanned = || progress.swap(0, Ordering::Relaxed);
        let mut seen = 0;
        let query = Query { rows_max: 20_000, progress: Some(&progress), ..Query::default() };
        let listed = reader.list(&query, &mut |_, _| {
            seen += 1;
            RowFlow::Continue
        });
        assert_eq!((listed.unwrap(), seen), (Some(Total::Exact(ROWS as u64)), ROWS), "{kind}");
        // Building an order first takes another pass over the rows.
        let rows = ROWS as u64;
        let count = scanned();
        assert!(count == rows || count == 2 * rows, "{kind}: {count}");

        // During the scan, not only at its end.
        let mut on_the_way = 0;
        let search = Search {
            terms: vec!["name"],
            columns: &[1],
            filters: Vec::new(),
            after: None,
            rows_max: 20_000,
            scan_rows_max: 20_000,
            cancelled: None,
            progress: Some(&progress),
        };
        let searched = reader.search(&search, &mut |_, _| {
            on_the_way = on_the_way.max(progress.load(Ordering::Relaxed));
            RowFlow::Continue
        });
        assert_eq!((searched.unwrap().coverage, scanned()), (SearchCoverage::Complete, rows), "{kind}");
        assert!(on_the_way >= 4096, "{kind}: {on_the_way}");

        // Rows that do not pass the filter count too, if this crate does the scan.
        let filters = vec![Filter::new(1, Comparison::Equals, ValueRef::Text("nobody"))];
        let query = Query { filters, rows_max: 10, progress: Some(&progress), ..Query::default() };
        reader.list(&query, &mut |_, _| RowFlow::Continue).unwrap();
        let count = scanned();
        assert!(kind == "sqlite" || count >= rows, "{kind}: {count}");

        // A lookup by key reports no progress.
        assert!(reader.get(&[ValueRef::Integer(7)], &mut |_| {}).unwrap());
        assert_eq!(scanned(), 0, "{kind}");
    }
}

//! Filters, sorting, paging and search over records.

use std::sync::atomic::{AtomicBool, Ordering};

use contract::ValueRef;
use contract::source::{
    CancelFlag, Comparison, CursorPosition, Filter, Query, ReadRequest, RowChange, RowFlow, Search,
    SearchCoverage, Sort, Source, SourceError, TableShape, Total,
};
use source::json::JsonLayout;

use super::kit::{TestFile, list, page, pages, plain_write, query_all, reader, recording_checks, shape};
use crate::driver::WriteRow;

fn ids(rows: &[String]) -> String {
    let id = |row: &String| row[6..].split([',', '}']).next().unwrap().to_owned();
    rows.iter().map(id).collect::<Vec<_>>().join(" ")
}

#[test]
fn values_sort_by_type_and_nulls_come_last() {
    for (values, expected) in [
        (["10", "9", "null", "-3"], ["3 1 0 2", "0 1 3 2"]),
        (["1.5", "1e1", "null", "-0.0"], ["3 0 1 2", "1 0 3 2"]),
        (["12.50", "9.99", "100", "null"], ["1 0 2 3", "2 0 1 3"]),
        (["9007199254740993", "9007199254740992", "0.5", "9007199254740994"], ["2 1 0 3", "3 0 1 2"]),
        (["true", "false", "true", "null"], ["1 0 2 3", "0 2 1 3"]),
        ([r#""b""#, r#""B""#, "null", r#""é""#], ["1 0 3 2", "3 0 1 2"]),
        (["5", r#""n/a""#, "7", "null"], ["0 2 1 3", "1 2 0 3"]),
        (
            [
                r#""2026-02-11T10:00:00+02:00""#,
                r#""2026-02-11T09:00:00Z""#,
                "null",
                r#""2026-02-11T08:30:00Z""#,
            ],
            ["0 3 1 2", "1 3 0 2"],
        ),
    ] {
        let lines: Vec<String> =
            (0..).zip(values).map(|(i, v)| format!("{{\"id\":{i},\"v\":{v}}}")).collect();
        let disk = TestFile::new(JsonLayout::Lines, lines.join("\n"));
        let json = disk.json();
        let keyed = shape(&json);
        assert_eq!(keyed.key, [0]);
        for shape in [keyed.clone(), TableShape { key: Vec::new(), ..keyed }] {
            let reader = reader(&json, &shape);
            for (descending, expected) in [(false, expected[0]), (true, expected[1])] {
                let sort = Some(Sort { column: 1, descending });
                let (rows, _) =
                    list(reader.as_ref(), &shape, &Query { sort: sort.into_iter().collect(), ..query_all() })
                        .unwrap();
                assert_eq!(ids(&rows), expected, "{values:?} {descending}");
                let paged = pages(
                    reader.as_ref(),
                    &shape,
                    &Query { sort: sort.into_iter().collect(), rows_max: 1, ..Query::default() },
                    || {},
                );
                assert_eq!(paged, rows, "{values:?} {descending}");
            }
        }
    }
}

#[test]
fn filters_compare_values_by_type() {
    let lines = [
        r#"{"id":0,"n":5,"d":12.50,"b":true,"t":"x","m":7}"#,
        r#"{"id":1,"n":10,"d":9.99,"b":false,"t":"y","m":"7"}"#,
        r#"{"id":2,"d":1.5,"t":"x","m":8}"#,
    ];
    let disk = TestFile::new(JsonLayout::Lines, lines.join("\n"));
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    for (column, test, value, expected) in [
        (1, Comparison::Equals, ValueRef::Integer(5), "0"),
        (1, Comparison::AtLeast, ValueRef::Integer(6), "1"),
        (1, Comparison::AtMost, ValueRef::Integer(10), "0 1"),
        (1, Comparison::Equals, ValueRef::Null, ""),
        (2, Comparison::Equals, ValueRef::Text("12.5"), "0"),
        (2, Comparison::Equals, ValueRef::Text("1.500"), "2"),
        (2, Comparison::AtLeast, ValueRef::Text("9.99"), "0 1"),
        (3, Comparison::Equals, ValueRef::Integer(1), "0"),
        (3, Comparison::Equals, ValueRef::Integer(0), "1"),
        (4, Comparison::Equals, ValueRef::Text("x"), "0 2"),
        (5, Comparison::Equals, ValueRef::Integer(7), "0 1"),
    ] {
        let query = || Query { filters: vec![Filter::new(column, test, value)], ..query_all() };
        let (rows, total) = list(reader.as_ref(), &shape, &query()).unwrap();
        assert_eq!(ids(&rows), expected, "{column} {test:?} {value:?}");
        assert_eq!(total, Some(rows.len() as u64));
        let paged = pages(reader.as_ref(), &shape, &Query { rows_max: 1, ..query() }, || {});
        assert_eq!(paged, rows);
    }
}

#[test]
fn a_cursor_without_a_key_is_valid_only_for_the_same_contents() {
    let disk = TestFile::new(JsonLayout::Lines, "{\"n\":5}\n{\"n\":5}\n{\"n\":7}");
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    let (rows, last) = page(reader.as_ref(), &shape, &Query { rows_max: 2, ..Query::default() });
    assert_eq!(rows, [r#"{"n":5}"#; 2]);
    let after = last.unwrap();
    let next = || list(reader.as_ref(), &shape, &Query { after: Some(&after), ..query_all() });
    assert_eq!(next().unwrap().0, [r#"{"n":7}"#]);
    disk.write("{\"n\":5}\n{\"n\":5}\n{\"n\":8}");
    assert!(matches!(next(), Err(SourceError::StaleCursor)));
    disk.write("{\"n\":5}\n{\"n\":5}\n{\"n\":7}");
    assert_eq!(next().unwrap().0, [r#"{"n":7}"#]);
    for key in [vec![], after.key[..1].to_vec()] {
        let after = CursorPosition { sort_values: Vec::new(), key };
        let query = Query { after: Some(&after), ..query_all() };
        assert!(matches!(list(reader.as_ref(), &shape, &query), Err(SourceError::StaleCursor)));
    }
}

#[test]
fn a_scan_stops_when_the_caller_has_enough_or_cancels() {
    let disk = TestFile::new(JsonLayout::Lines, "{\"id\":1}\n{\"id\":2}\n{\"id\":3}");
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    let mut seen = 0;
    let total = reader.list(&query_all(), &mut |_, _| {
        seen += 1;
        if seen == 2 { RowFlow::Stop } else { RowFlow::Continue }
    });
    assert_eq!((total.unwrap(), seen), (Some(Total::Exact(3)), 2));
    let stop = CancelFlag::new(AtomicBool::new(true));
    let query = Query { cancelled: Some(&stop), ..query_all() };
    assert!(matches!(list(reader.as_ref(), &shape, &query), Err(SourceError::Cancelled)));
    assert!(
        reader.can_run_inline(&ReadRequest::Get) && reader.can_run_inline(&ReadRequest::List(&query_all()))
    );
}

#[test]
fn a_read_may_run_inline_if_it_touches_few_rows() {
    let lines: String = (0..5000).map(|i| format!("{{\"id\":{i},\"n\":{}}}\n", i % 7)).collect();
    let disk = TestFile::new(JsonLayout::Lines, lines);
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    let page = || Query { rows_max: 50, ..Query::default() };
    assert!(!reader.can_run_inline(&ReadRequest::List(&page())), "the order of the key is not there yet");
    list(reader.as_ref(), &shape, &page()).unwrap();
    assert!(
        reader.can_run_inline(&ReadRequest::List(&page()))
            && !reader.can_run_inline(&ReadRequest::List(&query_all()))
    );
    let five = vec![Filter::new(1, Comparison::Equals, ValueRef::Integer(5))];
    assert!(!reader.can_run_inline(&ReadRequest::List(&Query { filters: five, ..page() })));
}

#[test]
fn a_selective_filter_finds_all_rows_in_order() {
    let lines: String = (0..30_000).rev().map(|i| format!("{{\"id\":{i},\"n\":{}}}\n", i % 1000)).collect();
    let disk = TestFile::new(JsonLayout::Lines, lines);
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    let query =
        || Query { filters: vec![Filter::new(1, Comparison::Equals, ValueRef::Integer(999))], ..query_all() };
    let expected = (0..30).map(|i| (i * 1000 + 999).to_string()).collect::<Vec<_>>().join(" ");
    let (rows, total) = list(reader.as_ref(), &shape, &query()).unwrap();
    assert_eq!((ids(&rows), total), (expected.clone(), Some(30)));
    let paged = pages(reader.as_ref(), &shape, &Query { rows_max: 7, ..query() }, || {});
    assert_eq!(ids(&paged), expected);
}

#[test]
fn a_search_finds_records_with_every_term() {
    let lines = [
        r#"{"id":1,"name":"Ann Größe","note":"likes TEA","n":42}"#,
        r#"{"id":2,"name":"Bob","note":null,"n":7}"#,
        r#"{"id":3,"name":"ann","note":"coffee","n":142}"#,
    ];
    let disk = TestFile::new(JsonLayout::Lines, lines.join("\n"));
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    let search = |words: &[&str], columns: &[usize], rows_max: usize, scan_rows_max: usize| {
        let search = Search {
            terms: words.to_vec(),
            columns,
            filters: Vec::new(),
            after: None,
            rows_max,
            scan_rows_max,
            cancelled: None,
            progress: None,
        };
        let mut rows = Vec::new();
        let searched = reader.search(&search, &mut |cells, _| {
            rows.push(super::kit::row_json(&shape, cells));
            RowFlow::Continue
        });
        (ids(&rows), searched.unwrap().coverage)
    };
    for (words, columns, expected) in [
        (&["ann"][..], &[1, 2][..], "1 3"),
        (&["ANN", "tea"], &[1, 2], "1"),
        (&["grösse"], &[1], ""),
        (&["GRÖẞE"], &[1], "1"),
        (&["tea"], &[1], ""),
        (&["42"], &[3], "1 3"),
        (&["b"], &[1, 2], "2"),
        (&["zzz"], &[1, 2, 3], ""),
    ] {
        assert_eq!(
            search(words, columns, 10, 10),
            (expected.to_owned(), SearchCoverage::Complete),
            "{words:?}"
        );
    }
    assert_eq!(search(&["ann"], &[1], 1, 10), ("1".to_owned(), SearchCoverage::Complete));
    assert_eq!(search(&["ann"], &[1], 10, 2), ("1".to_owned(), SearchCoverage::Truncated));
    assert_eq!(search(&["ann"], &[1], 10, 3), ("1 3".to_owned(), SearchCoverage::Complete));
    // A full page does not make up for rows that were not searched: they are missing from the total.
    assert_eq!(search(&["ann"], &[1], 1, 1), ("1".to_owned(), SearchCoverage::Truncated));
    let stop = CancelFlag::new(AtomicBool::new(true));
    let gone = Search {
        terms: vec!["a"],
        columns: &[1],
        filters: Vec::new(),
        after: None,
        rows_max: 1,
        scan_rows_max: 1,
        cancelled: Some(&stop),
        progress: None,
    };
    assert!(matches!(reader.search(&gone, &mut |_, _| RowFlow::Continue), Err(SourceError::Cancelled)));
}

#[test]
fn paging_continues_while_others_write() {
    const ROWS: i64 = 40;
    let lines: String = (0..ROWS).map(|id| format!("{{\"id\":{id},\"n\":{}}}\n", id % 5)).collect();
    let disk = TestFile::new(JsonLayout::Lines, lines);
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let writer = json.writer(&shape).unwrap();
            // Records with odd ids are removed, added again, and changed.
            for round in 0..30 {
                let id = (round * 7 % ROWS) | 1;
                let (key, n) = ([ValueRef::Integer(id)], [(1, ValueRef::Integer(round))]);
                let new = [(0, ValueRef::Integer(id)), (1, ValueRef::Integer(round))];
                for change in [
                    RowChange::Update { key: &key, values: &n },
                    RowChange::Delete { key: &key },
                    RowChange::Create { values: &new },
                ] {
                    writer.write(&plain_write(change), &mut recording_checks(&shape)).unwrap();
                }
            }
            is_done.store(true, Ordering::SeqCst);
        });
        let mut is_last = false;
        while !is_last {
            is_last = is_done.load(Ordering::SeqCst) || writing.is_finished();
            for sort in [None, Some(Sort { column: 1, descending: true })] {
                let read = pages(
                    reader.as_ref(),
                    &shape,
                    &Query { sort: sort.into_iter().collect(), rows_max: 3, ..Query::default() },
                    || {},
                );
                for id in (0..ROWS).step_by(2) {
                    let row = format!("{{\"id\":{id},\"n\":{}}}", id % 5);
                    assert_eq!(read.iter().filter(|one| **one == row).count(), 1, "{id}");
                }
            }
        }
    });
}

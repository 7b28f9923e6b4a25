//! Search by scanning rows.

use std::sync::atomic::AtomicBool;

use contract::source::{CancelFlag, RowFlow, Search, SearchCoverage, SourceError};

use super::kit::{TestFile, reader, shape};
use contract::source::Source;

const PEOPLE: &str = "id,name,note\n1,Ann Smith,\"likes \"\"Rust\"\"\"\n2,JOANNA,NA\n3,Zoë,smith & co\n4,,\n";

fn search(
    words: &[&str],
    columns: &[usize],
    rows_max: usize,
    scan_rows_max: usize,
) -> (Vec<String>, SearchCoverage) {
    let disk = TestFile::new("people.csv", PEOPLE);
    let csv = disk.csv_with(None, Some("NA"));
    let reader = reader(&csv);
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
    let mut found = Vec::new();
    let searched = reader.search(&search, &mut |cells, _| {
        found.push(super::kit::row(cells)[0].clone().unwrap());
        RowFlow::Continue
    });
    (found, searched.unwrap().coverage)
}

#[test]
fn every_term_must_match_one_of_the_columns() {
    let check = |words: &[&str], columns: &[usize], expected: &[&str]| {
        assert_eq!(
            search(words, columns, 10, 10),
            (expected.iter().map(|id| (*id).to_owned()).collect(), SearchCoverage::Complete)
        );
    };
    check(&["ann"], &[1, 2], &["1", "2"]);
    check(&["SMITH"], &[1, 2], &["1", "3"]);
    check(&["SMITH"], &[1], &["1"]);
    check(&["SMITH"], &[2, 1], &["1", "3"]);
    check(&["zoË", "smith"], &[1, 2], &["3"]);
    check(&["\"rust\""], &[2], &["1"]);
    check(&["3"], &[0], &["3"]);
    // A missing value has no text.
    check(&["na"], &[2], &[]);
    check(&["nobody"], &[0, 1, 2], &[]);
    check(&["ann"], &[], &[]);
}

#[test]
fn a_search_is_bounded() {
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    assert_eq!(search(&["n"], &[1], 1, 10), (ids(&["1"]), SearchCoverage::Complete));
    assert_eq!(search(&["n"], &[1], 10, 1), (ids(&["1"]), SearchCoverage::Truncated));
    assert_eq!(search(&["n"], &[1], 10, 4), (ids(&["1", "2"]), SearchCoverage::Complete));
    // A full page does not make up for rows that were not searched: they are missing from the total.
    assert_eq!(search(&["n"], &[1], 1, 1), (ids(&["1"]), SearchCoverage::Truncated));
    assert_eq!(search(&["n"], &[1], 10, 0), (ids(&[]), SearchCoverage::Truncated));
    let disk = TestFile::new("people.csv", PEOPLE);
    let csv = disk.csv();
    let reader = csv.reader(&shape(&csv)).unwrap();
    let mut search = Search {
        terms: vec!["n"],
        columns: &[1],
        filters: Vec::new(),
        after: None,
        rows_max: 10,
        scan_rows_max: 10,
        cancelled: None,
        progress: None,
    };
    let mut rows = 0;
    let enough = reader.search(&search, &mut |_, _| {
        rows += 1;
        RowFlow::Stop
    });
    assert_eq!((enough.unwrap().coverage, rows), (SearchCoverage::Complete, 1));
    let stop = CancelFlag::new(AtomicBool::new(true));
    search.cancelled = Some(&stop);
    assert!(matches!(reader.search(&search, &mut |_, _| RowFlow::Continue), Err(SourceError::Cancelled)));
}

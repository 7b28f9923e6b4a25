//! Search with filters, page by page: every kind of file finds the same rows, each once.

use contract::order::matches_filter;
use contract::source::{
    CursorPosition, Filter, Reader, RowFlow, RowPosition, Search, SearchCoverage, SearchCursor, SourceError,
    TableShape, Total,
};
use contract::{Value, ValueRef};

use super::data::{self, COLUMNS, ROWS};
use super::{differences, fixtures, queries, row_json, rows_with_terms};

fn search_of<'a>(terms: &[&'a str], columns: &'a [usize], filters: &[Filter<'a>]) -> Search<'a> {
    Search {
        terms: terms.to_vec(),
        columns,
        filters: filters.to_vec(),
        after: None,
        rows_max: 1000,
        scan_rows_max: 1000,
        cancelled: None,
        progress: None,
    }
}

/// All rows of a search, page by page, as a server asks for them: each page with one row more than it shows, to know
/// whether there are more.
fn pages(
    reader: &dyn Reader,
    shape: &TableShape,
    search: &Search<'_>,
    page_rows: usize,
) -> (Vec<String>, Vec<Total>) {
    let (mut after, mut rows, mut totals): (Option<CursorPosition>, Vec<String>, Vec<Total>) =
        Default::default();
    loop {
        let before = rows.len();
        let page = Search {
            filters: search.filters.clone(),
            after: after.as_ref(),
            rows_max: page_rows + 1,
            ..search_of(&search.terms, search.columns, &[])
        };
        let (mut last, mut has_more) = (None, false);
        let outcome = reader.search(&page, &mut |cells, place: RowPosition| {
            if rows.len() - before == page_rows {
                has_more = true;
                return RowFlow::Stop;
            }
            let key: Vec<Value> = match &shape.key[..] {
                [] => vec![Value::Integer(place.row_number), Value::Integer(place.table_version)],
                key => key.iter().map(|at| cells[*at].to_value()).collect(),
            };
            last = Some((key, place.row_number));
            rows.push(row_json(cells));
            RowFlow::Continue
        });
        let outcome = outcome.unwrap();
        assert_eq!(outcome.coverage, SearchCoverage::Complete);
        totals.push(outcome.total);
        let Some((key, number)) = last.filter(|_| has_more) else { return (rows, totals) };
        after = Some(match outcome.cursor {
            SearchCursor::Row => CursorPosition { sort_values: Vec::new(), key },
            SearchCursor::Position => {
                CursorPosition { sort_values: vec![Value::Integer(number)], key: Vec::new() }
            }
        });
    }
}

#[test]
fn every_kind_of_file_finds_the_same_rows_with_filters_page_by_page() {
    let filters = queries::filters();
    for made in fixtures::all() {
        let mut found = 0;
        for is_keyed in [true, false] {
            let shape = data::shape(is_keyed);
            let reader = made.source.reader(&shape).unwrap();
            for (at, (terms, columns)) in queries::searches().iter().enumerate() {
                let by_rule = rows_with_terms(terms, columns);
                let places =
                    differences::search_result(made.name, terms).map_or(&by_rule[..], |(places, _)| places);
                for (number, filters) in filters.iter().enumerate() {
                    let passes = |at: &&usize| {
                        filters.iter().all(|filter| {
                            let kind = COLUMNS[filter.column].kind;
                            matches_filter(
                                kind,
                                made.row(**at)[filter.column],
                                filter.comparison,
                                filter.value,
                            )
                        })
                    };
                    let mut expected: Vec<String> =
                        places.iter().filter(passes).map(|at| row_json(&made.row(*at))).collect();
                    let page_rows = [1, 2, 3, 100][(at + number) % 4];
                    let search = search_of(terms, columns, filters);
                    let (mut rows, totals) = pages(reader.as_ref(), &shape, &search, page_rows);
                    let what = || format!("{} {terms:?} {columns:?} {filters:?} {page_rows}", made.name);
                    // With an index, the best matches come first.
                    rows.sort_unstable();
                    expected.sort_unstable();
                    assert_eq!(rows, expected, "{}", what());
                    let count = Total::Exact(expected.len() as u64);
                    assert!(totals.iter().all(|total| *total == count), "{}: {totals:?}", what());
                    found += rows.len();
                }
            }
        }
        assert!(found > ROWS.len(), "{}: the searches find something", made.name);
    }
}

#[test]
fn a_cursor_of_something_else_is_stale() {
    let cursor = |sort_values: &[Value], key: &[Value]| CursorPosition {
        sort_values: sort_values.to_vec(),
        key: key.to_vec(),
    };
    for made in fixtures::all() {
        for is_keyed in [true, false] {
            let reader = made.source.reader(&data::shape(is_keyed)).unwrap();
            let invalid = [
                cursor(&[], &[]),
                cursor(&[Value::Text("x".into()), Value::Null], &[Value::Integer(7)]),
                cursor(&[], &[Value::Integer(1), Value::Integer(2), Value::Integer(3)]),
            ];
            for after in &invalid {
                let search = Search { after: Some(after), ..search_of(&["red"], &[1], &[]) };
                let outcome = reader.search(&search, &mut |_, _| RowFlow::Continue);
                assert!(
                    matches!(outcome, Err(SourceError::StaleCursor)),
                    "{} {after:?} {is_keyed}: {outcome:?}",
                    made.name
                );
            }
        }
    }
}

#[test]
fn a_filter_narrows_what_is_counted_and_not_how_far_is_searched() {
    for made in fixtures::all() {
        let reader = made.source.reader(&data::shape(true)).unwrap();
        let red = Filter::new(1, contract::source::Comparison::Equals, ValueRef::Text("red"));
        let search = Search { scan_rows_max: 3, ..search_of(&["text"], &[8], &[red]) };
        let outcome = reader.search(&search, &mut |_, _| RowFlow::Continue).unwrap();
        // An index need not scan.
        let is_indexed = made.name.contains("indexed");
        let expected = if is_indexed { SearchCoverage::Complete } else { SearchCoverage::Truncated };
        assert_eq!(outcome.coverage, expected, "{}", made.name);
        assert!(
            matches!((outcome.total, is_indexed), (Total::Exact(2), true) | (Total::AtLeast(_), false)),
            "{}",
            made.name
        );
    }
}

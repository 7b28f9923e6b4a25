//! The same queries get the same answers from every kind of source.
//!
//! [`data`] is one table, [`fixtures`] are the kinds of files and databases that can hold it, and [`queries`] are run
//! against each of them. The expected answers follow from the rules of the contract alone. A new kind of source
//! needs a fixture. Where one answers differently, [`differences`] says so, with the reason.
//! [`large_table`] is read in pages while it is written.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod aggregates;
mod data;
mod differences;
mod fixtures;
mod large_table;
mod linked;
mod queries;
mod searches;

use std::any::Any;
use std::cmp::Ordering;

use contract::field::Field;
use contract::order::{compare, matches_filter};
use contract::source::{
    Comparison, CursorPosition, Filter, Query, Reader, RowFlow, RowPosition, Search, SearchCoverage, Sort,
    Source, TableShape, Total,
};
use contract::{Value, ValueRef};

use data::{COLUMNS, ROWS};

/// A source that holds the table.
pub struct TestSource {
    pub name: &'static str,
    pub source: Box<dyn Source>,
    /// The folder or database, as long as it is needed.
    pub _place: Box<dyn Any>,
}

impl TestSource {
    /// The text of a value, as the source spells it.
    fn text(&self, at: usize, column: usize) -> Option<&'static str> {
        let text = ROWS[at][column]?;
        Some(
            differences::spelling(self.name, COLUMNS[column].name, text).map_or(text, |(spelled, _)| spelled),
        )
    }

    fn row(&self, at: usize) -> Vec<ValueRef<'static>> {
        (0..COLUMNS.len()).map(|column| cell(self.text(at, column))).collect()
    }
}

/// A row as a result contains it.
fn row_json(cells: &[ValueRef<'_>]) -> String {
    let members = COLUMNS.iter().zip(cells).map(|(column, cell)| {
        let mut field = Field::new(column.name, column.name, column.kind);
        field.nullable = column.nullable;
        let mut out = Vec::new();
        field.write_member(&mut out, *cell).unwrap_or_else(|_| panic!("`{}`: {cell:?}", column.name));
        String::from_utf8(out).unwrap()
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn cell(text: Option<&'static str>) -> ValueRef<'static> {
    text.map_or(ValueRef::Null, ValueRef::Text)
}

/// Compares two rows. Without a key, rows that the sort leaves equal stay in table order.
fn compare_rows(made: &TestSource, a: usize, b: usize, sort: Option<Sort>, is_keyed: bool) -> Ordering {
    let by = |column: usize, descending: bool| match (cell(made.text(a, column)), cell(made.text(b, column)))
    {
        (ValueRef::Null, ValueRef::Null) => Ordering::Equal,
        (ValueRef::Null, _) => Ordering::Greater,
        (_, ValueRef::Null) => Ordering::Less,
        (a, b) if descending => compare(COLUMNS[column].kind, b, a),
        (a, b) => compare(COLUMNS[column].kind, a, b),
    };
    let sorted = sort.map_or(Ordering::Equal, |sort| by(sort.column, sort.descending));
    let is_keyed = is_keyed || differences::orders_by_values(made.name).is_some();
    sorted.then_with(|| if is_keyed { by(0, false) } else { Ordering::Equal })
}

fn expected(made: &TestSource, filters: &[Filter<'_>], sort: Option<Sort>, is_keyed: bool) -> Vec<String> {
    let is_in = |at: &usize| {
        filters.iter().all(|filter| {
            matches_filter(
                COLUMNS[filter.column].kind,
                made.row(*at)[filter.column],
                filter.comparison,
                filter.value,
            )
        })
    };
    let mut places: Vec<usize> = (0..ROWS.len()).filter(is_in).collect();
    places.sort_by(|a, b| compare_rows(made, *a, *b, sort, is_keyed));
    places.into_iter().map(|at| row_json(&made.row(at))).collect()
}

/// All rows that pass, page by page, and the totals that were reported.
fn pages(reader: &dyn Reader, shape: &TableShape, query: &Query<'_>) -> (Vec<String>, Vec<u64>) {
    let (mut after, mut rows, mut totals): (Option<CursorPosition>, Vec<String>, Vec<u64>) =
        Default::default();
    loop {
        let before = rows.len();
        let query = Query {
            filters: query.filters.clone(),
            after: after.as_ref(),
            sort: query.sort.clone(),
            sort_links: query.sort_links.clone(),
            cancelled: None,
            ..*query
        };
        let mut last = None;
        let total = reader.list(&query, &mut |cells, place: RowPosition| {
            let key = match &shape.key[..] {
                [] => vec![Value::Integer(place.row_number), Value::Integer(place.table_version)],
                key => key.iter().map(|at| cells[*at].to_value()).collect(),
            };
            last = Some(CursorPosition {
                sort_values: query
                    .sorts()
                    .iter()
                    .map(|by| {
                        let column = by.sort.column;
                        by.value(shape.columns[column].data_type, cells[column]).to_value()
                    })
                    .collect(),
                key,
            });
            rows.push(row_json(cells));
            if rows.len() - before == query.rows_max { RowFlow::Stop } else { RowFlow::Continue }
        });
        totals.extend(total.unwrap().and_then(Total::exact));
        if rows.len() == before {
            return (rows, totals);
        }
        after = last;
    }
}

#[test]
fn every_kind_of_file_finds_the_same_facts() {
    for made in fixtures::all() {
        let facts = made.source.introspect().unwrap();
        let table = facts.tables.into_iter().find(|table| table.name == data::TABLE).unwrap();
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, COLUMNS.map(|column| column.name), "{}", made.name);
        // An API with declared fields is not asked for its rows.
        let row_count = (made.name != "rest").then_some(ROWS.len() as u64);
        assert_eq!((&table.key[..], table.row_count), (&[0][..], row_count), "{}", made.name);
        for (facts, column) in table.columns.iter().zip(COLUMNS) {
            let (kind, cause) =
                differences::kind(made.name, column.name).unwrap_or((column.kind, "as all do"));
            assert_eq!((facts.data_type, facts.mixed), (kind, false), "{}, {cause}: {facts:?}", made.name);
        }
    }
}

#[test]
fn every_kind_of_file_gives_the_same_lists() {
    let sorts = queries::sorts();
    let filters = queries::filters();
    for made in fixtures::all() {
        let mut query_count = 0;
        for is_keyed in [true, false] {
            let shape = data::shape(is_keyed);
            let reader = made.source.reader(&shape).unwrap();
            for filters in &filters {
                for (at, sort) in sorts.iter().enumerate() {
                    let expected = expected(&made, filters, *sort, is_keyed);
                    let rows_max = [1, 3, 7, 1000][(at + filters.len()) % 4];
                    let query = Query {
                        filters: filters.clone(),
                        sort: sort.iter().copied().collect(),
                        rows_max,
                        ..Query::default()
                    };
                    let (rows, totals) = pages(reader.as_ref(), &shape, &query);
                    assert_eq!(rows, expected, "{} {filters:?} {sort:?} {rows_max}", made.name);
                    let count = expected.len() as u64;
                    assert!(
                        totals.iter().all(|total| *total == count),
                        "{} {filters:?} {totals:?}",
                        made.name
                    );
                    query_count += 1;
                }
            }
        }
        assert_eq!(query_count, 1102, "questions to {}", made.name);
    }
}

#[test]
fn every_kind_of_file_finds_the_same_rows_by_key() {
    for made in fixtures::all() {
        let reader = made.source.reader(&data::shape(true)).unwrap();
        let get = |key: &[ValueRef<'_>]| {
            let mut found = None;
            let is_there = reader.get(key, &mut |cells| found = Some(row_json(cells))).unwrap();
            assert_eq!(is_there, found.is_some());
            found
        };
        for (at, cells) in ROWS.iter().enumerate() {
            let id = cells[0].unwrap().parse().unwrap();
            assert_eq!(get(&[ValueRef::Integer(id)]), Some(row_json(&made.row(at))), "{}", made.name);
        }
        for id in [0, 999, -999, i64::MAX, i64::MIN] {
            assert_eq!(get(&[ValueRef::Integer(id)]), None, "{} {id}", made.name);
        }
    }
}

/// Rows that contain all terms, by the rules of [`Search`].
fn rows_with_terms(words: &[&str], columns: &[usize]) -> Vec<usize> {
    let small: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
    let has = |at: usize, word: &String| {
        let mut texts = columns.iter().filter_map(|column| ROWS[at][*column]);
        texts.any(|text| text.to_lowercase().contains(word))
    };
    (0..ROWS.len()).filter(|at| small.iter().all(|word| has(*at, word))).collect()
}

#[test]
fn every_kind_of_file_finds_the_same_rows_by_search() {
    for made in fixtures::all() {
        let reader = made.source.reader(&data::shape(true)).unwrap();
        for (words, columns) in queries::searches() {
            let by_rule = rows_with_terms(&words, &columns);
            let (places, cause) =
                differences::search_result(made.name, &words).unwrap_or((&by_rule, "as all do"));
            let mut expected: Vec<String> = places.iter().map(|at| row_json(&made.row(*at))).collect();
            let search = Search {
                terms: words.clone(),
                columns: &columns,
                filters: Vec::new(),
                after: None,
                rows_max: 1000,
                scan_rows_max: 1000,
                cancelled: None,
                progress: None,
            };
            let mut rows = Vec::new();
            let searched = reader.search(&search, &mut |cells, _| {
                rows.push(row_json(cells));
                RowFlow::Continue
            });
            assert_eq!(searched.unwrap().coverage, SearchCoverage::Complete, "{}", made.name);
            // With an index, the best matches come first.
            rows.sort_unstable();
            expected.sort_unstable();
            assert_eq!(rows, expected, "{}, {cause}: {words:?} {columns:?}", made.name);
        }
    }
}

#[test]
fn listed_differences_are_real() {
    for (words, columns) in queries::searches() {
        for made in fixtures::all() {
            if let Some((places, cause)) = differences::search_result(made.name, &words) {
                assert_ne!(places, rows_with_terms(&words, &columns), "{}, {cause}: {words:?}", made.name);
            }
        }
    }
    for column in COLUMNS {
        for made in fixtures::all() {
            if let Some((kind, cause)) = differences::kind(made.name, column.name) {
                assert_ne!(kind, column.kind, "{}, {cause}: {}", made.name, column.name);
            }
        }
    }
}

#[test]
fn a_filter_by_null_matches_nothing() {
    for made in fixtures::all() {
        let reader = made.source.reader(&data::shape(true)).unwrap();
        for column in 0..COLUMNS.len() {
            let filters = vec![Filter::new(column, Comparison::Equals, ValueRef::Null)];
            let query = Query { filters, rows_max: 10, ..Query::default() };
            let mut seen = 0;
            reader
                .list(&query, &mut |_, _| {
                    seen += 1;
                    RowFlow::Continue
                })
                .unwrap();
            assert_eq!(seen, 0, "{} {column}", made.name);
        }
    }
}

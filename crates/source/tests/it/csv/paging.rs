//! Filters, sorting and paging, compared with a simple model, while the file changes.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use contract::order::compare;
use contract::source::{
    CancelFlag, Comparison, CursorPosition, Filter, Query, ReadRequest, Reader, RowFlow, RowPosition, Sort,
    Source, SourceError, TableShape, Total,
};
use contract::{DataType, Value, ValueRef};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop, prop_oneof, proptest};

use super::kit::{Row, TestFile, get, list, query_all, reader, row, rows, shape};

const KINDS: [DataType; 5] =
    [DataType::Integer, DataType::Text, DataType::Decimal, DataType::Text, DataType::Date];
const HEADER: &str = "id,team,score,note,day";
/// A row that fixes every column's type, whatever the other rows are.
const ANCHOR: &str = "0,x,0.5,x,2020-01-01\n";

/// Rows by their key.
type Model = BTreeMap<i64, [String; 4]>;

fn cells() -> impl Strategy<Value = [String; 4]> {
    let team = prop_oneof![Just(""), Just("red"), Just("blue"), Just("green, \"dark\"")];
    let score =
        prop_oneof![Just(""), Just("1.5"), Just("1.50"), Just("-3"), Just("10"), Just("9"), Just("-0.0")];
    let note = prop_oneof![Just("".to_owned()), "[a-c,\"\n]{0,6}", "a text of the same beginning [0-3]",];
    let day = prop_oneof![Just(""), Just("2026-02-28"), Just("2025-12-01"), Just("1999-01-01")];
    (team, score, note, day)
        .prop_map(|(team, score, note, day)| [team.to_owned(), score.to_owned(), note, day.to_owned()])
}

fn model() -> impl Strategy<Value = Model> {
    prop::collection::btree_map(-20..40_i64, cells(), 0..25).prop_map(|mut model| {
        model.remove(&0);
        model
    })
}

fn filter() -> impl Strategy<Value = (usize, Comparison, &'static str)> {
    let value = prop_oneof![
        (Just(0), prop_oneof![Just("5"), Just("-2"), Just("0")]),
        (Just(1), prop_oneof![Just("red"), Just("green, \"dark\""), Just("")]),
        (Just(2), prop_oneof![Just("1.5"), Just("9.00"), Just("-3")]),
        (Just(4), prop_oneof![Just("2026-02-28"), Just("2000-01-01")]),
    ];
    let test = prop_oneof![Just(Comparison::Equals), Just(Comparison::AtLeast), Just(Comparison::AtMost)];
    (value, test).prop_map(|((column, value), test)| (column, test, value))
}

fn sort() -> impl Strategy<Value = Option<Sort>> {
    let sort = (0..5_usize, any::<bool>()).prop_map(|(column, descending)| Sort { column, descending });
    prop::option::of(sort)
}

fn csv_text(model: &Model) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (id, cells) in model {
        let cells = cells.iter().map(String::as_str);
        writer.write_record([id.to_string().as_str()].into_iter().chain(cells)).unwrap();
    }
    let rows = String::from_utf8(writer.into_inner().unwrap()).unwrap();
    format!("{HEADER}\n{ANCHOR}{rows}")
}

/// The model's rows as the reader should return them.
fn expected_rows(model: &Model) -> Vec<Row> {
    let anchor = ANCHOR.trim_end().split(',').map(|text| Some(text.to_owned())).collect();
    let cell = |(text, kind): (&String, &DataType)| {
        (!text.is_empty() || *kind == DataType::Text).then(|| text.clone())
    };
    let row = |(id, cells): (&i64, &[String; 4])| {
        [Some(id.to_string())].into_iter().chain(cells.iter().zip(&KINDS[1..]).map(cell)).collect()
    };
    [anchor].into_iter().chain(model.iter().map(row)).collect()
}

/// Compares two rows for a sort without a key.
fn compare_sorted(a: &Row, b: &Row, sort: Option<Sort>) -> Ordering {
    let Some(Sort { column, descending }) = sort else { return Ordering::Equal };
    match (a[column].as_deref(), b[column].as_deref()) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) if descending => compare(KINDS[column], ValueRef::Text(b), ValueRef::Text(a)),
        (Some(a), Some(b)) => compare(KINDS[column], ValueRef::Text(a), ValueRef::Text(b)),
    }
}

fn compare_rows(a: &Row, b: &Row, sort: Option<Sort>) -> Ordering {
    compare_sorted(a, b, sort).then_with(|| compare_sorted(a, b, Some(Sort { column: 0, descending: false })))
}

fn passes(row: &Row, filters: &[(usize, Comparison, &str)]) -> bool {
    filters.iter().all(|(column, test, value)| {
        row[*column].as_deref().is_some_and(|text| {
            let order = compare(KINDS[*column], ValueRef::Text(text), ValueRef::Text(value));
            match test {
                Comparison::AtLeast => order.is_ge(),
                Comparison::AtMost => order.is_le(),
                _ => order.is_eq(),
            }
        })
    })
}

fn filters<'a>(filters: &[(usize, Comparison, &'a str)]) -> Vec<Filter<'a>> {
    let cell = |column, value: &'a str| match column {
        0 => ValueRef::Integer(value.parse().unwrap()),
        _ => ValueRef::Text(value),
    };
    filters.iter().map(|(column, test, value)| Filter::new(*column, *test, cell(*column, value))).collect()
}

/// One page, and the position of its last row.
fn page(
    reader: &dyn Reader,
    query: &Query<'_>,
    key: Option<usize>,
) -> (Vec<Row>, Option<CursorPosition>, Option<u64>) {
    let mut read = Vec::new();
    let mut last = None;
    let total = reader.list(query, &mut |cells, place: RowPosition| {
        last = Some(CursorPosition {
            sort_values: query.sort.iter().map(|sort| cells[sort.column].to_value()).collect(),
            key: match key {
                Some(key) => vec![cells[key].to_value()],
                None => vec![Value::Integer(place.row_number), Value::Integer(place.table_version)],
            },
        });
        read.push(row(cells));
        RowFlow::Continue
    });
    (read, last, total.unwrap().and_then(Total::exact))
}

fn pages(
    reader: &dyn Reader,
    query: &Query<'_>,
    key: Option<usize>,
    mut between: impl FnMut(),
) -> Vec<Vec<Row>> {
    let mut after: Option<CursorPosition> = None;
    let mut pages = Vec::new();
    loop {
        let query = Query {
            filters: query.filters.clone(),
            after: after.as_ref(),
            sort: query.sort.clone(),
            sort_links: query.sort_links.clone(),
            cancelled: None,
            ..*query
        };
        let (read, last, _) = page(reader, &query, key);
        if read.is_empty() {
            return pages;
        }
        pages.push(read);
        after = last;
        between();
    }
}

fn check(model: &Model, sort: Option<Sort>, filter_specs: &[(usize, Comparison, &str)], rows_max: usize) {
    let disk = TestFile::new("t.csv", csv_text(model));
    let csv = disk.csv();
    let keyed = shape(&csv);
    assert_eq!(keyed.key, [0]);
    let keyless = TableShape { key: Vec::new(), ..keyed.clone() };
    for (shape, key) in [(keyed, Some(0)), (keyless, None)] {
        let reader = csv.reader(&shape).unwrap();
        let mut expected: Vec<Row> =
            expected_rows(model).into_iter().filter(|row| passes(row, filter_specs)).collect();
        match key {
            Some(_) => expected.sort_by(|a, b| compare_rows(a, b, sort)),
            // Rows that the sort leaves equal stay in file order.
            None => expected.sort_by(|a, b| compare_sorted(a, b, sort)),
        }
        let query = Query {
            filters: filters(filter_specs),
            sort: sort.into_iter().collect(),
            rows_max,
            ..Query::default()
        };
        assert_eq!(pages(reader.as_ref(), &query, key, || {}).concat(), expected);
        let whole = Query { filters: filters(filter_specs), sort: sort.into_iter().collect(), ..query_all() };
        let total = Some(expected.len() as u64);
        assert_eq!(list(reader.as_ref(), &whole).unwrap(), (expected, total));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn pages_concatenate_to_the_model(
        model in model(),
        sort in sort(),
        filter_specs in prop::collection::vec(filter(), 0..3),
        rows_max in 1..8_usize,
    ) {
        check(&model, sort, &filter_specs, rows_max);
    }

    #[test]
    fn each_remaining_row_is_listed_once_while_others_come_and_go(
        mut model in model(),
        sort in sort(),
        changes in prop::collection::vec((-20..40_i64, prop::option::of(cells())), 0..12),
        rows_max in 1..5_usize,
    ) {
        let touched: Vec<i64> = changes.iter().map(|(id, _)| *id).chain([0]).collect();
        let staying: Vec<Row> = {
            let mut model = model.clone();
            model.retain(|id, _| !touched.contains(id));
            expected_rows(&model).split_off(1)
        };
        let disk = TestFile::new("t.csv", csv_text(&model));
        let csv = disk.csv();
        let mut shape = shape(&csv);
        shape.columns[2].nullable = true;
        shape.columns[4].nullable = true;
        let reader = csv.reader(&shape).unwrap();
        let mut changes = changes.into_iter().filter(|(id, _)| *id != 0);
        let query = Query { sort: sort.into_iter().collect(), rows_max, ..Query::default() };
        let read = pages(reader.as_ref(), &query, Some(0), || {
            for (id, cells) in changes.by_ref().take(2) {
                match cells {
                    Some(cells) => model.insert(id, cells),
                    None => model.remove(&id),
                };
            }
            disk.write(csv_text(&model));
        }).concat();
        assert!(read.is_sorted_by(|a, b| compare_rows(a, b, sort).is_lt()), "{read:?}");
        for row in &staying {
            assert_eq!(read.iter().filter(|other| *other == row).count(), 1, "{row:?}");
        }
    }
}

#[test]
fn nulls_come_last_in_both_directions() {
    let disk = TestFile::new("t.csv", "id,n\n1,5\n2,\n3,10\n4,5.0\n5,\n6,-1\n");
    let csv = disk.csv();
    let reader = reader(&csv);
    let ids = |descending| {
        let query = Query { sort: vec![Sort { column: 1, descending }], ..query_all() };
        let (rows, _) = list(reader.as_ref(), &query).unwrap();
        rows.into_iter().map(|row| row[0].clone().unwrap()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ids(false), "6 1 4 3 2 5");
    assert_eq!(ids(true), "3 1 4 6 2 5");
}

#[test]
fn equal_keys_with_different_spelling_keep_an_order() {
    let disk = TestFile::new("t.csv", "n\n2.0\n1.50\n1.5\n2\n1.500\n");
    let csv = disk.csv();
    let shape = TableShape { key: vec![0], ..shape(&csv) };
    let reader = csv.reader(&shape).unwrap();
    let read = pages(reader.as_ref(), &Query { rows_max: 1, ..Query::default() }, Some(0), || {}).concat();
    assert_eq!(read, rows(&[&["1.5"], &["1.50"], &["1.500"], &["2"], &["2.0"]]));
    assert_eq!(get(reader.as_ref(), &[ValueRef::Text("1.50")]).unwrap(), Some(rows(&[&["1.50"]]).remove(0)));
    assert_eq!(get(reader.as_ref(), &[ValueRef::Text("1.5000")]).unwrap(), None);
}

#[test]
fn several_columns_of_a_key_are_compared_in_turn() {
    let disk = TestFile::new("t.csv", "a,b,c\n2,x,1\n10,y,2\n2,a,3\n10,\"b\"\"\",4\n");
    let csv = disk.csv();
    let shape = TableShape { key: vec![0, 1], ..shape(&csv) };
    let reader = csv.reader(&shape).unwrap();
    let all = rows(&[&["2", "a", "3"], &["2", "x", "1"], &["10", "b\"", "4"], &["10", "y", "2"]]);
    assert_eq!(super::kit::all_rows(reader.as_ref()), all);
    for (seen, row) in all.iter().enumerate() {
        let value = |at: usize| Value::Text(row[at].clone().unwrap());
        let after = CursorPosition { sort_values: Vec::new(), key: vec![value(0), value(1)] };
        let query = Query { after: Some(&after), ..query_all() };
        assert_eq!(list(reader.as_ref(), &query).unwrap().0, all[seen + 1..]);
    }
    // An integer from a cursor is the same key.
    let after =
        CursorPosition { sort_values: Vec::new(), key: vec![Value::Integer(2), Value::Text("m".to_owned())] };
    assert_eq!(list(reader.as_ref(), &Query { after: Some(&after), ..query_all() }).unwrap().0, all[1..]);
}

#[test]
fn a_list_always_returns_its_total() {
    let disk = TestFile::new("t.csv", "id,n\n1,5\n2,6\n3,5\n4,5\n");
    let csv = disk.csv();
    let reader = reader(&csv);
    let five = || vec![Filter::new(1, Comparison::Equals, ValueRef::Integer(5))];
    let after = CursorPosition { sort_values: Vec::new(), key: vec![Value::Integer(1)] };
    let total = |query: Query<'_>| list(reader.as_ref(), &query).unwrap().1;
    assert_eq!(total(Query { rows_max: 1, ..Query::default() }), Some(4));
    assert_eq!(total(Query { after: Some(&after), ..query_all() }), Some(4));
    assert_eq!(total(Query { filters: five(), ..query_all() }), Some(3));
    assert_eq!(total(Query { filters: five(), rows_max: 3, ..Query::default() }), Some(3));
    assert_eq!(total(Query { filters: five(), rows_max: 2, ..Query::default() }), Some(3));
    assert_eq!(total(Query { filters: five(), after: Some(&after), ..query_all() }), Some(3));
    let none = vec![Filter::new(1, Comparison::Equals, ValueRef::Null)];
    assert_eq!(total(Query { filters: none, ..query_all() }), Some(0));
}

#[test]
fn the_total_of_a_large_filtered_list_is_a_lower_bound() {
    use std::fmt::Write;
    const ROWS: u64 = 260_000;
    let mut text = "id,n\n".to_owned();
    (0..ROWS).for_each(|id| writeln!(text, "{id},{}", id % 2).unwrap());
    let file = TestFile::new("t.csv", text);
    let csv = file.csv();
    let reader = reader(&csv);
    let filters = || vec![Filter::new(1, Comparison::Equals, ValueRef::Integer(1))];
    let total = |query: &Query<'_>| reader.list(query, &mut |_, _| RowFlow::Continue).unwrap();
    let page = Query { filters: filters(), rows_max: 10, ..Query::default() };
    assert_eq!(total(&page), Some(Total::AtLeast(125_000)));
    assert_eq!(total(&Query { rows_max: 10, ..Query::default() }), Some(Total::Exact(ROWS)));
    assert_eq!(total(&Query { filters: filters(), ..query_all() }), Some(Total::Exact(ROWS / 2)));
}

#[test]
fn a_cursor_without_a_key_is_valid_only_for_the_same_contents() {
    let disk = TestFile::new("t.csv", "n\n5\n5\n7\n");
    let csv = disk.csv();
    let reader = reader(&csv);
    let query = Query { rows_max: 2, ..Query::default() };
    let (read, last, _) = page(reader.as_ref(), &query, None);
    assert_eq!(read, rows(&[&["5"], &["5"]]));
    let after = last.unwrap();
    let next = Query { after: Some(&after), ..query_all() };
    assert_eq!(list(reader.as_ref(), &next).unwrap().0, rows(&[&["7"]]));
    disk.write("n\n5\n5\n8\n");
    assert!(matches!(list(reader.as_ref(), &next), Err(SourceError::StaleCursor)));
    // The contents are as before, so the position is valid again.
    disk.write("n\n5\n5\n7\n");
    assert_eq!(list(reader.as_ref(), &next).unwrap().0, rows(&[&["7"]]));
    let Value::Integer(state) = after.key[1] else { panic!("a place has a state") };
    for key in [
        vec![],
        vec![Value::Integer(0)],
        vec![Value::Integer(3), Value::Integer(state)],
        vec![Value::Integer(-1), Value::Integer(state)],
    ] {
        let after = CursorPosition { sort_values: Vec::new(), key };
        let next = Query { after: Some(&after), ..query_all() };
        assert!(matches!(list(reader.as_ref(), &next), Err(SourceError::StaleCursor)), "{after:?}");
    }
}

#[test]
fn a_scan_stops_when_the_caller_has_enough_or_cancels() {
    let disk = TestFile::new("t.csv", "id\n1\n2\n3\n");
    let csv = disk.csv();
    let reader = reader(&csv);
    let mut seen = 0;
    let enough = &mut |_: &[ValueRef<'_>], _| {
        seen += 1;
        if seen == 2 { RowFlow::Stop } else { RowFlow::Continue }
    };
    assert_eq!(reader.list(&query_all(), enough).unwrap(), Some(Total::Exact(3)));
    assert_eq!(seen, 2);
    let stop = CancelFlag::new(AtomicBool::new(true));
    let query = Query { cancelled: Some(&stop), ..query_all() };
    assert!(matches!(list(reader.as_ref(), &query), Err(SourceError::Cancelled)));
    assert_eq!(list(reader.as_ref(), &Query::default()).unwrap(), (Vec::new(), Some(3)));
}

#[test]
fn a_read_may_run_inline_if_it_touches_few_rows() {
    let many: String = (0..5000).map(|i| format!("{i},{}\n", i % 7)).collect();
    let disk = TestFile::new("t.csv", format!("id,n\n{many}"));
    let csv = disk.csv();
    let large = reader(&csv);
    let short = |query: &Query<'_>| large.can_run_inline(&ReadRequest::List(query));
    let page = || Query { rows_max: 50, ..Query::default() };
    let sorted = || Query { sort: vec![Sort { column: 1, descending: true }], ..page() };
    let five = vec![Filter::new(1, Comparison::Equals, ValueRef::Integer(5))];
    assert!(large.can_run_inline(&ReadRequest::Get));
    assert!(!short(&page()), "the order of the key is not there yet");
    list(large.as_ref(), &page()).unwrap();
    assert!(short(&page()));
    assert!(!short(&query_all()));
    assert!(!short(&sorted()));
    list(large.as_ref(), &sorted()).unwrap();
    assert!(short(&sorted()));
    assert!(!short(&Query { filters: five.clone(), ..page() }));
    // Only the last few orders are cached.
    for (column, descending) in [(0, true), (1, false), (1, true), (0, true), (1, false)] {
        list(large.as_ref(), &Query { sort: vec![Sort { column, descending }], ..page() }).unwrap();
    }
    assert!(short(&sorted()));
    let disk = TestFile::new("t.csv", "id,n\n1,5\n");
    let csv = disk.csv();
    let small = reader(&csv);
    assert!(small.can_run_inline(&ReadRequest::List(&Query { filters: five, ..sorted() })));
}

#[test]
fn a_selective_filter_finds_all_rows_in_order() {
    let many: String = (0..30_000).rev().map(|i| format!("{i},{},\"x, {}\"\n", i % 7, i % 1000)).collect();
    let disk = TestFile::new("t.csv", format!("id,n,t\n{many}"));
    let csv = disk.csv();
    let reader = reader(&csv);
    let sieve = |column, value| Filter::new(column, Comparison::Equals, ValueRef::Text(value));
    let query = || Query { filters: vec![sieve(1, "3"), sieve(2, "x, 999")], ..query_all() };
    let expected: Vec<String> =
        (0..30_000).filter(|i| i % 7 == 3 && i % 1000 == 999).map(|i| i.to_string()).collect();
    let ids = |rows: Vec<Row>| rows.into_iter().map(|mut row| row[0].take().unwrap()).collect::<Vec<_>>();
    let (rows, total) = list(reader.as_ref(), &query()).unwrap();
    assert_eq!((ids(rows), total), (expected.clone(), Some(expected.len() as u64)));
    let paged = pages(reader.as_ref(), &Query { rows_max: 2, ..query() }, Some(0), || {}).concat();
    assert_eq!(ids(paged), expected);
    let none = Query { filters: vec![sieve(2, "y")], ..query_all() };
    assert_eq!(list(reader.as_ref(), &none).unwrap(), (Vec::new(), Some(0)));
}

#[test]
fn rows_without_a_value_pass_in_a_column_with_a_format() {
    let disk = TestFile::new("prices.csv", "id;price\n1;1.234,50\n2;\n3;17,00\n4;9,90\n");
    let csv = disk.csv();
    let (reader, price) = (reader(&csv), ValueRef::Text("17.00"));
    for (comparison, value, expected) in [
        (Comparison::IsNull, ValueRef::Null, &["2"][..]),
        (Comparison::IsNotNull, ValueRef::Null, &["1", "3", "4"]),
        (Comparison::Equals, price, &["3"]),
        (Comparison::NotEquals, price, &["1", "2", "4"]),
    ] {
        let filters = vec![Filter::new(1, comparison, value)];
        let mut ids = Vec::new();
        let listed = reader.list(&Query { filters, rows_max: 10, ..Query::default() }, &mut |cells, _| {
            if let ValueRef::Text(id) = cells[0] {
                ids.push(id.to_owned());
            }
            RowFlow::Continue
        });
        listed.unwrap();
        assert_eq!(ids, expected, "{comparison:?}");
    }
}

//! Rows by a set of keys; groups, measures and sort orders by what a map has for a value: the questions that follow
//! links.

use std::collections::BTreeMap;

use contract::order::compare;
use contract::source::{
    Aggregate, AggregateFunction, Filter, GroupColumn, GroupRow, KeyMap, KeySet, LinkedValues, Measure,
    Query, Sort,
};
use contract::{DataType, Value, ValueRef};

use super::data::{COLUMNS, ROWS, shape};
use super::{differences, fixtures, pages};

/// Values of columns that rows can be linked by, and values that no row has.
const SETS: [(usize, &[&str]); 8] = [
    (0, &["7", "100", "-20", "4711"]),
    (0, &["9007199254740991", "-9007199254740991"]),
    (0, &[]),
    (1, &["red", "Z"]),
    (1, &["Red ", ""]),
    (3, &["2026-02-28", "1999-01-01"]),
    (7, &["9007199254740993", "-9223372036854775808", "8"]),
    (8, &["007", "", "Gr\u{f6}\u{df}e", "100%_'; --"]),
];

fn key_set(column: usize, values: &[&str]) -> KeySet {
    let mut keys = KeySet::default();
    for value in values {
        match COLUMNS[column].kind {
            DataType::Integer | DataType::Int64 => {
                keys.insert(DataType::Int64, ValueRef::Integer(value.parse().unwrap()));
            }
            kind => keys.insert(kind, ValueRef::Text(value)),
        }
    }
    keys
}

/// The ids of all rows that pass, page by page.
fn ids(made: &super::TestSource, is_keyed: bool, filters: Vec<Filter<'_>>, sort: &[Sort]) -> Vec<String> {
    let shape = shape(is_keyed);
    let reader = made.source.reader(&shape).unwrap();
    let query = Query { filters, sort: sort.to_vec(), rows_max: 3, ..Query::default() };
    let (rows, totals) = pages(reader.as_ref(), &shape, &query);
    assert!(totals.iter().all(|total| *total == rows.len() as u64), "{} {totals:?}", made.name);
    let id = |row: &String| row[..row.find(',').unwrap()].trim_start_matches("{\"id\":").to_owned();
    rows.iter().map(id).collect()
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

#[test]
fn every_kind_of_file_finds_the_same_rows_by_a_set_of_keys() {
    for made in fixtures::all() {
        for (column, values) in SETS {
            // Beyond some size, a database looks keys up in another way.
            for padding in [0, 3000] {
                let mut keys = key_set(column, values);
                for number in 0..padding {
                    match COLUMNS[column].kind {
                        DataType::Integer | DataType::Int64 => {
                            keys.insert(DataType::Int64, ValueRef::Integer(1_000_000 + number));
                        }
                        kind => keys.insert(kind, ValueRef::Text(&format!("no row has this {number}"))),
                    }
                }
                let is_in =
                    |row: &&[Option<&str>; 9]| row[column].is_some_and(|value| values.contains(&value));
                let id = |row: &[Option<&str>; 9]| row[0].unwrap().to_owned();
                let inside = sorted(ROWS.iter().filter(is_in).map(id).collect());
                let outside = sorted(ROWS.iter().filter(|row| !is_in(row)).map(id).collect());
                for is_keyed in [true, false] {
                    for sort in [vec![], vec![Sort { column: 1, descending: true }]] {
                        let name = format!("{} {column} {values:?} {padding} {is_keyed} {sort:?}", made.name);
                        let found = ids(&made, is_keyed, vec![Filter::one_of(column, &keys)], &sort);
                        assert_eq!(sorted(found), inside, "{name}");
                        let found = ids(&made, is_keyed, vec![Filter::none_of(column, &keys)], &sort);
                        assert_eq!(sorted(found), outside, "none of: {name}");
                    }
                }
            }
        }
    }
}

#[test]
fn rows_found_by_their_keys_are_in_the_order_of_the_key() {
    let keys = key_set(0, &["100", "7", "-20", "22", "12"]);
    for made in fixtures::all() {
        let found = ids(&made, true, vec![Filter::one_of(0, &keys)], &[]);
        assert_eq!(found, ["-20", "7", "12", "22", "100"], "{}", made.name);
        let red = Filter::new(1, contract::source::Comparison::Equals, ValueRef::Text("red"));
        let found = ids(&made, true, vec![red, Filter::one_of(0, &keys)], &[]);
        assert_eq!(found, ["7", "100"], "{}: other filters still apply", made.name);
    }
}

#[test]
fn every_kind_of_file_groups_by_a_map_in_the_same_way() {
    let text = |text: &str| Value::Text(text.to_owned());
    let mut colours = KeyMap::default();
    for (team, kind) in [("red", "warm"), ("Red", "warm"), ("blue", "cold"), ("green", "cold"), ("x", "none")]
    {
        colours.insert(text(team), text(kind)).unwrap();
    }
    colours.insert(text("y"), Value::Null).unwrap();
    let kind_of = |team: &str| match team {
        "red" | "Red" => Some("warm"),
        "blue" | "green" => Some("cold"),
        "x" => Some("none"),
        _ => None,
    };
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    for row in &ROWS {
        *expected.entry(format!("{:?}", kind_of(row[1].unwrap()))).or_default() += 1;
    }
    for made in fixtures::all() {
        for is_keyed in [true, false] {
            let reader = made.source.reader(&shape(is_keyed)).unwrap();
            let question = Aggregate {
                groups: vec![GroupColumn { map: Some(&colours), ..GroupColumn::new(1) }],
                measures: vec![Measure::Count],
                groups_max: 100,
                ..Aggregate::default()
            };
            let groups = reader.aggregate(&question).unwrap();
            let found: BTreeMap<String, i64> = groups
                .rows
                .iter()
                .map(|GroupRow(values)| match &values[..] {
                    [Value::Text(kind), Value::Integer(count)] => (format!("{:?}", Some(kind)), *count),
                    [Value::Null, Value::Integer(count)] => ("None".to_owned(), *count),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(found, expected, "{}", made.name);
            assert_eq!(groups.rows.len(), expected.len(), "{}: each group once", made.name);
        }
    }
}

/// A decimal for each team but one.
fn prices() -> KeyMap {
    let mut prices = KeyMap::default();
    for (team, price) in [("red", "1.5"), ("Red", "1.5"), ("blue", "-20"), ("green", "0.25")] {
        prices.insert(Value::Text(team.to_owned()), Value::Text(price.to_owned())).unwrap();
    }
    prices
}

fn price_of(team: &str) -> Option<&'static str> {
    match team {
        "red" | "Red" => Some("1.5"),
        "blue" => Some("-20"),
        "green" => Some("0.25"),
        _ => None,
    }
}

#[test]
fn every_kind_of_file_measures_values_behind_a_link_in_the_same_way() {
    let prices = prices();
    let values = LinkedValues { map: &prices, kind: DataType::Decimal };
    let linked = |function| Measure::Linked { function, column: 1, values };
    let found_prices: Vec<&str> = ROWS.iter().filter_map(|row| price_of(row[1].unwrap())).collect();
    // Hundredths.
    let sum: i64 = found_prices
        .iter()
        .map(|price| match *price {
            "1.5" => 150,
            "-20" => -2000,
            _ => 25,
        })
        .sum();
    let text = |hundredths: i64| {
        let mut sum = contract::aggregate::DecimalSum::default();
        sum.add_scaled(i128::from(hundredths), 2);
        Value::Text(sum.to_text())
    };
    let expected = vec![
        text(sum),
        Value::Text("-20".into()),
        Value::Text("1.5".into()),
        Value::Integer(3),
        Value::Integer(ROWS.len() as i64),
    ];
    for made in fixtures::all() {
        for is_keyed in [true, false] {
            let reader = made.source.reader(&shape(is_keyed)).unwrap();
            let question = Aggregate {
                measures: vec![
                    linked(AggregateFunction::Sum),
                    linked(AggregateFunction::Min),
                    linked(AggregateFunction::Max),
                    linked(AggregateFunction::Distinct),
                    Measure::Count,
                ],
                groups_max: 100,
                ..Aggregate::default()
            };
            let groups = reader.aggregate(&question).unwrap();
            assert_eq!(groups.rows, [GroupRow(expected.clone())], "{}", made.name);
        }
    }
}

#[test]
fn every_kind_of_file_sorts_by_values_behind_a_link_page_by_page() {
    let prices = prices();
    let values = LinkedValues { map: &prices, kind: DataType::Decimal };
    for made in fixtures::all() {
        for (is_keyed, descending, by_day) in
            [(true, false, false), (true, true, true), (false, true, false), (false, false, true)]
        {
            let shape = shape(is_keyed);
            let reader = made.source.reader(&shape).unwrap();
            let mut query = Query {
                sort: vec![Sort { column: 1, descending }],
                sort_links: vec![Some(values)],
                rows_max: 3,
                ..Query::default()
            };
            if by_day {
                query.sort.push(Sort { column: 3, descending: true });
            }
            let (rows, _) = pages(reader.as_ref(), &shape, &query);
            let mut order: Vec<usize> = (0..ROWS.len()).collect();
            let value = |text: Option<&'static str>| text.map_or(ValueRef::Null, ValueRef::Text);
            let by = |kind, a: ValueRef<'_>, b: ValueRef<'_>, descending: bool| match (a, b) {
                (ValueRef::Null, ValueRef::Null) => std::cmp::Ordering::Equal,
                (ValueRef::Null, _) => std::cmp::Ordering::Greater,
                (_, ValueRef::Null) => std::cmp::Ordering::Less,
                (a, b) if descending => compare(kind, b, a),
                (a, b) => compare(kind, a, b),
            };
            order.sort_by(|a, b| {
                let price = |at: usize| value(price_of(ROWS[at][1].unwrap()));
                let day = |at: usize| value(ROWS[at][3]);
                let priced = by(DataType::Decimal, price(*a), price(*b), descending);
                let dated = || match by_day {
                    true => by(DataType::Date, day(*a), day(*b), true),
                    false => std::cmp::Ordering::Equal,
                };
                let keyed = || match is_keyed || differences::orders_by_values(made.name).is_some() {
                    true => by(DataType::Integer, value(ROWS[*a][0]), value(ROWS[*b][0]), false),
                    false => std::cmp::Ordering::Equal,
                };
                priced.then_with(dated).then_with(keyed)
            });
            let id = |row: &String| row[..row.find(',').unwrap()].trim_start_matches("{\"id\":").to_owned();
            let found: Vec<String> = rows.iter().map(id).collect();
            let expected: Vec<&str> = order.iter().map(|at| ROWS[*at][0].unwrap()).collect();
            assert_eq!(found, expected, "{} {is_keyed} {descending} {by_day}", made.name);
        }
    }
}

//! Values that are not of their column's type: `NaN`, infinity, years before 1 and after 9999, `0000-00-00`.

use contract::DataType;
use contract::source::{Aggregate, AggregateFunction, Comparison, Filter, Measure, Query, RowFlow, Source};
use contract::{Value, ValueRef};
use database::{CallerMode, Options};
use test_databases::{Kind, TestDatabase};

use crate::kit::{open, open_with, reader, rows, shape, shown, table};
use crate::tables::{by, paged};

/// A type, its literals in their order, and how many of them at the beginning and at the end are exceptions.
type Case = (&'static str, &'static [&'static str], usize, usize);

const POSTGRES: &[Case] = &[
    (
        "date",
        &[
            "-infinity",
            "4000-01-01 BC",
            "0044-03-15 BC",
            "0001-12-31 BC",
            "2026-01-01",
            "2026-01-02",
            "12026-01-01",
            "infinity",
        ],
        3,
        2,
    ),
    (
        "timestamp",
        &[
            "-infinity",
            "0044-03-15 10:00:00.5 BC",
            "0002-12-31 23:59:59 BC",
            "0001-12-31 00:00:00 BC",
            "2026-01-01 00:00:00",
            "12026-01-01 10:00:00",
            "infinity",
        ],
        3,
        2,
    ),
    (
        "timestamptz",
        &[
            "-infinity",
            "0044-03-15 10:00:00Z BC",
            "0001-12-31 00:00:00Z BC",
            "2026-01-01 00:00:00Z",
            "12026-01-01 10:00:00.25Z",
            "infinity",
        ],
        2,
        2,
    ),
    ("numeric", &["-Infinity", "-1", "0", "1.5", "Infinity", "NaN"], 1, 2),
    ("double precision", &["-Infinity", "-1", "0", "1.5", "Infinity", "NaN"], 1, 2),
    ("real", &["-Infinity", "-1", "0", "1.5", "Infinity", "NaN"], 1, 2),
];

const MARIADB: &[Case] = &[
    ("date", &["0000-00-00", "2026-00-00", "2026-00-15", "2026-01-01", "2026-01-02"], 3, 0),
    (
        "datetime(6)",
        &[
            "0000-00-00 00:00:00",
            "2026-00-15 10:00:00.5",
            "2026-01-01 00:00:00",
            "2026-01-02 10:00:00.000001",
        ],
        2,
        0,
    ),
    ("timestamp", &["0000-00-00 00:00:00", "2026-01-01 00:00:00", "2026-01-02 10:00:00"], 1, 0),
];

/// The keys of the rows that pass a filter.
fn found(reader: &dyn contract::source::Reader, comparison: Comparison, bound: ValueRef<'_>) -> Vec<i64> {
    let filters = vec![Filter::new(1, comparison, bound)];
    let mut keys = Vec::new();
    let query = Query { filters, rows_max: 100, ..Query::default() };
    let listed = reader.list(&query, &mut |values, _| {
        let ValueRef::Integer(key) = values[0] else { panic!("{values:?}") };
        keys.push(key);
        RowFlow::Continue
    });
    listed.unwrap_or_else(|error| panic!("{comparison:?} {bound:?}: {error:?}"));
    keys
}

fn check(kind: Kind, cases: &[Case]) {
    let place = TestDatabase::new(kind);
    let session = if kind == Kind::MariaDb { "SET sql_mode = '', time_zone = '+00:00'; " } else { "" };
    for (at, (declared, literals, ..)) in cases.iter().enumerate() {
        let values: Vec<String> =
            literals.iter().enumerate().map(|(id, literal)| format!("({id}, '{literal}')")).collect();
        place.run(&format!(
            "{session}CREATE TABLE t{at} (id integer PRIMARY KEY, v {declared} NULL); INSERT INTO t{at} VALUES {}, (99, NULL)",
            values.join(", ")
        ));
    }
    let source = open(&place);
    for (at, (declared, literals, before, behind)) in cases.iter().enumerate() {
        let reader = reader(&source, &format!("t{at}"));
        let in_order: Vec<String> = (0..literals.len()).map(|id| id.to_string()).collect();
        let upwards: Vec<String> = in_order.iter().cloned().chain(["99".to_owned()]).collect();
        let downwards: Vec<String> = in_order.iter().rev().cloned().chain(["99".to_owned()]).collect();
        assert_eq!(paged(&*reader, &[by(1, false)], &[0]), upwards, "{kind:?} {declared}");
        assert_eq!(paged(&*reader, &[by(1, true)], &[0]), downwards, "{kind:?} {declared}");
        let values: Vec<Value> = rows(&*reader).unwrap().iter().map(|row| row[1].clone()).collect();
        let ordinary: Vec<i64> = (*before as i64..(literals.len() - behind) as i64).collect();
        for (id, value) in values[..literals.len()].iter().enumerate() {
            let equal = found(&*reader, Comparison::Equals, value.as_value_ref());
            assert_eq!(equal, [id as i64], "{kind:?} {declared} {}", shown(value));
        }
        let (first, last) = (ordinary[0], ordinary[ordinary.len() - 1]);
        let bound = |id: i64| values[id as usize].as_value_ref();
        // Also from the first and to the last: exceptions are in no range.
        assert_eq!(found(&*reader, Comparison::AtLeast, bound(first)), ordinary, "{kind:?} {declared}");
        assert_eq!(found(&*reader, Comparison::AtMost, bound(last)), ordinary, "{kind:?} {declared}");
        assert_eq!(found(&*reader, Comparison::AtLeast, bound(last)), [last], "{kind:?} {declared}");
    }
}

#[test]
fn exceptions_of_postgresql_are_found_and_paged_but_in_no_range() {
    check(Kind::Postgres, POSTGRES);
}

#[test]
fn exceptions_of_mariadb_are_found_and_paged_but_in_no_range() {
    check(Kind::MariaDb, MARIADB);
}

#[test]
fn a_sum_over_a_range_leaves_exceptions_out() {
    let place = TestDatabase::new(Kind::Postgres);
    place.run("CREATE TABLE t (id integer PRIMARY KEY, v numeric); INSERT INTO t VALUES (1, 1), (2, 2.5), (3, 'NaN')");
    let reader = reader(&open(&place), "t");
    let sum = |filters: Vec<Filter<'_>>| {
        let measures = vec![Measure::Of { function: AggregateFunction::Sum, column: 1 }];
        let groups =
            reader.aggregate(&Aggregate { filters, measures, groups_max: 10, ..Aggregate::default() });
        groups.map(|groups| format!("{:?}", groups.rows[0].0)).map_err(|error| error.to_string())
    };
    let range = Filter::new(1, Comparison::AtLeast, ValueRef::Integer(0));
    assert_eq!(sum(vec![range]), Ok("[Text(\"3.5\")]".into()));
    assert!(sum(Vec::new()).unwrap_err().contains("a value that is not a number"));
}

#[test]
fn columns_that_were_not_looked_at_may_have_exceptions() {
    let place = TestDatabase::new(Kind::Postgres);
    place.run(
        "CREATE TABLE t (id integer PRIMARY KEY, v numeric, d date, big bigint, name text);
         INSERT INTO t SELECT i, i, '2026-01-01', 5, 'x' FROM generate_series(1, 5) i",
    );
    // The rows of the connection are not those of its callers, so nothing is known about them.
    let options = Options { callers: CallerMode::Settings, ..Options::new(place.url()) };
    // A superuser ignores the policies that callers need.
    let role = format!("app_{}", place.name);
    place.run(&format!("CREATE ROLE {role} LOGIN; GRANT SELECT ON t TO {role}"));
    let options = Options { url: place.url_as(&role), ..options };
    let facts = open_with(Kind::Postgres, options).introspect().unwrap();
    let columns: Vec<(DataType, bool)> =
        table(&facts, "t").columns.iter().map(|column| (column.data_type, column.mixed)).collect();
    assert_eq!(
        columns,
        [
            (DataType::Integer, false),
            (DataType::Decimal, true),
            (DataType::Date, true),
            (DataType::Int64, false),
            (DataType::Text, false)
        ]
    );
    // With such a contract, a row with an exception is a row, and sums are still computed in the database.
    let source = open(&place);
    let mut shape = shape(&source.introspect().unwrap(), "t");
    shape.columns[1].mixed = true;
    shape.columns[2].mixed = true;
    let reader = source.reader(&shape).unwrap();
    let sum = || {
        let measures = vec![Measure::Of { function: AggregateFunction::Sum, column: 1 }];
        let groups = reader.aggregate(&Aggregate { measures, groups_max: 10, ..Aggregate::default() });
        groups.map(|groups| format!("{:?}", groups.rows[0].0)).map_err(|error| error.to_string())
    };
    assert_eq!(sum(), Ok("[Text(\"15\")]".into()));
    place.run("INSERT INTO t VALUES (6, 'NaN', 'infinity', 5, 'x')");
    assert_eq!(rows(&*reader).unwrap().len(), 6);
    assert!(sum().unwrap_err().contains("a value that is not a number"));
}

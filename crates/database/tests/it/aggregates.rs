//! Groups and measures that the database computes are those that `contract` computes from the rows.

use contract::aggregate::GroupTable;
use contract::source::{
    Aggregate, AggregateFunction, DateUnit, Filter, GROUPS_MAX, GroupColumn, GroupRow, KeyMap, LinkedValues,
    Measure, Source, TableShape,
};
use contract::{DataType, TimeZone, Value, ValueRef};
use test_databases::{Kind, TestDatabase};

use crate::kit::{KINDS, open, rows, shape};

/// Rows with ties, gaps, large and small numbers, texts that only bytes tell apart, and times around midnights, the ends of years
/// and changed clocks.
fn with_rows(kind: Kind) -> TestDatabase {
    let place = TestDatabase::new(kind);
    let (number, narrow, zoned, local) = match kind {
        Kind::Postgres => ("double precision", "real", "timestamptz", "timestamp"),
        Kind::MariaDb => ("double", "float", "timestamp(6)", "datetime(6)"),
    };
    place.run(&format!(
        "CREATE TABLE t (id integer PRIMARY KEY, n integer, big bigint, price decimal(20, 6), wide decimal(60, 20),
           r {number}, s {narrow}, b boolean, name varchar(40), pad char(6), note text, d date, at {zoned} NULL, wall {local}, other integer)"
    ));
    let texts = ["'a'", "'A'", "'ä'", "'a '", "''", "'ß'", "'ss'", "NULL"];
    let days = ["2024-12-30", "2024-12-31", "2025-01-01", "2021-01-03", "2000-02-29", "2026-03-29"];
    let times = ["00:00:00", "23:59:59.999999", "22:30:00", "03:29:59", "03:31:00.5", "12:14:59"];
    let mut values = Vec::new();
    for id in 0..240_usize {
        let or_null =
            |every: usize, value: String| if id % every == every - 1 { "NULL".into() } else { value };
        let (day, time) = (days[id % 6], times[id / 6 % 6]);
        values.push(format!(
            "({id}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, '{day} {time}', {})",
            or_null(7, (id % 5).to_string()),
            [i64::MAX, i64::MIN, 1, -1, 9_007_199_254_740_993][id % 5],
            or_null(9, format!("{}.{}", id % 4, ["5", "50", "000001", "999999"][id % 4])),
            or_null(5, format!("{}1234567890123456789012345678901234567.12345678901234567890", id % 3)),
            or_null(8, format!("{}", [0.1, 0.2, 1e17, -1e17][id % 4])),
            [0.1, 1.5, 16_777_216.0][id % 3],
            or_null(11, format!("{}", id % 3 == 0)),
            texts[id % 8],
            texts[id % 7],
            or_null(3, format!("'{}{}'", "x".repeat(1500), id % 2)),
            or_null(13, format!("'{day}'")),
            or_null(17, format!("'{day} {time}{}'", if kind == Kind::Postgres { "+00" } else { "" })),
            or_null(4, (id % 6).to_string()),
        ));
    }
    place.run(&format!("INSERT INTO t VALUES {}", values.join(", ")));
    place
}

/// Groups in an order, whatever the order they came in.
fn sorted(rows: Vec<GroupRow>) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter().map(|row| format!("{:?}", row.0)).collect();
    rows.sort();
    rows
}

/// The answer of `contract` to a question without filters.
fn expected(shape: &TableShape, rows: &[Vec<Value>], question: &Aggregate<'_>) -> Vec<String> {
    let mut table = GroupTable::new(question, |column| shape.columns[column].data_type);
    for row in rows {
        table.push_row(|column| row[column].as_value_ref()).unwrap();
    }
    sorted(table.finish().rows)
}

fn measures(shape: &TableShape) -> Vec<Measure<'static>> {
    let mut measures = vec![Measure::Count];
    for (column, of) in shape.columns.iter().enumerate() {
        for function in AggregateFunction::ALL {
            let is_sum = matches!(function, AggregateFunction::Sum | AggregateFunction::Avg);
            if !is_sum || contract::aggregate::is_summable(of.data_type) {
                measures.push(Measure::Of { function, column });
            }
        }
    }
    measures
}

#[test]
fn the_database_groups_as_the_contract_does() {
    let zones: Vec<TimeZone> = ["Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"]
        .map(|zone| TimeZone::find(zone).unwrap())
        .into();
    for kind in KINDS {
        let place = with_rows(kind);
        let source = open(&place);
        let shape = shape(&source.introspect().unwrap(), "t");
        let reader = source.reader(&shape).unwrap();
        let all = rows(&*reader).unwrap();
        assert_eq!(all.len(), 240);
        let mut groups: Vec<Vec<GroupColumn<'_>>> = vec![Vec::new()];
        for (column, of) in shape.columns.iter().enumerate().skip(1) {
            groups.push(vec![GroupColumn::new(column)]);
            let has_units =
                matches!(of.data_type, DataType::Date | DataType::Timestamp | DataType::LocalTimestamp);
            for unit in DateUnit::ALL.into_iter().filter(|_| has_units) {
                groups.push(vec![GroupColumn { unit: Some(unit), ..GroupColumn::new(column) }]);
                for zone in &zones {
                    let time_zone = Some(*zone);
                    groups.push(vec![GroupColumn {
                        unit: Some(unit),
                        time_zone,
                        ..GroupColumn::new(column)
                    }]);
                }
            }
        }
        let place_of = |name: &str| shape.columns.iter().position(|column| column.name == name).unwrap();
        groups.push(vec![GroupColumn::new(place_of("name")), GroupColumn::new(place_of("d"))]);
        for groups in groups {
            // One measure at a time, so that one which cannot be computed there does not hide the others.
            for measure in measures(&shape) {
                let question = Aggregate {
                    groups: groups.clone(),
                    measures: vec![measure],
                    groups_max: GROUPS_MAX,
                    ..Aggregate::default()
                };
                let found = reader
                    .aggregate(&question)
                    .unwrap_or_else(|error| panic!("{kind:?} {question:?}: {error:?}"));
                assert_eq!(sorted(found.rows), expected(&shape, &all, &question), "{kind:?} {question:?}");
            }
        }
    }
}

#[test]
fn values_behind_links_are_grouped_and_measured() {
    let mut map = KeyMap::default();
    for key in 0..5 {
        let value = if key == 3 { Value::Null } else { Value::Text(format!("{}.25", key % 2)) };
        map.insert(Value::Integer(key), value).unwrap();
    }
    for kind in KINDS {
        let place = with_rows(kind);
        let source = open(&place);
        let shape = shape(&source.introspect().unwrap(), "t");
        let reader = source.reader(&shape).unwrap();
        let all = rows(&*reader).unwrap();
        let other = shape.columns.iter().position(|column| column.name == "other").unwrap();
        let linked = |function| Measure::Linked {
            function,
            column: other,
            values: LinkedValues { map: &map, kind: DataType::Decimal },
        };
        let mut measures: Vec<Measure<'_>> = AggregateFunction::ALL.map(linked).into();
        measures.push(Measure::Count);
        measures.push(Measure::Of { function: AggregateFunction::Sum, column: 1 });
        for groups in [
            Vec::new(),
            vec![GroupColumn { map: Some(&map), ..GroupColumn::new(other) }],
            vec![GroupColumn::new(1), GroupColumn { map: Some(&map), ..GroupColumn::new(other) }],
        ] {
            let question = Aggregate {
                groups,
                measures: measures.clone(),
                groups_max: GROUPS_MAX,
                ..Aggregate::default()
            };
            let found = reader.aggregate(&question).unwrap();
            assert_eq!(sorted(found.rows), expected(&shape, &all, &question), "{kind:?} {question:?}");
        }
    }
}

#[test]
fn filters_come_first_and_no_rows_are_one_group() {
    for kind in KINDS {
        let place = with_rows(kind);
        let source = open(&place);
        let shape = shape(&source.introspect().unwrap(), "t");
        let reader = source.reader(&shape).unwrap();
        let ask = |id: i64, groups: Vec<GroupColumn<'static>>| {
            let question = Aggregate {
                filters: vec![Filter::new(0, contract::source::Comparison::AtMost, ValueRef::Integer(id))],
                groups,
                measures: vec![Measure::Count, Measure::Of { function: AggregateFunction::Sum, column: 3 }],
                groups_max: GROUPS_MAX,
                ..Aggregate::default()
            };
            sorted(reader.aggregate(&question).unwrap().rows)
        };
        assert_eq!(ask(1, Vec::new()), [r#"[Integer(2), Text("2")]"#], "{kind:?}");
        assert_eq!(ask(-1, Vec::new()), ["[Integer(0), Null]"], "{kind:?}");
        assert_eq!(ask(-1, vec![GroupColumn::new(1)]), [] as [&str; 0], "{kind:?}");
    }
}

#[test]
fn numbers_that_are_none_are_not_added_up_and_a_changed_type_is_an_error() {
    let place = TestDatabase::new(Kind::Postgres);
    place.run("CREATE TABLE t (id integer PRIMARY KEY, v numeric, n integer); INSERT INTO t VALUES (1, 1, 1), (2, 'NaN', 2)");
    let source = open(&place);
    let shape = shape(&source.introspect().unwrap(), "t");
    let reader = source.reader(&shape).unwrap();
    let ask = |function, column| {
        let measures = vec![Measure::Of { function, column }];
        reader.aggregate(&Aggregate { measures, groups_max: GROUPS_MAX, ..Aggregate::default() })
    };
    let error = ask(AggregateFunction::Sum, 1).unwrap_err();
    assert!(error.to_string().contains("column `v` has a value that is not a number"), "{error}");
    assert_eq!(sorted(ask(AggregateFunction::Max, 2).unwrap().rows), ["[Integer(2)]"]);
    place.run("ALTER TABLE t ALTER COLUMN n TYPE numeric USING n * 0");
    let error = ask(AggregateFunction::Max, 2).unwrap_err();
    assert!(error.to_string().contains("has another type"), "{error}");
}

#[test]
fn too_many_groups_are_an_error() {
    for kind in KINDS {
        let place = with_rows(kind);
        let source = open(&place);
        let reader = source.reader(&shape(&source.introspect().unwrap(), "t")).unwrap();
        let question = Aggregate {
            groups: vec![GroupColumn::new(0)],
            measures: vec![Measure::Count],
            groups_max: 100,
            ..Aggregate::default()
        };
        let error = reader.aggregate(&question).unwrap_err();
        assert!(matches!(error, contract::source::SourceError::TooManyGroups { .. }), "{kind:?} {error:?}");
        // The connection is in order afterwards.
        assert_eq!(rows(&*reader).unwrap().len(), 240, "{kind:?}");
    }
}

#[test]
fn rows_are_not_read_to_be_added_up() {
    let place = with_rows(Kind::Postgres);
    place.run(&format!(
        "CREATE VIEW asked AS SELECT query FROM pg_stat_activity WHERE datname = '{}' AND query LIKE '%sum(%' AND query NOT LIKE '%pg_stat%'",
        place.name
    ));
    let source = open(&place);
    let facts = source.introspect().unwrap();
    let reader = source.reader(&shape(&facts, "t")).unwrap();
    let question = Aggregate {
        groups: vec![GroupColumn::new(8)],
        measures: vec![Measure::Of { function: AggregateFunction::Avg, column: 3 }],
        groups_max: GROUPS_MAX,
        ..Aggregate::default()
    };
    reader.aggregate(&question).unwrap();
    let other = open(&place);
    let asked = rows(&*other.reader(&shape(&facts, "asked")).unwrap()).unwrap();
    assert!(format!("{asked:?}").contains("GROUP BY 1"), "{asked:?}");
}

//! Questions about columns with more different values than get a code each.

use std::fmt::Write as _;

use contract::source::{Aggregate, AggregateFunction, GROUPS_MAX, GroupColumn, Measure};
use contract::{DataType, Value};

use super::kit::{TestFile, reader, shape};

/// More than there are codes.
const ROWS: u32 = 140_000;

/// Every number occurs twice, spelled differently where that is possible; every tenth row has none.
fn file() -> TestFile {
    let mut text = String::from("id,team,amount\n");
    for row in 0..ROWS {
        let number = row / 2 * 2;
        let zeros = if row % 2 == 0 { "" } else { "0" };
        match row % 10 {
            9 => writeln!(text, "{row},{},", row % 4),
            _ => writeln!(text, "{row},{},{number}.5{zeros}", row % 4),
        }
        .unwrap();
    }
    TestFile::new("many.csv", &text)
}

/// How many different values the rows of a team have, by the rules of [`file`].
fn expected(team: Option<u32>, kept: impl Fn(u32) -> u32, has_nulls: bool) -> i64 {
    let rows =
        (0..ROWS).filter(|row| team.is_none_or(|team| row % 4 == team) && !(has_nulls && row % 10 == 9));
    let mut values: Vec<u32> = rows.map(kept).collect();
    values.sort_unstable();
    values.dedup();
    i64::try_from(values.len()).unwrap()
}

#[test]
fn different_numbers_are_counted_by_value_in_every_group() {
    let file = file();
    let csv = file.csv();
    let shape = shape(&csv);
    let kinds: Vec<DataType> = shape.columns.iter().map(|column| column.data_type).collect();
    assert_eq!(kinds, [DataType::Integer, DataType::Integer, DataType::Decimal]);
    let reader = reader(&csv);
    let distinct = |column| Measure::Of { function: AggregateFunction::Distinct, column };
    let measures = vec![distinct(0), distinct(2), Measure::Count];
    let pair = |row: u32| row / 2 * 2;
    let counts = |team: Option<u32>| {
        let numbers = expected(team, pair, true);
        let rows = ROWS / if team.is_some() { 4 } else { 1 };
        [expected(team, |row| row, false), numbers, i64::from(rows)].map(Value::Integer)
    };
    let whole = Aggregate { measures: measures.clone(), groups_max: GROUPS_MAX, ..Aggregate::default() };
    let groups = reader.aggregate(&whole).unwrap();
    assert_eq!(groups.rows.len(), 1);
    assert_eq!(groups.rows[0].0, counts(None));
    let by_team = Aggregate { groups: vec![GroupColumn::new(1)], ..whole };
    let groups = reader.aggregate(&by_team).unwrap();
    assert_eq!(groups.rows.len(), 4);
    for (team, row) in (0..).zip(&groups.rows) {
        let expected = [vec![row.0[0].clone()], counts(Some(team)).to_vec()].concat();
        assert_eq!(row.0, expected, "team {team}");
    }
}

#[test]
fn more_groups_than_are_allowed_are_an_error() {
    let file = file();
    let csv = file.csv();
    let reader = reader(&csv);
    let by_id = Aggregate {
        groups: vec![GroupColumn::new(0)],
        measures: vec![Measure::Count],
        groups_max: GROUPS_MAX,
        ..Aggregate::default()
    };
    let error = reader.aggregate(&by_id).unwrap_err().to_string();
    assert!(error.contains("groups"), "{error}");
}

//! The queries that every source must answer alike.

use contract::ValueRef;
use contract::source::{Comparison, Filter, Sort};

use super::data::COLUMNS;

/// No sort, and every column in both directions.
pub fn sorts() -> Vec<Option<Sort>> {
    let columns = 0..COLUMNS.len();
    let sorts = columns.flat_map(|column| [false, true].map(|descending| Some(Sort { column, descending })));
    [None].into_iter().chain(sorts).collect()
}

pub fn filters() -> Vec<Vec<Filter<'static>>> {
    use Comparison::{AtLeast, AtMost, Equals};
    let text = ValueRef::Text;
    let one: &[(usize, Comparison, ValueRef<'static>)] = &[
        (0, Equals, ValueRef::Integer(7)),
        (0, AtLeast, ValueRef::Integer(9)),
        (0, AtMost, ValueRef::Integer(-3)),
        (1, Equals, text("red")),
        (1, Equals, text("RED")),
        (2, Equals, ValueRef::Real(-3.0)),
        (2, AtLeast, ValueRef::Real(1.5)),
        (2, AtMost, ValueRef::Real(0.0)),
        (3, Equals, text("2026-02-28")),
        (3, AtLeast, text("2026-02-28")),
        (3, AtMost, text("1999-12-31")),
        (4, Equals, text("2026-02-11T08:00:00Z")),
        (4, AtLeast, text("2026-02-11T10:00:01+02:00")),
        (4, AtMost, text("2000-01-01T00:00:00Z")),
        (5, Equals, text("2026-02-11T10:00:00")),
        (5, AtLeast, text("2026-02-11 10:00:00.5")),
        (6, Equals, ValueRef::Integer(1)),
        (6, Equals, ValueRef::Integer(0)),
        (7, Equals, ValueRef::Integer(9_007_199_254_740_993)),
        (7, AtLeast, ValueRef::Integer(9_007_199_254_740_992)),
        (7, AtMost, ValueRef::Integer(0)),
        (8, Equals, text("")),
        (8, Equals, text("007")),
        (8, Equals, text("NULL")),
        (8, Equals, text("100%_'; --")),
    ];
    let filter =
        |(column, test, value): &(usize, Comparison, ValueRef<'static>)| Filter::new(*column, *test, *value);
    let mut all: Vec<Vec<Filter<'static>>> = vec![Vec::new()];
    all.extend(one.iter().map(|one| vec![filter(one)]));
    all.push(vec![filter(&one[3]), filter(&one[8])]);
    all.push(vec![filter(&one[1]), filter(&one[16]), filter(&one[6])]);
    all.push(vec![filter(&(0, AtLeast, ValueRef::Integer(5))), filter(&(0, AtMost, ValueRef::Integer(10)))]);
    all
}

/// Terms, and the columns to search.
pub fn searches() -> Vec<(Vec<&'static str>, Vec<usize>)> {
    vec![
        (vec!["red"], vec![1]),
        (vec!["RED"], vec![1, 8]),
        (vec!["text", "2"], vec![8]),
        (vec!["blue", "same"], vec![1, 8]),
        (vec!["gröss"], vec![8]),
        (vec!["GRÖẞE"], vec![8]),
        (vec!["größe"], vec![8]),
        (vec!["%"], vec![8]),
        (vec!["_"], vec![8]),
        (vec!["'"], vec![8]),
        (vec!["\""], vec![8]),
        (vec!["🦀"], vec![8]),
        (vec!["two", "lines"], vec![8]),
        (vec!["nobody"], vec![1, 8]),
        (vec!["ed"], vec![1]),
        (vec!["beginn"], vec![8]),
        (vec!["ext"], vec![8]),
        (vec!["00"], vec![8]),
    ]
}

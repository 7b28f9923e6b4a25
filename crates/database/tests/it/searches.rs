//! Searches with a full-text index, and without one where it would miss rows.

use contract::Value;
use contract::ValueRef;
use contract::source::{
    Comparison, CursorPosition, Filter, Reader, RowFlow, Search, SearchCoverage, SearchFacts, SearchOutcome,
    Source, Total, WordMatching,
};
use test_databases::{Kind, TestDatabase};

use crate::kit::{KINDS, open, reader, shape, table};

const ROWS: &str = "(1, 'Running shoes', 'Light shoes for the road', 'x'), (2, 'Coffee', 'Freshly roasted, 100% arabica', 'secret'),
     (3, 'Café crème', NULL, 'x'), (4, 'Coffee cup', 'Runs through every dishwasher', 'x'), (5, 'the', 'about to go', 'x')";

/// A table with an index over `title` and `body`, in rows whose first column is the key.
fn with_index(kind: Kind) -> TestDatabase {
    let place = TestDatabase::new(kind);
    place.run(&match kind {
        Kind::Postgres => format!(
            "CREATE TABLE t (id integer PRIMARY KEY, title text NOT NULL, body text, notes text,
               words tsvector GENERATED ALWAYS AS (setweight(to_tsvector('english', title), 'A') || to_tsvector('english', coalesce(body, ''))) STORED);
             INSERT INTO t (id, title, body, notes) VALUES {ROWS}; CREATE INDEX ON t USING gin (words)"
        ),
        Kind::MariaDb => format!(
            "CREATE TABLE t (id integer PRIMARY KEY, title varchar(100) NOT NULL, body text, notes text, FULLTEXT (title, body)) ENGINE = InnoDB;
             INSERT INTO t VALUES {ROWS}"
        ),
    });
    place
}

fn search<'a>(terms: &[&'a str], columns: &'a [usize]) -> Search<'a> {
    Search {
        terms: terms.to_vec(),
        columns,
        filters: Vec::new(),
        after: None,
        rows_max: 100,
        scan_rows_max: 100,
        cancelled: None,
        progress: None,
    }
}

/// The keys of the rows.
fn found(reader: &dyn Reader, search: &Search<'_>) -> (Vec<i64>, SearchOutcome) {
    let mut keys = Vec::new();
    let outcome = reader.search(search, &mut |values, _| {
        let ValueRef::Integer(key) = values[0] else { panic!("{values:?}") };
        keys.push(key);
        RowFlow::Continue
    });
    (keys, outcome.unwrap())
}

fn check(kind: Kind, reader: &dyn Reader, columns: &[usize], terms: &[&str], expected: &[i64]) {
    let (keys, outcome) = found(reader, &search(terms, columns));
    assert_eq!(keys, expected, "{kind:?} {terms:?} in {columns:?}");
    assert_eq!(outcome.total, Total::Exact(expected.len() as u64), "{kind:?} {terms:?}");
    assert_eq!(outcome.coverage, SearchCoverage::Complete, "{kind:?} {terms:?}");
}

#[test]
fn an_index_finds_words_as_its_facts_say() {
    for kind in KINDS {
        let place = with_index(kind);
        let source = open(&place);
        let facts = source.introspect().unwrap();
        let matching = match kind {
            Kind::Postgres => WordMatching::Dictionary("english".into()),
            Kind::MariaDb => WordMatching::Beginnings,
        };
        assert_eq!(table(&facts, "t").search.word_matching(&[1, 2]), Some(&matching), "{kind:?}");
        assert_eq!(table(&facts, "t").search.word_matching(&[1]), None, "{kind:?}");
        let reader = reader(&source, "t");
        let cases: &[(&[&str], &[i64])] = match kind {
            Kind::Postgres => &[
                (&["COFFEE"], &[2, 4]),
                (&["run"], &[1, 4]),
                (&["coffee", "running"], &[4]),
                (&["coff"], &[]),
                (&["the", "coffees"], &[2, 4]),
                (&["100%", "roast"], &[2]),
            ],
            Kind::MariaDb => &[
                (&["COFFEE"], &[2, 4]),
                (&["runn"], &[1]),
                (&["coff", "run"], &[4]),
                (&["offee"], &[]),
                (&["coffee", "up"], &[4]),
                (&["fresh", "100%"], &[2]),
                (&["cafe"], &[]),
                (&["café"], &[3]),
            ],
        };
        for (terms, expected) in cases {
            check(kind, &*reader, &[2, 1], terms, expected);
        }
    }
}

#[test]
fn what_an_index_cannot_answer_is_scanned_for() {
    for kind in KINDS {
        let place = with_index(kind);
        let reader = reader(&open(&place), "t");
        // Only words that are not indexed, other columns, and a part of the columns: `secret` must not be found by `title`.
        for (columns, terms, expected) in [
            (&[1, 2][..], &["the"][..], &[1, 5][..]),
            (&[1, 2], &["a", "to"], &[5]),
            (&[1], &["offee"], &[2, 4]),
            (&[1], &["roasted"], &[]),
            (&[1, 2, 3], &["secre"], &[2]),
            (&[1, 2], &["secret"], &[]),
        ] {
            check(kind, &*reader, columns, terms, expected);
        }
        let place = TestDatabase::new(kind);
        place.run("CREATE TABLE t (id integer PRIMARY KEY, title text, body text); INSERT INTO t VALUES (1, 'Coffee', 'x')");
        assert_eq!(table(&open(&place).introspect().unwrap(), "t").search, SearchFacts::Scan, "{kind:?}");
    }
}

#[test]
fn values_are_words_and_never_operators_or_sql() {
    for kind in KINDS {
        let place = with_index(kind);
        let reader = reader(&open(&place), "t");
        for term in [
            "-coffee",
            "coffee:*",
            "!coffee",
            "(coffee",
            "\"coffee",
            "coffee*",
            "'; DROP TABLE t; --",
            "a & b",
            "+",
            "@4",
            "\0",
        ] {
            let (keys, _) = found(&*reader, &search(&[term], &[1, 2]));
            // PostgreSQL reads punctuation as the end of a word.
            let is_word = kind == Kind::Postgres && term.contains("coffee");
            assert_eq!(keys, if is_word { vec![2, 4] } else { vec![] }, "{kind:?} {term}");
        }
    }
}

#[test]
fn a_search_with_an_index_has_filters_and_pages() {
    for kind in KINDS {
        let place = with_index(kind);
        let source = open(&place);
        let reader = source.reader(&shape(&source.introspect().unwrap(), "t")).unwrap();
        let only = Filter::new(0, Comparison::AtLeast, ValueRef::Integer(3));
        let filtered = Search { filters: vec![only], ..search(&["coffee"], &[1, 2]) };
        assert_eq!(found(&*reader, &filtered).0, [4], "{kind:?}");
        let after = |key: i64| CursorPosition { sort_values: Vec::new(), key: vec![Value::Integer(key)] };
        for (key, expected) in [(2, &[4][..]), (4, &[])] {
            let position = after(key);
            let page = Search { after: Some(&position), ..search(&["coffee"], &[1, 2]) };
            let (keys, outcome) = found(&*reader, &page);
            assert_eq!((&keys[..], outcome.total), (expected, Total::Exact(2)), "{kind:?} after {key}");
        }
    }
}

#[test]
fn an_index_that_may_miss_rows_is_not_used() {
    for (kind, ddl) in [
        (
            Kind::Postgres,
            "CREATE TABLE t (id integer PRIMARY KEY, title text, words tsvector); CREATE INDEX ON t USING gin (words)",
        ),
        (
            Kind::Postgres,
            "CREATE TABLE t (id integer PRIMARY KEY, title text); CREATE INDEX ON t USING gin (to_tsvector('english', title))",
        ),
        (
            Kind::Postgres,
            "CREATE TABLE t (id integer PRIMARY KEY, title text NOT NULL); CREATE INDEX ON t USING gin (to_tsvector('english', left(title, 9)))",
        ),
        (
            Kind::Postgres,
            "CREATE TABLE t (id integer PRIMARY KEY, title text NOT NULL); CREATE INDEX ON t USING gin (to_tsvector('english', title)) WHERE id > 3",
        ),
        (
            Kind::MariaDb,
            "CREATE TABLE t (id integer PRIMARY KEY, title text, FULLTEXT (title)) ENGINE = MyISAM",
        ),
        (
            Kind::MariaDb,
            "CREATE TABLE t (id integer PRIMARY KEY, title text COLLATE utf8mb4_bin, FULLTEXT (title)) ENGINE = InnoDB",
        ),
    ] {
        let place = TestDatabase::new(kind);
        place.run(ddl);
        assert_eq!(table(&open(&place).introspect().unwrap(), "t").search, SearchFacts::Scan, "{ddl}");
    }
    let place = TestDatabase::new(Kind::Postgres);
    place.run("CREATE TABLE t (id integer PRIMARY KEY, title text NOT NULL); CREATE INDEX ON t USING gin (to_tsvector('simple', title));
               INSERT INTO t VALUES (1, 'Running')");
    let reader = reader(&open(&place), "t");
    check(Kind::Postgres, &*reader, &[1], &["running"], &[1]);
    check(Kind::Postgres, &*reader, &[1], &["run"], &[]);
}

//! Which table a name means, and that pages have each of its rows once, in the order of `contract`.

use contract::source::Comparison;
use contract::source::{CursorPosition, Filter, Query, Reader, RowFlow, Sort, Source};
use contract::{Value, ValueRef};
use database::Options;
use test_databases::{Kind, TestDatabase};

use crate::kit::{KINDS, open, open_with, reader, rows, shape, shown, table};

/// The first column of all rows, read in pages of one row, as a host does.
pub fn paged(reader: &dyn Reader, sort: &[Sort], key: &[usize]) -> Vec<String> {
    let (mut found, mut after): (Vec<String>, Option<CursorPosition>) = (Vec::new(), None);
    loop {
        let query = Query { sort: sort.to_vec(), after: after.as_ref(), rows_max: 1, ..Query::default() };
        let mut last = None;
        let listed = reader.list(&query, &mut |values, position| {
            found.push(shown(&values[0].to_value()));
            let key = match key.is_empty() {
                true => vec![Value::Integer(position.row_number), Value::Integer(position.table_version)],
                false => key.iter().map(|at| values[*at].to_value()).collect(),
            };
            let sort_values = sort.iter().map(|one| values[one.column].to_value()).collect();
            last = Some(CursorPosition { sort_values, key });
            RowFlow::Continue
        });
        listed.unwrap_or_else(|error| panic!("after {found:?} {after:?}: {error:?}"));
        match last {
            Some(last) => after = Some(last),
            None => return found,
        }
        assert!(found.len() < 100, "pages repeat rows: {found:?}");
    }
}

pub fn by(column: usize, descending: bool) -> Sort {
    Sort { column, descending }
}

#[test]
fn a_name_means_the_table_that_the_search_path_finds() {
    for (path, expected) in [
        ("zeta, alpha", ["t: zeta", "alpha.t: alpha"]),
        ("alpha, zeta", ["t: alpha", "zeta.t: zeta"]),
        ("\"$user\", zeta", ["t: postgres", "zeta.t: zeta"]),
    ] {
        let place = TestDatabase::new(Kind::Postgres);
        let schemas = ["zeta", "alpha", "postgres"];
        for schema in schemas {
            place.run(&format!(
                "CREATE SCHEMA {schema}; CREATE TABLE {schema}.t (v text); INSERT INTO {schema}.t VALUES ('{schema}')"
            ));
        }
        place.run(&format!("ALTER DATABASE {} SET search_path = {path}", place.name));
        let source = open(&place);
        let facts = source.introspect().unwrap();
        let found: Vec<String> = facts
            .tables
            .iter()
            .map(|table| {
                format!("{}: {}", table.name, shown(&rows(&*reader(&source, &table.name)).unwrap()[0][0]))
            })
            .collect();
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn names_with_dots_quotes_and_blanks_are_those_of_different_tables() {
    let place = TestDatabase::new(Kind::Postgres);
    place.run(
        r#"CREATE SCHEMA a; CREATE TABLE a.b ("the ""key""" integer PRIMARY KEY, "Größe, x" text); CREATE TABLE "a.b" (v text);
           INSERT INTO a.b VALUES (1, 'in the schema'); INSERT INTO "a.b" VALUES ('with a dot')"#,
    );
    let options = Options { schemas: vec!["public".into(), "a".into()], ..Options::new(place.url()) };
    let source = open_with(Kind::Postgres, options);
    let facts = source.introspect().unwrap();
    let names: Vec<&str> = facts.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["a.b", "\"a\".\"b\""]);
    assert_eq!(shown(&rows(&*reader(&source, "a.b")).unwrap()[0][0]), "with a dot");
    let other = reader(&source, "\"a\".\"b\"");
    let filters = vec![Filter::new(1, Comparison::Contains, ValueRef::Text("schema"))];
    let mut found = 0;
    let query = Query { filters, rows_max: 10, ..Query::default() };
    other
        .list(&query, &mut |_, _| {
            found += 1;
            RowFlow::Continue
        })
        .unwrap();
    assert_eq!(found, 1);
}

#[test]
fn partitions_and_heirs_without_a_key_are_paged_without_gaps() {
    let place = TestDatabase::new(Kind::Postgres);
    place.run(
        "CREATE TABLE parts (n integer, v text) PARTITION BY LIST (v);
         CREATE TABLE part_a PARTITION OF parts FOR VALUES IN ('a'); CREATE TABLE part_b PARTITION OF parts FOR VALUES IN ('b');
         CREATE TABLE old (n integer PRIMARY KEY, v text); CREATE TABLE young (extra text) INHERITS (old);
         INSERT INTO parts SELECT i, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END FROM generate_series(1, 20) i;
         INSERT INTO old SELECT i, 'x' FROM generate_series(1, 10) i; INSERT INTO young SELECT i, 'x' FROM generate_series(1, 10) i;
         CREATE TABLE keyed (id integer PRIMARY KEY, v text) PARTITION BY RANGE (id);
         CREATE TABLE keyed_low PARTITION OF keyed FOR VALUES FROM (0) TO (5); CREATE TABLE keyed_high PARTITION OF keyed DEFAULT;
         INSERT INTO keyed SELECT i, 'x' FROM generate_series(1, 9) i;",
    );
    let source = open(&place);
    let facts = source.introspect().unwrap();
    let names: Vec<&str> = facts.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["keyed", "old", "parts", "young"]);
    // The heirs repeat the key of their parent.
    for (name, key, expected) in [
        ("parts", &[][..], (1..=20).collect::<Vec<i32>>()),
        ("old", &[], (1..=10).chain(1..=10).collect()),
        ("keyed", &[0], (1..=9).collect()),
    ] {
        assert_eq!(table(&facts, name).key, key, "{name}");
        for sort in [&[][..], &[by(1, false)], &[by(1, true)]] {
            let mut found: Vec<i32> =
                paged(&*reader(&source, name), sort, key).iter().map(|n| n.parse().unwrap()).collect();
            let mut expected = expected.clone();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{name} {sort:?}");
        }
    }
}

#[test]
fn texts_are_sorted_by_their_bytes_whatever_the_database_prefers() {
    let place = TestDatabase::new(Kind::Postgres);
    let name = format!("{}_icu", place.name);
    place.run(&format!(
        "CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C'"
    ));
    let icu = TestDatabase { server: test_databases::Server::shared(Kind::Postgres), name };
    icu.run(
        "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         CREATE TABLE t (id integer PRIMARY KEY, name text, blind text COLLATE blind);
         INSERT INTO t VALUES (1, 'a', 'a'), (2, 'B', 'A'), (3, 'C', 'b')",
    );
    let reader = reader(&open(&icu), "t");
    for (column, expected) in [(1, ["2", "3", "1"]), (2, ["2", "1", "3"])] {
        assert_eq!(paged(&*reader, &[by(column, false)], &[0]), expected, "{column}");
    }
    let mut found = Vec::new();
    let filters = vec![Filter::new(2, Comparison::Equals, ValueRef::Text("a"))];
    let query = Query { filters, rows_max: 10, ..Query::default() };
    reader
        .list(&query, &mut |values, _| {
            found.push(values[0].to_value());
            RowFlow::Continue
        })
        .unwrap();
    assert_eq!(found, [Value::Integer(1)]);
}

#[test]
fn long_texts_are_sorted_by_all_that_a_cursor_has() {
    for kind in KINDS {
        let place = TestDatabase::new(kind);
        place.run(
            "CREATE TABLE t (id integer PRIMARY KEY, note text, name varchar(3000));
             INSERT INTO t VALUES (1, concat(repeat('x', 1100), 'b'), concat(repeat('ä', 1100), 'b')), (2, concat(repeat('x', 1100), 'a'), concat(repeat('ä', 1100), 'a')),
               (3, concat(repeat('x', 3000), 'b'), concat(repeat('ä', 1900), 'b')), (4, concat(repeat('x', 3000), 'a'), concat(repeat('ä', 1900), 'a')), (5, NULL, NULL)",
        );
        let reader = reader(&open(&place), "t");
        for column in [1, 2] {
            assert_eq!(
                paged(&*reader, &[by(column, false)], &[0]),
                ["2", "1", "4", "3", "5"],
                "{kind:?} {column}"
            );
            assert_eq!(
                paged(&*reader, &[by(column, true)], &[0]),
                ["3", "4", "1", "2", "5"],
                "{kind:?} {column}"
            );
        }
    }
}

#[test]
fn keys_without_a_sign_are_numbers_that_can_be_linked() {
    let place = TestDatabase::new(Kind::MariaDb);
    place.run(
        "CREATE TABLE users (id bigint unsigned AUTO_INCREMENT PRIMARY KEY, big bigint unsigned, huge bigint unsigned, email varchar(80));
         CREATE TABLE posts (id bigint unsigned AUTO_INCREMENT PRIMARY KEY, user_id bigint unsigned, FOREIGN KEY (user_id) REFERENCES users (id));
         INSERT INTO users VALUES (1, 9007199254740993, 18446744073709551615, 'a'), (2, 5, 5, 'b'); INSERT INTO posts VALUES (7, 2)",
    );
    let source = open(&place);
    let facts = source.introspect().unwrap();
    let types = |name: &str| -> Vec<&str> {
        table(&facts, name).columns.iter().map(|column| column.data_type.as_str()).collect()
    };
    assert_eq!(
        (types("users"), types("posts")),
        (vec!["integer", "int64", "decimal", "text"], vec!["integer"; 2])
    );
    let (users, posts) = (table(&facts, "users"), table(&facts, "posts"));
    assert!(contract::source::are_linkable(users.columns[0].data_type, posts.columns[1].data_type));
    let reader = source.reader(&shape(&facts, "users")).unwrap();
    let all: Vec<String> = rows(&*reader)
        .unwrap()
        .iter()
        .map(|row| row.iter().map(shown).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(all, ["1 9007199254740993 18446744073709551615 a", "2 5 5 b"]);
    for (column, sorted) in [(0, ["2", "1"]), (1, ["1", "2"]), (2, ["1", "2"])] {
        assert_eq!(paged(&*reader, &[by(column, true)], &[0]), sorted, "{column}");
    }
    // A larger value than the contract has is no wrong answer.
    place.run("UPDATE users SET big = 18446744073709551615 WHERE id = 2");
    let error = rows(&*reader).unwrap_err();
    assert!(error.to_string().contains("column `big` has a value that does not fit its type"), "{error}");
    assert!(source.take_suspicion());
    assert_eq!(table(&source.introspect().unwrap(), "users").columns[1].data_type.as_str(), "decimal");
}

//! Every type of each engine: as what it is served, and that no digit is lost.

use contract::order::is_in_order;
use contract::source::{Comparison, Filter, Query, RowFlow, Source};
use contract::{DataType, ValueRef};
use test_databases::{Kind, TestDatabase};

use crate::kit::{open, rows, shape, shown, table};

/// A declared type, a literal, the type it is served as, and the value.
type Case = (&'static str, &'static str, DataType, &'static str);

const POSTGRES: &[Case] = &[
    ("smallint", "-32768", DataType::Integer, "-32768"),
    ("integer", "2147483647", DataType::Integer, "2147483647"),
    ("bigint", "9007199254740991", DataType::Integer, "9007199254740991"),
    ("bigint", "9007199254740993", DataType::Int64, "9007199254740993"),
    (
        "numeric",
        "123456789012345678901234567890.123456789",
        DataType::Decimal,
        "123456789012345678901234567890.123456789",
    ),
    ("numeric(12, 4)", "1.5", DataType::Decimal, "1.5000"),
    ("numeric", "'NaN'", DataType::Decimal, "NaN"),
    ("numeric", "'-Infinity'", DataType::Decimal, "-inf"),
    ("real", "0.1", DataType::Number, "0.1"),
    ("double precision", "0.1", DataType::Number, "0.1"),
    ("double precision", "'Infinity'", DataType::Number, "inf"),
    ("double precision", "'NaN'", DataType::Number, "NaN"),
    ("boolean", "true", DataType::Boolean, "1"),
    ("text", "E'a\\tb'", DataType::Text, "a\tb"),
    ("varchar(9)", "'a '", DataType::Text, "a "),
    ("char(4)", "'ab'", DataType::Text, "ab"),
    ("date", "'2026-02-11'", DataType::Date, "2026-02-11"),
    ("date", "'infinity'", DataType::Date, "infinity"),
    ("timestamptz", "'2026-02-11 10:00:00.5+02'", DataType::Timestamp, "2026-02-11T08:00:00.5Z"),
    ("timestamptz", "'-infinity'", DataType::Timestamp, "-infinity"),
    ("timestamp", "'2026-02-11 10:00:00.000001'", DataType::LocalTimestamp, "2026-02-11T10:00:00.000001"),
    ("time", "'10:00:00'", DataType::Text, "10:00:00"),
    ("interval", "'1 day 2 hours'", DataType::Text, "P1DT2H"),
    (
        "uuid",
        "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
        DataType::Text,
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    ),
    ("bytea", "'\\x00ff'", DataType::Blob, "[0, 255]"),
    ("json", "'{\"b\": 1.10, \"a\": [1]}'", DataType::Json, "{\"b\": 1.10, \"a\": [1]}"),
    ("jsonb", "'{\"b\": 1.10, \"a\": [1]}'", DataType::Json, "{\"a\": [1], \"b\": 1.10}"),
    ("integer[]", "'{1,2,NULL}'", DataType::Json, "[1,2,null]"),
    ("text[]", "'{a,\"b c\"}'", DataType::Json, "[\"a\",\"b c\"]"),
    ("inet", "'10.0.0.1/8'", DataType::Text, "10.0.0.1/8"),
    ("int4range", "'[1,5)'", DataType::Text, "[1,5)"),
    ("mood", "'sad'", DataType::Text, "sad"),
    ("price", "7.50", DataType::Decimal, "7.50"),
    ("point", "'(1,2)'", DataType::Text, "(1,2)"),
    ("bit(3)", "B'101'", DataType::Text, "101"),
    ("money", "1.50", DataType::Text, "$1.50"),
    ("citext", "'Ab'", DataType::Text, "Ab"),
    ("timetz", "'10:00:00+02'", DataType::Text, "10:00:00+02"),
    ("macaddr", "'08:00:2b:01:02:03'", DataType::Text, "08:00:2b:01:02:03"),
    ("xml", "'<a/>'", DataType::Text, "<a/>"),
    ("pair", "ROW(1, 'x')", DataType::Json, "{\"a\":1,\"b\":\"x\"}"),
    ("pair[]", "ARRAY[ROW(1, 'x')::pair]", DataType::Json, "[{\"a\":1,\"b\":\"x\"}]"),
    ("discount", "1.25", DataType::Decimal, "1.25"),
    ("mood[]", "'{sad,ok}'", DataType::Json, "[\"sad\",\"ok\"]"),
    ("date", "'12026-01-01'", DataType::Date, "+12026-01-01"),
    ("date", "'9999-12-31'", DataType::Date, "9999-12-31"),
    ("timestamp", "'0044-03-15 10:00 BC'", DataType::LocalTimestamp, "-0043-03-15T10:00:00"),
    ("timestamptz", "'12026-01-01 10:00Z'", DataType::Timestamp, "+12026-01-01T10:00:00Z"),
    ("bit varying(5)", "B'10'", DataType::Text, "10"),
    ("cidr", "'10.0.0.0/8'", DataType::Text, "10.0.0.0/8"),
    ("tsvector", "'a b'", DataType::Text, "'a' 'b'"),
    ("box", "'(1,1),(0,0)'", DataType::Text, "(1,1),(0,0)"),
    ("name", "'x'", DataType::Text, "x"),
    ("oid", "5", DataType::Text, "5"),
    ("tsquery", "'a & b'", DataType::Text, "'a' & 'b'"),
    ("pg_lsn", "'16/B374D848'", DataType::Text, "16/B374D848"),
    ("jsonpath", "'$.a[*]'", DataType::Text, "$.\"a\"[*]"),
    ("polygon", "'((0,0),(1,1))'", DataType::Text, "((0,0),(1,1))"),
    ("circle", "'<(0,0),1>'", DataType::Text, "<(0,0),1>"),
    ("line", "'{1,2,3}'", DataType::Text, "{1,2,3}"),
    ("lseg", "'[(0,0),(1,1)]'", DataType::Text, "[(0,0),(1,1)]"),
    ("path", "'[(0,0),(1,1)]'", DataType::Text, "[(0,0),(1,1)]"),
    ("macaddr8", "'08:00:2b:01:02:03:04:05'", DataType::Text, "08:00:2b:01:02:03:04:05"),
    ("int8range", "'[1,5)'", DataType::Text, "[1,5)"),
    ("numrange", "'[1.5,2]'", DataType::Text, "[1.5,2]"),
    ("daterange", "'[2026-01-01,2026-02-01)'", DataType::Text, "[2026-01-01,2026-02-01)"),
    ("tsrange", "'[2026-01-01 10:00,)'", DataType::Text, "[\"2026-01-01 10:00:00\",)"),
    ("tstzrange", "'[2026-01-01 10:00Z,)'", DataType::Text, "[\"2026-01-01 10:00:00+00\",)"),
    ("int4multirange", "'{[1,3),[5,7)}'", DataType::Text, "{[1,3),[5,7)}"),
    ("int8multirange", "'{[1,3),[5,7)}'", DataType::Text, "{[1,3),[5,7)}"),
    ("nummultirange", "'{[1.5,2]}'", DataType::Text, "{[1.5,2]}"),
    ("datemultirange", "'{[2026-01-01,2026-02-01)}'", DataType::Text, "{[2026-01-01,2026-02-01)}"),
    ("tsmultirange", "'{[2026-01-01 10:00,)}'", DataType::Text, "{[\"2026-01-01 10:00:00\",)}"),
    ("tstzmultirange", "'{[2026-01-01 10:00Z,)}'", DataType::Text, "{[\"2026-01-01 10:00:00+00\",)}"),
    ("xid8", "'18446744073709551615'", DataType::Text, "18446744073709551615"),
    ("xid", "'4294967295'", DataType::Text, "4294967295"),
    ("cid", "'5'", DataType::Text, "5"),
    ("tid", "'(0,1)'", DataType::Text, "(0,1)"),
    ("pg_snapshot", "'10:20:10,14'", DataType::Text, "10:20:10,14"),
    ("refcursor", "'c'", DataType::Text, "c"),
    ("regclass", "'pg_catalog.pg_class'", DataType::Text, "pg_class"),
    ("\"char\"", "'x'", DataType::Text, "x"),
];

/// Types of the catalog that a column can be declared with, and whose values nobody stores in tables of their own. They are served as
/// the database prints them, like all types that are not known here.
const OF_THE_CATALOG: &[&str] = &[
    "aclitem",
    "gtsvector",
    // Statistics and plans; nobody can write a literal of them.
    "pg_brin_bloom_summary",
    "pg_brin_minmax_multi_summary",
    "pg_dependencies",
    "pg_mcv_list",
    "pg_ndistinct",
    "pg_node_tree",
    // Names of other things than tables, as `regclass`.
    "regcollation",
    "regconfig",
    "regdictionary",
    "regnamespace",
    "regoper",
    "regoperator",
    "regproc",
    "regprocedure",
    "regrole",
    "regtype",
    // The old name of `pg_snapshot`.
    "txid_snapshot",
];

const MARIADB: &[Case] = &[
    ("tinyint(1)", "1", DataType::Boolean, "1"),
    ("tinyint(1)", "2", DataType::Integer, "2"),
    ("smallint", "-32768", DataType::Integer, "-32768"),
    ("int unsigned", "4294967295", DataType::Integer, "4294967295"),
    ("bigint", "9007199254740993", DataType::Int64, "9007199254740993"),
    ("bigint unsigned", "18446744073709551615", DataType::Decimal, "18446744073709551615"),
    (
        "decimal(38, 10)",
        "1234567890123456789012345678.0123456789",
        DataType::Decimal,
        "1234567890123456789012345678.0123456789",
    ),
    ("float", "0.1", DataType::Number, "0.1"),
    ("double", "0.1", DataType::Number, "0.1"),
    ("varchar(9)", "'a '", DataType::Text, "a "),
    ("char(4)", "'ab'", DataType::Text, "ab"),
    ("text character set latin1", "'Größe'", DataType::Text, "Größe"),
    ("longtext", "'🦀'", DataType::Text, "🦀"),
    ("date", "'2026-02-11'", DataType::Date, "2026-02-11"),
    ("datetime(6)", "'2026-02-11 10:00:00.000001'", DataType::LocalTimestamp, "2026-02-11T10:00:00.000001"),
    ("datetime", "'2026-02-11 10:00:00'", DataType::LocalTimestamp, "2026-02-11T10:00:00"),
    ("timestamp", "'2026-02-11 10:00:00'", DataType::Timestamp, "2026-02-11T10:00:00Z"),
    ("time", "'10:00:00'", DataType::Text, "10:00:00"),
    ("year", "2026", DataType::Integer, "2026"),
    ("varbinary(4)", "x'00ff'", DataType::Blob, "[0, 255]"),
    ("blob", "x'ff'", DataType::Blob, "[255]"),
    ("json", "'{\"b\": 1.10}'", DataType::Json, "{\"b\": 1.10}"),
    ("enum('sad','ok')", "'sad'", DataType::Text, "sad"),
    ("set('a','b')", "'a,b'", DataType::Text, "a,b"),
    ("bit(1)", "b'1'", DataType::Boolean, "1"),
    (
        "uuid",
        "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
        DataType::Text,
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    ),
    ("inet6", "'::1'", DataType::Text, "::1"),
    ("inet4", "'10.0.0.1'", DataType::Text, "10.0.0.1"),
    ("tinyint", "-128", DataType::Integer, "-128"),
    ("tinyint unsigned", "255", DataType::Integer, "255"),
    ("mediumint", "-8388608", DataType::Integer, "-8388608"),
    ("bigint unsigned", "7", DataType::Integer, "7"),
    ("bigint unsigned", "9007199254740993", DataType::Int64, "9007199254740993"),
    ("bigint unsigned", "9223372036854775808", DataType::Decimal, "9223372036854775808"),
    ("binary(3)", "x'0001'", DataType::Blob, "[0, 1, 0]"),
    ("tinyblob", "x'01'", DataType::Blob, "[1]"),
    ("mediumtext", "'x'", DataType::Text, "x"),
    (
        "point",
        "ST_GeomFromText('POINT(1 2)')",
        DataType::Blob,
        "[0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 240, 63, 0, 0, 0, 0, 0, 0, 0, 64]",
    ),
    (
        "geometry",
        "ST_GeomFromText('LINESTRING(0 0, 1 1)')",
        DataType::Blob,
        "[0, 0, 0, 0, 1, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 240, 63, 0, 0, 0, 0, 0, 0, 240, 63]",
    ),
    ("tinytext", "'x'", DataType::Text, "x"),
    ("mediumblob", "x'01'", DataType::Blob, "[1]"),
    ("longblob", "x'0100'", DataType::Blob, "[1, 0]"),
    ("varchar(9) character set utf16", "'Größe'", DataType::Text, "Größe"),
    ("varchar(9) character set utf8mb3", "'Größe'", DataType::Text, "Größe"),
    ("char(4) character set cp1251", "'Жук'", DataType::Text, "Жук"),
    ("text character set sjis", "'ひ'", DataType::Text, "ひ"),
    ("varchar(9) character set ucs2", "'ß'", DataType::Text, "ß"),
    ("varchar(9) character set big5", "'中'", DataType::Text, "中"),
    ("varchar(9) character set ascii", "'a'", DataType::Text, "a"),
    ("date", "'0000-00-00'", DataType::Date, "0000-00-00"),
    ("date", "'9999-12-31'", DataType::Date, "9999-12-31"),
    ("datetime", "'2026-00-15 10:00:00'", DataType::LocalTimestamp, "2026-00-15T10:00:00"),
    ("bit(9)", "b'101'", DataType::Blob, "[0, 5]"),
    ("time(3)", "'-838:59:58.125'", DataType::Text, "-838:59:58.125"),
    (
        "decimal(65, 30)",
        "-12345678901234567890123456789012345.000000000000000000000000000001",
        DataType::Decimal,
        "-12345678901234567890123456789012345.000000000000000000000000000001",
    ),
];

fn check(kind: Kind, cases: &[Case]) {
    let place = TestDatabase::new(kind);
    let mut sql = match kind {
        Kind::Postgres => {
            "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN price AS numeric(8, 2); CREATE DOMAIN discount AS price NOT NULL DEFAULT 0;
             ALTER DOMAIN discount DROP NOT NULL; CREATE TYPE pair AS (a integer, b text); CREATE EXTENSION citext;\n".to_owned()
        }
        Kind::MariaDb => "SET time_zone = '+00:00', sql_mode = '';\n".to_owned(),
    };
    for (at, (declared, literal, ..)) in cases.iter().enumerate() {
        sql += &format!("CREATE TABLE t{at} (id integer PRIMARY KEY, v {declared} NULL);\n");
        sql += &format!("INSERT INTO t{at} VALUES (1, {literal}), (2, NULL);\n");
    }
    place.run(&sql);
    let source = open(&place);
    let facts = source.introspect().unwrap();
    for (at, (declared, literal, data_type, value)) in cases.iter().enumerate() {
        let name = format!("t{at}");
        let column = &table(&facts, &name).columns[1];
        assert_eq!(column.data_type, *data_type, "{kind:?} {declared} {literal}");
        let shape = shape(&facts, &name);
        let reader = source.reader(&shape).unwrap_or_else(|error| panic!("{declared}: {error}"));
        let found = rows(&*reader).unwrap_or_else(|error| panic!("{kind:?} {declared} {literal}: {error:?}"));
        assert_eq!(shown(&found[0][1]), *value, "{kind:?} {declared} {literal}");
        assert_eq!(shown(&found[1][1]), "NULL", "{kind:?} {declared}");
        // What was returned finds the row again, in every comparison; but an exception is in no range.
        let value = found[0][1].as_value_ref();
        let is_infinite = matches!(value, ValueRef::Real(n) if n.is_infinite());
        let is_ordinary =
            is_in_order(*data_type, value) && !is_infinite && !shown(&found[0][1]).contains("-00");
        let is_exception = column.mixed && !is_ordinary;
        if data_type.is_scalar() {
            for comparison in [Comparison::Equals, Comparison::AtLeast, Comparison::AtMost] {
                if comparison != Comparison::Equals && !data_type.has_range() {
                    continue;
                }
                let filters = vec![Filter::new(1, comparison, found[0][1].as_value_ref())];
                let query = Query { filters, rows_max: 10, ..Query::default() };
                let mut count = 0;
                let listed = reader.list(&query, &mut |_, _| {
                    count += 1;
                    RowFlow::Continue
                });
                listed.unwrap_or_else(|error| panic!("{kind:?} {declared} {comparison:?}: {error:?}"));
                let expected = usize::from(comparison == Comparison::Equals || !is_exception);
                assert_eq!(count, expected, "{kind:?} {declared} {literal} {comparison:?}");
            }
        }
    }
}

#[test]
fn every_type_of_postgresql_is_served_without_loss_and_found_again() {
    check(Kind::Postgres, POSTGRES);
}

#[test]
fn every_type_that_postgresql_has_is_tested_or_known() {
    let place = TestDatabase::new(Kind::Postgres);
    place.run("CREATE EXTENSION citext; CREATE TYPE mood AS ENUM ('sad'); CREATE TYPE pair AS (a integer); CREATE DOMAIN price AS numeric; CREATE DOMAIN discount AS price");
    let tested: Vec<String> = POSTGRES
        .iter()
        .map(|(declared, ..)| format!("'{}'::regtype", declared.replace('\'', "''")))
        .collect();
    // Arrays and rows are the same for all types, and pseudo-types are not those of columns.
    place.run(&format!(
        "CREATE VIEW untested AS SELECT format_type(t.oid, NULL) AS name FROM pg_catalog.pg_type t \
         WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype NOT IN ('p', 'c') AND t.typcategory <> 'A' \
         AND t.oid <> ALL (ARRAY[{}])",
        tested.join(", ")
    ));
    let source = open(&place);
    let reader = crate::kit::reader(&source, "untested");
    let mut found: Vec<String> = rows(&*reader).unwrap().iter().map(|row| shown(&row[0])).collect();
    found.sort();
    assert_eq!(found, OF_THE_CATALOG);
}

#[test]
fn every_type_of_mariadb_is_served_without_loss_and_found_again() {
    check(Kind::MariaDb, MARIADB);
}

#[test]
fn a_catalog_tells_keys_links_comments_labels_and_what_is_computed() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = TestDatabase::new(kind);
        place.run(match kind {
            Kind::Postgres => {
                "CREATE TYPE mood AS ENUM ('sad', 'ok');
                 CREATE TABLE customers (id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, email text NOT NULL, mood mood);
                 COMMENT ON TABLE customers IS 'People.'; COMMENT ON COLUMN customers.email IS 'Their address.';
                 CREATE TABLE orders (region text, nr integer, customer integer REFERENCES customers, net numeric(8,2) NOT NULL,
                   gross numeric GENERATED ALWAYS AS (net * 2) STORED, PRIMARY KEY (region, nr));
                 CREATE VIEW big AS SELECT * FROM orders WHERE net > 5;"
            }
            Kind::MariaDb => {
                "CREATE TABLE customers (id integer AUTO_INCREMENT PRIMARY KEY, email text NOT NULL COMMENT 'Their address.',
                   mood enum('sad', 'ok')) COMMENT 'People.';
                 CREATE TABLE orders (region varchar(9), nr integer, customer integer REFERENCES customers (id), net decimal(8,2) NOT NULL,
                   gross decimal(12,2) AS (net * 2) STORED, PRIMARY KEY (region, nr));
                 CREATE VIEW big AS SELECT * FROM orders WHERE net > 5;"
            }
        });
        let facts = open(&place).introspect().unwrap();
        let names: Vec<&str> = facts.tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["big", "customers", "orders"], "{kind:?}");
        let customers = table(&facts, "customers");
        assert_eq!(customers.description.as_deref(), Some("People."), "{kind:?}");
        assert_eq!(customers.columns[1].description.as_deref(), Some("Their address."), "{kind:?}");
        assert_eq!(customers.columns[2].distinct_values, ["sad", "ok"], "{kind:?}");
        assert!(customers.columns[0].has_default && !customers.columns[1].has_default, "{kind:?}");
        let orders = table(&facts, "orders");
        assert_eq!((&orders.key[..], orders.key_is_declared), (&[0, 1][..], true), "{kind:?}");
        assert_eq!(orders.foreign_keys.len(), 1, "{kind:?}");
        assert_eq!(
            (&orders.foreign_keys[0].table[..], &orders.foreign_keys[0].columns[..]),
            ("customers", &[2][..])
        );
        assert!(orders.columns[4].read_only_reason.is_some(), "{kind:?}");
        assert_eq!(table(&facts, "big").read_only_reason(), Some("it is a view"), "{kind:?}");
    }
}

//! The data type of a column, from its declaration and its stored values.

use contract::DataType::{
    self, Blob, Boolean, Date, Decimal, Int64, Integer, Json, LocalTimestamp, Number, Text, Timestamp,
};
use contract::source::{Comparison, Filter};
use contract::source::{Query, RowFlow, SourceError, Total};
use contract::{Value, ValueRef};

use super::kit::{TestDb, all, error_text, format_value, get, list};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueMix {
    Pure,
    Mixed,
}
use ValueMix::{Mixed, Pure};

/// A column with this declaration and these values has this type and returns these values.
fn check(declared: &str, stored: &str, expected: (DataType, ValueMix), values: &str) {
    let rows: Vec<String> = stored
        .split(" | ")
        .filter(|v| !v.is_empty())
        .map(|v| format!("INSERT INTO t(v) VALUES ({v});"))
        .collect();
    let db = TestDb::new(&format!("CREATE TABLE t(id INTEGER PRIMARY KEY, v {declared}); {}", rows.concat()));
    let (facts, reader) = db.reader("t");
    let column = &facts.columns[1];
    let mixed = if column.mixed { Mixed } else { Pure };
    assert_eq!((column.data_type, mixed), expected, "{declared}: {stored}");
    assert_eq!(facts.row_count, Some(rows.len() as u64));
    assert!(column.nullable);
    let response: Vec<String> = all(reader.as_ref()).iter().map(|row| format_value(&row[1])).collect();
    assert_eq!(response.join(" | "), values, "{declared}: {stored}");
}

#[test]
fn numbers_have_the_type_of_their_stored_values() {
    check("INTEGER", "1 | -17 | null", (Integer, Pure), "1 | -17 | null");
    check("INTEGER", "9007199254740991", (Integer, Pure), "9007199254740991");
    check("INTEGER", "1 | 9007199254740992", (Int64, Pure), "1 | 9007199254740992");
    check("BIGINT", "-9223372036854775808", (Int64, Pure), "-9223372036854775808");
    check("INT", "1 | 1.5", (Number, Pure), "1 | 1.5");
    check("INT", "9007199254740993 | 1.5", (Decimal, Pure), "9007199254740993 | 1.5");
    check("REAL", "1 | 2.5", (Number, Pure), "1.0 | 2.5");
    check("DOUBLE PRECISION", "0.1", (Number, Pure), "0.1");
    check("", "1 | 2", (Integer, Pure), "1 | 2");
    check("DECIMAL(10,2)", "19.99 | 20 | '7.50'", (Decimal, Pure), "19.99 | 20 | 7.5");
    check("NUMERIC", "1 | 2", (Decimal, Pure), "1 | 2");
    check("MONEY", "9007199254740993", (Decimal, Pure), "9007199254740993");
    check(
        "DECIMAL TEXT",
        "'12345678901234.5678' | '1.50'",
        (Decimal, Pure),
        "'12345678901234.5678' | '1.50'",
    );
    check("BOOLEAN", "0 | 1 | null", (Boolean, Pure), "0 | 1 | null");
    check("BOOL", "'true' | 'false'", (Boolean, Pure), "'true' | 'false'");
    check("BOOLEAN", "0 | 2", (Integer, Pure), "0 | 2");
}

#[test]
fn texts_have_the_type_that_fits_all_of_them() {
    check("TEXT", "'a' | 'b'", (Text, Pure), "'a' | 'b'");
    check("VARCHAR(9)", "'007' | '8'", (Text, Pure), "'007' | '8'");
    check("TEXT", "1 | 2", (Text, Pure), "'1' | '2'");
    check("TEXT", "'1.50'", (Text, Pure), "'1.50'");
    check("TEXT", "'true' | 'false'", (Text, Pure), "'true' | 'false'");
    check("DATE", "'2026-02-11' | '2024-02-29'", (Date, Pure), "'2026-02-11' | '2024-02-29'");
    check("TEXT", "'2026-02-11' | '2026-02-30'", (Text, Pure), "'2026-02-11' | '2026-02-30'");
    check("DATETIME", "'2026-02-11 10:00:00'", (LocalTimestamp, Pure), "'2026-02-11 10:00:00'");
    check("TIMESTAMP", "'2026-02-11T10:00:00Z'", (Timestamp, Pure), "'2026-02-11T10:00:00Z'");
    check("JSON", r#"'{"a":[1]}' | '"x"'"#, (Json, Pure), r#"'{"a":[1]}' | '"x"'"#);
    check("JSON", "'{' | '[1]'", (Text, Pure), "'{' | '[1]'");
    check("JSON", r#"'{"a":1,"a":2}'"#, (Text, Pure), r#"'{"a":1,"a":2}'"#);
    check("TEXT", "'' | char(0)", (Text, Pure), "'' | '\0'");
    check("BLOB", "x'00ff10'", (Blob, Pure), "x00ff10");
}

#[test]
fn values_of_other_types_make_a_column_mixed() {
    check("INTEGER", "1 | 2 | 'n/a'", (Integer, Mixed), "1 | 2 | 'n/a'");
    check("INTEGER", "'n/a' | 'none' | 1", (Text, Mixed), "'n/a' | 'none' | 1");
    check("INTEGER", "1 | 'one'", (Integer, Mixed), "1 | 'one'");
    check("REAL", "1.5 | 9e999", (Number, Mixed), "1.5 | inf");
    check("REAL", "1.5 | -9e999 | 'x'", (Number, Mixed), "1.5 | -inf | 'x'");
    check("DECIMAL", "1.5 | 'x'", (Decimal, Mixed), "1.5 | 'x'");
    check("BOOLEAN", "1 | 0 | 'true'", (Boolean, Mixed), "1 | 0 | 'true'");
    check("STRING", "'a' | '007' | 'b'", (Text, Mixed), "'a' | 7 | 'b'");
    check("TEXT", "'a' | x'ff'", (Text, Mixed), "'a' | xff");
    check("TEXT", "'a' | cast(x'ff' AS TEXT)", (Text, Mixed), "'a' | xff");
    check(
        "DATE",
        "'2026-02-11' | '2026-02-12' | 2460000",
        (Date, Mixed),
        "'2026-02-11' | '2026-02-12' | 2460000",
    );
    check("BLOB", "x'00' | x'01' | 'a'", (Blob, Mixed), "x00 | x01 | 'a'");
    check("JSON", "'[1]' | '{}' | 5", (Json, Mixed), "'[1]' | '{}' | 5");
}

#[test]
fn an_empty_column_has_its_declared_type() {
    for (declared, kind) in [
        ("INTEGER", (Integer, Pure)),
        ("REAL", (Number, Pure)),
        ("TEXT", (Text, Pure)),
        ("DECIMAL(9,2)", (Decimal, Pure)),
        ("BOOLEAN", (Boolean, Pure)),
        ("BLOB", (Blob, Pure)),
        ("JSON", (Json, Mixed)),
        ("DATE", (Text, Mixed)),
        ("", (Text, Mixed)),
    ] {
        check(declared, "", kind, "");
        check(declared, "null", kind, "null");
    }
}

/// The key of a table, and whether it is declared.
fn check_key(sql: &str, expected: (&[usize], bool)) {
    let db = TestDb::new(sql);
    let facts = db.facts();
    let table = &facts.tables[0];
    assert_eq!((&table.key[..], table.key_is_declared), expected, "{sql}");
}

#[test]
fn a_key_is_declared_or_detected() {
    for (sql, key) in [
        ("CREATE TABLE t(a, id INTEGER PRIMARY KEY)", (&[1][..], true)),
        ("CREATE TABLE t(a, b, c, PRIMARY KEY(c, a))", (&[2, 0], true)),
        ("CREATE TABLE t(a TEXT, b TEXT, PRIMARY KEY(b, a)) WITHOUT ROWID", (&[1, 0], true)),
        ("CREATE TABLE t(a TEXT, b TEXT NOT NULL UNIQUE)", (&[1], true)),
        ("CREATE TABLE t(a REAL NOT NULL UNIQUE, b TEXT NOT NULL UNIQUE)", (&[1], true)),
        (
            "CREATE TABLE t(a TEXT NOT NULL, b INT NOT NULL); CREATE UNIQUE INDEX i ON t(b, a)",
            (&[1, 0], true),
        ),
        ("CREATE TABLE t(a TEXT, b INT); INSERT INTO t VALUES('x', 1), ('x', 2)", (&[1], false)),
        ("CREATE TABLE t(a REAL, b TEXT); INSERT INTO t VALUES(1.5, 'x'), (2.5, 'y')", (&[1], false)),
        (
            "CREATE TABLE b(id); INSERT INTO b VALUES(1), (2); CREATE VIEW a AS SELECT id FROM b",
            (&[0], false),
        ),
    ] {
        check_key(sql, key);
    }
}

/// A table `t` whose declared key is not usable: the key used instead, and the note.
fn check_key_rejected(sql: &str, key: (&[usize], bool), reason: &str) {
    check_key(sql, key);
    let notes = TestDb::new(sql).facts().notes;
    assert_eq!(notes[0], format!("`t`: the declared key is not used, because {reason}"), "{sql}");
}

#[test]
fn an_unusable_declared_key_is_not_used() {
    let texts = "CREATE TABLE t(id TEXT PRIMARY KEY, email TEXT UNIQUE, n INT);";
    let nulls = format!("{texts} INSERT INTO t VALUES(NULL, 'a', 1), (NULL, 'b', 1), ('x', 'c', 1)");
    check_key_rejected(&nulls, (&[1], false), "`id` is NULL in 2 rows");
    let broken = format!("{texts} INSERT INTO t VALUES(cast(x'ff41' AS TEXT), 'a', 1), ('x', 'b', 1)");
    check_key_rejected(&broken, (&[1], false), "`id` holds text that is not UTF-8 in 1 row");
    let bytes = format!("{texts} INSERT INTO t VALUES(x'00', 'a', 1), ('x', 'b', 1)");
    check_key_rejected(&bytes, (&[1], false), "`id` holds bytes in 1 row");
    let long = format!("{texts} INSERT INTO t VALUES(printf('%2049d', 1), 'a', 1), ('x', 'b', 1)");
    check_key_rejected(&long, (&[1], false), "`id` is longer than 2048 bytes in 1 row");
    // No other column is unique.
    let alone = format!("{texts} INSERT INTO t VALUES(NULL, NULL, 1), ('x', 'b', 1)");
    check_key_rejected(&alone, (&[], false), "`id` is NULL in 1 row");
    // Another key is declared.
    let blob = "CREATE TABLE t(id BLOB PRIMARY KEY, code TEXT NOT NULL UNIQUE)";
    check_key_rejected(blob, (&[1], true), "`id` is blob");
    check_key_rejected(
        &format!("{blob}; INSERT INTO t VALUES(x'00', 'a')"),
        (&[1], true),
        "`id` holds bytes in 1 row",
    );
    let both = "CREATE TABLE t(a BLOB, b INT, c INT, PRIMARY KEY(b, a)); INSERT INTO t VALUES(x'00', 1, 5), (x'01', 1, 6)";
    check_key_rejected(both, (&[2], false), "`a` holds bytes in 2 rows");
    let rows = all(TestDb::new(both).reader("t").1.as_ref());
    assert_eq!(rows.len(), 2);
}

#[test]
fn text_that_is_not_utf8_is_noted_and_returned_as_bytes() {
    let db = TestDb::new(
        "CREATE TABLE t(name TEXT PRIMARY KEY, v TEXT);
         INSERT INTO t VALUES('a', 'x'), (cast(x'ff41' AS TEXT), cast(x'c328' AS TEXT)), ('z', 'y');",
    );
    let facts = db.facts();
    assert_eq!(
        facts.notes,
        [
            "`t`: the declared key is not used, because `name` holds text that is not UTF-8 in 1 row",
            "`t`: the text in `name` is not valid UTF-8 in 1 row; it is returned as base64 and cannot be filtered by",
            "`t`: the text in `v` is not valid UTF-8 in 1 row; it is returned as base64 and cannot be filtered by",
        ]
    );
    // Without a key rows are paged by rowid, so that no page ends at a name that cannot be written.
    let (facts, reader) = db.reader("t");
    assert!(facts.key.is_empty());
    let (mut seen, mut after) = (Vec::new(), None);
    while let Some(row) =
        list(reader.as_ref(), &Query { rows_max: 1, after: after.as_ref(), ..Query::default() })
            .expect("a page")
            .0
            .pop()
    {
        after = Some(super::kit::position(&row, None, &[]));
        seen.push(format_value(&row.0[0]));
    }
    assert_eq!(seen, ["'a'", "xff41", "'z'"]);
    // A later one is an error, not a gap.
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES(1, 'a')");
    let (_, reader) = db.reader("t");
    db.execute("INSERT INTO t VALUES(2, cast(x'ff' AS TEXT))");
    let query = Query { rows_max: 10, ..Query::default() };
    assert!(matches!(list(reader.as_ref(), &query), Err(SourceError::Incompatible { .. })));
}

#[test]
fn columns_that_are_not_unique_are_no_key() {
    for sql in [
        "CREATE TABLE t(a TEXT)",
        "CREATE TABLE t(a TEXT, b INT); INSERT INTO t VALUES('x', 1), ('x', 1)",
        "CREATE TABLE t(a TEXT); INSERT INTO t VALUES('x'), (NULL)",
        "CREATE TABLE t(a); INSERT INTO t VALUES('x'), (1.5)",
        "CREATE TABLE t(d DATE); INSERT INTO t VALUES('2026-01-01'), ('2026-01-02')",
        "CREATE TABLE t(b BLOB); INSERT INTO t VALUES(x'00'), (x'01')",
        // A primary key that is NULL twice, as SQLite allows.
        "CREATE TABLE t(a TEXT PRIMARY KEY); INSERT INTO t VALUES(NULL), (NULL)",
        // Unique among some rows, over an expression, or nullable.
        "CREATE TABLE t(a TEXT NOT NULL); CREATE UNIQUE INDEX i ON t(a) WHERE a > 'x'; INSERT INTO t VALUES('a'), ('a')",
        "CREATE TABLE t(a TEXT NOT NULL); CREATE UNIQUE INDEX i ON t(a || 'x')",
        "CREATE TABLE t(a TEXT UNIQUE)",
    ] {
        check_key(sql, (&[], false));
    }
}

#[test]
fn columns_are_nullable_unless_declared_not_null() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b TEXT NOT NULL);
         CREATE TABLE u(id TEXT PRIMARY KEY, g TEXT GENERATED ALWAYS AS (id || '!'));
         CREATE TABLE v(id TEXT PRIMARY KEY) WITHOUT ROWID;
         CREATE TABLE w(id TEXT PRIMARY KEY) STRICT;",
    );
    let facts = db.facts();
    let nullable: Vec<Vec<bool>> = facts
        .tables
        .iter()
        .map(|table| table.columns.iter().map(|column| column.nullable).collect())
        .collect();
    assert_eq!(nullable, [vec![false, true, false], vec![true, true], vec![false], vec![false]]);
}

#[test]
fn tables_and_views_are_served_in_order_and_nothing_else() {
    let db = TestDb::new(
        "CREATE TABLE z(id INTEGER PRIMARY KEY AUTOINCREMENT, plan TEXT);
         CREATE VIEW y AS SELECT plan, count(*) AS n FROM z GROUP BY plan;
         CREATE VIRTUAL TABLE x USING rtree(id, a, b);
         CREATE TABLE w(a);
         CREATE VIEW broken AS SELECT * FROM gone;
         INSERT INTO z(plan) VALUES('free'), ('ruby'), ('free');",
    );
    let facts = db.facts();
    let names: Vec<&str> = facts.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["z", "y", "w"]);
    let left_out: Vec<String> = facts.skipped_tables.iter().map(ToString::to_string).collect();
    assert_eq!(
        left_out,
        [
            "`x` is not served: it is a virtual table (rtree); copy its rows into a table",
            "`broken` is not served: it refers to something that does not exist or is not allowed"
        ]
    );
    assert_eq!(facts.tables[0].columns[1].distinct_values, ["free", "ruby"]);
    let (_, view) = db.reader("y");
    let rows: Vec<String> = all(view.as_ref())
        .iter()
        .map(|row| row.iter().map(format_value).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(rows, ["'free' 2", "'ruby' 1"]);
}

#[test]
fn the_schema_is_read_once_for_all_tables() {
    let sql: String = (0..300)
        .map(|i| format!("CREATE TABLE t{i}(id INTEGER PRIMARY KEY, a TEXT, b TEXT, c INT);"))
        .collect();
    let db = TestDb::new(&format!("BEGIN; {sql} COMMIT;"));
    let source = db.source();
    let begun = std::time::Instant::now();
    let facts = contract::source::Source::introspect(&source).expect("facts");
    for table in &facts.tables {
        contract::source::Source::reader(&source, &super::kit::shape(table)).expect("a reader");
    }
    // Reading the schema once per table took seconds; now it takes a tenth of one.
    assert!(begun.elapsed() < std::time::Duration::from_millis(1500), "{:?}", begun.elapsed());
}

#[test]
fn columns_of_a_partly_read_table_are_mixed() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, n INTEGER);
         CREATE TABLE s(id INTEGER PRIMARY KEY, a TEXT, d TEXT) STRICT;
         INSERT INTO t VALUES(1, 'x', 1), (2, 'y', 2), (3, 'z', 'many');
         INSERT INTO s VALUES(1, 'x', '2026-01-01'), (2, 'y', '2026-01-02'), (3, 'z', 'soon');",
    );
    let options = source::sqlite::Options { scan_rows_max: 2, ..Default::default() };
    let source = source::sqlite::Sqlite::new(&db.path, options);
    let facts = contract::source::Source::introspect(&source).expect("facts");
    let seen: Vec<Vec<(DataType, bool)>> =
        facts.tables.iter().map(|t| t.columns.iter().map(|c| (c.data_type, c.mixed)).collect()).collect();
    assert_eq!(seen[0], [(Integer, false), (Text, true), (Integer, true)]);
    assert_eq!(seen[1], [(Integer, false), (Text, false), (Text, false)]);
    assert!(facts.tables.iter().all(|table| table.row_count.is_none()));
}

/// A table that changes after its contract was compiled.
fn check_changed(sql: &str, change: &str, expected: &str) {
    let db = TestDb::new(sql);
    let (facts, reader) = db.reader("t");
    db.execute(change);
    let query = Query { rows_max: 10, ..Query::default() };
    let listed = list(reader.as_ref(), &query).expect_err("an error");
    let one = match facts.key.is_empty() {
        true => Err(listed.clone()),
        false => get(reader.as_ref(), &[ValueRef::Integer(9)]),
    };
    for error in [listed, one.expect_err("an error")] {
        let SourceError::Incompatible { message: response, detail: log } = error else { panic!("{error:?}") };
        // The log names the row, for the owner who can correct it.
        assert_eq!(
            response,
            format!("{expected}, but a row has another value; the server's log names the row under `ref`")
        );
        assert_eq!(log, format!("{expected}, in the row with `id` 9"));
    }
}

#[test]
fn a_row_that_violates_the_contract_names_its_column() {
    let table = "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER); INSERT INTO t VALUES(1, 1);";
    let integer = "table `t`, column `v`: expected an integer below 2^53";
    check_changed(table, "INSERT INTO t VALUES(9, 'secret')", integer);
    check_changed(table, "INSERT INTO t VALUES(9, 9007199254740993)", integer);
    check_changed(table, "INSERT INTO t VALUES(9, x'00')", integer);
    let dates = "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES(1, '2026-01-01');";
    let date = "table `t`, column `v`: expected a date such as 2026-02-11";
    check_changed(dates, "INSERT INTO t VALUES(9, 'soon')", date);
    let reals = "CREATE TABLE t(id INTEGER PRIMARY KEY, v REAL); INSERT INTO t VALUES(1, 1.5);";
    check_changed(reals, "INSERT INTO t VALUES(9, 9e999)", "table `t`, column `v`: expected a number");
    let required = "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT NOT NULL); INSERT INTO t VALUES(1, 'a');";
    let rebuilt =
        "DROP TABLE t; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES(9, NULL)";
    check_changed(required, rebuilt, "table `t`, column `v`: expected a value in every row");
}

#[test]
fn a_repeated_key_is_an_error_of_the_calls_that_need_it() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER, v TEXT); INSERT INTO t VALUES(1, 'a'), (2, 'a');");
    let (_, reader) = db.reader("t");
    db.execute("INSERT INTO t VALUES(9, 'a'), (9, 'b')");
    let all = Query { rows_max: 10, ..Query::default() };
    assert_eq!(list(reader.as_ref(), &all).expect("rows").0.len(), 4);
    let error = get(reader.as_ref(), &[ValueRef::Integer(9)]).expect_err("two rows");
    let message = "table `t`: two rows have the same key `id` = `9`; the server's owner must remove one or choose another key";
    assert_eq!(error_text(&error), message);
    assert!(get(reader.as_ref(), &[ValueRef::Integer(1)]).is_ok());
    // A page cannot end between the two: the next one would begin after both.
    let mut seen = 0;
    let ended = reader.list(&all, &mut |_, _| {
        seen += 1;
        if seen == 4 { RowFlow::Stop } else { RowFlow::Continue }
    });
    assert_eq!(error_text(&ended.expect_err("two rows")), message);
}

#[test]
fn a_dropped_table_or_column_is_an_error() {
    for change in ["DROP TABLE t", "ALTER TABLE t RENAME TO u", "ALTER TABLE t DROP COLUMN v"] {
        let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES(1, 'a');");
        let (_, reader) = db.reader("t");
        db.execute(change);
        let error = get(reader.as_ref(), &[ValueRef::Integer(1)]).expect_err("an error");
        assert!(matches!(error, SourceError::Incompatible { .. }), "{change} {error:?}");
        assert_eq!(
            error_text(&error),
            "`shop.db` no longer has the tables and columns that it had; restart the server to read its schema again"
        );
    }
}

#[test]
fn a_key_matches_the_returned_value_exactly() {
    let text = ValueRef::Text;
    for (declared, stored, request, there) in [
        ("INTEGER", "7", ValueRef::Integer(7), true),
        ("INTEGER", "7", text("7"), true),
        ("INTEGER", "7", text("seven"), false),
        ("INTEGER", "7", text(" 7"), false),
        ("INTEGER", "7", text("7e0"), false),
        ("INTEGER", "7", ValueRef::Null, false),
        ("TEXT", "'7'", text("7"), true),
        ("TEXT", "'007'", text("7"), false),
        ("TEXT", "'7'", text("007"), false),
        ("TEXT COLLATE NOCASE", "'Ann'", text("Ann"), true),
        ("TEXT COLLATE NOCASE", "'Ann'", text("ann"), false),
        ("TEXT COLLATE RTRIM", "'Ann'", text("Ann "), false),
        ("TEXT", "'a' || char(0) || 'b'", text("a\0b"), true),
        ("TEXT", "'a' || char(0) || 'b'", text("a"), false),
        ("TEXT", "''", text(""), true),
        ("STRING", "'x'), ('y'), ('007'", text("7"), true),
        ("STRING", "'x'), ('y'), ('007'", text("007"), false),
        ("BIGINT", "9007199254740993", ValueRef::Integer(9007199254740993), true),
        ("BIGINT", "9007199254740993", text("9007199254740993"), true),
        ("BIGINT", "9007199254740993", text("9007199254740992"), false),
        ("DECIMAL(9,2)", "19.99", text("19.99"), true),
        ("DECIMAL(9,2)", "19.99", text("19.990000000000000000001"), false),
        ("DATE", "'2026-01-01'", text("2026-01-01"), true),
    ] {
        let db = TestDb::new(&format!(
            "CREATE TABLE t(k {declared} NOT NULL PRIMARY KEY); INSERT INTO t VALUES({stored})"
        ));
        let (_, reader) = db.reader("t");
        let found = get(reader.as_ref(), &[request]).expect("a result");
        assert_eq!(found.is_some(), there, "{declared} {stored} {request:?}");
    }
}

#[test]
fn generated_columns_and_expression_indexes_are_read() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, loud TEXT AS (upper(name)));
         CREATE INDEX i ON t(lower(name)); CREATE INDEX j ON t(id) WHERE length(name) > 1;
         INSERT INTO t(name) VALUES('Ann');",
    );
    let (_, reader) = db.reader("t");
    let row = all(reader.as_ref()).remove(0);
    assert_eq!(row.iter().map(format_value).collect::<Vec<_>>(), ["1", "'Ann'", "'ANN'"]);
}

/// A range finds these rows, by rowid, in a column with values of every kind; with an index and without.
#[track_caller]
fn check_range(
    declared: &str,
    stored: &[&str],
    comparison: Comparison,
    bound: ValueRef<'_>,
    expected: &[i64],
) {
    let rows: Vec<String> = (1..).zip(stored).map(|(key, value)| format!("({key}, {value})")).collect();
    for index in ["", "CREATE INDEX i ON t(v);"] {
        let sql = format!(
            "CREATE TABLE t(k INTEGER PRIMARY KEY, v {declared}); {index} INSERT INTO t VALUES {}",
            rows.join(", ")
        );
        let db = TestDb::new(&sql);
        let (facts, reader) = db.reader("t");
        assert!(facts.columns[1].mixed, "{declared}: {:?}", facts.columns[1]);
        let filters = vec![Filter::new(1, comparison, bound)];
        let query = Query { filters, rows_max: 100, ..Query::default() };
        let (found, total) = list(reader.as_ref(), &query).expect("rows");
        let keys: Vec<Value> = found.into_iter().map(|(row, _)| row[0].clone()).collect();
        let expected: Vec<Value> = expected.iter().map(|key| Value::Integer(*key)).collect();
        assert_eq!(keys, expected, "{declared} {comparison:?} {bound:?} {index}");
        assert_eq!(total, Some(Total::Exact(expected.len() as u64)), "{declared} {comparison:?} {bound:?}");
    }
}

#[test]
fn a_range_holds_only_values_of_the_type() {
    let numbers = ["1", "2000", "-5", "3000", "'n/a'", "x'41'", "NULL", "''"];
    for declared in ["INTEGER", "REAL", "DECIMAL(9,2)", ""] {
        check_range(declared, &numbers, Comparison::AtLeast, ValueRef::Text("1000"), &[2, 4]);
        check_range(declared, &numbers, Comparison::AtMost, ValueRef::Text("1000"), &[1, 3]);
    }
    // A text that is not a date makes a column of dates one of texts, so the exceptions are numbers and bytes.
    let dates = ["'2026-01-01'", "'2026-03-01'", "'2026-05-01'", "7", "x'41'", "NULL"];
    check_range("DATE", &dates, Comparison::AtLeast, ValueRef::Text("2026-02-01"), &[2, 3]);
    check_range("DATE", &dates, Comparison::AtMost, ValueRef::Text("2026-02-01"), &[1]);
    let times = ["'2026-01-01T00:00:00Z'", "'2026-03-01T00:00:00Z'", "'2026-05-01T00:00:00Z'", "7", "x'41'"];
    check_range("TIMESTAMP", &times, Comparison::AtLeast, ValueRef::Text("2026-02-01"), &[2, 3]);
    check_range("TIMESTAMP", &times, Comparison::AtMost, ValueRef::Text("2026-02-01"), &[1]);
}

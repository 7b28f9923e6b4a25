//! Which values a statement stores in which columns, and which it rejects.

use contract::source::{Source, WriteError};
use contract::{DataType, ValueRef};

use super::kit::{TestDb, prepare, read_rows, run_write, statement_shape, terms};
use super::statements::SHOP;

#[test]
fn columns_that_cannot_store_all_digits_are_noted() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a DECIMAL(20,4), b DECIMAL(10,2), c NUMERIC( 18 ), d VARCHAR(200), e TEXT)",
    );
    let facts = db.facts();
    assert_eq!(facts.notes.len(), 2, "{:?}", facts.notes);
    assert_eq!(
        facts.notes[0],
        "`t`: `a` is declared as `DECIMAL(20,4)`, but SQLite stores 15 significant digits; writes with more are \
         rejected; use a TEXT column to store all digits"
    );
    assert_eq!(facts.tables[0].columns[1].data_type, DataType::Decimal);
}

/// What a column stores for a value that a statement assigns, or the error.
fn write_through_statement(declared: &str, kind: DataType, sent: ValueRef<'_>) -> String {
    let db = TestDb::new(&format!(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v {declared}); INSERT INTO t VALUES(1, NULL)"
    ));
    let source = db.source();
    let mut response = Vec::new();
    for (id, sql) in [
        (2, "INSERT INTO t(id, v) VALUES(2, :v)"),
        (1, "UPDATE t SET v = coalesce(:v, v) WHERE id = 1"),
        (1, "INSERT INTO t VALUES(1, 0) ON CONFLICT(id) DO UPDATE SET v = :v"),
    ] {
        let facts = source.describe_statement(sql).expect("a statement");
        let shape = contract::source::StatementShape {
            parameter_types: vec![kind],
            ..statement_shape(sql, &facts, 1)
        };
        let statement = source.prepare(&shape).expect("prepared");
        response.push(match run_write(statement.as_ref(), &[sent], &terms(None)) {
            Ok(_) => {
                let sql = format!("SELECT quote(v) FROM t WHERE id = {id}");
                db.connect().query_row(&sql, [], |row| row.get(0)).expect("a value")
            }
            Err(WriteError::Rejected { column: Some(0), reason }) => reason,
            Err(error) => panic!("{sql} {sent:?}: {error:?}"),
        });
    }
    response.dedup();
    assert_eq!(response.len(), 1, "{response:?}");
    response.remove(0)
}

#[test]
fn values_that_a_column_would_convert_are_rejected() {
    let refused =
        |declared: &str| format!("the column `v` is declared as `{declared}` and would not store it exactly");
    for (declared, kind, sent) in [
        ("INTEGER", DataType::Text, ValueRef::Text("007")),
        ("INTEGER", DataType::Text, ValueRef::Text(" 7")),
        ("INTEGER", DataType::Text, ValueRef::Text("1e3")),
        ("NUMERIC", DataType::Text, ValueRef::Text("1.50")),
        ("REAL", DataType::Text, ValueRef::Text("7.0")),
        ("NUMERIC", DataType::Decimal, ValueRef::Text("-0.0")),
        ("NUMERIC", DataType::Json, ValueRef::Text("12")),
        ("REAL", DataType::Int64, ValueRef::Integer((1 << 53) + 1)),
        ("REAL", DataType::Number, ValueRef::Real(-0.0)),
    ] {
        assert_eq!(write_through_statement(declared, kind, sent), refused(declared), "{declared} {sent:?}");
    }
    let (declared, sent) = ("DECIMAL(20,4)", ValueRef::Text("1234567890123456.7891"));
    let long = format!("{}; send at most 15 significant digits", refused(declared));
    assert_eq!(write_through_statement(declared, DataType::Decimal, sent), long);
}

#[test]
fn values_that_reach_a_column_through_a_subquery_are_checked_or_the_statement_is_rejected() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, w TEXT); INSERT INTO t VALUES(1, 1, 'x')",
    );
    let source = db.source();
    for sql in [
        "INSERT INTO t(v) SELECT x FROM (SELECT :v AS x)",
        "WITH n AS (SELECT :v AS x) INSERT INTO t(v) SELECT x FROM n",
        "WITH n(x) AS (VALUES(:v)) UPDATE t SET v = (SELECT x FROM n)",
        "UPDATE t SET v = n.x FROM (SELECT :v AS x) AS n",
        "INSERT INTO t(id, w) VALUES(1, :v) ON CONFLICT DO UPDATE SET v = excluded.w",
    ] {
        let statement = prepare(&source, sql).expect(sql);
        let run = |value| run_write(statement.as_ref(), &[ValueRef::Text(value)], &terms(None)).map(drop);
        let rejected = run("007");
        assert!(
            matches!(&rejected, Err(WriteError::Rejected { column: Some(0), .. })),
            "{sql}: {rejected:?}"
        );
        run("7").expect(sql);
    }
    let sql = "INSERT INTO t(v) SELECT value FROM json_each(:list)";
    let error = source.describe_statement(sql).expect_err("it cannot be proven");
    assert_eq!(
        error.message,
        "cannot prove that the column `v`, declared as `INTEGER`, stores what a caller sends: the value comes from an \
         argument through a subquery, a function or an operator"
    );
    assert_eq!(&sql[error.span.expect("a position")], "SELECT value FROM json_each(:list)");
    for sql in [
        "INSERT INTO t(v) SELECT cast(value AS INTEGER) FROM json_each(:list)",
        "INSERT INTO t(w) SELECT value FROM json_each(:list)",
    ] {
        source.describe_statement(sql).expect(sql);
    }
}

/// Each of these would make every list of the collection fail.
#[test]
fn a_computed_value_that_a_collection_could_not_return_is_rejected() {
    for kind in ["", "WITHOUT ROWID"] {
        let table = format!("CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER) {kind}");
        let db = TestDb::new(&format!("{table}; INSERT INTO t VALUES(1, 1), (2, 2)"));
        let source = db.source();
        let facts = source.introspect().expect("facts");
        let collection = source.reader(&crate::shape::shape_of(&facts.tables[0])).expect("a reader");
        let run = |sql: &str, value: i64| {
            let statement = prepare(&source, sql).expect(sql);
            let ran = run_write(statement.as_ref(), &[ValueRef::Integer(value)], &terms(None));
            assert_eq!(super::kit::all(collection.as_ref()).len(), 2, "{sql}");
            ran.map(drop).map_err(|error| error.to_string())
        };
        let max = (1 << 53) - 1;
        for (sql, value) in [
            ("UPDATE t SET v = v + :a WHERE id = 1", max),
            ("UPDATE t SET v = v - 2 + :a WHERE id = 1", -max),
            ("UPDATE t SET v = v * :a WHERE id = 2", i64::MAX),
            ("UPDATE t SET v = abs(:a) WHERE id = 1", i64::MAX),
            ("UPDATE t SET v = cast(:a AS INTEGER) WHERE id = 1", i64::MAX),
            ("UPDATE t SET id = id + :a WHERE id = 1", max),
            ("INSERT INTO t(id, v) VALUES(1 + :a, 1)", max),
            ("INSERT INTO t(id, v) VALUES(1, 1) ON CONFLICT DO UPDATE SET v = v + :a", max),
        ] {
            let refused = run(sql, value).expect_err(sql);
            assert!(
                refused.contains("would store") && refused.contains("an integer below 2^53"),
                "{sql}: {refused}"
            );
        }
        run("UPDATE t SET v = v + :a WHERE id = 1", max - 1).expect("it fits");
        run("UPDATE t SET v = v - :a WHERE id = 1", max - 1).expect("it fits");
    }
}

/// A trigger stores it, in a table that the statement does not name.
#[test]
fn a_value_that_a_trigger_computes_is_read_back_too() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER); INSERT INTO t VALUES(1, 1);
         CREATE TABLE sums(id INTEGER PRIMARY KEY, total INTEGER); INSERT INTO sums VALUES(1, 1);
         CREATE TRIGGER add_up AFTER UPDATE ON t BEGIN UPDATE sums SET total = total + new.v; END",
    );
    let source = db.source();
    let facts = source.introspect().expect("facts");
    let sums = facts.tables.iter().find(|table| table.name == "sums").expect("a table");
    let collection = source.reader(&crate::shape::shape_of(sums)).expect("a reader");
    let statement = prepare(&source, "UPDATE t SET v = :a").expect("a statement");
    let ran = run_write(statement.as_ref(), &[ValueRef::Integer((1 << 53) - 1)], &terms(None));
    assert!(matches!(ran, Err(WriteError::Rejected { .. })));
    assert_eq!(super::kit::all(collection.as_ref()).len(), 1);
}

#[test]
fn a_text_that_a_function_returns_is_not_stored_as_a_number() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, w TEXT, x NUMERIC)");
    let source = db.source();
    for text in [
        "trim(:a)",
        ":a || ''",
        "lower(:a)",
        "substr(:a, 1)",
        "replace(:a, 'z', 'y')",
        "printf('%s', :a)",
        "json_extract(json_object('q', :a), '$.q')",
        "(SELECT group_concat(:a))",
        ":a ->> '$'",
    ] {
        for column in ["v", "x"] {
            let sql = format!("UPDATE t SET {column} = {text}");
            let error = source.describe_statement(&sql).expect_err(&sql);
            assert!(error.message.starts_with("cannot prove"), "{sql}: {}", error.message);
        }
        let sql = format!("UPDATE t SET w = {text}, v = cast({text} AS INTEGER)");
        source.describe_statement(&sql).expect(&sql);
    }
}

#[test]
fn a_value_that_a_collection_could_not_return_is_rejected() {
    let db = TestDb::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, d TEXT); INSERT INTO t VALUES(1, 1, '2026-02-11')",
    );
    let source = db.source();
    let facts = source.introspect().expect("facts");
    let collection = source.reader(&crate::shape::shape_of(&facts.tables[0])).expect("a reader");
    let run = |sql: &str, data_type, value: ValueRef<'_>| {
        let facts = source.describe_statement(sql).expect("a statement");
        let shape = contract::source::StatementShape {
            parameter_types: vec![data_type],
            ..statement_shape(sql, &facts, 1)
        };
        let statement = source.prepare(&shape).expect("prepared");
        run_write(statement.as_ref(), &[value], &terms(None)).map(drop).map_err(|error| error.to_string())
    };
    let (large, update) = (ValueRef::Integer((1 << 53) + 1), "UPDATE t SET v = :v");
    let reason = "the column `v` holds an integer below 2^53, and this is not one";
    assert_eq!(run(update, DataType::Int64, large), Err(reason.to_owned()));
    let reason = "the column `d` holds a date such as 2026-02-11, and this is not one";
    assert_eq!(run("UPDATE t SET d = :d", DataType::Text, ValueRef::Text("soon")), Err(reason.to_owned()));
    assert_eq!(run("UPDATE t SET d = :d", DataType::Date, ValueRef::Text("2026-02-12")), Ok(()));
    assert_eq!(super::kit::all(collection.as_ref()).len(), 1);
    // Once no collection serves the column, nothing keeps it from storing the value.
    drop(collection);
    assert_eq!(run(update, DataType::Int64, large), Ok(()));
}

#[test]
fn text_is_rejected_in_a_column_of_numbers() {
    for (declared, kind, sent) in [
        ("INTEGER", DataType::Text, ValueRef::Text("seven")),
        ("BIGINT", DataType::Text, ValueRef::Text("")),
        ("DOUBLE", DataType::Date, ValueRef::Text("2026-02-11")),
        ("INTEGER", DataType::Json, ValueRef::Text("[7]")),
        ("REAL", DataType::Blob, ValueRef::Blob(b"7")),
    ] {
        let reason =
            format!("it is not a number, but the column `v`, declared as `{declared}`, holds numbers");
        assert_eq!(write_through_statement(declared, kind, sent), reason, "{declared} {sent:?}");
    }
}

/// Who is to blame if the rows of a statement do not have the described types.
#[test]
fn a_value_that_does_not_fit_blames_the_argument() {
    let check = |sql: &str, sent: ValueRef<'_>, expected: &str| {
        let db = TestDb::new(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, w); INSERT INTO t VALUES(1, 1, 1)",
        );
        let source = db.source();
        let statement = prepare(&source, sql).expect("one");
        db.execute("INSERT INTO t VALUES(2, 'other', 'other')");
        let error = run_write(statement.as_ref(), &[sent], &terms(None)).expect_err("it does not fit");
        let response = match error {
            WriteError::Rejected { column, reason } => format!("{column:?} {reason}"),
            WriteError::ContractViolation => "unwritable".to_owned(),
            WriteError::Source(error) => format!("{error}"),
            error => panic!("{sql}: {error:?}"),
        };
        assert_eq!(response, expected, "{sql}");
    };
    let large = ValueRef::Text("9007199254740993");
    let reason = "Some(0) the column `v` holds an integer below 2^53, and this is not one";
    check("INSERT INTO t(v, w) VALUES(:v, 1) RETURNING v", large, reason);
    check("UPDATE t SET v = :v WHERE id = 1 RETURNING v", large, reason);
    check("INSERT INTO t(v, w) VALUES(1, :v || 'x') RETURNING w", large, "unwritable");
    let changed =
        "column `v`: expected an integer below 2^53, but a row has another value; the data has changed";
    check("UPDATE t SET v = coalesce(:v, v) WHERE id = 2 RETURNING v", ValueRef::Null, changed);
}

#[test]
fn a_boolean_used_elsewhere_is_not_stored_as_text() {
    let db = TestDb::new("CREATE TABLE t(a TEXT, b TEXT, n INTEGER); INSERT INTO t VALUES('x', 'y', 1)");
    let source = db.source();
    let run = |sql: &str| {
        let facts = source.describe_statement(sql).expect("a statement");
        let shape = contract::source::StatementShape {
            parameter_types: vec![DataType::Boolean],
            ..statement_shape(sql, &facts, 1)
        };
        let statement = source.prepare(&shape).expect("prepared");
        let ran = run_write(statement.as_ref(), &[ValueRef::Integer(1)], &terms(None));
        (ran.is_ok(), facts.assignments.iter().map(|one| one.accepts).collect::<Vec<_>>())
    };
    assert_eq!(run("UPDATE t SET a = :on, b = coalesce(:on, b)"), (true, vec![]));
    assert_eq!(run("UPDATE t SET a = iif(:on, 'true', 'false') WHERE n = :on"), (true, vec![]));
    let texts = contract::source::AcceptedValues::Texts;
    assert_eq!(run("UPDATE t SET a = :on WHERE n = :on"), (false, vec![texts]));
    let rows = read_rows(prepare(&source, "SELECT a, b, n FROM t").expect("one").as_ref(), &[]);
    assert_eq!(rows.expect("rows"), ["'true' 'true' 1"]);
}

#[test]
fn equivalent_values_are_accepted() {
    for (declared, kind, sent, stored) in [
        ("INTEGER", DataType::Text, ValueRef::Text("7"), "7"),
        ("NUMERIC", DataType::Text, ValueRef::Text("seven"), "'seven'"),
        ("POINT", DataType::Text, ValueRef::Text("1 2"), "'1 2'"),
        ("TEXT", DataType::Boolean, ValueRef::Integer(1), "'true'"),
        ("TEXT", DataType::Boolean, ValueRef::Integer(0), "'false'"),
        ("BOOLEAN", DataType::Boolean, ValueRef::Integer(1), "1"),
        ("INTEGER", DataType::Boolean, ValueRef::Integer(1), "1"),
        ("INTEGER", DataType::Integer, ValueRef::Integer(7), "7"),
        ("INTEGER", DataType::Number, ValueRef::Real(7.0), "7"),
        ("NUMERIC", DataType::Decimal, ValueRef::Text("12.50"), "12.5"),
        ("DATE", DataType::Date, ValueRef::Text("2026-02-11"), "'2026-02-11'"),
        ("REAL", DataType::Integer, ValueRef::Integer(7), "7.0"),
        ("TEXT", DataType::Text, ValueRef::Text("007"), "'007'"),
        ("TEXT", DataType::Integer, ValueRef::Integer(7), "'7'"),
        ("TEXT", DataType::Number, ValueRef::Real(0.1 + 0.2), "'0.30000000000000004'"),
        ("BLOB", DataType::Text, ValueRef::Text("007"), "'007'"),
        ("", DataType::Number, ValueRef::Real(1.0), "1.0"),
        ("NUMERIC", DataType::Blob, ValueRef::Blob(b"7"), "X'37'"),
    ] {
        assert_eq!(write_through_statement(declared, kind, sent), stored, "{declared} {sent:?}");
    }
}

#[test]
fn computed_values_are_not_checked() {
    let db = TestDb::new(SHOP);
    let source = db.source();
    let statement =
        prepare(&source, "INSERT INTO orders VALUES(cast(:id AS INTEGER), 1, :total) RETURNING id")
            .expect("one");
    let (rows, ..) =
        run_write(statement.as_ref(), &[ValueRef::Text("007"), ValueRef::Real(1.0)], &terms(None))
            .expect("done");
    assert_eq!(rows, ["7"]);
}

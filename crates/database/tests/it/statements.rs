//! Statements of authors: described by the database, read in a read-only transaction, written in one that is checked.

use contract::source::{
    CaptureMode, IdempotencyKey, PreparedStatement, RowFlow, Source, SourceError, StatementShape,
    TransactionOptions, Verdict, WriteError, WriteOutcome, run_transaction,
};
use contract::{DataType, Value, ValueRef};
use database::Database;
use std::sync::Arc;
use test_databases::{Kind, TestDatabase};

use crate::kit::{KINDS, column_shape, open, shown};

fn shop(kind: Kind) -> (TestDatabase, Database) {
    let place = TestDatabase::new(kind);
    place.run(
        "CREATE TABLE customers (id integer PRIMARY KEY, name varchar(40) NOT NULL, balance decimal(20, 4), born date);
         CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer REFERENCES customers (id), total decimal(12, 2));
         INSERT INTO customers VALUES (1, 'Ann', 1234567890123456.7891, '2000-01-31'), (2, 'Bob', NULL, NULL), (3, 'ä', 0.1, NULL);
         INSERT INTO orders VALUES (10, 1, 1.50), (11, 1, 2.25), (12, 2, 9.99)",
    );
    let source = open(&place);
    (place, source)
}

/// Prepares a statement as a contract would.
fn prepare(
    source: &Database,
    sql: &str,
    types: &[DataType],
    changes_max: u64,
) -> Result<Arc<dyn PreparedStatement>, String> {
    let facts = source.describe_statement(sql).map_err(|error| error.message)?;
    let shape = StatementShape {
        sql: sql.into(),
        parameters: facts.parameters.clone(),
        parameter_types: types.to_vec(),
        columns: facts.columns.iter().enumerate().map(column_shape).collect(),
        writes: facts.writes.is_some(),
        changes_max,
        timeout_ms: None,
    };
    source.prepare(&shape).map_err(|error| format!("{error:?}"))
}

fn read(statement: &dyn PreparedStatement, arguments: &[ValueRef<'_>]) -> Result<Vec<String>, SourceError> {
    let mut rows = Vec::new();
    statement.read(arguments, None, &mut |values| {
        let row: Vec<String> = values.iter().map(|value| shown(&value.to_value())).collect();
        rows.push(row.join(" "));
        RowFlow::Continue
    })?;
    Ok(rows)
}

type Written = Result<WriteOutcome<(u64, Vec<Vec<Value>>), ()>, WriteError>;

fn write(
    statement: &dyn PreparedStatement,
    arguments: &[ValueRef<'_>],
    options: &TransactionOptions,
) -> Written {
    let transaction = statement.begin(options)?;
    run_transaction(transaction, options, |transaction| {
        let mut rows = Vec::new();
        let changes = transaction.execute(arguments, CaptureMode::RowDigest, &mut |values| {
            rows.push(values.iter().map(|value| value.to_value()).collect());
            RowFlow::Continue
        })?;
        assert!(changes.digest.is_some());
        Ok(Verdict::Keep { response: b"done".to_vec(), result: (changes.rows, rows) })
    })
}

#[test]
fn a_statement_has_the_parameters_and_columns_that_the_database_says() {
    for kind in KINDS {
        let (_place, source) = shop(kind);
        let facts = source
            .describe_statement("SELECT id, name AS who, balance, born, count(*) AS n FROM customers WHERE id = :id OR name = :name OR id = :id GROUP BY id, name, balance, born")
            .unwrap();
        assert_eq!(facts.parameters, ["id", "name"], "{kind:?}");
        let columns: Vec<(&str, DataType)> =
            facts.columns.iter().map(|column| (column.name.as_str(), column.data_type)).collect();
        let expected = [
            ("id", DataType::Integer),
            ("who", DataType::Text),
            ("balance", DataType::Decimal),
            ("born", DataType::Date),
            ("n", DataType::Integer),
        ];
        assert_eq!(columns, expected, "{kind:?}");
        assert!(facts.writes.is_none(), "{kind:?}");
        let writes = source.describe_statement("UPDATE customers SET name = :name").unwrap();
        assert!(writes.writes.is_some() && writes.columns.is_empty(), "{kind:?}");
    }
}

#[test]
fn arguments_are_values_and_nothing_else() {
    for kind in KINDS {
        let (_place, source) = shop(kind);
        let by_name =
            prepare(&source, "SELECT id FROM customers WHERE name = :name", &[DataType::Text], 0).unwrap();
        for (name, expected) in [
            ("Ann", vec!["1"]),
            ("ä", vec!["3"]),
            ("x' OR '1'='1", vec![]),
            ("'; DROP TABLE orders; --", vec![]),
        ] {
            assert_eq!(read(&*by_name, &[ValueRef::Text(name)]).unwrap(), expected, "{kind:?} {name}");
        }
        let exact = "SELECT id FROM customers WHERE balance = :amount AND id <= :limit ORDER BY id";
        let exact = prepare(&source, exact, &[DataType::Decimal, DataType::Integer], 0).unwrap();
        for (amount, expected) in
            [("1234567890123456.7891", vec!["1"]), ("1234567890123456.7892", vec![]), ("0.10", vec!["3"])]
        {
            let found = read(&*exact, &[ValueRef::Text(amount), ValueRef::Integer(9)]).unwrap();
            assert_eq!(found, expected, "{kind:?} {amount}");
        }
        assert_eq!(
            read(&*exact, &[ValueRef::Null, ValueRef::Integer(9)]).unwrap(),
            [] as [&str; 0],
            "{kind:?}"
        );
        let limited =
            prepare(&source, "SELECT id FROM customers ORDER BY id LIMIT :n", &[DataType::Integer], 0)
                .unwrap();
        assert_eq!(read(&*limited, &[ValueRef::Integer(2)]).unwrap(), ["1", "2"], "{kind:?}");
    }
    let (_place, source) = shop(Kind::Postgres);
    let typed = prepare(&source, "SELECT id FROM customers WHERE id = :id", &[DataType::Text], 0).unwrap();
    let error = read(&*typed, &[ValueRef::Text("one")]).unwrap_err();
    assert!(matches!(error, SourceError::InvalidArgument { .. }), "{error:?}");
    // The connection is in order afterwards.
    assert_eq!(read(&*typed, &[ValueRef::Text("1")]).unwrap(), ["1"]);
}

#[test]
fn results_of_every_type_are_read() {
    let (_place, source) = shop(Kind::Postgres);
    let sql = "SELECT '1 day'::interval AS i, '{1,2}'::int[] AS a, '10.0.0.1'::inet AS n, 1::int8 AS b, true AS t, :z::text AS z -- end";
    let statement = prepare(&source, sql, &[DataType::Text], 0).unwrap();
    assert_eq!(read(&*statement, &[ValueRef::Text("é")]).unwrap(), ["P1D [1,2] 10.0.0.1/32 1 1 é"]);
    let sql =
        "SELECT :at::timestamp AS local, :at::timestamptz AS at, :yes::boolean AS yes, :raw::bytea AS raw";
    let types = [DataType::Timestamp, DataType::Boolean, DataType::Blob];
    let statement = prepare(
        &source,
        sql.replace(":at::timestamp AS", "(:at::timestamptz AT TIME ZONE 'UTC') AS").as_str(),
        &types,
        0,
    )
    .unwrap();
    let arguments =
        [ValueRef::Text("2026-01-01T02:00:00+02:00"), ValueRef::Integer(1), ValueRef::Blob(&[0, 255])];
    assert_eq!(
        read(&*statement, &arguments).unwrap(),
        ["2026-01-01T00:00:00 2026-01-01T00:00:00Z 1 [0, 255]"]
    );
    let (_place, source) = shop(Kind::MariaDb);
    let sql = "SELECT CAST('-30:00:00.5' AS TIME(1)) AS t, CAST(18446744073709551615 AS UNSIGNED) AS u, x'00ff' AS b, :at AS at";
    let statement = prepare(&source, sql, &[DataType::Timestamp], 0).unwrap();
    let found = read(&*statement, &[ValueRef::Text("2026-01-01T02:00:00+02:00")]).unwrap();
    assert_eq!(found, ["-30:00:00.5 18446744073709551615 [0, 255] 2026-01-01 00:00:00"]);
}

#[test]
fn an_error_of_the_database_is_at_its_place() {
    for kind in KINDS {
        let (_place, source) = shop(kind);
        for sql in
            ["SELECT nme FROM customers WHERE id = :id", "SELECT name FROM cstomers", "SELECT FROM WHERE"]
        {
            let error = source.describe_statement(sql).unwrap_err();
            assert!(error.message.contains("the database rejects the statement"), "{kind:?} {error:?}");
            if kind == Kind::Postgres && sql.contains("nme") {
                assert_eq!(error.span.map(|span| &sql[span]), Some("nme"));
            }
        }
    }
    let (_place, source) = shop(Kind::Postgres);
    let error = source
        .describe_statement("UPDATE customers SET name = 'x' RETURNING '1 day'::interval AS i")
        .unwrap_err();
    assert!(error.help.unwrap().contains("i::text"));
}

#[test]
fn a_statement_that_reads_cannot_write_whatever_it_calls() {
    let place = TestDatabase::new(Kind::Postgres);
    place.run(
        "CREATE TABLE t (id integer PRIMARY KEY); CREATE SEQUENCE s;
         CREATE FUNCTION sneaky() RETURNS integer LANGUAGE sql AS 'INSERT INTO t VALUES (1) RETURNING id';
         CREATE FUNCTION unlock() RETURNS text LANGUAGE sql AS $$SELECT set_config('default_transaction_read_only', 'off', false)$$;",
    );
    let source = open(&place);
    for sql in ["SELECT sneaky() AS a", "SELECT nextval('s') AS a", "SELECT id FROM t FOR UPDATE"] {
        let statement = prepare(&source, sql, &[], 0).unwrap();
        let error = read(&*statement, &[]).unwrap_err();
        assert!(error.to_string().contains("permits no change"), "{sql}: {error:?}");
    }
    // What a statement sets does not stay.
    let unlock = prepare(&source, "SELECT unlock() AS a", &[], 0).unwrap();
    read(&*unlock, &[]).unwrap();
    let sneaky = prepare(&source, "SELECT sneaky() AS a", &[], 0).unwrap();
    assert!(read(&*sneaky, &[]).is_err());
    let count = prepare(&source, "SELECT count(*) AS n FROM t", &[], 0).unwrap();
    assert_eq!(read(&*count, &[]).unwrap(), ["0"]);

    let place = TestDatabase::new(Kind::MariaDb);
    place.run(
        "CREATE TABLE t (id integer PRIMARY KEY);
         SET GLOBAL log_bin_trust_function_creators = 1;
         CREATE FUNCTION sneaky() RETURNS integer MODIFIES SQL DATA RETURN (SELECT 1);
         DROP FUNCTION sneaky;
         DELIMITER //
         CREATE FUNCTION sneaky() RETURNS integer MODIFIES SQL DATA BEGIN INSERT INTO t VALUES (1); RETURN 1; END //",
    );
    let source = open(&place);
    let error = prepare(&source, "SELECT sneaky() AS a", &[], 0).err().unwrap();
    assert!(error.contains("READ ONLY"), "{error}");
    let count = prepare(&source, "SELECT count(*) AS n FROM t", &[], 0).unwrap();
    assert_eq!(read(&*count, &[]).unwrap(), ["0"]);
}

#[test]
fn writes_are_counted_limited_rolled_back_and_repeated_safely() {
    for kind in KINDS {
        let (_place, source) = shop(kind);
        let total = prepare(&source, "SELECT sum(total) AS t FROM orders", &[], 0).unwrap();
        let sum = || read(&*total, &[]).unwrap().join("");
        let update = "UPDATE orders SET total = total + :more WHERE customer_id = :id";
        let update = prepare(&source, update, &[DataType::Decimal, DataType::Integer], 2).unwrap();
        let arguments = [ValueRef::Text("0.01"), ValueRef::Integer(1)];
        let options = TransactionOptions { dry_run: true, ..TransactionOptions::default() };
        let written = write(&*update, &arguments, &options).unwrap();
        assert!(matches!(written, WriteOutcome::Done((2, _))), "{kind:?} {written:?}");
        assert_eq!(sum(), "13.74", "{kind:?}");
        let key = IdempotencyKey { key_digest: [1; 32], request_digest: [2; 32] };
        let options =
            TransactionOptions { idempotency_key: Some(key), now_ms: 1, ..TransactionOptions::default() };
        assert!(
            matches!(write(&*update, &arguments, &options).unwrap(), WriteOutcome::Done((2, _))),
            "{kind:?}"
        );
        let again = write(&*update, &arguments, &options).unwrap();
        assert!(
            matches!(&again, WriteOutcome::Replayed(response) if response == b"done"),
            "{kind:?} {again:?}"
        );
        assert_eq!(sum(), "13.76", "{kind:?}");
        let all = prepare(&source, "UPDATE orders SET total = 0", &[], 2).unwrap();
        let error = write(&*all, &[], &TransactionOptions::default()).unwrap_err();
        assert!(matches!(error, WriteError::TooManyRows { rows: 3, max: 2 }), "{kind:?} {error:?}");
        let orphan =
            prepare(&source, "INSERT INTO orders VALUES (:id, 99, 1)", &[DataType::Integer], 2).unwrap();
        let error = write(&*orphan, &[ValueRef::Integer(20)], &TransactionOptions::default()).unwrap_err();
        assert!(matches!(error, WriteError::Rejected { .. }), "{kind:?} {error:?}");
        assert_eq!(sum(), "13.76", "{kind:?}");
    }
    // A change inside a query, and one that a foreign key makes, are counted.
    let (place, source) = shop(Kind::Postgres);
    place.run("ALTER TABLE orders DROP CONSTRAINT orders_customer_id_fkey, ADD FOREIGN KEY (customer_id) REFERENCES customers (id) ON DELETE CASCADE");
    let hidden = "WITH d AS (DELETE FROM customers WHERE id = 1 RETURNING id) SELECT count(*) AS n FROM d";
    let hidden = prepare(&source, hidden, &[], 2).unwrap();
    let error = write(&*hidden, &[], &TransactionOptions::default()).unwrap_err();
    assert!(matches!(error, WriteError::TooManyRows { rows: 3, max: 2 }), "{error:?}");
    let returning = "INSERT INTO customers (id, name) VALUES (:id, :name) RETURNING id, name";
    let returning = prepare(&source, returning, &[DataType::Integer, DataType::Text], 2).unwrap();
    let written =
        write(&*returning, &[ValueRef::Integer(9), ValueRef::Text("Eve")], &TransactionOptions::default());
    let WriteOutcome::Done((1, rows)) = written.unwrap() else { panic!("not written") };
    assert_eq!(rows, [[Value::Integer(9), Value::Text("Eve".into())]]);
}

#[test]
fn a_changed_table_is_an_error_and_not_another_answer() {
    for kind in KINDS {
        let (place, source) = shop(kind);
        let statement =
            prepare(&source, "SELECT * FROM customers WHERE id = :id", &[DataType::Integer], 0).unwrap();
        read(&*statement, &[ValueRef::Integer(1)]).unwrap();
        place.run(match kind {
            Kind::Postgres => "ALTER TABLE customers RENAME COLUMN name TO label",
            Kind::MariaDb => "ALTER TABLE customers CHANGE name label varchar(40) NOT NULL",
        });
        for _ in 0..2 {
            let error = read(&*statement, &[ValueRef::Integer(1)]).unwrap_err();
            assert!(matches!(error, SourceError::Incompatible { .. }), "{kind:?} {error:?}");
        }
    }
}

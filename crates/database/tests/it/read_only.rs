//! Statements that try to write where only reading is allowed: nothing of the database changes.

use contract::source::{PreparedStatement, RowFlow, Source, StatementFacts, StatementShape};
use contract::{DataType, ValueRef};
use test_databases::{Kind, TestDatabase};

use crate::kit::{column_shape, open};

/// For both engines: stacked statements, other verbs, comments and quotes that hide where a statement ends.
const BOTH: &[&str] = &[
    "SELECT 1; DELETE FROM t",
    "SELECT 1; COMMIT; DELETE FROM t",
    "COMMIT; DROP TABLE t",
    "ROLLBACK; DELETE FROM t; SELECT 1",
    "SELECT 1;-- \nDELETE FROM t",
    "SELECT 1; /* x */ DELETE FROM t",
    "SELECT '\\'; DELETE FROM t; -- '",
    "SELECT ';' AS a; DELETE FROM t",
    "\u{feff}DELETE FROM t",
    "/* SELECT */ DELETE FROM t",
    "-- SELECT\nDELETE FROM t",
    "/* /* nested */ DELETE FROM t; */ SELECT 1",
    "DELETE FROM t",
    "UPDATE t SET v = 'x'",
    "INSERT INTO t SELECT id + 100, v FROM t",
    "TRUNCATE TABLE t",
    "DROP TABLE t",
    "ALTER TABLE t ADD COLUMN x integer",
    "CREATE TABLE x AS SELECT * FROM t",
    "CREATE VIEW x AS SELECT 1",
    "EXPLAIN ANALYZE DELETE FROM t",
    "EXPLAIN DELETE FROM t",
    "CALL p()",
    "SET TRANSACTION READ WRITE",
    "BEGIN",
    "START TRANSACTION READ WRITE",
    "GRANT ALL ON t TO PUBLIC",
    "PREPARE x AS DELETE FROM t",
    "EXECUTE x",
    "SELECT write_a_row()",
    "SELECT id, write_a_row() FROM t WHERE id = 1",
    "SELECT * FROM t FOR UPDATE",
    "SELECT * FROM t WHERE id = :id; DELETE FROM t WHERE id = :id",
    "SELECT :a; DELETE FROM t",
];

const POSTGRES: &[&str] = &[
    "WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone",
    "WITH made AS (INSERT INTO t VALUES (9, 'x') RETURNING *) SELECT count(*) FROM made, t",
    "SELECT * INTO x FROM t",
    "SELECT * INTO TEMP x FROM t",
    "COPY t TO PROGRAM 'cat > /dev/null'",
    "COPY t FROM PROGRAM 'echo 9,x'",
    "COPY t FROM STDIN",
    "DO $$ BEGIN DELETE FROM t; END $$",
    "DO $x$ BEGIN EXECUTE 'DELETE FROM t'; END $x$",
    "SELECT $$; DELETE FROM t; $$",
    "SELECT $x$ $$; DELETE FROM t; $x$; DELETE FROM t",
    "SELECT E'\\'; DELETE FROM t; --'",
    "SELECT set_config('transaction_read_only', 'off', true), write_a_row()",
    "SELECT set_config('default_transaction_read_only', 'off', false)",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "SELECT nextval('s')",
    "SELECT setval('s', 1000)",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT lo_creat(-1)",
    "SELECT query_to_xml('DELETE FROM t RETURNING 1', true, false, '')",
    "SELECT dblink_exec('DELETE FROM t')",
    "VACUUM t",
    "REINDEX TABLE t",
    "CLUSTER t",
    "LOCK TABLE t",
    "NOTIFY x",
    "LISTEN x",
    "COMMENT ON TABLE t IS 'x'",
    "MERGE INTO t USING t AS o ON t.id = o.id WHEN MATCHED THEN DELETE",
    "VALUES (1); DELETE FROM t",
    "TABLE t; DELETE FROM t",
    "FETCH ALL FROM x",
    "REFRESH MATERIALIZED VIEW m",
];

const MARIADB: &[&str] = &[
    "SELECT 1 /*! ; DELETE FROM t */",
    "/*!50000 DELETE FROM t */",
    "/*M! DELETE FROM t */",
    "SELECT 1 /*M!100000 INTO OUTFILE '/tmp/spile-x' */",
    "SELECT 1 INTO OUTFILE '/tmp/spile-x'",
    "SELECT 'x' INTO DUMPFILE '/tmp/spile-x'",
    "SELECT id INTO @a FROM t LIMIT 1",
    "# SELECT\nDELETE FROM t",
    "SELECT 1 # \n; DELETE FROM t",
    "SELECT \"\\\"; DELETE FROM t; -- \"",
    "REPLACE INTO t VALUES (1, 'x')",
    "LOAD DATA INFILE '/etc/passwd' INTO TABLE t",
    "HANDLER t OPEN",
    "RENAME TABLE t TO u",
    "SET SESSION TRANSACTION READ WRITE",
    "SET GLOBAL read_only = 0",
    "DELETE FROM t RETURNING *",
    "INSERT INTO t VALUES (9, 'x') RETURNING *",
    "WITH x AS (SELECT 1) DELETE FROM t",
    "LOCK TABLES t WRITE",
    "ANALYZE TABLE t",
    "OPTIMIZE TABLE t",
    "FLUSH TABLES",
    "KILL 1",
    "EXECUTE IMMEDIATE 'DELETE FROM t'",
    "BEGIN NOT ATOMIC DELETE FROM t; END",
    "DELIMITER //\nDELETE FROM t//",
    "SELECT NEXT VALUE FOR s",
    "SELECT SETVAL(s, 1000)",
];

/// Runs a statement as one that reads, if it is taken for one, with and without a parameter.
fn try_to_read(source: &database::Database, sql: &str) -> Result<(), String> {
    let StatementFacts { parameters, columns, writes, .. } =
        source.describe_statement(sql).map_err(|error| error.message)?;
    let shape = StatementShape {
        sql: sql.into(),
        parameter_types: vec![DataType::Integer; parameters.len()],
        parameters,
        columns: columns.iter().enumerate().map(column_shape).collect(),
        writes: writes.is_some(),
        changes_max: 1000,
        timeout_ms: None,
    };
    let statement: std::sync::Arc<dyn PreparedStatement> =
        source.prepare(&shape).map_err(|error| error.to_string())?;
    let arguments = vec![ValueRef::Integer(1); shape.parameters.len()];
    statement.read(&arguments, None, &mut |_| RowFlow::Continue).map_err(|error| error.to_string())
}

fn check(kind: Kind, corpus: &[&str]) {
    let place = TestDatabase::new(kind);
    place.run(match kind {
        Kind::Postgres => {
            "CREATE TABLE t (id integer PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b'); CREATE SEQUENCE s;
             CREATE MATERIALIZED VIEW m AS SELECT * FROM t;
             CREATE FUNCTION write_a_row() RETURNS integer LANGUAGE sql VOLATILE AS $$ INSERT INTO t VALUES (100, 'x') RETURNING id $$;
             CREATE PROCEDURE p() LANGUAGE sql AS $$ DELETE FROM t $$"
        }
        Kind::MariaDb => {
            "CREATE TABLE t (id integer PRIMARY KEY, v varchar(20)); INSERT INTO t VALUES (1, 'a'), (2, 'b'); CREATE SEQUENCE s;
             CREATE PROCEDURE p() DELETE FROM t;
             DELIMITER //
             CREATE FUNCTION write_a_row() RETURNS integer BEGIN INSERT INTO t VALUES (100, 'x'); RETURN 1; END//
             DELIMITER ;"
        }
    });
    // As the owner of the server: nothing is left to the rights of the role.
    let source = open(&place);
    let before = place.dump();
    let mut accepted = Vec::new();
    for sql in BOTH.iter().chain(corpus) {
        if try_to_read(&source, sql).is_ok() {
            accepted.push(*sql);
        }
        // The connection is still one that reads.
        assert_eq!(try_to_read(&source, "SELECT id FROM t"), Ok(()), "{kind:?} after {sql}");
    }
    assert_eq!(place.dump(), before, "{kind:?}: one of these has written: {accepted:#?}");
    let is_verb = |sql: &&str| !(sql.starts_with("SELECT") || sql.starts_with("/* /* nested"));
    assert_eq!(accepted.iter().filter(|sql| is_verb(sql)).collect::<Vec<_>>(), [] as [&&str; 0], "{kind:?}");
    place.run("DELETE FROM t");
    assert_ne!(place.dump(), before, "{kind:?}: a change is seen");
}

#[test]
fn no_statement_of_the_corpus_changes_postgresql() {
    check(Kind::Postgres, POSTGRES);
}

#[test]
fn no_statement_of_the_corpus_changes_mariadb() {
    check(Kind::MariaDb, MARIADB);
}

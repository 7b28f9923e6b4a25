//! What a role may do.

use contract::source::{Source, SourceError};
use database::Options;
use test_databases::{Kind, TestDatabase};

use crate::kit::{KINDS, open_with, reader, rows, table};

const PASSWORD: &str = "se:cr@t/1";

/// A database with a table, and a role that may only read it.
fn with_reader(kind: Kind, grants: &str) -> (TestDatabase, String) {
    let place = TestDatabase::new(kind);
    let role = format!("reader_{}", place.name);
    place.run(&match kind {
        Kind::Postgres => format!(
            "CREATE TABLE t (id integer PRIMARY KEY, secret text); INSERT INTO t VALUES (1, 'x');
             CREATE TABLE hidden (id integer PRIMARY KEY);
             REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'; GRANT {grants} ON t TO {role}"
        ),
        Kind::MariaDb => format!(
            "CREATE TABLE t (id integer PRIMARY KEY, secret text); INSERT INTO t VALUES (1, 'x');
             CREATE TABLE hidden (id integer PRIMARY KEY);
             CREATE USER {role}@localhost IDENTIFIED BY '{PASSWORD}'; GRANT {grants} ON {}.t TO {role}@localhost",
            place.name
        ),
    });
    (place, role)
}

fn options(place: &TestDatabase, role: &str) -> Options {
    Options { password: Some(PASSWORD.into()), ..Options::new(place.url_as(role)) }
}

#[test]
fn a_role_sees_what_it_may_read_and_nothing_else() {
    for kind in KINDS {
        let (place, role) = with_reader(kind, "SELECT");
        let source = open_with(kind, Options { require_readonly_role: true, ..options(&place, &role) });
        let facts = source.introspect().unwrap();
        let names: Vec<&str> = facts.tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["t"], "{kind:?}");
        assert!(table(&facts, "t").read_only_reason().is_some(), "{kind:?}");
        assert_eq!(rows(&*reader(&source, "t")).unwrap().len(), 1, "{kind:?}");
    }
}

#[test]
fn a_role_that_could_write_is_reported_and_refused_if_the_manifest_says_so() {
    for kind in KINDS {
        let (place, role) = with_reader(kind, "SELECT, INSERT");
        let source = open_with(kind, options(&place, &role));
        let found = source.introspect().unwrap().role.unwrap();
        let writes =
            if kind == Kind::Postgres { "it may write to `t`" } else { "it may write to `t` (insert)" };
        assert_eq!((found.writes, found.powers), (vec![writes.to_owned()], vec![]), "{kind:?}");
        let source = open_with(kind, Options { require_readonly_role: true, ..options(&place, &role) });
        let refused = source.introspect().unwrap_err();
        assert!(matches!(&refused, SourceError::Incompatible { .. }), "{kind:?} {refused:?}");
        assert!(refused.to_string().contains("it may write to `t`"), "{kind:?} {refused}");
    }
}

#[test]
fn a_wrong_password_is_an_error_that_does_not_repeat_it() {
    // PostgreSQL of the tests trusts everybody.
    let (place, role) = with_reader(Kind::MariaDb, "SELECT");
    let source =
        open_with(Kind::MariaDb, Options { password: Some("hunter2".into()), ..options(&place, &role) });
    let error = source.introspect().unwrap_err();
    assert_eq!(error.to_string(), "the database does not accept the user or the password");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[test]
fn a_database_that_does_not_exist_is_named_as_such() {
    for kind in KINDS {
        let place = TestDatabase::new(kind);
        let url = place.url().replace(&place.name, "nowhere");
        let error = open_with(kind, Options::new(url)).introspect().unwrap_err();
        assert_eq!(error.to_string(), "there is no such database", "{kind:?}");
    }
}

/// What a role with these rights could do beyond reading. `%R`, `%O` and `%D` stand for the role, another one and the database.
fn powers(kind: Kind, grants: &str) -> String {
    let place = TestDatabase::new(kind);
    let (role, other) = (format!("r_{}", place.name), format!("o_{}", place.name));
    let fill = |sql: &str| sql.replace("%R", &role).replace("%O", &other).replace("%D", &place.name);
    place.run(&fill(match kind {
        Kind::Postgres => {
            "CREATE TABLE t (id integer PRIMARY KEY); CREATE SCHEMA hidden; CREATE TABLE hidden.t (id integer);
             REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE %R LOGIN; CREATE ROLE %O; GRANT SELECT ON t TO %R;"
        }
        Kind::MariaDb => {
            "CREATE TABLE t (id integer PRIMARY KEY); CREATE USER %R@localhost; CREATE ROLE %O; GRANT SELECT ON %D.t TO %R@localhost;"
        }
    }));
    place.run(&fill(grants));
    let options = Options::new(place.url_as(&role));
    let found = open_with(kind, options.clone()).introspect().unwrap().role.unwrap();
    let refused = open_with(kind, Options { require_readonly_role: true, ..options }).introspect();
    assert_eq!(refused.is_err(), !(found.writes.is_empty() && found.powers.is_empty()), "{kind:?} {grants}");
    let end = match kind {
        Kind::Postgres => "DROP OWNED BY %R, %O; DROP ROLE %R, %O",
        Kind::MariaDb => "DROP USER %R@localhost; DROP ROLE %O",
    };
    place.run(&fill(end));
    let said = format!("{} | {}", found.writes.join("; "), found.powers.join("; "));
    said.replace(&role, "%R").replace(&other, "%O").replace(&place.name, "%D")
}

#[test]
fn every_right_beyond_reading_is_found() {
    for (grants, expected) in [
        ("SELECT 1", " | "),
        ("GRANT SELECT ON hidden.t TO %R; GRANT USAGE ON SCHEMA hidden TO %R", " | "),
        ("CREATE TABLE blind (id integer); GRANT INSERT ON blind TO %R", "it may write to `blind` | "),
        (
            "GRANT UPDATE (id) ON t TO %R; CREATE TABLE u (); GRANT DELETE ON u TO %R",
            "it may write to `t` and 1 more | ",
        ),
        (
            "GRANT USAGE ON SCHEMA hidden TO %R; GRANT TRUNCATE ON hidden.t TO %R",
            "it may write to `hidden.t` | ",
        ),
        ("GRANT CREATE ON SCHEMA hidden TO %R", "it may create tables in the schema `hidden` | "),
        ("GRANT pg_write_server_files TO %R", " | it is a member of `pg_write_server_files`"),
        ("GRANT pg_execute_server_program TO %R", " | it is a member of `pg_execute_server_program`"),
        ("GRANT %O TO %R; ALTER ROLE %R NOINHERIT; GRANT DELETE ON t TO %O", "it may write to `t` | "),
        (
            "GRANT %O TO %R; ALTER ROLE %O SUPERUSER",
            "it may write to `t` and 1 more; it may create tables in the schema `hidden` and 1 more | it may become the superuser `%O`",
        ),
        ("ALTER ROLE %R CREATEDB BYPASSRLS", " | it may create roles or databases; it bypasses row security"),
        ("GRANT CREATE ON DATABASE %D TO %R", " | it may create schemas"),
    ] {
        assert_eq!(powers(Kind::Postgres, grants), expected, "{grants}");
    }
    for (grants, expected) in [
        ("SELECT 1", " | "),
        ("GRANT SHOW VIEW ON %D.* TO %R@localhost", " | "),
        (
            "CREATE TABLE blind (id integer); GRANT INSERT ON %D.blind TO %R@localhost",
            "it may write to `blind` (insert) | ",
        ),
        ("GRANT DROP, ALTER ON %D.* TO %R@localhost", " | it may write to the database `%D` (drop, alter)"),
        (
            "GRANT UPDATE ON `shop\\_%`.* TO %R@localhost",
            " | it may write to the database `shop\\_%` (update)",
        ),
        ("GRANT DELETE ON mysql.user TO %R@localhost", " | it may write to `mysql.user` (delete)"),
        (
            "GRANT %O TO %R@localhost; GRANT DELETE ON *.* TO %O",
            " | it may take the role `%O`, whose rights it cannot see",
        ),
        (
            "GRANT %O TO %R@localhost; SET DEFAULT ROLE %O FOR %R@localhost; GRANT INSERT ON %D.t TO %O",
            "it may write to `t` (insert) | ",
        ),
        ("GRANT FILE, PROCESS ON *.* TO %R@localhost", " | it has rights on the whole server (file)"),
    ] {
        assert_eq!(powers(Kind::MariaDb, grants), expected, "{grants}");
    }
}

#[test]
fn rights_of_an_active_role_and_of_patterns_allow_writes() {
    let grants = [
        "GRANT %O TO %R@localhost; SET DEFAULT ROLE %O FOR %R@localhost; GRANT SELECT, DELETE ON %D.* TO %O",
        "GRANT SELECT, DELETE ON `%P`.* TO %R@localhost",
    ];
    for grant in grants {
        let place = TestDatabase::new(Kind::MariaDb);
        let (role, other) = (format!("r_{}", place.name), format!("o_{}", place.name));
        let pattern = place.name.replace('_', "\\_");
        let fill = |sql: &str| {
            sql.replace("%P", &pattern).replace("%R", &role).replace("%O", &other).replace("%D", &place.name)
        };
        place.run("CREATE TABLE t (id integer PRIMARY KEY)");
        place.run(&format!("CREATE USER {role}@localhost; CREATE ROLE {other};"));
        place.run(&fill(grant));
        let facts = open_with(Kind::MariaDb, Options::new(place.url_as(&role))).introspect().unwrap();
        let refused: Vec<&str> =
            table(&facts, "t").refused_operations.iter().map(|(operation, _)| operation.as_str()).collect();
        assert_eq!(refused, ["create", "update"], "{grant}");
        place.run(&format!("DROP USER {role}@localhost; DROP ROLE {other}"));
    }
}

#[test]
fn the_url_cannot_switch_read_only_off() {
    let place = TestDatabase::new(Kind::Postgres);
    place.run("CREATE TABLE t (id integer PRIMARY KEY); CREATE VIEW mode AS SELECT current_setting('default_transaction_read_only') AS v, current_setting('app.own', true) AS own");
    let url =
        format!("{}&options=-c%20default_transaction_read_only%3Doff%20-c%20app.own%3Dkept", place.url());
    let source = open_with(Kind::Postgres, Options::new(url));
    let row = rows(&*reader(&source, "mode")).unwrap().remove(0);
    assert_eq!(row.iter().map(crate::kit::shown).collect::<Vec<_>>(), ["on", "kept"]);
}

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
        let facts = source.introspect().unwrap();
        assert!(
            facts.notes.iter().any(|note| note.contains("it may write to `t`")),
            "{kind:?} {:?}",
            facts.notes
        );
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

//! Search: by an index, and by scanning.

use contract::Value;
use contract::source::{CancelFlag, SearchCoverage, SearchFacts};

use super::kit::{TestDb, format_value, search};

const NOTES: &str = "
    CREATE TABLE notes(id INTEGER PRIMARY KEY, title TEXT, body TEXT, stars INTEGER);
    INSERT INTO notes VALUES
        (1, 'Green tea', 'leaves from Uji', 5), (2, 'Coffee', 'not TEA at all, tea-time', 42),
        (3, 'Water', NULL, 1), (4, 'ÄPFEL', 'Straße', 7);";

const INDEX: &str = "
    CREATE VIRTUAL TABLE words USING fts5(title, body, content='notes', content_rowid='id');
    INSERT INTO words(words) VALUES('rebuild');";

/// The first columns of the matching rows.
fn check(db: &TestDb, table: &str, words: &[&str], columns: &[usize], expected: &[&str]) {
    let (_, reader) = db.reader(table);
    let (rows, coverage) = search(reader.as_ref(), words, columns, 1_000);
    let firsts: Vec<String> = rows.iter().map(|row| format_value(&row[0])).collect();
    assert_eq!(firsts, expected, "{words:?}");
    assert_eq!(coverage, SearchCoverage::Complete);
}

#[test]
fn a_scan_finds_terms_anywhere_in_any_case() {
    let db = TestDb::new(NOTES);
    assert_eq!(db.facts().tables[0].search, SearchFacts::Scan);
    check(&db, "notes", &["tea"], &[1, 2], &["1", "2"]);
    check(&db, "notes", &["EA", "oFFee"], &[1, 2], &["2"]);
    check(&db, "notes", &["tea"], &[1], &["1"]);
    check(&db, "notes", &["äpfel"], &[1, 2], &["4"]);
    check(&db, "notes", &["42"], &[3], &["2"]);
    check(&db, "notes", &["%"], &[1, 2], &[]);
    check(&db, "notes", &["_"], &[1, 2], &[]);
    check(&db, "notes", &["'; DROP TABLE notes; --"], &[1, 2], &[]);
    check(&db, "notes", &["null"], &[2], &[]);
}

#[test]
fn a_scan_stops_at_its_limit() {
    let db = TestDb::new(NOTES);
    let (_, reader) = db.reader("notes");
    let (rows, coverage) = search(reader.as_ref(), &["e"], &[1], 2);
    assert_eq!((rows.len(), coverage), (2, SearchCoverage::Truncated));
    let (rows, coverage) = search(reader.as_ref(), &["e"], &[1], 4);
    assert_eq!((rows.len(), coverage), (4, SearchCoverage::Complete), "{rows:?}");
    let stop = CancelFlag::new(true.into());
    let request = contract::source::Search {
        terms: vec!["e"],
        columns: &[1],
        filters: Vec::new(),
        after: None,
        rows_max: 9,
        scan_rows_max: 9,
        cancelled: Some(&stop),
        progress: None,
    };
    let stopped = reader.search(&request, &mut |_, _| contract::source::RowFlow::Continue);
    assert!(matches!(stopped, Err(contract::source::SourceError::Cancelled)));
}

#[test]
fn a_full_text_index_is_used() {
    let db = TestDb::new(&format!("{NOTES} {INDEX}"));
    let facts = db.facts();
    assert_eq!(facts.tables.len(), 1);
    assert_eq!(facts.tables[0].search, SearchFacts::Indexed(vec![1, 2]));
    assert_eq!(
        facts.skipped_tables[0].to_string(),
        "`words` is not served: it is the full-text index of `notes`"
    );
    // The row that contains the term more often comes first.
    check(&db, "notes", &["tea"], &[1, 2], &["2", "1"]);
    check(&db, "notes", &["gre", "UJI"], &[1, 2], &["1"]);
    check(&db, "notes", &["tea"], &[1], &["1"]);
    check(&db, "notes", &["eaves"], &[1, 2], &[]);
    // Falls back to a scan where the index cannot answer.
    check(&db, "notes", &["tea-time"], &[1, 2], &["2"]);
    check(&db, "notes", &["42"], &[1, 3], &["2"]);
    // Operators of FTS5 are ordinary terms.
    for word in ["NOT", "AND", "OR", "NEAR", "title", "tea*"] {
        let expected: &[&str] = if word == "NOT" { &["2"] } else { &[] };
        check(&db, "notes", &[word], &[1, 2], if word == "title" { &[] } else { expected });
    }
}

#[test]
fn an_fts_table_is_a_table() {
    let db = TestDb::new(
        "CREATE VIRTUAL TABLE docs USING fts5(name, body, note UNINDEXED);
         INSERT INTO docs VALUES('a', 'green tea', 'tea'), ('b', 'coffee', 'tea')",
    );
    let facts = db.facts();
    assert_eq!(facts.tables[0].search, SearchFacts::Indexed(vec![0, 1]));
    assert_eq!(facts.tables[0].row_count, Some(2));
    check(&db, "docs", &["tea"], &[0, 1], &["'a'"]);
    check(&db, "docs", &["tea"], &[2], &["'a'", "'b'"]);
    let (_, reader) = db.reader("docs");
    assert_eq!(super::kit::all(reader.as_ref())[1][1], Value::Text("coffee".into()));
}

#[test]
fn a_trigram_index_needs_three_characters() {
    let db = TestDb::new(&format!(
        "{NOTES} CREATE VIRTUAL TABLE words USING fts5(title, body, content=notes, content_rowid=id, tokenize='trigram');
         INSERT INTO words(words) VALUES('rebuild');"
    ));
    check(&db, "notes", &["eave"], &[1, 2], &["1"]);
    check(&db, "notes", &["ea"], &[1, 2], &["1", "2"]);
    check(&db, "notes", &["-ti"], &[1, 2], &["2"]);
}

#[test]
fn views_and_tables_without_rowid_are_scanned() {
    let db = TestDb::new(
        "CREATE TABLE t(a TEXT PRIMARY KEY, b TEXT) WITHOUT ROWID; INSERT INTO t VALUES('x', 'Tea'), ('y', 'Milk');
         CREATE VIEW v AS SELECT a, b FROM t;",
    );
    check(&db, "t", &["tea"], &[1], &["'x'"]);
    check(&db, "v", &["milk"], &[1], &["'y'"]);
}

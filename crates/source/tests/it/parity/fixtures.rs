//! The kinds of files and databases that can hold the test table.

use std::path::PathBuf;

use contract::DataType;
use contract::manifest::WorkbookFormat;
use contract::manifest::rest::{
    CollectionEndpoints, GetEndpoint, ListEndpoint, PageStyle, Paging, RestSettings,
};
use contract::request::PathTemplate;
use contract::source::{ColumnFacts, RestUrl, TableOptions};
use database::{Database, Options};
use rest::{RestCollection, RestOptions, RestSource};
use source::csv::{self, Csv, LargeCsv};
use source::json::{self, JsonLayout};
use source::sheets;
use source::sqlite::{self, Sqlite};
use tempfile::TempDir;
use test_api::{ApiResponse, ApiServer};
use test_databases::{Kind, TestDatabase};

use super::TestSource;
use super::data::{COLUMNS, ROWS, TABLE};
use super::differences;
use crate::sheets::kit::{self, CellContent};

/// SQLite with a full-text index.
const INDEXED: &str = "sqlite, indexed";

pub fn all() -> Vec<TestSource> {
    vec![
        csv(),
        imported_csv(),
        sqlite("sqlite"),
        sqlite(INDEXED),
        json_lines(),
        imported_json_lines(),
        json_document(),
        xlsx(),
        database(Kind::Postgres),
        database(Kind::MariaDb),
        rest(),
    ]
}

/// A database on a server that the tests share.
fn database(kind: Kind) -> TestSource {
    let place = TestDatabase::new(kind);
    let name = if kind == Kind::Postgres { "postgres" } else { "mariadb" };
    let columns = COLUMNS.iter().map(|column| {
        let declared = match (kind, column.kind) {
            (_, DataType::Integer | DataType::Int64) => "bigint",
            (Kind::Postgres, DataType::Number) => "double precision",
            (Kind::MariaDb, DataType::Number) => "double",
            (_, DataType::Boolean) => "boolean",
            (_, DataType::Date) => "date",
            (Kind::Postgres, DataType::Timestamp) => "timestamptz",
            (Kind::Postgres, DataType::LocalTimestamp) => "timestamp",
            (Kind::MariaDb, DataType::Timestamp) => "timestamp(6)",
            (Kind::MariaDb, DataType::LocalTimestamp) => "datetime(6)",
            _ => "text",
        };
        let nullable = if column.nullable { "NULL" } else { "NOT NULL" };
        let key = if column.name == "id" { " PRIMARY KEY" } else { "" };
        format!("{} {declared} {nullable}{key}", column.name)
    });
    let session =
        if kind == Kind::MariaDb { "SET time_zone = '+00:00';\n" } else { "SET TimeZone = 'UTC';\n" };
    let mut sql = format!("{session}CREATE TABLE {TABLE} ({});\n", columns.collect::<Vec<_>>().join(", "));
    for row in ROWS {
        let values = row.iter().zip(COLUMNS).map(|(text, column)| match (text, column.kind) {
            (None, _) => "NULL".to_owned(),
            (Some(text), DataType::Integer | DataType::Int64 | DataType::Number | DataType::Boolean) => {
                (*text).to_owned()
            }
            (Some(text), _) => {
                let spelled =
                    differences::spelling(name, column.name, text).map_or(*text, |(spelled, _)| spelled);
                // MariaDB reads no `Z`; the session is in UTC.
                let spelled =
                    if column.kind == DataType::Timestamp { spelled.trim_end_matches('Z') } else { spelled };
                format!("'{}'", spelled.replace('\'', "''"))
            }
        });
        sql += &format!("INSERT INTO {TABLE} VALUES ({});\n", values.collect::<Vec<_>>().join(", "));
    }
    place.run(&sql);
    let options = Options::new(place.url());
    let source = match kind {
        Kind::Postgres => Database::postgres(options),
        Kind::MariaDb => Database::mysql(options),
    };
    TestSource { name, source: Box::new(source.unwrap()), _place: Box::new(place) }
}

fn folder(ending: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{TABLE}.{ending}"));
    (folder, path)
}

fn csv() -> TestSource {
    let (folder, path) = write_csv();
    let source = Csv::open(&path, csv::Options::default());
    TestSource { name: "csv", source: Box::new(source), _place: Box::new(folder) }
}

/// As a file that is too large for memory.
fn imported_csv() -> TestSource {
    let (folder, path) = write_csv();
    let cache = folder.path().join("cache");
    let source = LargeCsv::open(&path, csv::Options::default(), &cache);
    TestSource { name: "csv, imported", source: Box::new(source), _place: Box::new(folder) }
}

fn write_csv() -> (TempDir, PathBuf) {
    let (folder, path) = folder("csv");
    let mut writer = ::csv::Writer::from_path(&path).unwrap();
    writer.write_record(COLUMNS.map(|column| column.name)).unwrap();
    for row in ROWS {
        writer.write_record(row.map(Option::unwrap_or_default)).unwrap();
    }
    writer.flush().unwrap();
    drop(writer);
    (folder, path)
}

fn sqlite(name: &'static str) -> TestSource {
    let (folder, path) = folder("db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    let columns = COLUMNS.iter().map(|column| {
        let declared = match column.kind {
            DataType::Integer | DataType::Int64 => "INTEGER",
            DataType::Number => "REAL",
            DataType::Boolean => "BOOLEAN",
            _ => "TEXT",
        };
        format!("\"{}\" {declared}{}", column.name, if column.nullable { "" } else { " NOT NULL" })
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    // Without a declared key: the key is inferred, as for a file, and rows keep their positions.
    connection.execute_batch(&format!("CREATE TABLE {TABLE} ({columns})")).unwrap();
    for row in ROWS {
        let values = row.iter().zip(COLUMNS).map(|(text, column)| match (text, column.kind) {
            (None, _) => "NULL".to_owned(),
            (Some(text), DataType::Integer | DataType::Int64 | DataType::Number | DataType::Boolean) => {
                (*text).to_owned()
            }
            (Some(text), _) => format!("'{}'", text.replace('\'', "''")),
        });
        let values = values.collect::<Vec<_>>().join(", ");
        connection.execute_batch(&format!("INSERT INTO {TABLE} VALUES ({values})")).unwrap();
    }
    if name == INDEXED {
        let index = "CREATE VIRTUAL TABLE words USING fts5(team, note, content = 'people');
            INSERT INTO words(words) VALUES('rebuild')";
        connection.execute_batch(index).unwrap();
    }
    let source = Sqlite::new(&path, sqlite::Options::default());
    TestSource { name, source: Box::new(source), _place: Box::new(folder) }
}

/// An API with pages of five rows, that understands one filter, ignores another, and returns single rows.
fn rest() -> TestSource {
    let server = ApiServer::start(|request| {
        let rows: Vec<usize> = (0..ROWS.len())
            .filter(|at| request.parameter("team").is_none_or(|team| ROWS[*at][1] == Some(team)))
            .collect();
        if let [_, id] = &request.segments()[..] {
            let row = rows.iter().find(|at| ROWS[**at][0] == Some(id.as_str()));
            return row.map_or_else(|| ApiResponse::new(404, ""), |at| ApiResponse::json(object(*at)));
        }
        let start = request.parameter("offset").and_then(|text| text.parse().ok()).unwrap_or(0);
        let page: Vec<String> = rows.iter().skip(start).take(5).map(|at| object(*at)).collect();
        ApiResponse::json(format!("{{\"rows\":[{}],\"total\":{}}}", page.join(","), rows.len()))
    });
    let columns = COLUMNS.map(|column| ColumnFacts {
        nullable: column.nullable,
        ..ColumnFacts::new(column.name, column.kind)
    });
    let list = ListEndpoint {
        path: PathTemplate::parse("/people").unwrap(),
        items: "/rows".to_owned(),
        paging: Paging {
            style: PageStyle::Offset { parameter: "offset".to_owned() },
            total: Some("/total".to_owned()),
            ..Paging::default()
        },
        filters: vec![("team".to_owned(), "team".to_owned()), ("score_min".to_owned(), "ignored".to_owned())],
        ..ListEndpoint::default()
    };
    let get = GetEndpoint {
        path: PathTemplate::parse("/people/{id}").unwrap(),
        item: String::new(),
        query: Vec::new(),
    };
    let source = RestSource::new(RestOptions {
        url: RestUrl::parse(&server.url()).unwrap(),
        settings: RestSettings { allow_private_addresses: true, ..RestSettings::default() },
        collections: vec![RestCollection {
            name: TABLE.to_owned(),
            endpoints: CollectionEndpoints {
                list: Some(list),
                get: Some(get),
                ..CollectionEndpoints::default()
            },
            columns: columns.to_vec(),
            key: vec!["id".to_owned()],
            names: Vec::new(),
            options: TableOptions::default(),
        }],
        requests: Vec::new(),
    });
    TestSource { name: "rest", source: Box::new(source.unwrap()), _place: Box::new(server) }
}

/// A row as an object; a missing value is left out, or `null`.
fn object(at: usize) -> String {
    let members = ROWS[at].iter().zip(COLUMNS).enumerate().filter_map(|(place, (text, column))| {
        let value = match (text, column.kind) {
            (None, _) if (at + place).is_multiple_of(2) && at > 0 => return None,
            (None, _) => "null".to_owned(),
            (Some(text), DataType::Integer | DataType::Int64 | DataType::Number | DataType::Boolean) => {
                (*text).to_owned()
            }
            (Some(text), _) => {
                let mut out = Vec::new();
                ::json::write::string(&mut out, text);
                String::from_utf8(out).unwrap()
            }
        };
        Some(format!("\"{}\": {value}", column.name))
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
}

fn write_json_lines() -> (TempDir, PathBuf) {
    let (folder, path) = folder("jsonl");
    let lines: String = (0..ROWS.len()).map(|at| format!("{}\n", object(at))).collect();
    std::fs::write(&path, lines).unwrap();
    (folder, path)
}

/// As a file that is too large for memory.
fn imported_json_lines() -> TestSource {
    let (folder, path) = write_json_lines();
    let source = json::open_large_lines(&path, TableOptions::default(), &folder.path().join("cache"));
    TestSource { name: "jsonl, imported", source: Box::new(source), _place: Box::new(folder) }
}

fn json_lines() -> TestSource {
    let (folder, path) = write_json_lines();
    let source = json::open(&path, json::Options::new(JsonLayout::Lines));
    TestSource { name: "jsonl", source: Box::new(source), _place: Box::new(folder) }
}

fn json_document() -> TestSource {
    let (folder, path) = folder("json");
    let objects: Vec<String> = (0..ROWS.len()).map(object).collect();
    std::fs::write(&path, format!("{{\"rows\": [\n{}\n]}}", objects.join(",\n"))).unwrap();
    let form = JsonLayout::Document { pointer: Some("/rows".to_owned()) };
    let source = json::open(&path, json::Options::new(form));
    TestSource { name: "json", source: Box::new(source), _place: Box::new(folder) }
}

/// A workbook cannot store integers beyond 53 bits or times with a zone, so they are texts in it.
fn xlsx() -> TestSource {
    let (folder, path) = folder("xlsx");
    let header = COLUMNS.map(|column| CellContent::Text(column.name)).to_vec();
    let rows = ROWS.iter().map(|row| {
        let cells = row.iter().zip(COLUMNS).map(|(text, column)| match (*text, column.kind) {
            (None, _) => CellContent::Empty,
            (Some(text), DataType::Integer | DataType::Number) => CellContent::Number(text),
            (Some(text), DataType::Boolean) => CellContent::Boolean(text == "true"),
            (Some(text), DataType::Date) => CellContent::Date(text),
            (Some(text), _) => CellContent::Text(text),
        });
        cells.collect()
    });
    let rows: Vec<Vec<CellContent<'_>>> = std::iter::once(header).chain(rows).collect();
    std::fs::write(&path, kit::workbook(&[(TABLE, &rows)])).unwrap();
    let source = sheets::open(&path, sheets::Options::new(WorkbookFormat::Xlsx));
    TestSource { name: "xlsx", source: Box::new(source), _place: Box::new(folder) }
}

//! The rows of the question set's databases in the other sources that can hold them.

use std::path::Path;
use std::sync::Arc;

use contract::{Collection, Contract};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::{Value as Json, json};
use spile::project::Project;
use spile_core::calendar::CivilDate;
use tempfile::TempDir;
use test_api::{ApiResponse, ApiServer};
use test_databases::{Kind, TestDatabase};

use super::read;

/// Where the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceKind {
    Sqlite,
    /// In a file for each table, with this ending.
    File(&'static str),
    /// The same, read as files that are too large for memory.
    Import(&'static str),
    Workbook,
    Database(Kind),
    /// Behind an API with pages, which understands no filter.
    Api,
}

/// A folder with a manifest, and the database that it names.
pub struct Place {
    pub folder: TempDir,
    _database: Option<TestDatabase>,
    _api: Option<ApiServer>,
}

/// A table: its name, its key, the names of its columns, and its rows.
struct TableRows {
    table: String,
    key: Vec<String>,
    names: Vec<String>,
    rows: Vec<Vec<Json>>,
}

/// How a column is stored where columns have types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Storage {
    Integer,
    Decimal,
    Boolean,
    Date,
    Text,
}

/// Digits behind the point of a stored decimal.
const SCALE: usize = 4;

impl TableRows {
    /// By the values of a column.
    fn storage(&self, column: usize) -> Storage {
        let values = || self.rows.iter().map(|row| &row[column]).filter(|value| !value.is_null());
        match values().next() {
            Some(Json::Bool(_)) => Storage::Boolean,
            Some(Json::Number(_)) if values().all(Json::is_i64) => Storage::Integer,
            Some(Json::Number(_)) => Storage::Decimal,
            Some(Json::String(_)) if self.names[column].ends_with("Date") => Storage::Date,
            _ => Storage::Text,
        }
    }
}

/// The digits of a number with [`SCALE`] decimals.
fn decimal(value: &Json) -> String {
    format!("{:.SCALE$}", value.as_f64().unwrap_or_default())
}

/// A database from its script, in a folder of its own.
pub fn database(name: &str) -> (TempDir, Connection) {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = Connection::open(folder.path().join(format!("{name}.db"))).expect("a database");
    connection.execute_batch(&read(&format!("questions/{name}.sql"))).expect("a valid script");
    (folder, connection)
}

/// The rows of a table, with the names of its columns.
fn rows_of(connection: &Connection, table: &str) -> (Vec<String>, Vec<Vec<Json>>) {
    let mut statement = connection.prepare(&format!("SELECT * FROM \"{table}\"")).expect("a table");
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let is_boolean = |name: &String| name == "Discontinued";
    let rows = statement.query_map([], |row| {
        let value = |at: usize| {
            Ok(match row.get_ref(at)? {
                ValueRef::Integer(n) if is_boolean(&names[at]) => json!(n == 1),
                ValueRef::Integer(n) => json!(n),
                ValueRef::Real(n) => json!(n),
                ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
                ValueRef::Null | ValueRef::Blob(_) => Json::Null,
            })
        };
        (0..names.len()).map(value).collect::<rusqlite::Result<Vec<Json>>>()
    });
    let rows = rows.and_then(Iterator::collect).expect("rows");
    (names, rows)
}

fn object(names: &[String], row: &[Json]) -> Json {
    names.iter().cloned().zip(row.iter().cloned()).collect::<serde_json::Map<_, _>>().into()
}

/// A table as the bytes of a file of this kind.
fn file(kind: &str, table: &TableRows) -> Vec<u8> {
    let TableRows { names, rows, .. } = table;
    let objects = || rows.iter().map(|row| object(names, row));
    let field = |value: &Json| match value {
        Json::Null => String::new(),
        Json::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        other => other.to_string(),
    };
    let line = |row: &Vec<Json>| row.iter().map(field).collect::<Vec<_>>().join(",") + "\n";
    match kind {
        "csv" => (names.join(",") + "\n" + &rows.iter().map(line).collect::<String>()).into_bytes(),
        "json" => Json::Array(objects().collect()).to_string().into_bytes(),
        "parquet" => parquet_file(table),
        _ => objects().map(|object| format!("{object}\n")).collect::<String>().into_bytes(),
    }
}

fn parquet_file(table: &TableRows) -> Vec<u8> {
    let column = |(at, name): (usize, &String)| {
        let kind = match table.storage(at) {
            Storage::Integer => format!("INT64 {name}"),
            Storage::Decimal => format!("INT64 {name} (DECIMAL(18,{SCALE}))"),
            Storage::Boolean => format!("BOOLEAN {name}"),
            Storage::Date => format!("INT32 {name} (DATE)"),
            Storage::Text => format!("BYTE_ARRAY {name} (UTF8)"),
        };
        format!("OPTIONAL {kind};")
    };
    let columns: Vec<String> = table.names.iter().enumerate().map(column).collect();
    let schema = parse_message_type(&format!("message t {{ {} }}", columns.join(" "))).expect("a schema");
    let mut bytes = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::default()).expect("a writer");
    let mut group = writer.next_row_group().expect("a row group");
    for at in 0..table.names.len() {
        let mut column = group.next_column().expect("a column").expect("one more column");
        write_column(&mut column, table, at);
        column.close().expect("a column");
    }
    group.close().expect("a row group");
    writer.close().expect("a file");
    bytes
}

fn write_column(column: &mut SerializedColumnWriter<'_>, table: &TableRows, at: usize) {
    let all = || table.rows.iter().map(|row| &row[at]);
    let levels: Vec<i16> = all().map(|value| i16::from(!value.is_null())).collect();
    let values = || all().filter(|value| !value.is_null());
    let text = |value: &Json| value.as_str().expect("a text").to_owned();
    let written = match table.storage(at) {
        Storage::Integer => {
            let values: Vec<i64> = values().filter_map(Json::as_i64).collect();
            column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)
        }
        Storage::Decimal => {
            let digits = |value: &Json| decimal(value).replace('.', "").parse().expect("digits");
            let values: Vec<i64> = values().map(digits).collect();
            column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)
        }
        Storage::Boolean => {
            let values: Vec<bool> = values().filter_map(Json::as_bool).collect();
            column.typed::<BoolType>().write_batch(&values, Some(&levels), None)
        }
        Storage::Date => {
            let day = |value: &Json| CivilDate::parse(text(value).as_bytes()).expect("a date").days();
            let values: Vec<i32> = values().map(|value| day(value) as i32).collect();
            column.typed::<Int32Type>().write_batch(&values, Some(&levels), None)
        }
        Storage::Text => {
            let values: Vec<ByteArray> =
                values().map(|value| ByteArray::from(text(value).into_bytes())).collect();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)
        }
    };
    assert_eq!(written.expect("a column"), values().count());
}

fn workbook(path: &Path, tables: &[TableRows]) {
    let mut book = rust_xlsxwriter::Workbook::new();
    let date = rust_xlsxwriter::Format::new().set_num_format("yyyy-mm-dd");
    for TableRows { table, names, rows, .. } in tables {
        let sheet = book.add_worksheet().set_name(table).expect("a sheet");
        for (at, name) in names.iter().enumerate() {
            sheet.write(0, at as u16, name).expect("a cell");
        }
        for (line, row) in rows.iter().enumerate() {
            for (at, value) in row.iter().enumerate() {
                let (line, at) = (line as u32 + 1, at as u16);
                let written = match value {
                    Json::Null => continue,
                    Json::Bool(is_true) => sheet.write(line, at, *is_true),
                    Json::Number(number) => sheet.write(line, at, number.as_f64().unwrap_or_default()),
                    Json::String(text) if names[usize::from(at)].ends_with("Date") => {
                        let day = rust_xlsxwriter::ExcelDateTime::parse_from_str(text).expect("a date");
                        sheet.write_with_format(line, at, &day, &date)
                    }
                    Json::String(text) => sheet.write(line, at, text),
                    other => panic!("{other}"),
                };
                written.expect("a cell");
            }
        }
    }
    book.save(path).expect("a workbook");
}

/// The tables in a database of their own.
fn fill(kind: Kind, tables: &[TableRows]) -> TestDatabase {
    let place = TestDatabase::new(kind);
    let quoted = |name: &str| match kind {
        Kind::Postgres => format!("\"{name}\""),
        Kind::MariaDb => format!("`{name}`"),
    };
    let mut sql = String::new();
    for table in tables {
        let column = |(at, name): (usize, &String)| {
            let kind = match table.storage(at) {
                Storage::Integer => "bigint".to_owned(),
                Storage::Decimal => format!("decimal(18,{SCALE})"),
                Storage::Boolean => "boolean".to_owned(),
                Storage::Date => "date".to_owned(),
                Storage::Text => "varchar(200)".to_owned(),
            };
            format!("{} {kind}", quoted(name))
        };
        let columns: Vec<String> = table.names.iter().enumerate().map(column).collect();
        let key: Vec<String> = table.key.iter().map(|name| quoted(name)).collect();
        let name = quoted(&table.table);
        sql += &format!("CREATE TABLE {name} ({}, PRIMARY KEY ({}));\n", columns.join(", "), key.join(", "));
        let value = |value: &Json| match value {
            Json::String(text) => format!("'{}'", text.replace('\'', "''")),
            Json::Number(number) if !number.is_i64() => decimal(value),
            other => other.to_string(),
        };
        let row = |row: &Vec<Json>| format!("({})", row.iter().map(value).collect::<Vec<_>>().join(", "));
        for rows in table.rows.chunks(500) {
            let rows: Vec<String> = rows.iter().map(row).collect();
            sql += &format!("INSERT INTO {name} VALUES {};\n", rows.join(", "));
        }
    }
    place.run(&sql);
    place
}

/// So many rows are on a page.
const PAGE_ROWS: usize = 500;

/// An API that returns the rows of a table as objects, below the name of its collection.
fn api(contract: &Contract, tables: &[TableRows]) -> ApiServer {
    let objects = |table: &TableRows| -> Vec<String> {
        table.rows.iter().map(|row| object(&table.names, row).to_string()).collect()
    };
    let names = contract.collections.iter().map(|collection| collection.name.clone());
    let lists: Vec<(String, Vec<String>)> = names.zip(tables.iter().map(objects)).collect();
    ApiServer::start(move |request| {
        let segments = request.segments();
        let list = lists.iter().find(|(name, _)| segments.first() == Some(name));
        let Some((_, objects)) = list else { return ApiResponse::new(404, "") };
        let start = request.parameter("offset").and_then(|text| text.parse().ok()).unwrap_or(0);
        let page: Vec<&str> = objects.iter().skip(start).take(PAGE_ROWS).map(String::as_str).collect();
        ApiResponse::json(format!("{{\"rows\":[{}],\"total\":{}}}", page.join(","), objects.len()))
    })
}

/// The fields of a table, with their types: nothing is learnt from a page.
fn declared_fields(name: &str, rows: &TableRows) -> String {
    let field = |(at, field): (usize, &String)| {
        let kind = match rows.storage(at) {
            Storage::Integer => "integer",
            Storage::Decimal => "decimal",
            Storage::Boolean => "boolean",
            Storage::Date => "date",
            Storage::Text => "text",
        };
        format!("{field} = {{ as = '{kind}' }}\n")
    };
    let fields: String = rows.names.iter().enumerate().map(field).collect();
    format!("[collections.{name}.fields]\n{fields}")
}

/// The tables of a database in another place, with the links that its foreign keys make. `None`: in the database itself.
pub fn place(folder: &TempDir, name: &str, connection: &Connection, kind: PlaceKind) -> Option<Place> {
    if kind == PlaceKind::Sqlite {
        return None;
    }
    let project = Project::find(&folder.path().join(format!("{name}.db"))).and_then(|project| project.scan());
    let contract = project.expect("a database").compiled.expect("a contract").contract;
    let copy = tempfile::tempdir().expect("a folder");
    let tables: Vec<TableRows> = contract.collections.iter().map(|one| table_rows(connection, one)).collect();
    let (mut manifest, mut database, mut server) = (String::new(), None, None);
    match kind {
        PlaceKind::Sqlite | PlaceKind::File(_) => {}
        PlaceKind::Import(_) => manifest += "[server]\nmemory_bytes_max = 0\n",
        PlaceKind::Workbook => {
            workbook(&copy.path().join("book.xlsx"), &tables);
            manifest += "[sources.book]\npath = 'book.xlsx'\n";
        }
        PlaceKind::Database(kind) => {
            let place = fill(kind, &tables);
            manifest += &format!("[sources.db]\nurl = \"{}\"\n", place.url());
            database = Some(place);
        }
        PlaceKind::Api => {
            let api = api(&contract, &tables);
            manifest += &format!(
                "[sources.api]\nkind = 'rest'\nurl = '{}'\nallow_private_addresses = true\n",
                api.url()
            );
            server = Some(api);
        }
    }
    for (collection, rows) in contract.collections.iter().zip(&tables) {
        let (table, name) = (&rows.table, &collection.name);
        let key: Vec<String> = rows.key.iter().map(|column| format!("'{column}'")).collect();
        let key = format!("key = [{}]\n", key.join(", "));
        manifest += &match kind {
            PlaceKind::Sqlite => String::new(),
            PlaceKind::Workbook => format!("[collections.{name}]\nsource = 'book'\nsheet = '{table}'\n{key}"),
            PlaceKind::Api => format!(
                "[collections.{name}]\nsource = 'api'\n{key}\
                 list = {{ path = '/{name}', items = '/rows', page = {{ style = 'offset', parameter = 'offset', total = '/total' }} }}\n{}",
                declared_fields(name, rows)
            ),
            PlaceKind::Database(_) => format!("[collections.{name}]\nsource = 'db'\ntable = '{table}'\n"),
            PlaceKind::File(ending) | PlaceKind::Import(ending) => {
                std::fs::write(copy.path().join(format!("{name}.{ending}")), file(ending, rows))
                    .expect("a file");
                let null = if ending == "csv" { "null = ''\n" } else { "" };
                format!(
                    "[sources.{name}]\npath = '{name}.{ending}'\n[collections.{name}]\nsource = '{name}'\n{key}{null}"
                )
            }
        };
        for link in &collection.links {
            let target = &contract.collections[link.target];
            let by = link.fields.iter().map(|(own, other)| {
                format!("{} = '{}'", collection.fields[*own].column, target.fields[*other].column)
            });
            manifest += &format!(
                "[collections.{name}.related.{}]\ncollection = '{}'\nby = {{ {} }}\n",
                link.name,
                target.name,
                by.collect::<Vec<_>>().join(", ")
            );
        }
    }
    std::fs::write(copy.path().join("spile.toml"), manifest).expect("a file");
    Some(Place { folder: copy, _database: database, _api: server })
}

fn table_rows(connection: &Connection, collection: &Collection) -> TableRows {
    let table = collection.shape.table.clone();
    let (names, rows) = rows_of(connection, &table);
    TableRows { table, key: collection.key_fields().map(|field| field.column.clone()).collect(), names, rows }
}

//! The same random table in every kind of source that holds its types gives the same answers, which a naive oracle computes.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use contract::aggregate::{Selection, select_groups};
use contract::bind::BoundValue;
use contract::manifest::WorkbookFormat;
use contract::manifest::rest::{CollectionEndpoints, ListEndpoint, PageStyle, Paging, RestSettings};
use contract::source::{
    Aggregate, AggregateFunction, AggregateSort, ColumnFacts, Comparison, DateUnit, Filter, GROUPS_MAX,
    GroupColumn, GroupRow, KeySet, Measure, Query, Reader, RestUrl, RowFlow, Sort, SortTarget, Source,
    SourceError, TableOptions, TableShape, are_linkable,
};
use contract::{DataType, Value, ValueRef, order};
use database::{Database, Options};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use rest::{RestCollection, RestOptions, RestSource};
use source::csv::{self, Csv, LargeCsv};
use source::json::{self, JsonLayout};
use source::sheets;
use source::sqlite::{self, Sqlite};
use spile_core::calendar::CivilDate;
use test_api::{ApiResponse, ApiServer};
use test_databases::{Kind, TestDatabase};

use crate::sheets::kit::{self, CellContent};

const KINDS: [DataType; 6] = [
    DataType::Integer,
    DataType::Text,
    DataType::Decimal,
    DataType::Integer,
    DataType::Date,
    DataType::LocalTimestamp,
];
const NAMES: [&str; 6] = ["id", "city", "total", "count_of", "day", "seen"];

/// A row without its id; texts as CSV spells them.
type Row = (Option<String>, Option<String>, Option<i64>, Option<String>, Option<String>);

/// The key of a group, and its rows.
type ExpectedGroup<'r> = (Vec<Value>, Vec<&'r [Option<String>; 6]>);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let city = prop::option::weighted(
        0.9,
        prop::sample::select(vec!["Bonn", "bonn", "Köln", "KÖLN am Rhein", "x y"]),
    );
    let total = prop::option::weighted(0.9, "-?(0|[1-9][0-9]{0,3})\\.[0-9]{1,4}");
    let count = prop::option::weighted(0.9, -5..5_i64);
    let day = prop::option::weighted(0.9, (2023..2026_u16, 1..13_u8, 1..29_u8));
    let day = day.prop_map(|day| day.map(|(year, month, day)| format!("{year}-{month:02}-{day:02}")));
    let seen = prop::option::weighted(0.9, (2025..2027_u16, 1..3_u8, 27..29_u8, 0..24_u8));
    let seen = seen.prop_map(|seen| {
        seen.map(|(year, month, day, hour)| format!("{year}-{month:02}-{day:02}T{hour:02}:30:00"))
    });
    let row = (city.prop_map(|city| city.map(str::to_owned)), total, count, day, seen);
    prop::collection::vec(row, 0..25)
}

/// The texts of a row, its id first.
fn texts(at: usize, row: &Row) -> [Option<String>; 6] {
    let count = row.2.map(|count| count.to_string());
    [Some(at.to_string()), row.0.clone(), row.1.clone(), count, row.3.clone(), row.4.clone()]
}

fn shape() -> TableShape {
    let columns =
        NAMES.iter().zip(KINDS).enumerate().map(|(at, (name, data_type))| contract::source::ColumnShape {
            source_index: at,
            name: (*name).to_owned(),
            data_type,
            nullable: at > 0,
            mixed: false,
            null_texts: (data_type == DataType::Text).then(String::new).into_iter().collect(),
            format: None,
        });
    TableShape { table: "t".into(), columns: columns.collect(), key: vec![0] }
}

struct Fixture {
    name: &'static str,
    reader: std::sync::Arc<dyn Reader>,
    _place: Box<dyn Any>,
}

/// A name, what has to be kept as long as the source is used, and the source.
type MadeSource = (&'static str, Box<dyn Any>, Box<dyn Source>);

fn fixtures(rows: &[Row]) -> Vec<Fixture> {
    let folder = || tempfile::tempdir().unwrap();
    let mut made: Vec<MadeSource> = Vec::new();

    let place = folder();
    let path = place.path().join("t.csv");
    let mut writer = ::csv::Writer::from_path(&path).unwrap();
    writer.write_record(NAMES).unwrap();
    for (at, row) in rows.iter().enumerate() {
        writer.write_record(texts(at, row).map(Option::unwrap_or_default)).unwrap();
    }
    writer.flush().unwrap();
    drop(writer);
    let import = LargeCsv::open(&path, csv::Options::default(), &place.path().join("cache"));
    made.push(("csv", Box::new(()), Box::new(Csv::open(&path, csv::Options::default()))));
    made.push(("csv, imported", Box::new(place), Box::new(import)));

    let place = folder();
    let path = place.path().join("t.jsonl");
    let object = |at: usize, row: &Row| {
        let members = texts(at, row).into_iter().enumerate().map(|(at, text)| {
            let value = match (KINDS[at], text) {
                (_, None) => "null".to_owned(),
                (DataType::Integer, Some(text)) => text,
                (_, Some(text)) => format!("\"{text}\""),
            };
            format!("\"{}\":{value}", NAMES[at])
        });
        format!("{{{}}}\n", members.collect::<Vec<_>>().join(","))
    };
    let lines: String = rows.iter().enumerate().map(|(at, row)| object(at, row)).collect();
    std::fs::write(&path, &lines).unwrap();
    let import = json::open_large_lines(&path, TableOptions::default(), &place.path().join("cache"));
    made.push(("jsonl", Box::new(()), Box::new(json::open(&path, json::Options::new(JsonLayout::Lines)))));
    made.push(("jsonl, imported", Box::new(place), Box::new(import)));

    let place = folder();
    let path = place.path().join("t.json");
    std::fs::write(&path, format!("[{}]", lines.trim_end().replace('\n', ",\n"))).unwrap();
    let layout = JsonLayout::Document { pointer: None };
    made.push(("json", Box::new(place), Box::new(json::open(&path, json::Options::new(layout)))));

    for (name, sql_type, is_wal) in [("sqlite", "TEXT", false), ("sqlite, wal", "NUMERIC", true)] {
        let place = folder();
        let path = place.path().join("t.db");
        let connection = rusqlite::Connection::open(&path).unwrap();
        if is_wal {
            connection.pragma_update(None, "journal_mode", "wal").unwrap();
        }
        connection
            .execute_batch(&format!(
                "CREATE TABLE t (id INTEGER PRIMARY KEY, city TEXT, total {sql_type}, count_of INTEGER, day TEXT, \
                 seen TEXT); CREATE INDEX by_city ON t(city)"
            ))
            .unwrap();
        for (at, row) in rows.iter().enumerate() {
            let [_, city, total, _, day, seen] = texts(at, row);
            connection
                .execute(
                    "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)",
                    rusqlite::params![at as i64, city, total, row.2, day, seen],
                )
                .unwrap();
        }
        made.push((name, Box::new(place), Box::new(Sqlite::new(&path, sqlite::Options::default()))));
    }

    let place = folder();
    let path = place.path().join("t.xlsx");
    let all: Vec<[Option<String>; 6]> = rows.iter().enumerate().map(|(at, row)| texts(at, row)).collect();
    let mut cells = vec![NAMES.map(CellContent::Text).to_vec()];
    for row in &all {
        let row = row.iter().zip(KINDS).map(|(text, kind)| match (kind, text) {
            (_, None) => CellContent::Empty,
            (DataType::Integer, Some(text)) => CellContent::Number(text),
            (_, Some(text)) => CellContent::Text(text),
        });
        cells.push(row.collect());
    }
    std::fs::write(&path, kit::workbook(&[("t", &cells)])).unwrap();
    made.push((
        "xlsx",
        Box::new(place),
        Box::new(sheets::open(&path, sheets::Options::new(WorkbookFormat::Xlsx))),
    ));
    // Nothing here writes the old binary workbooks.
    let place = folder();
    let path = place.path().join("t.ods");
    std::fs::write(&path, kit::ods_workbook("t", &cells)).unwrap();
    let workbook = sheets::open(&path, sheets::Options::new(WorkbookFormat::Ods));
    made.push(("ods", Box::new(place), Box::new(workbook)));

    let place = folder();
    let path = place.path().join("t.parquet");
    std::fs::write(&path, parquet_file(&all)).unwrap();
    let import = source::parquet::open_large(&path, TableOptions::default(), &place.path().join("cache"));
    made.push(("parquet", Box::new(()), Box::new(source::parquet::open(&path, TableOptions::default()))));
    made.push(("parquet, imported", Box::new(place), Box::new(import)));

    let (api, source) = rest(lines.lines().map(str::to_owned).collect());
    made.push(("rest", Box::new(api), Box::new(source)));

    made.push(("postgres", Box::new(()), database(Kind::Postgres, rows)));
    made.push(("mariadb", Box::new(()), database(Kind::MariaDb, rows)));

    made.into_iter()
        .map(|(name, place, source)| {
            let mut shape = shape();
            if ["postgres", "mariadb", "parquet", "parquet, imported"].contains(&name) {
                // They have NULL.
                shape.columns.iter_mut().for_each(|column| column.null_texts.clear());
            }
            let reader = source.reader(&shape).unwrap_or_else(|error| panic!("{name}: {error}"));
            Fixture { name, reader, _place: place }
        })
        .collect()
}

/// The table as a file with a type for each column; every value is optional.
fn parquet_file(rows: &[[Option<String>; 6]]) -> Vec<u8> {
    let schema = parse_message_type(
        "message t { optional int64 id; optional binary city (utf8); optional int64 total (decimal(18,4)); \
         optional int64 count_of; optional int32 day (date); optional int64 seen (timestamp(micros,false)); }",
    );
    let mut bytes = Vec::new();
    let schema = std::sync::Arc::new(schema.unwrap());
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, std::sync::Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (at, kind) in KINDS.iter().enumerate() {
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row[at].is_some())).collect();
        let texts = || rows.iter().filter_map(|row| row[at].as_deref());
        let days = |text: &str| CivilDate::parse(text.as_bytes()).unwrap().days();
        let integers = |to_integer: &dyn Fn(&str) -> i64| texts().map(to_integer).collect::<Vec<i64>>();
        let mut column = group.next_column().unwrap().unwrap();
        let written = match kind {
            DataType::Text => {
                let texts: Vec<ByteArray> = texts().map(ByteArray::from).collect();
                column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None)
            }
            DataType::Date => {
                let days: Vec<i32> = texts().map(|text| days(text) as i32).collect();
                column.typed::<Int32Type>().write_batch(&days, Some(&levels), None)
            }
            DataType::Decimal => {
                let integers = integers(&|text| scaled(text) as i64);
                column.typed::<Int64Type>().write_batch(&integers, Some(&levels), None)
            }
            DataType::LocalTimestamp => {
                let micros = |text: &str| {
                    let hour: i64 = text[11..13].parse().unwrap();
                    (days(&text[..10]) * 24 * 60 + hour * 60 + 30) * 60_000_000
                };
                column.typed::<Int64Type>().write_batch(&integers(&micros), Some(&levels), None)
            }
            _ => {
                let integers = integers(&|text| text.parse().unwrap());
                column.typed::<Int64Type>().write_batch(&integers, Some(&levels), None)
            }
        };
        written.unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

/// An API that returns objects, ten on a page, and understands no filter.
fn rest(objects: Vec<String>) -> (ApiServer, RestSource) {
    let api = ApiServer::start(move |request| {
        let start = request.parameter("offset").and_then(|text| text.parse().ok()).unwrap_or(0);
        let page: Vec<&str> = objects.iter().skip(start).take(10).map(String::as_str).collect();
        ApiResponse::json(format!("{{\"rows\":[{}],\"total\":{}}}", page.join(","), objects.len()))
    });
    let column =
        |(at, name): (usize, &str)| ColumnFacts { nullable: at > 0, ..ColumnFacts::new(name, KINDS[at]) };
    let list = ListEndpoint {
        items: "/rows".to_owned(),
        paging: Paging {
            style: PageStyle::Offset { parameter: "offset".to_owned() },
            total: Some("/total".to_owned()),
            ..Paging::default()
        },
        ..ListEndpoint::default()
    };
    let source = RestSource::new(RestOptions {
        url: RestUrl::parse(&api.url()).unwrap(),
        settings: RestSettings { allow_private_addresses: true, ..RestSettings::default() },
        collections: vec![RestCollection {
            name: "t".to_owned(),
            endpoints: CollectionEndpoints { list: Some(list), ..CollectionEndpoints::default() },
            columns: NAMES.into_iter().enumerate().map(column).collect(),
            key: vec!["id".to_owned()],
            names: Vec::new(),
            options: TableOptions::default(),
        }],
        requests: Vec::new(),
    });
    (api, source.unwrap())
}

/// The table in a database that all cases of a test use, one after the other.
fn database(kind: Kind, rows: &[Row]) -> Box<dyn Source> {
    static PLACES: [OnceLock<TestDatabase>; 2] = [const { OnceLock::new() }; 2];
    let place = PLACES[usize::from(kind == Kind::MariaDb)].get_or_init(|| TestDatabase::new(kind));
    let time = if kind == Kind::Postgres { "timestamp" } else { "datetime(6)" };
    let decimal = if kind == Kind::Postgres { "numeric" } else { "decimal(20, 4)" };
    let mut sql = format!(
        "DROP TABLE IF EXISTS t; CREATE TABLE t (id integer PRIMARY KEY, city text, total {decimal}, count_of bigint, \
         day date, seen {time});\n"
    );
    for (at, row) in rows.iter().enumerate() {
        let value = |text: Option<String>| text.map_or_else(|| "NULL".to_owned(), |text| format!("'{text}'"));
        let values: Vec<String> = texts(at, row).into_iter().map(value).collect();
        sql += &format!("INSERT INTO t VALUES ({});\n", values.join(", "));
    }
    place.run(&sql);
    let options = Options::new(place.url());
    match kind {
        Kind::Postgres => Box::new(Database::postgres(options).unwrap()),
        Kind::MariaDb => Box::new(Database::mysql(options).unwrap()),
    }
}

/// A filter that owns its operands.
#[derive(Debug, Clone)]
struct Condition {
    column: usize,
    comparison: Comparison,
    values: Vec<Value>,
}

fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    let text = |text: &str| Value::Text(text.to_owned());
    let operands: [Vec<Value>; 6] = [
        (0..9).map(Value::Integer).collect(),
        ["Bonn", "bonn", "Köln", "nowhere"].map(text).to_vec(),
        ["0.0", "12.5", "-3.10", "900"].map(text).to_vec(),
        (-3..4).map(Value::Integer).collect(),
        ["2023-05-05", "2024-02-28", "2025-12-01"].map(text).to_vec(),
        ["2025-01-28", "2026-02-27", "2026-01-27T12:30:00"].map(text).to_vec(),
    ];
    let parts = ["o", "köl", "am", "X", "bonn"];
    let one = (0..6_usize, 0..10_u8, prop::collection::vec(0..16_usize, 1..4)).prop_map(
        move |(column, comparison, picked)| {
            let comparison = match comparison {
                0 => Comparison::Equals,
                1 => Comparison::NotEquals,
                2 if KINDS[column].has_range() => Comparison::AtLeast,
                3 if KINDS[column].has_range() => Comparison::AtMost,
                4 if column == 1 => Comparison::Contains,
                5 if column == 1 => Comparison::StartsWith,
                6 => Comparison::IsNull,
                7 => Comparison::IsNotNull,
                8 if are_linkable(KINDS[column], KINDS[column]) => Comparison::OneOfKeys,
                9 if are_linkable(KINDS[column], KINDS[column]) => Comparison::NoneOfKeys,
                _ => Comparison::Equals,
            };
            let values = match comparison {
                Comparison::Contains | Comparison::StartsWith => {
                    vec![Value::Text(order::to_lowercase(parts[picked[0] % parts.len()]))]
                }
                Comparison::AtLeast | Comparison::AtMost => {
                    vec![operands[column][picked[0] % operands[column].len()].clone()]
                }
                Comparison::IsNull | Comparison::IsNotNull => vec![Value::Null],
                Comparison::Equals
                | Comparison::NotEquals
                | Comparison::OneOfKeys
                | Comparison::NoneOfKeys => {
                    picked.iter().map(|at| operands[column][at % operands[column].len()].clone()).collect()
                }
            };
            Condition { column, comparison, values }
        },
    );
    prop::collection::vec(one, 0..3)
}

/// The same conditions as texts, compared naively.
fn passes(row: &[Option<String>; 6], conditions: &[Condition]) -> bool {
    conditions.iter().all(|condition| {
        let value = row[condition.column].as_deref();
        let kind = KINDS[condition.column];
        let operand = |value: &Value| match value {
            Value::Text(text) => text.clone(),
            Value::Integer(n) => n.to_string(),
            _ => String::new(),
        };
        let key = |text: &str| match kind {
            DataType::Integer | DataType::Decimal => scaled(text),
            _ => 0,
        };
        // A date means the whole day of a timestamp.
        let same_length = |value: &str, operand: &str| value[..operand.len().min(value.len())].to_owned();
        let compare = |value: &str, operand: &str| match kind {
            DataType::Integer | DataType::Decimal => key(value).cmp(&key(operand)),
            DataType::LocalTimestamp => same_length(value, operand).as_str().cmp(operand),
            _ => value.cmp(operand),
        };
        let any = |test: &dyn Fn(std::cmp::Ordering) -> bool| {
            value.is_some_and(|value| condition.values.iter().any(|one| test(compare(value, &operand(one)))))
        };
        match condition.comparison {
            Comparison::Equals | Comparison::OneOfKeys => any(&|order| order.is_eq()),
            Comparison::NotEquals | Comparison::NoneOfKeys => !any(&|order| order.is_eq()),
            Comparison::AtLeast => any(&|order| order.is_ge()),
            Comparison::AtMost => any(&|order| order.is_le()),
            Comparison::Contains => {
                value.is_some_and(|value| value.to_lowercase().contains(&operand(&condition.values[0])))
            }
            Comparison::StartsWith => {
                value.is_some_and(|value| value.to_lowercase().starts_with(&operand(&condition.values[0])))
            }
            Comparison::IsNull => value.is_none(),
            Comparison::IsNotNull => value.is_some(),
        }
    })
}

/// A decimal in ten-thousandths.
fn scaled(text: &str) -> i128 {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let size: i128 = format!("{whole}{fraction:0<4}").parse().unwrap();
    if negative { -size } else { size }
}

fn unscaled(n: i128, places: usize) -> String {
    let digits = format!("{:0>width$}", n.unsigned_abs(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    let text = format!("{whole}.{fraction}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if n < 0 { format!("-{text}") } else { text.to_owned() }
}

fn groups() -> impl Strategy<Value = Vec<GroupColumn<'static>>> {
    let one = (1..6_usize, 0..5_usize).prop_map(|(column, unit)| {
        let unit = match KINDS[column] {
            DataType::Date if unit == 0 => None,
            DataType::Date | DataType::LocalTimestamp => Some(DateUnit::ALL[unit]),
            _ => None,
        };
        GroupColumn { unit, ..GroupColumn::new(column) }
    });
    prop::collection::vec(one, 0..4).prop_map(|mut groups| {
        let mut seen = Vec::new();
        groups.retain(|group| {
            !seen.contains(group) && {
                seen.push(*group);
                true
            }
        });
        groups
    })
}

fn measures() -> impl Strategy<Value = Vec<Measure<'static>>> {
    let one =
        (0..6_usize, 0..6_usize).prop_map(|(column, function)| match AggregateFunction::ALL.get(function) {
            None => Measure::Count,
            Some(function) => {
                let sums = matches!(function, AggregateFunction::Sum | AggregateFunction::Avg);
                let is_number = matches!(KINDS[column], DataType::Integer | DataType::Decimal);
                Measure::Of { function: *function, column: if sums && !is_number { 2 } else { column } }
            }
        });
    prop::collection::vec(one, 1..4)
}

fn group_text(text: Option<&str>, group: GroupColumn<'_>) -> Value {
    let Some(text) = text else { return Value::Null };
    Value::Text(match group.unit {
        None => match KINDS[group.column] {
            DataType::Integer => return Value::Integer(text.parse().unwrap()),
            DataType::Decimal => unscaled(scaled(text), 4),
            _ => text.to_owned(),
        },
        Some(DateUnit::Year) => text[..4].to_owned(),
        Some(DateUnit::Quarter) => {
            let month: u8 = text[5..7].parse().unwrap();
            format!("{}-Q{}", &text[..4], month.div_ceil(3))
        }
        Some(DateUnit::Month) => text[..7].to_owned(),
        Some(DateUnit::Day) => text[..10].to_owned(),
        Some(DateUnit::Week) => {
            let weeks = [
                ("2022", "2022-01-03"),
                ("2023", "2023-01-02"),
                ("2024", "2024-01-01"),
                ("2025", "2024-12-30"),
                ("2026", "2025-12-29"),
            ];
            let (year, first) = weeks.iter().rev().find(|(_, first)| *first <= &text[..10]).unwrap();
            format!("{year}-W{:02}", (days(&text[..10]) - days(first)) / 7 + 1)
        }
    })
}

/// Counts day by day.
fn days(date: &str) -> i64 {
    let (year, month, day): (i64, usize, i64) =
        (date[..4].parse().unwrap(), date[5..7].parse().unwrap(), date[8..].parse().unwrap());
    let lengths =
        |year: i64| [31, if year % 4 == 0 { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let years: i64 = (2020..year).map(|year| lengths(year).iter().sum::<i64>()).sum();
    years + lengths(year)[..month - 1].iter().sum::<i64>() + day
}

fn measure(rows: &[&[Option<String>; 6]], measure: Measure<'_>) -> Value {
    let Measure::Of { function, column } = measure else { return Value::Integer(rows.len() as i64) };
    let texts: Vec<&str> = rows.iter().filter_map(|row| row[column].as_deref()).collect();
    let kind = KINDS[column];
    let value = |text: &str| group_text(Some(text), GroupColumn::new(column));
    match function {
        AggregateFunction::Distinct => {
            let different: BTreeSet<String> = texts.iter().map(|text| format!("{:?}", value(text))).collect();
            Value::Integer(different.len() as i64)
        }
        _ if texts.is_empty() => Value::Null,
        AggregateFunction::Min | AggregateFunction::Max => {
            let compare = |a: &&&str, b: &&&str| match kind {
                DataType::Integer | DataType::Decimal => scaled(a).cmp(&scaled(b)),
                _ => a.cmp(b),
            };
            let found = match function {
                AggregateFunction::Min => texts.iter().min_by(compare),
                _ => texts.iter().max_by(compare),
            };
            value(found.unwrap())
        }
        AggregateFunction::Sum | AggregateFunction::Avg => {
            let sum: i128 = texts.iter().map(|text| scaled(text)).sum();
            match (kind, function) {
                (DataType::Integer, AggregateFunction::Sum) => Value::Integer((sum / 10_000) as i64),
                (DataType::Integer, _) => Value::Real((sum / 10_000) as f64 / texts.len() as f64),
                (_, AggregateFunction::Sum) => Value::Text(unscaled(sum, 4)),
                (_, _) => {
                    let places = unscaled(sum, 4).split_once('.').map_or(0, |(_, fraction)| fraction.len());
                    let dividend = sum.unsigned_abs() * 10_u128.pow(6) / 10_u128.pow(4 - places as u32);
                    let count = texts.len() as u128;
                    let (quotient, rest) = (dividend / count, dividend % count);
                    let up = rest * 2 > count || (rest * 2 == count && quotient % 2 == 1);
                    let size = (quotient + u128::from(up)) as i128;
                    let text = unscaled(if sum < 0 { -size } else { size }, places + 6);
                    Value::Text(if text == "-0" { "0".into() } else { text })
                }
            }
        }
    }
}

fn kinds(question: &Aggregate<'_>) -> Vec<DataType> {
    let groups = question.groups.iter().map(|group| match group.unit {
        Some(_) => DataType::Text,
        None => KINDS[group.column],
    });
    let measures = question.measures.iter().map(|measure| {
        let kind = measure.column().map_or(DataType::Integer, |column| KINDS[column]);
        contract::aggregate::result_type(*measure, kind)
    });
    groups.chain(measures).collect()
}

fn listed(reader: &dyn Reader, query: &Query<'_>) -> (Vec<String>, Option<contract::source::CursorPosition>) {
    let (mut ids, mut last) = (Vec::new(), None);
    reader
        .list(query, &mut |cells, _| {
            let id = match cells[0] {
                ValueRef::Text(text) => text.to_owned(),
                ValueRef::Integer(n) => n.to_string(),
                other => format!("{other:?}"),
            };
            ids.push(id);
            last = Some(contract::source::CursorPosition {
                sort_values: query.sort.iter().map(|sort| cells[sort.column].to_value()).collect(),
                key: vec![cells[0].to_value()],
            });
            if ids.len() == query.rows_max { RowFlow::Stop } else { RowFlow::Continue }
        })
        .unwrap();
    (ids, last)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_source_gives_the_same_answers(
        rows in rows(),
        questions in prop::collection::vec((conditions(), groups(), measures()), 6),
        sorts in prop::collection::vec((1..6_usize, any::<bool>()), 0..3),
    ) {
        let table: Vec<[Option<String>; 6]> = rows.iter().enumerate().map(|(at, row)| texts(at, row)).collect();
        let fixtures = fixtures(&rows);
        let mut sort: Vec<Sort> = Vec::new();
        for (column, descending) in sorts {
            if sort.iter().all(|known| known.column != column) {
                sort.push(Sort { column, descending });
            }
        }
        for (conditions, groups, measures) in &questions {
            let more: Vec<Vec<BoundValue<'_>>> =
                conditions.iter().map(|one| one.values[1..].iter().map(BoundValue::from).collect()).collect();
            let key_set = |one: &Condition| {
                let mut keys = KeySet::default();
                one.values.iter().for_each(|value| keys.insert(KINDS[one.column], value.as_value_ref()));
                keys
            };
            let keys: Vec<KeySet> = conditions.iter().map(key_set).collect();
            let filters: Vec<Filter<'_>> = conditions
                .iter()
                .zip(&more)
                .zip(&keys)
                .map(|((one, more), keys)| match one.comparison {
                    Comparison::OneOfKeys => Filter::one_of(one.column, keys),
                    Comparison::NoneOfKeys => Filter::none_of(one.column, keys),
                    comparison => {
                        Filter { more, ..Filter::new(one.column, comparison, one.values[0].as_value_ref()) }
                    }
                })
                .collect();
            let passing: Vec<&[Option<String>; 6]> =
                table.iter().filter(|row| passes(row, conditions)).collect();
            let question = Aggregate {
                filters: filters.clone(),
                groups: groups.clone(),
                measures: measures.clone(),
                groups_max: GROUPS_MAX,
                cancelled: None,
                progress: None,
            };
            let mut expected: BTreeMap<String, ExpectedGroup<'_>> = BTreeMap::new();
            for row in &passing {
                let values: Vec<Value> =
                    groups.iter().map(|group| group_text(row[group.column].as_deref(), *group)).collect();
                expected.entry(format!("{values:?}")).or_insert((values, Vec::new())).1.push(row);
            }
            if groups.is_empty() && expected.is_empty() {
                expected.insert(String::new(), (Vec::new(), Vec::new()));
            }
            let expected: Vec<String> = expected
                .into_values()
                .map(|(values, rows)| {
                    let measured = measures.iter().map(|one| measure(&rows, *one));
                    format!("{:?}", values.into_iter().chain(measured).collect::<Vec<_>>())
                })
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
            let in_order = {
                let mut rows = passing.clone();
                rows.sort_by(|a, b| {
                    let by = sort.iter().map(|sort| {
                        let cell = |row: &[Option<String>; 6]| row[sort.column].clone();
                        match (cell(a), cell(b)) {
                            (None, None) => std::cmp::Ordering::Equal,
                            (None, _) => std::cmp::Ordering::Greater,
                            (_, None) => std::cmp::Ordering::Less,
                            (Some(a), Some(b)) => {
                                let order = order::compare(KINDS[sort.column], ValueRef::Text(&a), ValueRef::Text(&b));
                                if sort.descending { order.reverse() } else { order }
                            }
                        }
                    });
                    by.into_iter().find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
                });
                rows.iter().map(|row| row[0].clone().unwrap()).collect::<Vec<_>>()
            };
            for Fixture { name, reader, .. } in &fixtures {
                let answer = reader.aggregate(&question).unwrap();
                let got: BTreeSet<String> =
                    answer.rows.iter().map(|GroupRow(values)| format!("{values:?}")).collect();
                prop_assert_eq!(got.into_iter().collect::<Vec<_>>(), &expected[..], "{} {:?}", name, question);
                // The counts of the groups add up to the number of rows.
                let counted = Aggregate { measures: vec![Measure::Count], filters: filters.clone(), groups: groups.clone(), ..question_defaults() };
                let counts = reader.aggregate(&counted).unwrap();
                let sum: i64 = counts.rows.iter().map(|row| match row.0.last() { Some(Value::Integer(n)) => *n, _ => 0 }).sum();
                prop_assert_eq!(sum, passing.len() as i64, "{}", name);
                // Pages have the same rows as the aggregate counts, in the order of all sorted fields.
                let (mut ids, mut after) = (Vec::new(), None);
                loop {
                    let query = Query { filters: filters.clone(), sort: sort.clone(), after: after.as_ref(), rows_max: 4, ..Query::default() };
                    let (page, last) = listed(reader.as_ref(), &query);
                    let is_end = page.len() < 4;
                    ids.extend(page);
                    if is_end { break; }
                    after = last;
                }
                prop_assert_eq!(&ids, &in_order, "{} {:?} {:?}", name, conditions, sort);
                // The top groups are the first of all groups.
                let by = AggregateSort { by: SortTarget::Measure(0), descending: true };
                let kinds = kinds(&question);
                let select = |rows_max| {
                    let selection = Selection { having: Vec::new(), sort: vec![by], rows_max };
                    select_groups(answer.clone(), &selection, groups.len(), &kinds)
                };
                let (all, top) = (select(usize::MAX), select(2));
                prop_assert_eq!(&all.rows[..all.rows.len().min(2)], &top.rows[..]);
                prop_assert_eq!(top.total, answer.rows.len());
            }
        }
    }
}

fn question_defaults() -> Aggregate<'static> {
    Aggregate { groups_max: GROUPS_MAX, ..Aggregate::default() }
}

#[test]
fn too_many_groups_and_texts_in_a_sum_are_errors() {
    let row = |city: &str| (Some(city.to_owned()), None, None, None, None);
    for Fixture { name, reader, .. } in fixtures(&[row("a"), row("b"), row("c")]) {
        let by_city = vec![GroupColumn::new(1)];
        let question = Aggregate {
            groups: by_city,
            measures: vec![Measure::Count],
            groups_max: 2,
            ..Aggregate::default()
        };
        let error = reader.aggregate(&question).unwrap_err();
        assert!(matches!(error, SourceError::TooManyGroups { groups_max: 2 }), "{name} {error:?}");
        let function = AggregateFunction::Sum;
        let sum = Aggregate { measures: vec![Measure::Of { function, column: 1 }], ..question_defaults() };
        let error = reader.aggregate(&sum).unwrap_err().to_string();
        assert!(error.contains("`city` has a value that is not a number"), "{name} {error}");
    }
}

#[test]
fn a_count_of_all_rows_reads_none_where_they_are_known() {
    let row = |at: usize| (Some(["Bonn", "Ulm"][at % 2].to_owned()), None, None, None, None);
    let rows: Vec<Row> = (0..50).map(row).collect();
    for Fixture { name, reader, .. } in fixtures(&rows) {
        // How many rows are counted, and how many are read for that.
        let count = |filters: Vec<Filter<'_>>| {
            let scanned = AtomicU64::new(0);
            let measures = vec![Measure::Count];
            let question = Aggregate { filters, measures, progress: Some(&scanned), ..question_defaults() };
            let groups = reader.aggregate(&question).unwrap();
            (groups.rows[0].0[0].clone(), scanned.into_inner())
        };
        let scanned = match name {
            // A database counts them itself.
            "postgres" | "mariadb" => 50,
            // An API is asked for all pages, and its progress is theirs.
            "rest" => 5,
            _ => 0,
        };
        assert_eq!(count(Vec::new()), (Value::Integer(50), scanned), "{name}");
        let (found, scanned) = count(vec![Filter::new(1, Comparison::Equals, ValueRef::Text("Ulm"))]);
        assert_eq!(found, Value::Integer(25), "{name}");
        if ["csv", "json", "jsonl", "xlsx"].contains(&name) {
            assert!(scanned >= 25, "{name}: {scanned} rows were read");
        }
    }
}

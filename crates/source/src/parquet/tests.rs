use std::sync::Arc;

use contract::source::{Source, TableOptions};
use parquet::basic::Compression;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type, Int96, Int96Type,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

use super::ParquetFile;
use crate::tables::{FileFormat, StoredValue, Table};

/// Writes the columns of one row group, in order.
type WriteColumn<'a> = &'a dyn Fn(&mut SerializedColumnWriter<'_>);

/// A file with as many row groups as asked for, all with the same rows.
fn file(schema: &str, groups: usize, compression: Compression, columns: &[WriteColumn<'_>]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).expect("a writer");
    for _ in 0..groups {
        let mut group = writer.next_row_group().expect("a row group");
        for write in columns {
            let mut column = group.next_column().expect("a column").expect("one more column");
            write(&mut column);
            column.close().expect("a column");
        }
        group.close().expect("a row group");
    }
    writer.close().expect("a file");
    bytes
}

fn load(bytes: &[u8]) -> Result<Table, String> {
    let parsed = ParquetFile { name: "t".into() }.load(bytes).map_err(|error| error.message)?;
    parsed.tables.into_iter().next().ok_or_else(|| "no table".into())
}

/// All rows, each as its values.
fn rows(table: &Table) -> Vec<String> {
    let value = |row, column| match table.value(row, column) {
        StoredValue::Null => "-".to_owned(),
        StoredValue::Text(text) => format!("{text:?}"),
        StoredValue::DateTime(text) => text.to_owned(),
        StoredValue::Integer(n) => n.to_string(),
        StoredValue::Real(n) => format!("{n:?}"),
        StoredValue::NumberText(digits) => format!("#{digits}"),
        StoredValue::Boolean(value) => value.to_string(),
        StoredValue::Json(text) => text.to_owned(),
        StoredValue::Blob(bytes) => format!("{bytes:?}"),
    };
    let row = |row| (0..table.header.len()).map(|column| value(row, column)).collect::<Vec<_>>().join(" | ");
    (0..table.len()).map(row).collect()
}

const FLAT: &str = "message t {
    REQUIRED INT64 id;
    OPTIONAL BYTE_ARRAY name (UTF8);
    OPTIONAL INT32 day (DATE);
    OPTIONAL INT64 at (TIMESTAMP(MICROS,true));
    OPTIONAL INT64 local (TIMESTAMP(NANOS,false));
    OPTIONAL INT64 price (DECIMAL(18,2));
    OPTIONAL FIXED_LEN_BYTE_ARRAY(16) total (DECIMAL(38,4));
    OPTIONAL BOOLEAN paid;
    OPTIONAL DOUBLE weight;
    OPTIONAL INT96 old;
    OPTIONAL INT64 big (INTEGER(64,false));
    OPTIONAL BYTE_ARRAY raw;
}";

fn flat_file(groups: usize, compression: Compression) -> Vec<u8> {
    let some = |levels: &'static [i16]| Some(levels);
    let bytes = |text: &str| ByteArray::from(text.as_bytes().to_vec());
    let total = FixedLenByteArray::from((-12_345_678_901_234_567_890_i128).to_be_bytes().to_vec());
    let julian = {
        let mut value = Int96::new();
        // Noon of 2026-02-11, and a nanosecond.
        let nanos = 43_200_000_000_001_u64;
        value.set_data(nanos as u32, (nanos >> 32) as u32, 2_440_588 + 20_495);
        value
    };
    file(
        FLAT,
        groups,
        compression,
        &[
            &|column| drop(column.typed::<Int64Type>().write_batch(&[9_007_199_254_740_993, 2], None, None)),
            &|column| {
                drop(column.typed::<ByteArrayType>().write_batch(&[bytes("Zoë")], some(&[1, 0]), None));
            },
            &|column| drop(column.typed::<Int32Type>().write_batch(&[20_495], some(&[1, 0]), None)),
            &|column| {
                drop(column.typed::<Int64Type>().write_batch(&[1_770_804_000_123_000], some(&[1, 0]), None));
            },
            &|column| drop(column.typed::<Int64Type>().write_batch(&[-1], some(&[1, 0]), None)),
            &|column| drop(column.typed::<Int64Type>().write_batch(&[1250, -5], some(&[1, 1]), None)),
            &|column| {
                let totals = [total.clone()];
                drop(column.typed::<FixedLenByteArrayType>().write_batch(&totals, some(&[1, 0]), None));
            },
            &|column| drop(column.typed::<BoolType>().write_batch(&[true], some(&[0, 1]), None)),
            &|column| drop(column.typed::<DoubleType>().write_batch(&[0.1], some(&[1, 0]), None)),
            &|column| drop(column.typed::<Int96Type>().write_batch(&[julian], some(&[1, 0]), None)),
            &|column| drop(column.typed::<Int64Type>().write_batch(&[-1, 7], some(&[1, 1]), None)),
            &|column| {
                let raw = [ByteArray::from(vec![0xff, 0])];
                drop(column.typed::<ByteArrayType>().write_batch(&raw, some(&[1, 0]), None));
            },
        ],
    )
}

#[test]
fn every_type_of_a_flat_column_is_read_exactly_in_every_compression() {
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(parquet::basic::GzipLevel::default()),
        Compression::LZ4_RAW,
        Compression::ZSTD(parquet::basic::ZstdLevel::default()),
    ];
    for compression in codecs {
        let table =
            load(&flat_file(2, compression)).unwrap_or_else(|error| panic!("{compression:?}: {error}"));
        let first = "9007199254740993 | \"Zoë\" | 2026-02-11 | 2026-02-11T10:00:00.123Z | \
                     1969-12-31T23:59:59.999999999 | #12.50 | #-1234567890123456.7890 | - | 0.1 | \
                     2026-02-11T12:00:00.000000001 | #18446744073709551615 | [255, 0]";
        let second = "2 | - | - | - | - | #-0.05 | - | true | - | - | 7 | -";
        assert_eq!(rows(&table), [first, second, first, second], "{compression:?}");
    }
}

#[test]
fn nested_columns_are_json() {
    let schema = "message t {
        REQUIRED INT32 id;
        OPTIONAL group tags (LIST) { REPEATED group list { OPTIONAL BYTE_ARRAY element (UTF8); } }
        OPTIONAL group place { REQUIRED BYTE_ARRAY city (UTF8); OPTIONAL DOUBLE lat; }
    }";
    let bytes = |text: &str| ByteArray::from(text.as_bytes().to_vec());
    let file = file(
        schema,
        1,
        Compression::UNCOMPRESSED,
        &[
            &|column| drop(column.typed::<Int32Type>().write_batch(&[1, 2, 3], None, None)),
            &|column| {
                // ["a", null], [], null
                let (levels, repeats) = ([3, 2, 1, 0], [0, 1, 0, 0]);
                drop(column.typed::<ByteArrayType>().write_batch(
                    &[bytes("a")],
                    Some(&levels),
                    Some(&repeats),
                ));
            },
            &|column| {
                drop(column.typed::<ByteArrayType>().write_batch(
                    &[bytes("Köln"), bytes("\"x\"")],
                    Some(&[1, 1, 0]),
                    None,
                ));
            },
            &|column| drop(column.typed::<DoubleType>().write_batch(&[50.9], Some(&[2, 1, 0]), None)),
        ],
    );
    let table = load(&file).expect("a table");
    assert_eq!(
        rows(&table),
        [
            r#"1 | ["a",null] | {"city":"Köln","lat":50.9}"#,
            r#"2 | [] | {"city":"\"x\"","lat":null}"#,
            "3 | - | -"
        ]
    );
}

#[test]
fn an_empty_map_looks_like_the_others_of_its_column() {
    let schema = "message t {
        OPTIONAL group names (MAP) { REPEATED group key_value { REQUIRED BYTE_ARRAY key (UTF8); OPTIONAL INT32 value; } }
        OPTIONAL group counts (MAP) { REPEATED group key_value { REQUIRED INT32 key; OPTIONAL INT32 value; } }
    }";
    // One entry, then none.
    let integers = |values: [i32; 1], levels: [i16; 2]| {
        move |column: &mut SerializedColumnWriter<'_>| {
            drop(column.typed::<Int32Type>().write_batch(&values, Some(&levels), Some(&[0, 0])));
        }
    };
    let bytes = file(
        schema,
        1,
        Compression::UNCOMPRESSED,
        &[
            &|column| {
                let names = [ByteArray::from(b"a".to_vec())];
                drop(column.typed::<ByteArrayType>().write_batch(&names, Some(&[2, 1]), Some(&[0, 0])));
            },
            &integers([1], [3, 1]),
            &integers([1], [2, 1]),
            &integers([2], [3, 1]),
        ],
    );
    assert_eq!(rows(&load(&bytes).expect("a table")), [r#"{"a":1} | [[1,2]]"#, "{} | []"]);
}

#[test]
fn a_file_without_rows_has_the_types_of_its_schema() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.parquet");
    std::fs::write(&path, file(FLAT, 0, Compression::UNCOMPRESSED, &[])).expect("writable");
    let facts = super::open(&path, TableOptions::default()).introspect().expect("facts");
    let types: Vec<&str> = facts.tables[0].columns.iter().map(|column| column.data_type.as_str()).collect();
    assert_eq!(
        types.join(" "),
        "integer text date timestamp local_timestamp decimal decimal boolean number local_timestamp integer blob"
    );
}

#[test]
fn a_damaged_file_is_an_error_wherever_it_ends() {
    let whole = flat_file(1, Compression::SNAPPY);
    for end in (0..whole.len()).step_by(7) {
        assert!(load(&whole[..end]).is_err(), "{end} bytes");
    }
    let mut flipped = whole.clone();
    for at in (4..whole.len()).step_by(5) {
        flipped[at] ^= 0x55;
        // Some bytes are values, so not every change is an error; none may panic or hang.
        drop(load(&flipped));
        flipped[at] = whole[at];
    }
    assert!(load(b"PAR1").is_err());
    assert!(load(b"not a file").is_err());
}

#[test]
fn the_schema_says_where_decimals_are_inside_nested_columns() {
    let schema = "message t {
        REQUIRED INT32 price (DECIMAL(9, 2));
        REQUIRED GROUP detail {
            REQUIRED INT32 net (DECIMAL(9, 2));
            REQUIRED INT32 quantity;
            REQUIRED GROUP lines (LIST) { REPEATED GROUP list { REQUIRED GROUP element { REQUIRED INT64 tax (DECIMAL(18, 4)); } } }
            REQUIRED GROUP rates (MAP) { REPEATED GROUP key_value { REQUIRED BYTE_ARRAY key (UTF8); REQUIRED INT32 value (DECIMAL(5, 1)); } }
        }
    }";
    let schema = parse_message_type(schema).expect("a schema");
    let paths: Vec<String> = schema
        .get_fields()
        .iter()
        .flat_map(|field| super::nested::decimal_paths(field))
        .map(|path| path.iter().map(|step| step.as_deref().unwrap_or("*")).collect::<Vec<_>>().join("/"))
        .collect();
    assert_eq!(paths, ["price", "detail/net", "detail/lines/*/tax", "detail/rates/*"]);
}

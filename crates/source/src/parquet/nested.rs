//! Lists, maps and groups as JSON.

use parquet::basic::{LogicalType, TimeUnit, Type as PhysicalType};
use parquet::record::Field;
use parquet::schema::types::ColumnDescriptor;

use super::value::{Cell, TimeZoneUse, date_text, timestamp_text};

/// Whether a value inside a nested column is read exactly: the crate rounds or drops what these types say.
pub(super) fn is_supported(column: &ColumnDescriptor) -> bool {
    match (column.physical_type(), column.logical_type_ref()) {
        (PhysicalType::INT96, _) => false,
        (_, Some(LogicalType::Timestamp(timestamp))) => {
            timestamp.is_adjusted_to_u_t_c && timestamp.unit != TimeUnit::NANOS
        }
        (_, Some(LogicalType::Time(_) | LogicalType::Uuid | LogicalType::Variant(_))) => false,
        (_, _) => true,
    }
}

pub(super) fn to_cell(field: &Field) -> Cell {
    if let Field::Null = field {
        return Cell::Null;
    }
    let mut out = Vec::new();
    write_json(&mut out, field);
    String::from_utf8(out).map_or(Cell::Null, Cell::Json)
}

fn write_json(out: &mut Vec<u8>, field: &Field) {
    match field {
        Field::Null => out.extend_from_slice(b"null"),
        Field::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Field::Byte(n) => write_integer(out, i64::from(*n)),
        Field::Short(n) => write_integer(out, i64::from(*n)),
        Field::Int(n) => write_integer(out, i64::from(*n)),
        Field::Long(n) => write_integer(out, *n),
        Field::UByte(n) => write_integer(out, i64::from(*n)),
        Field::UShort(n) => write_integer(out, i64::from(*n)),
        Field::UInt(n) => write_integer(out, i64::from(*n)),
        Field::ULong(n) => out.extend_from_slice(n.to_string().as_bytes()),
        Field::Float16(n) => write_real(out, f64::from(*n)),
        Field::Float(n) => write_real(out, n.to_string().parse().unwrap_or(f64::from(*n))),
        Field::Double(n) => write_real(out, *n),
        Field::Str(text) => json::write::string(out, text),
        Field::Date(days) => write_text(out, date_text(i64::from(*days)), i64::from(*days)),
        Field::TimestampMillis(ms) => {
            write_text(out, timestamp_text(i128::from(*ms) * 1_000_000, TimeZoneUse::Utc), *ms);
        }
        Field::TimestampMicros(micros) => {
            write_text(out, timestamp_text(i128::from(*micros) * 1_000, TimeZoneUse::Utc), *micros);
        }
        Field::Group(row) => write_object(out, row.get_column_iter().map(|(name, value)| (&**name, value))),
        Field::ListInternal(list) => write_array(out, list.elements().iter()),
        Field::MapInternal(map) => {
            let names: Option<Vec<&str>> = map
                .entries()
                .iter()
                .map(|(key, _)| if let Field::Str(name) = key { Some(name.as_str()) } else { None })
                .collect();
            match names {
                Some(names) => {
                    write_object(out, names.into_iter().zip(map.entries().iter().map(|(_, value)| value)));
                }
                // JSON has texts for names only, so other maps are pairs.
                None => {
                    out.push(b'[');
                    for (at, (key, value)) in map.entries().iter().enumerate() {
                        out.extend_from_slice(if at > 0 { b",[" } else { b"[" });
                        write_json(out, key);
                        out.push(b',');
                        write_json(out, value);
                        out.push(b']');
                    }
                    out.push(b']');
                }
            }
        }
        // Decimals, bytes and times of the day, as the crate writes them.
        other @ (Field::Decimal(_) | Field::Bytes(_) | Field::TimeMillis(_) | Field::TimeMicros(_)) => {
            json::write::string(out, &other.to_string());
        }
    }
}

fn write_integer(out: &mut Vec<u8>, n: i64) {
    json::write::integer(out, n);
}

fn write_real(out: &mut Vec<u8>, n: f64) {
    match n.is_finite() {
        true => json::write::number(out, n),
        false => json::write::string(out, &n.to_string()),
    }
}

/// A date or time, or the number that it is in the file.
fn write_text(out: &mut Vec<u8>, text: Option<String>, n: i64) {
    match text {
        Some(text) => json::write::string(out, &text),
        None => write_integer(out, n),
    }
}

fn write_object<'f>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'f str, &'f Field)>) {
    out.push(b'{');
    for (at, (name, value)) in members.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::write::string(out, name);
        out.push(b':');
        write_json(out, value);
    }
    out.push(b'}');
}

fn write_array<'f>(out: &mut Vec<u8>, elements: impl Iterator<Item = &'f Field>) {
    out.push(b'[');
    for (at, value) in elements.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_json(out, value);
    }
    out.push(b']');
}

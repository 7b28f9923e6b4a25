//! Lists, maps and groups as JSON.

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as PhysicalType};
use parquet::record::Field;
use parquet::schema::types::{ColumnDescriptor, Type};

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

/// Where decimals are inside a nested column, which are texts in its JSON: the names of members, and `None` for any element of a
/// list or map. The first is the name of the column.
pub(super) fn decimal_paths(column: &Type) -> Vec<Vec<Option<String>>> {
    let mut paths = Vec::new();
    collect_decimals(column, &mut vec![Some(column.name().to_owned())], &mut paths);
    paths
}

fn collect_decimals(schema: &Type, path: &mut Vec<Option<String>>, paths: &mut Vec<Vec<Option<String>>>) {
    let info = schema.get_basic_info();
    if schema.is_primitive() {
        let is_decimal = matches!(info.logical_type_ref(), Some(LogicalType::Decimal(_)))
            || info.converted_type() == ConvertedType::DECIMAL;
        if is_decimal {
            paths.push(path.clone());
        }
        return;
    }
    let element = match info.converted_type() {
        ConvertedType::LIST => Some(element_schema(schema)),
        ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE => Some(value_schema(schema)),
        _ => None,
    };
    match element {
        Some(element) => {
            path.push(None);
            if let Some(element) = element {
                collect_decimals(element, path, paths);
            }
            path.pop();
        }
        None => {
            for member in schema.get_fields() {
                path.push(Some(member.name().to_owned()));
                collect_decimals(member, path, paths);
                path.pop();
            }
        }
    }
}

/// `schema` is the type of the column.
pub(super) fn to_cell(field: &Field, schema: Option<&Type>) -> Cell {
    if let Field::Null = field {
        return Cell::Null;
    }
    let mut out = Vec::new();
    write_json(&mut out, field, schema);
    String::from_utf8(out).map_or(Cell::Null, Cell::Json)
}

fn write_json(out: &mut Vec<u8>, field: &Field, schema: Option<&Type>) {
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
        Field::Group(row) => {
            let schema_of = |name: &str| child(schema?, |one| one.name() == name);
            write_object(out, row.get_column_iter().map(|(name, value)| (&**name, value, schema_of(name))));
        }
        Field::ListInternal(list) => {
            write_array(out, list.elements().iter(), schema.and_then(element_schema))
        }
        // Without an entry, only the schema says what its names are.
        Field::MapInternal(map) if map.entries().is_empty() => {
            let has_texts = schema.and_then(key_schema).is_none_or(is_text);
            out.extend_from_slice(if has_texts { b"{}" } else { b"[]" });
        }
        Field::MapInternal(map) => {
            let values_schema = schema.and_then(value_schema);
            let names: Option<Vec<&str>> = map
                .entries()
                .iter()
                .map(|(key, _)| if let Field::Str(name) = key { Some(name.as_str()) } else { None })
                .collect();
            match names {
                Some(names) => {
                    let values = map.entries().iter().map(|(_, value)| value);
                    write_object(
                        out,
                        names.into_iter().zip(values).map(|(name, value)| (name, value, values_schema)),
                    );
                }
                // JSON has texts for names only, so other maps are pairs.
                None => {
                    out.push(b'[');
                    for (at, (key, value)) in map.entries().iter().enumerate() {
                        out.extend_from_slice(if at > 0 { b",[" } else { b"[" });
                        write_json(out, key, schema.and_then(key_schema));
                        out.push(b',');
                        write_json(out, value, values_schema);
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

fn write_object<'f>(
    out: &mut Vec<u8>,
    members: impl Iterator<Item = (&'f str, &'f Field, Option<&'f Type>)>,
) {
    out.push(b'{');
    for (at, (name, value, schema)) in members.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::write::string(out, name);
        out.push(b':');
        write_json(out, value, schema);
    }
    out.push(b'}');
}

fn write_array<'f>(out: &mut Vec<u8>, elements: impl Iterator<Item = &'f Field>, schema: Option<&Type>) {
    out.push(b'[');
    for (at, value) in elements.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_json(out, value, schema);
    }
    out.push(b']');
}

fn child(schema: &Type, is_it: impl Fn(&Type) -> bool) -> Option<&Type> {
    let fields = if schema.is_group() { schema.get_fields() } else { &[] };
    fields.iter().map(|field| &**field).find(|field| is_it(field))
}

/// `group list (LIST) { repeated group list { element } }`; older files have the element itself repeated.
fn element_schema(list: &Type) -> Option<&Type> {
    let repeated = child(list, |_| true)?;
    match repeated.is_group() && repeated.get_fields().len() == 1 {
        true => child(repeated, |_| true),
        false => Some(repeated),
    }
}

/// `group map (MAP) { repeated group key_value { key; value } }`
fn key_schema(map: &Type) -> Option<&Type> {
    child(child(map, |_| true)?, |_| true)
}

fn value_schema(map: &Type) -> Option<&Type> {
    let entry = child(map, |_| true).filter(|entry| entry.is_group())?;
    entry.get_fields().get(1).map(|field| &**field)
}

fn is_text(schema: &Type) -> bool {
    schema.is_primitive() && schema.get_physical_type() == PhysicalType::BYTE_ARRAY
}

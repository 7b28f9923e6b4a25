//! Values as MySQL and MariaDB send them.

use contract::ValueRef;
use mysql_async::Value as Sent;
use spile_core::calendar::CivilTime;

use crate::column::Storage;
use crate::decoded::{Cell, Malformed, float};

pub(super) fn decode(storage: Storage, sent: &Sent) -> Result<Cell<'_>, Malformed> {
    let borrowed = |value| Ok(Cell::Borrowed(value));
    match (storage, sent) {
        (_, Sent::NULL) => borrowed(ValueRef::Null),
        (Storage::Unsigned, Sent::UInt(n)) => Ok(Cell::Text(n.to_string())),
        (Storage::Unsigned, Sent::Int(n)) => Ok(Cell::Text(n.to_string())),
        (_, Sent::Int(n)) => borrowed(ValueRef::Integer(*n)),
        // One that became larger than its type in the contract.
        (_, Sent::UInt(n)) => Ok(match i64::try_from(*n) {
            Ok(n) => Cell::Borrowed(ValueRef::Integer(n)),
            Err(_) => Cell::Text(n.to_string()),
        }),
        // The digits that the database shows, not those of the wider type.
        (_, Sent::Float(n)) => float(n.to_string().parse().unwrap_or_else(|_| f64::from(*n))),
        (_, Sent::Double(n)) => float(*n),
        (Storage::Date, Sent::Date(year, month, day, ..)) => {
            Ok(Cell::Text(format!("{year:04}-{month:02}-{day:02}")))
        }
        (
            Storage::Timestamp | Storage::LocalTimestamp,
            Sent::Date(year, month, day, hour, minute, second, micros),
        ) => {
            let zone = if storage == Storage::Timestamp { "Z" } else { "" };
            let time = CivilTime::new(*hour, *minute, *second, micros * 1000).ok_or(Malformed)?;
            Ok(Cell::Text(format!("{year:04}-{month:02}-{day:02}T{time}{zone}")))
        }
        (Storage::Printed, Sent::Time(is_negative, days, hours, minutes, seconds, micros)) => {
            let sign = if *is_negative { "-" } else { "" };
            let hours = u64::from(*days) * 24 + u64::from(*hours);
            let fraction = if *micros > 0 { format!(".{micros:06}") } else { String::new() };
            let fraction = fraction.trim_end_matches('0');
            Ok(Cell::Text(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}")))
        }
        (Storage::Bytes, Sent::Bytes(bytes)) => borrowed(ValueRef::Blob(bytes)),
        // `BIT(1)`, and what was computed.
        (Storage::Boolean, Sent::Bytes(bytes)) => match bytes[..] {
            [bit] => borrowed(ValueRef::Integer(i64::from(bit))),
            _ => Err(Malformed),
        },
        (Storage::Integer, Sent::Bytes(bytes)) => {
            let digits = std::str::from_utf8(bytes).map_err(|_| Malformed)?;
            borrowed(ValueRef::Integer(digits.parse().map_err(|_| Malformed)?))
        }
        (
            Storage::Text
            | Storage::PaddedText
            | Storage::Decimal
            | Storage::Uuid
            | Storage::Json
            | Storage::Printed
            | Storage::PrintedJson,
            Sent::Bytes(bytes),
        ) => {
            std::str::from_utf8(bytes).map(|text| Cell::Borrowed(ValueRef::Text(text))).map_err(|_| Malformed)
        }
        _ => Err(Malformed),
    }
}

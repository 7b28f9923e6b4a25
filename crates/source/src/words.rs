//! How people are told what is wrong with a file, whatever kind of file it is: what is wrong, and the way out.

use std::path::Path;

use contract::Kind;
use contract::diagnostic::Diagnostic;
use contract::source::SourceFault;

use crate::spot::Spot;
use crate::watch::OutOfReach;

/// What is wrong, and the way out. Names the file and never its folder, and shows no value of a row.
pub(crate) type Words = (String, String);

/// For whoever calls, and for the log. What may pass is another fault than what must be mended.
pub(crate) fn fault((what, way_out): Words, log: String, out_of_reach: Option<&OutOfReach>) -> SourceFault {
    let told = format!("{what}; {way_out}");
    match out_of_reach {
        Some(file) if file.is_passing() => SourceFault::Unavailable { told, log },
        Some(_) | None => SourceFault::Changed { told, log },
    }
}

/// For whoever starts the server: with the line itself, where it is about one.
pub(crate) fn shown((what, way_out): Words, spot: Option<&Spot>, path: &Path) -> Diagnostic {
    match spot {
        Some(spot) => Diagnostic::error(what).at(&spot.at(&path.display().to_string())).help(way_out),
        None => Diagnostic::error(format!("{what}; {way_out}")),
    }
}

/// A table or a column that a contract knows is not there.
pub(crate) fn missing(file: &str, what: &str, name: &str, near: Option<&str>) -> Words {
    match near {
        Some(near) => (
            format!("`{file}` has no {what} `{name}`, but `{near}`"),
            "name it as it was, or make the contract anew".into(),
        ),
        None => (format!("`{file}` has no {what} `{name}`"), "put it back, or make the contract anew".into()),
    }
}

/// Half a sentence, after `expected`.
pub(crate) fn kind_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Integer => "a whole number, such as `42`",
        Kind::Int64 => "a whole number of 64 bits",
        Kind::Decimal | Kind::Number => "a number, such as `12.50`",
        Kind::Boolean => "`true` or `false`",
        Kind::Date => "a date, such as `2026-02-28`",
        Kind::Timestamp => "a time with its zone, such as `2026-02-28T10:00:00Z`",
        Kind::LocalTimestamp => "a time without a zone, such as `2026-02-28T10:00:00`",
        Kind::Json => "JSON",
        Kind::Blob => "base64",
    }
}

/// As much of a value as the log shows.
pub(crate) fn shortened(text: &str) -> &str {
    const BYTES_MAX: usize = 80;
    &text[..text.floor_char_boundary(BYTES_MAX)]
}

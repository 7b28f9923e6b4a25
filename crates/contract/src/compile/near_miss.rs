//! Warnings about columns that are almost numbers or dates, and therefore sort and filter in an unexpected order.

use super::Compiler;
use crate::data_type::DataType;
use crate::diagnostic::Diagnostic;
use crate::humanize::group_digits;
use crate::infer::matches_type;
use crate::manifest;
use crate::source::{ColumnFacts, NearMiss, NearMissType, TableFacts};
use crate::toml_text::toml_key;
use crate::toml_text::toml_string;

pub(super) const CODE: &str = "near_miss";

impl Compiler<'_> {
    /// Warns about the near misses of a table, except in columns that are hidden or have a declared type.
    /// `names` are what callers see each column as.
    pub(super) fn report_near_misses(
        &mut self,
        declared: &manifest::Collection,
        table: &TableFacts,
        names: &[String],
    ) {
        let field = |column: &str| declared.fields.iter().find(|field| field.column.value == column);
        let is_settled = |column: &str| {
            let is_decided = |one: &manifest::Field| one.data_type.is_some() || one.formats.is_some();
            field(column).is_some_and(|one| one.hidden || is_decided(one))
        };
        let found: Vec<(&ColumnFacts, &str, &NearMiss)> = table
            .columns
            .iter()
            .zip(names)
            .filter(|(column, _)| !is_settled(&column.name))
            .filter_map(|(column, name)| {
                let header = if column.name.trim().is_empty() { name } else { &column.name };
                Some((column, header.as_str(), column.near_miss.as_ref()?))
            })
            .collect();
        for (column, header, near_miss) in &found {
            let is_sensitive = field(&column.name).is_some_and(|field| field.sensitive);
            let message =
                near_miss_message(&declared.name.value, header, column.data_type, near_miss, is_sensitive);
            let help = near_miss_help(column, near_miss, is_sensitive);
            let warning = Diagnostic::warning(message).code(CODE).help(help);
            self.diagnostics.push(warning.at(&declared.name.location));
        }
    }
}

/// ``orders: `amount` is text: 498 of 500 values are numbers, C10 is `tbd` ``
fn near_miss_message(
    collection: &str,
    header: &str,
    data_type: DataType,
    near_miss: &NearMiss,
    is_sensitive: bool,
) -> String {
    let noun = match near_miss.looks_like {
        NearMissType::Number | NearMissType::Integer => "numbers",
        NearMissType::Date => "dates",
        NearMissType::Time => "times",
    };
    let (exact, similar) = (group_digits(near_miss.exact), group_digits(near_miss.similar));
    let total = group_digits(near_miss.total);
    let texts = near_miss.exact_texts;
    let counts = match (near_miss.exact, near_miss.similar) {
        (all, 0) if texts > 0 => {
            let (numbers, texts) = (group_digits(all - texts), group_digits(texts));
            format!("{numbers} of {total} values are {noun} and {texts} are texts of digits")
        }
        (_, 0) => format!("{exact} of {total} values are {noun}"),
        (0, _) if near_miss.looks_like == NearMissType::Time => {
            format!("{similar} of {total} values are {noun} that sort as text in another order")
        }
        (0, _) => format!("{similar} of {total} values look like {noun} but are not plain {noun}"),
        (_, 1) => {
            format!("{exact} of {total} values are {noun} and 1 looks like a {}", &noun[..noun.len() - 1])
        }
        (_, _) => format!("{exact} of {total} values are {noun} and {similar} look like {noun}"),
    };
    let data_type = match data_type {
        DataType::Text => "text",
        _ => "not of one type",
    };
    let first = match is_sensitive {
        true => format!("see {}", near_miss.first_location),
        false if texts > 0 => format!("{} is the text `{}`", near_miss.first_location, near_miss.first_value),
        false if near_miss.exact == 0 => {
            format!("first `{}` in {}", near_miss.first_value, near_miss.first_location)
        }
        false => format!("{} is `{}`", near_miss.first_location, near_miss.first_value),
    };
    format!("`{collection}`: `{header}` is {data_type}: {counts}, {first}")
}

fn near_miss_help(column: &ColumnFacts, near_miss: &NearMiss, is_sensitive: bool) -> String {
    let declared = |setting: &str| field_setting(&column.name, setting);
    let text = declared("as = \"text\"");
    if let Some(value) = null_setting(near_miss).filter(|_| !is_sensitive) {
        let null = declared(&format!("null = {value}"));
        return format!("if this means that there is no value, set `{null}`, or accept it with `{text}`");
    }
    let (form, what) = match near_miss.looks_like {
        NearMissType::Number | NearMissType::Integer => ("`1234.5`", "numbers"),
        NearMissType::Date => ("`2026-01-31`", "dates"),
        NearMissType::Time => ("`09:05` and durations as hours like `120.75`", "times"),
    };
    let effect = match column.data_type {
        DataType::Text => format!("it sorts as text and has no range filters; write {what} like {form}"),
        _ => format!("the exceptions sort after all {what}; write them like {form}"),
    };
    let is_native_text = near_miss.exact == near_miss.total;
    // `1e5` may be a code; whoever knows better says so.
    let is_exponent = near_miss.exceptions.is_empty()
        && near_miss.exact + near_miss.similar == near_miss.total
        && near_miss.looks_like == NearMissType::Number
        && matches_type(DataType::Number, &near_miss.first_value);
    let declare = match (is_native_text, near_miss.looks_like) {
        (false, _) if is_exponent => {
            format!("set `{}`, or accept it with `{text}`", declared("as = \"number\""))
        }
        (true, NearMissType::Number) => {
            format!("set `{}`, or accept it with `{text}`", declared("as = \"decimal\""))
        }
        (true, NearMissType::Integer) => {
            format!("set `{}`, or accept it with `{text}`", declared("as = \"integer\""))
        }
        (_, _) => format!("or accept it with `{text}`"),
    };
    if is_native_text { format!("it sorts as text; {declare}") } else { format!("{effect}, {declare}") }
}

/// The line of `[collections.NAME.fields]` with a setting of one column.
pub(super) fn field_setting(header: &str, setting: &str) -> String {
    format!("{} = {{ {setting} }}", toml_key(header))
}

/// The value of `null`, if the exceptions probably mean that there is no value: people write them for that, or the
/// only one comes several times.
pub(crate) fn null_setting(near_miss: &NearMiss) -> Option<String> {
    let is_repeated = near_miss.is_only_exception && near_miss.total - near_miss.exact > 1;
    match near_miss.exceptions.as_slice() {
        [] => (is_repeated || near_miss.is_only_exception && is_null_word(&near_miss.first_value))
            .then(|| toml_string(&near_miss.first_value)),
        [one] => (is_repeated || is_null_word(one)).then(|| toml_string(one)),
        several => several.iter().all(|one| is_null_word(one)).then(|| {
            let texts: Vec<String> = several.iter().map(|one| toml_string(one)).collect();
            format!("[{}]", texts.join(", "))
        }),
    }
}

/// Whether people write this where there is no value: `-`, `n/a`, `#N/A`, `k. A.`
fn is_null_word(text: &str) -> bool {
    const NULL_WORDS: [&str; 12] =
        ["na", "null", "none", "nan", "nil", "missing", "nv", "ka", "nc", "nd", "tbd", "unknown"];
    let letters: String = text.chars().filter(|c| c.is_alphanumeric()).collect();
    letters.is_empty() || NULL_WORDS.contains(&letters.to_lowercase().as_str())
}

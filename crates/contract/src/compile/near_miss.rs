//! Warnings about columns that are almost numbers or dates, and therefore sort and filter in an unexpected order.

use super::Compiler;
use crate::data_type::DataType;
use crate::diagnostic::Diagnostic;
use crate::humanize::group_digits;
use crate::init::toml_string;
use crate::manifest;
use crate::source::{ColumnFacts, NearMiss, NearMissType, TableFacts};

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
        let is_settled =
            |column: &str| field(column).is_some_and(|one| one.hidden || one.data_type.is_some());
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
    if means_null(near_miss) && !is_sensitive {
        let value = toml_string(&near_miss.first_value);
        return format!(
            "if this means that there is no value, set `null = {value}` for the column, or accept it with `as = \"text\"`"
        );
    }
    let (form, what) = match near_miss.looks_like {
        NearMissType::Number | NearMissType::Integer => ("`1234.5`", "numbers"),
        NearMissType::Date => ("`2026-01-31`", "dates"),
    };
    let effect = match column.data_type {
        DataType::Text => format!("it sorts as text and has no range filters; write {what} like {form}"),
        _ => format!("the exceptions sort after all {what}; write them like {form}"),
    };
    let is_native_text = near_miss.exact == near_miss.total;
    let declare = match (is_native_text, near_miss.looks_like) {
        (true, NearMissType::Number) => "declare `as = \"decimal\"`, or accept it with `as = \"text\"`",
        (true, NearMissType::Integer) => "declare `as = \"integer\"`, or accept it with `as = \"text\"`",
        (_, _) => "or accept it with `as = \"text\"`",
    };
    if is_native_text { format!("it sorts as text; {declare}") } else { format!("{effect}, {declare}") }
}

/// Whether the only exception probably means that there is no value: it comes several times, or people write it for that.
fn means_null(near_miss: &NearMiss) -> bool {
    const NULL_WORDS: [&str; 6] = ["na", "null", "none", "nan", "nil", "missing"];
    let letters: String = near_miss.first_value.chars().filter(|c| c.is_alphanumeric()).collect();
    let is_word = letters.is_empty() || NULL_WORDS.contains(&letters.to_lowercase().as_str());
    near_miss.is_only_exception && (is_word || near_miss.total - near_miss.exact > 1)
}

//! What an error of MySQL or MariaDB means.

use mysql_async::{Error, ServerError};

use crate::error::{Cause, DbError, Refusal};

pub(super) fn db_error(error: &Error) -> DbError {
    let Error::Server(server) = error else { return DbError::Lost { detail: error.to_string() } };
    match cause(server.code) {
        None => DbError::Lost { detail: server.to_string() },
        Some(cause) => DbError::Refused(refusal(cause, server)),
    }
}

fn refusal(cause: Cause, error: &ServerError) -> Refusal {
    let message = error.message.as_str();
    Refusal {
        cause,
        column: quoted_after(message, "olumn ").or_else(|| quoted_after(message, "Field ")),
        constraint: quoted_after(message, "for key ").or_else(|| quoted_after(message, "CONSTRAINT ")),
        position: None,
        detail: format!("{message} ({})", error.code),
    }
}

/// `None` if the server has ended the connection.
fn cause(code: u16) -> Option<Cause> {
    Some(match code {
        1053 | 1077 | 1079 | 1152 | 1158..=1161 | 1184 | 1927 | 2006 | 2013 => return None,
        1146 | 1054 | 1049 | 1051 => Cause::SchemaChanged,
        1615 | 1243 => Cause::StalePlan,
        1044 | 1142 | 1143 | 1227 | 1370 => Cause::PermissionDenied,
        1062 | 1586 => Cause::Duplicate,
        1216 | 1217 | 1451 | 1452 => Cause::ForeignKey,
        1048 | 1364 => Cause::NotNull,
        4025 | 3819 | 1369 => Cause::Check,
        1264 | 1265 | 1292 | 1366 | 1406 | 1411 | 1441 | 1690 | 3140..=3160 => Cause::InvalidValue,
        1205 | 1213 | 3572 => Cause::Conflict,
        1317 | 1969 | 3024 => Cause::Timeout,
        1040 | 1203 | 1226 => Cause::TooManyConnections,
        1792 | 1290 | 1836 => Cause::ReadOnly,
        _ => Cause::Other,
    })
}

/// The last part of a quoted name after a word: `` `shop`.`customers`.`email` `` and `'customers.PRIMARY'` have one at the end.
fn quoted_after(message: &str, word: &str) -> Option<String> {
    let rest = &message[message.find(word)? + word.len()..];
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '`'))?;
    let name = rest.split(' ').next()?.trim_matches(|c: char| c == quote || c == '.');
    let last = name.rsplit(quote).next().unwrap_or(name);
    Some(last.rsplit('.').next().unwrap_or(last).to_owned())
}

#[cfg(test)]
mod tests {
    use super::quoted_after;

    #[test]
    fn names_are_found_in_messages() {
        for (message, word, expected) in [
            ("Duplicate entry '1' for key 'PRIMARY'", "for key ", Some("PRIMARY")),
            ("Duplicate entry '1' for key 'shop.PRIMARY'", "for key ", Some("PRIMARY")),
            ("Column 'name' cannot be null", "olumn ", Some("name")),
            ("Data too long for column 'name' at row 1", "olumn ", Some("name")),
            ("Incorrect integer value: 'x' for column `shop`.`t`.`id` at row 1", "olumn ", Some("id")),
            ("CONSTRAINT `positive` failed for `shop`.`t`", "CONSTRAINT ", Some("positive")),
            ("Unknown table", "olumn ", None),
        ] {
            assert_eq!(quoted_after(message, word).as_deref(), expected, "{message}");
        }
    }
}

//! What an error of PostgreSQL means.

use tokio_postgres::error::{DbError as ServerError, ErrorPosition, SqlState};

use crate::error::{Cause, DbError, Refusal};

pub(super) fn db_error(error: &tokio_postgres::Error) -> DbError {
    let Some(server) = error.as_db_error() else {
        return DbError::Lost { detail: full_text(error) };
    };
    if is_shutdown(server.code()) {
        return DbError::Lost { detail: server.to_string() };
    }
    DbError::Refused(Refusal {
        cause: cause(server),
        column: server.column().map(str::to_owned),
        constraint: server.constraint().map(str::to_owned),
        position: match server.position() {
            Some(ErrorPosition::Original(position)) => Some(*position as usize),
            Some(ErrorPosition::Internal { .. }) | None => None,
        },
        detail: format!("{} ({})", server.message(), server.code().code()),
    })
}

/// An error with its causes. Contains no password: the driver never repeats one.
pub(super) fn full_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// The server has ended the connection.
fn is_shutdown(code: &SqlState) -> bool {
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::IDLE_SESSION_TIMEOUT,
    ]
    .contains(code)
}

fn cause(error: &ServerError) -> Cause {
    let code = error.code();
    if *code == SqlState::FEATURE_NOT_SUPPORTED && error.message().contains("cached plan") {
        return Cause::StalePlan;
    }
    match code.code() {
        // A pooler between us gave the connection to another session.
        "26000" => Cause::StalePlan,
        "42P01" | "42703" | "42883" | "42804" | "3F000" | "42P02" => Cause::SchemaChanged,
        "42P18" | "42P08" => Cause::UnknownParameterType,
        "42501" => Cause::PermissionDenied,
        "23505" | "23P01" => Cause::Duplicate,
        "23503" => Cause::ForeignKey,
        "23502" => Cause::NotNull,
        "23514" | "44000" => Cause::Check,
        "40001" | "40P01" | "55P03" => Cause::Conflict,
        "57014" => Cause::Timeout,
        "53300" => Cause::TooManyConnections,
        "25006" => Cause::ReadOnly,
        code if code.starts_with("22") => Cause::InvalidValue,
        code if code.starts_with("53") || code.starts_with("57") || code.starts_with("58") => {
            Cause::Unavailable
        }
        _ => Cause::Other,
    }
}

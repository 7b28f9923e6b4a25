//! Settings from environment variables. An invalid value is an error, never replaced by a default.

use anyhow::bail;
use spile_core::Limits;
use transport::http::ConnectionLimits;

/// Reads a number from the environment.
fn env_number(name: &str) -> anyhow::Result<Option<u64>> {
    match std::env::var(name) {
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => bail!("{name}: expected an integer"),
        Ok(text) => match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => bail!("{name}: expected an integer, found `{text}`"),
        },
    }
}

/// Reads a text from the environment; an empty one counts as unset.
pub(crate) fn env_text(name: &str) -> anyhow::Result<Option<String>> {
    match std::env::var(name) {
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => bail!("{name}: not valid UTF-8"),
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
    }
}

/// The port of `--http`. 0 means any free port.
pub(crate) fn port() -> anyhow::Result<u16> {
    match env_number("PORT")?.map(u16::try_from) {
        None => Ok(3333),
        Some(Ok(port)) => Ok(port),
        Some(Err(_)) => bail!("PORT: exceeds the highest port, 65535"),
    }
}

/// Reads a number that must not be zero.
fn env_positive(name: &str) -> anyhow::Result<Option<u64>> {
    match env_number(name)? {
        Some(0) => bail!("{name}: must be greater than 0"),
        other => Ok(other),
    }
}

pub(crate) fn limits() -> anyhow::Result<Limits> {
    let mut limits = Limits::default();
    if let Some(ms) = env_positive("SPILE_CALL_TIMEOUT_MS")? {
        limits.call_timeout_ms = ms;
    }
    Ok(limits)
}

pub(crate) fn connection_limits() -> anyhow::Result<ConnectionLimits> {
    let mut limits = ConnectionLimits::default();
    for (name, field) in [
        ("SPILE_HEADER_TIMEOUT_MS", &mut limits.header_timeout_ms),
        ("SPILE_BODY_IDLE_TIMEOUT_MS", &mut limits.body_idle_timeout_ms),
        ("SPILE_WRITE_STALL_TIMEOUT_MS", &mut limits.write_stall_timeout_ms),
        ("SPILE_KEEP_ALIVE_TIMEOUT_MS", &mut limits.keep_alive_timeout_ms),
    ] {
        if let Some(ms) = env_positive(name)? {
            *field = ms;
        }
    }
    Ok(limits)
}

/// The number of worker threads; by default one for each core.
pub(crate) fn workers() -> anyhow::Result<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(env_positive("SPILE_WORKERS")?.map_or(cores, |n| usize::try_from(n).unwrap_or(cores)).min(1024))
}

//! What the environment may say, read once and checked: a wrong value is an error, never a guess.

use anyhow::bail;
use spile_core::Limits;
use transport::http::ConnectionLimits;

/// Reads a number from the environment.
fn env_number(name: &str) -> anyhow::Result<Option<u64>> {
    match std::env::var(name) {
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => bail!("{name}: not a number"),
        Ok(text) => match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => bail!("{name}: `{text}` is not a whole number"),
        },
    }
}

/// Reads a text from the environment; an empty one is none.
pub(crate) fn env_text(name: &str) -> anyhow::Result<Option<String>> {
    match std::env::var(name) {
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => bail!("{name}: not readable as text"),
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
    }
}

/// Where `--http` listens. 0 is any port that is free.
pub(crate) fn port() -> anyhow::Result<u16> {
    match env_number("PORT")?.map(u16::try_from) {
        None => Ok(3333),
        Some(Ok(port)) => Ok(port),
        Some(Err(_)) => bail!("PORT: too large; the last port is 65535"),
    }
}

/// A number that must not be zero.
fn env_positive(name: &str) -> anyhow::Result<Option<u64>> {
    match env_number(name)? {
        Some(0) => bail!("{name}: must be more than 0"),
        other => Ok(other),
    }
}

pub(crate) fn limits() -> anyhow::Result<Limits> {
    let mut limits = Limits::default();
    if let Some(ms) = env_positive("SPILE_TOOL_TIMEOUT_MS")? {
        limits.call_timeout_ms = ms;
    }
    Ok(limits)
}

pub(crate) fn timing() -> anyhow::Result<ConnectionLimits> {
    let mut timing = ConnectionLimits::default();
    for (name, place) in [
        ("SPILE_HEADER_TIMEOUT_MS", &mut timing.header_timeout_ms),
        ("SPILE_BODY_TIMEOUT_MS", &mut timing.body_idle_timeout_ms),
        ("SPILE_WRITE_TIMEOUT_MS", &mut timing.write_stall_timeout_ms),
        ("SPILE_IDLE_TIMEOUT_MS", &mut timing.keep_alive_timeout_ms),
    ] {
        if let Some(ms) = env_positive(name)? {
            *place = ms;
        }
    }
    Ok(timing)
}

/// How many threads work; by default one for each core.
pub(crate) fn workers() -> anyhow::Result<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(env_positive("SPILE_WORKERS")?.map_or(cores, |n| usize::try_from(n).unwrap_or(cores)).min(1024))
}

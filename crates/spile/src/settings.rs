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

/// Which variables a server reads beside its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum EnvNames {
    #[default]
    Spile,
    /// A folder with an `mcp.json` comes from another runtime, whose variables count where ours are not set.
    ServerFile,
}

impl EnvNames {
    pub(crate) fn host(self) -> anyhow::Result<Option<String>> {
        self.either(env_text("SPILE_HOST")?, || env_text("DZX_HOST"))
    }

    pub(crate) fn socket(self) -> anyhow::Result<Option<String>> {
        self.either(env_text("SPILE_SOCKET")?, || env_text("DZX_SOCKET"))
    }

    fn call_timeout_ms(self) -> anyhow::Result<Option<u64>> {
        self.either(env_positive("SPILE_CALL_TIMEOUT_MS")?, || env_positive("DZX_TOOL_TIMEOUT_MS"))
    }

    fn either<T>(
        self,
        own: Option<T>,
        other: impl FnOnce() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<Option<T>> {
        match (own, self) {
            (Some(own), _) => Ok(Some(own)),
            (None, Self::Spile) => Ok(None),
            (None, Self::ServerFile) => other(),
        }
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

pub(crate) fn limits(names: EnvNames) -> anyhow::Result<Limits> {
    let mut limits = Limits::default();
    if let Some(ms) = names.call_timeout_ms()? {
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

//! Who may call: the token, the allowed hosts and origins, and the certificate.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, bail, ensure};
use contract::diagnostic::Diagnostic;
use contract::humanize::pluralize;
use transport::http::{CertificateFiles, Site, Tls};
use transport::{BearerToken, Guard};

use super::args::ServeArgs;
use crate::settings;

/// Below this, a token for an address that other machines can reach is refused.
const PUBLIC_TOKEN_CHARS_MIN: usize = 8;
/// Below this, the operator gets a warning.
const STRONG_TOKEN_CHARS_MIN: usize = 16;

/// Builds the guard, and returns warnings about the token, too. Serving other machines without a token needs
/// `--no-auth`.
pub(super) fn build_guard(
    args: &ServeArgs,
    address: Option<SocketAddr>,
) -> anyhow::Result<(Guard, Vec<Diagnostic>)> {
    if address.is_none() && args.socket().is_none() && args.token_file.is_some() {
        bail!("--token-file needs --bind, --http or --socket: a client on stdin and stdout sends no token");
    }
    let token = read_token(args)?;
    let public = address.filter(|address| !address.ip().is_loopback());
    if let (Some(_), Some(token)) = (public, &token) {
        let chars = token.chars().count();
        ensure!(
            chars >= PUBLIC_TOKEN_CHARS_MIN,
            "the bearer token has only {}, and other machines can reach the server; \
             use a long random one, for example from `openssl rand -hex 32`",
            pluralize(chars as u64, "character")
        );
    }
    if let Some(address) = public
        && token.is_none()
        && !args.no_auth
    {
        bail!(
            "other machines can reach {address}, and no token is set; \
             require one with --token-file FILE (or SPILE_TOKEN), or allow every caller with --no-auth"
        );
    }
    for host in &args.allow_host {
        if host.is_empty() || host.contains([':', '/', '*']) && host.parse::<std::net::IpAddr>().is_err() {
            bail!(
                "--allow-host {host}: expected a host name or an address without a port, such as mcp.example"
            );
        }
    }
    for origin in &args.allow_origin {
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        if !host.is_some_and(|host| !host.is_empty() && !host.contains('/')) {
            bail!("--allow-origin {origin}: expected a scheme and a host, such as https://app.example");
        }
    }
    let warnings = token.as_deref().map_or_else(Vec::new, |token| token_warnings(token, args));
    let guard = Guard {
        allowed_hosts: args.allow_host.clone(),
        allowed_origins: args.allow_origin.clone(),
        token: token.as_deref().map(BearerToken::new),
        refuse_sse: args.no_sse,
    };
    Ok((guard, warnings))
}

/// Warns about a token that can be guessed, and about a token file that other users can read.
fn token_warnings(token: &str, args: &ServeArgs) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    let chars = token.chars().count();
    if chars < STRONG_TOKEN_CHARS_MIN {
        warnings.push(
            Diagnostic::warning(format!("the bearer token has only {chars} characters and can be guessed"))
                .help(format!(
                    "use at least {STRONG_TOKEN_CHARS_MIN} random characters, for example from `openssl rand -hex 32`"
                )),
        );
    }
    warnings.extend(args.token_file.as_deref().and_then(exposed_file_warning));
    warnings
}

#[cfg(unix)]
fn exposed_file_warning(path: &Path) -> Option<Diagnostic> {
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path).ok()?) & 0o7777;
    let path = path.display();
    (mode & 0o077 != 0).then(|| {
        let message =
            format!("other users of this machine can read the token file `{path}` (mode {mode:04o})");
        Diagnostic::warning(message).help(format!("restrict it with `chmod 600 {path}`"))
    })
}

#[cfg(not(unix))]
fn exposed_file_warning(_: &Path) -> Option<Diagnostic> {
    None
}

/// The token in the file or in the environment.
fn read_token(args: &ServeArgs) -> anyhow::Result<Option<String>> {
    let text = match &args.token_file {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the token file `{}`", path.display()))?;
            Some(text)
        }
        None => std::env::var("SPILE_TOKEN").ok(),
    };
    match text.as_deref().map(str::trim) {
        Some("") => bail!("the token is empty; put a long random text into the token file or SPILE_TOKEN"),
        Some(token) if !token.bytes().all(|c| c.is_ascii_graphic()) => {
            bail!(
                "the token contains a character that clients cannot send; use ASCII letters, digits and signs, on one line"
            )
        }
        Some(token) => Ok(Some(token.to_owned())),
        None => Ok(None),
    }
}

/// Loads the certificate now, so that a bad one stops the start instead of failing the first client. Returns warnings
/// about it, too.
pub(super) fn load_tls(
    args: &ServeArgs,
    address: Option<SocketAddr>,
) -> anyhow::Result<(Option<Arc<Tls>>, Vec<Diagnostic>)> {
    if address.is_none() {
        if args.tls_cert.is_some() || args.tls_key.is_some() {
            bail!("--tls-cert and --tls-key need --bind or --http: only HTTP can be encrypted");
        }
        return Ok((None, Vec::new()));
    }
    let path = |option: &Option<PathBuf>, variable| {
        anyhow::Ok(match option {
            Some(path) => Some(path.clone()),
            None => settings::env_text(variable)?.map(PathBuf::from),
        })
    };
    let files = match (path(&args.tls_cert, "SPILE_TLS_CERT")?, path(&args.tls_key, "SPILE_TLS_KEY")?) {
        (None, None) => return Ok((None, Vec::new())),
        (Some(cert), Some(key)) => CertificateFiles { cert, key },
        (Some(_), None) => bail!("the certificate has no key; give --tls-key FILE (or SPILE_TLS_KEY)"),
        (None, Some(_)) => bail!("the key has no certificate; give --tls-cert FILE (or SPILE_TLS_CERT)"),
    };
    let (tls, warnings) = Tls::load(files, SystemTime::now())?;
    Ok((Some(Arc::new(tls)), warnings.into_iter().map(Diagnostic::warning).collect()))
}

/// What to say about a server that other machines can reach.
pub(super) fn open_access_warnings(Site { guard, tls, .. }: &Site) -> Vec<&'static str> {
    let mut warnings = Vec::new();
    match (&guard.token, tls) {
        (None, _) => warnings.push("everyone who can reach this address may call (--no-auth)"),
        (Some(_), None) => warnings.push(
            "callers send their token unencrypted; serve with --tls-cert and --tls-key, or behind a proxy that encrypts",
        ),
        (Some(_), Some(_)) => {}
    }
    if guard.allowed_hosts.is_empty() {
        warnings.push("requests by host name are refused; allow a name with --allow-host NAME");
    }
    warnings
}

//! Who may call: the token, the allowed hosts and origins, and the certificate.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::bail;
use contract::diagnostic::Diagnostic;
use transport::http::{CertificateFiles, HttpService, Tls};
use transport::{AccessTokens, Exposure, Guard};

use super::args::ServeArgs;
use crate::settings;

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
    if let Some(address) = public
        && token.is_none()
        && !args.no_auth
    {
        bail!(
            "other machines can reach {address}, and no token is set; \
             require one with --token-file FILE (or SPILE_TOKEN), or allow every caller with --no-auth"
        );
    }
    let warnings = match address.is_some() || args.socket().is_some() {
        true => token.as_ref().map_or_else(Vec::new, AccessTokens::warnings),
        false => unused_option_warnings(args, token.is_some()),
    };
    let warnings = warnings.into_iter().map(Diagnostic::warning).collect();
    let exposure = if public.is_some() { Exposure::Public } else { Exposure::Local };
    let guard = Guard::new(args.allow_host.clone(), args.allow_origin.clone(), token, exposure)?;
    Ok((guard, warnings))
}

/// Options that have no effect on stdin and stdout.
fn unused_option_warnings(args: &ServeArgs, has_token: bool) -> Vec<String> {
    let options =
        [("--allow-host", !args.allow_host.is_empty()), ("--allow-origin", !args.allow_origin.is_empty())];
    let unused = options.into_iter().filter(|(_, is_given)| *is_given);
    let mut warnings: Vec<String> = unused
        .map(|(option, _)| format!("{option} has no effect without --bind, --http or --socket"))
        .collect();
    if has_token {
        warnings.push("SPILE_TOKEN is ignored: a client on stdin and stdout sends no token".to_owned());
    }
    warnings
}

/// The token in the file or in the environment.
fn read_token(args: &ServeArgs) -> anyhow::Result<Option<AccessTokens>> {
    Ok(match &args.token_file {
        Some(path) => Some(AccessTokens::from_file(path)?),
        None => std::env::var("SPILE_TOKEN").ok().map(|text| AccessTokens::parse(&text)).transpose()?,
    })
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
        (Some(_), None) => {
            bail!("--tls-cert needs --tls-key FILE (or SPILE_TLS_KEY), the private key of the certificate")
        }
        (None, Some(_)) => bail!("the key has no certificate; give --tls-cert FILE (or SPILE_TLS_CERT)"),
    };
    let (tls, warnings) = Tls::load(files, SystemTime::now())?;
    Ok((Some(Arc::new(tls)), warnings.into_iter().map(Diagnostic::warning).collect()))
}

/// What to say about a server that other machines can reach.
pub(super) fn open_access_warnings(HttpService { guard, tls, .. }: &HttpService) -> Vec<&'static str> {
    let mut warnings = Vec::new();
    match (&guard.tokens, tls) {
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

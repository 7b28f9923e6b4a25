//! All outgoing connections: TLS, proxies, timeouts.
//!
//! Redirects are not followed: a request may carry a token, and a redirect would choose who gets it. Loopback never
//! uses a proxy. Certificates are verified with the operating system's store and a CA file of the user.

mod failure;
mod guarded;
mod names;
mod verifier;
mod zone;

use std::fmt::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use url::{Host, Url};

pub use failure::ConnectFailure;
use failure::NameResolutionError;
pub use guarded::{GuardedClient, GuardedError, GuardedRequest, GuardedResponse, is_public};
use guarded::{is_link_local, is_metadata_service};
use names::ReachResolver;
pub use names::{Lookup, NameSource, Names};
pub use reqwest::header::{HeaderMap, HeaderValue};
pub use reqwest::{Client, Error, Method, Request, RequestBuilder, Response};
pub use zone::NetworkZone;

/// The default `User-Agent`.
pub const USER_AGENT: &str = concat!("spile/", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Clone)]
pub struct OutboundOptions {
    /// Certificates to trust in addition to the operating system's.
    pub ca_file: Option<PathBuf>,
    pub connect_timeout_ms: u64,
    pub reach: Reach,
    pub names: NameSource,
}

impl Default for OutboundOptions {
    fn default() -> Self {
        Self {
            ca_file: None,
            connect_timeout_ms: 10_000,
            reach: Reach::Anywhere,
            names: NameSource::default(),
        }
    }
}

/// Which addresses may be connected to, from most to least. It is judged where the connection is made, after the name was
/// resolved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    #[default]
    Anywhere,
    /// Not link-local ones, and not others where clouds have their metadata service.
    NotLinkLocal,
    /// Neither those nor this machine's own.
    NotThisMachine,
    /// Only addresses that anybody on the internet can reach.
    Public,
}

impl Reach {
    pub fn allows(self, address: IpAddr) -> bool {
        match self {
            Self::Anywhere => true,
            Self::NotLinkLocal => !is_link_local(address) && !is_metadata_service(address),
            Self::NotThisMachine => {
                Self::NotLinkLocal.allows(address) && NetworkZone::of(address) != NetworkZone::ThisMachine
            }
            Self::Public => is_public(address),
        }
    }

    fn check(self, address: IpAddr) -> Result<(), ForbiddenAddress> {
        if self.allows(address) { Ok(()) } else { Err(ForbiddenAddress(address.to_canonical())) }
    }
}

/// An address that must not be connected to.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not an address that this server may be at")]
struct ForbiddenAddress(IpAddr);

/// Why a connection cannot be made, for the person who gave the address.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    #[error("cannot use the CA file `{path}`: {reason}")]
    CaFile { path: String, reason: String },
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    #[error("`{0}` has no host name")]
    NoHost(String),
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: String, reason: String, failure: ConnectFailure },
}

/// An HTTP client for one address.
pub fn client(to: &Url, options: &OutboundOptions) -> Result<Client, OutboundError> {
    Ok(client_for(to, options, options.reach)?.0)
}

/// An HTTP client for an address that somebody else named, who is in the zone `named_from`.
///
/// A proxy of the environment is used, and resolves the name itself: what it may reach is its own decision.
pub fn client_for_named(
    to: &Url,
    named_from: NetworkZone,
    options: &OutboundOptions,
) -> Result<(Client, PeerZone), OutboundError> {
    client_for(to, options, options.reach.max(named_from.reach()))
}

/// Where the server is that a client was connected to.
#[derive(Debug, Clone)]
pub struct PeerZone(Arc<OnceLock<NetworkZone>>);

impl PeerZone {
    /// Of a name with several addresses the most public one counts, and so does it behind a proxy.
    pub fn get(&self) -> NetworkZone {
        self.0.get().copied().unwrap_or(NetworkZone::Public)
    }
}

fn client_for(
    to: &Url,
    options: &OutboundOptions,
    reach: Reach,
) -> Result<(Client, PeerZone), OutboundError> {
    // A proxy would resolve the name itself.
    let direct = is_loopback(to) || options.reach != Reach::Anywhere;
    check_literal_address(to, reach)?;
    let zone = Arc::new(NetworkZone::of_literal(to).map_or_else(OnceLock::new, OnceLock::from));
    let resolver = ReachResolver {
        names: options.names.clone(),
        reach,
        // Redirects are not followed, so there is no third name.
        host: (!direct).then(|| to.host_str().unwrap_or_default().to_owned()),
        zone: zone.clone(),
    };
    let client = build(builder(options)?.dns_resolver(Arc::new(resolver)), direct)?;
    Ok((client, PeerZone(zone)))
}

/// The resolver sees names only.
fn check_literal_address(to: &Url, reach: Reach) -> Result<(), OutboundError> {
    let address = match to.host() {
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip),
        Some(Host::Domain(_)) | None => return Ok(()),
    };
    reach.check(address).map_err(|error| OutboundError::Connect {
        address: address.to_string(),
        reason: error.to_string(),
        failure: ConnectFailure::Other,
    })
}

/// An HTTP client whose requests all go to a unix socket.
#[cfg(unix)]
pub fn client_to_socket(socket: &Path, options: &OutboundOptions) -> Result<Client, OutboundError> {
    build(builder(options)?.unix_socket(socket), true)
}

fn builder(options: &OutboundOptions) -> Result<reqwest::ClientBuilder, OutboundError> {
    let mut config = (*tls_config(options)?).clone();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Client::builder()
        .tls_backend_preconfigured(config)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_millis(options.connect_timeout_ms))
        .pool_idle_timeout(Duration::from_secs(60))
        .tcp_nodelay(true)
        .user_agent(USER_AGENT))
}

fn build(builder: reqwest::ClientBuilder, direct: bool) -> Result<Client, OutboundError> {
    let builder = if direct { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| OutboundError::Tls(error_chain(&error)))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// The TLS configuration, with our certificate verifier.
fn tls_config(options: &OutboundOptions) -> Result<Arc<ClientConfig>, OutboundError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed = |error: rustls::Error| OutboundError::Tls(error.to_string());
    let verifier =
        verifier::CertificateVerifier::new(ca_certificates(options.ca_file.as_deref())?, provider.clone());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier.map_err(failed)?))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn ca_certificates(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, OutboundError> {
    let Some(path) = file else { return Ok(Vec::new()) };
    let bad = |reason: String| OutboundError::CaFile { path: path.display().to_string(), reason };
    let bytes = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match certificates {
        Ok(list) if list.is_empty() => Err(bad("it has no certificate in PEM format".to_owned())),
        Ok(list) => Ok(list),
        Err(error) => Err(bad(format!("it is not PEM: {error}"))),
    }
}

/// Connects to a `ws:`, `wss:`, `http:` or `https:` URL, with TLS if the scheme requires it.
pub async fn connect(to: &Url, options: &OutboundOptions) -> Result<Stream, OutboundError> {
    let Some(host) = to.host_str() else { return Err(OutboundError::NoHost(to.to_string())) };
    let port = to.port_or_known_default().unwrap_or(80);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let at = || format!("{host}:{port}");
    let other =
        |reason: String| OutboundError::Connect { address: at(), reason, failure: ConnectFailure::Other };
    let failed = |error: &(dyn std::error::Error + 'static)| OutboundError::Connect {
        address: at(),
        reason: error_chain(error),
        failure: ConnectFailure::classify(error),
    };
    let connect_timeout = Duration::from_millis(options.connect_timeout_ms);
    let connecting = async {
        let found = options.names.look_up(host).await;
        let mut addresses = found.map_err(|error| failed(&NameResolutionError(error)))?;
        let forbidden = addresses.iter().try_for_each(|address| options.reach.check(address.ip()));
        forbidden.map_err(|error| failed(&error))?;
        addresses.iter_mut().for_each(|address| address.set_port(port));
        let tcp = TcpStream::connect(&*addresses).await.map_err(|error| failed(&error))?;
        let _ = tcp.set_nodelay(true);
        if !matches!(to.scheme(), "wss" | "https") {
            return Ok(Stream::Plain(tcp));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| other(error.to_string()))?;
        let tls = tokio_rustls::TlsConnector::from(tls_config(options)?).connect(name, tcp).await;
        Ok(Stream::Tls(Box::new(tls.map_err(|error| failed(&error))?)))
    };
    tokio::time::timeout(connect_timeout, connecting)
        .await
        .map_err(|_| other(format!("no answer within {} ms", options.connect_timeout_ms)))?
}

/// An open connection.
#[derive(Debug)]
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

/// An error with its causes, in one line. The innermost is usually the useful one.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = verifier::describe(error);
    let mut cause = error.source();
    while let Some(inner) = cause {
        let description = verifier::describe(inner);
        if !text.contains(&description) {
            let _ = write!(text, ": {description}");
        }
        cause = inner.source();
    }
    text
}

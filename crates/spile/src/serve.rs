//! Serving: which door, who may come in, and how it ends.

use std::fs::File;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use contract::diagnostic::{Diagnostic, render_all};
use host::{Config, ProviderSet, Server, SystemPlatform};
use spile_core::Provider;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;
use transport::http::{CertificateFiles, Listener, Site, Tls};
use transport::stdio::StdoutWriter;
#[cfg(unix)]
use transport::unix::SocketFile;
use transport::{BearerToken, Exposure, Guard};

use crate::banner::{self, ListenAddresses, ServerSummary};
use crate::project::{Project, Scan};
use crate::reload::{
    self, BreakingChangePolicy, Build, ProjectStamp, RECOVERED_TARGET, ReloadListener, WatchedProject,
};
use crate::settings;

/// How to serve. Without a bind address or a socket: on stdin and stdout.
#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Serve over HTTP at this address, e.g. 127.0.0.1:3333, or at this port of this machine
    #[arg(long, visible_alias = "port", value_name = "ADDR", value_parser = parse_address)]
    pub bind: Option<SocketAddr>,

    /// Serve over HTTP at SPILE_HOST (127.0.0.1) and PORT (3333)
    #[arg(long, conflicts_with = "bind")]
    pub http: bool,

    /// Serve on a unix socket at this path, over HTTP or as a pipe; also beside --bind or --http
    #[cfg(unix)]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Serve over HTTPS with the certificate chain in this PEM file (or SPILE_TLS_CERT); read again when it changes
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// The certificate's private key, a PEM file without a passphrase (or SPILE_TLS_KEY)
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Ask callers for the bearer token in this file (or in SPILE_TOKEN)
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Let everybody call, even from other machines
    #[arg(long)]
    pub no_auth: bool,

    /// A name under which this server may be reached, beside the loopback ones; may be repeated
    #[arg(long, value_name = "HOST")]
    pub allow_host: Vec<String>,

    /// A web origin that may call from a browser, e.g. https://app.example; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<String>,

    /// Do not offer HTTP+SSE, the transport of protocol version 2024-11-05
    #[arg(long)]
    pub no_sse: bool,

    /// How log lines look
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    /// Say more; twice for everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// `127.0.0.1:3333`, `localhost:3333`, or a port alone, which means this machine only.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let local = |port: &str| port.parse().ok().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    local(port)
        .or_else(|| text.parse().ok())
        .ok_or_else(|| "expected an address with a port, such as 127.0.0.1:3333, or a port alone".into())
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// One server: what it is called, and who answers.
pub struct Service {
    pub name: String,
    /// The contract's version.
    pub version: String,
    pub providers: Vec<Arc<dyn Provider>>,
    /// How a client starts it: the arguments behind `spile`. Without any, nobody is told how.
    pub command: Vec<String>,
    /// How long one of its calls may take; else what holds for all.
    pub call_timeout_ms: Option<u64>,
    /// What it is made from, if that can change.
    pub(crate) watched: Option<WatchedProject>,
}

impl Service {
    pub fn new(name: &str, version: &str, provider: Arc<dyn Provider>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            providers: vec![provider],
            command: Vec::new(),
            call_timeout_ms: None,
            watched: None,
        }
    }
}

impl Service {
    /// What a path on the command line means, and all there is to say of it. No service: something is wrong.
    pub fn from_path(path: &Path) -> anyhow::Result<(Option<Self>, Vec<Diagnostic>)> {
        let (seen, began) = (ProjectStamp::capture(path, &[]), SystemTime::now());
        let Scan {
            compiled: ready,
            diagnostics: mut found,
            data_files: files,
            lock_state: locked,
            has_manifest: is_written,
            ..
        } = Project::find(path)?.scan()?;
        found.extend(locked.diagnostic(false));
        let service = ready.map(|ready| {
            let made = Build::new(ready, None);
            let absolute = path.canonicalize().unwrap_or_else(|_| path.into()).display().to_string();
            let command = vec!["serve".into(), absolute];
            let service = Self { command, ..Self::from_build(&made) };
            let watched = WatchedProject::new(path, made, files, seen, began).with_manifest(is_written);
            Self { watched: Some(watched), ..service }
        });
        Ok((service, found))
    }

    /// What is packed into this program. It does not change while it is served.
    pub fn from_packed(project: &Project) -> anyhow::Result<(Option<Self>, Vec<Diagnostic>)> {
        let Scan { compiled: ready, diagnostics: found, .. } = project.scan()?;
        let service = ready.map(|ready| Self::from_build(&Build::new(ready, None)));
        Ok((service, found))
    }

    fn from_build(made: &Build) -> Self {
        Self {
            call_timeout_ms: made.call_timeout_ms,
            ..Self::new(&made.name, &made.version, made.provider.clone())
        }
    }

    /// What answers for it.
    pub(crate) fn into_server(self) -> anyhow::Result<Arc<Server>> {
        let Self { name, version, providers, call_timeout_ms, .. } = self;
        let limits = settings::limits()?;
        let config =
            Config { name, version: version.clone(), limits, platform: Arc::new(SystemPlatform::default()) };
        Ok(Server::with_provider_set(config, ProviderSet { version, providers, call_timeout_ms })?)
    }
}

/// Serves until told to stop. What is served follows what it is made from, unless that would break callers.
pub fn serve(services: Vec<Service>, args: &ServeArgs) -> anyhow::Result<()> {
    serve_with(services, args, |_| (BreakingChangePolicy::KeepOld, reload::log_listener()))
}

/// `begun` is shown the servers before anybody can call them, and says how changes are taken.
pub(crate) fn serve_with(
    services: Vec<Service>,
    args: &ServeArgs,
    begun: impl FnOnce(&[Arc<Server>]) -> (BreakingChangePolicy, ReloadListener),
) -> anyhow::Result<()> {
    let address = args.listen_address()?;
    let guard = build_guard(args, address)?;
    let tls = load_tls(args, address)?;
    let mut shown = Vec::with_capacity(services.len());
    let mut servers = Vec::with_capacity(services.len());
    let mut watched = Vec::with_capacity(services.len());
    for mut service in services {
        let tools = service
            .providers
            .iter()
            .flat_map(|p| p.catalog().tools.iter().map(|t| t.name.clone()).collect::<Vec<_>>());
        shown.push(ServerSummary {
            name: service.name.clone(),
            version: service.version.clone(),
            tools: tools.collect(),
            command: service.command.clone(),
        });
        let followed = service.watched.take();
        let server = service.into_server()?;
        watched.extend(followed.map(|followed| (Arc::downgrade(&server), followed)));
        servers.push(server);
    }
    let (breaking, tell) = begun(&servers);
    reload::start(watched, breaking, tell);
    match (address, args.socket()) {
        (Some(_), _) | (_, Some(_)) => serve_network(
            address,
            args.socket(),
            Site { servers, guard, connection_limits: settings::timing()?, tls, http_sse: !args.no_sse },
            &shown,
        ),
        (None, None) => match servers.pop() {
            Some(server) if servers.is_empty() => serve_stdio(server, &shown),
            _ => bail!(
                "stdin and stdout are one pipe, and a pipe has one server; \
                 name one path, or serve them all over HTTP with --http"
            ),
        },
    }
}

impl ServeArgs {
    #[cfg(unix)]
    fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    #[cfg(not(unix))]
    fn socket(&self) -> Option<&Path> {
        None
    }

    /// Where to listen; `None` for stdin and stdout.
    fn listen_address(&self) -> anyhow::Result<Option<SocketAddr>> {
        if !self.http {
            return Ok(self.bind);
        }
        let host = settings::env_text("SPILE_HOST")?.unwrap_or_else(|| "127.0.0.1".into());
        let port = settings::port()?;
        let whole = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let found = std::net::ToSocketAddrs::to_socket_addrs(&whole).ok().and_then(|mut all| all.next());
        found.map(Some).with_context(|| {
            format!("SPILE_HOST: `{host}` is neither an address nor a known name; the port goes into PORT")
        })
    }
}

fn serve_network(
    address: Option<SocketAddr>,
    socket: Option<&Path>,
    site: Site,
    shown: &[ServerSummary],
) -> anyhow::Result<()> {
    runtime(RuntimeThreads::Caller)?.block_on(async {
        // Before anybody is told that we serve: whoever is told may tell us to stop.
        let told = stop_signal();
        let (listeners, places) = listen(address, socket, shown).await?;
        let heads = if site.guard.token.is_some() { banner::TOKEN_HEADERS } else { &[] };
        let places = ListenAddresses { is_tls: site.tls.is_some(), ..places };
        banner::print_stderr(&banner::network_banner(shown, &places, heads));
        if places.address.is_some_and(|bound| !bound.ip().is_loopback()) {
            warn_open_access(&site);
        }
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(async move {
            told.await;
            // Everybody who waits for this is in this process; there is somebody, or it does not matter.
            let _ = stop.send(true);
        });
        transport::http::serve_all(listeners, Arc::new(site), stopped).await;
        Ok(())
    })
}

/// Listens at all places. Where TCP is forbidden as such, a unix socket stands in for it; a port that is only
/// in use is an error, because whoever uses it would be called in our place.
#[cfg_attr(not(unix), expect(unused_variables, reason = "there are no unix sockets"))]
async fn listen(
    address: Option<SocketAddr>,
    socket: Option<&Path>,
    shown: &[ServerSummary],
) -> anyhow::Result<(Vec<Listener>, ListenAddresses)> {
    let (mut listeners, mut places) = (Vec::new(), ListenAddresses::default());
    #[cfg(unix)]
    if let Some(path) = socket {
        listeners.push(bind_socket(path)?.into());
        // Whoever reads it may be in another folder.
        places.socket = Some(std::path::absolute(path)?);
    }
    let Some(address) = address else { return Ok((listeners, places)) };
    match TcpListener::bind(address).await {
        Ok(listener) => {
            places.address = Some(listener.local_addr()?);
            listeners.push(listener.into());
        }
        #[cfg(unix)]
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            banner::print_stderr(&format!("{}; a unix socket stands in for it", bind_error(address, &error)));
            if places.socket.is_none() {
                let names: Vec<&str> = shown.iter().map(|one| &*one.name).collect();
                let path = crate::socket_path::default_path(&names)?;
                listeners.push(bind_socket(&path)?.into());
                places.socket = Some(std::path::absolute(path)?);
            }
        }
        Err(error) => return Err(bind_error(address, &error)),
    }
    Ok((listeners, places))
}

#[cfg(unix)]
fn bind_socket(path: &Path) -> anyhow::Result<SocketFile> {
    SocketFile::bind(path).map_err(|why| anyhow::anyhow!("cannot listen on `{}`: {why}", path.display()))
}

fn bind_error(address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let why = match error.kind() {
        AddrInUse => "the port is in use; choose another, or port 0 for any that is free".into(),
        AddrNotAvailable => "this machine has no such address; 127.0.0.1 is always there".into(),
        PermissionDenied if address.port() < 1024 => {
            "not permitted; ports below 1024 are for the system, choose a higher one".into()
        }
        PermissionDenied => "not permitted in this environment".into(),
        _ => error.to_string(),
    };
    anyhow::anyhow!("cannot listen on {address}: {why}")
}

/// An open address deserves a word about who gets in.
fn warn_open_access(Site { guard, tls, .. }: &Site) {
    match (&guard.token, tls) {
        (None, _) => banner::print_stderr("anybody who can reach this address may call (--no-auth)"),
        (Some(_), None) => banner::print_stderr(
            "callers send their token in the clear; encrypt it with --tls-cert and --tls-key, or in a proxy",
        ),
        (Some(_), Some(_)) => {}
    }
    if guard.allowed_hosts.is_empty() {
        banner::print_stderr(
            "reached by a name instead of an address, it refuses; allow the name with --allow-host NAME",
        );
    }
}

fn serve_stdio(server: Arc<Server>, shown: &[ServerSummary]) -> anyhow::Result<()> {
    banner::print_stderr(&banner::stdio_banner(shown));
    let runtime = runtime(RuntimeThreads::Workers)?;
    let stdout = raw_stream(std::io::stdout()).context("stdout cannot be used")?;
    let write_stall = Duration::from_millis(settings::timing()?.write_stall_timeout_ms);
    let output = StdoutWriter::with_write_stall_timeout(stdout, write_stall);
    let input = raw_stream(std::io::stdin()).context("stdin cannot be used")?;
    let inside = runtime.enter();
    let told = stop_signal();
    drop(inside);
    runtime.spawn({
        let (server, output) = (server.clone(), output.clone());
        async move {
            told.await;
            transport::stdio::shut_down(&server, &output).await;
            std::process::exit(0);
        }
    });
    transport::stdio::serve(server, runtime.handle(), input, output)?;
    // A call that does not stop must not keep the process.
    runtime.shutdown_background();
    Ok(())
}

/// The stream itself, without the buffer and the lock that the standard library puts before it.
#[cfg(unix)]
fn raw_stream(stream: impl std::os::fd::AsFd) -> std::io::Result<File> {
    Ok(File::from(stream.as_fd().try_clone_to_owned()?))
}

#[cfg(windows)]
fn own(stream: impl std::os::windows::io::AsHandle) -> std::io::Result<File> {
    Ok(File::from(stream.as_handle().try_clone_to_owned()?))
}

/// Which threads drive what waits.
#[derive(PartialEq, Eq)]
enum RuntimeThreads {
    /// The caller does, if one thread is enough.
    Caller,
    /// Others do: the caller is busy reading.
    Workers,
}

fn runtime(driven: RuntimeThreads) -> anyhow::Result<Runtime> {
    let workers = settings::workers()?;
    let mut builder = if workers == 1 && driven == RuntimeThreads::Caller {
        tokio::runtime::Builder::new_current_thread()
    } else {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(workers);
        builder
    };
    builder.enable_all().build().context("the runtime cannot start")
}

/// Catches SIGINT and SIGTERM from now on; what is returned waits for one. Within a runtime only.
#[cfg(unix)]
fn stop_signal() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let caught = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = caught else {
            tracing::warn!("signals cannot be caught; the process ends at once when told to");
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
async fn stop_signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// Who may come in. An open door to the network has to be asked for.
fn build_guard(args: &ServeArgs, address: Option<SocketAddr>) -> anyhow::Result<Guard> {
    if address.is_none() && args.socket().is_none() && args.token_file.is_some() {
        bail!("--token-file needs --bind, --http or --socket: on stdin and stdout there is nobody to ask");
    }
    let token = match &args.token_file {
        Some(path) => Some(BearerToken::from_file(path)?),
        None => std::env::var("SPILE_TOKEN").ok().map(|text| BearerToken::parse(&text)).transpose()?,
    };
    if let Some(address) = address
        && !address.ip().is_loopback()
        && token.is_none()
        && !args.no_auth
    {
        bail!(
            "{address} can be reached from other machines, and nothing would ask who calls; \
             give --token-file FILE (or SPILE_TOKEN), or --no-auth if everybody may call"
        );
    }
    for host in &args.allow_host {
        if host.is_empty() || host.contains([':', '/', '*']) && host.parse::<std::net::IpAddr>().is_err() {
            bail!("--allow-host {host}: expected a name or an address alone, such as mcp.example");
        }
    }
    for origin in &args.allow_origin {
        let whole = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        if !whole.is_some_and(|host| !host.is_empty() && !host.contains('/')) {
            bail!("--allow-origin {origin}: expected scheme and host only, such as https://app.example");
        }
    }
    let is_public = address.is_some_and(|address| !address.ip().is_loopback());
    let exposure = if is_public { Exposure::Public } else { Exposure::Local };
    Ok(Guard::new(args.allow_host.clone(), args.allow_origin.clone(), token, exposure)?)
}

/// The certificate to serve with. What is wrong with it is told now, not to the first client.
fn load_tls(args: &ServeArgs, address: Option<SocketAddr>) -> anyhow::Result<Option<Arc<Tls>>> {
    if address.is_none() {
        if args.tls_cert.is_some() || args.tls_key.is_some() {
            bail!("--tls-cert and --tls-key need --bind or --http: stdin and stdout are not a network");
        }
        return Ok(None);
    }
    let named = |given: &Option<PathBuf>, variable| {
        anyhow::Ok(match given {
            Some(path) => Some(path.clone()),
            None => settings::env_text(variable)?.map(PathBuf::from),
        })
    };
    let files = match (named(&args.tls_cert, "SPILE_TLS_CERT")?, named(&args.tls_key, "SPILE_TLS_KEY")?) {
        (None, None) => return Ok(None),
        (Some(cert), Some(key)) => CertificateFiles { cert, key },
        (Some(_), None) => bail!("a certificate needs its key; give --tls-key FILE (or SPILE_TLS_KEY)"),
        (None, Some(_)) => bail!("a key needs its certificate; give --tls-cert FILE (or SPILE_TLS_CERT)"),
    };
    let (tls, warnings) = Tls::load(files, SystemTime::now())?;
    if !warnings.is_empty() {
        let warnings: Vec<Diagnostic> = warnings.into_iter().map(Diagnostic::warning).collect();
        banner::print_stderr(&format!("{}\n", render_all(&warnings, banner::is_color_enabled()).trim_end()));
    }
    Ok(Some(Arc::new(tls)))
}

/// Log lines go to stderr from now on.
pub fn start_logging(args: &ServeArgs) {
    let default = match args.verbose {
        0 => format!("warn,{RECOVERED_TARGET}=info"),
        1 => "info".to_owned(),
        _ => "debug".to_owned(),
    };
    log_to_stderr(&default, args.log_format);
}

/// A client's own messages say what there is to say; the log is for whoever asks twice.
pub(crate) fn start_client_logging(verbose: u8) {
    log_to_stderr(if verbose > 1 { "debug" } else { "error" }, LogFormat::Text);
}

fn log_to_stderr(default: &str, format: LogFormat) {
    let filter = EnvFilter::try_from_env("SPILE_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second start in one process (a test) keeps the first.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

//! Serving: the servers of a process, where they listen, and how the process ends.

mod access;
mod args;
mod call_log;
mod logging;
mod signals;

use std::fs::File;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;

use anyhow::{Context, bail};
use contract::diagnostic::Diagnostic;
use contract::source::SourceLocation;
use host::{
    CallObserver, CallObservers, Config, ProviderSet, Server, SourceHealth, SystemPlatform, UnavailableSource,
};
use spile_core::Provider;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use transport::http::{ConnectSnippets, HttpService, Listener, Page};
use transport::stdio::StdoutWriter;
#[cfg(unix)]
use transport::unix::SocketFile;

use crate::author_folder::{
    Author, CodeListener, CurrentContract, PromisedTools, ServedAuthor, log_code_event,
};
use crate::banner::{self, ListenAddresses, ServerSummary};
use crate::notice;
use crate::project::{Project, Scan, SourceFailurePolicy};
use crate::reload::{
    self, BreakingChangePolicy, Build, ProjectStamp, ReloadListener, ReloadRequester, WatchedProject,
};
use crate::server_state::ServerState;
use crate::settings::{self, EnvNames};
pub use args::{LogFormat, ServeArgs};
pub(crate) use logging::start_client_logging;
pub use logging::start_logging;
use signals::{ReloadSignals, StopSignals, reload_on_signal, stop_on_signal};

/// One server: its name, and the providers that answer its calls.
pub struct Service {
    pub name: String,
    /// The version of the contract.
    pub version: String,
    pub providers: Vec<Arc<dyn Provider>>,
    /// The arguments after `spile` with which a client starts this server. If empty, the banner shows no such command.
    pub command: Vec<String>,
    /// Time limit of one call; `None` means the limit of the process.
    pub call_timeout_ms: Option<u64>,
    /// Tools that are listed first.
    pub(crate) tool_order: Vec<String>,
    /// Names the server in a store that it shares with others.
    store_scope: Option<String>,
    /// The variables that it reads.
    pub(crate) env_names: EnvNames,
    /// The sources that are not served.
    pub health: SourceHealth,
    /// The project behind it, if its files can change while it is served.
    pub(crate) watched: Option<WatchedProject>,
    pub(crate) state: ServerState,
    /// Code, prompts and resources beside the data.
    pub(crate) author: Option<Author>,
    /// The contract that is served now, for author code.
    current_contract: Option<CurrentContract>,
    promised_tools: PromisedTools,
}

impl Service {
    pub fn new(name: &str, version: &str, provider: Arc<dyn Provider>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            providers: vec![provider],
            command: Vec::new(),
            call_timeout_ms: None,
            tool_order: Vec::new(),
            store_scope: None,
            env_names: EnvNames::default(),
            health: SourceHealth::default(),
            watched: None,
            state: ServerState::for_this_run(),
            author: None,
            current_contract: None,
            promised_tools: PromisedTools::NONE,
        }
    }

    /// Compiles the project at a path. Returns no service if the diagnostics contain an error.
    pub fn from_path(path: &Path) -> anyhow::Result<(Option<Self>, Vec<Diagnostic>)> {
        Self::from_path_with(path, SourceFailurePolicy::Skip, &ServerState::for_this_run())
    }

    /// The same, with a choice of what to do about sources that cannot be used.
    pub fn from_path_with(
        path: &Path,
        source_failures: SourceFailurePolicy,
        state: &ServerState,
    ) -> anyhow::Result<(Option<Self>, Vec<Diagnostic>)> {
        let (stamp, started) = (ProjectStamp::capture(path, &[]), SystemTime::now());
        let project = Project::find(path)?.with_source_failures(source_failures);
        let Scan {
            compiled,
            mut diagnostics,
            locations,
            lock_state,
            has_manifest,
            unavailable,
            source_count,
            author,
            ..
        } = project.scan()?;
        let health = SourceHealth { source_count, unavailable };
        diagnostics.extend(lock_state.diagnostic(false));
        let service = compiled.map(|compiled| {
            let build = Build::new(compiled, state);
            let absolute = path.canonicalize().unwrap_or_else(|_| path.into()).display().to_string();
            let command = vec!["serve".into(), absolute.clone()];
            let current = CurrentContract::new(build.served_contract());
            let promised_tools = match &author {
                // Only a manifest promises anything.
                Some(author) if has_manifest => PromisedTools::new(lock_state.lock(), author.tools()),
                _ => PromisedTools::NONE,
            };
            let service = Self {
                command,
                promised_tools,
                store_scope: Some(absolute),
                env_names: project.env_names,
                health: health.clone(),
                author,
                current_contract: Some(current.clone()),
                ..Self::from_build(&build)
            };
            let watched = WatchedProject::new(path, build, locations, stamp, started)
                .with_manifest(has_manifest)
                .with_lock(&lock_state)
                .with_health(source_failures, health)
                .with_current_contract(current);
            Self { watched: Some(watched), ..service }
        });
        Ok((service, diagnostics))
    }

    /// The server that is packed into this executable. Its files do not change while it is served.
    pub fn from_packed(
        project: &Project,
        state: &ServerState,
    ) -> anyhow::Result<(Option<Self>, Vec<Diagnostic>)> {
        let Scan { compiled, diagnostics, unavailable, source_count, author, .. } = project.scan()?;
        let health = SourceHealth { source_count, unavailable };
        let service = compiled.map(|compiled| {
            let build = Build::new(compiled, state);
            let current_contract = Some(CurrentContract::new(build.served_contract()));
            Self { health, author, current_contract, ..Self::from_build(&build) }
        });
        Ok((service, diagnostics))
    }

    fn from_build(build: &Build) -> Self {
        Self {
            call_timeout_ms: build.call_timeout_ms,
            tool_order: build.tool_order.clone(),
            state: build.state.clone(),
            ..Self::new(&build.name, &build.version, build.provider.clone())
        }
    }

    /// The files that its data is in, as far as they are known.
    pub(crate) fn source_files(&self) -> Vec<PathBuf> {
        let locations = self.watched.iter().flat_map(WatchedProject::locations);
        locations.map(|SourceLocation::File(path)| path.clone()).collect()
    }

    /// The second value keeps author files served and up to date.
    /// `breaking` says what happens to a change of author code that breaks callers.
    pub(crate) fn into_server(
        self,
        breaking: BreakingChangePolicy,
        on_code: CodeListener,
    ) -> anyhow::Result<(Arc<Server>, Option<ServedAuthor>)> {
        let Self {
            name,
            version,
            providers,
            call_timeout_ms,
            tool_order,
            store_scope,
            env_names,
            health,
            state,
            author,
            current_contract,
            promised_tools,
            ..
        } = self;
        let promised = match breaking {
            BreakingChangePolicy::KeepOld => promised_tools,
            BreakingChangePolicy::ServeNew => PromisedTools::NONE,
        };
        let limits = settings::limits(env_names)?;
        let platform = Arc::new(SystemPlatform::default());
        let ServerState { keyring, store } = state;
        let store_scope = store_scope.unwrap_or_else(|| name.clone());
        let config = Config { name, version: version.clone(), limits, platform, keyring, store, store_scope };
        let provider_set = ProviderSet { version, providers, call_timeout_ms, tool_order };
        let server = Server::with_provider_set(config, provider_set);
        server.set_source_health(health);
        let author = author.map(|author| author.serve(&server, current_contract, promised, on_code));
        Ok((server, author))
    }

    /// The names of the sources that cannot be used in this way, each once.
    fn source_names(&self, is_wanted: impl Fn(&UnavailableSource) -> bool) -> Vec<String> {
        let wanted = self.health.unavailable.iter().filter(|source| is_wanted(source));
        let mut names: Vec<String> = wanted.map(|source| source.name.clone()).collect();
        names.dedup();
        names
    }

    fn summary(&self) -> ServerSummary {
        let tools = self
            .providers
            .iter()
            .flat_map(|p| p.catalog().tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>());
        let code = self.author.iter().flat_map(Author::tools).map(|tool| tool.name.clone());
        ServerSummary {
            name: self.name.clone(),
            version: self.version.clone(),
            tools: tools.chain(code).collect(),
            command: self.command.clone(),
            unavailable: self.source_names(|source| !source.is_readable),
            read_only: self.source_names(|source| source.is_readable),
        }
    }
}

/// Serves until a signal stops the process, and reloads when files change. A change that would break callers is not
/// served.
pub fn serve(services: Vec<Service>, diagnostics: &[Diagnostic], args: &ServeArgs) -> anyhow::Result<()> {
    serve_rest(services, Vec::new(), diagnostics, args)
}

/// The same, where some of the servers that were asked for could not be started.
pub fn serve_rest(
    services: Vec<Service>,
    failed: Vec<FailedServer>,
    diagnostics: &[Diagnostic],
    args: &ServeArgs,
) -> anyhow::Result<()> {
    // The last word of the command that starts a server is its path; a packed server has none.
    let paths: Vec<String> = services
        .iter()
        .filter_map(|service| service.command.last())
        .map(|path| banner::shell_quote(path))
        .collect();
    let (shown, about_data) = crate::report::split_for_serving(diagnostics, &paths);
    let notes = StartNotes { diagnostics: shown, about_data };
    let log_calls = (args.verbose > 0).then(|| Arc::new(call_log::CallLog) as Arc<dyn CallObserver>);
    let hooks = ServeHooks {
        breaking: BreakingChangePolicy::KeepOld,
        on_reload: reload::log_listener(),
        on_call: log_calls,
        on_code: Arc::new(log_code_event),
    };
    serve_with(services, failed, notes, args, hooks)
}

/// One of several paths that cannot be served. The others are.
pub struct FailedServer(UnavailableSource);

impl FailedServer {
    pub fn new(path: &Path, diagnostics: &[Diagnostic]) -> Self {
        let name = path.display().to_string();
        Self(UnavailableSource { name, reason: reload::first_diagnostic(diagnostics), is_readable: false })
    }

    pub fn warning(&self) -> Diagnostic {
        let Self(UnavailableSource { name, reason, .. }) = self;
        Diagnostic::warning(format!("`{name}` is not served: {reason}"))
            .code("unavailable")
            .help("repair it, and restart to serve it")
    }
}

/// What the process reports at its start, besides its servers.
pub(crate) struct StartNotes {
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// One line about the diagnostics that are not listed.
    pub(crate) about_data: Option<String>,
}

/// What happens at changes and calls.
pub(crate) struct ServeHooks {
    pub(crate) breaking: BreakingChangePolicy,
    pub(crate) on_reload: ReloadListener,
    pub(crate) on_call: Option<Arc<dyn CallObserver>>,
    pub(crate) on_code: CodeListener,
}

pub(crate) fn serve_with(
    services: Vec<Service>,
    failed: Vec<FailedServer>,
    mut notes: StartNotes,
    args: &ServeArgs,
    hooks: ServeHooks,
) -> anyhow::Result<()> {
    let env_names = services.iter().map(|service| service.env_names).max().unwrap_or_default();
    let address = args.listen_address(env_names)?;
    let (guard, token_warnings) = access::build_guard(args, address)?;
    let (tls, tls_warnings) = access::load_tls(args, address)?;
    notes.diagnostics.extend(token_warnings.into_iter().chain(tls_warnings));
    let mut announcement = Announcement { summaries: Vec::with_capacity(services.len()), notes };
    let mut servers = Vec::with_capacity(services.len());
    let mut watched = Vec::with_capacity(services.len());
    // Dropped, and so stopped, when serving ends.
    let mut authors = Vec::new();
    for mut service in services {
        announcement.summaries.push(service.summary());
        let project = service.watched.take();
        let (server, author) = service.into_server(hooks.breaking, hooks.on_code.clone())?;
        authors.extend(author);
        watched.extend(project.map(|project| (Arc::downgrade(&server), project)));
        servers.push(server);
    }
    let is_network = address.is_some() || args.socket().is_some();
    let page = (is_network && !args.no_page).then(|| Page::new(&servers, connect_snippets()));
    // Before any client can call.
    if let Some(observer) = &hooks.on_call {
        observe_calls(&servers, observer, page.as_ref());
    }
    let requester = reload::start(watched, hooks.breaking, &hooks.on_reload);
    if is_network {
        let service = HttpService {
            servers,
            guard,
            connection_limits: settings::connection_limits()?,
            tls,
            http_sse: !args.no_sse,
            failed_servers: failed.into_iter().map(|FailedServer(one)| one).collect(),
            page,
        };
        return serve_network(address, args.socket(), service, &announcement, requester, env_names);
    }
    match servers.pop() {
        Some(server) if servers.is_empty() => serve_stdio(server, &announcement, requester),
        _ => bail!(args::ONE_SERVER_ONLY),
    }
}

/// Where somebody observes calls anyway, the page records them from the start.
fn observe_calls(servers: &[Arc<Server>], observer: &Arc<dyn CallObserver>, page: Option<&Page>) {
    for (index, server) in servers.iter().enumerate() {
        let recorder = page.and_then(|page| page.call_observer(index, server));
        let all = std::iter::once(observer.clone()).chain(recorder).collect();
        server.set_observer(Arc::new(CallObservers(all)));
    }
}

/// How clients connect, as the banner says it.
fn connect_snippets() -> ConnectSnippets {
    Box::new(|request| {
        let headers = if request.requires_token { banner::TOKEN_HEADERS } else { &[] };
        banner::url_snippets(request.name, request.url, headers)
    })
}

/// What the process prints when it is ready: the servers, and after them everything that is worth knowing.
struct Announcement {
    summaries: Vec<ServerSummary>,
    notes: StartNotes,
}

fn serve_network(
    address: Option<SocketAddr>,
    socket: Option<&Path>,
    service: HttpService,
    announcement: &Announcement,
    requester: ReloadRequester,
    env_names: EnvNames,
) -> anyhow::Result<()> {
    runtime(RuntimeThreads::Caller)?.block_on(async {
        // Before the banner: its reader may send a signal at once.
        let (signals, reload_signals) = (StopSignals::install(), ReloadSignals::install());
        let (listeners, addresses) = listen(address, socket, &announcement.summaries, env_names).await?;
        let headers = if service.guard.tokens.is_some() { banner::TOKEN_HEADERS } else { &[] };
        let addresses =
            ListenAddresses { is_tls: service.tls.is_some(), has_page: service.page.is_some(), ..addresses };
        banner::print_network_banner(&announcement.summaries, &addresses, headers);
        let mut notes = announcement.notes.diagnostics.to_vec();
        if addresses.address.is_some_and(|bound| !bound.ip().is_loopback()) {
            notes.extend(access::open_access_warnings(&service).into_iter().map(Diagnostic::warning));
        }
        crate::report::print_notes(&notes, announcement.notes.about_data.as_deref());
        if !notice::is_json() && std::io::stderr().is_terminal() {
            notice::info("\nPress Ctrl-C to stop.");
        }
        let (stop, stopped) = watch::channel(false);
        for server in service.servers.clone() {
            tokio::spawn(async move { server.resume_tasks().await });
        }
        tokio::spawn(reload_on_signal(reload_signals, requester));
        tokio::spawn(stop_on_signal(signals, move || {
            // Fails only if no listener is left, and then there is nothing to stop.
            let _ = stop.send(true);
        }));
        transport::http::serve_all(listeners, Arc::new(service), stopped).await;
        Ok(())
    })
}

/// Listens on the address and the socket. Where the system forbids TCP, a unix socket replaces it. A port in use is
/// an error: clients would reach the other program there.
#[cfg_attr(not(unix), expect(unused_variables, reason = "there are no unix sockets"))]
async fn listen(
    address: Option<SocketAddr>,
    socket: Option<&Path>,
    summaries: &[ServerSummary],
    env_names: EnvNames,
) -> anyhow::Result<(Vec<Listener>, ListenAddresses)> {
    let (mut listeners, mut addresses) = (Vec::new(), ListenAddresses::default());
    #[cfg(unix)]
    if let Some(path) = socket {
        listeners.push(bind_socket(path)?.into());
        // Absolute, because the reader of the banner may be in another folder.
        addresses.socket = Some(std::path::absolute(path)?);
    }
    let Some(address) = address else { return Ok((listeners, addresses)) };
    match TcpListener::bind(address).await {
        Ok(listener) => {
            addresses.address = Some(listener.local_addr()?);
            listeners.push(listener.into());
        }
        #[cfg(unix)]
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            notice::info(&format!("{}; using a unix socket instead", bind_error(address, &error)));
            if addresses.socket.is_none() {
                let names: Vec<&str> = summaries.iter().map(|summary| &*summary.name).collect();
                let path = crate::socket_path::default_path(&names, env_names)?;
                listeners.push(bind_socket(&path)?.into());
                addresses.socket = Some(std::path::absolute(path)?);
            }
        }
        Err(error) => return Err(bind_error(address, &error)),
    }
    Ok((listeners, addresses))
}

#[cfg(unix)]
fn bind_socket(path: &Path) -> anyhow::Result<SocketFile> {
    SocketFile::bind(path).map_err(|error| anyhow::anyhow!("cannot listen on `{}`: {error}", path.display()))
}

fn bind_error(address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let reason = match error.kind() {
        AddrInUse => "the port is in use; choose another, or port 0 for any free one".into(),
        AddrNotAvailable => {
            "this machine does not have that address; use 127.0.0.1 for this machine only".into()
        }
        PermissionDenied if address.port() < 1024 => {
            "not permitted; ports below 1024 are reserved for the system, choose a higher one".into()
        }
        PermissionDenied => "not permitted in this environment".into(),
        _ => error.to_string(),
    };
    anyhow::anyhow!("cannot listen on {address}: {reason}")
}

fn serve_stdio(
    server: Arc<Server>,
    announcement: &Announcement,
    requester: ReloadRequester,
) -> anyhow::Result<()> {
    banner::print_stdio_banner(&announcement.summaries);
    crate::report::print_notes(&announcement.notes.diagnostics, announcement.notes.about_data.as_deref());
    let runtime = runtime(RuntimeThreads::Workers)?;
    let stdout = raw_stream(std::io::stdout()).context("cannot use stdout")?;
    let write_stall = Duration::from_millis(settings::connection_limits()?.write_stall_timeout_ms);
    let output = StdoutWriter::with_write_stall_timeout(stdout, write_stall);
    let input = raw_stream(std::io::stdin()).context("cannot use stdin")?;
    let entered = runtime.enter();
    let (signals, reload_signals) = (StopSignals::install(), ReloadSignals::install());
    drop(entered);
    runtime.spawn({
        let server = server.clone();
        async move { server.resume_tasks().await }
    });
    runtime.spawn(reload_on_signal(reload_signals, requester));
    runtime.spawn({
        let (server, output) = (server.clone(), output.clone());
        stop_on_signal(signals, move || {
            tokio::spawn(async move {
                transport::stdio::shut_down(&server, &output).await;
                std::process::exit(0);
            });
        })
    });
    transport::stdio::serve(server, runtime.handle(), input, output)?;
    // In the background, so that a call that does not stop cannot keep the process alive.
    runtime.shutdown_background();
    Ok(())
}

/// The stream without the buffer and the lock of the standard library.
#[cfg(unix)]
fn raw_stream(stream: impl std::os::fd::AsFd) -> std::io::Result<File> {
    Ok(File::from(stream.as_fd().try_clone_to_owned()?))
}

#[cfg(windows)]
fn raw_stream(stream: impl std::os::windows::io::AsHandle) -> std::io::Result<File> {
    Ok(File::from(stream.as_handle().try_clone_to_owned()?))
}

/// Which threads drive the runtime.
#[derive(PartialEq, Eq)]
enum RuntimeThreads {
    /// The calling thread, if one thread is enough.
    Caller,
    /// Worker threads only: the calling thread reads stdin.
    Workers,
}

fn runtime(threads: RuntimeThreads) -> anyhow::Result<Runtime> {
    let workers = settings::workers()?;
    let mut builder = if workers == 1 && threads == RuntimeThreads::Caller {
        tokio::runtime::Builder::new_current_thread()
    } else {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(workers);
        builder
    };
    builder.enable_all().build().context("cannot start the runtime")
}

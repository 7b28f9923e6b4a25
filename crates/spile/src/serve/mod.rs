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
use std::pin::Pin;
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
use transport::http::{
    AdminEndpoint, ConnectSnippets, HttpService, Listener, Page, ServerDirectory, Upstreams,
};
use transport::stdio::StdoutWriter;
#[cfg(unix)]
use transport::unix::SocketFile;

use crate::author_folder::{
    Author, CodeListener, CurrentContract, PromisedTools, ServedAuthor, log_code_event,
};
use crate::banner::{self, ListenAddresses, ServerSummary};
use crate::notice;
use crate::project::{Project, Scan, SourceFailurePolicy, shown_path};
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
        Self::joined(name, version, vec![provider])
    }

    /// A server with the providers of others.
    pub(crate) fn joined(name: &str, version: &str, providers: Vec<Arc<dyn Provider>>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            providers,
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

    /// With keys and a store, and its name in that store.
    pub(crate) fn with_state(self, state: ServerState, store_scope: String) -> Self {
        Self { state, store_scope: Some(store_scope), ..self }
    }

    pub(crate) fn with_call_timeout(self, call_timeout_ms: Option<u64>) -> Self {
        Self { call_timeout_ms, ..self }
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
            let absolute = shown_path(&path.canonicalize().unwrap_or_else(|_| path.into()));
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
        let file = |location: &SourceLocation| match location {
            SourceLocation::File(path) => Some(path.clone()),
            SourceLocation::Database(_) | SourceLocation::Rest(_) => None,
        };
        locations.filter_map(file).collect()
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
        let ServerState { keyring, store, has_replicas, is_store_shared: _ } = state;
        let store_scope = store_scope.filter(|_| !has_replicas).unwrap_or_else(|| name.clone());
        let config = Config { name, version: version.clone(), limits, platform, keyring, store, store_scope };
        let provider_set = ProviderSet { version, providers, call_timeout_ms, tool_order };
        let server = Server::with_provider_set(config, provider_set);
        server.set_source_health(health);
        let author = author.map(|author| author.serve(&server, current_contract, promised, on_code));
        Ok((server, author))
    }

    /// For a service without files of its own.
    pub(crate) fn into_remote_server(self) -> anyhow::Result<Arc<Server>> {
        let (server, _) = self.into_server(BreakingChangePolicy::KeepOld, Arc::new(log_code_event))?;
        Ok(server)
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
            // A folder with an `mcp.json` promises `/mcp/NAME`; `/mcp` works, too.
            has_named_path: self.env_names == EnvNames::ServerFile,
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
    serve_with(services, failed, notes, args, ServeHooks::for_serving(args))
}

/// One of several paths that cannot be served. The others are.
pub struct FailedServer(UnavailableSource);

impl FailedServer {
    pub fn new(path: &Path, diagnostics: &[Diagnostic]) -> Self {
        let name = shown_path(path);
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
    /// A runtime on which something runs already.
    pub(crate) runtime: Option<Runtime>,
    /// Makes one server of all others, which is served at `/mcp`.
    pub(crate) join: Option<JoinServers>,
    /// Called with that server, when everything is ready.
    pub(crate) joined: Option<JoinedHook>,
    /// Servers that come and go.
    pub(crate) directory: Option<Arc<ServerDirectory>>,
    /// What operators may do.
    pub(crate) admin: Option<AdminEndpoint>,
    /// What the page shows about the servers behind this one.
    pub(crate) upstreams: Option<Upstreams>,
    /// Gives each server a policy and an observer. The flag says whether it is the joined one.
    pub(crate) decide: Option<DecideCalls>,
    /// What ends together with the servers.
    pub(crate) on_stop: Option<StopHook>,
}

type DecideCalls = Box<dyn Fn(&Arc<Server>, bool) -> anyhow::Result<Option<Arc<dyn CallObserver>>>>;
type JoinedHook = Box<dyn FnOnce(&Arc<Server>) -> anyhow::Result<()>>;
type JoinServers = Box<dyn FnOnce(&[Arc<Server>]) -> anyhow::Result<JoinedServer>>;

/// What happens at the end of the process.
pub(crate) struct StopHook {
    /// Before the servers stop.
    pub(crate) stopping: Box<dyn Fn() + Send + Sync>,
    /// After they have stopped.
    pub(crate) stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// A server that offers what others offer.
pub(crate) struct JoinedServer {
    pub(crate) service: Service,
    /// By the names of the servers.
    pub(crate) providers: Vec<(String, Arc<dyn Provider>)>,
    pub(crate) summary: ServerSummary,
    /// What is worth saying about it.
    pub(crate) note: Option<Diagnostic>,
}

impl ServeHooks {
    /// Logs what happens, as far as the arguments ask for it.
    pub(crate) fn for_serving(args: &ServeArgs) -> Self {
        let log_calls = (args.verbose > 0).then(|| Arc::new(call_log::CallLog) as Arc<dyn CallObserver>);
        Self {
            breaking: BreakingChangePolicy::KeepOld,
            on_reload: reload::log_listener(),
            on_call: log_calls,
            on_code: Arc::new(log_code_event),
            runtime: None,
            join: None,
            joined: None,
            directory: None,
            admin: None,
            upstreams: None,
            decide: None,
            on_stop: None,
        }
    }
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
    let mut is_store_shared = services.iter().any(|service| service.state.is_store_shared);
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
    let runtime = match hooks.runtime {
        Some(runtime) => runtime,
        None => runtime(if is_network { RuntimeThreads::Caller } else { RuntimeThreads::Workers })?,
    };
    let has_main_server = hooks.join.is_some();
    if let Some(join) = hooks.join {
        let _entered = runtime.enter();
        let JoinedServer { service, providers, summary, note } = join(&servers)?;
        is_store_shared |= service.state.is_store_shared;
        announcement.notes.diagnostics.extend(note);
        let (server, _) = service.into_server(hooks.breaking, hooks.on_code.clone())?;
        for (name, provider) in providers {
            server.set_provider_by_name(&name, Some(provider));
        }
        servers.insert(0, server);
        announcement.summaries = vec![summary];
    }
    let page = (is_network && !args.no_page).then(|| Page::new(&servers, connect_snippets()));
    let page = match (page, hooks.upstreams) {
        (Some(page), Some(upstreams)) => Some(page.with_upstreams(upstreams)),
        (page, _) => page,
    };
    // Before any client can call.
    for (index, server) in servers.iter().enumerate() {
        let is_main = has_main_server && index == 0;
        let recorder = match &hooks.decide {
            Some(decide) => decide(server, is_main)?,
            None => None,
        };
        observe_calls(index, server, hooks.on_call.iter().cloned().chain(recorder), page.as_ref());
    }
    if let (Some(joined), Some(main)) = (hooks.joined, servers.first()) {
        let _entered = runtime.enter();
        joined(main)?;
    }
    if is_store_shared && is_network {
        let _entered = runtime.enter();
        for server in &servers {
            tokio::spawn(server.clone().follow_replicas());
        }
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
            has_main_server,
            directory: hooks.directory,
            admin: hooks.admin,
        };
        let listening = ListenChoice { address, socket: args.socket(), env_names };
        return serve_network(runtime, listening, service, &announcement, requester, hooks.on_stop);
    }
    match &*servers {
        [only] => serve_stdio(runtime, only.clone(), &announcement, requester, hooks.on_stop),
        [main, ..] if has_main_server => {
            serve_stdio(runtime, main.clone(), &announcement, requester, hooks.on_stop)
        }
        _ => bail!(args::ONE_SERVER_ONLY),
    }
}

/// Where somebody observes calls anyway, the page records them from the start.
fn observe_calls(
    index: usize,
    server: &Arc<Server>,
    observers: impl Iterator<Item = Arc<dyn CallObserver>>,
    page: Option<&Page>,
) {
    let mut all: Vec<Arc<dyn CallObserver>> = observers.collect();
    if all.is_empty() {
        return;
    }
    all.extend(page.and_then(|page| page.call_observer(index, server)));
    server.set_observer(Arc::new(CallObservers(all)));
}

/// For a server that joins while the process runs.
pub(crate) fn observe(server: &Server, observers: impl Iterator<Item = Arc<dyn CallObserver>>) {
    let all: Vec<Arc<dyn CallObserver>> = observers.collect();
    if !all.is_empty() {
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

/// Where to listen, as it was asked for.
struct ListenChoice<'a> {
    address: Option<SocketAddr>,
    socket: Option<&'a Path>,
    env_names: EnvNames,
}

fn serve_network(
    runtime: Runtime,
    ListenChoice { address, socket, env_names }: ListenChoice<'_>,
    service: HttpService,
    announcement: &Announcement,
    requester: ReloadRequester,
    on_stop: Option<StopHook>,
) -> anyhow::Result<()> {
    runtime.block_on(async {
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
            if let Some(tokens) = service.guard.tokens.clone() {
                server.set_known_principals(Box::new(move |principal| tokens.covers(principal)));
            }
            tokio::spawn(async move { server.resume_tasks().await });
        }
        tokio::spawn(reload_on_signal(reload_signals, requester));
        let (stopping, stopped_hook) = on_stop.map(|hook| (hook.stopping, hook.stopped)).unzip();
        tokio::spawn(stop_on_signal(signals, move || {
            if let Some(stopping) = &stopping {
                stopping();
            }
            // Fails only if no listener is left, and then there is nothing to stop.
            let _ = stop.send(true);
        }));
        transport::http::serve_all(listeners, Arc::new(service), stopped).await;
        if let Some(stopped) = stopped_hook {
            stopped.await;
        }
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
    runtime: Runtime,
    server: Arc<Server>,
    announcement: &Announcement,
    requester: ReloadRequester,
    on_stop: Option<StopHook>,
) -> anyhow::Result<()> {
    banner::print_stdio_banner(&announcement.summaries);
    crate::report::print_notes(&announcement.notes.diagnostics, announcement.notes.about_data.as_deref());
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
                // A server that was started for this one notices the end of this process.
                std::process::exit(0);
            });
        })
    });
    transport::stdio::serve(server, runtime.handle(), input, output)?;
    if let Some(StopHook { stopped, .. }) = on_stop {
        runtime.block_on(stopped);
    }
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

impl ServeArgs {
    /// For something that runs before the servers do.
    pub(crate) fn runtime(&self) -> anyhow::Result<Runtime> {
        runtime(RuntimeThreads::Workers)
    }
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

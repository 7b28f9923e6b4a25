//! `spile gateway`: every configured server, and servers of this process, behind one endpoint.
//!
//! `/mcp` offers all of them under public names; `/mcp/NAME` offers one under its own. `live_servers` follows the settings
//! while it runs, `tools` are the gateway's own tools, `admin` is what operators can do.

mod admin;
mod decisions;
mod live_rules;
mod live_servers;
mod sampling;
mod sign_in;
mod terminal;
mod tool_search;
mod tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use contract::diagnostic::Diagnostic;
use contract::humanize::{group_digits, pluralize};
use contract::tokens;
use gateway::{Gateway, GatewayOptions, Naming};
use host::{Server, ServerProvider, SystemPlatform};
use outbound::Reach;
use page::{UpstreamHealth, UpstreamView};
use permissions::Approver;
use permissions::approvals::ApprovalQueue;
use permissions::modes::Mode;
use servers::config::{ConfiguredServer, RegistrationRules};
use servers::decisions::Permission;
use servers::manager::ServerStatus;
use servers::manager::state::Status;
use servers::names;
use spile_core::{Catalog, INSTRUCTIONS_BYTES_MAX, Provider};
use state::store::EncryptedStore;
use tokio::sync::Notify;
use transport::AccessTokens;
use transport::http::AdminEndpoint;
use wire::client::VersionPolicy;

use self::admin::GatewayAdmin;
use self::decisions::GatewayTable;
use self::live_rules::{ReadSettings, SettingsFiles};
use self::live_servers::LiveServers;
use self::sampling::OperatorApproval;
use self::sign_in::SignIns;
use self::tools::GatewayTools;
use crate::banner::ServerSummary;
use crate::mcp::{ConfigArgs, ProcessHost, ServerContext, credential_store, refusal};
use crate::report::{listed_tool_tokens, tool_tokens};
use crate::serve::{self, JoinedServer, ServeArgs, ServeHooks, Service, StartNotes, StopHook};
use crate::server_state::ServerState;

#[derive(Debug, Args)]
pub struct GatewayArgs {
    /// Also serve these data files, manifests or folders, in this process
    paths: Vec<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// How long to wait for the servers before clients are answered, in seconds; servers that need longer join later
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    wait: u64,
    /// Which calls run without asking: default, permissive, read-only, dont-ask or bypass
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<Mode>,
    /// List the tools `search_tools` and `call_tool` instead of the servers' tools: for hundreds of tools
    #[arg(long)]
    tool_search: bool,
    /// Cut the instructions of each server after so many bytes, where they stand beside those of others
    #[arg(long, value_name = "BYTES", default_value_t = INSTRUCTIONS_BYTES_MAX)]
    instruction_bytes: usize,
    /// Let operators with a token from this file answer approvals (/-/approvals) and register servers (/-/servers)
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Which servers operators may register: at public addresses, also at private ones, or also commands of this machine
    #[arg(long, value_name = "WHICH", default_value = "public")]
    register: RegisterChoice,
    /// Use only protocol versions with a handshake for the servers behind the gateway
    #[arg(long)]
    handshake_only: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RegisterChoice {
    Public,
    Private,
    Commands,
}

impl RegisterChoice {
    fn rules(self) -> RegistrationRules {
        match self {
            Self::Public => RegistrationRules { allows_commands: false, reach: Reach::Public },
            // Where clouds have their metadata service, no server of anybody is.
            Self::Private => RegistrationRules { allows_commands: false, reach: Reach::NotLinkLocal },
            Self::Commands => RegistrationRules { allows_commands: true, reach: Reach::NotLinkLocal },
        }
    }
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    Mode::parse(text).ok_or_else(|| {
        let names: Vec<&str> = Mode::ALL.iter().map(|mode| mode.as_str()).collect();
        format!("expected {}", names.join(", "))
    })
}

/// The name of the server that joins the others.
const MAIN_NAME: &str = "gateway";
/// The user's own settings of the gateway, beside their servers.
const OWN_SETTINGS: &str = "gateway.json";

pub fn run(args: &GatewayArgs) -> anyhow::Result<ExitCode> {
    serve::start_logging(&args.serve);
    let context = ServerContext::load(&args.config.files)?;
    let state = args.serve.state()?;
    let own_settings = context.places.settings.as_ref().map(|folder| folder.join("spile").join(OWN_SETTINGS));
    let settings_files =
        SettingsFiles { run_files: args.config.files.clone(), own_file: own_settings, mode: args.mode };
    let stamps = settings_files.read_stamps();
    let settings = settings_files.load()?;
    let settings_read = ReadSettings { stamps, text: settings.text.clone() };
    let admin_tokens = admin_tokens(args)?;
    let configured = permitted_servers(&context);
    let problems = context.configuration.problems.iter();
    let mut notes: Vec<Diagnostic> =
        problems.map(|problem| Diagnostic::warning(problem.to_string())).collect();
    notes.extend(configured.iter().filter_map(|(server, permission)| not_started(server, *permission)));
    let hosted = hosted_services(args, &state, &mut notes)?;
    if configured.is_empty() && hosted.is_empty() && admin_tokens.is_none() {
        bail!(
            "no servers are configured here; add one with `spile mcp add`, name a file with --config, or name a folder to \
             serve"
        );
    }
    for service in &hosted {
        let part = names::server_part(&service.name);
        if let Some((server, _)) =
            configured.iter().find(|(server, _)| names::server_part(&server.name) == part)
        {
            bail!(
                "the tools of the configured server `{}` and of `{}`, which is served here, would have the same names; rename \
                 one of them",
                server.name,
                service.name
            );
        }
    }

    let store_scope = store_scope(&context.places.current_dir, &args.config.files, &args.paths);
    let runtime = args.serve.runtime()?;
    let entered = runtime.enter();
    let changed = Arc::new(Notify::new());
    let host = Arc::new(ProcessHost::new(&context)?.notifying(changed.clone()));
    let gateway = Gateway::start(
        configured,
        gateway_options(args, &context),
        host,
        Arc::new(SystemPlatform::default()),
    );
    drop(entered);
    let wait = Duration::from_secs(args.wait);
    // Whoever is not ready joins later, with a notification.
    let _ = runtime.block_on(async { tokio::time::timeout(wait, gateway.manager().settled()).await });
    gateway.refresh();
    notes.extend(gateway.manager().statuses().iter().filter_map(not_ready));
    notes.extend(gateway.server_names().iter().filter_map(|name| {
        Some(Diagnostic::warning(format!("server `{name}`: {}", gateway.warning(name)?)))
    }));

    let is_network = args.serve.is_network();
    let asks_at_terminal = is_network && terminal::is_available();
    let approvals = (admin_tokens.is_some() || asks_at_terminal).then(|| {
        let platform = Arc::new(SystemPlatform::default());
        let store = EncryptedStore::new(state.store.clone(), state.keyring.clone(), platform.clone());
        ApprovalQueue::new(store, platform)
    });
    if let Some(queue) = &approvals {
        gateway.set_sampling_approver(Arc::new(OperatorApproval(queue.clone())));
    }
    let table = Arc::new(GatewayTable::default());
    let approver = approvals.clone().map(|queue| queue as Arc<dyn Approver>);
    let (decider, warnings) = settings.into_decider(table.clone(), approver)?;
    let decider = Arc::new(decider);
    gateway.set_sampling_observer(decider.clone());
    notes.extend(warnings);
    let sign_ins = sign_ins(args, &gateway, &context)?;
    let tools = GatewayTools::new(gateway.clone(), table.clone(), args.tool_search, sign_ins);
    let for_serving = ServeHooks::for_serving(&args.serve);
    let live = Arc::new(LiveServers {
        gateway: gateway.clone(),
        registered: Arc::default(),
        table: table.clone(),
        decider: decider.clone(),
        tools: tools.clone(),
        directory: is_network.then(Arc::default),
        state: state.clone(),
        store_scope: store_scope.clone(),
        on_call: for_serving.on_call.clone(),
        main: OnceLock::new(),
        wake: Arc::default(),
    });
    let admin = match (admin_tokens, &approvals) {
        (Some(tokens), Some(approvals)) => {
            let (approvals, servers, rules) = (approvals.clone(), live.clone(), args.register.rules());
            Some(AdminEndpoint { tokens, handler: Arc::new(GatewayAdmin { approvals, servers, rules }) })
        }
        _ => None,
    };
    let follower = live_servers::follower(&context, &args.config.files, &live.registered);

    let hooks = ServeHooks {
        runtime: Some(runtime),
        join: Some(Box::new({
            let (gateway, tools) = (gateway.clone(), tools.clone());
            let is_search = args.tool_search;
            move |servers| {
                let service = Service::joined(MAIN_NAME, env!("CARGO_PKG_VERSION"), Vec::new())
                    .with_state(state, store_scope);
                join_servers(servers, &gateway, &table, tools, is_search, service)
            }
        })),
        joined: Some(Box::new({
            let live = live.clone();
            let is_search = args.tool_search;
            move |main| {
                live.start(main)?;
                if is_search {
                    main.list_tools_of(&[tools::PROVIDER]);
                }
                tokio::spawn(live.clone().follow(follower));
                tokio::spawn(live_rules::follow(settings_files, settings_read, live.decider.clone()));
                tokio::spawn(refresh_tools(live.tools.clone(), changed));
                if let Some(queue) = approvals.filter(|_| asks_at_terminal) {
                    tokio::spawn(terminal::ask(queue));
                }
                Ok(())
            }
        })),
        decide: Some(Box::new({
            let decider = decider.clone();
            move |server, is_main| {
                server.set_policy(decider.policy(server, is_main));
                Ok(decider.observer(server, is_main))
            }
        })),
        directory: live.directory.clone(),
        admin,
        upstreams: Some(Box::new({
            let gateway = gateway.clone();
            move || upstream_views(&gateway)
        })),
        on_stop: Some(StopHook {
            stopping: Box::new({
                let gateway = gateway.clone();
                move || gateway.prepare_to_stop()
            }),
            stopped: Box::pin(async move {
                gateway.close().await;
                decider.flush();
            }),
        }),
        ..for_serving
    };
    let notes = StartNotes { diagnostics: notes, about_data: None };
    serve::serve_with(hosted, Vec::new(), notes, &args.serve, hooks)?;
    Ok(ExitCode::SUCCESS)
}

/// Where this gateway keeps what callers allowed and which tasks run: its folder and files say which gateway it is. What a user
/// allowed at one of their gateways is not allowed at another.
fn store_scope(folder: &Path, files: &[PathBuf], paths: &[PathBuf]) -> String {
    let absolute = |path: &PathBuf| {
        let path = folder.join(path);
        path.canonicalize().unwrap_or(path).display().to_string()
    };
    let parts: Vec<String> = files.iter().map(absolute).chain(paths.iter().map(absolute)).collect();
    // A file names all servers of the gateway, or the folder does.
    let folder = if files.is_empty() { folder.display().to_string() } else { String::new() };
    format!("{MAIN_NAME}\n{folder}\n{}", parts.join("\n"))
}

/// The tokens of operators, which are not those of callers.
fn admin_tokens(args: &GatewayArgs) -> anyhow::Result<Option<AccessTokens>> {
    let Some(path) = &args.admin_token_file else { return Ok(None) };
    if !args.serve.is_network() {
        bail!("--admin-token-file needs --bind, --http or --socket: operators send HTTP requests");
    }
    Ok(Some(AccessTokens::from_file(path).with_context(|| format!("--admin-token-file {}", path.display()))?))
}

/// Where several people share a gateway, one of them must not choose the account that all of them use.
fn sign_ins(
    args: &GatewayArgs,
    gateway: &Gateway,
    context: &ServerContext,
) -> anyhow::Result<Option<Arc<SignIns>>> {
    let is_own_machine = args.serve.bind.is_none_or(|address| address.ip().is_loopback());
    let is_single_user = is_own_machine && args.serve.token_file.is_none();
    let store = credential_store()?.filter(|_| is_single_user);
    let home = context.home().map(PathBuf::from);
    Ok(store.map(|store| SignIns::new(gateway.manager().clone(), store, home)))
}

/// The gateway's own tools depend on what the servers offer and need.
async fn refresh_tools(tools: Arc<GatewayTools>, changed: Arc<Notify>) {
    loop {
        changed.notified().await;
        tools.refresh();
    }
}

fn upstream_views(gateway: &Gateway) -> Vec<UpstreamView> {
    let registry = gateway.manager().registry();
    let view = |status: ServerStatus| {
        let own = registry.tools().filter(|tool| *tool.server == *status.name);
        let tools: usize = own.map(|tool| listed_tool_tokens(&tool.definition, &tool.own_name)).sum();
        let error = status.error_line().unwrap_or_default();
        let about = status.server.as_deref().unwrap_or_default();
        let (health, detail) = match status.status {
            Status::Connected => (UpstreamHealth::Good, about.to_owned()),
            Status::Disconnected | Status::Connecting | Status::Reconnecting => {
                (UpstreamHealth::Waiting, error)
            }
            Status::NeedsAuth => (UpstreamHealth::Bad, format!("Sign in with: spile login {}", status.name)),
            Status::Error | Status::Disabled => (UpstreamHealth::Bad, error),
        };
        let warning = gateway.warning(&status.name).map(|warning| format!("{warning}. "));
        UpstreamView {
            url: String::new(),
            state: status.status.name(),
            health,
            detail: format!("{}{detail}", warning.unwrap_or_default()),
            reconnects: status.reconnects,
            tools: status.tools,
            tokens: tools + status.instructions.as_deref().map_or(0, tokens::estimate),
            unapproved: status.unapproved.iter().map(|one| one.tool.clone()).collect(),
            name: status.name,
        }
    };
    gateway.manager().statuses().into_iter().map(view).collect()
}

fn gateway_options(args: &GatewayArgs, context: &ServerContext) -> GatewayOptions {
    let mut options =
        GatewayOptions { sampling: context.configuration.sampling.clone(), ..GatewayOptions::default() };
    options.instructions_bytes_max = args.instruction_bytes;
    options.manager.registered_reach = args.register.rules().reach;
    if args.handshake_only {
        options.manager.connection.client_options.version_policy = VersionPolicy::HandshakeOnly;
    }
    options
}

fn permitted_servers(context: &ServerContext) -> Vec<(ConfiguredServer, Permission)> {
    let servers = context.configuration.servers.iter().cloned();
    servers
        .map(|server| {
            let permission = context.permission(&server);
            (server, permission)
        })
        .collect()
}

fn not_started(server: &ConfiguredServer, permission: Permission) -> Option<Diagnostic> {
    let (reason, help) = refusal(server, permission)?;
    Some(Diagnostic::warning(reason).help(help))
}

/// What the user should know about a server that was started.
fn not_ready(status: &ServerStatus) -> Option<Diagnostic> {
    let name = &status.name;
    let reason = status.error_line().unwrap_or_else(|| "no reason is known".to_owned());
    match status.status {
        // Disabled ones are reported already.
        Status::Connected | Status::Disabled => None,
        Status::Disconnected | Status::Connecting => {
            Some(Diagnostic::note(format!("server `{name}` is still connecting; it joins when it is ready")))
        }
        Status::Reconnecting => {
            Some(Diagnostic::warning(format!("server `{name}` is not connected yet: {reason}")))
        }
        Status::NeedsAuth => Some(
            Diagnostic::warning(format!("server `{name}` needs you to sign in"))
                .help(format!("run `spile login {name}`")),
        ),
        Status::Error => {
            Some(Diagnostic::warning(format!("server `{name}` cannot be reached: {reason}")).help(format!(
                "`spile mcp test {name}` shows more; it is tried again when a client connects or reads a list"
            )))
        }
    }
}

/// The servers that run in this process.
fn hosted_services(
    args: &GatewayArgs,
    state: &ServerState,
    notes: &mut Vec<Diagnostic>,
) -> anyhow::Result<Vec<Service>> {
    let mut services: Vec<Service> = Vec::new();
    for path in &args.paths {
        let (service, found) = Service::from_path_with(path, args.serve.source_failures(), state)?;
        notes.extend(found);
        match service {
            None => bail!("`{}` cannot be served; `spile check` says why", path.display()),
            Some(service) if services.iter().any(|other| other.name == service.name) => {
                bail!("two servers have the name `{}`", service.name)
            }
            Some(service) => services.push(service),
        }
    }
    Ok(services)
}

/// One server with everything: remote servers and those of this process, under public names. Remote servers are added when
/// it exists.
fn join_servers(
    servers: &[Arc<Server>],
    gateway: &Gateway,
    table: &GatewayTable,
    own_tools: Arc<GatewayTools>,
    is_search: bool,
    service: Service,
) -> anyhow::Result<JoinedServer> {
    let mut providers: Vec<(String, Arc<dyn Provider>)> =
        vec![(tools::PROVIDER.to_owned(), own_tools.clone())];
    let mut hosted = BTreeMap::new();
    let together: Arc<[Arc<Server>]> = servers.into();
    for server in servers {
        let name = server.name.clone();
        let rename = move |own: &[&str]| {
            let public = names::public_names(&name, own.iter().copied());
            own.iter().map(|own| public[own].clone()).collect()
        };
        let provider = ServerProvider::new(server.clone(), together.clone(), Box::new(rename));
        tokio::spawn(provider.clone().follow());
        hosted.insert(server.name.clone(), provider.clone());
        providers.push((server.name.clone(), provider));
    }
    table.set_hosted(hosted);
    let remote_names = gateway.server_names();
    let remote = remote_names.iter().filter_map(|name| gateway.provider(name, Naming::Public));
    let all: Vec<Arc<dyn Provider>> = remote
        .map(|provider| provider as Arc<dyn Provider>)
        .chain(providers.iter().skip(1).map(|(_, provider)| provider.clone()))
        .collect();
    let catalogs: Vec<_> = all.iter().map(|provider| provider.catalog()).collect();
    let listed: Vec<String> =
        catalogs.iter().flat_map(|catalog| catalog.tools.iter().map(|tool| tool.name.clone())).collect();
    let cost: usize = catalogs.iter().map(|catalog| catalog_tokens(catalog)).sum();
    let has_resources =
        |catalog: &Arc<Catalog>| !catalog.resources.is_empty() || !catalog.resource_templates.is_empty();
    let own = own_tools.definitions(catalogs.iter().any(has_resources));
    let total_ms = remote_names.iter().filter_map(|name| gateway.manager().call_timeouts(name));
    let service = service.with_call_timeout(total_ms.map(|timeouts| timeouts.total_ms).max());
    let note = token_note(listed.len(), cost, catalog_tokens(&own), is_search);
    let tools = if is_search { own.tools.iter().map(|tool| tool.name.clone()).collect() } else { listed };
    let summary = ServerSummary {
        name: format!("{MAIN_NAME} of {}", pluralize((servers.len() + remote_names.len()) as u64, "server")),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        tools,
        command: Vec::new(),
        has_named_path: false,
        unavailable: Vec::new(),
        read_only: Vec::new(),
    };
    Ok(JoinedServer { service, providers, summary, note })
}

fn catalog_tokens(catalog: &Catalog) -> usize {
    let tools = catalog.tools.iter();
    let tools = tools.map(|tool| {
        tool_tokens(&tool.name, tool.description.as_deref().unwrap_or_default(), &tool.input_schema)
    });
    tools.sum::<usize>() + catalog.instructions.as_deref().map_or(0, tokens::estimate)
}

/// A client that loads tools only when it needs them saves these tokens by itself, so the search is offered, not chosen.
const MANY_TOOLS: usize = 100;

fn token_note(tools: usize, cost: usize, own_cost: usize, is_search: bool) -> Option<Diagnostic> {
    let (cost, all) = (group_digits(cost as u64), pluralize(tools as u64, "tool"));
    match is_search {
        true => Some(Diagnostic::note(format!(
            "{all} are found with `search_tools` and are not listed: about {} tokens in every conversation instead of {cost}",
            group_digits(own_cost as u64)
        ))),
        false if tools >= MANY_TOOLS => Some(
            Diagnostic::note(format!("{all} cost about {cost} tokens in every conversation"))
                .help("`--tool-search` lists two tools instead, which find and call the others"),
        ),
        false => None,
    }
}

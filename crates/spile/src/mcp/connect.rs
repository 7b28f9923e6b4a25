//! Commands that connect to configured servers: all of them at once, each with one attempt.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use contract::humanize::{group_digits, pluralize};
use contract::tokens;
use host::SystemPlatform;
use json::Json;
use json::write::ObjectWriter;
use os_keyring::OsKeyring;
use servers::config::ConfiguredServer;
use servers::decisions::Permission;
use servers::definitions::DefinitionPins;
use servers::manager::state::{RetryPolicy, Status};
use servers::manager::{Manager, ManagerHost, ManagerOptions, ServerStatus};
use servers::oauth::CredentialStore;
use servers::registry::ServerLists;
use spile_core::INSTRUCTIONS_BYTES_MAX;
use tokio::sync::Notify;

use super::context::ServerContext;
use super::show::{self, notice};
use super::{ConfigArgs, GetArgs, ListArgs};
use crate::client::output_style::OutputStyle;
use crate::keys;
use crate::layout::{ColumnFit, Table, render_record};
use crate::report::{listed_tool_tokens, print};
use crate::{sanitize, settings};

#[derive(Debug, Args)]
pub struct ToolsArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct ConnectArgs {
    /// The server's name
    name: String,
    #[command(flatten)]
    config: ConfigArgs,
}

/// The exit code where a server cannot be reached, as for the client commands.
const UNREACHABLE: u8 = 3;

/// A cached token costs about a tenth of a new one.
const CACHED_SHARE: usize = 10;

/// This process: its environment, and the tokens of its user.
pub(crate) struct ProcessHost {
    home: Option<PathBuf>,
    credentials: Option<CredentialStore>,
    changed: Option<Arc<Notify>>,
}

impl ProcessHost {
    pub(crate) fn new(context: &ServerContext) -> anyhow::Result<Self> {
        let home = context.home().map(PathBuf::from);
        Ok(Self { home, credentials: credential_store()?, changed: None })
    }

    /// Notifies when a server has another status or other lists.
    pub(crate) fn notifying(self, changed: Arc<Notify>) -> Self {
        Self { changed: Some(changed), ..self }
    }
}

/// The tokens of this user: `spile/oauth` in their state folder, encrypted where the desktop has a keyring.
pub(crate) fn credential_store() -> anyhow::Result<Option<CredentialStore>> {
    let keyring = os_keyring()?;
    let Some(folder) = keys::state_folder() else { return Ok(None) };
    let platform = Arc::new(SystemPlatform::default());
    let store = CredentialStore::new(folder.join("oauth"), platform, outbound::OutboundOptions::default());
    Ok(Some(match keyring {
        Some(keyring) => store.with_keyring(keyring),
        None => store,
    }))
}

/// The keyring of the desktop, unless the user does not want it.
pub(crate) fn os_keyring() -> anyhow::Result<Option<OsKeyring>> {
    match settings::env_text("SPILE_KEYRING")?.as_deref() {
        Some("off") => Ok(None),
        None | Some("auto") => Ok(OsKeyring::detect(|name| std::env::var_os(name))),
        Some(value) => bail!("SPILE_KEYRING: expected `auto` or `off`, found `{value}`"),
    }
}

/// The tool definitions that this user approved: `spile/definitions` in their state folder.
pub(super) fn definition_pins() -> Option<DefinitionPins> {
    Some(DefinitionPins::new(keys::state_folder()?.join("definitions")))
}

impl ManagerHost for ProcessHost {
    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn home(&self) -> Option<PathBuf> {
        self.home.clone()
    }

    fn definitions(&self) -> Option<DefinitionPins> {
        definition_pins()
    }

    fn credentials(&self) -> Option<CredentialStore> {
        self.credentials.clone()
    }

    fn on_event(&self, server: &str, event: &upstream::ConnectionEvent) {
        tracing::debug!(server, ?event);
    }

    fn on_status(&self, server: &str, status: &ServerStatus) {
        tracing::debug!(server, status = status.status.name());
        self.changed.iter().for_each(|changed| changed.notify_one());
    }

    fn on_lists_read(&self, _server: &str) {
        self.changed.iter().for_each(|changed| changed.notify_one());
    }
}

/// Connects to these servers, runs `then`, and closes every connection.
fn with_manager<T>(
    context: &ServerContext,
    servers: Vec<ConfiguredServer>,
    then: impl AsyncFnOnce(&Manager) -> T,
) -> anyhow::Result<T> {
    crate::serve::start_client_logging(0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let permitted: Vec<(ConfiguredServer, Permission)> = servers
        .into_iter()
        .map(|server| {
            let permission = context.permission(&server);
            (server, permission)
        })
        .collect();
    let host = Arc::new(ProcessHost::new(context)?);
    let options = ManagerOptions {
        // A command reports what it finds; only a program that stays has a reason to try again.
        retry: RetryPolicy { attempts_max: 1, ..RetryPolicy::default() },
        ..ManagerOptions::default()
    };
    Ok(runtime.block_on(async {
        let manager = Manager::start(permitted, options, host);
        let settled = tokio::time::timeout(Duration::from_secs(60), manager.settled());
        tokio::select! {
            _ = settled => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        let result = then(&manager).await;
        manager.close().await;
        result
    }))
}

pub(super) fn list(context: &ServerContext, args: &ListArgs) -> anyhow::Result<ExitCode> {
    let servers = context.configuration.servers.clone();
    let statuses = with_manager(context, servers, async |manager: &Manager| {
        let registry = manager.registry();
        let cost = |server: &str| {
            let own = registry.tools().filter(|tool| &*tool.server == server);
            own.map(|tool| listed_tool_tokens(&tool.definition, &tool.own_name)).sum::<usize>()
        };
        let statuses = manager.statuses();
        statuses.into_iter().map(|status| (cost(&status.name), status)).collect::<Vec<_>>()
    })?;
    if args.json {
        let json = Json::object(|out| {
            out.array("servers", &statuses, |out, (cost, status)| write_status(out, *cost, status));
        });
        print(&format!("{json}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    show::print_problems(context);
    let mut table = Table::new(&["server", "scope", "status", "tools", "tokens", "details"])
        .fit(0, ColumnFit::Keep)
        .align_right(3)
        .align_right(4)
        .fit(5, ColumnFit::Wrap);
    for (cost, status) in &statuses {
        let scope = context.configuration.find(&status.name).map_or("", |found| found.source.scope.name());
        let detail = status.error_line().or_else(|| status.server.clone()).unwrap_or_default();
        // As `spile check` counts: the tools and the instructions.
        let cost = cost + instruction_tokens(status);
        let (tools, cost) = (status.tools.to_string(), group_digits(cost as u64));
        let cells = [&status.name, scope, status.status.name(), &tools, &cost, &detail];
        table.rows.push(cells.iter().map(|cell| sanitize::escape_line(cell).into_owned()).collect());
    }
    print(&table.render(&OutputStyle::stdout(), 0))?;
    let total: usize = statuses.iter().map(|(cost, status)| cost + instruction_tokens(status)).sum();
    if total > 0 {
        notice(&list_change_cost(total));
    }
    for (_, status) in &statuses {
        warn_about_instructions(status);
        warn_about_definitions(status);
        if status.status == Status::NeedsAuth {
            notice(&format!("sign in with `spile login {}`", status.name));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn instruction_tokens(status: &ServerStatus) -> usize {
    status.instructions.as_deref().map_or(0, tokens::estimate)
}

/// What clients pay that keep tools and instructions at the beginning of their prompt: any change there makes all of it new.
fn list_change_cost(total: usize) -> String {
    let cached = group_digits((total / CACHED_SHARE) as u64);
    format!(
        "{0} tokens in every conversation: about {cached} a turn while the prompt is cached; when a server's list changes, {0} once more",
        group_digits(total as u64)
    )
}

fn warn_about_instructions(status: &ServerStatus) {
    let bytes = status.instructions.as_ref().map_or(0, String::len);
    if bytes > INSTRUCTIONS_BYTES_MAX {
        notice(&format!(
            "warning: the instructions of `{}` have {bytes} bytes; clients truncate them at {INSTRUCTIONS_BYTES_MAX}",
            status.name
        ));
    }
}

fn warn_about_definitions(status: &ServerStatus) {
    let suspended = status.unapproved.iter().filter(|one| one.is_suspended).count();
    let counted = match (suspended, status.unapproved.len()) {
        (_, 0) => return,
        (0, all) => format!("{} not approved", pluralize(all as u64, "definition")),
        (suspended, _) => format!("{} suspended", pluralize(suspended as u64, "tool")),
    };
    notice(&format!(
        "warning: `{0}`: {counted}; review with `spile mcp approve {0} --definitions`",
        status.name
    ));
}

/// Everything that a server lists, or why it is not connected.
pub(super) fn lists_of(
    context: &ServerContext,
    server: &ConfiguredServer,
) -> anyhow::Result<Arc<ServerLists>> {
    let found = with_manager(context, vec![server.clone()], async |manager: &Manager| {
        (manager.status(&server.name), manager.lists(&server.name))
    })?;
    match found {
        (Some(ServerStatus { status: Status::Connected, .. }), Some(lists)) => Ok(lists),
        (status, _) => {
            let error = status.and_then(|status| status.error).unwrap_or_default();
            bail!("cannot connect to `{}`: {error}", server.name)
        }
    }
}

fn write_status(out: &mut Vec<u8>, cost: usize, status: &ServerStatus) {
    let mut object = ObjectWriter::new(out);
    object.str("name", &status.name).str("status", status.status.name());
    object.maybe_str("error", status.error.as_deref()).maybe_str("server", status.server.as_deref());
    object.int("tools", status.tools as i64).int("prompts", status.prompts as i64);
    object.int("resources", status.resources as i64).int("toolTokens", cost as i64);
    let instructions = instruction_tokens(status);
    object.int("instructionTokens", instructions as i64);
    object.array("unapproved", &status.unapproved, |out, one| {
        let mut tool = ObjectWriter::new(out);
        tool.str("tool", &one.tool).str("reason", one.reason()).bool("suspended", one.is_suspended);
        tool.end();
    });
    object.array("stderr", &status.stderr, |out, line| json::write::string(out, line));
    object.end();
}

/// `spile mcp get --connect` and `spile mcp test`
pub(super) fn get(context: &ServerContext, args: &GetArgs) -> anyhow::Result<ExitCode> {
    let server = context.find(&args.name)?;
    connect_one(context, server, args.json, true)
}

pub(super) fn test(args: &ConnectArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&args.config.files)?;
    let server = context.find(&args.name)?;
    connect_one(&context, server, false, false)
}

/// Also tells the programs that run.
pub(super) fn retry(args: &ConnectArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&args.config.files)?;
    let server = context.find(&args.name)?;
    context.decision_file()?.update(|decisions| decisions.retry(server))?;
    connect_one(&context, server, false, false)
}

fn connect_one(
    context: &ServerContext,
    server: &ConfiguredServer,
    json: bool,
    with_details: bool,
) -> anyhow::Result<ExitCode> {
    let status =
        with_manager(context, vec![server.clone()], async |manager: &Manager| manager.status(&server.name))?;
    let status = status.context("the server is not known any more")?;
    if json {
        let mut out = Vec::new();
        write_status(&mut out, 0, &status);
        print(&format!("{}\n", Json::from_written_bytes(out)))?;
    } else {
        let mut rows = if with_details { show::details(context, server) } else { Vec::new() };
        let mut row = |name: &str, value: &str| {
            let first = value.lines().next().unwrap_or_default();
            rows.push((name.to_owned(), sanitize::escape_line(first).into_owned()));
        };
        row("connection", status.status.name());
        status.error_line().iter().for_each(|error| row("reason", error));
        status.server.iter().for_each(|server| row("server info", server));
        if status.status == Status::Connected {
            let counts = [(status.tools, "tool"), (status.prompts, "prompt"), (status.resources, "resource")];
            let counts: Vec<String> = counts.iter().map(|(count, of)| pluralize(*count as u64, of)).collect();
            row("capabilities", &counts.join(", "));
        }
        for one in &status.unapproved {
            row("tool", &format!("{}: {}", one.tool, one.reason()));
        }
        status.stderr.iter().for_each(|line| row("stderr", line));
        print(&render_record(&rows, &OutputStyle::stdout(), 0))?;
        warn_about_instructions(&status);
        warn_about_definitions(&status);
        if status.status == Status::NeedsAuth {
            notice(&format!("sign in with `spile login {}`", server.name));
        } else if let Some((_, help)) = super::refusal(server, context.permission(server)) {
            notice(&help);
        }
    }
    Ok(match status.status {
        Status::Connected => ExitCode::SUCCESS,
        _ => ExitCode::from(UNREACHABLE),
    })
}

/// `spile mcp tools`: the registry of all servers.
pub(super) fn tools(args: &ToolsArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&args.config.files)?;
    let servers = context.configuration.servers.clone();
    let (registry, statuses) =
        with_manager(&context, servers, async |manager: &Manager| (manager.registry(), manager.statuses()))?;
    if args.json {
        let json = Json::object(|out| {
            out.array("tools", registry.tools(), |out, tool| {
                out.extend_from_slice(tool.definition.as_str().as_bytes());
            });
        });
        print(&format!("{json}\n"))?;
    } else {
        let mut table = Table::new(&["tool", "tokens", "description"])
            .fit(0, ColumnFit::Keep)
            .align_right(1)
            .fit(2, ColumnFit::Wrap);
        for tool in registry.tools() {
            let doc = tool.definition.to_doc();
            let description = doc.root().get("description").and_then(|text| text.str()).unwrap_or_default();
            let first = description.lines().next().unwrap_or_default();
            let cost = group_digits(listed_tool_tokens(&tool.definition, &tool.own_name) as u64);
            let cells = [tool.public_name.as_str(), &cost, first];
            table.rows.push(cells.iter().map(|cell| sanitize::escape_line(cell).into_owned()).collect());
        }
        print(&table.render(&OutputStyle::stdout(), 0))?;
    }
    statuses.iter().for_each(warn_about_definitions);
    for status in statuses.iter().filter(|status| status.status != Status::Connected) {
        let reason = status.error_line().unwrap_or_default();
        notice(&format!("`{}`: {}: {reason}", status.name, status.status.name()));
    }
    Ok(ExitCode::SUCCESS)
}

//! Prints configured servers. Values that may be secrets are never printed: variables stay as they are written, and
//! literal ones are masked by their names.

use std::process::ExitCode;

use contract::diagnostic::Diagnostic;
use json::Json;
use json::write::ObjectWriter;
use servers::config::{ConfigScope, ConfigSource, ConfiguredServer, EntryTransport, Template};
use servers::decisions::Permission;
use upstream::{process, redact};

use super::context::{ServerContext, refusal};
use crate::banner;
use crate::client::output_style::OutputStyle;
use crate::layout::{ColumnFit, Table, render_record};
use crate::report::{print, print_diagnostics};
use crate::sanitize;

pub(super) fn notice(text: &str) {
    banner::print_stderr(&sanitize::lines(text));
}

pub(super) fn list(context: &ServerContext, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        return print_json(context);
    }
    print_problems(context);
    if context.configuration.servers.is_empty() {
        notice(
            "no servers are configured; add one with `spile mcp add`, or include those of a client with `spile mcp include`",
        );
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["server", "scope", "type", "status", "target"])
        .fit(0, ColumnFit::Keep)
        .fit(4, ColumnFit::Wrap);
    for server in &context.configuration.servers {
        let (kind, target) = match &server.entry {
            Ok(entry) => (entry.kind(), target(&entry.transport)),
            Err(error) => ("", error.to_string()),
        };
        let status = status(server, context.permission(server));
        let cells = [&server.name, server.source.scope.name(), kind, status, &target];
        table.rows.push(cells.iter().map(|cell| sanitize::escape_line(cell).into_owned()).collect());
    }
    print(&table.render(&OutputStyle::stdout(), 0))?;
    let waiting: Vec<&str> = context
        .configuration
        .servers
        .iter()
        .filter(|server| {
            matches!(context.permission(server), Permission::NeedsApproval | Permission::Changed)
        })
        .map(|server| server.name.as_str())
        .collect();
    if let Some(first) = waiting.first() {
        notice(&format!(
            "Spile does not start a server of a project until you approve it: `spile mcp get {first}`, then `spile mcp approve {first}`"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn get(
    context: &ServerContext,
    server: &ConfiguredServer,
    json: bool,
) -> anyhow::Result<ExitCode> {
    if json {
        let mut out = Vec::new();
        write_server(&mut out, context, server);
        print(&format!("{}\n", Json::from_written_bytes(out)))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&render_record(&details(context, server), &OutputStyle::stdout(), 0))?;
    match context.permission(server) {
        Permission::NeedsApproval | Permission::Changed => {
            notice(&format!("approve it with `spile mcp approve {}`", server.name));
        }
        permission => refusal(server, permission).into_iter().for_each(|(_, help)| notice(&help)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Everything about one server, one fact a line. What waits for an approval is shown in full: `bash -c 'TOKEN=x; …'`
/// looks like a secret, and hiding it would hide what the user is asked to approve.
pub(super) fn details(context: &ServerContext, server: &ConfiguredServer) -> Vec<(String, String)> {
    let is_review = matches!(context.permission(server), Permission::NeedsApproval | Permission::Changed);
    let masked =
        |name: &str, value: &Template| if is_review { value.text().to_owned() } else { masked(name, value) };
    let target =
        |transport: &EntryTransport| if is_review { exact_target(transport) } else { target(transport) };
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |name: &str, value: &str| {
        rows.push((name.to_owned(), sanitize::escape_line(value).into_owned()));
    };
    row("server", &server.name);
    row("tool name prefix", &format!("mcp__{}__…", servers::names::server_part(&server.name)));
    row("scope", server.source.scope.name());
    row("file", &server.source.label());
    row("settings format", server.source.dialect.name());
    row("status", status(server, context.permission(server)));
    match &server.entry {
        Err(error) => row("error", &error.to_string()),
        Ok(entry) => {
            row("type", entry.kind());
            match &entry.transport {
                EntryTransport::Stdio(stdio) => {
                    row("command", &target(&entry.transport));
                    for (name, value) in &stdio.env {
                        row("env", &format!("{name}={}", masked(name, value)));
                    }
                    stdio.inherited_env.iter().for_each(|name| row("inherits", name));
                    stdio.env_file.iter().for_each(|file| row("env file", file.text()));
                    for name in server.env_file.iter().flat_map(|file| &file.names) {
                        row("env file sets", name);
                    }
                    match (&stdio.cwd, &server.source.folder) {
                        (Some(cwd), _) => row("working directory", cwd.text()),
                        (None, Some(folder)) => row("working directory", &folder.display().to_string()),
                        (None, None) => {}
                    }
                }
                EntryTransport::Remote(remote) => {
                    row("url", &target(&entry.transport));
                    for (name, value) in &remote.headers {
                        row("header", &format!("{name}: {}", masked(name, value)));
                    }
                    for (name, variable) in &remote.env_headers {
                        row("header", &format!("{name}: ${{{variable}}}"));
                    }
                    for (name, value) in remote.oauth.facts() {
                        row(name, value);
                    }
                }
            }
            for root in entry.roots.iter().flatten() {
                row("root", root.text());
            }
            if let Some(ms) = entry.call_timeout_ms {
                row("call timeout", &format!("{} s", ms as f64 / 1000.0));
            }
        }
    }
    for lower in &server.shadowed {
        row("overrides", &format!("{} {}", lower.scope.name(), lower.label()));
    }
    rows
}

pub(super) fn files(context: &ServerContext, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        return print_json(context);
    }
    print_problems(context);
    let style = OutputStyle::stdout();
    let mut out = String::new();
    for (source, count) in &context.configuration.sources {
        let won = context.configuration.servers.iter().filter(|server| is_same(&server.source, source));
        let won: Vec<&ConfiguredServer> = won.collect();
        let heading = format!("{} · {}", source.scope.name(), source.label());
        out += &format!("{}\n", style.bold(&sanitize::escape_line(&heading)));
        if *count == 0 {
            out += "  no servers\n";
        }
        for server in &won {
            let shadowed = match server.shadowed.as_slice() {
                [] => String::new(),
                lower => {
                    let lower: Vec<String> =
                        lower.iter().map(|one| format!("{} {}", one.scope.name(), one.label())).collect();
                    format!("; overrides {}", lower.join(", "))
                }
            };
            let text = format!("{}: {}{shadowed}", server.name, status(server, context.permission(server)));
            out += &format!("  {}\n", sanitize::escape_line(&text));
        }
        let hidden = context
            .configuration
            .servers
            .iter()
            .filter(|server| server.shadowed.iter().any(|lower| is_same(lower, source)));
        for server in hidden {
            let text = format!("{}: not used; overridden by {}", server.name, server.source.label());
            out += &format!("  {}\n", style.faint(&sanitize::escape_line(&text)));
        }
    }
    if out.is_empty() {
        notice("no settings file names servers; add one with `spile mcp add`");
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn is_same(a: &ConfigSource, b: &ConfigSource) -> bool {
    a.path == b.path && a.project_key == b.project_key && a.scope == b.scope
}

pub(super) fn print_problems(context: &ServerContext) {
    let all: Vec<Diagnostic> = context
        .configuration
        .problems
        .iter()
        .map(|problem| Diagnostic::warning(sanitize::escape_line(&problem.to_string()).into_owned()))
        .collect();
    print_diagnostics(&all);
}

/// Whether Spile may connect to the server; not whether it responds.
pub(super) fn status(server: &ConfiguredServer, permission: Permission) -> &'static str {
    match permission {
        Permission::Allowed if server.source.scope == ConfigScope::Project => "approved",
        Permission::Allowed => "enabled",
        Permission::NeedsApproval => "not approved",
        Permission::Changed => "changed, not approved",
        Permission::Disabled => "disabled",
        Permission::DisabledInFile if server.disabled_in.is_some() => "disabled in Claude Code",
        Permission::DisabledInFile => "disabled in its file",
        Permission::Invalid => "invalid",
    }
}

/// The command line or the address, as written, with literal secrets masked.
pub(super) fn target(transport: &EntryTransport) -> String {
    match transport {
        EntryTransport::Stdio(stdio) => {
            let words = stdio.args.iter().map(|arg| arg.text());
            let command = words.fold(process::Command::new(stdio.command.text()), process::Command::arg);
            command.to_string()
        }
        EntryTransport::Remote(remote) => redact::address(remote.url.text()).into_owned(),
    }
}

/// The command line, each word in quotes where it needs them, or the address; nothing is masked.
fn exact_target(transport: &EntryTransport) -> String {
    match transport {
        EntryTransport::Stdio(stdio) => {
            let words = std::iter::once(&stdio.command).chain(&stdio.args);
            words.map(|word| banner::shell_quote(word.text())).collect::<Vec<_>>().join(" ")
        }
        EntryTransport::Remote(remote) => remote.url.text().to_owned(),
    }
}

/// A value that is only references to variables is not a secret. Any other is hidden, because only the user knows which are.
fn masked(name: &str, value: &Template) -> String {
    let text = value.text();
    let is_reference = text.contains("${") && !text.contains(":-");
    if is_reference || !redact::is_secret_name(name) { text.to_owned() } else { "***".to_owned() }
}

fn print_json(context: &ServerContext) -> anyhow::Result<ExitCode> {
    let json = Json::object(|out| {
        out.array("servers", &context.configuration.servers, |out, server| {
            write_server(out, context, server);
        });
        out.array("files", &context.configuration.sources, |out, (source, count)| {
            let mut object = ObjectWriter::new(out);
            write_source(&mut object, source);
            object.int("servers", *count as i64);
            object.end();
        });
        out.array("problems", &context.configuration.problems, |out, problem| {
            let mut object = ObjectWriter::new(out);
            object.str("file", &problem.path.to_string_lossy());
            object.maybe_str("server", problem.server.as_deref()).str("message", &problem.message);
            object.end();
        });
    });
    print(&format!("{json}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn write_source(object: &mut ObjectWriter<'_>, source: &ConfigSource) {
    object.str("scope", source.scope.name()).str("file", &source.path.to_string_lossy());
    object.maybe_str("project", source.project_key.as_deref());
}

fn write_server(out: &mut Vec<u8>, context: &ServerContext, server: &ConfiguredServer) {
    let mut object = ObjectWriter::new(out);
    object.str("name", &server.name);
    object.str("tools", &format!("mcp__{}__", servers::names::server_part(&server.name)));
    write_source(&mut object, &server.source);
    object.str("status", status(server, context.permission(server)));
    match &server.entry {
        Err(error) => {
            object.str("error", &error.to_string());
        }
        Ok(entry) => {
            object.str("type", entry.kind());
            match &entry.transport {
                EntryTransport::Stdio(stdio) => {
                    object.str("command", &target(&entry.transport));
                    object.object("env", |out| {
                        for (name, value) in &stdio.env {
                            out.str(name, &masked(name, value));
                        }
                    });
                }
                EntryTransport::Remote(remote) => {
                    object.str("url", &target(&entry.transport));
                    object.object("headers", |out| {
                        for (name, value) in &remote.headers {
                            out.str(name, &masked(name, value));
                        }
                    });
                }
            }
        }
    }
    object.array("overrides", &server.shadowed, |out, lower| {
        let mut object = ObjectWriter::new(out);
        write_source(&mut object, lower);
        object.end();
    });
    object.end();
}

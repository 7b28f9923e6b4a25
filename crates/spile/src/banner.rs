//! The banner of a serving process: its servers, their addresses, and how to connect clients.
//!
//! It goes to stderr, because stdout belongs to the protocol.

use std::fmt::Write;
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use contract::humanize::join_truncated;
use contract::names;
use json::Json;
use json::write::ObjectWriter;
use page::ConnectSnippet;

use crate::client::output_style::OutputStyle;
use crate::layout;
use crate::notice;
use crate::report::version_text;
use crate::sanitize;

/// A server as the banner shows it.
pub(crate) struct ServerSummary {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) tools: Vec<String>,
    /// The arguments after `spile` that start it.
    pub(crate) command: Vec<String>,
    /// Whether its path has its name, also where it is the only server.
    pub(crate) has_named_path: bool,
    /// Sources that are not served.
    pub(crate) unavailable: Vec<String>,
    /// Sources that are served without their write tools.
    pub(crate) read_only: Vec<String>,
}

/// Prints a message of a command to stderr.
pub(crate) fn print_stderr(text: &str) {
    notice::info(text);
}

/// Prints the banner of servers on stdin and stdout.
pub(crate) fn print_stdio_banner(summaries: &[ServerSummary]) {
    if notice::is_json() {
        summaries.iter().for_each(|summary| log_summary(summary, "stdio"));
    } else {
        notice::info(&stdio_banner(summaries));
    }
}

/// Prints the banner of servers at an address or a socket. `headers` are those that clients must send.
pub(crate) fn print_network_banner(
    summaries: &[ServerSummary],
    addresses: &ListenAddresses,
    headers: &[(&str, &str)],
) {
    if !notice::is_json() {
        return notice::info(&network_banner(summaries, addresses, headers));
    }
    for summary in summaries {
        let path = server_path(summary, summaries.len() == 1);
        if let Some(bound) = addresses.address {
            log_summary(summary, &format!("{}://{bound}{path}", addresses.scheme("http")));
        }
        if let Some(socket) = &addresses.socket {
            log_summary(summary, &format!("unix:{}", socket.display()));
        }
    }
}

fn log_summary(summary: &ServerSummary, address: &str) {
    let ServerSummary { name, version, tools, unavailable, .. } = summary;
    let (tools, unavailable) = (tools.len(), unavailable.join(", "));
    tracing::info!(target: notice::TARGET, name, version, tools, address, unavailable, "serving");
}

/// The header that clients must send if a token is required. The token itself is never printed.
pub(crate) const TOKEN_HEADERS: &[(&str, &str)] = &[("Authorization", "Bearer TOKEN")];

/// Where the process listens: an address, a unix socket, or both.
#[derive(Default)]
pub(crate) struct ListenAddresses {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) socket: Option<PathBuf>,
    /// Whether the address needs TLS.
    pub(crate) is_tls: bool,
    /// Whether a browser can open it.
    pub(crate) has_page: bool,
}

impl ListenAddresses {
    fn scheme(&self, plain: &str) -> String {
        if self.is_tls { format!("{plain}s") } else { plain.to_owned() }
    }
}

fn network_banner(
    summaries: &[ServerSummary],
    addresses: &ListenAddresses,
    headers: &[(&str, &str)],
) -> String {
    let mut out = String::new();
    for (index, summary) in summaries.iter().enumerate() {
        if index > 0 {
            let _ = writeln!(out);
        }
        let path = server_path(summary, summaries.len() == 1);
        let socket = addresses.socket.as_ref().map(|path| format!("unix:{}", path.display()));
        match (addresses.address, socket) {
            (Some(bound), socket) => {
                write_summary(&mut out, summary, &format!("{}://{bound}{path}", addresses.scheme("http")));
                let socket = socket.map(|socket| format!(" · {socket}")).unwrap_or_default();
                let _ = writeln!(out, "  WebSocket: {}://{bound}{path}{socket}", addresses.scheme("ws"));
                // One page for all servers.
                if addresses.has_page && index == 0 {
                    let page = format!("{}://{}/", addresses.scheme("http"), connectable_address(bound));
                    let _ = writeln!(out, "  Status page: {page}");
                }
            }
            (None, socket) => write_summary(&mut out, summary, &socket.unwrap_or_default()),
        }
        if summary.command.is_empty() {
            continue;
        }
        let _ = writeln!(out);
        match (addresses.address, &addresses.socket) {
            (Some(bound), _) => {
                let url = format!("{}://{}{path}", addresses.scheme("http"), connectable_address(bound));
                let _ = writeln!(out, "Connect a client ({URL_CLIENTS}; --print shows the entry):");
                if bound.ip().is_unspecified() {
                    let _ = writeln!(out, "  (on another machine, use this machine's name or address)");
                }
                let headers: String =
                    headers.iter().map(|(name, value)| format!(" --header '{name}: {value}'")).collect();
                write_command(
                    &mut out,
                    &format!("spile install CLIENT --url {}{headers}", shell_quote(&url)),
                );
                if let Some(path) = summary.command.last() {
                    write_command(&mut out, &format!("spile install claude-desktop {}", shell_quote(path)));
                }
            }
            (None, Some(socket)) => {
                let _ = writeln!(out, "Connect a client:");
                let socket = shell_quote(&socket.display().to_string());
                write_socket_instructions(&mut out, summary, &socket, &path, headers, summaries.len() == 1);
            }
            (None, None) => {}
        }
    }
    out.trim_end().to_owned()
}

/// The path of a server; a single one has the short path.
fn server_path(summary: &ServerSummary, is_single: bool) -> String {
    transport::http::server_path(&summary.name, is_single && !summary.has_named_path)
}

/// How the usual clients connect to a URL.
pub(crate) fn url_snippets(name: &str, url: &str, headers: &[(&str, &str)]) -> Vec<ConnectSnippet> {
    let (name, quoted_url) = (client_name(name), shell_quote(url));
    let options = |flag: &str| -> String {
        headers.iter().map(|(name, value)| format!(" {flag} '{name}: {value}'")).collect()
    };
    let url_entry = Json::object(|o| {
        o.str("url", url);
        write_headers(o, headers);
    });
    let typed_entry = Json::object(|o| {
        o.str("type", "http").str("url", url);
        write_headers(o, headers);
    });
    let codex = Json::object(|o| write_headers(o, headers));
    let codex_headers: String = codex
        .to_doc()
        .root()
        .get("headers")
        .into_iter()
        .flat_map(|all| all.members())
        .map(|(name, value)| format!("http_headers.{} = {}\n", name.raw(), value.raw()))
        .collect();
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let snippet = |client, place, text| ConnectSnippet { client, place, text };
    vec![
        snippet(
            "Claude Code",
            "in a shell",
            format!("claude mcp add --transport http {name} {quoted_url}{}", options("--header")),
        ),
        snippet("Cursor", "in .cursor/mcp.json", config_entry("mcpServers", &name, &url_entry)),
        snippet("VS Code", "in .vscode/mcp.json", config_entry("servers", &name, &typed_entry)),
        snippet(
            "Codex",
            "in ~/.codex/config.toml",
            format!("[mcp_servers.{name}]\nurl = {}\n{codex_headers}", Json::string(url)),
        ),
        snippet(
            "curl",
            "in a shell",
            format!("curl {quoted_url} -H 'Content-Type: application/json'{} -d '{request}'", options("-H")),
        ),
    ]
}

/// A plain pipe leads to a single server and cannot carry a token; HTTP over the socket does both.
fn write_socket_instructions(
    out: &mut String,
    summary: &ServerSummary,
    socket: &str,
    path: &str,
    headers: &[(&str, &str)],
    is_single: bool,
) {
    let options: String = headers.iter().map(|(name, value)| format!(" -H '{name}: {value}'")).collect();
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let command = format!(
        "curl --unix-socket {socket} http://localhost{path} -H 'Content-Type: application/json'{options} -d '{request}'"
    );
    write_instruction(out, "curl", &command);
    if is_single && headers.is_empty() {
        let command =
            format!("claude mcp add {} -- socat - UNIX-CONNECT:{socket}", client_name(&summary.name));
        write_instruction(out, "Claude Code, and other clients that start a command", &command);
    }
}

/// The address for clients on this machine: the unspecified address cannot be connected to.
fn connectable_address(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

fn write_headers(out: &mut ObjectWriter<'_>, headers: &[(&str, &str)]) {
    if !headers.is_empty() {
        out.object("headers", |out| {
            for (name, value) in headers {
                out.str(name, value);
            }
        });
    }
}

fn stdio_banner(summaries: &[ServerSummary]) -> String {
    let mut out = String::new();
    for summary in summaries {
        write_summary(&mut out, summary, "over stdin and stdout");
        // A client that starts this process shows stderr to no one; a person at a terminal needs the next step.
        if summary.command.is_empty() || !std::io::stdin().is_terminal() {
            continue;
        }
        let _ = writeln!(out);
        let path = summary.command.last().map_or_else(|| "PATH".to_owned(), |path| shell_quote(path));
        let _ = writeln!(out, "Connect a client (claude-desktop, {URL_CLIENTS}; --print shows the entry):");
        write_command(&mut out, &format!("spile install CLIENT {path}"));
        let _ = writeln!(out, "\nWaiting for a client on stdin. To serve over HTTP instead: --http");
    }
    out.trim_end().to_owned()
}

fn write_summary(out: &mut String, summary: &ServerSummary, address: &str) {
    let tools = match &*summary.tools {
        [] => "no tools".to_owned(),
        [only] => format!("1 tool: {only}"),
        // `spile check` lists all of them.
        many => format!("{} tools: {}", many.len(), join_truncated(many, 6)),
    };
    let name = bold(&sanitize::escape_line(&summary.name));
    let address = sanitize::escape_line(address);
    let line = format!("{name} {} · {tools} · {address}", version_text(&summary.version));
    *out += &layout::hanging("", &line, OutputStyle::stderr().columns);
    if !summary.unavailable.is_empty() {
        let names = join_truncated(&summary.unavailable, 6);
        let names = sanitize::escape_line(&names);
        let _ = writeln!(out, "  not available: {names} (see the findings below)");
    }
    if !summary.read_only.is_empty() {
        let names = join_truncated(&summary.read_only, 6);
        let names = sanitize::escape_line(&names);
        let _ = writeln!(out, "  read-only: {names} (see the findings below)");
    }
}

/// The clients that can be given an address, as `spile install` names them.
const URL_CLIENTS: &str = "claude-code, cursor, vscode, codex";

fn write_command(out: &mut String, command: &str) {
    let _ = writeln!(out, "    {}", sanitize::escape_line(command));
}

fn write_instruction(out: &mut String, client: &str, instruction: &str) {
    let _ = writeln!(out, "  {}", faint(client));
    let _ = writeln!(out, "    {}", sanitize::escape_line(instruction));
}

fn config_entry(section: &str, name: &str, entry: &Json) -> String {
    let json = Json::object(|o| {
        o.object(section, |servers| {
            servers.raw(&client_name(name), entry.as_str());
        });
    });
    sanitize::json(json.as_str()).into_owned()
}

/// The name of a server in the settings of a client: ASCII letters, digits, `-` and `_`.
pub(crate) fn client_name(name: &str) -> String {
    if name.chars().all(is_client_name_char) { name.to_owned() } else { names::collection_name(name) }
}

/// Whether every client accepts the character in the name of a server.
pub(crate) fn is_client_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// Quotes a word for a POSIX shell.
pub(crate) fn shell_quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn bold(text: &str) -> String {
    if is_color_enabled() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

fn faint(text: &str) -> String {
    if is_color_enabled() { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
}

/// Whether stderr is a terminal and `NO_COLOR` is not set.
pub(crate) fn is_color_enabled() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

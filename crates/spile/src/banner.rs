//! What a person reads when serving begins: what is served, where, and how to connect a client to it.
//!
//! All of it goes to stderr: stdout belongs to the protocol.

use std::fmt::Write;
use std::io::{IsTerminal, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use contract::humanize::join_truncated;
use contract::names;
use json::Json;
use json::write::ObjectWriter;

/// A server as it is announced.
pub(crate) struct ServerSummary {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) tools: Vec<String>,
    /// The arguments behind `spile` that start it.
    pub(crate) command: Vec<String>,
}

pub(crate) fn print_stderr(text: &str) {
    // Nobody there to read it is no reason not to serve.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// What a caller has to send when it is asked for a token. The token itself is nobody's to print.
pub(crate) const TOKEN_HEADERS: &[(&str, &str)] = &[("Authorization", "Bearer TOKEN")];

/// Where it is served. At least one of the two.
#[derive(Default)]
pub(crate) struct ListenAddresses {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) socket: Option<PathBuf>,
    /// Whether the address is reached under TLS.
    pub(crate) is_tls: bool,
}

impl ListenAddresses {
    fn scheme(&self, plain: &str) -> String {
        if self.is_tls { format!("{plain}s") } else { plain.to_owned() }
    }
}

/// `heads` are those that callers have to send.
pub(crate) fn network_banner(
    all: &[ServerSummary],
    places: &ListenAddresses,
    heads: &[(&str, &str)],
) -> String {
    let mut out = String::new();
    for (at, one) in all.iter().enumerate() {
        if at > 0 {
            let _ = writeln!(out);
        }
        let path =
            if all.len() == 1 { "/mcp".to_owned() } else { format!("/mcp/{}", percent_encode(&one.name)) };
        let socket = places.socket.as_ref().map(|path| format!("unix:{}", path.display()));
        match (places.address, socket) {
            (Some(bound), socket) => {
                write_summary(&mut out, one, &format!("{}://{bound}{path}", places.scheme("http")));
                let socket = socket.map(|socket| format!(" · {socket}")).unwrap_or_default();
                let _ = writeln!(out, "  also {}://{bound}{path}{socket}", places.scheme("ws"));
            }
            (None, socket) => write_summary(&mut out, one, &socket.unwrap_or_default()),
        }
        if one.command.is_empty() {
            continue;
        }
        let _ = writeln!(out);
        match (places.address, &places.socket) {
            (Some(bound), _) => write_url_instructions(
                &mut out,
                one,
                &format!("{}://{}{path}", places.scheme("http"), connectable_address(bound)),
                heads,
            ),
            (None, Some(socket)) => {
                let socket = shell_quote(&socket.display().to_string());
                write_socket_instructions(&mut out, one, &socket, &path, heads, all.len() == 1);
            }
            (None, None) => {}
        }
    }
    out.trim_end().to_owned()
}

fn write_url_instructions(out: &mut String, one: &ServerSummary, url: &str, heads: &[(&str, &str)]) {
    let options: String = heads.iter().map(|(name, value)| format!(" --header '{name}: {value}'")).collect();
    write_instruction(
        out,
        "Claude Code",
        &format!("claude mcp add --transport http {} {url}{options}", client_name(&one.name)),
    );
    let entry = Json::object(|o| {
        o.str("url", url);
        write_headers(o, heads);
    });
    write_instruction(out, "Cursor", &config_entry("mcpServers", &one.name, &entry));
    let entry = Json::object(|o| {
        o.str("type", "http").str("url", url);
        write_headers(o, heads);
    });
    write_instruction(out, "VS Code", &config_entry("servers", &one.name, &entry));
    write_instruction(out, "Claude Desktop", &command_entry("mcpServers", one));
}

/// A pipe leads to one server, and has no place for a token.
fn write_socket_instructions(
    out: &mut String,
    one: &ServerSummary,
    socket: &str,
    path: &str,
    heads: &[(&str, &str)],
    is_one: bool,
) {
    let options: String = heads.iter().map(|(name, value)| format!(" -H '{name}: {value}'")).collect();
    let ask = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let how = format!(
        "curl --unix-socket {socket} http://localhost{path} -H 'Content-Type: application/json'{options} -d '{ask}'"
    );
    write_instruction(out, "curl", &how);
    if is_one && heads.is_empty() {
        let how = format!("claude mcp add {} -- socat - UNIX-CONNECT:{socket}", client_name(&one.name));
        write_instruction(out, "Claude Code, and whatever starts a command", &how);
    }
}

/// How this machine itself gets there: all addresses are none to connect to.
fn connectable_address(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

fn write_headers(out: &mut ObjectWriter<'_>, heads: &[(&str, &str)]) {
    if !heads.is_empty() {
        out.object("headers", |headers| {
            heads.iter().for_each(|(name, value)| {
                headers.str(name, value);
            });
        });
    }
}

pub(crate) fn stdio_banner(all: &[ServerSummary]) -> String {
    let mut out = String::new();
    for one in all {
        write_summary(&mut out, one, "stdin and stdout");
        // A client that starts us shows this to nobody; a person at a terminal wonders what to do next.
        if one.command.is_empty() || !std::io::stdin().is_terminal() {
            continue;
        }
        let _ = writeln!(out);
        let words: Vec<String> = one.command.iter().map(|word| shell_quote(word)).collect();
        let program = shell_quote(&executable_path());
        write_instruction(
            &mut out,
            "Claude Code",
            &format!("claude mcp add {} -- {program} {}", client_name(&one.name), words.join(" ")),
        );
        write_instruction(&mut out, "Claude Desktop, Cursor", &command_entry("mcpServers", one));
        write_instruction(&mut out, "VS Code", &command_entry("servers", one));
        let _ = writeln!(out, "\nWaiting for a client on stdin. To serve over HTTP instead: --http");
    }
    out.trim_end().to_owned()
}

fn write_summary(out: &mut String, one: &ServerSummary, at: &str) {
    let tools = match &*one.tools {
        [] => "no tools".to_owned(),
        [only] => format!("1 tool: {only}"),
        // The rest is in `spile check`.
        many => format!("{} tools: {}", many.len(), join_truncated(many, 6)),
    };
    let name = bold(&one.name);
    let _ = writeln!(out, "{name} {} · {tools} · {at}", one.version);
}

fn write_instruction(out: &mut String, client: &str, how: &str) {
    let _ = writeln!(out, "  {}", faint(client));
    let _ = writeln!(out, "    {how}");
}

fn command_entry(under: &str, one: &ServerSummary) -> String {
    let entry = Json::object(|o| {
        o.str("command", &executable_path());
        o.array("args", &one.command, |out, word| json::write::string(out, word));
    });
    config_entry(under, &one.name, &entry)
}

fn config_entry(under: &str, name: &str, entry: &Json) -> String {
    let json = Json::object(|o| {
        o.object(under, |servers| {
            servers.raw(&client_name(name), entry.as_str());
        });
    });
    json.to_string()
}

/// What clients call a server: they take letters without marks, digits, `-` and `_`.
pub(crate) fn client_name(name: &str) -> String {
    if name.chars().all(is_client_name_char) { name.to_owned() } else { names::collection_name(name) }
}

/// What every client takes in a name.
pub(crate) fn is_client_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// A name as a part of a path (RFC 3986).
fn percent_encode(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// This program, by a path that works from anywhere.
fn executable_path() -> String {
    let own = std::env::current_exe().ok();
    own.map_or_else(|| "spile".to_owned(), |path| path.display().to_string())
}

/// A word as a shell takes it.
fn shell_quote(word: &str) -> String {
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

/// Colour is for people at a terminal who have not asked to be spared.
pub(crate) fn is_color_enabled() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

//! The settings files of each client: text in, servers out.
//!
//! TOML becomes JSON first, so that every client has one reader. An entry that cannot be used is an error of that
//! entry; the other servers of the file are still read.

use json::{Json, Node, NodeKind};
use toml_edit::{DocumentMut, Item, TomlError, Value};

use super::entry::{EntryTransport, RemoteEntry, RemoteKind, ServerEntry, StdioEntry, ToolFilter};
use super::oauth::OAuthSettings;
use super::roots;
use super::template::{Template, VariableSyntax};
use crate::definitions::DefinitionPolicy;
use crate::jsonc;

/// A client whose settings are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `.mcp.json`, `~/.claude.json`, `.claude/settings.json`.
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    VsCode,
    /// `config.toml`.
    Codex,
    /// Our own `servers.json`: the form of Claude Code, and `type` may be left out.
    Spile,
}

/// Which servers of a file are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section<'a> {
    /// Those at the top.
    Top,
    /// Those for one project: `projects.<path>.mcpServers`, as `~/.claude.json` has them.
    Project(&'a str),
}

/// One entry of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedServer {
    pub name: String,
    pub entry: Result<ServerEntry, EntryError>,
}

/// Why an entry cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EntryError(pub String);

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct FileError {
    pub line: usize,
    pub message: String,
}

/// A file has no more servers.
const SERVERS_MAX: usize = 1000;
/// A name is not longer.
const NAME_CHARS_MAX: usize = 200;

impl Dialect {
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Codex => "Codex",
            Self::Spile => "Spile",
        }
    }

    /// The dialect of a file that was named for this run: by its ending and its top key.
    pub fn detect(path: &std::path::Path, text: &str) -> Self {
        if path.extension().is_some_and(|ending| ending == "toml") {
            return Self::Codex;
        }
        let has = |key: &str| jsonc::parse(text).is_ok_and(|json| json.to_doc().root().get(key).is_some());
        if has("servers") && !has("mcpServers") { Self::VsCode } else { Self::Spile }
    }

    fn syntax(self) -> VariableSyntax {
        match self {
            Self::ClaudeCode | Self::Spile => VariableSyntax::Shell,
            Self::Cursor | Self::VsCode => VariableSyntax::Editor,
            Self::ClaudeDesktop | Self::Codex => VariableSyntax::Literal,
        }
    }

    pub(crate) fn servers_key(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor | Self::Spile => "mcpServers",
            Self::VsCode => "servers",
            Self::Codex => "mcp_servers",
        }
    }

    /// All servers of a section, in the order of the file.
    pub fn parse(self, text: &str, section: Section<'_>) -> Result<Vec<ParsedServer>, FileError> {
        let file = match self {
            Self::Codex => parse_toml(text)?,
            _ => jsonc::parse(text)
                .map_err(|error| FileError { line: error.line, message: error.message.to_owned() })?,
        };
        let doc = file.to_doc();
        let root = doc.root();
        let holder = match section {
            Section::Top => Some(root),
            Section::Project(path) => root.get("projects").and_then(|projects| projects.get(path)),
        };
        let key = self.servers_key();
        let Some(servers) = holder.and_then(|holder| holder.get(key)) else { return Ok(Vec::new()) };
        let problem = |message: String| FileError { line: 1, message };
        if !servers.is_object() {
            return Err(problem(format!("`{key}` is not an object with one member for each server")));
        }
        if servers.len() > SERVERS_MAX {
            return Err(problem(format!("`{key}` exceeds the limit of {SERVERS_MAX} servers")));
        }
        let one = |(name, entry): (Node<'_>, Node<'_>)| {
            let name = name.str().unwrap_or_default().into_owned();
            let entry = check_name(&name).and_then(|()| self.parse_entry(entry));
            ParsedServer { name, entry }
        };
        Ok(servers.members().map(one).collect())
    }

    /// One entry, as a file has it.
    pub fn parse_entry(self, entry: Node<'_>) -> Result<ServerEntry, EntryError> {
        self.parse_entry_with(entry, self.syntax())
    }

    /// One entry, with other variables than those of the files.
    pub(super) fn parse_entry_with(
        self,
        entry: Node<'_>,
        syntax: VariableSyntax,
    ) -> Result<ServerEntry, EntryError> {
        let fields = Fields { node: entry, syntax };
        if !entry.is_object() {
            return Err(EntryError("the entry is not an object".to_owned()));
        }
        match self {
            Self::Codex => parse_codex(fields),
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor | Self::VsCode | Self::Spile => {
                self.parse_json(fields)
            }
        }
    }

    fn parse_json(self, fields: Fields<'_>) -> Result<ServerEntry, EntryError> {
        let kind = fields.text("type")?;
        let (command, url) = (fields.text("command")?, fields.text("url")?);
        let transport = match (kind.as_deref(), command, url) {
            (_, Some(_), Some(_)) => {
                return Err(EntryError("it has both `command` and `url`; remove one".to_owned()));
            }
            (Some("stdio") | None, Some(command), None) => {
                EntryTransport::Stdio(fields.stdio(command, self)?)
            }
            (Some("stdio"), None, _) => return Err(fields.missing("command")),
            (None, None, Some(_)) if self == Self::ClaudeCode => {
                return Err(EntryError(
                    "it has a `url` and no `type`; write \"type\": \"http\" (or \"sse\", \"ws\")".to_owned(),
                ));
            }
            (None, None, Some(url)) => EntryTransport::Remote(fields.remote(inferred_kind(&url), url)?),
            (Some(kind), None, Some(url)) => EntryTransport::Remote(fields.remote(remote_kind(kind)?, url)?),
            (Some(kind), Some(_), None) => {
                remote_kind(kind)?;
                return Err(EntryError(format!("the type `{kind}` needs a `url`, not a `command`")));
            }
            (Some(kind), None, None) => {
                remote_kind(kind)?;
                return Err(fields.missing("url"));
            }
            (None, None, None) => return Err(fields.missing_both()),
        };
        let is_disabled = fields.bool("disabled")?.unwrap_or(false);
        let is_enabled = fields.bool("enabled")?.unwrap_or(true);
        Ok(ServerEntry {
            transport,
            is_enabled: is_enabled && !is_disabled,
            call_timeout_ms: fields.milliseconds("timeout", 1)?,
            start_timeout_ms: fields.milliseconds("startupTimeout", 1)?,
            tools: ToolFilter { only: None, except: fields.texts("disabledTools")?.unwrap_or_default() },
            definitions: fields.definitions()?,
            is_shared: fields.bool("shared")?.unwrap_or(false),
            roots: roots::parse(fields)?,
        })
    }
}

pub(super) fn check_name(name: &str) -> Result<(), EntryError> {
    match name.chars().count() {
        0 => Err(EntryError("the name is empty".to_owned())),
        count if count > NAME_CHARS_MAX => {
            Err(EntryError(format!("the name exceeds the limit of {NAME_CHARS_MAX} characters")))
        }
        _ => Ok(()),
    }
}

fn remote_kind(kind: &str) -> Result<RemoteKind, EntryError> {
    match kind {
        "http" | "streamable-http" | "streamableHttp" | "streamable_http" => Ok(RemoteKind::Http),
        "sse" => Ok(RemoteKind::Sse),
        "ws" | "websocket" => Ok(RemoteKind::WebSocket),
        other => Err(EntryError(format!("unknown type `{other}`; supported: stdio, http, sse, ws"))),
    }
}

fn inferred_kind(url: &str) -> RemoteKind {
    if url.starts_with("ws:") || url.starts_with("wss:") { RemoteKind::WebSocket } else { RemoteKind::Http }
}

/// `[mcp_servers.NAME]`
fn parse_codex(fields: Fields<'_>) -> Result<ServerEntry, EntryError> {
    const STDIO_ONLY: &[&str] = &["args", "env", "env_vars", "cwd"];
    const REMOTE_ONLY: &[&str] =
        &["bearer_token_env_var", "http_headers", "env_http_headers", "oauth", "oauth_resource", "scopes"];
    let mixed =
        |keys: &'static [&'static str]| keys.iter().find(|key| fields.node.get(key).is_some()).copied();
    let transport = match (fields.text("command")?, fields.text("url")?) {
        (Some(_), Some(_)) => {
            return Err(EntryError("it has both `command` and `url`; remove one".to_owned()));
        }
        (None, None) => return Err(fields.missing_both()),
        (Some(command), None) => {
            if let Some(key) = mixed(REMOTE_ONLY) {
                return Err(EntryError(format!("`{key}` needs a `url`; this server is a `command`")));
            }
            EntryTransport::Stdio(StdioEntry {
                command: fields.template(command),
                args: fields.templates("args")?,
                env: fields.pairs("env")?,
                inherited_env: fields.variable_names("env_vars")?,
                env_file: None,
                cwd: fields.text("cwd")?.map(|cwd| fields.template(cwd)),
            })
        }
        (None, Some(url)) => {
            if let Some(key) = mixed(STDIO_ONLY) {
                return Err(EntryError(format!("`{key}` needs a `command`; this server is at a `url`")));
            }
            if fields.node.get("bearer_token").is_some() {
                return Err(EntryError(
                    "`bearer_token` would keep a secret in the file; name a variable with \
                     `bearer_token_env_var`"
                        .to_owned(),
                ));
            }
            let mut headers = fields.pairs("http_headers")?;
            if let Some(variable) = fields.text("bearer_token_env_var")? {
                let value = Template::new(format!("Bearer ${{{variable}}}"), VariableSyntax::Shell);
                headers.push(("Authorization".to_owned(), value));
            }
            let env_headers = fields.pairs("env_http_headers")?;
            let oauth = Fields { node: fields.node.get("oauth").unwrap_or(fields.node), ..fields };
            let has_oauth = fields.node.get("oauth").is_some();
            let nested = |key: &str| if has_oauth { oauth.text(key) } else { Ok(None) };
            EntryTransport::Remote(RemoteEntry {
                kind: inferred_kind(&url),
                url: fields.template(url),
                headers,
                env_headers: env_headers
                    .into_iter()
                    .map(|(name, variable)| (name, variable.text().to_owned()))
                    .collect(),
                oauth: OAuthSettings {
                    client_id: nested("client_id")?,
                    callback_port: if has_oauth { oauth.port("callback_port")? } else { None },
                    scopes: fields.texts("scopes")?,
                    resource: fields.text("oauth_resource")?,
                    ..OAuthSettings::default()
                },
            })
        }
    };
    let start_ms = fields.milliseconds("startup_timeout_ms", 1)?;
    Ok(ServerEntry {
        transport,
        is_enabled: fields.bool("enabled")?.unwrap_or(true),
        call_timeout_ms: fields.milliseconds("tool_timeout_sec", 1000)?,
        start_timeout_ms: fields.milliseconds("startup_timeout_sec", 1000)?.or(start_ms),
        tools: ToolFilter {
            only: fields.texts("enabled_tools")?,
            except: fields.texts("disabled_tools")?.unwrap_or_default(),
        },
        definitions: fields.definitions()?,
        is_shared: fields.bool("shared")?.unwrap_or(false),
        roots: roots::parse(fields)?,
    })
}

/// Reads the members of an entry.
#[derive(Clone, Copy)]
pub(super) struct Fields<'d> {
    pub(super) node: Node<'d>,
    pub(super) syntax: VariableSyntax,
}

impl Fields<'_> {
    pub(super) fn template(&self, text: String) -> Template {
        Template::new(text, self.syntax)
    }

    pub(super) fn member(&self, key: &str) -> Option<Node<'_>> {
        self.node.get(key).filter(|node| node.kind() != NodeKind::Null)
    }

    fn wrong(&self, key: &str, expected: &str) -> EntryError {
        EntryError(format!("`{key}` is not {expected}"))
    }

    /// An empty text counts as absent: templates of settings files have `"url": ""`.
    pub(super) fn text(&self, key: &str) -> Result<Option<String>, EntryError> {
        match self.member(key) {
            None => Ok(None),
            Some(node) => match node.str() {
                Some(text) if text.is_empty() => Ok(None),
                Some(text) => Ok(Some(text.into_owned())),
                None => Err(self.wrong(key, "a text")),
            },
        }
    }

    fn bool(&self, key: &str) -> Result<Option<bool>, EntryError> {
        match self.member(key) {
            None => Ok(None),
            Some(node) => node.bool().map(Some).ok_or_else(|| self.wrong(key, "true or false")),
        }
    }

    fn definitions(&self) -> Result<DefinitionPolicy, EntryError> {
        match self.text("definitions")?.as_deref() {
            None => Ok(DefinitionPolicy::default()),
            Some("suspend") => Ok(DefinitionPolicy::SuspendAll),
            Some("warn") => Ok(DefinitionPolicy::Warn),
            Some(other) => {
                Err(EntryError(format!("unknown value `{other}` of `definitions`; supported: suspend, warn")))
            }
        }
    }

    pub(super) fn port(&self, key: &str) -> Result<Option<u16>, EntryError> {
        match self.member(key) {
            None => Ok(None),
            Some(node) => {
                let port = node.u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
                port.map(Some).ok_or_else(|| self.wrong(key, "a port"))
            }
        }
    }

    /// A number of `unit_ms` milliseconds each.
    pub(super) fn milliseconds(&self, key: &str, unit_ms: u64) -> Result<Option<u64>, EntryError> {
        let Some(node) = self.member(key) else { return Ok(None) };
        let number = node.raw().parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= 1e12);
        let ms = number.map(|number| (number * unit_ms as f64).ceil() as u64);
        ms.map(Some).ok_or_else(|| self.wrong(key, "a positive number"))
    }

    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, EntryError> {
        let Some(node) = self.member(key) else { return Ok(None) };
        if node.kind() != NodeKind::Array {
            return Err(self.wrong(key, "a list of texts"));
        }
        let all: Option<Vec<String>> =
            node.elements().map(|one| one.str().map(|text| text.into_owned())).collect();
        all.map(Some).ok_or_else(|| self.wrong(key, "a list of texts"))
    }

    pub(super) fn templates(&self, key: &str) -> Result<Vec<Template>, EntryError> {
        Ok(self.texts(key)?.unwrap_or_default().into_iter().map(|text| self.template(text)).collect())
    }

    /// An object of texts. Numbers and booleans are taken as they are written, and `null` as absent.
    pub(super) fn pairs(&self, key: &str) -> Result<Vec<(String, Template)>, EntryError> {
        let Some(node) = self.member(key) else { return Ok(Vec::new()) };
        if !node.is_object() {
            return Err(self.wrong(key, "an object of texts"));
        }
        let mut pairs = Vec::with_capacity(node.len());
        for (name, value) in node.members() {
            let name = name.str().unwrap_or_default().into_owned();
            let text = match value.kind() {
                NodeKind::Null => continue,
                NodeKind::String => value.str().unwrap_or_default().into_owned(),
                NodeKind::Number | NodeKind::True | NodeKind::False => value.raw().to_owned(),
                NodeKind::Array | NodeKind::Object => {
                    return Err(self.wrong(&format!("{key}.{name}"), "a text"));
                }
            };
            pairs.push((name, self.template(text)));
        }
        Ok(pairs)
    }

    /// Codex: names, or objects with a `name`.
    fn variable_names(&self, key: &str) -> Result<Vec<String>, EntryError> {
        let Some(node) = self.member(key) else { return Ok(Vec::new()) };
        let name = |one: Node<'_>| {
            let one = if one.is_object() { one.get("name")? } else { one };
            one.str().map(|name| name.into_owned())
        };
        let all: Option<Vec<String>> = node.elements().map(name).collect();
        all.filter(|_| node.kind() == NodeKind::Array)
            .ok_or_else(|| self.wrong(key, "a list of variable names"))
    }

    fn stdio(&self, command: String, dialect: Dialect) -> Result<StdioEntry, EntryError> {
        let has_env_file = matches!(dialect, Dialect::Cursor | Dialect::VsCode | Dialect::Spile);
        let env_file = if has_env_file { self.text("envFile")? } else { None };
        Ok(StdioEntry {
            command: self.template(command),
            args: self.templates("args")?,
            env: self.pairs("env")?,
            inherited_env: Vec::new(),
            env_file: env_file.map(|file| self.template(file)),
            cwd: self.text("cwd")?.map(|cwd| self.template(cwd)),
        })
    }

    fn remote(&self, kind: RemoteKind, url: String) -> Result<RemoteEntry, EntryError> {
        if self.member("headersHelper").is_some() {
            return Err(EntryError(
                "`headersHelper` is not supported; write `headers` with ${VARIABLE}, or sign in with OAuth"
                    .to_owned(),
            ));
        }
        Ok(RemoteEntry {
            kind,
            url: self.template(url),
            headers: self.pairs("headers")?,
            env_headers: Vec::new(),
            oauth: OAuthSettings::parse(*self)?,
        })
    }

    fn missing(&self, key: &str) -> EntryError {
        EntryError(format!("`{key}` is missing{}", self.suggestion(&[key])))
    }

    fn missing_both(&self) -> EntryError {
        EntryError(format!("it has neither `command` nor `url`{}", self.suggestion(&["command", "url"])))
    }

    /// Names the key that was probably meant.
    fn suggestion(&self, wanted: &[&str]) -> String {
        let keys: Vec<String> =
            self.node.members().filter_map(|(key, _)| key.str().map(|key| key.into_owned())).collect();
        let near = |key: &&String| {
            wanted.iter().any(|wanted| {
                key.eq_ignore_ascii_case(wanted) || edit_distance(&key.to_lowercase(), wanted) <= 2
            })
        };
        match keys.iter().find(near).filter(|key| !wanted.contains(&key.as_str())) {
            Some(key) => format!("; did you misspell it as `{key}`?"),
            None => String::new(),
        }
    }
}

/// Levenshtein, for short keys.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(32).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().take(32).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn parse_toml(text: &str) -> Result<Json, FileError> {
    let document: DocumentMut = text.parse().map_err(|error: TomlError| {
        let start = error.span().map_or(0, |span| span.start);
        let line = text[..start.min(text.len())].matches('\n').count() + 1;
        FileError { line, message: "this is not TOML".to_owned() }
    })?;
    let mut out = Vec::new();
    write_item(&mut out, document.as_item());
    Ok(Json::from_written_bytes(out))
}

fn write_item(out: &mut Vec<u8>, item: &Item) {
    if let Some(table) = item.as_table_like() {
        let mut object = json::write::ObjectWriter::new(out);
        for (key, value) in table.iter() {
            write_item(object.key(key), value);
        }
        return object.end();
    }
    match item {
        Item::Value(value) => write_value(out, value),
        Item::ArrayOfTables(tables) => json::write::array(out, tables.iter(), |out, table| {
            write_item(out, &Item::Table(table.clone()));
        }),
        Item::None | Item::Table(_) => out.extend_from_slice(b"null"),
    }
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(text) => json::write::string(out, text.value()),
        Value::Integer(number) => json::write::integer(out, *number.value()),
        Value::Float(number) => json::write::number(out, *number.value()),
        Value::Boolean(flag) => out.extend_from_slice(if *flag.value() { b"true" } else { b"false" }),
        Value::Datetime(time) => json::write::string(out, &time.value().to_string()),
        Value::Array(items) => json::write::array(out, items.iter(), write_value),
        Value::InlineTable(table) => {
            let mut object = json::write::ObjectWriter::new(out);
            for (key, value) in table.iter() {
                write_value(object.key(key), value);
            }
            object.end();
        }
    }
}

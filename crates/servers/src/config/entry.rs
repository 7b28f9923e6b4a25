//! One server as a settings file describes it, parsed: what is to be started or connected to.

use std::path::{Path, PathBuf};

use ring::digest;
use spile_core::text::hex;
use upstream::{Target, TargetError, process};

use super::oauth::OAuthSettings;
use super::template::{ExpandError, Template, Variables};
use crate::definitions::DefinitionPolicy;
use crate::private_file;

/// A server of a settings file. Variables in it are not expanded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEntry {
    pub transport: EntryTransport,
    /// Whether the file itself leaves the server on.
    pub is_enabled: bool,
    /// How long a call may take, if the file says so.
    pub call_timeout_ms: Option<u64>,
    /// How long starting and connecting may take, if the file says so.
    pub start_timeout_ms: Option<u64>,
    pub tools: ToolFilter,
    /// What happens to definitions that the user has not approved.
    pub definitions: DefinitionPolicy,
    /// Whether a gateway has one connection to it for all callers, whatever its protocol version.
    pub is_shared: bool,
    /// The folders that the server gets as roots. `None`: those of the client whose call it is.
    pub roots: Option<Vec<Template>>,
}

/// Which tools of the server are offered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolFilter {
    /// `None`: all.
    pub only: Option<Vec<String>>,
    pub except: Vec<String>,
}

impl ToolFilter {
    pub fn offers(&self, tool: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|name| name == tool))
            && !self.except.iter().any(|name| name == tool)
    }

    /// The same for a tool as the server lists it.
    pub fn offers_definition(&self, tool: &json::Json) -> bool {
        let doc = tool.to_doc();
        let name = doc.root().get("name").and_then(|name| name.str());
        name.is_none_or(|name| self.offers(&name))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryTransport {
    Stdio(StdioEntry),
    Remote(RemoteEntry),
}

/// A program to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StdioEntry {
    pub command: Template,
    pub args: Vec<Template>,
    pub env: Vec<(String, Template)>,
    /// Variables of our environment that are passed on where they are set.
    pub inherited_env: Vec<String>,
    pub env_file: Option<Template>,
    pub cwd: Option<Template>,
}

/// A server at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEntry {
    pub kind: RemoteKind,
    pub url: Template,
    pub headers: Vec<(String, Template)>,
    /// Headers with the value of a variable, left out where it is not set.
    pub env_headers: Vec<(String, String)>,
    pub oauth: OAuthSettings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteKind {
    /// Streamable HTTP, with a fallback to HTTP+SSE.
    Http,
    Sse,
    WebSocket,
}

/// What is started or connected to, with every variable replaced.
#[derive(Clone)]
pub enum ResolvedTransport {
    Process(process::Command),
    Remote { target: Target, headers: Vec<(String, String)> },
}

impl ResolvedTransport {
    /// The address of a server that one can sign in to.
    pub fn url(&self) -> Option<&url::Url> {
        match self {
            Self::Remote {
                target: Target::Http(url) | Target::Sse(url) | Target::WebSocket(url), ..
            } => Some(url),
            Self::Remote { target: Target::Unix(_) | Target::HttpUnix { .. }, .. } | Self::Process(_) => None,
        }
    }
}

/// Why a server cannot be started, before anything was started.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("{field}: {error}")]
    Expand { field: String, error: ExpandError },
    #[error("url: {0}")]
    Target(#[from] TargetError),
    #[error("url: `{found}` does not fit the type `{kind}`; expected {expected}")]
    WrongScheme { found: String, kind: &'static str, expected: &'static str },
    #[error("headers: the value of `{name}` contains a character that HTTP does not allow")]
    InvalidHeader { name: String },
    #[error("envFile: cannot read `{path}`: {reason}")]
    EnvFile { path: String, reason: String },
    #[error("envFile: `{path}` has changed since the settings were read; review and approve it again")]
    EnvFileChanged { path: String },
    #[error(
        "envFile: in a file of a project its path cannot contain environment variables: you could not approve its content"
    )]
    EnvFileVariable,
    #[error("roots: `{root}` is not an absolute path or a `file:` URI")]
    Root { root: String },
    #[error("the command is empty")]
    EmptyCommand,
}

/// No file with variables is longer.
const ENV_FILE_BYTES_MAX: u64 = 1 << 20;

impl ServerEntry {
    /// Expands all variables. Reads `envFile`, if there is one, which must be as in `approved`; `folder` is where relative
    /// paths start.
    pub fn resolve(
        &self,
        variables: &Variables<'_>,
        folder: Option<&Path>,
        approved: Option<&EnvFile>,
    ) -> Result<ResolvedTransport, ResolveError> {
        match &self.transport {
            EntryTransport::Stdio(entry) => entry.resolve(variables, folder, approved),
            EntryTransport::Remote(entry) => entry.resolve(variables),
        }
    }

    /// `stdio`, `http`, `sse` or `ws`.
    pub fn kind(&self) -> &'static str {
        match &self.transport {
            EntryTransport::Stdio(_) => "stdio",
            EntryTransport::Remote(remote) => remote.kind.name(),
        }
    }
}

fn expand(field: &str, template: &Template, variables: &Variables<'_>) -> Result<String, ResolveError> {
    template.expand(variables).map_err(|error| ResolveError::Expand { field: field.to_owned(), error })
}

impl StdioEntry {
    fn resolve(
        &self,
        variables: &Variables<'_>,
        folder: Option<&Path>,
        approved: Option<&EnvFile>,
    ) -> Result<ResolvedTransport, ResolveError> {
        let program = expand("command", &self.command, variables)?;
        if program.trim().is_empty() {
            return Err(ResolveError::EmptyCommand);
        }
        let mut command = process::Command::new(program);
        for (index, arg) in self.args.iter().enumerate() {
            command = command.arg(expand(&format!("args[{index}]"), arg, variables)?);
        }
        let cwd = self.cwd.as_ref().map(|cwd| expand("cwd", cwd, variables)).transpose()?;
        let cwd = match (cwd, folder) {
            (Some(cwd), Some(folder)) => Some(folder.join(cwd)),
            (Some(cwd), None) => Some(PathBuf::from(cwd)),
            (None, folder) => folder.map(Path::to_owned),
        };
        for name in &self.inherited_env {
            if let Some(value) = (variables.env)(name) {
                command = command.env(name, value);
            }
        }
        if let Some(file) = &self.env_file {
            if approved.is_some_and(|approved| approved.path.is_none()) {
                return Err(ResolveError::EnvFileVariable);
            }
            for (name, value) in read_env_file(&env_file_path(file, variables, folder)?, approved)? {
                command = command.env(name, value);
            }
        }
        for (name, value) in &self.env {
            command = command.env(name, expand(&format!("env.{name}"), value, variables)?);
        }
        command.cwd = cwd;
        Ok(ResolvedTransport::Process(command))
    }
}

impl RemoteKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Sse => "sse",
            Self::WebSocket => "ws",
        }
    }
}

impl RemoteEntry {
    fn resolve(&self, variables: &Variables<'_>) -> Result<ResolvedTransport, ResolveError> {
        let address = expand("url", &self.url, variables)?;
        let target = self.target(&address)?;
        let mut headers = Vec::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            headers.push((name.clone(), expand(&format!("headers.{name}"), value, variables)?));
        }
        for (name, variable) in &self.env_headers {
            headers.extend((variables.env)(variable).map(|value| (name.clone(), value)));
        }
        // HTTP trims values as well; a token from a file often ends with a line break.
        for (name, value) in &mut headers {
            *value = value.trim().to_owned();
            if value.bytes().any(|c| c < 0x20 && c != b'\t' || c >= 0x7f) {
                return Err(ResolveError::InvalidHeader { name: name.clone() });
            }
        }
        Ok(ResolvedTransport::Remote { target, headers })
    }

    fn target(&self, address: &str) -> Result<Target, ResolveError> {
        let found = Target::parse(&http_unix_address(address))?;
        let wrong = |expected| ResolveError::WrongScheme {
            found: address.split(':').next().unwrap_or_default().to_owned() + ":",
            kind: self.kind.name(),
            expected,
        };
        match (self.kind, found) {
            (RemoteKind::Http, target @ (Target::Http(_) | Target::HttpUnix { .. } | Target::Unix(_))) => {
                Ok(target)
            }
            (RemoteKind::Sse, Target::Http(url)) => Ok(Target::Sse(url)),
            (RemoteKind::WebSocket, target @ Target::WebSocket(_)) => Ok(target),
            // A type `ws` with the address of a web page, which many files have.
            (RemoteKind::WebSocket, Target::Http(mut url)) => {
                let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
                match url.set_scheme(scheme) {
                    Ok(()) => Ok(Target::WebSocket(url)),
                    Err(()) => Err(wrong("ws: or wss:")),
                }
            }
            (RemoteKind::Http, _) => Err(wrong("http: or https:")),
            (RemoteKind::Sse, _) => Err(wrong("http: or https:")),
            (RemoteKind::WebSocket, _) => Err(wrong("ws: or wss:")),
        }
    }
}

/// VS Code writes HTTP on a unix socket as `unix:///path.sock#/mcp`; ours is `http+unix://%2Fpath.sock/mcp`.
fn http_unix_address(address: &str) -> String {
    match address.strip_prefix("unix://").and_then(|rest| rest.split_once('#')) {
        Some((path, below)) => {
            let path = path.replace('%', "%25").replace('/', "%2F").replace(' ', "%20");
            format!("http+unix://{path}/{}", below.trim_start_matches('/'))
        }
        None => address.to_owned(),
    }
}

/// The content of a file with variables, when the settings were read. It decides what a program does (`PATH`,
/// `LD_PRELOAD`, `NODE_OPTIONS`), so the approval of a project's server covers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvFile {
    /// `None` if the path depends on the environment, which nobody can approve.
    pub path: Option<PathBuf>,
    /// Of the whole text; `None` if it cannot be read.
    pub digest: Option<String>,
    /// The names that it sets.
    pub names: Vec<String>,
}

impl EnvFile {
    pub(super) fn read(file: &Template, variables: &Variables<'_>, folder: Option<&Path>) -> Self {
        let path = env_file_path(file, variables, folder).ok();
        let text = path.as_ref().and_then(|path| private_file::read(path, ENV_FILE_BYTES_MAX).ok().flatten());
        let pairs = text.as_deref().and_then(|text| parse_env_file(text).ok()).unwrap_or_default();
        let names = pairs.into_iter().map(|(name, _)| name).collect();
        Self { path, digest: text.as_deref().map(text_digest), names }
    }
}

fn text_digest(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn env_file_path(
    file: &Template,
    variables: &Variables<'_>,
    folder: Option<&Path>,
) -> Result<PathBuf, ResolveError> {
    let path = expand("envFile", file, variables)?;
    Ok(folder.map_or_else(|| PathBuf::from(&path), |folder| folder.join(&path)))
}

fn read_env_file(path: &Path, approved: Option<&EnvFile>) -> Result<Vec<(String, String)>, ResolveError> {
    let failed = |reason: String| ResolveError::EnvFile { path: path.display().to_string(), reason };
    match private_file::read(path, ENV_FILE_BYTES_MAX) {
        Ok(Some(text)) => {
            let digest = text_digest(&text);
            if approved.is_some_and(|approved| approved.digest.as_ref() != Some(&digest)) {
                return Err(ResolveError::EnvFileChanged { path: path.display().to_string() });
            }
            parse_env_file(&text).map_err(failed)
        }
        Ok(None) => Err(failed("file not found".to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// `NAME=value` lines; `#` starts a comment, `export` is allowed, quotes around a value are removed.
fn parse_env_file(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else {
            return Err(format!("line {} is not in the form NAME=value", index + 1));
        };
        let (name, value) = (name.trim(), value.trim());
        let unquoted = ['"', '\'']
            .iter()
            .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote).filter(|_| value.len() >= 2));
        let value = match unquoted {
            Some(inside) => inside,
            None => value.split(" #").next().unwrap_or_default().trim_end(),
        };
        pairs.push((name.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::{http_unix_address, parse_env_file};

    #[test]
    fn an_env_file_is_lines_of_names_and_values() {
        let text = "# keys\nA=1\nexport B = two words \nC=\"a # b\"\nD='x'\nE=y # why\nF=\n\nG=a=b\n";
        let found = parse_env_file(text).expect("valid");
        let shown: Vec<String> = found.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(shown, ["A=1", "B=two words", "C=a # b", "D=x", "E=y", "F=", "G=a=b"]);
        assert_eq!(parse_env_file("A=1\nnothing\n").unwrap_err(), "line 2 is not in the form NAME=value");
    }

    #[test]
    fn a_unix_address_with_a_fragment_is_http() {
        assert_eq!(http_unix_address("unix:///run/a b.sock#/mcp"), "http+unix://%2Frun%2Fa%20b.sock/mcp");
        assert_eq!(http_unix_address("unix:/run/s.sock"), "unix:/run/s.sock");
        assert_eq!(http_unix_address("https://a/#b"), "https://a/#b");
    }
}

//! One server in a client's settings file: what it starts or where it connects, and under which name.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use json::Json;
use toml_edit::{Array, InlineTable, Table, value};

use super::clients::{Client, Scope, TypeMember};
use super::{InstallArgs, print_stderr};
use crate::banner::{client_name, is_client_name_char};
use crate::project::{Project, not_found};

/// An entry as it is found in a settings file.
pub(super) struct InstalledEntry {
    pub(super) name: String,
    pub(super) command: Option<String>,
    pub(super) arguments: Vec<String>,
    pub(super) url: Option<String>,
}

impl InstalledEntry {
    /// Whether `spile install` may have written it for one of these paths or addresses.
    pub(super) fn is_for(&self, spellings: &[String]) -> bool {
        let is_meant = |text: &String| spellings.contains(text);
        let starts = self.command.as_ref().is_some_and(|command| match &*self.arguments {
            [verb, path] => verb == "serve" && is_meant(path) && is_spile(command),
            [] => is_meant(command),
            _ => false,
        });
        starts || self.url.as_ref().is_some_and(is_meant)
    }
}

fn is_spile(command: &str) -> bool {
    Path::new(command).file_stem().is_some_and(|stem| stem == "spile")
}

/// An entry to be written.
pub(super) struct NewEntry {
    pub(super) name: String,
    transport: EntryTransport,
}

enum EntryTransport {
    /// The client starts a program and talks to it over stdin and stdout.
    Stdio {
        command: String,
        arguments: Vec<String>,
        variables: Vec<(String, String)>,
    },
    Http {
        url: String,
        headers: Vec<(String, String)>,
    },
}

impl NewEntry {
    pub(super) fn from_args(args: &InstallArgs) -> anyhow::Result<Self> {
        let (own_name, transport) = match &args.url {
            Some(url) => http_transport(url, args)?,
            None => stdio_transport(args)?,
        };
        let name = match &args.name {
            Some(name) if name.is_empty() || !name.chars().all(is_client_name_char) => {
                bail!("--name: use only ASCII letters, digits, `-` and `_`")
            }
            Some(name) => name.clone(),
            None => client_name(&own_name),
        };
        Ok(Self { name, transport })
    }

    pub(super) fn to_json(&self, types: TypeMember) -> Json {
        Json::object(|entry| match &self.transport {
            EntryTransport::Stdio { command, arguments, variables } => {
                if types == TypeMember::Always {
                    entry.str("type", "stdio");
                }
                entry.str("command", command);
                entry.array("args", arguments, |out, one| json::write::string(out, one));
                write_object(entry, "env", variables);
            }
            EntryTransport::Http { url, headers } => {
                if types != TypeMember::Never {
                    entry.str("type", "http");
                }
                entry.str("url", url);
                write_object(entry, "headers", headers);
            }
        })
    }

    pub(super) fn to_toml(&self) -> Table {
        debug_assert!(self.name.chars().all(is_client_name_char));
        let mut table = Table::new();
        let insert_table = |table: &mut Table, key: &str, pairs: &[(String, String)]| {
            if !pairs.is_empty() {
                let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                table.insert(key, value(pairs.collect::<InlineTable>()));
            }
        };
        match &self.transport {
            EntryTransport::Stdio { command, arguments, variables } => {
                table.insert("command", value(command));
                table.insert("args", value(arguments.iter().collect::<Array>()));
                insert_table(&mut table, "env", variables);
            }
            EntryTransport::Http { url, headers } => {
                table.insert("url", value(url));
                insert_table(&mut table, "http_headers", headers);
            }
        }
        table
    }
}

fn write_object(entry: &mut json::write::ObjectWriter<'_>, key: &str, pairs: &[(String, String)]) {
    if !pairs.is_empty() {
        entry.object(key, |object| {
            for (name, value) in pairs {
                object.str(name, value);
            }
        });
    }
}

fn http_transport(text: &str, args: &InstallArgs) -> anyhow::Result<(String, EntryTransport)> {
    if args.client == Client::ClaudeDesktop {
        bail!(
            "Claude Desktop's settings file cannot name an address; add it under Settings, Connectors, or install \
             the file itself"
        );
    }
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = url.filter(|url| url.has_host()) else {
        bail!("--url: `{text}` is not an address such as http://127.0.0.1:3333/mcp");
    };
    let headers = args.header.iter().map(|text| parse_header(text)).collect::<anyhow::Result<Vec<_>>>()?;
    if args.scope == Scope::Project && !headers.is_empty() {
        print_stderr("note: the headers are written to a file of the project; do not commit a secret");
    }
    // `/mcp/NAME` where one process serves several servers.
    let segment = url.path().split('/').rfind(|segment| !segment.is_empty() && *segment != "mcp");
    let own_name = segment.or(url.host_str()).unwrap_or_default().to_owned();
    Ok((own_name, EntryTransport::Http { url: text.to_owned(), headers }))
}

fn parse_header(text: &str) -> anyhow::Result<(String, String)> {
    // The value may be a secret, so no error repeats it.
    let parts = text.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
    match parts {
        Some((name, value)) if !name.is_empty() && !value.is_empty() && !value.contains(['\r', '\n']) => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => bail!("--header: expected a name, `:` and a value, such as --header \"X-Key: value\""),
    }
}

fn stdio_transport(args: &InstallArgs) -> anyhow::Result<(String, EntryTransport)> {
    let absolute = args.path.canonicalize().map_err(|error| not_found::path_error(&args.path, error))?;
    let variables = args.env.iter().map(|text| parse_variable(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let place = PathStyle::of(args.client, args.scope)?;
    let (own_name, command, arguments, required) = match crate::pack::read_packed_metadata(&absolute)? {
        Some(metadata) => (metadata.name, place.command(&absolute)?, Vec::new(), metadata.variables),
        None => {
            let scan = Project::find(&args.path)?.scan()?;
            crate::print_diagnostics(&scan.diagnostics);
            let Some(compiled) = scan.compiled else {
                bail!("`{}` cannot be served; fix the errors above", args.path.display())
            };
            let required = scan.variables.into_iter().collect();
            let arguments = vec!["serve".to_owned(), place.path(&absolute)?];
            (compiled.contract.name, place.spile()?, arguments, required)
        }
    };
    for name in required {
        if !variables.iter().any(|(given, _)| *given == name) {
            print_stderr(&format!(
                "note: the manifest reads ${{{name}}}, and clients pass only a few variables to servers; add \
                 --env {name}"
            ));
        }
    }
    Ok((own_name, EntryTransport::Stdio { command, arguments, variables }))
}

/// How paths are written in a settings file.
enum PathStyle {
    /// For this machine: absolute paths.
    Machine,
    /// For every machine that has a copy of the project: relative to its folder, in the client's own notation.
    Project { folder: PathBuf, prefix: &'static str },
}

impl PathStyle {
    fn of(client: Client, scope: Scope) -> anyhow::Result<Self> {
        if scope == Scope::User {
            return Ok(Self::Machine);
        }
        let folder = std::env::current_dir().and_then(|folder| folder.canonicalize());
        let folder = folder.context("cannot determine the current folder")?;
        Ok(Self::Project { folder, prefix: client.project_prefix() })
    }

    /// This program. In a project, everyone has their own, on PATH.
    fn spile(&self) -> anyhow::Result<String> {
        match self {
            Self::Machine => {
                let program = std::env::current_exe().context("cannot determine the path of this program")?;
                utf8(&program).map(str::to_owned)
            }
            Self::Project { .. } => {
                if !is_on_path("spile") {
                    print_stderr("note: the entry starts `spile` from PATH, and it is not on PATH here");
                }
                Ok("spile".to_owned())
            }
        }
    }

    fn command(&self, absolute: &Path) -> anyhow::Result<String> {
        let path = self.path(absolute)?;
        // Without a slash it would be looked up on PATH.
        Ok(if path.contains(['/', '\\']) { path } else { format!("./{path}") })
    }

    fn path(&self, absolute: &Path) -> anyhow::Result<String> {
        match self {
            Self::Machine => utf8(absolute).map(str::to_owned),
            Self::Project { folder, prefix } => match project_relative(absolute, folder) {
                Some(relative) => Ok(with_prefix(prefix, &relative)),
                None => {
                    print_stderr(&format!(
                        "note: `{}` is outside the project folder; the entry works only on machines that have it \
                         at this path",
                        absolute.display()
                    ));
                    utf8(absolute).map(str::to_owned)
                }
            },
        }
    }
}

fn utf8(path: &Path) -> anyhow::Result<&str> {
    path.to_str()
        .with_context(|| format!("`{}` is not UTF-8, and settings files are; rename it", path.display()))
}

/// The path below the folder, with `/` on every system; `.` for the folder itself.
fn project_relative(path: &Path, folder: &Path) -> Option<String> {
    let relative = path.strip_prefix(folder).ok()?;
    let parts = relative.components().map(|part| part.as_os_str().to_str()).collect::<Option<Vec<_>>>()?;
    Some(if parts.is_empty() { ".".to_owned() } else { parts.join("/") })
}

fn with_prefix(prefix: &str, relative: &str) -> String {
    match (prefix, relative) {
        ("", relative) => relative.to_owned(),
        (prefix, ".") => prefix.to_owned(),
        (prefix, relative) => format!("{prefix}/{relative}"),
    }
}

fn is_on_path(program: &str) -> bool {
    let file = format!("{program}{}", std::env::consts::EXE_SUFFIX);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| !folder.as_os_str().is_empty() && folder.join(&file).is_file())
}

/// Every way in which `install` may have written this path or address.
pub(super) fn spellings(server: &str) -> anyhow::Result<Vec<String>> {
    let mut spellings = vec![server.to_owned()];
    let path = Path::new(server);
    let absolute = path.canonicalize().or_else(|_| std::path::absolute(path));
    let Ok(absolute) = absolute else { return Ok(spellings) };
    spellings.extend(absolute.to_str().map(str::to_owned));
    let folder = std::env::current_dir().and_then(|folder| folder.canonicalize());
    let folder = folder.context("cannot determine the current folder")?;
    if let Some(relative) = project_relative(&absolute, &folder) {
        spellings.push(format!("./{relative}"));
        spellings.extend(Client::PROJECT_PREFIXES.iter().map(|prefix| with_prefix(prefix, &relative)));
    }
    Ok(spellings)
}

fn parse_variable(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => match std::env::var(text) {
            Ok(value) => (text, value),
            Err(_) => bail!("--env {text}: the variable is not set; use --env {text}=VALUE"),
        },
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        bail!("--env: `{name}` is not a valid variable name");
    }
    Ok((name.to_owned(), value))
}

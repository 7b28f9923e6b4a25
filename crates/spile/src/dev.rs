//! `spile dev`: serve over HTTP, follow every save, and say on stderr what happens.
//!
//! A change that breaks callers is served at once, with a warning: the only caller is whoever made it.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use call::{Reply, Target};
use contract::Contract;
use contract::judge::{Verdict, worst};
use host::{Called, Ending, Observer, Server};

use crate::banner::say;
use crate::lock::lines;
use crate::plain;
use crate::reload::{Breaking, News};
use crate::report::tell;
use crate::serve::{ServeArgs, Service, serve_with, start_logging};
use crate::settings;

/// The first port, unless another is asked for; then the next ones, in case another server of ours is there.
const PORT: u16 = 3333;
const PORTS: u16 = 10;
/// So much of a value is shown.
const VALUE_COLUMNS_MAX: usize = 40;
/// So much of all arguments is shown.
const ARGUMENTS_COLUMNS_MAX: usize = 160;

pub fn dev(path: &Path, args: ServeArgs) -> anyhow::Result<ExitCode> {
    start_logging(&args);
    let (service, found) = Service::from_path(path)?;
    tell(&found);
    let Some(service) = service else { return Ok(ExitCode::FAILURE) };
    let secrets = Arc::new(Secrets::default());
    if let Some(watched) = &service.watched {
        secrets.learn(watched.made().contract());
    }
    let args = somewhere(args)?;
    serve_with(vec![service], &args, |servers| {
        for server in servers {
            server.observe(Arc::new(Log { secrets: secrets.clone() }));
        }
        (Breaking::Served, Box::new(move |server, news| changed(server, news, &secrets)))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Where to listen if nobody says: the first port that is free.
fn somewhere(args: ServeArgs) -> anyhow::Result<ServeArgs> {
    #[cfg(unix)]
    let is_said = args.bind.is_some() || args.http || args.socket.is_some();
    #[cfg(not(unix))]
    let is_said = args.bind.is_some() || args.http;
    if is_said {
        return Ok(args);
    }
    if settings::text("PORT")?.is_some() || settings::text("SPILE_HOST")?.is_some() {
        return Ok(ServeArgs { http: true, ..args });
    }
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let is_free = |port: &u16| TcpListener::bind(at(*port)).is_ok();
    // If none is free, the first says what is the matter.
    let port = (PORT..PORT + PORTS).find(is_free).unwrap_or(PORT);
    if port != PORT {
        say(&format!("port {PORT} is in use; taking {port}"));
    }
    Ok(ServeArgs { bind: Some(at(port)), ..args })
}

/// What a save came to.
fn changed(server: &Server, news: &News<'_>, secrets: &Secrets) {
    let now = clock();
    match news {
        News::Served { contract, differences, found, .. } => {
            secrets.learn(contract);
            tell(found);
            let what = match worst(differences) {
                Verdict::Same => "served; what callers see is the same",
                Verdict::Words | Verdict::Compatible => "served; compatible",
                Verdict::Breaking => "served; breaking: `serve` would have kept the last contract",
            };
            let head = format!("{now}  {} {}  {what}", contract.name, contract.version);
            say(format!("{head}\n{}", lines(differences)).trim_end());
            if contract.name != server.name {
                say(&format!("  the path is still /mcp/{}: a new name needs a restart", server.name));
            }
        }
        News::Unchanged { found, .. } => {
            tell(found);
            say(&format!("{now}  {}  nothing changed", server.name));
        }
        News::Wrong { found } => {
            tell(found);
            say(&format!("{now}  {}  not served; the last good contract stays", server.name));
        }
        // Nothing is refused here.
        News::Refused { differences } => say(&lines(differences)),
    }
}

/// Arguments whose values are nobody's to print.
#[derive(Default)]
struct Secrets(RwLock<Names>);

#[derive(Default)]
struct Names {
    sensitive: HashSet<String>,
    /// What may be printed: where something is sensitive, a name that nobody knows may be a slip for it.
    known: HashSet<String>,
}

impl Secrets {
    /// What is sensitive now; what was sensitive before may still be on its way.
    fn learn(&self, contract: &Contract) {
        let fields = contract.collections.iter().flat_map(|collection| &collection.fields);
        let arguments = contract.statements.iter().flat_map(|one| &one.arguments).map(|one| &one.field);
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for field in fields.chain(arguments) {
            let name = &field.name;
            let all = [name.clone(), format!("{name}_min"), format!("{name}_max")];
            if field.sensitive { names.sensitive.extend(all) } else { names.known.extend(all) }
        }
        let own = ["sort", "fields", "limit", "cursor", "dry_run", "expected_version"];
        names.known.extend(own.map(str::to_owned));
    }

    /// Whether a value is not shown. Words to search for may hold what is sensitive, and so may a key.
    fn has(&self, name: &str) -> bool {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !names.sensitive.is_empty() && (names.sensitive.contains(name) || !names.known.contains(name))
    }
}

/// A line for each call.
struct Log {
    secrets: Arc<Secrets>,
}

impl Observer for Log {
    fn called(&self, called: &Called<'_>) {
        say(&format!("{}  {}", clock(), self.line(called)));
    }
}

impl Log {
    fn line(&self, called: &Called<'_>) -> String {
        let what = match called.call.target {
            Target::Tool => "",
            Target::Prompt => "prompt ",
            Target::Resource => "resource ",
            Target::Completion { .. } => "completion ",
        };
        let name = short(&called.call.name(), VALUE_COLUMNS_MAX);
        let arguments = self.arguments(called);
        let outcome = match &called.ending {
            Ending::Reply(Reply::Tool(reply)) if reply.is_error => {
                let code = reply.structured.as_ref().map(json::Json::doc);
                let code = code.as_ref().and_then(|doc| {
                    doc.root().get("code")?.str().map(|code| short(&code, VALUE_COLUMNS_MAX))
                });
                code.unwrap_or_else(|| "failed".into())
            }
            Ending::Reply(_) => "ok".into(),
            Ending::Asked => "asks the user".into(),
            Ending::Task => "goes on as a task".into(),
            Ending::Fault(fault) => format!("error: {}", short(&fault.to_string(), ARGUMENTS_COLUMNS_MAX)),
            Ending::GivenUp => "given up by the caller".into(),
        };
        let (ms, bytes) = (called.took_ms, called.bytes);
        format!("{what}{name}({arguments})  {outcome}  {ms} ms  {bytes} bytes")
    }

    fn arguments(&self, called: &Called<'_>) -> String {
        let Some(arguments) = called.call.arguments() else { return String::new() };
        let members = arguments.members().map(|(name, value)| {
            let name = name.str().unwrap_or_default();
            let shown = if self.secrets.has(&name) {
                "***".to_owned()
            } else {
                match value.str() {
                    Some(text) => short(&text, VALUE_COLUMNS_MAX),
                    None => short(value.raw(), VALUE_COLUMNS_MAX),
                }
            };
            format!("{}={shown}", short(&name, VALUE_COLUMNS_MAX))
        });
        let all: Vec<String> = members.collect();
        short(&all.join(" "), ARGUMENTS_COLUMNS_MAX)
    }
}

/// One line, not long, and nothing that a terminal would obey.
fn short(text: &str, columns_max: usize) -> String {
    plain::cut(&plain::line(text), columns_max).into_owned()
}

/// The time of day in UTC.
fn clock() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{hour:02}:{minute:02}:{second:02}Z")
}

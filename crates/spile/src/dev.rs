//! `spile dev`: serve over HTTP, follow every save, and say on stderr what happens.
//!
//! A change that breaks callers is served at once, with a warning: the only caller is whoever made it.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use contract::Contract;
use contract::compatibility::{Compatibility, overall_compatibility};
use host::{CallObserver, CallRecord, CallStatus, Server};
use spile_core::{CallResult, CallTarget};

use crate::banner::print_stderr;
use crate::lock::difference_lines;
use crate::reload::{BreakingChangePolicy, ReloadEvent};
use crate::report::print_diagnostics;
use crate::sanitize;
use crate::serve::{ServeArgs, Service, serve_with, start_logging};
use crate::settings;

/// The first port, unless another is asked for; then the next ones, in case another server of ours is there.
const PORT: u16 = 3333;
const PORT_TRIES: u16 = 10;
/// So much of a value is shown.
const VALUE_COLUMNS_MAX: usize = 40;
/// So much of all arguments is shown.
const ARGUMENTS_COLUMNS_MAX: usize = 160;

pub fn dev(path: &Path, args: ServeArgs) -> anyhow::Result<ExitCode> {
    start_logging(&args);
    let (service, found) = Service::from_path(path)?;
    print_diagnostics(&found);
    let Some(service) = service else { return Ok(ExitCode::FAILURE) };
    let secrets = Arc::new(SensitiveNames::default());
    if let Some(watched) = &service.watched {
        secrets.add_contract(watched.build().contract());
    }
    let args = with_default_address(args)?;
    serve_with(vec![service], &args, |servers| {
        for server in servers {
            server.set_observer(Arc::new(CallLogger { sensitive_names: secrets.clone() }));
        }
        (BreakingChangePolicy::ServeNew, Box::new(move |server, news| report_reload(server, news, &secrets)))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Where to listen if nobody says: the first port that is free.
fn with_default_address(args: ServeArgs) -> anyhow::Result<ServeArgs> {
    #[cfg(unix)]
    let is_said = args.bind.is_some() || args.http || args.socket.is_some();
    #[cfg(not(unix))]
    let is_said = args.bind.is_some() || args.http;
    if is_said {
        return Ok(args);
    }
    if settings::env_text("PORT")?.is_some() || settings::env_text("SPILE_HOST")?.is_some() {
        return Ok(ServeArgs { http: true, ..args });
    }
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let is_free = |port: &u16| TcpListener::bind(at(*port)).is_ok();
    // If none is free, the first says what is the matter.
    let port = (PORT..PORT + PORT_TRIES).find(is_free).unwrap_or(PORT);
    if port != PORT {
        print_stderr(&format!("port {PORT} is in use; taking {port}"));
    }
    Ok(ServeArgs { bind: Some(at(port)), ..args })
}

/// What a save came to.
fn report_reload(server: &Server, news: &ReloadEvent<'_>, secrets: &SensitiveNames) {
    let now = utc_time();
    match news {
        ReloadEvent::Applied { contract, differences, diagnostics: found, .. } => {
            secrets.add_contract(contract);
            print_diagnostics(found);
            let what = match overall_compatibility(differences) {
                Compatibility::Same => "served; what callers see is the same",
                Compatibility::TextOnly | Compatibility::Compatible => "served; compatible",
                Compatibility::Breaking => "served; breaking: `serve` would have kept the last contract",
            };
            let head = format!("{now}  {} {}  {what}", contract.name, contract.version);
            print_stderr(format!("{head}\n{}", difference_lines(differences)).trim_end());
            if contract.name != server.name {
                print_stderr(&format!(
                    "  the path is still /mcp/{}: a new name needs a restart",
                    server.name
                ));
            }
        }
        ReloadEvent::Unchanged { diagnostics: found, .. } => {
            print_diagnostics(found);
            print_stderr(&format!("{now}  {}  nothing changed", server.name));
        }
        ReloadEvent::Invalid { diagnostics: found } => {
            print_diagnostics(found);
            print_stderr(&format!("{now}  {}  not served; the last good contract stays", server.name));
        }
        // Nothing is refused here.
        ReloadEvent::Refused { differences } => print_stderr(&difference_lines(differences)),
    }
}

/// Arguments whose values are nobody's to print.
#[derive(Default)]
struct SensitiveNames(RwLock<ArgumentNames>);

#[derive(Default)]
struct ArgumentNames {
    sensitive: HashSet<String>,
    /// What may be printed: where something is sensitive, a name that nobody knows may be a slip for it.
    known: HashSet<String>,
}

impl SensitiveNames {
    /// What is sensitive now; what was sensitive before may still be on its way.
    fn add_contract(&self, contract: &Contract) {
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
    fn is_sensitive(&self, name: &str) -> bool {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !names.sensitive.is_empty() && (names.sensitive.contains(name) || !names.known.contains(name))
    }
}

/// A line for each call.
struct CallLogger {
    sensitive_names: Arc<SensitiveNames>,
}

impl CallObserver for CallLogger {
    fn on_call_finished(&self, called: &CallRecord<'_>) {
        print_stderr(&format!("{}  {}", utc_time(), self.format_call(called)));
    }
}

impl CallLogger {
    fn format_call(&self, called: &CallRecord<'_>) -> String {
        let what = match called.call.target {
            CallTarget::Tool => "",
            CallTarget::Prompt => "prompt ",
            CallTarget::Resource => "resource ",
            CallTarget::Completion { .. } => "completion ",
        };
        let name = shorten(&called.call.name(), VALUE_COLUMNS_MAX);
        let arguments = self.format_arguments(called);
        let outcome = match &called.status {
            CallStatus::Result(CallResult::Tool(reply)) if reply.is_error => {
                let code = reply.structured.as_ref().map(json::Json::to_doc);
                let code = code.as_ref().and_then(|doc| {
                    doc.root().get("code")?.str().map(|code| shorten(&code, VALUE_COLUMNS_MAX))
                });
                code.unwrap_or_else(|| "failed".into())
            }
            CallStatus::Result(_) => "ok".into(),
            CallStatus::InputRequired => "asks the user".into(),
            CallStatus::Task => "goes on as a task".into(),
            CallStatus::Error(fault) => {
                format!("error: {}", shorten(&fault.to_string(), ARGUMENTS_COLUMNS_MAX))
            }
            CallStatus::Cancelled => "given up by the caller".into(),
        };
        let (ms, bytes) = (called.duration_ms, called.response_bytes);
        format!("{what}{name}({arguments})  {outcome}  {ms} ms  {bytes} bytes")
    }

    fn format_arguments(&self, called: &CallRecord<'_>) -> String {
        let Some(arguments) = called.call.arguments() else { return String::new() };
        let members = arguments.members().map(|(name, value)| {
            let name = name.str().unwrap_or_default();
            let shown = if self.sensitive_names.is_sensitive(&name) {
                "***".to_owned()
            } else {
                match value.str() {
                    Some(text) => shorten(&text, VALUE_COLUMNS_MAX),
                    None => shorten(value.raw(), VALUE_COLUMNS_MAX),
                }
            };
            format!("{}={shown}", shorten(&name, VALUE_COLUMNS_MAX))
        });
        let all: Vec<String> = members.collect();
        shorten(&all.join(" "), ARGUMENTS_COLUMNS_MAX)
    }
}

/// One line, not long, and nothing that a terminal would obey.
fn shorten(text: &str, columns_max: usize) -> String {
    sanitize::truncate(&sanitize::escape_line(text), columns_max).into_owned()
}

/// The time of day in UTC.
fn utc_time() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{hour:02}:{minute:02}:{second:02}Z")
}

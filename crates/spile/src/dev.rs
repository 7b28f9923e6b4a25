//! `spile dev`: serve over HTTP, reload on every save, and print reloads and calls to stderr.
//!
//! A change that breaks callers is served at once, with a warning: the only caller is the author.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use contract::Contract;
use contract::compatibility::{Compatibility, overall_compatibility};
use host::{CallObserver, CallRecord, CallStatus, Server};
use script::ReloadReport;
use spile_core::{CallResult, CallTarget};

use crate::author_folder::CodeEvent;
use crate::lock::difference_lines;
use crate::notice;
use crate::reload::{BreakingChangePolicy, ReloadEvent, ReloadListener};
use crate::report::print_diagnostics;
use crate::sanitize;
use crate::serve::{ServeArgs, ServeHooks, Service, StartNotes, serve_with, start_logging};
use crate::settings::{self, EnvNames};

/// The default port. If it is in use, perhaps by another `spile dev`, the next ones are tried.
const PORT: u16 = 3333;
const PORT_TRIES: u16 = 10;
/// An argument value is cut to this width.
const VALUE_COLUMNS_MAX: usize = 40;
/// The arguments of a call together are cut to this width.
const ARGUMENTS_COLUMNS_MAX: usize = 160;

pub fn dev(path: &Path, args: ServeArgs) -> anyhow::Result<ExitCode> {
    start_logging(&args);
    let (service, diagnostics) = Service::from_path_with(path, args.source_failures(), &args.state()?)?;
    let Some(service) = service else {
        print_diagnostics(&diagnostics);
        return Ok(ExitCode::FAILURE);
    };
    let sensitive_names = Arc::new(SensitiveNames::default());
    if let Some(watched) = &service.watched {
        sensitive_names.add_contract(watched.build().contract());
    }
    let args = with_default_address(args, service.env_names)?;
    // The author sees everything.
    let shown = sanitize::escape_line(&crate::project::shown_path(path)).into_owned();
    let about_data = Some(format!("Watching {shown} for changes; every call is printed below."));
    let notes = StartNotes { diagnostics, about_data };
    let on_call: Arc<dyn CallObserver> = Arc::new(CallLogger { sensitive_names: sensitive_names.clone() });
    let on_reload: ReloadListener = Arc::new(move |server: &Server, event: &ReloadEvent<'_>| {
        report_reload(server, event, &sensitive_names);
    });
    let hooks = ServeHooks {
        breaking: BreakingChangePolicy::ServeNew,
        on_reload,
        on_call: Some(on_call),
        on_code: Arc::new(report_code),
        ..ServeHooks::for_serving(&args)
    };
    serve_with(vec![service], Vec::new(), notes, &args, hooks)?;
    Ok(ExitCode::SUCCESS)
}

/// Without an address on the command line or in the environment: the first free port.
fn with_default_address(args: ServeArgs, env_names: EnvNames) -> anyhow::Result<ServeArgs> {
    if args.bind.is_some() || args.http || args.socket().is_some() {
        return Ok(args);
    }
    if settings::env_text("PORT")?.is_some() || env_names.host()?.is_some() {
        return Ok(ServeArgs { http: true, ..args });
    }
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let is_free = |port: &u16| TcpListener::bind(local(*port)).is_ok();
    // If none is free, binding the first one reports the error.
    let port = (PORT..PORT + PORT_TRIES).find(is_free).unwrap_or(PORT);
    if port != PORT {
        notice::info(&format!("port {PORT} is in use; using {port}"));
    }
    Ok(ServeArgs { bind: Some(local(port)), ..args })
}

/// Prints the result of a save.
fn report_reload(server: &Server, event: &ReloadEvent<'_>, sensitive_names: &SensitiveNames) {
    let now = utc_time();
    match event {
        ReloadEvent::Applied { contract, differences, diagnostics, .. } => {
            sensitive_names.add_contract(contract);
            print_diagnostics(diagnostics);
            let result = match overall_compatibility(differences) {
                Compatibility::Same => "reloaded; the contract is unchanged",
                Compatibility::TextOnly | Compatibility::Compatible => "reloaded; compatible",
                Compatibility::Breaking => {
                    "reloaded with breaking changes (`spile serve` would reject them):"
                }
            };
            let head = format!("{now}  {} {}  {result}", contract.name, contract.version);
            notice::info(format!("{head}\n{}", difference_lines(differences)).trim_end());
            if contract.name != server.name {
                notice::info(&format!(
                    "  the path is still /mcp/{}; restart to use the new name",
                    server.name
                ));
            }
        }
        ReloadEvent::Unchanged { diagnostics, .. } => {
            print_diagnostics(diagnostics);
            notice::info(&format!("{now}  {}  reloaded; the contract is unchanged", server.name));
        }
        ReloadEvent::Invalid { diagnostics } => {
            print_diagnostics(diagnostics);
            notice::info(&format!(
                "{now}  {}  change rejected; still serving the previous contract",
                server.name
            ));
        }
        // Does not happen with `ServeNew`.
        ReloadEvent::Rejected { differences } => notice::info(&difference_lines(differences)),
    }
}

/// Prints what happens to code, with the line that is at fault.
fn report_code(event: &CodeEvent<'_>) {
    let now = utc_time();
    let text = match event {
        CodeEvent::Reloaded(report) => {
            let ReloadReport { added, removed, changed_code, changed_definition, prompts, resources } =
                report;
            let lists = [
                ("added", added),
                ("removed", removed),
                ("changed", changed_code),
                ("changed, with another definition", changed_definition),
                ("prompts", prompts),
                ("resources", resources),
            ];
            let lists = lists.iter().filter(|(_, names)| !names.is_empty());
            let parts: Vec<String> =
                lists.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
            if parts.is_empty() {
                return;
            }
            format!("reloaded the code; {}", parts.join("; "))
        }
        CodeEvent::Rejected(difference) => format!("the changed tools are not served: {difference}"),
        CodeEvent::Problem(problem) => format!("the code has a problem\n{problem}"),
        CodeEvent::Failed { name, diagnostic } => format!("{name} failed\n{diagnostic}"),
    };
    notice::info(&sanitize::lines(&format!("{now}  {text}")));
}

/// The arguments whose values are not printed.
#[derive(Default)]
struct SensitiveNames(RwLock<ArgumentNames>);

#[derive(Default)]
struct ArgumentNames {
    sensitive: HashSet<String>,
    /// Arguments that may be printed. An unknown name may be a misspelt sensitive one, so its value is not printed either.
    known: HashSet<String>,
}

impl SensitiveNames {
    /// Adds the names of a contract. Earlier names stay: calls of an older contract may still be running.
    fn add_contract(&self, contract: &Contract) {
        let fields = contract.collections.iter().flat_map(|collection| &collection.fields);
        let arguments = contract.statements.iter().flat_map(|one| &one.arguments).map(|one| &one.field);
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for field in fields.chain(arguments) {
            let name = &field.name;
            let variants = [name.clone(), format!("{name}_min"), format!("{name}_max")];
            if field.sensitive { names.sensitive.extend(variants) } else { names.known.extend(variants) }
        }
        let built_in = ["sort", "fields", "limit", "cursor", "dry_run", "expected_version"];
        names.known.extend(built_in.map(str::to_owned));
    }

    /// Whether to hide a value. Search terms and keys are hidden too where a field is sensitive: they may contain its value.
    fn is_sensitive(&self, name: &str) -> bool {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !names.sensitive.is_empty() && (names.sensitive.contains(name) || !names.known.contains(name))
    }
}

/// Prints one line for each call.
struct CallLogger {
    sensitive_names: Arc<SensitiveNames>,
}

impl CallObserver for CallLogger {
    fn on_call_finished(&self, record: &CallRecord<'_>) {
        notice::info(&format!("{}  {}", utc_time(), self.format_call(record)));
    }
}

impl CallLogger {
    fn format_call(&self, record: &CallRecord<'_>) -> String {
        let kind = match record.call.target {
            CallTarget::Tool => "",
            CallTarget::Prompt => "prompt ",
            CallTarget::Resource => "resource ",
            CallTarget::Completion { .. } => "completion ",
        };
        let name = shorten(&record.call.name(), VALUE_COLUMNS_MAX);
        let arguments = self.format_arguments(record);
        let outcome = match &record.status {
            CallStatus::Result(CallResult::Tool(reply)) if reply.is_error => {
                let code = reply.structured.as_ref().map(json::Json::to_doc);
                let code = code.as_ref().and_then(|doc| {
                    doc.root().get("code")?.str().map(|code| shorten(&code, VALUE_COLUMNS_MAX))
                });
                code.unwrap_or_else(|| "failed".into())
            }
            CallStatus::Result(_) => "ok".into(),
            CallStatus::InputRequired => "asks the user for input".into(),
            CallStatus::Task => "continues as a task".into(),
            CallStatus::Error(error) => {
                format!("error: {}", shorten(&error.to_string(), ARGUMENTS_COLUMNS_MAX))
            }
            CallStatus::Cancelled => "cancelled by the caller".into(),
        };
        let (ms, bytes) = (record.duration_ms, record.response_bytes);
        format!("{kind}{name}({arguments})  {outcome}  {ms} ms  {bytes} bytes")
    }

    fn format_arguments(&self, record: &CallRecord<'_>) -> String {
        let Some(arguments) = record.call.arguments() else { return String::new() };
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
        let pairs: Vec<String> = members.collect();
        shorten(&pairs.join(" "), ARGUMENTS_COLUMNS_MAX)
    }
}

/// One short line without control characters.
fn shorten(text: &str, columns_max: usize) -> String {
    sanitize::truncate(&sanitize::escape_line(text), columns_max).into_owned()
}

/// The time of day in UTC, `14:03:59Z`.
fn utc_time() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{hour:02}:{minute:02}:{second:02}Z")
}

//! What `ctx` can do beyond computing, and what is permitted.
//!
//! [`plan`] turns an effect as the handler issued it into work, or refuses it. The driver performs the work
//! and records its result. What reaches the network or a database is behind traits that the integrator
//! implements.

mod fetch;
mod files;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use json::Json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spile_core::{Caller, InputRequest};

pub use fetch::{HostRule, HttpRequest, HttpResponse, Network, NetworkFuture};
pub(crate) use files::ClientFileWork;
pub use files::{ClientRootAccess, FileRoot};

/// What tools of a folder may do. Nothing is permitted by default.
#[derive(Debug, Clone, Default)]
pub struct Permissions {
    /// Hosts that `ctx.fetch` may reach.
    pub network: Vec<HostRule>,
    /// Folders that `ctx.files` may use.
    pub files: Vec<FileRoot>,
    /// Whether `ctx.files` also uses the roots of the client.
    pub client_roots: Option<ClientRootAccess>,
    /// Environment variables by declared name; `None` is declared but not set.
    pub env: BTreeMap<String, Option<String>>,
    pub secrets: BTreeMap<String, Option<String>>,
    /// Sources that `ctx.sql` may read.
    pub sql: Vec<String>,
}

/// The server's collections and sources, for `ctx.collection` and `ctx.sql`.
pub trait Collections: Send + Sync {
    /// The tool that is this operation of a collection. The call goes through the server like every other one, under the
    /// caller's policy and limits. `Err` says why there is none.
    fn tool(&self, collection: &str, operation: &str) -> Result<String, String>;

    /// Values of a field that start with `prefix`, at most `values_max`: a list of texts.
    fn complete(
        &self,
        caller: &Caller,
        collection: &str,
        field: &str,
        prefix: &str,
        values_max: usize,
    ) -> EffectFuture;

    /// A statement on a permitted source: its text between the values, and the values. The result is a list of rows.
    fn sql(&self, caller: &Caller, source: &str, parts: Vec<String>, values: Vec<Json>) -> EffectFuture;
}

/// The result of an effect: JSON, or why there is none.
pub type EffectFuture = Pin<Box<dyn Future<Output = Result<Json, EffectFailure>> + Send>>;

/// Why an effect failed. The handler sees it as an error that it can catch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectFailure {
    pub message: String,
    /// The error's `name`, if it is not `Error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Box<str>>,
    /// A JSON-RPC error: the handler sees an `McpError`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<Value>>,
    /// The code of a tool error, such as `not_found`: the error's `code`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Box<str>>,
}

impl EffectFailure {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), name: None, code: None, data: None, kind: None }
    }

    /// Refused by what the folder declares.
    pub(crate) fn not_permitted(message: impl Into<String>) -> Self {
        Self { name: Some("PermissionError".into()), ..Self::new(message) }
    }
}

/// What the integrator passes in.
#[derive(Clone, Default)]
pub(crate) struct EffectServices {
    pub(crate) permissions: Arc<Permissions>,
    pub(crate) network: Option<Arc<dyn Network>>,
    pub(crate) collections: Option<Arc<dyn Collections>>,
}

/// An effect, ready to be performed.
pub(crate) enum Work {
    Future(EffectFuture),
    Sleep {
        ms: u64,
    },
    Ask {
        key: String,
        request: InputRequest,
    },
    Tool {
        name: String,
        arguments: Json,
        wanted: Wanted,
    },
    /// A file below the roots of the client, which must be asked for them first.
    ClientFile(ClientFileWork),
    /// From here on the call may be a task.
    Detach,
}

/// What the handler gets of a called tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The whole result, also if it is an error.
    Result,
    /// Its structured content; an error is thrown.
    Data,
}

/// Reads an effect and decides whether it is permitted.
pub(crate) fn plan(
    services: &EffectServices,
    caller: &Caller,
    kind: &str,
    arguments: &str,
) -> Result<Work, EffectFailure> {
    // The text is from `JSON.stringify` in the prelude.
    let value: Value = serde_json::from_str(arguments)
        .map_err(|_| EffectFailure::new("the arguments are too deeply nested"))?;
    let permissions = &services.permissions;
    let work = match kind {
        "sleep" => Work::Sleep { ms: value["ms"].as_f64().unwrap_or_default() as u64 },
        "ask" => plan_question(&value)?,
        "detach" => Work::Detach,
        "tool" => {
            let arguments = to_json(value.get("arguments"))?;
            if !arguments.is_object() {
                return Err(EffectFailure::new("ctx.tool: the arguments must be an object"));
            }
            Work::Tool { name: text(&value, "name"), arguments, wanted: Wanted::Result }
        }
        "fetch" => Work::Future(fetch::plan(permissions, services.network.as_ref(), &value)?),
        "collection" => {
            let collections = services.collections.as_ref();
            let collections =
                collections.ok_or_else(|| EffectFailure::new("this server has no collections"))?;
            let arguments = to_json(value.get("arguments"))?;
            if !arguments.is_object() {
                return Err(EffectFailure::new("ctx.collection: the arguments must be an object"));
            }
            let name = collections.tool(&text(&value, "collection"), &text(&value, "operation"));
            Work::Tool { name: name.map_err(EffectFailure::new)?, arguments, wanted: Wanted::Data }
        }
        "sql" => {
            let collections = services.collections.as_ref();
            let collections = collections.ok_or_else(|| EffectFailure::new("this server has no sources"))?;
            let list = |key: &str| value[key].as_array().cloned().unwrap_or_default();
            let parts =
                list("parts").iter().map(|part| part.as_str().unwrap_or_default().to_owned()).collect();
            let values = list("values").iter().map(sql_value).collect::<Result<_, _>>()?;
            let source = permitted_source(&permissions.sql, value["source"].as_str())?;
            Work::Future(collections.sql(caller, source, parts, values))
        }
        _ => match kind.strip_prefix("files.") {
            Some(operation) => files::plan(permissions, operation, &value)?,
            None => return Err(EffectFailure::new(format!("unknown effect `{kind}`"))),
        },
    };
    Ok(work)
}

/// The source that `ctx.sql` means: the one that is named, or the only one.
fn permitted_source<'p>(permitted: &'p [String], named: Option<&str>) -> Result<&'p str, EffectFailure> {
    let found = match (named, permitted) {
        (Some(name), _) => permitted.iter().find(|one| *one == name),
        (None, [only]) => Some(only),
        (None, [_, _, ..]) => {
            let names = permitted.join("`, `");
            let message = format!(
                "ctx.sql: say which source, as in ctx.sql(\"{}\")`…`; there are `{names}`",
                permitted[0]
            );
            return Err(EffectFailure::new(message));
        }
        (None, []) => None,
    };
    found.map(String::as_str).ok_or_else(|| {
        EffectFailure::not_permitted(match named {
            Some(name) => format!("ctx.sql: the source `{name}` is not named in `permissions.sql`"),
            None => "ctx.sql: `permissions.sql` names no source".to_owned(),
        })
    })
}

fn plan_question(value: &Value) -> Result<Work, EffectFailure> {
    let key = text(value, "key");
    let message = text(value, "message");
    let request = match value["mode"].as_str().unwrap_or_default() {
        "url" => InputRequest::Url { message, url: text(value, "url") },
        "sample" => InputRequest::Sampling { params: to_json(value.get("params"))? },
        "roots" => InputRequest::Roots,
        _ => {
            let schema = to_json(value.get("schema"))?;
            if !schema.is_object() {
                return Err(EffectFailure::new("ctx.elicit: `schema` must be a JSON Schema of an object"));
            }
            InputRequest::Form { message, schema }
        }
    };
    Ok(Work::Ask { key, request })
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// The prelude wraps the digits of a big integer in an object.
fn sql_value(value: &Value) -> Result<Json, EffectFailure> {
    match value.get("bigint").and_then(Value::as_str) {
        Some(digits) => Json::parse(digits)
            .map_err(|error| EffectFailure::new(format!("the arguments are not usable: {error}"))),
        None => to_json(Some(value)),
    }
}

fn to_json(value: Option<&Value>) -> Result<Json, EffectFailure> {
    let text = value.map_or_else(|| "null".to_owned(), Value::to_string);
    Json::parse(&text).map_err(|error| EffectFailure::new(format!("the arguments are not usable: {error}")))
}

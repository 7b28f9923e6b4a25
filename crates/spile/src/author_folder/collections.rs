//! `ctx.collection(name)` and `ctx.sql`: the compiled contract and its sources, for author code and resources.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use content::BackendFuture;
use contract::access::{ClaimProblem, Claims, ItemGrants};
use contract::diagnostic::Diagnostic;
use contract::manifest::Manifest;
use contract::source::{CancelFlag, Source};
use contract::{CompiledSchema, Contract, DataType, ToolOperation};
use host::{ContractProvider, SystemPlatform};
use json::Json;
use script::{Collections, EffectFailure, EffectFuture};
use spile_core::{
    Call, CallContext, CallError, CallResult, Caller, EventSink, ItemKind, Journal, NoTools, Outcome,
    Platform, Provider as _, Run, ToolErrorCode,
};

use super::served_code::ServedCode;
use super::sql;

/// How long reading one record for a resource may take.
const OPERATION_TIMEOUT_MS: u64 = 30_000;

pub(super) fn for_contract(current: CurrentContract) -> Arc<ContractCollections> {
    let platform = Arc::new(SystemPlatform::default());
    Arc::new(ContractCollections { current, platform, prepared_sql: Arc::default() })
}

/// The contract that is served now, its sources, and what its manifest permits. A reload replaces all of it.
#[derive(Clone)]
pub(crate) struct CurrentContract(Arc<Current>);

struct Current {
    served: RwLock<Arc<ServedContract>>,
    code: Mutex<Option<ServedCode>>,
}

/// A contract with its open sources by name.
pub(crate) struct ServedContract {
    pub(crate) provider: Arc<ContractProvider>,
    pub(crate) sources: Vec<(String, Arc<dyn Source>)>,
}

impl CurrentContract {
    pub(crate) fn new(served: ServedContract) -> Self {
        Self(Arc::new(Current { served: RwLock::new(Arc::new(served)), code: Mutex::default() }))
    }

    /// What a role may use of the items that are not in its contract.
    pub(super) fn grants(&self, role: &str) -> Option<ItemGrants> {
        let served = self.get();
        let roles = served.provider.contract().roles.as_ref()?;
        roles.roles.iter().find(|one| one.name == role).map(|one| one.items.clone())
    }

    pub(crate) fn set(&self, served: ServedContract) {
        *self.0.served.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(served);
    }

    fn get(&self) -> Arc<ServedContract> {
        self.0.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_code(&self, code: ServedCode) {
        *self.0.code.lock().unwrap_or_else(PoisonError::into_inner) = Some(code);
    }

    /// Serves author files as the manifest says now: what code may reach, and nothing else; where it runs; resources.
    pub(crate) fn apply_manifest(&self, manifest: &Manifest) -> Vec<Diagnostic> {
        let mut code = self.0.code.lock().unwrap_or_else(PoisonError::into_inner);
        code.as_mut().map(|code| code.apply(manifest)).unwrap_or_default()
    }
}

pub(super) struct ContractCollections {
    current: CurrentContract,
    platform: Arc<dyn Platform>,
    prepared_sql: Arc<sql::PreparedSql>,
}

impl Collections for ContractCollections {
    fn tool(&self, collection: &str, operation: &str) -> Result<String, String> {
        let served = self.current.get();
        let tool = operation_tool(served.provider.contract(), collection, operation)?;
        Ok(tool.name.clone())
    }

    fn complete(
        &self,
        caller: &Caller,
        collection: &str,
        field: &str,
        prefix: &str,
        values_max: usize,
    ) -> EffectFuture {
        let values = self.field_values(caller, collection, field, prefix, values_max);
        Box::pin(async move {
            let values = values.await.map_err(|error| EffectFailure::new(error.to_string()))?;
            let mut out = Vec::new();
            json::write::array(&mut out, &values, |out, value| json::write::string(out, value));
            Ok(Json::from_written_bytes(out))
        })
    }

    fn sql(&self, caller: &Caller, source: &str, parts: Vec<String>, values: Vec<Json>) -> EffectFuture {
        let served = self.current.get();
        let failed = |message: String| -> EffectFuture {
            Box::pin(std::future::ready(Err(EffectFailure::new(format!("ctx.sql: {message}")))))
        };
        let Some((name, opened)) = served.sources.iter().find(|(name, _)| name == source) else {
            return failed(format!("the source `{source}` is not available"));
        };
        let identities = &served.provider.contract().identities;
        let rules = identities.iter().find(|(source, _)| source == name);
        let identity = rules.map(|(_, rules)| rules.bind(&Claims::new(&caller.principal)));
        match identity.transpose() {
            Ok(identity) => {
                let statement = sql::Statement { source: opened.clone(), parts, values, identity };
                sql::run(&self.prepared_sql, statement)
            }
            Err(ClaimProblem { pointer, .. }) => {
                failed(format!("the source `{source}` needs the claim `{pointer}` of the caller"))
            }
        }
    }
}

impl ContractCollections {
    /// Values of a field, in the caller's rows, that start with `prefix`. Dropping the future stops the reading.
    pub(super) fn field_values(
        &self,
        caller: &Caller,
        collection: &str,
        field: &str,
        prefix: &str,
        values_max: usize,
    ) -> BackendFuture<Vec<String>> {
        let provider = self.current.get().provider.clone();
        let (collection, field, prefix) = (collection.to_owned(), field.to_owned(), prefix.to_owned());
        let (caller, cancelled) = (caller.clone(), CancelFlag::default());
        let stop = StopOnDrop(cancelled.clone());
        Box::pin(async move {
            let _stop = stop;
            let read = tokio::task::spawn_blocking(move || {
                provider.field_values(&caller, &collection, &field, &prefix, values_max, &cancelled)
            });
            read.await.unwrap_or_else(|error| Err(CallError::Internal { detail: error.to_string() }))
        })
    }

    /// The record whose key the variables of a URI have.
    pub(super) fn record(
        &self,
        caller: &Caller,
        collection: &str,
        uri: &str,
        variables: &[(String, String)],
    ) -> BackendFuture<Json> {
        let unknown = CallError::UnknownItem { kind: ItemKind::Resource, name: uri.to_owned() };
        let served = self.current.get().provider.clone();
        // Whoever has no role, or a role that may not get the record, does not learn that there is one.
        let Some(provider) = served.of_caller(&caller.principal).cloned() else {
            return Box::pin(std::future::ready(Err(unknown)));
        };
        let is_known = served.contract().collections.iter().any(|one| one.name == collection);
        let found = provider.contract().collections.iter().find(|one| one.name == collection);
        let Some(found) = found else {
            if is_known {
                return Box::pin(std::future::ready(Err(unknown)));
            }
            let detail = format!("there is no collection `{collection}`");
            return Box::pin(std::future::ready(Err(CallError::Internal { detail })));
        };
        let key = Json::object(|object| {
            for name in key_names(found) {
                let field = found.fields.iter().find(|field| field.name == name);
                let value = variables.iter().find(|(variable, _)| variable == name).map(|(_, value)| value);
                if let (Some(field), Some(value)) = (field, value) {
                    // A URI has texts; a number is sent as one where the key is one.
                    match field.data_type {
                        DataType::Integer | DataType::Number if Json::parse(value).is_ok() => {
                            object.raw(name, value);
                        }
                        _ => {
                            object.str(name, value);
                        }
                    }
                }
            }
        });
        let Ok(call) = prepare(provider.contract(), collection, "get", &key) else {
            return Box::pin(std::future::ready(Err(unknown)));
        };
        let record = |outcome: Outcome, unknown: CallError| match outcome {
            Outcome::Done(CallResult::Tool(result)) if !result.is_error => result.structured.ok_or(unknown),
            Outcome::ToolFailed(error) if error.code == ToolErrorCode::NotFound => Err(unknown),
            Outcome::ToolFailed(error) => Err(CallError::Internal { detail: error.message }),
            Outcome::Failed(error) => Err(error),
            Outcome::Done(_) | Outcome::InputRequired(_) | Outcome::Detach(_) => Err(unknown),
        };
        let run = self.run(&provider, caller, &call);
        match run {
            Run::Now(outcome) => Box::pin(std::future::ready(record(outcome, unknown))),
            Run::Later(work) => Box::pin(async move { record(work.await, unknown) }),
        }
    }

    fn run(&self, provider: &ContractProvider, caller: &Caller, call: &Call) -> Run {
        let cx = CallContext {
            caller,
            journal: &Journal::default(),
            events: &EventSink::disabled(),
            platform: &self.platform,
            timeout_ms: OPERATION_TIMEOUT_MS,
            tools: &NoTools,
            request_head: None,
            session: None,
            address: None,
            wants_task: false,
        };
        provider.run(call, &cx)
    }
}

pub(super) struct StopOnDrop(pub(super) CancelFlag);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The fields of the key.
pub(super) fn key_names(collection: &contract::Collection) -> Vec<&str> {
    let key = collection.shape.key.iter();
    key.filter_map(|column| collection.fields.get(*column)).map(|field| field.name.as_str()).collect()
}

/// The call of the tool that is this operation, with valid arguments.
fn prepare(contract: &Contract, collection: &str, operation: &str, arguments: &Json) -> Result<Call, String> {
    let tool = operation_tool(contract, collection, operation)?;
    let schema = CompiledSchema::compile(&tool.input_schema).map_err(|error| error.to_string())?;
    let call = Call::tool(&tool.name, arguments);
    schema.validate(call.arguments()).map_err(|error| error.message)?;
    Ok(call)
}

/// The tool that is this operation.
fn operation_tool<'c>(
    contract: &'c Contract,
    collection: &str,
    operation: &str,
) -> Result<&'c contract::Tool, String> {
    let index = contract.collections.iter().position(|one| one.name == collection);
    let is_it = |tool: &&contract::Tool| {
        index.is_some_and(|index| operation_of(&tool.operation) == Some((index, operation)))
    };
    contract.tools.iter().find(is_it).ok_or_else(|| {
        let known: Vec<&str> = contract.collections.iter().map(|one| one.name.as_str()).collect();
        match index {
            Some(_) => format!("the collection `{collection}` has no operation `{operation}`"),
            None => format!("there is no collection `{collection}`; there are: {}", known.join(", ")),
        }
    })
}

/// The collection and the name of an operation; `None` for statements and requests.
fn operation_of(operation: &ToolOperation) -> Option<(usize, &'static str)> {
    Some((operation.collection()?, operation.operation()?.as_str()))
}

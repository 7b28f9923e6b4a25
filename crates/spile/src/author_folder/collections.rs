//! `ctx.collection(name)`: the operations of the compiled contract.

use std::sync::{Arc, PoisonError, RwLock};

use contract::{CompiledSchema, Contract, ToolOperation};
use host::{ContractProvider, SystemPlatform};
use json::Json;
use script::{Collections, EffectFailure, EffectFuture};
use spile_core::{
    Call, CallContext, CallResult, Caller, EventSink, Journal, NoTools, Outcome, Platform, Provider as _, Run,
};

/// How long one operation may take.
const OPERATION_TIMEOUT_MS: u64 = 30_000;

pub(super) fn for_contract(current: CurrentContract) -> Arc<dyn Collections> {
    Arc::new(ContractCollections { current, platform: Arc::new(SystemPlatform::default()) })
}

/// The contract that is served now. A reload replaces it.
#[derive(Clone)]
pub(crate) struct CurrentContract(Arc<RwLock<Arc<ContractProvider>>>);

impl CurrentContract {
    pub(crate) fn new(provider: Arc<ContractProvider>) -> Self {
        Self(Arc::new(RwLock::new(provider)))
    }

    pub(crate) fn set(&self, provider: Arc<ContractProvider>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = provider;
    }

    fn get(&self) -> Arc<ContractProvider> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct ContractCollections {
    current: CurrentContract,
    platform: Arc<dyn Platform>,
}

impl Collections for ContractCollections {
    fn call(&self, caller: &Caller, collection: &str, operation: &str, arguments: Json) -> EffectFuture {
        let provider = self.current.get();
        let call = match prepare(provider.contract(), collection, operation, &arguments) {
            Ok(call) => call,
            Err(message) => return Box::pin(std::future::ready(Err(EffectFailure::new(message)))),
        };
        let cx = CallContext {
            caller,
            journal: &Journal::default(),
            events: &EventSink::disabled(),
            platform: &self.platform,
            timeout_ms: OPERATION_TIMEOUT_MS,
            tools: &NoTools,
        };
        match provider.run(&call, &cx) {
            Run::Now(outcome) => Box::pin(std::future::ready(outcome_value(outcome))),
            Run::Later(work) => Box::pin(async move { outcome_value(work.await) }),
        }
    }

    fn sql(&self, _: &Caller, _: Option<&str>, _: Vec<String>, _: Vec<Json>) -> EffectFuture {
        let message =
            "ctx.sql is not available; declare the statement as a tool with `sql` and call it with ctx.tool";
        Box::pin(std::future::ready(Err(EffectFailure::new(message))))
    }
}

/// The call of the tool that is this operation, with valid arguments.
fn prepare(contract: &Contract, collection: &str, operation: &str, arguments: &Json) -> Result<Call, String> {
    let index = contract.collections.iter().position(|one| one.name == collection);
    let is_it = |tool: &&contract::Tool| {
        index.is_some_and(|index| operation_of(&tool.operation) == Some((index, operation)))
    };
    let tool = contract.tools.iter().find(is_it).ok_or_else(|| {
        let known: Vec<&str> = contract.collections.iter().map(|one| one.name.as_str()).collect();
        match index {
            Some(_) => format!("the collection `{collection}` has no operation `{operation}`"),
            None => format!("there is no collection `{collection}`; there are: {}", known.join(", ")),
        }
    })?;
    let schema = CompiledSchema::compile(&tool.input_schema).map_err(|error| error.to_string())?;
    let call = Call::tool(&tool.name, arguments);
    schema.validate(call.arguments()).map_err(|error| error.message)?;
    Ok(call)
}

/// The collection and the name of an operation; `None` for statements.
fn operation_of(operation: &ToolOperation) -> Option<(usize, &'static str)> {
    Some(match operation {
        ToolOperation::Get { collection, .. } => (*collection, "get"),
        ToolOperation::List { collection, .. } => (*collection, "list"),
        ToolOperation::Search { collection, .. } => (*collection, "search"),
        ToolOperation::Aggregate { collection, .. } => (*collection, "aggregate"),
        ToolOperation::Create { collection, .. } => (*collection, "create"),
        ToolOperation::Update { collection, .. } => (*collection, "update"),
        ToolOperation::Delete { collection, .. } => (*collection, "delete"),
        ToolOperation::Statement { .. } => return None,
    })
}

/// The structured content of a result.
fn outcome_value(outcome: Outcome) -> Result<Json, EffectFailure> {
    let failed = |message: String| Err(EffectFailure::new(message));
    match outcome {
        Outcome::Done(CallResult::Tool(result)) if !result.is_error => match result.structured {
            Some(json) => Ok(json),
            None => failed("the operation returned no data".into()),
        },
        Outcome::Done(_) => failed("the operation failed".into()),
        Outcome::ToolFailed(error) => failed(error.message),
        Outcome::Failed(error) => failed(error.to_string()),
        Outcome::InputRequired(_) => {
            failed("the operation asks the user; call its tool with ctx.tool instead".into())
        }
        Outcome::Detach(_) => failed("the operation takes too long".into()),
    }
}

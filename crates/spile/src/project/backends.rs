//! Creates what the calls of a contract use: readers, writers, statements and requests.

use contract::diagnostic::Diagnostic;
use contract::manifest::Manifest;
use contract::source::SourceError;
use contract::{Contract, ToolOperation};
use host::ContractBackends;

use super::file_name;
use super::sources::{LoadedSource, Sources, error_message, explain_error};
use super::unavailable::{FailedPart, SourceFailure};

/// Creates the readers, writers and statements of a contract. Only collections that a tool writes to get a writer.
/// Returns the failures beside them; the backends are complete only if there are none. The contract of a role shares the
/// readers of the `whole` one where it reads the same columns.
pub(super) fn build_backends(
    contract: &Contract,
    manifest: &Manifest,
    loaded: &[LoadedSource],
    served: &Sources,
    whole: Option<(&Contract, &ContractBackends)>,
) -> (ContractBackends, Vec<SourceFailure>) {
    let mut failures = Vec::new();
    let source = |name: &str| loaded.iter().find(|one| one.name == name);
    let mut backends = ContractBackends::default();
    for (index, collection) in contract.collections.iter().enumerate() {
        let from = source(&collection.source).expect("the contract was compiled from these sources");
        let declared = manifest.collections.iter().find(|one| one.name.value == collection.name);
        // Most often the key is what a reader cannot use.
        let location = declared.map(|one| one.key.first().map_or(&one.name.location, |key| &key.location));
        let failure = |part: fn(String) -> FailedPart, cause: &SourceError| {
            let file = file_name(from.display_name.as_ref());
            let error = explain_error(&*from.source, Some(&collection.shape), cause, &file);
            let error = match location {
                Some(location) if error.location.is_none() => error.at(location),
                Some(_) | None => error,
            };
            let part = part(collection.name.clone());
            SourceFailure { part, display_name: from.display_name.clone(), error }
        };
        let shared = whole.and_then(|(contract, backends)| {
            let at = contract.collections.iter().position(|one| one.shape == collection.shape)?;
            let reader = backends.readers.get(at)?;
            (contract.collections[at].source == collection.source).then_some((at, reader, backends))
        });
        if let Some((at, reader, backends_of_whole)) = shared {
            let writer = backends_of_whole.writers.get(at).cloned().flatten();
            backends.readers.push(reader.clone());
            backends.writers.push(writer.filter(|_| is_collection_written(contract, index)));
            continue;
        }
        // A source that has become unreadable creates no reader, but the one that is served still reports its errors.
        let kept = from.stale.as_ref().and_then(|_| served.kept_collection(collection));
        match (from.source.reader(&collection.shape), kept) {
            (Ok(reader), _) => backends.readers.push(reader),
            (Err(_), Some(kept)) => backends.readers.push(kept.reader.clone()),
            (Err(cause), None) => {
                failures.push(failure(FailedPart::Collection, &cause));
                continue;
            }
        }
        let writer = is_collection_written(contract, index).then(|| from.source.writer(&collection.shape));
        match (writer.transpose(), kept) {
            (Ok(writer), _) => backends.writers.push(writer),
            (Err(_), Some(kept)) => backends.writers.push(kept.writer.clone()),
            (Err(cause), None) => failures.push(failure(FailedPart::Writes, &cause)),
        }
    }
    for statement in &contract.statements {
        let from = source(&statement.source).expect("the contract was compiled from these sources");
        let kept = from.stale.as_ref().and_then(|_| served.kept_statement(statement));
        match (from.source.prepare(&statement.shape), kept) {
            (Ok(prepared), _) => backends.statements.push(prepared),
            (Err(_), Some(kept)) => backends.statements.push(kept),
            (Err(cause), None) => failures.push(tool_failure(manifest, from, &statement.result.name, &cause)),
        }
    }
    for request in &contract.requests {
        let from = source(&request.source).expect("the contract was compiled from these sources");
        let kept = from.stale.as_ref().and_then(|_| served.kept_request(request));
        match (from.source.prepare_request(&request.shape), kept) {
            (Ok(prepared), _) => backends.requests.push(prepared),
            (Err(_), Some(kept)) => backends.requests.push(kept),
            (Err(cause), None) => failures.push(tool_failure(manifest, from, &request.result.name, &cause)),
        }
    }
    (backends, failures)
}

/// A statement or a request that cannot be prepared.
fn tool_failure(manifest: &Manifest, from: &LoadedSource, name: &str, cause: &SourceError) -> SourceFailure {
    let error = Diagnostic::error(error_message(cause, &file_name(from.display_name.as_ref())));
    let tool = manifest.tools.iter().find(|tool| tool.name.value == name);
    SourceFailure {
        part: FailedPart::Tool(name.to_owned()),
        display_name: from.display_name.clone(),
        error: tool.map_or(error.clone(), |tool| error.at(&tool.name.location)),
    }
}

/// Whether a tool writes to this collection.
pub(super) fn is_collection_written(contract: &Contract, index: usize) -> bool {
    contract.tools.iter().any(|tool| match &tool.operation {
        ToolOperation::Create { collection, .. }
        | ToolOperation::Update { collection, .. }
        | ToolOperation::Delete { collection } => *collection == index,
        ToolOperation::Get { .. }
        | ToolOperation::List { .. }
        | ToolOperation::Search { .. }
        | ToolOperation::Aggregate { .. }
        | ToolOperation::Statement { .. }
        | ToolOperation::Request { .. } => false,
    })
}

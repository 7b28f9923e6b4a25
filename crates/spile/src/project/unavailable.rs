//! Sources that cannot be read or written: the rest of the project is served without them.

use contract::diagnostic::{Diagnostic, FileLocation, Severity};
use contract::manifest::{self, DeclaredLink, Manifest, Operation, ToolBody};
use host::UnavailableSource;

use super::sources::{LoadedSource, SourceSpec};

/// What a scan does with a source that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SourceFailurePolicy {
    /// The scan fails: for commands that write down or pack a contract, and with `--strict`.
    #[default]
    Fail,
    /// The scan leaves out what depends on the source and reports it, as long as something is left to serve.
    Skip,
}

/// A source that could not be opened, or whose reader or writer could not be created.
#[derive(Debug, Clone)]
pub(super) struct SourceFailure {
    pub(super) part: FailedPart,
    /// The name that the user knows the source by.
    pub(super) display_name: String,
    pub(super) error: Diagnostic,
}

/// What cannot be served because of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FailedPart {
    /// Everything in a source.
    Source(String),
    /// One collection.
    Collection(String),
    /// The write operations of one collection.
    Writes(String),
    /// One operation of a collection.
    Operation(String, Operation),
    /// A tool with a statement.
    Tool(String),
}

impl SourceFailure {
    pub(super) fn of_source(spec: &SourceSpec<'_>, error: Diagnostic) -> Self {
        let part = FailedPart::Source(spec.name.into());
        Self { part, display_name: spec.display_name.into(), error }
    }

    /// The failure as a warning about what is left out.
    pub(super) fn warning(&self) -> Diagnostic {
        let Self { part, display_name, error } = self;
        let reason = self.reason();
        let message = match part {
            FailedPart::Source(_) => format!("`{display_name}` is not served: {reason}"),
            FailedPart::Collection(name) => {
                format!("collection `{name}` of `{display_name}` is not served: {reason}")
            }
            FailedPart::Writes(name) => {
                format!("collection `{name}` of `{display_name}` is served read-only: {reason}")
            }
            FailedPart::Operation(name, operation) => {
                let operation = operation.as_str();
                format!("`{operation}` of collection `{name}` in `{display_name}` is not served: {reason}")
            }
            FailedPart::Tool(name) => format!("tool `{name}` on `{display_name}` is not served: {reason}"),
        };
        Diagnostic { severity: Severity::Warning, message, code: Some("unavailable"), ..error.clone() }
    }

    /// The failure of a source that is served, but cannot be read now.
    pub(super) fn stale_warning(&self) -> Diagnostic {
        let message = format!("`{}` cannot be read: {}", self.display_name, self.reason());
        Diagnostic { message, ..self.warning() }
    }

    pub(super) fn unavailable(&self) -> UnavailableSource {
        // A collection that cannot be read is one of several in its source, or the whole scan has failed.
        let is_readable = !matches!(self.part, FailedPart::Source(_));
        UnavailableSource { name: self.display_name.clone(), reason: self.reason(), is_readable }
    }

    /// The message of the error, without the name of the file where that comes first.
    fn reason(&self) -> String {
        let name = &self.display_name;
        let message = &self.error.message;
        let file = name.rsplit('/').next().unwrap_or(name);
        for quoted in [format!("`{name}`"), format!("`{file}`")] {
            if let Some(rest) = message.strip_prefix(&format!("{quoted} ")) {
                // `line 2 has 3 fields` has a subject of its own.
                let verb = rest.split(' ').next().unwrap_or(rest);
                return if VERBS.contains(&verb) { format!("it {rest}") } else { rest.to_owned() };
            }
            if let Some(rest) = message.strip_prefix(&format!("cannot read {quoted}: ")) {
                return rest.to_owned();
            }
        }
        message.clone()
    }
}

/// The verbs that follow the name of a file in messages about it.
const VERBS: [&str; 10] = ["is", "has", "does", "cannot", "was", "looks", "exceeds", "names", "needs", "no"];

/// Removes the failed parts from a manifest. Returns whether something is left to serve; if not, the manifest stays as
/// it was.
pub(super) fn remove_failed(manifest: &mut Manifest, failures: &[SourceFailure]) -> bool {
    let mut rest = manifest.clone();
    for failure in failures {
        match &failure.part {
            FailedPart::Source(source) => {
                rest.sources.retain(|one| one.name.value != *source);
                let gone: Vec<String> = rest
                    .collections
                    .iter()
                    .filter(|one| one.source.value == *source)
                    .map(|one| one.name.value.clone())
                    .collect();
                gone.iter().for_each(|collection| remove_collection(&mut rest, collection));
                rest.tools.retain(|tool| match &tool.body {
                    ToolBody::Statement(statement) => statement.source.value != *source,
                    ToolBody::Request(request) => request.source.value != *source,
                    ToolBody::Uses(_) => true,
                });
            }
            FailedPart::Collection(collection) => remove_collection(&mut rest, collection),
            FailedPart::Writes(collection) => remove_operations(&mut rest, collection, is_write),
            FailedPart::Operation(collection, refused) => {
                remove_operations(&mut rest, collection, |operation| operation == *refused);
            }
            FailedPart::Tool(name) => rest.tools.retain(|tool| tool.name.value != *name),
        }
    }
    let has_statement =
        rest.tools.iter().any(|tool| matches!(tool.body, ToolBody::Statement(_) | ToolBody::Request(_)));
    let is_servable = has_statement || !rest.collections.is_empty();
    if is_servable {
        *manifest = rest;
    }
    is_servable
}

fn remove_collection(manifest: &mut Manifest, collection: &str) {
    manifest.collections.retain(|one| one.name.value != collection);
    let leads_there =
        |link: &DeclaredLink| link.collection.as_ref().is_some_and(|target| target.value == collection);
    for other in &mut manifest.collections {
        other.related.retain(|link| !leads_there(link));
    }
    manifest.tools.retain(|tool| match &tool.body {
        ToolBody::Uses(uses) => uses.value.collection != collection,
        ToolBody::Statement(_) | ToolBody::Request(_) => true,
    });
}

fn remove_operations(manifest: &mut Manifest, collection: &str, is_removed: impl Fn(Operation) -> bool) {
    let Some(found) = manifest.collections.iter_mut().find(|one| one.name.value == collection) else {
        return;
    };
    if let Some(operations) = &mut found.operations {
        operations.retain(|operation| !is_removed(operation.value));
        if operations.is_empty() {
            return remove_collection(manifest, collection);
        }
    }
    manifest.tools.retain(|tool| match &tool.body {
        ToolBody::Uses(uses) => uses.value.collection != collection || !is_removed(uses.value.operation),
        ToolBody::Statement(_) | ToolBody::Request(_) => true,
    });
}

fn is_write(operation: Operation) -> bool {
    match operation {
        Operation::Get | Operation::List | Operation::Search | Operation::Aggregate => false,
        Operation::Create | Operation::Update | Operation::Delete => true,
    }
}

/// Collections that the manifest writes to although their table is read-only.
pub(super) fn read_only_failures(manifest: &Manifest, loaded: &[LoadedSource]) -> Vec<SourceFailure> {
    let mut failures = Vec::new();
    for collection in &manifest.collections {
        let uses_writes = manifest.tools.iter().find_map(|tool| match &tool.body {
            ToolBody::Uses(uses)
                if uses.value.collection == collection.name.value && is_write(uses.value.operation) =>
            {
                Some(&uses.location)
            }
            ToolBody::Uses(_) | ToolBody::Statement(_) | ToolBody::Request(_) => None,
        });
        let declared = collection.operations.iter().flatten().find(|one| is_write(one.value));
        let Some(location) = declared.map(|one| &one.location).or(uses_writes) else { continue };
        let Some(source) = loaded.iter().find(|one| one.name == collection.source.value) else { continue };
        let wanted = collection.table.as_ref().unwrap_or(&collection.name);
        let table = match source.facts.tables.as_slice() {
            [only] => Some(only),
            tables => tables.iter().find(|table| table.name == wanted.value),
        };
        let Some(table) = table else { continue };
        let name = &collection.name.value;
        let failure = |part, reason: &str, location| SourceFailure {
            part,
            display_name: source.display_name.clone(),
            error: Diagnostic::error(reason).at(location),
        };
        if let Some(reason) = table.read_only_reason() {
            failures.push(failure(FailedPart::Writes(name.clone()), reason, location));
            continue;
        }
        for (refused, reason) in &table.refused_operations {
            if let Some(location) = operation_location(manifest, collection, *refused) {
                let part = FailedPart::Operation(name.clone(), *refused);
                failures.push(failure(part, reason, location));
            }
        }
    }
    failures
}

/// Where the manifest asks for an operation of a collection.
fn operation_location<'m>(
    manifest: &'m Manifest,
    collection: &'m manifest::Collection,
    operation: Operation,
) -> Option<&'m FileLocation> {
    let declared = collection.operations.iter().flatten().find(|one| one.value == operation);
    let mut tools = manifest.tools.iter();
    declared.map(|one| &one.location).or_else(|| {
        tools.find_map(|tool| match &tool.body {
            ToolBody::Uses(uses)
                if uses.value.collection == collection.name.value && uses.value.operation == operation =>
            {
                Some(&uses.location)
            }
            ToolBody::Uses(_) | ToolBody::Statement(_) | ToolBody::Request(_) => None,
        })
    })
}

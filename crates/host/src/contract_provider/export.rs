//! A list or an aggregate that was cut, as a whole: a link to a resource, and reading it.
//!
//! The link is all there is: its id is the sealed request (tool, arguments, expiry), bound to the principal. Every replica
//! with the keys can read it, and nothing is kept until someone does. Reading it runs the list again, on the data as it is
//! then, after the host has let the caller call that tool once more.

use std::sync::Arc;

use contract::bind::AggregateArguments;
use contract::field::Field;
use contract::results::{ExportError, ExportFormat, ExportLimits, ExportWriter};
use contract::source::{GroupRow, Query, RowFlow};
use contract::{Collection, DataType, ToolOperation, Value, ValueRef, bind};
use json::{Doc, Json, Node};
use spile_core::{
    Call, CallContext, CallError, CallResult, Caller, ItemKind, Journal, Outcome, Platform, Resource,
    ResourceContents, ResourceResult, ResourceTemplate, Run, ToolError, ToolErrorCode,
};
use state::keyring::{OpenError, Purpose, digest_parts};

use super::error::{record_error_outcome, source_error_outcome};
use super::links::LinkedArguments;
use super::{BlockingContext, CancelOnDrop, ContractProvider, ProviderInner};

const URI_PREFIX: &str = "spile://export/";
/// How long a link can be read.
const EXPORT_TTL_MS: u64 = 15 * 60 * 1000;
pub(super) const EXPORT_LIMITS: ExportLimits = ExportLimits { rows_max: 100_000, bytes_max: 8 << 20 };
/// Every link passes through the model's context, so a list with longer arguments has none.
const ARGUMENTS_BYTES_MAX: usize = 512;
const FORMAT_VERSION: u8 = 1;
const DIGEST_BYTES: usize = 8;

/// What the id of an export stands for.
struct ExportRequest<'a> {
    expires_ms: u64,
    /// Of the columns and the key: the arguments mean the same for the same shape only.
    shape_digest: [u8; DIGEST_BYTES],
    tool: &'a str,
    /// As JSON, without cursor and limit.
    arguments: &'a str,
}

impl<'a> ExportRequest<'a> {
    fn encode(&self) -> Option<Vec<u8>> {
        let mut out = vec![FORMAT_VERSION];
        out.extend_from_slice(&self.expires_ms.to_be_bytes());
        out.extend_from_slice(&self.shape_digest);
        out.push(u8::try_from(self.tool.len()).ok()?);
        out.extend_from_slice(self.tool.as_bytes());
        out.extend_from_slice(self.arguments.as_bytes());
        Some(out)
    }

    fn decode(bytes: &'a [u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&[FORMAT_VERSION])?;
        let (expires_ms, rest) = rest.split_first_chunk()?;
        let (shape_digest, rest) = rest.split_first_chunk()?;
        let (tool_bytes, rest) = rest.split_first()?;
        let (tool, arguments) = rest.split_at_checked(usize::from(*tool_bytes))?;
        Some(Self {
            expires_ms: u64::from_be_bytes(*expires_ms),
            shape_digest: *shape_digest,
            tool: std::str::from_utf8(tool).ok()?,
            arguments: std::str::from_utf8(arguments).ok()?,
        })
    }
}

/// For the catalog of a contract that has lists.
pub(super) fn resource_template() -> ResourceTemplate {
    ResourceTemplate {
        uri_template: format!("{URI_PREFIX}{{id}}"),
        name: "export".into(),
        title: Some("Whole list".into()),
        description: Some(
            "All rows of a list, or all groups, that a result was cut to; from the link in it. Ends in .csv or .jsonl.".into(),
        ),
        mime_type: None,
        ..ResourceTemplate::default()
    }
}

/// What a list says in place of a link that could only fail.
pub(super) fn no_export_notice() -> String {
    format!(
        "An export has at most {} rows, so there is no link to all of these; add filters, or ask for an aggregate.",
        EXPORT_LIMITS.rows_max
    )
}

impl ProviderInner {
    /// A link to all rows of a list that was called with these arguments.
    pub(super) fn export_link(
        &self,
        index: usize,
        call: &Call,
        caller: &Caller,
        platform: &dyn Platform,
    ) -> Option<Resource> {
        let tool = &self.contract.tools[index];
        let (ToolOperation::List { collection, .. } | ToolOperation::Aggregate { collection, .. }) =
            &tool.operation
        else {
            return None;
        };
        // An export has the rows of one collection; who asked for linked rows must know that they are not in it.
        let has_include = call.arguments().is_some_and(|arguments| arguments.get("include").is_some());
        let arguments = without_paging(call.arguments());
        if arguments.as_str().len() > ARGUMENTS_BYTES_MAX {
            return None;
        }
        let request = ExportRequest {
            expires_ms: platform.now_ms() + EXPORT_TTL_MS,
            shape_digest: self.export_digest(*collection, caller),
            tool: &tool.name,
            arguments: arguments.as_str(),
        };
        let id = self.keyring.seal(Purpose::Export, principal_binding(caller), &request.encode()?, platform);
        let format = ExportFormat::Csv;
        Some(Resource {
            uri: format!("{URI_PREFIX}{id}.{}", format.extension()),
            name: format!("{}.{}", self.contract.collections[*collection].name, format.extension()),
            description: Some(format!(
                "All rows{}, for 15 minutes; as JSON Lines with .jsonl instead of .csv",
                if has_include { " without the linked ones" } else { "" }
            )),
            mime_type: Some(format.mime_type().into()),
            ..Resource::default()
        })
    }

    /// What the link of an export is bound to: the columns, the key, and the caller's rows.
    fn export_digest(&self, collection: usize, caller: &Caller) -> [u8; DIGEST_BYTES] {
        let shape = &self.shape_digests[collection];
        match self.rows_digest(collection, caller) {
            None => short_digest(shape),
            Some(rows) => short_digest(&digest_parts(&[shape, &rows])),
        }
    }

    fn read_rows(
        &self,
        index: usize,
        arguments: &Doc,
        format: ExportFormat,
        uri: &str,
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Result<Outcome, Box<ToolError>> {
        let operation = &self.contract.tools[index].operation;
        if let ToolOperation::Aggregate { collection, filters } = operation {
            let scope = bind::Scope::new(&self.contract.collections, *collection);
            let bound = bind::aggregate(scope, filters, Some(arguments.root()))?;
            return Ok(self.export_groups(*collection, &bound, format, uri, blocking, platform));
        }
        let ToolOperation::List { collection: collection_index, filters, sorts } = operation else {
            return Ok(unknown(uri));
        };
        let (collection, reader) =
            (&self.contract.collections[*collection_index], self.reader(*collection_index, &blocking.caller));
        let scope = bind::Scope::new(&self.contract.collections, *collection_index);
        let listing = bind::list(scope, filters, sorts, Some(arguments.root()))?;
        let linked = LinkedArguments {
            filters: listing.filters.linked(),
            sort: &listing.sort,
            ..LinkedArguments::default()
        };
        let followed = match self.follow_links(*collection_index, &linked, blocking, platform) {
            Ok(followed) => followed,
            Err(outcome) => return Ok(*outcome),
        };
        let all = collection.fields.iter().enumerate();
        let fields = match &listing.projection {
            Some(projection) => all.filter(|(at, _)| projection.fields.contains(at)).collect(),
            None => all.collect(),
        };
        let mut writer = ExportWriter::new(fields, format, EXPORT_LIMITS);
        let (sort, sort_links) = followed.sort(&listing.sort);
        let query = Query {
            filters: listing.filters.filters().into_iter().chain(followed.filters()).collect(),
            sort,
            sort_links,
            after: None,
            rows_max: EXPORT_LIMITS.rows_max + 1,
            cancelled: Some(&blocking.cancelled),
            progress: Some(&blocking.rows_scanned),
        };
        if let Err(error) = reader.list(&query, &mut |cells, _| writer.push(cells)) {
            return Ok(source_error_outcome(&error, collection, platform));
        }
        Ok(finish(writer, format, uri, collection, platform))
    }

    /// All groups of an aggregate.
    fn export_groups(
        &self,
        index: usize,
        arguments: &AggregateArguments<'_>,
        format: ExportFormat,
        uri: &str,
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Outcome {
        let selected = match self.select_groups(index, arguments, EXPORT_LIMITS.rows_max, blocking, platform)
        {
            Ok(selected) => selected,
            Err(outcome) => return *outcome,
        };
        // A sum may have more digits than its type, and is then a text.
        let field = |(name, kind): (&String, &DataType)| {
            let mut field = Field::new(name, name, *kind);
            (field.nullable, field.mixed) = (true, true);
            field
        };
        let fields: Vec<Field> = arguments.names.iter().zip(&arguments.kinds).map(field).collect();
        let mut writer = ExportWriter::new(fields.iter().enumerate().collect(), format, EXPORT_LIMITS);
        for GroupRow(values) in &selected.rows {
            let cells: Vec<ValueRef<'_>> = values.iter().map(Value::as_value_ref).collect();
            if writer.push(&cells) == RowFlow::Stop {
                break;
            }
        }
        finish(writer, format, uri, &self.contract.collections[index], platform)
    }
}

/// The export as a resource, if it is within its limits.
fn finish(
    writer: ExportWriter<'_>,
    format: ExportFormat,
    uri: &str,
    collection: &Collection,
    platform: &dyn Platform,
) -> Outcome {
    let too_large = |limit: String| {
        let message = format!("this exceeds the limit of an export, {limit}; narrow its filters");
        Outcome::from(ToolError::new(ToolErrorCode::TooLarge, message))
    };
    match writer.finish() {
        Ok(text) => {
            let (uri, mime_type) = (uri.to_owned(), Some(format.mime_type().to_owned()));
            let contents = vec![ResourceContents::Text { uri, mime_type, text, meta: None }];
            CallResult::Resource(ResourceResult { contents, ttl_ms: 0, public: false }).into()
        }
        Err(ExportError::TooManyRows) => too_large(format!("{} rows", EXPORT_LIMITS.rows_max)),
        Err(ExportError::TooManyBytes) => too_large(format!("{} MiB", EXPORT_LIMITS.bytes_max >> 20)),
        Err(ExportError::Record(error)) => record_error_outcome(&error, collection, platform),
    }
}

impl ContractProvider {
    /// Reads an export: first as the list with one row, so that permissions and rate limits of the tool apply, then all
    /// rows.
    pub(super) fn read_export(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let uri = call.name().into_owned();
        let Some((id, format)) = parse_uri(&uri) else { return Run::Now(unknown(&uri)) };
        let now_ms = cx.platform.now_ms();
        let opened = self.0.keyring.open(Purpose::Export, principal_binding(cx.caller), id, now_ms);
        let payload = match opened {
            Ok(payload) => payload,
            Err(OpenError::KeyExpired(_)) => {
                let message = "the server's keys have changed since this link was made; repeat the call that returned it";
                return Run::now(ToolError::new(ToolErrorCode::NotFound, message));
            }
            // Of another principal, of another server, or invented: all the same to the caller.
            Err(OpenError::UnknownKey(_) | OpenError::Mismatch | OpenError::Malformed) => {
                return Run::Now(unknown(&uri));
            }
        };
        let Some(request) = ExportRequest::decode(&payload) else { return Run::Now(unknown(&uri)) };
        let index = self.0.tool_index.get(request.tool).copied();
        let is_same_shape = |index: &usize| match &self.0.contract.tools[*index].operation {
            ToolOperation::List { collection, .. } | ToolOperation::Aggregate { collection, .. } => {
                self.0.export_digest(*collection, cx.caller) == request.shape_digest
            }
            _ => false,
        };
        let refused = |reason: &str| {
            let message = format!("{reason}; call {} again for a new link", request.tool);
            Run::now(ToolError::new(ToolErrorCode::NotFound, message))
        };
        if now_ms >= request.expires_ms {
            return refused("the export has expired");
        }
        let Some(index) = index.filter(is_same_shape) else {
            return refused("the columns have changed since this link was made");
        };
        let arguments = Json::parse(request.arguments);
        let Ok(arguments) = arguments else { return Run::Now(unknown(&uri)) };
        let probe = with_limit_one(&arguments);
        let probe = cx.tools.call_tool(request.tool, probe, Journal::default());
        let blocking = Arc::new(BlockingContext::new(cx));
        let cancel_on_drop = CancelOnDrop(blocking.clone());
        let (inner, platform) = (self.0.clone(), cx.platform.clone());
        Run::later(async move {
            if let Some(refused) = refusal(probe.await) {
                return refused;
            }
            let arguments = arguments.to_doc();
            let work = tokio::task::spawn_blocking(move || {
                inner.read_rows(index, &arguments, format, &uri, &blocking, &*platform)
            });
            let joined = work.await;
            drop(cancel_on_drop);
            match joined {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(error)) => Outcome::ToolFailed(error),
                Err(error) => Outcome::Failed(CallError::Internal { detail: error.to_string() }),
            }
        })
    }
}

/// Why the caller may not list the rows now; `None` if it may.
fn refusal(probe: Outcome) -> Option<Outcome> {
    match probe {
        Outcome::Done(result) if !result.is_error() => None,
        Outcome::Done(CallResult::Tool(result)) => {
            let text = result.structured.as_ref().map(Json::to_doc);
            let message = text.as_ref().and_then(|doc| doc.root().get("message")?.str());
            let message = message.map_or_else(|| "the list is refused".to_owned(), |text| text.into_owned());
            Some(ToolError::new(ToolErrorCode::Forbidden, message).into())
        }
        Outcome::Done(_) | Outcome::InputRequired(_) | Outcome::Detach(_) => {
            Some(ToolError::new(ToolErrorCode::Forbidden, "the list cannot be exported").into())
        }
        refused @ (Outcome::ToolFailed(_) | Outcome::Failed(_)) => Some(refused),
    }
}

fn parse_uri(uri: &str) -> Option<(&str, ExportFormat)> {
    let (id, extension) = uri.strip_prefix(URI_PREFIX)?.rsplit_once('.')?;
    let format = ExportFormat::ALL.into_iter().find(|format| format.extension() == extension)?;
    Some((id, format))
}

fn unknown(uri: &str) -> Outcome {
    Outcome::Failed(CallError::UnknownItem { kind: ItemKind::Resource, name: uri.to_owned() })
}

fn principal_binding(caller: &Caller) -> &[u8] {
    caller.principal.id().as_bytes()
}

fn short_digest(digest: &[u8; 32]) -> [u8; DIGEST_BYTES] {
    let mut short = [0; DIGEST_BYTES];
    short.copy_from_slice(&digest[..DIGEST_BYTES]);
    short
}

/// The arguments of a list that choose a page, or add to its rows. No column has these names.
const PAGING: [&str; 3] = ["cursor", "limit", "include"];

fn without_paging(arguments: Option<Node<'_>>) -> Json {
    Json::object(|out| {
        for (name, value) in arguments.into_iter().flat_map(|arguments| arguments.members()) {
            let name = name.str().unwrap_or_default();
            if !PAGING.contains(&&*name) {
                out.raw(&name, value.raw());
            }
        }
    })
}

fn with_limit_one(arguments: &Json) -> Json {
    let doc = arguments.to_doc();
    Json::object(|out| {
        for (name, value) in doc.root().members() {
            out.raw(&name.str().unwrap_or_default(), value.raw());
        }
        out.raw("limit", "1");
    })
}

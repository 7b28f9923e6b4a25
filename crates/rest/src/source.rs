//! A REST API as a source of tables.

use std::sync::Arc;

use contract::diagnostic::Diagnostic;
use contract::manifest::rest::{CollectionEndpoints, RestSettings, WriteEndpoint};
use contract::request::RequestShape;
use contract::source::{
    ColumnFacts, PreparedRequest, Reader, RestUrl, Source, SourceError, SourceFacts, TableFacts,
    TableOptions, TableShape, WriteCapabilities, WriteSupport, Writer,
};

use crate::client::RestClient;
use crate::limits::CallLimits;
use crate::pages::{self, Extent, ListRead, ReadBounds, RecordKeys};
use crate::reader::{CollectionReader, resolve_filters};
use crate::request::ToolRequest;
use crate::response::incompatible;
use crate::writer::CollectionWriter;

/// All pages of a list together are no larger than so many responses.
const RESPONSES_PER_READ: usize = 16;

/// What a source is made of.
pub struct RestOptions {
    pub url: RestUrl,
    /// With the path of its CA file resolved.
    pub settings: RestSettings,
    pub collections: Vec<RestCollection>,
    /// How the fields of tools with requests are read, by the name of the tool.
    pub requests: Vec<(String, TableOptions)>,
}

/// A collection as its author declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestCollection {
    pub name: String,
    pub endpoints: CollectionEndpoints,
    /// Empty: they are learnt from the first page of the list.
    pub columns: Vec<ColumnFacts>,
    /// Names of columns.
    pub key: Vec<String>,
    /// Columns with another name for callers.
    pub names: Vec<(String, String)>,
    pub options: TableOptions,
}

/// One API.
pub struct RestSource {
    client: Arc<RestClient>,
    settings: RestSettings,
    collections: Vec<RestCollection>,
    requests: Vec<(String, TableOptions)>,
}

impl RestSource {
    /// Sends nothing yet.
    pub fn new(options: RestOptions) -> Result<Self, SourceError> {
        let RestOptions { url, settings, collections, requests } = options;
        let base = url.as_str().parse().map_err(|error: url::ParseError| {
            incompatible("the URL of the API is not valid", error.to_string())
        })?;
        let client = RestClient::new(base, &settings)
            .map_err(|reason| incompatible(format!("the API cannot be used: {reason}"), reason))?;
        Ok(Self { client: Arc::new(client), settings, collections, requests })
    }

    fn collection(&self, name: &str) -> Result<&RestCollection, SourceError> {
        self.collections.iter().find(|one| one.name == name).ok_or_else(|| {
            let message = format!("the source has no collection `{name}`");
            incompatible(message.clone(), message)
        })
    }

    fn bounds(&self) -> ReadBounds {
        ReadBounds {
            pages_max: self.settings.pages_max as usize,
            rows_max: self.settings.read_rows_max as usize,
            bytes_max: (self.settings.response_bytes_max as usize).saturating_mul(RESPONSES_PER_READ),
        }
    }

    /// The declared columns, or those of a sample.
    fn columns(&self, collection: &RestCollection) -> Result<Vec<ColumnFacts>, SourceError> {
        if !collection.columns.is_empty() {
            return Ok(collection.columns.clone());
        }
        let Some(list) = &collection.endpoints.list else {
            let message =
                format!("`{}` declares no fields, and has no list to learn them from", collection.name);
            return Err(incompatible(message.clone(), message));
        };
        let limits = CallLimits::new(None, Some(self.settings.timeout_ms.saturating_mul(3)));
        let read = ListRead {
            client: &self.client,
            name: &collection.name,
            endpoint: list,
            parameters: Vec::new(),
            options: &collection.options,
            bounds: self.bounds(),
            keys: &RecordKeys::default(),
            extent: Extent::FirstPage,
        };
        let rows = pages::read_list(&read, &limits)?;
        let facts = rows.facts()?;
        let columns = facts.tables.into_iter().next().map(|table| table.columns).unwrap_or_default();
        if columns.is_empty() {
            let message = format!(
                "the list of `{}` has no records now, so that its fields are unknown; declare them in `fields`",
                collection.name
            );
            return Err(incompatible(message.clone(), message));
        }
        // Other records may lack what these have, and have other values.
        let column = |column: ColumnFacts| ColumnFacts {
            nullable: !collection.key.contains(&column.name),
            distinct_values: Vec::new(),
            near_miss: None,
            ..column
        };
        Ok(columns.into_iter().map(column).collect())
    }

    fn table_facts(&self, collection: &RestCollection) -> Result<TableFacts, SourceError> {
        let columns = self.columns(collection)?;
        let is_named = |name: &String, column: &ColumnFacts| {
            column.name == *name || collection.names.iter().any(|(of, own)| own == name && *of == column.name)
        };
        let position = |name: &String| columns.iter().position(|column| is_named(name, column));
        let key: Option<Vec<usize>> = collection.key.iter().map(position).collect();
        Ok(TableFacts {
            key: key.unwrap_or_default(),
            key_is_declared: true,
            row_count: None,
            write_support: write_support(&collection.endpoints),
            ..TableFacts::new(&collection.name, columns)
        })
    }

    fn collection_reader(&self, shape: &TableShape) -> Result<CollectionReader, SourceError> {
        let collection = self.collection(&shape.table)?;
        let pushed = match &collection.endpoints.list {
            Some(list) => resolve_filters(list, shape, &collection.names)?,
            None => Vec::new(),
        };
        Ok(CollectionReader {
            client: Arc::clone(&self.client),
            endpoints: collection.endpoints.clone(),
            keys: RecordKeys::new(shape, &collection.options),
            shape: shape.clone(),
            options: collection.options.clone(),
            bounds: self.bounds(),
            pushed,
        })
    }
}

/// What can be done with writes: as much as every endpoint can.
fn write_support(endpoints: &CollectionEndpoints) -> WriteSupport {
    let CollectionEndpoints { create, update, delete, .. } = endpoints;
    let all = || [create, update, delete].into_iter().flatten();
    if all().next().is_none() {
        return WriteSupport::read_only("the manifest declares no endpoint that writes");
    }
    let mut capabilities = WriteCapabilities::NONE;
    if all().all(|endpoint| endpoint.idempotency_header.is_some()) {
        capabilities = capabilities.with(WriteCapabilities::IDEMPOTENCY);
    }
    // Only these ask the user.
    if [update, delete].into_iter().flatten().all(WriteEndpoint::is_repeatable) {
        capabilities = capabilities.with(WriteCapabilities::REPEATABLE);
    }
    WriteSupport::Supported(capabilities)
}

impl Source for RestSource {
    /// Asks the API only for collections without declared fields.
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        let tables: Result<Vec<TableFacts>, SourceError> =
            self.collections.iter().map(|collection| self.table_facts(collection)).collect();
        Ok(SourceFacts { tables: tables?, reads_texts: true, ..SourceFacts::default() })
    }

    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        Ok(Arc::new(self.collection_reader(shape)?))
    }

    fn writer(&self, shape: &TableShape) -> Result<Arc<dyn Writer>, SourceError> {
        let reader = Arc::new(self.collection_reader(shape)?);
        let columns = &self.collection(&shape.table)?.columns;
        let read_only = columns.iter().filter(|column| column.read_only_reason.is_some());
        let read_only = read_only.map(|column| column.name.clone()).collect();
        Ok(Arc::new(CollectionWriter { reader, read_only }))
    }

    fn prepare_request(&self, request: &RequestShape) -> Result<Arc<dyn PreparedRequest>, SourceError> {
        let options = self.requests.iter().find(|(name, _)| *name == request.table.table);
        Ok(Arc::new(ToolRequest {
            client: Arc::clone(&self.client),
            shape: request.clone(),
            options: options.map(|(_, options)| options.clone()).unwrap_or_default(),
        }))
    }

    /// The last request had no answer, or an endpoint fails again and again. Sends nothing.
    fn diagnose(&self, _shape: Option<&TableShape>) -> Option<Diagnostic> {
        self.client.failure().map(Diagnostic::error)
    }

    fn take_suspicion(&self) -> bool {
        self.client.take_change()
    }
}

//! Answers questions about a collection of an API from the rows that were read, with the engine of files.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use contract::manifest::rest::{CollectionEndpoints, GetEndpoint, ListEndpoint};
use contract::source::{
    Aggregate, CancelFlag, Comparison, Filter, Groups, ProgressUnit, Query, ReadRequest, Reader, RowFlow,
    RowPosition, Search, SearchOutcome, SourceError, TableOptions, TableShape, Total, required_filters,
};
use contract::{DataType, ValueRef};
use json::Json;
use source::MemoryRows;

use crate::client::{RestClient, SendFailure};
use crate::limits::CallLimits;
use crate::pages::{self, Extent, ListRead, ReadBounds, RecordKeys, Records, reading};
use crate::render::{self, TypedValue, Values, append_query};
use crate::response::{self, Refusal, incompatible};

/// So many records are read one by one; for more, the list is faster.
const KEYS_MAX: usize = 50;

/// Reads one collection.
pub(crate) struct CollectionReader {
    pub(crate) client: Arc<RestClient>,
    pub(crate) endpoints: CollectionEndpoints,
    pub(crate) shape: TableShape,
    pub(crate) options: TableOptions,
    pub(crate) bounds: ReadBounds,
    pub(crate) keys: RecordKeys,
    /// Filters that the API understands.
    pub(crate) pushed: Vec<PushedFilter>,
}

/// A filter that becomes a parameter of the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PushedFilter {
    /// The index in the shape's columns.
    pub(crate) column: usize,
    pub(crate) comparison: Comparison,
    pub(crate) parameter: String,
}

/// The suffixes of arguments that filter a list, and what they mean.
const SUFFIXES: [(&str, Comparison); 4] = [
    ("_min", Comparison::AtLeast),
    ("_max", Comparison::AtMost),
    ("_contains", Comparison::Contains),
    ("_starts", Comparison::StartsWith),
];

/// What the declared filters of a list mean. `names` are the columns' names for callers, by column name.
pub(crate) fn resolve_filters(
    endpoint: &ListEndpoint,
    shape: &TableShape,
    names: &[(String, String)],
) -> Result<Vec<PushedFilter>, SourceError> {
    let find = |name: &str| {
        let own = names.iter().find(|(_, own)| own == name).map_or(name, |(column, _)| column);
        shape.columns.iter().position(|column| column.name == own)
    };
    let resolve = |(name, parameter): &(String, String)| {
        let suffixed = || {
            SUFFIXES
                .iter()
                .find_map(|(suffix, comparison)| Some((find(name.strip_suffix(suffix)?)?, *comparison)))
        };
        let found = find(name).map(|column| (column, Comparison::Equals)).or_else(suffixed);
        let (column, comparison) = found.ok_or_else(|| {
            let message = format!("the list has a filter `{name}`, which is not a field of the collection");
            incompatible(message.clone(), message)
        })?;
        Ok(PushedFilter { column, comparison, parameter: parameter.clone() })
    };
    endpoint.filters.iter().map(resolve).collect()
}

/// The key of one record, by the names of its columns.
pub(crate) struct KeyValues<'a> {
    pub(crate) shape: &'a TableShape,
    pub(crate) key: &'a [ValueRef<'a>],
}

impl Values for KeyValues<'_> {
    fn get(&self, name: &str) -> Option<TypedValue<'_>> {
        let mut parts = self.shape.key.iter().zip(self.key);
        let (at, value) = parts.find(|(at, _)| self.shape.columns[**at].name == name)?;
        Some(TypedValue { data_type: self.shape.columns[*at].data_type, value: *value })
    }
}

impl CollectionReader {
    fn list_endpoint(&self) -> Result<&ListEndpoint, SourceError> {
        self.endpoints.list.as_ref().ok_or_else(|| {
            let message = "this collection has no list";
            incompatible(message, message)
        })
    }

    /// The parameters for the filters that the API understands.
    fn parameters(&self, filters: &[Filter<'_>]) -> Vec<(String, String)> {
        let mut parameters: Vec<(String, String)> = Vec::new();
        let filters = required_filters(filters);
        for pushed in &self.pushed {
            let is_it = |filter: &&Filter<'_>| {
                filter.column == pushed.column
                    && filter.comparison == pushed.comparison
                    && filter.more.is_empty()
                    && filter.value != ValueRef::Null
            };
            if let Some(filter) = filters.iter().find(is_it) {
                let data_type = self.shape.columns[pushed.column].data_type;
                let text = render::plain_text(TypedValue { data_type, value: filter.value });
                let text = whole_day(data_type, filter.comparison, text);
                parameters.extend(text.map(|text| (pushed.parameter.clone(), text)));
            }
        }
        parameters
    }

    /// Reads every row that may pass the filters.
    fn rows(
        &self,
        filters: &[Filter<'_>],
        cancelled: Option<&CancelFlag>,
        progress: Option<&AtomicU64>,
    ) -> Result<Arc<dyn Reader>, SourceError> {
        let limits = CallLimits::new(cancelled, None).with_progress(progress);
        let rows = match self.wanted_keys(filters) {
            Some((endpoint, keys)) => self.records(endpoint, &keys, &limits)?,
            None => {
                let read = ListRead {
                    client: &self.client,
                    name: &self.shape.table,
                    endpoint: self.list_endpoint()?,
                    parameters: self.parameters(filters),
                    options: &self.options,
                    bounds: self.bounds,
                    keys: &self.keys,
                    extent: Extent::All,
                };
                pages::read_list(&read, &limits)?
            }
        };
        rows.reader(&self.shape)
    }

    /// The keys of the rows that can pass the filters, if they are few and can be read one by one.
    fn wanted_keys<'f>(&self, filters: &[Filter<'f>]) -> Option<(&GetEndpoint, Vec<ValueRef<'f>>)> {
        let (endpoint, [key]) = (self.endpoints.get.as_ref()?, &self.shape.key[..]) else { return None };
        // Other values have several spellings, of which the API may know one.
        let has_one_spelling = matches!(
            self.shape.columns[*key].data_type,
            DataType::Text | DataType::Integer | DataType::Int64
        );
        if !has_one_spelling {
            return None;
        }
        let required = required_filters(filters);
        let keys = required.iter().filter(|filter| filter.column == *key).find_map(|filter| match filter
            .comparison
        {
            Comparison::OneOfKeys => Some(filter.keys?.values().collect::<Vec<_>>()),
            Comparison::Equals => Some(filter.values().collect()),
            _ => None,
        })?;
        let is_usable = keys.len() <= KEYS_MAX && keys.iter().all(|key| *key != ValueRef::Null);
        is_usable.then_some((endpoint, keys))
    }

    /// Reads records one by one, several at the same time.
    fn records(
        &self,
        endpoint: &GetEndpoint,
        keys: &[ValueRef<'_>],
        limits: &CallLimits<'_>,
    ) -> Result<MemoryRows, SourceError> {
        let mut requests: Vec<render::HttpRequest> = Vec::with_capacity(keys.len());
        for key in keys {
            // A key that cannot be part of a path has no record. One that a caller repeats is read once.
            let request = self.get_request(endpoint, &[*key]);
            requests.extend(request.filter(|new| requests.iter().all(|one| one.url != new.url)));
        }
        // An API may have several spellings of a key, and return the same record for each.
        let (mut records, no_list) = (Records::new(&self.keys), ListEndpoint::default());
        for response in self.client.send_all(requests, limits) {
            let response = response.map_err(SendFailure::into_source_error)?;
            if let Some(record) = record(&response, endpoint)? {
                records.push_unless_known(&record.to_doc().root(), self.bounds, &no_list)?;
            }
        }
        MemoryRows::json(&self.shape.table, records.into_array(), self.options.clone())
    }

    fn get_request(&self, endpoint: &GetEndpoint, key: &[ValueRef<'_>]) -> Option<render::HttpRequest> {
        let values = KeyValues { shape: &self.shape, key };
        let mut url = render::path(self.client.base(), &endpoint.path, &values).ok()?;
        for (name, value) in &endpoint.query {
            append_query(&mut url, name, value);
        }
        Some(reading(&endpoint.path, url))
    }

    /// The record with this key, as JSON.
    pub(crate) fn record(
        &self,
        key: &[ValueRef<'_>],
        limits: &CallLimits<'_>,
    ) -> Result<Option<Json>, SourceError> {
        let Some(endpoint) = &self.endpoints.get else { return Ok(None) };
        let Some(request) = self.get_request(endpoint, key) else { return Ok(None) };
        let response = self.client.send(request, limits).map_err(SendFailure::into_source_error)?;
        record(&response, endpoint)
    }

    /// One record in the shape of the collection.
    pub(crate) fn single_row(&self, record: &Json) -> Result<Arc<dyn Reader>, SourceError> {
        let array = format!("[{}]", record.as_str()).into_bytes();
        MemoryRows::json(&self.shape.table, array, self.options.clone())?.reader(&self.shape)
    }

    /// The rows that may have this key.
    pub(crate) fn rows_with_key(
        &self,
        key: &[ValueRef<'_>],
        cancelled: Option<&CancelFlag>,
    ) -> Result<Option<Arc<dyn Reader>>, SourceError> {
        let limits = CallLimits::new(cancelled, None);
        if self.endpoints.get.is_some() {
            return match self.record(key, &limits)? {
                Some(record) => self.single_row(&record).map(Some),
                None => Ok(None),
            };
        }
        let parts = self.shape.key.iter().zip(key);
        let filters: Vec<Filter<'_>> =
            parts.map(|(at, value)| Filter::new(*at, Comparison::Equals, *value)).collect();
        self.rows(&filters, cancelled, None).map(Some)
    }
}

/// A date that a timestamp is compared with stands for the whole day, which an API may see otherwise.
fn whole_day(data_type: DataType, comparison: Comparison, text: String) -> Option<String> {
    let zone = match data_type {
        DataType::Timestamp => "Z",
        DataType::LocalTimestamp => "",
        _ => return Some(text),
    };
    match comparison {
        _ if text.len() > "2026-01-31".len() => Some(text),
        Comparison::AtLeast => Some(format!("{text}T00:00:00{zone}")),
        Comparison::AtMost => Some(format!("{text}T23:59:59.999999{zone}")),
        _ => None,
    }
}

/// The record of a response; `None` if there is none.
fn record(
    response: &crate::client::HttpResponse,
    endpoint: &GetEndpoint,
) -> Result<Option<Json>, SourceError> {
    match response::refusal(response, None) {
        None => {}
        Some(Refusal::NotFound) => return Ok(None),
        Some(refusal) => return Err(refusal.into_source_error()),
    }
    let no_record = || {
        incompatible("the API returned no record where the manifest expects it", "see `item` in the manifest")
    };
    let doc = response::parse(response.body.clone())?;
    match response::pointer(doc.root(), &endpoint.item) {
        Some(node) if node.is_object() => Json::parse(node.raw()).map(Some).map_err(|_| no_record()),
        // Some APIs answer 200 for a record that they do not have.
        Some(node) if node.kind() == json::NodeKind::Null => Ok(None),
        Some(_) | None => Err(no_record()),
    }
}

impl Reader for CollectionReader {
    /// Every read is a request, and the rows are counted in no time.
    fn progress_unit(&self) -> ProgressUnit {
        ProgressUnit::Requests
    }

    /// Every read is a request.
    fn can_run_inline(&self, _read: &ReadRequest<'_>) -> bool {
        false
    }

    fn get(&self, key: &[ValueRef<'_>], row: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError> {
        match self.rows_with_key(key, None)? {
            Some(rows) => rows.get(key, row),
            None => Ok(false),
        }
    }

    fn get_cancellable(
        &self,
        key: &[ValueRef<'_>],
        cancelled: &CancelFlag,
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        match self.rows_with_key(key, Some(cancelled))? {
            Some(rows) => rows.get(key, row),
            None => Ok(false),
        }
    }

    fn get_inline(
        &self,
        _key: &[ValueRef<'_>],
        _row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        Err(SourceError::WouldBlock)
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        let rows = self.rows(&query.filters, query.cancelled, query.progress)?;
        rows.list(&Query { progress: None, ..query.clone() }, row)
    }

    fn list_inline(
        &self,
        _query: &Query<'_>,
        _row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        Err(SourceError::WouldBlock)
    }

    fn aggregate(&self, aggregate: &Aggregate<'_>) -> Result<Groups, SourceError> {
        let rows = self.rows(&aggregate.filters, aggregate.cancelled, aggregate.progress)?;
        rows.aggregate(&Aggregate { progress: None, ..aggregate.clone() })
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<SearchOutcome, SourceError> {
        let rows = self.rows(&search.filters, search.cancelled, search.progress)?;
        rows.search(&Search { progress: None, ..search.clone() }, row)
    }
}

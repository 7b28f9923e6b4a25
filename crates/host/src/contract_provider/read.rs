//! Reads: one record by its key, a page of a list, the matches of a search.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use contract::access::CallReader;
use contract::aggregate::SelectedGroups;
use contract::bind::{self, AggregateArguments, BoundValue, ListArguments, SearchArguments};
use contract::results::{self, GroupMembers, Page, RecordError};
use contract::source::{
    Aggregate, CursorPosition, Filter, GROUPS_MAX, Query, QuickRead, Reader, RowPosition, Search,
    SourceError, Total,
};
use contract::{
    Collection, NOTICES_FIELD, NOTICES_MEMBER, Tool, ToolOperation, Value, ValueRef, aggregate, cursor,
};
use spile_core::{Call, Outcome, Platform, ToolError, ToolResult};

use super::error::{invalid_cursor_error, not_found_error, record_error_outcome, source_error_outcome};
use super::export::EXPORT_LIMITS;
use super::links::{FollowedLinks, LinkedArguments};
use super::rules::reader_digest;
use super::{BlockingContext, ProviderInner};
use state::keyring::{OpenError, Purpose, digest_parts};

/// A list request with its cursor opened.
pub(super) struct ListRequest<'a> {
    pub(super) listing: ListArguments<'a>,
    pub(super) after: Option<CursorPosition>,
    pub(super) rows_max: usize,
    pub(super) followed: FollowedLinks,
}

impl ListRequest<'_> {
    pub(super) fn query<'q>(&'q self, blocking: Option<&'q BlockingContext>) -> Query<'q> {
        let (sort, sort_links) = self.followed.sort(&self.listing.sort);
        Query {
            filters: with_followed(self.listing.filters.filters(), &self.followed),
            sort,
            sort_links,
            after: self.after.as_ref(),
            // One more than the page holds, to know whether there is another page.
            rows_max: self.rows_max + 1,
            cancelled: blocking.map(|blocking| &blocking.cancelled),
            progress: blocking.map(|blocking| -> &AtomicU64 { &blocking.rows_scanned }),
        }
    }
}

/// The filters of a call, and those that its links come to.
fn with_followed<'q>(mut filters: Vec<Filter<'q>>, followed: &'q FollowedLinks) -> Vec<Filter<'q>> {
    filters.extend(followed.filters());
    filters
}

/// A link to all rows costs tokens in every answer; fewer rows than this are read in a few pages.
const EXPORT_ROWS_MIN: u64 = 100;

/// A page of a list.
pub(super) enum ListPage {
    /// There are more rows, and so many that a link to all of them is worth its tokens.
    WithExport(ToolResult),
    /// There are more rows than an export has, so a link could only fail.
    TooLongToExport(ToolResult),
    /// The last page, or one of a list that is short enough to read page by page.
    Plain(ToolResult),
    Failed(Outcome),
}

/// The fields that a search looks at, and how many rows it scans.
pub(super) struct SearchScope<'a> {
    pub(super) fields: &'a [usize],
    pub(super) scan_rows_max: usize,
}

impl ProviderInner {
    #[inline]
    pub(super) fn get_record(
        &self,
        tool: &Tool,
        collection: &Collection,
        reader: &dyn Reader,
        key: &[BoundValue<'_>],
        blocking: Option<&BlockingContext>,
        platform: &dyn Platform,
    ) -> Option<Outcome> {
        // Nearly every key has one part; that case needs no allocation.
        let (single, many);
        let cells = match key {
            [only] => {
                single = [only.as_value_ref()];
                &single[..]
            }
            parts => {
                many = parts.iter().map(BoundValue::as_value_ref).collect::<Vec<_>>();
                &many
            }
        };
        let mut result: Option<Result<ToolResult, RecordError>> = None;
        let mut row = |cells: &[ValueRef<'_>]| {
            result = Some(results::record(collection, tool.text_template.as_ref(), cells));
        };
        let read = match blocking {
            None => reader.get_inline(cells, &mut row),
            Some(blocking) => reader.get_cancellable(cells, &blocking.cancelled, &mut row),
        };
        match read {
            Err(SourceError::WouldBlock) if blocking.is_none() => None,
            Err(error) => Some(source_error_outcome(&error, collection, platform)),
            Ok(_) => Some(record_outcome(collection, reader, key, result, platform)),
        }
    }

    /// The outcome of a read that needed no thread; `None` if it must be repeated where it may wait.
    pub(super) fn quick_record(
        &self,
        tool: &Tool,
        index: usize,
        call: &Call,
        read: &QuickRead,
        platform: &dyn Platform,
    ) -> Option<Outcome> {
        let (collection, reader) = (&self.contract.collections[index], &*self.backends.readers[index]);
        let (result, bound);
        let key = match read {
            QuickRead::Row(values) => {
                let cells: Vec<ValueRef<'_>> = values.iter().map(Value::as_value_ref).collect();
                result = Some(results::record(collection, tool.text_template.as_ref(), &cells));
                &[]
            }
            QuickRead::NoRow => {
                result = None;
                bound = bind::key(collection, call.arguments()).ok()?;
                &*bound
            }
            QuickRead::Unknown => return None,
        };
        Some(record_outcome(collection, reader, key, result, platform))
    }

    /// One record with the rows of links.
    pub(super) fn get_with_links(
        &self,
        tool: &Tool,
        index: usize,
        key: &[BoundValue<'_>],
        include: &[usize],
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Outcome {
        let (collection, reader) = (&self.contract.collections[index], self.reader(index, &blocking.caller));
        let reader = &*reader;
        let fields = link_fields(collection, include);
        let key_cells: Vec<ValueRef<'_>> = key.iter().map(BoundValue::as_value_ref).collect();
        let (mut found, mut keys): (Option<Result<ToolResult, RecordError>>, Vec<Vec<Value>>) =
            Default::default();
        let mut row = |cells: &[ValueRef<'_>]| {
            let values = |fields: &Vec<usize>| fields.iter().map(|at| cells[*at].to_value()).collect();
            keys = fields.iter().map(values).collect();
            found = Some(results::record(collection, tool.text_template.as_ref(), cells));
        };
        if let Err(error) = reader.get_cancellable(&key_cells, &blocking.cancelled, &mut row) {
            return source_error_outcome(&error, collection, platform);
        }
        let result = match found {
            Some(Ok(result)) => result,
            Some(Err(error)) => return record_error_outcome(&error, collection, platform),
            // Reported as for a record without links.
            None => {
                let outcome = self.get_record(tool, collection, reader, key, Some(blocking), platform);
                return outcome.unwrap_or_else(|| not_found_error(collection, key).into());
            }
        };
        let linked = match self.linked_rows(index, include, std::slice::from_ref(&keys), blocking, platform) {
            Ok(linked) => linked,
            Err(outcome) => return *outcome,
        };
        let result = results::with_linked_rows(result, collection, &linked, keys);
        let result = add_notice(result, reader, collection, NOTICES_FIELD);
        self.add_link_notices(result, collection, include, NOTICES_FIELD).into()
    }

    /// What is to know about the values of linked rows.
    fn add_link_notices(
        &self,
        result: ToolResult,
        collection: &Collection,
        include: &[usize],
        member: &str,
    ) -> ToolResult {
        let targets: BTreeSet<usize> = include.iter().map(|link| collection.links[*link].target).collect();
        let readers = targets.into_iter().map(|target| &*self.backends.readers[target]);
        readers.fold(result, |result, reader| add_notice(result, reader, collection, member))
    }

    pub(super) fn list_page(
        &self,
        tool: &Tool,
        index: usize,
        mut request: ListRequest<'_>,
        call_reader: &CallReader<'_>,
        blocking: Option<&BlockingContext>,
        platform: &dyn Platform,
    ) -> Option<ListPage> {
        let (collection, reader) = (&self.contract.collections[index], &**call_reader);
        let include = std::mem::take(&mut request.listing.include);
        let projection = request.listing.projection.take();
        let query = request.query(blocking);
        let template = tool.text_template.as_ref();
        let mut page = Page::new(collection, template, projection, query.sorts(), request.rows_max);
        if !include.is_empty() {
            page.keep_link_keys(link_fields(collection, &include));
        }
        let mut row = |cells: &[ValueRef<'_>], position: RowPosition| page.push(cells, position);
        let read = match blocking {
            None => reader.list_inline(&query, &mut row),
            Some(_) => reader.list(&query, &mut row),
        };
        let total = match read {
            Ok(total) => total,
            Err(SourceError::WouldBlock) if blocking.is_none() => return None,
            Err(error) => {
                return Some(ListPage::Failed(source_error_outcome(&error, collection, platform)));
            }
        };
        if let (false, Some(blocking)) = (include.is_empty(), blocking) {
            match self.linked_rows(index, &include, page.link_keys(), blocking, platform) {
                Ok(linked) => page.add_linked_rows(&linked),
                Err(outcome) => return Some(ListPage::Failed(*outcome)),
            }
        }
        let mut is_cut = false;
        let order_bytes = request.listing.order_bytes();
        let seal = |position: &CursorPosition| {
            is_cut = true;
            self.seal_cursor(tool, &order_bytes, call_reader, position, platform)
        };
        Some(match page.finish(total, seal) {
            Ok(result) => {
                let result = add_notice(result, reader, collection, NOTICES_MEMBER);
                let result = self.add_link_notices(result, collection, &include, NOTICES_MEMBER);
                match total {
                    Some(Total::Exact(rows) | Total::AtLeast(rows)) if is_cut && rows >= EXPORT_ROWS_MIN => {
                        if rows > EXPORT_LIMITS.rows_max as u64 {
                            ListPage::TooLongToExport(result)
                        } else {
                            ListPage::WithExport(result)
                        }
                    }
                    Some(_) | None => ListPage::Plain(result),
                }
            }
            Err(error) => ListPage::Failed(record_error_outcome(&error, collection, platform)),
        })
    }

    /// Groups rows and computes measures. Also returns whether there are more groups, and so many that a link to all of
    /// them is worth its tokens.
    pub(super) fn aggregate(
        &self,
        index: usize,
        arguments: &AggregateArguments<'_>,
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Result<(ToolResult, bool), Box<Outcome>> {
        let (collection, reader) = (&self.contract.collections[index], &self.backends.readers[index]);
        let rows_max = arguments.limit.unwrap_or(collection.rows_max).clamp(1, collection.rows_max);
        let selected = self.select_groups(index, arguments, rows_max, blocking, platform)?;
        let group_count = arguments.groups.len();
        let members = GroupMembers { names: &arguments.names, kinds: &arguments.kinds, group_count };
        let (result, is_cut) = results::groups(collection, members, &selected);
        let has_many = is_cut && selected.total as u64 >= EXPORT_ROWS_MIN;
        Ok((add_notice(result, &**reader, collection, NOTICES_MEMBER), has_many))
    }

    /// Up to so many groups, in their order.
    pub(super) fn select_groups(
        &self,
        index: usize,
        arguments: &AggregateArguments<'_>,
        rows_max: usize,
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Result<SelectedGroups, Box<Outcome>> {
        let (collection, reader) = (&self.contract.collections[index], self.reader(index, &blocking.caller));
        let linked = LinkedArguments {
            filters: arguments.filters.linked(),
            groups: &arguments.groups,
            measures: &arguments.measures,
            ..LinkedArguments::default()
        };
        let followed = self.follow_links(index, &linked, blocking, platform)?;
        let question = Aggregate {
            filters: with_followed(arguments.filters.filters(), &followed),
            groups: followed.groups(&arguments.groups),
            measures: followed.measures(&arguments.measures),
            groups_max: GROUPS_MAX,
            cancelled: Some(&blocking.cancelled),
            progress: Some(&blocking.rows_scanned),
        };
        let groups = reader
            .aggregate(&question)
            .map_err(|error| Box::new(source_error_outcome(&error, collection, platform)))?;
        let selection = arguments.selection(rows_max);
        Ok(aggregate::select_groups(groups, &selection, arguments.groups.len(), &arguments.kinds))
    }

    pub(super) fn search_records(
        &self,
        tool: &Tool,
        index: usize,
        arguments: &SearchArguments<'_>,
        scope: &SearchScope<'_>,
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Outcome {
        let collection = &self.contract.collections[index];
        let call_reader = self.reader(index, &blocking.caller);
        let reader = &*call_reader;
        let rows_max = arguments.limit.unwrap_or(collection.rows_max).clamp(1, collection.rows_max);
        let linked = LinkedArguments { filters: arguments.filters.linked(), ..LinkedArguments::default() };
        let followed = match self.follow_links(index, &linked, blocking, platform) {
            Ok(followed) => followed,
            Err(outcome) => return *outcome,
        };
        let order_bytes = arguments.order_bytes();
        let cursor = arguments.cursor.as_deref();
        let after = match self.open_cursor(tool, cursor, &order_bytes, &call_reader, platform) {
            Ok(after) => after,
            Err(error) => return Outcome::ToolFailed(error),
        };
        let search = Search {
            terms: arguments.terms(),
            columns: scope.fields,
            filters: with_followed(arguments.filters.filters(), &followed),
            after: after.as_ref(),
            // One more than the page holds, to know whether there is another page.
            rows_max: rows_max + 1,
            scan_rows_max: scope.scan_rows_max,
            cancelled: Some(&blocking.cancelled),
            progress: Some(&blocking.rows_scanned),
        };
        let (template, projection) = (tool.text_template.as_ref(), arguments.projection.clone());
        let mut page = Page::new(collection, template, projection, Vec::new(), rows_max);
        let include = &arguments.include;
        if !include.is_empty() {
            page.keep_link_keys(link_fields(collection, include));
        }
        let outcome = match reader.search(&search, &mut |cells, position| page.push(cells, position)) {
            Ok(outcome) => outcome,
            Err(error) => return source_error_outcome(&error, collection, platform),
        };
        if !include.is_empty() {
            match self.linked_rows(index, include, page.link_keys(), blocking, platform) {
                Ok(linked) => page.add_linked_rows(&linked),
                Err(outcome) => return *outcome,
            }
        }
        let seal = |position: &CursorPosition| {
            self.seal_cursor(tool, &order_bytes, &call_reader, position, platform)
        };
        match page.finish_search(outcome, scope.scan_rows_max, seal) {
            Ok(result) => {
                let result = add_notice(result, reader, collection, NOTICES_MEMBER);
                self.add_link_notices(result, collection, include, NOTICES_MEMBER).into()
            }
            Err(error) => record_error_outcome(&error, collection, platform),
        }
    }

    /// Signs and encrypts a cursor (authenticated encryption), so that a client can neither read nor change it.
    fn seal_cursor(
        &self,
        tool: &Tool,
        order_bytes: &[u8],
        reader: &CallReader<'_>,
        position: &CursorPosition,
        platform: &dyn Platform,
    ) -> String {
        let binding = self.cursor_binding(tool, order_bytes, reader);
        self.keyring.seal(Purpose::Cursor, &binding, &cursor::encode(position), platform)
    }

    /// Opens a cursor. It is bound to the tool, the filters, the sort order, and the caller's rows.
    pub(super) fn open_cursor(
        &self,
        tool: &Tool,
        sealed: Option<&str>,
        order_bytes: &[u8],
        reader: &CallReader<'_>,
        platform: &dyn Platform,
    ) -> Result<Option<CursorPosition>, Box<ToolError>> {
        let Some(sealed) = sealed else { return Ok(None) };
        let binding = self.cursor_binding(tool, order_bytes, reader);
        let payload = self.keyring.open(Purpose::Cursor, &binding, sealed, platform.now_ms());
        let reason = match payload {
            Ok(payload) => match cursor::decode(&payload) {
                Some(position) => return Ok(Some(position)),
                None => NOT_A_CURSOR,
            },
            Err(OpenError::Malformed | OpenError::Mismatch) => NOT_A_CURSOR,
            Err(OpenError::KeyExpired(_)) => {
                "the server's keys have changed since this cursor was issued, and the old key is no longer accepted; start again without a cursor"
            }
            Err(OpenError::UnknownKey(_)) => {
                "this cursor was encrypted with a key that this server does not have (any more): another server issued it, or the key file was replaced; start again without a cursor"
            }
        };
        Err(Box::new(invalid_cursor_error(reason)))
    }

    fn cursor_binding(&self, tool: &Tool, order_bytes: &[u8], reader: &CallReader<'_>) -> [u8; 32] {
        let shape: &[u8] = match &tool.operation {
            ToolOperation::List { collection, .. } | ToolOperation::Search { collection, .. } => {
                &self.shape_digests[*collection]
            }
            _ => &[],
        };
        match reader_digest(reader) {
            [] => digest_parts(&[shape, tool.name.as_bytes(), order_bytes]),
            rows => digest_parts(&[shape, tool.name.as_bytes(), order_bytes, rows]),
        }
    }
}

const NOT_A_CURSOR: &str =
    "not a cursor of this list; pass `nextCursor` unchanged, with the same filters and sort";

/// The outcome of a read that found a row, or none.
#[inline]
fn record_outcome(
    collection: &Collection,
    reader: &dyn Reader,
    key: &[BoundValue<'_>],
    found: Option<Result<ToolResult, RecordError>>,
    platform: &dyn Platform,
) -> Outcome {
    match found {
        Some(Ok(result)) => add_notice(result, reader, collection, NOTICES_FIELD).into(),
        Some(Err(error)) => record_error_outcome(&error, collection, platform),
        None => {
            let mut error = not_found_error(collection, key);
            if let Some(notice) = reader.key_notice() {
                error.message = format!("{}; it may exist: {notice}", error.message);
            }
            error.into()
        }
    }
}

/// The own fields of each link.
fn link_fields(collection: &Collection, links: &[usize]) -> Vec<Vec<usize>> {
    let fields = |link: &usize| collection.links[*link].fields.iter().map(|(own, _)| *own).collect();
    links.iter().map(fields).collect()
}

/// The result, with the reader's notice about the data if it has one.
fn add_notice(result: ToolResult, reader: &dyn Reader, collection: &Collection, member: &str) -> ToolResult {
    match reader.notice() {
        Some(notice) => {
            results::with_notices(result, &[&notice], collection.notices.in_reads.then_some(member))
        }
        None => result,
    }
}

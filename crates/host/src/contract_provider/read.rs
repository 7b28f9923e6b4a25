//! Reading: one record by its key, a page of a list, what a search finds.

use std::sync::atomic::AtomicU64;

use contract::bind::{BoundValue, ListArguments, SearchArguments};
use contract::results::{self, Page, RecordError, RowList};
use contract::source::{CursorPosition, Query, Reader, Search};
use contract::{Collection, Tool, ToolOperation, cursor};
use spile_core::{Outcome, Platform, ToolError, ToolResult};

use super::error::{invalid_cursor_error, not_found_error, record_error_outcome, source_error_outcome};
use super::{BlockingContext, ProviderInner};
use crate::seal::{Purpose, digest_parts};

/// A list as it was asked for, with its place found.
pub(super) struct ListRequest<'a> {
    pub(super) listing: ListArguments<'a>,
    pub(super) after: Option<CursorPosition>,
    pub(super) rows_max: usize,
}

impl ListRequest<'_> {
    pub(super) fn query<'q>(&'q self, aside: Option<&'q BlockingContext>) -> Query<'q> {
        Query {
            filters: self.listing.filters(),
            sort: self.listing.sort,
            after: self.after.as_ref(),
            // One more than is told, to know whether there is more.
            rows_max: self.rows_max + 1,
            cancelled: aside.map(|aside| &aside.cancelled),
            progress: aside.map(|aside| -> &AtomicU64 { &aside.rows_scanned }),
        }
    }
}

/// Where a search looks, and how far.
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
        world: &dyn Platform,
    ) -> Outcome {
        // Nearly every key has one part, which needs no vector.
        let (one, many);
        let cells = match key {
            [only] => {
                one = [only.as_value_ref()];
                &one[..]
            }
            several => {
                many = several.iter().map(BoundValue::as_value_ref).collect::<Vec<_>>();
                &many
            }
        };
        let mut reply: Option<Result<ToolResult, RecordError>> = None;
        let read = reader.get(cells, &mut |cells| {
            reply = Some(results::record(collection, tool.text_template.as_ref(), cells));
        });
        match (read, reply) {
            (Err(fault), _) => source_error_outcome(&fault, collection, world),
            (Ok(_), Some(Ok(reply))) => reply.into(),
            (Ok(_), Some(Err(unfit))) => record_error_outcome(&unfit, collection, world),
            (Ok(_), None) => not_found_error(collection, key).into(),
        }
    }

    pub(super) fn list_page(
        &self,
        tool: &Tool,
        collection: &Collection,
        reader: &dyn Reader,
        mut asked: ListRequest<'_>,
        aside: Option<&BlockingContext>,
        world: &dyn Platform,
    ) -> Outcome {
        let shown = asked.listing.projection.take();
        let sort = asked.listing.sort;
        let mut page = Page::new(collection, tool.text_template.as_ref(), shown, sort, asked.rows_max);
        let total = match reader.list(&asked.query(aside), &mut |cells, place| page.push(cells, place)) {
            Ok(total) => total,
            Err(fault) => return source_error_outcome(&fault, collection, world),
        };
        let bound = self.cursor_binding(tool, &asked.listing);
        let seal = |position: &CursorPosition| {
            self.sealer.seal(Purpose::Cursor, &bound, cursor::encode(position), world)
        };
        match page.finish(total, seal) {
            Ok(reply) => reply.into(),
            Err(unfit) => record_error_outcome(&unfit, collection, world),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "what a search is, where, for whom")]
    pub(super) fn search_records(
        &self,
        tool: &Tool,
        collection: &Collection,
        reader: &dyn Reader,
        searching: &SearchArguments<'_>,
        within: &SearchScope<'_>,
        aside: &BlockingContext,
        world: &dyn Platform,
    ) -> Outcome {
        let rows_max = searching.limit.unwrap_or(collection.rows_max).clamp(1, collection.rows_max);
        let search = Search {
            terms: searching.terms(),
            columns: within.fields,
            // One more than is told, to know whether there is more.
            rows_max: rows_max + 1,
            scan_rows_max: within.scan_rows_max,
            cancelled: Some(&aside.cancelled),
            progress: Some(&aside.rows_scanned),
        };
        let mut rows =
            RowList::new(collection, tool.text_template.as_ref(), searching.projection.clone(), rows_max);
        match reader.search(&search, &mut |cells| rows.push(cells)) {
            Err(fault) => source_error_outcome(&fault, collection, world),
            Ok(searched) => match rows.into_search_result(searched, within.scan_rows_max) {
                Ok(reply) => reply.into(),
                Err(unfit) => record_error_outcome(&unfit, collection, world),
            },
        }
    }

    /// The place that a cursor names. It opens for the same list only: the same tool, filters and order.
    pub(super) fn open_cursor(
        &self,
        tool: &Tool,
        listing: &ListArguments<'_>,
    ) -> Result<Option<CursorPosition>, Box<ToolError>> {
        let Some(sealed) = &listing.cursor else { return Ok(None) };
        let plain = self.sealer.open(Purpose::Cursor, &self.cursor_binding(tool, listing), sealed);
        match plain.ok().as_deref().and_then(cursor::decode) {
            Some(position) => Ok(Some(position)),
            None => Err(Box::new(invalid_cursor_error(
                "not a cursor of this list: pass `nextCursor` as it came, with the same filters and sort",
            ))),
        }
    }

    fn cursor_binding(&self, tool: &Tool, listing: &ListArguments<'_>) -> [u8; 32] {
        let filters = format!("{:?}", listing.filters);
        let sort = format!("{:?}", listing.sort);
        let shape: &[u8] = if let ToolOperation::List { collection, .. } = &tool.operation {
            &self.shape_digests[*collection]
        } else {
            &[]
        };
        digest_parts(&[shape, tool.name.as_bytes(), filters.as_bytes(), sort.as_bytes()])
    }
}

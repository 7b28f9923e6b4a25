//! Reading: one record by its key, a page of a list, what a search finds.

use std::sync::atomic::{AtomicBool, AtomicU64};

use call::{Outcome, Problem, ToolReply, World};
use contract::bind::{Arg, Listing, Searching};
use contract::shape::{self, Page, Rows, Unfit};
use contract::source::{Position, Query, Reader, Search};
use contract::{Collection, Tool, cursor};

use super::fault::{bad_cursor, misfit, not_found, refused};
use super::{Aside, Inner};
use crate::seal::{Purpose, digest_of};

/// A list as it was asked for, with its place found.
pub(super) struct Asked<'a> {
    pub(super) listing: Listing<'a>,
    pub(super) after: Option<Position>,
    pub(super) rows_max: usize,
}

impl Asked<'_> {
    pub(super) fn query<'q>(&'q self, aside: Option<&'q Aside>) -> Query<'q> {
        Query {
            filters: self.listing.filters(),
            sort: self.listing.sort,
            after: self.after.as_ref(),
            // One more than is told, to know whether there is more.
            rows_max: self.rows_max + 1,
            stop: aside.map(|aside| -> &AtomicBool { &aside.stop }),
            progress: aside.map(|aside| -> &AtomicU64 { &aside.rows }),
        }
    }
}

/// Where a search looks, and how far.
pub(super) struct Within<'a> {
    pub(super) fields: &'a [usize],
    pub(super) scan_rows_max: usize,
}

impl Inner {
    #[inline]
    pub(super) fn record(
        &self,
        tool: &Tool,
        collection: &Collection,
        reader: &dyn Reader,
        key: &[Arg<'_>],
        world: &dyn World,
    ) -> Outcome {
        // Nearly every key has one part, which needs no vector.
        let (one, many);
        let cells = match key {
            [only] => {
                one = [only.as_cell()];
                &one[..]
            }
            several => {
                many = several.iter().map(Arg::as_cell).collect::<Vec<_>>();
                &many
            }
        };
        let mut reply: Option<Result<ToolReply, Unfit>> = None;
        let read = reader.get(cells, &mut |cells| {
            reply = Some(shape::record(collection, tool.text.as_ref(), cells));
        });
        match (read, reply) {
            (Err(fault), _) => refused(&fault, collection, world),
            (Ok(_), Some(Ok(reply))) => reply.into(),
            (Ok(_), Some(Err(unfit))) => misfit(&unfit, collection, world),
            (Ok(_), None) => not_found(collection, key).into(),
        }
    }

    pub(super) fn page(
        &self,
        tool: &Tool,
        collection: &Collection,
        reader: &dyn Reader,
        mut asked: Asked<'_>,
        aside: Option<&Aside>,
        world: &dyn World,
    ) -> Outcome {
        let shown = asked.listing.fields.take();
        let sort = asked.listing.sort;
        let mut page = Page::new(collection, tool.text.as_ref(), shown, sort, asked.rows_max);
        let total = match reader.list(&asked.query(aside), &mut |cells, place| page.take(cells, place)) {
            Ok(total) => total,
            Err(fault) => return refused(&fault, collection, world),
        };
        let bound = self.bound(tool, &asked.listing);
        let seal =
            |position: &Position| self.sealer.seal(Purpose::Cursor, &bound, cursor::write(position), world);
        match page.finish(total, seal) {
            Ok(reply) => reply.into(),
            Err(unfit) => misfit(&unfit, collection, world),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "what a search is, where, for whom")]
    pub(super) fn found(
        &self,
        tool: &Tool,
        collection: &Collection,
        reader: &dyn Reader,
        searching: &Searching<'_>,
        within: &Within<'_>,
        aside: &Aside,
        world: &dyn World,
    ) -> Outcome {
        let rows_max = searching.limit.unwrap_or(collection.rows_max).clamp(1, collection.rows_max);
        let search = Search {
            words: searching.words(),
            columns: within.fields,
            // One more than is told, to know whether there is more.
            rows_max: rows_max + 1,
            scan_rows_max: within.scan_rows_max,
            stop: Some(&aside.stop),
            progress: Some(&aside.rows),
        };
        let mut rows = Rows::new(collection, tool.text.as_ref(), searching.fields.clone(), rows_max);
        match reader.search(&search, &mut |cells| rows.take(cells)) {
            Err(fault) => refused(&fault, collection, world),
            Ok(searched) => match rows.found(searched, within.scan_rows_max) {
                Ok(reply) => reply.into(),
                Err(unfit) => misfit(&unfit, collection, world),
            },
        }
    }

    /// The place that a cursor names. It opens for the same list only: the same tool, filters and order.
    pub(super) fn opened(
        &self,
        tool: &Tool,
        listing: &Listing<'_>,
    ) -> Result<Option<Position>, Box<Problem>> {
        let Some(sealed) = &listing.cursor else { return Ok(None) };
        let plain = self.sealer.open(Purpose::Cursor, &self.bound(tool, listing), sealed);
        match plain.ok().as_deref().and_then(cursor::read) {
            Some(position) => Ok(Some(position)),
            None => Err(Box::new(bad_cursor(
                "not a cursor of this list: pass `nextCursor` as it came, with the same filters and sort",
            ))),
        }
    }

    fn bound(&self, tool: &Tool, listing: &Listing<'_>) -> [u8; 32] {
        let filters = format!("{:?}", listing.filters);
        let sort = format!("{:?}", listing.sort);
        let version = self.contract.version.as_bytes();
        digest_of(&[version, tool.name.as_bytes(), filters.as_bytes(), sort.as_bytes()])
    }
}

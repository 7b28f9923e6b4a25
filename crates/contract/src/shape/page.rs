//! A page of a list, and the place where it ended.

use call::ToolReply;

use super::items::Items;
use super::{Unfit, reply};
use crate::bind::Shown;
use crate::cell::{Cell, Value};
use crate::contract::Collection;
use crate::cursor::{self, POSITION_BYTES_MAX};
use crate::field::Field;
use crate::line::Line;
use crate::source::{More, Place, Position, Sort};

/// A page that is being filled.
pub struct Page<'c> {
    items: Items<'c>,
    sort: Option<Sort>,
    last: Option<Position>,
}

impl<'c> Page<'c> {
    pub fn new(
        collection: &'c Collection,
        line: Option<&'c Line>,
        shown: Option<Shown>,
        sort: Option<Sort>,
        rows_max: usize,
    ) -> Self {
        Self { items: Items::new(collection, line, shown, rows_max), sort, last: None }
    }

    /// Takes a row, if there is still room for it.
    pub fn take(&mut self, cells: &[Cell<'_>], place: Place) -> More {
        let more = self.items.take(cells);
        if more == More::Yes {
            let key = match &*self.items.collection.shape.key {
                [] => vec![Cell::Integer(place.row).to_value(), Cell::Integer(place.state).to_value()],
                key => key.iter().map(|at| cells[*at].to_value()).collect(),
            };
            self.last = Some(Position { sorted: self.sort.map(|sort| cells[sort.column].to_value()), key });
        }
        more
    }

    /// The result. `seal` makes a cursor of the place where the page ended.
    pub fn finish(
        self,
        total: Option<u64>,
        seal: impl FnOnce(&Position) -> String,
    ) -> Result<ToolReply, Unfit> {
        self.items.fits()?;
        let last = self.last.as_ref().filter(|_| self.items.is_cut());
        if let Some(field) = last.and_then(|last| self.nameless(last)) {
            return Err(Unfit::Nameless { field: field.name.clone() });
        }
        let cursor = last.map(seal);
        let mut out = vec![b'{'];
        self.items.write_items(&mut out);
        if let Some(cursor) = &cursor {
            out.extend_from_slice(b",\"nextCursor\":");
            json::write::string(&mut out, cursor);
        }
        self.items.write_truncated(&mut out);
        if let Some(total) = total {
            out.extend_from_slice(format!(",\"total\":{total}").as_bytes());
        }
        out.push(b'}');
        let of = total.map_or_else(String::new, |total| format!(" of {total}"));
        Ok(reply(self.items.headed(&of, "; there are more: pass `nextCursor` as `cursor`"), out))
    }

    /// The field whose value a cursor could not name.
    fn nameless(&self, last: &Position) -> Option<&'c Field> {
        let collection = self.items.collection;
        let key = last.key.iter().zip(&collection.shape.key).map(|(value, at)| (value, *at));
        let sorted = last.sorted.iter().zip(self.sort).map(|(value, sort)| (value, sort.column));
        let named = || sorted.clone().chain(key.clone());
        let is_long = named().map(|(value, _)| cursor::size(value)).sum::<usize>() > POSITION_BYTES_MAX;
        let bytes = named().find(|(value, _)| matches!(value, Value::Blob(_)));
        let blamed =
            bytes.or_else(|| named().max_by_key(|(value, _)| cursor::size(value)).filter(|_| is_long));
        blamed.map(|(_, at)| &collection.fields[at])
    }
}

//! Rows as `items`, one after the other, under a row cap and a byte budget: what pages, searches and statements
//! have in common.

use call::ToolReply;

use super::{RECORD_BYTES_MAX, Told, Unfit, object, put_version, readable, reply, unfit, version, whole};
use crate::bind::Shown;
use crate::cell::Cell;
use crate::contract::{Collection, VERSION};
use crate::field::Field;
use crate::line::Line;
use crate::source::{More, Searched};

pub(super) struct Items<'c> {
    pub(super) collection: &'c Collection,
    line: Option<&'c Line>,
    shown: Option<Shown>,
    rows_max: usize,
    items: Vec<u8>,
    text: String,
    rows: usize,
    truncated: bool,
    unfit: Option<Unfit>,
}

impl<'c> Items<'c> {
    pub(super) fn new(
        collection: &'c Collection,
        line: Option<&'c Line>,
        shown: Option<Shown>,
        rows_max: usize,
    ) -> Self {
        Self {
            collection,
            line,
            shown,
            rows_max,
            items: Vec::new(),
            text: String::new(),
            rows: 0,
            truncated: false,
            unfit: None,
        }
    }

    /// Takes a row, if there is still room for it. Without room the row is not taken, and no more are wanted.
    pub(super) fn take(&mut self, cells: &[Cell<'_>]) -> More {
        if self.rows == self.rows_max {
            self.truncated = true;
            return More::No;
        }
        let before = self.items.len();
        if self.rows > 0 {
            self.items.push(b',');
        }
        let version = match self.write(cells) {
            Ok(version) => version,
            Err(unfit) => {
                self.unfit = Some(unfit);
                return More::No;
            }
        };
        // The first row is told whatever its size: without it no page would ever get further.
        if self.items.len() > self.collection.bytes_max && self.rows > 0 {
            self.items.truncate(before);
            self.truncated = true;
            return More::No;
        }
        if self.items.len() > RECORD_BYTES_MAX {
            self.unfit = Some(Unfit::TooLarge { bytes: self.items.len() });
            return More::No;
        }
        self.rows += 1;
        self.text_row(cells, version.as_deref());
        More::Yes
    }

    fn write(&mut self, cells: &[Cell<'_>]) -> Result<Option<String>, Unfit> {
        let Some(shown) = &self.shown else { return whole(&mut self.items, self.collection, cells) };
        let fields = &self.collection.fields;
        let bad = |field: &Field| unfit(self.collection, field, cells);
        object(&mut self.items, shown.fields.iter().map(|at| (&fields[*at], cells[*at]))).map_err(bad)?;
        if !shown.version || !self.collection.tells_version() {
            return Ok(None);
        }
        let version = version(self.collection, cells)?;
        put_version(&mut self.items, &version);
        Ok(Some(version))
    }

    fn text_row(&mut self, cells: &[Cell<'_>], version: Option<&str>) {
        self.text.push('\n');
        let fields = &self.collection.fields;
        if let Some(line) = self.line {
            self.text.push_str(&line.fill(fields, cells));
            return;
        }
        let mut first = true;
        for at in self.places() {
            if !std::mem::take(&mut first) {
                self.text.push_str(" | ");
            }
            readable(&mut self.text, &fields[at], cells[at]);
        }
        if let Some(version) = version {
            self.text.push_str(if first { "" } else { " | " });
            self.text.push_str(version);
        }
    }

    /// The fields that are shown, by place.
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let all = 0..self.collection.fields.len();
        match &self.shown {
            None => all.collect::<Vec<_>>().into_iter(),
            Some(shown) => shown.fields.clone().into_iter(),
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.truncated
    }

    pub(super) fn fits(&self) -> Result<(), Unfit> {
        self.unfit.clone().map_or(Ok(()), Err)
    }

    /// `"items":[…]`
    pub(super) fn write_items(&self, out: &mut Vec<u8>) {
        out.reserve(self.items.len() + 128);
        out.extend_from_slice(b"\"items\":[");
        out.extend_from_slice(&self.items);
        out.push(b']');
    }

    /// `,"truncated":false`
    pub(super) fn write_truncated(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.truncated { b",\"truncated\":true" } else { b",\"truncated\":false" });
    }

    /// The table under a line that says how much of it this is: `of` so many, and what to do about more.
    pub(super) fn headed(&self, of: &str, more: &str) -> String {
        let name = &self.collection.name;
        let more = if self.truncated { more } else { "" };
        let mut out = format!("{name}: {}{of}{more}", self.rows);
        if self.rows > 0 && self.line.is_none() {
            out.push('\n');
            let fields = &self.collection.fields;
            let mut names: Vec<&str> = self.places().map(|at| fields[at].name.as_str()).collect();
            let version = self.shown.as_ref().is_none_or(|shown| shown.version);
            names.extend((version && self.collection.tells_version()).then_some(VERSION));
            out.push_str(&names.join(" | "));
        }
        out.push_str(&self.text);
        out
    }
}

/// Rows without pages: what a search found, or a statement gave.
pub struct Rows<'c>(Items<'c>);

impl<'c> Rows<'c> {
    pub fn new(
        collection: &'c Collection,
        line: Option<&'c Line>,
        shown: Option<Shown>,
        rows_max: usize,
    ) -> Self {
        Self(Items::new(collection, line, shown, rows_max))
    }

    pub fn take(&mut self, cells: &[Cell<'_>]) -> More {
        self.0.take(cells)
    }

    /// What a search found, and how far it looked.
    pub fn found(self, searched: Searched, scan_rows_max: usize) -> Result<ToolReply, Unfit> {
        self.0.fits()?;
        let looked = match searched {
            Searched::All => "all".to_owned(),
            Searched::Cut => format!("first {scan_rows_max} rows"),
        };
        let mut out = vec![b'{'];
        self.0.write_items(&mut out);
        self.0.write_truncated(&mut out);
        out.extend_from_slice(b",\"searched\":");
        json::write::string(&mut out, &looked);
        out.push(b'}');
        let of = if searched == Searched::Cut { format!(" in the {looked}") } else { String::new() };
        Ok(reply(self.0.headed(&of, "; there are more: add words to the query"), out))
    }

    /// What a statement gave.
    pub fn given(self) -> Result<ToolReply, Unfit> {
        self.0.fits()?;
        let mut out = vec![b'{'];
        self.0.write_items(&mut out);
        self.0.write_truncated(&mut out);
        out.push(b'}');
        Ok(reply(self.0.headed("", MORE), out))
    }

    /// What a statement that writes gave, and how many rows it changed.
    pub fn changed(&self, changed: u64) -> Result<Told, Unfit> {
        self.0.fits()?;
        let mut structured = format!("{{\"changed\":{changed}").into_bytes();
        let mut text = changed_rows(changed);
        if !self.0.collection.fields.is_empty() {
            structured.push(b',');
            self.0.write_items(&mut structured);
            self.0.write_truncated(&mut structured);
            text.push('\n');
            text.push_str(&self.0.headed("", MORE));
        }
        structured.push(b'}');
        Ok(Told { structured, text })
    }
}

const MORE: &str = "; there are more";

pub(super) fn changed_rows(changed: u64) -> String {
    if changed == 1 { "1 row changed".to_owned() } else { format!("{changed} rows changed") }
}

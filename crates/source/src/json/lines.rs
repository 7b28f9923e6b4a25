//! JSON Lines: an object in each line. Blank lines are no records, and are left where they are.

use std::ops::Range;

use contract::source::WriteFault;
use json::{ScanLimits, scan};
use memchr::memchr;

use super::edit::{self, Style};
use super::value::{Filling, Where, object, start};
use crate::rows::{Edit, Format, Loaded, Unreadable};
use crate::spot::Spot;

pub(super) struct Lines {
    /// Of the table.
    pub(super) name: String,
}

/// One line that is not blank.
struct Line {
    number: u32,
    /// Without its end, and without what stands around the object.
    span: Range<usize>,
    /// Where the next line begins.
    next: usize,
}

/// Lines that are not blank, from the first.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    number: u32,
}

impl Iterator for Walk<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        while self.at < self.bytes.len() {
            let from = self.at;
            let end = memchr(b'\n', &self.bytes[from..]).map_or(self.bytes.len(), |ahead| from + ahead);
            self.at = (end + 1).min(self.bytes.len());
            self.number = self.number.saturating_add(1);
            let line = &self.bytes[from..end];
            let kept = line.trim_ascii();
            if !kept.is_empty() {
                let from = from + (line.len() - line.trim_ascii_start().len());
                return Some(Line { number: self.number, span: from..from + kept.len(), next: self.at });
            }
        }
        None
    }
}

fn walk(bytes: &[u8]) -> Result<Walk<'_>, Unreadable> {
    Ok(Walk { bytes, at: start(bytes)?, number: 0 })
}

impl Format for Lines {
    fn name(&self) -> &'static str {
        "JSON Lines file"
    }

    fn load(&self, bytes: &[u8]) -> Result<Loaded, Unreadable> {
        let mut filling = Filling::new(&self.name, "line");
        for line in walk(bytes)? {
            let Line { number, span: Range { start: from, end: to }, .. } = line;
            let at = Where { bytes, named: Some(("line", number)) };
            let doc = object(bytes, from, to, &at).map_err(|wrong| is_document(bytes, wrong))?;
            filling.take(number, doc.root()).map_err(|too_many| too_many.told(&at, from))?;
        }
        Ok(Loaded { tables: vec![filling.table], ..Loaded::default() })
    }

    fn rewrite(&self, bytes: &[u8], _table: usize, edit: &Edit<'_>) -> Result<Vec<u8>, WriteFault> {
        let mut lines = walk(bytes).map_err(|_| edit::changed())?;
        match edit {
            Edit::Append { cells } => {
                let last = lines.last();
                let style =
                    last.as_ref().map(|last| Style::of(&bytes[last.span.clone()])).unwrap_or_default();
                let mut new = Vec::new();
                edit::new_object(&mut new, &style.on_one_line(), cells)?;
                let end = end(bytes);
                let mut out = Vec::with_capacity(bytes.len() + new.len() + 2 * end.len());
                out.extend_from_slice(bytes);
                // Whoever leaves the last line without an end finds it so again.
                let is_open = last.is_some() && !bytes.ends_with(b"\n");
                if is_open {
                    out.extend_from_slice(end);
                }
                out.extend_from_slice(&new);
                if !is_open {
                    out.extend_from_slice(end);
                }
                Ok(out)
            }
            Edit::Set { row, cells } => {
                let line = lines.nth(*row).ok_or_else(edit::changed)?;
                let mut new = Vec::new();
                edit::set(&mut new, &bytes[line.span.clone()], cells)?;
                Ok(edit::splice(bytes, line.span, &new))
            }
            Edit::Remove { row } => {
                let mut from = start(bytes).map_err(|_| edit::changed())?;
                if let Some(before) = row.checked_sub(1) {
                    from = lines.nth(before).ok_or_else(edit::changed)?.next;
                }
                let line = lines.next().ok_or_else(edit::changed)?;
                // Blank lines before it stay.
                let blank = &bytes[from..line.span.start];
                from += memchr::memrchr(b'\n', blank).map_or(0, |end| end + 1);
                Ok(edit::splice(bytes, from..line.next, b""))
            }
        }
    }

    fn spot(&self, bytes: &[u8], _table: usize, row: usize, column: Option<&str>) -> Option<Spot> {
        let line = walk(bytes).ok()?.nth(row)?;
        edit::spot(bytes, line.span, column)
    }
}

/// How the first line ends.
fn end(bytes: &[u8]) -> &'static [u8] {
    match memchr(b'\n', bytes) {
        Some(at) if bytes[..at].ends_with(b"\r") => b"\r\n",
        Some(_) | None => b"\n",
    }
}

/// What is one document is read as one where somebody says so.
fn is_document(bytes: &[u8], wrong: Unreadable) -> Unreadable {
    let text = &bytes[start(bytes).unwrap_or(0)..];
    let begins = text.trim_ascii_start();
    const LOOKED_BYTES_MAX: usize = 1 << 20;
    let is_whole = || text.len() <= LOOKED_BYTES_MAX && scan(text.to_vec(), &ScanLimits::default()).is_ok();
    if begins.starts_with(b"[") || (begins.starts_with(b"{") && is_whole()) {
        let help = "it looks like one JSON document: name it `.json`, or say `kind = \"json\"`";
        return Unreadable { help: Some(help.into()), ..wrong };
    }
    wrong
}

//! Writes one row of the file.
//!
//! The file is taken apart as it is under the lock, one splice is made, and the bytes with it are taken apart again
//! before they are kept: every row but the touched one must be there as it was, the touched one as it was meant, and
//! whoever reads the file must still be able to.

use std::borrow::Cow;
use std::sync::Arc;

use contract::cursor::KEY_BYTES_MAX;
use contract::source::{Change, Clerk, SourceFault, Write, WriteFault, Writer, Written};
use contract::{Cell, Kind};

use super::fit::{Fit, Plan};
use super::load::{Delimited, Loaded};
use super::splice::Splice;
use super::table::Table;
use super::trouble::Trouble;
use crate::files::Edited;
use crate::live::Fit as _;
use crate::watch::{Content, Watch};

pub(super) struct Pen {
    watch: Arc<Watch<Delimited>>,
    plan: Plan,
}

/// A change in the making.
struct Draft {
    splice: Option<Splice>,
    /// Which row there is more or less.
    rows: Rows,
    /// What the touched row must say afterwards, by places in the file.
    expected: Vec<(usize, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// One more, behind the others.
    More,
    /// The same, this one touched.
    Same(u32),
    /// One less: this.
    Less(u32),
}

impl Pen {
    pub(super) fn new(watch: Arc<Watch<Delimited>>, plan: Plan) -> Self {
        Self { watch, plan }
    }
}

impl Writer for Pen {
    fn write(&self, write: &Write<'_>, clerk: &mut dyn Clerk) -> Result<Written, WriteFault> {
        self.watch.write(write, |bytes| self.edit(bytes, &write.change, clerk))
    }
}

impl Pen {
    /// The bytes with the change, what is told of it, and what the bytes say if that is something else.
    fn edit(
        &self,
        bytes: &[u8],
        change: &Change<'_>,
        clerk: &mut dyn Clerk,
    ) -> Result<(Edited, Option<Arc<Loaded>>), WriteFault> {
        let old = self.watch.loaded(bytes).map_err(|trouble| self.watch.fault(&trouble))?;
        let fit = self.plan.fit(&old).map_err(|trouble| self.watch.fault(&trouble))?;
        let draft = match change {
            Change::Create { cells } => self.create(&fit, cells)?,
            Change::Update { key, cells } => self.update(&fit, key, cells, clerk)?,
            Change::Delete { key } => {
                let row = fit.find(key).ok_or(WriteFault::NotFound)?;
                fit.before(row, clerk)?;
                Draft { splice: Some(fit.table.remove(row)), rows: Rows::Less(row), expected: Vec::new() }
            }
        };
        let Some(splice) = &draft.splice else {
            let Rows::Same(row) = draft.rows else { unreachable!("a row more or less is a splice") };
            let told = fit.after(row, clerk)?;
            return Ok((Edited { bytes: bytes.to_vec(), told }, None));
        };
        let (bytes, new) = self.apply(bytes, &old, splice)?;
        self.prove(&old, &new, splice, draft.rows)?;
        let new_fit = self.plan.fit(&new).map_err(|trouble| self.refused(&trouble))?;
        if let Some(trouble) = self.watch.lost(&old, &new) {
            return Err(self.refused(&trouble));
        }
        let told = match draft.rows {
            Rows::More => read_back(&new_fit, new.table.len() - 1, &draft, clerk)?,
            Rows::Same(row) => read_back(&new_fit, row, &draft, clerk)?,
            Rows::Less(row) => fit.after(row, clerk)?,
        };
        Ok((Edited { bytes, told }, Some(new)))
    }

    fn create(&self, fit: &Fit, cells: &[(usize, Cell<'_>)]) -> Result<Draft, WriteFault> {
        let said = self.render(fit, cells)?;
        let mut texts: Vec<Cow<'_, str>> = Vec::with_capacity(fit.table.header.len());
        for field in 0..fit.table.header.len() {
            let given = said.iter().rev().find(|(place, _)| fit.columns[*place].field == field);
            let place = fit.columns.iter().position(|column| column.field == field);
            texts.push(match (given, place) {
                (Some((_, text)), _) => Cow::Borrowed(text),
                (None, Some(place)) => {
                    let default = self.plan.columns[place].default();
                    Cow::Borrowed(default.map_err(|why| WriteFault::Refused { column: Some(place), why })?)
                }
                // Nobody who reads through this contract knows of it.
                (None, None) => Cow::Borrowed(self.plan.null.as_deref().unwrap_or_default()),
            });
        }
        let key: Vec<&str> = self.plan.key.iter().map(|place| &*texts[fit.columns[*place].field]).collect();
        self.check_key(&key)?;
        let key: Vec<Cell<'_>> = key.into_iter().map(Cell::Text).collect();
        if !key.is_empty() && fit.find(&key).is_some() {
            return Err(WriteFault::Exists);
        }
        let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
        let expected = texts.iter().map(|text| (*text).to_owned()).enumerate().collect();
        Ok(Draft { splice: Some(fit.table.append(&texts)), rows: Rows::More, expected })
    }

    fn update(
        &self,
        fit: &Fit,
        key: &[Cell<'_>],
        cells: &[(usize, Cell<'_>)],
        clerk: &mut dyn Clerk,
    ) -> Result<Draft, WriteFault> {
        let row = fit.find(key).ok_or(WriteFault::NotFound)?;
        let more = fit.before(row, clerk)?;
        let more = more.iter().map(|(place, value)| (*place, value.as_cell()));
        let cells: Vec<(usize, Cell<'_>)> = cells.iter().copied().chain(more).collect();
        let mut said = self.render(fit, &cells)?;
        // What means the same already is left as it stands.
        let is_news = |(place, text): &(usize, String)| {
            let column = &fit.columns[*place];
            let is = fit.table.text(row, column.field);
            let is_same_number = || column.kind == Kind::Number && is_same_number(&is, text);
            !(is == *text || (column.is_null(&is) && column.is_null(text)) || is_same_number())
        };
        said.retain(is_news);
        let key = said.iter().filter(|(place, _)| self.plan.key.contains(place));
        self.check_key(&key.map(|(_, text)| &**text).collect::<Vec<_>>())?;
        let expected: Vec<(usize, String)> =
            said.into_iter().map(|(place, text)| (fit.columns[place].field, text)).collect();
        let texts: Vec<(usize, &str)> = expected.iter().map(|(field, text)| (*field, &**text)).collect();
        Ok(Draft { splice: fit.table.set(row, &texts), rows: Rows::Same(row), expected })
    }

    /// Texts by places in the shape. If a place comes twice, the last counts.
    fn render(&self, fit: &Fit, cells: &[(usize, Cell<'_>)]) -> Result<Vec<(usize, String)>, WriteFault> {
        let mut said: Vec<(usize, String)> = Vec::with_capacity(cells.len());
        for (place, cell) in cells {
            let column = &self.plan.columns[*place];
            let text = column.render(*cell, self.watch.content.options.formulas, fit.table.written);
            let text = text.map_err(|why| WriteFault::Refused { column: Some(*place), why })?;
            said.retain(|(other, _)| other != place);
            said.push((*place, text.into_owned()));
        }
        Ok(said)
    }

    /// A key is what cursors and callers name a row by.
    fn check_key(&self, texts: &[&str]) -> Result<(), WriteFault> {
        let refused = |why: String| Err(WriteFault::Refused { column: self.plan.key.first().copied(), why });
        if texts.iter().any(|text| text.is_empty()) {
            return refused("expected a value, because it is the key".into());
        }
        if texts.iter().map(|text| text.len()).sum::<usize>() > KEY_BYTES_MAX {
            return refused(format!("a key has at most {KEY_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    fn apply(
        &self,
        bytes: &[u8],
        old: &Loaded,
        splice: &Splice,
    ) -> Result<(Vec<u8>, Arc<Loaded>), WriteFault> {
        let refused = |why: String| WriteFault::Refused { column: None, why };
        let bytes = splice
            .bytes(&old.table, bytes)
            .map_err(|c| refused(format!("`{}` cannot be written in this file", c.escape_debug())))?;
        let loaded = self.watch.content.load(bytes.clone()).map_err(|trouble| self.refused(&trouble))?;
        Ok((bytes, Arc::new(loaded)))
    }

    /// That the file is the old one but for the splice, in whichever way it is looked at.
    fn prove(&self, old: &Loaded, new: &Loaded, splice: &Splice, rows: Rows) -> Result<(), WriteFault> {
        let refused = |why: &str| Err(WriteFault::Refused { column: None, why: why.into() });
        let (old, new) = (&old.table, &new.table);
        // A file without a strange character left is the same in several encodings.
        if new.text != splice.text(&old.text) {
            return refused("the file would be taken for one in another encoding; save it as UTF-8");
        }
        if new.split.delimiter != old.split.delimiter {
            return refused(
                "the file would be taken for one with another delimiter; `delimiter` for the source in the manifest \
                 says which it is",
            );
        }
        if new.header != old.header || !has_rows(old, new, splice, rows) {
            return refused("other rows would not be read as they are now");
        }
        Ok(())
    }

    /// The file as it would be is wrong: the change is at fault.
    fn refused(&self, trouble: &Trouble) -> WriteFault {
        let place = |name: &str| self.plan.columns.iter().position(|column| column.name == name);
        let told = || match self.watch.fault(trouble) {
            SourceFault::Changed { told, .. } | SourceFault::Unavailable { told, .. } => told,
            other => other.to_string(),
        };
        let because = |column: &str| WriteFault::Refused {
            column: place(column),
            why: format!("the file would not be what it is read as: {}", told()),
        };
        match trouble {
            Trouble::KeyTwice { .. } => WriteFault::Exists,
            Trouble::NotOfKind { column, .. }
            | Trouble::NoValue { column, .. }
            | Trouble::NoKey { column, .. } => because(column),
            Trouble::File(_)
            | Trouble::Empty
            | Trouble::LooksLike(_)
            | Trouble::Nul { .. }
            | Trouble::BrokenUtf8 { .. }
            | Trouble::BrokenUtf16
            | Trouble::Delimiter(_)
            | Trouble::TooManyColumns(_)
            | Trouble::Ragged { .. }
            | Trouble::Unclosed { .. }
            | Trouble::NoColumn { .. } => because(""),
        }
    }
}

/// Rows begin where they began, or as much further as the splice is longer.
fn has_rows(old: &Table, new: &Table, splice: &Splice, rows: Rows) -> bool {
    let (touched, more, less) = match rows {
        Rows::More => (old.len(), 1, 0),
        Rows::Same(row) => (row, 1, 1),
        Rows::Less(row) => (row, 0, 1),
    };
    let touched = touched as usize;
    let shift = |at: u32| (at as usize + splice.with.len()).checked_sub(splice.at.len());
    let behind = new.rows.get(touched + more..).unwrap_or_default();
    let old_behind = &old.rows[touched + less..];
    new.rows.len() + less == old.rows.len() + more
        && new.rows[..touched] == old.rows[..touched]
        && behind.iter().zip(old_behind).all(|(new, old)| shift(*old) == Some(*new as usize))
}

fn read_back(fit: &Fit, row: u32, draft: &Draft, clerk: &mut dyn Clerk) -> Result<Vec<u8>, WriteFault> {
    let is_as_meant = draft.expected.iter().all(|(field, text)| fit.table.text(row, *field) == *text);
    if !is_as_meant {
        let why = "the row would not read back as it was meant".into();
        return Err(WriteFault::Refused { column: None, why });
    }
    fit.after(row, clerk)
}

fn is_same_number(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a.to_bits() == b.to_bits(),
        _ => false,
    }
}

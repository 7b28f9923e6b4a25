//! Writes one row: found by its key, changed in the file's bytes, read back, compared with everything there was,
//! and only then kept.

use std::sync::Arc;

use contract::Cell;
use contract::source::{Change, Clerk, Shape, SourceFault, Write, WriteFault, Writer, Written};

use super::fit::{Fit, Plan};
use super::put::Asked;
use super::state::{Kept, State};
use super::table::{Held, Table};
use super::trouble::Trouble;
use super::{Edit, Put};
use crate::files::Edited;
use crate::live::{Fit as _, fitted};
use crate::watch::{Content, Watch};

pub(super) struct Pen {
    watch: Arc<Watch<Kept>>,
    plan: Plan,
}

/// What is to become of the table.
enum Step {
    Append(Vec<Asked>),
    Set(u32, Vec<Asked>),
    Remove(u32),
}

impl Pen {
    pub(super) fn new(watch: Arc<Watch<Kept>>, shape: &Shape) -> Result<Self, SourceFault> {
        let fitted = fitted(&watch, shape, watch.fresh());
        let (plan, fit) = fitted.map_err(|trouble| watch.fault(&trouble))?;
        if fit.table.read_only.is_some() {
            return Err(SourceFault::read_only());
        }
        Ok(Self { watch, plan })
    }

    fn fault(&self, trouble: &Trouble) -> WriteFault {
        self.watch.fault(trouble).into()
    }

    /// The bytes with the change, what is told of it, and what the bytes hold if that is something else.
    fn edit(
        &self,
        bytes: &[u8],
        change: &Change<'_>,
        clerk: &mut dyn Clerk,
    ) -> Result<(Edited, Option<Arc<State>>), WriteFault> {
        let old = self.watch.loaded(bytes).map_err(|trouble| self.fault(&trouble))?;
        let fit = self.plan.fit(&old).map_err(|trouble| self.fault(&trouble))?;
        let step = fit.step(change, clerk)?;
        if let Step::Set(row, asked) = &step
            && asked.is_empty()
        {
            let told = told(&fit, *row, &[], clerk)?;
            return Ok((Edited { bytes: bytes.to_vec(), told }, None));
        }
        let new_bytes = self.rewritten(bytes, &fit, &step)?;
        let new = self.read_back(&new_bytes)?;
        compare(&old, &new, &fit, &step)?;
        let new_fit = self.plan.fit(&new).map_err(|trouble| self.misfit(&trouble))?;
        let told = match &step {
            Step::Append(asked) => told(&new_fit, fit.table.len(), asked, clerk)?,
            Step::Set(row, asked) => told(&new_fit, *row, asked, clerk)?,
            Step::Remove(row) => told(&fit, *row, &[], clerk)?,
        };
        Ok((Edited { bytes: new_bytes, told }, Some(new)))
    }

    fn rewritten(&self, bytes: &[u8], fit: &Fit, step: &Step) -> Result<Vec<u8>, WriteFault> {
        let format = &self.watch.content.format;
        let asked = match step {
            Step::Append(asked) | Step::Set(_, asked) => &asked[..],
            Step::Remove(_) => &[],
        };
        let mut texts = vec![String::new(); asked.len()];
        let puts: Vec<Put<'_>> = asked
            .iter()
            .zip(&mut texts)
            .map(|(asked, text)| {
                let column = &fit.columns[asked.place];
                let moments = column.field.map(|field| fit.table.seen(field).moments()).unwrap_or_default();
                Put {
                    column: header_place(fit, asked.place),
                    name: &column.name,
                    value: asked.held(text, moments),
                }
            })
            .collect();
        let edit = match step {
            Step::Append(_) => Edit::Append { cells: &puts },
            Step::Set(row, _) => Edit::Set { row: *row as usize, cells: &puts },
            Step::Remove(row) => Edit::Remove { row: *row as usize },
        };
        format.rewrite(bytes, fit.at, &edit).map_err(|fault| match fault {
            WriteFault::Refused { column: Some(at), why } => {
                let place =
                    asked.iter().map(|asked| asked.place).find(|place| header_place(fit, *place) == at);
                WriteFault::Refused { column: place, why }
            }
            fault => fault,
        })
    }

    fn read_back(&self, bytes: &[u8]) -> Result<Arc<State>, WriteFault> {
        if bytes.len() as u64 > self.watch.content.file_bytes_max() {
            return Err(refused(None, "the file would be too large"));
        }
        match self.watch.content.state(bytes) {
            Ok(state) => Ok(Arc::new(state)),
            Err(_) => Err(refused(None, "the file could not be read afterwards")),
        }
    }

    /// What the file as it would be lacks, in the words of whoever asked for it.
    fn misfit(&self, trouble: &Trouble) -> WriteFault {
        let place = |name: &str| self.plan.place(name);
        match trouble {
            Trouble::KeyTwice { .. } => WriteFault::Exists,
            Trouble::NoKey { column, .. } => refused(place(column), "a key must have a value"),
            Trouble::NoValue { column, .. } => refused(place(column), "there must be a value"),
            Trouble::NotOfKind { column, kind, .. } => {
                refused(place(column), &format!("it is not of the kind `{}`", kind.as_str()))
            }
            Trouble::File(_)
            | Trouble::Unreadable(_)
            | Trouble::Full
            | Trouble::Bare
            | Trouble::NoTable { .. }
            | Trouble::NoColumn { .. } => refused(None, "the file would no longer fit its contract"),
        }
    }
}

impl Writer for Pen {
    fn write(&self, write: &Write<'_>, clerk: &mut dyn Clerk) -> Result<Written, WriteFault> {
        self.watch.write(write, |bytes| self.edit(bytes, &write.change, clerk))
    }
}

fn refused(column: Option<usize>, why: &str) -> WriteFault {
    WriteFault::Refused { column, why: why.into() }
}

/// Where a column of the shape stands in the table: behind all others, if no row names it.
fn header_place(fit: &Fit, place: usize) -> usize {
    fit.columns[place].field.unwrap_or(fit.table.header.len() + place)
}

/// The row as it reads back, shown to the clerk, if it is told as it was asked for.
fn told(fit: &Fit, row: u32, asked: &[Asked], clerk: &mut dyn Clerk) -> Result<Vec<u8>, WriteFault> {
    for asked in asked {
        let column = &fit.columns[asked.place];
        if !asked.is_told_as(column, column.told(&fit.table, row).cell()) {
            return Err(refused(Some(asked.place), "it would not read back as it is"));
        }
    }
    fit.after(row, clerk)
}

impl Fit {
    fn step(&self, change: &Change<'_>, clerk: &mut dyn Clerk) -> Result<Step, WriteFault> {
        match change {
            Change::Create { cells } => {
                let asked = self.asked(cells.iter().copied())?;
                self.check_new(&asked)?;
                Ok(Step::Append(asked))
            }
            Change::Update { key, cells } => {
                let row = self.find(key).ok_or(WriteFault::NotFound)?;
                let more = self.before(row, clerk)?;
                // What the clerk says goes before what the caller says.
                let is_said = |place: &usize| more.iter().any(|(other, _)| other == place);
                let kept = cells.iter().copied().filter(|(place, _)| !is_said(place));
                let more = more.iter().map(|(place, value)| (*place, value.as_cell()));
                let mut asked = self.asked(kept.chain(more))?;
                // What nobody could tell apart is not changed: a `true` in the file does not become a `"true"`.
                asked.retain(|asked| {
                    let column = &self.columns[asked.place];
                    !asked.is_there(column, column.told(&self.table, row).cell())
                });
                Ok(Step::Set(row, asked))
            }
            Change::Delete { key } => {
                let row = self.find(key).ok_or(WriteFault::NotFound)?;
                self.before(row, clerk)?;
                Ok(Step::Remove(row))
            }
        }
    }

    fn asked<'a>(&self, cells: impl Iterator<Item = (usize, Cell<'a>)>) -> Result<Vec<Asked>, WriteFault> {
        let asked = cells.map(|(place, cell)| {
            let column = &self.columns[place];
            let computed = column.field.and_then(|at| self.table.computed.iter().find(|(one, _)| *one == at));
            if let Some((_, why)) = computed {
                return Err(refused(Some(place), why));
            }
            let sort = column.field.map(|field| self.table.seen(field).sort()).unwrap_or_default();
            Asked::new(place, column, sort, cell)
        });
        asked.collect()
    }

    /// A new row has a key, and one that no other row has.
    fn check_new(&self, asked: &[Asked]) -> Result<(), WriteFault> {
        let mut key = Vec::with_capacity(self.orders.key.len());
        for place in &self.orders.key {
            let cell = asked.iter().find(|asked| asked.place == *place).map(|asked| asked.value.as_cell());
            match cell {
                Some(cell) if self.columns[*place].key(cell).is_some() => key.push(cell),
                Some(_) | None => return Err(refused(Some(*place), "a key must have a value")),
            }
        }
        if !key.is_empty() && self.find(&key).is_some() {
            return Err(WriteFault::Exists);
        }
        Ok(())
    }
}

/// Whether everything that nobody named is what it was.
fn compare(old: &State, new: &State, fit: &Fit, step: &Step) -> Result<(), WriteFault> {
    let is_same = old.tables.len() == new.tables.len()
        && old.tables.iter().zip(&new.tables).enumerate().all(|(at, (old, new))| {
            old.name == new.name
                && match at == fit.at {
                    true => Both::new(old, new).is_some_and(|both| both.are_same_but(fit, step)),
                    false => Both::new(old, new).is_some_and(|both| both.are_same()),
                }
        });
    if is_same { Ok(()) } else { Err(refused(None, "more than this record would change in the file")) }
}

/// A table before and after.
struct Both<'a> {
    old: &'a Table,
    new: &'a Table,
    /// Places in both. What is computed may be computed anew.
    columns: Vec<(Option<usize>, Option<usize>)>,
}

impl<'a> Both<'a> {
    /// Nothing if their columns are not the same ones.
    fn new(old: &'a Table, new: &'a Table) -> Option<Self> {
        let is_computed = |at: usize| old.computed.iter().any(|(one, _)| *one == at);
        let columns = if old.header == new.header {
            (0..old.header.len()).filter(|at| !is_computed(*at)).map(|at| (Some(at), Some(at))).collect()
        } else if old.is_loose && new.is_loose {
            let place = |table: &Table, name: &String| table.header.iter().position(|one| one == name);
            let kept = old.header.iter().enumerate().map(|(at, name)| (Some(at), place(new, name)));
            let is_new = |(_, name): &(usize, &String)| place(old, name).is_none();
            let added = new.header.iter().enumerate().filter(is_new).map(|(at, _)| (None, Some(at)));
            kept.chain(added).collect()
        } else {
            return None;
        };
        Some(Self { old, new, columns })
    }

    fn are_same(&self) -> bool {
        self.old.len() == self.new.len()
            && (0..self.old.len()).all(|row| self.is_same_row(row, row, |_, _| false))
    }

    fn are_same_but(&self, fit: &Fit, step: &Step) -> bool {
        let rows = self.old.len();
        let nobody = |_: Option<usize>, _: Option<usize>| false;
        let is_same = |old: u32, new: u32| self.is_same_row(old, new, nobody);
        match step {
            Step::Append(asked) => {
                self.new.len() == rows + 1
                    && (0..rows).all(|row| is_same(row, row))
                    && self.columns.iter().all(|(old, new)| {
                        self.is_named(fit, asked, *old, *new) || held(self.new, rows, *new) == Held::Null
                    })
            }
            Step::Set(changed, asked) => {
                self.new.len() == rows
                    && (0..rows).all(|row| match row == *changed {
                        true => self.is_same_row(row, row, |old, new| self.is_named(fit, asked, old, new)),
                        false => is_same(row, row),
                    })
            }
            Step::Remove(removed) => {
                self.new.len() + 1 == rows
                    && (0..rows)
                        .filter(|row| row != removed)
                        .all(|row| is_same(row, if row < *removed { row } else { row - 1 }))
            }
        }
    }

    fn is_named(&self, fit: &Fit, asked: &[Asked], old: Option<usize>, new: Option<usize>) -> bool {
        asked.iter().any(|asked| {
            let column = &fit.columns[asked.place];
            match column.field {
                Some(field) => old == Some(field),
                None => new.is_some_and(|at| self.new.header[at] == column.name),
            }
        })
    }

    fn is_same_row(
        &self,
        old: u32,
        new: u32,
        is_named: impl Fn(Option<usize>, Option<usize>) -> bool,
    ) -> bool {
        self.columns.iter().all(|(before, after)| {
            is_same(held(self.old, old, *before), held(self.new, new, *after)) || is_named(*before, *after)
        })
    }
}

fn held(table: &Table, row: u32, column: Option<usize>) -> Held<'_> {
    column.map_or(Held::Null, |column| table.held(row, column))
}

fn is_same(a: Held<'_>, b: Held<'_>) -> bool {
    match (a, b) {
        (Held::Real(a), Held::Real(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}

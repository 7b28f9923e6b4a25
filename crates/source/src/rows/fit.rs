//! A table seen through the shape that was compiled, or the place at which it no longer has that shape.

use std::borrow::Cow;
use std::sync::Arc;

use contract::nearest;
use contract::source::Shape;

use super::column::Column;
use super::index::Index;
use super::state::{Kept, State};
use super::table::Table;
use super::trouble::{Place, Trouble};
use crate::live::plan::{self, Need};
use crate::live::{Orders, Sorted, Tabular, Told};

/// What a contract reads, by the names in the file. Outlives any one state of it.
pub(super) struct Plan {
    table: String,
    columns: Vec<Wanted>,
    /// Places in `columns`.
    key: Vec<usize>,
}

struct Wanted {
    /// How many columns of this name come before it.
    before: usize,
    nullable: bool,
    column: Column,
}

/// One state of the table, ready to be read.
pub(super) struct Fit {
    /// The place of the table in the file.
    pub(super) at: usize,
    pub(super) table: Arc<Table>,
    /// In the order of the shape.
    pub(super) columns: Vec<Column>,
    pub(super) index: Option<Index>,
    pub(super) orders: Orders,
}

impl Tabular for Kept {
    type Plan = Plan;
    type Fit = Fit;

    fn plan(&self, shape: &Shape, state: &State) -> Plan {
        Plan::new(shape, state)
    }

    fn fit(plan: &Plan, state: &State) -> Result<Fit, Trouble> {
        plan.fit(state)
    }
}

impl Sorted for Fit {
    type Column = Column;

    fn len(&self) -> u32 {
        self.table.len()
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn orders(&self) -> &Orders {
        &self.orders
    }

    /// The row: columns are kept as such.
    #[inline]
    fn spot(&self, row: u32, _: &Column) -> u32 {
        row
    }

    #[inline]
    fn told_at(&self, row: u32, column: &Column) -> Told<'_> {
        column.told(&self.table, row)
    }
}

impl Plan {
    fn new(shape: &Shape, state: &State) -> Self {
        let header = state.find(&shape.table).map(|at| &state.tables[at].header[..]).unwrap_or_default();
        let columns = shape.columns.iter().map(|column| Wanted {
            before: plan::before(column, header),
            nullable: column.nullable,
            column: Column {
                name: column.name.clone(),
                field: None,
                kind: column.kind,
                mixed: column.mixed,
                null: column.null.clone(),
                nests: false,
            },
        });
        Self { table: shape.table.clone(), columns: columns.collect(), key: shape.key.clone() }
    }

    /// Where a column of this name stands in the shape.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|wanted| wanted.column.name == name)
    }

    pub(super) fn fit(&self, state: &State) -> Result<Fit, Trouble> {
        let at = state.find(&self.table).ok_or_else(|| {
            let others = state.tables.iter().map(|table| table.name.as_str());
            let near = nearest(&self.table, others).map(str::to_owned);
            Trouble::NoTable { name: self.table.clone(), near }
        })?;
        let table = &state.tables[at];
        let mut columns = Vec::with_capacity(self.columns.len());
        for (place, wanted) in self.columns.iter().enumerate() {
            let field = self.find(wanted, table)?;
            let column = Column { field, nests: table.nests, ..wanted.column.clone() };
            let nullable = wanted.nullable || wanted.column.null.is_some();
            let need = Need::of(self.key.contains(&place), nullable);
            check(at, table, &column, need)?;
            columns.push(column);
        }
        let index = match &self.key[..] {
            [] => None,
            key => Some(self.index(at, table, &columns, key)?),
        };
        Ok(Fit {
            at,
            table: table.clone(),
            columns,
            orders: Orders::new(&self.key, if index.is_some() { 0 } else { state.number() }),
            index,
        })
    }

    fn find(&self, wanted: &Wanted, table: &Table) -> Result<Option<usize>, Trouble> {
        let name = &wanted.column.name;
        match plan::find(name, wanted.before, &table.header) {
            Some(place) => Ok(Some(place)),
            None if table.is_loose => Ok(None),
            None => {
                let is_ours = |name: &str| self.columns.iter().any(|wanted| wanted.column.name == name);
                let near = plan::near(name, &table.header, is_ours);
                Err(Trouble::NoColumn { name: name.clone(), near })
            }
        }
    }

    fn index(&self, at: usize, table: &Table, columns: &[Column], key: &[usize]) -> Result<Index, Trouble> {
        let key: Vec<&Column> = key.iter().map(|place| &columns[*place]).collect();
        Index::build(table, &key, table.len()).map_err(|twice| {
            let text = |column: &&Column| match column.text(column.told(table, twice.second).cell()) {
                Some(text) => text.into_owned(),
                None => String::new(),
            };
            Trouble::KeyTwice {
                at: [place(at, table, twice.first), place(at, table, twice.second)],
                columns: key.iter().map(|column| column.name.clone()).collect(),
                texts: key.iter().map(text).collect(),
            }
        })
    }
}

fn place(at: usize, table: &Table, row: u32) -> Place {
    Place { table: at, row, unit: table.unit, number: table.place(row) }
}

/// Most columns are settled by what was seen while loading; the others are walked, to name the row.
fn check(at: usize, table: &Table, column: &Column, need: Need) -> Result<(), Trouble> {
    if let Some(field) = column.field {
        let seen = table.seen(field);
        let (kind, mixed) = seen.kind();
        let fits = column.mixed || (kind == column.kind && !mixed);
        let has_all = need == Need::Nothing || (!seen.has_nulls(table.len()) && column.null.is_none());
        if fits && has_all && !(need == Need::Key && seen.may_be_no_key()) {
            return Ok(());
        }
    }
    for row in 0..table.len() {
        let told = column.told(table, row);
        let cell = told.cell();
        let (at, name) = (|| place(at, table, row), || column.name.clone());
        match need {
            Need::Key if column.text(cell).is_none_or(|text| text.is_empty()) => {
                return Err(Trouble::NoKey { at: at(), column: name() });
            }
            Need::Value if cell == contract::Cell::Null => {
                return Err(Trouble::NoValue { at: at(), column: name() });
            }
            Need::Key | Need::Value | Need::Nothing => {}
        }
        if !column.fits(cell) {
            let text = column.text(cell).map(Cow::into_owned).unwrap_or_default();
            return Err(Trouble::NotOfKind { at: at(), column: name(), kind: column.kind, text });
        }
    }
    Ok(())
}

//! A table seen through the shape that was compiled, or the line on which it no longer has that shape.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use contract::infer::is;
use contract::order::Rank;
use contract::source::Shape;
use contract::{Cell, Kind};

use super::index::Index;
use super::load::{Delimited, Loaded};
use super::table::Table;
use super::trouble::Trouble;
use crate::live::plan::{self, Need};
use crate::live::{Compared, Orders, Sorted, Tabular, Told};

/// What a contract reads, by the names in the file. Outlives any one state of it.
pub(super) struct Plan {
    pub(super) columns: Vec<Wanted>,
    /// Places in `columns`.
    pub(super) key: Vec<usize>,
    /// What means "no value" in the whole file.
    pub(super) null: Option<String>,
}

pub(super) struct Wanted {
    pub(super) name: String,
    /// How many columns of this name come before it.
    before: usize,
    pub(super) kind: Kind,
    pub(super) nullable: bool,
    pub(super) mixed: bool,
    pub(super) null: Option<String>,
}

/// One state of the file, ready to be read.
pub(super) struct Fit {
    pub(super) table: Arc<Table>,
    /// In the order of the shape.
    pub(super) columns: Vec<Column>,
    /// Places in the file, ascending, and in the shape.
    pub(super) walk: Vec<(usize, usize)>,
    pub(super) index: Option<Arc<Index>>,
    pub(super) orders: Orders,
}

pub(super) struct Column {
    /// The place in the file.
    pub(super) field: usize,
    pub(super) kind: Kind,
    null: Option<String>,
}

impl Column {
    /// Whether a text means that there is no value.
    #[inline]
    pub(super) fn is_null(&self, text: &str) -> bool {
        (text.is_empty() && self.kind != Kind::Text) || self.null.as_deref().is_some_and(|null| null == text)
    }

    /// A value from outside as this column would write it.
    pub(super) fn written<'a>(&self, cell: Cell<'a>) -> Option<Cow<'a, str>> {
        match cell {
            Cell::Text(text) => Some(Cow::Borrowed(text)),
            Cell::Integer(n) if self.kind == Kind::Boolean => {
                Some(Cow::Borrowed(if n == 0 { "false" } else { "true" }))
            }
            Cell::Integer(n) => Some(Cow::Owned(n.to_string())),
            Cell::Real(n) => Some(Cow::Owned(n.to_string())),
            Cell::Null | Cell::Blob(_) => None,
        }
    }
}

impl Tabular for Delimited {
    type Plan = Plan;
    type Fit = Fit;

    fn plan(&self, shape: &Shape, loaded: &Loaded) -> Plan {
        Plan::new(shape, &loaded.table, self.options.null.as_deref())
    }

    fn fit(plan: &Plan, loaded: &Loaded) -> Result<Fit, Trouble> {
        plan.fit(loaded)
    }
}

impl Compared for Column {
    type Rank = Rank;

    fn kind(&self) -> Kind {
        self.kind
    }

    #[inline]
    fn rank(&self, value: Cell<'_>) -> Rank {
        let Cell::Text(text) = value else { unreachable!("a CSV file holds texts only") };
        Rank::of(self.kind, text)
    }

    #[inline]
    fn compared<'a>(&self, told: Told<'a>) -> Told<'a> {
        told
    }

    fn tell_apart(&self, a: Cell<'_>, b: Cell<'_>) -> Ordering {
        match (a, b) {
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
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

    /// The byte at which the field begins.
    #[inline]
    fn spot(&self, row: u32, column: &Column) -> u32 {
        self.table.begin(row, column.field)
    }

    #[inline]
    fn told_at(&self, spot: u32, column: &Column) -> Told<'_> {
        match self.table.text_at(spot) {
            text if column.is_null(&text) => Told::Cell(Cell::Null),
            Cow::Borrowed(text) => Told::Cell(Cell::Text(text)),
            Cow::Owned(text) => Told::Text(text),
        }
    }
}

impl Plan {
    fn new(shape: &Shape, table: &Table, null: Option<&str>) -> Self {
        let columns = shape.columns.iter().map(|column| Wanted {
            name: column.name.clone(),
            before: plan::before(column, &table.header),
            kind: column.kind,
            nullable: column.nullable,
            mixed: column.mixed,
            null: column.null.clone().or_else(|| null.map(str::to_owned)),
        });
        Self { columns: columns.collect(), key: shape.key.clone(), null: null.map(str::to_owned) }
    }

    pub(super) fn fit(&self, loaded: &Loaded) -> Result<Fit, Trouble> {
        let table = &loaded.table;
        let fields = self.columns.iter().map(|wanted| self.find(wanted, table));
        let fields = fields.collect::<Result<Vec<usize>, Trouble>>()?;
        for (place, (wanted, field)) in self.columns.iter().zip(&fields).enumerate() {
            let need = Need::of(self.key.contains(&place), wanted.nullable);
            self.check(wanted, need, *field, table)?;
        }
        let index = self.index(&fields, loaded)?;
        let mut walk: Vec<(usize, usize)> = fields.iter().copied().zip(0..).collect();
        walk.sort_unstable();
        let columns = self.columns.iter().zip(&fields).map(|(wanted, field)| Column {
            field: *field,
            kind: wanted.kind,
            null: wanted.null.clone(),
        });
        Ok(Fit {
            table: table.clone(),
            columns: columns.collect(),
            walk,
            orders: Orders::new(&self.key, if index.is_some() { 0 } else { loaded.state() }),
            index,
        })
    }

    fn find(&self, wanted: &Wanted, table: &Table) -> Result<usize, Trouble> {
        plan::find(&wanted.name, wanted.before, &table.header).ok_or_else(|| {
            let is_ours = |name: &str| self.columns.iter().any(|column| column.name == name);
            let near = plan::near(&wanted.name, &table.header, is_ours);
            Trouble::NoColumn { name: wanted.name.clone(), near }
        })
    }

    /// Most columns are settled by what was seen while loading; the others are walked, to name the line.
    fn check(&self, wanted: &Wanted, need: Need, field: usize, table: &Table) -> Result<(), Trouble> {
        let seen = &table.columns[field];
        let same_null = wanted.null == self.null;
        let knows_kind = same_null || self.null.is_none();
        let fits = wanted.mixed || wanted.kind == Kind::Text || (knows_kind && wanted.kind == seen.kind);
        let no_empty = !seen.has_empty || (need == Need::Value && wanted.kind == Kind::Text);
        if fits && (need == Need::Nothing || (same_null && !seen.has_null && no_empty)) {
            return Ok(());
        }
        let column = Column { field, kind: wanted.kind, null: wanted.null.clone() };
        for row in 0..table.len() {
            let text = table.text(row, field);
            let at = || table.spot(row, field);
            let name = || wanted.name.clone();
            let is_absent = column.is_null(&text) || (need == Need::Key && text.is_empty());
            match need {
                Need::Key if is_absent => return Err(Trouble::NoKey { at: at(), column: name() }),
                Need::Value if is_absent => return Err(Trouble::NoValue { at: at(), column: name() }),
                Need::Key | Need::Value | Need::Nothing => {}
            }
            if !is_absent && !wanted.mixed && !is(wanted.kind, &text) {
                let text = text.into_owned();
                return Err(Trouble::NotOfKind { at: at(), column: name(), kind: wanted.kind, text });
            }
        }
        Ok(())
    }

    fn index(&self, fields: &[usize], loaded: &Loaded) -> Result<Option<Arc<Index>>, Trouble> {
        if self.key.is_empty() {
            return Ok(None);
        }
        let key: Vec<usize> = self.key.iter().map(|place| fields[*place]).collect();
        let index = loaded.index(&key).map_err(|twice| {
            let table = &loaded.table;
            Trouble::KeyTwice {
                lines: [table.line(twice.first), table.line(twice.second)],
                columns: self.key.iter().map(|place| self.columns[*place].name.clone()).collect(),
                texts: key.iter().map(|field| table.text(twice.second, *field).into_owned()).collect(),
            }
        })?;
        Ok(Some(index))
    }
}

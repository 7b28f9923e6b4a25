//! XLS as Excel 97 and later write it (BIFF8). Only read.

use contract::source::LeftOut;

use super::Options;
use super::biff::{Records, Segments, compact, f64_at};
use super::budget::{Budget, SHEETS_MAX, broken, smaller};
use super::cfb::{Container, u16_at, u32_at};
use super::grid::{Grid, GridCell, Row, Value};
use super::moment::{Epoch, Shown, builtin, of_code, told};
use super::place::{Area, Place};
use super::zip::locked;
use crate::rows::{Loaded, Unreadable};

/// Kinds of records, as [MS-XLS] 2.3 numbers them.
mod id {
    pub(super) const FORMULA: u16 = 0x06;
    pub(super) const END: u16 = 0x0a;
    pub(super) const DATE_MODE: u16 = 0x22;
    pub(super) const FILE_PASS: u16 = 0x2f;
    pub(super) const BOUND_SHEET: u16 = 0x85;
    pub(super) const MUL_RK: u16 = 0xbd;
    pub(super) const R_STRING: u16 = 0xd6;
    pub(super) const XF: u16 = 0xe0;
    pub(super) const MERGE_CELLS: u16 = 0xe5;
    pub(super) const TEXTS: u16 = 0xfc;
    pub(super) const LABEL_SST: u16 = 0xfd;
    pub(super) const NUMBER: u16 = 0x203;
    pub(super) const LABEL: u16 = 0x204;
    pub(super) const BOOL_ERR: u16 = 0x205;
    pub(super) const STRING: u16 = 0x207;
    pub(super) const ARRAY: u16 = 0x221;
    pub(super) const TABLE: u16 = 0x236;
    pub(super) const RK: u16 = 0x27e;
    pub(super) const FORMAT: u16 = 0x41e;
    pub(super) const SHARED_FORMULA: u16 = 0x4bc;
    pub(super) const BEGIN: u16 = 0x809;
}

const VERSION_8: u16 = 0x600;

#[derive(Default)]
struct Globals {
    epoch: Epoch,
    formats: Vec<(u16, Shown)>,
    /// The format of each style.
    styles: Vec<u16>,
    texts: Vec<Box<str>>,
    sheets: Vec<Bound>,
}

struct Bound {
    name: String,
    at: usize,
    is_hidden: bool,
    has_cells: bool,
}

pub(super) fn load(bytes: &[u8], options: &Options, budget: &mut Budget) -> Result<Loaded, Unreadable> {
    let container = Container::open(bytes, budget)?;
    if container.has("EncryptedPackage") {
        return Err(locked());
    }
    let Some(stream) = container.stream("Workbook", budget)? else {
        let why = match container.has("Book") {
            true => "the workbook was saved by Excel 95 or older",
            false => "the file is no workbook",
        };
        return Err(broken(why));
    };
    let globals = Globals::read(&stream, budget)?;
    let mut loaded = Loaded::default();
    for bound in &globals.sheets {
        let mut leave_out = |why: String| loaded.left_out.push(LeftOut { table: bound.name.clone(), why });
        if !bound.has_cells {
            leave_out("it is a chart or a macro, and has no cells".into());
            continue;
        }
        if bound.is_hidden {
            leave_out("it is hidden in the workbook".into());
            continue;
        }
        let grid = globals.sheet(&stream, bound.at, budget)?;
        match grid.layout(&globals.texts, options.header_row_of(&bound.name)) {
            Ok(layout) => {
                let (table, notes) = grid.table(&bound.name, &layout, &globals.texts, budget)?;
                loaded.tables.push(table);
                loaded.notes.extend(notes);
            }
            Err(why) => leave_out(why),
        }
    }
    Ok(loaded)
}

fn damaged() -> Unreadable {
    broken("the workbook is damaged")
}

impl Globals {
    fn read(stream: &[u8], budget: &mut Budget) -> Result<Self, Unreadable> {
        let mut globals = Self::default();
        let mut records = Records::new(stream, 0);
        let first = records.next(budget)?.filter(|first| first.id == id::BEGIN).ok_or_else(damaged)?;
        if u16_at(first.data(), 0) != Some(VERSION_8) {
            return Err(broken("the workbook was saved by Excel 95 or older"));
        }
        while let Some(mut record) = records.next(budget)? {
            let data = record.data();
            match record.id {
                id::END => break,
                id::FILE_PASS => return Err(locked()),
                id::DATE_MODE if u16_at(data, 0) == Some(1) => globals.epoch = Epoch::Of1904,
                id::FORMAT => {
                    let number = u16_at(data, 0).ok_or_else(damaged)?;
                    record.go_to(2);
                    globals.formats.push((number, of_code(&record.text(budget)?)));
                }
                id::XF => globals.styles.push(u16_at(data, 2).ok_or_else(damaged)?),
                id::BOUND_SHEET => globals.bound(&mut record, budget)?,
                id::TEXTS => {
                    record.go_to(8);
                    while record.has_more() {
                        budget.cells(1)?;
                        globals.texts.push(record.text(budget)?.into_boxed_str());
                    }
                }
                _ => {}
            }
        }
        Ok(globals)
    }

    fn bound(&mut self, record: &mut Segments<'_>, budget: &mut Budget) -> Result<(), Unreadable> {
        if self.sheets.len() == SHEETS_MAX {
            return Err(smaller(format!("the workbook has more than {SHEETS_MAX} sheets")));
        }
        let data = record.data();
        let at = u32_at(data, 0).ok_or_else(damaged)? as usize;
        let [state, kind] = *data.get(4..6).ok_or_else(damaged)? else { return Err(damaged()) };
        record.go_to(6);
        let name = record.short_text(budget)?;
        self.sheets.push(Bound { name, at, is_hidden: state & 3 != 0, has_cells: kind == 0 });
        Ok(())
    }

    fn sheet(&self, stream: &[u8], at: usize, budget: &mut Budget) -> Result<Grid, Unreadable> {
        let mut records = Records::new(stream, at);
        if records.next(budget)?.is_none_or(|first| first.id != id::BEGIN) {
            return Err(damaged());
        }
        let mut cells = Cells { globals: self, found: Vec::new(), merged: Vec::new(), awaits_text: false };
        // Charts on a sheet are sheets within it.
        let mut depth = 1;
        while let Some(mut record) = records.next(budget)? {
            match record.id {
                id::BEGIN => depth += 1,
                id::END => depth -= 1,
                _ if depth == 1 => cells.see(&mut record, budget)?,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        Ok(cells.grid())
    }

    fn number(&self, n: f64, style: u16) -> Value {
        let format = self.styles.get(usize::from(style)).copied().unwrap_or(0);
        let own = self.formats.iter().find(|(number, _)| *number == format);
        let shown = own.map_or_else(|| builtin(format.into()), |(_, shown)| *shown);
        match told(n, shown, self.epoch) {
            Some(moment) => Value::Moment(moment.into_boxed_str()),
            None if n.is_finite() => Value::Number(n),
            None => Value::Error,
        }
    }
}

struct Cells<'g> {
    globals: &'g Globals,
    found: Vec<(Place, bool, Value)>,
    merged: Vec<Area>,
    /// The last formula's value stands in a record of its own.
    awaits_text: bool,
}

impl Cells<'_> {
    fn see(&mut self, record: &mut Segments<'_>, budget: &mut Budget) -> Result<(), Unreadable> {
        let data = record.data();
        let word = |at: usize| u16_at(data, at).ok_or_else(damaged);
        let head = || {
            let place = Place { row: u32::from(word(0)?) + 1, column: word(2)?.into() };
            Ok::<(Place, u16), Unreadable>((place, word(4)?))
        };
        let awaited = std::mem::take(&mut self.awaits_text);
        match record.id {
            id::NUMBER => {
                let (place, style) = head()?;
                let n = f64_at(data, 6).ok_or_else(damaged)?;
                self.push(place, false, self.globals.number(n, style), budget)?;
            }
            id::RK => {
                let (place, style) = head()?;
                let n = compact(u32_at(data, 6).ok_or_else(damaged)?);
                self.push(place, false, self.globals.number(n, style), budget)?;
            }
            id::MUL_RK => {
                let (first, _) = head()?;
                let end = data.len().checked_sub(2).ok_or_else(damaged)?;
                for (at, pair) in data.get(4..end).ok_or_else(damaged)?.chunks_exact(6).enumerate() {
                    let style = u16_at(pair, 0).ok_or_else(damaged)?;
                    let n = compact(u32_at(pair, 2).ok_or_else(damaged)?);
                    let place = Place { row: first.row, column: first.column + at as u32 };
                    self.push(place, false, self.globals.number(n, style), budget)?;
                }
            }
            id::LABEL_SST => {
                let at = u32_at(data, 6).filter(|at| (*at as usize) < self.globals.texts.len());
                self.push(head()?.0, false, Value::Shared(at.ok_or_else(damaged)?), budget)?;
            }
            id::LABEL | id::R_STRING => {
                record.go_to(6);
                let text = record.text(budget)?.into_boxed_str();
                self.push(head()?.0, false, Value::Text(text), budget)?;
            }
            id::BOOL_ERR => {
                let [value, is_error] = *data.get(6..8).ok_or_else(damaged)? else { return Err(damaged()) };
                let value = if is_error != 0 { Value::Error } else { Value::Boolean(value != 0) };
                self.push(head()?.0, false, value, budget)?;
            }
            id::FORMULA => {
                let (place, style) = head()?;
                let result: [u8; 8] =
                    data.get(6..14).and_then(|all| all.try_into().ok()).ok_or_else(damaged)?;
                let value = match result {
                    [0, .., 0xff, 0xff] => {
                        self.awaits_text = true;
                        Value::Uncomputed
                    }
                    [1, _, yes, .., 0xff, 0xff] => Value::Boolean(yes != 0),
                    [2, .., 0xff, 0xff] => Value::Error,
                    [_, .., 0xff, 0xff] => Value::Text("".into()),
                    bytes => self.globals.number(f64::from_le_bytes(bytes), style),
                };
                self.push(place, true, value, budget)?;
            }
            id::STRING if awaited => {
                record.go_to(0);
                let text = record.text(budget)?.into_boxed_str();
                if let Some((_, _, value)) = self.found.last_mut() {
                    *value = Value::Text(text);
                }
            }
            id::SHARED_FORMULA | id::ARRAY | id::TABLE => self.awaits_text = awaited,
            id::MERGE_CELLS => {
                for area in data.get(2..).unwrap_or_default().chunks_exact(8) {
                    budget.step()?;
                    let word = |at: usize| u16_at(area, at).map_or(0, u32::from);
                    let first = Place { row: word(0) + 1, column: word(4) };
                    let last = Place { row: word(2) + 1, column: word(6) };
                    self.merged.push(Area { first, last });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn push(
        &mut self,
        at: Place,
        is_formula: bool,
        value: Value,
        budget: &mut Budget,
    ) -> Result<(), Unreadable> {
        budget.cells(1)?;
        self.found.push((at, is_formula, value));
        Ok(())
    }

    /// By row and column; of two cells at one place the later one.
    fn grid(mut self) -> Grid {
        self.found.sort_by_key(|(at, _, _)| (at.row, at.column));
        let mut rows: Vec<Row> = Vec::new();
        for (at, is_formula, value) in self.found {
            if rows.last().is_none_or(|row| row.number != at.row) {
                rows.push(Row { number: at.row, cells: Vec::new() });
            }
            let cells = &mut rows.last_mut().expect("one was just put there").cells;
            if cells.last().is_some_and(|cell| cell.column == at.column) {
                cells.pop();
            }
            cells.push(GridCell { column: at.column, is_formula, value });
        }
        Grid { rows, region: None, merged: self.merged }
    }
}

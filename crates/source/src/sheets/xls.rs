//! XLS as Excel 97 and later write it (BIFF8). Read only.

use contract::source::SkippedTable;

use super::Options;
use super::address::{CellAddress, CellRange};
use super::biff::{ContinuedRecord, Records, decode_rk, f64_at};
use super::budget::{Budget, SHEETS_MAX, invalid_file_error, too_large_error};
use super::cfb::{CompoundFile, u16_at, u32_at};
use super::grid::{CellValue, Grid, GridCell, GridRow};
use super::serial_date::{Epoch, NumberFormat, builtin_format, format_of_code, format_serial};
use super::zip::password_error;
use crate::tables::{ParseError, ParsedFile};

/// Record types, as numbered in [MS-XLS] 2.3.
mod id {
    pub(super) const FORMULA: u16 = 0x06;
    pub(super) const EOF: u16 = 0x0a;
    pub(super) const DATE_MODE: u16 = 0x22;
    pub(super) const FILE_PASS: u16 = 0x2f;
    pub(super) const BOUND_SHEET: u16 = 0x85;
    pub(super) const MUL_RK: u16 = 0xbd;
    pub(super) const R_STRING: u16 = 0xd6;
    pub(super) const XF: u16 = 0xe0;
    pub(super) const MERGE_CELLS: u16 = 0xe5;
    pub(super) const SST: u16 = 0xfc;
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
    pub(super) const BOF: u16 = 0x809;
}

const BIFF8_VERSION: u16 = 0x600;

#[derive(Default)]
struct Globals {
    epoch: Epoch,
    formats: Vec<(u16, NumberFormat)>,
    /// The format of each style.
    styles: Vec<u16>,
    shared_strings: Vec<Box<str>>,
    sheets: Vec<BoundSheet>,
}

struct BoundSheet {
    name: String,
    offset: usize,
    is_hidden: bool,
    has_cells: bool,
}

pub(super) fn load(bytes: &[u8], options: &Options, budget: &mut Budget) -> Result<ParsedFile, ParseError> {
    let container = CompoundFile::open(bytes, budget)?;
    if container.has("EncryptedPackage") {
        return Err(password_error());
    }
    // Excel 95 called it `Book`, and so do some programs that write the later version.
    let stream = match container.stream("Workbook", budget)? {
        Some(stream) => Some(stream),
        None => container.stream("Book", budget)?,
    };
    let stream = stream.ok_or_else(|| invalid_file_error("the file is not a workbook"))?;
    let globals = Globals::read(&stream, budget)?;
    let mut parsed = ParsedFile::default();
    for bound in &globals.sheets {
        let mut skip =
            |reason: String| parsed.skipped_tables.push(SkippedTable { table: bound.name.clone(), reason });
        if !bound.has_cells {
            skip("it is a chart or a macro sheet, without cells".into());
            continue;
        }
        if bound.is_hidden {
            skip("it is hidden in the workbook".into());
            continue;
        }
        let grid = globals.read_sheet(&stream, bound.offset, budget)?;
        match grid.find_table(&globals.shared_strings, options.layout_of(&bound.name)) {
            Ok(layout) => {
                let (table, notes) =
                    grid.build_table(&bound.name, &layout, &globals.shared_strings, budget)?;
                parsed.tables.push(table);
                parsed.notes.extend(notes);
            }
            Err(reason) => skip(reason),
        }
    }
    Ok(parsed)
}

fn damaged_error() -> ParseError {
    invalid_file_error("the workbook is damaged")
}

impl Globals {
    fn read(stream: &[u8], budget: &mut Budget) -> Result<Self, ParseError> {
        let mut globals = Self::default();
        let mut records = Records::new(stream, 0);
        let first = records.next(budget)?.filter(|first| first.id == id::BOF).ok_or_else(damaged_error)?;
        if u16_at(first.data(), 0) != Some(BIFF8_VERSION) {
            return Err(invalid_file_error("the workbook was saved by Excel 95 or older"));
        }
        while let Some(mut record) = records.next(budget)? {
            let data = record.data();
            match record.id {
                id::EOF => break,
                id::FILE_PASS => return Err(password_error()),
                id::DATE_MODE if u16_at(data, 0) == Some(1) => globals.epoch = Epoch::Date1904,
                id::FORMAT => {
                    let number = u16_at(data, 0).ok_or_else(damaged_error)?;
                    record.seek(2);
                    globals.formats.push((number, format_of_code(&record.text(budget)?)));
                }
                id::XF => globals.styles.push(u16_at(data, 2).ok_or_else(damaged_error)?),
                id::BOUND_SHEET => globals.read_bound_sheet(&mut record, budget)?,
                id::SST => {
                    record.seek(8);
                    while record.has_more() {
                        budget.charge_cells(1)?;
                        globals.shared_strings.push(record.text(budget)?.into_boxed_str());
                    }
                }
                _ => {}
            }
        }
        Ok(globals)
    }

    fn read_bound_sheet(
        &mut self,
        record: &mut ContinuedRecord<'_>,
        budget: &mut Budget,
    ) -> Result<(), ParseError> {
        if self.sheets.len() == SHEETS_MAX {
            return Err(too_large_error(format!("the workbook has more than {SHEETS_MAX} sheets")));
        }
        let data = record.data();
        let at = u32_at(data, 0).ok_or_else(damaged_error)? as usize;
        let [state, kind] = *data.get(4..6).ok_or_else(damaged_error)? else { return Err(damaged_error()) };
        record.seek(6);
        let name = record.short_text(budget)?;
        self.sheets.push(BoundSheet { name, offset: at, is_hidden: state & 3 != 0, has_cells: kind == 0 });
        Ok(())
    }

    fn read_sheet(&self, stream: &[u8], at: usize, budget: &mut Budget) -> Result<Grid, ParseError> {
        let mut records = Records::new(stream, at);
        if records.next(budget)?.is_none_or(|first| first.id != id::BOF) {
            return Err(damaged_error());
        }
        let mut cells = CellCollector {
            globals: self,
            cells: Vec::new(),
            merged_ranges: Vec::new(),
            awaits_string: false,
        };
        // Charts on a sheet are nested sheets.
        let mut depth = 1;
        while let Some(mut record) = records.next(budget)? {
            match record.id {
                id::BOF => depth += 1,
                id::EOF => depth -= 1,
                _ if depth == 1 => cells.read_record(&mut record, budget)?,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        Ok(cells.into_grid())
    }

    fn number_value(&self, n: f64, style: u16) -> CellValue {
        let format = self.styles.get(usize::from(style)).copied().unwrap_or(0);
        let own_format = self.formats.iter().find(|(number, _)| *number == format);
        let shown = own_format.map_or_else(|| builtin_format(format.into()), |(_, shown)| *shown);
        match format_serial(n, shown, self.epoch) {
            Some(moment) => CellValue::DateTime(moment.into_boxed_str()),
            None if n.is_finite() => CellValue::Number(n),
            None => CellValue::Error,
        }
    }
}

struct CellCollector<'g> {
    globals: &'g Globals,
    cells: Vec<(CellAddress, bool, CellValue)>,
    merged_ranges: Vec<CellRange>,
    /// The last formula's value follows in a record of its own.
    awaits_string: bool,
}

impl CellCollector<'_> {
    fn read_record(
        &mut self,
        record: &mut ContinuedRecord<'_>,
        budget: &mut Budget,
    ) -> Result<(), ParseError> {
        let data = record.data();
        let word = |at: usize| u16_at(data, at).ok_or_else(damaged_error);
        let head = || {
            let place = CellAddress { row: u32::from(word(0)?) + 1, column: word(2)?.into() };
            Ok::<(CellAddress, u16), ParseError>((place, word(4)?))
        };
        let awaited = std::mem::take(&mut self.awaits_string);
        match record.id {
            id::NUMBER => {
                let (place, style) = head()?;
                let n = f64_at(data, 6).ok_or_else(damaged_error)?;
                self.push(place, false, self.globals.number_value(n, style), budget)?;
            }
            id::RK => {
                let (place, style) = head()?;
                let n = decode_rk(u32_at(data, 6).ok_or_else(damaged_error)?);
                self.push(place, false, self.globals.number_value(n, style), budget)?;
            }
            id::MUL_RK => {
                let (first, _) = head()?;
                let end = data.len().checked_sub(2).ok_or_else(damaged_error)?;
                for (at, pair) in data.get(4..end).ok_or_else(damaged_error)?.chunks_exact(6).enumerate() {
                    let style = u16_at(pair, 0).ok_or_else(damaged_error)?;
                    let n = decode_rk(u32_at(pair, 2).ok_or_else(damaged_error)?);
                    let place = CellAddress { row: first.row, column: first.column + at as u32 };
                    self.push(place, false, self.globals.number_value(n, style), budget)?;
                }
            }
            id::LABEL_SST => {
                let at = u32_at(data, 6).filter(|at| (*at as usize) < self.globals.shared_strings.len());
                self.push(head()?.0, false, CellValue::SharedString(at.ok_or_else(damaged_error)?), budget)?;
            }
            id::LABEL | id::R_STRING => {
                record.seek(6);
                let text = record.text(budget)?.into_boxed_str();
                self.push(head()?.0, false, CellValue::Text(text), budget)?;
            }
            id::BOOL_ERR => {
                let [value, is_error] = *data.get(6..8).ok_or_else(damaged_error)? else {
                    return Err(damaged_error());
                };
                let value = if is_error != 0 { CellValue::Error } else { CellValue::Boolean(value != 0) };
                self.push(head()?.0, false, value, budget)?;
            }
            id::FORMULA => {
                let (place, style) = head()?;
                let result: [u8; 8] =
                    data.get(6..14).and_then(|all| all.try_into().ok()).ok_or_else(damaged_error)?;
                let value = match result {
                    [0, .., 0xff, 0xff] => {
                        self.awaits_string = true;
                        CellValue::Uncomputed
                    }
                    [1, _, value, .., 0xff, 0xff] => CellValue::Boolean(value != 0),
                    [2, .., 0xff, 0xff] => CellValue::Error,
                    [_, .., 0xff, 0xff] => CellValue::Text("".into()),
                    bytes => self.globals.number_value(f64::from_le_bytes(bytes), style),
                };
                self.push(place, true, value, budget)?;
            }
            id::STRING if awaited => {
                record.seek(0);
                let text = record.text(budget)?.into_boxed_str();
                if let Some((_, _, value)) = self.cells.last_mut() {
                    *value = CellValue::Text(text);
                }
            }
            id::SHARED_FORMULA | id::ARRAY | id::TABLE => self.awaits_string = awaited,
            id::MERGE_CELLS => {
                for range in data.get(2..).unwrap_or_default().chunks_exact(8) {
                    budget.step()?;
                    let word = |at: usize| u16_at(range, at).map_or(0, u32::from);
                    let first = CellAddress { row: word(0) + 1, column: word(4) };
                    let last = CellAddress { row: word(2) + 1, column: word(6) };
                    self.merged_ranges.push(CellRange { first, last });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn push(
        &mut self,
        at: CellAddress,
        is_formula: bool,
        value: CellValue,
        budget: &mut Budget,
    ) -> Result<(), ParseError> {
        budget.charge_cells(1)?;
        self.cells.push((at, is_formula, value));
        Ok(())
    }

    /// Sorted by row and column; of two cells with one address, the later one.
    fn into_grid(mut self) -> Grid {
        self.cells.sort_by_key(|(at, _, _)| (at.row, at.column));
        let mut rows: Vec<GridRow> = Vec::new();
        for (at, is_formula, value) in self.cells {
            if rows.last().is_none_or(|row| row.number != at.row) {
                rows.push(GridRow { number: at.row, cells: Vec::new() });
            }
            let cells = &mut rows.last_mut().expect("one was just put there").cells;
            if cells.last().is_some_and(|cell| cell.column == at.column) {
                cells.pop();
            }
            cells.push(GridCell { column: at.column, is_formula, value });
        }
        Grid { rows, merged_ranges: self.merged_ranges, ..Grid::default() }
    }
}

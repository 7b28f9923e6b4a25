//! What formulas refer to: finds the references in a formula's text, and resolves them to cells of the workbook.
//!
//! On the safe side: what this does not understand becomes [`CellReference::Unknown`]; nothing is left out.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use super::address::{CellAddress, CellRange, ROWS_MAX};
use super::sheet::SheetFormula;

/// How many names a name may refer to in turn.
const NAME_DEPTH_MAX: usize = 8;
/// A name that refers to more than this counts as one that refers to every cell.
const REFERENCES_PER_NAME_MAX: usize = 64;

/// Cells that a formula refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CellReference {
    /// The same cells on each of these sheets, by position in the workbook.
    Cells { sheets: RangeInclusive<usize>, range: CellRange },
    /// Something that only a spreadsheet program can resolve, such as a computed address.
    Unknown,
}

/// `Prices = Sheet1!$A$1:$B$9`
pub(super) struct DefinedName {
    pub(super) name: String,
    pub(super) formula: String,
}

/// An Excel table: `Orders` in `SUM(Orders[Qty])`.
pub(super) struct ExcelTable {
    pub(super) name: String,
    pub(super) sheet: usize,
    /// The id of the relationship from its sheet.
    pub(super) relationship: String,
    /// With header and totals.
    pub(super) range: CellRange,
    /// Without totals; `None` for a table without a header row.
    pub(super) header_and_rows: Option<CellRange>,
    pub(super) columns: Vec<String>,
    /// The formula of each column that is calculated.
    pub(super) calculated: Vec<Option<String>>,
    /// The position of its part in the archive.
    pub(super) part: usize,
}

/// What the sheets, names and tables of a workbook are, by name.
#[derive(Default)]
pub(super) struct ReferenceResolver {
    sheets: HashMap<String, usize>,
    sheet_count: usize,
    /// Names that differ in scope only are one: what any of them refers to.
    names: HashMap<String, Vec<CellReference>>,
    tables: HashMap<String, ExcelTable>,
}

/// Where the text of a formula is from, which decides what a relative reference means.
#[derive(Clone, Copy)]
enum ReferenceContext<'a> {
    Cell(usize, &'a SheetFormula),
    /// A conditional format or a data validation of a sheet.
    Rule(usize),
    Name,
}

impl ReferenceResolver {
    pub(super) fn new(sheets: &[&str], names: &[DefinedName], tables: Vec<ExcelTable>) -> Self {
        let mut resolver = Self { sheet_count: sheets.len(), ..Self::default() };
        for (at, name) in sheets.iter().enumerate() {
            resolver.sheets.entry(lookup_key(name)).or_insert(at);
        }
        resolver.tables = tables.into_iter().map(|table| (lookup_key(&table.name), table)).collect();
        let mut definitions: HashMap<String, Vec<&str>> = HashMap::new();
        for one in names {
            definitions.entry(lookup_key(&one.name)).or_default().push(&one.formula);
        }
        for name in definitions.keys() {
            resolver.resolve_name(name, &definitions, NAME_DEPTH_MAX);
        }
        resolver
    }

    /// The tables of a sheet.
    pub(super) fn tables_of(&self, sheet: usize) -> impl Iterator<Item = &ExcelTable> {
        self.tables.values().filter(move |table| table.sheet == sheet)
    }

    /// What the formula of a cell refers to. Of a shared formula: from all the cells that share it.
    pub(super) fn of_formula(&self, formula: &SheetFormula, sheet: usize) -> Vec<CellReference> {
        self.resolve(&formula.text, ReferenceContext::Cell(sheet, formula))
    }

    /// What the formula of a conditional format or a data validation refers to.
    pub(super) fn of_rule(&self, text: &str, sheet: usize) -> Vec<CellReference> {
        self.resolve(text, ReferenceContext::Rule(sheet))
    }

    /// Whether a formula of a sheet covers all rows of a table on it, or may: with one more row, its value could change.
    pub(super) fn grows_with(&self, formula: &SheetFormula, sheet: usize, table: &ExcelTable) -> bool {
        let is_here = |sheets: &RangeInclusive<usize>| sheets.contains(&table.sheet);
        let reaches_end =
            |range: &CellRange| range.intersects(&table.range) && range.last.row >= table.range.last.row;
        let name_grows = |reference: &CellReference| match reference {
            CellReference::Unknown => true,
            CellReference::Cells { sheets, range } => is_here(sheets) && reaches_end(range),
        };
        parse_references(&formula.text).into_iter().any(|reference| match reference {
            Reference::Unknown => true,
            Reference::Cells { sheets, range, .. } => {
                let sheets = match sheets {
                    Sheets::Own => Some(sheet..=sheet),
                    Sheets::Named(first, last) => self.sheet_span(&first, &last),
                };
                let is_one_row = range.first.row == range.last.row;
                sheets.is_none_or(|sheets| is_here(&sheets))
                    && !is_one_row
                    && reaches_end(&extend_shared_range(range, formula))
            }
            Reference::Name(name) => match (self.names.get(&lookup_key(&name)), self.table(&name)) {
                (Some(cells), _) => cells.iter().any(name_grows),
                (None, Some(other)) => other.part == table.part,
                (None, None) => true,
            },
            Reference::Function(name) => self.of_name(&name).iter().any(name_grows),
            Reference::Table { name, is_this_row, .. } => {
                let other = match &name {
                    Some(name) => self.table(name),
                    None => self.surrounding_table(ReferenceContext::Cell(sheet, formula)),
                };
                let is_own_row = is_this_row && table.range.contains(formula.address);
                other.is_none_or(|other| other.part == table.part && !is_own_row)
            }
        })
    }

    /// What a defined name refers to.
    pub(super) fn of_name(&self, name: &str) -> &[CellReference] {
        self.names.get(&lookup_key(name)).map_or(&[], Vec::as_slice)
    }

    /// Resolves a name, after the names that it refers to. Each name is resolved once.
    fn resolve_name(&mut self, name: &str, definitions: &HashMap<String, Vec<&str>>, depth_max: usize) {
        if self.names.contains_key(name) {
            return;
        }
        let Some(formulas) = definitions.get(name) else { return };
        // A name that refers to itself.
        self.names.insert(name.to_owned(), vec![CellReference::Unknown]);
        if depth_max == 0 {
            return;
        }
        let mut found = Vec::new();
        'formulas: for formula in formulas {
            for reference in parse_references(formula) {
                if let Reference::Name(other) | Reference::Function(other) = &reference {
                    self.resolve_name(&lookup_key(other), definitions, depth_max - 1);
                }
            }
            for reference in self.resolve(formula, ReferenceContext::Name) {
                if !found.contains(&reference) {
                    found.push(reference);
                }
                if found.len() > REFERENCES_PER_NAME_MAX {
                    found = vec![self.every_cell()];
                    break 'formulas;
                }
            }
        }
        self.names.insert(name.to_owned(), found);
    }

    fn every_cell(&self) -> CellReference {
        CellReference::Cells { sheets: 0..=self.sheet_count.saturating_sub(1), range: CellRange::ALL }
    }

    fn resolve(&self, text: &str, context: ReferenceContext<'_>) -> Vec<CellReference> {
        let mut found = Vec::new();
        for reference in parse_references(text) {
            match reference {
                Reference::Unknown => found.push(CellReference::Unknown),
                Reference::Cells { sheets, range, is_absolute } => {
                    let range = match context {
                        ReferenceContext::Cell(_, formula) => extend_shared_range(range, formula),
                        // Relative to each cell that uses the name or the rule.
                        ReferenceContext::Rule(_) | ReferenceContext::Name if !is_absolute => CellRange::ALL,
                        ReferenceContext::Rule(_) | ReferenceContext::Name => range,
                    };
                    let sheets = match sheets {
                        Sheets::Own => context.sheet().map(|sheet| sheet..=sheet),
                        Sheets::Named(first, last) => self.sheet_span(&first, &last),
                    };
                    found.push(
                        sheets
                            .map_or(CellReference::Unknown, |sheets| CellReference::Cells { sheets, range }),
                    );
                }
                // Excel writes `Orders[]`, but other programs may write `Orders`.
                Reference::Name(name) => match (self.names.get(&lookup_key(&name)), self.table(&name)) {
                    (Some(cells), _) => found.extend_from_slice(cells),
                    (None, Some(table)) => found.push(table.cells(&[])),
                    (None, None) => found.push(CellReference::Unknown),
                },
                // A name may be defined as a function (LAMBDA); all others refer to what their arguments name.
                Reference::Function(name) => found.extend_from_slice(self.of_name(&name)),
                Reference::Table { name, columns, is_this_row: _ } => {
                    let table = match &name {
                        Some(name) => self.table(name),
                        None => self.surrounding_table(context),
                    };
                    found.push(table.map_or(CellReference::Unknown, |table| table.cells(&columns)));
                }
            }
        }
        found
    }

    fn table(&self, name: &str) -> Option<&ExcelTable> {
        self.tables.get(&lookup_key(name))
    }

    /// The sheets between two, in the order of the workbook.
    fn sheet_span(&self, first: &str, last: &str) -> Option<RangeInclusive<usize>> {
        let (first, last) = (self.sheets.get(&lookup_key(first))?, self.sheets.get(&lookup_key(last))?);
        Some(*first.min(last)..=*first.max(last))
    }

    /// The table that a formula is in, with all the cells that share it.
    fn surrounding_table(&self, context: ReferenceContext<'_>) -> Option<&ExcelTable> {
        let ReferenceContext::Cell(sheet, formula) = context else { return None };
        let corners = formula.range.map_or([formula.address; 2], |range| [range.first, range.last]);
        self.tables_of(sheet).find(|table| corners.iter().all(|corner| table.range.contains(*corner)))
    }
}

impl ReferenceContext<'_> {
    fn sheet(self) -> Option<usize> {
        match self {
            Self::Cell(sheet, _) | Self::Rule(sheet) => Some(sheet),
            Self::Name => None,
        }
    }
}

impl ExcelTable {
    /// The cells from the first to the last of these columns; all of them if there is none, or one is unknown.
    fn cells(&self, columns: &[String]) -> CellReference {
        let position = |name: &String| {
            let name = lookup_key(name);
            self.columns.iter().position(|column| lookup_key(column) == name)
        };
        let positions: Option<Vec<usize>> = columns.iter().map(position).collect();
        let mut range = self.range;
        if let Some((first, last)) = positions.and_then(|all| Some((*all.iter().min()?, *all.iter().max()?)))
            && last as u32 <= range.last.column - range.first.column
        {
            let column = range.first.column;
            (range.first.column, range.last.column) = (column + first as u32, column + last as u32);
        }
        CellReference::Cells { sheets: self.sheet..=self.sheet, range }
    }
}

/// Names of sheets, tables, columns and definitions are case-insensitive.
fn lookup_key(name: &str) -> String {
    name.to_lowercase()
}

/// The cells that a shared formula refers to from all the cells that share it: each one's references move along with
/// it.
fn extend_shared_range(range: CellRange, formula: &SheetFormula) -> CellRange {
    let Some(shared) = formula.range.filter(|_| !formula.is_array) else { return range };
    let (up, down) = (
        formula.address.row.saturating_sub(shared.first.row),
        shared.last.row.saturating_sub(formula.address.row),
    );
    let left = formula.address.column.saturating_sub(shared.first.column);
    let right = shared.last.column.saturating_sub(formula.address.column);
    let first = CellAddress {
        row: range.first.row.saturating_sub(up).max(1),
        column: range.first.column.saturating_sub(left),
    };
    let last = CellAddress { row: (range.last.row + down).min(ROWS_MAX), column: range.last.column + right };
    CellRange { first, last }
}

/// A reference as a formula writes it.
#[derive(Debug, PartialEq, Eq)]
enum Reference {
    Cells {
        sheets: Sheets,
        range: CellRange,
        /// `$A$1`: it does not move along when the formula is copied.
        is_absolute: bool,
    },
    /// A name, which the workbook may define.
    Name(String),
    /// The name of a function that is called.
    Function(String),
    /// `Orders[[#This Row],[Qty]]`; without a name, of the table that the formula is in.
    Table {
        name: Option<String>,
        columns: Vec<String>,
        is_this_row: bool,
    },
    Unknown,
}

#[derive(Debug, PartialEq, Eq)]
enum Sheets {
    /// The sheet that the formula is on.
    Own,
    /// From the first to the last: `Jan:Dec!A1`. The same name twice for one sheet.
    Named(String, String),
}

/// What precedes a reference: `Sheet!`, `[1]`.
enum Qualifier {
    None,
    Sheets(Sheets),
    /// Another workbook, which no write changes.
    OtherWorkbook,
}

fn parse_references(formula: &str) -> Vec<Reference> {
    let mut parser = ReferenceParser { rest: formula, qualifier: Qualifier::None, found: Vec::new() };
    while let Some(c) = parser.rest.chars().next() {
        parser.parse_next(c);
    }
    parser.found
}

struct ReferenceParser<'a> {
    rest: &'a str,
    qualifier: Qualifier,
    found: Vec<Reference>,
}

impl ReferenceParser<'_> {
    fn parse_next(&mut self, c: char) {
        match c {
            '"' => self.rest = split_quoted(self.rest, '"').1,
            '\'' => {
                let (name, rest) = split_quoted(self.rest, '\'');
                match rest.strip_prefix('!') {
                    Some(rest) => {
                        self.qualify(&name);
                        self.rest = rest;
                    }
                    None => {
                        self.found.push(Reference::Unknown);
                        self.rest = rest;
                    }
                }
            }
            '[' => match split_brackets(self.rest) {
                // `[1]Sheet!A1`: no column of a table is followed by a word.
                Some((workbook, rest)) if rest.starts_with(|c| is_word_char(c) || c == '!' || c == '\'') => {
                    if workbook != "0" {
                        self.qualifier = Qualifier::OtherWorkbook;
                    }
                    self.rest = rest.strip_prefix('!').unwrap_or(rest);
                }
                Some((columns, rest)) => {
                    self.found.push(table_reference(None, columns));
                    self.rest = rest;
                }
                None => self.stop(),
            },
            // `#REF!`, `#N/A`
            '#' => {
                let is_part = |c: char| c.is_alphanumeric() || "/!?".contains(c);
                self.rest = self.rest[1..].trim_start_matches(is_part);
            }
            // From the result of a function to that of another, over cells that neither names.
            ':' => {
                self.found.push(Reference::Unknown);
                self.rest = &self.rest[1..];
            }
            _ if is_word_char(c) => self.parse_word(),
            _ => self.rest = &self.rest[c.len_utf8()..],
        }
    }

    /// The rest of the formula cannot be parsed.
    fn stop(&mut self) {
        self.found.push(Reference::Unknown);
        self.rest = "";
    }

    fn parse_word(&mut self) {
        let end = self.rest.find(|c| !is_word_char(c) && c != ':').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if let Some(rest) = rest.strip_prefix('!') {
            self.qualify(word);
            self.rest = rest;
            return;
        }
        let qualifier = std::mem::replace(&mut self.qualifier, Qualifier::None);
        if rest.starts_with('[') {
            let Some((columns, rest)) = split_brackets(rest) else { return self.stop() };
            self.rest = rest;
            let table = table_reference(Some(word), columns);
            return self.push(&qualifier, if word.contains(':') { Reference::Unknown } else { table });
        }
        if rest.trim_start().starts_with('(') {
            return self.found.push(match is_dynamic_reference(word) {
                true => Reference::Unknown,
                false => Reference::Function(word.to_owned()),
            });
        }
        let sheets = match qualifier {
            Qualifier::OtherWorkbook => return,
            Qualifier::None => Sheets::Own,
            Qualifier::Sheets(sheets) => sheets,
        };
        match CellRange::parse(word) {
            Some(range) => {
                self.found.push(Reference::Cells { sheets, range, is_absolute: is_absolute(word) })
            }
            // The parameters of LET and LAMBDA stand for what the formula names elsewhere.
            None if is_constant(word, rest) || word.starts_with("_xlpm.") => {}
            None => self.found.push(Reference::Name(word.to_owned())),
        }
    }

    fn push(&mut self, qualifier: &Qualifier, reference: Reference) {
        if !matches!(qualifier, Qualifier::OtherWorkbook) {
            self.found.push(reference);
        }
    }

    /// What stands before a `!`.
    fn qualify(&mut self, name: &str) {
        // No sheet has brackets in its name: `'[1]My Sheet'!A1`, `'C:\[Book.xlsx]Sheet'!A1`.
        let own = name.strip_prefix("[0]").unwrap_or(name);
        if own.contains('[') {
            self.qualifier = Qualifier::OtherWorkbook;
        }
        if !matches!(self.qualifier, Qualifier::OtherWorkbook) {
            let (first, last) = own.split_once(':').unwrap_or((own, own));
            self.qualifier = Qualifier::Sheets(Sheets::Named(first.to_owned(), last.to_owned()));
        }
    }
}

/// `content` is what the brackets of a table reference contain.
fn table_reference(name: Option<&str>, content: &str) -> Reference {
    let is_this_row = content.starts_with('@') || content.to_ascii_lowercase().contains("[#this row]");
    Reference::Table { name: name.map(str::to_owned), columns: table_columns(content), is_this_row }
}

/// A formula as it is some rows further down: what it refers to without a `$` moves along. `None` if that would leave the
/// sheet.
pub(super) fn shift_rows(formula: &str, rows: u32) -> Option<String> {
    let mut out = String::with_capacity(formula.len() + 8);
    let mut rest = formula;
    while let Some(c) = rest.chars().next() {
        let end = match c {
            '"' | '\'' => rest.len() - split_quoted(rest, c).1.len(),
            '[' => rest.len() - split_brackets(rest)?.1.len(),
            // `#REF!`
            '#' => {
                rest.len()
                    - rest[1..].trim_start_matches(|c: char| c.is_alphanumeric() || "/!?".contains(c)).len()
            }
            _ if is_word_char(c) => {
                let end = rest.find(|c| !is_word_char(c) && c != ':').unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                let is_reference = !after.starts_with(['!', '[']) && !after.trim_start().starts_with('(');
                if is_reference && CellRange::parse(word).is_some() {
                    out.push_str(&shift_range(word, rows)?);
                    rest = after;
                    continue;
                }
                end
            }
            _ => c.len_utf8(),
        };
        out.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    Some(out)
}

fn shift_range(range: &str, rows: u32) -> Option<String> {
    let corner = |corner: &str| {
        let digits = corner.len() - corner.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (column, row) = corner.split_at(corner.len() - digits);
        if row.is_empty() || column.ends_with('$') {
            return Some(corner.to_owned());
        }
        let row = row.parse::<u32>().ok()?.checked_add(rows).filter(|row| *row <= ROWS_MAX)?;
        Some(format!("{column}{row}"))
    };
    let corners: Option<Vec<String>> = range.split(':').map(corner).collect();
    Some(corners?.join(":"))
}

/// Whether a formula means other cells in another row.
pub(super) fn is_row_relative(formula: &str) -> bool {
    shift_rows(formula, 1).as_deref() != Some(formula)
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || "_.$\\?".contains(c)
}

/// `TRUE`, `1.5`, the `1E` of `1E-5`.
fn is_constant(word: &str, rest: &str) -> bool {
    let mantissa = word.strip_suffix(['E', 'e']).filter(|_| rest.starts_with(['+', '-']));
    let is_number = word.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && mantissa.unwrap_or(word).parse::<f64>().is_ok();
    is_number || word.eq_ignore_ascii_case("TRUE") || word.eq_ignore_ascii_case("FALSE")
}

/// Whether every row and column of a range has a `$`.
fn is_absolute(range: &str) -> bool {
    let corner = |text: &str| match text.strip_prefix('$') {
        Some(text) => {
            !text.starts_with(|c: char| c.is_ascii_alphabetic()) || {
                let digits = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
                digits.is_empty() || digits.starts_with('$')
            }
        }
        None => false,
    };
    range.split(':').all(corner)
}

/// Functions that read cells which no reference in the formula names.
fn is_dynamic_reference(name: &str) -> bool {
    matches!(name.to_ascii_uppercase().as_str(), "INDIRECT" | "OFFSET" | "CELL" | "GETPIVOTDATA" | "EVALUATE")
        || name.contains(':')
}

/// The columns in the brackets of a table reference: `Qty`, `@Qty`, `[#This Row],[Qty]`, `@[Unit price]`,
/// `[Jan]:[Mar]`. None for `#All` and the like.
fn table_columns(content: &str) -> Vec<String> {
    let mut columns = Vec::new();
    let mut push = |text: &str| {
        if !text.is_empty() && !text.starts_with('#') {
            columns.push(unescape_column(text));
        }
    };
    let content = content.trim();
    // A single column has no brackets of its own; inside of it they are escaped.
    let Some(mut rest) = content.strip_prefix('@').or(Some(content)).filter(|text| text.starts_with('['))
    else {
        push(content.strip_prefix('@').unwrap_or(content));
        return columns;
    };
    while let Some((column, after)) = rest.find('[').and_then(|at| split_brackets(&rest[at..])) {
        push(column);
        rest = after;
    }
    columns
}

/// `'` escapes brackets, `#`, `@` and itself.
fn unescape_column(text: &str) -> String {
    let mut chars = text.chars();
    let mut out = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        out.push(if c == '\'' { chars.next().unwrap_or(c) } else { c });
    }
    out
}

/// The text between brackets, which may contain others, and the rest after them. `None` if they are not closed.
fn split_brackets(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\'' => is_escaped = true,
            '[' => depth += 1,
            ']' if depth == 1 => return Some((&text[1..at], &text[at + 1..])),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The text between quotes, with doubled quotes undone, and the rest after it.
fn split_quoted(text: &str, quote: char) -> (String, &str) {
    let mut name = String::new();
    let mut rest = &text[1..];
    loop {
        let Some(at) = rest.find(quote) else {
            name.push_str(rest);
            return (name, "");
        };
        name.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.strip_prefix(quote) {
            Some(more) => {
                name.push(quote);
                rest = more;
            }
            None => return (name, rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::address::{CellAddress, CellRange};
    use super::super::sheet::SheetFormula;
    use super::{CellReference, DefinedName, ExcelTable, ReferenceResolver};

    const SHEETS: [&str; 6] = ["Year", "Jan 26", "Feb 26", "Mar 26", "Orders", "It's"];

    fn resolver() -> ReferenceResolver {
        let name = |name: &str, formula: &str| DefinedName { name: name.into(), formula: formula.into() };
        let names = [
            name("Rate", "'Jan 26'!$B$2"),
            name("Relative", "'Jan 26'!B2"),
            name("Twice", "Rate*2"),
            name("Loop", "Loop+1"),
            name("Local", "'Jan 26'!$A$1"),
            name("Local", "'Feb 26'!$A$1"),
            name("Double", "_xlfn.LAMBDA(_xlpm.x,_xlpm.x*Rate)"),
            name("Inf", "'Mar 26'!$A$1"),
            name("Wide", &(1..=80).map(|row| format!("Year!$A${row}")).collect::<Vec<_>>().join("+")),
        ];
        let table = ExcelTable {
            name: "Orders".into(),
            sheet: 4,
            relationship: "rId1".into(),
            range: CellRange::parse("A1:D11").unwrap(),
            header_and_rows: None,
            columns: ["No", "Qty", "Unit [#]", "Total"].map(Into::into).into(),
            calculated: vec![None; 4],
            part: 7,
        };
        ReferenceResolver::new(&SHEETS, &names, vec![table])
    }

    fn describe(references: Vec<CellReference>) -> String {
        let one = |reference| match reference {
            CellReference::Unknown => "?".to_owned(),
            CellReference::Cells { sheets, range } if sheets.start() == sheets.end() => {
                format!("{}!{range}", SHEETS[*sheets.start()])
            }
            CellReference::Cells { sheets, range } => {
                format!("{}:{}!{range}", SHEETS[*sheets.start()], SHEETS[*sheets.end()])
            }
        };
        references.into_iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// A formula in D2 on `Orders`, inside of the table.
    fn check(formula: &str, expected: &str) {
        let address = CellAddress { row: 2, column: 3 };
        let text = formula.to_owned();
        let cell = SheetFormula { address, text, range: None, is_array: false, shared_index: None };
        assert_eq!(describe(resolver().of_formula(&cell, 4)), expected, "{formula}");
    }

    #[test]
    fn references_to_cells_are_found() {
        check("B2*C2", "Orders!B2 Orders!C2");
        check("SUM(B2:B100)+1.5", "Orders!B2:B100");
        check("SUM(B:B)", "Orders!B1:B1048576");
        check("$A$1&\"B2\"", "Orders!A1");
        check("'Jan 26'!A1+Year!B2", "Jan 26!A1 Year!B2");
        check("'It''s'!A1+'IT''S'!A1", "It's!A1 It's!A1");
        check("LOG10(5)+1E5+2*1E-5+.5", "");
        check("IF(TRUE,1,2)", "");
        check("#REF!+A1", "Orders!A1");
        check("Gone!A1", "?");
        check("\"unclosed", "");
        check("'unclosed", "?");
        check("", "");
    }

    #[test]
    fn a_reference_over_several_sheets_is_one_to_each_of_them() {
        check("SUM('Jan 26:Mar 26'!B3)", "Jan 26:Mar 26!B3");
        check("SUM('mar 26:JAN 26'!B3)", "Jan 26:Mar 26!B3");
        check("SUM(Year:Orders!B3)", "Year:Orders!B3");
        check("SUM('Jan 26:Gone'!B3)", "?");
        check("Year!A1:Year!B2", "?");
    }

    #[test]
    fn tables_are_resolved_to_their_columns() {
        check("Orders[[#This Row],[Qty]]*2", "Orders!B1:B11");
        check("SUM(orders[QTY])", "Orders!B1:B11");
        check("SUM(Orders[[#Headers],[#Data],[No]:[Qty]])", "Orders!A1:B11");
        check("Orders[Unit '['#']]", "Orders!C1:C11");
        check("Orders[#All]+Orders[]+Orders", "Orders!A1:D11 Orders!A1:D11 Orders!A1:D11");
        check("[@Qty]+[@[No]]+SUBTOTAL(109,[Total])", "Orders!B1:B11 Orders!A1:A11 Orders!D1:D11");
        check("Orders[Gone]", "Orders!A1:D11");
        check("Gone[Qty]", "?");
        check("Orders[Qty]:Orders[Total]", "Orders!B1:B11 ? Orders!D1:D11");
        check("A1:Orders[Qty]", "?");
        check("Orders[Qty", "?");
    }

    #[test]
    fn names_are_resolved_to_what_they_refer_to() {
        check("Rate*2", "Jan 26!B2");
        check("twice+Inf", "Jan 26!B2 Mar 26!A1");
        check("Relative", "Jan 26!A1:XFD1048576");
        check("Local", "Jan 26!A1 Feb 26!A1");
        check("Double(A1)", "Jan 26!B2 Orders!A1");
        check("_xlfn.LET(_xlpm.x,A1,_xlpm.x*2)", "Orders!A1");
        check("Wide", "Year:It's!A1:XFD1048576");
        check("Loop", "?");
        check("Undefined", "?");
    }

    #[test]
    fn functions_that_compute_addresses_refer_to_unknown_cells() {
        check("INDEX(Year!B:B,MATCH(A2,Year!A:A,0))", "Year!B1:B1048576 Orders!A2 Year!A1:A1048576");
        check("INDIRECT(\"A\"&1)", "?");
        check("OFFSET(Year!A1,2,1)", "? Year!A1");
        check("SUM(B2:INDEX(B:B,5))", "? Orders!B1:B1048576");
        check("SUM(INDEX(A:A,1):INDEX(C:C,5))", "Orders!A1:A1048576 ? Orders!C1:C1048576");
    }

    #[test]
    fn other_workbooks_are_not_this_one() {
        check("[1]Year!A1+A1", "Orders!A1");
        check("'[1]Jan 26'!A1+[1]!Rate", "");
        check("VLOOKUP(A1,'C:\\data\\[Book.xlsx]Year'!$A:$B,2)", "Orders!A1");
        check("[0]!Rate", "Jan 26!B2");
        check("[1]Year!Orders[Qty]", "");
    }

    #[test]
    fn shared_formulas_refer_to_the_cells_of_all_that_share_them() {
        let address = CellAddress { row: 2, column: 4 };
        let range = CellRange::parse("E2:E9");
        let text = "C2+'Jan 26:Mar 26'!B2+[@Qty]".to_owned();
        let cell = SheetFormula { address, text, range, is_array: false, shared_index: Some(0) };
        assert_eq!(describe(resolver().of_formula(&cell, 4)), "Orders!C2:C9 Jan 26:Mar 26!B2:B9 ?");
    }

    #[test]
    fn a_rule_moves_along_with_its_cells() {
        let rule = |text| describe(resolver().of_rule(text, 4));
        assert_eq!(rule("$A$1>Year!$B:$B"), "Orders!A1 Year!B1:B1048576");
        assert_eq!(rule("A1>Year!B$1"), "Orders!A1:XFD1048576 Year!A1:XFD1048576");
    }

    #[test]
    fn a_formula_moves_along_with_its_row() {
        for (formula, expected) in [
            ("B2*$C2+C$2+$A$1", "B3*$C3+C$2+$A$1"),
            ("SUM(B$2:B2)", "SUM(B$2:B3)"),
            ("Orders[[#This Row],[Qty]]*2", "Orders[[#This Row],[Qty]]*2"),
            ("'Jan 26'!A9&\"A9\"&LOG10(A9)", "'Jan 26'!A10&\"A9\"&LOG10(A10)"),
            ("IF(A1=\"a\"\"A1\",#REF!,TRUE)", "IF(A2=\"a\"\"A1\",#REF!,TRUE)"),
            ("Year!A:A+SUM(5:6)", "Year!A:A+SUM(6:7)"),
            ("Rate2024*Q1_sales+_xlfn.XLOOKUP(A1,B:B,C:C)", "Rate2024*Q1_sales+_xlfn.XLOOKUP(A2,B:B,C:C)"),
            ("[1]Sheet!A1", "[1]Sheet!A2"),
            ("1.5E3+1E-5", "1.5E3+1E-5"),
        ] {
            assert_eq!(super::shift_rows(formula, 1).as_deref(), Some(expected));
            assert_eq!(super::is_row_relative(formula), formula != expected, "{formula}");
        }
        assert_eq!(super::shift_rows("A1048576", 1), None, "there is no such row");
    }

    /// A formula on `Orders`, whose table ends in row 11: whether its value may change with a row 12 in the table.
    #[test]
    fn a_formula_that_covers_a_table_grows_with_it() {
        let resolver = resolver();
        let table = resolver.tables_of(4).next().unwrap();
        for (row, column, formula, expected) in [
            (2, 3, "Orders[[#This Row],[Qty]]*[@No]", false),
            (2, 3, "B2*C2", false),
            (11, 3, "B11*C11", false),
            (11, 3, "D10+B11", false),
            (2, 3, "SUM([Qty])", true),
            (2, 3, "Orders[@Qty]/SUM(Orders[Qty])", true),
            (1, 7, "SUM(Orders[Qty])", true),
            (1, 7, "Orders[[#This Row],[Qty]]", true),
            (1, 7, "SUM(B2:B11)", true),
            (1, 7, "SUM(B2:B5)+F11", false),
            (1, 7, "COUNTA(A:A)", true),
            (1, 7, "ROWS(Orders)", true),
            (1, 7, "SUM('Jan 26'!B2:B11)*Rate", false),
            (1, 7, "SUM(Year:Orders!B2:B11)", true),
            (1, 7, "INDIRECT(\"B2:B11\")", true),
            (1, 7, "Unheard", true),
        ] {
            let address = CellAddress { row, column };
            let text = formula.to_owned();
            let cell = SheetFormula { address, text, range: None, is_array: false, shared_index: None };
            assert_eq!(resolver.grows_with(&cell, 4, table), expected, "{formula}");
        }
    }
}

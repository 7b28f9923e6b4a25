//! Rows of totals: found by their labels and by the sums in them.

use std::fmt::Write;

use contract::infer::TextClass;
use contract::manifest::DeclaredLayout;
use contract::source::{LayoutNote, LayoutNoteKind};

use super::column_sums::{ColumnSums, SumCount, SumGroup};
use super::sections::find_group_totals;
use super::{
    CONTRAST_ROWS_MAX, DataRows, GAPS_ROWS_MAX, LeftOutRows, SketchedCell, SketchedRow, declared_end,
};

/// A note names at most this many rows.
const ROWS_NAMED_MAX: usize = 5;

/// Words for a row of totals, in lower case.
const TOTAL_WORDS: &[&str] = &[
    "total",
    "totals",
    "grand total",
    "grand totals",
    "subtotal",
    "sub-total",
    "sub total",
    "sum",
    "summe",
    "gesamt",
    "gesamtsumme",
    "zwischensumme",
    "endsumme",
    "gesamtergebnis",
    "ergebnis",
    "saldo",
    "total général",
    "sous-total",
    "somme",
    "suma",
    "total general",
    "totale",
    "insgesamt",
    "endbetrag",
    "σ",
    "totaal",
    "totalt",
    "totalsumma",
    "i alt",
    "yhteensä",
    "razem",
    "celkem",
    "összesen",
    "toplam",
    "σύνολο",
    "итого",
    "всего",
    "合計",
    "合计",
    "总计",
    "總計",
    "小計",
    "小计",
    "합계",
    "총계",
];

/// Labels of other rows that summarize a column, in lower case. `Max` and `Min` are not among them: they are names.
const STATISTIC_WORDS: &[&str] = &[
    "average",
    "avg",
    "mean",
    "median",
    "minimum",
    "maximum",
    "std dev",
    "standard deviation",
    "durchschnitt",
    "mittelwert",
    "standardabweichung",
    "moyenne",
    "médiane",
    "promedio",
    "mediana",
];

/// How many rows at the end may be statistics.
const STATISTIC_ROWS_MAX: usize = 6;

/// Rows at the end that summarize the columns above: an average, a median. Returns where the table ends.
pub(super) fn find_statistics(
    rows: &impl DataRows,
    end: usize,
    unit: &str,
    found: &mut LeftOutRows,
) -> usize {
    let is_statistic = |row: &SketchedRow| {
        let lower = row.first_text().to_lowercase();
        let label = lower.trim_end_matches(':').trim_end();
        STATISTIC_WORDS.contains(&label) && row.cells.iter().any(|cell| cell.class == TextClass::Number)
    };
    let mut start = end;
    let mut follows_gap = false;
    for at in (end.saturating_sub(STATISTIC_ROWS_MAX)..end).rev() {
        let row = rows.row(at);
        let is_total = || start < end && is_total_label(row.first_text());
        match row.cells.is_empty() {
            true => follows_gap |= start < end,
            false if at > 0 && is_statistic(&row) => {
                start = at;
                follows_gap |= row.follows_gap;
            }
            // A total above them is found as any other.
            false => {
                follows_gap |= is_total();
                break;
            }
        }
    }
    if start == end {
        return end;
    }
    let first = rows.row(start);
    // Without a gap, a blank where the rows above have a value says that this is not one of them.
    let is_ordinary = |at: &usize| !found.rows.contains(at);
    let ordinary: Vec<_> =
        (0..start.min(CONTRAST_ROWS_MAX)).filter(is_ordinary).map(|at| rows.row(at)).collect();
    let has_blank = ordinary
        .iter()
        .all(|row| row.cells.is_empty() || row.cells.iter().any(|cell| first.get(cell.column).is_none()));
    if !follows_gap && !has_blank {
        let doubts: Vec<_> = (start..end).map(|at| (at, rows.row(at))).collect();
        found.notes.extend(doubtful_totals(rows, end, &doubts, unit));
        return end;
    }
    let count = (start..end).filter(|at| !rows.cells(*at).is_empty()).count();
    let message = match count {
        1 => format!(
            "has a row that summarizes the table ({unit} {}: {}), which is left out",
            first.number,
            first.quoted()
        ),
        count => format!(
            "has {count} rows that summarize the table (from {unit} {}: {}), which are left out",
            first.number,
            first.quoted()
        ),
    };
    let setting = "footer_rows = 0".to_owned();
    found.notes.push(LayoutNote { kind: LayoutNoteKind::LeftOut, message, setting });
    found.read_only_reason = Some(outdated_by_writes(&[first.number], unit));
    start
}

/// Why a table with rows of totals is not written.
fn outdated_by_writes(numbers: &[u32], unit: &str) -> String {
    format!(
        "it has totals ({unit} {}) that a write would make wrong; remove them or, if they are at its end, say with \
         `footer_rows` or `stop_at` in the manifest where the table ends",
        name_rows(numbers)
    )
}

/// Whether a cell may be the label of a row of totals: `Total`, `Summe Januar`, `North Total`.
pub(crate) fn is_total_label(text: &str) -> bool {
    // Most labels are ruled out by their length or first letter.
    let text = text.trim();
    if text.is_empty() || text.len() > 60 {
        return false;
    }
    let lower = text.to_lowercase();
    let label = lower.trim_end_matches(':').trim_end();
    let starts = |word: &&str| {
        label.strip_prefix(*word).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ':']))
    };
    let ends =
        |word: &&str| label.strip_suffix(*word).is_some_and(|rest| rest.is_empty() || rest.ends_with(' '));
    TOTAL_WORDS.iter().any(|word| starts(word) || ends(word))
}

/// Whether a text is a word for a total, and nothing else.
pub(crate) fn is_total_word(text: &str) -> bool {
    let text = text.trim();
    // Most texts are ruled out by their first letter.
    let may_be = |first: u8| !first.is_ascii() || b"tsgzeicry".contains(&first.to_ascii_lowercase());
    text.len() <= 20
        && text.bytes().next().is_some_and(may_be)
        && TOTAL_WORDS.contains(&text.to_lowercase().trim_end_matches(':').trim_end())
}

/// Rows of totals: a label, and other evidence. A label that is nothing but a word for a total needs a number where the table
/// ends or a blank is where all other rows have a value, or a sum; one that names something, as `Total Gas & Power` may be the
/// name of a customer, needs sums, or the group of the row above it.
pub(super) fn find_totals(rows: &impl DataRows, end: usize, unit: &str, found: &mut LeftOutRows) {
    let candidates: Vec<usize> =
        rows.total_candidates().into_iter().filter(|at| *at < end && *at > 0).collect();
    if candidates.is_empty() || candidates.len() * 2 > end || candidates.len() > TOTALS_MAX {
        return;
    }
    let columns = FilledColumns::of(rows, end, |at| candidates.contains(&at) || found.rows.contains(&at));
    let mut search = TotalSearch::default();
    for at in 0..end {
        if candidates.binary_search(&at).is_err() {
            search.pass(rows.cells(at));
            continue;
        }
        let row = rows.row(at);
        let is_last = || {
            let is_other =
                |next: &usize| candidates.binary_search(next).is_err() && !rows.cells(*next).is_empty();
            let next = at + 1;
            !(next..end).any(|next| is_other(&next)) || rows.cells(next).is_empty() || rows.follows_gap(next)
        };
        let label = TotalLabel::parse(row.first_text());
        search.judge(at, row, label.as_ref(), &columns, is_last);
    }
    let TotalSearch { mut totals, mut doubts, .. } = search;
    if let [(at, _)] = doubts[..]
        && totals.is_empty()
        && let Some(heads) = find_group_totals(rows, at)
    {
        totals.extend(heads.into_iter().map(|head| (head, rows.row(head))));
        totals.append(&mut doubts);
    }
    totals.sort_unstable_by_key(|(at, _)| *at);
    leave_out_totals(totals, unit, found);
    found.notes.extend(doubtful_totals(rows, end, &doubts, unit));
}

/// Goes through the rows of a table, and decides which of those with a label are totals.
#[derive(Default)]
struct TotalSearch {
    totals: Vec<(usize, SketchedRow)>,
    doubts: Vec<(usize, SketchedRow)>,
    /// Of all rows that are not totals, with those that are doubtful.
    sums: ColumnSums,
    /// Without those.
    certain_sums: ColumnSums,
    /// What may stand behind the word in the label of a total: the texts of the row above, and headings.
    above: Vec<SketchedCell>,
    headings: Vec<SketchedCell>,
}

impl TotalSearch {
    /// A row without a label of totals.
    fn pass(&mut self, cells: Vec<SketchedCell>) {
        const HEADINGS_MAX: usize = 100;
        self.sums.add(&cells);
        self.certain_sums.add(&cells);
        match cells.len() {
            0 => {}
            1 if self.headings.len() < HEADINGS_MAX => self.headings.extend(cells),
            _ => self.above = cells,
        }
    }

    fn judge(
        &mut self,
        at: usize,
        row: SketchedRow,
        label: Option<&TotalLabel>,
        columns: &FilledColumns,
        is_last: impl Fn() -> bool,
    ) {
        let has_number = row.cells.iter().any(|cell| cell.class == TextClass::Number);
        let has_gap = columns.lacks_value(&row);
        let name = label.map_or("", |label| label.name.as_str());
        let group = if name.is_empty() { SumGroup::OneRow } else { SumGroup::TwoRows };
        let (is_sum, is_certain_sum) =
            (self.sums.has_sums_in(&row, group), self.certain_sums.has_sums_in(&row, group));
        let is_group = || {
            let is_name = |cell: &SketchedCell| {
                cell.class == TextClass::Other && cell.text.trim().to_lowercase() == name
            };
            self.above.iter().any(is_name) || self.headings.iter().any(is_name)
        };
        let has_evidence = || match name.is_empty() {
            true => is_sum.any || is_certain_sum.any || (has_gap && is_last()),
            false => is_sum.most || is_certain_sum.most || (has_gap && is_group()),
        };
        if !(has_gap && columns.contradict(&row) || has_number && has_evidence()) {
            self.sums.add(&row.cells);
            return self.doubts.push((at, row));
        }
        // A total tells whether the doubtful rows before it are part of it.
        match (is_sum.most, is_certain_sum.most) {
            (true, false) => self.doubts.clear(),
            (false, true) => {
                self.totals.append(&mut self.doubts);
                self.sums = self.certain_sums.clone();
            }
            (true, true) | (false, false) => {}
        }
        self.sums.end_group();
        self.certain_sums.end_group();
        self.totals.push((at, row));
    }
}

/// The label of a row of totals, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct TotalLabel {
    /// What it names besides the word for a total, in lower case: `north` of `North Total`. Empty for `Total`, `Total 2026`
    /// and `Summe (EUR)`, which name nothing.
    name: String,
}

impl TotalLabel {
    fn parse(text: &str) -> Option<Self> {
        const JOINING_WORDS: [&str; 8] = ["for", "of", "für", "von", "pour", "de", "para", "per"];
        const CURRENCIES: [&str; 5] = ["eur", "usd", "gbp", "chf", "euro"];
        let lower = text.trim().to_lowercase();
        let label = lower.trim_end_matches(':').trim_end();
        // `Grand Total North` begins with two words, and `Summe Total` ends with one of two.
        let rest = |word: &&str| {
            let behind =
                label.strip_prefix(*word).filter(|rest| rest.is_empty() || rest.starts_with([' ', ':']));
            behind.or_else(|| label.strip_suffix(*word).filter(|rest| rest.is_empty() || rest.ends_with(' ')))
        };
        let name = TOTAL_WORDS.iter().filter_map(rest).min_by_key(|rest| rest.len())?;
        let mut name = name.trim_matches([' ', ':', '-', '–']);
        for word in JOINING_WORDS {
            name =
                name.strip_prefix(word).and_then(|rest| rest.strip_prefix(' ')).unwrap_or(name).trim_start();
        }
        let is_nothing = !name.contains(char::is_alphabetic)
            || name.starts_with('(') && name.ends_with(')')
            || CURRENCIES.contains(&name);
        Some(Self { name: if is_nothing { String::new() } else { name.to_owned() } })
    }
}

/// How many of the ordinary rows have a value in each column.
#[derive(Debug, Default)]
struct FilledColumns {
    rows: usize,
    columns: Vec<FilledColumn>,
}

#[derive(Debug, Clone, Copy, Default)]
struct FilledColumn {
    values: usize,
    typed: usize,
}

impl FilledColumns {
    /// Over all ordinary rows: which columns always have a value, and always a number or a date.
    fn of(rows: &impl DataRows, end: usize, is_other: impl Fn(usize) -> bool) -> Self {
        let mut filled = Self::default();
        for at in (0..end).filter(|at| !is_other(*at)).take(CONTRAST_ROWS_MAX * 10) {
            let cells = rows.cells(at);
            // A blank row lacks every value, which says nothing about the others.
            filled.rows += usize::from(!cells.is_empty());
            for cell in &cells {
                if filled.columns.len() <= cell.column {
                    filled.columns.resize(cell.column + 1, FilledColumn::default());
                }
                let column = &mut filled.columns[cell.column];
                column.values += 1;
                column.typed += usize::from(matches!(cell.class, TextClass::Number | TextClass::Date));
            }
        }
        filled
    }

    /// Whether a row has a blank where all others have a value.
    fn lacks_value(&self, row: &SketchedRow) -> bool {
        let mut columns = self.columns.iter().enumerate();
        columns.any(|(column, filled)| filled.values == self.rows && row.get(column).is_none())
    }

    /// Whether a row begins with a label where every other has a date, as on a sheet of hours whose total is a duration.
    fn contradict(&self, row: &SketchedRow) -> bool {
        let label = row.cells.first().and_then(|cell| self.columns.get(cell.column));
        row.cells.len() > 1 && label.is_some_and(|column| column.typed == self.rows)
    }
}

/// Rows with a word for a total behind their first cell, which may be totals of other rows, or values of a column.
pub(super) fn find_inner_totals(
    rows: &impl DataRows,
    end: usize,
    header: &[String],
    unit: &str,
    found: &mut LeftOutRows,
) {
    let is_read = |(at, column): &(usize, usize)| {
        *at < end
            && !found.rows.contains(at)
            && rows.cells(*at).iter().any(|cell| cell.column > *column && cell.class == TextClass::Number)
    };
    let inner: Vec<(usize, usize)> = rows.inner_totals().into_iter().filter(is_read).collect();
    let Some((first, column)) = inner.first().copied() else { return };
    let row = rows.row(first);
    let text = row.get(column).map_or("", |cell| cell.text.trim());
    // The names on a sheet are not by column.
    let name = header.get(column).filter(|_| unit == "line").map(|name| format!(" in `{}`", name.trim()));
    let name = name.unwrap_or_default();
    let count = inner.len();
    found.notes.push(LayoutNote {
        kind: LayoutNoteKind::DoubtfulValues,
        message: format!(
            "has {} with a word for a total{name} (first `{text}` in {unit} {}), which may be totals of other rows and {} read as data",
            contract::humanize::pluralize(count as u64, "row"),
            row.number,
            if count == 1 { "is" } else { "are" }
        ),
        setting: format!("a sum counts their rows twice then; leave them out with a filter, such as `…_not={text}`"),
    });
}

/// A last row that is the sum of all others in every column of numbers, whatever its label, also without one.
pub(super) fn find_last_row_sum(rows: &impl DataRows, end: usize, unit: &str, found: &mut LeftOutRows) {
    const ROWS_MIN: usize = 3;
    let Some(at) = (0..end).rev().find(|at| !rows.cells(*at).is_empty()) else { return };
    if !(ROWS_MIN..GAPS_ROWS_MAX).contains(&at) {
        return;
    }
    let last = rows.row(at);
    let Some(label) = SumLabel::of(&last, &rows.cells(0)) else { return };
    let mut sums = ColumnSums::default();
    let mut has_labels = true;
    for before in 0..at {
        let cells = rows.cells(before);
        has_labels &= cells.first().is_none_or(|cell| cell.column < label.columns);
        sums.add(&cells);
        // Most tables are ruled out by their first rows: without negative numbers, sums only grow.
        if before == CONTRAST_ROWS_MAX && label.is_text && sums.exceed(&last) {
            return;
        }
    }
    let count = sums.count_sums_in(&last, label.columns);
    // Nothing but sums, below a blank row.
    if let SumCount::All(sums) | SumCount::Some(sums) = count
        && !label.is_text
        && last.follows_gap
        && sums == last.cells.len()
    {
        return leave_out_totals(vec![(at, last)], unit, found);
    }
    match count {
        SumCount::All(2..) => leave_out_totals(vec![(at, last)], unit, found),
        // One number may be a sum by accident.
        SumCount::All(1) if at > ROWS_MIN => {
            found.notes.extend(doubtful_totals(rows, end, &[(at, last)], unit));
        }
        // A rate or an average is not the sum of its column, so the sums of the others decide where just this row lacks what
        // all others begin with.
        SumCount::Some(2..) if !label.is_text && has_labels => {
            leave_out_totals(vec![(at, last)], unit, found);
        }
        SumCount::Some(1..) if !label.is_text && at > ROWS_MIN => {
            found.notes.extend(doubtful_totals(rows, end, &[(at, last)], unit));
        }
        SumCount::All(_) | SumCount::Some(_) => {}
    }
}

/// What stands before the numbers of a last row.
struct SumLabel {
    /// The columns before the numbers.
    columns: usize,
    /// Whether there is a text, and not a blank where other rows have a value.
    is_text: bool,
}

impl SumLabel {
    fn of(last: &SketchedRow, first_row: &[SketchedCell]) -> Option<Self> {
        let first = last.cells.first()?;
        let is_blank = || first_row.first().is_some_and(|cell| cell.column < first.column);
        match first.class {
            TextClass::Other => Some(Self { columns: first.column + 1, is_text: true }),
            TextClass::Number if is_blank() => Some(Self { columns: first.column, is_text: false }),
            TextClass::Number | TextClass::Date | TextClass::Blank => None,
        }
    }
}

fn leave_out_totals(totals: Vec<(usize, SketchedRow)>, unit: &str, found: &mut LeftOutRows) {
    if let Some((_, first)) = totals.first() {
        let numbers: Vec<u32> = totals.iter().map(|(_, row)| row.number).collect();
        let message = match numbers.as_slice() {
            [only] => format!("has a row of totals ({unit} {only}: {}), which is left out", first.quoted()),
            several => format!(
                "has {} rows of totals ({unit}s {}, first {}), which are left out",
                several.len(),
                name_rows(several),
                first.quoted()
            ),
        };
        let setting = "footer_rows = 0".to_owned();
        found.notes.push(LayoutNote { kind: LayoutNoteKind::LeftOut, message, setting });
        found.read_only_reason = Some(outdated_by_writes(&numbers, unit));
    }
    found.rows.extend(totals.into_iter().map(|(at, _)| at));
}

/// A note about rows that may be totals and are read as data.
fn doubtful_totals(
    rows: &impl DataRows,
    end: usize,
    doubts: &[(usize, SketchedRow)],
    unit: &str,
) -> Option<LayoutNote> {
    let ((first, row), (last, _)) = (doubts.first()?, doubts.last()?);
    let numbers: Vec<u32> = doubts.iter().map(|(_, row)| row.number).collect();
    let message = match numbers.as_slice() {
        [only] => {
            format!("has a row that may be a total and is read as data ({unit} {only}: {})", row.quoted())
        }
        several => format!(
            "has {} rows that may be totals and are read as data ({unit}s {}, first {})",
            several.len(),
            name_rows(several),
            row.quoted()
        ),
    };
    // Only rows at the end can be left out by a setting.
    let is_end = last + 1 - first == doubts.len() && (last + 1..end).all(|at| rows.cells(at).is_empty());
    if is_end {
        return Some(LayoutNote {
            kind: LayoutNoteKind::Doubt,
            message,
            setting: end_setting(rows, *first, row),
        });
    }
    let label = row.quoted();
    Some(LayoutNote {
        kind: LayoutNoteKind::DoubtfulValues,
        message,
        setting: format!(
            "no setting leaves out only rows in the middle of the table; if they are totals, remove them from the file, or leave \
             them out with a filter, such as `…_not={}`",
            label.trim_matches('`')
        ),
    })
}

/// The setting that ends the table before a row: by its label, if no row before it has the same.
fn end_setting(rows: &impl DataRows, at: usize, row: &SketchedRow) -> String {
    let label = row.cells.first().filter(|cell| cell.class == TextClass::Other).map(|cell| cell.text.trim());
    let stops_here = |label: &&str| {
        let layout = DeclaredLayout { stop_at: Some((*label).to_owned()), ..DeclaredLayout::default() };
        !label.ends_with('*') && !label.contains(char::is_control) && declared_end(rows, &layout) == at
    };
    match label.filter(stops_here) {
        Some(label) => format!("stop_at = {}", contract::toml_string(label)),
        None => format!("footer_rows = {}", rows.len() - at),
    }
}

/// A file with more candidates than this has names that look like totals.
const TOTALS_MAX: usize = 1000;

pub(super) fn name_rows(numbers: &[u32]) -> String {
    let mut text = String::new();
    for (at, number) in numbers.iter().take(ROWS_NAMED_MAX).enumerate() {
        let _ = write!(text, "{}{number}", if at == 0 { "" } else { ", " });
    }
    if numbers.len() > ROWS_NAMED_MAX {
        text.push_str(", …");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::TotalLabel;

    fn check(text: &str, name: Option<&str>) {
        let label = TotalLabel::parse(text);
        assert_eq!(label.as_ref().map(|label| label.name.as_str()), name, "{text}");
    }

    #[test]
    fn a_label_that_names_something_is_more_than_a_word_for_a_total() {
        for text in
            ["Total", "TOTAL:", "Grand Total", "Total général", "Summe (EUR)", "Total 2026", "Total EUR", "Σ"]
        {
            check(text, Some(""));
        }
        for (text, name) in [
            ("North Total", "north"),
            ("Total for Sales", "sales"),
            ("Summe Berlin:", "berlin"),
            ("Grand Total Ltd", "ltd"),
            ("Total Gas & Power", "gas & power"),
            ("Dim Sum", "dim"),
        ] {
            check(text, Some(name));
        }
        for text in ["Totally fine", "Consumer", "", "Average Joe's Gym"] {
            check(text, None);
        }
    }
}

//! Text laid out for a terminal: tables, records, wrapped paragraphs, and long lists of names cut short.
//!
//! No line is wider than [`OutputStyle::columns`]. Where there is no terminal, `columns` is `None` and every line is
//! as long as its content. Callers pass text that is safe to print (see `sanitize`).

use std::fmt::Write;

use crate::client::output_style::OutputStyle;
use crate::sanitize::{self, width};

/// No column becomes narrower than this to make room for the others.
const COLUMN_WIDTH_MIN: usize = 6;
const COLUMN_WIDTH_COMFORTABLE: usize = 18;
const GAP: usize = 2;
/// A value of a record takes at most this many lines.
const RECORD_LINES_MAX: usize = 4;

/// How a table treats one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ColumnFit {
    /// Cut to the width of the column, with an ellipsis.
    #[default]
    Truncate,
    /// Continued on the next lines of the same row.
    Wrap,
    /// Left out if the columns do not fit side by side. The rightmost goes first.
    Drop,
    /// Never cut: a name that people copy.
    Keep,
}

/// Rows under each other. A cell is one line of text.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) headers: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    fits: Vec<ColumnFit>,
    right_aligned: Vec<bool>,
}

impl Table {
    pub(crate) fn new(headers: &[&str]) -> Self {
        Self {
            headers: headers.iter().map(|&header| header.into()).collect(),
            rows: Vec::new(),
            fits: vec![ColumnFit::default(); headers.len()],
            right_aligned: vec![false; headers.len()],
        }
    }

    pub(crate) fn fit(mut self, column: usize, fit: ColumnFit) -> Self {
        self.fits[column] = fit;
        self
    }

    pub(crate) fn align_right(mut self, column: usize) -> Self {
        self.right_aligned[column] = true;
        self
    }

    /// Fits the table into the terminal. Columns marked [`ColumnFit::Drop`] go first; if even narrow columns do not
    /// fit, each row becomes a block of names and values.
    pub(crate) fn render(&self, style: &OutputStyle, indent: usize) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut shown: Vec<usize> = (0..self.headers.len()).collect();
        let Some(columns) = style.columns else { return self.render_columns(&shown, style, indent) };
        while self.total_width(&shown, |column| self.comfortable_width(column)) + indent > columns {
            let Some(last) = shown.iter().rposition(|column| self.fit_of(*column) == ColumnFit::Drop) else {
                break;
            };
            shown.remove(last);
        }
        if self.total_width(&shown, |column| self.min_width(column)) + indent > columns {
            return self.render_blocks(&shown, style, indent);
        }
        self.render_columns(&shown, style, indent)
    }

    fn fit_of(&self, column: usize) -> ColumnFit {
        self.fits.get(column).copied().unwrap_or_default()
    }

    fn total_width(&self, shown: &[usize], width_of: impl Fn(usize) -> usize) -> usize {
        shown.iter().map(|column| width_of(*column)).sum::<usize>() + GAP * shown.len().saturating_sub(1)
    }

    /// A column narrower than this is worth less than one more column is.
    fn comfortable_width(&self, column: usize) -> usize {
        match self.fit_of(column) {
            ColumnFit::Keep => self.column_width(column),
            ColumnFit::Truncate | ColumnFit::Wrap | ColumnFit::Drop => {
                self.column_width(column).min(COLUMN_WIDTH_COMFORTABLE)
            }
        }
    }

    /// The header stays readable.
    fn min_width(&self, column: usize) -> usize {
        match self.fit_of(column) {
            ColumnFit::Keep => self.column_width(column),
            ColumnFit::Truncate | ColumnFit::Wrap | ColumnFit::Drop => {
                let header = self.headers.get(column).map_or(0, |header| width(header));
                self.column_width(column).min(header.clamp(COLUMN_WIDTH_MIN, COLUMN_WIDTH_COMFORTABLE))
            }
        }
    }

    fn column_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).chain(self.headers.get(column));
        cells.map(|cell| width(cell)).max().unwrap_or(0)
    }

    fn render_columns(&self, shown: &[usize], style: &OutputStyle, indent: usize) -> String {
        let mut widths: Vec<usize> = shown.iter().map(|column| self.column_width(*column)).collect();
        if let Some(columns) = style.columns {
            let mins: Vec<usize> = shown.iter().map(|column| self.min_width(*column)).collect();
            let room = columns.saturating_sub(indent + GAP * shown.len().saturating_sub(1));
            shrink_widths(&mut widths, &mins, room);
        }
        let mut out = String::new();
        if self.headers.iter().any(|header| !header.is_empty()) {
            self.render_row(&mut out, &self.headers, shown, &widths, indent, |cell| style.faint(cell));
        }
        for row in &self.rows {
            self.render_row(&mut out, row, shown, &widths, indent, str::to_owned);
        }
        out
    }

    fn render_row(
        &self,
        out: &mut String,
        row: &[String],
        shown: &[usize],
        widths: &[usize],
        indent: usize,
        paint: impl Fn(&str) -> String,
    ) {
        let cells: Vec<Vec<String>> = shown
            .iter()
            .zip(widths)
            .map(|(column, width)| {
                let cell = row.get(*column).map_or("", String::as_str);
                match self.fit_of(*column) {
                    ColumnFit::Wrap => wrap(cell, Some(*width)),
                    ColumnFit::Truncate | ColumnFit::Drop | ColumnFit::Keep => {
                        vec![sanitize::truncate(cell, *width).into_owned()]
                    }
                }
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        for line_index in 0..height {
            let mut line = " ".repeat(indent);
            for (index, (column, lines)) in shown.iter().zip(&cells).enumerate() {
                let cell = lines.get(line_index).map_or("", String::as_str);
                let pad = " ".repeat(widths[index].saturating_sub(width(cell)));
                let gap = if index + 1 < shown.len() { GAP } else { 0 };
                let cell = if cell.is_empty() { String::new() } else { paint(cell) };
                let is_right = self.right_aligned.get(*column).copied().unwrap_or(false);
                let (before, after) = if is_right { (pad.as_str(), "") } else { ("", pad.as_str()) };
                let _ = write!(line, "{before}{cell}{after}{}", " ".repeat(gap));
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }

    fn render_blocks(&self, shown: &[usize], style: &OutputStyle, indent: usize) -> String {
        let blocks = self.rows.iter().map(|row| {
            let pairs: Vec<(String, String)> = shown
                .iter()
                .map(|column| (self.headers[*column].clone(), row.get(*column).cloned().unwrap_or_default()))
                .collect();
            render_record(&pairs, style, indent)
        });
        blocks.collect::<Vec<_>>().join("\n")
    }
}

/// Names and values, one pair under the other. A value that is too wide is continued below itself, except a single
/// long word: it stays whole, because a line break within a cursor or a token makes it impossible to copy.
pub(crate) fn render_record(pairs: &[(String, String)], style: &OutputStyle, indent: usize) -> String {
    let left = pairs.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    let left = style.columns.map_or(left, |columns| left.min(columns / 2));
    let blank = " ".repeat(indent);
    let mut out = String::new();
    for (name, value) in pairs {
        let name = sanitize::truncate(name, left);
        let room = style.columns.map(|columns| columns.saturating_sub(indent + left + GAP).max(1));
        let value = match room {
            Some(room) => sanitize::truncate(value, room * RECORD_LINES_MAX),
            None => value.into(),
        };
        let pad = " ".repeat(left - width(&name) + GAP);
        let room = room.filter(|_| value.contains(' '));
        let mut lines = wrap(&value, room).into_iter();
        let first = lines.next().unwrap_or_default();
        let _ = writeln!(out, "{}", format!("{blank}{}{pad}{first}", style.faint(&name)).trim_end());
        for line in lines {
            let _ = writeln!(out, "{blank}{}{line}", " ".repeat(left + GAP));
        }
    }
    out
}

/// Breaks a text at blanks into lines of at most this many columns. A word that is wider than a line is broken.
pub(crate) fn wrap(text: &str, columns: Option<usize>) -> Vec<String> {
    let Some(columns) = columns.map(|columns| columns.max(1)) else {
        return text.lines().map(str::to_owned).collect();
    };
    let mut out = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        let mut used = 0;
        for word in paragraph.split(' ') {
            let wide = width(word);
            if used > 0 && used + 1 + wide > columns {
                out.push(std::mem::take(&mut line));
                used = 0;
            }
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            for c in word.chars() {
                let wide = width(c.encode_utf8(&mut [0; 4]));
                if used + wide > columns && used > 0 {
                    out.push(std::mem::take(&mut line));
                    used = 0;
                }
                line.push(c);
                used += wide;
            }
        }
        out.push(line);
    }
    out
}

/// A paragraph whose first line begins with `first` and whose other lines begin with as many blanks.
pub(crate) fn hanging(first: &str, text: &str, columns: Option<usize>) -> String {
    let indent = width(first);
    let room = columns.map(|columns| columns.saturating_sub(indent).max(COLUMN_WIDTH_MIN));
    let mut out = String::new();
    for (index, line) in wrap(text, room).into_iter().enumerate() {
        let before = if index == 0 { first.to_owned() } else { " ".repeat(indent) };
        let _ = writeln!(out, "{}", format!("{before}{line}").trim_end());
    }
    out
}

/// Wraps the lines of a text that are too long and for which `is_wrapped` is true. A line is continued under its second
/// column, if it has one (`  --bind ADDRESS  Listen there`), otherwise under its first word. Colours take no room.
pub(crate) fn wrap_lines(text: &str, columns: Option<usize>, is_wrapped: impl Fn(&str) -> bool) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches(['\n', '\r']);
        if styled_width(content) <= columns || !is_wrapped(content) {
            out += line;
            continue;
        }
        let hang = hanging_indent(content).min(columns / 2);
        let (mut used, mut is_first) = (0, true);
        for word in content.split_inclusive(' ') {
            let room = styled_width(word.trim_end());
            if !is_first && used > hang && used + room > columns {
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
                out += &" ".repeat(hang);
                used = hang;
            }
            out += word;
            used += styled_width(word);
            is_first &= word.trim().is_empty();
        }
        out += &line[content.len()..];
    }
    out
}

/// The column under which a long line continues.
fn hanging_indent(line: &str) -> usize {
    let indent = line.len() - line.trim_start().len();
    let second = line[indent..].find("  ").map(|gap| {
        let rest = &line[indent + gap..];
        styled_width(&line[..indent + gap]) + rest.len() - rest.trim_start().len()
    });
    second.unwrap_or(indent)
}

/// The width of text with colours.
fn styled_width(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let first = parts.next().map_or(0, width);
    let after_color = |part: &str| part.split_once('m').map_or(0, |(_, rest)| width(rest));
    first + parts.map(after_color).sum::<usize>()
}

/// `a, b, c and 280 more`: at most `names_max` names, and no more than fit into `columns`; at least one.
pub(crate) fn join_names(names: &[impl AsRef<str>], names_max: usize, columns: Option<usize>) -> String {
    let mut shown = names.len().min(names_max.max(1));
    loop {
        let line = contract::humanize::join_truncated(names, shown);
        if shown <= 1 || columns.is_none_or(|columns| width(&line) <= columns) {
            return line;
        }
        shown -= 1;
    }
}

/// Narrows the widest columns until all fit, but none below its least width.
fn shrink_widths(widths: &mut [usize], mins: &[usize], room: usize) {
    let mut total: usize = widths.iter().sum();
    while total > room {
        let candidates: Vec<usize> =
            (0..widths.len()).filter(|index| widths[*index] > mins[*index]).collect();
        let Some(widest) = candidates.iter().map(|index| widths[*index]).max() else { return };
        let widest_columns: Vec<usize> =
            candidates.iter().copied().filter(|index| widths[*index] == widest).collect();
        // All of the widest shrink together: to the next width, to a least width, or as far as needed.
        let next = candidates.iter().map(|index| widths[*index]).filter(|width| *width < widest).max();
        let floor = widest_columns.iter().map(|index| mins[*index]).max().unwrap_or(0).max(next.unwrap_or(0));
        let each = (widest - floor).min((total - room).div_ceil(widest_columns.len()));
        for index in &widest_columns {
            widths[*index] -= each;
        }
        total -= each * widest_columns.len();
    }
}

#[cfg(test)]
mod tests {
    use super::{ColumnFit, Table, hanging, join_names, shrink_widths, width, wrap, wrap_lines};
    use crate::client::output_style::OutputStyle;

    #[test]
    fn long_lines_continue_under_their_second_column() {
        let check = |text: &str, expected: &str| assert_eq!(wrap_lines(text, Some(20), |_| true), expected);
        check("short\n", "short\n");
        check("  -b A  Listen on it please\n", "  -b A  Listen on it\n        please\n");
        check("error: it does not exist at all", "error: it does not\nexist at all");
        check("  \x1b[1mone\x1b[0m two three four five", "  \x1b[1mone\x1b[0m two three four\n  five");
        check("averyveryverylongwordwithoutblanks x", "averyveryverylongwordwithoutblanks\nx");
        assert_eq!(wrap_lines("a b c d e f g h i j k l m", None, |_| true), "a b c d e f g h i j k l m");
        assert_eq!(wrap_lines("a b c d e f g h i j k l m", Some(20), |_| false), "a b c d e f g h i j k l m");
    }

    #[test]
    fn the_widest_columns_shrink_first() {
        for (mut widths, room, expected) in [
            (vec![5, 20, 10], 40, vec![5, 20, 10]),
            (vec![5, 20, 10], 30, vec![5, 15, 10]),
            (vec![5, 20, 10], 24, vec![5, 9, 9]),
            (vec![100, 100], 21, vec![10, 10]),
            (vec![6, 6, 6], 10, vec![6, 6, 6]),
            (vec![], 10, vec![]),
        ] {
            let mins = vec![6; widths.len()];
            shrink_widths(&mut widths, &mins, room);
            assert_eq!(widths, expected);
        }
        let mut widths = vec![30, 40];
        shrink_widths(&mut widths, &[30, 6], 45);
        assert_eq!(widths, [30, 15], "a column that is kept does not shrink");
    }

    fn tools() -> Table {
        let mut table = Table::new(&["tool", "tokens", "arguments"])
            .align_right(1)
            .fit(1, ColumnFit::Drop)
            .fit(2, ColumnFit::Wrap);
        let arguments = "email, plan, signup_date_min, signup_date_max, sort, fields, limit, cursor";
        table.rows.push(vec!["list_customers".into(), "412".into(), arguments.into()]);
        table.rows.push(vec!["get_customers".into(), "98".into(), "email".into()]);
        table
    }

    #[test]
    fn a_table_wraps_then_drops_columns_then_becomes_blocks() {
        let narrow = |columns| tools().render(&OutputStyle::of_width(columns), 2);
        insta::assert_snapshot!(narrow(80), @r"
          tool            tokens  arguments
          list_customers     412  email, plan, signup_date_min, signup_date_max, sort,
                                  fields, limit, cursor
          get_customers       98  email
        ");
        insta::assert_snapshot!(narrow(40), @r"
          tool            arguments
          list_customers  email, plan,
                          signup_date_min,
                          signup_date_max, sort,
                          fields, limit, cursor
          get_customers   email
        ");
        for columns in 20..100 {
            let text = narrow(columns);
            assert!(text.lines().all(|line| width(line) <= columns), "{columns}:\n{text}");
        }
    }

    #[test]
    fn words_are_broken_only_where_a_line_is_too_short() {
        assert_eq!(wrap("one two three\nfour", Some(8)), ["one two", "three", "four"]);
        assert_eq!(wrap("unbreakable", Some(4)), ["unbr", "eaka", "ble"]);
        assert_eq!(wrap("漢字漢字", Some(5)), ["漢字", "漢字"]);
        assert_eq!(wrap("one two three", None), ["one two three"]);
        assert_eq!(hanging("note: ", "one two three", Some(13)), "note: one two\n      three\n");
    }

    #[test]
    fn a_list_of_names_is_cut_by_number_and_by_width() {
        let names: Vec<String> = (1..=300).map(|number| format!("table_{number}")).collect();
        assert_eq!(join_names(&names, 3, None), "table_1, table_2, table_3 and 297 more");
        assert_eq!(join_names(&names, 20, Some(30)), "table_1, table_2 and 298 more");
        assert_eq!(join_names(&names, 20, Some(5)), "table_1 and 299 more");
        assert_eq!(join_names(&names[..2], 20, None), "table_1, table_2");
    }
}

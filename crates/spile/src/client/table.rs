//! Rows under each other, in columns that fit the terminal.

use std::fmt::Write;

use super::output_style::OutputStyle;
use crate::sanitize::{self, width};

/// No column is made narrower than this to make room for others.
const COLUMN_WIDTH_MIN: usize = 6;
const GAP: usize = 2;
/// A value that stands alone is not cut before it takes so many lines.
const RECORD_LINES_MAX: usize = 4;

/// Cells are harmless text of one line.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) headers: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        Self { headers: heads.iter().map(|&head| head.into()).collect(), rows: Vec::new() }
    }

    /// Cut to the screen's width if it has one; where even narrow columns do not fit, each row is a block.
    pub(crate) fn render(&self, screen: &OutputStyle, indent: usize) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut widths = self.widths();
        if let Some(columns) = screen.columns {
            let room = columns.saturating_sub(indent + GAP * widths.len().saturating_sub(1));
            if widths.iter().map(|width| (*width).min(COLUMN_WIDTH_MIN)).sum::<usize>() > room {
                return self.render_blocks(screen, indent);
            }
            shrink_widths(&mut widths, room);
        }
        let mut out = String::new();
        if self.headers.iter().any(|head| !head.is_empty()) {
            let heads = render_row(&self.headers, &widths, |cell| screen.faint(cell));
            let _ = writeln!(out, "{}{heads}", " ".repeat(indent));
        }
        for cells in &self.rows {
            let cells = render_row(cells, &widths, str::to_owned);
            let _ = writeln!(out, "{}{cells}", " ".repeat(indent));
        }
        out
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.headers.iter().map(|head| width(head)).collect();
        for row in &self.rows {
            for (at, cell) in row.iter().enumerate() {
                widths[at] = widths[at].max(width(cell));
            }
        }
        widths
    }

    fn render_blocks(&self, screen: &OutputStyle, indent: usize) -> String {
        let blocks = self.rows.iter().map(|cells| {
            let pairs: Vec<(String, String)> =
                self.headers.iter().cloned().zip(cells.iter().cloned()).collect();
            render_record(&pairs, screen, indent)
        });
        blocks.collect::<Vec<_>>().join("\n")
    }
}

/// Names and values, a line each.
pub(crate) fn render_record(pairs: &[(String, String)], screen: &OutputStyle, indent: usize) -> String {
    let left = pairs.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    let left = screen.columns.map_or(left, |columns| left.min(columns / 2));
    let mut out = String::new();
    for (name, value) in pairs {
        let name = sanitize::truncate(name, left);
        // One that is worth copying, such as a cursor, may take some lines; one without end may not.
        let room = screen.columns.map(|columns| columns * RECORD_LINES_MAX - indent - left - GAP);
        let value = room.map_or(value.into(), |room| sanitize::truncate(value, room));
        let blank = " ".repeat(indent);
        let pad = " ".repeat(left - width(&name) + GAP);
        let _ = writeln!(out, "{}", format!("{blank}{}{pad}{value}", screen.faint(&name)).trim_end());
    }
    out
}

fn render_row(cells: &[String], widths: &[usize], paint: impl Fn(&str) -> String) -> String {
    let mut out = String::new();
    for (at, cell) in cells.iter().enumerate() {
        let cell = sanitize::truncate(cell, widths[at]);
        out.push_str(&paint(&cell));
        if at + 1 < cells.len() {
            out.push_str(&" ".repeat(widths[at] - width(&cell) + GAP));
        }
    }
    out.trim_end().to_owned()
}

/// Takes from the widest until it fits.
fn shrink_widths(widths: &mut [usize], room: usize) {
    let mut total: usize = widths.iter().sum();
    while total > room {
        let Some(widest) = widths.iter().max().copied().filter(|widest| *widest > COLUMN_WIDTH_MIN) else {
            return;
        };
        let next =
            widths.iter().filter(|width| **width < widest).max().copied().unwrap_or(0).max(COLUMN_WIDTH_MIN);
        let many = widths.iter().filter(|width| **width == widest).count();
        // All of the widest become narrower together, down to the next or as far as is needed.
        let each = (widest - next).min((total - room).div_ceil(many));
        for width in widths.iter_mut().filter(|width| **width == widest) {
            *width -= each;
        }
        total -= each * many;
    }
}

#[cfg(test)]
mod tests {
    use super::shrink_widths;

    #[test]
    fn the_widest_give_way_first() {
        for (mut widths, room, expected) in [
            (vec![5, 20, 10], 40, vec![5, 20, 10]),
            (vec![5, 20, 10], 30, vec![5, 15, 10]),
            (vec![5, 20, 10], 24, vec![5, 9, 9]),
            (vec![100, 100], 21, vec![10, 10]),
            (vec![6, 6, 6], 10, vec![6, 6, 6]),
            (vec![], 10, vec![]),
        ] {
            shrink_widths(&mut widths, room);
            assert_eq!(widths, expected);
        }
    }
}
